"""Run random examples: `python -m tests.programs.fuzz --examples 300000 [--seed N] [--part NAME]`.

Prints figures and, for each failure, a minimal example and the command that repeats it. Exits with 1 after a failure.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import transformers

from .running import PARTS, Figures, run_part


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=10_000, help="examples in all (default: 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first chunk of examples (default: 0)")
    parser.add_argument("--part", choices=list(PARTS), action="append", help="only this part; may be repeated")
    given = parser.parse_args(arguments)
    transformers.logging.set_verbosity(50)
    datasets.disable_progress_bars()
    parts = given.part or list(PARTS)
    figures: dict[str, Figures] = {}
    total = sum(PARTS[part].share for part in parts)
    for part in parts:
        figures[part] = run_part(part, round(given.examples * PARTS[part].share / total), given.seed)
        print(figures[part], flush=True)
    failures = sum(len(each.failures) for each in figures.values())
    examples = sum(each.examples for each in figures.values())
    print(f"{examples:,} examples, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
