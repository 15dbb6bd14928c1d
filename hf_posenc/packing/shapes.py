"""Padded lengths of rows (multiples of a number, or a few lengths that waste least), and the cost of padded rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._explain import as_integer, shorten, type_error, value_error
from ..ragged import offsets_of, run_indices
from .document_lengths import checked_lengths, histogram

# A function from padded lengths (n,) to the cost of one row of each length (n,).
Cost = Callable[[NDArray[np.int64]], Any]


def best_shapes(
    lengths: ArrayLike, count: int, *, multiple_of: int | None = None, cost: Cost | None = None
) -> NDArray[np.int64]:
    r"""Return the `count` padded lengths that cost least in total; each document is padded to the shortest that fits.

    `torch.compile` compiles once for every shape, so a few padded lengths save compilations. Lengths chosen for the
    documents waste about half as much as equally spaced ones.

    Args:
        lengths (array-like of integers `(N,)`): tokens of each document, each at least 1.
        count (`int`): number of padded lengths, K; fewer if the documents have fewer different lengths.
        multiple_of (`int`, *optional*): every length is a multiple of it.
        cost (callable, *optional*): cost of a row of a padded length, as in `plan_batches`; by default the length.

    Returns:
        `np.ndarray` `(K,)` int64, ascending; the last is enough for the longest document. No K other lengths cost less.

    Raises:
        ValueError: if `count`, `multiple_of` or a length are not positive, or `cost` falls for longer rows.
        TypeError: if `lengths`, `count` or `multiple_of` are not integers.

    Source:
        Exact, by dynamic programming over the D different lengths, one layer for each shape. The best next smaller
        shape never decreases as the longest document grows, so divide and conquer finds a layer in D log D steps (Yao
        1980, "Efficient dynamic programming using quadrangle inequalities").

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
    chosen = [len(widths) - 1]
    for before in reversed(choices):
        chosen.append(int(before[chosen[-1]]))
    return widths[np.unique(chosen)]


def _one_more(
    best: NDArray[Any], below: NDArray[np.int64], price: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the lowest costs with one more shape, and the index of the next smaller shape, both for each width.

    `best[i]` is the lowest cost of the documents up to width i if width i is a shape. With one more shape, the lowest
    cost up to width j is the minimum over i < j of `best[i]` plus `price[j]` for each document wider than i, up to j.
    `below[i]` is the number of documents narrower than width i.
    """
    size = len(best)
    out, before = best.copy(), np.zeros(size, dtype=np.int64)
    last = size  # the last computed width is an upper bound for the choice
    stride = 1 << (size - 1).bit_length()
    known = np.zeros(size + 1, dtype=np.int64)
    known[size] = size - 2
    while stride > 1:
        half = stride // 2
        at = np.arange(half, size, stride)
        low = known[at - half]
        high = np.minimum(known[np.minimum(at + half, last)], at - 1)
        runs = high - low + 1
        begins, tried = offsets_of(runs)[:-1], run_indices(low, runs)
        to = np.repeat(at, runs)
        costs = best[tried] + (below[to + 1] - below[tried + 1]) * price[to]
        least = np.minimum.reduceat(costs, begins)
        is_least = np.flatnonzero(costs == np.repeat(least, runs))
        first = tried[is_least[np.searchsorted(is_least, begins)]]
        out[at], before[at], known[at] = least, first, first
        stride = half
    return out, before


def row_costs(widths: NDArray[np.int64], cost: Cost | None) -> NDArray[Any]:
    r"""Return the cost of one row of each of the ascending `widths`: `cost(widths)`, or `widths` if `cost` is `None`.

    Raise if a cost is not positive, or is lower than that of a smaller width.

    Example:
        >>> row_costs(np.array([2, 4]), lambda width: width + width**2 / 8)
        array([2.5, 6. ])
    """
    if cost is None:
        return widths
    try:
        costs = np.asarray(cost(widths))
    except (TypeError, ValueError) as problem:
        raise type_error(
            "cost must be a function of an array of padded lengths",
            got=f"{shorten(cost)}: {problem}",
            fix="cost=lambda width: width + width**2 / 4096",
        ) from None
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
    r"""Round `lengths` up to one of the ascending `shapes`, or to a multiple of `multiple_of`; unchanged without both.

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
