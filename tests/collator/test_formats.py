"""Formats of rows, read by the names of their columns: prompts with completions against TRL's `SFTTrainer`.

A completion begins at the first token that differs from those of its prompt alone. Formats that are not read are
refused, with the line that makes another one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pyarrow as pa
import pytest
import transformers
from looping import for_each
from small_models import BART, GPT2, of_class, tiny
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_posenc import DataCollatorWithPositionalEncoding as C

WORDS = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(
        models.WordLevel({"[PAD]": 0, "[UNK]": 1, "</s>": 2, **{f"w{n}": n for n in range(3, 99)}}, unk_token="[UNK]")
    ),
    pad_token="[PAD]",
    unk_token="[UNK]",
    eos_token="</s>",
)
WORDS.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
ROWS = [{"prompt": "w5 w6", "completion": " w7 w8"}, {"prompt": "w9", "completion": " w10"}]
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}"


def trained(batch: Any) -> list[list[int]]:
    return [[label for label in row if label != -100] for row in batch["labels"].tolist()]


# ------------------------------------------------------------------------------------------------ prompt and completion


def test_map_stores_the_mask_and_stored_rows_have_the_same_labels() -> None:
    dataset = datasets.Dataset.from_list(ROWS)
    collate = C(WORDS, labels="causal_lm", model=GPT2)
    for made in (dataset, dataset.with_format("arrow"), dataset.with_format("pandas")):
        stored = made.map(collate, batched=True).with_format(None)
        assert stored["completion_mask"][:] == [[0, 0, 1, 1, 1], [0, 1, 1]]
        assert stored["prompt"][:] == ["w5 w6", "w9"]
    with pytest.warns(UserWarning, match="only the tokens with 1 in 'completion_mask' are trained on: 62%"):
        batch = collate(list(stored.remove_columns(["prompt", "completion", "labels"])))
    assert trained(batch) == trained(collate(ROWS)) == [[7, 8, 2], [10, 2]]
    assert collate(pandas.DataFrame(ROWS))["completion_mask"].to_pylist() == [[0, 0, 1, 1, 1], [0, 1, 1]]
    assert set(collate(pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]})).column_names) > {"prompt"}
    assert set(collate({name: [row[name] for row in ROWS] for name in ROWS[0]})).isdisjoint({"prompt", "completion"})


def test_max_length_cuts_completions_and_rows_without_one_go_the_way_of_on_no_labels() -> None:
    settings: dict[str, Any] = {"labels": "causal_lm", "model": GPT2}
    assert trained(C(WORDS, max_length=3, **settings)(ROWS)) == [[7], [10, 2]]
    with pytest.raises(ValueError, match=r"(?s)row 0 has nothing to learn.*max_length=2"):
        C(WORDS, max_length=2, **settings)(ROWS)
    with pytest.warns(UserWarning, match="1 of 2 rows were left out"):
        assert trained(C(WORDS, max_length=2, on_no_labels="skip", **settings)(ROWS)) == [[10]]
    assert trained(C(WORDS, max_length=2, on_no_labels="keep", **settings)(ROWS)) == [[], [10]]


@for_each("completion", ["", "</s>", " w7</s>"])
def test_an_empty_completion_and_one_with_its_own_eos_token_end_in_one(unigram: Any, completion: str) -> None:
    for tokenizer, prompt in ((WORDS, "w5 w6"), (unigram, "I ride")):
        batch = C(tokenizer, labels="causal_lm")([{"prompt": prompt, "completion": completion}])
        (ids,), (labels,) = batch["input_ids"].tolist(), trained(batch)
        assert ids.count(tokenizer.eos_token_id) == labels.count(tokenizer.eos_token_id) == 1
        assert ids[-1] == labels[-1] == tokenizer.eos_token_id


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TRL and its dependencies warn about themselves
@for_each("kind", ["byte_bpe", "sentencepiece_bpe", "unigram", "word_level"])
def test_ids_and_labels_are_those_of_sfttrainer(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="needs TRL: pip install trl")
    tokenizer = request.getfixturevalue(kind)
    if tokenizer.eos_token is None:
        tokenizer.add_special_tokens({"eos_token": "</s>"})
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    rows = [
        ("I ride", " bike, she said"),
        ("I ri", "de bike"),
        ("she said: ", "I ride"),
        ("狗 said", "\nnaïve 😀"),
        ("", "a"),
    ]
    data = [{"prompt": prompt, "completion": completion} for prompt, completion in rows]
    config = transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=64)
    arguments = trl.SFTConfig(str(tmp_path), report_to="none", use_cpu=True, bf16=False, max_length=None)
    trainer = trl.SFTTrainer(
        transformers.GPT2LMHeadModel(config),
        args=arguments,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(data),
    )
    ours = C(tokenizer, labels="causal_lm", on_no_labels="keep").columns(data)
    for row, theirs in enumerate(trainer.train_dataset):
        ids, labels = theirs["input_ids"], theirs["labels"]
        if ids[-2:] == [tokenizer.eos_token_id] * 2:  # of the text, and of the tokenizer; one is enough
            del ids[-1], labels[-1]
        assert ours["input_ids"][row].tolist() == ids
        mask = ours["completion_mask"][row]
        assert np.where(mask, ours["input_ids"][row], -100).tolist() == labels


def test_an_encoder_decoder_takes_the_completion_as_its_target() -> None:
    batch = C(WORDS, model=BART)(ROWS)
    assert batch["input_ids"].tolist() == [[5, 6], [9, 0]]
    assert batch["labels"].tolist() == [[7, 8], [10, -100]]
    assert C(WORDS, model=BART)([{"prompt": "w5"}])["input_ids"].tolist() == [[5]]


def test_a_prompt_alone_is_a_text_without_labels() -> None:
    prompts = [{"prompt": "w5 w6"}]
    assert C(WORDS)(prompts)["input_ids"].tolist() == [[5, 6]]
    assert "completion_mask" not in C(WORDS)(prompts)
    with pytest.raises(ValueError, match="row 0 has nothing to learn"):
        C(WORDS, labels="causal_lm")(prompts)
    assert trained(C(WORDS, labels="causal_lm", on_no_labels="keep")(prompts)) == [[]]
    assert trained(C(WORDS, labels="causal_lm", text_column="prompt")(prompts)) == [[5, 6]]


@for_each(
    ("row", "words"),
    [
        ({"prompt": None, "completion": "w5"}, "row 0 of column 'prompt' is NoneType"),
        ({"prompt": "w5", "completion": None}, "row 0 of column 'completion' is NoneType"),
        ({"prompt": "w5", "completion": [{"role": "user", "content": "w5"}]}, "row 0 of column 'completion' is list"),
        ({"prompt": [{"role": "user", "content": "w5"}], "completion": "w5"}, "row 0 of column 'completion' is str"),
        ({"prompt": "w5", "completion": "w6", "start_positions": 0}, "column 'start_positions' came with texts"),
    ],
)
def test_other_values_than_texts_are_refused(row: dict[str, Any], words: str) -> None:
    WORDS.chat_template = CHAT
    with pytest.raises((TypeError, ValueError), match=words):
        C(WORDS, labels="causal_lm")([row])


@for_each(
    "row",
    [
        *({"prompt": "w5", "completion": "w6"}, {"prompt": "w5"}, {"messages": [{"role": "user", "content": "w5"}]}),
        {"prompt": [{"role": "user", "content": "w5"}], "completion": [{"role": "assistant", "content": "w6"}]},
    ],
)
def test_one_row_is_no_mapping_of_columns(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="holds one row, and a mapping must hold columns: map needs batched=True"):
        C(WORDS)(row)
    with pytest.raises(TypeError, match="column 'lang' is a single value"):
        C(WORDS)({"text": ["w5", "w6"], "lang": "en"})


# ----------------------------------------------------------------------------------------------------- names of formats


@for_each(
    ("row", "settings", "ids"),
    [
        ({"text": "w5", "prompt": "w6"}, {}, [5]),
        ({"text": "w5", "messages": "w6"}, {}, [5]),
        ({"text": "w5", "source": "w6", "target": 1}, {}, [5]),
        ({"prompt": "w5", "completion": "w6", "text": "w7"}, {"text_column": "completion"}, [6]),
        ({"premise": "w5", "hypothesis": "w6"}, {"text_column": "premise", "text_pair_column": "hypothesis"}, [5, 6]),
        ({"instruction": "w5", "output": "w6"}, {"text_column": "output"}, [6]),
        ({"text": "w5", "completion": "w6"}, {"text_pair_column": "completion"}, [5, 6]),
        ({"chosen": "w5", "rejected": "w6"}, {"text_column": "chosen"}, [5]),
    ],
)
@pytest.mark.filterwarnings(r"ignore:columns \[")
def test_a_given_column_is_read_before_any_format(row: Any, settings: dict[str, Any], ids: list[int]) -> None:
    assert C(WORDS, **settings)([row])["input_ids"].tolist() == [ids]


@for_each(
    ("names", "words"),
    [
        (
            "text instruction output",
            r"'instruction' with 'output' beside it.*remove_columns\(\['instruction', 'output'\]",
        ),
        ("text prompt completion", "'prompt' with 'completion' beside it"),
        ("text chosen rejected", "'chosen' with 'rejected' beside it"),
        ("messages completion", "rows have 'messages' and 'completion'"),
        ("instruction input output", r'"\\n".join\(filter\(None, \[row\["instruction"\], row\["input"\]\]\)\)'),
        ("question answer", r'"completion": "\\n" \+ row\["answer"\]\}, remove_columns=\[\'question\', \'answer\'\]\)'),
        ("query response", "columns 'query' and 'response'"),
        ("prompt response", r"remove_columns=\['response'\]"),
        ("premise hypothesis label", "text_column='premise', text_pair_column='hypothesis'"),
        ("sentence1 sentence2 idx", "text_column='sentence1', text_pair_column='sentence2'"),
        ("prompt chosen rejected", "leave out data_collator="),
        ("chosen rejected messages", "leave out data_collator="),
        ("prompt completion label", r"remove_columns\('label'\)"),
        ("Prompt Completion", r'row\["Prompt"\], "completion": "\\n" \+ row\["Completion"\]'),
        ("user assistant", r'row\["user"\]'),
    ],
)
def test_other_formats_are_refused_by_the_names_of_their_columns(names: str, words: str) -> None:
    row = {name: "w5" if name not in ("label", "idx") else 1 for name in names.split()}
    for settings in ({}, {"labels": "causal_lm"}):
        with pytest.raises(ValueError, match=f"(?s){words}"):
            C(WORDS, **settings)([row])


@for_each("row", [("w5 w6", 0), (0.5, "w5"), ("w5", np.int64(1)), ("w5", True)])
def test_a_number_beside_a_text_is_a_label(row: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r'row 0 is a tuple with a number.*\n.*\n  fix: \[\{"text": text, "label"'):
        C(WORDS)([row])


# -------------------------------------------------------------------------------------------------------------- labels


@for_each("kind", [list, lambda v: np.array(v, "uint8"), lambda v: [bool(x) for x in v], lambda v: np.array(v, float)])
@for_each("problem", [None, "multi_label_classification"])
@for_each("texts", [["w5 w6 w7", "w9"], ["w5 w6", "w8 w9 w10"]])
def test_several_labels_of_a_row_are_floats_for_a_model_that_has_them(
    kind: Any, problem: Any, texts: list[str]
) -> None:
    model = of_class("BertForSequenceClassification", vocab_size=99, num_labels=3, problem_type=problem)
    for rows in ([{"text": text} for text in texts], [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9, 4]}]):
        batch = C(WORDS, model=model)([{**row, "labels": kind([1, 0, 1])} for row in rows])
        assert (str(batch["labels"].dtype), batch["labels"].tolist()) == ("torch.float32", [[1, 0, 1]] * 2)
        assert model(**batch).loss.isfinite()
    assert C(WORDS, model=model)([{"text": "w5", "label": 2}])["labels"].tolist() == [2]


PADDED = {"input_ids": [5, 6, 7, 0, 0], "attention_mask": [1, 1, 1, 0, 0]}


@for_each(
    ("labels", "expected"),
    [
        ([1, 2, 3, -100, -100], [1, 2, 3]),
        ([1, 2, 3], [1, 2, 3]),
        ([5, 6, 7, 0, 0], [5, 6, 7]),
        ([-100, 6, 7, 0, 0], [-100, 6, 7]),
        ([1, 2, 3, 0, 0], None),  # class 0 at padding, or five classes of the row
        ([0, 1, 0, 1, 1], None),
        ([1, 2], None),
        ([1, 2, 3, 4], None),
        ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]),
        ([0.0, 1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0, 1.0]),
        (4, 4),
    ],
)
def test_without_a_model_the_kind_of_a_label_decides_and_not_its_length(labels: Any, expected: Any) -> None:
    other = {"input_ids": [8, 9], "attention_mask": [1, 1]}
    other["labels"] = [1, 2] if isinstance(labels, list) and isinstance(labels[0], int) else labels
    for rows in ([{**PADDED, "labels": labels}], [{**PADDED, "labels": labels}, other]):
        if expected is None:
            with pytest.raises(ValueError, match=r"(?s)row 0.* labels.*floats, .*or model=model"):
                C(WORDS)(rows)
        else:
            assert C(WORDS)(rows)["labels"][0].tolist() == expected


def test_the_head_of_the_model_decides_about_labels_at_padding() -> None:
    per_token, per_row = (
        of_class(f"BertFor{head}Classification", vocab_size=99, num_labels=5) for head in ("Token", "Sequence")
    )
    rows = [{**PADDED, "labels": [0, 1, 0, 1, 1]}]
    assert C(WORDS, model=per_token)(rows)["labels"].tolist() == [[0, 1, 0]]
    assert C(WORDS, model=per_row)(rows)["labels"].tolist() == [[0, 1, 0, 1, 1]]


def test_rows_of_integers_beside_rows_of_floats_are_refused() -> None:
    rows = [{"input_ids": [5, 6], "labels": [0.5, 1.0]}, {"input_ids": [5, 6], "labels": [1, 0]}]
    with pytest.raises(ValueError, match="row 1 of column 'labels' is a list of integers"):
        C(WORDS)(rows)


def test_tiny_models_say_what_their_labels_belong_to() -> None:
    from hf_posenc import ModelSpec

    assert ModelSpec.of(tiny("gpt2")).labels_per == "token"
    assert ModelSpec.of(tiny("bert")).labels_per is None


# --------------------------------------------------------------------------------------------------- NaN of pandas

SAID = [{"role": "user", "content": "w5"}, {"role": "assistant", "content": "w6"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "w7", "description": None}}
MISSING: dict[str, dict[str, list[Any]]] = {
    "tools": {"messages": [SAID, SAID], "tools": [[TOOL], None]},
    "settings of the template": {"messages": [SAID, SAID], "chat_template_kwargs": [{"a": 1}, None]},
    "keys of a message": {"messages": [SAID, [{"name": None, **SAID[0]}, {"weight": None, **SAID[1]}]]},
    "texts that are not read": {"text": ["w5 w6", "w7 w8"], "title": ["a", None]},
    "lists that are not read": {"text": ["w5 w6", "w7 w8"], "tags": [["a"], None]},
    "dicts that are not read": {"text": ["w5 w6", "w7 w8"], "meta": [{"a": 1}, None]},
    "masks": {"input_ids": [[5, 6], [7, 8]], "completion_mask": [None, None]},
    "a mask": {"input_ids": [[5, 6], [7, 8]], "completion_mask": [[0, 1], None]},
    "numbers of documents": {"input_ids": [[5, 6], [7, 8]], "document_ids": [[0, 1], None]},
}


def _with_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_nan(part) for name, part in value.items()}
    return [_with_nan(part) for part in value] if isinstance(value, list) else float("nan") if value is None else value


@pytest.mark.filterwarnings("ignore:columns .* are not in the batch", "ignore:only the tokens")
@for_each("kind", MISSING)
def test_nan_of_pandas_is_a_missing_value_like_none(kind: str) -> None:
    """A data frame, and the rows of one, give the batch or the error that rows with None give."""
    tokenizer = C(WORDS).tokenizer
    tokenizer.chat_template = "{% for tool in tools or [] %}{{ tool.function.name }} {% if tool.function.description "
    tokenizer.chat_template += "%}w9 {% endif %}{% endfor %}{% for m in messages %}{% if m.name %}w3 {% endif %}"
    tokenizer.chat_template += "{{ m.content }}</s> {% endfor %}"
    collate = C(tokenizer, labels="causal_lm", look_ahead=False, return_tensors="np")
    columns, missing = MISSING[kind], _with_nan(MISSING[kind])
    frame = pandas.DataFrame({name: pandas.Series(values, dtype=object) for name, values in missing.items()})

    def result(rows: Any) -> Any:
        try:
            return {name: values.tolist() for name, values in collate.batch(rows).items()}
        except (TypeError, ValueError) as error:
            return str(error).partition("\n")[0]

    expected = result(columns)
    assert result(frame) == result(frame.to_dict("records")) == expected
    assert ("flat list" in expected) == (kind in ("a mask", "numbers of documents"))


def test_masks_of_rows_packed_without_labels_are_kept() -> None:
    """Packed rows that were stored without labels have those of the same rows, collated alone."""
    stored = C(WORDS, packing=True, max_length=16, look_ahead=False)(ROWS)
    assert stored["completion_mask"].tolist() == [[0, 0, 1, 1, 1, 0, 1, 1]]
    flat = C(WORDS, packing="flat")(ROWS)
    assert flat["completion_mask"].tolist() == stored["completion_mask"].tolist()


@for_each("row", [{"messages": '[{"role": "user"}]'}, {"messages": []}, {"prompt": [], "completion": "w5"}])
def test_something_else_than_messages_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="expected a list of messages"):
        C(WORDS, labels="causal_lm")([row])


def test_several_labels_of_a_row_have_no_one_to_ignore() -> None:
    model = of_class("BertForSequenceClassification", vocab_size=99, num_labels=3)
    with pytest.raises(ValueError, match="has several labels of the row, of which none can be ignored"):
        C(WORDS, model=model)([{"text": "w5", "labels": [1, 0, -100]}])


@pytest.mark.filterwarnings("ignore:columns .* came with texts")
@for_each("name", ["bbox", "word_ids", "completion_mask", "inputs_embeds"])
def test_values_of_tokens_beside_texts_are_not_copied(name: str) -> None:
    assert name not in C(WORDS)([{"text": "w5 w6", name: [[1, 2]] * 2}])
