"""Text files: lines, paragraphs, whole files, JSON lines and CSV, read from any byte of the file on.

A part is a range of bytes, and holds the documents that begin in it. A compressed file is a single part; its documents
are divided among shards by the same rule, counted in decompressed bytes.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .._common.errors import explain, lone_surrogate, shorten, value_error
from .columns import Columns, SourceColumns, is_string
from .documents import (
    BATCH_BYTES,
    BATCH_ROWS,
    LONGEST,
    Bad,
    Documents,
    Part,
    excerpt,
    first_values,
    make_documents,
    not_unicode,
)
from .files import DamagedError, InputFile

_BLOCK = 1 << 20
_HEAD = 1 << 20  # bytes of JSON lines that are searched for column names
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
DELIMITERS = {"csv": ",", "tsv": "\t"}
_DELIMITER_NAMES = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
# Programs that decompress a file to their output.
_READERS = {None: "cat", "gzip": "gzip -dc", "bz2": "bzip2 -dc", "xz": "xz -dc", "zstd": "zstd -dc", "lz4": "lz4 -dc"}
# A blank line in UTF-8: characters for which `str.isspace` is True, and a line feed or the end.
_BLANK = (
    rb"^(?:[\t\x0b-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*+"
)
_BLANK_LINE = re.compile(_BLANK + rb"\n", re.MULTILINE)


class LineTooLong(Exception):
    """Error raised for a line of more than `LONGEST` bytes."""


class Lines:
    r"""Whole lines of a stream of bytes, in blocks of about a megabyte.

    The attributes `offset` and `number` are the position and the number of the next line. If the stream begins inside a
    file, `line_before` is the end of the line before the first one. `damage` is the reason why a compressed file ends
    early.

    Args:
        read (callable): returns at most `size` more bytes, and none at the end.
        offset (`int`): position of the first byte that `read` returns.

    Example:
        >>> lines = Lines(io.BytesIO(b"I ride\nbike\nfar").read)
        >>> list(lines.before(8)), list(lines.before(99))   # lines that begin before byte 8, and the others
        ([b'I ride\nbike\n'], [b'far'])
    """

    def __init__(self, read: Callable[[int], bytes], offset: int = 0) -> None:
        self.offset, self.number = offset, 1
        self.damage: str | None = None
        self.line_before: bytes | None = None
        self._read, self._rest = read, b""

    def before(self, end: float) -> Iterator[bytes]:
        """Yield blocks of the next lines, up to the last one that begins before position `end`."""
        while self.offset < end:
            left = end - self.offset
            is_here = left <= len(self._rest)
            cut = (self._rest.find(b"\n", int(left) - 1) if is_here else self._rest.rfind(b"\n")) + 1
            if not cut:
                if len(self._rest) > LONGEST:
                    raise LineTooLong
                if self._fill(max(min(_BLOCK, left - len(self._rest)), 1 << 16, len(self._rest))):
                    continue
                cut = len(self._rest)
                if not cut:
                    return
            yield self.skip(cut)

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes without reading past them; fewer if the stream ends before."""
        while len(self._rest) < size and self._fill(_BLOCK):
            pass
        return self._rest[:size]

    def skip_line(self, end: float) -> None:
        """Skip the rest of the present line, or as much of it as lies before position `end`; set `line_before`."""
        self.line_before, is_end = b"", False
        while not is_end and self.offset < end and (self._rest or self._fill(_BLOCK)):
            cut = self._rest.find(b"\n") + 1
            is_end = cut > 0
            block = self.skip(cut or len(self._rest))
            # One letter shows that the line is not blank; the rest of it is not needed.
            self.line_before = b"x" if re.search(rb"[!-~]", self.line_before) else self.line_before + block
        self.number = 1

    def skip(self, size: int) -> bytes:
        """Return the next `size` bytes of those that were read already."""
        block, self._rest = self._rest[:size], self._rest[size:]
        self.offset += size
        self.number += block.count(b"\n")
        return block

    def _fill(self, size: float) -> bool:
        """Read more bytes; return False at the end of the stream."""
        block = b""
        if self.damage is None:
            try:
                block = self._read(int(size))
            except DamagedError as error:
                self.damage = str(error)
                # The last line is incomplete; the bad document that reports the damage stands for it.
                self._rest = self._rest[: self._rest.rfind(b"\n") + 1]
        self._rest += block
        return bool(block)


