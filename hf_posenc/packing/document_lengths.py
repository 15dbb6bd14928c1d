"""Functions of document lengths: check, count and sort them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.errors import require_one_split
from .._common.integers import as_integers


def checked_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the numbers of tokens of documents as a new int64 array `(N,)`; raise if one is smaller than 1."""
    require_one_split(lengths, '["length"]')
    fix = 'lengths=[len(ids) for ids in documents], or dataset["length"]; drop documents without tokens first'
    return as_integers(lengths, "lengths", minimum=1, fix=fix)


def histogram(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different lengths in ascending order, and the number of documents of each length."""
    longest = int(lengths.max(initial=0))
    if longest > 16 * len(lengths) + 65536:  # counting would take more memory than the lengths do
        return np.unique(lengths, return_counts=True)
    counts = np.bincount(lengths)
    different = np.flatnonzero(counts)
    return different, counts[different]


def sorted_order(numbers: NDArray[np.int64], random: np.random.Generator | None = None) -> NDArray[np.int64]:
    r"""Return the indices that sort non-negative `numbers` in ascending order.

    Equal numbers stay in their order, or are shuffled if `random` is given.

    Example:
        >>> sorted_order(np.array([5, 3, 5, 0]))
        array([3, 1, 0, 2])
    """
    # NumPy sorts 16 bits by radix.
    numbers = numbers.astype(np.uint16) if numbers.max(initial=0) <= np.iinfo(np.uint16).max else numbers
    if random is None:
        return np.argsort(numbers, kind="stable")
    shuffled = random.permutation(len(numbers))
    return shuffled[np.argsort(numbers[shuffled], kind="stable")]
