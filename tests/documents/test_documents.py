"""Rows of token ids before padding: limits, windows, documents, packing and labels, against loops over Python lists."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_posenc._common.constants import IGNORED
from hf_posenc.documents import Documents, Limits, is_no_mask, no_mask, pack_rows, read_documents
from hf_posenc.ragged import Ragged
from hf_posenc.tokenization import Encoder

SIDES = ["left", "right"]
DOCUMENTS = st.lists(st.lists(st.integers(1, 99), max_size=12), min_size=1, max_size=20)


def token_rows(rows: list[Any], **columns: list[Any]) -> Documents:
    ragged = {name: Ragged.from_rows(values, name=name) for name, values in {"input_ids": rows, **columns}.items()}
    return Documents(ragged, np.arange(len(rows)))


def lists(rows: Ragged) -> list[list[int]]:
    return [row.tolist() for row in rows]


@given(length=st.integers(1, 60), window=st.integers(1, 12), data=st.data(), side=st.sampled_from(SIDES))
def test_windows_cover_everything_overlap_by_stride_and_stop(
    length: int, window: int, data: st.DataObject, side: str
) -> None:
    """The rows of one text, each token its own index, are compared with the rules of `stride`, in all columns."""
    stride = data.draw(st.integers(0, window - 1))
    tokens = np.arange(length)
    given = token_rows([tokens], token_type_ids=[tokens + 100])
    rows = given.truncate(Limits(window, overflow=True, stride=stride), side=side)
    assert (rows.columns["token_type_ids"].values == rows.ids.values + 100).all()
    offsets = [(row[0], row[-1] + 1) for row in lists(rows.ids)][:: 1 if side == "right" else -1]
    assert offsets[0][0] == 0
    assert offsets[-1][1] == length
    assert all(1 <= stop - start <= window for start, stop in offsets)
    assert all(before[1] - after[0] == stride for before, after in itertools.pairwise(offsets))


# Rows of tokens with the number of their document, or -1 at padding, in any order.
NUMBERED = st.lists(st.lists(st.tuples(st.integers(1, 99), st.integers(-1, 3)), max_size=9), min_size=1, max_size=5)


@given(rows=NUMBERED, name=st.sampled_from(["document_ids", "seq_idx"]))
def test_closed_rows_are_the_documents_in_the_order_in_which_they_begin(
    rows: list[list[tuple[int, int]]], name: str
) -> None:
    ids = Ragged.from_rows([[token for token, _ in row] for row in rows])
    numbers = Ragged.from_rows([[number for _, number in row] for row in rows])
    places = Ragged(np.arange(len(ids.values)), ids.lengths)
    closed, index = read_documents({"input_ids": ids, name: numbers, "places": places})
    want = []
    for row in rows:
        documents: dict[int, list[int]] = {}
        for token, number in row:
            if number >= 0:
                documents.setdefault(number, []).append(token)
        want.append(list(documents.values()) or [[]])
    assert lists(closed.ids) == [[token for document in row for token in document] for row in want]
    assert closed.sizes is not None
    assert lists(closed.sizes) == [[len(document) for document in row] for row in want]
    assert lists(closed.split().ids) == [document for row in want for document in row]
    assert lists(closed.document_ids) == [
        [number for number, document in enumerate(row) for _ in document] for row in want
    ]
    if index is None:
        index = np.arange(len(ids.values))
    assert closed.columns["places"].values.tolist() == index.tolist()
    assert ids.values[index].tolist() == closed.ids.values.tolist()


@given(rows=DOCUMENTS, limit=st.integers(1, 6), side=st.sampled_from(SIDES), data=st.data())
def test_truncated_rows_know_their_documents_and_the_places_of_their_tokens(
    rows: list[list[int]], limit: int, side: str, data: st.DataObject
) -> None:
    sizes = Ragged.from_rows(
        [
            data.draw(st.lists(st.integers(1, 4), max_size=6).filter(lambda each, row=row: sum(each) == len(row)))
            if len(row) and data.draw(st.booleans()) and len(row) < 5
            else [len(row)]
            for row in rows
        ]
    )
    ids = Ragged.from_rows(rows)
    whole = Documents({"input_ids": ids}, np.arange(len(rows)) + 5, truncated=1, sizes=sizes)
    overflow, strategy = data.draw(st.booleans()), data.draw(st.sampled_from(["longest_first", "only_second"]))
    made = whole.truncate(Limits(limit, strategy, overflow=overflow), side=side)
    numbers, places = lists(whole.document_ids), lists(whole.token_places)
    start = np.zeros(len(rows), int)
    got = zip(lists(made.ids), lists(made.token_places), lists(made.document_ids), made.given_row - 5, strict=True)
    for tokens, place, document, row in got:
        begin = start[row] if overflow or side == "right" else max(len(rows[row]) - limit, 0)
        if overflow and side == "left":
            begin = max(len(rows[row]) - start[row] - limit, 0)
        assert tokens == rows[row][begin : begin + len(tokens)]
        assert place == places[row][begin : begin + len(tokens)]
        first = numbers[row][begin] if tokens else 0
        assert document == [number - first for number in numbers[row][begin : begin + len(tokens)]]
        start[row] += len(tokens)
    assert start.tolist() == [len(row) if overflow else min(len(row), limit) for row in rows]
    assert made.truncated == 1 + (0 if overflow else sum(len(row) > limit for row in rows))


@given(rows=DOCUMENTS, capacity=st.integers(12, 20), seed=st.none() | st.integers(0, 3), first=st.integers(0, 2))
def test_packed_rows_hold_every_document_once_with_positions_that_restart(
    rows: list[list[int]], capacity: int, seed: int | None, first: int
) -> None:
    packed = pack_rows({"input_ids": Ragged.from_rows(rows)}, capacity, seed=seed, first_position=first)
    found = []
    for ids, positions, documents in zip(*(lists(column) for column in packed.values()), strict=True):
        assert 1 <= len(ids) <= capacity
        for _, group in itertools.groupby(zip(documents, positions, ids, strict=True), key=lambda each: each[0]):
            tokens = list(group)
            assert [position for _, position, _ in tokens] == list(range(first, first + len(tokens)))
            found.append([token for _, _, token in tokens])
        assert documents == sorted(documents)
        assert documents[0] == 0
    assert sorted(found) == sorted(row for row in rows if row)


def test_a_seed_shuffles_packed_rows() -> None:
    documents = {"input_ids": Ragged.from_rows([[token] for token in range(50)])}
    orders = [pack_rows(documents, 5, seed=seed)["input_ids"].values.tolist() for seed in (None, 1, 1)]
    assert orders[0] == sorted(orders[1]) != orders[1] == orders[2]


def test_only_the_text_of_packed_rows_means_that_there_is_no_mask() -> None:
    assert is_no_mask([no_mask(7)])
    assert is_no_mask(np.array([no_mask(0)]))
    assert not any(is_no_mask(values) for values in (["another text"], [[1, 0]], [], np.array(1), None))


LABELLED = st.lists(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([-100, 1, 2, 3]), st.integers(0, 1)), max_size=5),
    min_size=1,
    max_size=5,
)


@given(rows=LABELLED, predicts_next=st.sampled_from([True, False, None]), shares=st.booleans(), masked=st.booleans())
def test_a_target_has_a_label_ones_in_all_masks_and_a_token_before_it(
    rows: list[list[tuple[int, int, int]]], predicts_next: bool | None, shares: bool, masked: bool
) -> None:
    ids, labels, mask = ([[token[part] for token in row] for row in rows] for part in range(3))
    documents = token_rows(ids, **({"loss_mask": mask, "completion_mask": mask} if masked else {}))
    given_labels = Ragged.from_rows(labels)
    before = given_labels.values.copy()
    got, has_target = documents.supervise(given_labels, predicts_next=predicts_next, shares_row=shares)
    want, targets = [], []
    for row in rows:
        kept = [label if keep or not masked else IGNORED for _, label, keep in row]
        is_start = (
            bool(kept) and kept[0] != IGNORED and (kept[0] == row[0][0] if predicts_next is None else predicts_next)
        )
        targets.append(sum(label != IGNORED for label in kept) > (is_start if predicts_next is not None else 0))
        want.append([IGNORED, *kept[1:]] if is_start and shares else kept)
    assert lists(got) == want
    assert has_target.tolist() == targets
    assert given_labels.values.tolist() == before.tolist()


_SPECIAL = [("[CLS]", 1), ("[SEP]", 2)]
POST_PROCESSORS = {
    "none": None,
    "byte level": processors.ByteLevel(),
    "bert": processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "roberta": processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "template": processors.TemplateProcessing(
        single="[CLS] $A:3 [SEP]:4", pair="[CLS] $A:5 [SEP] $B [SEP]:6", special_tokens=_SPECIAL
    ),
    "suffix": processors.TemplateProcessing(single="$A [SEP]", pair="$A [SEP] $B:1", special_tokens=_SPECIAL),
    "sequence": processors.Sequence(
        [processors.ByteLevel(), processors.TemplateProcessing("[CLS] $A", "[CLS] $A [CLS]:1 $B:1", _SPECIAL)]
    ),
}


@pytest.mark.parametrize("name", POST_PROCESSORS)
@settings(max_examples=100)
@given(
    counts=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), min_size=1, max_size=4),
    max_length=st.integers(1, 16),
    stride=st.one_of(st.none(), st.integers(0, 5)),
    truncation=st.sampled_from(["longest_first", "only_first", "only_second"]),
    side=st.sampled_from(SIDES),
    pair=st.booleans(),
    add=st.booleans(),
)
def test_special_tokens_truncation_and_overflow_are_those_of_tokenizers(
    name: str,
    counts: list[tuple[int, int]],
    max_length: int,
    stride: int | None,
    truncation: str,
    side: str,
    pair: bool,
    add: bool,
) -> None:
    words = {word: number for number, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *(f"w{n}" for n in range(30))])}
    raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if POST_PROCESSORS[name] is not None:
        raw.post_processor = POST_PROCESSORS[name]
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=raw, model_input_names=["input_ids", "token_type_ids"], truncation_side=side
    )
    first = [" ".join(f"w{n}" for n in range(a)) for a, _ in counts]
    second = [" ".join(f"w{n}" for n in range(15, 15 + b)) for _, b in counts] if pair else None
    limits = Limits(max_length, truncation, overflow=stride is not None, stride=stride or 0)
    try:
        raw.enable_truncation(max_length, stride=stride or 0, strategy=truncation, direction=side)
    except ValueError:  # it counts the special tokens even if none are added
        assume(False)
    ids, types, sample = [], [], []
    try:
        limits.check_special_tokens(raw.num_special_tokens_to_add(pair) if add else 0)
        for index, texts in enumerate(zip(first, strict=True) if second is None else zip(first, second, strict=True)):
            encoding = raw.encode(*texts, add_special_tokens=add)
            for each in [encoding, *(encoding.overflowing if stride is not None else [])]:
                ids.append(each.ids)
                types.append(each.type_ids)
                sample.append(index)
        # A text truncated to nothing would come back whole, as an overflowing row.
        assume(max(map(len, ids)) <= max_length)
    except BaseException as error:
        if not isinstance(error, ValueError) and type(error).__name__ not in ("Exception", "PanicException"):
            raise
        with pytest.raises(ValueError, match=r"max_length must leave room|cannot be truncated"):
            Encoder(wrapped, limits, add_special_tokens=add).tokenize(first, second)
        return
    got = Encoder(wrapped, limits, add_special_tokens=add).tokenize(first, second)
    assert lists(got.ids) == ids
    assert got.columns.get("token_type_ids") is not None
    assert lists(got.columns.get("token_type_ids")) == types
    assert got.given_row.tolist() == sample
    whole = Encoder(wrapped, add_special_tokens=add).tokenize(first, second).ids.lengths
    assert got.truncated == (0 if stride is not None else int((whole > max_length).sum()))


def test_a_template_with_the_second_text_first_gives_the_rows_of_the_tokenizer() -> None:
    raw = Tokenizer(models.WordLevel({"a": 0, "[CLS]": 1, "[SEP]": 2, "b": 3}, unk_token="a"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing("[CLS] $A", "[CLS] $B $A [SEP]", _SPECIAL)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=raw)
    got = Encoder(wrapped, Limits(5)).tokenize(["a a", "a"], ["b", "b b b b b"])
    want = wrapped(["a a", "a"], ["b", "b b b b b"], truncation=True, max_length=5)
    assert lists(got.ids) == want["input_ids"]


@pytest.mark.parametrize("overflow", [False, True])
def test_an_empty_second_text_keeps_the_special_tokens_of_a_pair_row_by_row(overflow: bool) -> None:
    raw = Tokenizer(models.WordLevel({"a": 0, "[CLS]": 1, "[SEP]": 2, "b": 3}, unk_token="a"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing("[CLS] $A", "[CLS] $B $A [SEP]", _SPECIAL)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=raw)
    texts, pairs = ["a", "", "a b a a", ""], ["", "", "", "b"]
    got = Encoder(wrapped, Limits(5, overflow=overflow)).tokenize(texts, pairs)
    want = wrapped(texts, pairs, truncation=True, max_length=5, return_overflowing_tokens=overflow)
    assert lists(got.ids) == want["input_ids"]


def test_a_slow_tokenizer_counts_truncated_texts_and_adds_no_types_of_its_own(slow: PreTrainedTokenizerBase) -> None:
    got = Encoder(slow, Limits(4)).tokenize(["abcdef", "a", "abcde"])
    assert lists(got.ids) == slow(["abcdef", "a", "abcde"], truncation=True, max_length=4)["input_ids"]
    assert got.truncated == 2
    assert got.columns.get("token_type_ids") is None


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_slow_tokenizer_splits_long_lists_of_words(slow: PreTrainedTokenizerBase, kind: type, add: bool) -> None:
    slow.model_input_names = ["input_ids", "token_type_ids"]
    words = kind(["abc", "de", "f"])
    bare = slow(list(words), is_split_into_words=True, add_special_tokens=False)["input_ids"]
    size, end = (3, [slow.eos_token_id]) if add else (4, [])
    encoder = Encoder(slow, Limits(4, overflow=True), is_split_into_words=True, add_special_tokens=add)
    got = encoder.tokenize([words, kind(["a"])])
    want = [[*bare[start : start + size], *end] for start in range(0, len(bare), size)]
    assert lists(got.ids) == [*want, [*bare[:1], *end]]
    assert got.given_row.tolist() == [0] * len(want) + [1]
    assert got.columns.get("token_type_ids") is not None
    assert not got.columns.get("token_type_ids").values.any()
    assert got.truncated == 0


def test_a_slow_tokenizer_refuses_long_pairs_with_overflow_and_lone_surrogates(slow: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"(?s)needs a fast tokenizer; row 1 is too long.*ByT5Tokenizer.*=False"):
        Encoder(slow, Limits(4, overflow=True)).tokenize(["a", "abcdef"], ["b", "c"])
    with pytest.raises(ValueError, match=r"(?s)row 0 contains a lone surrogate.*character 1.*'replace'"):
        Encoder(slow, is_split_into_words=True).tokenize([["a", "b\ud800"]])
    with pytest.raises(ValueError, match="max_length must leave room for 2 special tokens"):
        Encoder(slow, Limits(2)).tokenize(["a"], ["b"])


def test_a_pair_that_cannot_be_truncated_is_refused_with_its_row_and_lengths(word_level: Any) -> None:
    words = r"row 1 cannot be truncated to 4 tokens with truncation='only_first'\n  got: 2 and 4 tokens\n  fix: trunc"
    with pytest.raises(ValueError, match=words):
        Encoder(word_level, Limits(4, "only_first")).tokenize(["a", "a b"], ["a", "a a a a"])
    with pytest.raises(ValueError, match="with truncation='longest_first' and stride=3\n  got: 3 and 4 tokens"):
        Encoder(word_level, Limits(5, overflow=True, stride=3)).tokenize(["a", "a a a"], ["a", "a a a a"])


def test_a_row_without_room_for_its_special_tokens_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"(?s)2 special tokens and one more token.*fix: max_length=3 or more, or add_sp"
    ):
        Limits(2).check_special_tokens(2)
    with pytest.raises(
        ValueError, match=r"(?s)a stride of 4 and one more token.*stride=4.*max_length=7.*a smaller stride"
    ):
        Limits(6, overflow=True, stride=4).check_special_tokens(2)
    Limits(4, stride=3).check_special_tokens(2)  # without overflow, the stride does not count


@given(
    counts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3),
    max_length=st.integers(5, 12),
    overflow=st.booleans(),
    side=st.sampled_from(SIDES),
    pair=st.booleans(),
)
def test_places_of_truncated_texts_are_those_in_the_whole_row(
    counts: list[tuple[int, int]], max_length: int, overflow: bool, side: str, pair: bool
) -> None:
    words = {word: number for number, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *(f"w{n}" for n in range(30))])}
    raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = POST_PROCESSORS["template"]
    wrapped = PreTrainedTokenizerFast(tokenizer_object=raw, truncation_side=side)
    first = [" ".join(f"w{n}" for n in range(a)) for a, _ in counts]
    second = [" ".join(f"w{n}" for n in range(15, 15 + b)) for _, b in counts] if pair else None
    whole = lists(Encoder(wrapped).tokenize(first, second).ids)
    try:
        got = Encoder(wrapped, Limits(max_length, overflow=overflow)).tokenize(first, second)
    except ValueError:  # a pair that cannot be truncated
        assume(False)
    for ids, places, row in zip(lists(got.ids), lists(got.token_places), got.given_row.tolist(), strict=True):
        assert [whole[row][place] for place in places] == ids
        assert places == sorted(set(places))


def test_places_that_a_slow_tokenizer_does_not_return_are_refused(slow: PreTrainedTokenizerBase) -> None:
    assert lists(Encoder(slow, Limits(9)).tokenize(["abc"]).token_places) == [[0, 1, 2, 3]]
    for limits in (Limits(3), Limits(3, overflow=True)):
        made = Encoder(slow, limits).tokenize(["abcdef"])
        with pytest.raises(ValueError, match="the places that tokens had before truncation are unknown"):
            _ = made.token_places
        assert made.truncate(Limits(2)).ids.longest == 2
