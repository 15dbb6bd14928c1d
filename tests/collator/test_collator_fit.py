"""The limits of a model on the rows of a collator, and everything that a collator refuses for a model."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import warnings
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from families import DECOYS, FAMILIES, MORE_REFUSED, REFUSED, UNTOLD, family, own_model
from looping import for_each, slow
from small_models import BART, BART_BASE, BERT, GPT2, SHORT_BART, TEXTS, answers, of_class, spec, tiny
from torch import nn

from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, ModelSpec

C = DataCollatorWithPositionalEncoding


def test_a_limit_beyond_the_models_warns_at_construction_and_only_once(word_level) -> None:
    with pytest.warns(UserWarning, match="max_length=1000 is beyond the limit of Reader, so 16 is used"):
        collate = C(word_level, model=spec(max_length=16), max_length=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(collate)).max_length == collate.replace(seed=1).max_length == 16
    with pytest.warns(UserWarning, match="max_target_length=7 is beyond the limit of Bart, so 6 is used"):
        C(word_level, model=SHORT_BART, text_target_column="target", max_target_length=7)


def test_rows_cut_by_the_tokenizer_below_what_a_model_takes_name_the_tokenizers_limit(bert) -> None:
    """As after `max_positions=1024`: the model takes 1024 tokens, and the limit of BERT's tokenizer is still 512."""
    long = ["bike " * 600]
    with pytest.warns(UserWarning, match=r"1 texts were truncated to 512 tokens, tokenizer.model_max_length") as warned:
        C(bert, model=spec(max_length=1024))(long)
    assert "and the model takes 1024" in str(warned[0].message)
    assert "fix: tokenizer.model_max_length = 1024, then make the collator" in str(warned[0].message)
    bert.model_max_length = 1024
    assert C(bert, model=spec(max_length=1024))(long)["input_ids"].shape == (1, 602)


def test_without_truncation_a_row_beyond_the_model_is_refused_by_its_name(word_level) -> None:
    with pytest.raises(ValueError, match=r"(?s)row 1 has 5 tokens, limit 3.*Reader takes no more"):
        C(word_level, model=spec(max_length=3), truncation=False)(["a", "a b c d e"])


def test_targets_are_truncated_to_the_limit_of_the_decoder(wordpiece, word_level) -> None:
    assert C(word_level, model=SHORT_BART, text_target_column="t").max_target_length == 6
    # A tokenizer's limit is one on what is read: a decoder that takes more may write more.
    long = dataclasses.replace(BART, max_target_length=2048)
    assert C(wordpiece, model=long, text_target_column="t").max_target_length == 2048
    assert C(wordpiece, model=spec("labels", is_encoder_decoder=True), text_target_column="t").max_target_length == 512
    collate = C(word_level, model=SHORT_BART, text_target_column="target")
    rows = [{"text": "a", "target": "a b c d e f g h"}, {"text": "a", "target": "b"}]
    with pytest.warns(UserWarning, match="1 of 2 targets were truncated to 6 tokens, the limit of Bart") as warned:
        assert collate(rows)["labels"].shape == (2, 6)
    assert "return_overflowing_tokens" not in str(warned[0].message)  # it continues texts, not targets
    with pytest.raises(ValueError, match=r"(?s)the target of row 0 has 8 tokens, limit 6.*Bart takes no more"):
        collate.replace(truncation=False)(rows)


def test_padding_of_targets_never_goes_beyond_the_decoder(word_level) -> None:
    with pytest.raises(ValueError, match=r"(?s)max_target_length must be a multiple of.*max_target_length=4$"):
        C(word_level, model=SHORT_BART, pad_to_multiple_of=4)
    collate = C(word_level, model=SHORT_BART, text_target_column="target", pad_to_multiple_of=4, max_target_length=4)
    assert collate([{"text": "a", "target": "a"}])["labels"].shape == (1, 4)


