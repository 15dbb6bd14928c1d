"""Documents that are too long, cut into pieces before they are packed.

Plans over lengths; the tokens are cut by whoever holds them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._explain import as_integer
from .checks import checked_lengths


def split_long(lengths: ArrayLike, capacity: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    r"""Cuts documents into pieces of at most `capacity` tokens; every token is in exactly one piece.

    A document that fits is one piece. A longer one gives full pieces, and at last what remains.

    Args:
        lengths (array-like of integers `(N,)`): tokens of each document, each at least 1. May be empty.
        capacity (`int`): the longest a piece may be.

    Returns:
        three `np.ndarray` `(P,)` int64: the document of each piece, where in it the piece starts, and how long it is.
        In the order of the documents and of their tokens.

    Raises:
        ValueError: if a document has no tokens, or if `capacity` is not positive.
        TypeError: if `lengths` or `capacity` are not whole numbers.

    Example:
        >>> document, start, length = split_long([3, 11], 5)
        >>> document, start, length
        (array([0, 1, 1, 1]), array([ 0,  0,  5, 10]), array([3, 5, 5, 1]))
        >>> from hf_posenc import pack
        >>> [[(int(document[piece]), int(start[piece])) for piece in row] for row in pack(length, 5)]
        [[(1, 0)], [(1, 5)], [(0, 0), (1, 10)]]
    """
    capacity = as_integer(capacity, "capacity", minimum=1, example=2048)
    sizes = checked_lengths(lengths)
    pieces = -(-sizes // capacity)  # (N,)
    document = np.repeat(np.arange(len(sizes)), pieces)
    first = np.cumsum(pieces) - pieces
    start = (np.arange(len(document)) - first[document]) * capacity
    return document, start, np.minimum(sizes[document] - start, capacity)
