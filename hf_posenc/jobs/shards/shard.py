"""One task to one shard: row groups of tokenised documents as a Parquet file, and figures of what is in it.

Runs in a worker; NumPy and Arrow only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..job import Job
from ..output.checksums import sha256
from ..output.folder import rejected_name, shard_name, written_whole
from ..task import Rejected, Task
from .documents import Block, Counted, Documents, Tick
from .layout import schema_of, tables

# Documents that are laid out, and packed, together. Rows are fuller the more there are; one in 512 may stay half empty.
_WINDOW_TOKENS = 2_000_000
_WINDOW_ROWS = 512
# Neighbouring rows that are padded together, to say what padding would cost.
_BATCH_ROWS = 32


class ShardWriter:
    r"""Writes the shards of one job; picklable, and set up only where it is used.

    Args:
        job (`Job`): what is asked for.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardWriter, (self.job,)

    def write(self, task: Task, tick: Tick | None = None) -> dict[str, Any]:
        r"""Writes one shard, whole or not at all, and beside it what was rejected.

        Args:
            task (`Task`): its documents.
            tick (callable, *optional*): told as it goes how many more bytes of documents, and tokens, are done.

        Returns:
            `dict` of plain values: file, rows, documents, tokens, bytes, sha256, rejected, rejected_sha256, cut,
            longest, padded, read, begins, ends. The same task gives the same, and the same bytes, in every process.

        Raises:
            ValueError: for a bad row, unless the job says otherwise; with file, line and reason.
            OSError: if the shard cannot be written.
        """
        counted = Counted()
        lengths = [np.zeros(0, np.int64)]
        path = self.job.folder / shard_name(task.shard)
        with written_whole(path) as aside:
            with self._writer(aside) as writer:
                for group in self._groups(task, counted, tick or _no_tick):
                    lengths.append(group.column("length").to_numpy().astype(np.int64))
                    writer.write_table(group, row_group_size=len(group))
            size, checksum = aside.stat().st_size, sha256(aside)
            rejected_sha256 = self._write_rejected(task.shard, counted.rejected)
        return {
            "file": path.name,
            "documents": counted.documents,
            "rejected": len(counted.rejected),
            "rejected_sha256": rejected_sha256,
            "cut": counted.cut,
            **_figures(np.concatenate(lengths)),
            "read": task.size,
            "bytes": size,
            "sha256": checksum,
            "digest": task.digest(),
            "begins": list(task.begins),
            "ends": list(task.ends),
        }

    @cached_property
    def _documents(self) -> Documents:
        return Documents(self.job)

    @cached_property
    def _schema(self) -> pa.Schema:
        return schema_of(self.job)

    def _writer(self, path: Path) -> pq.ParquetWriter:
        # Ids are spread over the whole vocabulary: a dictionary of them costs more than it saves, and zstd packs them
        # to a third.
        carried = self.job.carried.names if self.job.pack is None else []
        return pq.ParquetWriter(path, self._schema, compression="zstd", compression_level=1, use_dictionary=carried)

    def _write_rejected(self, shard: int, rejected: Sequence[Rejected]) -> str | None:
        """The lines of this shard, and their checksum."""
        path = self.job.folder / rejected_name(shard)
        if not rejected:
            path.unlink(missing_ok=True)
            return None
        with written_whole(path) as aside:
            with _open(aside) as file:
                file.writelines(json.dumps(one.entry(shard), ensure_ascii=False) + "\n" for one in rejected)
            return sha256(aside)

    def _groups(self, task: Task, counted: Counted, tick: Tick) -> Iterator[pa.Table]:
        """The row groups of the shard, in order."""
        windows = _windows(self._documents.of(task, counted, tick), self.job.pack or 0)
        for number, block in enumerate(windows):
            yield from tables(self.job, block, self._schema, seed=(task.shard << 20) + number)


def _windows(blocks: Iterator[Block], capacity: int) -> Iterator[Block]:
    waiting: list[Block] = []
    tokens = 0
    for block in blocks:
        waiting.append(block)
        tokens += len(block.ids.values)
        if tokens >= max(_WINDOW_TOKENS, _WINDOW_ROWS * capacity):
            yield Block.joined(waiting)
            waiting, tokens = [], 0
    if waiting:
        yield Block.joined(waiting)


def _figures(lengths: NDArray[np.int64]) -> dict[str, int]:
    """What a shard's rows are like."""
    batches = [lengths[start : start + _BATCH_ROWS] for start in range(0, len(lengths), _BATCH_ROWS)]
    return {
        "rows": len(lengths),
        "tokens": int(lengths.sum()),
        "longest": int(lengths.max(initial=0)),
        "padded": sum(int(batch.max()) * len(batch) for batch in batches),
    }


def _no_tick(_bytes: int, _tokens: int) -> None:
    """Nobody looks."""


def _open(path: Path) -> TextIO:
    """For JSON: the name of a file may be any bytes, and what is no UTF-8 in it is written as an escape."""
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
