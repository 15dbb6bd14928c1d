"""Batches by tokens under `transformers.Trainer`: the sampler in its place, and the loss weighted by tokens.

Training only; evaluation and prediction stay as they are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils.data import DataLoader

from .._explain import explain, unknown_keyword
from .._huggingface import opened
from ..rows import IGNORED
from .lengths import is_dataset
from .sampler import TokenBudgetBatchSampler
from .widths import PadToShapes, padding_to

if TYPE_CHECKING:
    from collections.abc import Callable

_SETTINGS = ("token_budget", "column", "window", "seed", "cost", "multiple_of", "shapes")
_LOADER = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "multiprocessing_context", "in_order")


class TokenBudgetMixin:
    r"""Before `Trainer` among the bases of a class, it trains on batches of a number of tokens.

    ```python
    from hf_posenc import TokenBudgetMixin
    class Trainer(TokenBudgetMixin, Trainer, token_budget=8_192): ...
    ```

    `per_device_train_batch_size` has no say then; all else about the run stays. Each process gets as many batches of as
    many tokens, every row once an epoch. The loss of an optimizer step is the mean over all its labels, of every
    process and every accumulated batch, so that a batch counts as much as it has labels; for any model whose own loss
    is the mean over the labels of its batch.

    Args:
        token_budget (`int`): what a batch may cost: its rows times the length that they are padded to.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of the data set that holds the tokens.
        window, seed, cost, multiple_of, shapes (*optional*): as in `plan_batches`. The seed is by default that of
            `TrainingArguments`. With `multiple_of` or `shapes` the collator is told to pad to them.

    Raises:
        TypeError: for a class that names `Trainer` before the mixin, a setting that does not exist, or a data set that
            cannot be planned ahead.
        ValueError: for what cannot be planned, and for arguments that choose another sampling.

    Example:
        >>> class Trainer: ...                      # transformers.Trainer
        >>> class BudgetTrainer(TokenBudgetMixin, Trainer, token_budget=8_192): ...
        >>> BudgetTrainer.batch_settings
        {'token_budget': 8192}
    """

    batch_settings: ClassVar[dict[str, Any]] = {}

    # What is used here of Trainer.
    if TYPE_CHECKING:
        args: Any
        accelerator: Any
        train_dataset: Any
        data_collator: Any
        compute_loss_func: Any
        current_gradient_accumulation_steps: int
        add_callback: Callable[[Any], None]
        remove_callback: Callable[[Any], None]
        _remove_unused_columns: Callable[..., Any]
        _get_collator_with_removed_columns: Callable[..., Any]

    _labels_of_step: torch.Tensor | None = None  # of all processes and accumulated batches
    _in_step = False

    def __init_subclass__(cls, **settings: Any) -> None:
        wrong = [name for name in settings if name not in _SETTINGS]
        if wrong:
            called_here = {"max_tokens": "token_budget=...", "batch_size": "token_budget=..."}
            raise TypeError(unknown_keyword(wrong[0], _SETTINGS, called_here))
        cls.batch_settings = {**cls.batch_settings, **settings}
        super().__init_subclass__()
        # Where the mixin stands last, the loader of another base hides its own, and no batch would be planned.
        makers = [base for base in cls.__mro__ if "get_train_dataloader" in vars(base)]
        if makers[-1] is TokenBudgetMixin and not all(issubclass(base, TokenBudgetMixin) for base in makers):
            right = sorted(cls.__bases__, key=lambda base: not issubclass(base, TokenBudgetMixin))
            keywords = settings if "token_budget" in cls.batch_settings else {"token_budget": 8192, **settings}
            raise TypeError(
                explain(
                    f"{right[0].__name__} must stand before {right[1].__name__}, which would make ordinary batches",
                    got=f"class {cls.__name__}({', '.join(base.__name__ for base in cls.__bases__)})",
                    fix=f"class {cls.__name__}({', '.join(base.__name__ for base in right)}"
                    f"{''.join(f', {name}={value!r}' for name, value in keywords.items())}): ...",
                )
            )

    def get_train_dataloader(self) -> Any:
        """The loader of the training data, with batches by tokens, as accelerate prepares it."""
        if self.train_dataset is None:
            return super().get_train_dataloader()  # type: ignore[misc]
        _check_arguments(self.args, self.accelerator)
        settings = {**self.batch_settings}
        if "token_budget" not in settings:
            raise ValueError(
                explain(
                    "the class names no token_budget",
                    got=f"class {type(self).__name__}(TokenBudgetMixin, ...)",
                    fix=f"class {type(self).__name__}(TokenBudgetMixin, Trainer, token_budget=8192): ...",
                )
            )
        data_seed = getattr(self.args, "data_seed", None)
        settings.setdefault("seed", self.args.seed if data_seed is None else data_seed)
        sampler = TokenBudgetBatchSampler(
            self.train_dataset, **settings, world_size=int(self.accelerator.num_processes)
        )
        dataset, collator = self.train_dataset, self._padding(self.data_collator, sampler)
        if is_dataset(dataset):
            dataset = self._remove_unused_columns(dataset, description="training")
        else:
            collator = self._get_collator_with_removed_columns(collator, description="training")
        loader = DataLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=collator,
            worker_init_fn=_worker_seed(self.args),
            **{
                name: value for name in _LOADER if (value := getattr(self.args, f"dataloader_{name}", None)) is not None
            },
        )
        self._follow_epochs(sampler)
        return self.accelerator.prepare(loader)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The batches of one optimizer step; their labels are counted, over all processes."""
        batches, items = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        count = torch.zeros((), dtype=torch.int64, device=self.args.device)
        for batch in batches:
            count = count + self._count_labels(batch).to(count.device)
        if self.accelerator.num_processes > 1:
            count = self.accelerator.gather(count.reshape(1)).sum()
        self._labels_of_step = count
        return batches, items

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """One batch forward and backward. Trainer takes its loss for a mean over the batch, which it is until here."""
        if self.compute_loss_func is not None:  # is told the number of labels, and weighs by itself
            return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        self._in_step = True
        try:
            return super().training_step(model, inputs, None)  # type: ignore[misc]
        finally:
            self._in_step = False

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        """The loss of a batch; in training weighted by its share of the labels of the step."""
        total, parts = self._labels_of_step, 1
        if self._in_step and total is not None:
            # Gradients are averaged over processes, and Trainer divides by the number of accumulated batches.
            parts = int(self.accelerator.num_processes) * int(self.current_gradient_accumulation_steps)
        if parts == 1 or total is None:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        share = self._count_labels(inputs).to(total.device) / total.clamp(min=1)
        result = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        if not return_outputs:
            return _weighted(result, share * parts)
        return _weighted(result[0], share * parts), *result[1:]

    def _count_labels(self, batch: Any) -> torch.Tensor:
        """How many labels a batch has that are to be learnt; without labels, how many rows."""
        labels = batch.get("shift_labels", batch.get("labels"))
        if not isinstance(labels, torch.Tensor):
            return torch.tensor(len(next(iter(batch.values()))))
        # A causal loss compares each token with the one before, so the first of a row is compared with none.
        shifts = "shift_labels" not in batch and labels.ndim > 1 and _shifts_labels(self)
        return ((labels[..., 1:] if shifts else labels) != IGNORED).sum()

    def _padding(self, collator: Any, sampler: TokenBudgetBatchSampler) -> Any:
        """The collator, told to pad to what the plan counts on."""
        plan = sampler.plan
        if plan.shapes is not None:
            return PadToShapes(collator, plan.shapes, self.batch_settings.get("column", "input_ids"))
        return collator if plan.multiple_of is None else padding_to(collator, plan.multiple_of)

    def _follow_epochs(self, sampler: TokenBudgetBatchSampler) -> None:
        """Tells the sampler of every epoch: a run that resumes on several processes wraps it too deep for Trainer."""
        from transformers import TrainerCallback

        class FollowEpochs(TrainerCallback):  # type: ignore[misc]
            def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                sampler.set_epoch(int(state.epoch or 0))

        previous = self.__dict__.get("_following")
        if previous is not None:
            self.remove_callback(previous)
        self._following = FollowEpochs()
        self.add_callback(self._following)


