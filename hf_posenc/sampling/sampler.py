"""A batch sampler that follows a plan: epochs, resuming, and what accelerate does with batches.

Planning is `plan_batches`; which rows belong together is not decided here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from .._explain import explain
from ..packing import BatchPlan, plan_batches
from ..packing.checks import whole_number
from ..packing.shapes import Cost
from .lengths import is_arrow, lengths_of


class TokenBudgetBatchSampler(Sampler[list[int]]):
    r"""The `batch_sampler` of a `DataLoader` whose batches cost a number of tokens rather than of rows.

    Made from lengths or a data set, it plans every epoch anew; the number of batches stays. Made from a plan, it
    follows that plan in every epoch.

    Under accelerate it takes the global plan, for accelerate deals batches out to its processes itself; without a
    `world_size` it plans for as many processes as accelerate has. For a loop of your own with `torch.distributed` and
    without accelerate, give `world_size` and `rank`.

    Args:
        source (`BatchPlan`, lengths `(N,)`, or a data set that `lengths_of` reads): what to sample.
        token_budget (`int`, *optional*): what a batch may cost, see `plan_batches`. Not with a plan.
        column (`str`, *optional*, defaults to `"input_ids"`): which column of a data set holds the tokens.
        window, seed, cost, multiple_of, shapes, rank (*optional*): as in `plan_batches`. Not with a plan.
        world_size (`int`, *optional*): as in `plan_batches`; by default the processes of accelerate, or 1.

    Raises:
        ValueError: if settings are given together with a plan, a budget is missing, or a plan is impossible; under
            accelerate for a plan that is one rank's, or whose batches its processes do not divide.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> rows = [{"input_ids": [1] * length} for length in (5, 3, 8, 2, 4, 4)]
        >>> count = lambda some: [len(row["input_ids"]) for row in some]
        >>> sampler = TokenBudgetBatchSampler(rows, 12, seed=1)
        >>> loader = DataLoader(rows, batch_sampler=sampler, collate_fn=count)
        >>> list(loader)
        [[4, 5], [8], [4, 2, 3]]
        >>> sampler.set_epoch(1)
        >>> len(list(loader)) == len(loader) == 3
        True
    """

    def __init__(
        self,
        source: Any,
        token_budget: int | None = None,
        *,
        column: str = "input_ids",
        window: int = 20_000,
        seed: int = 0,
        cost: Cost | None = None,
        multiple_of: int | None = None,
        shapes: int | Sequence[int] | None = None,
        world_size: int | None = None,
        rank: int | None = None,
    ) -> None:
        self.epoch = 0
        self._step = 0  # where the next iteration begins
        self._given = 0  # batches handed out in this epoch
        self._lengths: NDArray[Any] | Sequence[int] | None = None
        self._planned: tuple[tuple[int, int], BatchPlan] | None = None
        self._world_size, self.rank = world_size, rank
        if isinstance(source, BatchPlan):
            given = {"token_budget": token_budget, "multiple_of": multiple_of, "shapes": shapes, "cost": cost}
            _refuse_settings({**given, "world_size": world_size, "rank": rank})
            self._plan_given: BatchPlan | None = source
            self.rank = source.rank
            return
        if token_budget is None:
            raise ValueError(
                explain(
                    "a sampler that plans itself needs a token_budget",
                    got="lengths without a budget",
                    fix="TokenBudgetBatchSampler(lengths, 8192)",
                )
            )
        if rank is not None and world_size is None:
            raise ValueError(
                explain("a rank is one of several", got=f"rank={rank} without world_size", fix="world_size=8")
            )
        self._plan_given = None
        self._settings: dict[str, Any] = {"window": window, "seed": seed, "cost": cost}
        self._settings |= {"token_budget": token_budget, "multiple_of": multiple_of, "shapes": shapes}
        self._lengths = source if _holds_numbers(source) else lengths_of(source, column)
        if shapes is not None:  # chosen once, not in every epoch
            self._settings["shapes"] = self.plan.shapes
            self._planned = None

    @property
    def plan(self) -> BatchPlan:
        """The plan of this epoch."""
        if self._plan_given is not None:
            return self._plan_given
        key = self.epoch, self._world_size or _processes_of_accelerate()
        if self._planned is None or self._planned[0] != key:
            made = plan_batches(
                self._lengths if self._lengths is not None else (),
                epoch=self.epoch,
                world_size=key[1],
                rank=self.rank,
                **self._settings,
            )
            self._planned = key, made
        return self._planned[1]

    def __len__(self) -> int:
        """Number of batches of a whole epoch."""
        return len(self.plan)

    def __iter__(self) -> Iterator[list[int]]:
        """The numbers of the rows of each batch, from where `load_state_dict` says; the next time from the start."""
        plan, begin = self.plan, self._step
        self._step = 0
        rest = plan.from_step(begin)
        self._given = len(plan) - len(rest)
        for batch in rest:
            self._given += 1
            yield batch.tolist()

    def set_epoch(self, epoch: int) -> None:
        r"""Plans anew for another epoch. Trainer and accelerate call it; in a loop of your own, do so.

        Args:
            epoch (`int`): its number, from 0.
        """
        number = whole_number("epoch", epoch, at_least=0, example=0)
        if number != self.epoch:
            self.epoch, self._step, self._given = number, 0, 0

    def state_dict(self, step: int | None = None) -> dict[str, int]:
        r"""Where this epoch stands, to be saved with a checkpoint.

        Args:
            step (`int`, *optional*): how many steps of this epoch are done. By default as many as were handed out,
                which is more where workers or accelerate fetch batches ahead: then count yourself.

        Returns:
            `dict` for `load_state_dict`.

        Example:
            >>> sampler = TokenBudgetBatchSampler([5, 3, 8, 2, 4, 4], 12, seed=1)
            >>> batches = iter(sampler)
            >>> first = next(batches)
            >>> sampler.state_dict()
            {'epoch': 0, 'step': 1, 'steps': 3, 'documents': 6}
            >>> fresh = TokenBudgetBatchSampler([5, 3, 8, 2, 4, 4], 12, seed=1)
            >>> fresh.load_state_dict(sampler.state_dict())
            >>> list(fresh) == list(batches)
            True
        """
        plan = self.plan
        done = self._given * plan.steps // max(len(plan), 1) if step is None else step
        return {"epoch": self.epoch, "step": done, "steps": plan.steps, "documents": plan.documents}

    def load_state_dict(self, state: dict[str, int]) -> None:
        r"""Goes on where `state_dict` was asked: the next iteration begins there. Takes no time, whatever the step.

        Args:
            state (`dict`): what `state_dict` gave.

        Raises:
            ValueError: if it was saved for other documents or settings.
        """
        before = self.epoch
        self.epoch = state["epoch"]
        plan = self.plan
        if (state["steps"], state["documents"]) != (plan.steps, plan.documents):
            self.epoch = before
            raise ValueError(
                explain(
                    "the state belongs to another plan",
                    got=f"saved with {state['steps']} steps of {state['documents']} documents, "
                    f"here are {plan.steps} of {plan.documents}",
                    fix="the same lengths, token_budget, world_size and further settings as when it was saved",
                )
            )
        rest = plan.from_step(state["step"])  # out of range is refused now, with the figures
        self._step, self._given = state["step"], len(plan) - len(rest)

    @property
    def sampler(self) -> TokenBudgetBatchSampler:
        """Itself: accelerate passes the epoch on to what goes by this name."""
        return self

    @property
    def batch_size(self) -> None:
        """None: batches differ in their rows. accelerate asks when it wraps the sampler, and is answered if it may.

        It deals whole batches out to its processes in turn. Of a plan that is one rank's already every process would
        see a part of its own part; where the processes do not divide the batches, it repeats some.
        """
        processes = _processes_of_accelerate()
        if processes > 1 and self.rank is not None:
            raise ValueError(
                explain(
                    "accelerate deals batches out to its processes itself and needs the global plan",
                    got=f"the plan of rank {self.rank} alone, on {processes} processes: most documents would be lost",
                    fix=f"plan_batches(..., world_size={processes}, rank=None), or leave world_size and rank out",
                )
            )
        if len(self) % processes:
            raise ValueError(
                explain(
                    f"{len(self)} batches cannot be dealt to the {processes} processes of accelerate evenly",
                    got=f"a global plan for world_size={self.plan.world_size}",
                    fix=f"plan_batches(..., world_size={processes}), or leave world_size out",
                )
            )


def _holds_numbers(source: Any) -> bool:
    """Whether these are lengths already, in whatever kind of sequence; an empty one is as good."""
    if isinstance(source, (np.ndarray, torch.Tensor)):
        return True
    if is_arrow(source) or not isinstance(source, Sequence):
        return False
    return not len(source) or isinstance(source[0], (int, np.integer))


def _refuse_settings(given: dict[str, Any]) -> None:
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise ValueError(
            explain(
                "a plan is made already, and takes no settings",
                got=", ".join(f"{name}={given[name]!r}" for name in named),
                fix="plan_batches(lengths, ...) with these, or TokenBudgetBatchSampler(lengths, ...)",
            )
        )


def _processes_of_accelerate() -> int:
    """How many processes accelerate has; 1 where nobody has set it up. Asking must not set it up."""
    module = sys.modules.get("accelerate.state")
    state = {} if module is None else module.PartialState._shared_state
    return int(state.get("num_processes", 1))
