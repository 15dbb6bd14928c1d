"""Parse the bytes of a task into documents, in a worker, in batches of about a megabyte.

A document that cannot be decoded or parsed is a bad row with a reason; it does not affect other documents.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .._arrow import row_sizes, runs
from .._explain import explain, shorten
from .schema import Columns
from .task import Part, Rejected, Task
from .text_files import DELIMITERS

# Size of a batch of documents. The tokenizer needs about 100 bytes of memory per token, or 30 MB for such a batch.
_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 1 << 15
_EXCERPT = 200  # characters of a rejected document that `rejected.jsonl` shows

_BLANK_LINE = re.compile(rb"^[ \t\r]*(?:\n|\Z)", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Documents:
    r"""A batch of parsed documents from one part of a task.

    Args:
        part (`Part`): the part of the task.
        numbers (`list` of `int`): the line number (from 1) or row number (from 0) of each document in its source.
        texts (`list` of one or two `list` of `str`): the texts, and for text pairs the second texts; a bad document
            has an empty text.
        carried (`pyarrow.Table`): the carried columns, one row for each document.
        bad (`dict` from `int` to `str`): the reason for each bad document, by its index in the batch.
        excerpts (`dict` from `int` to `str`): the first characters of each bad document, by its index.
        blank (`int`): blank lines between the documents.
    """

    part: Part
    numbers: list[int]
    texts: list[list[str]]
    carried: pa.Table
    bad: dict[int, str]
    excerpts: dict[int, str]
    blank: int = 0

    def rejected(self, bad: Mapping[int, str]) -> list[Rejected]:
        """Return a `Rejected` for each document in `bad`, which maps its index in the batch to the reason."""
        shown = {row: (self.excerpts.get(row) or self.texts[0][row])[:_EXCERPT] or None for row in bad}
        part = self.part
        return [Rejected(part.source, part.unit, self.numbers[row], bad[row], shown[row]) for row in sorted(bad)]


def read_documents(task: Task, columns: Columns) -> Iterator[Documents]:
    r"""Parse the documents of a task, and yield them in order, in batches of about a megabyte.

    Blank lines of text, JSON and CSV are counted, but are not documents.

    Args:
        task (`Task`): the task.
        columns (`Columns`): the columns to read.

    Returns:
        Iterator over `Documents`.

    Example:
        >>> from hf_posenc.jobs.task import Cursor
        >>> part = Part("a.txt", "lines", 1, b"I ride\n\nb\xff\nbike")
        >>> (some,) = read_documents(Task(0, (part,), Cursor(), Cursor(1)), Columns(("text",)))
        >>> some.texts, some.numbers, some.blank
        ([['I ride', '', 'bike']], [1, 3, 4], 1)
        >>> some.bad
        {1: 'is not UTF-8: byte 0xff at position 1 (invalid start byte)'}
    """
    parsers = {"lines": _lines, "paragraphs": _paragraphs, "jsonl": _json_lines, "unreadable": _unreadable}
    for part in task.parts:
        if part.kind == "arrow":
            yield from _tables(part, columns)
            continue
        batch: list[_Document] = []
        size = 0
        for document in parsers.get(part.kind, _csv)(part, columns):
            batch.append(document)
            size += len(document[0])
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
                yield _documents(part, batch, columns)
                batch, size = [], 0
        if batch:
            yield _documents(part, batch, columns)


# A document as parsed from its file: its bytes, its line (`None` for a blank one), the values of the columns, and the
# reason if it is bad. A plain tuple, because a class would make reading a third slower.
_Document = tuple[bytes, int | None, Sequence[Any], str | None]


def _documents(part: Part, batch: list[_Document], columns: Columns) -> Documents:
    """Combine parsed documents into a `Documents`, and convert carried columns to the types of the schema."""
    found = [one for one in batch if one[1] is not None]
    bad = {row: reason for row, (_, _, _, reason) in enumerate(found) if reason is not None}
    split = len(columns.texts)
    nothing: tuple[Any, ...] = ("",) * split + (None,) * len(columns.carried)
    rows = [values or nothing for _, _, values, _ in found]
    values = [[row[column] for row in rows] for column in range(len(nothing))]
    carried = []
    for field, column in zip(columns.carried, values[split:], strict=True):
        array, wrong = _column(field, column)
        carried.append(array)
        bad = {**wrong, **bad}
    excerpts = {row: _excerpt(found[row][0]) if found[row][3] else values[0][row] for row in bad}
    for text in values[:split]:
        for row in bad:
            text[row] = ""
    return Documents(
        part=part,
        numbers=[number for _, number, _, _ in found if number is not None],
        texts=values[:split],
        carried=_table(carried, columns, len(found)),
        bad=bad,
        excerpts=excerpts,
        blank=len(batch) - len(found),
    )


def _table(carried: list[pa.Array], columns: Columns, rows: int) -> pa.Table:
    """Return the carried columns as a table with the given number of rows, even if there are no columns."""
    return pa.table(carried, schema=columns.carried) if carried else pa.table({"": pa.nulls(rows)}).select([])


def _column(field: pa.Field, values: list[Any]) -> tuple[pa.Array, dict[int, str]]:
    """Convert values to an array, with null for a value of a wrong type; return it and the reasons by row."""
    wrong = (ValueError, TypeError, OverflowError)
    try:
        return _array(values, field.type), {}
    except wrong:
        arrays, bad = [], {}
    for row, value in enumerate(values):
        try:
            arrays.append(_array([value], field.type))
        except wrong:
            arrays.append(pa.nulls(1, field.type))
            bad[row] = f"column {field.name!r} is {shorten(value)}, expected {field.type}"
    return pa.concat_arrays(arrays), bad


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert JSON values to an array of a type; raise if a value does not fit, or would be rounded.

    Strings are parsed, for example `"3"` for an integer column. In a string column, other values become JSON text.
    """
    if pa.types.is_string(kind) or any(isinstance(value, str) for value in values):
        texts = [value if isinstance(value, str | None) else _ENCODER.encode(value) for value in values]
        return pa.array(texts, pa.string()).cast(kind)
    if pa.types.is_integer(kind) and any(isinstance(value, float) for value in values):
        return pa.array(values, pa.float64()).cast(kind)
    return pa.array(values, kind)


