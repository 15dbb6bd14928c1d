"""Columns with indices of tokens, such as the answers of question answering: they move with their tokens, or raise."""

from __future__ import annotations

import re
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from small_models import of_class
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc import pack_dataset

IDS = 40
LONG = {"input_ids": [5, 6, 7, 8, 9], "start_positions": 1, "end_positions": 3}
SHORT = {"input_ids": [9, 10], "start_positions": 0, "end_positions": 1}  # the first token: no answer
NONE = {"input_ids": [11, 12, 13], "start_positions": 3, "end_positions": 9}  # beyond the row: ignored


@pytest.fixture
def words() -> PreTrainedTokenizerFast:
    names = ["<s>", "[PAD]", "</s>", "[UNK]", *(f"w{number}" for number in range(4, IDS))]
    raw = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]")


def build(family: str, head: str = "ForQuestionAnswering") -> Any:
    return of_class(f"{family}{head}", vocab_size=IDS, pad_token_id=1, initializer_range=0.3)


@pytest.mark.parametrize("settings", [{}, {"padding_side": "left"}, {"padding_side": "left", "pad_to_multiple_of": 8}])
def test_answers_point_to_their_tokens_and_those_beyond_a_row_stay_beyond_it(words, settings: dict[str, Any]) -> None:
    batch = C(words, model=build("Bert"), **settings)([LONG, SHORT, NONE])
    width = batch["input_ids"].shape[1]
    starts, ends = batch["start_positions"].tolist(), batch["end_positions"].tolist()
    spans = [batch["input_ids"][row, starts[row] : ends[row] + 1].tolist() for row in range(2)]
    assert spans == [[6, 7, 8], [9, 10]]
    assert min(starts[2], ends[2]) >= width  # models ignore it
    with torch.no_grad():
        assert torch.isnan(build("Bert")(**{name: value[2:] for name, value in batch.items()}).loss)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["lists", "arrays", "arrow", "map", "columns of one", "padded rows"])
