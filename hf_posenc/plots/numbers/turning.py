"""Encodings as things that turn: frequencies and wavelengths, hands of a clock, degrees of fixed bases.

A pair of columns, sine and cosine of the same angle, is a point on a circle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sinusoid import Convention, fixed_bases
from ...sinusoid import frequencies as radians
from .columns import check_number, check_room, columns_of
from .waves import points


class Frequencies(NamedTuple):
    """How fast each pair of columns turns, and how many positions a turn takes."""

    frequencies: NDArray[np.float64]  # (F,) radians per position
    wavelengths: NDArray[np.float64]  # (F,) positions per turn


class Dials(NamedTuple):
    """The angle of every pair of columns at every position, and which columns make up a pair."""

    angles: NDArray[np.float64]  # (F, P) radians, from 0 on, whole turns included
    wavelengths: NDArray[np.float64]  # (F,) positions per turn
    pairs: list[tuple[int, ...]]  # F times the sine and the cosine column; a lone sine where the width is odd


class Degrees(NamedTuple):
    """The angles of fixed bases in degrees."""

    positions: NDArray[np.int64]  # (P, N)
    degrees: NDArray[np.float64]  # (P, N) below 360
    bases: tuple[float, ...]  # N
    period: int | None  # after so many positions all angles come again; None if a base is no whole number
    step: int  # above 1, every 2 · step positions give their lowest and highest point


def frequencies(d_model: int, *, convention: str | Convention = "vaswani", base: float | None = None) -> Frequencies:
    r"""The decay of 1/10000^(2i/D), and the wavelengths 2π·10000^(2i/D).

    Args:
        d_model (`int`): width D >= 1.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Frequencies`, two arrays `(F,)` float64, one number for each pair of columns.

    Raises:
        ValueError: if `d_model` is not positive.

    Example:
        >>> frequencies(8).wavelengths.round(1)
        array([   6.3,   62.8,  628.3, 6283.2])
    """
    check_room(d_model)
    turning: NDArray[np.float64] = radians(d_model, convention=convention, base=base).numpy()
    return Frequencies(turning, 2 * np.pi / turning)


def dials(
    d_model: int = 8, positions: int = 10, *, convention: str | Convention = "vaswani", base: float | None = None
) -> Dials:
    r"""Clock hands: how far each pair of columns has turned at positions 0, 1, …

    Args:
        d_model (`int`): width D >= 1.
        positions (`int`): how many.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Dials` of `angles` `(F, P)` float64; the sine of an angle is the value of the first column of its pair.

    Raises:
        ValueError: if `d_model` or `positions` is not positive.

    Example:
        >>> turning = dials(4, 3)
        >>> turning.angles.round(2), turning.pairs
        (array([[0.  , 1.  , 2.  ],
               [0.  , 0.01, 0.02]]), [(0, 1), (2, 3)])
    """
    kinds = columns_of(d_model, convention, base)
    count = check_number("positions", positions, 10)
    sines = np.flatnonzero(~kinds.cosine & (kinds.frequency != 0)).tolist()
    cosines = np.flatnonzero(kinds.cosine).tolist()
    most = max(len(sines), len(cosines))
    turning = kinds.frequency[sines if len(sines) == most else cosines]
    pairs = [tuple(kind[i] for kind in (sines, cosines) if i < len(kind)) for i in range(most)]
    return Dials(np.outer(turning, np.arange(count)), 2 * np.pi / turning, pairs)


def degrees(bases: tuple[float, ...] = (4, 5, 7), length: int | None = None) -> Degrees:
    r"""The angles of fixed bases at positions 0, 1, …: base 4 makes a quarter turn from each position to the next.

    Args:
        bases (numbers): positions per turn, each larger than 1.
        length (`int`, *optional*): number of positions. By default three turns of the largest base.

    Returns:
        `Degrees` of `positions` and `degrees` `(P, N)` float64, thinned as `curves` are, and the period after which all
        angles come again.

    Raises:
        ValueError: if a base is not larger than 1, or `length` is not positive.

    Example:
        >>> degrees((4, 5), 5).degrees.T
        array([[  0.,  90., 180., 270.,   0.],
               [  0.,  72., 144., 216., 288.]])
        >>> degrees((4, 5, 7)).period
        140
    """
    turns = fixed_bases(*bases).bases or ()
    count = math.ceil(3 * max(turns)) if length is None else check_number("length", length, 21)
    numbers = np.array(turns, dtype=np.float64)
    whole = all(float(base).is_integer() for base in turns)
    period = math.lcm(*(int(base) for base in turns)) if whole else None
    values = np.arange(count)[:, None] % numbers * 360 / numbers
    positions, step = points(values)
    return Degrees(positions, np.take_along_axis(values, positions, axis=0), turns, period, step)
