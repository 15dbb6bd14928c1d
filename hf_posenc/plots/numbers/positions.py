"""Encodings as tables and as waves: what the heat maps, curves and oscillations show.

Long axes are thinned here, so that the numbers are those that are drawn; each result says how.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sinusoid import Convention
from ..canvas import every
from .columns import Columns, check_columns, check_number, check_whole, columns_of, means_of, rows_of


class Table(NamedTuple):
    r"""Rows of an encoding. With `step` above 1, row i is the mean of `step` positions from `positions[i]` on."""

    values: NDArray[np.float64]  # (P, C)
    positions: NDArray[np.int64]  # (P,)
    columns: NDArray[np.int64]  # (C,)
    step: int


class SinesAndCosines(NamedTuple):
    """The sine columns of an encoding, and its cosine columns."""

    sines: Table
    cosines: Table


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
    cosine: NDArray[np.bool_]  # (C,)


def encoding(
    d_model: int, length: int, *, convention: str | Convention = "vaswani", base: float | None = None
) -> Table:
    r"""The encoding of positions 0, 1, … `length` - 1.

    Args:
        d_model (`int`): width D >= 1. Above 2,000 columns every third, or fifth, … is kept: sines and cosines alike.
        length (`int`): number of positions. Above 2,000 neighbours are averaged: leaving them out would show fast
            columns as slow waves.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Table` of `values` `(P, C)` float64, at most 2,000 each way, with their `positions` and `columns`.

    Raises:
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> encoding(4, 2).values.round(4)
        array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    kinds = columns_of(d_model, convention, base)
    count = check_number("length", length, 100)
    step = every(count)
    starts = np.arange(0, count, step)
    if step == 1:
        values = rows_of(starts, d_model, convention, base)
    else:
        left = count - int(starts[-1])
        values = np.concatenate([means_of(starts[:-1], step, kinds), means_of(starts[-1:], left, kinds)])
    kept = _kept_columns(len(kinds.cosine))
    return Table(values[:, kept], starts, kept, step)


def sine_and_cosine(
    d_model: int, length: int, *, convention: str | Convention = "vaswani", base: float | None = None
) -> SinesAndCosines:
    r"""The sine columns and the cosine columns apart: in "vaswani" the even and the odd ones.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of positions, from 0 on.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `SinesAndCosines` of two `Table`s, thinned as `encoding` does. A column of zeros is in neither.

    Raises:
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> sines, cosines = sine_and_cosine(5, 2)
        >>> sines.columns, cosines.columns
        (array([0, 2, 4]), array([1, 3]))
    """
    whole = encoding(d_model, length, convention=convention, base=base)
    kinds = columns_of(d_model, convention, base)
    cosine, turns = kinds.cosine[whole.columns], kinds.frequency[whole.columns] != 0
    some = (turns & ~cosine, turns & cosine)
    return SinesAndCosines(*(whole._replace(values=whole.values[:, one], columns=whole.columns[one]) for one in some))


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
    step = every(count)
    if step > 1:
        kept = _extremes(values, 2 * step)
        values = np.take_along_axis(values, kept, axis=0)
    else:
        kept = np.repeat(positions[:, None], len(chosen), axis=1)
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
    kept = _kept_columns(len(kinds.cosine))
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
        `Oscillation` of `values` `(N, C)` float64, and which columns are cosines.

    Raises:
        ValueError: if `d_model` is not positive, or a position is negative.

    Example:
        >>> oscillation(4, [0, 1]).values.round(4)
        array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    kinds = columns_of(d_model, convention, base)
    where = check_whole("positions", positions, "[1, 10, 100]", least=0)
    kept = _kept_columns(len(kinds.cosine))
    return Oscillation(rows_of(where, d_model, convention, base)[:, kept], where, kept, kinds.cosine[kept])


def _kept_columns(d_model: int) -> NDArray[np.int64]:
    step = every(d_model)
    return np.arange(0, d_model, step if step % 2 else step + 1)  # an even step would leave out all cosines


def _telling(kinds: Columns, length: int) -> NDArray[np.int64]:
    """Up to four columns, fastest first, whose waves can be seen on this length."""
    turns = kinds.frequency * length / (2 * np.pi)
    with np.errstate(divide="ignore"):
        apart = np.abs(np.log(turns)[None, :] - np.log([[8], [4], [2], [1]]))  # (4, D)
    return np.array(sorted(set(apart.argmin(axis=1).tolist()), key=lambda column: -turns[column]))


def _extremes(values: NDArray[np.float64], stretch: int) -> NDArray[np.int64]:
    """The rows with the lowest and the highest value of every stretch, in order, for each column `(P, C)`."""
    kept = []
    for start in range(0, len(values), stretch):
        part = values[start : start + stretch]
        low, high = part.argmin(axis=0), part.argmax(axis=0)
        kept += [start + np.minimum(low, high), start + np.maximum(low, high)]
    return np.stack(kept)
