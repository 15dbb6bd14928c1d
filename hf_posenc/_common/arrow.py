"""Size in bytes of each row of an Arrow table, and division of consecutive rows into runs of about equal size.

Sizes are computed from Arrow's offsets and the widths of types, without decoding values. The same values have the
same size, however the table stores them in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

_UNKNOWN = 8.0  # bytes, for types without a fixed width

Sizes = NDArray[np.float64]


def row_sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    r"""Return the size in bytes of each row of `batch`, to divide the rows into parts of limited size with `runs`.

    The size of a row is the sum of the sizes of its values, see `value_sizes`, plus one byte. So it is never 0.

    Example:
        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"text": ["I ride", None], "n": pa.array([1, 2], pa.int16())})
        >>> row_sizes(batch)                    # 6 + 2 + 1 and 0 + 2 + 1 bytes
        array([9, 3])
    """
    total = np.ones(batch.num_rows)
    for column in batch.columns:
        total += value_sizes(column)
    return total.astype(np.int64)


def runs(sizes: NDArray[Any], most: int, most_rows: int | None = None) -> Iterator[tuple[int, int]]:
    r"""Divide rows into runs of consecutive rows, each with a total size of about `most`.

    The sizes are added up from row 0 on, not from the start of the run. A run ends where this sum reaches or passes
    the next multiple of `most`.

    Example:
        >>> list(runs(np.array([3, 3, 3, 9, 1]), 6)), list(runs(np.array([3, 3, 3, 9, 1]), 6, 1))
        ([(0, 2), (2, 4), (4, 5)], [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])
    """
    group = (np.cumsum(sizes) - sizes) // most
    for start, stop in pairwise([*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), len(sizes)]):
        for first in range(start, stop, most_rows or max(len(sizes), 1)):
            yield first, min(first + (most_rows or len(sizes)), stop)


def value_sizes(values: Any) -> Sizes:
    r"""Return the size in bytes of each value of an Arrow array.

    A text has the size of its UTF-8 bytes. A list or struct has the total size of its items. A null text, list or
    struct has size 0; a null number has the same size as any other number of its type.

    Example:
        >>> import pyarrow as pa
        >>> value_sizes(pa.array([[1, 2], [], None], pa.list_(pa.int16())))
        array([4., 0., 0.])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, types = values.type, pa.types
    if isinstance(values, pa.ExtensionArray):
        return value_sizes(values.storage)
    if types.is_dictionary(kind):
        return _of_dictionary(values)
    if types.is_run_end_encoded(kind):
        return value_sizes(pc.run_end_decode(values))
    if types.is_struct(kind):
        inside = [value_sizes(field) for field in values.flatten()]
        return _present(values, np.sum(inside, axis=0) if inside else np.zeros(len(values)))
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        within = value_sizes(values.values.slice(values.offset * size, len(values) * size))
        return _present(values, within.reshape(len(values), size).sum(axis=1))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        bounds = values.offsets.to_numpy()
        return _present(values, _between(values, bounds[:-1], bounds[1:]))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        starts = values.offsets.to_numpy()
        return _present(values, _between(values, starts, starts + values.sizes.to_numpy()))
    if kind in (pa.string_view(), pa.binary_view()):
        return value_sizes(values.cast(pa.large_binary()))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        lengths = pc.fill_null(pc.binary_length(values), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), np.float64)
    return np.full(len(values), _width(kind))


def _of_dictionary(values: Any) -> Sizes:
    """Return the size in bytes of each value of a dictionary-encoded array: that of its entry in the dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    where = pc.fill_null(values.indices, 0).to_numpy(zero_copy_only=False)
    words = values.dictionary
    if len(words) > len(where):  # a short slice with a large dictionary: measure only the values in use
        used, where = np.unique(where, return_inverse=True)
        words = words.take(pa.array(used))
    sizes = value_sizes(words)
    return _present(values, sizes[where] if len(sizes) else np.zeros(len(values)))


def _between(values: Any, starts: NDArray[Any], ends: NDArray[Any]) -> Sizes:
    """Return the size in bytes of each list in the list array `values`; 0 for a list that is null."""
    full = ends > starts
    if values.null_count:
        full &= values.is_valid().to_numpy(zero_copy_only=False)
    if not full.any():
        return np.zeros(len(starts))
    first, last = int(starts[full].min()), int(ends[full].max())
    upto = np.concatenate(([0.0], np.cumsum(value_sizes(_items(values, first, last)))))
    found = np.zeros(len(starts))
    found[full] = upto[ends[full] - first] - upto[starts[full] - first]
    return found


def _items(values: Any, first: int, last: int) -> Any:
    """Return items `first` to `last - 1` of the array of all list items in `values`; a map has structs as items."""
    import pyarrow as pa

    if not pa.types.is_map(values.type):
        return values.values.slice(first, last - first)
    pair = [values.keys.slice(first, last - first), values.items.slice(first, last - first)]
    return pa.StructArray.from_arrays(pair, ["key", "value"])


def _present(values: Any, sizes: Sizes) -> Sizes:
    """Return `sizes`, the sizes of `values`, with 0 for each value that is null."""
    return sizes if values.null_count == 0 else np.where(values.is_valid().to_numpy(zero_copy_only=False), sizes, 0.0)


def _width(kind: pa.DataType) -> float:
    """Return the size in bytes of one value of type `kind`; 8 if the type has no fixed width."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return _UNKNOWN
