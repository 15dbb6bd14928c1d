"""`TokenBudgetBatchSampler`: a resumable batch sampler with a token budget, also for Trainer and accelerate."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from .._common.compat import processes_of_accelerate
from .._common.errors import shorten, type_error, value_error
from .._common.integers import as_integer, to_numpy
from ..packing import BatchPlan, Cost, checked_lengths, plan_batches, row_costs
from ..ragged import lock_free_cache, round_up
from .lengths import lengths_of


class ReadByAccelerate:
    """Base class of samplers with the properties that accelerate reads when it wraps a batch sampler."""

    plan: Any  # BatchPlan
    rank: int | None

    @property
    def sampler(self) -> Self:
        """This object itself, because accelerate calls `batch_sampler.sampler.set_epoch`."""
        return self

    @property
    def batch_size(self) -> NoReturn:
        """No attribute, because batches differ in size; `ValueError` if accelerate cannot distribute the batches.

        With `split_batches=True`, accelerate then raises an error of its own. Otherwise it gives the batches to its
        processes in turn. There are two reasons for a `ValueError`:

        - The batches are those of one rank. accelerate would divide them once more, and most would be lost.
        - The number of batches is not a multiple of the number of processes. accelerate would repeat some batches.
        """
        # With the batches of one rank, two processes got the rows 0, 4, 8 and 3, 7, 11 of twelve: half of the data was
        # lost.
        processes = processes_of_accelerate()
        if processes > 1 and self.rank is not None:
            raise value_error(
                "accelerate distributes batches to its processes itself and needs those of all ranks",
                got=f"the batches of rank {self.rank} alone, on {processes} processes: most rows would be lost",
                fix=f"leave world_size and rank out; of a plan: plan_batches(..., world_size={processes}, rank=None)",
            )
        if isinstance(self, Sized) and len(self) % processes:
            raise value_error(
                f"{len(self)} batches do not divide evenly among the {processes} processes of accelerate",
                got=f"a global plan for world_size={self.plan.world_size}",
                fix=f"plan_batches(..., world_size={processes}), or leave world_size out",
            )
        raise AttributeError("batches of tokens differ in their number of rows, so there is no batch_size")


class TokenBudgetBatchSampler(ReadByAccelerate, Sampler[list[int]]):
    r"""A `batch_sampler` for a `DataLoader` that limits the number of tokens in a batch instead of its number of rows.

    If `source` is lengths or a data set, the sampler computes new batches for every epoch with `plan_batches`, always
    the same number. If `source` is a `BatchPlan`, every epoch has the batches of that plan.

    With several processes:

    - Under accelerate, leave out `world_size` and `rank`. The sampler yields the batches of all processes, because
      accelerate distributes them itself. If `source` is a `BatchPlan`, it must also be for all ranks (`rank=None`).
    - With `torch.distributed` and without accelerate, set `world_size` and `rank`.
    - With accumulated gradients, set `gradient_accumulation_steps` too: a run that is resumed with another number of
      processes, but with as many batches in an optimizer step, then sees exactly the rows that were left.

    Args:
        source (`BatchPlan`, array-like of integers `(N,)`, or data set): the batches themselves, the lengths of the
            rows, or tokenized rows, whose lengths are read by `lengths_of`.
        token_budget (`int`, *optional*): maximum cost of a batch, see `plan_batches`. Required unless `source` is a
            `BatchPlan`.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of tokens, if `source` is a data set.
        window, seed, cost, multiple_of, rank (*optional*): as in `plan_batches`. If `source` is a `BatchPlan`,
            `window` and `seed` are ignored.
        world_size (`int`, *optional*): as in `plan_batches`; by default accelerate's number of processes, or 1 without
            accelerate.
        gradient_accumulation_steps (`int`, *optional*, defaults to 1): number of batches of each process in an
            optimizer step. The number of batches is a multiple of it and of the number of processes.

    Raises:
        ValueError: if `source` is a `BatchPlan` and another argument than `column`, `window` and `seed` is given; if
            `rank` is given without `world_size`; or for the reasons of `plan_batches`. Later, when accelerate wraps
            the sampler: if the batches are those of one rank, or if their number is not a multiple of the number of
            processes.
        TypeError: if `token_budget` is missing, or the lengths of the rows are not integers, or cannot be read.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> rows = [{"input_ids": [1] * length} for length in (5, 3, 8, 2, 4, 4)]
        >>> count = lambda some: [len(row["input_ids"]) for row in some]
        >>> sampler = TokenBudgetBatchSampler(rows, 12, seed=1)
        >>> loader = DataLoader(rows, batch_sampler=sampler, collate_fn=count)
        >>> list(loader)
        [[8], [4, 5], [4, 2, 3]]
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
        world_size: int | None = None,
        rank: int | None = None,
        gradient_accumulation_steps: int = 1,
    ) -> None:
        self.epoch = 0
        self._step = 0  # first step of the next iteration
        self._given = 0  # number of batches returned in this epoch
        self._planned: tuple[tuple[int, int], BatchPlan] | None = None
        self._world_size, self.rank = world_size, rank
        self._accumulated = as_integer(gradient_accumulation_steps, "gradient_accumulation_steps", minimum=1, example=4)
        if isinstance(source, BatchPlan):
            settings = {"token_budget": token_budget, "multiple_of": multiple_of, "cost": cost}
            settings |= {"world_size": world_size, "rank": rank}
            settings["gradient_accumulation_steps"] = self._accumulated if self._accumulated > 1 else None
            arguments = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
            if arguments:
                raise value_error(
                    "settings cannot be combined with a BatchPlan",
                    got=", ".join(arguments),
                    fix="plan_batches(lengths, ...) with these, or TokenBudgetBatchSampler(lengths, ...)",
                )
            self._source: BatchPlan | NDArray[np.int64] = source
            self.rank = source.rank
            return
        if rank is not None and world_size is None:
            raise value_error("a rank needs a world_size", got=f"rank={rank} without world_size", fix="world_size=8")
        token_budget = as_integer(token_budget, "token_budget", minimum=1, example=8192)
        self._settings: dict[str, Any] = {"token_budget": token_budget, "multiple_of": multiple_of}
        self._settings |= {"window": window, "seed": seed, "cost": cost}
        self._source = checked_lengths(source if _holds_numbers(source) else lengths_of(source, column))

    @property
    def plan(self) -> BatchPlan:
        """The `BatchPlan` of the current epoch: the batches that an iteration yields."""
        if isinstance(self._source, BatchPlan):
            return self._source
        key = self.epoch, self._world_size or processes_of_accelerate()
        if self._planned is None or self._planned[0] != key:
            together = key[1] * self._accumulated  # batches in an optimizer step, whichever process takes them
            plan = plan_batches(self._source, epoch=self.epoch, world_size=together, **self._settings)
            plan = replace(plan, world_size=key[1])
            self._planned = key, plan if self.rank is None else plan.for_rank(self.rank)
        return self._planned[1]

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch, even if the next iteration begins at a later step."""
        return len(self.plan)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield each batch as a list of row numbers.

        The first iteration after `load_state_dict` begins at the saved step. Raise `ValueError` if `set_epoch` changes
        the epoch before the last batch.
        """
        plan, begin, epoch = self.plan, self._step, self.epoch
        self._step = 0
        rest = plan.from_step(begin * self._accumulated)
        self._given = len(plan) - len(rest)
        for batch in rest:
            if self.plan is not plan:  # that of another epoch
                require_same_epoch(epoch, self.epoch)
            self._given += 1
            yield batch.tolist()

    def set_epoch(self, epoch: int) -> None:
        r"""Set the epoch, which changes the batches unless the sampler was made from a `BatchPlan`.

        Trainer and accelerate call it before each epoch. In a custom loop, call it yourself, before the `DataLoader`
        reads its first batch.

        Args:
            epoch (`int`): number of the epoch, from 0.
        """
        number = as_integer(epoch, "epoch", minimum=0, example=0)
        if number != self.epoch:
            self.epoch, self._step, self._given = number, 0, 0

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        r"""Return the current epoch and step, to be saved in a checkpoint and restored by `load_state_dict`.

        Args:
            step (`int`, *optional*): number of finished optimizer steps of this epoch, each of
                `gradient_accumulation_steps` batches on each rank. By default, it is computed from the batches yielded
                so far. This is too large if `DataLoader` workers or accelerate have fetched batches that are not
                trained on yet; then pass your own count.

        Returns:
            `dict` of JSON values: `epoch`, `step`, and all items of the property `identity`. All ranks have the same
            state, unless the sampler was made from the `BatchPlan` of one rank. It can be loaded with another number of
            ranks, if `world_size * gradient_accumulation_steps` stays the same.

        Example:
            >>> sampler = TokenBudgetBatchSampler([5, 3, 8, 2, 4, 4], 12, seed=1)
            >>> batches = iter(sampler)
            >>> first = next(batches)
            >>> state = sampler.state_dict()
            >>> state["epoch"], state["step"], state["seed"], state["lengths"]
            (0, 1, 1, '308108c3a971b957')
            >>> fresh = TokenBudgetBatchSampler([5, 3, 8, 2, 4, 4], 12, seed=1)
            >>> fresh.load_state_dict(state)
            >>> list(fresh) == list(batches)
            True
        """
        plan = self.plan
        if step is None:
            step = self._given * plan.steps // max(len(plan), 1) // self._accumulated
        return {"epoch": self.epoch, "step": as_integer(step, "step", minimum=0, example=0), **self.identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        r"""Set the saved epoch and step, to resume training: the next iteration begins at that step.

        Args:
            state (`dict`): result of `state_dict`, from a sampler with the same lengths and settings.

        Raises:
            ValueError: if `state` was saved for other lengths or settings, if its step is greater than the number of
                steps, or if it lacks a key or has an unknown one.
            TypeError: if `state` is not a `dict`, or its epoch or step is not an integer.
        """
        plan = self.plan  # every epoch has the same number of steps
        values = state if isinstance(state, Mapping) else {}
        here = {name: values.get(name, 0) for name in ("epoch", "step")} | self.identity
        require_same_plan(state, here, f"{plan.steps} steps of {plan.documents} documents here")
        epoch, step = (as_integer(state[name], name, minimum=0, example=0) for name in ("epoch", "step"))
        rest = plan.from_step(step * self._accumulated)  # raises if it is out of range
        self.epoch, self._step, self._given = epoch, step, len(plan) - len(rest)

    @property
    def identity(self) -> dict[str, Any]:
        """Dict of the settings that determine the batches, and hashes: of lengths and costs, or of the given plan.

        `state_dict` returns these items too. `load_state_dict` raises `ValueError` if the saved ones differ.
        """
        plan = self.plan
        return {
            "token_budget": plan.token_budget,
            "batches_per_step": plan.world_size * self._accumulated,
            "multiple_of": plan.multiple_of,
            **self._identity_of_source,
        }

    @lock_free_cache
    def _identity_of_source(self) -> dict[str, Any]:
        """The items in `identity` that only a sampler of lengths, or only one of a `BatchPlan`, has."""
        # They are cached, because some loaders call `state_dict` after every batch.
        plan = self.plan
        if isinstance(self._source, BatchPlan):
            return {"rank": plan.rank, "batches": digest_of(plan.order, plan.batch_offsets)}
        settings = {name: int(self._settings[name]) for name in ("window", "seed")}
        widths = np.unique(round_up(self._source, plan.multiple_of))
        cost = None if self._settings["cost"] is None else digest_of(row_costs(widths, self._settings["cost"]))
        return {**settings, "cost": cost, "lengths": digest_of(self._source)}


def require_same_plan(saved: Any, here: Mapping[str, Any], found: str, *, otherwise: str = "") -> None:
    """Raise `ValueError` if the saved state of a sampler does not equal its present state, with what differs.

    `found` and `otherwise` are the ends of the message and of its fix.
    """
    if not isinstance(saved, Mapping):
        raise type_error("a state is a dict", got=shorten(saved), fix="sampler.state_dict()")

    def shown(state: Mapping[str, Any], name: str) -> str:
        return shorten(state[name]) if name in state else "nothing"

    absent = object()
    differ = [name for name in {**here, **saved} if saved.get(name, absent) != here.get(name, absent)]
    if differ:
        values = [f"{name}: saved {shown(saved, name)}, here {shown(here, name)}" for name in differ]
        settings = [
            f"{name}={saved[name]!r}" for name in differ if name in ("token_budget", "window", "seed") and name in saved
        ]
        if "batches_per_step" in differ and "batches_per_step" in saved:
            settings.append(f"as many processes times gradient_accumulation_steps: {saved['batches_per_step']}")
        if saved.get("datasets") is not None and "datasets" in differ:
            settings.append(f"pip install datasets=={saved['datasets']}, which shuffles as it did")
        raise value_error(
            "the state belongs to another plan, or is incomplete",
            got=f"{'; '.join(values)} ({found})",
            fix=", ".join([*settings, "the same rows in the same order, and the same settings"]) + otherwise,
        )


def require_same_epoch(read: int, now: int) -> None:
    """Raise `ValueError` if the epoch `now` is not the epoch whose batches are being `read`.

    A `StatefulDataLoader` with workers reads its first batches as soon as its state is read, which accelerate does when
    it prepares the loader. A later `set_epoch` has no effect on them.
    """
    if read != now:
        raise value_error(
            f"the epoch changed from {read} to {now} while its batches were being read",
            got="a loader that has read batches before, such as a StatefulDataLoader with workers under accelerate",
            fix=f"sampler.set_epoch({now}) before accelerator.prepare(loader), and loader.set_epoch({now}) after it",
        )


def digest_of(*arrays: NDArray[Any]) -> str:
    """Return a hash of the values of number arrays, as 16 hexadecimal digits; it is the same on every machine."""
    hashed = hashlib.blake2b(digest_size=8)
    for array in arrays:
        hashed.update(array.astype("<i8" if array.dtype.kind in "iu" else "<f8").tobytes())
    return hashed.hexdigest()


def _holds_numbers(source: Any) -> bool:
    """Return True if `source` is an array or sequence of numbers, or is empty; False if it is a data set."""
    if isinstance(source, Sequence):
        return not len(source) or isinstance(source[0], numbers.Number)
    # Also series and indices of pandas, and arrays of Arrow. `source[0]` is not the first of a series with an index.
    return hasattr(source, "__array__") and to_numpy(source).dtype.kind != "O"
