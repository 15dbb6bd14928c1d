"""The mask for torch's `flex_attention`, from the range of keys that each query sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from .._common.integers import as_integer
from .structure import spans_of

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from .attention_mask import AttentionMask


def block_mask(mask: AttentionMask, block_size: int) -> BlockMask:
    """Return the `BlockMask` of a mask, with blocks of `block_size` queries by `block_size` keys."""
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    size = as_integer(block_size, "block_size", minimum=1, example=128)
    _, _, queries, keys = mask._shape
    ranges = key_ranges(mask)
    if ranges is None:  # rare, so evaluating each pair is good enough
        dense = mask.dense()[:, 0]  # torch 2.6 can trace only indices that are tensors
        device = str(dense.device)
        return create_block_mask(
            lambda b, h, q, k: dense[b, q, k], len(dense), None, queries, keys, device, BLOCK_SIZE=size
        )
    begin, stop = ranges
    some, whole = _blocks_of_ranges(ranges, keys, size)

    def sees(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (k >= begin[b, q]) & (k < stop[b, q])

    def ordered(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return, for the last dimension of `blocks`, the number of True values, and all indices, True ones first."""
        blocks = blocks[:, None].int()  # (B, 1, Q / size, K / size)
        return blocks.sum(-1, dtype=torch.int32), blocks.argsort(dim=-1, descending=True, stable=True).int()

    # Transposing the blocks here is many times faster than `BlockMask.from_kv_blocks`.
    some &= ~whole
    by_query = (*ordered(some), *ordered(whole))
    by_key = (*ordered(some.transpose(-1, -2)), *ordered(whole.transpose(-1, -2)))
    return BlockMask((queries, keys), *by_query, *by_key, BLOCK_SIZE=(size, size), mask_mod=sees)


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


class KeyRanges(NamedTuple):
    """Visible keys of each query, from `key_ranges`: query i of row b sees the keys `begin[b, i] <= j < stop[b, i]`.

    Both tensors are `(B, Q)` int64. No range is empty.
    """

    begin: torch.Tensor
    stop: torch.Tensor


def key_ranges(mask: AttentionMask) -> KeyRanges | None:
    r"""Return the range of keys that each query sees; `None` if the keys of a query may have gaps.

    Gaps come only from interleaved documents, padding between real tokens, and prefixes that are not at the beginning
    of their document.

    Example:
        >>> from hf_posenc import AttentionMask     # the last query is padding, and sees all real keys
        >>> key_ranges(AttentionMask.from_documents([[2, 2]], 5, look_ahead=True))
        KeyRanges(begin=tensor([[0, 0, 2, 2, 0]]), stop=tensor([[1, 2, 3, 4, 4]]))
    """
    layout, documents = mask._known, mask.documents
    numbers, length = mask._numbers, documents.shape[1]
    spans = spans_of(numbers, documents >= 0)
    are_ranges = spans.whole.all()
    begin, stop = spans.first.gather(1, numbers.queries), spans.after.gather(1, numbers.queries)  # (B, Q)
    empty_row = (documents < 0).all(dim=1, keepdim=True)  # counts as real throughout
    begin, stop = begin.masked_fill_(empty_row, 0), stop.masked_fill_(empty_row, length)
    columns = torch.arange(begin.shape[1], device=documents.device)
    if layout.look_ahead:
        later = (columns + 1).expand_as(stop)
        if layout.prefix and mask.prefix is not None:
            prefixes = spans_of(numbers, mask.prefix)
            at_begin = (prefixes.first == spans.first) | (prefixes.after == 0)
            are_ranges = are_ranges & (at_begin & prefixes.whole)[:, 1:].all()
            later = torch.where(numbers.queries > 0, later.maximum(prefixes.after.gather(1, numbers.queries)), later)
        stop = stop.minimum(later)
    if layout.window is not None:
        begin, stop = begin.maximum(columns - layout.window + 1), stop.minimum(columns + layout.window)
    if mask.queries is None:
        alone = stop <= begin  # a query that sees nothing sees itself
        begin, stop = torch.where(alone, columns, begin), torch.where(alone, columns + 1, stop)
    return KeyRanges(begin, stop) if bool(are_ranges) else None
