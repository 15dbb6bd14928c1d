"""Training a BPE: what comes out, compared with transformers' use of it; the merges shown, with the library's own."""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_posenc.tokenization import bpe_merges, bpe_stages, train_bpe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Sennrich, Haddow and Birch 2016, algorithm 1: the dictionary of words that the paper merges by hand.
PAPER = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3


def merges_of(tokenizer: PreTrainedTokenizerFast) -> list[tuple[str, str]]:
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    return [(left, right) for left, right in model["merges"]]


@pytest.fixture(scope="module")
def trained() -> PreTrainedTokenizerFast:
    texts = [inspect.getdoc(member) or "" for module in (argparse, json, textwrap) for member in vars(module).values()]
    return train_bpe(texts, 800)


def test_the_papers_example_gives_the_papers_merges() -> None:
    steps = list(bpe_merges(PAPER, 4))
    assert [(step.pair, step.count) for step in steps] == [
        (("e", "s"), 9),
        (("es", "t"), 9),
        (("l", "o"), 7),
        (("lo", "w"), 7),
    ]
    assert dict(steps[0].before) == {tuple("low"): 5, tuple("lower"): 2, tuple("newest"): 6, tuple("widest"): 3}
    assert dict(steps[-1].words) == {
        ("low",): 5,
        ("low", "e", "r"): 2,
        ("n", "e", "w", "est"): 6,
        ("w", "i", "d", "est"): 3,
    }
    assert all(step.token == "".join(step.pair) and step.pairs[0] == (step.pair, step.count) for step in steps)
    assert [step.number for step in steps] == [1, 2, 3, 4]
    assert all(one.words == two.before for one, two in pairwise(steps))


def test_a_step_over_many_words_prints_few_of_them_and_their_number(sentences: list[str]) -> None:
    step = next(bpe_merges(sentences, 1))
    text = str(step)
    assert max(map(len, text.splitlines())) < 240
    assert f"and {len(step.words) - 8} more" in text
    shown = text.splitlines()[3].removeprefix("   after   ").split("   ")
    assert [step.token in word for word in shown] == [True] * 8 + [False]  # those that changed; then "and … more"


def test_a_long_word_is_shortened_in_print() -> None:
    lines = str(next(bpe_merges(["ab" * 5_000], 1))).splitlines()
    assert max(map(len, lines)) < 240
    assert lines[3].endswith("ab ab ab … ×1")


def theirs(texts: list[str], byte_level: bool, min_frequency: int) -> list[tuple[str, str]]:
    tokenizer = train_bpe(texts, 5_000, byte_level=byte_level, min_frequency=min_frequency, progress=False)
    return merges_of(tokenizer)


def ours(texts: list[str], byte_level: bool, min_frequency: int, most: int = 5_000) -> list[tuple[str, str]]:
    return [step.pair for step in bpe_merges(texts, most, byte_level=byte_level, min_frequency=min_frequency)]


@given(
    texts=st.lists(st.text(alphabet="abcé ", min_size=1, max_size=30), min_size=1, max_size=8),
    byte_level=st.booleans(),
    min_frequency=st.integers(1, 3),
)
@settings(max_examples=60)
def test_the_merges_shown_are_those_of_the_library_for_any_text(
    texts: list[str], byte_level: bool, min_frequency: int
) -> None:
    assert ours(texts, byte_level, min_frequency) == theirs(texts, byte_level, min_frequency)


def test_merging_a_word_step_by_step_gives_its_tokens(trained: PreTrainedTokenizerFast, sentences: list[str]) -> None:
    for text in sentences[:60]:
        stages = bpe_stages(trained, text)
        assert [token for word in stages for token in word[-1]] == trained.tokenize(text)
        for word in stages:
            assert all(len(symbol) == 1 for symbol in word[0])
            assert all("".join(stage) == "".join(word[0]) for stage in word)
            assert [len(stage) for stage in word] == sorted({len(stage) for stage in word}, reverse=True)


