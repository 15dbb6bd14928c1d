"""Runs of parts in chunks: each is one hypothesis run with its own seed, so that a failure can be repeated alone."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from . import added, collating, files, fitted

CHUNK = 100


@dataclass(frozen=True)
class Part:
    """A property and its share of the examples."""

    check: Callable[[st.DataObject], int]
    share: int


PARTS = {
    "texts": Part(collating.collate_texts, 6),
    "ids": Part(collating.collate_ids, 4),
    "added tokens": Part(added.added_tokens, 2),
    "models": Part(fitted.collate_for_models, 3),
    "round trips": Part(collating.round_trips, 2),
    "settings": Part(collating.wrong_settings, 2),
    "rows": Part(collating.wrong_rows, 3),
    "collator folders": Part(files.damaged_collators, 1),
}


@dataclass
class Figures:
    """Result of one part: numbers of examples and refusals, seconds, and the failures as text."""

    part: str
    examples: int = 0
    seconds: float = 0.0
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        refused = sum(self.refusals.values())
        lines = [f"{self.part}: {self.examples:,} examples, {refused:,} refusals, {self.seconds:.0f} s"]
        lines += [f"  {count:8,}  {rule}" for rule, count in self.refusals.most_common()]
        return "\n".join(lines)


def run_part(part: str, examples: int, first_seed: int, *, draws: int = CHUNK, shrinks: bool = True) -> Figures:
    """Run at least `examples` examples of a part, in chunks with the seeds `first_seed`, `first_seed + 1`, …

    A chunk is `draws` tokenizers with options, each with up to `CALLS` calls, and ends at its first failure. An example
    is one call. At least one chunk is run. `shrinks` searches the smallest example that fails.
    """
    figures, start, number = Figures(part), time.monotonic(), first_seed
    before = Counter(collating.REFUSALS)
    while not figures.examples or figures.examples < examples:
        figures.examples += _run_chunk(part, draws, number, figures.failures, shrinks)
        number += 1
    figures.seconds = time.monotonic() - start
    figures.refusals = Counter(collating.REFUSALS) - before
    return figures


def _run_chunk(part: str, size: int, number: int, failures: list[str], shrinks: bool) -> int:
    """Run one chunk of `size` draws and return its number of examples; append a failure as text."""
    count, failed = 0, False
    check = PARTS[part].check

    @seed(number)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(st.data())
    def example(data: st.DataObject) -> None:
        nonlocal count, failed
        try:
            calls = check(data)
            count += 0 if failed else calls
        except Exception:
            failed = True
            raise

    try:
        example()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = [
            f"  {frame.filename}:{frame.lineno} {frame.line}" for frame in traceback.extract_tb(error.__traceback__)
        ]
        ours = [frame for frame in frames if "hypothesis" not in frame][-12:]
        again = f"python -m tests.programs.fuzz --part {part!r} --seed {number} --examples 1"
        failures.append(
            "\n".join(
                [
                    f"FAILURE of {part}, repeat with: {again}",
                    *ours,
                    f"{type(error).__name__}: {error}"[:3000],
                    *getattr(error, "__notes__", []),
                ]
            )
        )
        print(failures[-1], flush=True)
    return max(count, 1)
