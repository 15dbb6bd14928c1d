"""Tokenizers that the fast libraries support, and difficult texts that compare their ids with those of `tokenizers`."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rust import sharing_tokens, steps_in

# Characters, and ranges of them, that gigatoken and `tokenizers` treat by different versions of Unicode: those of
# Unicode 17, which `tokenizers` counts as unassigned, and marks that NFC reorders or composes in gigatoken only.
NEWER_UNICODE = (
    "\u05c8\u05c9\u07fd\u088f\u0897-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0c5c\u0cdc\u0d3b\u0d3c\u0eba\u1715"
    "\u1abf-\u1af0\u1df6-\u1dfa\u20c1\u2b96\ua7ce-\ua7d4\ua7f1\ua82c\ufbc3-\ufbd2\ufd90\ufd91\ufdc8-\ufdce"
    "\U000105c9\U000105d2\U000105da\U000105e4\U00010940-\U00010959\U00010d24-\U00010d27\U00010d69-\U00010d6d"
    "\U00010eab\U00010eac\U00010ec5-\U00010efb\U00010efd-\U00010eff\U00010f46-\U00010f50\U00010f82-\U00010f85"
    "\U00011070\U0001133b\U00011382-\U00011385\U0001138b\U0001138e\U00011390\U00011391\U000113b8\U000113bb"
    "\U000113c2\U000113c5\U000113c7-\U000113c9\U000113ce-\U000113d0\U0001145e\U00011839\U0001183a\U00011930"
    "\U00011935\U00011938\U0001193d\U0001193e\U00011943\U000119e0\U00011a34\U00011a47\U00011a99"
    "\U00011b60-\U00011b67\U00011d42\U00011d44\U00011d45\U00011d97\U00011db0-\U00011de9\U00011f41\U00011f42"
    "\U0001611e-\U00016129\U0001612f\U00016d63\U00016d67-\U00016d6a\U00016ea0-\U00016ed3\U00016ff0-\U00016ff6"
    "\U000187f8-\U000187ff\U00018d09-\U00018df2\U0001ccfa-\U0001cef0\U0001d127\U0001d128\U0001d250-\U0001d252"
    "\U0001d25b\U0001d25c\U0001d25f\U0001d280\U0001d281\U0001e08f\U0001e130-\U0001e136\U0001e2ae"
    "\U0001e2ec-\U0001e2ef\U0001e4ec-\U0001e4ef\U0001e5ee\U0001e5ef\U0001e6c0-\U0001e6ff\U0001f6d8"
    "\U0001f777-\U0001f77a\U0001f8d0-\U0001f8d8\U0001fa54-\U0001fa57\U0001fa8a\U0001fa8e\U0001fac8\U0001facd"
    "\U0001faea\U0001faef\U0002b73a-\U0002b73f\U0002cea2-\U0002cead\U000323b0-\U00033479"
)
# In a shorter text, a set finds characters in less time than the call of NumPy takes.
_SHORT = 128
# Numbers of added tokens and of vocabulary entries that are compared when a tokenizer is loaded.
_ADDED_TRIED, _VOCABULARY_TRIED = 64, 512
# Normalizers with Unicode compatibility forms: no fast library is used for them.
_COMPATIBILITY = {"NFKC", "NFKD", "Precompiled"}


class Unsupported(Exception):
    """Error for a tokenizer that has no fast backend; the message is the reason."""


def supported_model(content: dict[str, Any]) -> str:
    """Return the model type of a parsed `tokenizer.json`; raise `Unsupported` if no fast library supports it."""
    model = content["model"]
    kind = str(model.get("type"))
    if kind not in ("WordPiece", "BPE"):
        raise Unsupported(f"a {kind} model")
    if model.get("dropout"):
        raise Unsupported(f"dropout={model['dropout']}")
    normalizers = _COMPATIBILITY & {step["type"] for step in steps_in(content["normalizer"])}
    if normalizers:
        raise Unsupported(f"a normalizer of type {normalizers.pop()}")
    if kind == "BPE":
        for token in content["added_tokens"]:
            if token["single_word"]:
                raise Unsupported(f"the added token {token['content']!r} with single_word=True")
    return kind


def has_newer_unicode(text: str) -> bool:
    """Return True if a text has a character of `NEWER_UNICODE`."""
    characters, table = _newer_unicode()
    if len(text) < _SHORT:
        return not characters.isdisjoint(text)
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return bool(table.take(points, mode="clip").any())


@functools.cache
def _newer_unicode() -> tuple[frozenset[str], NDArray[np.bool_]]:
    """Return the characters of `NEWER_UNICODE`, and a table that is True at their code points and ends in a False."""
    ranges = re.findall("(.)(?:-(.))?", NEWER_UNICODE)
    points = [point for first, last in ranges for point in range(ord(first), ord(last or first) + 1)]
    table = np.zeros(max(points) + 2, dtype=np.bool_)
    table[points] = True
    return frozenset(map(chr, points)), table


def compete_for_spaces(tokens: Sequence[Mapping[str, Any]], contents: Iterable[str]) -> bool:
    """Return True if the same spaces may belong to two added tokens: both strip them, or one strips and one has them.

    `contents` are the contents of the tokens, also normalized.
    """
    left, right = any(token["lstrip"] for token in tokens), any(token["rstrip"] for token in tokens)
    starts, ends = (any(content[at].isspace() for content in contents) for at in (0, -1))
    return (left and (right or ends)) or (right and starts)


_HOSTILE = (
    "",
    " ",
    "a",
    " a",
    "a ",
    "\t.",
    "  a  b  ",
    "I ride bike, she said: don't!  It's 12345 o'clock.\n\n\tEnd\r\n",
    "THE QUICK Brown fOX jumped_over--the 1,000.50 dogs'S we'll THEY'VE",
    "naïve café e\u0301\u0327 ﬁ ½ x² Straße ẞ İI ıi Σς ΑΣ Ǆ ǅ",
    "我每天骑自行车。私は自転車 나는 각\u1100\u1161\u11a8 ไทย हिन्दी",
    "\u202eאני רוכב\u202c أركب الدراجة",
    "👨‍👩‍👧‍👦👍🏽🇨🇭 ❤️ 1️⃣",
    "\x00\x01\x07\x1b[31m\x7f\x85\x0b\x0c\x1c\u2028\u2029",
    "\ufeff\u200b\u00ad\u00a0\u3000\u2009\u2060\ufffd\ue000\U0010ffff",
    "𝕳𝖊𝖑𝖑𝖔 ⅷ ㍿ ｆｕｌｌ ① ª",
    "a\u0300\u0301 \u0301b \u0345 \u0f71\u0f72 \u1ebf",
    "a\u2581b \u2581 \u0120a",
    "<0x41><s></s><unk><pad>[CLS] [SEP][MASK][UNK]<|endoftext|>",
    'http://www.x.org/a?b=c&d=%20#e user@x.com C++ {"a": [1, 2]} __init__ $1 £2 €3 5% ~`^|\\',
    "a" * 99 + " " + "a" * 100 + " " + "a" * 101 + " " + "é" * 100 + " " + "\u4e00" * 101,
    "ab" * 300 + "   " * 100 + "\n" * 50 + "!?" * 60 + "1" * 40,
)


def probes(content: dict[str, Any]) -> Iterator[str]:
    """Yield the test texts, for which a new fast backend must give the token ids of `tokenizers`.

    They are difficult ones, and some made from the added tokens and the vocabulary of a parsed `tokenizer.json`.
    """
    yield from _HOSTILE
    for token in _spread([token["content"] for token in content["added_tokens"]], _ADDED_TRIED):
        yield from (token, f"a{token}b", f" {token} ", f"A {token}. {token}{token}", f"{token[:-1]} {token.upper()}é")
        # A pre-tokenizer may add a space before a text, or before the rest after an added token: not a part of a token.
        for part in {token.strip(), token[1:]} - {token}:
            yield from (part, f"{part} b", f"{token}{part}", f"{token}{part} b")
    vocabulary = content["model"]["vocab"]
    words = _spread(list(vocabulary), _VOCABULARY_TRIED)
    yield from words
    if isinstance(vocabulary, dict):
        yield from _spread(
            [token for tokens in sharing_tokens(vocabulary).values() for token in tokens], _VOCABULARY_TRIED
        )
    plain = list(map(_plain, words))
    for start in range(0, len(plain), 8):
        yield from ("".join(plain[start : start + 8]), " ".join(plain[start : start + 8]))


def probes_of_neighbors(content: dict[str, Any]) -> Iterator[str]:
    """Yield test texts of added tokens beside one another, beside words, decomposed, and before combining marks."""
    tokens = _spread([token["content"] for token in content["added_tokens"]], 16)
    words = [_plain(word) for word in _spread(list(content["model"]["vocab"]), _VOCABULARY_TRIED)]
    for index, token in enumerate(tokens):
        for neighbor in tokens:
            yield from (
                f"a{token}{neighbor}b",
                f"a {token} {neighbor} b",
                f"{token}  {neighbor}{token}",
                f"{neighbor[:-1]}{token}",
            )
        decomposed = unicodedata.normalize("NFD", token)
        yield from (f"a{decomposed}b", f" {decomposed} ", f"{token}\u0301 {token}\u0338b", f"e{token}\u0327")
        yield from (f"{token}{word}{token} {word}" for word in words[index :: len(tokens)])


def _plain(word: str) -> str:
    """Return the text of a vocabulary entry, without the marks of spaces and of parts of words."""
    return word.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n").removeprefix("##")


def _spread(items: list[str], limit: int) -> list[str]:
    """Return at most `limit` of the items, taken at equal intervals."""
    return items[:: -(-len(items) // limit) or 1]
