"""The collator fitted to a model: which keys stay, whose numbers positions have, which limits hold, what is refused.

First against specs written by hand, then against tiny models of Hugging Face, whose answers to a text alone are the
standard that every padded or packed batch is held to.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from families import DECOYS, FAMILIES, MORE_REFUSED, REFUSED, UNTOLD, own_model
from torch import nn
from transformers import Trainer, TrainingArguments

import hf_posenc
from hf_posenc import (
    AttentionMask,
    DataCollatorWithPositionalEncoding,
    ModelSpec,
    PositionalEmbedding,
)
from hf_posenc.sinusoid import CONVENTIONS

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said unsurprisingly", "a"]
PAIRS = [{"text": "I ride bike", "target": "a"}, {"text": "a", "target": "bike ride I, she said"}]

# What a padded batch has for everybody, in this order.
PLAIN = ["input_ids", "attention_mask", "position_ids"]


def spec(*accepts: str, **facts: Any) -> ModelSpec:
    """A model that reads ids and masks, and these names besides."""
    return ModelSpec(**{"name": "Reader", "accepts": ("input_ids", "attention_mask", *accepts), **facts})


BERT = spec("token_type_ids", "position_ids", "labels", positions=("learned",), max_length=512, takes_4d_mask=True)
ROBERTA = dataclasses.replace(BERT, name="Roberta", first_position=2, padding_position=1)
GPT2 = dataclasses.replace(BERT, name="Gpt", is_causal=True)
BART = spec(
    "decoder_input_ids",
    "decoder_attention_mask",
    "labels",
    name="Bart",
    positions=("learned",),
    is_encoder_decoder=True,
    shifts_labels=True,
    decoder_start_token_id=2,
    max_length=64,
    max_target_length=64,
)
SHORT_BART = dataclasses.replace(BART, max_length=8, max_target_length=6)
BART_BASE = dataclasses.replace(
    BART, name="BartBase", accepts=tuple(name for name in BART.accepts if name != "labels"), shifts_labels=False
)


# ------------------------------------------------------------------------------------------------- which keys, by hand


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("token_type_ids", "position_ids"), ["input_ids", "attention_mask", "token_type_ids", "position_ids"]),
        (("position_ids",), PLAIN),
        (("token_type_ids",), ["input_ids", "attention_mask", "token_type_ids"]),
        ((), ["input_ids", "attention_mask"]),
        (("position_ids", "look_ahead_mask"), [*PLAIN, "look_ahead_mask"]),
        (("labels",), ["input_ids", "attention_mask", "labels"]),
    ],
)
def test_a_batch_holds_what_the_forward_names_and_nothing_else(wordpiece, names: tuple[str, ...], keys: list) -> None:
    rows = [{"text": text, "label": 1, "score": 0.5} for text in TEXTS]
    assert list(C(wordpiece, model=spec(*names))(rows)) == keys


def test_a_forward_without_attention_mask_gets_none(wordpiece) -> None:
    assert list(C(wordpiece, model=ModelSpec(accepts=("input_ids",)))(TEXTS)) == ["input_ids"]


def test_further_columns_stay_where_they_are_named(wordpiece) -> None:
    rows = [{"text": "a", "start_positions": 0, "length": 3}, {"text": "b", "start_positions": 1, "length": 3}]
    batch = C(wordpiece, model=spec("start_positions"))(rows)
    assert batch["start_positions"].tolist() == [0, 1]
    assert "length" not in batch


@pytest.mark.parametrize("values", [[[1, 2], [3]], [3, None], [3, "x"], [2**64, 1], ["x", "y"], [[1], []]])
def test_columns_that_the_model_does_not_name_are_not_read(wordpiece, values: list) -> None:
    rows = [{"text": "a", "pos_tags": value} for value in values]
    collate = C(wordpiece, model=spec())
    assert collate(rows).keys() == collate(["a", "b"]).keys()
    if values != ["x", "y"]:
        with pytest.raises((ValueError, TypeError), match="column 'pos_tags'"):
            C(wordpiece, model=spec("pos_tags"))(rows)


def test_floats_that_the_model_names_are_float32_as_its_layers(wordpiece) -> None:
    rows = [{"text": "a", "weight": 0.1}, {"text": "b", "weight": 0.2}]
    assert C(wordpiece, model=spec("weight"))(rows)["weight"].dtype == torch.float32
    with pytest.raises(ValueError, match="row 1 of column 'weight' holds 1e"):
        C(wordpiece, model=spec("weight"))([*rows[:1], {"text": "b", "weight": 1e300}])


@pytest.mark.parametrize(
    ("values", "other"),
    [
        ({"sentiment": 1}, "sentiment"),
        ({"target": 0.5}, "target"),
        ({"labels_": [1, 0, 1]}, "labels_"),
        ({"is_spam": True, "note": "x"}, "is_spam"),
        ({"length_in_s": 2.5, "Label": 1, "idx": 7}, "Label"),
        ({"class_label_id": 1, "id": 7}, "class_label_id"),
    ],
)
def test_a_label_column_of_another_name_is_named_once(wordpiece, values: dict[str, Any], other: str) -> None:
    rows = [{"input_ids": [2, 5, 3], **values}, {"input_ids": [2, 6, 3], **values}]
    collate = C(wordpiece, model=BERT)
    with pytest.warns(UserWarning, match=f"(?s)column '{other}' is not in .*rename_column.'{other}', 'labels'"):
        assert "labels" not in collate(rows)
    collate(rows)  # warnings are errors: no second one
    with pytest.warns(UserWarning, match=f"column '{other}'"):
        collate.replace(seed=1)([{"text": "a", **{k: v for k, v in values.items() if k != "labels_"}, other: 1}])


def test_rows_whose_labels_are_known_or_not_wanted_name_no_other_column(wordpiece) -> None:
    row = {"input_ids": [2, 5, 3], "idx": 4, "doc_id": 3, "__index_level_0__": 1, "token_type_ids": [0, 0, 0]}
    C(wordpiece, model=BERT)([row])  # numbers of rows are no labels
    C(wordpiece, model=BERT)([{**row, "sentiment": 1, "label": 0}])
    C(wordpiece, model=BERT, labels="masked_lm")([{**row, "sentiment": 1}])
    C(wordpiece, model=spec())([{**row, "sentiment": 1}])
    assert C(wordpiece)([{**row, "sentiment": 1}])["sentiment"].tolist() == [1]


@pytest.mark.parametrize(("wanted", "came"), [("summary", "sumary"), ("target", "Targets"), ("text_de", "text-de")])
def test_a_misspelt_target_column_is_named_once(wordpiece, wanted: str, came: str) -> None:
    for given in ([{"text": "a", came: "b"}], {"text": ["a"], came: ["b"]}):
        collate = C(wordpiece, text_target_column=wanted)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="columns .* are not in the batch")
            with pytest.warns(UserWarning, match=f"column '{wanted}' is missing(?s:.*)text_target_column='{came}'"):
                assert "labels" not in collate(given)
            collate(given)
    assert "labels" not in C(wordpiece, text_target_column="target")([{"text": "a"}])


@pytest.mark.parametrize("look_ahead", [None, True, False])
def test_the_look_ahead_mask_is_for_models_that_name_it_or_for_nobody_in_particular(wordpiece, look_ahead: Any) -> None:
    names_it = C(wordpiece, model=spec("look_ahead_mask"), look_ahead=look_ahead)
    assert ("look_ahead_mask" in names_it(TEXTS)) is (look_ahead is not False)
    assert ("look_ahead_mask" in C(wordpiece, look_ahead=look_ahead)(TEXTS)) is (look_ahead is not False)
    if not look_ahead:
        assert "look_ahead_mask" not in C(wordpiece, model=spec(), look_ahead=look_ahead)(TEXTS)


def test_columns_keep_everything_whatever_the_model(wordpiece) -> None:
    columns = {"text": TEXTS, "label": [0, 1, 0], "note": ["x", "y", "z"]}
    plain, fit = C(wordpiece)(columns), C(wordpiece, model=spec())(columns)
    assert list(plain) == list(fit)
    for name, values in plain.items():
        for one, other in zip(values, fit[name], strict=True):
            np.testing.assert_array_equal(one, other)


def test_rows_that_were_tokenised_by_map_give_the_batch_of_their_texts(wordpiece) -> None:
    collate = C(wordpiece, model=ROBERTA)
    rows = [{"text": text, "label": number} for number, text in enumerate(TEXTS)]
    stored = datasets.Dataset.from_list(rows).map(collate, batched=True)
    from_ids, from_texts = collate([stored[row] for row in range(3)]), collate(rows)
    assert (
        list(from_ids)
        == list(from_texts)
        == ["input_ids", "attention_mask", "token_type_ids", "position_ids", "labels"]
    )
    for name, want in from_texts.items():
        assert torch.equal(from_ids[name], want), name


def test_a_numpy_batch_is_fitted_as_well(wordpiece) -> None:
    batch = C(wordpiece, model=ROBERTA, return_tensors="np")(TEXTS)
    want = C(wordpiece, model=ROBERTA)(TEXTS)
    assert list(batch) == list(want)
    for name, values in batch.items():
        assert isinstance(values, np.ndarray)
        np.testing.assert_array_equal(values, want[name].numpy())


@pytest.mark.parametrize("kind", ["plain", "pairs", "packed"])
def test_every_tensor_has_the_rows_in_front_so_that_streams_can_be_dispatched(wordpiece, kind: str) -> None:
    """accelerate joins and cuts the batches of a stream along dimension 0."""
    made = {
        "plain": lambda: C(wordpiece, model=BERT)(TEXTS),
        "pairs": lambda: C(wordpiece, model=BART_BASE, text_target_column="target")(PAIRS),
        "packed": lambda: C(wordpiece, model=BERT, packing=True, max_length=64)(TEXTS),
    }[kind]()
    assert all(isinstance(tensor, torch.Tensor) for tensor in made.values())
    assert {tensor.shape[0] for tensor in made.values()} == {len(made["input_ids"])}
    assert all(tensor.ndim >= 1 for tensor in made.values())


# --------------------------------------------------------------------------------------------------- numbers of places


@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_have_the_models_numbers(word_level, side: str) -> None:
    batch = C(word_level, model=ROBERTA, padding_side=side)(["a b c", "a"])
    assert batch["position_ids"].tolist() == [[2, 3, 4], [2, 1, 1] if side == "right" else [1, 1, 2]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_has_the_first_number_where_a_model_has_none_for_it(word_level, side: str) -> None:
    model = dataclasses.replace(ROBERTA, padding_position=None)
    batch = C(word_level, model=model, padding_side=side)(["a b c", "a"])
    assert batch["position_ids"].tolist() == [[2, 3, 4], [2, 2, 2]]


def test_holes_in_a_mask_have_the_number_of_padding(word_level) -> None:
    rows = [{"input_ids": [5, 6, 7, 8], "attention_mask": [1, 0, 1, 1]}]
    assert C(word_level, model=ROBERTA)(rows)["position_ids"].tolist() == [[2, 1, 3, 4]]


def test_positions_of_rows_are_moved_to_the_models_first_one_and_columns_keep_them(word_level) -> None:
    rows = [{"input_ids": [5, 6, 7], "position_ids": [9, 3, 0]}, {"input_ids": [5], "position_ids": [7]}]
    collate = C(word_level, model=ROBERTA)
    assert collate(rows)["position_ids"].tolist() == [[11, 5, 2], [9, 1, 1]]
    assert collate(rows[1:])["position_ids"].tolist() == [[9]]
    padded = [{"input_ids": [0, 5, 6], "attention_mask": [0, 1, 1], "position_ids": [0, 0, 1]}]
    assert collate(padded)["position_ids"].tolist() == [[1, 2, 3]]
    for model in (None, BERT):
        assert C(word_level, model=model)(rows)["position_ids"].tolist() == [[9, 3, 0], [7, 0, 0]]
    columns = collate.replace(padding="max_length", max_length=4)(
        {"input_ids": [[5, 6, 7], [5]], "position_ids": [[9, 3, 0], [7]]}
    )
    assert columns["position_ids"].tolist() == [[9, 3, 0, 1], [7, 1, 1, 1]]


def test_a_model_with_positions_counts_its_own_way(word_level) -> None:
    assert C(word_level, convention="fairseq")(["a b"])["position_ids"].tolist() == [[2, 3]]
    assert C(word_level, model=BERT)(["a b"])["position_ids"].tolist() == [[0, 1]]
    assert C(word_level, convention="vaswani", model=ROBERTA)(["a b"])["position_ids"].tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("setting", "call"),
    [
        ({"base": 100}, "use_sinusoidal_positions(model, base=100)"),
        ({"convention": "fairseq"}, "use_sinusoidal_positions(model, convention='fairseq')"),
        ({"scale": "sqrt_d"}, "use_sinusoidal_positions(model, base=...)"),
        ({"dropout": 0.1}, "use_sinusoidal_positions(model, base=...)"),
        ({"zero_padding": False}, "use_sinusoidal_positions(model, base=...)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_of_embedded_vectors_are_refused_beside_a_model_that_gets_none(
    word_level, setting: dict[str, Any], call: str
) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=rf"^{name}= applies to the embeddings of embedding=, and Reader") as said:
        C(word_level, model=BERT, **setting)
    assert str(said.value).endswith(f"fix: leave {name}= out; for sinusoids inside the model {call}")
    rotary = dataclasses.replace(BERT, positions=("rotary",))
    with pytest.raises(ValueError, match=rf"fix: leave {name}= out$"):
        C(word_level, model=rotary, **setting)
    with pytest.raises(ValueError, match=rf"^{name}= applies to"):
        C(word_level, **setting).replace(model=BERT)
    if name != "convention":  # which says where such a module counts from
        with pytest.raises(ValueError, match=rf"leave {name}= out, or embedding="):
            C(word_level, model=spec("position_ids"), **setting)


def test_the_usual_settings_of_vectors_may_be_given_beside_a_model(word_level, tmp_path: Path) -> None:
    usual = {"base": None, "convention": "vaswani", "scale": None, "dropout": 0.0, "zero_padding": True}
    collate = C(word_level, model=BERT, **usual)
    assert collate == C(word_level, model=BERT, base=None)
    C(word_level, model=BERT, base=10000, dropout=0, convention=CONVENTIONS["vaswani"])
    collate.save_pretrained(tmp_path)
    assert C.from_pretrained(tmp_path) == pickle.loads(pickle.dumps(collate)) == collate
    table = nn.Embedding(4000, 8).requires_grad_(False)
    embeds = C(word_level, model=spec("inputs_embeds"), embedding=table, base=100, scale="sqrt_d")
    embeds.save_pretrained(tmp_path)
    again = C.from_pretrained(tmp_path)
    assert (again.base, again.scale) == (100, "sqrt_d")
    without = embeds.replace(embedding=None)  # the settings of the vectors go with them
    assert (without.base, without.scale) == (None, None)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("convention", ["fairseq", "m2m100"])
def test_padding_has_the_number_that_a_convention_has_for_it(unigram, convention: str, side: str) -> None:
    """As fairseq's `make_positions`, and M2M100's and RoBERTa's in transformers, for a padding index of 1."""
    theirs = transformers.models.m2m_100.modeling_m2m_100.M2M100SinusoidalPositionalEmbedding
    batch = C(unigram, convention=convention, padding_side=side)(TEXTS)
    expected = theirs.create_position_ids_from_input_ids(batch["input_ids"], padding_idx=unigram.pad_token_id)
    assert torch.equal(batch["position_ids"], expected)
    packed = C(unigram, convention=convention, packing=True, max_length=64, padding="max_length")(TEXTS)
    assert (packed["position_ids"][packed["document_ids"] == -1] == 1).all()
    assert (packed["position_ids"][packed["document_ids"] >= 0] >= 2).all()
    for zero_padding in (True, False):
        settings = {"convention": convention, "zero_padding": zero_padding, "padding_side": side}
        table = nn.Embedding(len(unigram), 8).requires_grad_(False)
        embeds = C(unigram, embedding=table, **settings)(TEXTS)
        del settings["padding_side"]
        own = PositionalEmbedding(table, **settings)(embeds["input_ids"], embeds["attention_mask"])
        assert torch.equal(embeds["position_ids"], expected)
        assert torch.equal(embeds["inputs_embeds"], own)


