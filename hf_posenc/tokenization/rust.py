"""Calls of the Rust library `tokenizers`: token ids of texts, templates of special tokens, and copies of tokenizers.

All code for encoding texts that depends on the version of the library is in this module.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from ..ragged import Ragged, lock_free_cache

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


@dataclass(frozen=True)
class Template:
    r"""Order of texts and special tokens in a row, such as [CLS] text [SEP], from the post-processor of a tokenizer.

    Args:
        pieces (`tuple` of pairs of `int`): (id, token type) of each part of the row, in order. The id is that of
            a special token, or `FIRST` for the text, or `SECOND` for the second text of a pair.
        types_windows (`bool`, *optional*, defaults to `False`): if a text is split into several rows, use the token
            types in `pieces` for all its parts. If False, as usual in `tokenizers`, they are used for its first part
            only; the later parts of a first text have type 0, and those of a second text have type 1.

    Example:
        >>> bert = {"type": "BertProcessing", "cls": ["[CLS]", 101], "sep": ["[SEP]", 102]}
        >>> Template.of(bert, pair=True).pieces
        ((101, 0), (-1, 0), (102, 0), (-2, 1), (102, 1))
    """

    pieces: tuple[tuple[int, int], ...]
    types_windows: bool = False

    FIRST: ClassVar = -1
    SECOND: ClassVar = -2

    @classmethod
    def of(cls, processor: Mapping[str, Any] | None, *, pair: bool, add_special_tokens: bool = True) -> Template:
        """Return the template of rows with a single text, or with a pair of texts if `pair` is True.

        `processor` is the post-processor of a tokenizer as a dict, as in `tokenizer.json`; `None` adds no special
        tokens.
        """
        pieces: list[tuple[int, int]] = [(cls.FIRST, 0), (cls.SECOND, 1)] if pair else [(cls.FIRST, 0)]
        for step in _steps(processor):
            if step["type"] == "TemplateProcessing":
                pieces = []
                for ((kind, each),) in map(dict.items, step["pair" if pair else "single"]):
                    text = [cls.FIRST if each["id"] == "A" else cls.SECOND]
                    if kind == "SpecialToken" and each["id"] not in step["special_tokens"]:
                        raise value_error(
                            f"the post-processor uses the special token {each['id']!r} without giving its id",
                            got=shorten(list(step["special_tokens"])),
                            fix="list it in special_tokens of the post-processor in tokenizer.json",
                        )
                    tokens = step["special_tokens"][each["id"]]["ids"] if kind == "SpecialToken" else text
                    pieces += [(token, each["type_id"]) for token in tokens]
                continue
            start, end = step["cls"][1], step["sep"][1]
            pieces = [(start, 0), (cls.FIRST, 0), (end, 0)]
            if pair and step["type"] == "BertProcessing":
                pieces += [(cls.SECOND, 1), (end, 1)]
            elif pair:
                pieces += [(end, 0), (cls.SECOND, 0), (end, 0)]
        roberta = any(step["type"] == "RobertaProcessing" for step in _steps(processor))
        added = tuple(piece for piece in pieces if piece[0] < 0 or add_special_tokens)
        return cls(added, types_windows=roberta and add_special_tokens)

    @lock_free_cache
    def special(self) -> int:
        """Number of special tokens that the template adds to a row."""
        return sum(token >= 0 for token, _ in self.pieces)

    @lock_free_cache
    def single_row(self) -> NDArray[np.int64]:
        """Array `(3, 1, P)` int64: the id, token type and length of each of the P pieces of a row; all lengths are 1.

        `make_rows` repeats it for each row, and then sets the lengths of the texts.
        """
        return np.array([[(token, kind, 1) for token, kind in self.pieces]], dtype=np.int64).transpose(2, 0, 1)


def has_template(rust: Tokenizer) -> bool:
    """Return True if `Template` can describe the tokenizer's post-processor.

    This needs at most one step that adds special tokens, and rows that contain each text once and in order.
    """
    processor = post_processor(rust)
    kinds = [step["type"] for step in _steps(processor)]
    if len(kinds) > 1 or not {"TemplateProcessing", "BertProcessing", "RobertaProcessing"}.issuperset(kinds):
        return False
    templates = [Template.of(processor, pair=pair, add_special_tokens=False) for pair in (False, True)]
    return [[text for text, _ in each.pieces] for each in templates] == [
        [Template.FIRST],
        [Template.FIRST, Template.SECOND],
    ]


def post_processor(rust: Tokenizer) -> dict[str, Any] | None:
    """Return the post-processor of a tokenizer as a dict, as in `tokenizer.json`; `None` if it has none."""
    if rust.post_processor is None:
        return None
    read: dict[str, Any] = json.loads(rust.post_processor.__getstate__())
    return read


def _steps(processor: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the steps of a post-processor that add special tokens or set token types."""
    if processor is None or processor["type"] == "ByteLevel":
        return []
    if processor["type"] == "Sequence":
        return [step for part in processor["processors"] for step in _steps(part)]
    return [processor]


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
