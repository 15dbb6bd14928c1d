"""Rows of several documents: documents numbered from position ids, and sorted by number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def documents_by_positions(positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64] | None:
    r"""Number the documents of each row from position ids that restart.

    The whole package uses this one rule. A document begins where positions fall back to the first one, which is the
    smallest of the row. Positions that fall to another value, repeat, or skip numbers do not begin a document. If a row
    contains such a restart and otherwise counts by ones, the first position twice in a row is a document of one token.

    Args:
        positions (`np.ndarray` `(N,)`): of the real tokens of all rows, one row after the other.
        lengths (`np.ndarray` `(B,)` int64): number of real tokens in each row.

    Returns:
        `np.ndarray` `(N,)` int64, counted from 0 in each row; `None` if no row contains more than one document.

    Example:
        >>> documents_by_positions(np.array([0, 1, 2, 0, 1]), np.array([5]))
        array([0, 0, 0, 1, 1])
        >>> documents_by_positions(np.array([0, 1, 1, 2]), np.array([4])) is None   # a word of two tokens
        True
    """
    lengths = lengths[lengths > 0]
    if len(positions) == len(lengths):
        return None
    starts = np.cumsum(lengths) - lengths

    def in_rows_with(tokens: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return True at every token of a row in which any of `tokens` is True."""
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
    r"""Return the order that brings the tokens of each document together, the documents' lengths, and their rows.

    Args:
        documents (`np.ndarray` `(N,)`): the document of each token, one row after the other.
        lengths (`np.ndarray` `(B,)` int64): number of tokens in each row.

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