def test_a_module_of_ones_own_without_positions_counts_by_the_convention(word_level) -> None:
    reads = spec("position_ids", "inputs_embeds")
    assert C(word_level, convention="fairseq", model=reads)(["a b"])["position_ids"].tolist() == [[2, 3]]
    table = nn.Embedding(4000, 8)
    batch = C(word_level, convention="fairseq", embedding=table.requires_grad_(False), model=reads)(["a b"])
    assert batch["position_ids"].tolist() == [[2, 3]]


# ------------------------------------------------------------------------------------------------------ how many tokens


def test_the_limit_in_force_is_the_smallest_of_three(wordpiece, word_level) -> None:
    short = spec(max_length=16)
    assert C(word_level, model=short).max_length == 16  # this tokenizer has none
    assert C(wordpiece, model=short).max_length == 16  # this one says 512
    assert C(wordpiece, model=spec(max_length=2048)).max_length == 512
    assert C(wordpiece, model=short, max_length=9).max_length == 9
    assert C(wordpiece, model=spec()).max_length == 512
    assert C(word_level, model=spec()).max_length is None


def test_a_limit_beyond_the_models_is_told_at_once_and_only_once(word_level) -> None:
    with pytest.warns(UserWarning, match="max_length=1000 is beyond the limit of Reader, so 16 is used"):
        collate = C(word_level, model=spec(max_length=16), max_length=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(collate)).max_length == collate.replace(seed=1).max_length == 16
    with pytest.warns(UserWarning, match="max_target_length=7 is beyond the limit of Bart, so 6 is used"):
        C(word_level, model=SHORT_BART, text_target_column="target", max_target_length=7)


