"""`write_shard`: tokenize a part of the input, and write its rows as one Parquet file, whose footer has its record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import bad_data_error, message_of, shorten, value_error
from ..collator.columns import to_columns, to_table
from ..collator.pipeline import to_documents
from ..collator.several_documents import packed_rows
from ..collator.targets import with_labels
from ..ragged import Ragged
from .output import RECORD, SHARD, Output
from .reading import OTHER_ENCODING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..collator import DataCollatorWithPositionalEncoding
    from .reading import RemoteFiles, Slices

_LISTED = 1_000  # bad rows of a shard that are listed
_BATCH = 32  # neighboring rows that are padded together in the estimate of the padding


@dataclass(frozen=True)
class Job:
    r"""Settings that every shard needs.

    Args:
        output (`Output`): the output.
        collate (`DataCollatorWithPositionalEncoding`): tokenizes, with `on_empty="keep"`.
        columns (sequence of `str`): the columns to copy.
        on_bad_row (`"error"` or `"skip"`): treatment of rows without text or tokens.
        digest (`str`): digest of the job.
        versions (mapping from `str` to `str`): libraries that every machine must have.
    """

    output: Output
    collate: DataCollatorWithPositionalEncoding
    columns: Sequence[str]
    on_bad_row: str
    digest: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def write_shard(job: Job, number: int, source: Slices | RemoteFiles) -> dict[str, Any]:
    """Write a shard, and return its record."""
    import pyarrow.parquet as pq

    name, writer = SHARD.format(number), None
    record: dict[str, Any] = {"file": name, "shard": number, "job": job.digest}
    record |= {"documents": 0, "cut": 0, "blank": 0, "bad": 0, "bad_rows": []}
    lengths = [np.zeros(0, np.int64)]
    with job.output.new_file(name) as temporary:
        for first, table, is_line in source.tables(number):
            rows = _rows(job, first, table, is_line, record)
            lengths.append(rows["length"].to_numpy())
            if writer is None:
                # Ids spread over the vocabulary: a dictionary and statistics of them cost more than they save.
                settings = {"compression": "zstd", "compression_level": 1, "use_dictionary": list(job.columns)}
                writer = pq.ParquetWriter(temporary, rows.schema, write_statistics=["length", *job.columns], **settings)
            if len(rows):  # `datasets` cannot open a file whose first row group is empty
                writer.write_table(rows)
        sizes = np.concatenate(lengths)
        longest = np.maximum.reduceat(sizes, np.arange(0, len(sizes), _BATCH)) if len(sizes) else sizes
        record |= {"rows": len(sizes), "tokens": int(sizes.sum()), "longest": int(sizes.max(initial=0))}
        record["padded"] = int(np.repeat(longest, _BATCH)[: len(sizes)].sum())
        assert writer is not None
        writer.add_key_value_metadata({RECORD: json.dumps(record)})
        writer.close()
        with temporary.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {**record, "sha256": digest}


def _rows(job: Job, first: int, table: pa.Table, is_line: NDArray[np.bool_], record: dict[str, Any]) -> pa.Table:
    """Return the rows of a shard for some rows of the input, and add their counts to its record."""
    # `is_line` is True for lines of text files, which may be blank.
    import datasets
    import pyarrow as pa
    import pyarrow.compute as pc

    is_null, is_blank = np.zeros((2, len(table)), np.bool_)
    texts = [name for name in table.column_names if name not in job.columns]
    for name in texts:
        is_null |= table[name].is_null().to_numpy()
        if is_line.any():  # `datasets` leaves the byte order mark of a file in its first line
            unmarked = pc.if_else(pa.array(is_line), pc.utf8_ltrim(table[name], "\ufeff"), table[name])
            table = table.set_column(table.column_names.index(name), name, unmarked)
            is_blank |= is_line & pc.equal(pc.utf8_trim_whitespace(table[name]), "").to_numpy(zero_copy_only=False)
    is_null |= is_blank
    given = table.filter(pc.invert(pa.array(is_null))) if is_null.any() else table
    numbers, config = np.flatnonzero(~is_null), job.collate._config
    with placed(first, len(table)):
        rows, _ = to_documents(config, given.select(texts))
    is_empty = _is_empty(job, texts, rows.ids)
    bad = np.union1d(np.flatnonzero(is_null), numbers[rows.given_row[is_empty]])
    if len(bad):
        record["blank"] += int(is_blank.sum())
        _list_bad(job, first, table[texts[0]], bad[~is_blank[bad]], is_null, record)
        rows = rows.take(np.flatnonzero(~is_empty))
    record["documents"] += len(table) - len(bad)
    record["cut"] += rows.truncated + (0 if rows.targets is None else rows.targets.truncated)
    with placed(first, len(table)):
        if config.label_maker is not None:
            rows, _ = with_labels(config, rows)
        columns: dict[str, Any] = (
            packed_rows(config, rows) if config.settings.packing else to_columns(config, rows, None)
        )
    columns.pop("attention_mask", None)  # 1 at all tokens
    if len(texts) == 1 or config.has_targets:
        columns.pop("token_type_ids", None)
    for name, column in columns.items():  # int32 takes half the size; collators convert it
        if isinstance(column, Ragged):
            columns[name] = Ragged(_narrow(column.values), column.lengths)
        elif isinstance(column, np.ndarray):
            columns[name] = _narrow(column)
    if config.settings.packing:
        columns["length"] = _narrow(columns["input_ids"].lengths)
    sample = first + numbers[rows.given_row]
    if "overflow_to_sample_mapping" in columns:
        columns["overflow_to_sample_mapping"] = sample
    result = to_table(columns)
    for name in job.columns:
        if name in result.column_names:
            rule, fix = f"encode makes a column {name!r} itself", f"dataset.rename_column({name!r}, ...)"
            raise value_error(rule, got=f"columns={list(job.columns)}", fix=fix)
        column = table[name].take(pa.array(sample - first))
        result = result.append_column(pa.field(name, column.type), column)
    features = datasets.Features.from_arrow_schema(table.schema)  # such as the names of labels
    kept = datasets.Features({name: features[name] for name in job.columns}).arrow_schema.metadata
    return result.replace_schema_metadata(kept if job.columns else None)


@contextmanager
def placed(first: int, count: int) -> Iterator[None]:
    """Add the place of some rows in the input to an error of the collator, which numbers the rows of a batch."""
    try:
        yield
    except UnicodeDecodeError as error:  # Arrow reads any bytes from JSON
        where = f"a text in rows {first:,} to {first + count - 1:,} of the input is not UTF-8"
        raise bad_data_error(where, got=error, fix=OTHER_ENCODING) from error
    except (ValueError, TypeError) as error:
        if (message := message_of(error)) is None:
            raise
        where = f"in rows {first:,} to {first + count - 1:,} of the input, {message.rule}"
        raise bad_data_error(where, got=message.got, fix=message.fix) from error


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int32) if values.dtype == np.int64 else values


def _is_empty(job: Job, texts: Sequence[str], ids: Ragged) -> NDArray[np.bool_]:
    """Return True for each row that has the token ids of an empty text."""
    nothing: dict[str, Any] = {name: [[]] if job.collate.is_split_into_words else [""] for name in texts}
    empty = to_documents(job.collate._config, nothing)[0].ids.values
    is_empty: NDArray[np.bool_] = ids.lengths == len(empty)
    for row in np.flatnonzero(is_empty).tolist():
        is_empty[row] = np.array_equal(ids[row], empty)
    return is_empty


def _list_bad(
    job: Job, first: int, texts: Any, bad: NDArray[np.int64], is_null: NDArray[np.bool_], record: dict[str, Any]
) -> None:
    """Count and list rows without text or tokens; raise `ValueError` for the first one unless they are skipped."""
    listed = [
        {"row": first + row, "reason": "no text" if is_null[row] else "no tokens", "text": shorten(text)}
        for row, text in zip(bad.tolist(), texts.take(bad).to_pylist(), strict=True)
    ]
    if listed and job.on_bad_row == "error":
        raise bad_data_error(
            f"row {listed[0]['row']:,} of the input has {listed[0]['reason']}",
            got=f"{listed[0]['text']}, and {len(listed) - 1} more such rows of {len(texts):,}",
            fix='on_bad_row="skip" leaves such rows out and lists them in the report',
        )
    record["bad"] += len(listed)
    record["bad_rows"] += listed[: _LISTED - len(record["bad_rows"])]
