"""All uses of the Rust library `tokenizers`: token ids, parts and copies of its tokenizers, and training of a BPE.

Other modules pass its tokenizers on, and never call them. Each function takes a `tokenizers.Tokenizer`, or a fast
tokenizer of transformers, which holds one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .._common.errors import counted, shorten, value_error
from ..ragged import Ragged

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

    FastTokenizer: TypeAlias = Tokenizer | PreTrainedTokenizerBase

RustTokenizer: TypeAlias = Tokenizer
# Above the largest id of known tokenizers, 1,114,111 in CANINE. To copy or save a vocabulary, the library goes through
# all numbers up to the largest id: up to this limit it takes 64 MB, for an id of 4 billion all memory.
_LARGEST_ID = 2**24
# A forked child inherits Rust's thread pool without its threads, and a batch call would wait for them forever.
_IMPORTED_IN = os.getpid()
# Attribute of a Rust tokenizer with the text that it was loaded from, if several of its tokens have the same id.
_JSON = "_hf_posenc_json"


class TokenizersBackend:
    r"""Encoder from texts to token ids with the `tokenizers` library, without special tokens, truncation or padding.

    Special tokens in a text are ordinary text with `split_special_tokens`; with `is_split_into_words`, each text is a
    list of words.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> TokenizersBackend(raw.to_str()).tokenize(["I ride", "ride"]).pad(0)
        array([[1, 2],
               [2, 0]])
    """

    def __init__(self, json: str, *, split_special_tokens: bool = False, is_split_into_words: bool = False) -> None:
        self.name = f"tokenizers {version('tokenizers')}"
        self.rust = _rust_from(json)
        remove_state(self.rust)
        self.rust.encode_special_tokens = split_special_tokens  # this setting is not stored in the JSON
        self._is_split_into_words = is_split_into_words

    def tokenize(self, texts: Sequence[Any]) -> Ragged:
        """Return the token ids of each text, as a `Ragged` of int64."""
        # `tokenizer(texts)` takes five to nine times as long for the same ids, mostly to flatten lists in Python.
        return ragged_ids([encoding.ids for encoding in self._encodings(texts, "encode_batch_fast")])

    def tokenize_with_words(self, texts: Sequence[Any]) -> tuple[Ragged, Ragged]:
        """Return the token ids of each text, and for each token the index of its word (-1 if it has no word)."""
        encodings = self._encodings(texts, "encode_batch")  # the fast call returns no words
        words = [[-1 if word is None else word for word in encoding.word_ids] for encoding in encodings]
        return ragged_ids([encoding.ids for encoding in encodings]), ragged_ids(words)

    def _encodings(self, texts: Sequence[Any], method: str) -> list[Encoding]:
        call = getattr(self.rust, method)
        options = {"is_pretokenized": self._is_split_into_words, "add_special_tokens": False}
        if os.getpid() != _IMPORTED_IN:
            return [call([text], **options)[0] for text in texts]
        return list(call(list(texts), **options))


# ------------------------------------------------------------------------------------------------ parts of a tokenizer


def part_of(tokenizer: FastTokenizer) -> RustTokenizer:
    """Return the Rust tokenizer of a fast tokenizer; a Rust or slow tokenizer is returned as it is."""
    rust: RustTokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return rust


def steps(tokenizer: FastTokenizer, part: str) -> list[dict[str, Any]]:
    """Return the steps of the `"normalizer"`, `"pre_tokenizer"` or `"post_processor"`, as in `tokenizer.json`."""
    component = getattr(part_of(tokenizer), part)
    return list(steps_in(None if component is None else json.loads(component.__getstate__())))


def steps_in(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the steps of a part of a parsed `tokenizer.json`: those of a `Sequence`, or the part itself."""
    if part is not None and part["type"] == "Sequence":
        for name in ("normalizers", "pretokenizers", "processors"):
            for step in part.get(name, ()):
                yield from steps_in(step)
    elif part is not None:
        yield part


def normalize(tokenizer: FastTokenizer, text: str) -> str:
    """Return a text as the tokenizer's normalizer changes it."""
    normalizer = part_of(tokenizer).normalizer
    return text if normalizer is None else str(normalizer.normalize_str(text))


def split_words(tokenizer: FastTokenizer, text: str) -> list[str]:
    """Return the words into which a tokenizer splits a normalized text, before its model splits them into tokens."""
    splitter, text = part_of(tokenizer).pre_tokenizer, normalize(tokenizer, text)
    return [text] if splitter is None else [word for word, _ in splitter.pre_tokenize_str(text)]


def encode_text(tokenizer: FastTokenizer, text: str) -> tuple[list[int], list[int | None], list[tuple[int, int]]]:
    """Return the id, the word number, and the start and stop of each token of a text, without special tokens."""
    encoding = part_of(tokenizer).encode(text, add_special_tokens=False)
    return encoding.ids, encoding.word_ids, encoding.offsets


