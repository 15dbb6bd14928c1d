"""Block masks compared with `create_block_mask` and through FlexAttention; cumulative lengths with counting."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_reference import any_description, packed, reference, scattered
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from hf_posenc.masks import AttentionMask

_PARTS = [f"{part}_{kind}" for part in ("kv", "full_kv", "q", "full_q") for kind in ("num_blocks", "indices")]


def assert_same_blocks(ours: BlockMask, theirs: BlockMask) -> None:
    assert ours.shape == theirs.shape
    assert ours.BLOCK_SIZE == theirs.BLOCK_SIZE
    for name in _PARTS:
        one, other = getattr(ours, name), getattr(theirs, name)
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name


@settings(max_examples=75)
@given(any_description, st.integers(1, 5))
def test_blocks_equal_those_of_create_block_mask(mask: AttentionMask, size: int) -> None:
    wanted = reference(mask)
    rows, _, queries, keys = wanted.shape
    ours = mask.block_mask(size)
    for mask_mod in (lambda b, h, q, k: wanted[:, 0][b, q, k], ours.mask_mod):
        theirs = create_block_mask(mask_mod, rows, None, queries, keys, device="cpu", BLOCK_SIZE=size)
        assert_same_blocks(ours, theirs)


def test_any_negative_number_is_padding() -> None:
    for number in (-1, -2, -5, -100):
        alone = AttentionMask(torch.full((1, 2), number))
        assert torch.equal(alone.block_mask(1).to_dense(), torch.ones(1, 1, 2, 2, dtype=torch.int32))
        assert alone.varlen().cu_seqlens.tolist() == [0]
        assert torch.equal(alone.dense(), AttentionMask(torch.full((1, 2), -1)).dense())


@pytest.mark.parametrize("prefix", [[0, 0, 1, 0], [1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]])
def test_blocks_of_prefixes_anywhere_in_a_document_equal_the_dense_form(prefix: list[int]) -> None:
    for documents in ([[0, 0, 0, 0]], [[0, 1, 1, 1]]):
        mask = AttentionMask(torch.tensor(documents), look_ahead=True, prefix=torch.tensor([prefix]).bool())
        assert torch.equal(mask.dense(), reference(mask))
        assert torch.equal(mask.block_mask(1).to_dense().bool(), mask.dense())


def test_the_last_blocks_of_interleaved_documents_may_be_incomplete() -> None:
    target, source = AttentionMask(torch.tensor([[0, 1, 0, 1]])), AttentionMask(torch.tensor([[0, 1, 0, 1, 0]]))
    blocks = AttentionMask.cross(target, source).block_mask(3)
    assert blocks.to_dense().tolist() == [[[[1, 1], [1, 1]]]]
    assert blocks.full_kv_num_blocks.tolist() == [[[0, 0]]]
    none = AttentionMask.cross(AttentionMask.from_documents([[]]), AttentionMask.from_documents([[1, 2]])).block_mask(3)
    assert (none.shape, none.kv_num_blocks.shape) == ((1, 1, 0, 3), (1, 1, 0))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("settings", [{}, {"look_ahead": True}, {"look_ahead": True, "window": 9, "prefix": 4}])
def test_flex_attention_gives_what_the_dense_form_gives(settings: dict[str, Any], device: torch.device) -> None:
    mask = AttentionMask.from_documents([[30, 21, 5], [40]], 64, device=device, **settings)
    q, k, v = torch.randn(3, 2, 4, 64, 16, generator=torch.Generator().manual_seed(0)).to(device)
    found = flex_attention(q, k, v, block_mask=mask.block_mask(16))
    wanted = scaled_dot_product_attention(q, k, v, attn_mask=mask.dense())
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 if device.type == "cpu" else 1e-3)


def stretches(mask: AttentionMask) -> list[tuple[int, int, int]]:
    """Row, document and length of each stretch of real tokens of one document, in order; padding does not end one."""
    found: list[tuple[int, int, int]] = []
    for row, documents in enumerate(mask.documents.tolist()):
        for document in documents:
            if document < 0:
                continue
            if found and found[-1][:2] == (row, document):
                found[-1] = (row, document, found[-1][2] + 1)
            else:
                found.append((row, document, 1))
    return found


@given(st.one_of(packed(), scattered()), st.booleans())
def test_cumulative_lengths_count_the_real_tokens_of_each_document(mask: AttentionMask, look_ahead: bool) -> None:
    mask = AttentionMask(mask.documents, look_ahead, mask.window)
    found = stretches(mask)
    if len({stretch[:2] for stretch in found}) < len(found):
        with pytest.raises(ValueError, match="next to each other"):
            mask.varlen()
        return
    lengths = [stretch[2] for stretch in found]
    offsets, longest = mask.varlen()
    assert offsets.dtype == torch.int32
    assert offsets.tolist() == [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert longest == max(lengths, default=0)
