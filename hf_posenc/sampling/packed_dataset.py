"""`pack_dataset`: a function that packs a tokenized data set or stream, several documents into each row.

The packing is done by `documents.pack_rows`; this module reads and writes Arrow lists, and calls `datasets.map`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import require_one_of, type_error, value_error, warn
from .._common.integers import as_integer
from ..collator.token_ids import padding_message
from ..collator.warn import supervision_message, unread_masks_message
from ..documents import (
    BOUNDARIES,
    NUMBERS,
    PER_TOKEN,
    SUPERVISION,
    TOKEN_INDICES,
    Documents,
    Limits,
    is_no_mask,
    mask_of_texts,
    no_mask,
    pack_rows,
    read_documents,
    refuse_foreign_names,
)
from ..ragged import Ragged
from .lengths import TO_DATASET, is_dataset, is_list, lengths_of, require_rows

TooLong = Literal["error", "truncate", "split"]

# Columns of packed rows, in their order.
_NUMBERS = [name for name, column in PER_TOKEN.items() if column.packed and not column.is_vector]
_COLUMNS = ("input_ids", *_NUMBERS, "document_ids", "labels")


def pack_dataset(
    dataset: Any,
    max_length: int,
    *,
    column: str = "input_ids",
    too_long: TooLong = "error",
    labels: Literal["causal_lm"] | None = "causal_lm",
    document_ids: bool = False,
    pad_token_id: int = 0,
    first_position: int = 0,
    window: int = 10_000,
    seed: int = 0,
    num_proc: int | None = None,
) -> Any:
    r"""Pack the documents of a tokenized data set into rows of exactly `max_length` tokens.

    Pass the packed rows to `Trainer(..., data_collator=transformers.default_data_collator)`. Their columns are
    `input_ids`, `position_ids`, `attention_mask` and, depending on the arguments, `labels` and `document_ids`.

    The position ids restart with every document. GPT-2, Llama, Mistral, Qwen and similar models find the documents by
    these restarts, so that no token attends to another document. They do this only without an attention mask and
    without a key-value cache. For other models pack with `DataCollatorWithPositionalEncoding(model=..., packing=True)`,
    which makes the mask that they need.

    The column `attention_mask` contains a text instead of a mask, so that the model gets no mask:

    - `default_data_collator` leaves columns of texts out.
    - A collator that pads with a tokenizer would add a mask of ones. Because of the text, it raises an error that names
      `attention_mask` and "excessive nesting".
    - For a collator of your own, remove the column with `.remove_columns("attention_mask")`.

    Args:
        dataset (`datasets.Dataset` or `datasets.IterableDataset`): one tokenized document per row. A row can also hold
            several documents, if a column separates them: `document_ids`, `seq_idx`, `seq_lengths` (of TRL),
            `cu_seq_lens_q`, or `position_ids` that restart. Padding (0 in `attention_mask`) and rows without tokens are
            left out.
        max_length (`int`): number of tokens in a packed row.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of tokens.
        too_long (`"error"`, `"truncate"` or `"split"`, *optional*, defaults to `"error"`): treatment of a document
            longer than `max_length`: raise `ValueError`; truncate it, with a warning; or split it into several.
        labels (`"causal_lm"` or `None`, *optional*, defaults to `"causal_lm"`): `"causal_lm"` uses the `labels` of the
            data set, or its tokens if it has none. The first label of a document is -100 if it is the id of its token,
            because a causal model would predict it from the last token of another document. `None` makes no labels,
            and keeps those of first tokens. In both cases labels are -100 at tokens with 0 in `completion_mask`,
            `assistant_masks`, `assistant_tokens_mask` or `loss_mask`.
        document_ids (`bool`, *optional*, defaults to `False`): add the column `document_ids`, for models with such an
            argument: the number of each token's document in its row, counted from 0, and -1 at padding.
        pad_token_id (`int`, *optional*, defaults to 0): token id of the padding at the end of a row. Labels are -100
            there.
        first_position (`int`, *optional*, defaults to 0): position of a document's first token. Padding is numbered as
            one more document.
        window (`int`, *optional*, defaults to 10,000): number of rows of `dataset` that are packed together. For a
            stream, this many rows are read before the first packed row.
        seed (`int`, *optional*, defaults to 0): random seed to shuffle the packed rows of each window.
        num_proc (`int`, *optional*): number of processes of `datasets.map`; not for a stream.

    Returns:
        Data set of the class of `dataset`. The columns are lists of int32, except `attention_mask`. Of the other
        columns of `dataset`, those with one value per token that models take are kept: `token_type_ids`,
        `global_attention_mask`, `task_type_ids`, `mm_token_type_ids`, `langs` and `p_mask`. A warning names further
        lists of numbers.

    Raises:
        ValueError: if a document is too long for `too_long="error"`, if `column` is missing, or if a column such
            as `labels` does not have one value per token.
        TypeError: if `dataset` is not a data set of the library `datasets`, if it is a `datasets.DatasetDict`, or if
            its tokens are not integers.

    Example:
        >>> import datasets
        >>> documents = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8, 9], [4]]})
        >>> packed = pack_dataset(documents, 4)
        >>> for row in sorted(packed, key=lambda row: row["input_ids"]):
        ...     print(row["input_ids"], row["position_ids"], row["labels"])
        [5, 6, 7, 4] [0, 1, 2, 0] [-100, 6, 7, -100]
        [8, 9, 0, 0] [0, 1, 0, 1] [-100, 9, -100, -100]
    """
    max_length = as_integer(max_length, "max_length", minimum=1, example=2048)
    window = as_integer(window, "window", minimum=1, example=10_000)
    seed = as_integer(seed, "seed", minimum=0, example=0)
    require_one_of("too_long", too_long, get_args(TooLong))
    require_one_of("labels", labels, ("causal_lm", None))
    names = _column_names(dataset, column)
    if indices := [name for name in TOKEN_INDICES if name in names]:
        raise value_error(
            f"columns {indices} are indices of tokens in their row, and packing moves rows into others",
            got=f"columns {names}",
            fix=f"dataset.remove_columns({indices}), or train on rows that are not packed",
        )
    if labels is None and "labels" not in names and (masks := [name for name in SUPERVISION if name in names]):
        warn(unread_masks_message(masks, labels))
    settings: dict[str, Any] = {} if num_proc is None else {"num_proc": num_proc}
    is_checked = False
    if is_dataset(dataset):
        settings["desc"] = "Packing"
        settings["remove_columns"] = names  # a stream replaces its rows by the returned ones
        # Otherwise rows may contain several documents.
        is_checked = not ({"position_ids", *BOUNDARIES} - {"attention_mask"}) & set(names)
        if is_checked:
            _check_lengths(dataset, names, column, max_length, too_long)
    pack_window = _PackWindow(
        max_length, column, too_long, labels, document_ids, pad_token_id, first_position, seed, is_checked
    )
    packed = dataset.with_format("arrow").map(
        pack_window,
        batched=True,
        batch_size=window,
        with_indices=True,
        features=pack_window.features(names),
        **settings,
    )
    return packed.with_format(None)


@dataclass(frozen=True)
class _PackWindow:
    """Function that `pack_dataset` passes to `datasets.map`; each call packs `window` rows of the data set.

    It does not use torch, so that it can run in a forked worker. All fields but two are arguments of `pack_dataset`. If
    `is_checked` is True, `pack_dataset` has already raised or warned about documents that are too long. Each change to
    the packed rows increases `format_version`, so that `datasets` does not return rows of an older version.
    """

    max_length: int
    column: str
    too_long: TooLong
    labels: Literal["causal_lm"] | None
    document_ids: bool
    pad_token_id: int
    first_position: int
    seed: int
    is_checked: bool
    format_version: int = 6  # increase it when the rows change: the cache of `datasets` depends on fields, not on code

    def __call__(self, table: Any, indices: Sequence[int]) -> Any:
        """Pack the documents of a `pyarrow.Table`, and return the packed rows as a new table.

        `indices` are the row numbers of the table in the data set, for error messages.
        """
        first_row = indices[0] if len(indices) else 0
        rows = _read_documents(table, self.column, first_row, labels=self.labels, padding_id=self.pad_token_id)
        if not self.is_checked and rows.ids.longest > self.max_length:
            numbers = [indices[row] for row in rows.given_row.tolist()]
            _report_long(rows.ids.lengths, self.max_length, self.too_long, numbers, counted=False)
        rows = rows.truncate(Limits(self.max_length, overflow=self.too_long == "split"))
        columns = {name: rows.columns[name] for name in _COLUMNS if name in rows.columns and name != "position_ids"}
        if "labels" in columns:
            columns["labels"], _ = rows.supervise(columns["labels"], predicts_next=None if self.labels else False)
        packed = pack_rows(columns, self.max_length, seed=self.seed, first_position=self.first_position)
        if not self.document_ids:
            del packed["document_ids"]
        fills = {name: column.fill for name, column in PER_TOKEN.items()}
        fills |= {"input_ids": self.pad_token_id, "labels": IGNORED, "position_ids": self.first_position}
        return _to_arrow(packed, {**fills, "document_ids": -1}, self.max_length)

    def features(self, names: list[str]) -> Any:
        """Return the `datasets.Features` (column types) of the packed rows, for an input with columns `names`.

        `datasets.map` needs them before it reads a stream.
        """
        import datasets

        columns = {"input_ids", "position_ids"} | ({*_COLUMNS} - {"document_ids"}) & set(names)
        columns |= {"labels"} if self.labels is not None else set()
        columns |= {"document_ids"} if self.document_ids else set()
        numbers = {name: datasets.List(datasets.Value("int32")) for name in _COLUMNS if name in columns}
        return datasets.Features({**numbers, "attention_mask": datasets.Value("string")})


def _read_documents(table: Any, column: str, first_row: int, *, labels: str | None, padding_id: int) -> Documents:
    """Return the documents of `table`, one row for each, with labels if the table has some or `labels` is a kind."""
    columns: dict[str, Ragged] = {}
    is_packed = "attention_mask" in table.column_names and is_no_mask(table.column("attention_mask"))
    for name in (column, "labels", *PER_TOKEN, *BOUNDARIES):
        if name not in table.column_names or (name == "attention_mask" and is_packed):
            continue
        values = table.column(name)
        if name != column and values.null_count == len(values):
            continue
        is_mask = name in (*SUPERVISION, "attention_mask")
        rows = Ragged.from_rows(values, name=name, mask=is_mask, first_row=first_row)
        columns["input_ids" if name == column else name] = rows
    given = {name: table.column(name) for name in table.column_names}
    refuse_foreign_names(given, columns["input_ids"].lengths, first_row=first_row)
    if first_row == 0:  # the first window
        _warn_of_columns(table, columns, column, padding_id)
    if is_packed:
        lengths = columns["input_ids"].lengths
        columns["attention_mask"] = mask_of_texts(table.column("attention_mask").to_pylist(), lengths)
    documents, _ = read_documents(columns, first_row=first_row, is_packed=is_packed)
    documents = documents.split()
    if labels is not None:
        documents = documents.with_columns(labels=documents.columns.get("labels", documents.ids))
    if documents.masks and "labels" in documents.columns and first_row == 0:  # the first window
        warn(supervision_message(documents, documents.columns["labels"], None if labels else False))
    return documents


def _warn_of_columns(table: Any, columns: dict[str, Ragged], column: str, padding_id: int) -> None:
    """Warn of padding that document numbers do not mark, and of lists of numbers that packed rows do not keep."""
    import pyarrow as pa

    ids, is_numbered = columns["input_ids"], not columns.keys().isdisjoint(NUMBERS)
    if is_numbered and (message := padding_message(ids, padding_id, columns)):
        warn(message)
    read = {column, "labels", *PER_TOKEN, *BOUNDARIES}
    lists = [field for field in table.schema if is_list(field.type) and field.name not in read]
    if unread := [field.name for field in lists if pa.types.is_primitive(field.type.value_type)]:
        fix = f"dataset.remove_columns({unread}); a mask of the tokens to train on is read from 'loss_mask'"
        warn(f"columns {unread} are not in the packed rows", got="names that are not read", fix=fix)


def _to_arrow(rows: dict[str, Ragged], fills: dict[str, int], max_length: int) -> Any:
    """Return the columns `rows` as a `pyarrow.Table`; each row is padded at the end to `max_length` values."""
    import pyarrow as pa

    count = len(rows["input_ids"])
    offsets = pa.array(np.arange(count + 1) * max_length, pa.int32())  # raises if there are more than 2**31 - 1 tokens
    arrays = {}
    for name in _COLUMNS:
        if name in rows:
            narrow = Ragged(rows[name].values.astype(np.int32), rows[name].lengths)
            padded = narrow.pad(fills.get(name, 0), max_length)
            if name == "position_ids":  # one more document: kernels would take each 0 for a document
                behind = np.arange(max_length, dtype=np.int32) - narrow.lengths[:, None].astype(np.int32)
                padded = np.where(behind < 0, padded, behind + np.int32(fills[name]))
            arrays[name] = pa.ListArray.from_arrays(offsets, padded.ravel())
    arrays["attention_mask"] = pa.array(map(no_mask, rows["input_ids"].lengths.tolist()), pa.string(), size=count)
    return pa.table(arrays)


def _column_names(dataset: Any, column: str) -> list[str]:
    """Return the column names of a data set; of a stream without names, the keys of its first row."""
    require_rows(dataset)
    if not callable(getattr(dataset, "map", None)) or not hasattr(dataset, "with_format"):
        raise type_error("pack_dataset packs a data set of datasets", got=type(dataset).__name__, fix=TO_DATASET)
    names = dataset.column_names
    if names is None:
        names = list(next(iter(dataset), {}))
    if column not in names:
        raise value_error(
            f"column '{column}' is missing, and it must hold the tokens of the documents",
            got=f"columns {names}",
            fix="tokenize first: dataset.map(collate, batched=True), or name the column of tokens",
        )
    return list(names)


def _check_lengths(dataset: Any, names: list[str], column: str, max_length: int, too_long: TooLong) -> None:
    """Raise or warn, depending on `too_long`, if rows of `column` have more than `max_length` tokens."""
    if not is_list(dataset.data.schema.field(column).type):
        return  # reading the rows raises
    lengths = lengths_of(dataset, column)
    if int(lengths.max(initial=0)) <= max_length:
        return
    if "attention_mask" in names:  # padded rows have fewer tokens than values
        table = dataset.select_columns("attention_mask").with_format("arrow")[:]
        if not is_no_mask(table["attention_mask"]):
            mask = Ragged.from_rows(table["attention_mask"], name="attention_mask", mask=True)
            ids = Ragged(np.zeros(int(lengths.sum()), np.int64), lengths)
            lengths = read_documents({"input_ids": ids, "attention_mask": mask})[0].split().ids.lengths
    if int(lengths.max(initial=0)) > max_length:
        _report_long(lengths, max_length, too_long, range(len(lengths)), counted=True)


def _report_long(
    lengths: NDArray[np.int64], max_length: int, too_long: TooLong, numbers: Sequence[int], *, counted: bool
) -> None:
    """Raise `ValueError` or warn because at least one document has more than `max_length` tokens."""
    beyond = int((lengths > max_length).sum())
    if too_long == "error":
        longest = int(lengths.argmax())
        raise value_error(
            f"document {numbers[longest]} has {lengths[longest]} tokens, a row holds {max_length}",
            got=f"{beyond} of {len(lengths)} documents longer than max_length",
            fix='too_long="split" or too_long="truncate"',
        )
    if too_long == "truncate":
        subject = f"{beyond} of {len(lengths)} documents were" if counted else "documents of the stream are"
        warn(f"{subject} truncated to {max_length} tokens")
