"""Run random examples: `python -m tests.programs.fuzz --examples 300000 [--seed N] [--part NAME] [--minutes M]`.

Prints figures and, for each failure, a minimal example and the command that repeats it. Exits with 1 after a failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import transformers

from .files import limit_memory
from .running import PARTS, Figures, run_part


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=10_000, help="examples in all (default: 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first chunk of examples (default: 0)")
    parser.add_argument("--part", choices=list(PARTS), action="append", help="only this part; may be repeated")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    given = parser.parse_args(arguments)
    transformers.logging.set_verbosity(50)
    datasets.disable_progress_bars()
    end = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    parts = given.part or list(PARTS)
    figures: dict[str, Figures] = {}
    total = shares = sum(PARTS[part].share for part in parts)
    for part in parts:
        if PARTS[part].reads_files:
            limit_memory()
        left = None if end is None else (end - time.monotonic()) * PARTS[part].share / shares
        shares -= PARTS[part].share
        figures[part] = run_part(part, round(given.examples * PARTS[part].share / total), given.seed, left)
        print(figures[part], flush=True)
    failures = sum(len(each.failures) for each in figures.values())
    examples = sum(each.examples for each in figures.values())
    print(f"{examples:,} examples, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
