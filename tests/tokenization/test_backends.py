"""The fast backends compared with `tokenizers`: the same ids, or an error; in threads, forked workers and pickles.

The tests of ids against `tokenizer(...)` are in `test_tokenization`, and run on every backend.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import multiprocessing
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets.fingerprint import Hasher
from looping import slow
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc.corpus import encode
from hf_posenc.tokenization import (
    DifferentIds,
    Encoder,
    FastBackend,
    TokenizersBackend,
    Unsupported,
    choose_backend,
    private_copy,
)

if importlib.util.find_spec("nanotoken") is None or importlib.util.find_spec("gigatoken") is None:
    pytest.skip("needs nanotoken and gigatoken: pip install nanotoken gigatoken", allow_module_level=True)

LIBRARIES = {"wordpiece": "nanotoken", "byte_bpe": "gigatoken", "sentencepiece_bpe": "gigatoken", "bert": "nanotoken"}
USUAL = [slow(name) if name == "bert" else name for name in LIBRARIES]  # bert is a wordpiece of 30,522 ids


@pytest.fixture(params=USUAL)
def fast(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """Each kind of tokenizer that has a fast backend."""
    tokenizer = request.getfixturevalue(request.param)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def json_of(tokenizer: Any) -> str:
    return private_copy(tokenizer).backend_tokenizer.to_str()


def different(backend: Any, texts: list[str], batch: int = 20_000) -> list[str]:
    """The texts that a backend does not encode as the Rust tokenizer does."""
    wrong = []
    for start in range(0, len(texts), batch):
        part = texts[start : start + batch]
        encodings = backend.rust.encode_batch_fast(part, add_special_tokens=False)
        rows = backend.tokenize(part)
        wrong += [text for text, row, e in zip(part, rows, encodings, strict=True) if row.tolist() != e.ids]
    return wrong


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_fast_library_is_used_and_its_name_is_logged(name: str, request: pytest.FixtureRequest, caplog) -> None:
    tokenizer = request.getfixturevalue(name)
    with caplog.at_level(logging.INFO, logger="hf_posenc"):
        encoder = Encoder(private_copy(tokenizer), backend=LIBRARIES[name])
    assert encoder.backend.name.split() == [LIBRARIES[name], importlib.metadata.version(LIBRARIES[name])]
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("hf_posenc")]
    assert logged == [f"token ids come from {encoder.backend.name}"]
    assert Encoder(private_copy(tokenizer), backend="tokenizers").backend.name.startswith("tokenizers ")


def _with_token(tokenizer: Any, **settings: Any) -> Any:
    tokenizer.add_tokens([AddedToken("foo", **settings)])
    return tokenizer


def _with_rust(tokenizer: Any, change: Callable[[Tokenizer], object]) -> Any:
    change(tokenizer.backend_tokenizer)
    return tokenizer


def _with_normalizer(tokenizer: Any, normalizer: Any) -> Any:
    return _with_rust(tokenizer, lambda rust: setattr(rust, "normalizer", normalizer))


NEVER_FAST: dict[str, tuple[str, Callable[[Any], Any], dict[str, Any], str]] = {
    "unigram": ("unigram", lambda it: it, {}, "a Unigram model"),
    "words": ("word_level", lambda it: it, {}, "a WordLevel model"),
    "dropout": ("byte_bpe", lambda it: _with_rust(it, lambda r: setattr(r.model, "dropout", 0.1)), {}, "dropout=0.1"),
    "single word": ("byte_bpe", lambda it: _with_token(it, single_word=True), {}, "'foo' with single_word=True"),
    "NFKC": ("wordpiece", lambda it: _with_normalizer(it, normalizers.NFKC()), {}, "normalizer of type NFKC"),
    "inner": (
        "byte_bpe",
        lambda it: _with_normalizer(it, normalizers.Sequence([normalizers.NFC(), normalizers.NFKC()])),
        {},
        "normalizer of type NFKC",
    ),
    "split words": ("wordpiece", lambda it: it, {"is_split_into_words": True}, "is_split_into_words=True"),
    "word ids": ("wordpiece", lambda it: it, {"word_ids": True}, "words of tokens"),
    "library": ("wordpiece", lambda it: _with_normalizer(it, normalizers.Strip()), {}, "nanotoken: unsupported"),
    "other library": (
        "byte_bpe",
        lambda it: _with_rust(it, lambda r: setattr(r, "pre_tokenizer", pre_tokenizers.UnicodeScripts())),
        {},
        "gigatoken: Unsupported pre_tokenizer",
    ),
}


@pytest.mark.parametrize("case", NEVER_FAST)
def test_what_no_fast_library_is_trusted_with_logs_one_line_or_raises(
    case: str, request: pytest.FixtureRequest, caplog
) -> None:
    name, change, options, reason = NEVER_FAST[case]
    tokenizer = private_copy(change(request.getfixturevalue(name)))
    with caplog.at_level(logging.INFO, logger="hf_posenc"):
        assert Encoder(tokenizer, **options).backend.name.startswith("tokenizers ")
    assert len(caplog.records) == 1
    assert reason in caplog.records[0].getMessage()
    with pytest.raises(ValueError, match="nanotoken cannot make the ids of this tokenizer") as refused:
        Encoder(tokenizer, backend="nanotoken", **options)
    assert reason in str(refused.value)


def test_a_tokenizer_that_splits_special_tokens_is_never_fast(wordpiece) -> None:
    wordpiece.split_special_tokens = True
    collate = DataCollatorWithPositionalEncoding(wordpiece)
    assert collate(["a [SEP] b"])["input_ids"].tolist() == [wordpiece("a [SEP] b")["input_ids"]]
    with pytest.raises(ValueError, match="split_special_tokens=True"):
        collate.replace(backend="nanotoken")


def test_the_library_of_another_kind_of_tokenizer_is_refused(wordpiece, byte_bpe) -> None:
    for tokenizer, backend, library in ((wordpiece, "gigatoken", "nanotoken"), (byte_bpe, "nanotoken", "gigatoken")):
        with pytest.raises(ValueError, match=rf"(?s){backend} cannot make the ids.*a tokenizer for {library}"):
            Encoder(private_copy(tokenizer), backend=backend)


def test_a_slow_tokenizer_has_no_fast_backend(slow) -> None:
    with pytest.raises(ValueError, match=r"(?s)ByT5Tokenizer.*in Python.*backend=\"auto\""):
        DataCollatorWithPositionalEncoding(slow, backend="nanotoken")
    with pytest.raises(ValueError, match="backend must be one of"):
        DataCollatorWithPositionalEncoding(slow, backend="fast")


@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe"])
def test_without_the_extra_the_pip_line_is_named(name: str, request: pytest.FixtureRequest, monkeypatch) -> None:
    tokenizer = _with_token(request.getfixturevalue(name), normalized=False)  # another one than in other tests
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    assert Encoder(private_copy(tokenizer)).backend.name.startswith("tokenizers ")
    with pytest.raises(ImportError, match=r'pip install "nanotoken'):
        Encoder(private_copy(tokenizer), backend=LIBRARIES[name])


def _wrong(text: str, ids: Any) -> Any:
    return ids + 1 if "unicorn" in text else ids


@pytest.fixture
def wrong_ids(monkeypatch) -> None:
    """Libraries with an error: all ids of texts about unicorns are wrong."""
    import nanotoken
    from gigatoken import Tokenizer as GigaTokenizer

    right = nanotoken.Tokenizer.encode_batch

    def batch(self: Any, texts: list[str], **options: Any) -> Any:
        rows = right(self, texts, **options)
        ids = [_wrong(text, row) for text, row in zip(texts, rows, strict=True)]
        return nanotoken.RaggedIds(np.concatenate(ids), rows.offsets)

    class Wrong:
        def __init__(self, backend: Any) -> None:
            self.backend = backend

        def encode(self, text: str) -> Any:
            return _wrong(text, self.backend.encode(text))

    monkeypatch.setattr(nanotoken.Tokenizer, "encode_batch", batch)
    monkeypatch.setattr(GigaTokenizer, "backend", property(lambda self: Wrong(self._backend)))


@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe"])
def test_a_difference_in_the_texts_tried_first_leaves_the_library_unused(
    name: str, wrong_ids, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    tokenizer.add_tokens(["unicorn"])  # added tokens are tried between letters
    assert Encoder(private_copy(tokenizer)).backend.name.startswith("tokenizers ")
    with pytest.raises(ValueError, match=r"(?s)has other ids for .*unicorn"):
        Encoder(private_copy(tokenizer), backend=LIBRARIES[name])


@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe"])
def test_a_difference_while_in_use_raises_with_the_text_and_the_fix(
    name: str, wrong_ids, request: pytest.FixtureRequest
) -> None:
    tokenizer = _with_token(request.getfixturevalue(name), special=True)  # another one than in other tests
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    collate = DataCollatorWithPositionalEncoding(tokenizer, look_ahead=False)
    collate(["about horses"] * 5_000)
    with pytest.raises(DifferentIds, match=r"(?s)other token ids than tokenizers.*unicorn.*backend=\"tokenizers\""):
        collate([f"about unicorn {n}" for n in range(5_000)])
    collate.replace(backend="tokenizers")(["about unicorns"] * 5_000)


def test_a_difference_stops_a_job_that_skips_bad_rows(wordpiece, wrong_ids, tmp_path: Path) -> None:
    tokenizer = _with_token(wordpiece, lstrip=True)
    (tmp_path / "corpus.txt").write_text("about a unicorn\n" * 9_000)
    settings: dict[str, Any] = {"workers": 0, "progress": False}
    with pytest.raises(DifferentIds):
        encode(tmp_path / "corpus.txt", tokenizer, tmp_path / "out", on_bad_row="skip", **settings)
    made = encode(tmp_path / "corpus.txt", tokenizer, tmp_path / "out", backend="tokenizers", **settings)
    assert made.totals["documents"] == 9_000


def test_the_backend_is_no_part_of_a_job_and_its_shards(byte_bpe, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("I ride bike\nbike ride I, she said\n")
    for backend in ("gigatoken", "tokenizers"):
        encode(tmp_path / "corpus.txt", byte_bpe, tmp_path / backend, workers=0, backend=backend, progress=False)
    fast, slow = (
        {path.name: path.read_bytes() for path in (tmp_path / backend).rglob("[!.]*.*")}
        for backend in ("gigatoken", "tokenizers")
    )
    assert fast == slow


def test_which_texts_are_compared_is_the_same_in_every_run(wordpiece, sentences, monkeypatch) -> None:
    backend = FastBackend(json_of(wordpiece), interval=7)
    compared: list[list[str]] = []
    reference = TokenizersBackend.tokenize
    monkeypatch.setattr(TokenizersBackend, "tokenize", lambda self, it: (compared.append(it), reference(self, it))[1])
    batches = [sentences[start : start + 5] for start in range(0, 100, 5)]
    for _ in range(2):
        for batch in batches:
            backend.tokenize(batch)
    runs = compared[: len(compared) // 2], compared[len(compared) // 2 :]
    assert runs[0] == runs[1]
    assert 5 < sum(map(len, runs[0])) < 30  # 100 texts, one in 7


def _backend_with(tokenizer: Any, *tokens: AddedToken, normalizer: Any = None) -> FastBackend:
    if normalizer is not None:
        tokenizer.backend_tokenizer.normalizer = normalizer
    tokenizer.add_tokens(list(tokens))
    return FastBackend(json_of(tokenizer), interval=1 << 40)


def _slow(backend: FastBackend, texts: list[str], monkeypatch) -> list[str]:
    """The texts that `backend` leaves to `tokenizers`."""
    slow: list[str] = []
    tokenize = backend._reference.tokenize
    with monkeypatch.context() as patched:
        patched.setattr(backend._reference, "tokenize", lambda it: (slow.extend(it), tokenize(it))[1])
        backend.tokenize(texts)
    return slow


def test_added_tokens_are_found_in_decomposed_text_where_a_normalizer_composes_it(byte_bpe, monkeypatch) -> None:
    backend = _backend_with(byte_bpe, AddedToken("café"), AddedToken("cafe"), normalizer=normalizers.NFC())
    composed = ["a café", "a cafe", "naïve Straße", "हिन्दी", "我每天骑自行车", "café\u0301", "plain"]
    decomposed = ["a cafe\u0301", "cafe\u0327\u0301s"]
    assert different(backend, composed + decomposed) == []
    assert _slow(backend, composed, monkeypatch) == []  # no slower where nothing is composed
    assert _slow(backend, ["nai\u0308ve", *decomposed], monkeypatch) == decomposed


def test_added_tokens_that_are_decomposed_are_found_in_composed_text(byte_bpe) -> None:
    backend = _backend_with(byte_bpe, AddedToken("cafe\u0301"), normalizer=normalizers.NFC())
    assert different(backend, ["a café", "cafe\u0301", "cafe"]) == []


def test_marks_of_newer_versions_of_unicode_are_composed_as_in_tokenizers(byte_bpe) -> None:
    backend = _backend_with(byte_bpe, normalizer=normalizers.NFC())
    marks = [0x5C8, 0x897, 0xC3C, 0xD3B, 0x1ACF, 0x10EFD, 0x113C2, 0x1611E, 0x16D67, 0x1E6E3]
    assert different(backend, [f"q\u0301{mark}\u0323 {mark}{mark}" for mark in map(chr, marks)]) == []


@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe", "sentencepiece_bpe"])
def test_spaces_between_added_tokens_belong_to_the_same_token_as_in_tokenizers(
    name: str, request: pytest.FixtureRequest, monkeypatch
) -> None:
    tokens = [AddedToken("<r>", rstrip=True), AddedToken("<l>", lstrip=True), AddedToken("   "), AddedToken("<x>")]
    backend = _backend_with(request.getfixturevalue(name), *tokens)
    beside = ["<r>   a", "<r> <l>", "a   <l>", "<r>    <l>", "<r><l>", "<r>  <x>   <l>"]
    assert different(backend, beside) == []
    assert _slow(backend, [*beside, "a <r> b", "a <l> b", "<x> a"], monkeypatch) == beside


def test_an_added_token_that_normalizes_to_nothing_is_never_fast(wordpiece) -> None:
    with pytest.raises(Unsupported, match="an added token that its normalizer makes empty"):
        _backend_with(wordpiece, AddedToken("\x01"), normalizer=normalizers.BertNormalizer())


def test_the_share_of_texts_that_tokenizers_encodes_is_logged_once(byte_bpe, caplog) -> None:
    backend = _backend_with(byte_bpe, AddedToken("café"), normalizer=normalizers.NFC())
    with caplog.at_level(logging.INFO, logger="hf_posenc"):
        for _ in range(5):
            backend.tokenize(["plain"] * 3_000 + ["cafe\u0301"] * 1_000)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "25.0 % of the texts are encoded by tokenizers" in caplog.text


def test_a_tokenizer_is_loaded_anew_after_many_tokens(byte_bpe, sentences, monkeypatch) -> None:
    from gigatoken import Tokenizer as GigaTokenizer

    loaded: list[str] = []
    load = GigaTokenizer.from_json
    monkeypatch.setattr(GigaTokenizer, "from_json", lambda text: (loaded.append(text), load(text))[1])
    backend = FastBackend(json_of(byte_bpe), most_tokens=100)
    texts = sentences[:20]
    want = backend.tokenize(texts).values.tolist()
    for _ in range(3):
        assert backend.tokenize(texts).values.tolist() == want
    assert len(loaded) == 4


class _Texts(torch.utils.data.Dataset[str]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> str:
        return f"I ride bike number {index}, she said {index % 7}"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(multiprocessing, "get_context") or sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe"])
def test_workers_forked_while_the_parent_encodes_finish(name: str, request: pytest.FixtureRequest) -> None:
    """A lock that another thread held during the fork would never be released in the child."""
    tokenizer = request.getfixturevalue(name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    collate = DataCollatorWithPositionalEncoding(tokenizer, look_ahead=False, backend=LIBRARIES[name])
    want = [collate([_Texts()[i] for i in range(start, start + 8)])["input_ids"] for start in range(0, 64, 8)]
    stop = threading.Event()

    def busy() -> None:
        draw = random.Random(0)
        while not stop.is_set():
            collate([f"{draw.random()} " * 5 for _ in range(20)])

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            loader = torch.utils.data.DataLoader(
                _Texts(), batch_size=8, num_workers=2, collate_fn=collate, multiprocessing_context="fork", timeout=180
            )
            for batch, right in zip(loader, want, strict=True):
                assert torch.equal(batch["input_ids"], right)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_pickle_keeps_the_choice_of_the_backend_and_a_fingerprint_does_not(byte_bpe) -> None:
    byte_bpe.pad_token = byte_bpe.eos_token
    collates = [
        DataCollatorWithPositionalEncoding(byte_bpe, backend=each) for each in ("auto", "gigatoken", "tokenizers")
    ]
    assert len({Hasher.hash(collate) for collate in collates}) == 1
    assert len({hash(collate) for collate in collates}) == 1
    for collate in collates:
        again = pickle.loads(pickle.dumps(collate))
        assert again.backend == collate.backend
        assert again(["I ride bike"])["input_ids"].tolist() == collate(["I ride bike"])["input_ids"].tolist()
    assert b"gigatoken" not in pickle.dumps(collates[0])
    assert collates[2].replace(seed=3).backend == "tokenizers"


def test_a_saved_collator_names_no_backend_because_another_machine_may_have_none(wordpiece, tmp_path: Path) -> None:
    DataCollatorWithPositionalEncoding(wordpiece, backend="nanotoken").save_pretrained(tmp_path)
    assert "backend" not in json.loads((tmp_path / "hf_posenc.json").read_text())
    assert DataCollatorWithPositionalEncoding.from_pretrained(tmp_path).backend == "auto"


def _code_points() -> list[str]:
    """All characters of the planes that have letters or signs, and some of the planes without any."""
    planes = (range(0xD800), range(0xE000, 0x40000), range(0x40000, 0xE0000, 997), range(0xE0000, 0xE1000))
    return [chr(code) for codes in (*planes, range(0xE1000, 0x110000, 997)) for code in codes]


def test_characters_of_all_blocks_alone_and_between_letters(fast) -> None:
    characters = _code_points()[::997] + [chr(code) for code in range(0x500)]
    backend = choose_backend(json_of(fast))
    assert different(backend, [*characters, *(f"a{each}b" for each in characters)]) == []


@pytest.mark.slow
def test_every_character_alone_and_between_letters(fast) -> None:
    backend = choose_backend(json_of(fast))
    assert different(backend, _code_points()) == []
    assert different(backend, [f"a{each}b" for each in _code_points()]) == []
    assert different(backend, [f"{each}'s" for each in _code_points()]) == []


def test_letters_of_unicode_17_have_the_ids_of_tokenizers(byte_bpe) -> None:
    backend = choose_backend(json_of(byte_bpe), "gigatoken")
    letters = [
        chr(code) for code in (0x88F, 0xA7CE, 0xA7F1, 0x10940, 0x16EBB, 0x18D80, 0x1E6C0, 0x2B73A, 0x323B0, 0x33479)
    ]
    assert (
        different(backend, [*(f"{each}'s" for each in letters), *(f"né {each}1 {each}é's" for each in letters)]) == []
    )


def _random_texts(number: int, seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    every = _code_points()
    common = [*map(chr, range(32, 127))] * 8 + [*map(chr, range(0xA0, 0x3100, 7)), *"\n\t \r"]
    words = ["[CLS]", "[SEP]", "<s>", "</s>", "<|endoftext|>", "<0x41>", "'s", "don't", "I'LL", "  ", "\r\n", "12345"]
    for _ in range(number):
        pieces = (
            draw.choice(words)
            if draw.random() < 0.1
            else "".join(draw.choices(every if draw.random() < 0.05 else common, k=draw.randrange(1, 6)))
            for _ in range(draw.randrange(1, 8))
        )
        yield "".join(pieces)


@pytest.mark.parametrize("number", [2_000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_random_texts(fast, number: int) -> None:
    backend = choose_backend(json_of(fast))
    assert different(backend, list(_random_texts(number, seed=number))) == []


def test_words_of_the_vocabulary_may_have_the_names_of_parts_of_the_file() -> None:
    words = ["[UNK]", "padding", "truncation", "post", "_", "processor", "post_processor", '"post_processor"', "{"]
    rust = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.enable_padding()
    rust.post_processor = processors.TemplateProcessing("post $A", "post $A $B", [("post", 3)])
    text = "padding truncation post_processor"
    for sort in (False, True):  # with "model" before "padding", and behind it
        content = json.dumps(json.loads(rust.to_str()), sort_keys=sort, indent=2)
        assert FastBackend(content).tokenize([text]).values.tolist() == [1, 2, 6]