def test_rows_cut_by_the_tokenizer_below_what_a_model_takes_name_the_tokenizers_limit(bert) -> None:
    """After `max_positions=1024`, say: the model has the room, and BERT's tokenizer still says 512."""
    long = ["bike " * 600]
    with pytest.warns(UserWarning, match=r"1 texts were truncated to 512 tokens, tokenizer.model_max_length") as said:
        C(bert, model=spec(max_length=1024))(long)
    assert "and the model takes 1024" in str(said[0].message)
    assert "fix: tokenizer.model_max_length = 1024, then make the collator" in str(said[0].message)
    bert.model_max_length = 1024
    assert C(bert, model=spec(max_length=1024))(long)["input_ids"].shape == (1, 602)


def test_rows_cut_to_what_a_model_takes_are_counted_and_its_name_is_said(word_level) -> None:
    collate = C(word_level, model=spec(max_length=3))
    with pytest.warns(UserWarning, match="1 of 2 texts were truncated to 3 tokens, the limit of Reader"):
        assert collate(["a b c d e", "a"])["input_ids"].shape == (2, 3)


def test_without_truncation_a_row_beyond_the_model_is_refused_by_its_name(word_level) -> None:
    with pytest.raises(ValueError, match=r"(?s)row 1 has 5 tokens, limit 3.*Reader takes no more"):
        C(word_level, model=spec(max_length=3), truncation=False)(["a", "a b c d e"])


def test_rows_of_ids_are_held_to_the_model_too(word_level) -> None:
    with pytest.warns(UserWarning, match="1 of 1 texts were truncated to 3 tokens"):
        assert C(word_level, model=spec(max_length=3))([{"input_ids": [5, 6, 7, 8]}])["input_ids"].shape == (1, 3)


def test_targets_are_held_to_the_decoder(wordpiece, word_level) -> None:
    assert C(word_level, model=SHORT_BART, text_target_column="t").max_target_length == 6
    # A tokenizer's limit is one on what is read: a decoder that takes more may write more.
    long = dataclasses.replace(BART, max_target_length=2048)
    assert C(wordpiece, model=long, text_target_column="t").max_target_length == 2048
    assert C(wordpiece, model=spec("labels", is_encoder_decoder=True), text_target_column="t").max_target_length == 512
    collate = C(word_level, model=SHORT_BART, text_target_column="target")
    rows = [{"text": "a", "target": "a b c d e f g h"}, {"text": "a", "target": "b"}]
    with pytest.warns(UserWarning, match="1 of 2 targets were truncated to 6 tokens, the limit of Bart"):
        assert collate(rows)["labels"].shape == (2, 6)
    with pytest.raises(ValueError, match=r"(?s)the target of row 0 has 8 tokens, limit 6.*Bart takes no more"):
        collate.replace(truncation=False)(rows)


def test_the_limits_in_force_can_be_read_and_what_was_asked_is_kept(word_level) -> None:
    collate = C(word_level, model=SHORT_BART, text_target_column="target")
    assert (collate.max_length, collate.max_target_length) == (8, 6)
    wider = collate.replace(model=BART)
    assert (wider.max_length, wider.max_target_length) == (64, 64)


def test_padding_of_targets_never_goes_beyond_the_decoder(word_level) -> None:
    with pytest.raises(ValueError, match=r"(?s)max_target_length must be a multiple of.*max_target_length=4$"):
        C(word_level, model=SHORT_BART, text_target_column="target", pad_to_multiple_of=4)
    bare = C(word_level, model=SHORT_BART, pad_to_multiple_of=4)
    assert bare([{"input_ids": [5], "labels": [5, 6]}])["labels"].shape == (1, 4)
    with pytest.raises(ValueError, match=r"(?s)targets of 5 tokens would be padded to 8, limit 6.*max_target_length=4"):
        bare([{"input_ids": [5], "labels": [5, 6, 7, 8, 9]}])
    collate = C(word_level, model=SHORT_BART, text_target_column="target", pad_to_multiple_of=4, max_target_length=4)
    assert collate([{"text": "a", "target": "a"}])["labels"].shape == (1, 4)


def test_targets_that_came_as_ids_are_held_to_the_decoder_by_what_they_say(word_level) -> None:
    collate = C(word_level, model=SHORT_BART, text_target_column="target")
    rows = [
        {"input_ids": [5, 6], "labels": [-100, -100, -100, 7, 8, 9, 10, 11, 12]},
        {"input_ids": [5], "labels": [7, 8, -100, -100, -100, -100, -100]},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # only padding was too long
        batch = collate(rows)
    assert batch["labels"].tolist() == [[7, 8, 9, 10, 11, 12], [7, 8, -100, -100, -100, -100]]
    with pytest.warns(UserWarning, match="1 of 1 targets were truncated to 6 tokens"):
        collate([{"input_ids": [5, 6], "labels": list(range(3, 12))}])
    with pytest.raises(ValueError, match="the target of row 0 has 9 tokens, limit 6"):
        collate.replace(truncation=False)([{"input_ids": [5, 6], "labels": list(range(3, 12))}])


# -------------------------------------------------------------------------------------------------------- which ids


def test_a_model_with_fewer_rows_than_the_tokenizer_has_ids_is_refused_with_the_call_to_make(wordpiece) -> None:
    C(wordpiece, model=spec(num_embeddings=1200))
    wordpiece.add_tokens(["bicycle"])
    with pytest.raises(ValueError, match="tokenizer has 1201 ids, the embedding has 1200 rows") as refused:
        C(wordpiece, model=spec(num_embeddings=1200))
    assert "call model.resize_token_embeddings(1201)" in str(refused.value)


def test_a_bad_id_is_named_by_row_column_and_value(word_level) -> None:
    size = len(word_level)
    collate = C(word_level, model=spec(num_embeddings=size))
    with pytest.raises(ValueError, match=f"row 1, column 2 of 'input_ids' is {size}, which is no token id"):
        collate([{"input_ids": [5]}, {"input_ids": [5, 6, size]}])
    with pytest.raises(ValueError, match=f"row 0, column 1 of 'input_ids' is {size}"):
        collate({"input_ids": [[5, size]]})


def test_a_bad_id_in_targets_is_named_too_and_minus_100_is_none(word_level) -> None:
    model = dataclasses.replace(BART_BASE, num_embeddings=len(word_level))
    collate = C(word_level, model=model, text_target_column="target")
    collate([{"input_ids": [5], "labels": [7, -100]}])
    with pytest.raises(ValueError, match="row 0, column 1 of 'labels' is 99999, which is no token id"):
        collate([{"input_ids": [5], "labels": [7, 99999]}])
    with pytest.raises(ValueError, match="row 0, column 0 of 'labels' is -1, which is no token id"):
        collate([{"input_ids": [5], "labels": [-1, 7]}])


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_forward_that_names_neither_ids_nor_embeddings_is_refused(wordpiece) -> None:
    class Swallows(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> None:
            """Names nothing."""

    with pytest.raises(
        ValueError, match="the forward of Swallows has no argument input_ids or inputs_embeds"
    ) as refused:
        C(wordpiece, model=Swallows())
    assert "**kwargs do not count" in str(refused.value)


@pytest.mark.parametrize("what", ["bert-base-uncased", 5, transformers.BertConfig()])
def test_what_is_no_model_is_refused(wordpiece, what: Any) -> None:
    with pytest.raises(TypeError, match="model= takes the model itself"):
        C(wordpiece, model=what)


@pytest.mark.parametrize(
    ("model", "way_out"),
    [
        (GPT2, "Gpt masks later tokens itself"),
        (BERT, r"AttentionMask\.from_batch\(batch, look_ahead=True\)\.for_hf\(model\)"),
        (spec(), "a forward that names look_ahead_mask"),
    ],
)
def test_a_look_ahead_mask_that_a_model_would_pass_over_is_refused(wordpiece, model: ModelSpec, way_out: str) -> None:
    with pytest.raises(ValueError, match=f"(?s)ignores look_ahead_mask.*{way_out}"):
        C(wordpiece, model=model, look_ahead=True)
    with pytest.raises(ValueError, match="ignores look_ahead_mask"):
        C(wordpiece, look_ahead=True).replace(model=model)


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary", "relative", "alibi", "unknown"])
def test_embeddings_with_positions_for_a_model_that_has_its_own_are_refused(wordpiece, kind: str) -> None:
    model = spec("inputs_embeds", positions=(kind,))
    with pytest.raises(ValueError, match=f"(?s)Reader adds its own positions.*{kind}") as refused:
        C(wordpiece, model=model, embedding=8)
    assert ("use_sinusoidal_positions(model)" in str(refused.value)) is (kind == "learned")
    assert "leave embedding= out" in str(refused.value)
    assert "leave model= out" in str(refused.value)


def test_a_models_own_token_table_is_refused_as_embedding_beside_a_model_with_any_positions(word_level) -> None:
    """Its vectors would have positions twice."""
    families = {name: each for name, each in FAMILIES.items() if name in ("bert", "roberta", "gpt2", "opt", "bart")}
    families |= {name: each for name, (kind, each) in (REFUSED | MORE_REFUSED).items() if kind != "no"}
    models = {name: each.build() for name, each in families.items()}
    models |= {name: own_model(name) for name in (*UNTOLD, *DECOYS) if name not in ("prompt", "labels")}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token="[UNK]"))
    for model in models.values():
        with pytest.raises(ValueError, match=f"{type(model).__name__} adds its own positions: with embedding="):
            C(raw, model=model, embedding=model.get_input_embeddings())


