"""`assert_packed_equals_alone` on models of several families under both attentions, and on broken models.

Each broken model must be refused, with the batch in which it differs.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from families import assert_same, family, traces, whole
from installed import makes_masks_of_four_dimensions
from torch import nn

from hf_posenc import AttentionMask, compute_once
from hf_posenc.positions import position_ids_from_documents
from hf_posenc.testing import assert_once_equals_stock, assert_packed_equals_alone, measure_once

# Some families, and whether positions that restart keep documents apart in them.
ISOLATES = {
    **dict.fromkeys(("bert", "roberta", "opt", "modernbert", "t5's encoder"), False),
    **dict.fromkeys(("gpt2", "llama", "mistral"), True),
}
DOCUMENTS = [np.random.default_rng(number).integers(10, 90, length) for number, length in enumerate([9, 3, 12, 1, 6])]


def build(name: str, attention: str = "sdpa") -> Any:
    if name == "t5's encoder":
        if attention == "sdpa" and not transformers.T5EncoderModel._supports_sdpa:
            pytest.skip("this version of T5 has no sdpa attention")
        return family("t5").build("EncoderModel", attn_implementation=attention)
    windows = {"mistral": {"sliding_window": 4}, "modernbert": {"local_attention": 6, "global_attn_every_n_layers": 2}}
    model = family(name).build(attn_implementation=attention, **windows.get(name, {}))
    if name == "modernbert" and not makes_masks_of_four_dimensions(type(model)):
        pytest.skip("this version of ModernBERT takes no mask of four dimensions")
    return model


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ISOLATES)
def test_outputs_are_the_same_packed_padded_and_alone(name: str, attention: str) -> None:
    found = assert_packed_equals_alone(build(name, attention), DOCUMENTS, atol=1e-5)
    assert sorted(found) == ["packed", *(["packed, no mask"] * ISOLATES[name]), "padded left", "padded right"]
    assert max(found.values()) <= 1e-5


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_targets_of_barts_decoder_attend_to_their_own_packed_sources(attention: str) -> None:
    decoder = family("bart").build(attn_implementation=attention).decoder
    table = decoder.embed_positions
    targets, sources = [4, 7, 2], [6, 3, 5]
    target, source = (AttentionMask.from_documents([lengths]) for lengths in (targets, sources))
    ids = torch.from_numpy(np.random.default_rng(0).integers(10, 90, (1, sum(targets))))
    memory = torch.randn(1, sum(sources), 16, generator=torch.Generator().manual_seed(0))
    mask = target.for_hf(decoder)
    rows = position_ids_from_documents([targets]) + table.offset
    table.register_forward_hook(lambda *_: nn.functional.embedding(rows, table.weight))  # positions that restart
    with torch.no_grad():
        out = decoder(
            ids,
            attention_mask=mask,
            encoder_hidden_states=memory,
            encoder_attention_mask=AttentionMask.cross(target, source).additive(),
        ).last_hidden_state
    places = [np.cumsum([0, *lengths]) for lengths in (targets, sources)]
    for number in range(3):
        own, read = (slice(*ends[number : number + 2].tolist()) for ends in places)
        rows = torch.arange(targets[number])[None] + table.offset
        with torch.no_grad():
            alone = decoder(ids[:, own], encoder_hidden_states=memory[:, read]).last_hidden_state
        torch.testing.assert_close(out[:, own], alone, rtol=0, atol=1e-5)


def test_a_model_whose_positions_cannot_restart_differs() -> None:
    with pytest.raises(AssertionError, match=r"another output padded left than alone[\s\S]*takes no position_ids"):
        assert_packed_equals_alone(family("bart").build().encoder, DOCUMENTS)


def test_packed_rows_are_no_longer_than_the_model_takes() -> None:
    documents = [np.arange(10, 40), np.arange(11, 39), np.arange(12, 20)]  # 66 tokens, and 40 positions
    assert_packed_equals_alone(build("gpt2"), documents)


def test_texts_are_encoded_by_the_tokenizer(wordpiece: Any) -> None:
    model = family("bert").build(vocab_size=len(wordpiece))
    assert_packed_equals_alone(model, ["I ride bike", "bike ride I, she said"], tokenizer=wordpiece)


def test_the_model_is_not_changed() -> None:
    model = build("gpt2").train()
    before, marks = whole(model), traces(model)
    assert_packed_equals_alone(model, DOCUMENTS)
    assert_same(before, whole(model))
    assert traces(model) == marks


class LooksAtTheRow(transformers.BertModel):
    """Adds the embedding of the row's first token to all tokens, whatever the mask."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None) -> Any:
        out = super().forward(input_ids, attention_mask=attention_mask, position_ids=position_ids)
        out.last_hidden_state = out.last_hidden_state + self.embeddings.word_embeddings(input_ids[:, :1])
        return out


