"""How much of a very long text has to be read when only its first tokens are kept.

A prefix will do where it already yields more tokens than the limit, counted up to a boundary between words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer

# A prefix this many characters a token long nearly always yields more tokens than the limit: English has 4 to 5.
_CHARACTERS_A_TOKEN = 12
# When it does not, the next prefix is this much longer, so that trying costs a small part of reading everything.
_GROWTH = 8
# The split of words near the end of a prefix can still change when the text goes on.
_UNSETTLED_WORDS = 2


def long_for(limit: int) -> int:
    """How many characters a text may have and still be read whole without a thought."""
    return _GROWTH * _CHARACTERS_A_TOKEN * limit


def enough_of(text: str, limit: int, rust: RustTokenizer, side: str) -> str:
    r"""A prefix of `text` whose first `limit` tokens are those of the whole text, or the text itself.

    Words are tokenised one by one, and where they begin depends on the few characters around, so all words of a prefix
    but its last ones are final. A tokenizer without a pre-tokenizer sees one word only, and truncation on the left
    needs the end of the text: there the whole text is read.

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
    while size * _GROWTH <= len(text):
        if _settled_tokens(text[:size], rust) > limit:
            return text[:size]
        size *= _GROWTH
    return text


def _settled_tokens(prefix: str, rust: RustTokenizer) -> int:
    """How many tokens of the prefix come from words that nothing after it can change."""
    encoding = rust.encode(prefix, add_special_tokens=False)
    # An added token may have many words, and its first half at the end of the prefix is no such token yet.
    added = max((len(token.content) for token in rust.get_added_tokens_decoder().values()), default=0)
    words = [
        (word, stop)
        for piece in (encoding, *encoding.overflowing)
        for word, (_, stop) in zip(piece.word_ids, piece.offsets, strict=True)
        if word is not None
    ]
    last = max((word for word, _ in words), default=0)
    return sum(word <= last - _UNSETTLED_WORDS and stop <= len(prefix) - added for word, stop in words)