def test_embeddings_that_a_forward_does_not_name_are_refused(wordpiece) -> None:
    with pytest.raises(ValueError, match="inputs_embeds, and the forward of Reader has no such argument"):
        C(wordpiece, model=spec(), embedding=8)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (BART, "it reads two sequences"),
        (spec("position_ids"), r"neither attention_mask \(B, 1, T, T\) nor document_ids"),
        (spec(positions=("learned",), takes_4d_mask=True), "it takes no position_ids"),
    ],
)
def test_packing_for_a_model_that_cannot_keep_documents_apart_is_refused(wordpiece, model: ModelSpec, why: str) -> None:
    with pytest.raises(ValueError, match=f"(?s)packing=True puts several documents in a row, and {model.name}.*{why}"):
        C(wordpiece, model=model, packing=True, max_length=8)


@pytest.mark.parametrize("labels", ["causal_lm", "masked_lm"])
def test_labels_that_a_forward_does_not_name_are_refused_where_they_were_asked_for(wordpiece, labels: str) -> None:
    with pytest.raises(ValueError, match=f"labels='{labels}' makes labels, and the forward of Reader has no"):
        C(wordpiece, model=spec(), labels=labels)


def test_next_token_labels_for_a_model_that_sees_the_next_token_are_refused(wordpiece) -> None:
    with pytest.raises(ValueError, match=r"(?s)which Reader has seen: it is not causal.*masked_lm.*is_decoder=True"):
        C(wordpiece, model=BERT, labels="causal_lm")
    C(wordpiece, model=GPT2, labels="causal_lm")
    C(wordpiece, model=spec("labels"), labels="causal_lm")  # of a module of one's own nobody knows
    C(wordpiece, model=BERT, labels="masked_lm")
    C(wordpiece, model=GPT2, labels="masked_lm")


@pytest.mark.parametrize("model", [GPT2, BERT, spec(), spec("position_ids")])
def test_targets_for_a_model_that_reads_one_sequence_are_refused(wordpiece, model: ModelSpec) -> None:
    with pytest.raises(ValueError, match=f"makes a second sequence, and {model.name} reads one"):
        C(wordpiece, model=model, text_target_column="target")


def test_embeddings_alone_hold_no_tokens_to_read(wordpiece) -> None:
    collate = C(wordpiece, model=spec("inputs_embeds"), embedding=8)
    for read in (collate.tokens, collate.decode):
        with pytest.raises(ValueError, match="holds no tokens to read"):
            read(collate(TEXTS))


@pytest.mark.parametrize(
    ("word", "fix"), [("model_spec", "model="), ("spec", "model="), ("model_max_length", "max_length")]
)
def test_words_from_elsewhere_are_told_ours(wordpiece, word: str, fix: str) -> None:
    with pytest.raises(TypeError, match=f"(?s)there is no argument '{word}'.*{fix}"):
        C(wordpiece, **{word: 5})


# ---------------------------------------------------------------------------------------------------------- embeddings


def test_with_embeddings_the_ids_leave_the_batch_and_vectors_stand_first(wordpiece) -> None:
    model = spec("inputs_embeds", "position_ids")
    plain = C(wordpiece, embedding=8)
    collate = plain.replace(model=model)
    batch, want = collate(TEXTS), plain(TEXTS)
    assert list(batch) == ["inputs_embeds", "attention_mask", "position_ids"]
    assert torch.equal(batch["inputs_embeds"], want["inputs_embeds"])
    live = collate.embed(TEXTS)
    assert list(live) == list(batch)
    assert torch.equal(live["inputs_embeds"], batch["inputs_embeds"])
    fit_before = plain.replace(embedding=None, model=model)(TEXTS)
    assert list(fit_before) == PLAIN
    assert torch.equal(collate.embed(fit_before)["inputs_embeds"], batch["inputs_embeds"])


def test_a_model_that_reads_embeddings_alone_says_when_there_are_none(wordpiece) -> None:
    collate = C(wordpiece, model=ModelSpec(name="Vectors", accepts=("inputs_embeds", "attention_mask")))
    assert "input_ids" in collate({"text": TEXTS})
    with pytest.raises(
        ValueError, match=r"(?s)Vectors reads inputs_embeds, and this collator makes none.*embedding=table"
    ):
        collate(TEXTS)


def test_stored_embeddings_go_to_models_without_positions_of_their_own(wordpiece) -> None:
    columns = C(wordpiece, embedding=8, store_embeddings=True)
    with pytest.warns(UserWarning, match="bytes per token"):
        stored = columns({"text": TEXTS})
    rows = [{name: values[row] for name, values in stored.items()} for row in range(3)]
    assert list(C(wordpiece, model=spec("inputs_embeds"))(rows)) == ["inputs_embeds", "attention_mask"]
    assert list(C(wordpiece, model=spec())(rows)) == ["input_ids", "attention_mask"]
    with pytest.raises(ValueError, match=r"adds its own positions .*learned.*the rows have inputs_embeds"):
        C(wordpiece, model=spec("inputs_embeds", positions=("learned",)))(rows)


# ------------------------------------------------------------------------------------------------------ sequence pairs


def shifted(labels: list[int], start: int, padding: int) -> tuple[list[int], list[int]]:
    """The definition, for one row that is padded on the right: start, then all labels but the last; then padding."""
    real = [label for label in labels if label != -100]
    rest = len(labels) - len(real)
    return [start, *real[:-1]] + [padding] * rest, [1] * len(real) + [0] * rest


def test_a_model_that_shifts_labels_gets_ids_a_mask_and_labels(wordpiece) -> None:
    batch = C(wordpiece, model=BART, text_target_column="target")(PAIRS)
    assert list(batch) == ["input_ids", "attention_mask", "labels"]


@pytest.mark.parametrize(
    ("model", "start", "keys"),
    [
        (BART_BASE, 2, ["input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"]),
        (
            spec("decoder_input_ids", "look_ahead_mask", "labels", decoder_start_token_id=4),
            4,
            ["input_ids", "attention_mask", "decoder_input_ids", "labels", "look_ahead_mask"],
        ),
        (spec("decoder_input_ids"), 0, ["input_ids", "attention_mask", "decoder_input_ids"]),
        (
            None,
            0,
            [*PLAIN, "decoder_input_ids", "decoder_attention_mask", "labels", "look_ahead_mask"],
        ),
    ],
)
def test_other_decoders_get_the_labels_one_to_the_right(unigram, model: Any, start: int, keys: list[str]) -> None:
    collate = C(unigram, model=model, text_target_column="target")
    batch = collate(PAIRS)
    assert list(batch) == keys
    for row, pair in enumerate(PAIRS):
        labels = unigram(pair["target"])["input_ids"]
        labels += [-100] * (batch["decoder_input_ids"].shape[1] - len(labels))
        ids, mask = shifted(labels, start, unigram.pad_token_id)
        assert batch["decoder_input_ids"][row].tolist() == ids
        if "decoder_attention_mask" in batch:
            assert batch["decoder_attention_mask"][row].tolist() == mask
    if "look_ahead_mask" in batch:
        length = batch["decoder_input_ids"].shape[1]
        assert length != batch["input_ids"].shape[1]
        assert batch["look_ahead_mask"].shape == (2, 1, length, length)
        assert torch.equal(batch["look_ahead_mask"][1, 0], torch.ones(length, length).tril().bool())


