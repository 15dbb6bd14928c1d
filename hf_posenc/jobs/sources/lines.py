"""Files of lines and of paragraphs: cut between documents, counted, handed on as bytes.

Nothing is decoded or parsed here: the one who reads must keep several who tokenise busy.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from ..._explain import explain
from ..reading.rows import Reading
from ..task import Part
from .columns import FIRST, Offered, told_from_json
from .files import InputFile
from .json_shape import check_lines
from .streams import Stream

TextKind = Literal["lines", "paragraphs", "jsonl"]

LONGEST = 256 << 20  # bytes of one document
LARGEST = 64 << 20  # bytes of one part, so that its texts fit an array of Arrow with room to spare
_STEP = 4 << 20
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BLANK_LINE = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")


@dataclass(frozen=True)
class TextFile(InputFile):
    """One file of documents in text, `kind` saying how they are told apart."""

    kind: TextKind
    reading: Reading = field(default_factory=Reading)

    def offered(self) -> Offered | None:
        """Its columns: the texts alone, or those that the first JSON lines show; `None` where there are no such."""
        if self.kind != "jsonl":
            return Offered(self.name, pa.schema([(self.reading.text_column, pa.string())]))
        with closing(self.reader(0, 0)) as reader:
            part = None
            while part is None and not reader.ended():
                part, _ = reader.take(FIRST, must=True)
        told = None if part is None else told_from_json(part.payload.split(b"\n"))
        if part is not None:
            check_lines(self.name, part.payload, told, self.reading.texts)
        return None if told is None else Offered(self.name, told, strict=False)

    def reader(self, offset: int, row: int) -> TextReader:
        """One who reads on from a place between two documents."""
        return TextReader(self, offset, row)


class TextReader:
    r"""Reads a file of text in order, whole documents at a time.

    Args:
        file (`TextFile`): what to read.
        offset (`int`), row (`int`): where to begin: bytes and lines that lie before; kept up to date.
    """

    def __init__(self, file: TextFile, offset: int = 0, row: int = 0) -> None:
        self.file = file
        self.offset = offset
        self.row = row
        self._stream = Stream(file.path, file.compression, file.name, offset)
        self._held = b""  # read, not yet handed on
        if offset == 0:
            self._skip_byte_order_mark()

    def take(self, limit: int, *, must: bool) -> tuple[Part | None, int]:
        r"""The next documents that fit into `limit` bytes.

        How much is taken depends on the file, the place and the limit alone, not on what was read before.

        Args:
            limit (`int`): how many bytes at most.
            must (`bool`): take one document even if it is longer.

        Returns:
            the part, `None` where there was nothing but blank lines, and how many bytes it took; 0 when nothing fits.
        """
        limit = min(limit, LARGEST)
        self._fill(limit + 1)
        cut = len(self._held) if len(self._held) <= limit else self._last_end(limit)
        if cut == 0 and must and self._held:
            cut = self._first_end(limit)
        if cut == 0:
            return None, 0
        block, self._held = self._held[:cut], self._held[cut:]
        first = self.row + 1
        self.offset += cut
        self.row += block.count(b"\n") + (not block.endswith(b"\n"))
        if self.file.kind != "lines" and not _NOT_BLANK.search(block):
            return None, cut
        return Part(self.file.name, self.file.kind, first, block), cut

    def ended(self) -> bool:
        """Whether nothing is left."""
        self._fill(1)
        return not self._held

    def forward(self, offset: int, row: int) -> bool:
        """Read on to a place further on where the file is compressed; a plain one is entered there by a jump."""
        if self.file.compression is None or offset < self.offset:
            return False
        while (rest := offset - self.offset) > 0 and not self.ended():
            self._fill(min(rest, _STEP))
            passed = min(rest, len(self._held))
            self._held = self._held[passed:]
            self.offset += passed
        self.row = row
        return True

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()

    def _skip_byte_order_mark(self) -> None:
        self._fill(len(_BOM))
        if self._held.startswith(_BOM):
            self._held = self._held[len(_BOM) :]
            self.offset = len(_BOM)
        elif self._held.startswith(_UTF16):
            self.close()
            raise ValueError(
                explain(
                    f"{self.file.name} is not UTF-8, but UTF-16 by its first two bytes",
                    fix=f"iconv -f UTF-16 -t UTF-8 {self.file.name} > utf8.txt",
                )
            )

    def _fill(self, size: int) -> None:
        """Hold at least so many bytes, unless the file ends."""
        if len(self._held) < size:
            more = self._stream.read(size - len(self._held))
            self._held = self._held + more if self._held else more

    def _last_end(self, limit: int) -> int:
        """Where the last document ends that ends within the limit; 0 when none does."""
        if self.file.kind != "paragraphs":
            return self._held.rfind(b"\n", 0, limit) + 1
        # The last blank line. Most are a bare line end, found from behind; those with spaces in them may lie after it.
        found_at = [(self._held.rfind(end, 0, limit), len(end)) for end in (b"\n\n", b"\n\r\n")]
        last = max(at + length if at >= 0 else 0 for at, length in found_at)
        for found in _BLANK_LINE.finditer(self._held, last, limit):
            last = found.end()
        return last

    def _first_end(self, limit: int) -> int:
        """Where the first document ends, which is longer than the limit."""
        seen = limit
        while True:
            if self.file.kind == "paragraphs":
                # From the beginning of the last line on: a blank line may lie across what was seen and what was not.
                found = _BLANK_LINE.search(self._held, self._held.rfind(b"\n", 0, seen) + 1)
                end = found.end() if found else 0
            else:
                end = self._held.find(b"\n", seen) + 1
            seen = len(self._held)
            if (end or seen) > LONGEST:
                raise ValueError(self._too_long())
            if end:
                return end
            self._fill(min(seen + max(_STEP, seen), LONGEST + 1))
            if len(self._held) == seen:
                return seen

    def _too_long(self) -> str:
        unit, other = ("paragraph", "lines") if self.file.kind == "paragraphs" else ("line", "paragraphs")
        fix = "" if self.file.kind == "jsonl" else f"split={other!r} (--split {other}), or "
        return explain(
            f"{self.file.name}, line {self.row + 1}: one {unit} is longer than {LONGEST >> 20} MiB",
            got=f"no end of it within {LONGEST} bytes",
            fix=f"{fix}cut the document in two first",
        )
