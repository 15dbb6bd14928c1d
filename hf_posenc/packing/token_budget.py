"""`plan_batches`: batches of documents of nearly equal length, each as large as a budget of tokens allows.

Only the order of documents depends on the epoch, so every epoch has the same number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.errors import shorten, value_error
from .._common.integers import as_integer
from ..ragged import offsets_of, run_indices
from .batch_plan import BatchPlan, checked_rank
from .document_lengths import checked_lengths, histogram, sorted_order
from .shapes import Cost, best_shapes, padded, row_costs


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
    shapes: int | Sequence[int] | None = None,
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
        shapes (`int` or sequence of `int`, *optional*): rows are padded to the shortest of these lengths that fits. An
            integer K selects the K best lengths for the documents, see `best_shapes`.

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
    padded_lengths = _shapes(shapes, sizes, multiple_of, cost)
    price = _prices(sizes, budget, cost, multiple_of, padded_lengths)
    rows, group = _rows_and_groups(price, budget, window, ranks)
    order, batch_offsets = _shuffled(sizes, rows, group, ranks, np.random.default_rng([seed, epoch]))
    plan = BatchPlan(
        order=order,
        batch_offsets=batch_offsets,
        lengths=sizes,
        token_budget=budget,
        world_size=ranks,
        multiple_of=multiple_of,
        shapes=padded_lengths,
        cost=cost,
    )
    return plan if rank is None else plan.for_rank(rank)


def _prices(
    sizes: NDArray[np.int64],
    budget: int,
    cost: Cost | None,
    multiple_of: int | None,
    shapes: tuple[int, ...] | None,
) -> NDArray[Any]:
    """Return the cost of each document as one padded row, `(N,)`, from the longest document to the shortest."""
    different, counts = histogram(sizes)
    widths = padded(different, multiple_of, shapes)
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


def _shapes(
    shapes: int | Sequence[int] | None, sizes: NDArray[np.int64], multiple_of: int | None, cost: Cost | None
) -> tuple[int, ...] | None:
    """Return `shapes` in ascending order; for an integer, the result of `best_shapes`; `None` for `None`."""
    if shapes is None:
        return None
    if np.ndim(shapes) == 0:
        count = as_integer(shapes, "shapes", minimum=1, example=16)
        return tuple(best_shapes(sizes, count, multiple_of=multiple_of, cost=cost).tolist())
    widths = sorted({as_integer(shape, "shapes", minimum=1, example=16) for shape in np.asarray(shapes, dtype=object)})
    wrong = [shape for shape in widths if shape % (multiple_of or 1)]
    if wrong:
        raise value_error(f"shapes must be multiples of {multiple_of}", got=shorten(wrong), fix="multiple_of=None")
    longest = int(sizes.max(initial=0))
    if longest > max(widths, default=0):
        raise value_error(
            f"the largest of the shapes must hold the longest document, which has {longest} tokens",
            got=shorten(widths),
            fix=f"shapes=[..., {longest}], or shapes={len(widths) or 16} for the best {len(widths) or 16}",
        )
    return tuple(widths)


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
