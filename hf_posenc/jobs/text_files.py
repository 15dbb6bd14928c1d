"""Text files as sources, cut between documents: lines, paragraphs, JSON lines and CSV, compressed or not.

The reader only searches for the ends of documents. Workers decode and parse, so one reader keeps many workers busy.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from .._explain import explain, shorten
from .files import DamagedError, InputFile, Stream
from .schema import Columns, Offered, missing_column
from .task import Part

TextKind = Literal["lines", "paragraphs", "jsonl", "csv", "tsv"]

LONGEST = 256 << 20  # bytes of one document
_LARGEST = 64 << 20  # bytes of one part
_HEAD = 1 << 20  # bytes to read when a file is opened
_HEAD_LINES = 1000
_EXCERPT = 200

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BLANK_LINE = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_LIST_INSIDE = re.compile(rb'\s*\{\s*"([^"\\]*)"\s*:\s*\[')
# A quoted field of CSV: from a quotation mark at the start of a field to the one that closes it, or to the end.
_QUOTED = {
    "csv": re.compile(rb'(?:(?<=[,\n])|\A)"[^"]*(?:""[^"]*)*(?:"|\Z)'),
    "tsv": re.compile(rb'(?:(?<=[\t\n])|\A)"[^"]*(?:""[^"]*)*(?:"|\Z)'),
}
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class TextFile(InputFile):
    """A file of text; `kind` is one of `TextKind`."""

    def size(self, columns: Columns) -> int:
        """Return the bytes of its text; an estimate for a compressed file."""
        return self.bytes() * (1 if self.compression is None else 4)

    def offered(self, columns: Columns) -> Offered | None:
        """Return its columns; `None` if the first lines have none.

        Raises:
            ValueError: if the file is not valid JSON lines or CSV, or not UTF-8.
        """
        if self.kind in ("lines", "paragraphs"):
            self.bytes()  # raises if the file does not exist
            return Offered(self.name, pa.schema([(columns.texts[0], pa.string())]))
        if self.kind != "jsonl":
            names: Sequence[str] = self.header[0]
            if len(names) == 1 and names[0] not in columns.texts:
                self._check_separator(names[0])
        else:
            names = _first_names(self.name, self._head(), columns.texts)
        complete = self.kind != "jsonl"
        return Offered(self.name, pa.schema([(name, pa.string()) for name in names]), complete) if names else None

    def reader(self, offset: int, row: int, columns: Columns, longest: int) -> TextReader:
        """Return a reader that starts at an offset between two documents."""
        if self.kind in _QUOTED and self.header[0]:
            for name in columns.schema.names:
                if name not in self.header[0]:
                    raise ValueError(missing_column(self.name, name, self.header[0], columns.texts))
        return TextReader(self, offset, row, longest)

    @cached_property
    def header(self) -> tuple[tuple[str, ...], int, int]:
        """Header of a CSV file: its column names, its number of bytes and its number of lines."""
        delimiter = "\t" if self.kind == "tsv" else ","
        with closing(TextReader(self, 0, 0, LONGEST, skip_header=False)) as reader:
            while (part := reader.take(1, must=True)[0]) is not None and part.kind != "unreadable":
                text = io.StringIO(part.payload.decode(errors="replace"), newline="\n")
                if names := next(csv.reader(text, delimiter=delimiter), []):
                    return tuple(names), reader.offset, reader.row
        return (), 0, 0

    def _head(self) -> bytes:
        """Return the first lines of the file; for a damaged file, those before the damage."""
        with closing(TextReader(self, 0, 0, LONGEST)) as reader:
            part, _ = reader.take(_HEAD, must=True)
        return b"" if part is None or part.kind == "unreadable" else part.payload

    def _check_separator(self, only: str) -> None:
        separator = next((one for one in _SEPARATORS if one in only), None)
        if separator is not None:
            fix = f'pandas.read_csv(path, sep="{separator}").to_csv("commas.csv", index=False)'
            raise ValueError(
                explain(
                    f"{self.name} has no commas between its columns",
                    got=f"one column {only!r}, with {_SEPARATORS[separator]} in its name",
                    fix="rename it to .tsv" if separator == "\t" else fix,
                )
            )


class TextReader:
    r"""Reader of a text file: whole documents, in order.

    Args:
        file (`TextFile`): the file.
        offset (`int`), row (`int`): bytes and lines before the first document to read; updated while reading.
        longest (`int`): maximum size of a document in bytes.
        skip_header (`bool`): start after the header of a CSV file.
    """

    def __init__(self, file: TextFile, offset: int, row: int, longest: int, *, skip_header: bool = True) -> None:
        if offset == 0 and skip_header and file.kind in _QUOTED:
            _, offset, row = file.header
        self.offset, self.row = offset, row
        self._file, self._longest = file, longest
        self._stream = Stream(file, offset)
        self._pending = b""  # read, but not yet part of a task
        self._damage: str | None = None
        if offset == 0:
            self._skip_byte_order_mark()

    def take(self, limit: int, *, must: bool) -> tuple[Part | None, int]:
        r"""Return the next documents that fit into `limit` bytes.

        They depend only on the file, the offset and the limit, not on earlier calls.

        Args:
            limit (`int`): bytes of all documents.
            must (`bool`): return one document even if it is longer.

        Returns:
            the part, or `None` if no document fits, and its size in bytes. After the last document of a damaged file
            comes one part of the kind `"unreadable"`, with the reason as its payload.

        Raises:
            ValueError: for a document that is longer than `longest`.
        """
        limit = min(limit, _LARGEST)
        self._fill(limit + 1)
        if not self._pending and self._damage is not None:
            reason, self._damage = self._damage, None
            return Part(self._file.name, "unreadable", self.row + 1, reason.encode()), 0
        end = len(self._pending) if len(self._pending) <= limit else self._last_end(limit)
        if end == 0 and must and self._pending:
            end = self._first_end(limit)
            if not self._pending:  # damaged before its end
                return self.take(limit, must=must)
        if end == 0:
            return None, 0
        block, self._pending = self._pending[:end], self._pending[end:]
        first = self.row + 1
        self.offset += end
        self.row += block.count(b"\n") + (not block.endswith(b"\n"))
        header = self._file.header[0] if self._file.kind in _QUOTED and first > 1 else ()
        return Part(self._file.name, self._file.kind, first, block, header), end  # type: ignore[arg-type]

    def ended(self) -> bool:
        """Return True at the end of the file."""
        self._fill(1)
        return not self._pending and self._damage is None

    def forward(self, offset: int, row: int) -> bool:
        """Skip to a later offset of a compressed file and return True; return False if a new reader is faster."""
        if self._file.compression is None or offset < self.offset:
            return False
        while (rest := offset - self.offset) > 0 and not self.ended():
            self._fill(1)
            passed = min(rest, len(self._pending))
            self._pending = self._pending[passed:]
            self.offset += passed
        self.row = row
        return True

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _skip_byte_order_mark(self) -> None:
        self._fill(len(_BOM))
        if self._pending.startswith(_BOM):
            self._pending = self._pending[len(_BOM) :]
            self.offset = len(_BOM)
        elif self._pending.startswith(_UTF16):
            self.close()
            name = self._file.name
            fix = f"iconv -f UTF-16 -t UTF-8 {name} > utf8.txt"
            raise ValueError(explain(f"{name} must be UTF-8", got="UTF-16, by its first two bytes", fix=fix))

    def _fill(self, size: int) -> None:
        """Read until `size` bytes are pending or the file ends; keep only whole documents of a damaged one."""
        blocks = [self._pending]
        pending, whole = len(self._pending), True
        while pending < size and whole and self._damage is None:
            try:
                blocks.append(self._stream.next())
                pending, whole = pending + len(blocks[-1]), bool(blocks[-1])
            except DamagedError as error:
                self._damage, whole = str(error), False
        if len(blocks) > 1:
            self._pending = b"".join(blocks)
        if self._damage is not None and not whole:
            self._pending = self._pending[: self._last_end(len(self._pending))]

    def _last_end(self, limit: int) -> int:
        """Return the end of the last document within the limit; 0 if none ends there."""
        kind = self._file.kind
        if kind in _QUOTED:
            return _without_quoted(self._pending[:limit], kind).rfind(b"\n") + 1
        if kind != "paragraphs":
            return self._pending.rfind(b"\n", 0, limit) + 1
        # Find the last blank line. Search backwards for an empty one; a blank line with spaces may come after it.
        found = [(self._pending.rfind(end, 0, limit), len(end)) for end in (b"\n\n", b"\n\r\n")]
        last = max(at + length if at >= 0 else 0 for at, length in found)
        for match in _BLANK_LINE.finditer(self._pending, last, limit):
            last = match.end()
        return last

    def _first_end(self, limit: int) -> int:
        """Return the end of the first document, which is longer than the limit."""
        searched, kind = limit, self._file.kind
        while True:
            if kind == "paragraphs":
                # Start at the last line searched before: a blank line may have been cut off there.
                match = _BLANK_LINE.search(self._pending, self._pending.rfind(b"\n", 0, searched) + 1)
                end = match.end() if match else 0
            elif kind in _QUOTED:
                end = _without_quoted(self._pending, kind).find(b"\n") + 1
            else:
                end = self._pending.find(b"\n", searched) + 1
            searched = len(self._pending)
            if (end or searched) > self._longest:
                raise ValueError(self._too_long())
            if end:
                return end
            self._fill(min(searched + max(_HEAD, searched), self._longest + 1))
            if len(self._pending) <= searched:
                return len(self._pending)

    def _too_long(self) -> str:
        unit, other = ("paragraph", "lines") if self._file.kind == "paragraphs" else ("line", "paragraphs")
        fix = f"split={other!r} (--split {other}), or " if self._file.kind in ("lines", "paragraphs") else ""
        return explain(
            f"{self._file.name}, line {self.row + 1}: one {unit} is longer than {self._longest >> 20} MiB",
            got=f"no end of it within {self._longest} bytes",
            fix=f"{fix}cut the document in two first",
        )


def _without_quoted(block: bytes, kind: str) -> bytes:
    """Replace the quoted fields of CSV by other characters, so that each remaining line feed ends a record."""
    return _QUOTED[kind].sub(lambda match: b"x" * len(match[0]), block) if b'"' in block else block


def _first_names(name: str, head: bytes, texts: Sequence[str]) -> list[str]:
    r"""Return the keys of the first JSON lines; none if no line is an object.

    Raises:
        ValueError: if the file is one JSON value instead of one line for each document.

    Example:
        >>> _first_names("a.jsonl", b'{"text": "I ride", "id": 1}\n', ["text"])
        ['text', 'id']
        >>> _first_names("a.json", b'[{"text": "I ride"}]', ["text"])
        Traceback (most recent call last):
        ValueError: a.json must be JSON lines, one object a line
          got: a list: '[{"text": "I ride"}]'
          fix: jq -c '.[]' a.json > lines.jsonl
    """
    objects = [value for line in head.split(b"\n")[:_HEAD_LINES] if isinstance(value := _json(line), dict)]
    names = list(dict.fromkeys(key for value in objects for key in value))
    start = head.lstrip()
    if start.startswith(b"["):
        raise ValueError(_not_lines(name, "a list", start, ".[]"))
    if _spans_lines(start, known=bool(names)):
        match = _LIST_INSIDE.match(head)
        path = f".{match[1].decode(errors='replace')}[]" if match else "."
        raise ValueError(_not_lines(name, "an object on several lines", start, path))
    if objects and texts[0] not in names:
        for key, value in objects[0].items():
            if isinstance(value, list) and value and isinstance(value[0], dict) and texts[0] in value[0]:
                raise ValueError(
                    _not_lines(name, f"an object with the documents in its list {key!r}", start, f".{key}[]")
                )
    return names


def _json(line: bytes) -> Any:
    """Parse a line of JSON; return `None` if it is invalid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _spans_lines(text: bytes, *, known: bool) -> bool:
    """Return True if text begins with a JSON object on several lines; `known` if some line is an object by itself."""
    lines = text[:4096].split(b"\n")
    if len(lines) > 1 and lines[0].strip() == b"{" and lines[1].lstrip().startswith(b'"'):
        return True
    if known:
        return False
    try:
        value, end = json.JSONDecoder().raw_decode(decoded := text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "\n" in decoded[:end]


def _not_lines(name: str, got: str, start: bytes, path: str) -> str:
    return explain(
        f"{name} must be JSON lines, one object a line",
        got=f"{got}: {shorten(start[:_EXCERPT].decode(errors='replace').strip())}",
        fix=f"jq -c '{path}' {name} > lines.jsonl",
    )