def test_without_a_model_the_start_token_is_the_tokenizers(wordpiece, unigram, word_level, byte_bpe) -> None:
    def start(tokenizer: Any, **settings: Any) -> int:
        batch = C(tokenizer, text_target_column="target", **settings)(PAIRS)
        assert not (batch["decoder_input_ids"] == -100).any()
        return int(batch["decoder_input_ids"][0, 0])

    assert start(unigram) == unigram.bos_token_id
    assert start(wordpiece) == wordpiece.cls_token_id
    assert start(word_level) == word_level.pad_token_id
    byte_bpe.bos_token = None
    assert start(byte_bpe, pad_token="eos") == byte_bpe.eos_token_id


@pytest.mark.parametrize("side", ["left", "right"])
def test_decoder_inputs_are_transformers_own_shift_on_either_side(unigram, side: str) -> None:
    from transformers.models.bart.modeling_bart import shift_tokens_right

    model = dataclasses.replace(BART_BASE, left_padding_shifts=False)
    collate = C(unigram, model=model, text_target_column="target", padding_side=side)
    labels = C(unigram, text_target_column="target", padding_side=side)(PAIRS)["labels"]
    batch = collate(PAIRS)
    for row, mask in enumerate(batch["decoder_attention_mask"].bool()):
        alone = labels[row][labels[row] != -100][None]
        want = shift_tokens_right(alone, unigram.pad_token_id, model.decoder_start_token_id)
        assert torch.equal(batch["decoder_input_ids"][row][mask], want[0])
        assert set(batch["decoder_input_ids"][row][~mask].tolist()) <= {unigram.pad_token_id}


def test_labels_with_holes_never_put_minus_100_into_a_decoder(word_level) -> None:
    collate = C(word_level, text_target_column="target", look_ahead=False)
    rows = [
        {"input_ids": [5], "labels": [-100, 7, -100, 8, 9, -100]},
        {"input_ids": [5], "labels": [-100] * 6},
        {"input_ids": [5], "labels": []},
    ]
    batch = collate(rows)
    pad = word_level.pad_token_id
    assert batch["decoder_input_ids"].tolist() == [[pad, 0, 7, pad, 8, pad], [0] + [pad] * 5, [0] + [pad] * 5]
    assert batch["decoder_attention_mask"].tolist() == [[0, 1, 1, 0, 1, 0], [1] + [0] * 5, [1] + [0] * 5]
    assert collate([{"input_ids": [5], "labels": []}])["labels"].tolist() == [[-100]]


def test_targets_may_be_missing_when_a_model_is_used(wordpiece) -> None:
    rows = [{"text": text} for text in TEXTS]
    assert list(C(wordpiece, model=BART_BASE, text_target_column="target")(rows)) == ["input_ids", "attention_mask"]
    assert "look_ahead_mask" not in C(wordpiece, text_target_column="target")(rows)


def test_pairs_mapped_to_columns_give_the_same_decoder_inputs(unigram) -> None:
    collate = C(unigram, model=BART_BASE, text_target_column="target")
    stored = datasets.Dataset.from_list(PAIRS).map(collate, batched=True)
    from_ids, from_texts = collate([stored[0], stored[1]]), collate(PAIRS)
    assert list(from_ids) == list(from_texts)
    for name, want in from_texts.items():
        assert torch.equal(from_ids[name], want), name


# --------------------------------------------------------------------------------------------------------- left padding


def test_left_padding_that_moves_tokens_is_warned_of_once(wordpiece) -> None:
    shifts = spec(positions=("learned",), left_padding_shifts=True)
    collate = C(wordpiece, model=shifts, padding_side="left")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collate(["a", "b"])  # nothing is padded
    with pytest.warns(UserWarning, match="left padding changes the outputs of Reader for real tokens"):
        collate(TEXTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collate(TEXTS)
        C(wordpiece, model=shifts)(TEXTS)
        C(wordpiece, model=dataclasses.replace(BERT, left_padding_shifts=True), padding_side="left")(TEXTS)
        C(wordpiece, model=dataclasses.replace(shifts, positions=("rotary",)), padding_side="left")(TEXTS)


# --------------------------------------------------------------------------------------------------------------- value


def copies(collate: C, folder: Path) -> dict[str, C]:
    """The collator by every way that a value can take."""
    collate.save_pretrained(folder)
    return {
        "pickle": pickle.loads(pickle.dumps(collate)),
        "deepcopy": copy.deepcopy(collate),
        "replace": collate.replace(),
        "folder": C.from_pretrained(folder),
    }


def test_it_keeps_what_it_knows_of_the_model_as_a_value(unigram, tmp_path: Path) -> None:
    from datasets.fingerprint import Hasher

    collate = C(unigram, model=ROBERTA, padding_side="left")
    assert collate.model is ROBERTA
    for way, other in copies(collate, tmp_path).items():
        assert other.model == ROBERTA, way
        assert other == collate, way
        assert hash(other) == hash(collate), way
        assert Hasher.hash(other) == Hasher.hash(collate), way
        for name, want in collate(TEXTS).items():
            assert torch.equal(other(TEXTS)[name], want), (way, name)
    others = [C(unigram, padding_side="left"), collate.replace(model=BERT), collate.replace(model=spec())]
    assert len({Hasher.hash(one) for one in (collate, *others)}) == 4
    assert collate != others[0]


def test_the_file_holds_the_spec_and_no_weights(unigram, tmp_path: Path) -> None:
    C(unigram, model=ROBERTA).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "hf_posenc.json").read_text())
    assert saved["model"] == ROBERTA.to_dict()
    assert saved["format_version"] == 3
    assert C.from_pretrained(tmp_path, model=BERT).model == BERT
    assert C.from_pretrained(tmp_path, model=BERT)(["I ride"])["position_ids"].min() == 0


def test_a_folder_of_format_1_which_knew_no_model_still_loads(wordpiece, tmp_path: Path) -> None:
    C(wordpiece, max_length=32).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "hf_posenc.json").read_text())
    del saved["model"]
    (tmp_path / "hf_posenc.json").write_text(json.dumps({**saved, "format_version": 1}))
    assert C.from_pretrained(tmp_path) == C(wordpiece, max_length=32)
    assert C.from_pretrained(tmp_path, model=BERT).model == BERT


@pytest.mark.parametrize(
    ("value", "said"),
    [({"nmae": "Bert"}, "nmae"), (5, "got: 5"), ("bert", "got: 'bert'"), ({"accepts": 5}, "accepts is 5")],
)
def test_a_broken_model_in_a_file_is_refused(wordpiece, tmp_path: Path, value: Any, said: str) -> None:
    C(wordpiece, model=BERT).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "hf_posenc.json").read_text())
    (tmp_path / "hf_posenc.json").write_text(json.dumps({**saved, "model": value}))
    with pytest.raises(ValueError, match=rf"(?s)'model' in .*hf_posenc\.json.*{said}"):
        C.from_pretrained(tmp_path)


def test_a_model_can_be_put_in_and_taken_out(unigram) -> None:
    plain = C(unigram)
    fit = plain.replace(model=spec(max_length=16))
    assert plain.model is None
    assert plain.max_length is None
    assert fit.max_length == 16
    assert fit.replace(model=None) == plain
    assert list(fit.replace(model=None)(TEXTS)) == list(plain(TEXTS))


def test_the_repr_names_the_model_in_a_word(wordpiece) -> None:
    assert "model=<ModelSpec of Roberta>," in repr(C(wordpiece, model=ROBERTA))
    assert "model=None," in repr(C(wordpiece))


# ------------------------------------------------------------------------------------------ tiny models, left and right

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
NARROW = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
NARROW |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64}
MADE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", SMALL),
    "roberta": ("RobertaModel", "RobertaConfig", SMALL | {"pad_token_id": 1, "max_position_embeddings": 66}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 32}
        | {"max_position_embeddings": 64, "pad_token_id": 1},
    ),
    "mpnet": ("MPNetModel", "MPNetConfig", SMALL | {"pad_token_id": 1, "max_position_embeddings": 66}),
    "nystromformer": (
        "NystromformerModel",
        "NystromformerConfig",
        # Without the convolution over neighbours, which reads padding as well.
        SMALL
        | {"num_landmarks": 64, "segment_means_seq_len": 64, "max_position_embeddings": 64, "conv_kernel_size": 1},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", SMALL | {"num_key_value_heads": 2}),
    "bart": ("BartForConditionalGeneration", "BartConfig", NARROW),
    "bart-base": ("BartModel", "BartConfig", NARROW),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 1},
    ),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"hidden_size": 32, "state_size": 4, "num_hidden_layers": 1}),
}


def tiny(name: str, **more: Any) -> Any:
    """A small model with random weights, which knows the 1,200 ids of the small tokenizers."""
    cls, config, facts = MADE[name]
    ids = {"vocab_size": 1200, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return getattr(transformers, cls)(getattr(transformers, config)(**(ids | facts | more))).eval()


def answers(model: Any, batch: Any) -> torch.Tensor:
    """Last hidden states or logits."""
    out = model(**batch)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "opt", "mpnet", "nystromformer", "llama"])