# ------------------------------------------------------------------------------------------------------------- formats


def _lines(part: Part, columns: Columns) -> Iterator[_Document]:
    for number, line in enumerate(io.BytesIO(part.payload), part.first):
        try:
            text = line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            yield line, number, (), _not_unicode(line.removesuffix(b"\n").removesuffix(b"\r"))
        else:
            yield line, None if text.isspace() or not text else number, (text,), None


def _paragraphs(part: Part, columns: Columns) -> Iterator[_Document]:
    number, start, payload = part.first, 0, part.payload
    while start < len(payload):
        blank = _BLANK_LINE.search(payload, start)
        raw, end = payload[start : blank.start() if blank else None], blank.end() if blank else len(payload)
        if raw.strip(b" \t\r\n"):
            text = raw.replace(b"\r\n", b"\n").removesuffix(b"\n")
            reason = _not_unicode(text)
            yield raw, number, () if reason else (text.decode(),), reason
        number += payload.count(b"\n", start, end)
        start = end


def _json_lines(part: Part, columns: Columns) -> Iterator[_Document]:
    names = columns.schema.names
    for raw, number, texts, reason in _lines(part, columns):
        if number is None or reason is not None:
            yield raw, number, (), reason
        else:
            row, wrong = _object(texts[0], columns.texts)
            yield raw, number, () if wrong else [row.get(name) for name in names], wrong


