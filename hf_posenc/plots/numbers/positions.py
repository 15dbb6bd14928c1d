"""Encodings as tables: what the heat maps show.

Long axes are thinned here, so that the numbers are those that are drawn; each result says how.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...sinusoid import Convention
from ..limits import every
from .columns import check_number, columns_of, kept_columns, means_of, rows_of


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
    kept = kept_columns(len(kinds.cosine))
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
