"""Compare `corpus.encode` with `map` of `datasets`.

Each way reads a file of JSON lines, tokenizes it with BERT's tokenizer in two processes, and writes
Parquet. It runs in a new process, and the time of imports does not count. A cold run finds an empty cache of
`datasets`, and a warm one the rows of the file, but no token ids. The ids of all ways are compared.
"""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import pyarrow.dataset

from hf_posenc import DataCollatorWithPositionalEncoding, corpus

from .measuring import Case, bert, cpu_milliseconds, docstrings, must_equal

WORKERS, LIMIT = 2, 512  # processes, tokens of a row


def encoded(file: Path, output: Path) -> None:
    """Tokenize a file with this package."""
    corpus.encode(file, bert(), output, max_length=LIMIT, workers=WORKERS, progress=False)


def mapped(file: Path, output: Path) -> None:
    """Tokenize a file with `datasets` and transformers."""
    _map(functools.partial(bert(), truncation=True, max_length=LIMIT), file, output, input_columns="text")


def collated(file: Path, output: Path) -> None:
    """Tokenize a file with `datasets` and the collator."""
    _map(DataCollatorWithPositionalEncoding(bert(), max_length=LIMIT), file, output)


def _map(function: Callable[..., Any], file: Path, output: Path, **given: Any) -> None:
    rows = datasets.load_dataset("json", data_files=str(file), split="train")
    settings = {"num_proc": WORKERS, "remove_columns": rows.column_names, "load_from_cache_file": False}
    rows = rows.map(function, batched=True, **settings, **given)
    (output / "data").mkdir(parents=True)
    rows.to_parquet(output / "data" / "rows.parquet")


WAYS = {
    "`load_dataset(...).map(tokenizer).to_parquet(...)`": mapped,
    "`load_dataset(...).map(collate).to_parquet(...)`": collated,
    "`corpus.encode(...)`": encoded,
}


def measured(way: Callable[[Path, Path], None], file: Path, output: Path) -> tuple[float, float]:
    """Return the milliseconds of CPU time of all processes, and those on the wall."""
    datasets.disable_progress_bars()
    # As in a script on Linux up to Python 3.13: `datasets` forks, and spawned workers would import torch again.
    multiprocessing.set_start_method("fork", force=True)
    began = time.perf_counter()
    cpu = cpu_milliseconds(lambda: way(file, output))
    return cpu, 1e3 * (time.perf_counter() - began)


def write(file: Path) -> None:
    """Write 60 MB of docstrings, repeated and each with a number before it."""
    texts, size = itertools.cycle(" ".join(text.split()) for text in docstrings()), 60_000_000
    with file.open("w", encoding="utf-8") as rows:
        for number, text in enumerate(texts):
            size -= len(f"{number} {text}\n")
            rows.write(json.dumps({"id": number, "text": f"{number} {text}"}, ensure_ascii=False) + "\n")
            if size <= 0:
                break


def run(rounds: int) -> Iterator[Case]:
    """Measure each way."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="hf_posenc_corpora_") as name:
        file = Path(name, "corpus.jsonl")
        write(file)
        found: dict[str, dict[str, list[float]]] = {}
        for _ in range(rounds):
            outputs = []
            for label, way in WAYS.items():
                cache = tempfile.mkdtemp(dir=name)
                for state in ("cold", "warm"):
                    outputs.append(Path(tempfile.mkdtemp(dir=name)))
                    with mock.patch.dict(os.environ, HF_DATASETS_CACHE=cache), ProcessPoolExecutor(1, spawn) as new:
                        times = new.submit(measured, way, file, outputs[-1]).result()
                    for clock, value in zip(("CPU time", "wall time"), times, strict=True):
                        found.setdefault(f"{state} cache, {clock}", {}).setdefault(label, []).append(value)
                shutil.rmtree(cache)
            ids = [pyarrow.dataset.dataset(output / "data").to_table(["input_ids"])[0] for output in outputs]
            for each in (column.combine_chunks() for column in ids):
                must_equal("lengths", each.value_lengths(), ids[0].combine_chunks().value_lengths())
                must_equal("ids", each.flatten(), ids[0].combine_chunks().flatten())
            for output in outputs:
                shutil.rmtree(output)
        yield from (Case(case, values) for case, values in found.items())
