"""Text files as sources: find documents in lines, paragraphs, whole files, JSON lines and CSV, compressed or not.

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
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from .._common.errors import explain, shorten, value_error
from .files import ByteRange, DamagedError, InputFile
from .schema import Columns, SourceColumns
from .task import BLANK, DELIMITERS, Part

LONGEST = 256 << 20  # bytes of one document
_LARGEST = 64 << 20  # bytes of one part
_KEPT = 4 << 20  # bytes of a document up to which the reader hands over the document itself, not its byte range
_HEAD = 1 << 20  # bytes of JSON lines that are searched for column names
_STEP = 1 << 16  # bytes that are compared at once, so that the result stays in the cache of the processor

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BLANK_LINE = re.compile(BLANK + rb"\n", re.MULTILINE)
_LIST_INSIDE = re.compile(rb'\s*\{\s*"([^"\\]*)"\s*:\s*\[')
# A quoted field of CSV: from a quotation mark at the start of a field to the one that closes it, or to the end.
_QUOTED = {
    "csv": re.compile(rb'(?:(?<=[,\n])|\A)"[^"]*(?:""[^"]*)*(?:"|\Z)'),
    "tsv": re.compile(rb'(?:(?<=[\t\n])|\A)"[^"]*(?:""[^"]*)*(?:"|\Z)'),
}
# A string of JSON: group 1 is its end; without an end, group 2 is the backslash of an incomplete escape.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:(")|(\\?)\Z)', re.DOTALL)
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class TextFile(InputFile):
    """Source that reads a text file; `kind` is `"lines"`, `"paragraphs"`, `"file"`, `"jsonl"`, `"csv"` or `"tsv"`.

    The kinds are explained in `Part`.
    """

    def size(self, columns: Columns) -> int:
        """Return the size of the text in bytes; for a compressed file, 4 times the file size as an estimate."""
        return self.bytes() * (1 if self.compression is None else 4)

    def read_columns(self, texts: Sequence[str]) -> SourceColumns | None:
        """Return the names of the columns, all of type string; `None` if the file has no columns, for example if empty.

        The names are the keys in the first JSON lines (up to 1000), or the header of CSV. Other text has one column,
        named `texts[0]`; `texts` are the names of the text columns in the settings.
        """
        if self.kind in ("lines", "paragraphs", "file"):
            self.bytes()  # raises if the file does not exist
            return SourceColumns(self.name, pa.schema([(texts[0], pa.string())]))
        with closing(TextReader(self)) as reader:
            names: Sequence[str] = reader.header
            if self.kind == "jsonl":
                part = reader.take(_HEAD, must=True)
                names = [] if part is None or part.kind != "jsonl" else _first_keys(self.name, _shortened(part), texts)
            elif len(names) == 1 and names[0] not in texts:
                self._check_delimiter(names[0])
        columns = pa.schema([(name, pa.string()) for name in names])
        return SourceColumns(self.name, columns, complete=self.kind != "jsonl") if names else None

    def _check_delimiter(self, only: str) -> None:
        other = next((one for one in _OTHER_DELIMITERS if one in only), None)
        if other is not None:
            fix = f'pandas.read_csv(path, sep="{other}").to_csv("commas.csv", index=False)'
            raise value_error(
                f"{self.name} has no commas between its columns",
                got=f"one column {only!r}, with {_OTHER_DELIMITERS[other]} in its name",
                fix="rename it to .tsv" if other == "\t" else fix,
            )


class TextReader:
    r"""Reader that returns consecutive documents of a text file in parts of limited size.

    Attributes: `offset` and `row`, the numbers of bytes and lines before the next document; `header`, the column names
    of CSV.

    Args:
        file (`TextFile`): the file. Creating the reader skips a byte order mark, and reads the header of CSV.
        longest (`int`): a document of more bytes raises `ValueError`.
    """

    def __init__(self, file: TextFile, longest: int = LONGEST) -> None:
        self.offset = self.row = 0
        self.header: tuple[str, ...] = ()
        self._file, self._longest = file, longest
        self._blocks = file.blocks()
        self._pending = b""  # read, but not yet part of a task
        self._damage: str | None = None
        self._skip_byte_order_mark()
        while file.kind in DELIMITERS and not self.header and (part := self.take(1, must=True)) is not None:
            if part.kind == "unreadable":
                self._damage = part.payload.decode()
                break
            text = io.StringIO(part.payload.decode(errors="replace"), newline="\n")
            self.header = tuple(next(csv.reader(text, delimiter=DELIMITERS[file.kind]), ()))

    def seek(self, offset: int, row: int) -> None:
        """Skip forward to the document at byte `offset` of the decompressed text, with `row` lines before it.

        A compressed file is decompressed up to that offset; other files are opened at the offset.
        """
        if offset > self.offset and self._file.compression is None:
            self.close()
            self._blocks, self._pending, self.offset = self._file.blocks(offset), b"", offset
        while self.offset < offset and not self.ended():
            passed = min(offset - self.offset, len(self._pending))
            self._pending = self._pending[passed:]
            self.offset += passed
        self.row = max(row, self.row)

    def take(self, limit: int, *, must: bool) -> Part | None:
        r"""Return a part with as many of the next documents as fit into `limit` bytes.

        The result depends only on the file, the position (`offset`, `row`) and the arguments, not on earlier calls.
        """
        limit = min(limit, _LARGEST)
        self._fill(limit + 1)
        if not self._pending and self._damage is not None:
            reason, self._damage = self._damage, None
            return Part(self._file.name, "unreadable", self.row + 1, reason.encode())
        end: int | None = len(self._pending) if len(self._pending) <= limit else self._last_end(limit)
        if end == 0 and must and self._pending:
            end = self._first_end(limit)
            if end is None and (part := self._long_document()) is not None:
                return part
            if not self._pending:  # damaged before its end
                return self.take(limit, must=must)
        if not end:
            return None
        block, self._pending = self._pending[:end], self._pending[end:]
        first = self.row + 1
        self.offset += end
        self.row += _line_feeds(block) + (not block.endswith(b"\n"))
        return Part(self._file.name, self._file.kind, first, block, end, self.header)  # type: ignore[arg-type]

    def ended(self) -> bool:
        """Return True if the file has no further documents."""
        self._fill(1)
        return not self._pending and self._damage is None

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()

    def _skip_byte_order_mark(self) -> None:
        self._fill(len(_BOM))
        if self._pending.startswith(_BOM):
            self._pending = self._pending[len(_BOM) :]
            self.offset = len(_BOM)
        elif self._pending.startswith(_UTF16):
            self.close()
            name = self._file.name
            fix = f"iconv -f UTF-16 -t UTF-8 {name} > utf8.txt"
            raise value_error(f"{name} must be UTF-8", got="UTF-16, by its first two bytes", fix=fix)

    def _fill(self, size: int) -> None:
        """Read until the buffer `_pending` holds at least `size` bytes, or the file ends."""
        blocks, pending = [self._pending], len(self._pending)
        try:
            while pending < size and (block := next(self._blocks, b"")):
                blocks.append(block)
                pending += len(block)
        except DamagedError as error:
            self._damage = str(error)
        if len(blocks) > 1:
            self._pending = b"".join(blocks)
        if self._damage is not None:
            self._pending = self._pending[: self._last_end(len(self._pending))]

    def _last_end(self, limit: int) -> int:
        """Return the number of bytes of the documents that lie completely in `_pending[:limit]`."""
        kind = self._file.kind
        if kind == "file":
            return 0
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

    def _first_end(self, limit: int) -> int | None:
        """Return the size of the next document in bytes, after reading it to its end into the buffer `_pending`."""
        searched, kind = limit, self._file.kind
        # Blank text is kept, because a file of nothing else has no documents.
        may_be_long = kind not in _QUOTED and self._file.path is not None
        if self._file.compression is not None:  # the worker decompresses it up to the document
            may_be_long = may_be_long and self.offset < _LARGEST
        while True:
            if kind == "paragraphs":
                # Start at the last line searched before: a blank line may have been cut off there.
                match = _BLANK_LINE.search(self._pending, self._pending.rfind(b"\n", 0, searched) + 1)
                end = match.end() if match else 0
            elif kind == "file":
                end = 0
            elif kind in _QUOTED:
                end = _without_quoted(self._pending, kind).find(b"\n") + 1
            else:
                end = self._pending.find(b"\n", searched) + 1
            searched = len(self._pending)
            if (end or searched) > self._longest:
                raise ValueError(self._too_long())
            if end:
                return end
            most = self._longest + 1
            if may_be_long and not self._pending.isspace():
                most = max(limit, _KEPT) + 1
                if searched >= most:
                    return None
            self._fill(min(searched + max(_HEAD, searched), most))
            if len(self._pending) <= searched:
                return len(self._pending)

    def _long_document(self) -> Part | None:
        """Read the next document to its end without keeping its bytes; return a part with its byte range."""
        digest, size, line_feeds, line = xxhash.xxh3_128(), 0, 0, b""
        while self._pending:
            block, end = self._pending, 0
            if self._file.kind == "paragraphs":
                text = line + block
                match = _BLANK_LINE.search(text)
                end = match.end() - len(line) if match else 0
                # The line at the end of the block may be blank; one that is not becomes a short one.
                line = text[text.rfind(b"\n") + 1 :]
                line = b"x" if line.decode(errors="ignore").strip() else line  # its last character may be cut
            elif self._file.kind != "file":
                end = block.find(b"\n") + 1
            block, self._pending = block[: end or None], block[end:] if end else b""
            digest.update(block)
            size += len(block)
            line_feeds += _line_feeds(block)
            if size > self._longest:
                raise ValueError(self._too_long())
            if end:
                break
            self._fill(1)
        if not end and self._damage is not None:
            return None
        where = ByteRange(self._file, self.offset, size, digest.hexdigest())
        part = Part(self._file.name, self._file.kind, self.row + 1, b"", size, self.header, range=where)  # type: ignore[arg-type]
        self.offset += size
        self.row += line_feeds + (not block.endswith(b"\n"))
        return part

    def _too_long(self) -> str:
        kind = self._file.kind
        unit, other = {"paragraphs": ("paragraph", "line"), "file": ("file", "paragraph")}.get(
            kind, ("line", "paragraph")
        )
        fix = f"document={other!r} (--document {other}), or " if kind in ("lines", "paragraphs", "file") else ""
        return explain(
            f"{self._file.name}, line {self.row + 1}: one {unit} is longer than {self._longest >> 20} MiB",
            got=f"no end of it within {self._longest} bytes",
            fix=f"{fix}cut the document in two first",
        )


def _line_feeds(block: bytes) -> int:
    """Return the number of line feeds in a block, about five times as fast as `block.count`."""
    # One process counts the lines for all workers, so a slow count would slow the whole job.
    values = np.frombuffer(block, np.uint8)
    return sum(int(np.count_nonzero(values[start : start + _STEP] == 10)) for start in range(0, len(block), _STEP))


def _without_quoted(block: bytes, kind: str) -> bytes:
    """Replace each quoted CSV field by as many letters `x`, so that each remaining line feed ends a record."""
    return _QUOTED[kind].sub(lambda match: b"x" * len(match[0]), block) if b'"' in block else block


def _shortened(part: Part) -> bytes:
    r"""Return the payload of a part of JSON lines, to search for keys.

    Example:
        >>> _shortened(Part("a.jsonl", "jsonl", 1, b'{"text": "I ride"}'))
        b'{"text": "I ride"}'
    """
    if part.range is None:
        return part.payload
    found, rest = [], b""
    for block in part.blocks():
        text = rest + block
        strings = list(_STRING.finditer(text))
        # The last string may continue in the next block. If it is long already, letters stand for its bytes.
        is_open = bool(strings) and not strings[-1][1]
        stop = strings[-1].start() if is_open else len(text)
        rest = text[stop:] if len(text) - stop <= _STEP else b'"' + b"x" * _STEP + strings[-1][2]
        found.append(_STRING.sub(lambda match: match[0] if len(match[0]) <= _STEP else b'"..."', text[:stop]))
    return b"".join([*found, rest])


def _first_keys(name: str, head: bytes, texts: Sequence[str]) -> list[str]:
    r"""Return the keys of the objects in the first JSON lines of a file; an empty list if no line is an object.

    Example:
        >>> _first_keys("a.jsonl", b'{"text": "I ride", "id": 1}\n', ["text"])
        ['text', 'id']
        >>> _first_keys("a.json", b'[{"text": "I ride"}]', ["text"])
        Traceback (most recent call last):
        ValueError: a.json must be JSON lines, one object a line
          got: a list: '[{"text": "I ride"}]'
          fix: jq -c '.[]' a.json > lines.jsonl
    """
    lines = [line.strip() for line in head.split(b"\n", 1000)[:1000]]
    objects = [value for line in lines if isinstance(value := _json(line), dict)]
    names = list(dict.fromkeys(key for value in objects for key in value))
    first, second, *_ = [*filter(None, lines), b"", b""]
    got, path = "", "."
    if first.startswith(b"["):
        got, path = "a list", ".[]"
    elif first.startswith(b"{") and first.endswith((b"{", b"[", b",", b":")) and second and _json(second) is None:
        inside = _LIST_INSIDE.match(head)
        got, path = "an object on several lines", f".{inside[1].decode(errors='replace')}[]" if inside else "."
    elif objects and texts[0] not in names:
        for key, value in objects[0].items():
            if isinstance(value, list) and value and isinstance(value[0], dict) and texts[0] in value[0]:
                got, path = f"an object with the documents in its list {key!r}", f".{key}[]"
    if got:
        raise value_error(
            f"{name} must be JSON lines, one object a line",
            got=f"{got}: {shorten(head[:200].decode(errors='replace').strip())}",
            fix=f"jq -c '{path}' {name} > lines.jsonl",
        )
    return names


def _json(line: bytes) -> Any:
    """Parse a line of JSON; return `None` if it is invalid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
