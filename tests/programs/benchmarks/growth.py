"""Time per token of ever larger inputs: more tokens a row, more rows a batch, more rows in all.

The first size is the baseline: a speed of 1 or more means that time grows no faster than the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from hf_posenc import (
    AttentionMask,
    DataCollatorWithPositionalEncoding,
    SinusoidalPositionalEncoding,
    pack,
    sinusoidal_encoding,
)
from hf_posenc.positions import clear_cache

from .measuring import Case, bert, forget_freed_memory, take_turns
from .plans import CAPACITY, log_normal

TOKENS = (512, 8_192, 131_072)
WIDTH, WORDS = 64, 64


def run(rounds: int) -> Iterator[Case]:
    """Measure the parts of the package that are called with large inputs."""
    tokenizer = bert()
    collate = DataCollatorWithPositionalEncoding(tokenizer, max_length=TOKENS[-1], look_ahead=False)
    module = SinusoidalPositionalEncoding(WIDTH)
    memory = torch.zeros(1, TOKENS[-1], WIDTH)
    whole = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha())  # one token each
    words = np.random.default_rng(0).choice(whole, 10_000 * WORDS).tolist()
    texts = [" ".join(words[start : start + WORDS - 2]) for start in range(0, len(words), WORDS)]
    lengths = log_normal(1_000_000)

    def table(length: int) -> object:
        clear_cache()
        return sinusoidal_encoding(torch.arange(length), WIDTH)

    def added(length: int) -> object:
        x = memory[:, :length]
        return module(x, out=x)

    def packed(length: int) -> object:
        return AttentionMask.from_documents([[WORDS] * (length // WORDS)], look_ahead=True).varlen()

    def row(length: int) -> object:
        return collate([" ".join(words[: length - 2])])

    def batch(rows: int) -> object:
        return collate(texts[:rows])

    def columns(rows: int) -> object:
        return collate.columns({"text": texts[:rows]})

    parts: tuple[tuple[str, Callable[[int], Any], tuple[int, ...], str, int], ...] = (
        ("table of positions", table, TOKENS, "positions", 1),
        ("x + encoding", added, TOKENS, "tokens a row", 1),
        ("one text to a batch", row, TOKENS, "tokens a row", 1),
        ("packed row, `varlen()`", packed, TOKENS, "tokens a row", 1),
        ("texts to a batch", batch, (8, 256, 8_192), "rows a batch", WORDS),
        ("texts to columns, as in `map`", columns, (100, 1_000, 10_000), "rows", WORDS),
        ("packing plan", lambda rows: pack(lengths[:rows], CAPACITY), (10_000, 100_000, 1_000_000), "documents", 180),
    )
    for name, function, sizes, unit, tokens in parts:
        # Small sizes are repeated, because a clock cannot measure microseconds.
        runs = {size: lambda f=function, n=size, m=sizes[-1]: [f(n) for _ in range(m // n)] for size in sizes}
        turns = take_turns(
            {f"{size:,} {unit}": run for size, run in runs.items()}, min(rounds, 3), before=forget_freed_memory
        )
        # Every run has the tokens of the largest size.
        each = {label: [1e6 * value / sizes[-1] / tokens for value in values] for label, values in turns.items()}
        yield Case(name, each, unit="ns a token")
