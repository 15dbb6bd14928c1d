"""A description of who may attend to whom, in the form that a Hugging Face model takes.

Two dimensions where they can say it, and four only where they cannot; which models take four was found by running them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from .._explain import explain, one_of
from ..model_spec import ModelSpec

if TYPE_CHECKING:
    from .attention_mask import AttentionMask


def attention_mask_for(mask: AttentionMask, model_or_spec: Any, dims: Literal[2, 4] | None) -> torch.Tensor:
    """See `AttentionMask.for_hf`."""
    if dims not in (None, 2, 4):
        raise ValueError(one_of("dims", dims, (None, 2, 4)))
    spec = ModelSpec.of(model_or_spec)
    if "attention_mask" not in spec.accepts:
        raise ValueError(
            explain(
                f"{spec.name} takes no attention_mask, so it would see padding and other documents",
                got=f"forward({', '.join(spec.accepts)})",
                fix="rows of equal length without padding, one document each",
            )
        )
    why = None
    if mask.is_packed:
        why = "several documents share a row"
    elif mask.look_ahead and not spec.is_causal:
        why = f"look-ahead is to be hidden, and {spec.name} hides none by itself"
    if why is None and dims != 4:
        return (mask.documents >= 0).long()  # (B, T)
    if dims == 2:
        raise ValueError(
            explain("two dimensions say where padding is, and no more", got=why, fix="dims=None, or one document a row")
        )
    if not spec.takes_4d_mask:
        raise ValueError(
            explain(
                f"{spec.name} does not take an attention_mask of four dimensions",
                got=why or "dims=4",
                fix="one document a row, and dims=None",
            )
        )
    # The model adds nothing to four dimensions, not even its own causality.
    whole = mask if mask.look_ahead or not spec.is_causal else type(mask)(mask.documents, look_ahead=True)
    return whole.additive(getattr(torch, spec.dtype))  # (B, 1, T, T)
