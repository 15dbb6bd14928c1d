"""How many bytes each row of a table holds, whatever the memory behind it looks like.

A row's size depends on its values alone, so that a cut by size does not depend on how a table was read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


def row_sizes(batch: pa.RecordBatch) -> Ints:
    r"""Bytes of each row: of its texts, numbers and what is nested in it, and one for the row itself.

    Example:
        >>> row_sizes(pa.record_batch({"text": ["I ride", None], "n": pa.array([1, 2], pa.int16())}))
        array([9, 3])
    """
    total = np.ones(batch.num_rows, np.int64)
    for column in batch.columns:
        total += _sizes(column)
    return total


def _sizes(values: pa.Array) -> Ints:
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return _sizes(values.storage)
    if pa.types.is_dictionary(kind):
        held = _sizes(values.dictionary)
        where = pc.fill_null(values.indices, 0).to_numpy(zero_copy_only=False)
        return _present(values, held[where] if len(held) else np.zeros(len(values), np.int64))
    if pa.types.is_struct(kind):
        return _present(values, sum((_sizes(field) for field in values.flatten()), np.zeros(len(values), np.int64)))
    if pa.types.is_fixed_size_list(kind):
        within = _sizes(values.values).reshape(-1, max(1, kind.list_size))  # without regard to the slice
        return _present(values, within[values.offset : values.offset + len(values)].sum(axis=1))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        bounds = values.offsets.to_numpy()
        within = np.concatenate(([0], np.cumsum(_sizes(_inside(values)))))
        return _present(values, within[bounds[1:]] - within[bounds[:-1]])
    if kind in (pa.string_view(), pa.binary_view()):
        return _sizes(values.cast(pa.large_binary()))
    if _has_length(kind):
        return np.asarray(pc.fill_null(pc.binary_length(values), 0), np.int64)
    try:
        width = kind.bit_width // 8
    except ValueError:
        width = 8  # a kind whose values have no width of their own
    return np.full(len(values), width, np.int64)


def _inside(values: pa.Array) -> pa.Array:
    """All values of a list array, without regard to its slice, as its offsets count them."""
    if pa.types.is_map(values.type):
        return pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
    return values.values


def _present(values: pa.Array, sizes: Ints) -> Ints:
    """Null rows hold nothing, whatever lies beneath."""
    return sizes if values.null_count == 0 else np.where(values.is_valid().to_numpy(zero_copy_only=False), sizes, 0)


def _has_length(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