def test_a_padded_text_is_answered_as_it_is_alone(unigram, name: str, side: str) -> None:
    model = tiny(name)
    collate = C(unigram, model=model, padding_side=side)
    assert list(collate(TEXTS)) == PLAIN
    out, mask = answers(model, collate(TEXTS)), collate(TEXTS)["attention_mask"].bool()
    for row, text in enumerate(TEXTS):
        alone = answers(model, unigram(text, return_tensors="pt", return_token_type_ids=False))[0]
        torch.testing.assert_close(out[row][mask[row]], alone, rtol=0, atol=1e-5)


@torch.no_grad()
def test_numbers_from_0_would_change_what_roberta_says(unigram) -> None:
    """The check above would notice: without the model's own numbering the answers are far off."""
    model = tiny("roberta")
    right = answers(model, C(unigram, model=model)(TEXTS))
    zero = dict(C(unigram, look_ahead=False)(TEXTS))
    assert (answers(model, zero) - right).abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *((name, way) for name in ("bert", "roberta", "gpt2", "opt", "llama") for way in ("sdpa", "eager")),
        ("mpnet", "eager"),
    ],
)
def test_a_packed_document_is_answered_as_it_is_alone(unigram, name: str, side: str, attention: str) -> None:
    model = tiny(name, attn_implementation=attention)
    collate = C(unigram, model=model, packing=True, max_length=48, pad_to_multiple_of=48, padding_side=side)
    batch = collate(TEXTS)
    marked = C(unigram, packing=True, max_length=48, pad_to_multiple_of=48, padding_side=side)(TEXTS)
    rows, length = batch["input_ids"].shape
    assert rows < len(TEXTS)
    assert batch["attention_mask"].shape == (rows, 1, length, length)
    assert batch["attention_mask"].dtype == torch.float32
    assert set(batch["attention_mask"].unique().tolist()) == {0.0, torch.finfo(torch.float32).min}
    assert list(batch) == ["input_ids", "position_ids", "attention_mask"]
    out = answers(model, batch)
    checked = 0
    for text in TEXTS:
        ids = unigram(text)["input_ids"]
        alone = answers(model, {"input_ids": torch.tensor([ids])})[0]
        for row in range(rows):
            for document in range(int(marked["document_ids"][row].max()) + 1):
                here = marked["document_ids"][row] == document
                if batch["input_ids"][row][here].tolist() == ids:
                    torch.testing.assert_close(out[row][here], alone, rtol=0, atol=1e-5)
                    checked += 1
    assert checked == len(TEXTS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_mask_of_packed_rows_is_in_the_models_dtype(unigram, dtype: torch.dtype) -> None:
    collate = C(unigram, model=tiny("gpt2").to(dtype), packing=True, max_length=64)
    mask = collate(TEXTS)["attention_mask"]
    assert mask.dtype == dtype
    assert mask.min() == torch.finfo(dtype).min
    array = collate.replace(return_tensors="np")(TEXTS)["attention_mask"]
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array.astype(np.float32), mask.float().numpy())


def test_a_packed_batch_can_still_be_read_and_shown(unigram) -> None:
    collate = C(unigram, model=tiny("gpt2"), packing=True, max_length=48, pad_to_multiple_of=48)
    batch = collate(TEXTS)
    plain = collate.replace(model=None)(TEXTS)
    assert collate.decode(batch) == collate.decode(plain)
    assert batch._repr_html_().count("color:#999") == plain._repr_html_().count("color:#999") > 0


def test_documents_go_to_a_module_that_names_them(unigram) -> None:
    batch = C(unigram, model=spec("position_ids", "document_ids"), packing=True, max_length=64)(TEXTS)
    assert list(batch) == ["input_ids", "position_ids", "document_ids"]


def test_packed_causal_labels_train_a_model(unigram) -> None:
    model = tiny("gpt2").train()
    batch = C(unigram, model=model, packing=True, max_length=64, labels="causal_lm")(TEXTS)
    assert (batch["labels"][batch["position_ids"] == 0] == -100).all()
    model(**batch).loss.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)


@torch.no_grad()
def test_look_ahead_for_a_model_that_hides_nothing_is_the_way_out_that_the_refusal_names(unigram) -> None:
    model = tiny("bert")
    with pytest.raises(ValueError, match="for_hf"):
        C(unigram, model=model, look_ahead=True)
    batch = C(unigram, model=model)(TEXTS)
    batch["attention_mask"] = AttentionMask.from_batch(batch, look_ahead=True).for_hf(model)
    before = answers(model, batch)
    batch["input_ids"][:, -1] = 7
    assert torch.equal(answers(model, batch)[:, :-1], before[:, :-1])


# ------------------------------------------------------------------------------------------- tiny models, two sequences


@torch.no_grad()
@pytest.mark.parametrize("name", ["bart", "t5"])
def test_pairs_go_to_hugging_face_as_its_own_collator_gives_them(unigram, name: str) -> None:
    model = tiny(name)
    collate = C(unigram, model=model, text_target_column="target")
    batch = collate(PAIRS)
    assert list(batch) == ["input_ids", "attention_mask", "labels", "decoder_input_ids"]
    rows = [unigram(pair["text"], text_target=pair["target"], return_token_type_ids=False) for pair in PAIRS]
    theirs = transformers.DataCollatorForSeq2Seq(unigram, model=model)([dict(row) for row in rows])
    torch.testing.assert_close(model(**batch).loss, model(**theirs).loss, rtol=0, atol=1e-6)


