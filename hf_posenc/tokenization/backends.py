"""Backends that compute token ids: `tokenizers`, or a faster library that returns the same ids.

The faster libraries are nanotoken for WordPiece and gigatoken for BPE. Its ids are compared with those of `tokenizers`
when a tokenizer is loaded, on difficult texts; if they differ, the fast backend is not used for this tokenizer. During
use, one text in several thousand is compared; if its ids differ, `DifferentIds` is raised. Texts that these libraries
are known to encode differently, because of their added tokens, are encoded with `tokenizers`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np

from .._common.errors import explain, pip_install, shorten, value_error
from ..ragged import Ragged
from .fast_support import (
    Unsupported,
    compete_for_spaces,
    has_newer_unicode,
    probes,
    probes_of_neighbors,
    supported_model,
)
from .rust import TokenizersBackend, is_from_rust, normalize, steps_in

BackendName = Literal["auto", "tokenizers", "nanotoken", "gigatoken"]

# Longer texts are not compared during use, because `tokenizers` needs seconds for some of them.
_LONGEST_COMPARED = 100_000
# Number of texts after which the share of those that were encoded with `tokenizers` is logged.
_LOGGED_AFTER = 10_000
# Normalizers that only change the case of printable ASCII characters.
_LOWERS = {"BertNormalizer", "Lowercase", "NFC", "NFD", "StripAccents"}

_log = logging.getLogger(__name__)


class DifferentIds(RuntimeError):
    """Error for a text whose token ids from the fast backend differ from those of `tokenizers`."""


class FastBackend:
    """Encoder from texts to token ids with nanotoken or gigatoken, without special tokens, truncation or padding.

    `choose_backend` makes it from `text`, the content of a `tokenizer.json`. It is safe to use from several threads and
    in forked processes. About one text in `interval` is also encoded with `tokenizers`, to check that the ids are the
    same. After `most_tokens` tokens the tokenizer is loaded again, to empty gigatoken's cache of words, which grows by
    about 10 bytes for each token of random text, and by less than one for each token of real text.

    Raises:
        Unsupported: if no fast library supports this tokenizer, or its ids for a test text differ from those of
            `tokenizers`.
        ImportError: if the library is not installed.
    """

    def __init__(self, text: str, *, interval: int = 4096, most_tokens: int = 1 << 25) -> None:
        self._interval, self._most_tokens = interval, most_tokens
        self._texts = self._slow_texts = 0  # all texts, and those that `tokenizers` encoded
        content = json.loads(text)
        library, self._load = _LIBRARIES[supported_model(content)]
        self._text = _with_null(text, "post_processor", "padding", "truncation")
        self._reference = TokenizersBackend(text)
        self.rust = self._reference.rust
        tokens = content["added_tokens"]
        contents = {token["content"] for token in tokens}
        contents |= {normalize(self.rust, token["content"]) for token in tokens if token["normalized"]}
        if "" in contents:  # nanotoken would find it without end; `tokenizers` panics
            raise Unsupported("an added token that its normalizer makes empty")
        pattern = "|".join(map(re.escape, sorted(contents)))
        self._added = re.compile(pattern) if pattern else None
        self._is_bpe = content["model"]["type"] == "BPE"
        self._normalizers = {step["type"] for step in steps_in(content["normalizer"])}
        self._has_nfc = self._is_bpe and "NFC" in self._normalizers
        # `_slow` finds texts that `tokenizers` encodes, because the fast library would return other ids.
        self._slow = None
        if self._has_nfc and not all(unicodedata.is_normalized("NFC", form) for form in contents):
            self._slow = self._added
        # Of 1.67 million texts and 1,516 trained tokenizers, ids differed only beside added tokens.
        elif compete_for_spaces(tokens, contents):
            self._slow = re.compile(rf"(?:{pattern})\s*(?:{pattern})")
        difficult = list(probes(content))
        try:
            self._start()
            different = self.differences([*difficult, *probes_of_neighbors(content)])
        except BaseException as error:  # unsupported parts raise RuntimeError; a panic is no Exception
            if isinstance(error, ImportError) or not is_from_rust(error):
                raise
            raise Unsupported(f"{library}: {str(error).splitlines()[0]}") from error
        self.name = f"{library} {version(library)}"
        if different and different[0] in difficult:
            raise Unsupported(f"{self.name} has other ids for {shorten(different[0])}")
        if different:
            self._slow = self._added
        self._tokens = self._texts = self._slow_texts = 0

    def tokenize(self, texts: Sequence[Any]) -> Ragged:
        """Return the token ids of each text; raise `DifferentIds` if those of a compared text differ."""
        before = self._texts
        ids = self._ids(texts)
        if self._slow_texts and before < _LOGGED_AFTER <= self._texts:
            share = self._slow_texts / self._texts
            message = (
                "%s: %.1f %% of the texts are encoded by tokenizers, because of their added tokens or new characters"
            )
            _log.log(logging.WARNING if share >= 0.1 else logging.INFO, message, self.name, 100 * share)
        # The choice of compared texts depends on the batch only, so that a second run compares the same ones.
        first = int(np.add.reduce(ids.values)) % self._interval
        if first < len(texts):
            compared = [i for i in range(first, len(texts), self._interval) if len(texts[i]) <= _LONGEST_COMPARED]
            different = self._different(texts, ids, compared)
            if different:
                raise DifferentIds(
                    explain(
                        f"{self.name} returned other token ids than tokenizers for a text",
                        got=shorten(different[0]),
                        fix='backend="tokenizers"',
                    )
                )
        return ids

    def differences(self, texts: Sequence[str]) -> list[str]:
        """Encode all texts, and return the texts whose ids differ from those of `tokenizers`."""
        return self._different(texts, self._ids(texts), range(len(texts)))

    def _ids(self, texts: Sequence[Any]) -> Ragged:
        """Return the token ids of `texts`: from the fast library, or from `tokenizers` for texts that need it."""
        if self._tokens > self._most_tokens or self._process != os.getpid():
            self._start()
        slow: list[int] = []
        if self._slow is not None:
            slow = [index for index, text in enumerate(texts) if self._is_slow(text)]
        elif self._is_bpe and not all(map(str.isascii, texts)):
            slow = [index for index, text in enumerate(texts) if not text.isascii() and self._is_slow(text)]
        if slow:
            fast_texts = list(texts)
            for index in slow:
                fast_texts[index] = ""
            rows = list(self._encode(fast_texts))
            for index, row in zip(slow, self._reference.tokenize([texts[index] for index in slow]), strict=True):
                rows[index] = row
            ids = Ragged.from_rows(rows)
        else:
            ids = self._encode(texts)
        self._tokens += len(ids.values)
        self._texts, self._slow_texts = self._texts + len(texts), self._slow_texts + len(slow)
        return ids

    def _is_slow(self, text: str) -> bool:
        """Return True if `tokenizers` must encode the text, because the fast library may return other ids."""
        if self._is_bpe and not text.isascii():
            if has_newer_unicode(text):
                return True
            # gigatoken composes characters before it searches for added tokens; `tokenizers` also searches before.
            if self._has_nfc and self._added and not unicodedata.is_normalized("NFC", text):
                return any(map(self._added.search, (text, normalize(self.rust, text))))
        if self._slow is None:
            return False
        forms = {text}
        if self._normalizers:
            lowered = text.lower()
            line = lowered.replace("\n", " ")  # as BERT's normalizer replaces it
            is_known = self._normalizers <= _LOWERS and text.isascii() and line.isprintable()
            forms |= {lowered, line} if is_known else {normalize(self.rust, text)}  # the normalizer itself is slow
        return any(map(self._slow.search, forms))

    def _start(self) -> None:
        self._encode = self._load(self._text)
        self._tokens, self._process = 0, os.getpid()

    def _different(self, texts: Sequence[str], ids: Ragged, compared: Sequence[int]) -> list[str]:
        """Encode the texts at the indices `compared` with `tokenizers`; return those whose ids differ from `ids`."""
        right = self._reference.tokenize([texts[index] for index in compared])
        offsets = ids.offsets.tolist()
        return [
            texts[index]
            for index, row in zip(compared, right, strict=True)
            if not np.array_equal(ids.values[offsets[index] : offsets[index + 1]], row)
        ]


Backend = FastBackend | TokenizersBackend


def choose_backend(
    text: str,
    backend: BackendName = "auto",
    *,
    split_special_tokens: bool = False,
    is_split_into_words: bool = False,
    word_ids: bool = False,
) -> Backend:
    r"""Return the backend that encodes texts for a tokenizer; log its name unless `backend` is `"tokenizers"`."""
    if backend != "tokenizers":
        settings = {
            "split_special_tokens=True": split_special_tokens,
            "is_split_into_words=True": is_split_into_words,
            "whole_word_mask=True needs the words of tokens": word_ids,
        }
        reason = next((name for name, is_set in settings.items() if is_set), None)
        result = _fast(text) if reason is None else Unsupported(reason)
        if isinstance(result, FastBackend) and backend in ("auto", result.name.split()[0]):
            _log.info("token ids come from %s", result.name)
            return result
        if backend != "auto":
            rule, got = f"{backend} cannot make the ids of this tokenizer", str(result)
            if isinstance(result, ImportError):
                raise ImportError(explain(rule, got=got, fix=pip_install("nanotoken", "gigatoken")))
            if isinstance(result, FastBackend):
                got = f"a tokenizer for {result.name}"
            raise value_error(rule, got=got, fix='backend="auto"')
        _log.info("token ids come from tokenizers, because there is no fast backend: %s", result)
    key = hashlib.sha256(text.encode()).digest(), split_special_tokens, is_split_into_words
    parsed = _parsed.get(key)
    if parsed is None:
        options = {"split_special_tokens": split_special_tokens, "is_split_into_words": is_split_into_words}
        parsed = _parsed[key] = TokenizersBackend(text, **options)
    return parsed


# Backends in use. Collators of one tokenizer share its parsed form, because parsing takes a tenth of a second for BERT.
_parsed: WeakValueDictionary[tuple[bytes, bool, bool], TokenizersBackend] = WeakValueDictionary()


@functools.lru_cache(maxsize=4)
def _fast(text: str) -> FastBackend | Unsupported | ImportError:
    """Return the fast backend of a tokenizer; if it has none, return (not raise) the error with the reason."""
    try:
        return FastBackend(text)
    except (Unsupported, ImportError) as error:
        return error.with_traceback(None)


def _with_null(text: str, *names: str) -> str:
    """Return the content of a `tokenizer.json` with null as the values of some of its keys."""
    # `json.dumps` would make a tuple of each token, and so start a garbage collection of 0.1 s.
    for name in names:
        found = re.search(rf'"{name}"\s*:\s*(?={{)', text)  # in the vocabulary, the value of such a key is a number
        if found is not None:
            _, end = json.JSONDecoder().raw_decode(text, found.end())
            text = f"{text[: found.end()]}null{text[end:]}"
    return text


def _load_nanotoken(text: str) -> Callable[[Sequence[str]], Ragged]:
    from nanotoken import Tokenizer

    tokenizer = Tokenizer.from_json(text)

    def encode(texts: Sequence[str]) -> Ragged:
        rows = tokenizer.encode_batch(list(texts), add_special_tokens=False, parallel=False)
        # int64, as from `tokenizers`. Not `rows.lengths`, which calls the slow np.diff.
        return Ragged(rows.ids.astype(np.int64), rows.offsets[1:] - rows.offsets[:-1])

    return encode


def _load_gigatoken(text: str) -> Callable[[Sequence[str]], Ragged]:
    from gigatoken import Tokenizer

    tokenizer = Tokenizer.from_json(text).backend

    # One call for each text. Batch calls of gigatoken are slower for SentencePiece models, return awkward arrays for
    # rows of different lengths, and release the GIL: a fork during the call would leave the child with a locked cache.
    def encode(texts: Sequence[str]) -> Ragged:
        rows = list(map(tokenizer.encode, texts))
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return Ragged(np.frombuffer(b"".join(rows), np.uint32).astype(np.int64), lengths)  # faster than np.concatenate

    return encode


_LIBRARIES: dict[str, tuple[str, Callable[[str], Callable[[Sequence[str]], Ragged]]]] = {
    "WordPiece": ("nanotoken", _load_nanotoken),
    "BPE": ("gigatoken", _load_gigatoken),
}
