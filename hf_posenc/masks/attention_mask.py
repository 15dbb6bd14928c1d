"""A small description of who may attend to whom in a batch, and its renderings.

It holds one number a token, and nothing of size T×T until a rendering is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain
from .hugging_face import attention_mask_for
from .plain import PaddingSide, additive_mask, as_integers, as_length, look_ahead_mask, padding_mask
from .reading import documents_of_batch, documents_of_lengths


class _Layout(NamedTuple):
    """What decides which rendering is the cheapest. Plain bools: caching them shares no memory with anything."""

    full: bool  # no padding
    from_the_start: bool  # no padding before a real token: right padding, or none
    one_document: bool  # in each row


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMask:
    r"""Who may attend to whom: padding, documents that share a row, and look-ahead, in each library's words.

    A token may attend to the real tokens of its own document; with `look_ahead`, to those up to and including itself.
    `hf_posenc.masks` says what True means where, and what happens to queries at padding: in short, all renderings agree
    on every real token and none of them makes NaN.

    Make one with `from_batch`, `from_lengths` or `from_documents`.

    Args:
        documents (`torch.Tensor` `(B, T)`, integer): which document each token belongs to; negative at padding. Numbers
            count within a row only.
        look_ahead (`bool`, *optional*, defaults to `False`): hide what comes later (causal attention).

    Raises:
        ValueError: if `documents` does not have two dimensions.
        TypeError: if it does not hold whole numbers.

    Example:
        >>> mask = AttentionMask.from_lengths([3, 2], look_ahead=True)
        >>> mask
        AttentionMask(rows=2, length=3, tokens=5, look_ahead=True, packed=False, device=cpu)
        >>> mask.for_sdpa()     # right padding needs no mask when nobody looks ahead
        {'is_causal': True}
        >>> mask.dense()[1, 0]
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True, False]])
    """

    documents: torch.Tensor
    look_ahead: bool = False

    def __post_init__(self) -> None:
        as_integers(self.documents, "documents", dims=2, example="AttentionMask.from_documents([[5, 9], [11]])")

    # ------------------------------------------------------------------------------------------------------ making one

    @classmethod
    def from_batch(cls, batch: Mapping[str, Any], *, look_ahead: bool = False) -> AttentionMask:
        r"""Reads the description off a batch.

        Args:
            batch (mapping): with `attention_mask` `(B, T)`, 1 or True at real tokens. Where `document_ids` `(B, T)` are
                there too, tokens with equal numbers in a row are one document (negative: padding); otherwise, where
                `position_ids` `(B, T)` are there, a new document begins wherever they restart.
            look_ahead (`bool`, *optional*, defaults to `False`): hide what comes later.

        Returns:
            `AttentionMask` on the device of the batch (the CPU for arrays and lists); it shares no memory with it.

        Raises:
            ValueError: if the batch says nothing about padding, or shapes do not fit.
            TypeError: if `batch` is not a mapping.

        Example:
            >>> AttentionMask.from_batch({"attention_mask": [[1, 1, 1], [0, 1, 1]]}, look_ahead=True)
            AttentionMask(rows=2, length=3, tokens=5, look_ahead=True, packed=False, device=cpu)
            >>> packed = {"attention_mask": [[1, 1, 1, 1]], "position_ids": [[0, 1, 0, 1]]}
            >>> AttentionMask.from_batch(packed).dense()[0, 0]
            tensor([[ True,  True, False, False],
                    [ True,  True, False, False],
                    [False, False,  True,  True],
                    [False, False,  True,  True]])
        """
        return cls(documents_of_batch(batch), look_ahead)

    @classmethod
    def from_lengths(
        cls,
        lengths: torch.Tensor | NDArray[np.integer[Any]] | Sequence[int],
        max_length: int | None = None,
        *,
        look_ahead: bool = False,
        padding_side: PaddingSide = "right",
        device: torch.device | str | None = None,
    ) -> AttentionMask:
        r"""One document a row, of the given lengths.

        Args:
            lengths (`torch.Tensor`, `np.ndarray` or sequence of `int`, `(B,)`): real tokens in each row; 0 is allowed.
            max_length (`int`, *optional*): T; by default the largest length.
            look_ahead (`bool`, *optional*, defaults to `False`): hide what comes later.
            padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.
            device (*optional*): where to render; by default the device of `lengths`.

        Returns:
            `AttentionMask`.

        Raises:
            ValueError: as `padding_mask`.
            TypeError: as `padding_mask`.

        Example:
            >>> AttentionMask.from_lengths([2, 2]).for_sdpa()     # nothing to hide
            {}
        """
        real = padding_mask(lengths, max_length, padding_side=padding_side)
        return cls(real.long() - 1, look_ahead).to(device)

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Sequence[int]],
        max_length: int | None = None,
        *,
        look_ahead: bool = False,
        padding_side: PaddingSide = "right",
        device: torch.device | str | None = None,
    ) -> AttentionMask:
        r"""Packed rows: several documents in one row, which do not see each other.

        Args:
            documents (sequence of sequences of `int`): for each row the lengths of its documents, in order.
            max_length (`int`, *optional*): T; by default the sum of the fullest row.
            look_ahead (`bool`, *optional*, defaults to `False`): hide what comes later in a document.
            padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.
            device (*optional*): where to render; by default the CPU.

        Returns:
            `AttentionMask`.

        Raises:
            ValueError: if a document has no tokens, or a row more than `max_length`.
            TypeError: if the lengths are not whole numbers.

        Example:
            >>> AttentionMask.from_documents([[2, 1]], 4, look_ahead=True).dense()[0, 0].int()
            tensor([[1, 0, 0, 0],
                    [1, 1, 0, 0],
                    [0, 0, 1, 0],
                    [1, 1, 1, 0]], dtype=torch.int32)
        """
        return cls(documents_of_lengths(documents, max_length, padding_side), look_ahead).to(device)

    def to(self, device: torch.device | str | None, *, non_blocking: bool = False) -> AttentionMask:
        r"""The same description with its renderings on another device; `None` is where it is.

        What was found out on the CPU about padding goes along, so that rendering on an accelerator waits for nothing.

        Example:
            >>> AttentionMask.from_lengths([2]).to("cpu").for_sdpa()
            {}
        """
        if device is None or self.documents.device == torch.device(device):
            return self
        moved = dataclasses.replace(self, documents=self.documents.to(device, non_blocking=non_blocking))
        moved.__dict__["_layout"] = self._layout
        return moved

    # ------------------------------------------------------------------------------------------------------ renderings

    def dense(self) -> torch.Tensor:
        r"""The whole matrix.

        Returns:
            `torch.Tensor` `(B, 1, T, T)` bool on the description's device, in memory of its own; True = query i (third
            dimension) may attend to key j (last). No row of it is all False.

        Example:
            >>> AttentionMask.from_lengths([1], 2).dense()
            tensor([[[[ True, False],
                      [ True, False]]]])
        """
        rows, length = self.documents.shape
        keys = self._keys()  # (B, T)
        if self._layout.one_document:
            may_attend = keys[:, None, :].expand(rows, length, length).contiguous()  # (B, T, T)
        else:
            query, key = self.documents[:, :, None], self.documents[:, None, :]
            may_attend = query == key  # (B, T, T)
            if not self._layout.full:
                # A query at padding belongs to no document; it sees what it would see without any.
                may_attend.logical_or_(query < 0).logical_and_(keys[:, None, :])
        if self.look_ahead:
            may_attend.tril_()
            if not self._layout.from_the_start:
                sees_nothing = ~keys.cummax(dim=-1).values  # (B, T): nobody stands at or before it
                may_attend.diagonal(dim1=-2, dim2=-1).logical_or_(sees_nothing)
        return may_attend[:, None]

    def additive(self, dtype: torch.dtype = torch.float32, value: float | None = None) -> torch.Tensor:
        r"""The form that is added to attention scores: 0, or a large negative number.

        Args:
            dtype (`torch.dtype`, *optional*, defaults to float32): of the scores.
            value (`float`, *optional*, defaults to `torch.finfo(dtype).min`): the negative number, finite in `dtype`.

        Returns:
            `torch.Tensor` `(B, 1, T, T)` of `dtype` on the description's device, in memory of its own.

        Raises:
            ValueError: if `value` is not negative, or not finite in `dtype`.

        Example:
            >>> AttentionMask.from_lengths([1], 2).additive(value=-1e9)
            tensor([[[[ 0.0000e+00, -1.0000e+09],
                      [ 0.0000e+00, -1.0000e+09]]]])
        """
        return additive_mask(self.dense(), dtype, value=value)

    def for_sdpa(self) -> dict[str, Any]:
        r"""Keyword arguments for `torch.nn.functional.scaled_dot_product_attention` on `(B, heads, T, width)`.

        Returns:
            `dict`: empty where nothing is hidden; `is_causal=True` alone where what comes later is all there is to
            hide from real tokens (right padding included: faster, and exact on them); else `attn_mask` alone, bool,
            `(B, 1, 1, T)` without look-ahead and documents, `(B, 1, T, T)` with them.

        Example:
            >>> AttentionMask.from_lengths([2, 1]).for_sdpa()
            {'attn_mask': tensor([[[[ True,  True]]],
            <BLANKLINE>
            <BLANKLINE>
                    [[[ True, False]]]])}
        """
        if self._layout.one_document:
            if self.look_ahead and self._layout.from_the_start:
                return {"is_causal": True}
            if not self.look_ahead:
                return {} if self._layout.full else {"attn_mask": self._keys()[:, None, None, :]}
        return {"attn_mask": self.dense()}

    def for_multihead_attention(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for `torch.nn.MultiheadAttention`, where True means "must not be attended to".

        Args:
            num_heads (`int`, *optional*): the module's `num_heads`. Needed only where rows have different matrices
                (look-ahead over left padding, packed rows), because the module wants one matrix for each head then.

        Returns:
            `dict` of bool tensors, at most one: `key_padding_mask` `(B, T)`, or `attn_mask` `(T, T)` or
            `(B * num_heads, T, T)`. Never both, because together they could leave a query with nothing to see.

        Raises:
            ValueError: if `num_heads` is needed and not given.

        Example:
            >>> AttentionMask.from_lengths([2, 1]).for_multihead_attention()
            {'key_padding_mask': tensor([[False, False],
                    [False,  True]])}
            >>> left = AttentionMask.from_lengths([2, 1], look_ahead=True, padding_side="left")
            >>> left.for_multihead_attention(num_heads=4)["attn_mask"].shape
            torch.Size([8, 2, 2])
        """
        rows, length = self.documents.shape
        if self._layout.one_document:
            if not self.look_ahead:
                return {} if self._layout.full else {"key_padding_mask": ~self._keys()}
            if self._layout.from_the_start:
                return {"attn_mask": ~look_ahead_mask(length, device=self.documents.device)}
        if rows == 1:
            return {"attn_mask": ~self.dense()[0, 0]}
        if num_heads is None:
            why = (
                "look-ahead over padding that is not on the right" if self._layout.one_document else "packed documents"
            )
            raise ValueError(
                explain(
                    f"{why}: torch's modules want one mask for each row and head, so num_heads is needed",
                    got=f"num_heads=None for {rows} rows",
                    fix="num_heads=module.num_heads (for a TransformerEncoderLayer, module.self_attn.num_heads)",
                )
            )
        if as_length(num_heads, "num_heads") < 1:
            raise ValueError(explain("num_heads must be positive", got=num_heads, fix="num_heads=module.num_heads"))
        # The module reads the first dimension as (batch, head), heads running fastest.
        return {"attn_mask": (~self.dense()).expand(rows, num_heads, length, length).flatten(0, 1)}

    def for_transformer_encoder(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for the forward of `torch.nn.TransformerEncoder`.

        Args:
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` of bool tensors, at most one: `src_key_padding_mask` or `mask`, True = must not be attended to.

        Raises:
            ValueError: if `num_heads` is needed and not given.

        Example:
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder()
            {'mask': tensor([[False,  True],
                    [False, False]])}
        """
        names = {"key_padding_mask": "src_key_padding_mask", "attn_mask": "mask"}
        return {names[name]: mask for name, mask in self.for_multihead_attention(num_heads).items()}

    def for_transformer_encoder_layer(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for the forward of one `torch.nn.TransformerEncoderLayer`, which says `src_mask`.

        Args:
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` of bool tensors, at most one: `src_key_padding_mask` or `src_mask`, True = must not be attended to.

        Raises:
            ValueError: if `num_heads` is needed and not given.

        Example:
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder_layer()
            {'src_mask': tensor([[False,  True],
                    [False, False]])}
        """
        names = {"key_padding_mask": "src_key_padding_mask", "attn_mask": "src_mask"}
        return {names[name]: mask for name, mask in self.for_multihead_attention(num_heads).items()}

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
            >>> from hf_posenc import ModelSpec
            >>> bert = ModelSpec(name="Bert", accepts=("input_ids", "attention_mask"), takes_4d_mask=True)
            >>> AttentionMask.from_lengths([2, 1]).for_hf(bert)
            tensor([[1, 1],
                    [1, 0]])
            >>> AttentionMask.from_documents([[2, 1]]).for_hf(bert).shape
            torch.Size([1, 1, 3, 3])
        """
        return attention_mask_for(self, model_or_spec, dims)

    @property
    def is_packed(self) -> bool:
        """Whether a row holds more than one document."""
        return not self._layout.one_document

    # ---------------------------------------------------------------------------------------------------------- inside

    def _keys(self) -> torch.Tensor:
        """Which keys may be seen at all, `(B, T)` bool, fresh: the real tokens; every one where a row has none."""
        real = self.documents >= 0
        return real | ~real.any(dim=-1, keepdim=True)

    @cached_property
    def _layout(self) -> _Layout:
        keys = self._keys()
        gap_before = keys[:, 1:] & ~keys[:, :-1]  # a real token right after padding
        largest = self.documents.amax(dim=-1, keepdim=True) if keys.numel() else self.documents
        another = (self.documents >= 0) & (self.documents != largest)
        # One transfer for three answers: on an accelerator each would wait for the device.
        padded, gaps, several = torch.stack([~keys.all(), gap_before.any(), another.any()]).tolist()
        return _Layout(full=not padded, from_the_start=not gaps, one_document=not several)

    def __repr__(self) -> str:
        rows, length = self.documents.shape
        return (
            f"AttentionMask(rows={rows}, length={length}, tokens={int((self.documents >= 0).sum())}, "
            f"look_ahead={self.look_ahead}, packed={self.is_packed}, device={self.documents.device})"
        )
