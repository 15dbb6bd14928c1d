"""A description of who may attend to whom, in the form that a Hugging Face model takes.

Nothing where positions say it, two dimensions where they can, and four only where they cannot; what a model does with
each was found by running it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch

from .._explain import explain, one_of
from .._huggingface import opened
from ..model_spec import LayerMasks, ModelSpec
from .dense import DenseForms
from .layout import numbers_of
from .restarts import isolated_by, restarts_inside
from .runs import Spans, spans_of


class HuggingFaceForms(DenseForms):
    """`for_hf`."""

    def for_hf(
        self,
        model_or_spec: Any,
        *,
        dims: Literal[2, 4] | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
    ) -> Any:
        r"""What to give a Hugging Face model as `attention_mask`.

        Args:
            model_or_spec (`PreTrainedModel` or `ModelSpec`): the model, which is looked at anew each time, or what
                `ModelSpec.of(model)` said of it.
            dims (2 or 4, *optional*): two wherever that says everything, else four.
            position_ids (`torch.Tensor` `(B, T)` or `(1, T)`, *optional*): those that the model will be given. Where
                they restart with each document, some models need no mask.
            use_cache (`bool`, *optional*): what the model will be given; by default what its configuration says, and
                for a `ModelSpec` True. With a cache, positions isolate nothing.

        Returns:
            `torch.Tensor` `(B, K)` int64, 1 at real tokens, for padding alone: a causal model hides what comes later
            itself. For packed documents, windows, prefixes, and look-ahead in a model that hides none, `(B, 1, T, T)`
            in the model's dtype, 0 or its lowest finite number; a causal model's own look-ahead and windows are in it,
            and where layers differ it is a dict of two such. `None` for packed documents where positions restart, no
            cache is used, and the model tells documents apart by that: a mask of ones would switch this off.

        Raises:
            ValueError: if the model takes no such mask; if two dimensions are asked for and cannot say it; if positions
                restart in the middle of a document.

        Example:
            >>> from hf_posenc import AttentionMask, ModelSpec
            >>> bert = ModelSpec(name="Bert", accepts=("input_ids", "attention_mask"), takes_4d_mask=True)
            >>> AttentionMask.from_lengths([2, 1]).for_hf(bert)
            tensor([[1, 1],
                    [1, 0]])
            >>> AttentionMask.from_documents([[2, 1]]).for_hf(bert).shape
            torch.Size([1, 1, 3, 3])
        """
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
        if position_ids is not None:
            _check_restarts(self.documents, position_ids)
        why = self._why_four(spec)
        if why is None and dims != 4:
            return (self.documents >= 0).long()  # (B, K)
        if dims == 2:
            fix = "dims=None, or one document a row"
            raise ValueError(explain("two dimensions say where padding is, and no more", got=why, fix=fix))
        if dims is None and position_ids is not None and self._only_packed(spec) and spec.isolates_by_position_ids:
            cached = _uses_cache(model_or_spec) if use_cache is None else use_cache
            in_one_piece = bool(self._spans().whole[:, 1:].all())
            if not cached and in_one_piece and isolated_by(self.documents, position_ids):
                return None
        if self.is_cross or not spec.takes_4d_mask:
            raise ValueError(
                explain(
                    f"{spec.name} does not take an attention_mask of four dimensions"
                    + (" for cross-attention" if self.is_cross else ""),
                    got=why or "dims=4",
                    fix="position_ids=ids that restart with each document, use_cache=False"
                    if spec.isolates_by_position_ids and not self.is_cross
                    else "one document a row, and dims=None",
                )
            )
        return self._four(spec)

    def _why_four(self, spec: ModelSpec) -> str | None:
        """What two dimensions cannot say."""
        layout = self._layout
        if self.is_packed:
            return "several documents share a row"
        if self.prefix is not None and (layout.prefix or not layout.look_ahead):
            return "a prefix is seen from before it"
        if layout.window is not None and (spec.layer_kinds or spec.window != layout.window):
            return f"a window of {layout.window} tokens, and {spec.name} has another, or none"
        if layout.look_ahead and not spec.is_causal:
            return f"look-ahead is to be hidden, and {spec.name} hides none by itself"
        return None

    def _only_packed(self, spec: ModelSpec) -> bool:
        """Whether isolating documents is all that the model does not do by itself."""
        return self.prefix is None and self.window is None and (spec.is_causal or not self.look_ahead)

    def _four(self, spec: ModelSpec) -> Any:
        """The model adds nothing to four dimensions, neither its own causality nor its own windows."""
        whole = self if self.look_ahead or not spec.is_causal else dataclasses.replace(self, look_ahead=True)
        dtype = getattr(torch, spec.dtype)
        if spec.window is None or self._longest() <= spec.window:
            return whole.additive(dtype)  # (B, 1, T, T)
        window = spec.window if self.window is None else min(spec.window, self.window)
        near = dataclasses.replace(whole, window=window)
        if not spec.layer_kinds:
            return near.additive(dtype)
        return LayerMasks(
            {kind: (near if kind == "sliding_attention" else whole).additive(dtype) for kind in spec.layer_kinds}
        )

    def _spans(self) -> Spans:
        return spans_of(numbers_of(self.documents, None, self._layout.highest), self.documents >= 0)

    def _longest(self) -> int:
        """How many places the longest document takes."""
        spans = self._spans()
        taken = (spans.after - spans.first)[:, 1:]
        return int(taken.amax()) if taken.numel() else 0


def _check_restarts(documents: torch.Tensor, position_ids: torch.Tensor) -> None:
    where = restarts_inside(documents, position_ids)
    if where is not None:
        row, column = where
        raise ValueError(
            explain(
                "position_ids restart in the middle of a document: these are packed rows, and this mask does not keep "
                "their documents apart",
                got=f"row {row}, column {column}",
                fix='AttentionMask.from_batch({"attention_mask": mask, "position_ids": position_ids})',
            )
        )


def _uses_cache(model_or_spec: Any) -> bool:
    if isinstance(model_or_spec, ModelSpec):
        return True
    config = getattr(opened(model_or_spec), "config", None)
    return bool(getattr(config, "use_cache", True))
