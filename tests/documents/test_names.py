"""Names of other libraries: refused with the line that renames them, by every reader; other columns are left alone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each

from hf_posenc import AttentionMask, ModelSpec, TokenBudgetMixin, audit, pack_dataset
from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc.documents.foreign import FOREIGN

IDS = [5, 6, 7, 2, 8, 9, 2]
VALUES: dict[str, Any] = {
    "document_ids": [3, 3, 3, 3, 7, 7, 7],
    "seq_lengths": [4, 3],
    "cu_seq_lens_q": [0, 4, 7],
    "position_ids": [0, 1, 2, 3, 0, 1, 2],
    "loss_mask": [0, 0, 1, 1, 0, 1, 1],
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@for_each("name", FOREIGN)
@for_each("padded", [False, True])
def test_a_name_of_others_is_refused_by_every_reader_and_works_when_it_is_renamed(
    word_level: Any, name: str, padded: bool
) -> None:
    ours, tail = FOREIGN[name], [0, 0] if padded else []
    values = [0, 4] if name == "seq_start_id" else VALUES[ours]
    row = {"input_ids": IDS + tail, "attention_mask": [1] * 7 + tail, name: values}
    if ours not in ("seq_lengths", "cu_seq_lens_q"):
        row[name] = values + ([-1, -1] if ours == "document_ids" and padded else tail)
    data = datasets.Dataset.from_list([row])
    if padded and (ours == "position_ids" or name == "seq_start_id"):  # padding is numbered otherwise
        return
    readers = [
        lambda: C(word_level)([row]),
        lambda: C(word_level)(data.with_format("arrow")[:]),
        lambda: C(word_level).columns({name: [value] for name, value in row.items()}),
        lambda: pack_dataset(data, 16),
        lambda: audit.labels([{**row, "labels": row["input_ids"]}]),
    ]
    for read in readers:
        with pytest.raises(ValueError, match=f"column '{name}' has .* are read from '{ours}'") as refused:
            read()
        assert f"dataset.remove_columns('{name}')" in str(refused.value)
    advice = str(refused.value).partition("fix: ")[2].partition("; or ")[0].partition(", or '")[0]
    renamed = eval(advice, {"dataset": data})
    with warnings.catch_warnings(action="ignore"):
        batch = C(word_level, labels="causal_lm")(list(renamed))
    if ours == "loss_mask":
        assert batch["labels"].tolist() == [[-100, -100, 7, 2, -100, 9, 2]]
    else:
        assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2]]


INNOCENT: list[list[dict[str, Any]]] = [
    [{"input_ids": IDS, "positions": [3, 9]}, {"input_ids": [5, 6, 7], "positions": [1, 2]}],
    [{"input_ids": IDS, "tokens": [f"w{token}" for token in IDS]}],
    [{"input_ids": IDS, "segment_ids": [0, 1, 0, 1, 0, 1, 0]}],
    [{"input_ids": IDS, "seq_len": 7, "sequence_id": 3, "position": 1, "ids": 4}],
    [{"input_ids": IDS, "label_mask": [0, 1]}],
    [{"input_ids": IDS, "answer_mask": [0, 0, 2, 1, 0, 1, 1]}],
    [{"input_ids": IDS, "cu_seqlens": 7, "doc_lens": None}],
    [{"input_ids": IDS, "positions": [9] * 7}, {"input_ids": IDS, "positions": [1, 0, 2, 3, 4, 5, 6]}],
    [{"input_ids": IDS, "document_id": "a.txt"}],
]


@pytest.mark.parametrize("rows", INNOCENT)
def test_columns_of_another_form_may_have_these_names(word_level: Any, rows: list[dict[str, Any]]) -> None:
    bare = [{"input_ids": row["input_ids"]} for row in rows]
    with warnings.catch_warnings(action="ignore"):
        assert C(word_level)(rows)["input_ids"].equal(C(word_level)(bare)["input_ids"])
        assert (
            pack_dataset(datasets.Dataset.from_list(rows), 8)["input_ids"][:]
            == (pack_dataset(datasets.Dataset.from_list(bare), 8)["input_ids"][:])
        )
        assert audit.labels([{**row, "labels": row["input_ids"]} for row in rows]).rows == len(rows)


# Boundaries in forms of other libraries, and the sizes of the documents that the first fix gives; `None` if none does.
FORMS: list[tuple[str, list[Any], list[int] | None]] = [
    ("cu_seqlens", [0, 4, 7, -1, -1], [4, 3]),  # NeMo, beside `cu_seqlens_argmin`
    ("cu_seqlens", [4, 7], [4, 3]),
    ("cu_seqlens", [0, 4], [4, 3]),
    ("cu_seqlens_padded", [0, 4, 7, 0, 0], [4, 3]),
    ("cu_seqlens_q", [0, 4, 9], None),
    ("cu_seqlens", [0.0, 4.5, 7.0], None),
    ("seq_start_id", [0, 4], [4, 3]),
    ("seq_lens", [4, 3, -1], [4, 3]),  # torchtune
    ("seq_lens", [4, 3, 0], [4, 3]),
    ("seq_lens", [4, 4], None),
    ("seq_len", [7], [7]),
    ("doc_lens", [4, 0, 3, 0], [4, 3]),  # OLMo-core
    ("packed_seq_lengths", [3, 4, -100], [3, 4]),  # unsloth
    ("packed_seq_lengths", [[3, 4]], None),
    ("doc_ids", [9, 9, 9, 9, 3, 3, 3], [4, 3]),
    ("seq_lengths", [4, 3, -1], [4, 3]),
    ("seq_lengths", [4, 4], None),
    ("cu_seq_lens_q", [0, 4, 7, -1], [4, 3]),
    ("cu_seq_lens_q", [4, 7], [4, 3]),
    ("cu_seq_lens_q", [0, 4], [4, 3]),
    ("cu_seq_lens_k", [0, 4, 9], None),
]


@for_each("masked", [False, True])
@for_each(("name", "values", "sizes"), FORMS)
def test_boundaries_in_a_form_of_others_are_refused_and_the_fix_gives_the_documents(
    word_level: Any, name: str, values: list[Any], sizes: list[int] | None, masked: bool
) -> None:
    row = {"input_ids": IDS + [0, 0] * masked, name: values}
    if masked:
        row |= {"attention_mask": [1] * 7 + [0, 0]}
        if name == "doc_ids":
            row[name] = [*values, -1, -1]
    whole = [0, 7] if name.startswith(("cu_", "seq_start")) else [7]  # a row of one document
    other = {**row, name: whole} if type(values[0]) is int and name != "doc_ids" else row
    for rows in ([row], [other, row]):  # no row hides another
        data = datasets.Dataset.from_list(rows)
        for read in (
            lambda rows=rows: C(word_level)(rows),
            lambda data=data: data.map(C(word_level), batched=True),
            lambda data=data: pack_dataset(data, 16),
            lambda rows=rows: audit.labels([{**row, "labels": row["input_ids"]} for row in rows]),
        ):
            with pytest.raises(ValueError, match=f"'{name}'") as refused:
                read()
        parts = str(refused.value).partition("fix: ")[2].split("; ")
        assert parts[-1].removeprefix("or ").startswith(f"dataset.remove_columns('{name}')")
        if sizes is None:
            continue
        mended = eval(parts[0], {"dataset": data})
        with warnings.catch_warnings(action="ignore"):
            batch = C(word_level, look_ahead=False)(list(mended))
        want = [place for size in sizes for place in range(size)]
        assert batch["position_ids"][-1][:7].tolist() == want


def test_a_second_name_of_one_column_is_only_removed(word_level: Any) -> None:
    row = {"input_ids": IDS, "cu_seq_lens_q": [0, 4, 7], "cu_seqlens_kv": [0, 4, 7]}
    with pytest.raises(ValueError, match=r"fix: dataset.remove_columns\('cu_seqlens_kv'\)"):
        C(word_level)([row])


def test_a_model_that_names_the_column_gets_it(word_level: Any) -> None:
    spec = ModelSpec(accepts=("input_ids", "attention_mask", "segment_ids", "positions"))
    row = {"input_ids": [5, 6, 7], "segment_ids": [0, 0, 1], "positions": [0, 1, 2]}
    batch = C(word_level, model=spec)([row])
    assert batch["segment_ids"].tolist() == [[0, 0, 1]]
    assert batch["positions"].tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("name", ["tokens", "token_ids", "chosen_input_ids", "rejected_input_ids", "prompt_input_ids"])
def test_ids_under_another_name_are_named(word_level: Any, name: str) -> None:
    with pytest.raises(
        ValueError, match=f"column '{name}' has token ids, .*\n.*\n  fix: dataset.rename_column"
    ) as refused:
        C(word_level)([{name: [5, 6], "labels": [5, 6]}])
    assert "remove_unused_columns" not in str(refused.value)


# The columns of TRL's KTOTrainer, RewardTrainer and DPOTrainer.
@pytest.mark.parametrize("names", ["prompt completion", "chosen rejected", "prompt chosen rejected"])
def test_ids_of_several_texts_in_a_row_name_the_trainers_that_collate_them(word_level: Any, names: str) -> None:
    row = {f"{name}_ids": [5, 6] for name in names.split()}
    with pytest.raises(ValueError, match=r"leave out data_collator=; for one of the columns dataset.rename_column\("):
        C(word_level)([row])


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    gaps=st.lists(st.integers(0, 12), max_size=3),
    left=st.booleans(),
)
@settings(max_examples=60)
def test_numbers_in_attention_mask_are_those_of_documents(lengths: list[int], gaps: list[int], left: bool) -> None:
    numbers = [number for number, length in enumerate(lengths, 1) for _ in range(length)]
    for gap in sorted(gaps, reverse=True):
        numbers.insert(min(gap, len(numbers)), 0)
    ids = [10 + place for place in range(len(numbers))]
    kept = [token for token, number in zip(ids, numbers, strict=True) if number]
    want = [token for start, length in zip(np.cumsum([0, *lengths]), lengths, strict=False) for token in range(length)]
    batch = C(_words(), padding_side="left" if left else "right")([{"input_ids": ids, "attention_mask": numbers}])
    assert batch["input_ids"].tolist() == [kept]
    assert batch["position_ids"].tolist() == [want]
    mask = AttentionMask.from_batch({"attention_mask": torch.tensor([numbers])})
    assert mask.documents.tolist() == [[number - 1 for number in numbers]]


def _words() -> Any:
    from tokenizers import Tokenizer, models

    return Tokenizer(
        models.WordLevel({"[PAD]": 0, "[UNK]": 1, **{f"w{n}": n for n in range(2, 60)}}, unk_token="[UNK]")
    )


def test_the_two_of_global_attention_is_no_document(word_level: Any) -> None:
    with pytest.raises(
        ValueError, match=r"attention_mask must be 0 at padding, and 1 at tokens.*\n.*\n.*global_attention"
    ):
        C(word_level)([{"input_ids": [5, 6, 7], "attention_mask": [2, 1, 1]}])
    spec = ModelSpec(accepts=("input_ids", "attention_mask", "global_attention_mask"))
    with pytest.raises(ValueError, match="global_attention_mask"):
        C(word_level, model=spec)([{"input_ids": [5, 6, 7], "attention_mask": [1, 1, 2]}])


def test_the_warning_of_loss_mask_says_which_token_it_marks(word_level: Any) -> None:
    rows = [{"input_ids": [5, 6, 7], "loss_mask": [0, 1, 0]}, {"input_ids": [8, 9], "loss_mask": [0, 1]}]
    with pytest.warns(
        UserWarning, match=r"(?s)0 at the last token of 1 of 2 documents.*1 marks the token to be learnt"
    ):
        C(word_level, labels="causal_lm")(rows)


def test_scalars_and_shapes_are_named_by_their_column(word_level: Any) -> None:
    for column, words in (
        ({"seq_lengths": 2}, "row 0 of column 'seq_lengths'"),
        ({"document_ids": [0.5, 1.0]}, "row 0 of column 'document_ids'"),
        ({"position_ids": [[0, 1]] * 3}, "row 0 of column 'position_ids'"),
    ):
        with pytest.raises(TypeError, match=words) as refused:
            C(word_level)([{"input_ids": [5, 6], **column}])
        assert "token ids per row" not in str(refused.value)
        is_of_images = column.keys() == {"position_ids"}
        assert ("the places of tokens in images and videos are lost" in str(refused.value)) == is_of_images
    with pytest.raises(TypeError, match="column 'temperature' is a single value"):
        C(word_level).batch({"input_ids": [[5, 6]], "temperature": 3})


@pytest.mark.parametrize("kind", ["stock", "budget"])
def test_a_trainer_with_its_defaults_has_the_loss_of_the_documents_alone(
    tmp_path: Path, word_level: Any, kind: str
) -> None:
    """Trainer removes columns that the model does not name before the collator sees them."""
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "initializer_range": 0.3}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=1700, **sizes)).eval()
    rows = [{"input_ids": IDS, "completion_mask": [0, 0, 1, 1, 0, 1, 1], "seq_lengths": [4, 3]}] * 2
    collate = C(word_level, model=model, labels="causal_lm")
    documents = [([5, 6, 7, 2], [-100, 7, 2]), ([8, 9, 2], [9, 2])]
    total = 0.0
    for ids, labels in documents:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        total += float(torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="sum"))

    class Budget(TokenBudgetMixin, transformers.Trainer, token_budget=32): ...

    data = datasets.Dataset.from_list(rows)
    trainer_class = Budget if kind == "budget" else transformers.Trainer
    arguments = transformers.TrainingArguments(
        str(tmp_path), report_to="none", dataloader_pin_memory=False, use_cpu=True, disable_tqdm=True
    )
    with warnings.catch_warnings(action="ignore"):
        data = data if kind == "budget" else data.map(collate, batched=True)
        trainer = trainer_class(model, arguments, train_dataset=data, data_collator=collate)
        batch = next(iter(trainer.get_train_dataloader()))
        with torch.no_grad():
            loss = float(model.eval()(**batch).loss)
    assert sorted(batch["labels"][batch["labels"] != -100].tolist()) == sorted([7, 2, 9, 2] * 2)
    assert abs(loss - total / 4) < 1e-4


@pytest.mark.parametrize("evaluates", [False, True])
@for_each("name", ["sequence_id", "seq_lens", "cu_seqlens", "positions", "response_mask"])
def test_token_budgets_refuse_the_names_that_the_collator_refuses(
    name: str, evaluates: bool, tmp_path: Path, word_level: Any
) -> None:
    """Trainer alone drops these columns, and would train on other targets than those that the rows have."""

    class Budget(TokenBudgetMixin, transformers.Trainer, token_budget=32): ...

    pytest.importorskip("accelerate")
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=1700, **sizes))
    rows = datasets.Dataset.from_list([{"input_ids": IDS, name: VALUES[FOREIGN[name]]}] * 4)
    collate = C(word_level, model=model, labels="causal_lm")
    arguments = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, disable_tqdm=True)
    trainer = Budget(model, arguments, train_dataset=rows, eval_dataset=rows, data_collator=collate)
    with pytest.raises(ValueError, match=f"column '{name}' has .* are read from '{FOREIGN[name]}'"):
        next(iter(trainer.get_eval_dataloader() if evaluates else trainer.get_train_dataloader()))


def test_stored_columns_depend_on_the_names_of_the_given_ones(word_level: Any) -> None:
    collate = C(word_level, labels="causal_lm")
    several, one = [1, 1, 2], [4, 4, 4]
    for name, first, second in (
        ("document_ids", several, one),
        ("seq_lengths", [2, 1], [3]),
        ("cu_seq_lens_q", [0, 2, 3], [0, 3]),
        ("position_ids", [0, 1, 0], [0, 1, 2]),
        ("attention_mask", several, [1, 1, 1]),
        ("loss_mask", [0, 0, 1], [1, 1, 1]),
    ):
        with warnings.catch_warnings(action="ignore"):
            stored = [list(collate.columns({"input_ids": [[5, 6, 7]], name: [values]})) for values in (first, second)]
        assert stored[0] == stored[1]
        if name in ("document_ids", "seq_lengths", "cu_seq_lens_q", "position_ids"):
            assert "position_ids" in stored[0]
        assert ("labels" in stored[0]) == (name == "loss_mask")
    assert re.search("labels", str(stored[0]))
