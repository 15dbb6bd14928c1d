"""Calls of the Rust library `tokenizers`: token ids of texts, and copies of tokenizers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.errors import counted, value_error
from ..ragged import Ragged

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

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
        self.rust = rust_from(json)
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


def rust_from(text: str) -> Tokenizer:
    """Load a `tokenizers.Tokenizer` from the content of a `tokenizer.json`, with exactly the Unigram scores in it."""
    from tokenizers import Tokenizer

    rust = Tokenizer.from_str(text)
    copy_scores(text, rust)
    return rust


def copy_scores(text: str, rust: Tokenizer) -> None:
    """Set the token scores of the Unigram model of `rust` to exactly those in the JSON `text`.

    Rust's JSON parser rounds some of them. A tokenizer with another model is not changed.
    """
    from tokenizers import models

    if isinstance(rust.model, models.Unigram):
        model = json.loads(text)["model"]
        model["vocab"] = [tuple(entry) for entry in model["vocab"]]
        rust.model = models.Unigram(**{name: value for name, value in model.items() if name != "type"})


def copy_of(
    rust: Tokenizer, vocabulary: Mapping[str, int], read_original: Callable[[], str | None] = lambda: None
) -> Tokenizer:
    r"""Return a copy of a Rust tokenizer, with the `vocabulary` of `rust.get_vocab()`, that gives the same ids.

    `Tokenizer.to_str`, which `copy.deepcopy` and pickling call, writes one token for each id. If several tokens share
    an id, this function adds the others, and turns padding and truncation off. The names of the tokens in merges are
    taken from the file that `rust` was loaded from; `read_original` returns its content, or `None` if it is unknown.
    `to_json` returns the content of the copy. Raise `ValueError` if tokens share an id, and the ids would differ.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> raw = Tokenizer(models.WordLevel({"colour": 0, "color": 0, "hi": 1}, unk_token="hi"))
        >>> copy_of(raw, raw.get_vocab()).get_vocab() == raw.get_vocab()
        True
    """
    # `PreTrainedTokenizerFast(tokenizer_object=...)` copies in the same way.
    text = rust.to_str()
    model_vocabulary = rust.get_vocab(with_added_tokens=False) if sharing_tokens(vocabulary) else {}
    shared = sharing_tokens(model_vocabulary)
    if not shared:
        return rust_from(text)
    content = json.loads(text)
    model = content["model"]
    model["vocab"] = dict(sorted(model_vocabulary.items(), key=lambda entry: (entry[1], entry[0])))
    if "merges" in model:
        original = json.loads(vars(rust).get(_JSON) or read_original() or "{}").get("model", {}).get("merges", ())
        prefix = len(model["continuing_subword_prefix"] or "")
        model["merges"] = _named_merges(model["merges"], original, model_vocabulary, prefix)
    if not _has_equal_ids(rust, content, shared):
        if (result := _from_original(rust, content, vars(rust).get(_JSON) or read_original())) is not None:
            return result
        number, tokens = next(iter(shared.items()))
        raise value_error(
            f"tokens {tokens[0]!r} and {tokens[1]!r} have the same id {number}, and a copy of this tokenizer would "
            "give other ids",
            got=counted(len(shared), "id") + " of several tokens",
            fix="pass the tokenizer's name or folder instead of the object; or give each token an id of its own in "
            "tokenizer.json",
        )
    return rust_from_file(json.dumps({**content, "padding": None, "truncation": None}, ensure_ascii=False, indent=2))


def _from_original(rust: Tokenizer, content: Mapping[str, Any], original: str | None) -> Tokenizer | None:
    """Return a tokenizer with the tokens of the file that `rust` was loaded from; `None` if `rust` has other tokens."""
    # `content` is the content of `rust`, whose other parts may have been changed since.
    if original is None:
        return None
    tokens = {name: part for name, part in json.loads(original).items() if name in ("added_tokens", "model")}
    text = json.dumps({**content, **tokens, "padding": None, "truncation": None}, ensure_ascii=False, indent=2)
    tokenizer = rust_from_file(text)
    return tokenizer if tokenizer.get_vocab() == rust.get_vocab() else None


def rust_from_file(text: str) -> Tokenizer:
    """Load a `tokenizers.Tokenizer` as `rust_from` does, for which `to_json` returns all tokens of `text`."""
    rust = rust_from(text)
    if sharing_tokens(rust.get_vocab(with_added_tokens=False)):
        vars(rust)[_JSON] = text  # `to_str` would leave tokens out
    return rust


def to_json(rust: Tokenizer) -> str:
    """Return the content of a `tokenizer.json` for a result of `copy_of` or `rust_from_file`."""
    text: str = vars(rust).get(_JSON) or rust.to_str()
    return text


def sharing_tokens(vocabulary: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the tokens of each id that several tokens of a vocabulary share."""
    if len(set(vocabulary.values())) == len(vocabulary):
        return {}
    tokens: dict[int, list[str]] = {}
    for token, number in sorted(vocabulary.items()):
        tokens.setdefault(number, []).append(token)
    return {number: names for number, names in tokens.items() if len(names) > 1}


