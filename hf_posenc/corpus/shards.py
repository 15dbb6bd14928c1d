"""Shards: tokenize the documents of a task, and write them to Parquet files whose footers hold their records.

This runs in the workers. Apart from the tokenizer it uses only NumPy and Arrow.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from .._common.errors import explain, message_of, option, shorten, value_error
from ..documents import Documents as TokenDocuments
from ..documents import Limits
from ..packing import pack
from ..ragged import Ragged
from ..tokenization import Encoder
from .columns import HUGGING_FACE, Columns
from .documents import Bad, Documents, Part
from .options import Options
from .output import DATA, REJECTED, Output
from .text import TextFile

if TYPE_CHECKING:
    from ..tokenization import SerializedTokenizer

FORMAT_VERSION = 3  # of shards, job.json and manifest.json
_RECORD, _DIGEST = b"hf_posenc", b"hf_posenc_sha256"  # keys in the footer
_BLOCK = 1 << 20
# int32 takes half the size of int64; collators convert it.
_TOKEN = pa.int32()
_TOKENS = pa.list_(_TOKEN)
_GROUP_BYTES = 16 << 20  # approximate size of a row group; readers load a row group as a whole
# Tokens of the documents that are packed together. More tokens give fuller rows; one row in 512 may stay half empty.
_WINDOW_TOKENS, _WINDOW_ROWS = 2_000_000, 512
# Consecutive rows that form a padded batch in the estimate of the padding.
_BATCH_ROWS = 32
_LONG = 4 << 20  # characters from which on a document is tokenized alone, in blocks
_COUNTED = 1 << 30  # bytes before a part in which lines are counted for an error message


@dataclass(frozen=True, kw_only=True)
class Job(Options):
    r"""Settings of a job that its workers need: the checked options, and values that `encode` adds.

    Args:
        output (`Output`): the output.
        tokenizer (`SerializedTokenizer`): the tokenizer.
        carried (`pyarrow.Schema`): the columns to copy from the inputs to the shards; empty for packed rows.
        has_types (`bool`): True if the tokenizer makes `token_type_ids`, which the shards hold for text pairs.
        first_position (`int`): position id of the first token of a document.
        digest (`str`): digest of settings, inputs and versions, for the footer of each shard.
        libraries (mapping): versions that every machine must have.
    """

    output: Output
    tokenizer: SerializedTokenizer
    carried: pa.Schema
    has_types: bool = False
    first_position: int = 0
    digest: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    r"""Parts whose documents one worker writes to one shard, or to several if its only part needs several.

    Args:
        number (`int`): number of the task, from 0.
        parts (`tuple` of `Part`): the parts, in order.
        done (`frozenset` of `int`): numbers of the shards of this task that are finished.
    """

    number: int
    parts: tuple[Part, ...]
    done: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """Bytes of its parts, or an estimate."""
        return sum(part.size for part in self.parts)

    def __str__(self) -> str:
        first = self.parts[0]
        rest = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        unit = (
            "byte" if isinstance(first.source, TextFile) else "row group" if first.source.kind == "parquet" else "row"
        )
        return f"{first.source.shown} from {unit} {first.begin:,}{rest}"


def shard_name(task: int, shard: int = 0) -> str:
    r"""Return the path of a shard, relative to the output; names sort in the order of the documents.

    Example:
        >>> shard_name(3)
        'data/shard-000003-000.parquet'
    """
    return f"{DATA}/shard-{task:06d}-{shard:03d}.parquet"


def rejected_name(shard: str) -> str:
    """Return the path of the file with the rejected documents of a shard, given the path of the shard."""
    return f"{REJECTED}/{shard.removeprefix(f'{DATA}/').removesuffix('.parquet')}.jsonl"


def schema_of(job: Job) -> pa.Schema:
    r"""Return the Arrow schema of the shards of a job.

    The columns are, in this order:

    - `input_ids`;
    - `token_type_ids` for text pairs if the tokenizer makes them, `position_ids` for packed rows, and `labels` with the
      option `labels`;
    - `source` and `row`, the origin of each document, with the option `source_columns`; lists for packed rows;
    - `length`, the number of tokens of the row;
    - the columns copied from the input.
    """
    fields = [pa.field("input_ids", _TOKENS)]
    if job.text_pair_column is not None and job.has_types:
        fields.append(pa.field("token_type_ids", _TOKENS))
    if job.pack is not None:
        fields.append(pa.field("position_ids", _TOKENS))
    if job.labels is not None:
        fields.append(pa.field("labels", _TOKENS))
    if job.source_columns:  # before `length`, so that they differ from copied columns of these names
        for name, kind in (("source", pa.string()), ("row", pa.int64())):
            fields.append(pa.field(name, kind if job.pack is None else pa.list_(kind)))
    fields.append(pa.field("length", _TOKEN))
    metadata = {name: value for name, value in (job.carried.metadata or {}).items() if name == HUGGING_FACE}
    return pa.schema([*fields, *job.carried], metadata=metadata or None)


@dataclass(frozen=True, eq=False)
class _Block:
    """Tokenized documents: `columns` have one row or more for each document, whose index in `carried` is `sample`."""

    columns: dict[str, Ragged]
    carried: pa.Table
    sample: NDArray[np.int64]

    @classmethod
    def joined(cls, blocks: Sequence[_Block]) -> _Block:
        if len(blocks) == 1:
            return blocks[0]
        counts = np.array([len(block.carried) for block in blocks])
        before = np.cumsum(counts) - counts
        return cls(
            {name: Ragged.joined([block.columns[name] for block in blocks]) for name in blocks[0].columns},
            pa.concat_tables([block.carried for block in blocks]),
            np.concatenate([block.sample + count for block, count in zip(blocks, before, strict=True)]),
        )


class _Batches:
    """Batches of documents of a task, one shard after another."""

    def __init__(self, batches: Iterator[Documents]) -> None:
        self._batches, self._next = batches, next(batches, None)

    def of_shard(self, shard: int) -> Iterator[Documents]:
        while self._next is not None and self._next.shard == shard:
            batch, self._next = self._next, None
            yield batch
            del batch  # its texts are not needed while the next ones are read
            self._next = next(self._batches, None)

    @property
    def are_over(self) -> bool:
        return self._next is None


class ShardWriter:
    r"""Writer of the shards of one job; each worker makes one.

    Args:
        job (`Job`): the settings.
        window_tokens (`int`, *optional*, defaults to 2,000,000): minimum number of tokens in a window, a group of
            consecutive documents that are packed together; raised to the tokens of 512 full packed rows. Only the last
            window of a shard may be smaller.
    """

    def __init__(self, job: Job, window_tokens: int = _WINDOW_TOKENS) -> None:
        self._job = job
        self._window_tokens = max(window_tokens, _WINDOW_ROWS * (job.pack or 0))
        self._limits = Limits(
            job.max_length,
            "do_not_truncate" if job.too_long == "error" else "longest_first",
            overflow=job.too_long == "split",
            stride=job.stride,
        )
        self._encoder = Encoder(
            job.tokenizer.load(),
            self._limits,
            add_special_tokens=job.add_special_tokens,
            backend=job.backend,
            dtype=np.int32,  # as in the shards
        )
        self._columns = Columns(job.texts, job.carried)
        self._schema = schema_of(job)
        self._empty = self._encoder.tokenize([""], None if len(job.texts) == 1 else [""]).ids.values

    def write(self, task: Task) -> Iterator[dict[str, Any]]:
        """Write the unfinished shards of a task, and yield the record of each one."""
        batches = _Batches(self._documents(task))
        shard = 0
        while True:
            if shard in task.done:
                for _ in batches.of_shard(shard):
                    pass
            else:
                yield _Shard(self, task, shard).write(batches)
            if batches.are_over:
                return
            shard += 1

    def _documents(self, task: Task) -> Iterator[Documents]:
        for part in task.parts:
            yield from part.source.documents(part, self._columns, self._job.shard_bytes or 0)


class _Shard:
    """One shard while it is written."""

    def __init__(self, writer: ShardWriter, task: Task, number: int) -> None:
        self._job, self._encoder, self._writer = writer._job, writer._encoder, writer
        self._task, self._number = task, number
        self._digest = xxhash.xxh3_128()
        self._lengths = [np.zeros(0, np.int64)]
        self._rejected: list[dict[str, Any]] = []
        self._counts = dict.fromkeys(("documents", "cut", "blank", "lines", "read"), 0)

    def write(self, batches: _Batches) -> dict[str, Any]:
        """Write the shard and its rejected documents, and return its record."""
        job, name = self._job, shard_name(self._task.number, self._number)
        carried = [*job.carried.names, *(["source"] if job.source_columns else [])]
        # Token ids spread over the whole vocabulary: a dictionary or statistics of them cost more than they save, and
        # zstd compresses them to a third.
        options = {"compression": "zstd", "compression_level": 1, "use_dictionary": carried}
        options["write_statistics"] = ["length", *carried]
        schema = self._writer._schema
        with job.output.new_file(name) as path, _HashedFile(path) as file:
            with pq.ParquetWriter(file, schema, **options) as writer:
                for table in self._tables(batches.of_shard(self._number)):
                    writer.write_table(table, row_group_size=len(table))
                record = self._record(name, is_last=batches.are_over)
                text = json.dumps({"format_version": FORMAT_VERSION, "size": file.tell(), "record": record}).encode()
                checksum = file.sha256.copy()
                checksum.update(text)
                writer.add_key_value_metadata({_RECORD: text, _DIGEST: checksum.hexdigest().encode()})
            self._write_rejected(rejected_name(name))
            return {**record, "bytes": file.tell(), "sha256": file.sha256.hexdigest()}

    def _record(self, name: str, *, is_last: bool) -> dict[str, Any]:
        lengths = np.concatenate(self._lengths)
        padded = [lengths[start : start + _BATCH_ROWS] for start in range(0, len(lengths), _BATCH_ROWS)]
        first, last = self._task.parts[0], self._task.parts[-1]
        return {
            "file": name,
            "last": is_last,
            "from": [first.source.recorded, first.begin],
            "to": [last.source.recorded, last.end],
            "rows": len(lengths),
            "tokens": int(lengths.sum()),
            "longest": int(lengths.max(initial=0)),
            "padded": sum(int(batch.max()) * len(batch) for batch in padded),
            **self._counts,
            "rejected": len(self._rejected),
            "on_bad_row": self._job.on_bad_row if self._rejected else None,  # otherwise it had no effect
            "digest": self._digest.hexdigest(),
            "job": self._job.digest,
        }

    def _write_rejected(self, name: str) -> None:
        if self._rejected:
            # File names may hold any bytes; those that are not UTF-8 are escaped.
            lines = (json.dumps(entry, ensure_ascii=False) + "\n" for entry in self._rejected)
            self._job.output.write(name, "".join(lines).encode("utf-8", "backslashreplace"))
        else:
            self._job.output.remove(name)

    # ------------------------------------------------------------------------------------ documents to tokenized blocks

    def _blocks(self, batches: Iterator[Documents]) -> Iterator[_Block]:
        for documents in batches:
            for buffer in documents.raw:
                self._digest.update(buffer)
                self._counts["read"] += len(buffer)
            self._counts["lines"] += documents.lines
            self._counts["blank"] += documents.blank
            self._counts["documents"] += len(documents.numbers)
            if documents.numbers:
                yield self._block(documents, *self._tokenize(documents))

    def _block(self, documents: Documents, rows: TokenDocuments, bad: Bad) -> _Block:
        job, columns, sample = self._job, {"input_ids": rows.ids}, rows.sample
        if job.text_pair_column is not None and "token_type_ids" in rows.columns:
            columns["token_type_ids"] = rows.columns["token_type_ids"]
        self._counts["cut"] += rows.truncated
        if bad:
            if job.on_bad_row == "error":
                raise ValueError(self._bad_row(documents, min(bad), *bad[min(bad)]))
            self._rejected += (self._entry(documents, row, *bad[row]) for row in sorted(bad))
            if job.on_bad_row == "skip":
                keep = ~np.isin(sample, np.fromiter(bad, np.int64, len(bad)))
                columns, sample = {name: column.filter(keep) for name, column in columns.items()}, sample[keep]
        # A slow tokenizer returns int64; the shards hold int32.
        columns = {
            name: Ragged(column.values.astype(np.int32, copy=False), column.lengths) for name, column in columns.items()
        }
        carried = documents.carried
        if job.source_columns:
            name = documents.source.recorded.encode("utf-8", "backslashreplace").decode()
            names = pa.DictionaryArray.from_arrays(pa.array([0] * len(carried), pa.int32()), [name])
            begins = _integers(documents.begins, pa.int64())
            carried = carried.append_column("source", names).append_column("row", begins)
        return _Block(columns, carried, sample)

    def _tokenize(self, documents: Documents) -> tuple[TokenDocuments, Bad]:
        """Tokenize a batch of documents; return the rows, and all bad documents."""
        texts, bad = documents.texts, dict(documents.bad)
        try:
            rows = self._rows(texts)
        except ValueError:  # the tokenizer's error names no row: tokenize each document alone
            refused: Bad = {}
            for row, document in enumerate(zip(*texts, strict=True)):
                try:
                    self._rows([[text] for text in document])
                except ValueError as error:
                    refused[row] = f"is refused by the tokenizer: {_reason(error)}", document[0]
            if not refused:
                raise
            bad = {**refused, **bad}
            rows = self._rows(_emptied(texts, bad))
        for row in np.flatnonzero(self._is_empty(rows.ids)).tolist():
            number = int(rows.sample[row])
            bad.setdefault(number, ("has no tokens", texts[0][number]))
        limit = self._job.max_length
        if limit is not None and rows.ids.longest > limit:  # only with too_long="error"; one row per document
            for row in np.flatnonzero(rows.ids.lengths > limit).tolist():
                bad.setdefault(row, (f"has {rows.ids.lengths[row]} tokens, limit {limit}", texts[0][row]))
            if self._job.on_bad_row == "keep-empty":
                rows = self._rows(_emptied(texts, bad))
        return rows, bad

    def _rows(self, texts: list[list[str]]) -> TokenDocuments:
        if len(texts) == 1 and len(texts[0]) == 1 and len(texts[0][0]) > _LONG:
            text = texts[0][0]
            return self._encoder.tokenize_blocks(text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK))
        return self._encoder.tokenize(*texts)

    def _is_empty(self, ids: Ragged) -> NDArray[np.bool_]:
        """Return a bool array: True for each row with the same token ids as an empty text."""
        empty = self._writer._empty
        is_empty: NDArray[np.bool_] = ids.lengths == len(empty)
        rows = np.flatnonzero(is_empty)
        tokens = ids.values[ids.offsets[rows][:, None] + np.arange(len(empty))]  # (rows, tokens of an empty text)
        is_empty[rows] = (tokens == empty).all(axis=1)
        return is_empty

    # ---------------------------------------------------------------------------------------------------- bad documents

    def _begins_inside(self, documents: Documents) -> bool:
        """Return True if the documents are of a part that begins inside a text file, after lines of unknown number."""
        part = self._task.parts[0]
        return documents.source is part.source and part.begin > 0 and documents.unit == "line"

    def _entry(self, documents: Documents, row: int, reason: str, text: str | None) -> dict[str, Any]:
        """Return the JSON object of a rejected document; `encode` replaces `line_in_shard` by `line` at the end."""
        return {
            "file": documents.source.recorded,
            "line_in_shard" if self._begins_inside(documents) else documents.unit: documents.numbers[row],
            "reason": reason,
            **({} if not text else {"text": text[:200]}),
        }

    def _bad_row(self, documents: Documents, row: int, reason: str, text: str | None) -> str:
        number, place = documents.numbers[row], ""
        if self._begins_inside(documents):
            part = self._task.parts[0]
            if part.begin < _COUNTED and isinstance(part.source, TextFile):
                number += part.source.count_lines(part.begin)
            else:
                place = f" after byte {part.begin:,}"
        fixes = ["download or write the file again"] if documents.is_damage else []
        fixes.append(f"{option('on_bad_row', 'skip')} leaves such rows out and lists them in rejected/")
        if self._job.pack is None:
            fixes.append(f"{option('on_bad_row', 'keep-empty')} keeps them as empty texts")
        return explain(
            f"{documents.source.shown}, {documents.unit} {number}{place}: {reason}",
            got=shorten(text[:200]) if text else "no text",
            fix="; ".join(fixes),
        )

    # --------------------------------------------------------------------------------------- tokenized blocks to tables

    def _tables(self, batches: Iterator[Documents]) -> Iterator[pa.Table]:
        """Tokenize the documents of the shard, and yield a table for each row group."""
        waiting: list[_Block] = []
        tokens = window = 0
        for block in self._blocks(batches):
            waiting.append(block)
            tokens += len(block.columns["input_ids"].values)
            if tokens >= self._writer._window_tokens:
                yield from self._window(_Block.joined(waiting), window)
                waiting, tokens, window = [], 0, window + 1
        if waiting:
            yield from self._window(_Block.joined(waiting), window)

    def _window(self, block: _Block, window: int) -> Iterator[pa.Table]:
        job, columns, schema = self._job, dict(block.columns), self._writer._schema
        ids = columns["input_ids"]
        if job.labels is not None:
            columns["labels"] = ids
        if job.pack is None:
            lengths, plan = ids.lengths, None
            sizes = lengths * 4 + block.carried.nbytes // max(len(block.carried), 1)
        else:
            filled = np.flatnonzero(ids.lengths)
            seed = ((self._task.number + (self._number << 20)) << 20) + window
            plan = pack(ids.lengths[filled], job.pack, seed=seed)
            lengths = plan.row_lengths
            sizes = lengths * 4
        groups = (np.cumsum(sizes) - sizes) // _GROUP_BYTES
        for start, stop in pairwise([*np.flatnonzero(np.diff(groups, prepend=-1)).tolist(), len(sizes)]):
            if plan is None:
                part = {name: column.between(start, stop) for name, column in columns.items()}
                documents = Ragged(block.sample[start:stop], np.ones(stop - start, np.int64))  # of each row
            else:
                offsets = plan.row_offsets[start : stop + 1]
                order = filled[plan.order[offsets[0] : offsets[-1]]]
                part = self._packed(columns, order, lengths[start:stop])
                documents = Ragged(block.sample[order], np.diff(offsets))
            arrays = {name: _lists(column) for name, column in part.items()}
            arrays["length"] = _integers(lengths[start:stop])
            carried = block.carried.take(_integers(documents.values, pa.int64()))
            for name, column in zip(carried.column_names, carried.columns, strict=True):
                kind = schema.field(name).type
                if job.pack is None:
                    arrays[name] = column.cast(kind)
                else:
                    values = column.cast(kind.value_type).combine_chunks()
                    arrays[name] = pa.ListArray.from_arrays(_integers(documents.offsets), values)
            self._lengths.append(lengths[start:stop])
            yield pa.table([arrays[name] for name in schema.names], schema=schema)

    def _packed(
        self, columns: Mapping[str, Ragged], order: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> dict[str, Ragged]:
        """Concatenate documents in the given order, and divide the tokens into packed rows of the given lengths."""
        packed_columns = {name: column.take(order) for name, column in columns.items()}
        packed_columns["position_ids"] = packed_columns["input_ids"].counters(self._job.first_position)
        if "labels" in packed_columns:
            documents = TokenDocuments(packed_columns, np.arange(len(order)))
            packed_columns["labels"], _ = documents.supervise(packed_columns["labels"], predicts_next=True)
        return {name: Ragged(column.values, lengths) for name, column in packed_columns.items()}


def _emptied(texts: Sequence[Sequence[str]], bad: Mapping[int, Any]) -> list[list[str]]:
    """Return a copy of `texts`, one list for each text column, with `""` for each document whose index is in `bad`."""
    return [["" if row in bad else text for row, text in enumerate(column)] for column in texts]


def _reason(error: ValueError) -> str:
    message = message_of(error)
    return str((message and message.got) or error).splitlines()[0]


def _lists(rows: Ragged) -> pa.ListArray:
    return pa.ListArray.from_arrays(_integers(rows.offsets), _integers(rows.values))


def _integers(values: NDArray[Any], kind: pa.DataType = _TOKEN) -> pa.Array:
    """Convert integers to an Arrow array of the type `kind`, without `pa.array`."""
    # `pa.array` would import pandas, which takes 0.3 s in each worker.
    values = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


class _HashedFile(io.BufferedWriter):
    """A binary file opened for writing; its attribute `sha256` is the hash object of all bytes written so far."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return super().write(data)


