"""`Ragged`: rows of different lengths, stored as one flat array and an array of lengths.

NumPy only, so that a forked worker can use it.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ._common.constants import PaddingSide
from ._common.errors import shorten, type_error, value_error
from ._common.integers import to_numpy

Owner = TypeVar("Owner")
Value = TypeVar("Value")
Length = TypeVar("Length", int, NDArray[np.int64])

# For rows with fewer values, one scatter over the padded array is faster than one copy per row.
_SHORT_ROW = 192

_INTEGERS = {(1, char) for char in "bhilqBHI"}  # dimensions and dtypes of rows that convert to int64 without a check


class lock_free_cache(Generic[Owner, Value]):
    """Decorator for a property that is computed once per object, like `functools.cached_property`, but without a lock.

    A process that forks while the lock is held would leave it locked in the child.
    """

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type[Owner]) -> Self: ...
    @overload
    def __get__(self, instance: Owner, owner: type[Owner]) -> Value: ...
    def __get__(self, instance: Owner | None, owner: type[Owner]) -> Self | Value:
        if instance is None:
            return self
        value = instance.__dict__[self._compute.__name__] = self._compute(instance)
        return value


@dataclass(frozen=True, eq=False)
class Ragged:
    r"""Rows of different lengths, such as the token ids of a batch, stored in one flat array.

    Args:
        values (`np.ndarray` `(N,)`): the concatenated rows; N is the sum of `lengths`.
        lengths (`np.ndarray` `(B,)` int64): number of values of each row.

    Raises:
        ValueError: if the sum of the lengths is not the number of values.

    Example:
        >>> rows = Ragged.from_rows([[7, 8, 9], [5]])
        >>> rows.values, rows.lengths
        (array([7, 8, 9, 5]), array([3, 1]))
        >>> rows.pad(0)
        array([[7, 8, 9],
               [5, 0, 0]])
    """

    values: NDArray[Any]
    lengths: NDArray[np.int64]

    def __post_init__(self) -> None:
        total = _reduced(self.lengths, sum, np.add.reduce)
        if total != len(self.values):
            raise value_error(
                "the lengths of ragged rows must add up to the number of values",
                got=f"{total} and {len(self.values)}",
            )

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[Any] | NDArray[Any] | Ragged,
        *,
        name: str = "input_ids",
        mask: bool = False,
        first_row: int = 0,
    ) -> Ragged:
        r"""Make a `Ragged` from rows of integers. Each row is a list, a NumPy array or a tensor.

        Args:
            rows (sequence of 1-D array-likes of integers, or Arrow column): the rows; a row may be empty.
            name (`str`, *optional*, defaults to `"input_ids"`): name of the column, for error messages.
            mask (`bool`, *optional*, defaults to `False`): accept rows of bools and of whole floats too, such as 1.0.
            first_row (`int`, *optional*, defaults to 0): number of the first row, for error messages.

        Returns:
            `Ragged` with int64 values, copied from the rows. If `rows` is already a `Ragged`, `rows` itself.

        Raises:
            TypeError: if a row is not a flat sequence of integers that fit into int64.

        Example:
            >>> Ragged.from_rows([np.array([1, 2], dtype=np.int32), [3]]).values
            array([1, 2, 3])
        """
        if isinstance(rows, Ragged):
            return rows
        if hasattr(rows, "to_pylist"):
            found = cls.from_arrow(rows, mask=mask)
            if found is not None:
                return found
            rows = rows.to_pylist()
        kinds = set(map(type, rows))
        if kinds == {list} and not any(row and type(row[0]) is bool for row in rows):
            lengths = np.array([len(row) for row in rows], dtype=np.int64)
            with contextlib.suppress(struct.error):  # a value that is not an integer: the checks below raise
                data = struct.pack(f"{lengths.sum()}q", *chain.from_iterable(rows))  # faster than np.array
                return cls(np.frombuffer(bytearray(data), dtype=np.int64), lengths)
        arrays = list(rows) if kinds == {np.ndarray} else list(map(to_numpy, rows))
        if not {(array.ndim, array.dtype.char) for array in arrays} <= _INTEGERS:
            pairs = zip(rows, arrays, strict=True)
            arrays = [
                _checked_row(number, row, array, name, mask) for number, (row, array) in enumerate(pairs, first_row)
            ]
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        if len({array.dtype for array in arrays}) == 1:
            with contextlib.suppress(TypeError):  # a row that is not contiguous
                buffer = bytearray().join(arrays)  # type: ignore[arg-type]  # much faster than np.concatenate
                return cls(np.frombuffer(buffer, arrays[0].dtype).astype(np.int64, copy=False), lengths)
        return cls(np.concatenate(arrays, dtype=np.int64) if arrays else np.empty(0, dtype=np.int64), lengths)

    @classmethod
    def from_arrow(cls, column: Any, *, mask: bool = False) -> Ragged | None:
        r"""Return an Arrow column of lists of integers; `None` if it has None, no values, or values of another type.

        With `mask`, bools are integers. The values are copied, without a Python object for each of them.

        Example:
            >>> import pyarrow as pa
            >>> Ragged.from_arrow(pa.array([[7, 8], [9]])).values, Ragged.from_arrow(pa.array([[7], None]))
            (array([7, 8, 9]), None)
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.null_count or not hasattr(column.type, "value_field"):  # of lists; a dictionary has `value_type` too
            return None
        number = column.type.value_type
        if not (pa.types.is_integer(number) or (mask and pa.types.is_boolean(number))) or number == pa.uint64():
            return None
        values = pc.list_flatten(column)
        if values.null_count or not len(values):
            return None
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        return cls(values.to_numpy(zero_copy_only=False).astype(np.int64), lengths.astype(np.int64))

    @lock_free_cache
    def longest(self) -> int:
        """Length of the longest row; 0 without rows."""
        return _reduced(self.lengths, max, np.maximum.reduce)

    @lock_free_cache
    def shortest(self) -> int:
        """Length of the shortest row; 0 without rows."""
        return _reduced(self.lengths, min, np.minimum.reduce)

    @lock_free_cache
    def offsets(self) -> NDArray[np.int64]:
        r"""Offset of each row in `values`, then the number of all values: `np.ndarray` `(B + 1,)` int64.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).offsets
            array([0, 3, 4])
        """
        return offsets_of(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> Any:
        """Return the row with index `row`, from 0 to B - 1, as a view of `values`; not for negative indices."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield each row, as a view of `values`."""
        for start, stop in pairwise(self.offsets.tolist()):
            yield self.values[start:stop]

    def row_of(self, place: int) -> int:
        """Return the index of the row that has `values[place]`."""
        return int(np.searchsorted(self.offsets, place, side="right")) - 1

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        r"""Return a new `Ragged` of the rows with the indices `rows`, in this order; an index may be repeated.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).take(np.array([1, 0])).values
            array([5, 7, 8, 9])
        """
        lengths = self.lengths[rows]
        return Ragged(self.values[run_indices(self.offsets[:-1][rows], lengths)], lengths)

    def filter(self, keep: NDArray[np.bool_]) -> Ragged:
        r"""Return a new `Ragged` of only the rows at which `keep` is True; `keep` `(B,)` has one bool per row.

        Example:
            >>> Ragged.from_rows([[7, 8], [9], [5, 4]]).filter(np.array([True, False, True])).values
            array([7, 8, 5, 4])
        """
        return Ragged(self.values[np.repeat(keep, self.lengths)], self.lengths[keep])

    def where(self, keep: NDArray[np.bool_]) -> Ragged:
        r"""Return a new `Ragged` of all rows, without the values at which `keep` is False.

        `keep` `(N,)` has one bool per value. A row can become empty.

        Example:
            >>> rows = Ragged.from_rows([[7, 8, 9], [5]]).where(np.array([True, False, True, True]))
            >>> rows.values, rows.lengths
            (array([7, 9, 5]), array([2, 1]))
        """
        return Ragged(self.values[keep], np.diff(offsets_of(keep)[self.offsets]))

    def pad(
        self,
        fill: Any,
        width: int | None = None,
        *,
        side: PaddingSide = "right",
        inside: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        r"""Return the rows as one array `(B, T)`, padded with `fill`; or `(B, T, D)` if `values` are vectors `(N, D)`.

        Args:
            fill (`int`, or vector (D,)): the value of padding.
            width (`int`, *optional*): T; by default the length of the longest row.
            side (`"left"` or `"right"`, *optional*, defaults to `"right"`): the side of each row that is padded.
            inside (`np.ndarray` `(B, T)` bool, *optional*): the result of `self.inside(width, side=side)`, which only
                saves time. By default it is computed.

        Returns:
            `np.ndarray` `(B, T)` or `(B, T, D)` of the dtype of `values`, a new array.

        Raises:
            ValueError: if a row is longer than `width`.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).pad(0, 4, side="left")
            array([[0, 7, 8, 9],
                   [0, 0, 0, 5]])
        """
        width = self._checked_width(width)
        shape, dtype = (len(self), width, *self.values.shape[1:]), self.values.dtype
        if self.shortest == width:
            return self.values.reshape(shape).copy()
        is_zero = isinstance(fill, int) and fill == 0
        out = np.zeros(shape, dtype) if is_zero else np.full(shape, fill, dtype)
        if is_zero and not np.count_nonzero(self.values[:2]) and not np.count_nonzero(self.values):
            return out  # fast for token types of single texts, all 0: np.zeros writes no memory
        if len(self.values) < _SHORT_ROW * len(self):
            out[self.inside(width, side=side) if inside is None else inside] = self.values
            return out
        start = 0
        for row, length in zip(out, self.lengths.tolist(), strict=True):
            if side == "right":
                row[:length] = self.values[start : start + length]
            else:
                row[width - length :] = self.values[start : start + length]
            start += length
        return out

    def inside(self, width: int | None = None, *, side: PaddingSide = "right") -> NDArray[np.bool_]:
        r"""Return a mask of the padded rows: True at values, False at padding.

        Args:
            width (`int`, *optional*), side (*optional*): as in `pad`.

        Returns:
            `np.ndarray` `(B, T)` bool, a new array; it matches the result of `pad` for the same `width` and `side`.

        Raises:
            ValueError: if a row is longer than `width`.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).inside()
            array([[ True,  True,  True],
                   [ True, False, False]])
        """
        width = self._checked_width(width)
        if self.shortest == width:
            return np.ones((len(self), width), np.bool_)
        # Comparisons of int16 are several times faster, and most rows are short enough.
        number: type[np.signedinteger[Any]] = np.int16 if width < 1 << 15 else np.int64
        columns, lengths = np.arange(width, dtype=number), self.lengths.astype(number)[:, None]
        inside: NDArray[np.bool_] = columns < lengths if side == "right" else columns >= width - lengths  # (B, T)
        return inside

    def counters(self, start: int = 0) -> Ragged:
        r"""Return a `Ragged` of the same lengths; each row is start, start + 1, start + 2, …, such as position ids.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).counters().values
            array([0, 1, 2, 0])
        """
        return Ragged(run_indices(start, self.lengths), self.lengths)

    def padded_counters(
        self, start: int, fill: int, inside: NDArray[np.bool_], *, side: PaddingSide = "right"
    ) -> NDArray[np.int64]:
        r"""Return `counters(start)` as one array `(B, T)`, padded with `fill`: `pad` in less time.

        `inside` is the result of `self.inside(width, side=side)`.

        Example:
            >>> rows = Ragged.from_rows([[7, 8, 9], [5]])
            >>> rows.padded_counters(2, 1, rows.inside(side="left"), side="left")
            array([[2, 3, 4],
                   [1, 1, 2]])
        """
        width = inside.shape[1]
        columns = np.arange(start - fill, start - fill + width)
        if side == "left":
            columns = columns - (width - self.lengths)[:, None]
        counters: NDArray[np.int64] = columns * inside
        return counters + fill if fill else counters

    def _checked_width(self, width: int | None) -> int:
        if width is not None and width < self.longest:
            raise value_error(
                "width must be at least the length of the longest row",
                got=f"width {width}, longest row {self.longest}",
                fix=f"width={self.longest}, or truncate the rows first",
            )
        return self.longest if width is None else width


def _reduced(numbers: NDArray[np.int64], few: Callable[[list[int]], int], many: Callable[[Any], Any]) -> int:
    """Return the sum, maximum or minimum of numbers; 0 without numbers."""
    # A reduction of NumPy takes a microsecond or two, also of one number.
    count = len(numbers)
    return few(numbers.tolist()) if 0 < count < 32 else int(many(numbers)) if count else 0


def offsets_of(lengths: NDArray[Any]) -> NDArray[np.int64]:
    r"""Return the offset of each row in a flat array of rows with the given lengths, then the total length.

    The result is `(N + 1,)` int64 for N rows.

    Example:
        >>> offsets_of(np.array([3, 1]))
        array([0, 3, 4])
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.add.accumulate(lengths, out=offsets[1:])
    return offsets


def run_indices(starts: NDArray[np.int64] | int, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    r"""Return the integers `starts[i]` to `starts[i] + lengths[i] - 1` for each i, concatenated.

    They are the indices of several slices of one flat array. If `starts` is an `int`, all slices start there.

    Example:
        >>> run_indices(np.array([7, 0]), np.array([2, 3]))     # 7 to 8, and 0 to 2
        array([7, 8, 0, 1, 2])
    """
    offsets = offsets_of(lengths)
    indices: NDArray[np.int64] = np.arange(offsets[-1]) + (starts - offsets[:-1]).repeat(lengths)
    return indices


def runs(numbers: NDArray[np.int64], lengths: NDArray[np.int64]) -> Ragged:
    r"""Return the lengths of the runs of equal numbers in each row; a row without numbers has one run of length 0.

    Example:
        >>> list(runs(np.array([4, 4, 7, 7, 7]), np.array([3, 0, 2])))
        [array([2, 1]), array([0]), array([2])]
    """
    offsets = offsets_of(lengths)
    begins = np.ones(len(numbers) + 1, np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=begins[1:-1])
    begins[offsets] = True
    starts = np.flatnonzero(begins)
    sizes, count = starts[1:] - starts[:-1], np.searchsorted(starts, offsets)
    count = count[1:] - count[:-1]
    if not count.all():
        sizes, count = np.insert(sizes, offsets_of(count)[:-1][count == 0], 0), np.maximum(count, 1)
    return Ragged(sizes, count)


def round_up(length: Length, multiple: int | None) -> Length:
    r"""Return the smallest multiple of `multiple` that is at least `length`; `length` itself if `multiple` is None.

    Example:
        >>> round_up(13, 8), round_up(16, 8), round_up(13, None)
        (16, 16, 13)
    """
    return length if multiple is None else -(-length // multiple) * multiple


def _checked_row(index: int, row: Any, array: NDArray[Any], name: str, mask: bool) -> NDArray[Any]:
    """Return `array`, which was made from `row`, as int64."""
    is_integer = array.dtype.kind in ("iub" if mask else "iu")
    if array.dtype == np.uint64:
        is_integer = int(array.max(initial=0)) < 2**63
    if array.ndim == 1 and mask and array.dtype.kind == "f":
        is_integer = bool((array == np.floor(array)).all()) and bool(np.isfinite(array).all())
    if array.ndim == 1 and (array.size == 0 or is_integer):
        return array.astype(np.int64)  # an empty list has no integer dtype
    fix = f"one list of integers per row, or dataset.remove_columns('{name}')"
    if name == "position_ids" and array.ndim > 1:  # (3, T): time, height and width, as of Qwen2-VL
        fix += ": tokens are then counted, and the places of tokens in images and videos are lost"
    if name == "input_ids":
        fix = "pass one list of token ids per row, e.g. [101, 7592, 102]"
    raise type_error(
        f"row {index} of column '{name}' must be a flat list of integers that fit into int64",
        got=f"{array.ndim}-dimensional values of {array.dtype}: {shorten(row)}",
        fix=fix,
    )
