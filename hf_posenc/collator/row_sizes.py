"""How many bytes each row of a table takes, without a look at what is in them.

Arrow only: offsets and widths say it, so that a data set of any size is weighed before a byte of it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

_UNKNOWN = 8.0  # bytes, for kinds without a width of their own


def sizes_of_column(column: pa.ChunkedArray) -> NDArray[np.float64]:
    r"""The bytes of each value.

    Args:
        column (`pyarrow.ChunkedArray`): of any type.

    Returns:
        `np.ndarray` `(rows,)` float64; 0 where there is no value.

    Example:
        >>> import pyarrow as pa
        >>> sizes_of_column(pa.chunked_array([["a", "bcd", None]]))
        array([1., 3., 0.])
        >>> sizes_of_column(pa.chunked_array([[[1, 2], []]]))
        array([16.,  0.])
        >>> sizes_of_column(pa.chunked_array([[["ab", "c"], ["d"]]]))
        array([3., 1.])
    """
    return np.concatenate([np.zeros(0), *(_sizes(chunk) for chunk in column.chunks)])


def _sizes(array: Any) -> NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _sizes(array.storage)
    if pa.types.is_struct(kind):
        inside = [_sizes(array.field(index)) for index in range(kind.num_fields)]
        return np.sum(inside, axis=0) if inside else np.zeros(len(array))
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = _numbers(pc.list_value_length(array))
        width = _width(kind.value_type)
        if width is not None:
            return lengths * width
        ends = np.concatenate([[0.0], np.cumsum(_sizes(array.flatten()))])  # without what stands at rows that are null
        at = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
        sums: NDArray[np.float64] = np.diff(ends[at])
        return sums
    if _is_text(kind):
        return _numbers(pc.binary_length(array))
    return np.full(len(array), _width(kind) or _UNKNOWN)


def _numbers(lengths: Any) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    found: NDArray[np.float64] = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.float64)
    return found


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _width(kind: pa.DataType) -> float | None:
    """The bytes of a value, where all take as many."""
    import pyarrow as pa

    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or _is_text(kind):
        return None
    try:
        return float(kind.bit_width / 8)
    except ValueError:
        return _UNKNOWN
