"""Tasks: a task holds the documents of one shard; the reader cuts it from the corpus, and a worker tokenizes it.

Tasks are plain picklable values. The reader only finds the ends of documents; workers parse their content.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import xxhash

if TYPE_CHECKING:
    from .files import ByteRange

Kind = Literal["lines", "paragraphs", "file", "jsonl", "csv", "tsv", "arrow", "unreadable"]
DELIMITERS = {"csv": ",", "tsv": "\t"}
# Pattern of a blank line in UTF-8, without its line feed: characters for which `str.isspace` is True.
BLANK = (
    rb"^(?:[\t\x0b-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*+"
)


class Cursor(NamedTuple):
    r"""Position between two documents of a corpus, where reading can start.

    Args:
        source (`int`): index of the source, from 0; at the end of the corpus, the number of sources.
        offset (`int`): bytes of decompressed text before the position, in that source; 0 for tables.
        row (`int`): lines of text, or rows of a table, before the position, in that source.
    """

    source: int = 0
    offset: int = 0
    row: int = 0


@dataclass(frozen=True)
class Part:
    r"""Consecutive documents of one source (a file or a data set), as bytes that are not parsed yet.

    Args:
        source (`str`): name of the source in messages.
        kind (`str`): format of the payload: text with one document per line (`"lines"`) or between blank lines
            (`"paragraphs"`), a whole text file (`"file"`), JSON lines (`"jsonl"`), CSV records with commas (`"csv"`) or
            tabs (`"tsv"`), or an Arrow IPC stream of one table (`"arrow"`). A part of the kind `"unreadable"` is one
            bad document: the rest of a damaged file, with the reason as its payload.
        first (`int`): for text, the number of the first line, counted from 1; for tables, the index of the first row.
        payload (`bytes`): the documents. Text is unchanged, but without byte order mark and CSV header.
        size (`int`): size of the documents in bytes, even if the payload is empty because of `range`.
        header (`tuple` of `str`): names of the columns of CSV records.
        recorded (`str`): name of the source in the output; `recorded_names` makes it.
        range (`ByteRange`, *optional*): for one long document, its location in the file, from which it is read later;
            `payload` is then empty.
    """

    source: str
    kind: Kind
    first: int
    payload: bytes
    size: int = 0
    header: tuple[str, ...] = ()
    recorded: str = ""
    range: ByteRange | None = None

    def blocks(self) -> Iterator[bytes]:
        """Yield the payload in blocks; raise `ValueError` after the last one if they come from a file that changed."""
        return iter([self.payload]) if self.range is None else self.range.blocks()

    def loaded(self) -> Part:
        """Return the part with its payload in memory; raise `ValueError` if it is read from a file that changed."""
        if self.range is None:
            return self
        payload = io.BytesIO()  # `b"".join` would keep all blocks until they are joined
        payload.writelines(self.blocks())
        return replace(self, payload=payload.getvalue(), range=None)

    @property
    def unit(self) -> Literal["line", "row"]:
        """Unit of the number `first`: `"row"` for tables, `"line"` for text."""
        return "row" if self.kind == "arrow" else "line"


@dataclass(frozen=True)
class Task:
    r"""The documents of one shard.

    Args:
        shard (`int`): number of the shard, from 0.
        parts (`tuple` of `Part`): its documents, in order.
        begins, ends (`Cursor`): positions in the corpus before its first and after its last document.
    """

    shard: int
    parts: tuple[Part, ...]
    begins: Cursor
    ends: Cursor

    @property
    def size(self) -> int:
        """Size of the documents of the task in bytes, for the progress bar."""
        return sum(part.size for part in self.parts)

    def loaded(self) -> Task:
        """Return the task with all payloads in memory, for a machine that may not have the files."""
        return replace(self, parts=tuple(part.loaded() for part in self.parts))

    def digest(self) -> str:
        r"""Return a digest of the documents of the task, to detect changes of the input.

        The record of the shard stores it. If the input is unchanged, the same task in a later run has the same digest.

        Example:
            >>> Task(0, (Part("a.txt", "lines", 1, b"I ride"),), Cursor(), Cursor(1)).digest()
            'bc10d0ef596d546c11bd9d6d8459a518'
        """
        digest = xxhash.xxh3_128()
        for part in self.parts:
            digest.update("\n".join(part.header).encode())
            for block in part.blocks():
                digest.update(block)
        return digest.hexdigest()


@dataclass(frozen=True)
class Rejected:
    r"""A bad document that the job left out or replaced by an empty text, with the reason.

    Args:
        source (`str`): name of its file or data set; absolute paths are shortened by `recorded_names`.
        unit (`"line"` or `"row"`): unit of `number`.
        number (`int`): number of its line or row in the source.
        reason (`str`): the reason why it was rejected.
        text (`str`, *optional*): its first characters; `None` if there are none.
    """

    source: str
    unit: str
    number: int
    reason: str
    text: str | None = None

    def entry(self, shard: int) -> dict[str, Any]:
        """Return the document as the JSON object of a line in `rejected.jsonl`; `shard` is the number of its shard."""
        entry = {"shard": shard, "file": self.source, self.unit: self.number, "reason": self.reason}
        return entry if self.text is None else {**entry, "text": self.text}
