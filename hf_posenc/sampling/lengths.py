"""`lengths_of`: number of tokens in each row of a data set, from Arrow's offsets if possible."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.compat import indices_of
from .._common.errors import require_one_split, shorten, type_error, value_error
from ..collator import DataCollatorWithPositionalEncoding
from ..collator.inputs import check_row


def lengths_of(dataset: Any, column: str = "input_ids") -> NDArray[np.int64]:
    r"""Return the number of tokens in each row of a data set: the argument `lengths` of `plan_batches` and `pack`.

    Of a `datasets.Dataset` only the offsets of the lists are read, not the tokens. This takes milliseconds for a
    million rows. Any other data set is read row by row. A column of integers holds the numbers of tokens themselves.

    Example:
        >>> lengths_of([{"input_ids": [5, 6, 7]}, {"input_ids": [8]}])
        array([3, 1])
        >>> import datasets
        >>> lengths_of(datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8]]}).select([1, 0]))
        array([1, 3])
    """
    require_rows(dataset)
    if not hasattr(dataset, "__len__"):
        raise type_error(
            "batches cannot be planned for a data set without a length",
            got=type(dataset).__name__,
            fix="stream_batches(stream, token_budget); pack_dataset(stream, max_length) for a datasets.IterableDataset",
        )
    if is_dataset(dataset):
        return _of_arrow(dataset, column)
    counted = (length_of(dataset[index], column, index) for index in range(len(dataset)))
    return np.fromiter(counted, dtype=np.int64, count=len(dataset))


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


def length_of(row: Any, column: str, number: int) -> int:
    """Return the number of tokens in a column of row `number`, or the value of the column, if it is an integer."""
    tokens: Any = row.get(column) if isinstance(row, Mapping) else None
    if hasattr(tokens, "__len__") and not isinstance(tokens, (str, bytes)):
        return len(tokens)
    if isinstance(tokens, numbers.Integral):
        return int(tokens)
    check_row(number, row)
    raise type_error(
        f"row {number} has no tokens in column '{column}', which give its length",
        got=shorten(row),
        fix="tokenize first: dataset.map(collate, batched=True); or name the column of tokens. "
        "Of rows of ids, give the lengths",
    )


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
    import pyarrow as pa
    import pyarrow.compute as pc

    values = dataset.data.column(column) if column in dataset.column_names else pa.chunked_array([[]])
    if not is_list(values.type) and not pa.types.is_integer(values.type):
        raise value_error(
            f"column '{column}' must hold lists of tokens, or their numbers",
            got=f"columns {shorten(dict(dataset.features))}",
            fix="tokenize first: dataset.map(collate, batched=True), or name the column of tokens",
        )
    lengths = pc.list_value_length(values) if is_list(values.type) else values
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
