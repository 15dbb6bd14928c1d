"""Contenders that take turns, and tables of what they took beside what was promised."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Measured:
    """One contender: its name, the seconds of each round."""

    name: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Target:
    """A promise: so many times the throughput of the other at least, or so many times its time at most.

    Without a bound nothing is promised, and the ratio is printed all the same.
    """

    ours: str
    theirs: str
    sign: str = "≤"
    bound: float | None = None


def take_turns(
    contenders: dict[str, Callable[[], object]],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    before: Callable[[], object] = lambda: None,
) -> list[Measured]:
    """Time every contender once a round, `before` outside the clock; one round before the first only warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            before()
            began = clock()
            run()
            if turn:
                seconds[name].append(clock() - began)
    return [Measured(name, spent) for name, spent in seconds.items()]


def forget_freed_memory() -> None:
    """Give freed memory back to the system, where that is glibc: else some contenders would find pages to use again."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def must_equal(name: str, ours: Any, theirs: Any) -> None:
    """End the run where two outputs differ: a faster wrong answer is no answer."""
    if not np.array_equal(np.asarray(ours), np.asarray(theirs)):
        raise SystemExit(f"{name} differs from what it is measured against")


def milliseconds(seconds: float) -> str:
    """As the tables have it: with a decimal where there are few."""
    return f"{1e3 * seconds:,.{0 if seconds >= 0.1 else 1}f}"


def show(title: str, measured: list[Measured], *, per_second: tuple[int, str], targets: list[Target]) -> None:
    """One table: seconds and throughput of each contender; then the promises beside what was measured."""
    count, unit = per_second
    table = Table()
    for column in ("", "median ms", "fastest ms", f"{unit}/s"):
        table.add_column(column, justify="right" if column else "left")
    for one in measured:
        table.add_row(
            escape(one.name),
            milliseconds(one.median),
            milliseconds(min(one.seconds)),
            f"{count / one.median:,.{0 if count > 1 else 2}f}",
        )
    console = Console()
    console.print(title, soft_wrap=True)
    console.print(table)
    seconds = {one.name: one.seconds for one in measured}
    for target in targets:
        pairs = zip(seconds[target.ours], seconds[target.theirs], strict=True)
        slower = statistics.median(ours / theirs for ours, theirs in pairs)  # within a round, so under one load
        ratio, what = (1 / slower, "throughput") if target.sign == "≥" else (slower, "time")
        line = f"  {target.ours}: {ratio:.2f} × the {what} of {target.theirs}"
        if target.bound is not None:
            met = ratio >= target.bound if target.sign == "≥" else ratio <= target.bound
            line += f" (promised {target.sign} {target.bound}): {'met' if met else 'NOT MET'}"
        console.print(escape(line), soft_wrap=True)
    console.print()
