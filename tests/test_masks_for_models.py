"""`AttentionMask.for_hf` held against the models themselves: four dimensions against two, packed against alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BartConfig, BartModel, BertConfig, BertModel, FNetConfig, FNetModel, GPT2Config, GPT2Model

from hf_posenc import AttentionMask, ModelSpec

LENGTHS = [7, 4, 6]


def _bert(attention: str = "sdpa") -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=90, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    config._attn_implementation = attention
    return BertModel(config).eval()


def _gpt2(attention: str = "sdpa") -> GPT2Model:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=90, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    config._attn_implementation = attention
    return GPT2Model(config).eval()


def _out(model: Any, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state
    return out.float()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [_bert, _gpt2])
def test_four_dimensions_give_what_two_give(make: Any, attention: str, dtype: torch.dtype, side: Any) -> None:
    model = make(attention).to(dtype)
    described = AttentionMask.from_lengths(LENGTHS, padding_side=side)
    two, four = described.for_hf(model), described.for_hf(model, dims=4)
    assert two.dtype == torch.int64
    assert two.sum(1).tolist() == LENGTHS
    assert four.shape == (3, 1, 7, 7)
    assert four.dtype == dtype
    assert set(four.unique().tolist()) == {0.0, torch.finfo(dtype).min}
    ids = torch.randint(10, 90, two.shape, generator=torch.Generator().manual_seed(0))
    positions = (two.cumsum(1) - 1).clamp(min=0)
    apart = _out(model, ids, two, positions) - _out(model, ids, four, positions)
    assert float(apart[two.bool()].abs().max()) < (1e-5 if dtype == torch.float32 else 3e-2)


@pytest.mark.parametrize("make", [_bert, _gpt2])
def test_documents_that_share_a_row_do_not_see_each_other(make: Any) -> None:
    model = make()
    described = AttentionMask.from_documents([[3, 4]])
    mask = described.for_hf(model)
    assert mask.shape == (1, 1, 7, 7)
    ids = torch.randint(10, 90, (1, 7), generator=torch.Generator().manual_seed(0))
    packed = _out(model, ids, mask, torch.tensor([[0, 1, 2, 0, 1, 2, 3]]))
    for start, stop in ((0, 3), (3, 7)):
        alone = _out(model, ids[:, start:stop], None, torch.arange(stop - start)[None])
        torch.testing.assert_close(packed[:, start:stop], alone, rtol=0, atol=1e-5)


def test_look_ahead_in_a_model_that_hides_none_takes_four_dimensions() -> None:
    model = _bert()
    mask = AttentionMask.from_lengths([5], look_ahead=True).for_hf(model)
    assert mask.shape == (1, 1, 5, 5)
    ids = torch.tensor([[11, 12, 13, 14, 15], [11, 12, 13, 14, 16]])
    out = _out(model, ids, mask.expand(2, -1, -1, -1), torch.arange(5).repeat(2, 1))
    torch.testing.assert_close(out[0, :4], out[1, :4], rtol=0, atol=1e-5)
    assert AttentionMask.from_lengths([5], look_ahead=True).for_hf(_gpt2()).shape == (1, 5)


def test_a_spec_will_do_instead_of_the_model() -> None:
    spec = ModelSpec.of(_bert())
    described = AttentionMask.from_documents([[3, 4]])
    assert torch.equal(described.for_hf(spec), described.for_hf(_bert()))


def test_what_a_model_cannot_take_is_refused() -> None:
    packed = AttentionMask.from_documents([[3, 4]])
    with pytest.raises(ValueError, match=r"two dimensions say where padding is[\s\S]*several documents"):
        packed.for_hf(_bert(), dims=2)
    with pytest.raises(ValueError, match="dims must be one of"):
        packed.for_hf(_bert(), dims=3)  # type: ignore[arg-type]
    bart = BartModel(
        BartConfig(
            vocab_size=90,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
        )
    )
    with pytest.raises(ValueError, match="BartModel does not take an attention_mask of four dimensions"):
        packed.for_hf(bart)
    assert AttentionMask.from_lengths([2, 1]).for_hf(bart).tolist() == [[1, 1], [1, 0]]
    fnet = FNetModel(FNetConfig(vocab_size=90, hidden_size=16, num_hidden_layers=1, intermediate_size=16))
    with pytest.raises(ValueError, match="FNetModel takes no attention_mask"):
        AttentionMask.from_lengths([2, 1]).for_hf(fnet)
