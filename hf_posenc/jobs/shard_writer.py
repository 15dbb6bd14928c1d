"""The writer of shards: it writes one Parquet file for each task, and returns a record of its statistics.

This code runs in worker processes. Apart from the tokenizer it uses only NumPy and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..ragged import lock_free_cache
from .folder import output_file, shard_name
from .options import Job
from .rejected import write_rejected
from .shard_columns import Block, schema_of, tables
from .shard_file import write_shard
from .task import Task
from .tokenizing import Counted, TaskEncoder

# Tokens of the documents that are packed together. More tokens give fuller rows; one row in 512 may stay half empty.
_WINDOW_TOKENS = 2_000_000
_WINDOW_ROWS = 512
# Consecutive rows that form a padded batch in the estimate of the padding.
_BATCH_ROWS = 32


class ShardWriter:
    r"""Writer of the shards of one job. Each worker has a copy; the first `write` loads the tokenizer there.

    Args:
        job (`Job`): the settings.
        window_tokens (`int`, *optional*, defaults to 2,000,000): minimum number of tokens in a window, a group of
            consecutive documents that are packed together; raised to the tokens of 512 full packed rows. Only the last
            window of a shard may be smaller.
    """

    def __init__(self, job: Job, window_tokens: int = _WINDOW_TOKENS) -> None:
        self.job = job
        self._window_tokens = window_tokens

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardWriter, (self.job, self._window_tokens)

    def write(self, task: Task) -> dict[str, Any]:
        r"""Tokenize the documents of a task and write them to its shard; write rejected documents to a separate file.

        The shard is written atomically: its file exists only when it is complete.
        """
        job, counted, lengths = self.job, Counted(), [np.zeros(0, np.int64)]

        def finish() -> dict[str, Any]:
            """Write the rejected documents, and return the record of the shard without size and SHA-256 of the file."""
            return {
                "file": shard_name(task.shard),
                "documents": counted.documents,
                "rejected": len(counted.rejected),
                "rejected_sha256": write_rejected(job.folder, task.shard, counted.rejected),
                "on_bad_row": job.on_bad_row if counted.rejected else None,  # otherwise it had no effect
                "cut": counted.cut,
                "blank": counted.blank,
                **_figures(np.concatenate(lengths)),
                "read": task.size,
                "digest": task.digest(),
                "begins": list(task.begins),
                "ends": list(task.ends),
            }

        with output_file(job.folder / shard_name(task.shard)) as temporary:
            return write_shard(
                temporary,
                self._groups(task, counted, lengths),
                self._schema,
                finish,
                settings=job.settings,
                carried=[*job.carried.names, *(["source"] if job.source_columns else [])],
            )

    @lock_free_cache
    def _encoder(self) -> TaskEncoder:
        return TaskEncoder(self.job)

    @lock_free_cache
    def _schema(self) -> pa.Schema:
        return schema_of(self.job)

    def _groups(self, task: Task, counted: Counted, lengths: list[NDArray[np.int64]]) -> Iterator[pa.Table]:
        """Tokenize the documents of a task, and yield a table for each row group of its shard."""
        window_tokens = max(self._window_tokens, _WINDOW_ROWS * (self.job.pack or 0))
        windows = _windows(self._encoder.tokenize(task, counted), window_tokens)
        for number, block in enumerate(windows):
            for group, row_lengths in tables(self.job, block, self._schema, seed=(task.shard << 20) + number):
                lengths.append(row_lengths)
                yield group


def _windows(blocks: Iterator[Block], window_tokens: int) -> Iterator[Block]:
    """Concatenate consecutive blocks into blocks of at least `window_tokens` tokens; the last may be smaller."""
    waiting: list[Block] = []
    tokens = 0
    for block in blocks:
        waiting.append(block)
        tokens += len(block.columns["input_ids"].values)
        if tokens >= window_tokens:
            yield Block.joined(waiting)
            waiting, tokens = [], 0
    if waiting:
        yield Block.joined(waiting)


def _figures(lengths: NDArray[np.int64]) -> dict[str, int]:
    """Return statistics of the rows of a shard, given the number of tokens of each row."""
    batches = [lengths[start : start + _BATCH_ROWS] for start in range(0, len(lengths), _BATCH_ROWS)]
    return {
        "rows": len(lengths),
        "tokens": int(lengths.sum()),
        "longest": int(lengths.max(initial=0)),
        "padded": sum(int(batch.max()) * len(batch) for batch in batches),
    }
