"""Rows of token ids to padded tensors, and texts or ids to embeddings with positions."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import datasets
import numpy as np
import torch
import transformers

from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding, sinusoidal_encoding, with_arrow_batches

from .measuring import Case, bert, docstrings, each, must_equal, take_turns

ROWS, BATCH, BATCHES = 20_000, 32, 40
TEXTS, WIDTH, LIMIT = 64, 768, 512
STOCK = "`DataCollatorWithPadding`"


def drawn(rows: int) -> dict[str, Any]:
    """Return columns with rows of 180 tokens on average and a label, as from BERT's tokenizer."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.normal(180, 60, size=rows), 8, LIMIT).astype(int)
    return {
        "input_ids": [draw.integers(1000, 30000, size=length) for length in lengths],
        "token_type_ids": [np.zeros(length, np.int8) for length in lengths],
        "attention_mask": [np.ones(length, np.int8) for length in lengths],
        "label": draw.integers(0, 2, rows),
    }


def from_rows(rounds: int) -> Iterator[Case]:
    """Compare collators on rows that are in memory. Ours adds position ids and a look-ahead mask."""
    columns = drawn(BATCH * BATCHES)
    padding, collate = transformers.DataCollatorWithPadding(bert()), DataCollatorWithPositionalEncoding(bert())
    ids_and_mask = ("input_ids", "attention_mask")
    for kind, names in (
        ("NumPy rows of ids", ids_and_mask[:1]),
        ("NumPy rows of ids and masks", ids_and_mask),
        ("lists of ids", ids_and_mask[:1]),
    ):
        rows = [
            {name: row.tolist() if "lists" in kind else row for name, row in zip(names, values, strict=True)}
            for values in zip(*(columns[name] for name in names), strict=True)
        ]
        batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        for batch in batches:
            ours, theirs = collate(batch), padding(batch)
            for name in theirs:
                must_equal(name, ours[name], theirs[name])
        values = take_turns({STOCK: each(padding, batches), "hf_posenc": each(collate, batches)}, rounds)
        yield Case(kind, values)


def from_data_set(rounds: int) -> Iterator[Case]:
    """Compare ways from shuffled row numbers to tensors: the fetch of a `DataLoader`, then the collator."""
    padding = transformers.DataCollatorWithPadding(bert())
    # Without the look-ahead mask, which models such as BERT do not take.
    collate = DataCollatorWithPositionalEncoding(bert(), look_ahead=False)
    numbers = np.random.default_rng(1).permutation(ROWS)[: BATCH * BATCHES]
    batches = [some.tolist() for some in np.split(numbers, BATCHES)]
    with tempfile.TemporaryDirectory() as folder:
        datasets.Dataset.from_dict(drawn(ROWS)).save_to_disk(folder)
        whole = datasets.load_from_disk(folder)
        for names in (["input_ids"], ["input_ids", "attention_mask"], whole.column_names):
            data = whole.select_columns(names)
            arrow = with_arrow_batches(data)
            runs: dict[str, Callable[[list[int]], Any]] = {
                STOCK: lambda some, data=data: padding(data.__getitems__(some)),
                "hf_posenc": lambda some, data=data: collate(data.__getitems__(some)),
                "hf_posenc, `with_arrow_batches`": lambda some, arrow=arrow: collate(arrow.__getitems__(some)),
            }
            for batch in batches:
                theirs, *ours = (run(batch) for run in runs.values())
                for name in theirs:
                    must_equal(name, ours[0][name], theirs[name])
                    must_equal(f"{name}, with_arrow_batches", ours[1][name], theirs[name])
            values = take_turns({name: each(run, batches) for name, run in runs.items()}, rounds)
            yield Case(f"data set with {', '.join(names)}", values)


def embeddings(rounds: int) -> Iterator[Case]:
    """Compare texts, then ids, to embeddings with positions, 768 wide, 64 texts at a time."""
    texts = docstrings()
    np.random.default_rng(0).shuffle(texts)
    batches = [texts[start : start + TEXTS] for start in range(0, 16 * TEXTS, TEXTS)]
    tokenizer = bert()
    table = torch.nn.Embedding(len(tokenizer), WIDTH).requires_grad_(False)
    encoding, scale = sinusoidal_encoding(torch.arange(LIMIT), WIDTH), WIDTH**0.5
    embedding = PositionalEmbedding(table, scale="sqrt_d")
    collate = DataCollatorWithPositionalEncoding(tokenizer, embedding=embedding, look_ahead=False)
    memory = torch.empty(TEXTS * LIMIT, WIDTH)

    def call(batch: list[str]) -> Any:
        return tokenizer(batch, padding=True, truncation=True, return_tensors="pt")

    def plain(batch: Any) -> torch.Tensor:
        return table(batch["input_ids"]) * scale + encoding[: batch["input_ids"].shape[1]]

    def again(batch: Any) -> Any:
        return collate.embed(batch, out=memory)

    made = [dict(call(batch)) for batch in batches]
    for texts, ids in zip(batches, made, strict=True):
        expected, keep = plain(ids), ids["attention_mask"].bool()
        for batch in (texts, ids):
            for embed in (collate.embed, again):
                must_equal("embed", embed(batch)["inputs_embeds"][keep], expected[keep])
    ours = {"`collate.embed(...)`": collate.embed, "`collate.embed(..., out=)`": again}
    from_texts = {"`tokenizer(...)`, table * √d + encoding": lambda batch: plain(call(batch)), **ours}
    from_texts = {name: each(function, batches) for name, function in from_texts.items()}
    yield Case("texts to embeddings", take_turns(from_texts, rounds))
    from_ids = {"table * √d + encoding": plain, **ours}
    from_ids = {name: each(function, made) for name, function in from_ids.items()}
    yield Case("ids to embeddings", take_turns(from_ids, rounds))
