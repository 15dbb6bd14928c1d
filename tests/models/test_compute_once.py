"""`compute_once` compared with the stock model: on rows alone, on batches, and through the life of a model.

Each test builds a tiny model with large random weights, so that every token shows in every output.
"""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from installed import before
from torch import nn
from transformers import AttentionInterface, AutoModelForCausalLM

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec, compute_once

pytestmark = pytest.mark.usefixtures("one_thread")

# transformers 5.0 does not look eager attention up, nor does OPT there; both are refused.
is_old = not hasattr(AttentionInterface, "get_interface")
of_newer = pytest.mark.skipif(is_old, reason="refused with transformers 5.0")
IDS = 90
SIZES: dict[str, Any] = {"vocab_size": IDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 48, "max_position_embeddings": 64, "initializer_range": 0.3}
SIZES |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = {"vocab_size": IDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.3}
GPT2 |= {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "pad_token_id": 0, "bos_token_id": 1}
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", SIZES | {"num_key_value_heads": 2}),
    "GPT2": ("GPT2Config", GPT2 | {"eos_token_id": 2}),
    "Gemma3": ("Gemma3TextConfig", SIZES | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}),
    "Mixtral": ("MixtralConfig", SIZES | {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "Bert": ("BertConfig", SIZES | NO_DROPOUT),
    "Roberta": ("RobertaConfig", SIZES | NO_DROPOUT),
    "OPT": ("OPTConfig", SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0, "init_std": 0.3}),
}


def make(cls: str, **more: Any) -> Any:
    """A tiny model of a class of transformers, with the same large random weights every time."""
    family = next(name for name in sorted(MADE, key=len, reverse=True) if cls.startswith(name))
    config, settings = MADE[family]
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return getattr(transformers, cls)(getattr(transformers, config)(**settings | more)).eval()


def llama(**more: Any) -> Any:
    return make("LlamaForCausalLM", **more)


