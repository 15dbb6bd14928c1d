"""`audit.labels` finds planted mistakes by row and nothing in clean rows, and its counts equal a loop over tokens.

The loop of the last test follows the docstring of `LabelCheck`, one token after another.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from looping import for_each

from hf_posenc import DataCollatorWithPositionalEncoding, audit, pack_dataset, train_bpe

Row = dict[str, list[int]]


def _end(tokenizer: Any) -> int:
    end = tokenizer.eos_token_id
    return int(tokenizer.sep_token_id if end is None else end)


def _rows(tokenizer: Any, count: int = 40) -> list[Row]:
    """Return clean rows: a prompt of two to six tokens without labels, an answer of three to eleven, and the end."""
    special = set(tokenizer.all_special_ids)
    plain = [number for number in range(len(tokenizer)) if number not in special]
    rows = []
    for row in range(count):
        prompt, answer = 2 + row % 5, 3 + row % 9
        ids = [plain[(3 * row + 7 * i + i * i) % len(plain)] for i in range(prompt + answer)]
        ids.append(_end(tokenizer))
        rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * prompt + ids[prompt:]})
    return rows


def _truncated(row: Row, _: Any) -> None:
    ids = (row["input_ids"][:-1] * 30)[:30]  # longer than every other row
    row |= {"input_ids": ids, "attention_mask": [1] * 30, "labels": [-100, -100, *ids[2:]]}


def _trained_padding(row: Row, tokenizer: Any) -> None:
    row["input_ids"] += [tokenizer.pad_token_id] * 3
    row["attention_mask"] += [0] * 3
    row["labels"] += [tokenizer.pad_token_id] * 3


MISTAKES: dict[str, Callable[[Row, Any], Any]] = {
    "untrained": lambda row, _: row.update(labels=[-100] * len(row["labels"])),
    "truncated": _truncated,
    "no end": lambda row, _: [values.pop() for values in row.values()],
    "masked end": lambda row, _: row["labels"].__setitem__(-1, -100),
    "padding": _trained_padding,
    "shifted": lambda row, _: row.update(labels=[*row["labels"][1:], -100]),
    "lengths": lambda row, _: row["labels"].pop(),
    "unknown ids": lambda row, tokenizer: row["labels"].__setitem__(-2, len(tokenizer) + 5),
    "other ids": lambda row, _: row["labels"].__setitem__(-2, row["input_ids"][0]),
}


@pytest.fixture(params=["wordpiece", "bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest, sentences: list[str]) -> Any:
    return train_bpe(sentences, 300) if request.param == "bpe" else request.getfixturevalue(request.param)


def test_clean_rows_have_no_problem(tokenizer) -> None:
    found = audit.labels(_rows(tokenizer), tokenizer)
    assert (found.problems, found.warnings, found.worst) == ({}, (), ())
    assert (found.kind, found.rows, found.ignored.keys()) == ("tokens", 40, {"prompt"})


@for_each("name", MISTAKES)
def test_a_planted_mistake_is_found_in_its_rows_and_nowhere_else(tokenizer, name: str) -> None:
    rows = _rows(tokenizer)
    for number in (7, 31):
        MISTAKES[name](rows[number], tokenizer)
    found = audit.labels(datasets.Dataset.from_list(rows), tokenizer)
    assert found.problems == {name: (7, 31)}
    assert set(found.worst) == {7, 31}
    assert audit.labels(rows, tokenizer) == found
    assert "2 rows with " in str(found)


@for_each("name", sorted(MISTAKES.keys() - {"no end", "truncated"}))
def test_a_mistake_in_most_rows_is_found_in_each(tokenizer, name: str) -> None:
    rows = _rows(tokenizer)
    for row in rows[:30]:
        MISTAKES[name](row, tokenizer)
    assert audit.labels(rows, tokenizer).problems == {name: tuple(range(30))}


def test_labels_that_are_shifted_to_the_right_are_found(tokenizer) -> None:
    rows = _rows(tokenizer)
    for row in rows:
        row["labels"] = [-100, *row["labels"][:-1]]
    assert audit.labels(rows, tokenizer).problems["shifted"] == tuple(range(40))


def test_the_end_of_each_turn_is_checked(tokenizer) -> None:
    rows = [
        {name: [*first[name], *second[name]] for name in first}
        for first, second in zip(_rows(tokenizer), reversed(_rows(tokenizer)), strict=True)
    ]
    assert audit.labels(rows, tokenizer).problems == {}
    rows[9]["labels"][rows[9]["input_ids"].index(_end(tokenizer))] = -100
    assert audit.labels(rows, tokenizer).problems == {"masked end": (9,)}


def test_a_line_break_may_follow_the_end_token_but_does_not_hide_it(tokenizer) -> None:
    rows = _rows(tokenizer)
    for row in rows:
        for name in row:
            row[name].append(1 if name == "attention_mask" else 9)
    assert audit.labels(rows, tokenizer).problems == {}
    rows[4]["labels"][-2] = -100
    assert audit.labels(rows, tokenizer).problems == {"masked end": (4,)}


def test_an_end_token_that_is_never_trained_on_is_named(tokenizer) -> None:
    rows = _rows(tokenizer)
    for row in rows:
        MISTAKES["masked end"](row, tokenizer)
    end = tokenizer.convert_ids_to_tokens(_end(tokenizer))
    assert f"the end token {end!r} is never trained on" in audit.labels(rows, tokenizer).warnings[0]


def test_the_padding_token_that_is_also_the_end_token_is_named(byte_bpe) -> None:
    rows = _rows(byte_bpe)
    byte_bpe.pad_token = byte_bpe.eos_token
    (warning,) = audit.labels(rows, byte_bpe).warnings
    assert warning.startswith("the padding token is also the end token")


def test_another_end_token_is_suggested_and_taken(unigram) -> None:
    rows = _rows(unigram)
    for row in rows:
        row["input_ids"][-1] = row["labels"][-1] = unigram.pad_token_id
    found = audit.labels(rows, unigram)
    name = repr(unigram.pad_token)
    assert found.warnings[0].endswith(f"most answers end with {name}: end_token={name} if that is meant")
    assert len(found.problems["no end"]) == 40
    assert audit.labels(rows, unigram, end_token=unigram.pad_token).problems == {}


def test_a_start_token_that_occurs_twice_is_found(wordpiece, byte_bpe, unigram) -> None:
    for tokenizer in (wordpiece, byte_bpe, unigram):
        start = tokenizer.cls_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        rows = _rows(tokenizer)
        for number, row in enumerate(rows):
            before = [start] * (1 + (number in (3, 17)))
            row["input_ids"] = [*before, *row["input_ids"]]
            row["labels"] = [-100] * len(before) + row["labels"]
            row["attention_mask"] = [1] * len(row["input_ids"])
        found = audit.labels(rows, tokenizer)
        assert found.problems == {"doubled start": (3, 17)}
        assert "2 rows with two start tokens" in str(found)
        assert "add_special_tokens=False" in str(found)


def test_padding_by_the_start_token_is_no_second_one(byte_bpe) -> None:
    tokenizer = copy.deepcopy(byte_bpe)
    tokenizer.pad_token = tokenizer.bos_token
    start = tokenizer.bos_token_id
    rows = [
        {name: [fill] * 3 + row[name] for name, fill in (("input_ids", start), ("attention_mask", 0), ("labels", -100))}
        for row in _rows(tokenizer)
    ]
    assert audit.labels(rows, tokenizer).problems == {}
    for row in rows:
        del row["attention_mask"]
    assert audit.labels(rows, tokenizer).problems == {}


def test_tokens_that_all_answers_share_are_named(byte_bpe) -> None:
    begin, rest = byte_bpe("<think></think>", add_special_tokens=False)["input_ids"], _rows(byte_bpe)
    rows = []
    for row in rest:
        prompt = row["labels"].count(-100)
        ids = [*row["input_ids"][:prompt], *begin, *row["input_ids"][prompt:]]
        rows.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    found = audit.labels(rows, byte_bpe)
    assert found.problems == {}
    assert found.warnings == ("all 40 answers have '<think></think>' at the same place, and are trained on it",)
    assert f"all 40 answers have {begin}" in str(audit.labels(rows))
    for row in rows:  # not trained on
        count = row["labels"].count(-100) + len(begin)
        row["labels"] = [-100] * count + row["labels"][count:]
    assert audit.labels(rows, byte_bpe).warnings == ()
    assert audit.labels(rest[:9], byte_bpe).warnings == ()


def test_the_worst_rows_are_those_with_most_problems_and_then_the_least_trained(wordpiece) -> None:
    rows = _rows(wordpiece, 60)
    for number in range(20, 34):
        MISTAKES["masked end"](rows[number], wordpiece)
    _trained_padding(rows[30], wordpiece)
    found = audit.labels(rows, wordpiece)
    shares = {n: sum(label != -100 for label in rows[n]["labels"]) / len(rows[n]["labels"]) for n in range(20, 34)}
    shares.pop(30)
    assert len(found.worst) == 10
    assert found.worst[0] == 30
    assert [shares[n] for n in found.worst[1:]] == sorted(shares.values())[:9]


def test_without_a_tokenizer_end_tokens_are_not_checked(wordpiece) -> None:
    rows = _rows(wordpiece)
    MISTAKES["masked end"](rows[3], wordpiece)
    MISTAKES["untrained"](rows[4], wordpiece)
    assert audit.labels(rows).problems == {"untrained": (4,)}


@pytest.mark.parametrize(
    "settings",
    [
        {"labels": "causal_lm"},
        {"labels": "causal_lm", "padding_side": "left", "pad_to_multiple_of": 16},
        {"labels": "causal_lm", "packing": True, "max_length": 64},
        {"labels": "causal_lm", "packing": "flat", "pad_to_multiple_of": 64, "max_length": 64},
        {"labels": "masked_lm", "seed": 0},
    ],
    ids=str,
)
def test_batches_of_the_collator_have_no_problem(settings: dict[str, Any], sentences: list[str]) -> None:
    collate = DataCollatorWithPositionalEncoding(train_bpe(sentences, 300), **settings)
    batch = collate(sentences)
    found = audit.labels([batch, collate(sentences[:5])], collate.tokenizer)
    assert (found.problems, found.warnings) == ({}, ())
    assert found.kind == ("classes" if settings["labels"] == "masked_lm" else "tokens")
    alone = audit.labels(batch, collate.tokenizer)
    never_read = len(sentences) if settings == {"labels": "causal_lm"} else 0  # the first label of rows padded right
    assert alone.trained == int((batch["labels"] != -100).sum()) - never_read
    padding = alone.ignored.get("padding", 0)
    assert alone.trained + sum(alone.ignored.values()) - padding == alone.tokens == batch["labels"].numel() - padding


def test_rows_of_pack_dataset_have_a_first_token_for_each_document(sentences: list[str]) -> None:
    tokenizer = train_bpe(sentences, 300)
    tokenized = datasets.Dataset.from_dict({"text": sentences[:16]}).map(
        DataCollatorWithPositionalEncoding(tokenizer), batched=True, remove_columns="text"
    )
    found = audit.labels(pack_dataset(tokenized, 128), tokenizer)
    assert found.problems == {}
    assert found.ignored["first token"] == 16
    assert found.ignored.keys() == {"first token", "padding"}


def test_masks_and_packed_rows_of_trl(wordpiece) -> None:
    rows = _rows(wordpiece, 4)
    masks = [
        {"input_ids": row["input_ids"], "completion_mask": [int(label != -100) for label in row["labels"]]}
        for row in rows
    ]
    expected = audit.labels(rows, wordpiece)
    assert audit.labels(datasets.Dataset.from_list(masks), wordpiece) == expected
    for row in masks:  # both masks must be 1
        row["assistant_masks"] = [*row["completion_mask"][:-1], 0]
    assert audit.labels(masks, wordpiece).problems == {"masked end": (0, 1, 2, 3)}
    MISTAKES["untrained"](rows[2], wordpiece)
    packed = {name: [[each for row in rows for each in row[name]]] for name in ("input_ids", "labels")}
    packed["seq_lengths"] = [[len(row["labels"]) for row in rows]]
    found = audit.labels(packed, wordpiece)
    assert found.problems == {"untrained": (0,)}
    assert found.ignored["no answer"] == len(rows[2]["labels"])


def test_labels_that_are_targets_are_read_without_the_ids(wordpiece) -> None:
    rows = _rows(wordpiece)
    targets = [{"input_ids": row["input_ids"], "labels": row["labels"][-3:]} for row in rows]
    found = audit.labels(targets, wordpiece)
    assert (found.kind, found.problems, found.trained) == ("targets", {}, found.tokens)
    targets[5]["labels"].pop()
    assert audit.labels(targets, wordpiece).problems == {"no end": (5,)}


def test_targets_padded_to_the_width_of_the_inputs_are_read_without_their_mask(wordpiece) -> None:
    rows = []
    for row, other in zip(_rows(wordpiece), reversed(_rows(wordpiece)), strict=True):
        target = [label for label in other["labels"] if label != -100]
        ids, pad = row["input_ids"], wordpiece.pad_token_id
        mask = [1] * len(ids) + [0] * (24 - len(ids))
        labels = target + [-100] * (24 - len(target))
        rows.append({"input_ids": ids + [pad] * (24 - len(ids)), "attention_mask": mask, "labels": labels})
    found = audit.labels(rows, wordpiece)
    assert (found.kind, found.problems) == ("targets", {})
    assert "are read as ids of targets" in str(found)
    rows[6]["labels"] = [pad if label == -100 else label for label in rows[6]["labels"]]
    assert audit.labels(rows, wordpiece).problems == {"padding": (6,)}


def test_the_rows_of_a_transform_are_checked(wordpiece) -> None:
    data = datasets.Dataset.from_list(_rows(wordpiece))
    hidden = data.with_transform(lambda rows: {**rows, "labels": [[-100] * len(row) for row in rows["labels"]]})
    assert len(audit.labels(hidden, wordpiece).problems["untrained"]) == 40
    assert audit.labels(data, wordpiece).problems == {}


def test_unsigned_ids_and_labels_that_are_no_ids(wordpiece) -> None:
    import pyarrow as pa

    columns = {
        "input_ids": pa.array([[7, 8, wordpiece.sep_token_id]] * 3, pa.list_(pa.uint16())),
        "completion_mask": pa.array([[False, True, True]] * 3, pa.list_(pa.bool_())),
    }
    found = audit.labels(datasets.Dataset(pa.table(columns)), wordpiece)
    assert (found.trained, found.problems) == (6, {})
    rows = [{"input_ids": [7, 8, 9], "labels": [-100, 8, 2**40]} for _ in range(3)]
    assert audit.labels(rows, wordpiece).problems["unknown ids"] == (0, 1, 2)


def test_a_text_cut_into_rows_of_one_length_is_clean(wordpiece) -> None:
    ids = [each for row in _rows(wordpiece) for each in row["input_ids"]]
    rows = [{"input_ids": ids[i : i + 50], "labels": ids[i : i + 50]} for i in range(0, 400, 50)]
    found = audit.labels(rows, wordpiece)
    assert (found.problems, found.warnings, found.trained) == ({}, (), 392)


def test_a_stream_is_read_once_and_nothing_given_is_changed(wordpiece) -> None:
    rows = _rows(wordpiece, 5000)
    before = copy.deepcopy(rows)
    MISTAKES["untrained"](rows[4999], wordpiece)
    before[4999] = copy.deepcopy(rows[4999])
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows))
    for given_rows in (stream, iter(rows), datasets.Dataset.from_list(rows)):
        found = audit.labels(given_rows, wordpiece)
        assert (found.rows, found.problems) == (5000, {"untrained": (4999,)})
    assert rows == before
    assert wordpiece.padding_side == "right"


@for_each(
    ("rows", "error", "words"),
    [
        ([], ValueError, "rows of tokens\n  got: no rows"),
        ([{"text": "a"}], ValueError, r"column input_ids\n  got: columns \['text'\]\n  fix: tokenize first"),
        ([{"input_ids": [5]}], ValueError, r"labels for each token\n  got: columns input_ids\n  fix: .*dataloader"),
        ([{"input_ids": [5], "labels": 1}], TypeError, "row 0 of column 'labels' must be a flat list of integers"),
        ({"input_ids": [[5], [6]], "labels": [[5]]}, ValueError, "equal numbers of rows\n  got: 2 and 1"),
        ("folder", TypeError, "rows or batches, each a dict\n  got: 'f'"),
    ],
)
def test_other_data_is_refused(rows: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        audit.labels(rows)


@pytest.mark.parametrize("kind", [list, iter, datasets.Dataset.from_list])
def test_an_error_numbers_the_row_in_the_whole_data_set(kind: Callable[[list[Any]], Any]) -> None:
    rows: list[dict[str, Any]] = [{"input_ids": [5], "labels": [5]} for _ in range(9000)]
    rows[8500]["labels"] = None
    with pytest.raises(TypeError, match="row 8500 of column 'labels'"):
        audit.labels(kind(rows))


@pytest.mark.parametrize("tokenizer_too", [True, False])
def test_an_end_token_that_is_no_token_is_refused(wordpiece, tokenizer_too: bool) -> None:
    with pytest.raises(ValueError, match="end_token must be one token of the tokenizer\n  got: 'the end'"):
        audit.labels(_rows(wordpiece), wordpiece if tokenizer_too else None, end_token="the end")


def _causes(labels: list[int], mask: list[int]) -> Counter[str]:
    """Return the causes of -100 in a row of one document, token by token."""
    real = [i for i in range(len(labels)) if mask[i]]
    trained = [i for i in real[1:] if labels[i] != -100]
    causes: Counter[str] = Counter()
    for i, label in enumerate(labels):
        if label != -100 and i not in real[:1]:
            continue
        if not mask[i]:
            causes["padding"] += 1
        elif not trained:
            causes["no answer"] += 1
        elif i < trained[0]:
            causes["first token" if trained[0] == real[min(1, len(real) - 1)] else "prompt"] += 1
        else:
            causes["between answers" if i < trained[-1] else "after the answer"] += 1
    return causes


tokens = st.lists(st.tuples(st.integers(5, 9), st.booleans()), max_size=12)


@given(st.lists(st.tuples(tokens, st.integers(0, 3), st.booleans()), min_size=1, max_size=6))
def test_causes_of_rows_equal_a_loop_over_tokens(drawn: list[Any]) -> None:
    rows, expected = [], Counter[str]()
    for pairs, padding, left in drawn:
        ids, labels = [each for each, _ in pairs], [each if chosen else -100 for each, chosen in pairs]
        pads, ones = [0] * padding, [1] * len(ids)
        row = [(pads, ids), ([-100] * padding, labels), (pads, ones)]
        ids, labels, mask = (a + b if left else b + a for a, b in row)
        rows.append({"input_ids": ids, "labels": labels, "attention_mask": mask})
        expected += _causes(labels, mask)
    assert audit.labels(rows).ignored == expected
