"""Parse the bytes of a task into batches of documents, of about a megabyte each. This runs in the workers.

A document that cannot be decoded or parsed is marked as bad, with the reason; the other documents are still read.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .._common.arrow import row_sizes, runs
from .._common.errors import lone_surrogate, shorten, value_error
from .long_document import BLANK_LINE, EXCERPT, LongDocument, not_unicode
from .schema import Columns
from .task import DELIMITERS, Part, Rejected, Task

# Size of a batch of documents. The tokenizer needs about 100 bytes of memory per token, or 30 MB for such a batch.
_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 1 << 15


@dataclass(frozen=True, eq=False)
class Documents:
    r"""Batch of parsed documents; `read_documents` and `finished` make it.

    A document is bad if it cannot be read, for example because it is not UTF-8.

    Args:
        part (`Part`): the part that they were parsed from: consecutive documents of one file or data set.
        numbers (`list` of `int`): for text, JSON and CSV, the line where each document begins, counted from 1; for
            Parquet, Arrow and data sets, its row, counted from 0.
        texts (`list` of one or two `list` of `str`): the texts, and for text pairs the second texts; a bad document
            has an empty text.
        carried (`pyarrow.Table`): the columns to copy to the shard, one row for each document.
        bad (`dict` from `int` to `str`): index of each bad document in the batch, and the reason why it is bad.
        excerpts (`dict` from `int` to `str`): index of each bad document, and its first characters.
        blank (`int`): number of blank lines or files, which are not documents; 0 for paragraphs.
    """

    part: Part
    numbers: list[int]
    texts: list[list[str]]
    carried: pa.Table
    bad: dict[int, str]
    excerpts: dict[int, str]
    blank: int = 0

    def rejected(self, bad: Mapping[int, str]) -> list[Rejected]:
        """Return a list with a `Rejected` (source, number, reason, first characters) for each document in `bad`.

        `bad` maps the index of a document in this batch to the reason why it is rejected.
        """
        shown = {row: (self.excerpts.get(row) or self.texts[0][row])[:EXCERPT] or None for row in bad}
        part = self.part
        return [Rejected(part.recorded, part.unit, self.numbers[row], bad[row], shown[row]) for row in sorted(bad)]


def read_documents(task: Task, columns: Columns) -> Iterator[Documents | LongDocument]:
    r"""Parse the documents of a task (those of one shard), and yield them in order, in batches of about a megabyte.

    A very long line, paragraph or file is in the task only as a byte range of its file. It is yielded as a
    `LongDocument`: tokenize its `blocks`, then convert it with `finished`. A long line of JSON is parsed as usual.

    Blank lines and blank files are not documents. `Documents.blank` counts them, but not the lines between paragraphs.

    Args:
        task (`Task`): the task.
        columns (`Columns`): the columns to read.

    Returns:
        Iterator over `Documents` and `LongDocument`.

    Example:
        >>> from hf_posenc.jobs.task import Cursor
        >>> part = Part("a.txt", "lines", 1, b"I ride\n\nb\xff\nbike")  # line 2 is blank, line 3 is not UTF-8
        >>> (some,) = read_documents(Task(0, (part,), Cursor(), Cursor(1)), Columns(("text",)))
        >>> some.texts, some.numbers, some.blank
        ([['I ride', '', 'bike']], [1, 3, 4], 1)
        >>> some.bad
        {1: 'is not UTF-8: byte 0xff at position 1 (invalid start byte)'}
    """
    readers = {"arrow": _tables, "lines": _lines, "jsonl": _lines}
    for part in task.parts:
        if part.range is not None and part.kind in ("lines", "paragraphs", "file"):
            yield LongDocument(part)
        else:
            yield from readers.get(part.kind, _records)(part, columns)


def finished(document: LongDocument, columns: Columns) -> Documents:
    """Convert a long document to a batch of its own, after the caller tokenized `document.blocks`.

    The batch holds only the first characters of the text, for messages. It has no document if the text is blank.
    Blocks that the caller did not read are read here, to detect errors.
    """
    document.finish()
    numbers = [document.part.first]
    if document.bad is not None:
        bad, excerpt = {0: document.bad}, _excerpt(document.raw)
        return _documents(document.part, numbers, [[""]], bad, {0: excerpt}, columns, blank=0)
    if document.is_blank:
        return _documents(document.part, [], [[]], {}, {}, columns, blank=int(document.part.kind != "paragraphs"))
    return _documents(document.part, numbers, [[document.beginning]], {}, {}, columns, blank=0)


def _documents(
    part: Part,
    numbers: list[int],
    values: list[list[Any]],
    bad: dict[int, str],
    excerpts: Mapping[int, str],
    columns: Columns,
    *,
    blank: int,
) -> Documents:
    """Return a batch of documents, given the values of their columns."""
    split = len(columns.texts)
    texts, carried = values[:split], []
    for field, column in zip(columns.carried, values[split:], strict=True):
        array, wrong = _column(field, column)
        carried.append(array)
        bad = {**wrong, **bad}
    excerpts = {row: excerpts.get(row, texts[0][row]) for row in bad}
    for text in texts:
        for row in bad:
            text[row] = ""
    return Documents(part, numbers, texts, _table(carried, columns, len(numbers)), bad, excerpts, blank)


def _table(carried: list[pa.Array], columns: Columns, rows: int) -> pa.Table:
    """Return a `pyarrow.Table` of the copied columns, given their arrays, `carried`."""
    return pa.table(carried, schema=columns.carried) if carried else pa.table({"": pa.nulls(rows)}).select([])


def _column(field: pa.Field, values: list[Any]) -> tuple[pa.Array, dict[int, str]]:
    """Convert `values` to an Arrow array of the type of `field`; a value that does not fit becomes null."""
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
    """Convert values from JSON or CSV to an Arrow array of type `kind`; raise if a value would be rounded."""
    if pa.types.is_string(kind) or any(isinstance(value, str) for value in values):
        texts = [value if isinstance(value, str | None) else _ENCODER.encode(value) for value in values]
        return pa.array(texts, pa.string()).cast(kind)
    if pa.types.is_integer(kind) and any(isinstance(value, float) for value in values):
        return pa.array(values, pa.float64()).cast(kind)
    return pa.array(values, kind)


# ------------------------------------------------------------------------------------------------------------- formats


def _lines(part: Part, columns: Columns) -> Iterator[Documents]:
    """Parse a part with one document per line (text or JSON lines), and yield batches of its documents."""
    number = part.first
    for lines, wrong in _blocks(part):
        count = len(lines)
        for start in range(0, count, _BATCH_ROWS):
            some = lines[start : start + _BATCH_ROWS]
            full = [index for index, line in enumerate(some, start) if line and not line.isspace()]
            texts = [lines[index] for index in full]
            bad = {row: wrong[index] for row, index in enumerate(full) if index in wrong} if wrong else {}
            values = [texts] if part.kind == "lines" else _json_values(texts, bad, columns)
            excerpts = {row: texts[row][:EXCERPT] for row in bad}
            numbers = [number + index for index in full]
            blank = len(some) - len(full)
            if start + _BATCH_ROWS >= count:
                # A long line of JSON, and its copy in `texts`, are not needed while its text is tokenized.
                lines.clear()
            del some, texts
            yield _documents(part, numbers, values, bad, excerpts, columns, blank=blank)
        number += count


def _blocks(part: Part) -> Iterator[tuple[list[str], dict[int, str]]]:
    """Split the bytes of `part` into lines, and yield them decoded, without line ends, in lists of about a megabyte."""
    payload, start, end = part.loaded().payload, 0, 0
    while payload:
        end = payload.find(b"\n", start + _BATCH_BYTES - 1) + 1 or len(payload)
        block, bad = payload[start:end], {}
        payload, start = (b"", 0) if end == len(payload) else (payload, end)
        raw = block.removesuffix(b"\n").split(b"\n")
        if b"\r" in block:
            raw = [line.removesuffix(b"\r") for line in raw]
        del block
        try:
            lines = list(map(bytes.decode, raw))  # decoding the whole block first would take twice as long
        except UnicodeDecodeError:
            reasons = ((index, _not_unicode(line)) for index, line in enumerate(raw))
            bad = {index: reason for index, reason in reasons if reason is not None}
            lines = [line.decode(errors="backslashreplace") for line in raw]
        del raw  # a line may be as large as the payload
        yield lines, bad


# A document of CSV, of paragraphs, or a whole file: its bytes, its line number (`None` for a blank document), the
# values of its columns, and the reason if it is bad. A plain tuple, because a class would make reading a third slower.
_Record = tuple[bytes, int | None, Sequence[Any], str | None]


def _records(part: Part, columns: Columns) -> Iterator[Documents]:
    """Parse a part of CSV or TSV records, paragraphs or a whole text file, and yield batches of its documents."""
    parse = {"paragraphs": _paragraphs, "file": _whole_file, "unreadable": _unreadable}.get(part.kind, _csv)
    records = parse(part, columns)
    nothing: tuple[Any, ...] = ("",) * len(columns.texts) + (None,) * len(columns.carried)
    while batch := _next_batch(records):
        found = [one for one in batch if one[1] is not None]
        bad = {row: reason for row, (_, _, _, reason) in enumerate(found) if reason is not None}
        values = _transposed([values or nothing for _, _, values, _ in found], len(nothing))
        excerpts = {row: _excerpt(found[row][0]) for row in bad}
        numbers = [number for _, number, _, _ in found if number is not None]
        yield _documents(part, numbers, values, bad, excerpts, columns, blank=len(batch) - len(found))


def _next_batch(records: Iterator[_Record]) -> list[_Record]:
    batch, size = [], 0
    for record in records:
        batch.append(record)
        size += len(record[0])
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
            break
    return batch


def _transposed(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Transpose `rows`, which have `width` values each, to `width` lists; these are empty if there are no rows."""
    return [[row[column] for row in rows] for column in range(width)]


