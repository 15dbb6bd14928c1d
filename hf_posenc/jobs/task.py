"""Tasks: a task holds the documents of one shard; the reader cuts it from the corpus, and a worker tokenizes it.

Tasks are plain picklable values. The reader only finds the ends of documents; workers parse. `sources` makes tasks,
`shard_writer` turns them into shards, and three values identify the inputs in a later run:

- `Sources.fingerprint()`: a JSON object for each source, kept in the manifest: name, kind, size, and a digest of the
  head, middle and tail of a file. It holds no times, so equal corpora on two machines give equal manifests.
- `Sources.stamps()`: a JSON value for each source, saved beside the manifest: the timestamps of the file. While they
  are equal, the file is not read again.
- `Task.digest()`: a digest of all bytes of a task, noted as `"digest"` in the record of its shard beside `"begins"`
  and `"ends"`. To compare a whole input with its shards, read it again: `Sources.tasks(shard_bytes)` gives the same
  tasks, so the digest of each equals that in the record of its shard.

`Sources.differences(...)` uses all three: the bytes of finished shards must be unchanged; input after the last of them
may be repaired, replaced or removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import xxhash

Kind = Literal["lines", "paragraphs", "jsonl", "csv", "tsv", "arrow", "unreadable"]


class Cursor(NamedTuple):
    r"""An offset between two documents of a corpus, at which reading can start.

    Args:
        source (`int`): index of the source, from 0; the number of sources at the end of the corpus.
        offset (`int`): bytes of its decompressed text before the offset; 0 for tables.
        row (`int`): lines of its text, or rows of a table, before the offset.
    """

    source: int = 0
    offset: int = 0
    row: int = 0


@dataclass(frozen=True)
class Part:
    r"""Consecutive documents of one source.

    Args:
        source (`str`): name of the source in messages.
        kind (`str`): format of the payload: text with a document a line (`"lines"`) or between blank lines
            (`"paragraphs"`), JSON lines (`"jsonl"`), CSV records with commas (`"csv"`) or tabs (`"tsv"`), or an Arrow
            IPC stream of one table (`"arrow"`). `"unreadable"` stands for the rest of a damaged file: one bad document,
            with the reason as its payload.
        first (`int`): number of the first line, counted from 1, or of the first row, counted from 0.
        payload (`bytes`): the documents. Text is unchanged, except that a byte order mark at its start is left out.
        header (`tuple` of `str`): names of the columns of CSV records.
    """

    source: str
    kind: Kind
    first: int
    payload: bytes
    header: tuple[str, ...] = ()

    @property
    def unit(self) -> Literal["line", "row"]:
        """Unit that `first` counts."""
        return "row" if self.kind == "arrow" else "line"


@dataclass(frozen=True)
class Task:
    r"""The documents of one shard.

    Args:
        shard (`int`): number of the shard, from 0.
        parts (`tuple` of `Part`): its documents, in order.
        begins, ends (`Cursor`): offsets of its first document and of the end of its last one.
        size (`int`): bytes of the corpus that the task covers, for the progress bar.
    """

    shard: int
    parts: tuple[Part, ...]
    begins: Cursor
    ends: Cursor
    size: int

    def digest(self) -> str:
        r"""Return a digest of all bytes of the task, to compare them with the input of another run.

        Returns:
            `str`: the xxh3_128 digest of the payloads, in hexadecimal.

        Example:
            >>> part = Part("a.txt", "lines", 1, b"I ride")
            >>> Task(0, (part,), Cursor(), Cursor(1), 6).digest()
            'bc10d0ef596d546c11bd9d6d8459a518'
        """
        digest = xxhash.xxh3_128()
        for part in self.parts:
            digest.update("\n".join(part.header).encode())
            digest.update(part.payload)
        return digest.hexdigest()


@dataclass(frozen=True)
class Rejected:
    r"""A document that was left out, or replaced by an empty text.

    Args:
        source (`str`), unit (`"line"` or `"row"`), number (`int`): its file, and its line or row there.
        reason (`str`): the reason.
        text (`str`, *optional*): its first characters, if they can be shown.
    """

    source: str
    unit: str
    number: int
    reason: str
    text: str | None = None

    def entry(self, shard: int) -> dict[str, Any]:
        """Return the entry of `rejected.jsonl`."""
        entry = {"shard": shard, "file": self.source, self.unit: self.number, "reason": self.reason}
        return entry if self.text is None else {**entry, "text": self.text}
