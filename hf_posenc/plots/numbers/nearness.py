"""How far positions are from each other in an encoding, and how alike: both depend on the distance alone.

On long axes every second, third, … position is taken, and the result says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from ..._explain import one_of
from ...sinusoid import Convention
from ..limits import every
from .columns import check_number, check_whole, rows_of

Measure = Literal["dot", "cosine"]
_MOST = 500  # rows and columns of a matrix: as many as a notebook's picture has points


class Distances(NamedTuple):
    """Euclidean distances between the rows of positions; every `step`-th position."""

    distances: NDArray[np.float64]  # (P, P)
    positions: NDArray[np.int64]  # (P,)
    step: int


class Similarity(NamedTuple):
    """How alike the rows of two positions are, against how far apart these are; every `step`-th distance."""

    values: NDArray[np.float64]  # (S, K)
    starts: NDArray[np.int64]  # (S,)
    distances: NDArray[np.int64]  # (K,)
    step: int


def distances(
    d_model: int, length: int, *, convention: str | Convention = "vaswani", base: float | None = None
) -> Distances:
    r"""The matrix of Euclidean distances between the rows of positions 0 to `length` - 1.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of positions. Above 500 every second, third, … is taken.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Distances`, `(P, P)` float64, symmetric and zero on the diagonal.

    Raises:
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> distances(4, 3).distances.round(3)
        array([[0.   , 0.959, 1.683],
               [0.959, 0.   , 0.959],
               [1.683, 0.959, 0.   ]])
    """
    count = check_number("length", length, 100)
    step = every(count, _MOST)
    positions = np.arange(0, count, step)
    rows = torch.from_numpy(rows_of(positions, d_model, convention, base))
    # By matrix products it would be faster, and wrong in the eighth digit.
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return Distances(apart.numpy(), positions, step)


def similarity(
    d_model: int,
    length: int,
    *,
    starts: Iterable[int] | int = (0, 10, 100),
    measure: Measure = "dot",
    convention: str | Convention = "vaswani",
    base: float | None = None,
) -> Similarity:
    r"""The row of position s against that of position s + k, for several starts s and all distances k < `length`.

    The dot product is the sum of cos(k · frequency) over the pairs of columns: s is not in it.

    Args:
        d_model (`int`): width D >= 1. With an odd one the last sine has no cosine, and the starts differ by it.
        length (`int`): number of distances, from 0 on. Above 2,000 every second, third, … is taken.
        starts (one or several `int`): positions to measure from.
        measure (`"dot"` or `"cosine"`): the dot product, or that of rows scaled to length 1.
        convention, base: see `sinusoidal_encoding`.

    Returns:
        `Similarity` of `values` `(S, K)` float64.

    Raises:
        ValueError: if `measure` is another, `d_model` or `length` not positive, or a start negative.

    Example:
        >>> similarity(4, 3, starts=[0, 7]).values.round(3)
        array([[2.   , 1.54 , 0.584],
               [2.   , 1.54 , 0.584]])
    """
    count = check_number("length", length, 100)
    if measure not in get_args(Measure):
        raise ValueError(one_of("measure", measure, get_args(Measure)))
    where = check_whole("starts", starts, "[0, 10, 100]", least=0)
    step = every(count)
    apart = np.arange(0, count, step)
    values = []
    for start in where.tolist():
        rows = rows_of(start + apart, d_model, convention, base)  # (K, D)
        one = rows_of([start], d_model, convention, base)[0]
        dots = rows @ one
        if measure == "cosine":
            sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(one)
            dots = np.divide(dots, sizes, out=np.zeros_like(dots), where=sizes > 0)  # width 1 is zero at position 0
        values.append(dots)
    return Similarity(np.stack(values), where, apart, step)
