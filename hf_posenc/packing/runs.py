"""Runs of documents that are sorted by length: cut evenly, or picked out of an array.

Arithmetic of `budget` and `batches`; no run is ever empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain


def divide(
    rows: list[int], group: list[int], falling: NDArray[Any], ends: NDArray[np.int64], budget: int, ranks: int
) -> None:
    r"""Splits batches of the shortest documents, until the ranks divide their number; in place.

    Args:
        rows, group (`list` of `int`): how many documents each batch has, and whom it exchanges them with.
        falling (`np.ndarray` `(n,)`), ends (`np.ndarray` `(n,)` int64): what a row of each length costs, from the
            longest on, and how many documents are at least as long.
        budget (`int`): what a batch may cost.
        ranks (`int`): what is to divide the number of batches.

    Raises:
        ValueError: if there are too few documents for that.

    Example:
        >>> rows, group = [2, 3], [0, 1]
        >>> divide(rows, group, np.array([6, 4]), np.array([2, 5]), 12, 3)
        >>> rows
        [2, 2, 1]
    """
    tail = len(rows) % ranks
    while True:
        documents, wanted = sum(rows[-tail:]), -(-tail // ranks) * ranks
        if documents >= wanted:
            break
        if tail == len(rows):
            raise ValueError(
                explain(
                    f"{len(rows)} batches cannot be split into {wanted}, the same number for each of {ranks} ranks",
                    got=f"{documents} documents, a budget of {budget}",
                    fix=f"leave {documents % ranks} documents out, or use fewer ranks"
                    if documents > ranks
                    else f"world_size={documents} or less",
                )
            )
        tail = min(tail + ranks, len(rows))
    first = sum(rows) - documents
    price = falling[np.searchsorted(ends, np.arange(first, first + documents), side="right")]
    del rows[-tail:], group[-tail:]
    rows += even_runs(price, wanted, budget)
    group += range(len(group), len(group) + wanted)


def even_runs(price: NDArray[Any], runs: int, most: float) -> list[int]:
    r"""Cuts documents of falling price into so many runs that the dearest, rows times its first price, is cheap.

    By halving the limit that the dearest has to keep: 32 times, which is finer than any budget needs.

    Example:
        >>> even_runs(np.array([6, 6, 4, 4, 4]), 3, 12)
        [2, 2, 1]
    """

    def within(limit: float) -> list[int] | None:
        found: list[int] = []
        begin = 0
        while begin < len(price):
            if len(found) == runs:
                return None
            found.append(min(int(limit // price[begin]), len(price) - begin))
            begin += found[-1]
        return found

    low, high = float(price[0]), float(most)
    best = within(low) or within(high) or []
    for _ in range(32):
        middle = (low + high) / 2
        found = within(middle)
        low, high = (low, middle) if found else (middle, high)
        best = found or best
    while len(best) < runs:  # fewer runs were enough: halve the one with the most rows
        at = max(range(len(best)), key=best.__getitem__)
        best[at : at + 1] = [best[at] - best[at] // 2, best[at] // 2]
    return best


def gathered(
    values: NDArray[np.int64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""The runs of `values` from each of `starts`, one after the other, and where each begins, as in a plan.

    Example:
        >>> gathered(np.array([7, 8, 9, 5]), np.array([3, 0]), np.array([1, 2]))
        (array([5, 7, 8]), array([0, 1, 3]))
    """
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return values[np.arange(int(offsets[-1])) + np.repeat(starts - offsets[:-1], sizes)], offsets