def _paragraphs(part: Part, columns: Columns) -> Iterator[_Record]:
    number, start, payload = part.first, 0, part.payload
    while start < len(payload):
        blank = BLANK_LINE.search(payload, start)
        raw, end = payload[start : blank.start() if blank else None], blank.end() if blank else len(payload)
        if raw.strip(b" \t\r\n"):
            text = raw.replace(b"\r\n", b"\n").removesuffix(b"\n")
            reason = _not_unicode(text)
            yield raw, number, () if reason else (text.decode(),), reason
        number += payload.count(b"\n", start, end)
        start = end


def _whole_file(part: Part, columns: Columns) -> Iterator[_Record]:
    raw = part.payload
    reason = _not_unicode(raw)
    text = "" if reason else raw.decode().replace("\r\n", "\n")
    is_blank = reason is None and (not text or text.isspace())
    yield raw, None if is_blank else part.first, () if reason else (text,), reason


def _json_values(lines: Sequence[str], bad: dict[int, str], columns: Columns) -> list[list[Any]]:
    """Parse JSON lines, and return for each column in `columns` a list with its value in every line."""
    names, rows = columns.schema.names, []
    for index, line in enumerate(lines):
        row: dict[str, Any] = {}
        if index not in bad:
            row, reason = _object(line, columns.texts)
            if reason is not None:
                bad[index] = reason
        rows.append([row.get(name) for name in names])
    return _transposed(rows, len(names))


