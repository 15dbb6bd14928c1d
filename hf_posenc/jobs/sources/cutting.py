"""A corpus cut into tasks: documents in order, as many as fit into so many bytes, one at least.

Each cut depends on the corpus, the place where the task begins and the number of bytes, on nothing else: so reading
can go on after any shard, and makes the same tasks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..task import Cursor, Part, Task


class Reader(Protocol):
    """Reads one source in order."""

    offset: int
    row: int

    def take(self, limit: int, *, must: bool) -> tuple[Part | None, int]:
        """The next documents that fit into `limit` bytes (or, if one must be, one) and their bytes; 0 if none fits."""

    def ended(self) -> bool:
        """Whether nothing is left."""

    def forward(self, offset: int, row: int) -> bool:
        """Go on to a place further on, if that is cheaper than to begin there; whether it was done."""

    def close(self) -> None:
        """Let go of what is open."""


class Source(Protocol):
    """One file, or one data set."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def reader(self, offset: int, row: int) -> Reader:
        """One who reads on from there."""


def tasks_of(sources: Sequence[Source], shard_bytes: int, done: Mapping[int, Cursor]) -> Iterator[Task]:
    r"""The tasks that are not done yet.

    Args:
        sources (sequence of `Source`): the corpus.
        shard_bytes (`int`): how many bytes of it a task holds at most, unless one document is longer.
        done (mapping from `int` to `Cursor`): where each finished shard ends; it is not read again.

    Returns:
        Iterator over `Task`, their shards in order, none without a document.
    """
    cutter = _Cutter(sources, shard_bytes)
    place, shard = Cursor(), 0
    try:
        while True:
            if shard in done:
                place = Cursor(*done[shard])
            elif (task := cutter.cut(shard, place)) is not None:
                place = task.ends
                yield task
            else:
                return
            shard += 1
    finally:
        cutter.close()


class _Cutter:
    """Keeps the reader of the source that was read last."""

    def __init__(self, sources: Sequence[Source], shard_bytes: int) -> None:
        self.sources = sources
        self.shard_bytes = shard_bytes
        self._at: Cursor | None = None
        self._reader: Reader | None = None

    def cut(self, shard: int, begins: Cursor) -> Task | None:
        """The task that begins there; `None` where no document is left."""
        parts: list[Part] = []
        held = size = 0
        place = begins
        while place.source < len(self.sources):
            reader = self._reader_at(place)
            part, taken = reader.take(self.shard_bytes - held, must=not parts)
            size += taken
            if part is not None:
                parts.append(part)
                held += taken
            ended = reader.ended()
            place = Cursor(place.source + 1) if ended else Cursor(place.source, reader.offset, reader.row)
            self._at = place
            if ended:
                self.close()
            if held >= self.shard_bytes or (not ended and taken == 0):
                break
        return Task(shard, tuple(parts), begins, place, size) if parts else None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def _reader_at(self, place: Cursor) -> Reader:
        if self._reader is not None and self._at != place:
            before, self._at = self._at, place
            same = before is not None and before.source == place.source and before.row <= place.row
            if not (same and self._reader.forward(place.offset, place.row)):
                self.close()
        if self._reader is None:
            self._reader = self.sources[place.source].reader(place.offset, place.row)
        return self._reader