def added_tokens(tokenizer: FastTokenizer) -> list[tuple[int, str, bool]]:
    """Return the id and the content of each added token, and True if it is searched for in normalized text."""
    found = part_of(tokenizer).get_added_tokens_decoder()
    return [(number, token.content, token.normalized) for number, token in found.items()]


def has_token(tokenizer: FastTokenizer, token: str) -> bool:
    """Return True if a token is in the vocabulary."""
    return part_of(tokenizer).token_to_id(token) is not None


def number_of_tokens(tokenizer: PreTrainedTokenizerBase | RustTokenizer) -> int:
    """Return the size of the vocabulary, added tokens included."""
    return tokenizer.get_vocab_size() if isinstance(tokenizer, RustTokenizer) else len(tokenizer)


def padding_token(tokenizer: FastTokenizer) -> str | None:
    """Return the token with which the tokenizer itself pads; `None` if it does not."""
    token: str | None = (part_of(tokenizer).padding or {}).get("pad_token")
    return token


def dropout(tokenizer: FastTokenizer) -> float | None:
    """Return the share of merges that a BPE leaves out at random; `None` for other models."""
    share: float | None = getattr(part_of(tokenizer).model, "dropout", None)
    return share


def vocabulary_of(tokenizer: FastTokenizer) -> dict[str, int]:
    """Return the vocabulary, added tokens included; raise `ValueError` if a copy of it would need too much memory."""
    vocabulary = part_of(tokenizer).get_vocab()
    largest = max(vocabulary.values(), default=0)
    if largest > _LARGEST_ID and largest > 2 * len(vocabulary):
        raise value_error(
            f"the largest id of a tokenizer must be at most {_LARGEST_ID:,}, or twice the size of its vocabulary",
            got=f"id {largest:,} of {shorten(max(vocabulary, key=vocabulary.__getitem__))}, "
            f"in a vocabulary of {len(vocabulary):,} tokens",
            fix="correct the id in tokenizer.json, or number the tokens from 0",
        )
    return vocabulary


def remove_state(tokenizer: FastTokenizer) -> None:
    """Turn off the padding and truncation of a tokenizer, which its file or an earlier call may have turned on."""
    # The file of all-MiniLM, for one, truncates to 128 tokens.
    rust = part_of(tokenizer)
    rust.no_padding()
    rust.no_truncation()


# ---------------------------------------------------------------------------------------------------- files and copies


def _rust_from(text: str) -> RustTokenizer:
    """Load a Rust tokenizer from the content of a `tokenizer.json`, with exactly the Unigram scores in it."""
    rust = RustTokenizer.from_str(text)
    copy_scores(text, rust)
    return rust


def copy_scores(text: str, tokenizer: FastTokenizer) -> None:
    """Set the token scores of the Unigram model of a tokenizer to exactly those in the JSON `text`.

    Rust's JSON parser rounds some of them. A tokenizer with another model is not changed.
    """
    rust = part_of(tokenizer)
    if isinstance(rust.model, models.Unigram):
        model = json.loads(text)["model"]
        model["vocab"] = [tuple(entry) for entry in model["vocab"]]
        rust.model = models.Unigram(**{name: value for name, value in model.items() if name != "type"})


def copy_of(tokenizer: FastTokenizer, read_original: Callable[[], str | None] = lambda: None) -> RustTokenizer:
    r"""Return a copy of a Rust tokenizer that gives the same ids.

    `Tokenizer.to_str`, which `copy.deepcopy` and pickling call, writes one token for each id. If several tokens share
    an id, this function adds the others, and turns padding and truncation off. If such tokens are merged, it needs the
    merges of the file that the tokenizer was loaded from; `read_original` returns its content, or `None` if it is
    unknown. `to_json` returns the content of the copy. Raise `ValueError` if tokens share an id, and the ids would
    differ.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> raw = Tokenizer(models.WordLevel({"colour": 0, "color": 0, "hi": 1}, unk_token="hi"))
        >>> copy_of(raw).get_vocab() == raw.get_vocab()
        True
    """
    # `PreTrainedTokenizerFast(tokenizer_object=...)` copies in the same way.
    rust = part_of(tokenizer)
    text, is_sharing = rust.to_str(), sharing_tokens(vocabulary_of(rust))
    vocabulary = rust.get_vocab(with_added_tokens=False) if is_sharing else {}
    shared = sharing_tokens(vocabulary)
    if not shared:
        return _rust_from(text)
    content = {**json.loads(text), "padding": None, "truncation": None}
    original = json.loads(vars(rust).get(_JSON) or read_original() or "{}")
    model = content["model"]
    model["vocab"] = dict(sorted(vocabulary.items(), key=lambda entry: (entry[1], entry[0])))
    doubtful = set(chain.from_iterable(shared.values()))
    if any(not doubtful.isdisjoint(merge) for merge in model.get("merges", ())):
        model["merges"] = None  # they name one of the tokens of an id at random
    # Only the file has all added tokens, if some of them share an id; but `rust` may have been changed since.
    tokens_of_file = {name: original[name] for name in ("added_tokens", "model") if name in original}
    for candidate in (content, {**content, **tokens_of_file}):
        if _has_equal_ids(rust, candidate, shared):
            return load_json(json.dumps(candidate, ensure_ascii=False, indent=2))
    number, tokens = next(iter(shared.items()))
    raise value_error(
        f"tokens {tokens[0]!r} and {tokens[1]!r} have the same id {number}, and a copy of this tokenizer would "
        "give other ids",
        got=counted(len(shared), "id") + " of several tokens",
        fix="pass the tokenizer's name or folder instead of the object; or give each token an id of its own in "
        "tokenizer.json",
    )