def drawn(seed: int) -> list[list[int]]:
    """Rows of 1 to 30 tokens: some share a beginning, some are equal, and one begins another."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(5, IDS, rng.integers(1, 12)).tolist()]
    for _ in range(rng.integers(3, 9)):
        earlier = rows[rng.integers(len(rows))]
        beginning = earlier[: rng.integers(0, len(earlier) + 1)]
        rows.append((beginning + rng.integers(5, IDS, rng.integers(0, 10)).tolist())[:30] or [7])
    return rows


def padded(rows: list[list[int]], side: str = "right", more: int = 1) -> dict[str, torch.Tensor]:
    """A padded batch with `more` columns than the longest row."""
    length = max(map(len, rows)) + more
    ids, mask = torch.zeros(len(rows), length, dtype=torch.int64), torch.zeros(len(rows), length, dtype=torch.int64)
    for number, row in enumerate(rows):
        part = slice(0, len(row)) if side == "right" else slice(length - len(row), length)
        ids[number, part], mask[number, part] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask}


def groups(side: str = "right") -> dict[str, torch.Tensor]:
    """Two prompts of eight tokens with three answers each; two answers are equal."""
    rng = np.random.default_rng(1)
    prompts = rng.integers(5, IDS, (2, 8)).tolist()
    rows = [prompt + rng.integers(5, IDS, length).tolist() for prompt in prompts for length in (3, 6)]
    return padded([*rows, rows[0], rows[3]], side)


def labelled(batch: dict[str, Any], first: bool = True) -> dict[str, Any]:
    """The batch with its tokens as labels, -100 at padding; without `first`, also at the first token of a row."""
    mask = batch["attention_mask"]
    labels = batch["input_ids"].masked_fill(mask == 0, -100)
    if not first:
        labels[torch.arange(len(mask)), mask.argmax(1)] = -100
    return {**batch, "labels": labels}


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in model.parameters()])


def floats(out: Any) -> list[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        return [out] if out.is_floating_point() else []
    values = list(out.values()) if isinstance(out, dict) else out if isinstance(out, list | tuple) else []
    return [tensor for value in values for tensor in floats(value)]


def run(model: Any, batch: dict[str, Any]) -> list[torch.Tensor]:
    """All outputs of a model, at real tokens where they have a value for each place, and the gradients of its loss."""
    model.zero_grad()
    out, keep = model(**batch), batch["attention_mask"].bool()
    found = [x[keep] if x.shape[:2] == keep.shape else x for x in floats(out)]
    found = [x[keep.flatten()] if x.dim() == 2 and len(x) == keep.numel() else x for x in found]
    loss = out[0] if isinstance(out, tuple) else out.get("loss")
    if loss is not None and loss.dim() == 0:
        loss.backward()
        found.append(gradients(model))
    return [tensor.detach().float() for tensor in found]


def assert_equal(stock: list[torch.Tensor], ours: list[torch.Tensor], tolerance: float = 2e-5) -> None:
    assert [x.shape for x in stock] == [x.shape for x in ours]
    for one, other in zip(stock, ours, strict=True):
        assert float((one - other).detach().abs().max()) <= tolerance * max(1e-6, float(one.detach().abs().max()))


def compare(model: Any, batch: dict[str, Any], tolerance: float = 2e-5, **settings: Any) -> Any:
    """Assert that a batch gives the stock outputs and gradients after `compute_once`; return its result."""
    stock = run(model, batch)
    once = compute_once(model, **settings)
    assert_equal(stock, run(model, batch), tolerance)
    once.remove()
    return once


# ------------------------------------------------------------------------------------------------------- rows alone


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "cls", ["LlamaForCausalLM", "GPT2LMHeadModel", "Gemma3ForCausalLM", "BertForMaskedLM", "RobertaForMaskedLM"]
)
def test_drawn_batches_give_each_row_the_outputs_and_gradients_that_it_has_alone(cls: str, side: str) -> None:
    model = make(cls)
    first = 1 if cls.startswith("Roberta") else 0  # its padding has id 0, and tokens are numbered from 1
    once = compute_once(ours := copy.deepcopy(model))
    for seed in range(12):
        rows = drawn(seed)
        batch = padded(rows, side)
        keep = batch["attention_mask"].bool()
        if side == "left" or seed % 2:
            batch["position_ids"] = (keep.cumsum(1) - 1 + first).clamp(min=0)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            weights = torch.randn(int(keep.sum()), IDS)
        model.zero_grad()
        ours.zero_grad()
        alone = torch.cat([model(input_ids=torch.tensor([row])).logits[0] for row in rows])
        (alone * weights).sum().backward()
        out = ours(**batch).logits[keep]
        (out * weights).sum().backward()
        assert_equal([alone.detach(), gradients(model)], [out.detach(), gradients(ours)])
    assert once.calls >= 10
    assert once.tokens.computed < once.tokens.real < once.tokens.given


# --------------------------------------------------------------------------------------------- batches, stock or ours


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "cls", ["LlamaForCausalLM", "GPT2LMHeadModel", "Gemma3ForCausalLM", "BertForMaskedLM", "RobertaForMaskedLM"]
)
def test_stock_batches_without_positions_give_stock_losses(cls: str, side: str, first: bool) -> None:
    once = compare(make(cls), labelled(groups(side), first))
    is_refused = cls in ("BertForMaskedLM", "RobertaForMaskedLM") and side == "left" and first
    assert dict(once.reasons) == ({"a label of the first token after left padding": 1} if is_refused else {})
    assert once.calls == (0 if is_refused else 1)


CALLS: dict[str, tuple[str, Callable[[], Any], Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "a hole": ("between the tokens", llama, lambda b: {**b, "attention_mask": _without_column(b, 3)}),
    "a 4D mask": ("(B, T)", llama, lambda b: {**b, "attention_mask": _four_dimensions(b)}),
    "other values": ("0 and 1", llama, lambda b: {**b, "attention_mask": b["attention_mask"] * 2}),
    "attentions": (
        "output_attentions",
        lambda: llama(attn_implementation="eager"),
        lambda b: {**b, "output_attentions": True},
    ),
    "positions that restart": (
        "go up by one",
        llama,
        lambda b: {**b, "position_ids": (torch.arange(b["input_ids"].shape[1]) % 5)[None]},
    ),
    "labels at padding": ("at padding", llama, lambda b: {**b, "labels": b["input_ids"]}),
    "eager, a first label": (
        "first token after left padding",
        lambda: llama(attn_implementation="eager"),
        lambda b: labelled(groups("left")),
    ),
    "a pooler": ("left padding", lambda: make("BertForSequenceClassification"), lambda b: groups("left")),
    "an unknown tensor": ("argument my_weights", llama, lambda b: {**b, "my_weights": torch.arange(2)}),
    "rows that differ": ("95%", llama, lambda b: padded([[5, 6, 7, 8], [9, 8, 7, 6], [11, 12, 13, 14]], more=0)),
    "router logits in a tuple": (
        "in a tuple",
        lambda: make("MixtralModel"),
        lambda b: {**b, "output_router_logits": True, "return_dict": False},
    ),
    "offsets of other rows": (
        "do not divide",
        llama,
        lambda b: {**b, "cu_seq_lens_q": torch.tensor([0, 4], dtype=torch.int32)},
    ),
    "scaled positions": (
        "scaled by the length",
        lambda: llama(rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}),
        lambda b: padded([list(range(5, 45)), list(range(5, 40))], more=32),
    ),
}


def _without_column(batch: dict[str, Any], column: int) -> torch.Tensor:
    return batch["attention_mask"] * (torch.arange(batch["attention_mask"].shape[1]) != column)


def _four_dimensions(batch: dict[str, Any]) -> torch.Tensor:
    mask = batch["attention_mask"].bool()
    return (torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool).tril() & mask[:, None, :])[:, None]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=of_newer) if name in ("attentions", "eager, a first label") else name for name in CALLS],
)
def test_a_call_that_cannot_be_computed_once_runs_as_before_and_its_reason_is_shown(name: str) -> None:
    reason, build, change = CALLS[name]
    model, batch = build(), change(groups())
    stock = floats(model(**batch))
    once = compute_once(model)
    for one, other in zip(stock, floats(model(**batch)), strict=True):
        assert torch.equal(one, other)
    assert once.calls == 0
    assert reason in next(iter(once.reasons))
    assert f"as before, 1 call: {next(iter(once.reasons))}" in str(once)


def test_embeddings_caches_and_generation_run_as_before() -> None:
    model, batch = llama(), groups("left")
    embeds = {"inputs_embeds": model.get_input_embeddings()(batch["input_ids"]), **batch}
    del embeds["input_ids"]
    stock = model(**embeds).logits
    for settings in ({}, {"num_beams": 3}, {"do_sample": True}, {"cache_implementation": "static"}):
        torch.manual_seed(0)
        expected = model.generate(**batch, max_new_tokens=4, **settings)
        once = compute_once(model)
        torch.manual_seed(0)
        assert torch.equal(expected, model.generate(**batch, max_new_tokens=4, **settings))
        assert once.calls == 0
        assert "use_cache=True without gradients" in once.reasons
        once.remove()
    once = compute_once(model)
    assert torch.equal(stock, model(**embeds).logits)
    assert dict(once.reasons) == {"no input_ids (B, T)": 1}
    with torch.no_grad():
        assert model(**batch, use_cache=True).past_key_values is not None
        assert model(**batch).past_key_values is None
        expected = model.generate(**batch, max_new_tokens=4, use_cache=True)
        assert torch.equal(expected, model.generate(**batch, max_new_tokens=4, use_cache=False))
    assert once.calls > 0


def test_all_outputs_come_back_in_rows_with_zeros_at_padding() -> None:
    model, batch = make("LlamaModel"), groups("left")
    compute_once(model)
    out = model(**batch, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    for states in (out.last_hidden_state, *out.hidden_states):
        assert states.shape == (*batch["input_ids"].shape, 32)
        assert not states[batch["attention_mask"] == 0].any()
        assert states[batch["attention_mask"] == 1].all(-1).all()


@pytest.mark.parametrize(
    ("cls", "more"),
    [
        ("LlamaForCausalLM", {"output_hidden_states": True}),
        ("LlamaForCausalLM", {"return_dict": False}),
        ("LlamaForCausalLM", {"logits_to_keep": 3}),
        ("MixtralForCausalLM", {"output_router_logits": True}),
        ("BertForMaskedLM", {"token_type_ids": torch.ones(6, 15, dtype=torch.int64).tril(2)}),
        ("GPT2LMHeadModel", {"position_ids": torch.arange(15)[None] + torch.tensor([0, 3, 0, 3, 9, 0])[:, None]}),
        pytest.param("OPTForCausalLM", {}, marks=of_newer),
    ],
)
def test_outputs_and_gradients_are_those_of_stock_whatever_is_asked_for(cls: str, more: dict[str, Any]) -> None:
    batch = labelled(groups())
    if "logits_to_keep" in more:
        del batch["labels"]
        keep = batch["attention_mask"][:, -3:].bool()
        stock, once = make(cls)(**batch, **more).logits, compute_once(model := make(cls))
        assert_equal([stock[keep]], [model(**batch, **more).logits[keep]])
    else:
        once = compare(make(cls), {**batch, **more})
    assert once.calls == 1


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("cls", ["Llama", "GPT2", "Bert", "Roberta", pytest.param("OPT", marks=of_newer)])
def test_classifiers_of_rows_give_stock_losses(cls: str, side: str) -> None:
    model = make(f"{cls}ForSequenceClassification", num_labels=3)
    once = compare(model, {**groups(side), "labels": torch.tensor([0, 1, 2, 0, 1, 2])})
    reads_first = cls in ("Bert", "Roberta")
    assert once.calls == (0 if reads_first and side == "left" else 1)


def test_multiple_choice_computes_a_context_once_for_four_endings() -> None:
    rng = np.random.default_rng(0)
    context = rng.integers(5, IDS, 10).tolist()
    batch = padded([context + rng.integers(5, IDS, 4).tolist() for _ in range(4)], more=0)
    model = make("BertForMultipleChoice")
    choices = {name: tensor[None].repeat(2, 1, 1) for name, tensor in batch.items()}
    stock = model(**choices).logits
    once = compute_once(model)
    assert torch.allclose(stock, model(**choices).logits, atol=1e-5)
    assert once.tokens == (112, 112, 56)  # an encoder computes equal rows once
    causal, shared = llama(), labelled(batch)
    assert compare(causal, shared).tokens == (56, 56, 10 + 4 * 4)


def test_windows_longer_than_the_compared_rows_are_those_of_the_model() -> None:
    for window in (1, 7, 40):
        rows = [[*range(5, length), 3, 4] for length in (55, 60, 25)]
        compare(make("Gemma3ForCausalLM", sliding_window=window), labelled(padded(rows)))


# ------------------------------------------------------------------------------------------------- equal, or refused


class Mean(nn.Module):
    """A user's own classifier: the mean over the tokens of a row, or over all places."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.body, self.masked = make("BertModel"), masked

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask[..., None].float() if self.masked else torch.ones_like(states[..., :1])
        return (states * weight).sum(1) / weight.sum(1)


