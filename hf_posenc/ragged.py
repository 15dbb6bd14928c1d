"""Rows of different lengths as one flat array and its lengths: the data structure of the CPU side.

NumPy only, so that it works the same in a forked worker; what the numbers mean is decided above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._explain import explain

PaddingSide = Literal["left", "right"]

# Below this many values a row, one scatter over the whole rectangle is faster than a copy for each row.
_SHORT_ROW = 192


@dataclass(frozen=True, eq=False)
class Ragged:
    r"""Rows of different lengths, flat.

    Args:
        values (`np.ndarray` `(N,)`): the rows one after the other; N is the sum of `lengths`.
        lengths (`np.ndarray` `(B,)` int64): how many values each row has.

    Raises:
        ValueError: if the lengths do not add up to the number of values.

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
        total = int(self.lengths.sum())
        if total != len(self.values):
            raise ValueError(
                explain(
                    "the lengths of ragged rows must add up to the number of values",
                    got=f"{total} and {len(self.values)}",
                )
            )

    @classmethod
    def from_rows(cls, rows: Sequence[ArrayLike], *, name: str = "input_ids") -> Ragged:
        r"""Joins rows of whole numbers: lists, NumPy arrays or CPU tensors, in any mixture.

        Args:
            rows (sequence of 1-D array-likes of integers): one a row; a row may be empty.
            name (`str`, *optional*, defaults to `"input_ids"`): the column, for error messages.

        Returns:
            `Ragged` with int64 values that share no memory with the rows.

        Raises:
            TypeError: if a row is not a flat sequence of whole numbers.

        Example:
            >>> Ragged.from_rows([np.array([1, 2], dtype=np.int32), [3]]).values
            array([1, 2, 3])
        """
        arrays = [row if type(row) is np.ndarray else _as_array(row) for row in rows]
        for index, array in enumerate(arrays):
            if array.ndim != 1 or array.dtype.kind not in "iu":
                if array.size == 0 and array.ndim == 1:
                    arrays[index] = array.astype(np.int64)
                    continue
                raise TypeError(
                    explain(
                        f"row {index} of column '{name}' must be a flat list of whole numbers",
                        got=f"{array.ndim}-dimensional values of {array.dtype}",
                        fix="pass one list of token ids a row, e.g. [101, 7592, 102]",
                    )
                )
        lengths = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
        values = np.concatenate(arrays, dtype=np.int64) if arrays else np.empty(0, dtype=np.int64)
        return cls(values, lengths)

    @property
    def offsets(self) -> NDArray[np.int64]:
        r"""Where each row begins, and at last where the values end: `np.ndarray` `(B + 1,)` int64.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).offsets
            array([0, 3, 4])
        """
        offsets = np.zeros(len(self.lengths) + 1, dtype=np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """The rows, as views of `values`."""
        for start, stop in pairwise(self.offsets.tolist()):
            yield self.values[start:stop]

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        r"""The given rows, in the given order; a row may be taken more than once.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).take(np.array([1, 0])).values
            array([5, 7, 8, 9])
        """
        everything = list(self)
        picked = [everything[row] for row in rows.tolist()]
        return Ragged(np.concatenate(picked) if picked else self.values[:0], self.lengths[rows])

    def group(self, row_offsets: NDArray[np.int64]) -> Ragged:
        r"""Joins neighbouring rows: group k is made of the rows `row_offsets[k]` up to `row_offsets[k + 1]`.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5], [4]]).group(np.array([0, 2, 3])).lengths
            array([4, 1])
        """
        return Ragged(self.values, np.diff(self.offsets[row_offsets]))

    def pad(
        self, fill: int, width: int | None = None, *, side: PaddingSide = "right", dtype: DTypeLike = np.int64
    ) -> NDArray[Any]:
        r"""The rectangle: every row filled up to the same width.

        Args:
            fill (`int`): the value at padding.
            width (`int`, *optional*): T; by default the length of the longest row.
            side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding goes.
            dtype (*optional*, defaults to int64): of the result.

        Returns:
            `np.ndarray` `(B, T)` of `dtype`, in memory of its own.

        Raises:
            ValueError: if a row is longer than `width`.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).pad(0, 4, side="left")
            array([[0, 7, 8, 9],
                   [0, 0, 0, 5]])
        """
        width = self._checked_width(width)
        out = np.full((len(self), width), fill, dtype=dtype)
        if len(self.values) < _SHORT_ROW * len(self):
            out[self._inside(width, side)] = self.values
            return out
        start = 0
        for row, length in zip(out, self.lengths.tolist(), strict=True):
            if side == "right":
                row[:length] = self.values[start : start + length]
            else:
                row[width - length :] = self.values[start : start + length]
            start += length
        return out

    def mask(
        self, width: int | None = None, *, side: PaddingSide = "right", dtype: DTypeLike = np.int64
    ) -> NDArray[Any]:
        r"""1 where `pad` puts a value, 0 where it puts the fill: what tokenizers call `attention_mask`.

        Returns:
            `np.ndarray` `(B, T)` of `dtype`, in memory of its own.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).mask()
            array([[1, 1, 1],
                   [1, 0, 0]])
        """
        width = self._checked_width(width)
        return self._inside(width, side).astype(dtype)

    def counters(self, start: int = 0) -> Ragged:
        r"""The same shape with start, start + 1, … in every row: position ids before padding.

        Example:
            >>> Ragged.from_rows([[7, 8, 9], [5]]).counters().values
            array([0, 1, 2, 0])
        """
        begins = np.repeat(self.offsets[:-1] - start, self.lengths)
        return Ragged(np.arange(len(self.values), dtype=np.int64) - begins, self.lengths)

    def _checked_width(self, width: int | None) -> int:
        longest = int(self.lengths.max(initial=0))
        if width is not None and width < longest:
            raise ValueError(
                explain(
                    "the width must hold the longest row",
                    got=f"width {width}, longest row {longest}",
                    fix=f"width={longest}, or cut the rows first",
                )
            )
        return longest if width is None else width

    def _inside(self, width: int, side: PaddingSide) -> NDArray[np.bool_]:
        columns = np.arange(width)
        if side == "right":
            return columns < self.lengths[:, None]  # (B, T)
        return columns >= width - self.lengths[:, None]


def round_up(length: int, multiple: int | None) -> int:
    r"""The smallest multiple of `multiple` that is at least `length`; `length` itself without one.

    Example:
        >>> round_up(13, 8), round_up(16, 8), round_up(13, None)
        (16, 16, 13)
    """
    return length if multiple is None else -(-length // multiple) * multiple


def _as_array(row: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(row)
    except ValueError:  # a list of lists of unequal lengths
        return np.empty((0, 0), dtype=object)