def test_indices_point_to_their_tokens_in_every_kind_of_input(words, side: str, kind: str) -> None:
    collate = C(words, padding_side=side)
    rows: Any = [LONG, SHORT]
    if kind == "arrays":
        rows = [{name: np.array(value) for name, value in row.items()} for row in rows]
    elif kind == "arrow":
        rows = datasets.Dataset.from_list(rows).with_format("arrow")[:].to_pylist()
    elif kind == "map":
        fixed = collate.replace(padding="max_length", max_length=7)
        mapped = datasets.Dataset.from_list(rows).map(fixed, batched=True)
        assert mapped["start_positions"][:] == ([3, 5] if side == "left" else [1, 0])
        rows = mapped.remove_columns("length").to_list()
    elif kind == "columns of one":
        rows = [{**row, "start_positions": [row["start_positions"]]} for row in rows]
    elif kind == "padded rows":  # by somebody else, on the left
        rows = [
            {**LONG, "attention_mask": [1] * 5},
            {"input_ids": [1, 1, 9, 10], "attention_mask": [0, 0, 1, 1], "start_positions": 2, "end_positions": 3},
        ]
    batch = collate.batch(rows)
    starts, ends = batch["start_positions"].flatten().tolist(), batch["end_positions"].tolist()
    spans = [
        batch["input_ids"][row, start : end + 1].tolist()
        for row, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    assert spans == [[6, 7, 8], [9, 10]]


def test_indices_move_with_rows_that_are_truncated_on_the_left_and_trimmed(words) -> None:
    words.truncation_side = "left"
    collate = C(words, max_length=3)
    batch = collate([{**LONG, "start_positions": 2, "end_positions": 4}, SHORT])
    assert batch["input_ids"][0].tolist() == [7, 8, 9]
    assert batch["start_positions"].tolist() == [0, 0]
    assert batch["end_positions"].tolist() == [2, 1]
    padded = {"input_ids": [1, 1, 9, 10], "attention_mask": [0, 0, 1, 1], "start_positions": 2, "end_positions": 3}
    trimmed = collate([padded])
    assert (trimmed["start_positions"].tolist(), trimmed["end_positions"].tolist()) == ([0], [1])


@pytest.mark.parametrize(
    ("settings", "rows", "words_"),
    [
        (
            {"max_length": 3},
            [LONG],
            ["row 0 of column 'end_positions' is 3, and this token was cut", "5 tokens, of which 3 are left"],
        ),
        (
            {"max_length": 2, "return_overflowing_tokens": True},
            [LONG],
            ["row 0 of column 'start_positions' is 1", "continues rows"],
        ),
        (
            {"packing": True, "max_length": 16},
            [LONG, SHORT],
            ["row 0 of column 'start_positions' is 1", "packing=True"],
        ),
        ({"packing": "flat"}, [LONG, SHORT], ["row 0 of column 'start_positions' is 1", "packing='flat'"]),
        (
            {},
            [{"text": "w5 w6", "start_positions": 3}],
            ["column 'start_positions' came with texts", "return_offsets_mapping=True"],
        ),
    ],
)
def test_indices_of_tokens_that_are_lost_are_refused(words, settings: Any, rows: Any, words_: list[str]) -> None:
    for call in (
        lambda: C(words, **settings)(rows),
        lambda: datasets.Dataset.from_list(rows).map(C(words, **settings), batched=True),
    ):
        with pytest.raises(ValueError, match=re.escape(words_[0])) as refused:
            call()
        for each in words_:
            assert each in str(refused.value)
        assert "fix:" in str(refused.value)


def test_pack_dataset_refuses_indices_of_tokens() -> None:
    with pytest.raises(ValueError, match=r"columns \['start_positions', 'end_positions'\] are indices of tokens"):
        pack_dataset(datasets.Dataset.from_list([LONG, SHORT]), 16)


@pytest.mark.filterwarnings("ignore:columns .'start_positions', 'end_positions'. are not in the batch")
def test_a_column_that_the_model_does_not_take_is_not_read(words) -> None:
    model = build("Bert", "ForTokenClassification")
    rows = [{**row, "labels": [0] * len(row["input_ids"])} for row in (LONG, SHORT)]
    for settings in ({}, {"packing": True, "max_length": 8}):
        assert "start_positions" not in C(words, model=model, **settings)(rows)


@pytest.mark.parametrize(
    ("family", "positions", "words_"),
    [
        ("Bert", [510, 511, 512], "of 'position_ids' is 512, and BertModel takes 0 to 511"),
        ("Bert", [-1, 0, 1], "of 'position_ids' is -1"),
        ("Roberta", [510, 511, 512], "of 'position_ids' is 512, and RobertaModel takes 0 to 511"),
    ],
)
def test_positions_beyond_the_models_table_are_refused(words, family: str, positions: list[int], words_: str) -> None:
    model = build(family, "Model")
    collate = C(words, model=model)
    fits = {"input_ids": [5, 6, 7], "position_ids": [509, 510, 511]}
    assert collate([fits])["position_ids"].tolist() == [[509, 510, 511]]
    with torch.no_grad():
        model(**collate([fits]))
    for layout in ({}, {"packing": True, "max_length": 16}):
        with pytest.raises(ValueError, match=re.escape(words_)) as refused:
            collate.replace(**layout)(
                [{"input_ids": [8], "position_ids": [3]}, {"input_ids": [5, 6, 7], "position_ids": positions}]
            )
        assert "row 1" in str(refused.value)


def test_a_model_without_a_table_of_positions_takes_any_position_from_0_on(words) -> None:
    collate = C(words, model=build("Llama", "ForCausalLM"))
    assert collate([{"input_ids": [5, 6], "position_ids": [5000, 5001]}])["position_ids"].tolist() == [[5000, 5001]]
    with pytest.raises(ValueError, match="column 0 of 'position_ids' is -1, and positions are 0 or more"):
        collate([{"input_ids": [5, 6, 7], "position_ids": [-1, 0, 1]}])


def test_a_global_attention_mask_is_padded_truncated_and_packed_with_its_tokens(words) -> None:
    rows = [
        {"input_ids": [5, 6, 7], "global_attention_mask": [1, 0, 0]},
        {"input_ids": [8], "global_attention_mask": [1]},
    ]
    assert C(words)(rows)["global_attention_mask"].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert C(words, padding_side="left")(rows)["global_attention_mask"].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert C(words, max_length=2)(rows)["global_attention_mask"].tolist() == [[1, 0], [1, 0]]
    for packing in (True, "flat"):
        batch = C(words, packing=packing, max_length=8)(rows)
        assert sorted(batch["input_ids"][batch["global_attention_mask"] == 1].tolist()) == [5, 8]
    with pytest.warns(UserWarning, match=r"columns \['global_attention_mask'\] are not in the batch"):
        assert "global_attention_mask" not in C(words, model=build("Bert", "Model"))(rows)


def test_negative_indices_are_beyond_their_row_and_splinters_padding_of_questions_stays(words) -> None:
    rows = [LONG, {**SHORT, "start_positions": -1, "end_positions": -100}]
    for side in ("left", "right"):
        batch = C(words, padding_side=side)(rows)
        assert (batch["start_positions"][1].item(), batch["end_positions"][1].item()) == (5, 5)  # T: models ignore it
    rows = [
        {"input_ids": [5, 6, 7, 8], "question_positions": [1, 3], "start_positions": [0, 2]},
        {"input_ids": [9, 10], "question_positions": [1, 0], "start_positions": [1, 0]},  # 0 is Splinter's padding
    ]
    left = C(words, padding_side="left")(rows)
    assert left["question_positions"].tolist() == [[1, 3], [3, 0]]
    assert left["start_positions"].tolist() == [[0, 2], [3, 0]]


@pytest.mark.parametrize(("name", "numbers"), [("document_ids", [4, 4, 7]), ("position_ids", [0, 1, 0])])
def test_given_rows_of_several_documents_are_refused_for_one_output_per_row(
    words, name: str, numbers: list[int]
) -> None:
    collate = C(words, model=build("Bert", "ForSequenceClassification"))
    rows = [{"input_ids": [5, 6], name: numbers[:2]}, {"input_ids": [5, 6, 7], name: numbers}]
    with pytest.raises(ValueError, match="row 1 holds several documents, and BertForSequenceClassification has one"):
        collate(rows)
    assert len(collate(rows[:1])["input_ids"]) == 1


def test_one_output_per_row_is_found_for_outputs_in_any_form(words) -> None:
    class Plain(transformers.BertForSequenceClassification):
        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:  # type: ignore[override]
            return super().forward(input_ids=input_ids, attention_mask=attention_mask).logits

    with pytest.raises(ValueError, match="has one output for each row"):
        C(words, model=Plain(build("Bert", "ForSequenceClassification").config), packing=True, max_length=8)


@pytest.mark.parametrize("number", [float, np.float32, np.float64, np.int8, torch.tensor])
def test_whole_numbers_of_any_type_move_with_their_tokens(words, number: Any) -> None:
    words.truncation_side = "left"
    collate = C(words, max_length=5)
    row = {"input_ids": list(range(5, 13)), "start_positions": number(5)}
    assert collate([row])["start_positions"].tolist() == [2]
    with pytest.raises(ValueError, match="this token was cut"):
        collate([{**row, "start_positions": number(1)}])


@pytest.mark.parametrize("number", [5.5, float("nan"), float("inf")])
def test_an_index_that_is_no_whole_number_is_refused(words, number: float) -> None:
    with pytest.raises(ValueError, match=r"row 1 of column 'start_positions' is .*, and the index of a token"):
        C(words)([{"input_ids": [5, 6], "start_positions": each} for each in (1.0, number)])