def _weighted(loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return loss * weight.to(device=loss.device, dtype=loss.dtype)


def _shifts_labels(trainer: Any) -> bool:
    """Whether the model's loss is a causal one. Trainer knows most by their loss; GPT-2 is told by its name."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    model = opened(trainer.model)
    is_causal = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    is_seq2seq = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    return not is_seq2seq and (is_causal or bool(getattr(trainer, "_loss_shifts_labels", False)))


def _worker_seed(args: Any) -> Any:
    """As Trainer seeds its workers, so that what is random in them is the same in every run."""
    from transformers.trainer_utils import seed_worker

    return partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index)


def _check_arguments(args: Any, accelerator: Any) -> None:
    """Other ways to make batches, which would be passed over without a word."""
    strategy = getattr(args, "train_sampling_strategy", "random")
    if strategy != "random" or getattr(args, "group_by_length", False):
        raise ValueError(
            explain(
                "a token budget decides which rows share a batch, and so does another argument",
                got=f"train_sampling_strategy={strategy!r}" if strategy != "random" else "group_by_length=True",
                fix="TrainingArguments without it",
            )
        )
    for name in ("split_batches", "dispatch_batches"):
        if getattr(accelerator, name, None):
            raise ValueError(
                explain(
                    "batches by tokens have different numbers of rows and are dealt out whole",
                    got=f"accelerator_config={{'{name}': True}}",
                    fix=f"accelerator_config={{'{name}': False}}",
                )
            )
