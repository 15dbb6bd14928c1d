"""`plan_batches`: batches of documents of nearly equal length, each as large as a budget of tokens allows.

Only the order of documents depends on the epoch, so every epoch has the same number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.errors import type_error, value_error
from .._common.integers import as_integer
from ..ragged import offsets_of, round_up, run_indices
from .batch_plan import BatchPlan, checked_rank
from .document_lengths import checked_lengths, histogram, sorted_order

# A function from padded lengths (n,) to the cost of one row of each length (n,).
Cost = Callable[[NDArray[np.int64]], Any]


def plan_batches(
    lengths: ArrayLike,
    token_budget: int,
    *,
    window: int = 20_000,
    seed: int = 0,
    epoch: int = 0,
    world_size: int = 1,
    rank: int | None = None,
    cost: Cost | None = None,
    multiple_of: int | None = None,
) -> BatchPlan:
    r"""Plan batches of documents of nearly equal length; rows times padded length is at most `token_budget`.

    Each document is one row of exactly one batch, padded to the longest row of the batch. The batches are in random
    order, so that lengths are not sorted over time, and a step of several ranks has documents of many lengths. Only the
    first step is not random: it has the batch with the most rows times their squared length, which needs the most
    memory and time, so that a run that does not fit ends at once. All ranks get the same number of batches, which cost
    nearly the same. The same arguments always give the same plan, so each process can compute it.

    Args:
        lengths (array-like of integers `(N,)`): number of tokens of each document, at least 1. May be empty.
        token_budget (`int`): maximum cost of a batch. By default, the cost is the number of rows times their padded
            length.
        window (`int`, *optional*, defaults to 20,000): a smaller window gives more random batches and more padding; a
            window of N or more gives the least padding. The documents are sorted by length and divided into batches.
            Each group of `N / window` consecutive batches (rounded up) then exchanges its documents at random.
        seed (`int`, *optional*, defaults to 0), epoch (`int`, *optional*, defaults to 0): another seed or epoch gives
            another order. The number of steps stays the same.
        world_size (`int`, *optional*, defaults to 1): number of ranks that share a step. If the batches do not divide
            evenly, some are split into smaller ones; no document is dropped or repeated.
        rank (`int`, *optional*): rank from 0 to `world_size - 1`, to return only its batches. By default, the result is
            the global plan of all ranks: the first `world_size` batches are the first step, and so on. accelerate needs
            the global plan.
        cost (callable, *optional*): function from an array of padded lengths to the cost of a row of each length, in
            the unit of `token_budget`. Costs must be positive, and never lower for longer rows. By default, the cost of
            a row is its padded length. `lambda width: width + width**2 / 4096` adds the cost of attention to long rows.
        multiple_of (`int`, *optional*): rows are padded to a multiple of it.

    Returns:
        `BatchPlan`. Iterating it yields one array of document indices per batch.

    Raises:
        ValueError: if a document costs more than the budget, or has no tokens; if a number is out of range; or if there
            are too few documents for every rank to have the same number of batches.
        TypeError: if lengths or settings are not integers, or `cost` does not return one number per length.

    Example:
        >>> plan = plan_batches([5, 3, 8, 2, 4, 4], 12, seed=1)
        >>> [batch.tolist() for batch in plan]
        [[2], [4, 0], [5, 3, 1]]
        >>> [batch.tolist() for batch in plan_batches([5, 3, 8, 2, 4, 4], 12, seed=1, world_size=2, rank=0)]
        [[2], [5]]
    """
    budget = as_integer(token_budget, "token_budget", minimum=1, example=8192)
    window = as_integer(window, "window", minimum=1, example=20_000)
    seed = as_integer(seed, "seed", minimum=0, example=0)
    epoch = as_integer(epoch, "epoch", minimum=0, example=0)
    ranks = as_integer(world_size, "world_size", minimum=1, example=8)
    rank = None if rank is None else checked_rank(rank, ranks)
    if multiple_of is not None:
        multiple_of = as_integer(multiple_of, "multiple_of", minimum=1, example=8)
    sizes = checked_lengths(lengths)
    price = _prices(sizes, budget, cost, multiple_of)
    rows, group = _rows_and_groups(price, budget, window, ranks)
    order, batch_offsets = _shuffled(sizes, rows, group, ranks, np.random.default_rng([seed, epoch]))
    plan = BatchPlan(
        order=order,
        batch_offsets=batch_offsets,
        lengths=sizes,
        token_budget=budget,
        world_size=ranks,
        multiple_of=multiple_of,
    )
    return plan if rank is None else plan.for_rank(rank)


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


def _prices(sizes: NDArray[np.int64], budget: int, cost: Cost | None, multiple_of: int | None) -> NDArray[Any]:
    """Return the cost of each document as one padded row, `(N,)`, from the longest document to the shortest."""
    different, counts = histogram(sizes)
    widths = round_up(different, multiple_of)
    prices, place = np.unique(widths, return_inverse=True)
    price = row_costs(prices, cost)[place]  # of each length that occurs
    if len(price) and price[-1] > budget:
        document, width = int(sizes.argmax()), int(widths[-1])
        is_padded = f", {width} with padding" if width != sizes[document] else ""
        costs = f" and costs {price[-1]}" if price[-1] != width else ""
        raise value_error(
            f"document {document} has {sizes[document]} tokens{is_padded}{costs}, a batch may cost {budget}",
            got=f"{counts[price > budget].sum()} of {len(sizes)} documents beyond the budget",
            fix=f"token_budget={int(np.ceil(price[-1]))}, or truncated when they are tokenized: max_length={budget}",
        )
    return np.repeat(price[::-1], counts[::-1])


def _rows_and_groups(
    price: NDArray[Any], budget: int, window: int, ranks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide documents, sorted from the longest to the shortest, into batches, and the batches into groups."""
    together = max(1, -(-len(price) // window))
    rows: list[int] = []
    group: list[int] = []
    begin = 0
    while begin < len(price):
        limit = int(budget // price[begin])
        documents = min(together * limit, len(price) - begin)
        batches = -(-documents // limit)
        # The last group is divided evenly; all others are full.
        quotient, remainder = divmod(documents, batches)
        rows += [quotient + 1] * remainder + [quotient] * (batches - remainder)
        group += [len(group)] * batches
        begin += documents
    if len(rows) % ranks:
        _divide(rows, group, price, budget, ranks)
    return np.array(rows, dtype=np.int64), np.array(group, dtype=np.int64)


def _shuffled(
    sizes: NDArray[np.int64],
    rows: NDArray[np.int64],
    group: NDArray[np.int64],
    ranks: int,
    random: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shuffle documents within each group of batches, then the batches; return `order` and `batch_offsets`."""
    order = sorted_order(sizes.max(initial=0) - sizes, random)  # longest first
    order = order[sorted_order(np.repeat(group, rows), random)]
    # A step has batches of unlike lengths: a model learns less from a step of documents of one length. The last
    # batches, which `_divide` may have made smaller, share a step.
    last = max(len(rows) - ranks, 0)
    steps = np.append(random.permutation(last), np.arange(last, len(rows))).reshape(-1, ranks)
    steps = random.permutation(steps)
    begins = offsets_of(rows)[:-1]
    if len(rows):
        demand = rows * np.maximum.reduceat(sizes[order], begins) ** 2  # of attention, for memory and time
        first = int(demand[steps].max(axis=1).argmax())
        steps[[0, first]] = steps[[first, 0]]
    starts, counts = begins[steps.ravel()], rows[steps.ravel()]
    return order[run_indices(starts, counts)], offsets_of(counts)


def _divide(rows: list[int], group: list[int], price: NDArray[Any], budget: int, ranks: int) -> None:
    """Split the last batches, of the shortest documents, until their number is a multiple of `ranks`."""
    tail = len(rows) % ranks
    while True:
        documents, batches = sum(rows[-tail:]), -(-tail // ranks) * ranks
        if documents >= batches:
            break
        if tail == len(rows):
            raise value_error(
                f"{len(rows)} batches cannot be split into {batches}, a multiple of the {ranks} batches of a step",
                got=f"{documents} documents, a budget of {budget}",
                fix=(f"leave {documents % ranks} documents out, or have " if documents > ranks else "")
                + f"fewer batches per step: world_size={min(documents, ranks - 1)} or less; in Trainer, the number of "
                "processes times gradient_accumulation_steps",
            )
        tail = min(tail + ranks, len(rows))
    del rows[-tail:], group[-tail:]
    rows += _even_runs(price[-documents:], batches, budget)
    group += range(len(group), len(group) + batches)


def _even_runs(price: NDArray[Any], runs: int, budget: float) -> list[int]:
    """Split documents into `runs` batches so that the most expensive batch costs as little as possible."""
    # The cost of a batch is its number of documents times the price of its first, longest document: prices of
    # 6, 6, 4, 4, 4 and three runs give 2 * 6, 2 * 4 and 1 * 4.

    def within(limit: float) -> list[int] | None:
        counts: list[int] = []
        begin = 0
        while begin < len(price):
            if len(counts) == runs:
                return None
            counts.append(min(int(limit // price[begin]), len(price) - begin))
            begin += counts[-1]
        return counts

    low, high = float(price[0]), float(budget)
    best = within(low) or within(high) or []
    for _ in range(32):
        middle = (low + high) / 2
        counts = within(middle)
        low, high = (low, middle) if counts else (middle, high)
        best = counts or best
    while len(best) < runs:  # fewer runs were enough: split the one with the most rows
        at = max(range(len(best)), key=best.__getitem__)
        best[at : at + 1] = [best[at] - best[at] // 2, best[at] // 2]
    return best
