"""The ids of the pieces of a text, joined, against the ids of the whole text, for every kind of tokenizer."""

from __future__ import annotations

import functools
import random
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each, slow
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from hf_posenc.documents import Documents, Limits
from hf_posenc.tokenization import Encoder, Pieces, private_copy

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# Words, spaces, line ends, digits, punctuation, CJK, marks that combine, emoji, control characters, parts of tokens.
PARTS = [
    *("a", "I", "ride", "bike", "naïve", "Straße", "don't", "I'LL", "12345", "3.14", "1,000", "x_y", "__"),
    *(" ", " ", " ", "  ", "   ", "\t", "\n", "\n", "\n\n", " \n ", "\r\n", "\u00a0", "\u3000", "\u2028", "\x0b"),
    *(",", ".", "!?", "...", "--", "''", '"', "(", "’s", "/", "~", "。", "，", "！"),
    *("我每天骑", "自行车", "私は", "나는", "\u1100\u1161\u11a8", "ไทยน้ำ", "हिन्दी", "אני", "я", "Éé"),
    *("e\u0301", "\u0301", "\u0327\u0301", "\u0345", "ﬁ", "½", "²", "ẞ", "Ǆ", "\u1e9b\u0323", "\u0600", "\u0d4e"),
    *("👨\u200d👩\u200d👧", "👍🏽", "🇨🇭", "❤\ufe0f", "1\ufe0f\u20e3", "\U0001f9ff"),
    *("\x00", "\x07", "\x85", "\u200b", "\ufeff", "\u00ad", "\ufffd", "\ue000", "▁", "▁a", "Ġ", "##a"),
    *("<mask>", "<m", "ask>", "new york", "New", "York", "[X]", "[", "X]", "  [X]", "[X]  ", "wo", "word", "rd"),
]  # fmt: skip
WORDS = [
    *(
        "bike ride",
        " I",
        " said\nshe",
        " 12 a",
        ", ride",
        "a b c",
        " 我每天\n我",
        "骑，自行车",
        " naïve",
        " wo",
        "\nword",
    )
]
TEXTS = st.lists(st.sampled_from([*PARTS, *WORDS * 8]), min_size=1, max_size=250).map("".join)

NORMALIZERS: dict[str, Any] = {
    "none": None,
    "bert": normalizers.BertNormalizer(),
    "bert, cased": normalizers.BertNormalizer(lowercase=False),
    "nfc": normalizers.NFC(),
    "nfkc, lowercase, strip accents": normalizers.Sequence(
        [normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents()]
    ),
    "sentencepiece": normalizers.Sequence(
        [
            normalizers.Nmt(),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace("``", '"'),
            normalizers.Strip(left=True, right=True),
        ]
    ),
    "clip": normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
    "gemma": normalizers.Replace(" ", "▁"),
}


def split(pattern: Any, behavior: str = "isolated", invert: bool = False) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def then_bytes(*before: Any) -> Any:
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE_TOKENIZERS: dict[str, Any] = {
    "bert": pre_tokenizers.BertPreTokenizer(),
    "whitespace": pre_tokenizers.Whitespace(),
    "whitespace, digits, punctuation": pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True), pre_tokenizers.Punctuation()]
    ),
    "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "bytes with a prefix": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "gpt-2": then_bytes(split(GPT2)),
    "gpt-4": then_bytes(split(GPT4, "removed", True)),
    "gpt-4o": then_bytes(split(GPT4O)),
    "deepseek": then_bytes(split(r"\p{N}{1,3}"), split(DEEPSEEK)),
    "falcon": pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(), pre_tokenizers.Digits()]
    ),
    "metaspace": pre_tokenizers.Metaspace(),
    "metaspace, first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "metaspace, never": pre_tokenizers.Metaspace(prepend_scheme="never"),
    "t5": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    "metaspace, unsplit": pre_tokenizers.Metaspace(split=False),
    "spaces": pre_tokenizers.Split(" ", "merged_with_next"),
    "spaces before": pre_tokenizers.Split(" ", "merged_with_previous"),
    "delimiter": pre_tokenizers.CharDelimiterSplit(" "),
}
ADDED: dict[str, list[AddedToken]] = {
    "no tokens": [],
    "tokens": [
        AddedToken("<mask>", lstrip=True, normalized=False),
        AddedToken("New York", normalized=True),
        AddedToken("[X]", lstrip=True, rstrip=True, normalized=True),
        AddedToken("word", single_word=True, normalized=False),
    ],
    "runs": [AddedToken("  ", normalized=True), AddedToken("\n\n", normalized=False), AddedToken("  \n")],
}
COMBINED = [
    (normalizer, pre_tokenizer, added)
    for number, pre_tokenizer in enumerate(PRE_TOKENIZERS)
    for normalizer, added in [
        (list(NORMALIZERS)[number % len(NORMALIZERS)], "tokens"),
        (list(NORMALIZERS)[(3 * number + 1) % len(NORMALIZERS)], "no tokens"),
        ("none", "runs"),
    ]
]


