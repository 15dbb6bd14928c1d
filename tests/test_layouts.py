"""Rows of documents in every layout: columns and masks that divide them, refusals, and kinds of labels.

`test_one_space.py` draws such rows.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from looping import for_each
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_posenc import AttentionMask, ModelSpec, audit, pack_dataset
from hf_posenc import DataCollatorWithPositionalEncoding as C

IDS = 40
CAPACITY = 16
LAYOUTS: dict[str, dict[str, Any]] = {
    "right": {},
    "left": {"padding_side": "left"},
    "packed": {"packing": True, "max_length": CAPACITY},
    "packed left": {"packing": True, "max_length": CAPACITY, "padding_side": "left"},
    "flat": {"packing": "flat"},
}


def _words() -> PreTrainedTokenizerFast:
    names = ["[PAD]", "[UNK]", "</s>", *(f"w{number}" for number in range(3, IDS))]
    raw = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", eos_token="</s>")


WORDS = _words()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="only the tokens with 1 in")
        yield
    datasets.enable_progress_bars()


@for_each("side", ["left", "right"])
@for_each("facts", [None, {"first_position": 2, "shifts_labels": True, "is_causal": True}])
def test_no_row_of_a_padded_batch_depends_on_another(side: str, facts: dict[str, Any] | None) -> None:
    names = ("input_ids", "attention_mask", "position_ids", "labels")
    model = None if facts is None else ModelSpec(accepts=names, positions=("learned",), **facts)
    collate = C(WORDS, model=model, labels="causal_lm", on_no_labels="keep", padding_side=side)
    positions = ([0, 1, 2], [2, 3, 4], [10, 11, 12], [0, 0, 1], [0, 1, 0])
    for pair in itertools.product(positions, repeat=2):
        rows = [
            {"input_ids": ids, "position_ids": each} for ids, each in zip(([5, 6, 7], [8, 9, 4]), pair, strict=True)
        ]
        together, *alone = (_or_refusal(collate, some) for some in (rows, rows[:1], rows[1:]))
        if isinstance(together, str):
            assert "fix:" in together
            assert any(isinstance(one, str) for one in alone)
            continue
        for number, one in enumerate(alone):
            for name in ("input_ids", "position_ids", "labels"):
                assert one[name][0].tolist() == together[name][number].tolist(), name


def _or_refusal(collate: C, rows: list[dict[str, Any]]) -> Any:
    try:
        return collate(rows)
    except ValueError as error:
        return str(error)


@for_each(
    ("row", "words"),
    [
        ({"seq_lengths": [2, 3], "document_ids": [0, 0, 0, 1, 1]}, "'document_ids' and 'seq_lengths' disagree"),
        ({"seq_lengths": [2, 3], "position_ids": [0, 1, 2, 0, 1]}, "'seq_lengths' and 'position_ids' disagree"),
        ({"seq_idx": [0, 0, 0, 0, 1], "document_ids": [0, 0, 0, 1, 1]}, "'document_ids' and 'seq_idx' disagree"),
        ({"seq_lengths": [2, 2]}, "the documents in 'seq_lengths' must have as many tokens as the row"),
        ({"seq_lengths": [6, -1]}, "the documents in 'seq_lengths' must have as many tokens as the row"),
        ({"cu_seq_lens_q": [0, 2, 4]}, "the documents in 'cu_seq_lens_q' must have as many tokens as the row"),
        ({"cu_seq_lens_q": [2, 5]}, "'cu_seq_lens_q' must begin with 0"),
        ({"completion_mask": [0, 1]}, "2 values in 'completion_mask' for 5 tokens"),
        ({"loss_mask": [0, 1, 2, 1, 1]}, "loss_mask must be 1 at tokens to train on"),
    ],
)
def test_columns_that_disagree_are_refused_by_every_reader(row: dict[str, Any], words: str) -> None:
    rows = [{"input_ids": [5, 6, 7, 8, 9], **row}]
    for layout in LAYOUTS.values():
        with pytest.raises(ValueError, match=re.escape(words)) as refused:
            C(WORDS, labels="causal_lm", **layout)(rows)
        assert "row 0" in str(refused.value) or "loss_mask" in words
        assert "got:" in str(refused.value)
    if "loss_mask" in row:
        return
    with pytest.raises(ValueError, match=re.escape(words)):
        pack_dataset(datasets.Dataset.from_list(rows), 8)
    with pytest.raises(ValueError, match=re.escape(words)):
        audit.labels([{**rows[0], "labels": rows[0]["input_ids"]}])


def test_masks_of_supervision_are_named_once_with_the_share_and_a_fix() -> None:
    rows = [{"input_ids": [5, 6, 7, 8], "completion_mask": [0, 0, 1, 1], "assistant_masks": [0, 1, 1, 0]}]
    collate = C(WORDS, labels="causal_lm")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batch = collate(rows)
        collate(rows)
    assert batch["labels"].tolist() == [[-100, -100, 7, -100]]  # masks intersect
    assert len(caught) == 1
    assert "'completion_mask' and 'assistant_masks' are trained on: 25% of the tokens" in str(caught[0].message)
    assert "dataset.remove_columns(['completion_mask', 'assistant_masks'])" in str(caught[0].message)
    with pytest.warns(UserWarning, match=r"columns \['completion_mask', 'assistant_masks'\] are not read"):
        C(WORDS)(rows)
    with pytest.warns(UserWarning, match=r"columns \['completion_mask'\] are not read"):
        pack_dataset(datasets.Dataset.from_list(rows).remove_columns("assistant_masks"), 8, labels=None)
    given_labels = [{**rows[0], "labels": [-100, 6, 7, 8]}]
    with pytest.warns(UserWarning, match="'completion_mask' and 'assistant_masks' are trained on: 25% of the tokens"):
        assert C(WORDS)(given_labels)["labels"].tolist() == [[-100, -100, 7, -100]]  # beside given labels, too
    texts = [{"text": "w5 w6", "completion_mask": [0, 1]}, {"text": "w5 w7 w6", "completion_mask": [1]}]
    with pytest.warns(UserWarning, match=r"columns \['completion_mask'\] came with texts") as warned:
        assert "completion_mask" not in C(WORDS, labels="causal_lm")(texts)
    assert len(warned) == 1


def test_a_label_kind_gets_documents_and_the_columns_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_posenc.collator import labels as kinds
    from hf_posenc.ragged import Ragged

    seen: list[Any] = []

    def behind_the_first(documents: Any) -> Any:
        seen.append((documents.ids.lengths.tolist(), list(documents.per_row["weight"])))
        labels = documents.ids.values.copy()
        labels[documents.ids.offsets[:-1]] = -100
        return documents.ids, Ragged(labels, documents.ids.lengths)

    kind = kinds.LabelKind(lambda settings_, tokenizer: behind_the_first, predicts_next=True)
    monkeypatch.setitem(kinds.LABEL_KINDS, "causal_lm", kind)
    rows = [
        {"input_ids": [5, 6, 7, 8], "seq_lengths": [2, 2], "weight": 3},
        {"input_ids": [9, 4], "seq_lengths": [2], "weight": 7},
    ]
    for layout in LAYOUTS.values():
        seen.clear()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"columns \['weight'\] are not in the batch")
            batch = C(WORDS, labels="causal_lm", **layout)(rows)
        assert seen == [([2, 2, 2], [3, 3, 7])]
        assert sorted(batch["labels"][batch["labels"] != -100].tolist()) == [4, 6, 8]


def test_a_label_kind_that_reads_the_length_of_the_prompt_is_right_in_every_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hf_posenc.collator import labels as kinds
    from hf_posenc.ragged import Ragged

    def behind_the_prompt(documents: Any) -> Any:  # the kind of CONTRIBUTING.md
        prompt = np.repeat(np.asarray(documents.per_row["prompt_length"]), documents.ids.lengths)
        is_answer = documents.token_places.values >= prompt
        return documents.ids, Ragged(np.where(is_answer, documents.ids.values, -100), documents.ids.lengths)

    kind = kinds.LabelKind(lambda settings_, tokenizer: behind_the_prompt, predicts_next=True)
    monkeypatch.setitem(kinds.LABEL_KINDS, "causal_lm", kind)
    rows = [{"input_ids": [2, 3, 4, 5, 6, 7], "prompt_length": 4}]
    texts = [{"text": "w3 w4 w5 w6 w7 w8", "prompt_length": 4}]
    left = _words()
    left.truncation_side = "left"
    settings_ = {"labels": "causal_lm", "on_no_labels": "keep"}
    ignored = warnings.catch_warnings(action="ignore")  # of the column, and of pieces
    with ignored:
        assert C(left, max_length=3, **settings_)(rows)["labels"].tolist() == [[-100, 6, 7]]
        assert C(left, max_length=3, **settings_)(texts)["labels"].tolist() == [[-100, 7, 8]]
        pieces = C(WORDS, max_length=3, return_overflowing_tokens=True, stride=1, **settings_)
        assert pieces(rows)["labels"].tolist() == [[-100] * 3, [-100, -100, 6], [6, 7, -100]]
        assert pieces(texts)["labels"].tolist() == [[-100] * 3, [-100, -100, 7], [7, 8, -100]]
        gaps = [{"input_ids": [2, 0, 3, 4, 5, 6, 7], "attention_mask": [1, 0, 1, 1, 1, 1, 1], "prompt_length": 4}]
        assert C(left, max_length=3, **settings_)(gaps)["labels"].tolist() == [[-100, 6, 7]]


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": torch.ones(1, 5), "seq_lengths": [[2, 3]]},
        {"seq_lengths": [[2, 3]]},
        {"cu_seq_lens_q": [[0, 2, 5]]},
        {"cu_seq_lens_q": torch.tensor([0, 2, 5]), "cu_seq_lens_k": torch.tensor([0, 2, 5])},
        {"seq_idx": torch.tensor([[0, 0, 1, 1, 1]])},
        {"position_ids": torch.tensor([[0, 1, 0, 1, 2]]), "seq_lengths": [[2, 3]]},
    ],
)
def test_masks_read_every_column_that_divides_documents_with_and_without_a_mask(batch: dict[str, Any]) -> None:
    for more in ({}, {"attention_mask": torch.ones(1, 5)}):
        assert AttentionMask.from_batch({**batch, **more}).documents.tolist() == [[0, 0, 1, 1, 1]]
    two = {
        name: [*value, [0, 1, 5] if "cu" in name else [1, 4]]
        for name, value in batch.items()
        if isinstance(value, list)
    }
    if two and len(two) == len(batch):
        assert AttentionMask.from_batch(two).documents.tolist() == [[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]]


def masked(documents: list[int], *, causal: bool = True, window: int | None = None, pads: str = "self") -> torch.Tensor:
    """Return the mask `(1, 1, T, T)` that isolates documents; -1 is padding, which attends to itself or to nothing."""
    numbers, at = torch.tensor(documents), torch.arange(len(documents))
    may = (numbers[:, None] == numbers) & (numbers >= 0)
    may &= (at[:, None] >= at) if causal else True
    may &= ((at[:, None] - at).abs() < window) if window else True
    return (may | ((numbers < 0).diag() if pads == "self" else False))[None, None]


@for_each("pads", ["self", "nothing"])
@for_each("form", ["bool", "float32", "bfloat16", "numpy", "kinds of layers"])
@for_each(
    "documents",
    [[0, 0, 0, 1, 1], [-1, -1, 0, 0, 1, 1, 1], [0, 0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0, 0, 1, 2, 2, 2], [0, 1, 2]],
)
@for_each("settings_", [{}, {"causal": False}, {"window": 3}])
def test_documents_are_read_from_a_mask_of_four_dimensions(
    documents: list[int], form: str, settings_: dict[str, Any], pads: str
) -> None:
    mask: Any = masked(documents, pads=pads, **settings_)
    if form != "bool":
        added = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
        mask = added.to(torch.bfloat16) if form == "bfloat16" else added.numpy() if form == "numpy" else added
    if form == "kinds of layers":
        mask = {"sliding_attention": masked(documents, window=1), "full_attention": mask}
    ids = torch.tensor([[0 if number < 0 else 5 + at for at, number in enumerate(documents)]])
    batch = {"input_ids": ids, "attention_mask": mask}
    found = AttentionMask.from_batch(batch).documents
    assert found.tolist() == [documents]
    collate = C(WORDS, labels="causal_lm", on_no_labels="keep")
    labels = collate([{"input_ids": ids[0].tolist(), "document_ids": documents}])["labels"]
    read = collate.batch(batch)["labels"]
    assert read.tolist() == labels.tolist()


def test_padding_of_a_flat_batch_is_padding_when_the_batch_is_given_back() -> None:
    collate = C(WORDS, labels="causal_lm", packing="flat", pad_to_multiple_of=8)
    batch = collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    audited = audit.labels([batch], WORDS)
    assert audited.trained / audited.tokens == pytest.approx(3 / 5)
    del batch["labels"]
    again = C(WORDS, labels="causal_lm").batch(batch)["labels"].tolist()
    assert again == [[-100, 6, 7, -100, 9]]


def test_map_stores_the_same_columns_in_every_batch_and_lengths_that_fit() -> None:
    collate = C(WORDS, labels="causal_lm", max_length=3)
    rows = [{"input_ids": [5, 6, 7, 8], "seq_lengths": [2, 2], "cu_seq_lens_q": [0, 2, 4]}] * 2
    rows += [{"input_ids": [8, 9], "seq_lengths": [2], "cu_seq_lens_q": [0, 2]}]
    stored = datasets.Dataset.from_list(rows).map(collate, batched=True, batch_size=1)
    assert stored["seq_lengths"][:] == [[2, 1], [2, 1], [2]]
    assert stored["cu_seq_lens_q"][:] == [[0, 2, 3], [0, 2, 3], [0, 2]]
    assert "attention_mask" not in stored.column_names
    labels = [[-100, 6, -100], [-100, 6, -100], [8, 9, -100]]
    assert collate(list(stored))["labels"].tolist() == labels
    placed = [{"input_ids": [5, 6, 7], "position_ids": row} for row in ([0, 1, 0], [0, 1, 2])]
    columns = [set(collate.columns({name: [row[name]] for name in row})) for row in placed]
    assert columns[0] == columns[1] == {"input_ids", "position_ids", "document_ids", "length"}


def test_a_row_is_divided_for_packing_whatever_else_is_in_its_batch() -> None:
    collate = C(WORDS, packing=True, max_length=4)
    row, other = {"input_ids": [5, 6, 7, 8], "seq_lengths": [2, 2]}, {"input_ids": [5, 6, 7, 8, 9], "seq_lengths": [5]}
    for rows in ([row], [row, other]):
        stored = collate.columns({name: [each[name] for each in rows] for name in row})
        assert [each.tolist() for each in stored["input_ids"]][:2] == [[5, 6], [7, 8]]


@pytest.mark.parametrize("name", ["seq_lengths", "position_ids", "completion_mask", "labels"])
def test_a_column_of_none_is_missing_and_a_single_none_is_named(name: str) -> None:
    rows = [{"input_ids": [5, 6], name: None}, {"input_ids": [7, 8], name: None}]
    collate = C(WORDS, labels="causal_lm")
    assert collate(rows)["labels"].tolist() == [[5, 6], [7, 8]]
    table = {"input_ids": [[5, 6], [7, 8]], name: [None, None]}
    assert len(pack_dataset(datasets.Dataset.from_dict(table), 4)) == 1
    if name != "labels":
        rows[0][name] = [2] if name == "seq_lengths" else [0, 1]
        with pytest.raises(TypeError, match=f"row 1 of column '{name}' must be a flat list of integers"):
            collate(rows)


@pytest.mark.parametrize(("name", "numbers"), [("attention_mask", [2, 2, 1, 1]), ("completion_mask", [1, 1, 2, 2])])
def test_every_reader_refuses_a_mask_of_other_numbers(name: str, numbers: list[int]) -> None:
    row = {"input_ids": [5, 6, 7, 8], "labels": [5, 6, 7, 8], name: numbers}
    readers = [
        lambda: C(WORDS, labels=None)([row]),
        lambda: pack_dataset(datasets.Dataset.from_list([row]), 4),
        lambda: audit.labels([row]),
    ]
    readers += [lambda: AttentionMask.from_batch({name: [row[name]]})] if name == "attention_mask" else []
    for read in readers:
        with pytest.raises(ValueError, match=f"{name} must be .*1 at tokens"):
            read()


def test_two_numberings_in_one_row_are_refused() -> None:
    spec = ModelSpec(
        accepts=("input_ids", "position_ids"), positions=("learned",), first_position=2, takes_4d_mask=True
    )
    row = {"input_ids": [5, 6, 7, 8, 9], "seq_lengths": [3, 2], "position_ids": [0, 1, 2, 3, 4]}
    with pytest.raises(ValueError, match="row 0: the position_ids of one document count from 0"):
        C(WORDS, model=spec)([row])


def test_a_column_with_a_value_per_token_that_no_model_takes_is_named_once() -> None:
    spec = ModelSpec(accepts=("input_ids", "attention_mask", "labels"), shifts_labels=True, is_causal=True)
    collate = C(WORDS, model=spec, labels="causal_lm")
    row = {"input_ids": [5, 6, 7, 8], "sequence_id": [1, 0, 1, 1], "weights": [1, 1, 0, 0], "topic": 3, "row_id": 7}
    with pytest.warns(
        UserWarning, match=r"columns \['sequence_id', 'weights', 'topic'\] are not in the batch"
    ) as warned:
        collate([row])
    assert len(warned) == 1
    assert collate([row])["labels"].shape == (1, 4)  # without a second warning


def test_lengths_of_documents_that_come_with_texts_are_named() -> None:
    with pytest.warns(UserWarning, match=r"columns \['seq_lengths'\] are not in the batch"):
        C(WORDS)([{"text": "w5 w6", "seq_lengths": [1, 1]}])