def load_json(text: str) -> RustTokenizer:
    """Load a Rust tokenizer as `_rust_from` does, for which `to_json` returns all tokens of `text`."""
    rust = _rust_from(text)
    if sharing_tokens(rust.get_vocab(with_added_tokens=False)):
        vars(rust)[_JSON] = text  # `to_str` would leave tokens out
    return rust


def to_json(tokenizer: FastTokenizer, *, pretty: bool = False) -> str:
    """Return the content of a `tokenizer.json` for a result of `copy_of` or `load_json`."""
    rust = part_of(tokenizer)
    text: str = vars(rust).get(_JSON) or rust.to_str(pretty=pretty)
    return text


def sharing_tokens(vocabulary: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the tokens of each id that several tokens of a vocabulary share."""
    if len(set(vocabulary.values())) == len(vocabulary):
        return {}
    tokens: dict[int, list[str]] = {}
    for token, number in sorted(vocabulary.items()):
        tokens.setdefault(number, []).append(token)
    return {number: names for number, names in tokens.items() if len(names) > 1}


def _has_equal_ids(rust: RustTokenizer, content: Mapping[str, Any], shared: Mapping[int, list[str]]) -> bool:
    """Return True if a tokenizer loaded from `content` gives the ids of `rust` for the tokens that share ids."""
    try:
        tokenizer = RustTokenizer.from_str(json.dumps(content))
    except Exception:  # such as a merge of tokens that are not in the vocabulary
        return False
    tokenizer.encode_special_tokens = rust.encode_special_tokens
    texts = [form for tokens in shared.values() for token in tokens for form in (token, f"a{token}b", f" {token} ")]
    is_random = bool(content["model"].get("dropout"))
    return tokenizer.get_vocab() == rust.get_vocab() and (
        is_random or [_ids_or_none(tokenizer, text) for text in texts] == [_ids_or_none(rust, text) for text in texts]
    )


def _ids_or_none(rust: RustTokenizer, text: str) -> list[int] | None:
    try:
        return encode_text(rust, text)[0]
    except BaseException as error:
        if not is_from_rust(error):
            raise
        return None


def is_from_rust(error: BaseException) -> bool:
    """Return True for errors that may come from Rust code: every `Exception`, and a `PanicException` of Rust."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def ragged_ids(rows: Sequence[Sequence[int]]) -> Ragged:
    """Convert lists of Python integers, such as the token ids of each row, to a `Ragged` of int64."""
    lengths = list(map(len, rows))
    values = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=sum(lengths))
    return Ragged(values, np.array(lengths, dtype=np.int64))


# ------------------------------------------------------------------------------------------------------------ training


def untrained_bpe(byte_level: bool, unknown: str | None = None) -> RustTokenizer:
    """Return a BPE without tokens: with `byte_level` it splits texts into words as GPT-2 does, otherwise at spaces."""
    rust = RustTokenizer(models.BPE(unk_token=unknown))
    # add_prefix_space=True would add a space before the text that decoding does not remove.
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else pre_tokenizers.Metaspace()
    rust.decoder = decoders.ByteLevel() if byte_level else decoders.Metaspace()
    return rust


def train(rust: RustTokenizer, texts: Iterator[str], length: int | None, *, byte_level: bool, **settings: Any) -> None:
    """Train an `untrained_bpe` on texts; `length` is their number, for the progress bar, if it is known."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if byte_level else []
    rust.train_from_iterator(texts, trainers.BpeTrainer(initial_alphabet=alphabet, **settings), length=length)


def add_template(rust: RustTokenizer, single: list[str], pair: list[str], special_tokens: Sequence[str]) -> None:
    """Make a tokenizer add special tokens to a text, as in `single`, and to a pair of texts, as in `pair`."""
    numbers = [(token, rust.token_to_id(token)) for token in special_tokens]
    rust.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=numbers)