@functools.cache
def trained(normalizer: str, pre_tokenizer: str, added: str, model: str) -> Tokenizer:
    """Train a small tokenizer on the parts, so that many tokens go across their borders."""
    kinds: dict[str, Any] = {
        "BPE": (models.BPE(), trainers.BpeTrainer(vocab_size=900, show_progress=False)),
        "Unigram": (
            models.Unigram(),
            trainers.UnigramTrainer(vocab_size=300, unk_token="?", special_tokens=["?"], show_progress=False),
        ),
    }
    empty, trainer = kinds[model]
    tokenizer = Tokenizer(empty)
    tokenizer.normalizer = NORMALIZERS[normalizer]
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer]
    texts = ["".join(PARTS[i::step]) + " ".join(PARTS[i::step]) for step in range(1, 9) for i in range(step)]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(ADDED[added])
    return tokenizer


def ids(tokenizer: Tokenizer, *texts: str) -> list[int]:
    return [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).ids]


@for_each("model", ["BPE", "Unigram"])
@for_each(("normalizer", "pre_tokenizer", "added"), COMBINED)
@settings(deadline=None, max_examples=12)
@given(TEXTS, st.integers(1, 40))
def test_the_ids_of_the_pieces_are_those_of_the_whole(
    normalizer: str, pre_tokenizer: str, added: str, model: str, text: str, size: int
) -> None:
    tokenizer = trained(normalizer, pre_tokenizer, added, model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_posenc.tokenization.pieces.SEARCHED", 40)
        pieces = list(Pieces(tokenizer).of(text, size))
    assert "".join(pieces) == text
    assert all(len(piece) >= size for piece in pieces[:-1])
    assert ids(tokenizer, *pieces) == ids(tokenizer, text)


def with_model(model: Any, normalizer: Any = None, pre_tokenizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer or pre_tokenizers.Whitespace()
    return tokenizer


WORDS_ONLY = models.WordLevel({"?": 0, "ride": 1}, unk_token="?")
FAR = pre_tokenizers.Sequence([split(r'"[^"]*"'), pre_tokenizers.Whitespace()])


@for_each(
    ("tokenizer", "reason"),
    [
        (Tokenizer(WORDS_ONLY), "it has no pre-tokenizer"),
        (with_model(models.BPE(dropout=0.1)), "its tokens are drawn at random"),
        (with_model(WORDS_ONLY, normalizers.Prepend("▁")), "its normalizer Prepend may look far"),
        (with_model(WORDS_ONLY, normalizers.Replace(Regex("a.*b"), "c")), "its normalizer Replace may look far"),
        (with_model(WORDS_ONLY, normalizers.Replace("b a b", "c")), "its normalizer Replace may look far"),
        (with_model(WORDS_ONLY, normalizers.Replace(Regex(r"\d"), "")), "its normalizer Replace may look far"),
        (with_model(WORDS_ONLY, None, FAR), "its pre-tokenizer Split may look far"),
        (with_model(WORDS_ONLY, None, split("..")), "its pre-tokenizer Split may look far"),
        (with_model(WORDS_ONLY, None, pre_tokenizers.UnicodeScripts()), "its pre-tokenizer UnicodeScripts may look"),
        (with_model(WORDS_ONLY, None, pre_tokenizers.FixedLength(5)), "its pre-tokenizer FixedLength may look far"),
        (with_model(WORDS_ONLY, None, then_bytes(pre_tokenizers.ByteLevel(), split(GPT2))), "Split may look far"),
    ],
)
def test_a_tokenizer_that_may_look_far_reads_texts_whole(tokenizer: Tokenizer, reason: str) -> None:
    pieces = Pieces(tokenizer)
    assert reason in str(pieces.reason)
    assert list(pieces.of("I ride bike, she said. " * 10, 5)) == ["I ride bike, she said. " * 10]


def test_a_text_without_a_place_to_cut_is_read_whole_from_there_on() -> None:
    tokenizer = trained("none", "metaspace", "no tokens", "BPE")
    text = "I ride bike " * 5 + "x" * 100_000 + " I ride" * 5
    pieces = list(Pieces(tokenizer).of(text, 30))
    assert pieces == ["I ride bike I ride bike I ride bike"[:30] + pieces[0][30:], text[len(pieces[0]) :]]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces so small that sentences are cut."""
    for module in ("encoder", "pieces"):
        monkeypatch.setattr(f"hf_posenc.tokenization.{module}.LONG_TEXT", 24)
    monkeypatch.setattr("hf_posenc.tokenization.pieces._AT_ONCE", 60)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("backend", ["tokenizers", "auto"])
@pytest.mark.parametrize("name", [slow("bert"), "byte_bpe", "unigram", "wordpiece", "word_level", "sentencepiece_bpe"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_of_long_texts_are_those_of_transformers(
    name: str, side: str, backend: Any, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    tokenizer.truncation_side = side
    draw = random.Random(name + side)
    texts = ["".join(draw.choices([*PARTS, *WORDS * 8], k=draw.randrange(100))) for _ in range(30)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = tokenizer(texts)["input_ids"]
        cut = {"truncation": True, "max_length": 9}
        truncated = tokenizer(texts, **cut)["input_ids"]
        overflowing = tokenizer(texts, **cut, stride=2, return_overflowing_tokens=True)["input_ids"]
        pairs = tokenizer(texts, texts[::-1])["input_ids"]

    def rows(limits: Limits, *given: list[str]) -> Documents:
        return Encoder(private_copy(tokenizer), limits, backend=backend).tokenize(*given)

    assert [row.tolist() for row in rows(Limits(), texts).ids] == whole
    assert [row.tolist() for row in rows(Limits(9), texts).ids] == truncated
    assert rows(Limits(9), texts).truncated == sum(len(row) > 9 for row in whole)
    assert [row.tolist() for row in rows(Limits(9, overflow=True, stride=2), texts).ids] == overflowing
    assert [row.tolist() for row in rows(Limits(), texts, texts[::-1]).ids] == pairs


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("backend", ["tokenizers", "auto"])
def test_a_text_is_read_only_until_it_has_more_tokens_than_it_keeps(wordpiece: Any, backend: Any) -> None:
    encoder = Encoder(private_copy(wordpiece), Limits(20), backend=backend)
    assert encoder.backend is not None
    tokenize, read = encoder.backend.tokenize, []

    def watched(texts: list[str]) -> Any:
        read.extend(texts)
        return tokenize(texts)

    encoder.backend.tokenize = watched
    rows = encoder.tokenize(["I ride bike, she said. " * 400, "I ride"])
    assert rows.truncated == 1
    assert rows.ids.lengths.tolist() == [20, len(wordpiece("I ride")["input_ids"])]
    assert sum(map(len, read)) < 600


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("limits", [Limits(), Limits(9)])
def test_long_lists_of_words_are_encoded_whole(wordpiece: Any, limits: Limits) -> None:
    words = ["she", "said", "I", "ride", "bike"] * 10
    given: dict[str, Any] = {} if limits.max_length is None else {"truncation": True, "max_length": limits.max_length}
    rows = Encoder(private_copy(wordpiece), limits, is_split_into_words=True).tokenize([words, ["a"]])
    assert [row.tolist() for row in rows.ids] == wordpiece([words, ["a"]], is_split_into_words=True, **given)[
        "input_ids"
    ]


def test_a_lone_surrogate_far_inside_a_long_text_is_named(wordpiece: Any) -> None:
    text = "I ride bike " * 20_000
    with pytest.raises(ValueError, match=r"row 1 contains a lone surrogate(.|\n)*character 240000"):
        Encoder(private_copy(wordpiece)).tokenize(["I", text + "\ud800" + text])