def small(cls: str, **settings: Any) -> Any:
    """A model of a class that is refused."""
    kind: Any = getattr(transformers, cls)
    return kind(kind.config_class(vocab_size=IDS, pad_token_id=0, **settings)).eval()


ESM = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
SHORT = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an encoder-decoder": (lambda: small("T5ForConditionalGeneration", **SHORT), "T5ForConditionalGeneration"),
    "its encoder": (lambda: small("T5EncoderModel", **SHORT), ""),
    "question answering": (lambda: make("BertForQuestionAnswering"), "BertForQuestionAnswering"),
    "alibi": (
        lambda: small("BloomForCausalLM", hidden_size=32, n_layer=1, n_head=4),
        "attention",
    ),
    "MPNet": (
        lambda: small("MPNetModel", hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48),
        "",
    ),
    "a mean over padding": (lambda: Mean(masked=False).eval(), "differ"),
    "a scale by the share of mask tokens in a row": (
        lambda: small("EsmForMaskedLM", **ESM, mask_token_id=4, token_dropout=True),
        "differ",
    ),
    "a scale of late columns": (
        lambda: small("Llama4ForCausalLM", **ESM, num_key_value_heads=2, head_dim=8, num_local_experts=2),
        "queries are scaled by their column",
    ),
    "recurrent": (lambda: small("MambaForCausalLM", hidden_size=32, state_size=4, num_hidden_layers=1), ""),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_model_that_differs_is_refused_with_three_lines_and_left_unchanged(name: str) -> None:
    build, got = REFUSED[name]
    model = build()
    with pytest.raises(ValueError, match=r"\n  got: .+\n  fix: .+") as refusal:
        compute_once(model)
    assert got in str(refusal.value).splitlines()[1]
    assert len(str(refusal.value).splitlines()) == 3
    for module in model.modules():
        assert "forward" not in vars(module)
        assert not module._forward_pre_hooks


