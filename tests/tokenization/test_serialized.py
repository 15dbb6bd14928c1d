"""A tokenizer that was sent to another process against the one that stayed: the same ids, and without transformers.

Fast ones travel as their Rust part, all others as their files.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_posenc.documents import Limits
from hf_posenc.tokenization import Encoder, RustOnlyTokenizer, SerializedTokenizer, private_copy

SETTINGS: list[dict[str, Any]] = [
    {},
    {"limits": Limits(6)},
    {"limits": Limits(12, overflow=True, stride=1)},
    {"add_special_tokens": False},
]


def sent(tokenizer: PreTrainedTokenizerBase) -> SerializedTokenizer:
    return pickle.loads(pickle.dumps(SerializedTokenizer.of(private_copy(tokenizer))))


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_loaded_tokenizer_gives_the_ids_of_the_serialized_one(
    any_fast: PreTrainedTokenizerFast, sentences: list[str], settings: dict[str, Any]
) -> None:
    short = [text for text in sentences if len(text) < 200]  # a pair of long ones overflows into all pairs of pieces
    here, there = Encoder(private_copy(any_fast), **settings), Encoder(sent(any_fast).load(), **settings)
    for texts, pairs in ((sentences, None), (short, short[::-1])):
        ours, theirs = there.tokenize(texts, pairs), here.tokenize(texts, pairs)
        assert ours.ids.values.tolist() == theirs.ids.values.tolist()
        assert ours.sample.tolist() == theirs.sample.tolist()
        assert ours.columns.keys() == theirs.columns.keys()
        for name, column in ours.columns.items():
            assert column.values.tolist() == theirs.columns[name].values.tolist()


def test_the_side_that_is_cut_travels_along(bert: PreTrainedTokenizerFast, sentences: list[str]) -> None:
    bert.truncation_side = "left"
    arrived = Encoder(sent(bert).load(), limits=Limits(5))
    assert (
        list(map(list, arrived.tokenize(sentences).ids)) == bert(sentences, truncation=True, max_length=5)["input_ids"]
    )


def test_special_tokens_in_a_text_are_split_if_the_tokenizer_splits_them(
    bert: PreTrainedTokenizerFast,
) -> None:
    text = "a [SEP] b"
    plain = Encoder(sent(bert).load()).tokenize([text]).ids.values.tolist()
    bert.split_special_tokens = True
    split = Encoder(sent(bert).load()).tokenize([text]).ids.values.tolist()
    assert plain == bert(text, split_special_tokens=False)["input_ids"]
    assert split == bert(text, split_special_tokens=True)["input_ids"] != plain


def test_a_slow_tokenizer_arrives_as_itself(slow: PreTrainedTokenizerBase, sentences: list[str]) -> None:
    arrived = sent(slow)
    assert not isinstance(arrived.content, RustOnlyTokenizer)
    assert list(map(list, Encoder(arrived.load()).tokenize(sentences).ids)) == slow(sentences)["input_ids"]


def test_the_digest_tells_tokenizers_apart_and_nothing_else(
    bert: PreTrainedTokenizerFast, wordpiece: PreTrainedTokenizerFast
) -> None:
    digest = sent(bert).digest
    bert(["used"], padding=True, truncation=True, max_length=3)
    assert sent(bert).digest == digest != sent(wordpiece).digest
    bert.add_tokens(["posenc"])
    assert sent(bert).digest != digest


def test_a_fast_tokenizer_is_used_without_transformers(
    bert: PreTrainedTokenizerFast, sentences: list[str], tmp_path: Path
) -> None:
    (tmp_path / "sent").write_bytes(pickle.dumps((SerializedTokenizer.of(private_copy(bert)), sentences)))
    said = """
import pickle, sys
from hf_posenc.tokenization import Encoder
tokenizer, texts = pickle.load(open(sys.argv[1], "rb"))
print(Encoder(tokenizer.load()).tokenize(texts).ids.values.tolist())
print({"torch", "transformers"} & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", said, tmp_path / "sent"], check=True, capture_output=True, text=True)
    ids, loaded = ran.stdout.splitlines()
    assert ids == str([id_ for row in bert(sentences)["input_ids"] for id_ in row])
    assert loaded == "set()"


def test_a_full_temporary_folder_is_named(
    bert: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise Exception("No space left on device (os error 28)")

    mine = private_copy(bert)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(type(mine), "save_pretrained", full)
    with pytest.raises(OSError, match=r"cannot be written to .*\n  got: No space left.*\n  fix: .*TMPDIR"):
        SerializedTokenizer.of(mine)


def test_an_error_of_the_tokenizer_is_not_reported_as_a_full_disk(
    bert: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("Invalid chat template name: '../tools'")

    mine = private_copy(bert)
    monkeypatch.setattr(type(mine), "save_pretrained", broken)
    with pytest.raises(ValueError, match=r"^Invalid chat template name: '../tools'$"):
        SerializedTokenizer.of(mine)
