"""Copies of tokenizers against their originals: equal ids in every copy and process, or a refusal.

Tokenizers with shared ids are loaded several times, because `tokenizers` keeps one token of each id at random.
"""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import before
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc.tokenization import private_copy, to_files

SPECIAL = {"[PAD]": 0, "[UNK]": 1}
LETTERS = dict(zip("abcdefghijklmnopqrstuvwxyz", range(2, 28), strict=True))
WORDS = {**SPECIAL, **{f"{word}{i}": i for i in range(2, 30) for word in ("color", "colour", "colours")}}


def bpe(merges: list[tuple[str, str]], **more: int) -> dict[str, Any]:
    vocabulary = {**SPECIAL, **LETTERS, **more}
    settings = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False}
    settings |= {"byte_fallback": False, "ignore_merges": False, "unk_token": "[UNK]"}
    return {"type": "BPE", "vocab": vocabulary, "merges": [list(merge) for merge in merges], **settings}


def wordpiece(vocabulary: dict[str, int]) -> dict[str, Any]:
    settings = {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return {"type": "WordPiece", "vocab": vocabulary, **settings}


def added(number: int, content: str, **flags: bool) -> dict[str, Any]:
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": number, "content": content, **usual, **flags}


# Content of `tokenizer.json`, and a text that contains every token of a shared id.
SHARED: dict[str, tuple[dict[str, Any], str]] = {
    "words": ({"model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"}}, " ".join(WORDS)),
    "word pieces": (
        {"model": wordpiece({**SPECIAL, "a": 2, "b": 3, "##c": 4, "##d": 4, "##e": 5})},
        "ac ad ae acd b bdc x",
    ),
    "merges with one result": ({"model": bpe([("c", "u"), ("k", "u")], cu=40, ku=40)}, "cu ku cuku kcu"),
    "merges of tokens that share an id": (
        {"model": bpe([("c", "u"), ("cu", "t")], k=LETTERS["c"], cu=40, cut=41)},
        "cu ku cut kut kcut",
    ),
    "merges that could be either": (  # only the file shows that ("c", "u") is merged to 40
        {"model": bpe([("c", "u")], k=LETTERS["c"], cu=40, ku=41)},
        "cu ku cku",
    ),
    "an added token with the id of a word": (
        {"model": {"type": "WordLevel", "vocab": {**SPECIAL, "a": 2, "b": 5}, "unk_token": "[UNK]"}}
        | {"added_tokens": [added(4, "<x>"), added(5, "<y>"), added(6, "<z>")]},
        "a <x> <y>b <z> b",
    ),
    "added tokens with one id": (
        {"model": {"type": "WordLevel", "vocab": {**SPECIAL, "color": 2, "colour": 2}, "unk_token": "[UNK]"}}
        | {"added_tokens": [added(2, "color"), added(2, "colour"), added(3, "<n>")]},
        "xcolorxcolour x<n>",
    ),
    "added tokens with one id that are normalized": (
        {"model": {"type": "WordLevel", "vocab": {**SPECIAL, "COVID": 2, "tint": 2}, "unk_token": "[UNK]"}}
        | {"added_tokens": [added(2, each, normalized=True) for each in ("COVID", "tint")]}
        | {"normalizer": {"type": "Lowercase"}},
        "xCOVIDy xtinty x",
    ),
}
NEED_THE_FILE = {
    "merges of tokens that share an id",
    "merges that could be either",
    "added tokens with one id that are normalized",
}


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, str]:
    """Return the name of an entry of `SHARED`, a folder with its tokenizer, and its text."""
    if before("tokenizers", "0.23"):
        pytest.skip("transformers loads other ids each time, or raises an error")
    content, text = SHARED[request.param]
    rest = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    rest |= {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**rest, **content}))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return request.param, tmp_path, text


def ids_of(collate: C, text: str) -> list[int]:
    return collate([text])["input_ids"][0].tolist()


