"""`TokenBudgetMixin`: training batches with a token budget in `transformers.Trainer`, with each label of equal weight.

Evaluation has the batches of Trainer, and a loss in which each label has equal weight too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils.data import DataLoader

from .._common.compat import other_sampling
from .._common.constants import IGNORED
from .._common.errors import type_error, unknown_keyword, value_error, warn
from ..collator import DataCollatorWithPositionalEncoding
from ..documents import BOUNDARIES, FOREIGN, PER_TOKEN
from ..packing import checked_lengths
from .lengths import is_dataset, lengths_of, require_rows, truncated_lengths
from .resume import PlanState, require_same_digests
from .sampler import TokenBudgetBatchSampler
from .stream import StreamBatchSampler, is_stream, stream_loader
from .token_log import TokenLogMixin, require_first

_SETTINGS = ("token_budget", "column", "length", "window", "seed", "cost", "multiple_of")
_LOADER = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "multiprocessing_context")


class TokenBudgetMixin(TokenLogMixin):
    r"""Mixin for `Trainer` that trains on batches with a token budget. List it before `Trainer` in the bases.

    ```python
    from transformers import Trainer
    from hf_posenc import TokenBudgetMixin
    class BudgetTrainer(TokenBudgetMixin, Trainer, token_budget=8_192): ...
    ```

    `per_device_train_batch_size`, `dataloader_drop_last`, `dataloader_in_order` and `average_tokens_across_devices`
    have no effect in training; if they are set, a warning names them. The rest of the run is unchanged. Every row is
    used once per epoch, and all processes get the same number of batches, of similar size. The rows of a batch have
    similar lengths, those of an optimizer step do not: with `gradient_accumulation_steps=4` and a quarter of the
    budget, models learn more.

    A stream, such as a `datasets.IterableDataset` or a generator, is read and divided into batches `window` rows at a
    time, see `stream_batches`. It is read again and again until `max_steps`; Trainer counts this as one epoch.

    Checkpoints store the settings and a hash: of the lengths of all rows, or for a stream, of the batches so far. A
    resumed run continues with the remaining batches. It raises `ValueError` if the settings or the hash differ. The
    number of processes and `gradient_accumulation_steps` may differ if their product is the same.

    The loss of an optimizer step is the mean over all labels of the step: those of every process and of all accumulated
    batches. The loss of `evaluate` and `predict` is the mean over all labels of the data set; with several processes,
    rows that accelerate repeats to fill the last batches count again. The first label of a row does not count if the
    model shifts labels. This requires a model whose own loss is the mean over the labels of a batch.

    Log lines have the numbers of tokens of `TokenLogMixin`.

    A loss that is weighted already is not changed: that of a `compute_loss_func`, or of a subclass with its own
    `compute_loss` and `loss_is_scaled_for_ga = True`. It gets the number of labels as `num_items_in_batch`.

    Args:
        token_budget (`int`): maximum cost of a batch. By default, the cost is the number of rows times their padded
            length.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of tokens of the data set. Rows that the
            collator truncates count as truncated.
        length (callable, *optional*): function that returns the number of tokens of a row. By default, the tokens in
            `column` are counted.
        window, cost, multiple_of (*optional*): as in `plan_batches`. The collator pads to `multiple_of`, so that
            `torch.compile` compiles fewer shapes.
        seed (`int`, *optional*): as in `plan_batches`; by default `data_seed` or else `seed` of `TrainingArguments`.

    Raises:
        TypeError: in the class statement, if it lists `Trainer` before the mixin, or has an unknown setting. In
            training, if the data set is a table or a `datasets.DatasetDict`, or if the length of a row cannot be found.
        ValueError: in training, if `token_budget` is missing, if `plan_batches` raises it for the rows, or if the
            training arguments have another way to form batches, such as `group_by_length` or `auto_find_batch_size`,
            or set up context parallelism. For a stream, also if they evaluate, save or log by the strategy "epoch".

    Example:
        >>> class Trainer: ...                      # transformers.Trainer
        >>> class BudgetTrainer(TokenBudgetMixin, Trainer, token_budget=8_192): ...
        >>> BudgetTrainer.batch_settings
        {'token_budget': 8192}
    """

    batch_settings: ClassVar[dict[str, Any]] = {}

    # Attributes of Trainer.
    if TYPE_CHECKING:
        args: Any
        train_dataset: Any
        compute_loss_func: Any
        loss_is_scaled_for_ga: bool | None
        current_gradient_accumulation_steps: int
        add_callback: Callable[[Any], None]
        remove_callback: Callable[[Any], None]
        _remove_unused_columns: Callable[..., Any]
        _signature_columns: list[str]
        _get_collator_with_removed_columns: Callable[..., Any]

    # Trainer calls `get_batch_samples` for an optimizer step, then `training_step` for each of its batches, which calls
    # `compute_loss`.
    _labels_of_step: torch.Tensor | None = None  # of all processes and accumulated batches
    _in_step = False
    _plan: PlanState | None = None  # of the current run
    # For each batch of an evaluation: the sum of the loss over its labels, and their number, as a tensor `(2,)`.
    _evaluated: list[torch.Tensor] | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        wrong = [name for name in settings if name not in _SETTINGS]
        if wrong:
            called_here = {"max_tokens": "token_budget=...", "batch_size": "token_budget=..."}
            raise TypeError(unknown_keyword(wrong[0], _SETTINGS, called_here))
        cls.batch_settings = {**cls.batch_settings, **settings}
        keywords = settings if "token_budget" in cls.batch_settings else {"token_budget": 8192, **settings}
        require_first(cls, "".join(f", {name}={value!r}" for name, value in keywords.items()))
        super().__init_subclass__()

    if not TYPE_CHECKING:  # editors show the arguments of Trainer

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            """Construct the Trainer; raise `TypeError` for a `token_budget`, which is a setting of the class."""
            if "token_budget" in kwargs:
                name, budget = type(self).__name__, kwargs["token_budget"]
                raise type_error(
                    "the token budget is a setting of the class, not an argument of its objects",
                    got=f"{name}(..., token_budget={budget!r})",
                    fix=f"class {name}(TokenBudgetMixin, Trainer, token_budget={budget!r}): ...",
                )
            super().__init__(*args, **kwargs)

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the columns of tokenized rows that the collator reads or refuses, also those not named by the model."""
        super()._set_signature_columns_if_needed()  # type: ignore[misc]
        if isinstance(self.data_collator, DataCollatorWithPositionalEncoding):
            read = [*PER_TOKEN, *BOUNDARIES, *FOREIGN, *self.data_collator.token_columns]
            self._signature_columns = [*dict.fromkeys([*self._signature_columns, *read])]

    def get_train_dataloader(self) -> Any:
        """Return the training `DataLoader`, with batches within the token budget, prepared by `accelerator.prepare`."""
        from transformers.trainer_utils import seed_worker

        if self.train_dataset is None:
            return super().get_train_dataloader()
        _check_arguments(self.args, self.accelerator, reads_stream=is_stream(self.train_dataset))
        if "token_budget" not in self.batch_settings:
            raise value_error(
                "the class has no token_budget",
                got=f"class {type(self).__name__}(TokenBudgetMixin, ...)",
                fix=f"class {type(self).__name__}(TokenBudgetMixin, Trainer, token_budget=8192): ...",
            )
        require_rows(self.train_dataset)
        _warn_of_arguments(self.args, weighs_loss=not self._has_weighted_loss)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        # The plan depends on the batches of an optimizer step only, so a run can be resumed with other processes:
        # accelerate gives batch i to process i % processes.
        batches_per_step = int(self.accelerator.num_processes) * int(self.args.gradient_accumulation_steps)
        settings = {"column": "input_ids", "seed": seed, **self.batch_settings, "world_size": batches_per_step}
        dataset, collator = self.train_dataset, self.data_collator
        sampler = _sampler(dataset, collator, settings.pop("length", None), settings)
        if (multiple := sampler.plan.multiple_of) is not None:
            collator = _padding_to(collator, multiple)
        if is_dataset(dataset):
            dataset = self._remove_unused_columns(dataset, description="training")
        else:
            collator = self._get_collator_with_removed_columns(collator, description="training")
        collator = self._counting(collator)
        options = {
            name: value for name in _LOADER if (value := getattr(self.args, f"dataloader_{name}", None)) is not None
        }
        # As in Trainer, so that random numbers are the same in every run.
        options["worker_init_fn"] = partial(
            seed_worker, num_workers=self.args.dataloader_num_workers, rank=self.args.process_index
        )
        if isinstance(sampler, StreamBatchSampler):
            loader = stream_loader(sampler, collator, **options)
        else:
            loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collator, **options)
        if self._plan is not None:  # of an earlier run
            self.remove_callback(self._plan.callback_class)
        self._plan = PlanState(self, sampler)
        self.add_callback(self._plan.callback_class())
        return self.accelerator.prepare(loader)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of Trainer's own method: the batches of one optimizer step, and their `num_items_in_batch`.

        Also count the labels of these batches over all processes, for the loss. Raise `ValueError` if the processes
        read different rows.
        """
        batches, items = super().get_batch_samples(*args, **kwargs)
        count = torch.zeros((), dtype=torch.int64, device=self.args.device)
        for batch in batches:
            count = count + self._count_labels(batch).to(count.device)
        if self.accelerator.num_processes > 1:
            digest = torch.tensor(0 if self._plan is None else self._plan.digest(), device=count.device)
            gathered = self.accelerator.gather(torch.stack([count, digest])[None])  # (processes, 2)
            require_same_digests(gathered[:, 1])
            count = gathered[:, 0].sum()
        self._labels_of_step = count
        return batches, items

    def _get_num_items_in_batch(self, batch_samples: Any, device: Any) -> Any:
        """Return Trainer's own number of labels, for a loss that is weighted already."""
        # Trainer counts the first label of each row for GPT-2 and others whose class names it does not recognize.
        targets = [self._targets(batch) for batch in batch_samples]
        batches = [{} if labels is None else {"labels": labels, "shift_labels": labels} for labels in targets]
        return super()._get_num_items_in_batch(batches, device)  # type: ignore[misc]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Run forward and backward for one batch, as Trainer does, and return its loss.

        `num_items_in_batch` is not passed to Trainer, so that the loss of the model is the mean over the batch. It is
        passed only to a loss that is weighted already: a `compute_loss_func`, or the `compute_loss` of a subclass with
        `loss_is_scaled_for_ga = True`.
        """
        if self._has_weighted_loss:
            return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        # Trainer then divides by the number of accumulated batches, as `compute_loss` expects.
        # If True, Trainer would take the loss for divided already: with four batches the gradients were four times as
        # large.
        is_scaled = getattr(self, "loss_is_scaled_for_ga", None)
        self._in_step, self.loss_is_scaled_for_ga = True, None
        try:
            return super().training_step(model, inputs, None)  # type: ignore[misc]
        finally:
            self._in_step, self.loss_is_scaled_for_ga = False, is_scaled

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        """Return the loss of a batch; with `return_outputs=True`, a tuple of the loss and the outputs of the model.

        It is the mean over the labels of the batch. In training, it is weighted by the batch's share of all labels of
        the optimizer step.
        """
        if "num_items_in_batch" in kwargs and not self._has_weighted_loss:
            kwargs["num_items_in_batch"] = None
        total, parts = self._labels_of_step, 1
        if self._in_step and total is not None:
            # Gradients are averaged over processes, and Trainer divides by the number of accumulated batches.
            parts = int(self.accelerator.num_processes) * int(self.current_gradient_accumulation_steps)
        if parts == 1 or total is None:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        # Counted before the loss, because Trainer takes the labels out of `inputs` for `label_smoothing_factor`.
        share = self._count_labels(inputs).to(total.device) / total.clamp(min=1)
        result = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        loss, *outputs = result if return_outputs else (result,)
        weight = (share * parts).to(device=loss.device, dtype=loss.dtype)
        loss = (loss * weight).masked_fill(weight == 0, 0)  # without labels, a mean is NaN
        return (loss, *outputs) if return_outputs else loss

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """Return the result of Trainer's own loop, whose loss is a mean over batches, with the mean over all labels."""
        # Trainer weighs the mean loss of a batch by its rows, not by its labels.
        self._evaluated = []
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)  # type: ignore[misc]
        if self._evaluated:
            total, count = self.accelerator.reduce(torch.stack(self._evaluated).sum(dim=0))
            if torch.isfinite(total / count):
                output.metrics[f"{metric_key_prefix}_loss"] = float(total / count)
        self._evaluated = None
        return output

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return Trainer's own loss, logits and labels of a batch, and keep the loss for `evaluation_loop`."""
        loss, *others = super().prediction_step(model, inputs, *args, **kwargs)  # type: ignore[misc]
        if loss is not None and self._evaluated is not None:
            count = self._count_labels(inputs).to(loss.device, torch.float32)
            if self._has_weighted_loss:  # the mean of the processes' losses is the mean over the labels of all of them
                count = self.accelerator.reduce(count, "mean")
            self._evaluated.append(torch.stack([(loss * count).float().masked_fill(count == 0, 0), count]))
        return (loss, *others)

    @property
    def _has_weighted_loss(self) -> bool:
        """True if the loss is divided by `num_items_in_batch` already."""
        from transformers import Trainer

        bases = (base for base in type(self).__mro__ if base not in (TokenBudgetMixin, Trainer))
        is_scaled = getattr(self, "loss_is_scaled_for_ga", None)  # Trainer has it since transformers 5.19
        return self.compute_loss_func is not None or bool(
            is_scaled and any("compute_loss" in vars(base) for base in bases)
        )

    def _targets(self, batch: Any) -> torch.Tensor | None:
        """Return the labels of a batch without those that the model shifts away; `None` if it has no labels."""
        labels = batch.get("shift_labels", batch.get("labels"))
        if not isinstance(labels, torch.Tensor):
            return None
        # A causal loss predicts each token from the one before, so the first label of a row is not used.
        is_shifted = "shift_labels" in batch or labels.ndim < 2 or not self._shifts_labels
        return labels if is_shifted else labels[..., 1:]

    def _count_labels(self, batch: Any) -> torch.Tensor:
        """Return the number of labels of a batch that the loss uses, or else of rows, as an integer tensor `()`."""
        targets = self._targets(batch)
        if targets is None or targets.is_floating_point():  # -100 is a number to predict
            return torch.tensor(len(next(iter(batch.values()))), device="cpu")
        return (targets != IGNORED).sum()