@pytest.mark.parametrize("positions", [8, 16, 23, 24, 40])
@pytest.mark.parametrize("cls", ["BertForMaskedLM", "RobertaForMaskedLM", "GPT2LMHeadModel"])
def test_models_of_few_positions_are_compared_on_shorter_rows(cls: str, positions: int) -> None:
    name = "n_positions" if cls.startswith("GPT2") else "max_position_embeddings"
    batch = labelled(padded([[5, 6, 7], [5, 6, 7], [5, 6]]))
    assert compare(make(cls, **{name: positions}), batch).calls == 1


def test_a_head_of_the_users_own_that_masks_padding_is_compared_whole() -> None:
    model, batch = Mean(masked=True).eval(), groups()
    stock = model(**batch)
    once = compute_once(model)
    assert torch.allclose(stock, model(**batch), atol=1e-5)
    assert once.calls == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_installation_leaves_mode_weights_and_random_state_as_they_were(dtype: torch.dtype) -> None:
    model = llama().to(dtype).train()
    model.lm_head.eval()
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    config, keys = model.config.to_dict(), list(model.state_dict())
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    compute_once(model)
    assert torch.equal(torch.rand(3), expected)
    assert model.training
    assert not model.lm_head.training
    assert [parameter.data_ptr() for parameter in model.parameters()] == pointers
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert (model.config.to_dict(), list(model.state_dict()), type(model).__name__) == (
        config,
        keys,
        "LlamaForCausalLM",
    )