def test_every_copy_of_a_tokenizer_with_shared_ids_gives_its_ids(shared: tuple[str, Path, str], tmp_path: Path) -> None:
    _, folder, text = shared
    for number in range(5):
        theirs = AutoTokenizer.from_pretrained(folder)
        expected = theirs(text)["input_ids"]
        for source in (str(folder), theirs):
            collate = C(source)
            assert ids_of(collate, text) == expected
            assert ids_of(C(source, backend="tokenizers", text_target_column="target"), text) == expected
            assert ids_of(collate.replace(max_length=100), text) == expected
            assert ids_of(C(collate.tokenizer), text) == expected
            assert ids_of(pickle.loads(pickle.dumps(collate)), text) == expected
            saved = tmp_path / f"saved-{number}"
            collate.save_pretrained(saved)
            assert ids_of(C.from_pretrained(saved), text) == expected
            assert AutoTokenizer.from_pretrained(saved)(text)["input_ids"] == expected
            assert C.from_pretrained(saved) == collate
        assert theirs(text)["input_ids"] == expected


def test_without_its_file_a_tokenizer_with_shared_ids_gives_its_ids_or_is_refused(
    shared: tuple[str, Path, str],
) -> None:
    name, folder, text = shared
    path = folder / "tokenizer.json"
    for _ in range(5):
        raw = Tokenizer.from_file(str(path))
        wrapped = PreTrainedTokenizerFast(tokenizer_file=str(path), pad_token="[PAD]", unk_token="[UNK]")
        assert ids_of(C(path), text) == wrapped(text)["input_ids"]  # a path is the file
        for source, encoded in ((raw, raw.encode(text).ids), (wrapped, wrapped(text)["input_ids"])):
            if name in NEED_THE_FILE:
                with pytest.raises(ValueError, match=r"have the same id \d+, and a copy .* would give other ids"):
                    C(source)
            else:
                assert ids_of(C(source), text) == encoded


def test_padding_and_truncation_of_the_original_do_not_change_its_copies(shared: tuple[str, Path, str]) -> None:
    _, folder, text = shared
    theirs = AutoTokenizer.from_pretrained(folder)
    plain = C(theirs)
    theirs([text, text + " a"], padding=True, truncation=True, max_length=3)
    assert C(theirs) == plain
    assert ids_of(C(theirs), text) == ids_of(plain, text)


def test_added_tokens_with_one_normalized_form_are_refused_with_a_fix_that_works(bert: Any) -> None:
    bert.add_tokens(["COVID", "Covid"])
    for source in (bert, bert.backend_tokenizer):
        with pytest.raises(ValueError, match=r"'COVID' and 'Covid' have the same normalized form 'covid'") as caught:
            C(source)
    fix = re.search(r"fix: (tokenizer\.add_tokens\(.*?\)\]\))", str(caught.value))
    assert fix is not None
    exec(fix[1], {"tokenizer": bert, "AddedToken": AddedToken})
    text = "Covid covid COVID"
    assert ids_of(C(bert), text) == bert(text)["input_ids"]


