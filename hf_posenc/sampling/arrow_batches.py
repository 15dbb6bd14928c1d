"""`with_arrow_batches`: a data set whose batches are columns read from Arrow, for the collator of this package.

Without it, `datasets` converts every token to a Python integer, which takes most of the time of a `DataLoader`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from .._common.errors import require_one_split, type_error, value_error
from ..collator.inputs import DatasetRows
from ..ragged import Ragged
from .lengths import is_dataset

Places = list[tuple[int, int]]  # for each row: index of its chunk, and of the row in that chunk


def with_arrow_batches(dataset: Any) -> Any:
    r"""Return a copy of a data set from which a `DataLoader` loads batches faster.

    Use it with a `DataLoader` or Trainer whose collator is a `DataCollatorWithPositionalEncoding`. The batches are the
    same. Call it last: methods that return other rows, such as `select`, `shuffle`, `map` and `train_test_split`,
    return an ordinary data set. `remove_columns`, which Trainer calls, keeps the faster batches.

    Args:
        dataset (`datasets.Dataset`): tokenized rows, also selected or shuffled ones. Columns of numbers and of lists of
            integers are loaded faster, unless they contain None. All other columns are decoded as usual.

    Returns:
        `datasets.Dataset` with the same rows, columns and fingerprint. It shares its data with `dataset`.

    Raises:
        TypeError: if `dataset` is not a `datasets.Dataset`.
        ValueError: if it has a format or transform, which the faster batches would ignore.

    Example:
        >>> import datasets
        >>> rows = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8, 9], [4]], "label": [1, 0, 1]})
        >>> dataset = with_arrow_batches(rows)  # Trainer(train_dataset=dataset, data_collator=collate)
        >>> dataset[1], isinstance(dataset, datasets.Dataset)
        ({'input_ids': [8, 9], 'label': 0}, True)
    """
    require_one_split(dataset)
    if not is_dataset(dataset):
        raise type_error(
            "with_arrow_batches takes a datasets.Dataset",
            got=type(dataset).__name__,
            fix='datasets.Dataset.from_dict({"text": texts}), datasets.Dataset.from_list(rows) or '
            "datasets.Dataset.from_pandas(frame); use a streamed data set without it",
        )
    if dataset.format["type"] is not None:
        raise value_error(
            "faster batches would ignore the format or transform of the data set",
            got=f"format {dataset.format['type']!r}",
            fix="with_arrow_batches(dataset.with_format(None)), or the data set itself, if a transform is needed",
        )
    return _from_state(vars(dataset))


def _from_state(state: dict[str, Any]) -> Any:
    """Return an `ArrowBatchDataset` with the attributes in `state`; pickle calls it to load such a data set."""
    dataset = object.__new__(_dataset_class())
    dataset.__setstate__(state)
    return dataset


@cache
def _dataset_class() -> Any:
    """Return the class `ArrowBatchDataset`; it is defined on first use, because importing `datasets` is slow."""
    import datasets

    # A wrapper of `with_format("arrow")`, in a few lines, takes 50 ms where this class takes 17, as long as lists do.
    class ArrowBatchDataset(datasets.Dataset):  # type: ignore[misc]
        """`datasets.Dataset` made by `with_arrow_batches`; a `DataLoader` gets a batch as columns, not as rows."""

        _columns: _Columns | None = None

        def __getitems__(self, keys: Sequence[int]) -> Any:
            """Return the rows at the indices `keys` as a `DatasetRows`, which holds their columns for the collator."""
            form = self.format
            if form["type"] is not None:  # a format that was set later
                return super().__getitems__(keys)
            if self._columns is None or self._columns.table is not self._data:
                self._columns = _Columns(self._data, self._indices)
            names = self.column_names if form["output_all_columns"] else form["columns"]
            columns = self._columns.take(keys, names)
            return DatasetRows(columns, len(keys), lambda: datasets.Dataset.__getitems__(self, keys))

        def __reduce__(self) -> tuple[Any, ...]:  # a copy or pickle of `_columns` would contain all data
            return _from_state, ({name: value for name, value in vars(self).items() if name != "_columns"},)

    return ArrowBatchDataset


class _Columns:
    """Reader of the rows of an Arrow table, column by column, for the batches of an `ArrowBatchDataset`.

    Args:
        table (`datasets.table.Table`): the data.
        indices (`datasets.table.Table` or `None`): for a selected or shuffled data set, the number of each of its rows
            in `table`. `None` if its rows are those of `table`.
    """

    def __init__(self, table: Any, indices: Any) -> None:
        self.table = table
        self._keys = range(table.num_rows if indices is None else indices.num_rows)
        self._row_numbers = None if indices is None else _Columns(indices, None)
        chunks = table.to_batches()
        self._starts = np.array([0, *accumulate(chunk.num_rows for chunk in chunks)])
        self._readers = {
            name: _reader([chunk.column(name) for chunk in chunks], table.schema.field(name).type)
            for name in table.column_names
        }

    def take(self, keys: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
        """Return a dict with the columns `names` of the rows at the indices `keys`.

        A column of numbers is a NumPy array, and a column of lists of integers is a `Ragged`, or a list of empty lists
        if all are empty. All other columns, and those that contain None, are Arrow arrays.
        """
        rows = np.array([self._keys[key] for key in keys], dtype=np.int64)  # raises for a row that does not exist
        if self._row_numbers is not None:
            rows = self._row_numbers.take(keys, ["indices"])["indices"]
        chunks = np.searchsorted(self._starts, rows, side="right") - 1
        places = list(zip(chunks.tolist(), (rows - self._starts[chunks]).tolist(), strict=True))
        readers = {name: self._readers[name] for name in names}
        columns = {name: None if reader is None else reader(places) for name, reader in readers.items()}
        other_names = [name for name, reader in readers.items() if reader is None]
        if other_names:
            columns.update(zip(other_names, self.table.select(other_names).fast_gather(rows).columns, strict=True))
        return columns


def _reader(chunks: list[Any], kind: Any) -> Callable[[Places], Any] | None:
    """Return a fast function that reads values of one column; `None` if the column is not supported."""
    import pyarrow as pa

    has_lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    number = kind.value_type if has_lists else kind
    if has_lists:
        is_fast = pa.types.is_integer(number) and number != pa.uint64()
    else:
        is_fast = pa.types.is_integer(number) or number in (pa.float32(), pa.float64())
    flat = [chunk.values for chunk in chunks] if has_lists else chunks
    if not is_fast or any(array.null_count for array in (*chunks, *flat)):
        return None
    values = [memoryview(array.to_numpy()) for array in flat]  # sliced several times faster than an array
    if not has_lists:
        return lambda places: np.array([values[chunk][row] for chunk, row in places])
    offsets = [memoryview(chunk.offsets.to_numpy()) for chunk in chunks]
    dtype = number.to_pandas_dtype()

    def lists(places: Places) -> Any:
        parts = [values[chunk][offsets[chunk][row] : offsets[chunk][row + 1]] for chunk, row in places]
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        if not lengths.any():
            return [[] for _ in parts]
        return Ragged(np.frombuffer(b"".join(parts), dtype).astype(np.int64), lengths)

    return lists
