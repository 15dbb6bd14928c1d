"""Functions of document lengths and numbers: check, count and sort lengths; find the documents of packed rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.integers import as_integers
from ..ragged import offsets_of


def checked_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the numbers of tokens of documents as a new int64 array `(N,)`; raise if one is smaller than 1."""
    fix = 'lengths=[len(ids) for ids in documents], or dataset["length"]; drop documents without tokens first'
    return as_integers(lengths, "lengths", minimum=1, fix=fix)


def histogram(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""Return the different lengths in ascending order, and the number of documents of each length.

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


def documents_by_positions(positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64] | None:
    r"""Return the document number of each token in packed rows, computed from the position ids of the tokens.

    The position ids of a packed row restart with each document. The whole package uses these rules:

    1. A document begins where the position falls to the smallest position of its row: 0 1 2 0 1 is two documents.
    2. If a position falls to another number than the smallest of its row, the whole row is one document: 0 2 1 0 1.
    3. Gaps and repeated positions do not begin a document: 0 1 1 3 is one document.
    4. Exception to rule 3, for documents of one token: a repeated smallest position begins a document if every larger
       position in its row is one more than the position before it, and if rules 1 and 2 find several documents in at
       least one of the given rows. So 0 1 0 0 1 is three documents.

    Args:
        positions (`np.ndarray` `(N,)`): position ids of the real tokens of all rows, one row after the other.
        lengths (`np.ndarray` `(B,)` int64): number of real tokens in each row.

    Returns:
        `np.ndarray` `(N,)` int64, document numbers from 0 in each row; `None` if no row has more than one document.

    Example:
        >>> documents_by_positions(np.array([0, 1, 2, 0, 1]), np.array([5]))
        array([0, 0, 0, 1, 1])
        >>> documents_by_positions(np.array([0, 1, 1, 2]), np.array([4])) is None   # a word of two tokens
        True
    """
    lengths = lengths[lengths > 0]
    if len(positions) == len(lengths):
        return None
    starts = offsets_of(lengths)[:-1]

    def in_rows_with(tokens: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a bool array: for each token, True if `tokens` is True at any token of the same row."""
        return np.repeat(np.logical_or.reduceat(tokens, starts), lengths)

    at_first = positions == np.repeat(np.minimum.reduceat(positions, starts), lengths)
    inside, falls, skips = np.ones((3, len(positions)), dtype=np.bool_)
    falls[1:], skips[1:] = positions[1:] < positions[:-1], positions[1:] != positions[:-1] + 1
    inside[starts] = falls[starts] = skips[starts] = False
    begins = falls & at_first & ~in_rows_with(falls & ~at_first)
    if not begins.any():
        return None
    begins |= inside & at_first & ~in_rows_with(skips & ~at_first)
    numbers: NDArray[np.int64] = np.cumsum(begins)
    numbers -= np.repeat(numbers[starts], lengths)
    return numbers


def order_by_document(
    documents: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    r"""Return the order of tokens that puts the tokens of each document together, with the documents' lengths and rows.

    A document is all tokens of one row with the same document number; they need not be neighbors.

    Args:
        documents (`np.ndarray` `(N,)`): document number of each token, one row after the other.
        lengths (`np.ndarray` `(B,)` int64): number of tokens in each row.

    Returns:
        Three arrays of integers: the token indices `(N,)`, sorted by row and then by document number; the length of
        each document `(D,)`; and the row of each document `(D,)`.

    Example:
        >>> order_by_document(np.array([0, 0, 1, 4, 5, 4]), np.array([3, 3]))
        (array([0, 1, 2, 3, 5, 4]), array([2, 1, 2, 1]), array([0, 0, 1, 1]))
    """
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((documents, rows))  # tokens of equal numbers stay in their order
    ends = np.ones(len(order) + 1, dtype=np.bool_)
    ends[1:-1] = (np.diff(rows[order]) != 0) | (np.diff(documents[order]) != 0)
    starts = np.flatnonzero(ends)
    return order, np.diff(starts), rows[order][starts[:-1]]