@pytest.mark.parametrize(
    ("normalizer", "contents"),
    [
        (normalizers.Lowercase(), ("Ab", "aB")),
        (normalizers.NFC(), ("caf\u00e9", "cafe\u0301")),
        (normalizers.StripAccents(), ("\u0301", "\u0327")),
        (normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase()]), (" a", "A ")),
        (normalizers.Replace(" ", "▁"), (" x", "▁x")),
    ],
)
@pytest.mark.parametrize("special", [False, True])
def test_forms_are_those_of_the_tokenizers_own_normalizer(
    normalizer: Any, contents: tuple[str, str], special: bool, tmp_path: Path
) -> None:
    raw = Tokenizer(models.WordLevel({**SPECIAL, "a": 2}, unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizer, pre_tokenizers.WhitespaceSplit()
    add = raw.add_special_tokens if special else raw.add_tokens
    add([AddedToken(content, normalized=True) for content in contents])
    raw.save(str(tmp_path / "tokenizer.json"))
    for source in (raw, str(tmp_path), PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]")):
        with pytest.raises(ValueError, match="have the same normalized form"):
            C(source)


def test_added_tokens_that_are_not_normalized_may_differ_in_case_only() -> None:
    raw = Tokenizer(models.WordLevel({**SPECIAL, "a": 2}, unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    raw.add_tokens([AddedToken("Ab", normalized=False), AddedToken("aB", normalized=False), AddedToken("AB")])
    assert ids_of(C(raw), "Ab aB AB") == raw.encode("Ab aB AB").ids == [3, 4, 5]


def test_a_slow_tokenizer_whose_files_give_other_ids_is_refused_where_it_would_be_rebuilt(tmp_path: Path) -> None:
    lines = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "b",
        "a",
        "b",
        "c",
    ]  # "b" twice: its id is 7, and 5 is a hole
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n")
    tokenizer = BertTokenizerLegacy(str(tmp_path / "vocab.txt"))
    collate = C(tokenizer)
    assert ids_of(collate, "a b c") == tokenizer("a b c")["input_ids"] == [2, 6, 7, 8, 3]
    rebuilds: list[Callable[[], Any]] = [
        lambda: pickle.dumps(collate),
        lambda: collate.save_pretrained(tmp_path / "saved"),
        lambda: to_files(private_copy(tokenizer)),
    ]
    for rebuild in rebuilds:
        with pytest.raises(ValueError, match=r"has other ids when it is rebuilt") as caught:
            rebuild()
        assert "token 'b' has id 7, and then 6" in str(caught.value)


def _pad_with_unknown(tokenizer: Any) -> None:
    tokenizer.pad_token = "[UNK]"


CHANGES: dict[str, Callable[[Any], Any]] = {
    "vocabulary size=4 instead of 3": lambda tokenizer: tokenizer.add_tokens(["<x>"]),
    "padding_side='left' instead of 'right'": lambda tokenizer: setattr(tokenizer, "padding_side", "left"),
    "truncation_side='left' instead of 'right'": lambda tokenizer: setattr(tokenizer, "truncation_side", "left"),
    "model_max_length=2 instead of": lambda tokenizer: setattr(tokenizer, "model_max_length", 2),
    "pad_token='[UNK]' instead of '[PAD]'": _pad_with_unknown,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_tokenizer_after_the_collator_was_made_warns_once(change: str) -> None:
    raw = Tokenizer(models.WordLevel({**SPECIAL, "a": 2}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]")
    collate = C(tokenizer)
    replaced = collate.replace(max_length=100)
    tokenizer(["a", "a a"], padding=True, truncation=True, max_length=2)  # changes only the state of its Rust part
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collate(["a"])
    CHANGES[change](tokenizer)
    for made in (collate, replaced):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made(["a"])
            made({"text": ["a"]})
        assert len(caught) == 1
        assert "the tokenizer was changed after the collator was made" in str(caught[0].message)
        assert f"got: {change}" in str(caught[0].message)
    fresh = collate.replace(tokenizer=tokenizer)  # the fix in the warning
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids_of(fresh, "a <x>") == tokenizer("a <x>", truncation=True)["input_ids"]


def test_a_change_of_the_collators_own_tokenizer_and_of_a_raw_one_is_noticed_too() -> None:
    raw = Tokenizer(models.WordLevel({**SPECIAL, "a": 2}, unk_token="[UNK]"))
    collate, other = C(raw), C(raw)
    raw.add_tokens(["<x>"])
    other.tokenizer.padding_side = "left"
    with pytest.warns(UserWarning, match="vocabulary size=4 instead of 3"):
        collate(["a"])
    with pytest.warns(UserWarning, match="padding_side='left' instead of 'right'"):
        other(["a"])


def test_a_change_to_what_the_collator_uses_anyway_does_not_warn() -> None:
    raw = Tokenizer(models.WordLevel({**SPECIAL, "a": 2, "</s>": 3}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>")
    collate = C(tokenizer, pad_token="eos", padding_side="left")
    tokenizer.pad_token, tokenizer.padding_side = "</s>", "left"
    with warnings.catch_warnings(action="error"):
        assert ids_of(collate, "a") == [2]
