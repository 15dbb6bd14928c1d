"""The `attention_mask` for a Hugging Face model: `None`, or a tensor of two or four dimensions.

Four dimensions are used only if two cannot express the mask. `ModelSpec` describes the masks that a model takes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch

from .._common.errors import require_one_of, value_error
from ..models import LayerMasks, ModelSpec, opened
from .description import Description
from .document_numbers import documents_of_batch
from .structure import Spans, spans_of


class HuggingFaceForms(Description):
    """Base class of `AttentionMask`, not used directly, with its method for Hugging Face models, `for_hf`."""

    def for_hf(
        self,
        model_or_spec: Any,
        *,
        dims: Literal[2, 4] | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
    ) -> Any:
        r"""Return this mask as the `attention_mask` argument of a Hugging Face model.

        Args:
            model_or_spec (`PreTrainedModel` or `ModelSpec`): the model, or its `ModelSpec.of(model)`. A model is run on
                a few tokens in each call; a `ModelSpec` is not, so it is faster.
            dims (2 or 4, *optional*): number of dimensions; by default two if they can express the mask, else four.
            position_ids (`torch.Tensor` `(B, T)` or `(1, T)`, *optional*): the position ids passed to the model. If
                they restart with each document, some models need no mask.
            use_cache (`bool`, *optional*): the value passed to the model. By default, the value in the model's
                configuration; True for a `ModelSpec`.

        Returns:
            One of three forms:

            - `torch.Tensor` `(B, K)` int64, 1 at real tokens, if the mask hides only padding and tokens that the model
              hides itself, such as later tokens in a causal model.
            - `None` for packed documents, if the model itself separates documents where `position_ids` restart. This
              requires `position_ids`, and no cache (`use_cache=False`).
            - `torch.Tensor` `(B, 1, T, T)` in the model's dtype for all other masks: packed documents, windows,
              prefixes, and later tokens in a model that is not causal. It is 0 at visible keys and the lowest finite
              number at hidden ones. It also hides later tokens if the model is causal, and includes the model's window.
              If layers have different windows and a document is longer than the window, the result is a `dict` of such
              tensors, one for each kind of layer.

        Raises:
            ValueError: if the model takes no mask of the required form, if `dims=2` cannot express the mask, or if
                `position_ids` restart in the middle of a document or have another shape.

        Example:
            >>> from hf_posenc import AttentionMask, ModelSpec
            >>> bert = ModelSpec(name="Bert", accepts=("input_ids", "attention_mask"), takes_4d_mask=True)
            >>> AttentionMask.from_lengths([2, 1]).for_hf(bert)
            tensor([[1, 1],
                    [1, 0]])
            >>> AttentionMask.from_documents([[2, 1]]).for_hf(bert).shape
            torch.Size([1, 1, 3, 3])
        """
        require_one_of("dims", dims, (None, 2, 4))
        spec = ModelSpec.of(model_or_spec)
        if "attention_mask" not in spec.accepts:
            raise value_error(
                f"{spec.name} takes no attention_mask, so it would see padding and other documents",
                got=f"forward({', '.join(spec.accepts)})",
                fix="rows of equal length without padding, one document each",
            )
        if position_ids is not None:
            _check_restarts(self.documents, position_ids)
        reason = self._reason_for_four(spec)
        if reason is None and dims != 4:
            return (self.documents >= 0).long()  # (B, K)
        if dims == 2:
            fix = "dims=None, or one document a row"
            raise value_error("a mask of two dimensions can only express padding", got=reason, fix=fix)
        # Nothing is hidden but padding, other documents and, in a causal model, later tokens.
        is_plain = self.prefix is None and self._layout.window is None
        is_plain = is_plain and (spec.is_causal or not self.look_ahead)
        if dims is None and position_ids is not None and is_plain and spec.isolates_by_position_ids:
            if use_cache is None:
                config = None if isinstance(model_or_spec, ModelSpec) else opened(model_or_spec).config
                use_cache = bool(getattr(config, "use_cache", True))
            uninterrupted = bool(self._spans().whole[:, 1:].all())
            if not use_cache and uninterrupted and _isolated_by(self.documents, position_ids):
                return None
        if self.is_cross or not spec.takes_4d_mask:
            raise value_error(
                f"{spec.name} does not take an attention_mask of four dimensions"
                + (" for cross-attention" if self.is_cross else ""),
                got=reason or "dims=4",
                fix="position_ids=ids that restart with each document, use_cache=False"
                if spec.isolates_by_position_ids and not self.is_cross
                else "one document a row, and dims=None",
            )
        return self._four_dimensions(spec)

    def _reason_for_four(self, spec: ModelSpec) -> str | None:
        """Return the reason why the model needs a mask of four dimensions, for a message; `None` if two are enough."""
        layout = self._layout
        if self.is_packed:
            return "several documents share a row"
        if self.prefix is not None and (layout.prefix or not layout.look_ahead):
            return "a prefix is visible to tokens before it"
        if layout.window is not None and (spec.layer_kinds or spec.window != layout.window):
            return f"a window of {layout.window} tokens, and {spec.name} has another, or none"
        if layout.look_ahead and not spec.is_causal:
            return f"later tokens must be hidden, and {spec.name} is not causal"
        return None

    def _four_dimensions(self, spec: ModelSpec) -> Any:
        """Return the additive mask `(B, 1, T, T)` for a model that needs four dimensions."""
        # It includes the look-ahead and window of the model itself, because a model does not add them to a 4D mask.
        mask = self if self.look_ahead or not spec.is_causal else dataclasses.replace(self, look_ahead=True)
        # Additive and finite: a bool mask is silently wrong under eager attention, and -inf gives NaN at padding on the
        # left. In the dtype of the model: the lowest float32 becomes -inf in bfloat16.
        dtype = getattr(torch, spec.dtype)
        if spec.window is None or self._longest() <= spec.window:
            return mask.additive(dtype)  # (B, 1, T, T)
        window = spec.window if self.window is None else min(spec.window, self.window)
        near = dataclasses.replace(mask, window=window)
        if not spec.layer_kinds:
            return near.additive(dtype)
        return LayerMasks(
            {kind: (near if kind == "sliding_attention" else mask).additive(dtype) for kind in spec.layer_kinds}
        )

    def _spans(self) -> Spans:
        return spans_of(self._numbers, self.documents >= 0)

    def _longest(self) -> int:
        """Return the largest number of columns between the first and the last token of a document, both included."""
        spans = self._spans()
        lengths = (spans.after - spans.first)[:, 1:]
        return int(lengths.amax()) if lengths.numel() else 0


def _check_restarts(documents: torch.Tensor, position_ids: torch.Tensor) -> None:
    """Raise if `position_ids` restart in the middle of a document, or do not have the shape of `documents`."""
    if position_ids.shape not in (documents.shape, (1, documents.shape[1])):
        raise value_error(
            "position_ids must have the shape of the mask, (batch, length)",
            got=f"{tuple(position_ids.shape)} and {tuple(documents.shape)}",
            fix="position_ids_from_documents([[5, 9], [11]])",
        )
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
