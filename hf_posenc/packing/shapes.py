"""Padded lengths of rows (multiples of a number, or a few lengths that waste least), and the cost of padded rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.errors import type_error, value_error
from .._common.integers import as_integer
from ..ragged import offsets_of, run_indices
from .document_lengths import checked_lengths, histogram

# A function from padded lengths (n,) to the cost of one row of each length (n,).
Cost = Callable[[NDArray[np.int64]], Any]


def best_shapes(
    lengths: ArrayLike, count: int, *, multiple_of: int | None = None, cost: Cost | None = None
) -> NDArray[np.int64]:
    r"""Return the `count` padded lengths with the least padding for the given documents.

    Each document is padded to the shortest of these lengths that fits. `torch.compile` compiles once for every shape,
    so a few padded lengths save compilations. Lengths chosen for the documents waste about half as much as equally
    spaced ones.

    Source:
        Exact, by dynamic programming: each step adds one padded length, for all D different document lengths. Divide
        and conquer needs D log D operations for a step, because the best next smaller length never decreases as the
        longest document grows (Yao 1980, "Efficient dynamic programming using quadrangle inequalities").

    Example:
        >>> best_shapes([3, 3, 3, 4, 9, 10, 10], 2)
        array([ 4, 10])
        >>> best_shapes([3, 3, 3, 4, 9, 10, 10], 2, multiple_of=8)
        array([ 8, 16])
    """
    count = as_integer(count, "count", minimum=1, example=16)
    widths, documents = histogram(padded(checked_lengths(lengths), multiple_of))
    if len(widths) <= count:
        return widths
    price = row_costs(widths, cost)
    below = offsets_of(documents)  # number of documents narrower than widths[j]
    best = below[1:] * price  # cost of all documents up to widths[j], if widths[j] is the only shape
    choices = []
    for _ in range(count - 1):
        best, before = _one_more(best, below, price)
        choices.append(before)
    indices = [len(widths) - 1]
    for before in reversed(choices):
        indices.append(int(before[indices[-1]]))
    return widths[np.unique(indices)]


def _one_more(
    best: NDArray[Any], below: NDArray[np.int64], price: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Do one step of the dynamic program of `best_shapes`: allow one more shape (padded length)."""
    # `best[j]` is the lowest cost of the documents of width j or less, if width j is their largest shape. The new
    # `best[j]` is the minimum over i < j of `best[i]` plus `price[j]` times the number of documents wider than width i,
    # up to width j.
    size = len(best)
    out, before = best.copy(), np.zeros(size, dtype=np.int64)
    last = size  # the last computed width is an upper bound for the choice
    stride = 1 << (size - 1).bit_length()
    choices = np.zeros(size + 1, dtype=np.int64)
    choices[size] = size - 2
    while stride > 1:
        half = stride // 2
        at = np.arange(half, size, stride)
        low = choices[at - half]
        high = np.minimum(choices[np.minimum(at + half, last)], at - 1)
        runs = high - low + 1
        begins, tried = offsets_of(runs)[:-1], run_indices(low, runs)
        to = np.repeat(at, runs)
        costs = best[tried] + (below[to + 1] - below[tried + 1]) * price[to]
        least = np.minimum.reduceat(costs, begins)
        is_least = np.flatnonzero(costs == np.repeat(least, runs))
        first = tried[is_least[np.searchsorted(is_least, begins)]]
        out[at], before[at], choices[at] = least, first, first
        stride = half
    return out, before


def row_costs(widths: NDArray[np.int64], cost: Cost | None) -> NDArray[Any]:
    """Return the cost of one row of each padded length in `widths`: `cost(widths)`, or `widths` if `cost` is `None`.

    `widths` must be ascending. Raise `ValueError` if a cost is not positive, or is lower than that of a smaller width,
    and `TypeError` if `cost` does not return one number for each width. Errors of the function itself are not replaced.
    """
    if cost is None:
        return widths
    costs = np.asarray(cost(widths))
    if costs.shape != widths.shape or costs.dtype.kind not in "iuf":
        raise type_error(
            "cost must give one number for each padded length",
            got=f"values of shape {costs.shape} and {costs.dtype} for {len(widths)} lengths",
            fix="cost=lambda width: width + width**2 / 4096",
        )
    bad = ~(np.isfinite(costs) & (costs > 0))
    bad[1:] |= costs[1:] < costs[:-1]
    if bad.any():
        at = int(bad.argmax())
        raise value_error(
            "cost must be positive and never fall as rows get longer",
            got=f"{costs[at]} for {widths[at]} tokens" + (f", {costs[at - 1]} for {widths[at - 1]}" if at else ""),
            fix="cost=lambda width: width + width**2 / 4096",
        )
    return costs


def padded(
    lengths: NDArray[np.int64], multiple_of: int | None = None, shapes: Sequence[int] | None = None
) -> NDArray[np.int64]:
    r"""Return the padded length of each of `lengths`: rounded up to one of `shapes`, or to a multiple of `multiple_of`.

    `shapes` must be ascending, and the last at least as large as every length; `multiple_of` is then ignored. Without
    both arguments, `lengths` are returned unchanged.

    Example:
        >>> padded(np.array([3, 8, 9]), multiple_of=8), padded(np.array([3, 8, 9]), shapes=(4, 9))
        (array([ 8,  8, 16]), array([4, 9, 9]))
    """
    if shapes is not None:
        rising = np.asarray(shapes, dtype=np.int64)
        return rising[np.searchsorted(rising, lengths)]
    if multiple_of is None:
        return lengths
    step = as_integer(multiple_of, "multiple_of", minimum=1, example=8)
    return -(-lengths // step) * step