def _named_merges(
    written: Sequence[Any], original: Sequence[Any], vocabulary: Mapping[str, int], prefix: int
) -> list[tuple[str, str]] | None:
    """Return the merges of a BPE with tokens whose merged token exists; `None` if there are several such tokens."""
    # `written` are the merges in `to_str`, which may name any token of an id, `original` those of the file, if known.
    # `prefix` is the length of `continuing_subword_prefix`.

    def by_ids(merges: Sequence[Any]) -> dict[tuple[int | None, int | None], tuple[str, str]]:
        halves = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
        return {(vocabulary.get(left), vocabulary.get(right)): (left, right) for left, right in halves}

    tokens: dict[int | None, list[str]] = {}
    for token, number in vocabulary.items():
        tokens.setdefault(number, []).append(token)
    originals, result = by_ids(original), list[tuple[str, str]]()
    for first, second in by_ids(written):
        pairs = (
            [originals[first, second]] if (first, second) in originals else list(product(tokens[first], tokens[second]))
        )
        merged = {vocabulary.get(left + right[prefix:]): (left, right) for left, right in pairs}
        merged.pop(None, None)
        if len(merged) != 1:
            return None
        result += merged.values()
    return result


def _has_equal_ids(rust: Tokenizer, content: Mapping[str, Any], shared: Mapping[int, list[str]]) -> bool:
    """Return True if a tokenizer loaded from `content` gives the ids of `rust` for the tokens that share ids."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception:  # such as a merge of tokens that are not in the vocabulary
        return False
    tokenizer.encode_special_tokens = rust.encode_special_tokens
    texts = [form for tokens in shared.values() for token in tokens for form in (token, f"a{token}b", f" {token} ")]
    is_random = bool(content["model"].get("dropout"))
    return tokenizer.get_vocab() == rust.get_vocab() and (
        is_random or [_ids_or_none(tokenizer, text) for text in texts] == [_ids_or_none(rust, text) for text in texts]
    )


def _ids_or_none(rust: Tokenizer, text: str) -> list[int] | None:
    try:
        return list(rust.encode(text, add_special_tokens=False).ids)
    except BaseException as error:
        if not is_from_rust(error):
            raise
        return None


def remove_state(rust: Tokenizer) -> None:
    """Turn off the padding and truncation of `rust`, which its file or an earlier call may have turned on."""
    # The file of all-MiniLM, for one, truncates to 128 tokens.
    rust.no_padding()
    rust.no_truncation()


def is_from_rust(error: BaseException) -> bool:
    """Return True for errors that may come from Rust code: every `Exception`, and a `PanicException` of Rust."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def ragged_ids(rows: Sequence[Sequence[int]]) -> Ragged:
    """Convert lists of Python integers, such as the token ids of each row, to a `Ragged` of int64."""
    lengths = list(map(len, rows))
    values = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=sum(lengths))
    return Ragged(values, np.array(lengths, dtype=np.int64))
