"""`packing="flat"` against each document alone in a model, its padding, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from small_models import of_class
from torch import nn

from hf_posenc import (
    AttentionMask,
    DataCollatorWithPositionalEncoding,
    ModelSpec,
    audit,
    pack_dataset,
)

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "a", "bike ride I, she said", "she said a bike"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", {}),
    "gpt2": ("GPT2LMHeadModel", {}),
    "llama": ("LlamaForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {"num_key_value_heads": 1, "sliding_window": 3}),
    "opt": ("OPTForCausalLM", {"word_embed_proj_dim": 16, "ffn_dim": 24}),
    "lfm2": ("Lfm2ForCausalLM", {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}),
}


def build(family: str, attention: str = "sdpa") -> Any:
    """Return a tiny model in evaluation mode, the same numbers every time."""
    if family == "qwen3_vl":
        rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}
        text = {**SMALL, "vocab_size": 1200, "num_key_value_heads": 2, "head_dim": 8, "rope_parameters": rope}
        sees = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 16}
        config = transformers.Qwen3VLConfig(
            text_config=text, vision_config=sees | {"deepstack_visual_indexes": [0]}, attn_implementation=attention
        )
        torch.manual_seed(0)
        return transformers.Qwen3VLForConditionalGeneration(config).eval()
    name, more = CLASSES[family]
    return of_class(name, attn_implementation=attention, num_hidden_layers=2, **more)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "qwen3_vl"])
def test_each_document_of_a_flat_row_has_the_outputs_of_the_document_alone(
    wordpiece, family: str, attention: str
) -> None:
    """Also if the model is configured to use a cache, which would let documents see each other.

    Qwen3-VL takes `use_cache` in its `**kwargs` only.
    """
    model = build(family, attention)
    assert model.config.get_text_config().use_cache
    collate = C(wordpiece, model=model, packing="flat", labels="causal_lm")
    batch = collate(TEXTS)
    singles = [C(wordpiece, model=model, labels="causal_lm")([text]) for text in TEXTS]
    with torch.no_grad():
        out, alone = model(**batch), [model(**single) for single in singles]
        other = model(**collate([*TEXTS[:3], "ride I said she"])).logits[0]
    torch.testing.assert_close(out.logits, torch.cat([each.logits for each in alone], dim=1), rtol=1e-5, atol=1e-6)
    first_three = sum(each.logits.shape[1] for each in alone[:3])
    assert torch.equal(out.logits[0, :first_three], other[:first_three])
    counts = [single["labels"].shape[1] - 1 for single in singles]
    mean = sum(each.loss * count for each, count in zip(alone, counts, strict=True)) / sum(counts)
    torch.testing.assert_close(out.loss, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "opt"])
def test_a_model_whose_documents_would_see_each_other_is_refused_by_name(wordpiece, family: str) -> None:
    model = build(family)
    with pytest.raises(ValueError, match=f"{type(model).__name__} cannot isolate them") as refused:
        C(wordpiece, model=model, packing="flat")
    assert "fix: packing=True, whose mask isolates them" in str(refused.value)
    with pytest.raises(ValueError, match='fix: packing=False, or attn_implementation="flash_attention_2"'):
        C(wordpiece, model=replace(ModelSpec.of(model), takes_4d_mask=False), packing="flat")


def test_packed_rows_of_a_model_that_isolates_flat_rows_only_are_refused_with_that_fix(wordpiece) -> None:
    spec = ModelSpec(  # as Llama 4, whose attention in chunks no mask includes
        name="Chunks", accepts=("input_ids", "attention_mask", "position_ids"), flat_keys=("position_ids",)
    )
    with pytest.raises(ValueError, match="Chunks cannot isolate them") as refused:
        C(wordpiece, model=spec, packing=True)
    assert "fix: packing='flat', whose rows it isolates, or a model of your own" in str(refused.value)


@pytest.mark.skipif(Version(transformers.__version__) < Version("5.20"), reason="raises since transformers 5.20")
def test_a_hybrid_model_is_refused_with_the_error_of_transformers_that_names_the_missing_kernel(wordpiece) -> None:
    spec = ModelSpec.of(build("lfm2"))
    with pytest.raises(ValueError, match="Lfm2ForCausalLM cannot isolate them") as refused:
        C(wordpiece, model=spec, packing="flat")
    assert "Install `causal_conv1d` to train on packed sequences" in str(refused.value)
    assert "see each other" not in str(refused.value)
    with pytest.raises(ValueError, match=re.escape("neither attention_mask (B, 1, T, T) nor document_ids isolates")):
        C(wordpiece, model=spec, packing=True, max_length=16)


def _varlen_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    cu_seq_lens_q: Any = None,
    max_length_q: int = 0,
    **_: Any,
) -> Any:
    """Attention that reads cumulative lengths and no mask, as flash attention does.

    Document i has the tokens from `cu_seq_lens_q[i]` to `cu_seq_lens_q[i + 1] - 1`, of which the first `max_length_q`
    are computed.
    """
    may_attend = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool)
    if cu_seq_lens_q is not None:
        places = torch.arange(query.shape[2])
        document = torch.bucketize(places, cu_seq_lens_q[1:], right=True)
        may_attend = document[:, None] == document[None, :]
        may_attend &= (places - cu_seq_lens_q[document] < max_length_q)[:, None]
    if getattr(module, "is_causal", False):
        may_attend = may_attend.tril()
    out = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=may_attend)
    return out.transpose(1, 2).contiguous(), None


@pytest.mark.parametrize(("family", "labels"), [("bert", "masked_lm"), ("llama", "causal_lm")])
def test_documents_are_isolated_by_cumulative_lengths_where_the_attention_reads_them(
    wordpiece, family: str, labels: str
) -> None:
    """In a bidirectional model too, whose documents no `position_ids` isolate."""
    transformers.AttentionInterface.register("varlen_of_this_test", _varlen_attention)
    model = build(family, "varlen_of_this_test")
    spec = ModelSpec.of(model)
    assert "cu_seq_lens_q" in spec.flat_keys
    assert not spec.isolates_by_position_ids
    settings = {"labels": labels, "seed": 1, **({"mlm_probability": 0.5} if labels == "masked_lm" else {})}
    batch = C(wordpiece, model=spec, packing="flat", **settings)(TEXTS)
    singles = [C(wordpiece, model=spec, **settings)([text]) for text in TEXTS]
    assert (batch["labels"] != -100).sum() == sum(
        (each["labels"][:, int(labels == "causal_lm") :] != -100).sum() for each in singles
    )
    with torch.no_grad():
        alone = torch.cat([model(input_ids=each["input_ids"]).logits for each in singles], dim=1)
        plain = {name: value for name, value in batch.items() if name != "token_type_ids"}
        torch.testing.assert_close(model(**plain).logits, alone, rtol=1e-5, atol=1e-6)


def test_a_model_of_ones_own_takes_the_flat_keys_that_its_forward_names(wordpiece) -> None:
    class Blind(nn.Module):
        def forward(self, input_ids: Any, position_ids: Any = None) -> None: ...

    class Reader(nn.Module):
        def forward(self, input_ids: Any, seq_idx: Any, position_ids: Any = None) -> None: ...

    with pytest.raises(ValueError, match="Blind cannot isolate them") as refused:
        C(wordpiece, model=Blind(), packing="flat")
    assert "a forward that names seq_idx or cu_seq_lens_q" in str(refused.value)
    assert set(C(wordpiece, model=Reader(), packing="flat")(TEXTS)) == {"input_ids", "seq_idx", "position_ids"}


def test_settings_of_padding_are_refused_for_a_flat_row(wordpiece) -> None:
    for settings in ({"padding": "max_length", "max_length": 8}, {"padding_side": "left"}):
        with pytest.raises(ValueError, match="one row of no fixed length, with padding only at its end"):
            C(wordpiece, packing="flat", **settings)


def test_kernels_of_recurrent_layers_get_exact_offsets(wordpiece) -> None:
    """They may refuse documents without tokens; linear attention reads `cu_seq_lens_q` in transformers."""
    spec = ModelSpec(accepts=("input_ids", "cu_seq_lens_q"), flat_keys=("cu_seq_lens_q",))
    batches = [
        C(wordpiece, model=replace(spec, is_recurrent=is_recurrent), packing="flat", pad_to_multiple_of=64)(TEXTS)
        for is_recurrent in (False, True)
    ]
    offsets = [batch["cu_seq_lens_q"].tolist() for batch in batches]
    assert offsets[0] == [*offsets[1], *[64] * (16 - len(offsets[1]))]
    assert offsets[1] == [*C(wordpiece, packing="flat")(TEXTS)["cu_seq_lens_q"].tolist(), 64]


def test_documents_without_tokens_are_no_documents_wherever_offsets_are_read(wordpiece) -> None:
    collate = C(wordpiece, packing="flat", labels="causal_lm")
    plain, padded = collate(TEXTS), collate.replace(pad_to_multiple_of=64)(TEXTS)
    row = {
        name: padded[name].reshape(-1).tolist() for name in ("input_ids", "labels", "cu_seq_lens_q", "cu_seq_lens_k")
    }
    again = collate([row])
    assert all(torch.equal(torch.as_tensor(again[name]), torch.as_tensor(plain[name])) for name in again)
    keys = {name: padded[name] for name in ("input_ids", "cu_seq_lens_q")}
    assert AttentionMask.from_batch(keys).documents.tolist() == padded["seq_idx"].tolist()
    assert str(audit.labels([padded], wordpiece)) == str(audit.labels([row], wordpiece))
    assert audit.labels([padded], wordpiece).tokens == plain["input_ids"].shape[1]
    with pytest.raises(ValueError, match="'cu_seqlens' has offsets of documents"):
        collate([{"input_ids": row["input_ids"], "cu_seqlens": row["cu_seq_lens_q"]}])


def test_the_padding_of_a_flat_row_needs_a_padding_token(byte_bpe) -> None:
    with pytest.raises(ValueError, match="has no padding token"):
        C(byte_bpe, packing="flat", pad_to_multiple_of=8)
    assert C(byte_bpe, packing="flat", pad_to_multiple_of=8, pad_token="eos")(TEXTS)["input_ids"].shape[1] % 8 == 0


@pytest.mark.parametrize(
    ("family", "attention"),
    [
        *((family, attention) for family in ("gpt2", "llama", "mistral") for attention in ("sdpa", "eager")),
        ("llama", "varlen_of_this_test"),
    ],
)
def test_padding_changes_neither_the_outputs_of_a_flat_row_nor_its_loss(wordpiece, family: str, attention: str) -> None:
    transformers.AttentionInterface.register("varlen_of_this_test", _varlen_attention)
    model = build(family, attention)
    collate = C(wordpiece, model=model, packing="flat", labels="causal_lm")
    plain, padded = collate(TEXTS), collate.replace(pad_to_multiple_of=64)(TEXTS)
    count = plain["input_ids"].shape[1]
    assert padded["input_ids"].shape[1] == 64 > count
    with torch.no_grad():
        one, other = model(**plain), model(**padded)
    torch.testing.assert_close(other.logits[:, :count], one.logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(other.loss, one.loss, rtol=0, atol=1e-6)


@pytest.mark.slow  # compiles
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_torch_compile_makes_few_graphs_where_the_attention_reads_offsets(wordpiece) -> None:
    """One graph for each pair of the length of the row and the number of offsets, in place of one for each batch."""
    transformers.AttentionInterface.register("varlen_of_this_test", _varlen_attention)
    model = build("llama", "varlen_of_this_test")
    collate = C(wordpiece, model=model, packing="flat", labels="causal_lm", pad_to_multiple_of=256)
    draw = np.random.default_rng(0)
    rows = [[{"input_ids": [7] * n} for n in draw.integers(4, 30, draw.integers(2, 40))] for _ in range(20)]
    batches = [collate(documents) for documents in rows]
    graphs: list[Any] = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(model, backend=count, dynamic=False)
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=32):
        for batch in batches:
            compiled(**batch)
    shapes = {(batch["input_ids"].shape[1], len(batch["cu_seq_lens_q"])) for batch in batches}
    assert len(graphs) == len(shapes) < 8


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_torch_compile_makes_as_many_graphs_as_flat_rows_have_lengths(wordpiece, family: str) -> None:
    torch.compiler.reset()
    graphs: list[Any] = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = build(family)
    collate = C(wordpiece, model=model, packing="flat", labels="causal_lm", pad_to_multiple_of=32)
    compiled = torch.compile(model, backend=count, dynamic=False)
    batches = [collate(TEXTS[:1] * times) for times in (1, 2, 3, 5, 7, 9)]
    made = []
    with torch.no_grad():
        for batch in [*batches, *batches]:
            compiled(**batch)
            made.append(len(graphs))
    lengths = [batch["input_ids"].shape[1] for batch in batches]
    assert len(set(lengths)) == 3 < len(batches)
    changes = [first for first in range(len(lengths)) if lengths[first] not in lengths[:first]]
    assert [step for step in range(1, len(made)) if made[step] != made[step - 1]] == changes[1:]
    assert made[-1] == 3 * made[0]  # as many graphs for each length


def test_packed_rows_give_the_flat_row_of_their_documents(word_level) -> None:
    documents = [[5, 6, 7], [8, 9], [4], [6, 4, 8, 5]]
    stored = datasets.Dataset.from_dict({"input_ids": documents})
    packed = list(pack_dataset(stored, 5, document_ids=True))
    batch = C(word_level, packing="flat")(packed)
    runs = torch.tensor_split(batch["input_ids"][0], batch["cu_seq_lens_q"][1:-1].long())
    assert sorted(run.tolist() for run in runs) == sorted(documents)
    rows = [{"input_ids": [5, 6], "position_ids": [0, 1]}, {"input_ids": [7, 8], "position_ids": [2, 3]}]
    with pytest.raises(ValueError, match="must be consecutive, from 0: they separate the documents"):
        C(word_level, packing="flat")(rows)


@pytest.mark.parametrize("packing", [True, "flat"])
@pytest.mark.parametrize("labels", [None, "causal_lm"])
def test_a_packed_batch_of_empty_rows_is_refused(wordpiece, packing: Any, labels: Any) -> None:
    settings = {"on_empty": "keep", "add_special_tokens": False, "labels": labels, "max_length": 8}
    collate = C(wordpiece, packing=packing, look_ahead=False, **settings)
    padding = {"input_ids": [0, 0], "attention_mask": [0, 0]}
    for rows in (["", ""], [padding]):
        with pytest.raises(
            ValueError, match=rf"(?s)rows without tokens.*got: {len(rows)} empty row.*fix: packing=False"
        ):
            collate(rows)
        assert C(wordpiece, look_ahead=False, **settings)(rows)["attention_mask"].sum() == 0
    assert (
        collate(["", "a I"])["input_ids"].tolist()[0][:2]
        == C(wordpiece, add_special_tokens=False)(["a I"])["input_ids"].tolist()[0]
    )


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_flat_row_of_documents_of_one_token_has_their_boundaries(family: str, wordpiece: Any) -> None:
    """The mask is that of the lengths, also for a model that gets positions alone, which are all 0."""
    batch = C(wordpiece, model=build(family), packing="flat")([[5], [6], [7]])
    assert batch["position_ids"].tolist() == [[0, 0, 0]]
    mask, expected = AttentionMask.from_batch(batch), AttentionMask.from_documents([[1, 1, 1]])
    assert torch.equal(mask.dense(), expected.dense())