def test_weights_that_are_not_floats_are_compared_as_a_small_model() -> None:
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**MADE["Llama"][1] | {"num_hidden_layers": 9}))
    once = compute_once(model)
    loaded, stock = model.to_empty(device="cpu").eval(), llama(num_hidden_layers=9)
    loaded.load_state_dict(stock.state_dict())
    loaded.model.rotary_emb = stock.model.rotary_emb
    assert_equal(run(stock, labelled(groups())), run(loaded, labelled(groups())))
    assert once.calls == 1

    model, batch = llama(num_hidden_layers=5), groups()
    weight = (model.lm_head.weight.detach() * 100).to(torch.int8)  # as a quantized layer stores it
    model.lm_head.weight = nn.Parameter(weight, requires_grad=False)
    model.lm_head.forward = lambda states: states @ weight.T.float() / 100
    expected = model(**batch).logits
    once = compute_once(model)
    keep = batch["attention_mask"].bool()
    assert torch.allclose(expected[keep], model(**batch).logits[keep], atol=1e-4)
    assert once.calls == 1


def test_a_small_model_that_is_too_large_is_refused() -> None:
    sizes = {"hidden_size": 16384, "intermediate_size": 65536, "num_attention_heads": 4, "num_hidden_layers": 2}
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=9, **sizes))
    with pytest.raises(ValueError, match=r"could not be built\n  got: ValueError: .*parameters in 2 layers"):
        compute_once(model)


# ----------------------------------------------------------------------------------------------- dropout, embeddings