SEQ2SEQ = {
    "bart": ("BartForConditionalGeneration", "BartConfig", NARROW | {"decoder_start_token_id": 2}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", NARROW),  # begins with the last token, its language
    "plbart": ("PLBartForConditionalGeneration", "PLBartConfig", NARROW),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", NARROW | {"decoder_start_token_id": 1}),
    "marian": ("MarianMTModel", "MarianConfig", NARROW | {"decoder_start_token_id": 3}),
    "led": ("LEDForConditionalGeneration", "LEDConfig", NARROW | {"attention_window": 8, "decoder_start_token_id": 2}),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", NARROW | {"decoder_start_token_id": 2}),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", NARROW | {"decoder_start_token_id": 0}),
    "t5": MADE["t5"],
    "prophetnet": (
        "ProphetNetForConditionalGeneration",
        "ProphetNetConfig",
        {"hidden_size": 32, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 2}
        | {"num_decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
        | {"decoder_start_token_id": 0, "max_position_embeddings": 64},
    ),
}


def _seq2seq(name: str) -> Any:
    cls, config, facts = SEQ2SEQ[name]
    known = {"vocab_size": 1200, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return getattr(transformers, cls)(getattr(transformers, config)(**(known | facts)))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", SEQ2SEQ)
def test_tokenised_rows_go_to_an_encoder_decoder_as_transformers_seq2seq_collator_gives_them(
    unigram, name: str, side: str
) -> None:
    model = _seq2seq(name)
    unigram.padding_side = side
    rows = [unigram(pair["text"], text_target=pair["target"], return_token_type_ids=False) for pair in PAIRS]
    theirs = transformers.DataCollatorForSeq2Seq(unigram, model=model)([dict(row) for row in rows])
    collate = C(unigram, model=dataclasses.replace(ModelSpec.of(model), left_padding_shifts=False))
    for column in ("labels", "label"):
        given = [{**{key: row[key] for key in ("input_ids", "attention_mask")}, column: row["labels"]} for row in rows]
        batch = collate(given)
        assert "decoder_input_ids" in batch
        for key, want in theirs.items():
            assert torch.equal(batch[key], want), key
        columns = collate(datasets.Dataset.from_list(given)[:])
        stored = collate([{key: values[row] for key, values in columns.items()} for row in range(2)])
        arrays = collate.replace(return_tensors="np")(given)
        for key, want in batch.items():
            assert torch.equal(stored[key], want), key
            np.testing.assert_array_equal(arrays[key], want.numpy())
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        assert "decoder_input_ids" in theirs


@pytest.mark.parametrize("name", ["bart", "mbart", "t5", "m2m_100"])
def test_smoothed_labels_of_an_encoder_decoder_are_those_of_transformers(unigram, tmp_path: Path, name: str) -> None:
    model = _seq2seq(name).eval()
    rows = [unigram(pair["text"], text_target=pair["target"], return_token_type_ids=False) for pair in PAIRS]
    args = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, report_to=[], use_cpu=True, disable_tqdm=True)

    def loss(collate: Any) -> float:
        trainer = Trainer(model=model, args=args, eval_dataset=[dict(row) for row in rows], data_collator=collate)
        return trainer.evaluate()["eval_loss"]

    theirs = transformers.DataCollatorForSeq2Seq(unigram, model=model)
    if name == "m2m_100":  # transformers' collator makes no decoder_input_ids for it

        def shifted(features: list[Any]) -> Any:
            from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

            batch = plain(features)
            return {**batch, "decoder_input_ids": shift_tokens_right(batch["labels"], 1, 2)}

        plain, theirs = theirs, shifted
    assert loss(C(unigram, model=model)) == pytest.approx(loss(theirs), abs=1e-6)


def test_labels_of_an_encoder_decoder_that_classifies_are_one_a_row(unigram) -> None:
    _, config, facts = SEQ2SEQ["bart"]
    known = {"vocab_size": 1200, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    model = transformers.BartForSequenceClassification(getattr(transformers, config)(**(known | facts)))
    batch = C(unigram, model=model)([{"text": "a", "label": 1}, {"text": "I ride", "label": 0}])
    assert batch["labels"].tolist() == [1, 0]
    assert "decoder_input_ids" not in batch


@torch.no_grad()
def test_a_base_model_answers_the_decoder_inputs_as_its_head_would(unigram) -> None:
    """What BART's head makes of labels, and what we make for BART without a head, give the same hidden states."""
    head = tiny("bart")
    with_labels = C(unigram, model=head, text_target_column="target")(PAIRS)
    base = C(unigram, model=head.model, text_target_column="target")(PAIRS)
    assert list(base) == ["input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"]
    theirs = head(**with_labels, output_hidden_states=True).decoder_hidden_states[-1]
    ours = head.model(**base).last_hidden_state
    real = with_labels["labels"] != -100
    torch.testing.assert_close(ours[real], theirs[real], rtol=0, atol=1e-5)


class Translator(nn.Module):
    """An encoder-decoder of torch's own parts, which reads all that the collator makes for a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1200, 16)
        self.inner = nn.Transformer(16, 2, 1, 1, 24, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 1200)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        decoder_attention_mask: torch.Tensor,
        look_ahead_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Logits, and the loss where labels are given."""
        hidden = self.inner(
            self.table(input_ids),
            self.table(decoder_input_ids),
            tgt_mask=~look_ahead_mask[0, 0],
            src_key_padding_mask=attention_mask == 0,
            memory_key_padding_mask=attention_mask == 0,
            tgt_key_padding_mask=decoder_attention_mask == 0,
        )
        logits = self.head(hidden)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def test_an_encoder_decoder_of_ones_own_learns_to_copy(unigram) -> None:
    torch.manual_seed(0)
    model = Translator()
    collate = C(unigram, model=model, text_target_column="target")
    batch = collate(PAIRS)
    assert list(batch) == [
        *("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask", "labels", "look_ahead_mask")
    ]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


# ------------------------------------------------------------------------------------------------ wrappers and Trainer


def wrapped_by(way: str, model: Any) -> Any:
    """The model inside something that hides its forward's names."""
    if way == "parallel":
        return nn.DataParallel(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both use what torch and transformers call deprecated
        if way == "compile":
            return torch.compile(model)
        peft = pytest.importorskip("peft")
        return peft.get_peft_model(model, peft.LoraConfig(target_modules=["query"]))


@pytest.mark.parametrize("way", ["compile", "parallel", "peft"])
def test_wrappers_are_opened(unigram, way: str) -> None:
    model = tiny("roberta")
    want = C(unigram, model=model)
    assert C(unigram, model=wrapped_by(way, model)) == want
    assert want.model == ModelSpec.of(model)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT sets the limit
def test_rows_leave_room_for_virtual_tokens_of_peft_and_packing_is_refused(word_level) -> None:
    peft = pytest.importorskip("peft")
    small = {"vocab_size": len(word_level), "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 40}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, pad_token_id=0))
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8)
    wrapped = peft.get_peft_model(model, config)
    collate = C(word_level, model=wrapped, labels="causal_lm")
    with pytest.warns(UserWarning, match="1 of 2 texts were truncated to 32 tokens, the limit of GPT2LMHeadModel"):
        batch = collate(["a b c", "bike " * 60])
    assert batch["input_ids"].shape == (2, 32)
    assert torch.isfinite(wrapped(**batch).loss)
    with pytest.raises(ValueError, match="packing=True puts several documents in a row, and GPT2LMHeadModel cannot"):
        C(word_level, model=wrapped, packing=True)


def test_a_model_that_reads_no_positions_gets_none(unigram) -> None:
    assert list(C(unigram, model=tiny("mamba"))(TEXTS)) == ["input_ids", "attention_mask"]
    assert list(C(unigram, model=tiny("mamba"), labels="causal_lm")(TEXTS)) == ["input_ids", "attention_mask", "labels"]


@torch.no_grad()
def test_a_model_without_positions_takes_ours_as_embeddings(unigram) -> None:
    model = tiny("mamba")
    collate = C(unigram, model=model, embedding=model.get_input_embeddings().requires_grad_(False))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the encoding's spread")
        batch = collate(TEXTS)
    assert list(batch) == ["inputs_embeds", "attention_mask"]
    assert answers(model, batch).shape[:2] == batch["attention_mask"].shape


def test_a_model_as_embedding_and_as_model_is_told_that_it_adds_its_own_positions(unigram) -> None:
    model = tiny("bert")
    for embedding in (model, model.get_input_embeddings()):
        with pytest.raises((ValueError, TypeError), match="adds its own positions"):
            C(unigram, model=model, embedding=embedding)


def test_the_model_is_neither_kept_nor_changed(unigram) -> None:
    model = tiny("bert").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    collate = C(unigram, model=model)
    assert model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert len(pickle.dumps(collate)) < len(pickle.dumps(C(unigram))) + 2_000


@pytest.mark.parametrize("rows", ["texts", "mapped"])
@pytest.mark.parametrize("name", ["roberta", "gpt2"])
def test_a_model_trains_on_batches_that_fit_it(unigram, tmp_path: Path, name: str, rows: str) -> None:
    pytest.importorskip("accelerate", reason="Trainer needs accelerate: pip install 'hf-posenc[test]'")
    head: Callable[..., Any] = {
        "roberta": lambda: transformers.RobertaForMaskedLM(tiny("roberta").config),
        "gpt2": lambda: tiny("gpt2"),
    }[name]
    model = head()
    collate = C(unigram, model=model, labels="masked_lm" if name == "roberta" else "causal_lm", mlm_probability=0.5)
    texts = datasets.Dataset.from_dict({"text": ["I ride bike", "bike ride I, she said"] * 8, "note": ["x"] * 16})
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4,
        report_to=[],
        disable_tqdm=True,
        save_strategy="steps",
        save_steps=2,
        logging_strategy="no",
        use_cpu=True,
        remove_unused_columns=rows == "mapped",
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=texts.map(collate, batched=True) if rows == "mapped" else texts,
        data_collator=collate,
        processing_class=collate,
    )
    assert trainer.train().global_step == 2
    again = C.from_pretrained(tmp_path / "checkpoint-2")
    assert again == collate
    assert again.model == ModelSpec.of(model)


def test_the_message_of_every_refusal_has_a_way_out(wordpiece) -> None:
    wrong: list[dict[str, Any]] = [
        {"model": ModelSpec()},
        {"model": spec("inputs_embeds", positions=("rotary",)), "embedding": 8},
        {"model": spec(num_embeddings=5)},
        {"model": BERT, "look_ahead": True},
        {"model": BART, "packing": True},
        {"model": spec(), "labels": "masked_lm"},
        {"model": BERT, "labels": "causal_lm"},
        {"model": GPT2, "text_target_column": "target"},
    ]
    for settings in wrong:
        with pytest.raises(ValueError, match=re.compile("got: .*fix: ", re.DOTALL)):
            C(wordpiece, **settings)


# --------------------------------------------------------------------------------------- rows that were packed before


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_that_come_packed_are_never_given_a_mask_that_mixes_their_documents(unigram, side: str) -> None:
    rows = [
        {"input_ids": [5, 6, 7, 8, 9], "position_ids": [0, 1, 2, 0, 1]},
        {"input_ids": [7, 6, 5], "position_ids": [0, 1, 2]},
    ]
    bare = C(unigram, padding_side=side, look_ahead=False)(rows)
    assert "attention_mask" not in bare
    one, other = [0, 0, 0, 1, 1], [0, 0, 0, -1, -1] if side == "right" else [-1, -1, 0, 0, 0]
    assert bare["document_ids"].tolist() == [one, other]
    for name in ("gpt2", "bert"):
        model = tiny(name).eval()
        batch = C(unigram, model=model, padding_side=side)(rows)
        assert batch["attention_mask"].shape == (2, 1, 5, 5)
        with torch.no_grad():
            packed = model(**batch)[0]
            for start, stop in ((0, 3), (3, 5)):
                alone = model(input_ids=torch.tensor([rows[0]["input_ids"][start:stop]]))[0]
                torch.testing.assert_close(packed[:1, start:stop], alone, rtol=0, atol=1e-5)


def test_positions_that_do_not_restart_are_one_document_a_row(unigram) -> None:
    rows = [{"input_ids": [5, 6, 7], "position_ids": [4, 5, 9]}, {"input_ids": [7], "position_ids": [0]}]
    batch = C(unigram, look_ahead=False)(rows)
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert "document_ids" not in batch


@torch.no_grad()
@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("first", [0, 2])
def test_rows_of_pack_dataset_are_answered_as_their_documents_by_a_model_that_counts_from_2(
    unigram, first: int, packing: bool
) -> None:
    documents = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
    stored = datasets.Dataset.from_dict({"input_ids": documents})
    packed = hf_posenc.pack_dataset(stored, 6, first_position=first, document_ids=True)
    model = tiny("roberta")
    collate = C(unigram, model=model, packing=packing, max_length=6)
    batch = collate(list(packed.remove_columns("labels")))
    out, ids = answers(model, batch), batch["input_ids"]
    for document in documents:
        alone = answers(model, {"input_ids": torch.tensor([document])})[0]
        row, column = (int(index) for index in (ids == document[0]).nonzero()[0])
        assert ids[row, column : column + len(document)].tolist() == document
        torch.testing.assert_close(out[row, column : column + len(document)], alone, rtol=0, atol=1e-5)


def test_a_batch_of_a_model_that_counts_from_2_goes_through_its_collator_again(unigram) -> None:
    collate = C(unigram, model=ROBERTA)
    batch = collate(TEXTS)
    rows = [{name: tensor[row] for name, tensor in batch.items() if name != "token_type_ids"} for row in range(3)]
    again = collate(rows)
    assert torch.equal(again["position_ids"], batch["position_ids"])
    assert torch.equal(again["attention_mask"], batch["attention_mask"])


@pytest.mark.parametrize("positions", [[0, 1, 1, 2, 3], [0, 0, 1, 2, 2], [7, 7, 9, 11, 11]])
@pytest.mark.parametrize("packing", [False, True])
def test_equal_positions_beside_each_other_leave_the_mask_and_begin_no_document(
    unigram, positions: list[int], packing: bool
) -> None:
    rows = [{"input_ids": [5, 6, 7, 8, 9], "position_ids": positions}]
    batch = C(unigram, packing=packing, max_length=5)(rows)
    assert batch["position_ids"].tolist() == [positions]
    if packing:
        assert batch["document_ids"].tolist() == [[0] * 5]
    else:
        assert batch["attention_mask"].tolist() == [[1] * 5]
        assert "document_ids" not in batch


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mask", [False, True])
def test_document_ids_of_rows_are_honoured_with_and_without_packing(unigram, side: str, mask: bool) -> None:
    rows = [
        {"input_ids": [5, 6, 7, 8, 9, 1], "document_ids": [0, 0, 0, 1, 1, -1]},
        {"input_ids": [10, 11], "document_ids": [4, 4]},
    ]
    if mask:
        rows = [{**row, "attention_mask": [int(n >= 0) for n in row["document_ids"]]} for row in rows]
    whole = C(unigram, padding_side=side, labels="causal_lm")(rows)
    assert "attention_mask" not in whole
    last = [4, 4, -1, -1, -1, -1] if side == "right" else [-1, -1, -1, -1, 4, 4]
    assert whole["document_ids"].tolist() == [[0, 0, 0, 1, 1, -1], last]
    assert whole["position_ids"][0].tolist() == [0, 1, 2, 0, 1, 0]
    assert whole["labels"][0].tolist() == [-100, 6, 7, -100, 9, -100]
    packed = C(unigram, padding_side=side, labels="causal_lm", packing=True, max_length=5)(rows)
    found = {}
    for ids, numbers, positions, labels in zip(
        *(packed[name].tolist() for name in ("input_ids", "document_ids", "position_ids", "labels")), strict=True
    ):
        for number in set(numbers) - {-1}:
            at = [column for column, other in enumerate(numbers) if other == number]
            assert [positions[column] for column in at] == list(range(len(at)))
            found[tuple(ids[column] for column in at)] = [labels[column] for column in at]
    assert found == {(5, 6, 7): [-100, 6, 7], (8, 9): [-100, 9], (10, 11): [-100, 11]}
    alone = C(unigram)(rows[1:])  # one document a row: nothing to keep apart
    assert alone["attention_mask"].tolist() == [[1, 1]]
    assert alone["document_ids"].tolist() == [[4, 4]]


def test_documents_that_interleave_are_honoured(unigram) -> None:
    rows = [{"input_ids": [5, 8, 6, 9, 7], "document_ids": [0, 1, 0, 1, 0]}]
    assert C(unigram)(rows)["position_ids"].tolist() == [[0, 0, 1, 1, 2]]
    packed = C(unigram, packing=True, max_length=5)(rows)
    assert packed["input_ids"].tolist() == [[5, 6, 7, 8, 9]]
    assert packed["document_ids"].tolist() == [[0, 0, 0, 1, 1]]


@pytest.mark.parametrize("column", ["position_ids", "document_ids"])
def test_rows_that_come_packed_keep_their_documents_apart_under_packing(unigram, column: str) -> None:
    values = {"position_ids": [0, 1, 2, 0, 1, 2], "document_ids": [0, 0, 0, 1, 1, 1]}
    rows = [{"input_ids": [5, 6, 7, 8, 9, 10], column: values[column]}]
    batch = C(unigram, packing=True, max_length=6, look_ahead=False)(rows)
    for name, want in values.items():
        assert batch[name].tolist() == [want]


@pytest.mark.parametrize("packing", [False, True])
def test_labels_of_rows_that_share_a_row_are_those_of_transformers_flattening_collator(unigram, packing: bool) -> None:
    documents = [[5, 6, 7], [8, 9], [10], [11, 12, 13, 14]]
    rows = [{"input_ids": ids, "labels": [n + 100 for n in ids]} for ids in documents]
    theirs = transformers.DataCollatorWithFlattening()([{name: list(row[name]) for name in row} for row in rows])
    want = dict(zip(theirs["input_ids"][0].tolist(), theirs["labels"][0].tolist(), strict=True))
    if not packing:  # rows that came packed
        rows = [{name: theirs[name][0] for name in ("input_ids", "position_ids")}]
        rows[0]["labels"] = rows[0]["input_ids"] + 100
    batch = C(unigram, model=tiny("gpt2"), packing=packing, max_length=10)(rows)
    ids, labels = batch["input_ids"].flatten().tolist(), batch["labels"].flatten().tolist()
    assert dict(zip(ids, labels, strict=True)) == want


def test_labels_of_tokens_keep_the_first_of_each_document_where_no_next_token_is_predicted(unigram) -> None:
    rows = [{"input_ids": ids, "labels": [3] * len(ids)} for ids in ([5, 6, 7], [8, 9])]
    config = transformers.GPT2Config(vocab_size=1200, n_embd=8, n_layer=1, n_head=2, pad_token_id=1)
    heads = transformers.GPT2ForTokenClassification(config)
    for model in (None, spec("labels", "position_ids", takes_4d_mask=True, positions=("learned",)), heads):
        batch = C(unigram, model=model, packing=True, max_length=5)(rows)
        assert batch["labels"].tolist() == [[3] * 5]


def test_rows_that_come_packed_are_refused_for_a_model_that_cannot_keep_them_apart(unigram) -> None:
    collate = C(unigram, model=tiny("bart"))
    with pytest.raises(ValueError, match="does not take an attention_mask of four dimensions"):
        collate([{"input_ids": [5, 6, 7, 8], "position_ids": [0, 1, 0, 1]}])


def test_packed_documents_longer_than_a_models_window_get_a_mask_for_each_kind_of_layer(unigram) -> None:
    config = transformers.ModernBertConfig(
        vocab_size=1200, **SMALL, local_attention=4, global_attn_every_n_layers=2, pad_token_id=1
    )
    model = transformers.ModernBertModel(config).eval()
    collate = C(unigram, model=model, packing=True, max_length=32, add_special_tokens=False)
    rows = [{"input_ids": list(range(5, 17))}, {"input_ids": list(range(20, 30))}]
    batch = collate(rows)
    assert sorted(batch["attention_mask"]) == ["full_attention", "sliding_attention"]
    assert "attention_mask" in repr(batch.to("cpu"))
    assert "<table>" in batch._repr_html_()
    with torch.no_grad():
        packed = model(**batch.to("cpu"))[0]
        alone = model(input_ids=torch.tensor([rows[0]["input_ids"]]))[0]
    start = batch["input_ids"][0].tolist().index(5)
    torch.testing.assert_close(packed[0, start : start + 12], alone[0], rtol=0, atol=1e-5)
    arrays = collate.replace(return_tensors="np")(rows)["attention_mask"]
    assert {type(each).__name__ for each in arrays.values()} == {"ndarray"}