def _object(line: str, texts: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Parse a line of JSON; return its object, or an empty one and the reason if it is a bad document."""
    try:
        row = _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        return {}, f"is not JSON: {error}"
    if not isinstance(row, dict):
        return {}, f"is {_type_name(row)}, expected an object with a column {texts[0]!r}"
    for name in texts:
        if name not in row:
            return {}, f"has no column {name!r}; its columns are {', '.join(map(repr, row))}"
        if row[name] is None:
            return {}, f"column {name!r} is null"
        if not isinstance(row[name], str):
            return {}, f"column {name!r} is {_type_name(row[name])}, expected text"
        if "\\u" in line and _not_unicode(row[name].encode("utf-8", "surrogatepass")):
            return {}, f"column {name!r} is not Unicode: it holds half a surrogate pair"
    return row, None


def _refuse_constant(name: str) -> Any:
    raise ValueError(explain(f"{name} is not a JSON value"))


_DECODER, _ENCODER = json.JSONDecoder(parse_constant=_refuse_constant), json.JSONEncoder(ensure_ascii=False)
_TYPE_NAMES = {"str": "text", "NoneType": "null", "dict": "an object", "list": "a list", "bool": "a boolean"}


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value).__name__, type(value).__name__)


def _csv(part: Part, columns: Columns) -> Iterator[_Document]:
    raw: list[bytes] = []

    def lines() -> Iterator[str]:
        for line in io.BytesIO(part.payload):
            raw.append(line)
            yield line.decode("utf-8", "surrogateescape")

    # The index of each column in a record, and the value of an empty field.
    where = [
        (name, part.header.index(name), "" if pa.types.is_string(kind) else None)
        for name, kind in zip(columns.schema.names, columns.schema.types, strict=True)
    ]
    csv.field_size_limit(max(csv.field_size_limit(), len(part.payload)))
    records = csv.reader(lines(), delimiter=DELIMITERS[part.kind])
    number, fields = part.first, len(part.header)
    while True:
        reason = None
        try:
            row = next(records, None)
        except csv.Error as error:
            row, reason = [], f"is not CSV: {error}"
        if row is None and not raw:
            return
        record = b"".join(raw)
        if row and len(row) != fields:
            reason = f"has {len(row)} fields, but the header has {fields}"
        if row and not reason and not record.isascii():
            wrong = ((name, _not_unicode(row[at].encode("utf-8", "surrogateescape"))) for name, at, _ in where)
            reason = next((f"column {name!r} {words}" for name, words in wrong if words), None)
        values = [] if reason or not row else [row[at] or empty for _, at, empty in where]
        yield record, number if values or reason else None, values, reason
        number += len(raw)
        raw.clear()


def _unreadable(part: Part, columns: Columns) -> Iterator[_Document]:
    yield b"", part.first, (), part.payload.decode(errors="replace")


def _tables(part: Part, columns: Columns) -> Iterator[Documents]:
    first = part.first
    with pa.ipc.open_stream(part.payload) as batches:
        for batch in batches:
            for start, stop in runs(row_sizes(batch), _BATCH_BYTES, _BATCH_ROWS):
                numbers = list(range(first + start, first + stop))
                yield _rows(part, numbers, batch.slice(start, stop - start), columns)
            first += len(batch)


def _rows(part: Part, numbers: list[int], batch: pa.RecordBatch, columns: Columns) -> Documents:
    """Convert rows of a table to `Documents`; a row with a null text or invalid UTF-8 is a bad document."""
    bad: dict[int, str] = {}
    excerpts: dict[int, str] = {}
    arrays = []
    for field in columns.schema:
        column = batch.column(field.name)
        is_string = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if is_string and not _is_unicode(column):
            values = column.cast(pa.large_binary()).to_pylist()
            for row, value in enumerate(values):
                if value is not None and (reason := _not_unicode(value)) is not None:
                    bad.setdefault(row, f"column {field.name!r} {reason}")
                    excerpts.setdefault(row, _excerpt(value))
                    values[row] = None
            column = pa.array(values, pa.large_binary()).cast(field.type)
        arrays.append(column)
    texts = [column.to_pylist() for column in arrays[: len(columns.texts)]]
    for name, column in zip(columns.texts, texts, strict=True):
        for row, value in enumerate(column):
            if value is None:
                bad.setdefault(row, f"column {name!r} is null")
    for row in bad:
        excerpts.setdefault(row, texts[0][row] or "")
        for column in texts:
            column[row] = ""
    return Documents(part, numbers, texts, _table(arrays[len(columns.texts) :], columns, len(batch)), bad, excerpts)


def _not_unicode(text: bytes) -> str | None:
    """Return the error message for bytes that are not UTF-8; `None` for valid UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8: byte 0x{text[error.start]:02x} at position {error.start} ({error.reason})"
    return None


def _is_unicode(column: pa.Array) -> bool:
    """Return True if all strings of an Arrow array are valid UTF-8, which Arrow does not check on reading."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _excerpt(raw: bytes) -> str:
    """Return the first 200 characters of a document; bytes that are not UTF-8 are escaped."""
    return raw[: 4 * _EXCERPT].decode(errors="backslashreplace").rstrip("\r\n")[:_EXCERPT]