@pytest.mark.parametrize(
    "build",
    [
        lambda: make("GPT2LMHeadModel", resid_pdrop=0.3),
        lambda: llama(attention_dropout=0.3),
        pytest.param(lambda: make("OPTForCausalLM", dropout=0.3), marks=of_newer),
        lambda: make("BertForMaskedLM", hidden_dropout_prob=0.3),
    ],
)
def test_rows_have_noise_of_their_own_in_training_unless_share_is_true(build: Callable[[], Any]) -> None:
    model = build().train()
    batch = padded([[5, 6, 7, 8], [5, 6, 7, 8], [5, 6]], more=4)
    once = compute_once(model)
    logits = model(**batch).logits
    assert not torch.equal(logits[0, :4], logits[1, :4])
    assert once.tokens == (24, 10, 10)
    assert compute_once(model, share=True) is once
    logits = model(**batch).logits
    assert torch.equal(logits[0, :4], logits[1, :4])
    shared = once.tokens.computed - 10
    assert shared < 10
    compute_once(model, share=False)
    model.eval()(**batch)
    assert once.tokens.computed == 10 + 2 * shared


def test_noise_in_embeddings_runs_as_before_while_it_is_on() -> None:
    neftune = pytest.importorskip("transformers.integrations.neftune")
    model, batch = llama().train(), labelled(groups())
    once = compute_once(model)
    hook = neftune.activate_neftune(model, 5.0)
    model(**batch)
    assert dict(once.reasons) == {"NEFTune": 1}
    neftune.deactivate_neftune(model, hook)
    model(**batch)
    assert once.calls == 1


# --------------------------------------------------------------------------------------------------------- flat rows


def flat(rows: list[list[int]], first: int = 0, **more: Any) -> dict[str, Any]:
    """The rows as `DataCollatorWithFlattening` puts them: in one row, with offsets."""
    lengths = [len(row) for row in rows]
    offsets = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    return {
        "input_ids": torch.tensor([[*itertools.chain.from_iterable(rows)]]),
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None] + first,
        "seq_idx": torch.arange(len(rows)).repeat_interleave(torch.tensor(lengths))[None].int(),
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
        **more,
    }


@pytest.mark.parametrize("with_positions", [True, False])
@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=of_newer)])
@pytest.mark.parametrize(
    "cls",
    [
        "LlamaForCausalLM",
        pytest.param("GPT2LMHeadModel", marks=of_newer),  # its head drops the offsets
        "Gemma3ForCausalLM",
        "BertForMaskedLM",
        "RobertaForMaskedLM",
    ],
)
def test_documents_of_a_flat_row_have_the_outputs_that_they_have_alone(
    cls: str, attention: str, with_positions: bool
) -> None:
    model = make(cls, attn_implementation=attention)
    rows = drawn(3) * 2
    batch = flat(rows, first=1 if cls.startswith("Roberta") else 0)
    if not with_positions:
        del batch["position_ids"]
    alone = torch.cat([model(input_ids=torch.tensor([row])).logits[0] for row in rows])
    once = compute_once(model)
    assert_equal([alone], [model(**batch).logits[0]])
    assert once.calls == 1
    assert once.tokens.computed <= once.tokens.real / 2


def test_the_collator_makes_flat_rows_for_an_encoder_that_computes_tokens_once(byte_bpe: Any) -> None:
    model = make("BertForMaskedLM", vocab_size=len(byte_bpe))
    assert ModelSpec.of(model).flat_keys == ()
    texts = ["I ride bike", "she said that the dog reads", "bike"]
    once = compute_once(model)
    spec = ModelSpec.of(model)
    assert {"position_ids", "cu_seq_lens_q", "cu_seq_lens_k"} <= set(spec.flat_keys)
    batch = DataCollatorWithPositionalEncoding(byte_bpe, model=model, packing="flat", max_length=64)(texts)
    assert "cu_seq_lens_q" in batch
    assert (once.calls, once.tokens.given, str(once).count("\n")) == (0, 0, 0)  # those of the spec are not counted
    logits = model(**batch).logits[0]
    assert once.calls == 1
    once.remove()
    offsets = batch["cu_seq_lens_q"].tolist()
    for start, end in itertools.pairwise(offsets):
        alone = model(input_ids=batch["input_ids"][:, start:end]).logits[0]
        assert torch.allclose(alone, logits[start:end], atol=1e-4)
    assert ModelSpec.of(model).flat_keys == ()


# ------------------------------------------------------------------------------------------------- flash attention


