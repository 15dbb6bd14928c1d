"""The documents of a task, tokenised in small batches, and what happens to bad ones.

Runs in a worker; how a payload is read is for `rows`, which tokenizer is asked for `tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..._explain import explain, shorten
from ...ragged import Ragged
from ..options import Job
from ..reading.rows import Reading, rows_of
from ..task import Part, Rejected, Task
from .tokens import Tokens

Tick = Callable[[int, int], None]

# What is tokenised at a time: the tokenizer takes about 100 bytes a token while it works, 30 MB for this.
_BATCH_BYTES = 1 << 20
_ROW_BYTES = 32  # what a row takes besides: empty ones are many to a megabyte
_EXCERPT = 200  # characters of a rejected document that are written down


@dataclass
class Counted:
    r"""What has been read of a task so far.

    Args:
        documents (`int`): all of them, rejected ones too.
        cut (`int`): how many lost tokens to the limit.
        rejected (`list` of `Rejected`): the bad ones.
    """

    documents: int = 0
    cut: int = 0
    rejected: list[Rejected] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Block:
    r"""Some tokenised documents.

    Args:
        ids (`Ragged`): a row a document, or several where a long one goes on.
        types (`Ragged`, *optional*): which text of a pair each token is of; only with pairs.
        carried (`pyarrow.Table`): the further columns, a row a document.
        sample (`np.ndarray` `(rows,)` int64): the document of each row: what is carried is repeated only where it is
            written.
    """

    ids: Ragged
    types: Ragged | None
    carried: pa.Table
    sample: NDArray[np.int64]

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Several as one; at least one."""
        types = [block.types for block in blocks if block.types is not None]
        return cls(
            Ragged.joined([block.ids for block in blocks]),
            Ragged.joined(types) if types else None,
            pa.concat_tables([block.carried for block in blocks]),
            np.concatenate([block.sample + before for block, before in zip(blocks, _counts(blocks), strict=True)]),
        )


class Documents:
    r"""Reads tasks of one job.

    Args:
        job (`Job`): its columns and tokenizer, and what bad rows get.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tokens = Tokens(job)
        pair = job.text_pair_column
        self._names = [job.text_column] if pair is None else [job.text_column, pair]
        self._reading = Reading(job.text_column, pair, job.carried)

    def of(self, task: Task, counted: Counted, tick: Tick) -> Iterator[Block]:
        r"""The documents of a task, in order.

        Args:
            task (`Task`): whose.
            counted (`Counted`): is brought up to date.
            tick (callable): told the tokens of each batch, and its share in the bytes of the task.

        Raises:
            ValueError: for a bad document, where the job says so; with file, line and reason.
        """
        payloads = sum(len(part.payload) for part in task.parts)
        begun = told = 0  # of the payloads, and of the bytes that progress counts
        for part in task.parts:
            rows = rows_of(part, self._reading)
            sizes = _ROW_BYTES + np.asarray(sum(_bytes(rows.table.column(name)) for name in self._names))
            ends = np.cumsum(sizes)
            for start, stop in runs(sizes, _BATCH_BYTES):
                table = rows.table.slice(start, stop - start)
                bad = {row - start: reason for row, reason in rows.bad.items() if start <= row < stop}
                raw = {row - start: rows.excerpts[row] for row in rows.excerpts if start <= row < stop}
                block = self._block(part, table, rows.numbers[start:stop], bad, raw, counted)
                read = begun + len(part.payload) * int(ends[stop - 1]) // max(int(ends[-1]), 1)
                tick(task.size * read // payloads - told, len(block.ids.values))
                told = task.size * read // payloads
                yield block
            begun += len(part.payload)

    def _block(
        self,
        part: Part,
        table: pa.Table,
        numbers: NDArray[np.int64],
        bad: dict[int, str],
        raw: dict[int, str],
        counted: Counted,
    ) -> Block:
        texts, *pairs = [[text or "" for text in table.column(name).to_pylist()] for name in self._names]
        encoded, refused = self._tokens.encode(texts, pairs[0] if pairs else None)
        bad = {**refused, **bad}
        ids, types, sample = encoded.ids, encoded.token_type_ids if pairs else None, encoded.sample
        counted.documents += len(table)
        counted.cut += encoded.truncated
        if bad:
            counted.rejected += self._rejected(part, numbers, bad, {row: texts[row] or raw.get(row, "") for row in bad})
            if self._job.on_bad_row == "skip":
                keep = ~np.isin(sample, np.fromiter(bad, np.int64, len(bad)))
                ids, types, sample = ids.filter(keep), None if types is None else types.filter(keep), sample[keep]
        return Block(ids, types, table.drop_columns(self._names), sample)

    def _rejected(
        self, part: Part, numbers: NDArray[np.int64], bad: dict[int, str], texts: Mapping[int, str]
    ) -> list[Rejected]:
        found = [
            Rejected(part.source, part.unit, int(numbers[row]), bad[row], texts[row][:_EXCERPT] or None)
            for row in sorted(bad)
        ]
        if self._job.on_bad_row == "error":
            first = found[0]
            ways = ['on_bad_row="skip" leaves such rows out and lists them in rejected.jsonl']
            if self._job.pack is None:
                ways.append('on_bad_row="keep-empty" keeps them as empty texts')
            if part.kind == "lines" and not first.text:
                ways.append('split="paragraphs" reads documents between blank lines')
            raise ValueError(
                explain(
                    f"{first.source}, {first.unit} {first.number}: {first.reason}",
                    got=shorten(first.text) if first.text else "no text",
                    fix="; ".join(ways),
                )
            )
        return found


def runs(sizes: NDArray[Any], most: int) -> Iterator[tuple[int, int]]:
    r"""Neighbours that together have about `most`; a larger one may be a run of its own.

    Args:
        sizes (`np.ndarray` `(N,)` of integers): of each.
        most (`int`): of a run, give or take one of them.

    Returns:
        Pairs of where each run begins and ends; none for no sizes.

    Example:
        >>> list(runs(np.array([3, 3, 3, 9, 1]), 6))
        [(0, 2), (2, 4), (4, 5)]
    """
    before = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(np.diff(before // most, prepend=-1))
    yield from pairwise([*starts.tolist(), len(sizes)])


def _counts(blocks: Sequence[Block]) -> NDArray[np.int64]:
    """How many documents come before each block."""
    counts = np.array([len(block.carried) for block in blocks], dtype=np.int64)
    before: NDArray[np.int64] = np.cumsum(counts) - counts
    return before


def _bytes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return sizes
