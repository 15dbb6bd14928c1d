"""Texts to vectors of an encoder: batches in the order given, sorted by length, and by a token budget.

The encoder has the shape of all-MiniLM-L6-v2 (6 layers, 12 heads, width 384) and random weights, which take as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import transformers

from hf_posenc import DataCollatorWithPositionalEncoding

from .measuring import Case, bert, docstrings, take_turns

TEXTS, ROWS, LIMIT = 1_024, 32, 256
BUDGET = 4_096  # padded tokens of a batch
TOLERANCE = 1e-5


def run(rounds: int) -> Iterator[Case]:
    """Compare batches of one collator; the names have the share of padding among all tokens."""
    texts = docstrings()
    np.random.default_rng(0).shuffle(texts)
    del texts[TEXTS:]
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1_536}
    model = transformers.BertModel(transformers.BertConfig(**shape)).eval()
    collate = DataCollatorWithPositionalEncoding(bert(), max_length=LIMIT, model=model)

    def mean(batch: Any) -> torch.Tensor:
        keep = batch["attention_mask"][..., None]
        return (model(**batch).last_hidden_state * keep).sum(1) / keep.sum(1)

    def of_32(order: Any) -> Iterator[Any]:
        for start in range(0, TEXTS, ROWS):
            yield collate([texts[index] for index in order[start : start + ROWS]])

    def in_turn(encode: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        return torch.cat([encode(batch) for batch in of_32(range(TEXTS))])

    def by_length(encode: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        vectors = torch.cat([encode(batch) for batch in of_32(order)])
        return vectors[torch.from_numpy(np.argsort(order))]

    def by_budget(encode: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        batches = collate.batches(texts, BUDGET)
        vectors: torch.Tensor = batches.in_order(encode(batch) for batch in batches)
        return vectors

    ways = {
        f"{ROWS} in the order given": in_turn,
        f"{ROWS} sorted by length, as in sentence-transformers": by_length,
        f"`collate.batches(texts, {BUDGET:_})`": by_budget,
    }
    with torch.inference_mode():
        vectors = {name: way(mean) for name, way in ways.items()}
        expected = next(iter(vectors.values()))
        for name, found in vectors.items():
            if (difference := float((found - expected).abs().max())) > TOLERANCE:
                raise SystemExit(f"{name}: the vectors differ by {difference:.1e}")
        named = {f"{name}: {100 * padding(way):.1f} % padding": lambda way=way: way(mean) for name, way in ways.items()}
        yield Case(f"{TEXTS:,} texts to vectors", take_turns(named, min(rounds, 2)))


def padding(way: Callable[[Callable[[Any], torch.Tensor]], torch.Tensor]) -> float:
    """Return the share of padding among all tokens of the batches."""
    real, padded = way(_counted).sum(0).tolist()
    return float(1 - real / padded)


def _counted(batch: Any) -> torch.Tensor:
    """Return the numbers of tokens, without and with padding, of each row (B, 2)."""
    mask = batch["attention_mask"]
    return torch.stack([mask.sum(1), torch.full((len(mask),), mask.shape[1])], dim=1)