def plain_varlen(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, **kwargs: Any) -> torch.Tensor:
    """Attention of each segment in plain torch, in the place of flash attention's kernel: `(N, heads, width)`."""
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert type(kwargs["max_seqlen_q"]) is type(kwargs["max_seqlen_k"]) is int
    out = []
    for (a, b), (c, d) in zip(itertools.pairwise(cu_seqlens_q), itertools.pairwise(cu_seqlens_k), strict=True):
        queries, keys, values = q[a:b].transpose(0, 1), k[c:d].transpose(0, 1), v[c:d].transpose(0, 1)
        groups = len(queries) // len(keys)
        keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
        distance = torch.arange(d - c - (b - a), d - c)[:, None] - torch.arange(d - c)[None]
        visible = distance >= 0 if kwargs["causal"] else torch.ones_like(distance, dtype=torch.bool)
        left, right = kwargs.get("window_size", (-1, -1))
        if left >= 0:
            visible = visible & (distance <= left) & (distance >= (-right if not kwargs["causal"] else 0))
        mask = torch.zeros(distance.shape).masked_fill(~visible, -torch.inf)
        scores = queries @ keys.transpose(1, 2) * kwargs["softmax_scale"] + mask
        out.append((scores.softmax(-1) @ values).transpose(0, 1))
    return torch.cat(out)