class IgnoresPadding(transformers.BertModel):
    """Takes a mask of two dimensions and ignores it."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None) -> Any:
        mask = attention_mask if attention_mask is not None and attention_mask.dim() == 4 else None
        return super().forward(input_ids, attention_mask=mask, position_ids=position_ids)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (IgnoresPadding, ["IgnoresPadding gives document 0 another output padded right than alone", "atol=1e-05"]),
        (LooksAtTheRow, ["another output padded left than alone"]),
    ],
)
def test_a_model_that_leaks_is_refused_with_the_batch_in_which_it_differs(broken: Any, words: list[str]) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_packed_equals_alone(broken(family("bert").config()), DOCUMENTS)
    for word in words:
        assert word in str(caught.value)


def test_nan_counts_as_a_difference() -> None:
    model = build("bert")
    nn.init.constant_(model.encoder.layer[0].output.dense.bias, float("nan"))
    with pytest.raises(AssertionError, match=r"(inf|nan) apart"):
        assert_packed_equals_alone(model, DOCUMENTS)


def test_encoder_decoders_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reads two sequences[\s\S]*BartForCausalLM"):
        assert_packed_equals_alone(family("bart").build(), DOCUMENTS)


def test_a_batch_with_the_outputs_and_gradients_of_stock_passes_and_others_are_named() -> None:
    model = family("llama").build("ForCausalLM")
    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 11, 0]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    once = assert_once_equals_stock(model, batch)
    assert once.tokens == (12, 11, 7)
    labels = ids.masked_fill(ids == 0, -100)
    assert assert_once_equals_stock(model, {**batch, "labels": labels}) is once
    assert "forward" in vars(model)  # the model goes on as before the check

    class Leak(nn.Module):
        """A head that reads padding in long rows only, which `compute_once` does not compare."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
            return logits.mean(1) if len(input_ids) == 2 else logits[:, 0]

    once.remove()
    with pytest.raises(AssertionError, match=r"Leak gives this batch other outputs[^\n]*\n  got: a difference of"):
        assert_once_equals_stock(Leak().eval(), batch)


def test_a_model_is_measured_equal_or_refused_with_the_reason_and_left_unchanged() -> None:
    for name in ("llama", "bert", "modernbert"):
        model = build(name)
        assert measure_once(model) == "equal"
        assert not any("forward" in vars(module) for module in model.modules())
    assert re.fullmatch(r"refused \(.+\)", measure_once(build("t5's encoder")))
    assert measure_once(nn.Linear(2, 2)) == "refused (Linear(in_features=2, out_features=2, bias=True))"


def test_a_class_that_was_not_measured_warns_and_names_the_check() -> None:
    class Own(transformers.LlamaModel):
        pass

    model = Own(family("llama").config())
    with pytest.warns(UserWarning, match=r"Own gives its stock outputs[^\n]*\n.*\n  fix: hf_posenc.testing.assert"):
        once = compute_once(model)
    assert compute_once(model) is once  # no second warning
