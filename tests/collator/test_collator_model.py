"""The collator with a model: columns that are not read, positions of rows, embeddings, files, wrappers and warnings."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small_models import BART_BASE, BERT, ROBERTA, TEXTS, answers, of_class, spec, tiny
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec

C = DataCollatorWithPositionalEncoding


@pytest.mark.parametrize("values", [[[1, 2], [3]], [3, None], [3, "x"], [2**64, 1], ["x", "y"], [[1], []]])
def test_columns_that_the_model_does_not_name_are_not_read(wordpiece, values: list) -> None:
    rows = [{"text": "a", "pos_tags": value} for value in values]
    collate = C(wordpiece, model=spec())
    with pytest.warns(UserWarning, match=r"columns \['pos_tags'\] are not in the batch\n  got: Reader takes none"):
        batch = collate(rows)
    assert batch.keys() == collate(["a", "b"]).keys() == collate(rows).keys()  # without a second warning
    if values != ["x", "y"]:
        with pytest.raises((ValueError, TypeError), match="column 'pos_tags'"):
            C(wordpiece, model=spec("pos_tags"))(rows)


def test_floats_that_the_model_names_are_float32_as_its_layers(wordpiece) -> None:
    rows = [{"text": "a", "weight": 0.1}, {"text": "b", "weight": 0.2}]
    assert C(wordpiece, model=spec("weight"))(rows)["weight"].dtype == torch.float32
    with pytest.raises(ValueError, match="row 1 of column 'weight' holds 1e"):
        C(wordpiece, model=spec("weight"))([*rows[:1], {"text": "b", "weight": 1e300}])


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (None, {}),
        (BERT, {}),
        (BART_BASE, {"text_target_column": "target"}),
        (None, {"packing": True, "max_length": 8, "look_ahead": False}),
    ],
)
def test_columns_that_are_not_read_are_listed_once(wordpiece, model: Any, settings: dict[str, Any]) -> None:
    rows = [{"text": text, "text2": "b", "Targets": "c", "sentiment": None, "idx": 7} for text in "ab"]
    collate = C(wordpiece, model=model, **settings)
    unread = r"\['text2', 'Targets', 'sentiment'\]"
    words = (
        rf"columns {unread} are not in the batch(?s:.*)fix: dataset\.remove_columns\({unread}\), .*labels must be named"
    )
    with pytest.warns(UserWarning, match=words) as given:
        collate(rows)
    assert len(given) == 1
    collate(rows)  # warnings are errors


def test_columns_that_are_read_or_number_rows_are_not_listed(wordpiece) -> None:
    row = {"input_ids": [2, 5, 3], "idx": 4, "doc_id": 3, "__index_level_0__": 1, "token_type_ids": [0, 0, 0]}
    C(wordpiece, model=BERT)([{**row, "label": 0, "length": 3}])
    assert C(wordpiece)([{**row, "sentiment": 1}])["sentiment"].tolist() == [1]
    C(wordpiece, model=BERT, text_pair_column="text2")([{"text": "a", "text2": "b", "label": 1}])
    assert "labels" not in C(wordpiece, text_target_column="target")([{"text": "a", "id": "q1"}])


@pytest.mark.parametrize(("argument", "meant"), [("text_column", "text"), ("text_pair_column", "text2")])
def test_a_misspelled_text_column_names_its_argument(wordpiece, argument: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"column 'txt' is missing(?s:.*)fix: {argument}='{meant}'$"):
        C(wordpiece, **{argument: "txt"})([{"text2": "b", "text": "a", 3: "c"}])
    with pytest.raises(ValueError, match=f"column 'txt' is missing(?s:.*)another column: {argument}='...'"):
        C(wordpiece, **{"text_column": "words", argument: "txt"})([{"words": [["a"]], "label": 1}])


def test_positions_of_rows_that_count_from_0_are_moved_to_the_models_first_one(word_level) -> None:
    rows = [{"input_ids": [5, 6, 7], "position_ids": [9, 3, 2]}, {"input_ids": [5], "position_ids": [7]}]
    collate = C(word_level, model=ROBERTA)
    assert collate(rows)["position_ids"].tolist() == [[9, 3, 2], [7, 1, 1]]
    assert collate(rows[1:])["position_ids"].tolist() == [[7]]
    from_0 = [{"input_ids": [5, 6, 7], "position_ids": [0, 1, 2]}]
    assert collate(from_0)["position_ids"].tolist() == [[2, 3, 4]]
    assert collate(rows + from_0)["position_ids"].tolist() == [[9, 3, 2], [7, 1, 1], [2, 3, 4]]
    for positions in ([9, 3, 0], [0, 2, 1], [1, 2, 3], [0, 1, 1], [-1, 2, 3]):
        with pytest.raises(ValueError, match=r"row 1, column \d of 'position_ids' .* must be 0, 1, 2") as refused:
            collate([*from_0, {"input_ids": [5, 6, 7], "position_ids": positions}])
        assert f"got: {positions}" in str(refused.value)
    with pytest.raises(ValueError, match="must be 0, 1, 2"):  # truncation would leave 9
        collate.replace(max_length=1)([{"input_ids": [5, 6, 7], "position_ids": [9, 3, 0]}])
    padded = [{"input_ids": [0, 5, 6], "attention_mask": [0, 1, 1], "position_ids": [0, 0, 1]}]
    assert collate(padded)["position_ids"].tolist() == [[2, 3]]
    for model in (None, BERT):
        assert C(word_level, model=model)(rows)["position_ids"].tolist() == [[9, 3, 2], [7, 0, 0]]
    columns = collate.replace(padding="max_length", max_length=4)(
        {"input_ids": [[5, 6, 7], [5]], "position_ids": [[0, 1, 2], [7]]}
    )
    assert columns["position_ids"].tolist() == [[2, 3, 4, 1], [7, 1, 1, 1]]


def test_a_model_that_reads_embeddings_alone_is_refused_if_there_are_none(wordpiece) -> None:
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


def test_a_tokenizer_like_robertas_without_a_model_warns_once_that_positions_count_from_0(byte_bpe) -> None:
    inner = json.loads(byte_bpe.backend_tokenizer.to_str())["model"]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    ids = {token: number for number, token in enumerate([*special, *inner["vocab"]])}
    merges = [tuple(merge) for merge in inner["merges"]]
    roberta = transformers.RobertaTokenizer(vocab=ids, merges=merges)
    collate = C(roberta)
    with pytest.warns(
        UserWarning, match=r"(?s)position_ids count from 0.*got: RobertaTokenizer with.*fix: model=model"
    ):
        assert collate(TEXTS)["position_ids"].min() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collate(TEXTS)
        assert C(roberta, model=ROBERTA)(TEXTS)["position_ids"].min() == 1  # of padding
        C(roberta, embedding=8)(TEXTS)
        C(roberta)([{"input_ids": [0, 7, 2], "position_ids": [2, 3, 4]}])
        C(roberta, model=ROBERTA)([{"input_ids": [0, 7, 2], "position_ids": [0, 1, 2]}])
        C(transformers.RobertaTokenizer(vocab=ids, merges=merges, pad_token="<mask>"))(TEXTS)
    with pytest.warns(UserWarning, match="position_ids count from 0"):  # given ones
        C(roberta)([{"input_ids": [0, 7, 2], "position_ids": [0, 1, 2]}])


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


def test_left_padding_for_a_classifier_that_reads_the_first_token_is_warned_of_once(wordpiece) -> None:
    model = of_class("BertForSequenceClassification")
    left, right = (C(wordpiece, model=model, padding_side=side) for side in ("left", "right"))
    with pytest.warns(
        UserWarning, match=r"(?s)changes the logits of BertForSequenceClass.*fix: padding_side=\"right\""
    ):
        batches = left(TEXTS), right(TEXTS)
    with torch.no_grad():  # the warning is right
        assert (model(**batches[0]).logits - model(**batches[1]).logits).abs().max() > 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left(TEXTS)
        left.replace(seed=1)(["a", "b"])  # nothing is padded


def test_the_file_holds_the_spec_and_no_weights(unigram, tmp_path: Path) -> None:
    C(unigram, model=ROBERTA).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "hf_posenc.json").read_text())
    assert ModelSpec(**saved["model"]) == ROBERTA
    assert saved["format_version"] == 4
    assert C.from_pretrained(tmp_path, model=BERT).model == BERT
    assert C.from_pretrained(tmp_path, model=BERT)(["I ride"])["position_ids"].min() == 0


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


@pytest.mark.filterwarnings("ignore:columns .* are not in the batch")
@pytest.mark.parametrize("name", ["gpt2", "llama", "bart", "mamba"])
def test_a_column_with_the_name_of_a_cache_is_not_the_cache_of_the_model(unigram, name: str) -> None:
    """transformers 5.24 calls the cache of all models `cache`, versions before `past_key_values` or `cache_params`."""
    names = ("cache", "cache_params", "past_key_values")
    collate = C(unigram, model=tiny(name))
    rows = [{"text": text, **dict.fromkeys(names, 1)} for text in TEXTS]
    assert list(collate(rows)) == list(collate(TEXTS))
    assert not {*names} & {*ModelSpec.of(tiny(name)).accepts}


@torch.no_grad()
def test_a_model_without_positions_takes_ours_as_embeddings(unigram) -> None:
    model = tiny("mamba")
    collate = C(unigram, model=model, embedding=model.get_input_embeddings().requires_grad_(False))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the encoding's spread")
        batch = collate(TEXTS)
    assert list(batch) == ["inputs_embeds", "attention_mask"]
    assert answers(model, batch).shape[:2] == batch["attention_mask"].shape


def test_a_model_as_embedding_and_as_model_is_refused_because_it_adds_positions(unigram) -> None:
    model = tiny("bert")
    for embedding in (model, model.get_input_embeddings()):
        with pytest.raises((ValueError, TypeError), match="adds its own positions"):
            C(unigram, model=model, embedding=embedding)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("gpt2", 'labels="causal_lm"'), ("bert", 'labels="masked_lm"'), ("t5", 'text_target_column="target"')],
)
def test_a_language_model_in_training_mode_without_labels_warns_once_with_the_setting(
    word_level, name: str, setting: str
) -> None:
    model = tiny(name, vocab_size=1800)
    if name == "bert":
        model = transformers.BertForMaskedLM(model.config)
    collate = C(word_level, model=model.train())
    for made in (collate, collate.replace(max_length=8), collate.replace(model=model)):
        with pytest.warns(UserWarning, match=f"(?s)is in training mode, and this batch has no labels.*fix: {setting}"):
            made(["a b c"])
        made(["a b c"])
    for silent in (collate.replace(model=model.eval()), pickle.loads(pickle.dumps(collate))):
        assert "labels" not in silent(["a b c"])


def test_a_column_of_labels_that_are_all_none_is_named_once(word_level) -> None:
    bert = transformers.BertForSequenceClassification(tiny("bert", vocab_size=1800).config)
    for settings in ({}, {"model": bert}, {"model": tiny("gpt2", vocab_size=1800).train()}):
        for name in ("label", "label_ids", "labels"):
            collate = C(word_level, **settings)
            with pytest.warns(UserWarning, match=f"column '{name}' is None in every row") as given:
                collate([{"text": "a b", name: None}, {"text": "a", name: None}])
            collate([{"input_ids": [5, 6], name: None}])
            assert len(given) == 1
    for silent in (C(word_level, labels="causal_lm"), C(word_level, model=transformers.BertModel(bert.config))):
        silent([{"text": "a b", "labels": None}])


def test_packed_prompts_warn_once_that_generate_needs_a_row_for_each(word_level) -> None:
    collate = C(word_level, model=tiny("gpt2", vocab_size=1800).eval(), packing=True, max_length=16)
    prompts = collate.replace(padding_side="left")
    with pytest.warns(UserWarning, match="(?s)packed rows hold several prompts.*fix: packing=False"):
        prompts(["a b c", "a"])
    for silent in (prompts, collate, prompts.replace(packing=False), prompts.replace(labels="causal_lm")):
        silent(["a b c", "a"])


def test_the_collator_keeps_neither_the_model_nor_the_given_tokenizer_in_memory(word_level) -> None:
    model, tokenizer = tiny("gpt2", vocab_size=1800), copy.deepcopy(word_level)
    collate, alive = C(tokenizer, model=model), (weakref.ref(model), weakref.ref(tokenizer))
    del model, tokenizer
    gc.collect()
    assert [each() for each in alive] == [None, None]
    assert collate(["a b"])["input_ids"].shape == (1, 2)
