"""`pack`: plans the documents of each packed row from their lengths.

`documents.pack_rows` builds the rows from tokens.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.errors import require_one_of, value_error
from .._common.integers import as_integer
from ..ragged import offsets_of, run_indices
from .document_lengths import checked_lengths, histogram, sorted_order

TooLong = Literal["error", "split"]


@dataclass(frozen=True, eq=False, repr=False)
class PackingPlan:
    r"""Plan of packed rows: the indices of the documents in each row; see `pack`.

    Row k holds the documents `order[row_offsets[k]:row_offsets[k + 1]]`, the longest first. Every document is in
    exactly one row. Iterating yields one index array per row, so a plan serves as the `batch_sampler` of a
    `DataLoader`.

    Args:
        order (`np.ndarray` `(N,)` int64): indices of the documents, row after row.
        row_offsets (`np.ndarray` `(R + 1,)` int64): offset of each row in `order`, and N at the end.
        lengths (`np.ndarray` `(N,)` int64): lengths of the documents.
        capacity (`int`): maximum number of tokens in a row.
        documents, starts (`np.ndarray` `(N,)` int64, *optional*): only of `pack(..., too_long="split")`, whose plan
            is of pieces. Piece p is the tokens `starts[p]` to `starts[p] + lengths[p] - 1` of document `documents[p]`.

    Example:
        >>> plan = pack([5, 3, 8, 2, 4], 10)
        >>> plan
        PackingPlan(rows=3, documents=5, tokens=22, capacity=10, utilisation=73.33 %, padding=8)
        >>> [row.tolist() for row in plan]
        [[1], [2, 3], [0, 4]]
    """

    order: NDArray[np.int64]
    row_offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    capacity: int
    documents: NDArray[np.int64] | None = None
    starts: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of rows, R."""
        return len(self.row_offsets) - 1

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """Yield the document indices of each row, as a new array."""
        for start, stop in pairwise(self.row_offsets.tolist()):
            yield self.order[start:stop].copy()

    def places(self, begins: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        r"""Return the source of each token of the packed rows, to copy the tokens from one flat array of all documents.

        Args:
            begins (`np.ndarray` `(N,)` int64): offset of each document in this flat array.

        Returns:
            Two `np.ndarray` `(tokens,)` int64, for the tokens of all packed rows, row after row: the index of the token
            in the flat array, and its index in its own document.

        Example:
            >>> pack([2, 1, 3], 4).places(np.array([0, 2, 3]))
            (array([0, 1, 3, 4, 5, 2]), array([0, 1, 0, 1, 2, 0]))
        """
        sizes = self.lengths[self.order]
        return run_indices(begins[self.order], sizes), run_indices(0, sizes)

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        r"""Number of tokens in each row: `np.ndarray` `(R,)` int64, at most `capacity`.

        Example:
            >>> pack([5, 3, 8, 2, 4], 10).row_lengths
            array([ 3, 10,  9])
        """
        return np.add.reduceat(self.lengths[self.order], self.row_offsets[:-1])

    @property
    def padding(self) -> int:
        """Number of padding tokens if every row is padded to `capacity`."""
        return len(self) * self.capacity - int(self.lengths.sum())

    @property
    def utilisation(self) -> float:
        """Share of real tokens in rows padded to `capacity`, between 0 and 1; 1 for a plan without rows."""
        places = len(self) * self.capacity
        return 1.0 if places == 0 else int(self.lengths.sum()) / places

    def __repr__(self) -> str:
        return (
            f"PackingPlan(rows={len(self)}, documents={len(self.order)}, tokens={int(self.lengths.sum())}, "
            f"capacity={self.capacity}, utilisation={100 * self.utilisation:.2f} %, padding={self.padding})"
        )


def pack(lengths: ArrayLike, capacity: int, *, too_long: TooLong = "error", seed: int | None = 0) -> PackingPlan:
    r"""Pack documents into few rows of at most `capacity` tokens.

    The method is best-fit decreasing: the documents are placed one by one, the longest first, each into the row with
    the least free space that is enough for it. A document that fits into no row begins a new one.

    Args:
        lengths (array-like of integers `(N,)`): tokens of each document, each at least 1. May be empty.
        capacity (`int`): maximum number of tokens in a row.
        too_long (`"error"` or `"split"`, *optional*, defaults to `"error"`): `"error"` raises `ValueError` for a
            document longer than `capacity`. `"split"` makes pieces of `capacity` tokens, and a last piece with the
            rest; the plan then has `documents` and `starts`. To truncate, pass `np.minimum(lengths, capacity)`.
        seed (`int`, *optional*, defaults to 0): random seed to shuffle the rows, and the documents of equal length. The
            same seed gives the same plan; the number of rows is the same for all seeds. With `None` nothing is
            shuffled, and rows with the longest documents come first; a model that is trained on rows in this order
            learns less.

    Returns:
        `PackingPlan`: every document exactly once, at most `capacity` tokens per row.

    Raises:
        ValueError: if a document is longer than `capacity` and `too_long` is `"error"`, if a document has no tokens, if
            `capacity` is not positive, or if `seed` is negative.
        TypeError: if `lengths`, `capacity` or `seed` are not integers.

    Source:
        Johnson 1973, "Near-optimal bin packing algorithms" (best-fit decreasing).

    Example:
        >>> plan = pack([5, 3, 8, 2, 4], capacity=10)
        >>> plan.order, plan.row_offsets
        (array([1, 2, 3, 0, 4]), array([0, 1, 3, 5]))
        >>> split = pack([3, 11], 5, too_long="split")
        >>> split.documents, split.starts, split.lengths
        (array([0, 1, 1, 1]), array([ 0,  0,  5, 10]), array([3, 5, 5, 1]))
        >>> [[(int(split.documents[piece]), int(split.starts[piece])) for piece in row] for row in split]
        [[(0, 0), (1, 10)], [(1, 0)], [(1, 5)]]
    """
    capacity = as_integer(capacity, "capacity", minimum=1, example=2048)
    require_one_of("too_long", too_long, get_args(TooLong))
    sizes = checked_lengths(lengths)
    document = start = None
    if too_long == "split":
        pieces = -(-sizes // capacity)  # (N,)
        document, start = np.repeat(np.arange(len(sizes)), pieces), run_indices(0, pieces) * capacity
        sizes = np.minimum(sizes[document] - start, capacity)
    elif int(sizes.max(initial=0)) > capacity:
        longest = int(sizes.argmax())
        raise value_error(
            f"document {longest} has {sizes[longest]} tokens, a row holds {capacity}",
            got=f"{int((sizes > capacity).sum())} of {len(sizes)} documents longer than the capacity",
            fix='too_long="split", or a larger capacity',
        )
    if seed is not None:
        seed = as_integer(seed, "seed", minimum=0, example=0)
    generator = None if seed is None else np.random.default_rng(seed)
    by_length = sorted_order(sizes.max(initial=0) - sizes, generator)  # longest first
    different, counts = histogram(sizes)
    begin, width, per_row, inside = best_fit_decreasing(different[::-1], counts[::-1], capacity)
    # From here on, an entry is a run of `by_length` that goes into one row.
    row, documents = run_indices(begin, width), np.repeat(per_row, width)
    row_sizes = np.bincount(row, weights=documents).astype(np.int64)  # exact: far below 2**53
    if generator is not None:
        rows_in_turn = generator.permutation(len(row_sizes))
        row, row_sizes = np.argsort(rows_in_turn)[row], row_sizes[rows_in_turn]
    row_offsets = offsets_of(row_sizes)
    order = np.empty(len(sizes), dtype=np.int64)
    order[run_indices(row_offsets[row] + np.repeat(inside, width), documents)] = by_length
    return PackingPlan(order, row_offsets, sizes, capacity, document, start)


# ------------------------------------------------------------------------------------------------ best-fit decreasing


def best_fit_decreasing(sizes: NDArray[np.int64], counts: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Pack `counts[i]` documents of length `sizes[i]` into rows of `capacity` tokens, by best-fit decreasing.

    `sizes` must be descending. Each document is put into the row with the least free space that is enough for it.

    The result `(4, M)` int64 lists M moves. A move puts documents of one length into consecutive packed rows with equal
    contents, the same number of documents into each. Each column of the result is one move: the index of its first
    packed row, the number of its rows, the number of documents added to each, and the number in each before the move.
    """
    ranges: dict[int, list[tuple[int, int, int]]] = {}  # free space -> (first row, rows, documents already in each)
    spaces: list[int] = []  # the keys of `ranges`, ascending
    moves: list[tuple[int, int, int, int]] = []
    rows = 0
    smallest = int(sizes[-1]) if len(sizes) else 0

    def keep(free: int, begin: int, width: int, inside: int) -> None:
        if free < smallest or not width:
            return  # no document fits there any more
        if free in ranges:
            ranges[free].append((begin, width, inside))
        else:
            ranges[free] = [(begin, width, inside)]
            insort(spaces, free)

    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        rest = count
        while rest:
            best = bisect_left(spaces, size)
            if best < len(spaces):
                free = spaces[best]
                begin, width, inside = ranges[free].pop()
                if not ranges[free]:
                    del ranges[free], spaces[best]
            else:  # no row has room: open as many as the rest needs
                free = capacity
                begin, width, inside = rows, -(-rest // (capacity // size)), 0
                rows += width
            per_row = free // size
            full = min(width, rest // per_row)
            if full:
                moves.append((begin, full, per_row, inside))
                keep(free - per_row * size, begin, full, inside + per_row)
                rest -= full * per_row
            if rest and full < width:  # too few are left to fill one more row of this range
                moves.append((begin + full, 1, rest, inside))
                keep(free - rest * size, begin + full, 1, inside + rest)
                full, rest = full + 1, 0
            keep(free, begin + full, width - full, inside)
    return np.array(moves, dtype=np.int64).reshape(-1, 4).T
