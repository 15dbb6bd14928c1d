"""State of a token budget in the checkpoints of Trainer: stored on every save, and compared on resuming.

Trainer itself skips the batches of finished steps. This module raises if the plan of the batches has changed, because
other batches would then be skipped.
"""

from __future__ import annotations

from typing import Any

import torch

from .._common.errors import value_error, warn
from .._common.integers import as_integer
from .sampler import TokenBudgetBatchSampler, require_same_plan
from .stream import StreamBatchSampler


class PlanState:
    """Settings and hashes of the batches of a training run. Checkpoints store them, and a resumed run compares them.

    `TokenBudgetMixin` creates one object for each run. The plan of a run is the choice of rows for each batch.
    """

    def __init__(self, trainer: Any, sampler: TokenBudgetBatchSampler | StreamBatchSampler) -> None:
        self.trainer, self.sampler = trainer, sampler
        self.callback_class = self._callback_class()

    def now(self) -> dict[str, Any]:
        """Return the settings and hashes at the current step of the trainer, as a dict of JSON values.

        For a stream, they are also the number of its windows up to the current step, and a hash of their batches.
        """
        state = dict(self.sampler.identity)
        if isinstance(self.sampler, StreamBatchSampler):
            state |= self.sampler.progress(int(self.trainer.state.global_step))
        return state

    def check(self, stored: Any) -> None:
        """Raise `ValueError` if a checkpoint was saved with other settings or batches than those of this run.

        `stored` is the saved result of the callback's `state()`, see `_callback_class`. If it contains no settings,
        warn instead. The batches of a stream are compared later, when its rows are read.
        """
        saved = stored.get("attributes", {}).get("plan")
        if not saved:
            warn(
                "the checkpoint has no state of a token budget, so rows may be repeated or left out",
                got="a checkpoint of another Trainer",
                fix="TrainingArguments(ignore_data_skip=True) begins with the first rows again",
            )
            return
        here = self.now()
        if isinstance(self.sampler, StreamBatchSampler):  # whose rows are compared while they are read
            here |= {name: saved[name] for name in ("windows", "digest") if name in saved}
        otherwise = "; or TrainingArguments(ignore_data_skip=True), which begins with the first rows again"
        require_same_plan(saved, here, "in this Trainer", otherwise=otherwise)
        if isinstance(self.sampler, StreamBatchSampler):
            self.sampler.expected = as_integer(saved["windows"], "windows", minimum=1, example=1), saved["digest"]

    def digest(self) -> int:
        """Return an integer hash of the rows, to check that all processes read the same; 0 if none was read."""
        hashed = self.now().get("digest") or self.sampler.identity.get("lengths") or "0"
        return int(hashed[:15], 16)

    def _callback_class(self) -> Any:
        """Return a callback class for `Trainer` that stores and checks this state."""
        from transformers import TrainerCallback
        from transformers.trainer_callback import ExportableState

        plan = self

        # A class for each run: with `restore_callback_states_from_checkpoint`, Trainer constructs its callbacks again,
        # by `from_state`, which has nothing to pass but what a checkpoint stores.
        class TokenBudgetState(TrainerCallback, ExportableState):  # type: ignore[misc]
            def state(self) -> dict[str, Any]:
                return {"args": {}, "attributes": {"plan": plan.now()}}

            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                saved = state.stateful_callbacks.setdefault("TokenBudgetState", {})
                if state.global_step and not args.ignore_data_skip:
                    plan.check(saved)

            def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                plan.sampler.set_epoch(int(state.epoch or 0))

            def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if isinstance(plan.sampler, StreamBatchSampler):  # it repeats the stream, so there are no more rows
                    control.should_training_stop = True

        return TokenBudgetState


def require_same_digests(digests: torch.Tensor) -> None:
    """Raise `ValueError` if the hashes of the processes differ, because they then read different rows."""
    differ = (digests != digests[0]).nonzero()
    if len(differ):
        raise value_error(
            "every process must read the same rows in the same order",
            got=f"other rows in process {int(differ[0])} than in process 0",
            fix="the whole stream in every process, shuffled with the same seed",
        )