@dataclass(frozen=True)
class TextFile(InputFile):
    """Text file; `kind` is `"lines"`, `"paragraphs"`, `"file"` (one document), `"jsonl"`, `"csv"` or `"tsv"`."""

    def read_columns(self, texts: Sequence[str]) -> SourceColumns | None:
        """Return the names of the columns, all of type string; `None` if the file has no columns, for example if empty.

        The names are the keys in the first JSON lines (up to 1000), or the header of CSV. Other text has one column,
        named `texts[0]`; `texts` are the names of the text columns in the settings.
        """
        with self._lines() as lines:  # raises for UTF-16, and if the file cannot be opened
            if self.kind in ("lines", "paragraphs", "file"):
                return SourceColumns(self.shown, pa.schema([(texts[0], pa.string())]))
            if self.kind == "jsonl":
                head = lines.peek(_HEAD)
                sample = head[: head.rfind(b"\n") + 1] or (head if len(head) < _HEAD else b"")
                names: Sequence[str] = _first_keys(self.shown, sample, texts)
            else:
                names = self._header(lines)
                if len(names) == 1 and names[0] not in texts:
                    self._check_delimiter(names[0])
        if not names:
            return None
        columns = pa.schema([(name, pa.string()) for name in names])
        if self.kind == "jsonl":
            return SourceColumns(self.shown, columns, complete=False)
        return SourceColumns(self.shown, columns, add_header=self._add_header)

    def text_bytes(self, columns: Columns) -> int | None:
        """Return the bytes of text; for a compressed file an estimate, 4 times its size."""
        return None if self.size is None else self.size * (1 if self.compression is None else 4)

    def parts(self, shard_bytes: int, columns: Columns) -> Iterator[Part]:
        """Yield the parts of the file: ranges of `shard_bytes` bytes, or the whole file if it must be read in order."""
        size = self.text_bytes(columns)
        if self.kind == "file":
            yield Part(self, 0, None, size or 0)
        elif self.compression is not None or not self.can_seek or self.kind in DELIMITERS or size is None:
            yield Part(self, 0, None, size or 0, several=size is None or size > shard_bytes)
        else:
            step = max(shard_bytes, 4)  # the first line begins inside the first part even after a byte order mark
            for begin in range(0, max(size, 1), step):
                end = min(begin + step, size)
                yield Part(self, begin, end, end - begin)

    def documents(self, part: Part, columns: Columns, shard_bytes: int) -> Iterator[Documents]:
        """Yield the documents of a part in batches, with the number of their shard in the part, from 0."""
        parse = {"paragraphs": self._paragraphs, "file": self._whole, "csv": self._csv, "tsv": self._csv}
        with self._lines(part.begin, part.end) as lines:
            end = float("inf") if part.end is None else part.end
            yield from parse.get(self.kind, self._by_line)(lines, end, shard_bytes if part.several else None, columns)
            if lines.damage is not None:
                last = (lines.offset - 1) // shard_bytes if part.several and lines.offset else 0
                damage = _Record(last, lines.number, lines.offset, 0, b"", None, lines.damage)
                yield self._batch([damage], columns, is_damage=True)

    def count_lines(self, end: int) -> int:
        """Return the number of lines that begin before byte `end`."""
        with self._lines() as lines:
            for _ in lines.before(end):
                pass
            return lines.number - 1

    @contextmanager
    def _lines(self, begin: int = 0, end: int | None = None) -> Iterator[Lines]:
        """Open the file, and yield its lines, from the first one on that begins at byte `begin` or later."""
        with self.open() as raw:
            if begin:
                raw.seek(begin - 1)
            lines = Lines(self.reader(raw), max(begin - 1, 0))
            try:
                if begin:
                    lines.skip_line(float("inf") if end is None else end)
                elif (head := lines.peek(3)).startswith(_UTF16):
                    fix = "save it as UTF-8 first"
                    raise value_error(f"{self.shown} must be UTF-8", got="UTF-16, by its first two bytes", fix=fix)
                elif head == _BOM:
                    lines.skip(3)
                yield lines
            except LineTooLong:
                raise ValueError(self._too_long(lines.offset)) from None

    def _blocks(self, lines: Lines, end: float, shard_bytes: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of the lines that begin before `end`, with the number of their shard."""
        shard = 0
        while True:
            stop = end if shard_bytes is None else (shard + 1) * shard_bytes
            for block in lines.before(stop):
                yield shard, block
            if stop == end or not lines.peek(1):
                return
            shard += 1

    def _by_line(self, lines: Lines, end: float, shard_bytes: int | None, columns: Columns) -> Iterator[Documents]:
        number = 1
        for shard, block in self._blocks(lines, end, shard_bytes):
            rows, wrong = _decoded(block)
            begins = lines.offset - len(block) + np.append(0, np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1)
            for start in range(0, len(rows), BATCH_ROWS):
                chunk = rows[start : start + BATCH_ROWS]
                full = [index for index, line in enumerate(chunk) if line and not line.isspace()]
                texts = [chunk[index] for index in full]
                bad: Bad = {row: (wrong[start + at], texts[row]) for row, at in enumerate(full) if start + at in wrong}
                values = [texts] if self.kind == "lines" else _json_values(texts, bad, columns)
                raw = [block] if start == 0 else []
                numbers = [number + index for index in full]
                blank = len(chunk) - len(full)
                details = {"shard": shard, "lines": len(chunk), "blank": blank, "raw": raw}
                yield make_documents(self, numbers, begins[start:][full], values, bad, columns, **details)
                number += len(chunk)

    def _paragraphs(self, lines: Lines, end: float, shard_bytes: int | None, columns: Columns) -> Iterator[Documents]:
        return self._batches(self._paragraph_records(lines, end, shard_bytes), columns)

    def _paragraph_records(self, lines: Lines, end: float, shard_bytes: int | None) -> Iterator[_Record]:
        # A paragraph that began in the part before belongs to that part.
        is_tail = lines.line_before is not None and not self._is_blank(lines.offset, lines.line_before)
        number, paragraph, its_shard, begin = 1, list[bytes](), 0, 0
        for shard, block in self._blocks(lines, end, shard_bytes):
            at, start = lines.offset - len(block), 0
            if not paragraph:
                its_shard, begin = shard, at
            for blank in _BLANK_LINE.finditer(block):
                paragraph.append(block[start : blank.start()])
                raw = b"".join(paragraph)
                count = raw.count(b"\n") + 1
                yield _Record(its_shard, number, begin, count, *_paragraph(b"" if is_tail else raw))
                number += count
                is_tail, paragraph, start = False, [], blank.end()
                its_shard, begin = shard, at + start
            if start < len(block):
                paragraph.append(block[start:])
                if sum(map(len, paragraph)) > LONGEST:
                    raise ValueError(self._too_long(lines.offset))
        if not paragraph or lines.damage is not None:
            return
        count = sum(block.count(b"\n") for block in paragraph) + (not paragraph[-1].endswith(b"\n"))
        for block in () if is_tail else lines.before(float("inf")):  # the rest of the last paragraph
            blank_line = _BLANK_LINE.search(block)
            paragraph.append(block[: blank_line.start()] if blank_line else block)
            if blank_line:
                break
        yield _Record(its_shard, number, begin, count, *_paragraph(b"" if is_tail else b"".join(paragraph)))

    def _is_blank(self, end: int, tail: bytes) -> bool:
        """Return True if the line that ends at byte `end`, with the bytes `tail`, is blank; read back to its start."""
        head, begin = b"", end - len(tail)
        while not re.search(rb"[!-~]", head + tail):
            size = min(begin, max(256, len(head)))
            with self.open() as raw:
                raw.seek(begin - size)
                head = raw.read(size) + head
            begin -= size
            if begin == 0 or b"\n" in head:
                return _BLANK_LINE.fullmatch(head[head.rfind(b"\n") + 1 :] + tail) is not None
        return False

    def _whole(self, lines: Lines, end: float, shard_bytes: int | None, columns: Columns) -> Iterator[Documents]:
        begin, raw = lines.offset, b"".join(block for _, block in self._blocks(lines, end, None))
        if len(raw) > LONGEST:
            raise ValueError(self._too_long(0))
        if raw and lines.damage is None:
            reason = not_unicode(raw)
            text = "" if reason else raw.decode().replace("\r\n", "\n")
            values = [text] if text and not text.isspace() else None
            yield from self._batches(iter([_Record(0, 1, begin, raw.count(b"\n"), raw, values, reason)]), columns)

    def _csv(self, lines: Lines, end: float, shard_bytes: int | None, columns: Columns) -> Iterator[Documents]:
        return self._batches(self._csv_records(lines, end, shard_bytes, columns), columns)

    def _csv_records(
        self, lines: Lines, end: float, shard_bytes: int | None, columns: Columns | None
    ) -> Iterator[_Record]:
        """Yield the records below the header; with `columns=None`, yield only the header."""
        raw: list[tuple[int, bytes]] = []  # the lines of the record, with their shards

        def read() -> Iterator[str]:
            for shard, block in self._blocks(lines, end, shard_bytes):
                for line in io.BytesIO(block):
                    raw.append((shard, line))
                    yield line.decode("utf-8", "surrogateescape")

        csv.field_size_limit(LONGEST)
        records = csv.reader(read(), delimiter=DELIMITERS[self.kind])
        header: list[str] | None = None
        where: list[tuple[str, int, str | None]] = []
        number, begin = 1, lines.offset
        while True:
            reason, row, values = None, None, None
            try:
                row = next(records, None)
            except csv.Error as error:
                row, reason = [], f"is not CSV: {error}"
            if row is None and not raw:
                return
            record = b"".join(line for _, line in raw)
            if lines.damage is not None and record.count(b'"') % 2:
                return  # the file is damaged inside a quoted field
            if row and header is None:
                if columns is None:
                    yield _Record(0, number, begin, len(raw), record, row, None)
                    return
                header = row
                # For each column: its name, its index in a record, and the value that replaces an empty field.
                where = [
                    (field.name, row.index(field.name), "" if is_string(field.type) else None)
                    for field in columns.schema
                ]
            else:
                if row and len(row) != len(header or row):
                    reason = f"has {len(row)} fields, but the header has {len(header or row)}"
                if row and not reason and not record.isascii():
                    wrong = ((name, not_unicode(row[at].encode("utf-8", "surrogateescape"))) for name, at, _ in where)
                    reason = next((f"column {name!r} {words}" for name, words in wrong if words), None)
                if row and not reason:
                    values = [row[at] or empty for _, at, empty in where]
                yield _Record(raw[0][0], number, begin, len(raw), record, values, reason)
            number, begin = number + len(raw), begin + len(record)
            raw.clear()

    def _batches(self, records: Iterator[_Record], columns: Columns) -> Iterator[Documents]:
        """Group records into batches of about a megabyte, each of one shard."""
        batch: list[_Record] = []
        size = 0
        for record in records:
            if batch and (record.shard != batch[0].shard or size >= BATCH_BYTES or len(batch) >= BATCH_ROWS):
                yield self._batch(batch, columns)
                batch, size = [], 0
            batch.append(record)
            size += len(record.raw)
        if batch:
            yield self._batch(batch, columns)

    def _batch(self, batch: list[_Record], columns: Columns, *, is_damage: bool = False) -> Documents:
        records = [record for record in batch if record.values is not None or record.reason is not None]
        nothing: tuple[Any, ...] = ("",) * len(columns.texts) + (None,) * len(columns.carried)
        rows = [record.values or nothing for record in records]
        return make_documents(
            self,
            [record.number for record in records],
            np.array([record.begin for record in records], np.int64),
            [[row[column] for row in rows] for column in range(len(nothing))],
            {
                row: (record.reason, excerpt(record.raw))
                for row, record in enumerate(records)
                if record.reason is not None
            },
            columns,
            shard=batch[0].shard,
            lines=sum(record.lines for record in batch),
            blank=0 if self.kind == "paragraphs" else len(batch) - len(records),
            raw=[record.raw for record in records],
            is_damage=is_damage,
        )

    def _header(self, lines: Lines) -> Sequence[str]:
        record = next(self._csv_records(lines, float("inf"), None, None), None)
        if record is not None and (reason := not_unicode(record.raw)) is not None:
            rule, fix = f"{self.shown}: its first line, the header, {reason}", "save it as UTF-8 first"
            raise value_error(rule, got=shorten(excerpt(record.raw)), fix=fix)
        return [] if record is None else record.values or []

    def _add_header(self, names: Sequence[str]) -> str:
        """Return a command of the shell that writes the file again, with a first line of `names`."""
        line = io.StringIO()
        csv.writer(line, delimiter=DELIMITERS[self.kind], lineterminator="").writerow(names)
        head = line.getvalue().replace("\\", "\\\\").replace("%", "%%").replace("\t", "\\t") + "\\n"
        name, path = PurePath(self.shown).name, self.path
        reader = f"{_READERS[self.compression]} {shlex.quote(name if path is None else str(path))}"
        with self._lines() as lines:
            reader += " | tail -c +4" * (lines.offset > 0)  # without the byte order mark
        copy = shlex.quote(f"{name.split('.')[0]}-with-header.{self.kind}")
        return "in a downloaded file, " * (path is None) + f"(printf {shlex.quote(head)}; {reader}) > {copy}"

    def _check_delimiter(self, only: str) -> None:
        """Raise `ValueError` if the only column seems to hold several, with another delimiter between them."""
        delimiter = DELIMITERS[self.kind]
        values = [value for value in first_values(self, [only]).get(only, []) if value]
        for candidate, noun in _DELIMITER_NAMES.items():
            number = only.count(candidate)
            if (
                candidate != delimiter
                and number
                and 2 * sum(value.count(candidate) == number for value in values) >= len(values)
            ):
                path = json.dumps(self.shown, ensure_ascii=False)
                code = f'pandas.read_csv({path}, sep="{candidate}", dtype=str, keep_default_na=False)'
                rename = {"\t": "rename it to .tsv", ",": "rename it to .csv"}.get(candidate)
                raise value_error(
                    f"{self.shown} has no {_DELIMITER_NAMES[delimiter]} between its columns",
                    got=f"one column {shorten(only)}, with {noun} in its name",
                    fix=rename or f'{code}.to_csv("commas.csv", index=False)',
                )

    def _too_long(self, offset: int) -> str:
        unit, choice = {"paragraphs": ("paragraph", "line"), "file": ("file", "paragraph")}.get(
            self.kind, ("line", "paragraph")
        )
        fix = f"document={choice!r} (--document {choice}), or " if self.kind in ("lines", "paragraphs", "file") else ""
        return explain(
            f"{self.shown}: one {unit} is longer than {LONGEST >> 20} MiB",
            got=f"no end of it in {LONGEST:,} bytes after byte {offset:,}",
            fix=f"{fix}cut the document in two first",
        )


class _Record(NamedTuple):
    """Document of CSV, of paragraphs, or a whole file, or lines without one: then `values` and `reason` are `None`."""

    shard: int
    number: int
    begin: int
    lines: int
    raw: bytes
    values: Sequence[Any] | None
    reason: str | None


def _paragraph(raw: bytes) -> tuple[bytes, list[str] | None, str | None]:
    """Return the bytes of a paragraph, its text, and the reason if it is bad."""
    if not raw.strip(b" \t\r\n"):
        return b"", None, None
    text = raw.replace(b"\r\n", b"\n").removesuffix(b"\n")
    reason = not_unicode(text)
    return raw, None if reason else [text.decode()], reason


def _decoded(block: bytes) -> tuple[list[str], dict[int, str]]:
    """Split a block into lines without their ends, and decode them; return the reasons of those that are not UTF-8."""
    raw = block.removesuffix(b"\n").split(b"\n")
    if b"\r" in block:
        raw = [line.removesuffix(b"\r") for line in raw]
    try:
        return list(map(bytes.decode, raw)), {}  # decoding the whole block first would take twice as long
    except UnicodeDecodeError:
        reasons = ((index, not_unicode(line)) for index, line in enumerate(raw))
        bad = {index: reason for index, reason in reasons if reason is not None}
        return [line.decode(errors="backslashreplace") for line in raw], bad


def _json_values(lines: Sequence[str], bad: Bad, columns: Columns) -> list[list[Any]]:
    """Parse JSON lines, and return for each column a list with its value in every line; add bad lines to `bad`."""
    names, rows = columns.schema.names, []
    as_text = [field.name for field in columns.carried if is_string(field.type)]
    for index, line in enumerate(lines):
        row: dict[str, Any] = {}
        if index not in bad:
            row, reason = _object(line, columns.texts)
            if reason is not None:
                bad[index] = reason, line
            # Integers keep their digits anyway, apart from -0.
            elif rewritten := [name for name in as_text if isinstance(row.get(name), _REWRITTEN) or row.get(name) == 0]:
                row |= {name: value for name, value in _as_written(line).items() if name in rewritten}
        rows.append([row.get(name) for name in names])
    return [[row[column] for row in rows] for column in range(len(names))]


def _object(line: str, texts: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Parse a line of JSON; return its object and `None`, or for a bad line an empty `dict` and the reason."""
    try:
        row = _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        return {}, f"is not JSON: {error}"
    if not isinstance(row, dict):
        return {}, f"is {_type_name(row)}, expected an object with a column {', '.join(map(repr, texts))}"
    for name in texts:
        if name not in row:
            return {}, f"has no column {name!r}; its columns are {', '.join(map(repr, row))}"
        if row[name] is None:
            return {}, f"column {name!r} is null"
        if not isinstance(row[name], str):
            return {}, f"column {name!r} is {_type_name(row[name])}, expected text"
        if "\\u" in line and lone_surrogate(row[name]) is not None:
            return {}, f"column {name!r} is not Unicode: it holds half a surrogate pair"
    return row, None


def _as_written(line: str) -> dict[str, str]:
    r"""Return the values of a JSON object as they are written in a line.

    Example:
        >>> _as_written('{"price": 1.10, "tags": ["a",  "b"]}')
        {'price': '1.10', 'tags': '["a",  "b"]'}
    """
    values, at = {}, _end_of_mark(line, 0)
    while at < len(line):
        key, at = _DECODER.raw_decode(line, at)
        begin = _end_of_mark(line, at)
        _, at = _DECODER.raw_decode(line, begin)
        values[key] = line[begin:at]
        at = _end_of_mark(line, at)
    return values


def _end_of_mark(line: str, at: int) -> int:
    mark = _MARK.match(line, at)
    assert mark is not None
    return mark.end()


_MARK = re.compile(r"[ \t\r]*[{,:}][ \t\r]*")
_DECODER = json.JSONDecoder()
_REWRITTEN = (float, list, dict)
_TYPE_NAMES = {"str": "text", "NoneType": "null", "dict": "an object", "list": "a list", "bool": "a boolean"}


def _type_name(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)  # NaN or Infinity
    return _TYPE_NAMES.get(type(value).__name__, type(value).__name__)


def _first_keys(name: str, head: bytes, texts: Sequence[str]) -> list[str]:
    r"""Return the keys of the objects in the first JSON lines of a file; an empty list if no line is an object.

    Example:
        >>> _first_keys("a.jsonl", b'{"text": "I ride", "id": 1}\n', ["text"])
        ['text', 'id']
        >>> _first_keys("a.json", b'[{"text": "I ride"}]', ["text"])
        Traceback (most recent call last):
        ValueError: a.json must be JSON lines, one object a line
          got: a list: '[{"text": "I ride"}]'
          fix: datasets.load_dataset("json", data_files="a.json") reads it
    """
    lines = [line.strip() for line in head.split(b"\n", 1000)[:1000]]
    objects = [value for line in lines if isinstance(value := _json(line), dict)]
    names = list(dict.fromkeys(key for value in objects for key in value if lone_surrogate(key) is None))
    first, second, *_ = [*filter(None, lines), b"", b""]
    got = ""
    if first.startswith(b"["):
        got = "a list"
    elif first.startswith(b"{") and first.endswith((b"{", b"[", b",", b":")) and second and _json(second) is None:
        got = "an object on several lines"
    elif objects and texts[0] not in names:
        inside = next((key for key, value in objects[0].items() if value and isinstance(value, list)), None)
        if inside is not None and isinstance(objects[0][inside][0], dict) and texts[0] in objects[0][inside][0]:
            got = f"an object with the documents in its list {inside!r}"
    if got:
        raise value_error(
            f"{name} must be JSON lines, one object a line",
            got=f"{got}: {shorten(head[:200].decode(errors='replace').strip())}",
            fix=f'datasets.load_dataset("json", data_files="{name}") reads it',
        )
    return names


def _json(line: bytes) -> Any:
    """Parse a line of JSON; return `None` if it is invalid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
