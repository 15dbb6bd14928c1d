"""What a plan is made of, checked once: lengths, whole numbers and ranks.

What fits where is decided in `plan` and `budget`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._explain import as_integer, explain


def checked_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    r"""The lengths of documents as an array of its own.

    Args:
        lengths (array-like of integers `(N,)`): tokens of each document, each at least 1. May be empty.

    Returns:
        `np.ndarray` `(N,)` int64, in memory of its own.

    Raises:
        ValueError: if a document has no tokens.
        TypeError: if they are not whole numbers, or not flat.

    Example:
        >>> checked_lengths([5, 3])
        array([5, 3])
    """
    try:
        sizes = np.asarray(lengths)
    except ValueError:  # rows of unequal lengths
        sizes = np.empty((0, 0), dtype=object)
    if sizes.ndim != 1 or (sizes.dtype.kind not in "iu" and sizes.size):
        raise TypeError(
            explain(
                "lengths must be a flat list of whole numbers, one a document",
                got=f"{sizes.ndim}-dimensional values of {sizes.dtype}",
                fix="lengths=[len(ids) for ids in documents]",
            )
        )
    sizes = sizes.astype(np.int64)
    if len(sizes) and sizes.min() <= 0:
        bad = np.flatnonzero(sizes <= 0)
        raise ValueError(
            explain(
                f"every document needs at least one token; document {bad[0]} has length {sizes[bad[0]]}",
                got=f"{len(bad)} bad of {len(sizes)} lengths",
                fix="drop them first: kept = np.flatnonzero(np.asarray(lengths) > 0)",
            )
        )
    return sizes


def histogram(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""The lengths that occur, rising, and how often each does.

    Example:
        >>> histogram(np.array([5, 3, 5]))
        (array([3, 5]), array([1, 2]))
    """
    longest = int(lengths.max(initial=0))
    if longest > 16 * len(lengths) + 65536:  # counting would take more memory than the lengths do
        return np.unique(lengths, return_counts=True)
    counts = np.bincount(lengths)
    different = np.flatnonzero(counts)
    return different, counts[different]


def checked_rank(rank: Any, world_size: int) -> int:
    r"""A rank as an `int`, where there is one of that number.

    Example:
        >>> checked_rank(1, 2)
        1
    """
    number = as_integer(rank, "rank", minimum=0, example=0)
    if number >= world_size:
        raise ValueError(
            explain(
                f"rank must be below world_size; {world_size} ranks count from 0 to {world_size - 1}",
                got=f"rank={number}",
                fix=f"world_size={number + 1}, or rank={world_size - 1}",
            )
        )
    return number
