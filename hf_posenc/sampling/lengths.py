"""`lengths_of`: number of tokens in each row of a data set, from Arrow's offsets if possible."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.compat import indices_of
from .._common.errors import require_one_split, shorten, type_error, value_error
from ..collator import DataCollatorWithPositionalEncoding


def lengths_of(dataset: Any, column: str = "input_ids") -> NDArray[np.int64]:
    r"""Return the number of tokens in each row of a data set: the argument `lengths` of `plan_batches` and `pack`.

    Of a `datasets.Dataset` only the offsets of the lists are read, not the tokens. This takes milliseconds for a
    million rows. Any other data set is read row by row.

    Example:
        >>> lengths_of([{"input_ids": [5, 6, 7]}, {"input_ids": [8]}])
        array([3, 1])
        >>> import datasets
        >>> lengths_of(datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8]]}).select([1, 0]))
        array([1, 3])
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(dataset, pandas.DataFrame):
        dataset = dataset.to_dict("records")
    require_rows(dataset)
    if not hasattr(dataset, "__len__"):
        raise type_error(
            "batches cannot be planned for a data set without a length",
            got=type(dataset).__name__,
            fix="stream_batches(stream, token_budget); pack_dataset(stream, max_length) for a datasets.IterableDataset",
        )
    if is_dataset(dataset):
        return _of_arrow(dataset, column)
    return np.fromiter(_one_by_one(dataset, column), dtype=np.int64, count=len(dataset))


TO_DATASET = (
    "datasets.Dataset.from_list(rows), .from_dict(columns) or .from_pandas(frame); "
    "datasets.IterableDataset.from_generator(function)"
)


def require_rows(dataset: Any) -> None:
    r"""Raise `TypeError` if `dataset` is not a sequence or stream of rows.

    Iterating over a mapping or a table gives the names of its columns, and over a text its characters.

    Example:
        >>> require_rows([{"input_ids": [5]}])  # no error
    """
    require_one_split(dataset)
    is_table = isinstance(dataset, Mapping) or type(dataset).__name__ in ("DataFrame", "Table")  # of any library
    has_rows = hasattr(dataset, "__iter__") or hasattr(dataset, "__getitem__")
    if is_table or isinstance(dataset, (str, bytes)) or not has_rows:
        raise type_error("a data set is a sequence or stream of rows", got=type(dataset).__name__, fix=TO_DATASET)


def truncated_lengths(lengths: NDArray[np.int64], collator: Any) -> NDArray[np.int64]:
    """Return the numbers of tokens that rows of the given lengths have after `collator` has truncated them."""
    if not isinstance(collator, DataCollatorWithPositionalEncoding) or collator.max_length is None:
        return lengths
    # A row may be several documents, or become several rows.
    keeps_all = collator.packing or collator.return_overflowing_tokens
    return lengths if keeps_all or not collator.truncation else np.minimum(lengths, collator.max_length)


def is_dataset(dataset: Any) -> bool:
    r"""Return True if `dataset` is a `datasets.Dataset`, without importing `datasets`.

    Example:
        >>> is_dataset([{"input_ids": [5]}])
        False
    """
    library = sys.modules.get("datasets")
    return library is not None and isinstance(dataset, library.Dataset)


def is_list(dtype: Any) -> bool:
    """Return True if `dtype` is an Arrow list type: ordinary, large, or of fixed size."""
    import pyarrow as pa

    return any(is_one(dtype) for is_one in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _of_arrow(dataset: Any, column: str) -> NDArray[np.int64]:
    import pyarrow.compute as pc

    if column not in dataset.column_names:
        raise value_error(
            f"column '{column}' is missing, and it must hold the tokens",
            got=f"columns {dataset.column_names}",
            fix="tokenize first: dataset.map(collate, batched=True), or name the column of tokens",
        )
    values = dataset.data.column(column)
    if not is_list(values.type):
        raise value_error(
            f"column '{column}' must hold lists of tokens",
            got=f"values of type {values.type}",
            fix="tokenize first: dataset.map(collate, batched=True)",
        )
    lengths = pc.list_value_length(values)
    indices = indices_of(dataset)
    if indices is not None:
        lengths = lengths.take(indices.column(0))
    if lengths.null_count:
        null_rows = np.flatnonzero(lengths.is_null().to_numpy())
        raise value_error(
            f"row {null_rows[0]} of column '{column}' is None, expected a list of tokens",
            got=f"{len(null_rows)} missing of {len(lengths)} rows",
            fix=f'dataset.filter(lambda row: row["{column}"] is not None)',
        )
    counted: NDArray[np.int64] = lengths.to_numpy().astype(np.int64)
    return counted


def _one_by_one(dataset: Any, column: str) -> Iterator[int]:
    for index in range(len(dataset)):
        row = dataset[index]
        if not isinstance(row, Mapping) or column not in row:
            keys = list(row) if isinstance(row, Mapping) else []
            lists = [key for key in keys if isinstance(row[key], list)]
            raise value_error(
                f"row {index} has no column '{column}', which must hold the tokens",
                got=f"keys {shorten(keys)}" if keys else shorten(row),
                fix=f"column={lists[0]!r}, if it holds the tokens"
                if lists
                else "tokenize first, or give the lengths themselves" + ": [len(ids) for ids in rows]" * (not keys),
            )
        tokens = row[column]
        if not hasattr(tokens, "__len__") or isinstance(tokens, (str, bytes)):
            raise value_error(
                f"row {index} of column '{column}' must be a list of tokens",
                got=shorten(tokens),
                fix="tokenize first, or give the lengths themselves",
            )
        yield len(tokens)
