"""`ModelSpec.of` compared with the outputs of tiny models: numbering, limits, causality, padding, masks.

Expected values come from `families`; those about outputs are tested by running the model.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import families
import pytest
import torch
import transformers
from census import measured
from families import (
    DECOYS,
    FAMILIES,
    ROOM,
    UNTOLD,
    VOCABULARY,
    WITHOUT_TABLES,
    Family,
    assert_same,
    each_family,
    each_family_without_table,
    each_head,
    outputs,
    own_model,
    tokens,
    traces,
    whole,
)
from installed import before, makes_masks_of_four_dimensions
from looping import for_each
from torch import nn

from hf_posenc import ModelSpec, use_sinusoidal_positions

pytestmark = pytest.mark.usefixtures("one_thread")

every_family = pytest.mark.parametrize("family", each_family())
BERT, ROBERTA, GPT2, BART = (FAMILIES[name] for name in ("bert", "roberta", "gpt2", "bart"))
PADDING = 3


def _first_position(family: Family) -> int:
    """Return the first value of `position_ids`; OPT and BioGPT add their two rows themselves."""
    counts_from_zero = {"OPT", "BioGpt"}
    if not family.takes_position_ids or family.prefix in counts_from_zero:
        return 0
    return next(iter(family.tables.values()))


@every_family
def test_the_spec_of_a_family_has_its_numbering_limits_and_kind(family: Family) -> None:
    model = family.build()
    spec = ModelSpec.of(model)
    assert spec.name == type(model).__name__
    assert spec.positions == ("learned", *family.stays)
    assert spec.first_position == _first_position(family)
    assert spec.padding_position == family.padding
    assert spec.max_length == ROOM - (1 if family.prefix == "ProphetNet" else 0)
    if family.has_decoder:
        assert spec.max_target_length == ROOM - (2 if family.prefix == "ProphetNet" else 0)
    else:
        assert spec.max_target_length is None
    assert spec.is_encoder_decoder == family.has_decoder
    assert spec.is_causal == family.is_causal
    assert spec.left_padding_shifts == family.left_padding_shifts
    assert ("position_ids" in spec.accepts) == family.takes_position_ids
    assert "input_ids" in spec.accepts
    assert "kwargs" not in spec.accepts
    assert spec.num_embeddings == (None if family.prefix == "Canine" else VOCABULARY)
    assert spec.dtype == "float32"


def _padded(family: Family, side: str, **more: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return a row of four tokens alone, and the same with three of padding on one side."""
    alone = {name: given[:1, :4] for name, given in tokens(family).items() if "decoder" not in name}
    padding = torch.full((1, PADDING), family.config().pad_token_id or 0)
    nothing = torch.zeros(1, PADDING, dtype=torch.long)
    pads = {"input_ids": padding, "attention_mask": nothing}
    order = (lambda pad, real: [pad, real]) if side == "left" else (lambda pad, real: [real, pad])
    padded = {name: torch.cat(order(pads[name], real), dim=1) for name, real in alone.items()}
    return alone, padded | more


def _apart(family: Family, model: Any, alone: dict[str, Any], padded: dict[str, Any], side: str) -> float:
    real = slice(PADDING, None) if side == "left" else slice(None, -PADDING)
    return float((outputs(model, alone)[0] - outputs(model, padded)[0][:, real]).abs().max())


# FNet mixes padding in, MRA's attention is switched off without CUDA, CANINE joins four characters to one.
_PADDING_IS_SEEN = {"FNet", "Canine", "Mra", "Yoso", "Nystromformer", "ConvBert", "SqueezeBert"}


