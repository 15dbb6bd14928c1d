"""Masks for torch's attention: keyword arguments of functions and modules, `BlockMask`, and cumulative lengths.

In the modules of `torch.nn`, True means "must not be attended to". Only this file inverts masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch

from .._common.errors import value_error
from .._common.integers import as_integer
from .description import NO_MATRIX, Description
from .functions import check_matrix
from .structure import KeyRanges, band, key_ranges, visible_keys

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class Varlen(NamedTuple):
    """Arguments for flash-attn and `varlen_attn`, which take all real tokens of a batch as one flat row of N documents.

    `AttentionMask.varlen` makes it. `cu_seqlens` holds the index of the first token of each document, and the number of
    tokens at the end. `max_seqlen` is the length of the longest document.
    """

    cu_seqlens: torch.Tensor  # (N + 1,) int32
    max_seqlen: int


class TorchForms(Description):
    """Base class of `AttentionMask`, not used directly, with its methods for torch's attention and flash-attn."""

    def for_sdpa(self) -> dict[str, Any]:
        r"""Return keyword arguments for `torch.nn.functional.scaled_dot_product_attention` on `(B, heads, T, width)`.

        Returns:
            `dict` with at most one key:

            - empty if nothing is hidden;
            - `is_causal=True`, which is faster than a mask, if look-ahead alone is enough. It also hides right padding,
              because that comes later than all real tokens;
            - otherwise `attn_mask`, bool, True = may be attended to. Its shape is `(B, 1, 1, K)` for padding alone,
              `(1, 1, T, T)` if all rows have the same mask, else `(B, 1, Q, K)`.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2, 1], look_ahead=True).for_sdpa()
            {'is_causal': True}
            >>> AttentionMask.from_lengths([2, 1]).for_sdpa()["attn_mask"].shape
            torch.Size([2, 1, 1, 2])
        """
        layout = self._layout
        if layout.hides_padding_alone:
            return {} if layout.full else {"attn_mask": visible_keys(self.documents)[:, None, None, :]}
        if layout.same_for_all_rows:
            # 17 to 21 % faster than the same attention with a mask, and equal at all real tokens.
            return {"is_causal": True} if layout.window is None else {"attn_mask": self._band()[None, None]}
        return {"attn_mask": self.dense()}

    def for_multihead_attention(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for `torch.nn.MultiheadAttention`, where True means "must not be attended to".

        Args:
            num_heads (`int`, *optional*): the module's `num_heads`. Required only if the rows of the batch need
                different `(Q, K)` matrices: for packed rows, prefixes, left padding with look-ahead or a window, and
                right padding with a window alone. The module then takes a matrix for each row and head.

        Returns:
            `dict` with at most one bool tensor; empty if nothing is hidden.

            - `key_padding_mask` `(B, K)` if only padding is hidden.
            - `attn_mask` otherwise: `(Q, K)` if all rows share it, else `(B * num_heads, Q, K)`.

            Never both, because together they could leave a query without keys.

        Raises:
            ValueError: if `num_heads` is required and missing.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2, 1]).for_multihead_attention()
            {'key_padding_mask': tensor([[False, False],
                    [False,  True]])}
            >>> left = AttentionMask.from_lengths([2, 1], look_ahead=True, padding_side="left")
            >>> left.for_multihead_attention(num_heads=4)["attn_mask"].shape
            torch.Size([8, 2, 2])
        """
        if self._layout.hides_padding_alone:
            return {} if self._layout.full else {"key_padding_mask": ~visible_keys(self.documents)}
        if self._layout.same_for_all_rows:
            return {"attn_mask": ~self._band()}
        rows = self._shape[0]
        if rows == 1:
            return {"attn_mask": self.dense()[0, 0].logical_not_()}
        if num_heads is None:
            raise value_error(
                f"{self._reason_by_row}: torch's modules take one mask a row and head, so num_heads is required",
                got=f"num_heads=None for {rows} rows",
                fix="num_heads=module.num_heads (of a TransformerEncoder, encoder.layers[0].self_attn.num_heads)",
            )
        heads = as_integer(num_heads, "num_heads", minimum=1, example="module.num_heads")
        # The first dimension is (batch, head), with the heads of a row next to each other.
        return {"attn_mask": self.dense().logical_not_().expand(-1, heads, -1, -1).flatten(0, 1)}

    def for_transformer_encoder(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for the forward of `torch.nn.TransformerEncoder`.

        Args:
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` with at most one bool tensor, True = must not be attended to: `src_key_padding_mask` if only padding
            is hidden, otherwise `mask`. Empty if nothing is hidden.

        Raises:
            ValueError: if `num_heads` is required and missing, or this is a mask of cross-attention.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder()
            {'mask': tensor([[False,  True],
                    [False, False]])}
        """
        return self._of_self_attention()._named(num_heads, padding="src_key_padding_mask", matrix="mask")

    def for_transformer_encoder_layer(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for the forward of one `torch.nn.TransformerEncoderLayer`.

        Arguments, result and errors are those of `for_transformer_encoder`, but the key `mask` is `src_mask` here.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder_layer()
            {'src_mask': tensor([[False,  True],
                    [False, False]])}
        """
        return self._of_self_attention()._named(num_heads, padding="src_key_padding_mask", matrix="src_mask")

    def for_transformer_decoder(
        self, memory: Self | None = None, num_heads: int | None = None
    ) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for `torch.nn.TransformerDecoder`, or one of its layers; `self` masks its target.

        Args:
            memory (`AttentionMask`, *optional*): mask of the encoder's batch, or a mask made by `cross`. Without it,
                the target attends to all memory tokens, even padding.
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` of bool tensors, True = must not be attended to: at most one of `tgt_mask` and
            `tgt_key_padding_mask`, and at most one of `memory_mask` and `memory_key_padding_mask`.

        Raises:
            ValueError: if `num_heads` is required and missing, if this is a mask of cross-attention, or if target and
                memory have different numbers of rows or different documents (see `cross`).

        Example:
            >>> from hf_posenc import AttentionMask
            >>> target, source = AttentionMask.from_lengths([2, 1], look_ahead=True), AttentionMask.from_lengths([1, 3])
            >>> target.for_transformer_decoder(source)
            {'tgt_mask': tensor([[False,  True],
                    [False, False]]), 'memory_key_padding_mask': tensor([[False,  True,  True],
                    [False, False, False]])}
        """
        arguments = self._of_self_attention()._named(num_heads, padding="tgt_key_padding_mask", matrix="tgt_mask")
        if memory is None:
            return arguments
        across = memory if isinstance(memory, type(self)) and memory.is_cross else self.cross(self, memory)
        looking = (len(self.documents), self.documents.shape[1])
        if across._shape[0::2] != looking:
            raise value_error(
                "the mask of the cross-attention must have the target's rows and tokens as its queries",
                got=f"{across!r} for a target (rows, length) {looking}",
                fix="target.for_transformer_decoder(source), with the mask of the encoder's batch",
            )
        return arguments | across._named(num_heads, padding="memory_key_padding_mask", matrix="memory_mask")

    def block_mask(self, block_size: int = 128) -> BlockMask:
        r"""Return the `block_mask` argument for torch's `flex_attention`; all heads share it.

        Its blocks equal those of torch's `create_block_mask`, which is slower because it evaluates each pair of tokens.
        Hugging Face models with `attn_implementation="flex_attention"` accept the result as `attention_mask`.

        Args:
            block_size (`int`, *optional*, defaults to 128): number of queries, and of keys, in a block.

        Returns:
            `torch.nn.attention.flex_attention.BlockMask` `(B, 1, Q, K)` on the mask's device. Its full blocks are those
            in which every query sees every key; `flex_attention` evaluates no mask there.

        Raises:
            ValueError: if `block_size` is not positive.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> mask = AttentionMask.from_documents([[128, 128, 256]], look_ahead=True).block_mask()
            >>> mask.to_dense()[0, 0]     # 1 for blocks of 128 tokens with a visible key
            tensor([[1, 0, 0, 0],
                    [0, 1, 0, 0],
                    [0, 0, 1, 0],
                    [0, 0, 1, 1]], dtype=torch.int32)
            >>> mask.full_kv_num_blocks.tolist()     # one full block: queries 384 to 511, keys 256 to 383
            [[[0, 0, 0, 1]]]
        """
        block_size = as_integer(block_size, "block_size", minimum=1, example=128)
        _, _, queries, keys = self._shape
        ranges = key_ranges(self.documents, self.queries, self.prefix, self._layout)
        if ranges is None:  # rare, so evaluating each pair is good enough
            dense = self.dense()[:, 0]  # torch 2.6 can trace only indices that are tensors
            some, whole = _blocks_of_dense(dense, block_size)

            def sees(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
                return dense[b, q, k]
        else:
            begin, stop = ranges
            some, whole = _blocks_of_ranges(ranges, keys, block_size)

            def sees(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
                return (k >= begin[b, q]) & (k < stop[b, q])

        return _block_mask(some & ~whole, whole, sees, block_size, (queries, keys))

    def varlen(self) -> Varlen:
        r"""Return the cumulative lengths of the documents, for kernels that take all real tokens as one flat row.

        The flat row is `x[mask.documents >= 0]` for a batch `x` `(B, T, ...)`. The result does not contain look-ahead
        and window: pass them to the kernel, such as `causal=True, window_size=(window - 1, 0)` for both.

        Returns:
            `Varlen`: `cu_seqlens` `(N + 1,)` int32 on the mask's device, from 0 to the number of real tokens,
            and `max_seqlen`, the length of the longest document.

        Raises:
            ValueError: if the mask has prefixes, is of cross-attention, or has a document whose tokens are not next to
                each other.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_documents([[2, 3], [4]]).varlen()
            Varlen(cu_seqlens=tensor([0, 2, 5, 9], dtype=torch.int32), max_seqlen=4)
        """
        if self.queries is not None:
            _refuse_varlen("cross-attention has lengths of two sides", "queries.varlen() and keys.varlen()")
        if self._layout.prefix:
            _refuse_varlen("cumulative lengths cannot express a prefix", "block_mask(), or dense()")
        numbers = self._numbers.keys  # (B, T)
        numbers = numbers + torch.arange(len(numbers), device=numbers.device)[:, None] * (self._shape[-1] + 1)
        flat = numbers[self.documents >= 0]  # (N tokens,)
        begins = torch.ones_like(flat, dtype=torch.bool)
        begins[1:] = flat[1:] != flat[:-1]
        if int((flat[begins].sort().values.diff() == 0).sum()):
            _refuse_varlen(
                "the tokens of a document must be next to each other", "sort the tokens of each row by document"
            )
        ends = torch.full((1,), len(flat), device=flat.device)
        offsets = torch.cat([begins.nonzero().flatten(), ends])  # (N + 1,)
        return Varlen(offsets.int(), int(offsets.diff().amax()) if len(flat) else 0)

    # --------------------------------------------------------------------------------------------------------- private

    def _band(self) -> torch.Tensor:
        check_matrix("this form of the mask", self._shape[2:], NO_MATRIX)
        mask = band(self._layout, self.documents.shape[1], self.documents.device)
        assert mask is not None  # look-ahead or window hide something
        return mask

    @property
    def _reason_by_row(self) -> str:
        """Reason why each row of the batch needs its own `(T, T)` matrix, as text for an error message."""
        if not self._layout.one_document:
            return "packed documents"
        if self._layout.prefix:
            return "prefixes of each row's own length"
        return (
            "look-ahead over padding that is not on the right" if self._layout.look_ahead else "a window over padding"
        )

    def _of_self_attention(self) -> Self:
        """Return this mask; raise if it is a mask of cross-attention."""
        if self.queries is None:
            return self
        raise value_error(
            "this form needs a mask of self-attention, and this one is of cross-attention",
            got=repr(self),
            fix="target.for_transformer_decoder(memory=cross), or cross.for_multihead_attention()",
        )

    def _named(self, num_heads: int | None, *, padding: str, matrix: str) -> dict[str, torch.Tensor]:
        """Return the result of `for_multihead_attention`, with its keys renamed for another module."""
        names = {"key_padding_mask": padding, "attn_mask": matrix}
        return {names[name]: mask for name, mask in self.for_multihead_attention(num_heads).items()}


def _refuse_varlen(rule: str, fix: str) -> None:
    raise value_error(rule, got="varlen()", fix=fix)


def _blocks_of_ranges(ranges: KeyRanges, keys: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two bool tensors with a value for each block of a mask; a block is `size` queries by `size` keys."""
    rows, queries = ranges.begin.shape
    across, down = -(-keys // size), -(-queries // size)
    line = (torch.arange(queries, device=ranges.begin.device) // size).expand(rows, queries)

    def count(first: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        steps = torch.zeros(rows, down * (across + 1), dtype=torch.int32, device=first.device)
        ones = torch.ones_like(first, dtype=torch.int32)
        steps.scatter_add_(1, line * (across + 1) + first, ones)
        steps.scatter_add_(1, line * (across + 1) + after.maximum(first), -ones)
        return steps.view(rows, down, across + 1).cumsum(-1)[..., :across]

    some = count(ranges.begin // size, -(-ranges.stop // size)) > 0
    whole = count(-(-ranges.begin // size), ranges.stop // size) == size  # never for an incomplete last block
    return some, whole


def _blocks_of_dense(dense: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two tensors of `_blocks_of_ranges` for a mask given as a bool tensor `dense` `(B, Q, K)`."""
    rows, queries, keys = dense.shape
    padded = torch.nn.functional.pad(dense, (0, -keys % size, 0, -queries % size))
    across, down = -(-keys // size), -(-queries // size)
    tiles = padded.view(rows, down, size, across, size).transpose(2, 3)  # (B, Q / size, K / size, size, size)
    return tiles.flatten(3).any(-1), tiles.flatten(3).all(-1)


def _block_mask(some: torch.Tensor, whole: torch.Tensor, sees: Any, size: int, lengths: tuple[int, int]) -> BlockMask:
    """Return a `BlockMask`, made from the partly visible blocks `some` and the fully visible blocks `whole`."""
    from torch.nn.attention.flex_attention import BlockMask

    def ordered(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return, for the last dimension of `blocks`, the number of True values, and all indices, True ones first."""
        blocks = blocks[:, None].int()  # (B, 1, Q / size, K / size)
        return blocks.sum(-1, dtype=torch.int32), blocks.argsort(dim=-1, descending=True, stable=True).int()

    # Transposing the blocks here is many times faster than `BlockMask.from_kv_blocks`.
    by_query = (*ordered(some), *ordered(whole))
    by_key = (*ordered(some.transpose(-1, -2)), *ordered(whole.transpose(-1, -2)))
    return BlockMask(lengths, *by_query, *by_key, BLOCK_SIZE=(size, size), mask_mod=sees)