def test_padding_and_special_tokens_work_at_once(trained: PreTrainedTokenizerFast) -> None:
    batch = trained(["I ride bike", "bike"], padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == batch["attention_mask"].shape
    assert batch["input_ids"][:, 0].tolist() == [trained.bos_token_id] * 2
    assert batch["input_ids"][1, -1].item() == trained.pad_token_id == 0
    assert (batch["input_ids"][0, -1].item(), trained.mask_token_id) == (trained.eos_token_id, 3)
    assert "token_type_ids" not in batch
    assert trained.convert_ids_to_tokens([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<mask>"]
    assert len(trained) == 800


@given(text=st.text(max_size=60))
@settings(max_examples=150)
def test_any_text_comes_back_from_decode(trained: PreTrainedTokenizerFast, text: str) -> None:
    ids = trained(text, add_special_tokens=False)["input_ids"]
    assert trained.decode(ids) == text


@pytest.mark.parametrize("byte_level", [True, False])
def test_it_saves_and_loads_as_any_tokenizer_does(tmp_path: Path, sentences: list[str], byte_level: bool) -> None:
    from transformers import AutoTokenizer

    tokenizer = train_bpe(sentences, 2_000, byte_level=byte_level, model_max_length=77)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.special_tokens_map == tokenizer.special_tokens_map
    assert (loaded.model_max_length, loaded.model_input_names) == (77, tokenizer.model_input_names)
    assert loaded(sentences, truncation=True)["input_ids"] == tokenizer(sentences, truncation=True)["input_ids"]


def test_the_same_texts_give_the_same_tokenizer_in_every_process(
    sentences: list[str], other_process: ProcessPoolExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    there = other_process.submit(train_bpe, sentences[:60], 500).result()
    assert there.backend_tokenizer.to_str() == train_bpe(sentences[:60], 500).backend_tokenizer.to_str()
    assert capfd.readouterr().err == ""  # no progress bar where nobody looks


def test_texts_may_come_from_anywhere(sentences: list[str]) -> None:
    import datasets
    import pandas as pd

    want = merges_of(train_bpe(sentences, 600))
    column = datasets.Dataset.from_dict({"text": sentences})["text"]
    for texts in (tuple(sentences), (t for t in sentences), iter(sentences), column, pd.Series(sentences)):
        assert merges_of(train_bpe(texts, 600)) == want
    assert merges_of(train_bpe(np.array(sentences[:9]), 600)) == merges_of(train_bpe(sentences[:9], 600))


def test_without_bytes_other_characters_are_unknown(sentences: list[str]) -> None:
    tokenizer = train_bpe(["I ride bike", "bike ride I, she said"] * 3, 60, byte_level=False)
    assert tokenizer.tokenize("I ride bike") == ["▁I", "▁ride", "▁bike"]
    assert tokenizer.decode(tokenizer("I ride bike")["input_ids"], skip_special_tokens=True) == "I ride bike"
    assert tokenizer.tokenize("zebra")[1] == tokenizer.unk_token == "<unk>"
    assert tokenizer.unk_token_id == 4


def test_cls_and_sep_are_placed_as_in_bert() -> None:
    roles = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    tokenizer = train_bpe(["a b", "b a"], 300, special_tokens=roles)
    pair = tokenizer("a", "b")
    assert pair.tokens() == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1]
    assert tokenizer("a").tokens() == ["[CLS]", "a", "[SEP]"]
    assert tokenizer.model_input_names == ["input_ids", "token_type_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("roles", "single", "pair"),
    [
        ({}, ["a"], ["a", "b"]),
        ({"eos_token": "</s>"}, ["a", "</s>"], ["a", "</s>", "b", "</s>"]),
        ({"bos_token": "<s>"}, ["<s>", "a"], ["<s>", "a", "b"]),
        ({"bos_token": "<|e|>", "eos_token": "<|e|>"}, ["<|e|>", "a", "<|e|>"], ["<|e|>", "a", "<|e|>", "b", "<|e|>"]),
    ],
)
def test_only_the_special_tokens_that_were_named_are_there(
    roles: dict[str, str], single: list[str], pair: list[str]
) -> None:
    tokenizer = train_bpe(["a b", "b a"], 300, special_tokens={"pad_token": "<pad>", **roles})
    assert tokenizer("a").tokens() == single
    assert tokenizer("a", "b").tokens() == pair
    assert set(tokenizer.all_special_tokens) == {"<pad>", *roles.values()}


def test_one_token_may_have_two_roles_and_there_may_be_extra_ones() -> None:
    roles = {"pad_token": "<|end|>", "eos_token": "<|end|>", "extra_special_tokens": ["<user>", "<bot>"]}
    tokenizer = train_bpe(["a b", "b a"], 300, special_tokens=roles)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 0
    assert tokenizer("<user>a<bot>", add_special_tokens=False).tokens() == ["<user>", "a", "<bot>"]
    assert tokenizer.decode(tokenizer("<user>a")["input_ids"], skip_special_tokens=True) == "a"


def assert_refused(
    error: type[Exception], *phrases: str, texts: Any = ("a b", "c d"), size: Any = 300, **options: Any
) -> None:
    with pytest.raises(error) as caught:
        train_bpe(texts, size, **options)
    message = str(caught.value)
    for phrase in phrases:
        assert phrase in message


def test_values_that_are_not_collections_of_texts_are_refused() -> None:
    import pandas as pd

    many = "texts must be a list"
    assert_refused(TypeError, many, "got: str 'I ride bike'", texts="I ride bike")
    assert_refused(TypeError, many, "got: bytes b'I'", texts=b"I")
    assert_refused(TypeError, many, "got: dict", 'ds["text"]', texts={"text": ["a"]})
    assert_refused(TypeError, many, "got: DataFrame", texts=pd.DataFrame({"text": ["a"]}))
    assert_refused(TypeError, many, "got: int", texts=3)
    with pytest.raises(TypeError, match=many):
        bpe_merges("I ride bike", 3)


def test_a_row_that_is_not_text_is_named() -> None:
    def rows() -> Iterator[Any]:
        yield from ["a", "b", None]

    assert_refused(TypeError, "row 2 of texts is NoneType, expected str", "got: None", texts=rows())
    assert_refused(TypeError, "row 0 of texts is dict", "ds['text']", texts=[{"text": "a"}])
    assert_refused(TypeError, "row 1 of texts is list", texts=["a", ["b"]])
    assert_refused(TypeError, "row 1 of texts is float", "got: nan", texts=["a", float("nan")])
    assert_refused(ValueError, "row 1 contains a lone surrogate", "character 1", texts=["a", "b\ud800"])
    assert_refused(ValueError, "no text to train on", texts=[])
    assert_refused(ValueError, "no text to train on", texts=["", ""])


def test_a_vocabulary_too_small_is_refused_with_the_figures() -> None:
    assert_refused(ValueError, "4 special tokens and 256 bytes", "260 in all", "got: 259", "fix: vocab_size=", size=259)
    assert_refused(ValueError, "5 special tokens and 5 characters", "10 in all", "got: 9", size=9, byte_level=False)
    assert len(train_bpe(["a b"], 260)) == 260
    assert len(train_bpe(["a b", "c d"], 10, byte_level=False)) == 10
    assert_refused(TypeError, "vocab_size must be an int", "got: 300.0", size=300.0)
    assert_refused(ValueError, "vocab_size must be positive", "got: -1", size=-1)
    assert_refused(ValueError, "min_frequency must be positive", "got: 0", min_frequency=0)
    with pytest.raises(ValueError, match="num_merges must not be negative\n  got: -1"):
        bpe_merges(["a"], -1)
    with pytest.raises(TypeError, match="num_merges must be an integer\n  got: 2\\.5"):
        bpe_merges(["a"], 2.5)


def test_special_tokens_that_make_no_sense_are_refused() -> None:
    assert_refused(ValueError, "'pad'", "pad_token", special_tokens={"pad": "<pad>"})
    assert_refused(ValueError, "unknown", 'add "unk_token"', special_tokens={"pad_token": "<pad>"}, byte_level=False)
    for wrong in ({"pad_token": ""}, {"pad_token": "<pad>", "extra_special_tokens": "<a>"}):
        assert_refused(TypeError, "must have a token for each role", special_tokens=wrong)


def test_stages_of_other_models_than_bpe_are_refused(wordpiece: Any, slow: Any) -> None:
    with pytest.raises(TypeError, match=r"only a BPE has merges.*\n  got: .*WordPiece"):
        bpe_stages(wordpiece, "a")
    with pytest.raises(TypeError, match=r"got: ByT5Tokenizer"):
        bpe_stages(slow, "a")
