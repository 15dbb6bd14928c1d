"""`AttentionMask.for_hf` in models: outputs with four dimensions and two, packed and alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from installed import makes_masks_of_four_dimensions
from looping import for_each
from small_models import answers, tiny
from transformers import FNetConfig, FNetModel

from hf_posenc import AttentionMask, ModelSpec

LENGTHS = [7, 4, 6]


def _out(model: Any, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return answers(model, {"input_ids": ids, "attention_mask": mask, "position_ids": positions}).float()


@for_each("side", ["left", "right"])
@for_each("dtype", [torch.float32, torch.bfloat16])
@for_each("attention", ["sdpa", "eager"])
@for_each("name", ["bert", "gpt2"])
def test_four_dimensions_give_the_same_outputs_as_two(name: str, attention: str, dtype: torch.dtype, side: Any) -> None:
    model = tiny(name, attn_implementation=attention).to(dtype)
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


def test_look_ahead_in_a_model_that_is_not_causal_takes_four_dimensions() -> None:
    model = tiny("bert")
    mask = AttentionMask.from_lengths([5], look_ahead=True).for_hf(model)
    assert mask.shape == (1, 1, 5, 5)
    ids = torch.tensor([[11, 12, 13, 14, 15], [11, 12, 13, 14, 16]])
    out = _out(model, ids, mask.expand(2, -1, -1, -1), torch.arange(5).repeat(2, 1))
    torch.testing.assert_close(out[0, :4], out[1, :4], rtol=0, atol=1e-5)
    assert AttentionMask.from_lengths([5], look_ahead=True).for_hf(tiny("gpt2")).shape == (1, 5)


def test_masks_that_a_model_cannot_take_are_refused() -> None:
    packed = AttentionMask.from_documents([[3, 4]])
    with pytest.raises(
        ValueError, match=r"two dimensions can only express padding[\s\S]*several documents.*\n.*dims=None"
    ):
        packed.for_hf(tiny("bert"), dims=2)
    with pytest.raises(ValueError, match=r"dims must be one of None, 2, 4\n.*3"):
        packed.for_hf(tiny("bert"), dims=3)  # type: ignore[arg-type]
    bart = tiny("bart-base")
    with pytest.raises(
        ValueError, match=r"BartModel does not take .* needs four dimensions\n.*\n  fix: one document a row"
    ):
        packed.for_hf(bart)
    isolating = ModelSpec(name="Any", accepts=("attention_mask", "position_ids"), isolates_by_position_ids=True)
    with pytest.raises(ValueError, match=r"four dimensions\n.*\n  fix: .*position_ids=.*, use_cache=False"):
        packed.for_hf(isolating)
    assert AttentionMask.from_lengths([2, 1]).for_hf(bart).tolist() == [[1, 1], [1, 0]]
    fnet = FNetModel(FNetConfig(vocab_size=90, hidden_size=16, num_hidden_layers=1, intermediate_size=16))
    with pytest.raises(ValueError, match="FNetModel takes no attention_mask"):
        AttentionMask.from_lengths([2, 1]).for_hf(fnet)


PACKED, RESTARTING = [[4, 3, 5], [6, 2]], [[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 0, 1, 0, 0, 0, 0]]


def _ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(10, 90, (rows, length), generator=torch.Generator().manual_seed(1))


def _documents_alone(model: Any, ids: torch.Tensor, out: torch.Tensor, rows: list[list[int]]) -> None:
    for row, documents in enumerate(rows):
        begin = 0
        for length in documents:
            place = slice(begin, begin + length)
            alone = _out(model, ids[row : row + 1, place], None, torch.arange(length)[None])
            torch.testing.assert_close(out[row : row + 1, place], alone, rtol=0, atol=1e-5)
            begin += length


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_there_is_no_mask_if_restarting_positions_isolate_without_a_cache(attention: str) -> None:
    model = tiny("gpt2", attn_implementation=attention).base_model
    described, positions = AttentionMask.from_documents(PACKED), torch.tensor(RESTARTING)
    assert described.for_hf(model, position_ids=positions, use_cache=False) is None
    ids = _ids(2, 12)
    with torch.no_grad():
        out = model(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state
    _documents_alone(model, ids, out, PACKED)


def test_a_mask_of_ones_and_a_cache_which_switch_isolation_off_are_avoided() -> None:
    model, ids, positions = tiny("gpt2").base_model, _ids(2, 12), torch.tensor(RESTARTING)
    ones = torch.ones_like(ids)
    with torch.no_grad():  # the reason for this: transformers does not warn, and documents see each other
        wrong = [
            model(input_ids=ids, position_ids=positions, attention_mask=ones, use_cache=False),
            model(input_ids=ids, position_ids=positions, use_cache=True),
        ]
        alone = model(input_ids=ids[:1, 4:7], use_cache=False).last_hidden_state
    for out in wrong:
        assert float((out.last_hidden_state[:1, 4:7] - alone).abs().max()) > 0.01
    mask = AttentionMask.from_batch({"attention_mask": ones, "position_ids": positions})
    assert model.config.use_cache
    for settings in ({}, {"use_cache": True}):
        found = mask.for_hf(model, position_ids=positions, **settings)
        assert found.shape == (2, 1, 12, 12)
        with torch.no_grad():
            out = model(input_ids=ids, position_ids=positions, attention_mask=found, **settings).last_hidden_state
        torch.testing.assert_close(out[:1, 4:7], alone, rtol=0, atol=1e-5)


def test_a_mask_of_whole_rows_is_refused_with_positions_that_restart() -> None:
    whole = AttentionMask.from_lengths([12, 8])
    with pytest.raises(ValueError, match=r"packed rows[\s\S]*row 0, column 4[\s\S]*from_batch"):
        whole.for_hf(tiny("gpt2"), position_ids=torch.tensor(RESTARTING))
    positions = torch.arange(12).repeat(2, 1)
    assert whole.for_hf(tiny("gpt2"), position_ids=positions).shape == (2, 12)
    assert whole.for_hf(tiny("gpt2"), position_ids=positions[:1]).shape == (2, 12)
    with pytest.raises(ValueError, match="row 0, column 3"):
        AttentionMask(torch.tensor([[0, 1, 1, 1]])).for_hf(tiny("gpt2"), position_ids=torch.tensor([[0, 0, 1, 0]]))
    with pytest.raises(ValueError, match=r"must have the same shape[\s\S]*\(2, 5\) and \(2, 12\)"):
        whole.for_hf(tiny("gpt2"), position_ids=positions[:, :5])


@pytest.mark.parametrize(
    ("documents", "positions"),
    [
        ([[0, 0, 1, 1]], [[0, 1, 2, 3]]),  # do not restart
        ([[0, 0, 0, 1]], [[0, 2, 3, 0]]),  # leave a number out
        ([[-1, 0, 0, 1]], [[1, 2, 3, 0]]),  # padding counts into the first document
        ([[0, 1, 0, 1]], [[0, 0, 1, 1]]),  # documents interleave
        ([[0, 1, 0]], [[0, 0, 0]]),
        ([[1, 0, -1]], [[0, 0, 1]]),  # continue in padding
    ],
)
def test_positions_that_isolate_other_documents_than_the_mask_need_the_mask(
    documents: list[list[int]], positions: list[list[int]]
) -> None:
    mask = AttentionMask(torch.tensor(documents))
    assert mask.for_hf(tiny("gpt2"), position_ids=torch.tensor(positions), use_cache=False) is not None


@pytest.mark.parametrize(
    ("settings", "is_causal", "isolated"),
    [
        ({"look_ahead": True}, True, True),
        ({}, False, True),
        ({"look_ahead": True}, False, False),
        ({"look_ahead": True, "window": 2}, True, False),
        ({"look_ahead": True, "window": 12}, True, True),  # as long as a row: it hides nothing
        ({"look_ahead": True, "prefix": 2}, True, False),
    ],
)
def test_positions_isolate_documents_but_do_not_replace_other_settings(
    settings: dict[str, Any], is_causal: bool, isolated: bool
) -> None:
    names = ("input_ids", "attention_mask", "position_ids")
    spec = ModelSpec(name="Any", accepts=names, is_causal=is_causal, takes_4d_mask=True, isolates_by_position_ids=True)
    mask = AttentionMask.from_documents(PACKED, **settings)
    found = mask.for_hf(spec, position_ids=torch.tensor(RESTARTING), use_cache=False)
    assert (found is None) == isolated


def test_the_cache_setting_of_a_models_configuration_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("gpt2")
    mask, positions = AttentionMask.from_documents(PACKED), torch.tensor(RESTARTING)
    assert mask.for_hf(model, position_ids=positions) is not None
    model.config.use_cache = False
    assert mask.for_hf(model, position_ids=positions) is None
    del model.config.use_cache
    monkeypatch.delattr(type(model.config), "use_cache", raising=False)  # its default
    assert mask.for_hf(model, position_ids=positions) is not None


def test_a_model_that_does_not_isolate_by_positions_gets_its_mask() -> None:
    mask = AttentionMask.from_documents(PACKED)
    assert mask.for_hf(tiny("bert"), position_ids=torch.tensor(RESTARTING), use_cache=False).shape == (2, 1, 12, 12)
    spec = ModelSpec.of(tiny("gpt2"))
    assert spec.isolates_by_position_ids
    assert mask.for_hf(spec, position_ids=torch.tensor(RESTARTING)) is not None  # nothing is known of a cache
    assert mask.for_hf(spec, position_ids=torch.tensor(RESTARTING), use_cache=False) is None
    assert mask.for_hf(spec, position_ids=torch.tensor(RESTARTING), use_cache=False, dims=4) is not None


_SMALL = {
    "vocab_size": 90,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _windowed(name: str, attention: str) -> Any:
    import transformers

    torch.manual_seed(0)
    small: dict[str, Any] = _SMALL | {"attn_implementation": attention}
    if name == "ModernBert":
        small |= {"local_attention": 4, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2}
    elif name == "Gemma3Text":
        small |= {"head_dim": 8, "num_key_value_heads": 2, "sliding_window": 3}
        small |= {"layer_types": ["sliding_attention", "full_attention"]}
    else:
        small |= {"num_key_value_heads": 2, "sliding_window": 3}
    config = getattr(transformers, f"{name}Config")(**small)
    model = getattr(transformers, f"{name}Model")(config).eval()
    if name == "ModernBert" and not makes_masks_of_four_dimensions(type(model)):
        pytest.skip("this version of ModernBERT takes no mask of four dimensions")
    return model


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["ModernBert", "Gemma3Text", "Mistral"])
def test_four_dimensions_include_the_windows_of_a_models_own_layers(name: str, attention: str) -> None:
    model = _windowed(name, attention)
    spec = ModelSpec.of(model)
    assert spec.window == 3
    mask = AttentionMask.from_documents(PACKED).for_hf(model)
    if name == "Mistral":
        assert mask.shape == (2, 1, 12, 12)
    else:
        assert sorted(mask) == ["full_attention", "sliding_attention"]
    ids, positions = _ids(2, 12), torch.tensor(RESTARTING)
    out = _out(model, ids, mask, positions)
    _documents_alone(model, ids, out, PACKED)
    # One plain mask would have taken the place of the windows without a word.
    plain = AttentionMask.from_documents(PACKED, look_ahead=spec.is_causal).additive()
    assert float((_out(model, ids, plain, positions) - out)[0, :4].abs().max()) > 1e-3
    short = AttentionMask.from_documents([[3, 2, 3]]).for_hf(model)
    assert short.shape == (1, 1, 8, 8)  # nothing that is further away


def test_a_window_takes_four_dimensions_unless_it_is_the_models_own() -> None:
    mistral = _windowed("Mistral", "sdpa")
    assert AttentionMask.from_lengths([9, 4], look_ahead=True, window=3).for_hf(mistral).shape == (2, 9)
    narrower = AttentionMask.from_lengths([9, 4], look_ahead=True, window=2)
    assert torch.equal(narrower.for_hf(mistral), narrower.additive())
    wider = AttentionMask.from_lengths([9, 4], look_ahead=True, window=5)
    assert torch.equal(
        wider.for_hf(mistral) == 0, AttentionMask.from_lengths([9, 4], look_ahead=True, window=3).dense()
    )
    assert (AttentionMask.from_lengths([0, 0], 4).for_hf(mistral, dims=4)[..., 0] == 0).all()  # no document at all
    assert AttentionMask.from_lengths([9, 4], look_ahead=True, window=3).for_hf(tiny("gpt2")).shape == (2, 1, 9, 9)


def test_a_prefix_takes_four_dimensions_and_is_visible_to_earlier_tokens() -> None:
    model, ids = tiny("gpt2").base_model, _ids(2, 7)
    other = ids.clone()
    other[:, 2] += 1  # the last token of the prefix of row 0, and none of row 1's
    mask = AttentionMask.from_lengths([7, 7], look_ahead=True, prefix=[3, 1]).for_hf(model)
    moved = (_out(model, ids, mask, torch.arange(7)[None]) - _out(model, other, mask, torch.arange(7)[None])).abs()
    assert (moved.amax(-1) > 1e-6).tolist() == [[True] * 7, [False, False] + [True] * 5]
    everything = AttentionMask.from_lengths([7], look_ahead=True, prefix=7).for_hf(model)
    assert (everything == 0).all()


def test_masks_for_kinds_of_layers_are_moved_together() -> None:
    mask = AttentionMask.from_documents(PACKED).for_hf(_windowed("ModernBert", "sdpa"))
    moved = mask.to("cpu")
    assert type(moved) is type(mask)
    assert all(torch.equal(moved[name], mask[name]) for name in mask)


def test_cross_attention_with_packed_documents_is_refused_for_models() -> None:
    target, source = AttentionMask.from_lengths([3, 2]), AttentionMask.from_lengths([1, 4])
    assert AttentionMask.cross(target, source).for_hf(tiny("bert")).tolist() == [[1, 0, 0, 0], [1, 1, 1, 1]]
    sides = [AttentionMask.from_documents([[1, 2]]), AttentionMask.from_documents([[2, 2]])]
    with pytest.raises(ValueError, match=r"needs four dimensions\n.*queries=3"):
        AttentionMask.cross(*sides).for_hf(tiny("bert"))
