"""`BatchPlan`: the documents of each batch, with statistics of the batches.

`token_budget.plan_batches` makes plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from .._common.errors import value_error
from .._common.integers import as_integer
from ..ragged import offsets_of, round_up, run_indices


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchPlan:
    r"""Plan of batches: the indices of the documents of each batch, in the order of training; see `plan_batches`.

    Batch k holds the documents `order[batch_offsets[k]:batch_offsets[k + 1]]`. Each document is one row of its batch.
    Iterating yields one index array per batch, so a plan serves as the `batch_sampler` of a `DataLoader`.

    With several ranks, each rank gets one batch per step. A plan with `rank=None` is then the global plan: it holds the
    batches of all ranks for the first step, then for the second, and so on.

    Args:
        order (`np.ndarray` `(N,)` int64): indices of the documents, batch after batch.
        batch_offsets (`np.ndarray` `(M + 1,)` int64): offset of each of the M batches in `order`, then the
            end of the last batch.
        lengths (`np.ndarray` int64): length of each document; `order` contains indices into this array.
        token_budget (`int`): maximum cost of a batch, see `plan_batches`.
        world_size (`int`, *optional*, defaults to 1): number of ranks that share a step.
        rank (`int`, *optional*): the rank of these batches; `None` for the batches of all ranks.
        multiple_of (`int`, *optional*): the rows of a batch are padded to a multiple of it.

    Example:
        >>> from hf_posenc import plan_batches
        >>> plan = plan_batches([5, 3, 8, 2, 4, 4], 12, seed=1)
        >>> plan
        BatchPlan(batches=3, documents=6, tokens=26, token_budget=12, padding=4 (13.33 %))
        >>> [batch.tolist() for batch in plan]
        [[2], [4, 0], [5, 3, 1]]
    """

    order: NDArray[np.int64]
    batch_offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    token_budget: int
    world_size: int = 1
    rank: int | None = None
    multiple_of: int | None = None

    def __len__(self) -> int:
        """Return the number of batches, M."""
        return len(self.batch_offsets) - 1

    @overload
    def __getitem__(self, batch: int) -> NDArray[np.int64]: ...
    @overload
    def __getitem__(self, batch: slice) -> list[NDArray[np.int64]]: ...
    def __getitem__(self, batch: int | slice) -> NDArray[np.int64] | list[NDArray[np.int64]]:
        """Return the document indices of batch number `batch`, as a new array; of a slice, a list of such arrays.

        -1 is the last batch. A plan that begins at another step is `from_step(step)`.
        """
        number = range(len(self))[batch]
        if isinstance(number, range):
            return [self[each] for each in number]
        return self.order[self.batch_offsets[number] : self.batch_offsets[number + 1]].copy()

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """Yield the document indices of each batch, as a new array."""
        return (self[batch] for batch in range(len(self)))

    @property
    def steps(self) -> int:
        """Number of training steps in the plan. Each step has one batch for each rank."""
        return len(self) // self._batches_a_step

    def from_step(self, step: int) -> BatchPlan:
        r"""Return the plan without its first `step` steps, to resume training.

        Args:
            step (`int`): number of finished training steps, from 0 to `steps`.

        Returns:
            `BatchPlan` of the remaining batches; it shares its arrays with this plan.

        Raises:
            ValueError: if the plan has fewer than `step` steps.

        Example:
            >>> from hf_posenc import plan_batches
            >>> plan = plan_batches([5, 3, 8, 2, 4, 4], 12, seed=1)
            >>> [batch.tolist() for batch in plan.from_step(2)]
            [[5, 3, 1]]
        """
        done = as_integer(step, "step", minimum=0, example=0)
        if done > self.steps:
            raise value_error(f"the plan has {self.steps} steps", got=f"step {done}", fix=f"step={self.steps}")
        return replace(self, batch_offsets=self.batch_offsets[done * self._batches_a_step :])

    def for_rank(self, rank: int) -> BatchPlan:
        r"""Return the batches of one rank, one per step, from the global plan.

        Args:
            rank (`int`): from 0 to `world_size - 1`.

        Returns:
            `BatchPlan`; the plans of all ranks have the same number of batches.

        Raises:
            ValueError: if the rank is out of range, or if this plan is already that of one rank.

        Example:
            >>> from hf_posenc import plan_batches
            >>> plan = plan_batches([5, 3, 8, 2, 4, 4], 12, world_size=2)
            >>> [len(plan.for_rank(rank)) for rank in range(2)]
            [2, 2]
        """
        if self.rank is not None:
            raise value_error(
                "only the global plan can be divided", got=f"the plan of rank {self.rank}", fix="rank=None"
            )
        rank = checked_rank(rank, self.world_size)
        sizes = np.diff(self.batch_offsets)[rank :: self.world_size]
        starts = self.batch_offsets[:-1][rank :: self.world_size]
        return replace(self, order=self.order[run_indices(starts, sizes)], batch_offsets=offsets_of(sizes), rank=rank)

    @property
    def documents(self) -> int:
        """Number of documents in all batches."""
        return int(self.batch_offsets[-1] - self.batch_offsets[0])

    @property
    def tokens(self) -> int:
        """Number of tokens in all batches, not counting padding."""
        return int(self.lengths[self._documents].sum())

    @property
    def widths(self) -> NDArray[np.int64]:
        r"""Padded length of the rows of each batch: `np.ndarray` `(M,)` int64.

        It is the length of the longest document of the batch, rounded up to a multiple of `multiple_of`.

        Example:
            >>> from hf_posenc import plan_batches
            >>> plan_batches([5, 3, 8, 2, 4, 4], 12, seed=1).widths
            array([8, 5, 4])
        """
        lengths = self.lengths[self._documents]
        begins = self.batch_offsets[:-1] - self.batch_offsets[0]
        longest = np.maximum.reduceat(lengths, begins) if len(begins) else lengths
        return round_up(longest, self.multiple_of)

    @property
    def padding(self) -> int:
        """Number of padding tokens in all batches."""
        return int((self.widths * np.diff(self.batch_offsets)).sum()) - self.tokens

    @property
    def utilisation(self) -> float:
        """Share of real tokens among all tokens including padding, between 0 and 1; 1 for a plan without batches."""
        tokens = self.tokens
        return 1.0 if tokens == 0 else tokens / (tokens + self.padding)

    def __repr__(self) -> str:
        ranks = "" if self.world_size == 1 else f"steps={self.steps}, world_size={self.world_size}, "
        ranks += "" if self.rank is None else f"rank={self.rank}, "
        facts = f"batches={len(self)}, {ranks}documents={self.documents}, "
        padding = f"padding={self.padding} ({100 * (1 - self.utilisation):.2f} %)"
        return f"BatchPlan({facts}tokens={self.tokens}, token_budget={self.token_budget}, {padding})"

    @property
    def _batches_a_step(self) -> int:
        return self.world_size if self.rank is None else 1

    @property
    def _documents(self) -> NDArray[np.int64]:
        return self.order[self.batch_offsets[0] : self.batch_offsets[-1]]


def checked_rank(rank: Any, world_size: int) -> int:
    """Return `rank` as an `int`; raise `ValueError` if it is not from 0 to `world_size - 1`."""
    number = as_integer(rank, "rank", minimum=0, example=0)
    if number >= world_size:
        raise value_error(
            f"rank must be below world_size; {world_size} ranks count from 0 to {world_size - 1}",
            got=f"rank={number}",
            fix=f"world_size={number + 1}, or rank={world_size - 1}",
        )
    return number
