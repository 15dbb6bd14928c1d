"""What a model settles for the collator that feeds it: numbering, limits, the keys that stay, the mask of packed rows.

Values only, read off a `ModelSpec`; without a model everything is as it was. What cannot be fed is told in `refusals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._explain import explain
from ..batch import Batch
from ..masks import AttentionMask
from ..model_spec import ModelSpec
from ..ragged import PaddingSide
from ..tokenization.loading import stated_limit
from .warned import beyond

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..sinusoid import Convention

Limit = int | None


def numbering(spec: ModelSpec | None, convention: Convention, *, embeds: bool) -> tuple[int, int]:
    r"""Return the position of a row's first token, and that of padding.

    A model that has positions numbers them; otherwise the convention does. Where neither has a number for padding, it
    has that of the first token.

    Example:
        >>> from ..sinusoid import resolve_convention
        >>> roberta = ModelSpec(positions=("learned",), first_position=2, padding_position=1)
        >>> numbering(roberta, resolve_convention("vaswani"), embeds=False)
        (2, 1)
        >>> numbering(None, resolve_convention("fairseq"), embeds=False)
        (2, 1)
    """
    by_model = spec is not None and not embeds and (spec.positions or spec.first_position)
    counts = spec if spec is not None and by_model else convention
    padding = counts.padding_position
    return counts.first_position, counts.first_position if padding is None else padding


def limit_of(tokenizer: PreTrainedTokenizerBase, asked: Limit, spec: ModelSpec | None = None) -> Limit:
    """The one limit on a row in force: the smallest of what was asked, and what tokenizer and model take."""
    return _smallest(asked, stated_limit(tokenizer), None if spec is None else spec.max_length)


def target_limit_of(tokenizer: PreTrainedTokenizerBase, asked: Limit, spec: ModelSpec | None = None) -> Limit:
    """The same for targets. A tokenizer's limit is one on what is read, so a model that says more about it is asked."""
    theirs = None if spec is None else spec.max_target_length
    return _smallest(asked, stated_limit(tokenizer) if theirs is None else theirs)


def _smallest(*limits: Limit) -> Limit:
    return min((int(limit) for limit in limits if limit is not None), default=None)


def taken_by(spec: ModelSpec | None, name: str, limit: Limit) -> str | None:
    """Return the model's name if the limit in force is its own, for messages."""
    return spec.name if spec is not None and limit is not None and getattr(spec, name) == limit else None


def below_model(spec: ModelSpec | None, tokenizer: PreTrainedTokenizerBase, limit: Limit) -> Limit:
    """Return how many tokens a model takes if the tokenizer's own limit, which is in force, is lower, for messages."""
    takes = None if spec is None else spec.max_length
    is_lower = takes is not None and limit is not None and limit < takes
    return takes if is_lower and limit == stated_limit(tokenizer) else None


def limits_of(
    asked: Mapping[str, Limit], tokenizer: PreTrainedTokenizerBase, spec: ModelSpec | None, positions: Limit = None
) -> tuple[dict[str, Limit], list[str]]:
    """The limits in force, of rows and of targets, and what to say where they are lower than was asked.

    `positions` is how many an embedding's encoding has, where it brings one that ends.
    """
    others = limit_of(tokenizer, asked["max_length"], spec)
    in_force = {
        "max_length": _smallest(others, positions),
        "max_target_length": target_limit_of(tokenizer, asked["max_target_length"], spec),
    }
    whose = "the encoding of embedding=" if in_force["max_length"] != others else None
    told = [
        beyond(name, given, limit, (name == "max_length" and whose) or taken_by(spec, name, limit))
        for name, limit in in_force.items()
        if (given := asked[name]) is not None and limit is not None and limit < given
    ]
    return in_force, told


def wants_look_ahead(spec: ModelSpec | None, asked: bool | None) -> bool:
    """Whether a batch has `look_ahead_mask`: unless told otherwise, where there is no model, or it names it."""
    return bool(asked if asked is not None else spec is None or "look_ahead_mask" in spec.accepts)


