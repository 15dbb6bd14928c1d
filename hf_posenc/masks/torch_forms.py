"""A description as keyword arguments for torch's attention: the function, and the modules.

The modules say True for what must not be attended to; it is turned round here, and here alone.
"""

from __future__ import annotations

from typing import Any, Self

import torch

from .._explain import explain
from .dense import DenseForms
from .description import Description
from .layout import band, visible_keys
from .plain import as_length


class TorchForms(DenseForms):
    """`for_sdpa`, `for_multihead_attention` and the four forms for torch's layers and stacks of layers."""

    def for_sdpa(self) -> dict[str, Any]:
        r"""Keyword arguments for `torch.nn.functional.scaled_dot_product_attention` on `(B, heads, T, width)`.

        Returns:
            `dict`: empty where nothing is hidden; `is_causal=True` alone where what comes later is all there is to
            hide from real tokens (right padding included: faster, and exact on them); else `attn_mask` alone, bool:
            `(B, 1, 1, K)` for padding alone, `(1, 1, T, T)` where all rows have the same, else `(B, 1, Q, K)`.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2, 1], look_ahead=True).for_sdpa()
            {'is_causal': True}
            >>> AttentionMask.from_lengths([2, 1]).for_sdpa()["attn_mask"].shape
            torch.Size([2, 1, 1, 2])
        """
        layout = self._layout
        if self._hides_padding_alone:
            return {} if layout.full else {"attn_mask": visible_keys(self.documents)[:, None, None, :]}
        if self._same_for_all_rows:
            return {"is_causal": True} if layout.window is None else {"attn_mask": self._seen()[None, None]}
        return {"attn_mask": self.dense()}

    def for_multihead_attention(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for `torch.nn.MultiheadAttention`, where True means "must not be attended to".

        Args:
            num_heads (`int`, *optional*): the module's `num_heads`. Needed only where rows have different matrices
                (look-ahead over left padding, packed rows, prefixes), because the module wants one for each head then.

        Returns:
            `dict` of bool tensors, at most one: `key_padding_mask` `(B, K)`, or `attn_mask` `(T, T)` or
            `(B * num_heads, Q, K)`. Never both, because together they could leave a query with nothing to see.

        Raises:
            ValueError: if `num_heads` is needed and not given.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2, 1]).for_multihead_attention()
            {'key_padding_mask': tensor([[False, False],
                    [False,  True]])}
            >>> left = AttentionMask.from_lengths([2, 1], look_ahead=True, padding_side="left")
            >>> left.for_multihead_attention(num_heads=4)["attn_mask"].shape
            torch.Size([8, 2, 2])
        """
        if self._hides_padding_alone:
            return {} if self._layout.full else {"key_padding_mask": ~visible_keys(self.documents)}
        if self._same_for_all_rows:
            return {"attn_mask": ~self._seen()}
        rows = self._shape[0]
        if rows == 1:
            return {"attn_mask": self.dense()[0, 0].logical_not_()}
        if num_heads is None:
            raise ValueError(
                explain(
                    f"{self._why_by_row}: torch's modules want one mask for each row and head, so num_heads is needed",
                    got=f"num_heads=None for {rows} rows",
                    fix="num_heads=module.num_heads (for a TransformerEncoderLayer, module.self_attn.num_heads)",
                )
            )
        if as_length(num_heads, "num_heads") < 1:
            raise ValueError(explain("num_heads must be positive", got=num_heads, fix="num_heads=module.num_heads"))
        # The module reads the first dimension as (batch, head), heads running fastest.
        return {"attn_mask": self.dense().logical_not_().expand(-1, num_heads, -1, -1).flatten(0, 1)}

    def for_transformer_encoder(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for the forward of `torch.nn.TransformerEncoder`.

        Args:
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` of bool tensors, at most one: `src_key_padding_mask` or `mask`, True = must not be attended to.

        Raises:
            ValueError: if `num_heads` is needed and not given, or this is a cross description.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder()
            {'mask': tensor([[False,  True],
                    [False, False]])}
        """
        return self._to_itself()._named(num_heads, padding="src_key_padding_mask", matrix="mask")

    def for_transformer_encoder_layer(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for the forward of one `torch.nn.TransformerEncoderLayer`, which says `src_mask`.

        Args, Returns, Raises: as `for_transformer_encoder`, with `src_mask` for `mask`.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder_layer()
            {'src_mask': tensor([[False,  True],
                    [False, False]])}
        """
        return self._to_itself()._named(num_heads, padding="src_key_padding_mask", matrix="src_mask")

    def for_transformer_decoder(
        self, memory: Description | None = None, num_heads: int | None = None
    ) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for the forward of `torch.nn.TransformerDecoder`; this describes the target.

        Args:
            memory (`AttentionMask`, *optional*): of the batch that the encoder read, or the cross description itself.
                Without it all of the memory may be seen.
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` of bool tensors, True = must not be attended to: at most one of `tgt_mask` and
            `tgt_key_padding_mask`, and at most one of `memory_mask` and `memory_key_padding_mask`.

        Raises:
            ValueError: if `num_heads` is needed and not given; as `cross`.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> target, source = AttentionMask.from_lengths([2, 1], look_ahead=True), AttentionMask.from_lengths([1, 3])
            >>> target.for_transformer_decoder(source)
            {'tgt_mask': tensor([[False,  True],
                    [False, False]]), 'memory_key_padding_mask': tensor([[False,  True,  True],
                    [False, False, False]])}
        """
        found = self._to_itself()._named(num_heads, padding="tgt_key_padding_mask", matrix="tgt_mask")
        if memory is None:
            return found
        across = memory if isinstance(memory, Description) and memory.is_cross else self.cross(self, memory)
        looking = (len(self.documents), self.documents.shape[1])
        if not isinstance(across, TorchForms) or across._shape[0::2] != looking:
            raise ValueError(
                explain(
                    "the cross description must have the target's rows and tokens as its queries",
                    got=f"{across!r} for a target (rows, length) {looking}",
                    fix="target.for_transformer_decoder(source), with the description of what the encoder read",
                )
            )
        return found | across._named(num_heads, padding="memory_key_padding_mask", matrix="memory_mask")

    def for_transformer_decoder_layer(
        self, memory: Description | None = None, num_heads: int | None = None
    ) -> dict[str, torch.Tensor]:
        r"""Keyword arguments for the forward of one `torch.nn.TransformerDecoderLayer`, which has the same names.

        Args, Returns, Raises: as `for_transformer_decoder`.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2]).for_transformer_decoder_layer()
            {}
        """
        return self.for_transformer_decoder(memory, num_heads)

    # ---------------------------------------------------------------------------------------------------------- inside

    @property
    def _hides_padding_alone(self) -> bool:
        layout = self._layout
        return layout.one_document and not layout.look_ahead and layout.window is None

    @property
    def _same_for_all_rows(self) -> bool:
        """Whether look-ahead and window are all there is to hide from real tokens, padding being hidden by them too."""
        layout = self._layout
        return (
            layout.one_document
            and not layout.prefix
            and (layout.full or (layout.look_ahead and layout.from_the_start))
            and not self._hides_padding_alone
        )

    def _seen(self) -> torch.Tensor:
        seen = band(self._layout, self.documents.shape[1], self.documents.device)
        assert seen is not None  # something is hidden
        return seen

    @property
    def _why_by_row(self) -> str:
        if not self._layout.one_document:
            return "packed documents"
        if self._layout.prefix:
            return "prefixes of each row's own length"
        what = "look-ahead" if self._layout.look_ahead else "a window"
        return f"{what} over padding that is not on the right"

    def _to_itself(self) -> Self:
        if self.queries is None:
            return self
        raise ValueError(
            explain(
                "a batch that looks at itself is needed here, and this describes cross-attention",
                got=repr(self),
                fix="target.for_transformer_decoder(memory=cross), or cross.for_multihead_attention()",
            )
        )

    def _named(self, num_heads: int | None, *, padding: str, matrix: str) -> dict[str, torch.Tensor]:
        names = {"key_padding_mask": padding, "attn_mask": matrix}
        return {names[name]: mask for name, mask in self.for_multihead_attention(num_heads).items()}