@pytest.mark.parametrize(
    "family",
    each_family(
        name for name, each in FAMILIES.items() if not each.has_decoder and each.prefix not in _PADDING_IS_SEEN
    ),
)
def test_left_padding_shifts_as_in_the_spec_and_position_ids_undo_it(family: Family) -> None:
    model = family.build()
    spec = ModelSpec.of(model)
    table = model.get_parameter(next(iter(family.tables)))
    with torch.no_grad():
        table.mul_(20)  # so that a shift is seen well above rounding
    for side in ("left", "right"):
        alone, padded = _padded(family, side)
        shifted = _apart(family, model, alone, padded, side) > 1e-3
        assert shifted == (side == "left" and spec.left_padding_shifts)
        if "position_ids" in spec.accepts:
            first = spec.first_position
            pad = first if spec.padding_position is None else spec.padding_position
            ids = torch.full_like(padded["input_ids"], pad)
            ids[padded["attention_mask"] == 1] = torch.arange(4) + first
            own = {**alone, "position_ids": torch.arange(4)[None] + first}
            assert _apart(family, model, own, {**padded, "position_ids": ids}, side) < 1e-4
            assert _same(outputs(model, own), outputs(model, alone))


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("kind", "family"), each_family_without_table())
def test_the_spec_of_a_model_without_learned_positions_names_its_kind(kind: str, family: Family) -> None:
    model = family.build()
    spec = ModelSpec.of(model)
    assert spec.positions == (() if kind == "no" else (kind,))
    assert spec.first_position == 0
    assert spec.padding_position is None
    assert spec.num_embeddings == VOCABULARY
    assert spec.is_causal == (family.prefix in _CAUSAL)
    assert spec.is_encoder_decoder == (family.prefix in _TWO_SEQUENCES)


_CAUSAL = {
    *("Llama", "Mistral", "Qwen3", "Gemma", "GPTNeoX", "Falcon", "Bloom", "Mamba", "CodeGen", "CTRL", "GPTJ", "Mamba2"),
    *("Mpt", "Rwkv", "TrOCR", "XGLM"),
}
_TWO_SEQUENCES = {"T5", "Marian", "Pegasus", "FSMT", "LongT5", "M2M100", "PegasusX", "UMT5"}


