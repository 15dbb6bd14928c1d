"""Calls of the Rust library `tokenizers`: token ids of texts, and copies of tokenizers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ragged import Ragged

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# A forked child inherits Rust's thread pool without its threads, and a batch call would wait for them forever.
_IMPORTED_IN = os.getpid()


class TokenizersBackend:
    r"""Encoder from texts to token ids with the `tokenizers` library, without special tokens, truncation or padding.

    Args:
        json (`str`): the content of a `tokenizer.json`.
        split_special_tokens (`bool`, *optional*, defaults to `False`): treat special tokens that occur in a text as
            ordinary text.
        is_split_into_words (`bool`, *optional*, defaults to `False`): each text is a list of words.

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
        return ragged_ids([each.ids for each in self._encodings(texts, "encode_batch_fast")])

    def tokenize_with_words(self, texts: Sequence[Any]) -> tuple[Ragged, Ragged]:
        """Return the token ids of each text, and for each token the index of its word (-1 if it has no word)."""
        encodings = self._encodings(texts, "encode_batch")  # the fast call returns no words
        words = [[-1 if word is None else word for word in each.word_ids] for each in encodings]
        return ragged_ids([each.ids for each in encodings]), ragged_ids(words)

    def _encodings(self, texts: Sequence[Any], method: str) -> list[Encoding]:
        call = getattr(self.rust, method)
        options = {"is_pretokenized": self._is_split_into_words, "add_special_tokens": False}
        if os.getpid() != _IMPORTED_IN:
            return [call([text], **options)[0] for text in texts]
        return list(call(list(texts), **options))


def rust_from(text: str) -> Tokenizer:
    r"""Load a `tokenizers.Tokenizer` from the content of a `tokenizer.json`, with exactly the Unigram scores in it.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> text = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -3.33e-5 / 7)], 0, False)).to_str()
        >>> rust_from(text).to_str() == text
        True
    """
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


def remove_state(rust: Tokenizer) -> None:
    """Turn off the padding and truncation of `rust`, which its file or an earlier call may have turned on."""
    rust.no_padding()
    rust.no_truncation()


def is_from_rust(error: BaseException) -> bool:
    """Return True for errors that may come from Rust code: every `Exception`, and a `PanicException` of Rust.

    Return False for any other `BaseException`, such as `KeyboardInterrupt`.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def ragged_ids(rows: Sequence[Sequence[int]]) -> Ragged:
    """Convert lists of Python integers, such as the token ids of each row, to a `Ragged` of int64."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    return Ragged(np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum())), lengths)
