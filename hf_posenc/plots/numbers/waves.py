"""Encodings as waves: what the curves, the offsets and the oscillations show.

Where a wave has more points than a picture, its lowest and highest ones stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sinusoid import Convention
from ..limits import every
from .columns import Columns, check_columns, check_number, check_whole, columns_of, kept_columns, rows_of


class Curves(NamedTuple):
    r"""Columns as waves. With `step` above 1, every 2 · `step` positions give their lowest and highest point."""

    positions: NDArray[np.int64]  # (P, C)
    values: NDArray[np.float64]  # (P, C)
    columns: NDArray[np.int64]  # (C,)
    cosine: NDArray[np.bool_]  # (C,)
    wavelengths: NDArray[np.float64]  # (C,) positions per turn; infinite in a column of zeros
    step: int


class Offsets(NamedTuple):
    r"""How far each position turns each column: angles in radians, 0 in a column of zeros."""

    angles: NDArray[np.float64]  # (N, C)
    decay: NDArray[np.float64]  # (C,) the angles of position 1: the frequencies
    positions: NDArray[np.int64]  # (N,)
    columns: NDArray[np.int64]  # (C,)


class Oscillation(NamedTuple):
    """The rows of several positions."""

    values: NDArray[np.float64]  # (N, C)
    positions: NDArray[np.int64]  # (N,)
    columns: NDArray[np.int64]  # (C,)
    sine: NDArray[np.bool_]  # (C,)
    cosine: NDArray[np.bool_]  # (C,); a column of zeros is neither


def curves(
    d_model: int,
    length: int,
    *,
    columns: Iterable[int] | int | None = None,
    convention: str | Convention = "vaswani",
    base: float | None = None,
) -> Curves:
    r"""Some columns as waves along the positions.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of positions, from 0 on. Above 2,000 only the lowest and the highest point of each
            stretch are kept, so that a wave too fast to be seen is a band.
        columns (one or several `int`, *optional*): which. By default up to four, those that turn 8, 4, 2 and 1 times.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Curves` of `positions` and `values` `(P, C)`, with `cosine` and `wavelengths` `(C,)` of each column.

    Raises:
        ValueError: if there is no such column, or `d_model` or `length` is not positive.

    Example:
        >>> waves = curves(8, 3, columns=[0, 3])
        >>> waves.values.round(4)
        array([[0.    , 1.    ],
               [0.8415, 0.995 ],
               [0.9093, 0.9801]])
        >>> waves.wavelengths.round(1)
        array([ 6.3, 62.8])
    """
    kinds = columns_of(d_model, convention, base)
    count = check_number("length", length, 100)
    chosen = _telling(kinds, count) if columns is None else check_columns(columns, len(kinds.cosine))
    some = Columns(kinds.cosine[chosen], kinds.frequency[chosen])
    positions = np.arange(count)
    angles = np.outer(positions, some.frequency)  # (N, C); float64 is off by 1e-11 at 100,000
    values = np.where(some.cosine, np.cos(angles), np.sin(angles))
    kept, step = points(values)
    values = np.take_along_axis(values, kept, axis=0)
    with np.errstate(divide="ignore"):
        wavelengths = 2 * np.pi / some.frequency
    return Curves(kept, values, chosen, some.cosine, wavelengths, step)


def offsets(
    d_model: int,
    position: Iterable[int] | int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
) -> Offsets:
    r"""The offset that a position puts on the decay: the angle by which it turns each column.

    The frequencies 1/10000^(2i/D) times the position; on a logarithmic axis, the same curve shifted up.

    Args:
        d_model (`int`): width D >= 1.
        position (one or several `int`): not negative.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Offsets` of `angles` `(N, C)` float64 in radians, and the `decay` `(C,)` that they are multiples of.

    Raises:
        ValueError: if `d_model` is not positive, or a position is negative.

    Example:
        >>> offsets(4, 50).angles
        array([[50. , 50. ,  0.5,  0.5]])
    """
    kinds = columns_of(d_model, convention, base)
    where = check_whole("position", position, "10", least=0)
    kept = kept_columns(len(kinds.cosine))
    decay = kinds.frequency[kept]
    return Offsets(np.outer(where, decay), decay, where, kept)


def oscillation(
    d_model: int,
    positions: Iterable[int] | int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
) -> Oscillation:
    r"""The rows of several positions, each a wave over the columns that slows down.

    Args:
        d_model (`int`): width D >= 1.
        positions (one or several `int`): not negative.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Oscillation` of `values` `(N, C)` float64, and which columns are sines and cosines.

    Raises:
        ValueError: if `d_model` is not positive, or a position is negative.

    Example:
        >>> oscillation(4, [0, 1]).values.round(4)
        array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    kinds = columns_of(d_model, convention, base)
    where = check_whole("positions", positions, "[1, 10, 100]", least=0)
    kept = kept_columns(len(kinds.cosine))
    cosine, turns = kinds.cosine[kept], kinds.frequency[kept] != 0
    return Oscillation(rows_of(where, d_model, convention, base)[:, kept], where, kept, turns & ~cosine, cosine)


def _telling(kinds: Columns, length: int) -> NDArray[np.int64]:
    """Up to four columns, fastest first, whose waves can be seen on this length."""
    turns = kinds.frequency * length / (2 * np.pi)
    with np.errstate(divide="ignore"):
        apart = np.abs(np.log(turns)[None, :] - np.log([[8], [4], [2], [1]]))  # (4, D)
    return np.array(sorted(set(apart.argmin(axis=1).tolist()), key=lambda column: -turns[column]))


def points(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """The rows of `(N, C)` values to draw, `(P, C)`: all, or the lowest and the highest of each stretch, in order."""
    step = every(len(values))
    if step == 1:
        return np.repeat(np.arange(len(values))[:, None], values.shape[1], axis=1), step
    kept = []
    for start in range(0, len(values), 2 * step):
        part = values[start : start + 2 * step]
        low, high = part.argmin(axis=0), part.argmax(axis=0)
        kept += [start + np.minimum(low, high), start + np.maximum(low, high)]
    return np.stack(kept), step
