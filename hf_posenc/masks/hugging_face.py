"""The `attention_mask` for a Hugging Face model: `None`, or a tensor of two or four dimensions.

Four dimensions are used only if two cannot express the mask. `ModelSpec` describes the masks that a model takes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import torch

from .._common.errors import require_one_of, value_error
from ..models import LayerMasks, ModelSpec, opened
from .document_numbers import documents_of_batch
from .structure import spans_of

if TYPE_CHECKING:
    from .attention_mask import AttentionMask


def mask_for_model(
    mask: AttentionMask,
    model_or_spec: Any,
    dims: Literal[2, 4] | None,
    position_ids: torch.Tensor | None,
    use_cache: bool | None,
) -> Any:
    """Return the result of `AttentionMask.for_hf`."""
    require_one_of("dims", dims, (None, 2, 4))
    spec = ModelSpec.of(model_or_spec)
    if "attention_mask" not in spec.accepts:
        raise value_error(
            f"{spec.name} takes no attention_mask, so it would see padding and other documents",
            got=f"forward({', '.join(spec.accepts)})",
            fix="rows of equal length without padding, one document each",
        )
    if position_ids is not None:
        _check_restarts(mask.documents, position_ids)
    reason = None if dims == 4 else _reason_for_four(mask, spec)
    if reason is None and dims != 4:
        return (mask.documents >= 0).long()  # (B, K)
    if dims == 2:
        fix = "dims=None, or one document a row"
        raise value_error("a mask of two dimensions can only express padding", got=reason, fix=fix)
    # Nothing is hidden but padding, other documents and, in a causal model, later tokens.
    is_plain = mask.prefix is None and mask._layout.window is None
    is_plain = is_plain and (spec.is_causal or not mask.look_ahead)
    if dims is None and position_ids is not None and is_plain and spec.isolates_by_position_ids:
        if use_cache is None:
            config = None if isinstance(model_or_spec, ModelSpec) else opened(model_or_spec).config
            use_cache = bool(getattr(config, "use_cache", True))
        uninterrupted = bool(spans_of(mask._numbers, mask.documents >= 0).whole[:, 1:].all())
        if not use_cache and uninterrupted and _isolated_by(mask.documents, position_ids):
            return None
    if mask.queries is not None or not spec.takes_4d_mask:
        raise value_error(
            f"{spec.name} does not take this attention_mask, which needs four dimensions",
            got=f"{reason or 'dims=4'}, {mask!r}",
            fix="one document a row, and dims=None; for a model that isolates by positions, position_ids=ids that "
            "restart with each document, use_cache=False",
        )
    return _four_dimensions(mask, spec)


def _reason_for_four(mask: AttentionMask, spec: ModelSpec) -> str | None:
    """Return the reason why the model needs a mask of four dimensions, for a message; `None` if two are enough."""
    layout = mask._layout
    if mask.is_packed:
        return "several documents share a row"
    if mask.prefix is not None and (layout.prefix or not layout.look_ahead):
        return "a prefix is visible to tokens before it"
    if layout.window is not None and (spec.layer_kinds or spec.window != layout.window):
        return f"a window of {layout.window} tokens, and {spec.name} has another, or none"
    if layout.look_ahead and not spec.is_causal:
        return f"later tokens must be hidden, and {spec.name} is not causal"
    return None


def _four_dimensions(mask: AttentionMask, spec: ModelSpec) -> Any:
    """Return the additive mask `(B, 1, T, T)` for a model that needs four dimensions."""
    # It includes the look-ahead and window of the model itself, because a model does not add them to a 4D mask.
    mask = mask if mask.look_ahead or not spec.is_causal else dataclasses.replace(mask, look_ahead=True)
    # Additive and finite: a bool mask is silently wrong under eager attention, and -inf gives NaN at padding on the
    # left. In the dtype of the model: the lowest float32 becomes -inf in bfloat16.
    dtype = getattr(torch, spec.dtype)
    spans = spans_of(mask._numbers, mask.documents >= 0)
    if spec.window is None or not bool(((spans.after - spans.first)[:, 1:] > spec.window).any()):  # of any document
        return mask.additive(dtype)  # (B, 1, T, T)
    window = spec.window if mask.window is None else min(spec.window, mask.window)
    near = dataclasses.replace(mask, window=window)
    if not spec.layer_kinds:
        return near.additive(dtype)
    return LayerMasks(
        {kind: (near if kind == "sliding_attention" else mask).additive(dtype) for kind in spec.layer_kinds}
    )


def _check_restarts(documents: torch.Tensor, position_ids: torch.Tensor) -> None:
    """Raise if `position_ids` restart in the middle of a document, or do not have the shape of `documents`."""
    restarted = documents_of_batch(
        {"attention_mask": documents >= 0, "position_ids": position_ids.to(documents.device)}
    )
    same_document = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    wrong = (same_document & (restarted[:, 1:] != restarted[:, :-1])).nonzero()
    if len(wrong):
        raise value_error(
            "position_ids restart in the middle of a document: these are packed rows, and this mask does not keep "
            "their documents apart",
            got=f"row {int(wrong[0, 0])}, column {int(wrong[0, 1]) + 1}",
            fix='AttentionMask.from_batch({"attention_mask": mask, "position_ids": position_ids})',
        )


def _isolated_by(documents: torch.Tensor, position_ids: torch.Tensor) -> bool:
    """Return True if `position_ids` make a transformers model isolate exactly the documents in `documents`."""
    # Such a model begins a document at each position that is not the previous position plus one.
    steps = position_ids.to(documents.device).diff(dim=1).expand(len(documents), -1)
    before, after = documents[:, :-1], documents[:, 1:]
    padding = (before < 0) & (after < 0)
    return bool((((steps == 1) == (before == after)) | padding).all())
