"""`bpe_merges` and `bpe_stages`: generate the merges of byte-pair encoding one step at a time, to show how it works.

The code is written to be read, and is slow: every step counts all pairs again. `train_bpe` finds the same merges fast.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .._common.errors import require_one_split, shorten, type_error, value_error
from .._common.integers import as_integer
from . import rust
from .call_encoder import check_surrogates

Symbols = tuple[str, ...]
Pair = tuple[str, str]

_MOST_SHOWN, _MOST_SYMBOLS = 8, 24  # words or pairs per line, symbols per word


@dataclass(frozen=True)
class MergeStep:
    r"""One step of byte-pair encoding, which merges the most frequent pair of neighboring symbols in all words.

    `bpe_merges` makes it. Symbols are the parts of a word: characters before the first step, later also merged tokens.

    Args:
        number (`int`): number of the step, counted from 1.
        pair (`tuple[str, str]`): the most frequent pair.
        count (`int`): its number of occurrences in the texts.
        token (`str`): the new token, the two halves of the pair joined.
        pairs (`tuple` of `(pair, count)`): up to 8 most frequent pairs before the merge, most frequent first.
        before (`tuple` of `(symbols, count)`): the symbols of each distinct word before the merge, and its number of
            occurrences.
        words (`tuple` of `(symbols, count)`): the same words after the merge.

    Example:
        >>> step = next(bpe_merges(["low low lower"], 1))
        >>> step.pair, step.count, step.token
        (('l', 'o'), 3, 'lo')
    """

    number: int
    pair: Pair
    count: int
    token: str
    pairs: tuple[tuple[Pair, int], ...]
    before: tuple[tuple[Symbols, int], ...]
    words: tuple[tuple[Symbols, int], ...]

    def __str__(self) -> str:
        left, right = self.pair
        indices = list(range(len(self.words)))
        if len(indices) > _MOST_SHOWN:  # the words that the merge changes come first
            indices.sort(key=lambda i: (self.before[i] == self.words[i], -self.words[i][1]))
        indices = indices[:_MOST_SHOWN]
        return "\n".join(
            [
                f"{self.number}. {left} + {right} → {self.token}   ({self.count} times)",
                f"   before  {_listed([self.before[i] for i in indices], len(self.before))}",
                f"   pairs   {_listed(self.pairs, len(self.pairs))}",
                f"   after   {_listed([self.words[i] for i in indices], len(self.words))}",
            ]
        )


def bpe_merges(
    texts: Iterable[str], num_merges: int, *, byte_level: bool = True, min_frequency: int = 2
) -> Iterator[MergeStep]:
    r"""Yield the steps of byte-pair encoding: split into characters, count pairs, merge the most frequent one, repeat.

    Among equally frequent pairs, the one with the older tokens is merged first. Characters are older than merged
    tokens, and are ordered by code point. The tokenizers library and `train_bpe` find the same merges.

    Source:
        Sennrich, Haddow and Birch 2016, "Neural Machine Translation of Rare Words with Subword Units", algorithm 1.
        arXiv:1508.07909.

    Example:
        >>> for step in bpe_merges(["low low low lower"], 2):
        ...     print(step)
        1. l + o → lo   (4 times)
           before  l o w ×1   Ġ l o w ×2   Ġ l o w e r ×1
           pairs   l o ×4   o w ×4   Ġ l ×3   e r ×1   w e ×1
           after   lo w ×1   Ġ lo w ×2   Ġ lo w e r ×1
        2. lo + w → low   (4 times)
           before  lo w ×1   Ġ lo w ×2   Ġ lo w e r ×1
           pairs   lo w ×4   Ġ lo ×3   e r ×1   w e ×1
           after   low ×1   Ġ low ×2   Ġ low e r ×1
    """
    num_merges = as_integer(num_merges, "num_merges", minimum=0, example=10)
    splitter = rust.untrained_bpe(byte_level)
    counts = Counter(word for text in checked_texts(texts) for word in rust.split_words(splitter, text))
    return _rounds(counts, num_merges, min_frequency)


def _rounds(counts: Counter[str], num_merges: int, min_frequency: int) -> Iterator[MergeStep]:
    words: list[tuple[Symbols, int]] = [(tuple(word), count) for word, count in counts.items()]
    age = {character: i for i, character in enumerate(sorted(set().union(*counts)))}
    for number in range(1, num_merges + 1):
        pair_counts: Counter[Pair] = Counter()
        for symbols, count in words:
            for pair in pairwise(symbols):
                pair_counts[pair] += count
        ranked = sorted(pair_counts.items(), key=lambda item: (-item[1], age[item[0][0]], age[item[0][1]]))
        if not ranked or ranked[0][1] < min_frequency:
            return
        pair, count = ranked[0]
        token = "".join(pair)
        age.setdefault(token, len(age))
        before, words = words, [(_merged(symbols, pair), n) for symbols, n in words]
        yield MergeStep(number, pair, count, token, tuple(ranked[:_MOST_SHOWN]), tuple(before), tuple(words))


def bpe_stages(tokenizer: rust.FastTokenizer, text: str) -> list[list[Symbols]]:
    r"""Return the stages of encoding each word of a text: first its characters, then its symbols after each merge.

    Example:
        >>> from hf_posenc.tokenization.bpe import train_bpe
        >>> tokenizer = train_bpe(["low low low lower"], 262)
        >>> for stages in bpe_stages(tokenizer, "slow lower"):
        ...     print(" → ".join(" ".join(stage) for stage in stages))
        s l o w → s lo w → s low
        Ġ l o w e r → Ġ lo w e r → Ġ low e r
    """
    is_rust = isinstance(rust.part_of(tokenizer), rust.RustTokenizer)
    model: dict[str, Any] = json.loads(rust.to_json(rust.copy_of(tokenizer)))["model"] if is_rust else {}
    if model.get("type") != "BPE":
        raise type_error(
            "only a BPE has merges",
            got=f"{type(tokenizer).__name__} with a model {model.get('type', 'written in Python')}",
            fix="train_bpe(texts, vocab_size), or a tokenizer such as GPT-2's",
        )
    # Older files write a merge as one string with a space between the halves.
    halves = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    rank: dict[Pair, int] = {(left, right): i for i, (left, right) in enumerate(halves)}
    return [list(_stages(tuple(word), rank)) for word in rust.split_words(tokenizer, text)]


def _stages(symbols: Symbols, rank: Mapping[Pair, int]) -> Iterator[Symbols]:
    yield symbols
    while pairs := [pair for pair in pairwise(symbols) if pair in rank]:
        symbols = _merged(symbols, min(pairs, key=rank.__getitem__))
        yield symbols


def _merged(symbols: Symbols, pair: Pair) -> Symbols:
    """Return the word `symbols` with every occurrence of `pair` joined, from left to right: `a a a` becomes `aa a`."""
    out: list[str] = []
    for symbol in symbols:
        # A token that was just joined is longer than each half, so that it is not joined again.
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return tuple(out)


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts one by one, and raise an error that names the row if a text is not a valid `str`.

    Raise also if `texts` is a single `str`, or at the end if all texts are empty.
    """
    require_one_split(texts, '["text"]')
    # Iterating over these types would yield characters or column names, not texts.
    if isinstance(texts, (str, bytes, Mapping)) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        raise type_error(
            "texts must be a list, a generator, or a column such as ds['text']",
            got=f"{type(texts).__name__} {shorten(texts)}" if isinstance(texts, str | bytes) else type(texts).__name__,
            fix='train_bpe(["one text", "another"], vocab_size), or train_bpe(ds["text"], vocab_size)',
        )
    return _each_text(texts)


def _each_text(texts: Iterable[object]) -> Iterator[str]:
    empty = True
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise type_error(
                f"row {row} of texts is {type(text).__name__}, expected str",
                got=shorten(text),
                fix="(t for t in texts if isinstance(t, str)), or the column of texts: ds['text']",
            )
        check_surrogates(row, text)
        empty = empty and not text
        yield text
    if empty:
        raise value_error("there is no text to train on", got="no row with a character in it")


def _listed(items: Iterable[tuple[Symbols, int]], total: int) -> str:
    entries = []
    for symbols, count in items:
        cut = [*symbols[:_MOST_SYMBOLS], *["…"] * (len(symbols) > _MOST_SYMBOLS)]
        entries.append(f"{' '.join(cut)} ×{count}")
    suffix = f"   … and {total - len(entries)} more" if total > len(entries) else ""
    return "   ".join(entries) + suffix