@pytest.mark.skipif(before("transformers", "5.24"), reason="another place for the kernel")
@pytest.mark.parametrize("cls", ["LlamaForCausalLM", "Gemma3ForCausalLM", "BertForMaskedLM"])
def test_flash_attention_gets_each_segment_by_offsets(cls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import modeling_flash_attention_utils as flash

    def varlen(
        q: Any,
        k: Any,
        v: Any,
        cu_seqlens_q: Any,
        cu_seqlens_k: Any,
        max_seqlen_q: Any,
        max_seqlen_k: Any,
        dropout_p: float = 0.0,
        softmax_scale: float = 1.0,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
    ) -> torch.Tensor:
        sizes = {"max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}
        settings = {"softmax_scale": softmax_scale, "causal": causal, "window_size": window_size}
        return plain_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **sizes, **settings)

    functions = (None, varlen, None, flash._pad_input, flash._unpad_input)
    process = flash._lazy_define_process_function(varlen)
    monkeypatch.setattr(flash, "lazy_import_flash_attention", lambda *_, **__: (functions, (process, dict)))
    model, batch = make(cls), groups()
    keep = batch["attention_mask"].bool()
    stock = model(**batch).logits[keep]
    model.config._attn_implementation = "flash_attention_2"
    assert_equal([stock], [model(**batch).logits[keep]])  # the plain function, by transformers' own way
    once = compute_once(model)
    assert model.config._attn_implementation == "flash_attention_2"
    assert_equal([stock], [model(**batch).logits[keep]])
    rows = drawn(3)
    document = flat(rows)
    ours = model(**document).logits[0]
    assert once.calls == 2
    assert not once.reasons
    once.remove()
    model.config._attn_implementation = "sdpa"
    assert_equal([torch.cat([model(input_ids=torch.tensor([row])).logits[0] for row in rows])], [ours])


# -------------------------------------------------------------------------------------------------- life of a model


def test_a_second_call_returns_the_same_object_and_a_second_remove_does_nothing() -> None:
    model = llama()
    signature = inspect.signature(model.forward)
    once = compute_once(model)
    assert compute_once(model) is compute_once(model.model) is once
    assert inspect.signature(model.forward) == signature
    assert inspect.signature(model.model.forward) == inspect.signature(make("LlamaModel").forward)
    once.remove()
    once.remove()
    assert "forward" not in vars(model)
    assert "forward" not in vars(model.model)
    assert compute_once(model) is not once


def test_copies_and_pickles_have_their_own_weights_and_counts() -> None:
    model, batch = llama(), labelled(groups())
    once = compute_once(model)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(0.5)
        loss = other(**batch).loss
        own = compute_once(other)
        assert own is not once
        assert (own.calls, once.calls) == (1, 0)
        own.remove()
        assert torch.allclose(loss, other(**batch).loss, atol=1e-5)
        assert "forward" not in vars(other)
    assert "forward" in vars(model)


def test_another_process_loads_the_model_with_its_counts_and_its_config_stock(tmp_path: Path) -> None:
    model, batch = llama(), labelled(groups())
    compute_once(model)
    torch.save((model, batch, model(**batch).loss.item()), tmp_path / "model.pt")
    code = """
import sys, torch, transformers
model, batch, loss = torch.load(sys.argv[1], weights_only=False)
stock = transformers.AutoModelForCausalLM.from_config(model.config)
stock.load_state_dict(model.state_dict())
from hf_posenc import compute_once
once = compute_once(model)
assert abs(float(model(**batch).loss) - loss) < 1e-5
assert abs(float(stock(**batch).loss) - loss) < 1e-5
assert "forward" not in vars(stock.model), vars(stock.model)
print(once.calls)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "model.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr


def test_saved_files_and_state_are_those_of_the_stock_model(tmp_path: Path) -> None:
    model = llama()
    model.save_pretrained(tmp_path / "stock")
    compute_once(model)
    model.save_pretrained(tmp_path / "once")
    for file in (tmp_path / "stock").iterdir():
        assert file.read_bytes() == (tmp_path / "once" / file.name).read_bytes()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "once")
    assert "forward" not in vars(loaded.model)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("cls", ["LlamaForCausalLM", "GPT2LMHeadModel", "BertForMaskedLM"])
def test_gradient_checkpoints_give_stock_gradients(cls: str, reentrant: bool) -> None:
    model = make(cls)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers 5.24 renames it
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    assert compare(model.train(), labelled(groups())).calls == 1


def test_autocast_and_another_attention_afterwards_give_stock_outputs() -> None:
    model, batch = llama(), labelled(groups())
    with torch.autocast("cpu", torch.bfloat16):
        stock = run(model, batch)
        once = compute_once(model)
        assert_equal(stock, run(model, batch), 0.1)
    model.set_attn_implementation("eager")
    ours = run(model, batch)
    once.remove()
    assert_equal(run(model, batch), ours)
    assert once.calls == (1 if is_old else 2)


def test_compiled_exported_and_traced_models_run_as_before_and_say_so() -> None:
    model, batch = llama(use_cache=False), groups()
    keep = batch["attention_mask"].bool()
    stock = model(**batch).logits[keep]
    once = compute_once(model)
    for each in (model, llama(use_cache=False)):  # the other model is stock
        compiled = torch.compile(each, backend="eager", fullgraph=True)
        assert_equal([stock], [compiled(**batch).logits[keep]])
    exported = torch.export.export(model, (), batch).module()
    assert_equal([stock], [exported(**batch).logits[keep]])
    assert once.calls == 0
    assert "torch.compile" in str(once)


def test_a_replica_of_data_parallel_is_refused_with_the_way_out() -> None:
    model = llama()
    compute_once(model)
    for part in (model, model.model):
        replica = part._replicate_for_data_parallel()
        with pytest.raises(ValueError, match=r"DataParallel[^\n]*\n  got: a replica of Llama\w+\n  fix: torchrun"):
            replica(**groups())


def test_the_forward_of_another_library_is_called_and_restored() -> None:
    model, batch = llama(), labelled(groups())
    stock, calls = model.model.forward, []
    model.model.forward = lambda *args, **kwargs: (calls.append(1), stock(*args, **kwargs))[1]
    mine = model.model.forward
    once = compare(model, batch)
    assert once.calls == 1
    assert model.model.forward is mine
    assert calls


def test_sharded_weights_come_after_it() -> None:
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            model, batch = llama(), labelled(groups())
            loss = float(model(**batch).loss.detach())
            once = compute_once(model)
            for layer in model.model.layers:
                fully_shard(layer)
            fully_shard(model)
            ours = model(**batch).loss
            ours.backward()
            assert abs(float(ours.detach()) - loss) < 1e-4
            assert once.calls == 1
            late = llama()
            fully_shard(late)
            with pytest.raises(ValueError, match=r"sharded[^\n]*\n  fix: do this before the model is sharded"):
                compute_once(late)
        finally:
            distributed.destroy_process_group()