def test_models_with_a_recurrent_state_are_recognized_also_inside_others() -> None:
    """All models of transformers that hand `cu_seq_lens_q` to a kernel of linear attention are such models."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 8}
    linear = {f"linear_{name}": 2 for name in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    layers = {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2, "num_key_value_heads": 2}
    config = transformers.Qwen3NextConfig(**sizes, **linear, **experts, **layers, head_dim=8, pad_token_id=0)
    assert ModelSpec.of(transformers.Qwen3NextForCausalLM(config)).is_recurrent
    for name, (_, family) in WITHOUT_TABLES.items():
        assert ModelSpec.of(family.build()).is_recurrent == (name in ("mamba", "mamba2", "rwkv"))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "name", ["bert", "roberta", "gpt2", "gpt_neo", "opt", "mpnet", "big_bird", "llama", "modernbert"]
)
def test_models_that_take_a_4d_mask_are_recognized(name: str, attention: str) -> None:
    family = families.family(name)
    try:
        model = family.build(attn_implementation=attention)
    except ValueError as error:
        pytest.skip(str(error)[:60])
    takes = name not in ("mpnet", "big_bird", "modernbert") or makes_masks_of_four_dimensions(type(model))
    assert ModelSpec.of(model).takes_4d_mask == takes


@for_each("name", ["deberta-v2", "xlm", "flaubert", "openai-gpt", "bloom", "fnet", "bart", "t5"])
def test_models_that_do_not_take_a_4d_mask_are_recognized(name: str) -> None:
    family = families.family(name)
    assert not ModelSpec.of(family.build()).takes_4d_mask


@pytest.mark.parametrize(
    ("name", "takes_4d_mask", "window", "isolates"),
    [
        ("DeepseekV4ForCausalLM", False, None, False),  # pools blocks of four tokens
        pytest.param(
            *("MoshiForCausalLM", True, None, True),  # only flash attention applies its window
            marks=pytest.mark.skipif(before("transformers", "5.23"), reason="it isolates by position_ids in 5.23"),
        ),
        # A window beside layers of another kind than full attention; a large model.
        pytest.param("Dots3NoteForCausalLM", True, 4, True, marks=pytest.mark.slow),
        ("NeoMMEForMaskedLM", False, None, False),  # each layer has a window of its own
    ],
)
def test_masks_of_models_with_pools_and_windows(
    name: str, takes_4d_mask: bool, window: int | None, isolates: bool
) -> None:
    if not hasattr(transformers, name):
        pytest.skip(f"this version of transformers has no {name}")
    found = measured(getattr(transformers, name), "eager")
    assert not isinstance(found, str), found
    spec = ModelSpec.of(found.model)
    assert (spec.takes_4d_mask, spec.window) == (takes_4d_mask, window)
    assert (spec.isolates_by_position_ids, bool(spec.flat_keys)) == (isolates, isolates)


@for_each("decoy", DECOYS)
def test_a_table_that_is_not_read_one_row_per_token_does_not_limit_the_length(decoy: str) -> None:
    """A prompt makes the outputs longer than the row; they still have a value for each token."""
    for spec, room in ((ModelSpec.of(own_model(decoy)), None), (ModelSpec.of(own_model("positions", decoy)), ROOM)):
        assert (spec.max_length, spec.one_output_per_row) == (room, False)
    if decoy in ("prompt", "labels"):
        assert ModelSpec.of(own_model(decoy)).positions == ()


@pytest.mark.parametrize("form", UNTOLD)
def test_positions_in_an_unrecognized_form_are_unknown(form: str) -> None:
    model = own_model(form)
    before, marks = whole(model), traces(model)
    spec = ModelSpec.of(model)
    assert spec.positions == ("unknown",)
    assert spec.counts_tokens
    assert_same(before, whole(model))
    assert traces(model) == marks


@pytest.mark.parametrize(
    "name", ["bart", "mbart", "plbart", "mvp", "blenderbot", "prophetnet", "led", "bigbird_pegasus"]
)
def test_encoder_decoders_with_a_head_shift_labels_themselves(name: str) -> None:
    family = FAMILIES[name]
    base, whole = ModelSpec.of(family.build()), ModelSpec.of(family.build("ForConditionalGeneration"))
    assert not base.shifts_labels
    assert whole.shifts_labels
    assert whole.decoder_start_token_id == getattr(family.config(), "decoder_start_token_id", None)
    assert {"decoder_input_ids", "labels"} <= set(whole.accepts)
    model = family.build("ForConditionalGeneration")
    inputs = {key: value for key, value in tokens(family).items() if "decoder" not in key}
    if whole.decoder_start_token_id is not None:  # it keeps its word: labels alone are enough
        assert torch.isfinite(model(**inputs, labels=tokens(family)["input_ids"][:, :5].clone()).loss)


@pytest.mark.parametrize("family", each_family([*FAMILIES, *WITHOUT_TABLES]))
def test_making_a_spec_leaves_the_model_unchanged(family: Family) -> None:
    model = family.build().train()
    next(module for module in model.modules() if not list(module.children())).eval()
    before, marks = whole(model), traces(model)
    ModelSpec.of(model)
    assert_same(before, whole(model))
    assert traces(model) == marks


def test_specs_made_in_threads_leave_the_process_as_it_was() -> None:
    model, logger = GPT2.build().train(), logging.getLogger("transformers")
    compiled = torch.compile(lambda x: x + 1, backend=_refuse)
    handlers, propagate = list(logger.handlers), logger.propagate
    with ThreadPoolExecutor(4) as threads:
        specs = list(threads.map(ModelSpec.of, [GPT2.build(), *[model] * 6, GPT2.build()]))
    assert specs == [ModelSpec.of(model)] * 8
    assert model.training
    assert (logger.handlers, logger.propagate) == (handlers, propagate)
    with pytest.raises(Exception, match="the model was compiled"):  # compiling is on again
        compiled(torch.ones(1))


def test_a_model_that_changes_itself_in_short_forwards_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """BigBird exchanges its attention for the full one when rows are short, with a message, and never goes back."""
    messages: list[str] = []
    shown = logging.StreamHandler()
    shown.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [shown])
    for name in ("big_bird", "bigbird_pegasus"):
        model = FAMILIES[name].build()
        attention = {key: type(each).__name__ for key, each in model.named_modules()}
        assert any("BlockSparse" in kind for kind in attention.values())
        ModelSpec.of(model)
        assert attention == {key: type(each).__name__ for key, each in model.named_modules()}
        assert messages == []
        again = copy.deepcopy(model)
        again(**tokens(FAMILIES[name]))
        assert "block_sparse" in messages.pop()
        assert attention != {
            key: type(each).__name__ for key, each in again.named_modules()
        }  # or this test would hold nothing


def test_a_model_whose_config_requests_all_outputs_returns_each_once() -> None:
    """transformers collects them with hooks that it adds in the first forward."""
    config = {"output_hidden_states": True, "output_attentions": True, "attn_implementation": "eager"}
    model = FAMILIES["bert"].build(**config).eval()
    ModelSpec.of(model)
    found = model(**tokens(FAMILIES["bert"]))
    layers = model.config.num_hidden_layers
    assert (len(found.hidden_states), len(found.attentions)) == (layers + 1, layers)


def test_a_model_in_training_with_gradients_keeps_them_and_checkpointing_too() -> None:
    model = GPT2.build("LMHeadModel").train()
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    checkpointing = [getattr(each, "gradient_checkpointing", None) for each in model.modules()]
    assert True in checkpointing
    inputs = tokens(GPT2)
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    before = [each.grad.clone() for each in model.parameters()]
    ModelSpec.of(model)
    assert all(torch.equal(one, each.grad) for one, each in zip(before, model.parameters(), strict=True))
    assert checkpointing == [getattr(each, "gradient_checkpointing", None) for each in model.modules()]
    assert all(each.training for each in model.modules())


def test_making_a_spec_takes_few_forwards_on_few_tokens() -> None:
    model = BERT.build()
    lengths: list[int] = []
    model.register_forward_pre_hook(
        lambda _module, _args, kwargs: lengths.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    ModelSpec.of(model)
    assert len(lengths) <= (13 if before("transformers", "5.2") else 12)
    assert max(lengths) <= 48


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "family", each_family(["bert", "roberta", "gpt2", "opt", "bart", "mpnet", "llama", "xglm", "t5", "bloom", "mamba"])
)
def test_the_spec_in_half_precision_is_the_same(family: Family, dtype: str) -> None:
    full = ModelSpec.of(family.build())
    half = ModelSpec.of(family.build().to(getattr(torch, dtype)))
    assert half == dataclasses.replace(full, dtype=dtype)


@pytest.mark.parametrize(("family", "head"), each_head())
def test_a_head_changes_only_the_accepted_names_and_the_loss(family: Family, head: str) -> None:
    base, whole = ModelSpec.of(family.build()), ModelSpec.of(family.build(head))
    same = {"accepts": (), "name": "", "shifts_labels": False, "is_encoder_decoder": False, "num_labels": None}
    same["classifies_first_token"] = same["one_output_per_row"] = False
    same["labels_per"] = None
    assert dataclasses.replace(whole, **same) == dataclasses.replace(base, **same)


def test_wrappers_are_opened() -> None:
    assert ModelSpec.of(nn.DataParallel(ROBERTA.build())) == ModelSpec.of(ROBERTA.build())


def _refuse(*_: Any) -> Any:
    raise AssertionError("the model was compiled")


def test_a_compiled_model_is_opened_without_compiling_it() -> None:
    assert ModelSpec.of(torch.compile(ROBERTA.build(), backend=_refuse)) == ModelSpec.of(ROBERTA.build())
    model = ROBERTA.build()
    model.compile(backend=_refuse)
    compiled = model._compiled_call_impl
    assert ModelSpec.of(model) == ModelSpec.of(ROBERTA.build())
    assert model._compiled_call_impl is compiled


@for_each(
    ("name", "head", "per_row", "reads_first"),
    [
        ("bert", "ForSequenceClassification", True, True),
        ("bert", "ForNextSentencePrediction", True, True),
        ("roberta", "ForSequenceClassification", True, True),
        ("distilbert", "ForSequenceClassification", True, True),
        ("bert", "ForMultipleChoice", True, False),
        ("gpt2", "ForSequenceClassification", True, False),  # of the last token
        ("llama", "ForSequenceClassification", True, False),
        ("bart", "ForSequenceClassification", False, False),
        ("bert", "ForTokenClassification", False, False),
        ("bert", "ForQuestionAnswering", False, False),
        ("bert", "ForPreTraining", False, False),
        ("gpt2", "LMHeadModel", False, False),
        ("bert", None, False, False),  # a pooled output beside the hidden states
        ("bart", "ForConditionalGeneration", False, False),
    ],
)
@for_each("labels", [2, 3, 4])
def test_outputs_that_do_not_grow_with_the_row_are_of_rows_and_some_change_with_left_padding_alone(
    name: str, head: str | None, per_row: bool, reads_first: bool, labels: int
) -> None:
    spec = ModelSpec.of(families.family(name).build(head, num_labels=labels))
    assert (spec.one_output_per_row, spec.classifies_first_token) == (per_row, reads_first)


def test_the_largest_position_is_the_last_row_of_the_table() -> None:
    for name, last in (("bert", ROOM - 1), ("roberta", ROOM + 1), ("gpt2", ROOM - 1), ("opt", ROOM - 1)):
        spec = ModelSpec.of(FAMILIES[name].build())
        assert spec.max_position == spec.first_position + (spec.max_length or 0) - 1 == last
    for name in ("llama", "t5", "bloom", "mamba"):
        assert ModelSpec.of(families.family(name).build()).max_position is None


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT asks for it
@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")  # PEFT passes it
@pytest.mark.parametrize("tuning", ["PromptTuningConfig", "PrefixTuningConfig", "PromptEncoderConfig"])
@pytest.mark.parametrize(
    ("name", "head", "task"),
    [
        ("gpt2", "LMHeadModel", "CAUSAL_LM"),
        ("bert", "ForSequenceClassification", "SEQ_CLS"),
        ("bart", "ForConditionalGeneration", "SEQ_2_SEQ_LM"),
    ],
)
def test_virtual_tokens_of_peft_take_positions(name: str, head: str, task: str, tuning: str) -> None:
    peft = pytest.importorskip("peft")
    family = FAMILIES[name]
    plain = ModelSpec.of(family.build(head))
    wrapped = peft.get_peft_model(
        family.build(head), getattr(peft, tuning)(task_type=task, num_virtual_tokens=8)
    ).eval()
    spec = ModelSpec.of(nn.DataParallel(wrapped))
    prefix = name == "bart" and tuning == "PrefixTuningConfig"
    assert spec.max_length == ROOM - (0 if prefix else 8)
    assert spec.max_target_length == (None if name != "bart" else ROOM - 8 * prefix)
    assert "position_ids" not in spec.accepts
    assert set(plain.accepts) - {"position_ids"} == set(spec.accepts)
    assert not spec.takes_4d_mask
    assert not spec.isolates_by_position_ids
    assert spec.left_padding_shifts
    renamed = not before("transformers", "5.24") and before("peft", "0.21.3")
    if renamed and (name, tuning) == ("bert", "PrefixTuningConfig"):
        pytest.skip("PEFT 0.21.2 fails: it looks for the argument past_key_values, which is cache in transformers 5.24")
    target = spec.max_target_length or 5
    for longer in (0, 1):
        inputs = tokens(family, spec.max_length + (0 if prefix else longer), target + (longer if prefix else 0))
        if not longer:
            wrapped(**inputs)
        else:
            with pytest.raises((RuntimeError, IndexError), match=r"index|size"):
                wrapped(**inputs)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4, dtype=torch.float64)
        self.ran = False

    def forward(self, input_ids: Any, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        self.ran = True
        return self.embedding(input_ids)


def test_the_spec_of_an_own_module_has_the_names_of_its_forward_without_running_it() -> None:
    for wrap in (lambda model: model, nn.DataParallel):
        model = Reader()
        spec = ModelSpec.of(wrap(model))
        assert spec == ModelSpec(name="Reader", accepts=("input_ids", "attention_mask"), dtype="float64")
        assert not model.ran


@for_each(
    ("wrong", "got", "fix"),
    [
        ("bert-base-uncased", "'bert-base-uncased'", "model = AutoModel.from_pretrained('bert-base-uncased')"),
        (Path("my/model"), "PosixPath('my/model')", "model = AutoModel.from_pretrained('my/model')"),
        (transformers.BertModel, "<class '", "model = AutoModel.from_config(config)"),
        (None, "None", "model = AutoModel.from_config(config)"),
    ],
)
def test_a_value_that_is_not_a_model_is_refused_with_the_expression_for_the_model(
    wrong: Any, got: str, fix: str
) -> None:
    with pytest.raises(TypeError, match="model= takes the model itself") as caught:
        ModelSpec.of(wrong)
    _, second, third = str(caught.value).splitlines()
    assert second.startswith(f"  got: {got}")
    assert third == f"  fix: {fix}"


@pytest.mark.slow  # imports everything in another process
def test_a_model_with_flex_attention_on_the_cpu_is_not_compiled_and_does_not_abort_the_process() -> None:
    """In a process of its own, because a mask of four dimensions ends it there (torch 2.13)."""
    script = """
        import torch, transformers
        from hf_posenc import ModelSpec
        torch.set_num_threads(1)
        small = dict(vocab_size=97, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
        config = transformers.LlamaConfig(**small, max_position_embeddings=40, attn_implementation="flex_attention")
        spec = ModelSpec.of(transformers.LlamaForCausalLM(config))
        print(spec.positions, spec.max_length, spec.is_causal, spec.takes_4d_mask)
        print(dict(torch._dynamo.utils.counters["frames"]))
    """
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", textwrap.dedent(script)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.splitlines() == ["('rotary',) 40 True False", "{}"]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")  # torch, about the head
def test_a_parameter_of_size_zero_is_not_taken_for_a_shard() -> None:
    """MobileBERT's head has one where its embeddings are as wide as its layers; FSDP's shards are flat."""
    model = FAMILIES["mobilebert"].build("ForPreTraining", embedding_size=16)
    assert 0 in [each.numel() for each in model.parameters()]
    assert ModelSpec.of(model).max_length == ROOM
    assert use_sinusoidal_positions(model).contents == ("random",)
    sharded = BERT.build()
    sharded.pooler.dense.weight.data = torch.empty(0)
    with pytest.raises(ValueError, match=r"got: pooler.dense.weight is sharded over processes"):
        ModelSpec.of(sharded)


@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "xglm"])
def test_a_spec_can_be_written_to_json_and_pickled_and_is_small(name: str) -> None:
    family = families.family(name)
    spec = ModelSpec.of(family.build())
    assert ModelSpec.of(spec) is spec
    assert ModelSpec(**json.loads(json.dumps(dataclasses.asdict(spec)))) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(ModelSpec.of(family.build(seed=5)))
    assert len(pickle.dumps(spec)) < 2000
    assert eval(repr(spec)) == spec
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"  # type: ignore[misc]