def decoder_start(spec: ModelSpec | None, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the first of `decoder_input_ids`; `None` if the model shifts `labels` itself, or reads no such ids."""
    if spec is not None:
        shifts = spec.shifts_labels and "labels" in spec.accepts
        if shifts or "decoder_input_ids" not in spec.accepts:
            return None
        if spec.decoder_start_token_id is not None:
            return spec.decoder_start_token_id
    known = (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return next((int(token) for token in known if token is not None), 0)


def padding_shifts_tokens(spec: ModelSpec, side: PaddingSide) -> bool:
    """Whether padding on this side changes what real tokens get, and no `position_ids` can tell the model better."""
    # Where only distances between tokens count, moving all of them changes nothing.
    by_distance = bool(spec.positions) and not spec.counts_tokens
    return side == "left" and spec.left_padding_shifts and "position_ids" not in spec.accepts and not by_distance


def was_looked_at(spec: ModelSpec) -> bool:
    """Return True if more than the names of the forward is known: a module of one's own may be causal, or not."""
    return bool(spec.positions) or spec.is_causal or spec.is_encoder_decoder


def takes_documents(spec: ModelSpec) -> bool:
    """Whether a model of one's own tells packed documents apart itself."""
    return "document_ids" in spec.accepts


def fitted(batch: Batch, spec: ModelSpec) -> Batch:
    r"""Leaves in a batch what the model's forward names, and never both ids and embeddings.

    Args:
        batch (`Batch`): a fresh one, which is changed. `document_ids` without `attention_mask`, those of packed rows,
            become the mask that isolates documents.
        spec (`ModelSpec`): the model.

    Returns:
        The same `Batch`; `input_ids`, or else `inputs_embeds`, first.

    Raises:
        ValueError: if the model reads embeddings and there are none, or would add positions to them once more.

    Example:
        >>> spec = ModelSpec(accepts=("input_ids", "attention_mask"))
        >>> list(fitted(Batch({"input_ids": 1, "attention_mask": 2, "position_ids": 3}), spec))
        ['input_ids', 'attention_mask']
    """
    if "document_ids" in batch and "attention_mask" not in batch and not takes_documents(spec):
        batch["attention_mask"] = _isolating(batch["document_ids"], spec)
    labels = batch.get("labels")
    if labels is not None and labels.ndim == 2 and "decoder_input_ids" not in batch:
        # As DataCollatorForSeq2Seq does: a loss that is made outside of the model, with smoothed labels, needs them.
        made = spec.decoder_input_ids(torch.as_tensor(labels))
        if made is not None:
            batch["decoder_input_ids"] = made.numpy() if isinstance(labels, np.ndarray) else made
    for name in [name for name in batch if name not in spec.accepts]:
        del batch[name]
    if "inputs_embeds" in batch:
        if spec.positions:
            raise ValueError(
                explain(
                    f"{spec.name} adds its own positions ({', '.join(spec.positions)}), and the rows bring "
                    "inputs_embeds, which hold positions where store_embeddings made them",
                    fix='dataset.remove_columns("inputs_embeds"), or, for vectors without positions, '
                    "collate.replace(model=dataclasses.replace(collate.model, positions=()))",
                )
            )
        rest = {name: value for name, value in batch.items() if name != "input_ids"}
        batch.clear()
        batch.update({"inputs_embeds": rest.pop("inputs_embeds"), **rest})
    elif "input_ids" not in batch:
        raise ValueError(
            explain(
                f"{spec.name} reads inputs_embeds, and this collator makes none",
                got="no table, and rows without a column 'inputs_embeds'",
                fix="embedding=table; in a worker collate without model=, and collate.embed(batch) in the loop",
            )
        )
    return batch


def _isolating(documents: Any, spec: ModelSpec) -> Any:
    """The additive mask (B, 1, T, T) in the model's dtype, or one for each kind of layer; for an array, arrays."""
    mask = AttentionMask.from_batch({"document_ids": documents}).for_hf(spec, dims=4)
    if not isinstance(documents, np.ndarray):
        return mask
    if isinstance(mask, dict):
        return {kind: _array(each) for kind, each in mask.items()}
    return _array(mask)


def _array(mask: torch.Tensor) -> Any:
    return (mask.float() if mask.dtype == torch.bfloat16 else mask).numpy()  # NumPy has no bf16
