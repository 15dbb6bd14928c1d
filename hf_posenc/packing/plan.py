"""Plans of rows: which documents share one.

Plans over lengths and never sees a token; `Ragged.take` and `Ragged.group` carry a plan out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._explain import as_integer, explain, one_of
from .best_fit import best_fit_decreasing, fewest_rows
from .checks import checked_lengths, histogram

TooLong = Literal["error", "truncate"]


@dataclass(frozen=True, eq=False, repr=False)
class PackingPlan:
    r"""Which documents stand in which row, in which order.

    Row k holds the documents `order[row_offsets[k]:row_offsets[k + 1]]`, the longest first. Every document stands in
    exactly one row. Iterating gives these index arrays, so a plan serves as the `batch_sampler` of a `DataLoader`.

    Args:
        order (`np.ndarray` `(N,)` int64): the documents' numbers, row after row.
        row_offsets (`np.ndarray` `(R + 1,)` int64): where each row begins in `order`, and at last N.
        lengths (`np.ndarray` `(N,)` int64): the documents' lengths, by number, that the plan was made for; where
            documents are cut, the lengths that are left.
        capacity (`int`): tokens a row can hold.
        truncated (`int`, *optional*): how many documents are cut to `capacity`.
        tokens_cut (`int`, *optional*): how many tokens that costs.

    Example:
        >>> plan = pack([5, 3, 8, 2, 4], 10)
        >>> plan
        PackingPlan(rows=3, documents=5, tokens=22, capacity=10, utilisation=73.33 %, lower_bound=3, padding=8,
                    attention_cost=118 (39.33 % of full rows))
        >>> [row.tolist() for row in plan]
        [[2, 3], [0, 4], [1]]
    """

    order: NDArray[np.int64]
    row_offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    capacity: int
    truncated: int = 0
    tokens_cut: int = 0

    def __len__(self) -> int:
        """Number of rows, R."""
        return len(self.row_offsets) - 1

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """The documents of each row, as arrays of their own."""
        for start, stop in pairwise(self.row_offsets.tolist()):
            yield self.order[start:stop].copy()

    def places(self, begins: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        r"""Where the tokens of all rows are found, row after row.

        Args:
            begins (`np.ndarray` `(N,)` int64): where each document begins in a flat array of tokens, by number.

        Returns:
            Two `np.ndarray` `(tokens,)` int64: the index of each token in that array, and its place in its document.

        Example:
            >>> pack([2, 1, 3], 4).places(np.array([0, 2, 3]))
            (array([3, 4, 5, 2, 0, 1]), array([0, 1, 2, 0, 0, 1]))
        """
        sizes = self.lengths[self.order]
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return within + np.repeat(begins[self.order], sizes), within

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        r"""Tokens in each row: `np.ndarray` `(R,)` int64, none above `capacity`.

        Example:
            >>> pack([5, 3, 8, 2, 4], 10).row_lengths
            array([10,  9,  3])
        """
        ends = np.zeros(len(self.order) + 1, dtype=np.int64)
        np.cumsum(self.lengths[self.order], out=ends[1:])
        return np.diff(ends[self.row_offsets])

    @property
    def padding(self) -> int:
        """Places that stay empty when every row is filled up to `capacity`."""
        return len(self) * self.capacity - int(self.lengths.sum())

    @property
    def utilisation(self) -> float:
        """Share of the places that hold a token, between 0 and 1; 1 for a plan without rows."""
        places = len(self) * self.capacity
        return 1.0 if places == 0 else int(self.lengths.sum()) / places

    @property
    def lower_bound(self) -> int:
        r"""No plan, however clever, has fewer rows than this.

        At least the tokens divided by the capacity, and more where long documents cannot share a row.

        Source:
            Martello and Toth 1990, "Lower bounds and reduction procedures for the bin packing problem", bound L2.
            Discrete Applied Mathematics 28(1).

        Example:
            >>> pack([6, 6, 6], 10).lower_bound     # 18 tokens would fit in 2 rows, but no two documents do
            3
        """
        return fewest_rows(self.lengths, self.capacity)

    @property
    def attention_cost(self) -> int:
        r"""Pairs of tokens that attention looks at where documents see only themselves: the sum of squared lengths.

        A dense mask looks at `rows * capacity**2` of them, whatever the documents are.

        Example:
            >>> pack([5, 3, 8, 2, 4], 10).attention_cost
            118
        """
        sizes, counts = histogram(self.lengths)
        return sum(size * size * count for size, count in zip(sizes.tolist(), counts.tolist(), strict=True))

    def __repr__(self) -> str:
        dense = len(self) * self.capacity**2
        cut = f", truncated={self.truncated}, tokens_cut={self.tokens_cut}" if self.truncated else ""
        return (
            f"PackingPlan(rows={len(self)}, documents={len(self.order)}, tokens={int(self.lengths.sum())}, "
            f"capacity={self.capacity}, utilisation={100 * self.utilisation:.2f} %, "
            f"lower_bound={self.lower_bound}, padding={self.padding},\n            "
            f"attention_cost={self.attention_cost} ({100 * self.attention_cost / max(dense, 1):.2f} % of full rows)"
            f"{cut})"
        )


def pack(lengths: ArrayLike, capacity: int, *, too_long: TooLong = "error", seed: int | None = None) -> PackingPlan:
    r"""Packs documents into rows of at most `capacity` tokens, with few rows.

    Best-fit decreasing: from the longest document to the shortest, each goes into the row with the least free space
    that still holds it. Documents of equal length are placed together, which gives as many rows as one by one.

    Args:
        lengths (array-like of integers `(N,)`): tokens of each document, each at least 1. May be empty.
        capacity (`int`): tokens a row can hold.
        too_long (`"error"` or `"truncate"`, *optional*, defaults to `"error"`): a document longer than `capacity` is
            refused, or planned for with its first `capacity` tokens, and counted in `truncated`. To lose no token, pack
            the pieces that `split_long` makes.
        seed (`int`, *optional*): shuffles the rows, and documents of equal length among each other; the same seed gives
            the same plan, and any seed the same number of rows. Without it rows with the longest documents come first.

    Returns:
        `PackingPlan`: every document exactly once, no row above `capacity`.

    Raises:
        ValueError: if a document is too long or has no tokens, or if `capacity` is not positive or `seed` negative.
        TypeError: if `lengths`, `capacity` or `seed` are not whole numbers.

    Source:
        Johnson 1973, "Near-optimal bin packing algorithms" (best-fit decreasing).

    Example:
        >>> plan = pack([5, 3, 8, 2, 4], capacity=10)
        >>> plan.order, plan.row_offsets
        (array([2, 3, 0, 4, 1]), array([0, 2, 4, 5]))
        >>> cut = pack([5, 13], capacity=10, too_long="truncate")
        >>> cut.lengths, cut.truncated, cut.tokens_cut
        (array([ 5, 10]), 1, 3)
    """
    capacity = as_integer(capacity, "capacity", minimum=1, example=2048)
    if too_long not in ("error", "truncate"):
        raise ValueError(one_of("too_long", too_long, ("error", "truncate")))
    sizes = checked_lengths(lengths)
    truncated = tokens_cut = 0
    if int(sizes.max(initial=0)) > capacity:
        beyond = sizes > capacity
        truncated = int(beyond.sum())
        if too_long == "error":
            longest = int(sizes.argmax())
            raise ValueError(
                explain(
                    f"document {longest} has {sizes[longest]} tokens, a row holds {capacity}",
                    got=f"{truncated} of {len(sizes)} documents longer than the capacity",
                    fix="split them with split_long(lengths, capacity) and pack the pieces, cut them with "
                    'too_long="truncate", or raise the capacity',
                )
            )
        tokens_cut = int(sizes[beyond].sum()) - truncated * capacity
        sizes = np.minimum(sizes, capacity)
    if seed is not None:
        seed = as_integer(seed, "seed", minimum=0, example=0)
    generator = None if seed is None else np.random.default_rng(seed)
    # 16 bits are enough for most capacities, and let NumPy sort by radix.
    room_left = (capacity - sizes).astype(np.uint16 if capacity <= np.iinfo(np.uint16).max else np.int64)
    if generator is None:
        by_length = np.argsort(room_left, kind="stable")  # longest first
    else:
        shuffled = generator.permutation(len(sizes))
        by_length = shuffled[np.argsort(room_left[shuffled], kind="stable")]
    room_left = room_left[by_length]
    starts = np.flatnonzero(room_left[1:] != room_left[:-1]) + 1
    starts = np.concatenate([[0], starts])[: len(sizes)]  # where each length begins, of those that occur
    begin, width, each, inside = best_fit_decreasing(
        sizes[by_length[starts]], np.diff(starts, append=len(sizes)), capacity
    )
    # From here one entry is "these neighbours in `by_length` go into this row".
    entries = np.cumsum(width) - width
    row = np.arange(int(width.sum())) + np.repeat(begin - entries, width)
    documents = np.repeat(each, width)
    row_sizes = np.bincount(row, weights=documents).astype(np.int64)  # exact: far below 2**53
    if generator is not None:
        rows_in_turn = generator.permutation(len(row_sizes))
        rank = np.empty_like(rows_in_turn)
        rank[rows_in_turn] = np.arange(len(row_sizes))
        row, row_sizes = rank[row], row_sizes[rows_in_turn]
    row_offsets = np.zeros(len(row_sizes) + 1, dtype=np.int64)
    np.cumsum(row_sizes, out=row_offsets[1:])
    place = row_offsets[row] + np.repeat(inside, width)  # where each entry begins in `order`
    order = np.empty(len(sizes), dtype=np.int64)
    order[np.arange(len(sizes)) + np.repeat(place - (np.cumsum(documents) - documents), documents)] = by_length
    return PackingPlan(order, row_offsets, sizes, capacity, truncated, tokens_cut)