def _object(line: str, texts: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Parse a line of JSON; return its object and `None`, or for a bad line an empty `dict` and the reason."""
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
        if "\\u" in line and lone_surrogate(row[name]) is not None:
            return {}, f"column {name!r} is not Unicode: it holds half a surrogate pair"
    return row, None


def _refuse_constant(name: str) -> Any:
    raise value_error(f"{name} is not a JSON value")


_DECODER, _ENCODER = json.JSONDecoder(parse_constant=_refuse_constant), json.JSONEncoder(ensure_ascii=False)
_TYPE_NAMES = {"str": "text", "NoneType": "null", "dict": "an object", "list": "a list", "bool": "a boolean"}


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value).__name__, type(value).__name__)


def _csv(part: Part, columns: Columns) -> Iterator[_Record]:
    raw: list[bytes] = []
    payload = part.loaded().payload

    def lines() -> Iterator[str]:
        for line in io.BytesIO(payload):
            raw.append(line)
            yield line.decode("utf-8", "surrogateescape")

    # For each column: its name, its index in a record, and the value that replaces an empty field.
    where = [
        (name, part.header.index(name), "" if pa.types.is_string(kind) else None)
        for name, kind in zip(columns.schema.names, columns.schema.types, strict=True)
    ]
    csv.field_size_limit(max(csv.field_size_limit(), len(payload)))
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


def _unreadable(part: Part, columns: Columns) -> Iterator[_Record]:
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
    """Convert the rows of a table, `batch`, to `Documents`; `numbers` are the row numbers in the source."""
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
    """Return the reason why `text` is not valid UTF-8, such as `"is not UTF-8: ..."`; `None` if it is valid."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return not_unicode(text[error.start], error.start, error.reason)
    return None


def _is_unicode(column: pa.Array) -> bool:
    """Return True if all strings of an Arrow array are valid UTF-8, which Arrow does not check on reading."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _excerpt(raw: bytes) -> str:
    """Return the first 200 characters of a document, given its bytes; bytes that are not UTF-8 are escaped."""
    return raw[: 4 * EXCERPT].decode(errors="backslashreplace").rstrip("\r\n")[:EXCERPT]
