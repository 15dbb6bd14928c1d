"""What a column of an encoding is: its sine or cosine, and how fast it turns; and the checks that pictures share.

Read off from the encoding itself, so that this knows no layout by name.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..._explain import explain, shorten
from ...sinusoid import Convention
from ...sinusoid import frequencies as radians
from ...sinusoid import sinusoidal_encoding as encode
from ..limits import every

# No whole part of a turn for any period: a sine is zero there only in a column of zeros.
_ANYWHERE = 0.1234567
_MOST, _MOST_COLUMNS = 2**24, 2**17


class Columns(NamedTuple):
    r"""Every column of an encoding: value at position p is sin(p · frequency), or the cosine of it."""

    cosine: NDArray[np.bool_]  # (D,)
    frequency: NDArray[np.float64]  # (D,) radians per position; 0 in a column of zeros


def columns_of(d_model: int, convention: str | Convention, base: float | None) -> Columns:
    """The columns of an encoding of this width."""
    at_zero, elsewhere = rows_of([0.0, _ANYWHERE], d_model, convention, base)
    turning = radians(d_model, convention=convention, base=base).numpy()
    cosine, sine = at_zero != 0, (at_zero == 0) & (elsewhere != 0)
    frequency = np.zeros(len(at_zero))
    for kind in (cosine, sine):
        frequency[kind] = turning[: kind.sum()]  # in either kind the frequencies come in order
    return Columns(cosine, frequency)


def rows_of(
    positions: Iterable[float], d_model: int, convention: str | Convention, base: float | None
) -> NDArray[np.float64]:
    """The exact rows of these positions, `(P, D)` float64."""
    check_room(d_model)
    where = np.asarray(positions)
    rows: NDArray[np.float64] = encode(where, d_model, convention=convention, base=base, dtype=torch.float64).numpy()
    return rows


def means_of(starts: NDArray[np.int64], count: int, columns: Columns) -> NDArray[np.float64]:
    r"""The mean row of `count` positions from each start on, `(P, D)` float64, without adding them up.

    The sum of `count` turns by the same angle is a geometric series of complex numbers.
    """
    turn = np.exp(1j * columns.frequency)
    whole = np.abs(turn - 1) < 1e-12  # stands still, or makes whole turns from one position to the next
    series = (1 - np.exp(1j * columns.frequency * count)) / np.where(whole, 1, 1 - turn) / count
    points = np.exp(1j * np.outer(starts, columns.frequency)) * np.where(whole, 1, series)
    means: NDArray[np.float64] = np.where(columns.cosine, points.real, points.imag)
    return means


def kept_columns(d_model: int) -> NDArray[np.int64]:
    """The columns that are drawn, sines and cosines alike."""
    return np.arange(0, d_model, every_column(d_model))


def every_column(d_model: int) -> int:
    """Which columns of a wide encoding are drawn: every so many, an odd number, or all cosines would be left out."""
    step = every(d_model)
    return step if step % 2 else step + 1


def check_room(d_model: int) -> None:
    """Refuses a width whose picture would fill the memory; what else may be wrong with it is said by the encoding."""
    if isinstance(d_model, int) and d_model > _MOST_COLUMNS:
        raise ValueError(
            explain(f"a picture has room for d_model up to {_MOST_COLUMNS:,}", got=d_model, fix="d_model=512")
        )


def check_number(name: str, value: object, usual: int) -> int:
    """`value` as an `int` of at least 1, and not so large that a picture of so many fills the memory."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what has no index is refused below
    except TypeError:
        raise TypeError(explain(f"{name} must be a whole number", got=shorten(value), fix=f"{name}={usual}")) from None
    if isinstance(value, bool) or number < 1:
        raise ValueError(explain(f"{name} must be at least 1", got=repr(value), fix=f"{name}={usual}"))
    if number > _MOST:
        raise ValueError(explain(f"a picture has room for {name} up to {_MOST:,}", got=number, fix=f"{name}={usual}"))
    return number


def check_whole(name: str, values: object, usual: str, *, least: int) -> NDArray[np.int64]:
    """One or several whole numbers of at least `least`, `(N,)` int64."""
    try:
        array = np.atleast_1d(np.asarray(values))
    except ValueError:  # lists in lists of different lengths
        array = np.array([None])
    if array.dtype.kind not in "iu" or array.ndim != 1 or not array.size:
        raise TypeError(explain(f"{name} must be whole numbers", got=shorten(values), fix=f"{name}={usual}"))
    if array.min() < least:
        raise ValueError(explain(f"{name} must be {least} or more", got=int(array.min()), fix=f"{name}={usual}"))
    return array.astype(np.int64)


def check_columns(columns: object, d_model: int) -> NDArray[np.int64]:
    """The numbers of columns that this width has, `(C,)` int64."""
    found = check_whole("columns", columns, f"[0, {d_model - 1}]" if d_model > 1 else "[0]", least=-d_model)
    for column in found.tolist():
        if not 0 <= column < d_model:
            last = d_model - 1
            raise ValueError(
                explain(
                    f"there is no column {column}",
                    got=f"column {column}; d_model={d_model} has " + (f"columns 0 to {last}" if last else "column 0"),
                    fix=f"columns=[{min(max(column, 0), last)}]",
                )
            )
    return found