def _sampler(
    dataset: Any, collator: Any, length: Callable[[Any], int] | None, settings: dict[str, Any]
) -> StreamBatchSampler | TokenBudgetBatchSampler:
    """Return the sampler of a stream, or of the lengths that the rows of a data set have after truncation."""
    if is_stream(dataset):
        return StreamBatchSampler(dataset, collator, length=length, **settings, repeats=True)
    counted = lengths_of(dataset, settings["column"]) if length is None else [length(row) for row in dataset]
    lengths = checked_lengths(counted)
    name = getattr(collator, "__name__", type(collator).__name__)
    if name in ("default_data_collator", "DefaultDataCollator") and (lengths != lengths[:1]).any():
        raise value_error(
            "the default data collator of transformers does not pad, and rows differ in length",
            got=f"data_collator={name}",
            fix="data_collator=collate, with collate = DataCollatorWithPositionalEncoding(tokenizer, model=model)",
        )
    return TokenBudgetBatchSampler(truncated_lengths(lengths, collator), **settings)


def _padding_to(collator: Any, multiple: int) -> Any:
    """Return a copy of a collator that pads rows to a multiple of `multiple` tokens."""
    if isinstance(collator, DataCollatorWithPositionalEncoding):
        return collator.replace(pad_to_multiple_of=multiple)
    if not dataclasses.is_dataclass(collator) or not hasattr(collator, "pad_to_multiple_of"):
        raise type_error(
            "a plan with multiple_of needs a collator that can pad to it",
            got=f"{getattr(collator, '__name__', type(collator).__name__)} without pad_to_multiple_of",
            fix="DataCollatorWithPositionalEncoding(tokenizer), or multiple_of=None",
        )
    return dataclasses.replace(collator, pad_to_multiple_of=multiple)  # type: ignore[type-var]


