"""A description of who may attend to whom, in the form that a Hugging Face model takes.

Two dimensions where they can say it, and four only where they cannot; which models take four was found by running them.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from .._explain import explain, one_of
from ..model_spec import ModelSpec
from .dense import DenseForms


class HuggingFaceForms(DenseForms):
    """`for_hf`."""

    def for_hf(self, model_or_spec: Any, *, dims: Literal[2, 4] | None = None) -> torch.Tensor:
        r"""What to give a Hugging Face model as `attention_mask`.

        Args:
            model_or_spec (`PreTrainedModel` or `ModelSpec`): the model, which is looked at anew each time, or what
                `ModelSpec.of(model)` said of it.
            dims (2 or 4, *optional*): two wherever that says everything, else four.

        Returns:
            `torch.Tensor` `(B, T)` int64, 1 at real tokens, for padding alone: a causal model hides what comes later
            itself. `(B, 1, T, T)` in the model's dtype, 0 or its lowest finite number, for packed documents and for
            look-ahead in a model that hides none; a causal model's own look-ahead is in it. On the description's
            device.

        Raises:
            ValueError: if the model takes no such mask, or two dimensions are asked for and cannot say it.

        Example:
            >>> from hf_posenc import AttentionMask, ModelSpec
            >>> bert = ModelSpec(name="Bert", accepts=("input_ids", "attention_mask"), takes_4d_mask=True)
            >>> AttentionMask.from_lengths([2, 1]).for_hf(bert)
            tensor([[1, 1],
                    [1, 0]])
            >>> AttentionMask.from_documents([[2, 1]]).for_hf(bert).shape
            torch.Size([1, 1, 3, 3])
        """
        mask = self
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
                explain(
                    "two dimensions say where padding is, and no more", got=why, fix="dims=None, or one document a row"
                )
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