# ------------------------------------------------------------------------------------------------- reading shards again


def read_record(output: Output, name: str, size: int) -> dict[str, Any]:
    """Return the record in the footer of a shard of `size` bytes; raise `ValueError` if it is not a sound shard."""
    return {**_footer(output, name)[0]["record"], "bytes": size}


def _footer(output: Output, name: str) -> tuple[dict[str, Any], str]:
    """Return the parsed JSON in the footer of a shard, and the SHA-256 of row groups and JSON together."""
    try:
        with output.open(name) as file:
            metadata = pq.read_metadata(file).metadata or {}
        content, checksum = json.loads(metadata[_RECORD]), metadata[_DIGEST].decode()
    except (OSError, ValueError, KeyError, RecursionError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
            raise  # a file without read permission is not a damaged file
        raise value_error(f"{name} must be a shard that hf-posenc wrote", got=error) from error
    if not isinstance(content, dict) or content.get("format_version") != FORMAT_VERSION:
        raise value_error(f"{name} must have format version {FORMAT_VERSION}", got=shorten(content))
    record = content.get("record")
    if not (isinstance(record, dict) and is_record(record) and record["file"] == name and "size" in content):
        raise value_error(f"{name} must be a shard that hf-posenc wrote", got="a footer without its record")
    return content, checksum


_RECORD_TYPES = (
    dict.fromkeys(
        ("rows", "documents", "tokens", "rejected", "cut", "blank", "lines", "padded", "longest", "read"), int
    )
    | {"from": list, "to": list}
    | {"file": str, "digest": str, "job": str, "last": bool, "on_bad_row": str | None}
)


def is_record(record: object) -> bool:
    """Return True if `record` is the record of a shard: a `dict` with all required values, of the right types."""
    return isinstance(record, dict) and all(
        name in record and isinstance(record[name], kind) for name, kind in _RECORD_TYPES.items()
    )


def check_shard(output: Output, record: dict[str, Any]) -> str | None:
    r"""Read a shard and compare it with its record; return the difference, such as `"is damaged"`, or `None`.

    A record from `read_record` has no `sha256`. The checksum in the footer is used then, and `sha256` is added.
    """
    name = record["file"]
    try:
        written, sha256, left = hashlib.sha256(), hashlib.sha256(), 0
        content: dict[str, Any] = {}
        if "sha256" not in record:
            content, checksum = _footer(output, name)
            left = content["size"]
        with output.open(name) as file:
            while block := file.read(_BLOCK):
                sha256.update(block)
                written.update(block[: max(left, 0)])
                left -= len(block)
    except FileNotFoundError:
        return "is missing"
    except ValueError:
        return "is damaged"
    if "sha256" in record:
        return None if sha256.hexdigest() == record["sha256"] else "has another checksum than the one in the manifest"
    written.update(json.dumps(content).encode())
    if left > 0 or written.hexdigest() != checksum:
        return "is damaged"
    record["sha256"] = sha256.hexdigest()
    return None
