"""A description for kernels that leave hidden blocks out: FlexAttention's block mask, and cumulative lengths.

Made from two numbers a token; nothing of size T×T, unless a row has holes.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .._explain import explain
from .dense import DenseForms
from .layout import numbers_of
from .plain import as_length
from .runs import Runs, runs_of

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class Varlen(NamedTuple):
    """Where documents begin in one flat row of real tokens, as flash-attn and `varlen_attn` ask for it."""

    cu_seqlens: torch.Tensor  # (N + 1,) int32
    max_seqlen: int


class KernelForms(DenseForms):
    """`block_mask` and `varlen`."""

    def block_mask(self, block_size: int = 128) -> BlockMask:
        r"""The `block_mask` of `torch.nn.attention.flex_attention.flex_attention`, for all heads alike.

        The same blocks as `create_block_mask` finds by looking at each pair of tokens. Hugging Face models under
        `attn_implementation="flex_attention"` take it as `attention_mask`.

        Args:
            block_size (`int`, *optional*, defaults to 128): queries, and keys, of a block.

        Returns:
            `BlockMask` `(B, 1, Q, K)` on the description's device; blocks that are seen as a whole are told from those
            seen in part.

        Raises:
            ValueError: if `block_size` is not positive.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> mask = AttentionMask.from_documents([[128, 128, 256]], look_ahead=True).block_mask()
            >>> mask.to_dense()[0, 0]
            tensor([[1, 0, 0, 0],
                    [0, 1, 0, 0],
                    [0, 0, 1, 0],
                    [0, 0, 1, 1]], dtype=torch.int32)
            >>> mask.full_kv_num_blocks.tolist()     # seen as a whole: the last row of blocks sees one so
            [[[0, 0, 0, 1]]]
        """
        if as_length(block_size, "block_size") < 1:
            raise ValueError(explain("block_size must be positive", got=block_size, fix="block_size=128"))
        _, _, queries, keys = self._shape
        runs = self._runs()
        if runs is None:  # holes, or documents that interleave: rare enough to look at each pair
            dense = self.dense()
            some, whole = _blocks_of_dense(dense[:, 0], block_size)

            def sees(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
                return dense[b, 0, q, k]
        else:
            begin, stop = runs
            some, whole = _blocks_of_runs(runs, keys, block_size)

            def sees(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
                return (k >= begin[b, q]) & (k < stop[b, q])

        return _block_mask(some & ~whole, whole, sees, block_size, (queries, keys))

    def varlen(self) -> Varlen:
        r"""Cumulative lengths of the documents, for kernels that take all real tokens as one flat row.

        The flat row is `x[real]` for a batch `x` `(B, T, ...)` and the mask `real = documents >= 0`. Look-ahead and
        window are arguments of those kernels (`causal=True`, `window_size=(window - 1, ...)`).

        Returns:
            `Varlen`: `cu_seqlens` `(N + 1,)` int32 on the description's device, from 0 to the number of real tokens,
            and `max_seqlen`, the longest document.

        Raises:
            ValueError: for prefixes, documents that interleave, and cross-attention.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_documents([[2, 3], [4]]).varlen()
            Varlen(cu_seqlens=tensor([0, 2, 5, 9], dtype=torch.int32), max_seqlen=4)
        """
        if self.queries is not None:
            _refuse_varlen("cross-attention has lengths of two sides", "queries.varlen() and keys.varlen()")
        if self._layout.prefix:
            _refuse_varlen("cumulative lengths cannot say a prefix", "block_mask(), or dense()")
        numbers = numbers_of(self.documents, None, self._layout.highest).keys  # (B, T)
        places = numbers + torch.arange(len(numbers), device=numbers.device)[:, None] * (self._shape[-1] + 1)
        flat = places[self.documents >= 0]  # (N tokens,)
        begins = torch.ones_like(flat, dtype=torch.bool)
        begins[1:] = flat[1:] != flat[:-1]
        if int((flat[begins].sort().values.diff() == 0).sum()):
            _refuse_varlen("a document must stand in one piece", "sort the tokens of each row by document")
        ends = torch.full((1,), len(flat), device=flat.device)
        offsets = torch.cat([begins.nonzero().flatten(), ends])  # (N + 1,)
        return Varlen(offsets.int(), int(offsets.diff().amax()) if len(flat) else 0)

    def _runs(self) -> Runs | None:
        return runs_of(self.documents, self.queries, self.prefix, self._layout)


def _refuse_varlen(rule: str, fix: str) -> None:
    raise ValueError(explain(rule, got="varlen()", fix=fix))


def _blocks_of_runs(runs: Runs, keys: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which blocks have a pair that is seen, and which have no other: bool `(B, Q / size, K / size)`, rounded up.

    How many queries see a block is the sum of steps up where a run begins and down where it stops.
    """
    rows, queries = runs.begin.shape
    across, down = -(-keys // size), -(-queries // size)
    line = (torch.arange(queries, device=runs.begin.device) // size).expand(rows, queries)

    def count(first: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        steps = torch.zeros(rows, down * (across + 1), dtype=torch.int32, device=first.device)
        ones = torch.ones_like(first, dtype=torch.int32)
        steps.scatter_add_(1, line * (across + 1) + first, ones)
        steps.scatter_add_(1, line * (across + 1) + after.maximum(first), -ones)
        return steps.view(rows, down, across + 1).cumsum(-1)[..., :across]

    some = count(runs.begin // size, -(-runs.stop // size)) > 0
    whole = count(-(-runs.begin // size), runs.stop // size) == size  # a block that sticks out is never whole
    return some, whole


def _blocks_of_dense(dense: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, queries, keys = dense.shape
    padded = torch.nn.functional.pad(dense, (0, -keys % size, 0, -queries % size))
    across, down = -(-keys // size), -(-queries // size)
    tiles = padded.view(rows, down, size, across, size).transpose(2, 3)  # (B, Q / size, K / size, size, size)
    return tiles.flatten(3).any(-1), tiles.flatten(3).all(-1)


def _block_mask(some: torch.Tensor, whole: torch.Tensor, sees: Any, size: int, lengths: tuple[int, int]) -> BlockMask:
    from torch.nn.attention.flex_attention import BlockMask

    def ordered(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        blocks = blocks[:, None].int()  # (B, 1, Q / size, K / size)
        return blocks.sum(-1, dtype=torch.int32), blocks.argsort(dim=-1, descending=True, stable=True).int()

    # torch 2.5 rounds lengths up to whole blocks and has no name for them; later ones can leave the transpose to us,
    # which is many times faster here.
    known = inspect.signature(BlockMask.from_kv_blocks).parameters
    named: dict[str, Any] = {"seq_lengths": lengths, "compute_q_blocks": False}
    named = {name: value for name, value in named.items() if name in known}
    made = BlockMask.from_kv_blocks(*ordered(some), *ordered(whole), BLOCK_SIZE=size, mask_mod=sees, **named)
    if made.q_indices is None:
        made.q_num_blocks, made.q_indices = ordered(some.transpose(-1, -2))
        made.full_q_num_blocks, made.full_q_indices = ordered(whole.transpose(-1, -2))
    return made
