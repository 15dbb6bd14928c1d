"""Shortening of very long texts when only their first tokens are needed.

A prefix of the text is tokenized first. The text after the prefix may change the tokens of the prefix's last words, so
these are not counted. If the other tokens are enough, the rest of the text is not tokenized.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer

# Characters per token of the first prefix; English has 4 to 5, so that it nearly always gives enough tokens.
_CHARACTERS_A_TOKEN = 12
# Factor to the next longer prefix, so that all attempts together cost a small part of the whole text.
_GROWTH = 8
# Words at the end of a prefix whose boundaries may change when the text continues.
_OPEN_WORDS = 2
# Regular expression for one character class, once or repeated, such as `[a-z]+`: it matches one run of characters.
RUN = re.compile(r"(?:\\p\{\^?\w+\}|\\[^\d]|\[(?:\\.|[^\[\]\\])+\]|[^\\\[\](){}.^$|*+?])(?:[*+?]|\{[12],\})?")
# Regular expression syntax without which a pattern matches a bounded number of characters.
_UNBOUNDED = re.compile(r"[*+$]|\{\d*,\}|\\[kgzZX\d]|\(\?[^:=!<]")


def characters_read_whole(limit: int) -> int:
    """Return the number of characters up to which `sufficient_prefix` never shortens a text, for `limit` tokens."""
    return _GROWTH * _CHARACTERS_A_TOKEN * limit


def sufficient_prefix(text: str, limit: int, rust: RustTokenizer, side: str) -> str:
    r"""Return a prefix of `text` with the same first `limit` tokens, or `text` itself if no such prefix is known.

    Words are tokenized one by one, and word boundaries depend only on characters nearby. Therefore a prefix has the
    same tokens as the whole text, except in its last words. The whole text is needed if the tokenizer has no
    pre-tokenizer (the text is then one word), if it truncates on the left, or if its normalizer has a regular
    expression that may match any number of characters.

    Args:
        text (`str`): any text.
        limit (`int`): number of tokens needed.
        rust (`tokenizers.Tokenizer`): the tokenizer.
        side (`str`): truncation side, `"right"` or `"left"`.

    Returns:
        `str`: `text` itself if it is short, or if no prefix is known to be sufficient. Otherwise a prefix with more
        than `limit` tokens, so that the caller still detects that the text is truncated.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> len(sufficient_prefix("word " * 1_000_000, 512, raw, "right"))
        6144
    """
    size = _CHARACTERS_A_TOKEN * limit
    if len(text) <= characters_read_whole(limit) or side != "right" or rust.pre_tokenizer is None:
        return text
    patterns = list(_patterns(rust))
    if any("Regex" in each and _may_match_far(each["Regex"]) for each in patterns):
        return text
    # An added token of several words, or a string that the normalizer replaces, may be split by the end of the prefix.
    contents = [token.content for token in rust.get_added_tokens_decoder().values()]
    longest = max(map(len, [*contents, *(each["String"] for each in patterns if "String" in each)]), default=0)
    while size * _GROWTH <= len(text):
        if _final_tokens(text[:size], longest, rust) > limit:
            return text[:size]
        size *= _GROWTH
    return text


def _patterns(rust: RustTokenizer) -> Iterator[dict[str, str]]:
    """Yield the patterns that the normalizer of `rust` replaces, each as `{"String": ...}` or `{"Regex": ...}`."""
    parts: list[Any] = [] if rust.normalizer is None else [json.loads(rust.normalizer.__getstate__())]
    while parts:
        part = parts.pop()
        parts.extend(part.get("normalizers", ()))
        if "pattern" in part:
            yield part["pattern"]


def _may_match_far(pattern: str) -> bool:
    """Return True if the regular expression `pattern` may match text of any length.

    A single repeated character class, such as `[a-z]+`, returns False.
    """
    return RUN.fullmatch(pattern) is None and _UNBOUNDED.search(pattern) is not None


def _final_tokens(prefix: str, longest: int, rust: RustTokenizer) -> int:
    """Return the number of tokens of `prefix` that stay the same if any text is appended to it.

    Tokens in its last words, or in its last `longest` characters, may change and are not counted. `longest` is the
    length of the longest added token, or string that the normalizer replaces.
    """
    encoding = rust.encode(prefix, add_special_tokens=False)
    words = [
        (word, stop)
        for piece in (encoding, *encoding.overflowing)
        for word, (_, stop) in zip(piece.word_ids, piece.offsets, strict=True)
        if word is not None
    ]
    last = max((word for word, _ in words), default=0)
    return sum(word <= last - _OPEN_WORDS and stop <= len(prefix) - longest for word, stop in words)
