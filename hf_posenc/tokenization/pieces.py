r"""`Pieces`: cuts long texts into pieces. The token ids of the pieces, joined, are those of the whole text.

Tokens never cross words, so a cut between two words is safe if no distant text can move the boundary of these words.
This is checked twice. All components of the tokenizer must be known to look only at characters nearby. And each cut is
tried on the characters around it: their tokens must be the same with and without the cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..ragged import Ragged
from . import rust

# A longer text is tokenized in pieces of at least so many characters.
LONG_TEXT = 1 << 16
# Characters of the pieces that are tokenized at once: several pieces, so that `tokenizers` uses several cores, but not
# many, because it needs about 150 bytes of memory for each character.
_AT_ONCE = 1 << 18
# Characters per token of the first piece of a long text that is truncated; English has 4 to 5.
_CHARACTERS_A_TOKEN = 12
SEARCHED = 1 << 14  # characters that are searched for a cut
_TRIED = 32  # cuts of each kind that are tried for one piece
_AROUND = 32  # characters on each side of a cut that are tokenized to check it, besides the length of an added token

# Kinds of cuts, the safest first: before a single space or line feed, after a line feed, before punctuation; the other
# side is a letter or digit. In no case can Unicode normalization change a character across the cut.
_CUTS = (
    re.compile(r"(?<=[^\W_])(?=[ \n][^\W_])"),
    re.compile(r"(?<=\S\n)(?=[^\W_])"),
    re.compile(r"(?<=[^\W_])(?=[,.;:!?，。、；：！？])"),
)
# Regular expression for one character class, once or repeated, such as `[a-z]+`: it matches one run of characters.
_RUN = re.compile(r"(?:\\p\{\^?\w+\}|\\[^\d]|\[(?:\\.|[^\[\]\\])+\]|[^\\\[\](){}.^$|*+?])(?:[*+?]|\{[12],\})?")
_SOLID = re.compile(r"[^\W_]|[!-~]")  # characters that no known normalizer removes

# Known normalizers and pre-tokenizers look at single characters, combining sequences, or runs of one class.
_NORMALIZERS = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled"}
_NORMALIZERS |= {"Strip", "StripAccents"}
_PRE_TOKENIZERS = {"BertPreTokenizer", "CharDelimiterSplit", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"}
_REWRITE_SPACES = {"ByteLevel", "Metaspace"}  # pre-tokenizers, too, but regular expressions must not come after them
# Regular expressions of GPT-2, GPT-4, GPT-4o, Qwen, DeepSeek and CLIP. No alternative matches across one of the cuts,
# whatever surrounds them: in a match, letters and digits come after spaces and punctuation, and line feeds come last.
_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE = f"(?i:{_CONTRACTIONS})"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WHITESPACE = r"\s*[\r\n]+|\s*[\r\n]|\s+(?!\S)|\s+$|\s+"
_KNOWN = (
    rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_WHITESPACE}",
    rf"{_ANY_CASE}|'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ANY_CASE}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ANY_CASE}?",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
    r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+|\p{N}|\p{N}{1,3}|[0-9]{1,3}|\d{1,3}",
)


class Pieces:
    r"""Splitter of long texts into pieces that can be tokenized one by one.

    The token ids of the pieces, joined, are those of the whole text. For some tokenizers this is not possible. Then the
    attribute `reason` is a text such as `"it has no pre-tokenizer"`, and every text is one piece. For all other
    tokenizers `reason` is `None`.

    The preferred place to cut is a space between two letters or digits. In the example with pieces of at least 8
    characters, this is the one before "said".

    Args:
        tokenizer (`PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): fast, without truncation and padding.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1}, unk_token="<unk>"))
        >>> Pieces(raw).reason
        'it has no pre-tokenizer'
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> list(Pieces(raw).of("I ride bike, she said", 8))
        ['I ride bike, she', ' said']
    """

    def __init__(self, tokenizer: rust.FastTokenizer) -> None:
        self._tokenizer = tokenizer
        self.reason = _reason(tokenizer)
        added = rust.added_tokens(tokenizer)
        self._added = {content for _, content, _ in added}
        self._normalized = {rust.normalize(tokenizer, content) for _, content, is_normalized in added if is_normalized}
        self._longest = max(map(len, self._added | self._normalized), default=0)
        self._reach = _AROUND + 2 * self._longest

    def of(self, text: str, size: int) -> Iterator[str]:
        r"""Yield the pieces of a text. All but the last have at least `size` characters, and usually only a few more.

        If no cut is found in the `SEARCHED` (16,384) characters after the first `size`, the whole rest is one piece.
        """
        start = 0
        while start < len(text) - size and (cut := self._cut(text, start + size)) is not None:
            yield text[start:cut]
            start = cut
        yield text[start:]

    def tokenize(self, tokenize: Callable[[Sequence[Any]], Ragged], texts: Sequence[str | Sequence[str]]) -> Ragged:
        """Return the ids of texts, each tokenized in pieces by `tokenize`; lists of words are not cut."""
        values, lengths = bytearray(), np.zeros(len(texts), np.int64)
        waiting = (
            (row, piece)
            for row, text in enumerate(texts)
            for piece in (self.of(text, LONG_TEXT) if isinstance(text, str) else [text])
        )
        while batch := _next_pieces(waiting):
            ids = tokenize([piece for _, piece in batch])
            values += ids.values.astype(np.int32).tobytes()  # half the size, while there are many
            np.add.at(lengths, [row for row, _ in batch], ids.lengths)
        return Ragged(np.frombuffer(values, np.int32).astype(np.int64), lengths)

    def prefix(self, tokenize: Callable[[Sequence[Any]], Ragged], text: Any, enough: int) -> Any:
        """Return a beginning of `text` with more than `enough` ids, which are the first ids of the whole `text`.

        The whole `text` is returned if it has fewer ids, is not long, or is a list of words.
        """
        if type(text) is not str or len(text) <= LONG_TEXT:
            return text
        ids = end = 0
        for piece in self.of(text, _CHARACTERS_A_TOKEN * enough):
            ids, end = ids + len(tokenize([piece]).values), end + len(piece)
            if ids > enough:
                break
        return text[:end]

    def _cut(self, text: str, start: int) -> int | None:
        """Return a position, `start` or later, to cut the text without changing its tokens; `None` if there is none."""
        for pattern in _CUTS if self.reason is None else ():
            for match, _ in zip(pattern.finditer(text, start, start + SEARCHED), range(_TRIED), strict=False):
                if self._is_safe(text, match.start()):
                    return match.start()
        return None

    def _is_safe(self, text: str, cut: int) -> bool:
        """Return True if position `cut` of `text` is between two words, and a cut there changes no tokens around it."""
        left, right = text[max(cut - self._reach, 0) : cut], text[cut : cut + self._reach]
        # An added token near the cut could reach across it, or include the spaces beside it.
        if self._longest and min(len(_SOLID.findall(half)) for half in (left, right)) <= self._longest:
            return False
        around = rust.normalize(self._tokenizer, left + right)
        if any(token in left + right for token in self._added) or any(token in around for token in self._normalized):
            return False
        ids, words, spans = rust.encode_text(self._tokenizer, left + right)
        first, second = rust.encode_text(self._tokenizer, left)[0], rust.encode_text(self._tokenizer, right)[0]
        if not (first and second) or ids != first + second:
            return False
        after = len(first)
        return words[after - 1] != words[after] and spans[after - 1][1] <= len(left) <= spans[after][0]


def _next_pieces(pieces: Iterator[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Take (text, piece) from the iterator until the pieces have `_AT_ONCE` characters; none if it is exhausted."""
    batch, size = [], 0
    for row, piece in pieces:
        batch.append((row, piece))
        size += len(piece)
        if size >= _AT_ONCE:
            break
    return batch


def _reason(tokenizer: rust.FastTokenizer) -> str | None:
    """Return the reason why the texts of a tokenizer cannot be cut into pieces; `None` if they can."""
    splitters = rust.steps(tokenizer, "pre_tokenizer")
    if not splitters:
        return "it has no pre-tokenizer"
    if rust.dropout(tokenizer):
        return "its tokens are drawn at random"
    for part in rust.steps(tokenizer, "normalizer"):
        replaces_runs = part["type"] == "Replace" and part["content"] and _is_run(part["pattern"])
        if part["type"] not in _NORMALIZERS and not replaces_runs:
            return f"its normalizer {part['type']} may look far"
    is_rewritten = False
    for part in splitters:
        is_known = part["type"] == "Split" and not is_rewritten and (_is_run(part["pattern"]) or _is_known(part))
        if part["type"] not in _PRE_TOKENIZERS | _REWRITE_SPACES and not is_known:
            return f"its pre-tokenizer {part['type']} may look far"
        is_rewritten = is_rewritten or part["type"] in _REWRITE_SPACES
    return None


def _is_run(pattern: Mapping[str, str]) -> bool:
    """Return True if a pattern matches one character, or a run of one character or class, as `[a-z]+`."""
    return _RUN.fullmatch(pattern["Regex"]) is not None if "Regex" in pattern else len(set(pattern["String"])) == 1


def _is_known(split: Mapping[str, Any]) -> bool:
    """Return True if all alternatives in the regular expression of a `Split` pre-tokenizer occur in `_KNOWN`."""
    # The alternatives in `_KNOWN` never match across the positions that `_CUTS` finds.
    return "Regex" in split["pattern"] and _alternatives(split["pattern"]["Regex"]) <= _KNOWN_ALTERNATIVES


def _alternatives(pattern: str) -> set[str]:
    """Return the alternatives of a regular expression, the parts between `|` outside of parentheses and brackets."""
    alternatives, depth = [""], 0
    for symbol in re.findall(r"\\.|\[(?:\\.|[^\]])*\]|.", pattern, re.DOTALL):
        depth += (symbol == "(") - (symbol == ")")
        if symbol == "|" and depth == 0:
            alternatives.append("")
        else:
            alternatives[-1] += symbol
    return set(alternatives)


_KNOWN_ALTERNATIVES = frozenset().union(*map(_alternatives, _KNOWN))
