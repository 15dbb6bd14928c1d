"""The prefix of a very long text that is enough when only its first tokens are kept.

A prefix is enough if it yields more tokens than the limit, counted up to a boundary between words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer

# A prefix this many characters a token long nearly always yields more tokens than the limit: English has 4 to 5.
_CHARACTERS_A_TOKEN = 12
# When it does not, the next prefix is this much longer, so that trying costs a small part of reading everything.
_GROWTH = 8
# The split of words near the end of a prefix can still change when the text goes on.
_UNSETTLED_WORDS = 2
# One kind of character, once or as a run: such a pattern sees no further than the run that it is in.
_RUN = re.compile(r"(?:\\p\{\^?\w+\}|\\[^\d]|\[(?:\\.|[^\[\]\\])+\]|[^\\\[\](){}.^$|*+?])(?:[*+?]|\{[12],\})?")
# Without any of these, a pattern has a greatest length.
_UNBOUNDED = re.compile(r"[*+$]|\{\d*,\}|\\[kgzZX\d]|\(\?[^:=!<]")


def long_for(limit: int) -> int:
    """How many characters a text may have and still be read whole without a thought."""
    return _GROWTH * _CHARACTERS_A_TOKEN * limit


def enough_of(text: str, limit: int, rust: RustTokenizer, side: str) -> str:
    r"""A prefix of `text` whose first `limit` tokens are those of the whole text, or the text itself.

    Words are tokenised one by one, and where they begin depends on the few characters around, so all words of a prefix
    but its last ones are final. A tokenizer without a pre-tokenizer sees one word only, truncation on the left needs
    the end of the text, and a normalizer that replaces what a regular expression finds may look that far: there the
    whole text is read.

    Args:
        text (`str`): any text.
        limit (`int`): how many tokens will be kept.
        rust (`tokenizers.Tokenizer`): the tokenizer.
        side (`str`): its truncation side.

    Returns:
        `str`: `text` where it is short. A prefix yields more than `limit` tokens, so that the cut is still noticed.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> len(enough_of("word " * 1_000_000, 512, raw, "right"))
        6144
    """
    size = _CHARACTERS_A_TOKEN * limit
    if len(text) <= long_for(limit) or side != "right" or rust.pre_tokenizer is None:
        return text
    patterns = list(_patterns(rust))
    if any("Regex" in each and _may_look_far(each["Regex"]) for each in patterns):
        return text
    # A token of many words, or a string that the normalizer replaces, is not yet there if the prefix ends inside it.
    wholes = [token.content for token in rust.get_added_tokens_decoder().values()]
    longest = max(map(len, [*wholes, *(each["String"] for each in patterns if "String" in each)]), default=0)
    while size * _GROWTH <= len(text):
        if _settled_tokens(text[:size], longest, rust) > limit:
            return text[:size]
        size *= _GROWTH
    return text


def _patterns(rust: RustTokenizer) -> Iterator[dict[str, str]]:
    """Yield what a normalizer replaces: each as `{"String": ...}` or `{"Regex": ...}`."""
    parts: list[Any] = [] if rust.normalizer is None else [json.loads(rust.normalizer.__getstate__())]
    while parts:
        part = parts.pop()
        parts.extend(part.get("normalizers", ()))
        if "pattern" in part:
            yield part["pattern"]


def _may_look_far(pattern: str) -> bool:
    """Return True unless a regular expression sees only a bounded number of characters, or one run of a kind."""
    return _RUN.fullmatch(pattern) is None and _UNBOUNDED.search(pattern) is not None


def _settled_tokens(prefix: str, longest: int, rust: RustTokenizer) -> int:
    """Count the tokens of the prefix that come from words which nothing after it can change."""
    encoding = rust.encode(prefix, add_special_tokens=False)
    words = [
        (word, stop)
        for piece in (encoding, *encoding.overflowing)
        for word, (_, stop) in zip(piece.word_ids, piece.offsets, strict=True)
        if word is not None
    ]
    last = max((word for word, _ in words), default=0)
    return sum(word <= last - _UNSETTLED_WORDS and stop <= len(prefix) - longest for word, stop in words)
