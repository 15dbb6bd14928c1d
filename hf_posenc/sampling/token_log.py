"""`TokenLogMixin`: tokens per second, and the shares of padding and of trained tokens, in the log lines of Trainer.

Batches are counted where they are collated, on the CPU and in workers: on a device, each count would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._common.compat import loss_shifts_labels
from .._common.constants import IGNORED
from .._common.errors import type_error
from ..collator import real_tokens
from ..documents import number_tokens, without_padding_at_end
from ..models import ModelSpec
from ..ragged import Ragged, lock_free_cache

_COUNTS = "token_counts"  # key of a batch, removed before the model gets it


class TokenLogMixin:
    r"""Mixin for `Trainer` that logs how much of the work is useful. List it before `Trainer` in the bases.

    ```python
    from transformers import Trainer
    from hf_posenc import TokenLogMixin
    class LoggingTrainer(TokenLogMixin, Trainer): ...
    ```

    Each line with the training loss gets three more numbers, of all processes and batches since the line before:

    - `tokens_per_second`: tokens of the input that are not padding, per second. The time of an evaluation does not
      count, nor that of a checkpoint saved after the line.
    - `padding_share`: number of padding tokens, divided by that of all tokens in `input_ids`.
    - `trained_share`: number of labels other than -100, divided by that of tokens that are not padding. The label of a
      row's first token does not count if the model shifts labels. The share is left out if there is no label per token,
      and for encoder-decoders.

    Padding is found by `attention_mask`; in packed rows without one, the last documents of a row are padding if all
    their ids are the padding id. Without both, every token counts. The loss and the weights are unchanged.

    Raises:
        TypeError: in the class statement, if it lists `Trainer` before the mixin.

    Example:
        >>> class Trainer: ...                      # transformers.Trainer
        >>> class LoggingTrainer(TokenLogMixin, Trainer): ...
    """

    # Attributes of Trainer.
    if TYPE_CHECKING:
        accelerator: Any
        data_collator: Any
        model: Any
        processing_class: Any

    _counts: tuple[torch.Tensor, ...] = ()  # of the batches since the last line
    _seconds = 0.0  # since the last line, without those since `_started`
    _started: float | None = None  # `None` while the clock stands

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        require_first(cls)

    def get_train_dataloader(self) -> Any:
        """Return the training `DataLoader` of Trainer, whose batches also have their numbers of tokens."""
        collator = self.data_collator
        self.data_collator = self._counting(collator)
        try:
            return super().get_train_dataloader()  # type: ignore[misc]
        finally:
            self.data_collator = collator

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of Trainer's own method, and keep the numbers of tokens of the batches."""
        if self._started is None:
            self._started = perf_counter()
        batches, items = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        self._counts += tuple(batch.pop(_COUNTS) for batch in batches if _COUNTS in batch)
        return batches, items

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of Trainer's own method, whose time is not that of training."""
        self._stop_clock()
        return super().evaluate(*args, **kwargs)  # type: ignore[misc]

    def log(self, logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Log as Trainer does, with the numbers of tokens in lines that have the training loss."""
        if "loss" in logs and self._counts:
            self._stop_clock()
            # Trainer has waited for the device just before, for the loss.
            total = self.accelerator.reduce(torch.cat(self._counts).sum(dim=0))
            places, tokens, *trained = total.tolist()
            logs["tokens_per_second"] = tokens / self._seconds
            logs["padding_share"] = 1 - tokens / places
            if trained:
                logs["trained_share"] = trained[0] / max(tokens, 1)
            self._counts, self._seconds = (), 0.0
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _stop_clock(self) -> None:
        if self._started is not None:
            self._seconds += perf_counter() - self._started
            self._started = None

    @lock_free_cache
    def _shifts_labels(self) -> bool:
        """True if the model shifts labels by one in its loss, as causal language models do."""
        collator_model = getattr(self.data_collator, "model", None)
        try:
            spec = collator_model if isinstance(collator_model, ModelSpec) else ModelSpec.of(self.model)
        except ValueError:  # weights that are sharded, or no input of token ids
            return loss_shifts_labels(self)
        if not spec.is_examined:  # a module of one's own
            return spec.shifts_labels is True or getattr(self.data_collator, "labels", None) == "causal_lm"
        return spec.shifts_labels is True and not spec.is_encoder_decoder

    def _counting(self, collator: Callable[[Any], Any]) -> CountTokens:
        """Return a collator that counts the tokens of the batches of `collator`; forget those of an earlier run."""
        self._counts, self._seconds, self._started = (), 0.0, None
        tokenizer = getattr(self.data_collator, "tokenizer", None) or self.processing_class
        reads_two = bool(getattr(getattr(self.model, "config", None), "is_encoder_decoder", False))
        return CountTokens(
            collator,
            getattr(tokenizer, "pad_token_id", None),
            counts_labels=not reads_two,
            shifts_labels=self._shifts_labels,
        )


class CountTokens:
    """A collator that adds `token_counts` `(B, 2 or 3)` to a batch: for each row its places, tokens and labels."""

    # A tensor with the rows as its first dimension, because accelerate joins and slices batches of a stream.

    def __init__(
        self, collator: Callable[[Any], Any], padding_id: int | None, *, counts_labels: bool, shifts_labels: bool
    ) -> None:
        self.collator, self.padding_id, self.counts_labels = collator, padding_id, counts_labels
        self.shifts_labels = shifts_labels

    def __call__(self, rows: Any) -> Any:
        batch = self.collator(rows)
        ids, labels = batch.get("input_ids"), batch.get("labels")
        if not isinstance(ids, torch.Tensor):
            return batch
        counts = [torch.ones_like(ids), self._tokens(batch, ids)]
        if self.counts_labels and labels is not None and labels.ndim == ids.ndim and not labels.is_floating_point():
            is_shifted = self.shifts_labels and "shift_labels" not in batch
            counts.append((labels[..., 1:] if is_shifted else labels) != IGNORED)
        batch[_COUNTS] = torch.stack([each.flatten(1).sum(dim=1) for each in counts], dim=1)
        return batch

    def _tokens(self, batch: Any, ids: torch.Tensor) -> torch.Tensor:
        """Return a mask that is False at padding."""
        mask: torch.Tensor | None = real_tokens(batch, self.padding_id)
        positions = batch.get("position_ids")
        if mask is not None:
            return mask
        if self.padding_id is not None and positions is not None and positions.shape == ids.shape and ids.ndim == 2:
            lengths = np.full(len(ids), ids.shape[1])
            columns = {"input_ids": ids, "position_ids": positions}
            rows = {name: Ragged(values.flatten().cpu().numpy(), lengths) for name, values in columns.items()}
            numbers, _ = number_tokens(rows, is_packed=True)
            if numbers is not None:
                kept = without_padding_at_end(numbers, rows["input_ids"], self.padding_id)
                return torch.from_numpy(kept >= 0).view(ids.shape)
        return torch.ones_like(ids)


def require_first(cls: type, settings: str = "") -> None:
    """Raise `TypeError` if another base with a training loader comes before the mixin, which would have no effect.

    `settings` is the end of the bases in the message, such as `", token_budget=8192"`.
    """
    makers = [base for base in cls.__mro__ if "get_train_dataloader" in vars(base)]
    if makers[-1] is TokenLogMixin and not all(issubclass(base, TokenLogMixin) for base in makers):
        right = sorted(cls.__bases__, key=lambda base: not issubclass(base, TokenLogMixin))
        raise type_error(
            f"{right[0].__name__} must come before {right[1].__name__}, whose methods would replace its own",
            got=f"class {cls.__name__}({', '.join(base.__name__ for base in cls.__bases__)})",
            fix=f"class {cls.__name__}({', '.join(base.__name__ for base in right)}{settings}): ...",
        )
