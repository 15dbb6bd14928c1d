"""Windows, prefixes and cross-attention: every form compared with loops over pairs, and through torch's modules.

`mask_reference` has the loops. Real tokens must agree in all forms, and nothing may become NaN.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each
from mask_reference import any_description, check_message, crossed, real_queries, reference, to_itself
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from hf_posenc.masks import AttentionMask

WIDTH, HEADS = 8, 2
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")


def vectors(documents: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(*documents.shape, WIDTH, generator=torch.Generator().manual_seed(seed))


def inputs(mask: AttentionMask) -> tuple[torch.Tensor, torch.Tensor]:
    """Return vectors of queries and keys, the same in self-attention."""
    keys = vectors(mask.documents, 0)
    return (keys if mask.queries is None else vectors(mask.queries, 1)), keys


def attention() -> nn.MultiheadAttention:
    torch.manual_seed(1)
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)


def assert_finite(found: torch.Tensor, module: nn.Module) -> None:
    """Check that outputs have no NaN, nor do the gradients of the weights, if they are recorded."""
    assert found.isfinite().all()
    if found.requires_grad:
        module.zero_grad()
        found.square().sum().backward(retain_graph=True)
        assert all(weight.grad is None or weight.grad.isfinite().all() for weight in module.parameters())


def expected(mha: nn.MultiheadAttention, mask: AttentionMask) -> torch.Tensor:
    q, k, v = projected(mha, *inputs(mask))
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~reference(mask), -math.inf)
    return mha.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def projected(mha: nn.MultiheadAttention, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    parts = zip((x, y, y), mha.in_proj_weight.chunk(3), mha.in_proj_bias.chunk(3), strict=True)
    return tuple((x @ weight.T + bias).unflatten(-1, (HEADS, -1)).transpose(1, 2) for x, weight, bias in parts)


@settings(max_examples=300)
@given(any_description)
def test_the_dense_form_is_the_definition_pair_by_pair(mask: AttentionMask) -> None:
    found = mask.dense()
    assert torch.equal(found, reference(mask))
    assert torch.equal(mask.additive() == 0, found)
    assert found.shape[-1] == 0 or found.any(-1).all()


@pytest.mark.parametrize("prefix", [2, [2], torch.tensor([2]), torch.tensor([[True, True, False, False]])])
def test_a_prefix_is_visible_to_all_of_its_document(prefix: Any) -> None:
    mask = AttentionMask.from_batch({"attention_mask": [[1, 1, 1, 1]]}, look_ahead=True, prefix=prefix)
    assert mask.dense()[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_settings_that_hide_nothing_are_ignored() -> None:
    for kwargs in ({"window": 5}, {"window": 9}, {"look_ahead": True, "prefix": 5}):
        mask = AttentionMask.from_lengths([5, 5], **kwargs)
        assert mask.for_sdpa() == mask.for_multihead_attention() == {}, kwargs
    for kwargs in ({"window": 5}, {"prefix": 1}, {"prefix": 0}):
        assert AttentionMask.from_lengths([5, 3], look_ahead=True, **kwargs).for_sdpa() == {"is_causal": True}, kwargs


def test_one_document_per_row_is_not_packed_whatever_its_number() -> None:
    mask = AttentionMask.from_batch({"document_ids": [[7, 7], [3, 3]]})
    assert not mask.is_packed
    assert mask.for_sdpa() == {}


def test_a_window_over_padding_on_the_right_is_one_matrix_for_all_rows() -> None:
    kwargs = AttentionMask.from_lengths([6, 2, 4], look_ahead=True, window=2).for_sdpa()
    assert kwargs["attn_mask"].shape == (1, 1, 6, 6)


def test_cross_attention_leaves_out_look_ahead_window_and_prefix_of_both_sides() -> None:
    sides = [AttentionMask.from_lengths([n], look_ahead=True, window=1, prefix=2) for n in (3, 4)]
    assert AttentionMask.cross(*sides).for_sdpa() == {}


@settings(max_examples=100)
@given(any_description)
def test_scaled_dot_product_attention_agrees_and_gets_a_mask_or_is_causal_never_both(mask: AttentionMask) -> None:
    kwargs, mha = mask.for_sdpa(), attention()
    assert len(kwargs) <= 1
    q, k, v = projected(mha, *inputs(mask))
    found = mha.out_proj(scaled_dot_product_attention(q, k, v, **kwargs).transpose(1, 2).flatten(2))
    real = real_queries(mask)
    assert_finite(found, mha)
    torch.testing.assert_close(found[real], expected(mha, mask)[real], rtol=0, atol=1e-5)


@settings(max_examples=60)
@given(any_description, st.sampled_from([torch.float16, torch.bfloat16]))
def test_masks_added_in_half_precision_hide_the_same_keys(mask: AttentionMask, dtype: torch.dtype) -> None:
    added = mask.additive(dtype)
    weights = (torch.randn(added.shape).to(dtype) * 10 + added).softmax(-1)
    assert weights.isfinite().all()
    assert not weights[~reference(mask)].any()
    assert set(added.unique().tolist()) <= {0.0, torch.finfo(dtype).min}


@settings(max_examples=60)
@given(any_description)
def test_returned_tensors_share_no_memory_with_the_mask(mask: AttentionMask) -> None:
    def everything() -> dict[str, torch.Tensor]:
        return {"dense": mask.dense(), **mask.for_sdpa(), **mask.for_multihead_attention(HEADS)}

    first, second = everything(), everything()
    for tensor in first.values():
        if isinstance(tensor, torch.Tensor):
            tensor.zero_().logical_not_()  # writable, too
    for name, tensor in everything().items():
        assert not isinstance(tensor, torch.Tensor) or torch.equal(tensor, second[name]), name


@settings(max_examples=100)
@given(any_description, st.booleans())
def test_multihead_attention_agrees_in_train_and_eval(mask: AttentionMask, weights: bool) -> None:
    mha, real = attention(), real_queries(mask)
    kwargs, (x, y) = mask.for_multihead_attention(HEADS), inputs(mask)
    assert len(kwargs) <= 1
    wanted = expected(mha, mask)[real]
    found = mha(x, y, y, need_weights=weights, **kwargs)[0]
    torch.testing.assert_close(found[real], wanted, rtol=0, atol=1e-5)
    assert_finite(found, mha)
    mha.eval()
    with torch.no_grad():
        found = mha(x, y, y, need_weights=weights, **kwargs)[0]
    torch.testing.assert_close(found[real], wanted, rtol=0, atol=1e-5)
    assert found.isfinite().all()


@settings(max_examples=60)
@given(to_itself)
def test_encoders_agree_with_the_loops_in_train_and_eval(mask: AttentionMask) -> None:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True)
    model, real, (x, _) = nn.TransformerEncoder(layer, 2), real_queries(mask), inputs(mask)
    # Turned round by hand: torch's modules say True for what is hidden.
    by_hand = (~reference(mask)).expand(-1, HEADS, -1, -1).flatten(0, 1)
    wanted, wanted_of_layer = model(x, mask=by_hand)[real], model.layers[0](x, src_mask=by_hand)[real]
    for eval_mode in (False, True):
        model.train(not eval_mode)
        with torch.set_grad_enabled(not eval_mode):
            found = model(x, **mask.for_transformer_encoder(HEADS))
            of_layer = model.layers[0](x, **mask.for_transformer_encoder_layer(HEADS))
        assert_finite(found, model)
        assert of_layer.isfinite().all()
        torch.testing.assert_close(found[real], wanted, rtol=0, atol=1e-5)
        torch.testing.assert_close(of_layer[real], wanted_of_layer, rtol=0, atol=1e-5)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[AttentionMask, AttentionMask]:
    """A target with look-ahead, and the cross description from it to a source."""
    across = draw(crossed())
    assert across.queries is not None
    return AttentionMask(
        across.queries, look_ahead=draw(st.booleans()), window=draw(st.sampled_from([None, 2]))
    ), across


@settings(max_examples=60)
@given(_pairs())
def test_decoders_hide_later_targets_and_other_documents_of_the_memory(
    pair: tuple[AttentionMask, AttentionMask],
) -> None:
    target, across = pair
    torch.manual_seed(3)
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True)
    model, real = nn.TransformerDecoder(layer, 2), real_queries(target)
    x, memory = inputs(across)
    masks = [(~reference(mask)).expand(-1, HEADS, -1, -1).flatten(0, 1) for mask in (target, across)]
    wanted = model(x, memory, tgt_mask=masks[0], memory_mask=masks[1])[real]
    kwargs = target.for_transformer_decoder(across, HEADS)
    assert len(kwargs) <= 2
    assert set(kwargs) <= set(inspect.signature(model.forward).parameters)
    assert set(kwargs) <= set(inspect.signature(layer.forward).parameters)
    for eval_mode in (False, True):
        model.train(not eval_mode)
        with torch.set_grad_enabled(not eval_mode):
            found = model(x, memory, **kwargs)
            of_layer = model.layers[0](x, memory, **kwargs)
        assert_finite(found, model)
        assert of_layer.isfinite().all()
        torch.testing.assert_close(found[real], wanted, rtol=0, atol=1e-5)


def test_a_decoder_without_a_mask_of_the_memory_sees_all_of_it() -> None:
    target = AttentionMask.from_lengths([3, 2], look_ahead=True)
    assert list(target.for_transformer_decoder()) == ["tgt_mask"]


@given(any_description, st.integers(0, 9))
def test_a_reused_buffer_contains_the_same_mask_as_new_memory(mask: AttentionMask, spare: int) -> None:
    wanted = mask.dense()
    for dtype, make in ((torch.bool, mask.dense), (torch.float32, mask.additive)):
        full = torch.ones(wanted.shape, dtype=dtype)
        flat = torch.ones(wanted.numel() + spare, dtype=dtype)
        for out in (full, flat):
            found = make(out=out)  # type: ignore[operator]
            assert found.data_ptr() == out.data_ptr()
            assert torch.equal(found, wanted if dtype == torch.bool else mask.additive())
        assert (flat[wanted.numel() :] == 1).all()


def test_masks_of_all_kinds_store_a_few_numbers_per_token() -> None:
    target = AttentionMask.from_lengths([2048, 1000], look_ahead=True, window=100, prefix=[5, 7])
    across = AttentionMask.cross(target, AttentionMask.from_lengths([300, 200]))
    across.for_sdpa()
    target.block_mask()
    for mask in (target, across):
        tensors = [value for value in vars(mask).values() if isinstance(value, torch.Tensor)]
        assert sum(tensor.numel() for tensor in tensors) <= 2 * (2048 + 2048)


_mask = AttentionMask.from_lengths([3, 2], look_ahead=True)
_cross = AttentionMask.cross(_mask, AttentionMask.from_lengths([4, 4]))
REFUSED: list[tuple[Any, type[Exception], list[str]]] = [
    (lambda: AttentionMask.from_lengths([3], window=0), ValueError, ["window must be positive", "0"]),
    (
        lambda: AttentionMask(_mask.documents, look_ahead=True, prefix=torch.ones(2, 2, dtype=torch.bool)),
        ValueError,
        ["a bool mask in the shape (2, 3) of documents", "[True, True]"],
    ),
    (
        lambda: AttentionMask(_mask.documents, look_ahead=True, prefix=_mask.documents),
        ValueError,
        ["a bool mask in the shape (2, 3) of documents", "[ 0, 0, 0]"],
    ),
    (
        lambda: AttentionMask(_mask.documents, look_ahead=True, queries=_mask.documents),
        ValueError,
        ["look_ahead=True", "AttentionMask.cross"],
    ),
    (lambda: AttentionMask(_mask.documents, queries=_mask.documents[:1]), ValueError, ["number of rows", "1 and 2"]),
    (
        lambda: AttentionMask.from_lengths([3, 2], look_ahead=True, prefix=[[1], [2, 3]]),
        ValueError,
        ["prefix must have rows of the same length", "[[1], [2, 3]]"],
    ),
    (lambda: AttentionMask.from_lengths([3], prefix=2), ValueError, ["prefix without look_ahead=True"]),
    (lambda: AttentionMask.from_lengths([3], look_ahead=True, prefix=-2), ValueError, ["not be negative", "-2"]),
    (lambda: AttentionMask.from_lengths([3], look_ahead=True, prefix=[1, 2]), ValueError, ["each row", "2 for 1"]),
    (
        lambda: AttentionMask.from_lengths([3], look_ahead=True, prefix=torch.ones(1, 2, dtype=torch.bool)),
        ValueError,
        ["(batch, length)", "(1, 2) and (1, 3)"],
    ),
    (
        lambda: AttentionMask.cross(_mask, AttentionMask.from_lengths([3])),
        ValueError,
        ["same number of rows", "2 and 1"],
    ),
    (lambda: AttentionMask.cross(_mask, _cross), TypeError, ["keys must be the AttentionMask of one batch"]),
    (lambda: AttentionMask.cross([3, 2], _mask), TypeError, ["queries must be the AttentionMask", "[3, 2]"]),
    (
        lambda: AttentionMask.cross(AttentionMask.from_documents([[1, 2]]), AttentionMask.from_lengths([3])),
        ValueError,
        ["document 1 in row 0", "2 such queries", "[0]"],
    ),
    (_cross.for_transformer_encoder, ValueError, ["of cross-attention", "queries=3"]),
    (lambda: _mask.dense(out=torch.empty(3)), ValueError, ["(2, 1, 3, 3)", "18 elements", "(3,) of torch.float32"]),
    (lambda: _mask.additive(out=torch.empty(18, dtype=torch.bool)), ValueError, ["of torch.float32", "torch.bool"]),
    # masks that a kernel cannot express
    (lambda: AttentionMask.from_lengths([3]).block_mask(0), ValueError, ["block_size must be positive", "0"]),
    (
        lambda: AttentionMask.from_lengths([3], look_ahead=True, prefix=2).varlen(),
        ValueError,
        ["prefix", "block_mask()"],
    ),
    (lambda: AttentionMask(torch.tensor([[0, 1, 0]])).varlen(), ValueError, ["next to each other"]),
    (
        lambda: AttentionMask.cross(AttentionMask.from_lengths([3]), AttentionMask.from_lengths([3])).varlen(),
        ValueError,
        ["two sides", "keys.varlen()"],
    ),
]


@for_each(("call", "kind", "words"), REFUSED)
def test_wrong_arguments_are_refused_with_their_values(call: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    check_message(str(caught.value), words)