def test_targets_that_came_as_ids_are_truncated_to_the_decoders_limit_without_their_padding(word_level) -> None:
    collate = C(word_level, model=SHORT_BART, text_target_column="target")
    rows = [
        {"input_ids": [5, 6], "labels": [-100, -100, -100, 7, 8, 9, 10, 11, 12]},
        {"input_ids": [5], "labels": [7, 8, -100, -100, -100, -100, -100]},
        {"input_ids": [5], "labels": [-100, 7, 8, 9, 10, 11, 12, -100]},
        {"input_ids": [5], "labels": [-100, 7, 8, 9, 10, 11]},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # only padding was too long
        batch = collate(rows)
        nothing = collate.replace(on_no_labels="keep")([{"input_ids": [5], "labels": [-100] * 7}])
    full = [7, 8, 9, 10, 11, 12]
    assert batch["labels"].tolist() == [full, [7, 8, *[-100] * 4], full, [7, 8, 9, 10, 11, -100]]
    assert nothing["labels"].tolist() == [[-100]]
    with pytest.warns(UserWarning, match="^1 of 1 targets were truncated to 6 tokens"):
        collate([{"input_ids": [5, 6], "labels": list(range(3, 12))}])
    with pytest.raises(ValueError, match="the target of row 0 has 9 tokens, limit 6"):
        collate.replace(truncation=False)([{"input_ids": [5, 6], "labels": list(range(3, 12))}])
    assert collate.replace(truncation=False)(rows)["labels"].tolist() == batch["labels"].tolist()
    with pytest.raises(TypeError, match="row 0 of column 'label' must be a flat list of integers"):
        collate([{"input_ids": [5, 6], "label": 1}])


@pytest.mark.parametrize("model", [BART, BART_BASE])
def test_a_bad_id_in_targets_is_named_too_and_minus_100_is_none(word_level, model: ModelSpec) -> None:
    """Also if the model makes the decoder's input from the labels itself."""
    model = dataclasses.replace(model, num_embeddings=len(word_level))
    collate = C(word_level, model=model, text_target_column="target")
    collate([{"input_ids": [5], "labels": [7, -100]}])
    with pytest.raises(ValueError, match="row 0, column 1 of 'labels' is 99999, which is no token id"):
        collate([{"input_ids": [5], "labels": [7, 99999]}])
    with pytest.raises(ValueError, match="row 0, column 0 of 'labels' is -1, which is no token id"):
        collate([{"input_ids": [5], "labels": [-1, 7]}])


class Swallows(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Names nothing."""


REFUSED_FOR_A_MODEL: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(
        ({"model": value}, TypeError, "model= takes the model itself")
        for value in ("bert-base-uncased", 5, transformers.BertConfig())
    ),
    *(
        (
            {"model": model},
            ValueError,
            rf"the forward of {name} has no argument input_ids or .*got: .*\*\*kwargs do not count",
        )
        for model, name in ((Swallows(), "Swallows"), (ModelSpec(), "model"))
    ),
    (
        {"model": spec(num_embeddings=1199)},
        ValueError,
        r"tokenizer has 1200 ids, the embedding has 1199 rows; call model\.resize_token_embeddings\(1200\).*got: "
        r".*fix: model\.resize_token_embeddings\(1200\), then make the collator$",
    ),
    *(
        ({"model": model, "look_ahead": True}, ValueError, r"ignores look_ahead_mask.*got: .*\.for_hf\(model\)")
        for model in (GPT2, BERT, spec())
    ),
    *(
        (
            {"model": spec("inputs_embeds", positions=(kind,)), "embedding": 8},
            ValueError,
            f"Reader adds its own positions.*got: .*{kind}\n  fix: leave embedding= out .*; or leave model= out",
        )
        for kind in ("learned", "rotary", "unknown")
    ),
    ({"model": spec(), "embedding": 8}, ValueError, "inputs_embeds, and the forward of Reader has no such argument"),
    *(
        (
            {"model": model, "packing": True, "max_length": 8},
            ValueError,
            f"packing=True puts several documents in a row, and {model.name}.*got: .*{reason}",
        )
        for model, reason in (
            (BART, "it reads two sequences"),
            (spec("position_ids"), r"neither attention_mask \(B, 1, T, T\) nor document_ids"),
            (spec(positions=("learned",), takes_4d_mask=True), "it takes no position_ids"),
        )
    ),
    *(
        (
            {"model": spec(), "labels": labels},
            ValueError,
            f"labels='{labels}' makes labels, and the forward of Reader has no.*got: "
            rf'.*accepts=\(\*spec\.accepts, "labels"\){shifts}\)$',
        )
        for labels, shifts in (("causal_lm", ", shifts_labels=True"), ("masked_lm", ""))
    ),
    (
        {"model": BERT, "labels": "causal_lm"},
        ValueError,
        r"which Reader has seen: it is not causal.*got: .*masked_lm.*is_decoder=True",
    ),
    *(
        (
            {"model": model, "text_target_column": "t"},
            ValueError,
            f"a second sequence, and {model.name} reads one.*got: ",
        )
        for model in (GPT2, BERT, spec(), spec("position_ids"))
    ),
]


@for_each(("settings", "error", "words"), REFUSED_FOR_A_MODEL)
def test_settings_that_do_not_fit_a_model_are_refused_also_by_replace(
    wordpiece, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    for make in (functools.partial(C, wordpiece), C(wordpiece).replace):
        with pytest.raises(error, match=f"(?s){words}") as refused:
            make(**settings)
        assert "\n  fix: " in str(refused.value)


@pytest.mark.parametrize("names", [("bert", "bart", "llama"), slow(None)])
def test_a_models_own_token_table_is_refused_as_embedding_beside_a_model_with_any_positions(names: Any) -> None:
    """Its vectors would have positions twice."""
    families = {name: each for name, each in FAMILIES.items() if name in ("bert", "roberta", "gpt2", "opt", "bart")}
    families |= {name: each for name, (kind, each) in (REFUSED | MORE_REFUSED).items() if kind != "no"}
    families = {name: each for name, each in families.items() if names is None or name in names}
    models = {name: each.build() for name, each in families.items()}
    models |= {name: own_model(name) for name in (*UNTOLD, *DECOYS) if name not in ("prompt", "labels")}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token="[UNK]"))
    for model in models.values():
        with pytest.raises(ValueError, match=f"{type(model).__name__} adds its own positions: with embedding="):
            C(raw, model=model, embedding=model.get_input_embeddings())


@pytest.mark.parametrize("packing", [True, "flat"])
@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("bert", "ForSequenceClassification"),
        ("bert", "ForNextSentencePrediction"),
        ("bert", "ForMultipleChoice"),
        ("gpt2", "ForSequenceClassification"),
        ("llama", "ForSequenceClassification"),
    ],
)
def test_packing_for_a_model_with_one_output_per_row_is_refused(word_level, name: str, head: str, packing: Any) -> None:
    model = family(name).build(head, vocab_size=1800)
    words = f"puts several documents in a row, and {type(model).__name__} has one output for each row"
    with pytest.raises(ValueError, match=words):
        C(word_level, model=model, packing=packing, max_length=8)
    assert list(C(word_level, model=model)([[5, 6], [7]]))  # not packed


def test_packing_for_a_model_with_one_output_per_document_is_not_refused(word_level) -> None:
    for packing, keys in ((True, ("document_ids",)), ("flat", ("seq_idx", "position_ids"))):
        model = spec(*keys, one_output_per_row=True, flat_keys=keys)
        assert C(word_level, model=model, packing=packing, max_length=8)([[5, 6], [7]])["input_ids"].shape[0] == 1


@pytest.mark.parametrize(
    ("name", "positions", "bad", "at", "last"),
    [
        ("gpt2", [[0, 1, 2], [62, 63, 64]], 64, "row 1, column 2", 63),
        ("gpt2", [[0, -1, 2], [0, 1, 2]], -1, "row 0, column 1", 63),
        ("bert", [[0, 1, 2], [-2, 0, 70]], -2, "row 1, column 0", 63),
        ("roberta", [[2, 3, 4], [64, 65, 66]], 66, "row 1, column 2", 65),
    ],
)
def test_given_positions_without_a_row_in_the_models_table_are_refused(
    word_level, name: str, positions: list[list[int]], bad: int, at: str, last: int
) -> None:
    more = {"bert": {"max_position_embeddings": 64}}.get(name, {})
    collate = C(word_level, model=tiny(name, vocab_size=1800, **more))
    rows = [{"input_ids": [5, 6, 7], "position_ids": row} for row in positions]
    words = rf"(?s){at} of 'position_ids' is {bad}, and \w+ takes 0 to {last}.*fix: .*remove_columns\('position_ids'\)"
    for call in (collate, collate.replace(padding_side="left")):
        with pytest.raises(ValueError, match=words):
            call(rows)
    with pytest.raises(ValueError, match=words):
        collate({"input_ids": [[5, 6, 7]] * 2, "position_ids": positions})


@torch.no_grad()
def test_the_fix_of_look_ahead_for_a_model_that_hides_nothing_works(unigram) -> None:
    model = tiny("bert")
    with pytest.raises(ValueError, match="for_hf"):
        C(unigram, model=model, look_ahead=True)
    batch = C(unigram, model=model)(TEXTS)
    batch["attention_mask"] = AttentionMask.from_batch(batch, look_ahead=True).for_hf(model)
    before = answers(model, batch)
    batch["input_ids"][:, -1] = 7
    assert torch.equal(answers(model, batch)[:, :-1], before[:, :-1])


@pytest.mark.parametrize(
    ("head", "settings", "labels"),
    [
        ("SequenceClassification", {"num_labels": 3}, [2, 0]),
        ("SequenceClassification", {"num_labels": 3}, [2, -100]),
        ("SequenceClassification", {"num_labels": 3}, [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),  # several labels per text
        ("SequenceClassification", {"num_labels": 1}, [0.5, 7.5]),
        ("SequenceClassification", {"num_labels": 2, "problem_type": "regression"}, [[0.5, 7.5], [-1.0, 2.0]]),
        ("SequenceClassification", {"num_labels": 2, "problem_type": "multi_label_classification"}, [[0.0, 1.0]] * 2),
        ("TokenClassification", {"num_labels": 3}, [[-100, 1, 2, -100], [-100, 0, -100]]),
        ("MaskedLM", {}, [[-100, 1199, 2, -100], [-100, 0, -100]]),
    ],
)
def test_labels_that_the_loss_of_the_model_takes_are_in_the_batch(
    wordpiece, head: str, settings: dict[str, Any], labels: list[Any]
) -> None:
    model = of_class(f"BertFor{head}", **settings)
    rows = [{"input_ids": ids, "labels": each} for ids, each in zip([[5, 6, 7, 8], [9, 8, 7]], labels, strict=True)]
    batch = C(wordpiece, model=model)(rows)
    assert model.config.problem_type == settings.get("problem_type")  # the probe has not decided it
    assert model(**batch).loss.isfinite()


@pytest.mark.parametrize(
    ("head", "labels", "message"),
    [
        ("SequenceClassification", [2, 3], "row 1 of column 'labels' holds 3, and .* has 3 classes.*num_labels=4"),
        ("SequenceClassification", [-1, 2], "row 0 of column 'labels' holds -1, and .* has 3 classes.*from 0 to 2"),
        ("SequenceClassification", [0.0, 1.0], "row 0 of column 'labels' holds floats, and .*got: 0.0"),
        ("SequenceClassification", [[0.0, 1.0], [1.0, 0.0]], "holds floats, and .* 3 floats in every row"),
        (
            "TokenClassification",
            [[-100, 1, 2, -100], [-100, 7, -100]],
            "row 1 of column 'labels' holds 7, .* 3 classes",
        ),
        ("TokenClassification", [[0.0, 1.0, 2.0, 0.0]] * 2, "row 1: 4 labels for 3 tokens"),
        ("TokenClassification", [1, 2], "row 0 of column 'labels' is one number, and the model has an output for each"),
        ("MaskedLM", [[-100, 1, 2, -100], [-100, 1200, -100]], "row 1 of column 'labels' holds 1200, .* 1200 classes"),
    ],
)
def test_labels_that_would_fail_in_the_loss_are_refused_with_row_and_value(
    wordpiece, head: str, labels: list[Any], message: str, tmp_path: Any
) -> None:
    collate = C(wordpiece, model=of_class(f"BertFor{head}", num_labels=3))
    rows = [{"input_ids": ids, "labels": each} for ids, each in zip([[5, 6, 7, 8], [9, 8, 7]], labels, strict=True)]
    collate.save_pretrained(tmp_path)
    for each in (collate, pickle.loads(pickle.dumps(collate)), C.from_pretrained(tmp_path)):
        with pytest.raises(ValueError, match=f"(?s){message}"):
            each(rows)
    assert "labels" in C(wordpiece)(rows)


def test_half_a_models_ids_are_enough_and_fewer_are_named_once(wordpiece) -> None:
    assert C(wordpiece, model=spec(num_embeddings=2400))(TEXTS)["input_ids"].shape[0] == 3
    collate = C(wordpiece, model=spec(num_embeddings=30522))
    with pytest.warns(UserWarning, match="the tokenizer has 1,200 ids, and Reader has 30,522") as given:
        collate(TEXTS)
    assert len(given) == 1
    assert "fix: the model's own tokenizer; for a new model, vocab_size=1200" in str(given[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collate(TEXTS)