def _check_arguments(args: Any, accelerator: Any, *, reads_stream: bool) -> None:
    """Raise `ValueError` if one of the `TrainingArguments` cannot be combined with a token budget."""
    if (conflict := other_sampling(args)) is not None:
        raise value_error(
            "a token budget excludes another argument that decides which rows share a batch",
            got=conflict,
            fix="TrainingArguments without it",
        )
    if args.auto_find_batch_size:  # it would begin again with the trained weights
        raise value_error(
            "a token budget sets the size of batches, and a run that is out of memory does not begin again",
            got="auto_find_batch_size=True",
            fix="a smaller token_budget= in the class statement",
        )
    # With these, accelerate slices a batch of one process along its first dimension, for all processes.
    for name in ("split_batches", "dispatch_batches"):
        if getattr(accelerator, name):
            raise value_error(
                "batches of tokens differ in their number of rows and cannot be split",
                got=f"accelerator_config={{'{name}': True}}",
                fix=f"accelerator_config={{'{name}': False}}",
            )
    parallelism = getattr(accelerator, "parallelism_config", None)
    if parallelism is not None and parallelism.cp_enabled:
        raise value_error(
            "context parallelism ignores masks: packed documents would attend to each other, tokens to left padding",
            got=f"ParallelismConfig(cp_size={parallelism.cp_size})",
            fix="ParallelismConfig without cp_size",
        )
    for name in ("eval_strategy", "save_strategy", "logging_strategy") if reads_stream else ():
        if getattr(args, name) == "epoch":
            raise value_error(
                "a stream has no epochs: it is read again and again until max_steps",
                got=f"{name}='epoch'",
                fix=f"{name}='steps', {name.removesuffix('_strategy')}_steps=500",
            )


def _warn_of_arguments(args: Any, *, weighs_loss: bool) -> None:
    """Warn about `TrainingArguments` that are set, but have no effect in training with a token budget."""
    names = ["per_device_train_batch_size", "dataloader_drop_last", "dataloader_in_order"]
    names += ["average_tokens_across_devices"] if weighs_loss else []
    set_names = [name for name in names if getattr(args, name, None) != getattr(type(args), name, None)]
    if arguments := [f"{name}={getattr(args, name)}" for name in set_names]:
        warn(
            "a token budget sets the size and order of batches, uses every row, and counts labels of all processes",
            got=f"{', '.join(arguments)}, without effect in training",
            fix="TrainingArguments without it; token_budget=... in the class statement sets the size of a batch",
        )
