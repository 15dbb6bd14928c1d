"""Figures in words: counts, speeds and times, and what a job has made.

Whatever is counted, it is counted elsewhere.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._explain import counted, in_bytes

_WINDOW = 20.0  # seconds over which a speed is taken: batches and shards come in bursts


def short(number: float) -> str:
    r"""A number of things in three digits or so.

    Example:
        >>> short(999), short(12_345), short(1_234_567)
        ('999', '12.3k', '1.23M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def clock(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Speed:
    r"""How much a second, over the last twenty seconds.

    Args:
        now (`float`): when it begins, on the clock whose times the methods are given.

    Example:
        >>> speed = Speed(now=0.0)
        >>> speed.add(1_000, now=2.0)
        >>> speed.a_second(now=4.0)
        250.0
    """

    def __init__(self, now: float) -> None:
        self.total = 0
        self._seen = deque([(now, 0)])

    def add(self, amount: int, now: float) -> None:
        """So much more is done."""
        self.total += amount
        if now - self._seen[-1][0] > _WINDOW / 50 or len(self._seen) == 1:
            self._seen.append((now, self.total))
        else:
            self._seen[-1] = (self._seen[-1][0], self.total)

    def a_second(self, now: float) -> float:
        """How much a second; 0 before anything is done."""
        while len(self._seen) > 2 and now - self._seen[1][0] > _WINDOW:
            self._seen.popleft()
        begun, before = self._seen[0]
        # What a dead worker had done counts no longer, and is done once more.
        return max(0, self.total - before) / (now - begun) if now > begun else 0.0


def summary(shards: Iterable[Mapping[str, Any]], output: Path, *, made: int, tokens_a_second: float) -> dict[str, str]:
    r"""What a job has made, as facts to print.

    Args:
        shards (iterable of mappings): the records of the manifest.
        output (`Path`): the folder.
        made (`int`): how many of the shards are of this run, and not of runs before.
        tokens_a_second (`float`): of this run; 0 where it made nothing.

    Returns:
        `dict` of `str`, in order; what did not happen (cut texts, rejected ones) is not mentioned.

    Example:
        >>> record = {"documents": 3, "rows": 2, "tokens": 9, "bytes": 2_000_000, "cut": 0, "rejected": 1}
        >>> for name, value in summary([record], Path("out"), made=1, tokens_a_second=0.0).items():
        ...     print(name, "-", value)
        documents - 3
        rows - 2
        tokens - 9
        shards - 1 in out, 2.0 MB
        rejected - 1 document, listed in out/rejected.jsonl
        read back - datasets.load_dataset("parquet", data_files="out/data/*.parquet", split="train")
    """
    records = list(shards)
    names = ("documents", "rows", "tokens", "bytes", "cut", "rejected")
    total = {name: sum(record[name] for record in records) for name in names}
    speed = f", {short(tokens_a_second)} a second" if tokens_a_second else ""
    before = len(records) - made
    by_whom = f", {before:,} of them by runs before" if before and made else ", all made before" if before else ""
    said = {
        "documents": f"{total['documents']:,}",
        "rows": f"{total['rows']:,}",
        "tokens": f"{total['tokens']:,}{speed}",
        "shards": f"{len(records):,} in {output}, {in_bytes(total['bytes'])}{by_whom}",
    }
    if total["cut"]:
        said["cut"] = f"{counted(total['cut'], 'document')} longer than a row may be"
    if total["rejected"]:
        said["rejected"] = f"{counted(total['rejected'], 'document')}, listed in {output / 'rejected.jsonl'}"
    # JSON's way to write a string is Python's as well, and keeps one quote for the whole line.
    pattern = json.dumps(str(output / "data" / "*.parquet"), ensure_ascii=False)
    said["read back"] = f'datasets.load_dataset("parquet", data_files={pattern}, split="train")'
    return said
