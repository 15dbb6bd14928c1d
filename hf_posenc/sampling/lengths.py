"""`lengths_of`: number of tokens in each row of a data set, from Arrow's offsets if possible."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._explain import shorten, type_error, value_error


def lengths_of(dataset: Any, column: str = "input_ids") -> NDArray[np.int64]:
    r"""Return the number of tokens in each row of a data set: the argument `lengths` of `plan_batches` and `pack`.

    Of a `datasets.Dataset` only the offsets of the lists are read, not the tokens. This takes milliseconds for a
    million rows. Any other data set is read row by row.

    Args:
        dataset (`datasets.Dataset`, `pandas.DataFrame`, or anything with a length whose rows are mappings): tokenized
            rows.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of tokens.

    Returns:
        `np.ndarray` `(N,)` int64, in the order of the rows.

    Raises:
        ValueError: if the column is missing, or if one of its values is None or not a list.
        TypeError: if the data set has no length, or is a mapping such as a `datasets.DatasetDict`.

    Example:
        >>> lengths_of([{"input_ids": [5, 6, 7]}, {"input_ids": [8]}])
        array([3, 1])
        >>> import datasets
        >>> lengths_of(datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8]]}).select([1, 0]))
        array([1, 3])
    """
    if isinstance(dataset, Mapping):
        raise type_error(
            "lengths_of takes one data set at a time",
            got=f"{type(dataset).__name__} of {shorten(list(dataset))}",
            fix=f"dataset[{next(iter(dataset), 'train')!r}]",
        )
    if not hasattr(dataset, "__len__"):
        raise type_error(
            "batches cannot be planned for a data set without a length",
            got=type(dataset).__name__,
            fix="budget_batches(stream, token_budget), or pack_dataset(stream, capacity)",
        )
    if is_dataset(dataset):
        return _of_arrow(dataset, column)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(dataset, pandas.DataFrame):
        dataset = dataset.to_dict("records")
    return np.fromiter(_one_by_one(dataset, column), dtype=np.int64, count=len(dataset))


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
    counted = list_lengths(values, column)
    indices = dataset._indices  # of a selected, shuffled or sorted data set
    return counted if indices is None else counted[indices.column(0).to_numpy()]


def list_lengths(values: Any, column: str, numbers: Sequence[int] | None = None) -> NDArray[np.int64]:
    r"""Return the number of values in each list of an Arrow column.

    Args:
        values (`pyarrow.ChunkedArray` or `pyarrow.Array`): the lists.
        column (`str`): name of the column, for error messages.
        numbers (sequence of `int`, *optional*): the number of each row, for error messages. By default, rows are
            numbered from 0.

    Returns:
        `np.ndarray` `(N,)` int64.

    Raises:
        ValueError: if a row is None instead of a list.
    """
    import pyarrow.compute as pc

    lengths = pc.list_value_length(values)
    if lengths.null_count:
        missing = np.flatnonzero(lengths.is_null().to_numpy())
        first = int(missing[0])
        raise value_error(
            f"row {first if numbers is None else numbers[first]} of column '{column}' is None, "
            "expected a list of tokens",
            got=f"{len(missing)} missing of {len(lengths)} rows",
            fix=f'dataset.filter(lambda row: row["{column}"] is not None)',
        )
    counted: NDArray[np.int64] = lengths.to_numpy().astype(np.int64)
    return counted


def _one_by_one(dataset: Any, column: str) -> Iterator[int]:
    for index in range(len(dataset)):
        row = dataset[index]
        if not isinstance(row, Mapping) or column not in row:
            raise value_error(
                f"row {index} has no column '{column}', which must hold the tokens",
                got=f"keys {shorten(list(row))}" if isinstance(row, Mapping) else shorten(row),
                fix="tokenize first, or give the lengths themselves",
            )
        tokens = row[column]
        if not hasattr(tokens, "__len__") or isinstance(tokens, (str, bytes)):
            raise value_error(
                f"row {index} of column '{column}' must be a list of tokens",
                got=shorten(tokens),
                fix="tokenize first, or give the lengths themselves",
            )
        yield len(tokens)
