"""Documents of a task: decode and parse its parts in small batches, tokenize them, and list the rejected documents.

This code runs in a worker. An unreadable document is a bad row with a reason; it does not affect other documents.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .._arrow import row_sizes
from .._explain import explain, shorten
from ..ragged import Ragged
from .options import Job
from .schema import Columns
from .task import Part, Rejected, Task
from .tokenizing import Tokens

# Size of a batch of documents. The tokenizer needs about 100 bytes of memory per token, or 30 MB for such a batch.
_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 1 << 15
_EXCERPT = 200  # characters of a rejected document that `rejected.jsonl` shows

_BLANK_LINE = re.compile(rb"^[ \t\r]*(?:\n|\Z)", re.MULTILINE)


@dataclass
class Counted:
    r"""Counts of the documents of a task that were read so far.

    Args:
        documents (`int`): all documents, including rejected ones.
        blank (`int`): blank lines, which are not documents.
        cut (`int`): documents that were truncated.
        rejected (`list` of `Rejected`): the bad documents.
    """

    documents: int = 0
    blank: int = 0
    cut: int = 0
    rejected: list[Rejected] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Block:
    r"""A batch of tokenized documents.

    Args:
        ids (`Ragged`): a row for each document, or several for a long one that is split.
        types (`Ragged`, *optional*): the text of a pair that each token belongs to; only with pairs.
        carried (`pyarrow.Table`): the further columns, a row for each document.
        sample (`np.ndarray` `(rows,)` int64): the document of each row.
    """

    ids: Ragged
    types: Ragged | None
    carried: pa.Table
    sample: NDArray[np.int64]

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Concatenate one or more blocks."""
        types = [block.types for block in blocks if block.types is not None]
        counts = np.array([len(block.carried) for block in blocks])
        before = np.cumsum(counts) - counts
        return cls(
            Ragged.joined([block.ids for block in blocks]),
            Ragged.joined(types) if types else None,
            pa.concat_tables([block.carried for block in blocks]),
            np.concatenate([block.sample + count for block, count in zip(blocks, before, strict=True)]),
        )


class Documents:
    r"""Reader and tokenizer of the documents in the tasks of one job.

    Args:
        job (`Job`): the columns, the tokenizer, and the handling of bad rows.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._tokens = Tokens(job)
        pair = job.text_pair_column
        self._columns = Columns((job.text_column,) if pair is None else (job.text_column, pair), job.carried)

    def of(self, task: Task, counted: Counted) -> Iterator[Block]:
        r"""Yield the documents of a task, tokenized in batches.

        Args:
            task (`Task`): the task.
            counted (`Counted`): counts, updated in place.

        Returns:
            Iterator over `Block`.

        Raises:
            ValueError: for a bad document, with file, line and reason, unless the job skips bad documents or replaces
                them by empty texts.
        """
        for part in task.parts:
            for rows in read_part(part, self._columns):
                counted.blank += rows.blank
                if rows.numbers:
                    yield self._block(part, rows, counted)

    def _block(self, part: Part, rows: Rows, counted: Counted) -> Block:
        texts, pairs = rows.texts[0], rows.texts[1] if len(rows.texts) > 1 else None
        encoded, refused = self._tokens.encode(texts, pairs)
        bad = {**refused, **rows.bad}
        ids, sample = encoded.ids, encoded.sample
        types = None if pairs is None else encoded.token_type_ids
        counted.documents += len(texts)
        counted.cut += encoded.truncated
        if bad:
            counted.rejected += self._rejected(part, rows, bad)
            if self._job.on_bad_row == "skip":
                keep = ~np.isin(sample, np.fromiter(bad, np.int64, len(bad)))
                ids, types, sample = ids.filter(keep), None if types is None else types.filter(keep), sample[keep]
        return Block(ids, types, rows.carried, sample)

    def _rejected(self, part: Part, rows: Rows, bad: dict[int, str]) -> list[Rejected]:
        found = [
            Rejected(
                part.source, part.unit, rows.numbers[row], bad[row],
                (rows.texts[0][row] or rows.excerpts.get(row, ""))[:_EXCERPT] or None,
            )
            for row in sorted(bad)
        ]  # fmt: skip
        if self._job.on_bad_row == "error":
            first = found[0]
            fixes = ['on_bad_row="skip" leaves such rows out and lists them in rejected.jsonl']
            if self._job.pack is None:
                fixes.append('on_bad_row="keep-empty" keeps them as empty texts')
            if part.kind == "unreadable":
                fixes.insert(0, "download or write the file again")
            raise ValueError(
                explain(
                    f"{first.source}, {first.unit} {first.number}: {first.reason}",
                    got=shorten(first.text) if first.text else "no text",
                    fix="; ".join(fixes),
                )
            )
        return found


# -------------------------------------------------------------------------------------------------- parts to documents


@dataclass(frozen=True, eq=False)
class Rows:
    r"""A batch of documents of a part.

    Args:
        texts (`list` of one or two `list` of `str`): the texts, and for pairs the texts of the second column; a bad
            document has an empty text.
        carried (`pyarrow.Table`): the further columns, a row for each document.
        numbers (`list` of `int`): the line (from 1) or row (from 0) of each document.
        bad (`dict` from `int` to `str`): the reason for each bad document.
        excerpts (`dict` from `int` to `str`): the first characters of bad documents without a text.
        blank (`int`): blank lines between the documents.
        size (`int`): bytes of the payload that hold these documents.
    """

    texts: list[list[str]]
    carried: pa.Table
    numbers: list[int]
    bad: dict[int, str]
    excerpts: dict[int, str]
    blank: int
    size: int


class _Document(NamedTuple):
    """A document as parsed from its file; a blank line has no number."""

    size: int
    number: int | None = None
    texts: Sequence[str] = ()
    values: Sequence[Any] = ()
    reason: str | None = None
    excerpt: str = ""


def read_part(part: Part, columns: Columns) -> Iterator[Rows]:
    r"""Yield the documents of a part, in order, in batches of about a megabyte.

    Blank lines of text, JSON and CSV are counted, but are not documents.

    Args:
        part (`Part`): a part of a task.
        columns (`Columns`): the columns to read.

    Returns:
        Iterator over `Rows`.

    Example:
        >>> (rows,) = read_part(Part("a.txt", "lines", 1, b"I ride\n\nb\xff\nbike"), Columns(("text",)))
        >>> rows.texts, rows.numbers, rows.blank
        ([['I ride', '', 'bike']], [1, 3, 4], 1)
        >>> rows.bad
        {1: 'is not UTF-8: byte 0xff at position 1 (invalid start byte)'}
    """
    if part.kind == "arrow":
        yield from _table(part, columns)
        return
    documents = {"lines": _lines, "paragraphs": _paragraphs, "jsonl": _json_lines, "unreadable": _unreadable}
    batch: list[_Document] = []
    size = 0
    for document in documents.get(part.kind, _csv)(part, columns):
        batch.append(document)
        size += document.size
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_ROWS:
            yield _rows(batch, columns, from_text=part.kind in ("csv", "tsv"))
            batch, size = [], 0
    if batch:
        yield _rows(batch, columns, from_text=part.kind in ("csv", "tsv"))


def _rows(batch: list[_Document], columns: Columns, *, from_text: bool) -> Rows:
    """Convert documents to `Rows`; values of the further columns get the types of the schema."""
    documents = [one for one in batch if one.number is not None]
    bad = {row: one.reason for row, one in enumerate(documents) if one.reason is not None}
    nothing = ("",) * len(columns.texts)
    carried = []
    for number, kind in enumerate(columns.carried):
        values = [None if row in bad or not one.values else one.values[number] for row, one in enumerate(documents)]
        column, wrong = _column(kind, values, from_text=from_text)
        carried.append(column)
        for row, reason in wrong.items():
            bad.setdefault(row, reason)
    texts = [nothing if row in bad else one.texts for row, one in enumerate(documents)]
    return Rows(
        texts=[[text[number] for text in texts] for number in range(len(columns.texts))],
        carried=pa.table(carried, schema=columns.carried) if carried else _no_columns(len(documents)),
        numbers=[one.number for one in documents if one.number is not None],
        bad=bad,
        excerpts={row: documents[row].excerpt or "".join(documents[row].texts[:1]) for row in bad},
        blank=len(batch) - len(documents),
        size=sum(one.size for one in batch),
    )


def _no_columns(rows: int) -> pa.Table:
    """Return a table with the given number of rows and no columns."""
    return pa.table({"": pa.nulls(rows)}).select([])


def _column(kind: pa.Field, values: list[Any], *, from_text: bool) -> tuple[pa.Array, dict[int, str]]:
    """Convert values to an array; return it, with null for values of another type, and the reasons."""
    if pa.types.is_string(kind.type) and not from_text:
        values = [value if isinstance(value, str | None) else _json_text(value) for value in values]
    elif from_text and not pa.types.is_string(kind.type):
        values = [value or None for value in values]  # an empty field
    try:
        return _array(values, kind.type), {}
    except (ValueError, TypeError, OverflowError):
        pass
    arrays, bad = [], {}
    for row, value in enumerate(values):
        try:
            arrays.append(_array([value], kind.type))
        except (ValueError, TypeError, OverflowError):
            arrays.append(pa.nulls(1, kind.type))
            bad[row] = f"column {kind.name!r} is {shorten(value)}, expected {kind.type}"
    return pa.concat_arrays(arrays), bad


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert values to an array; strings are parsed as the type, and no number is rounded."""
    if pa.types.is_string(kind):
        return pa.array(values, kind)
    if any(isinstance(value, str) for value in values):
        values = [value if isinstance(value, str | None) else _json_text(value) for value in values]
        return pa.array(values).cast(kind)
    if pa.types.is_integer(kind) and any(isinstance(value, float) for value in values):
        return pa.array(values, pa.float64()).cast(kind)
    return pa.array(values, kind)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ------------------------------------------------------------------------------------------------------------- formats


def _lines(part: Part, columns: Columns) -> Iterator[_Document]:
    for number, line, text, reason in _decoded(part):
        if reason is not None:
            yield _Document(len(line), number, reason=reason, excerpt=_excerpt(line))
        elif text.isspace() or not text:
            yield _Document(len(line))
        else:
            yield _Document(len(line), number, (text,))


def _paragraphs(part: Part, columns: Columns) -> Iterator[_Document]:
    number, start, payload = part.first, 0, part.payload
    while start < len(payload):
        blank = _BLANK_LINE.search(payload, start)
        paragraph, end = payload[start : blank.start() if blank else None], blank.end() if blank else len(payload)
        if paragraph.strip(b" \t\r\n"):
            text = paragraph.replace(b"\r\n", b"\n").removesuffix(b"\n")
            if (reason := _not_unicode(text)) is None:
                yield _Document(end - start, number, (text.decode(),))
            else:
                yield _Document(end - start, number, reason=reason, excerpt=_excerpt(text))
        number += payload.count(b"\n", start, end)
        start = end


def _json_lines(part: Part, columns: Columns) -> Iterator[_Document]:
    names = columns.carried.names
    for number, line, text, not_unicode in _decoded(part):
        if not_unicode is None and not text.strip():
            yield _Document(len(line))
            continue
        row, reason = (None, not_unicode) if not_unicode else _object(text, columns.texts)
        if row is None:
            yield _Document(len(line), number, reason=reason, excerpt=_excerpt(line))
        else:
            texts = [row[name] for name in columns.texts]
            yield _Document(len(line), number, texts, [row.get(name) for name in names])


def _csv(part: Part, columns: Columns) -> Iterator[_Document]:
    delimiter = "\t" if part.kind == "tsv" else ","
    raw: list[bytes] = []

    def lines() -> Iterator[str]:
        for line in io.BytesIO(part.payload):
            raw.append(line)
            yield line.decode("utf-8", "surrogateescape")

    where = [part.header.index(name) for name in columns.schema.names]
    csv.field_size_limit(max(csv.field_size_limit(), len(part.payload)))
    records = csv.reader(lines(), delimiter=delimiter)
    number, fields = part.first, len(part.header)
    while True:
        try:
            row, reason = next(records, None), None
        except csv.Error as error:
            row, reason = [], f"is not CSV: {error}"
        if row is None and not raw:
            return
        record = b"".join(raw)
        if row is not None and row and len(row) != fields:
            reason = f"has {len(row)} fields, but the header has {fields}"
        values = [] if reason or not row else [row[at] for at in where]
        for name, value in zip(columns.schema.names, values, strict=False):
            if not value.isascii() and (wrong := _not_unicode(value.encode("utf-8", "surrogateescape"))) is not None:
                reason = reason or f"column {name!r} {wrong}"
        if reason is not None:
            yield _Document(len(record), number, reason=reason, excerpt=_excerpt(record))
        elif not row:
            yield _Document(len(record))
        else:
            split = len(columns.texts)
            yield _Document(len(record), number, values[:split], values[split:])
        number += len(raw)
        raw.clear()


def _unreadable(part: Part, columns: Columns) -> Iterator[_Document]:
    yield _Document(len(part.payload), part.first, reason=part.payload.decode(errors="replace"))


def _table(part: Part, columns: Columns) -> Iterator[Rows]:
    """Yield the rows of an Arrow stream; a null, or a text that is not UTF-8, is a bad document."""
    with pa.ipc.open_stream(part.payload) as opened:
        batches = list(opened)
    first, read = part.first, 0
    for batch in batches:
        for start, end in runs(row_sizes(batch), _BATCH_BYTES):
            for low in range(start, end, _BATCH_ROWS):
                piece = batch.slice(low, min(end - low, _BATCH_ROWS))
                done = len(part.payload) * (low + len(piece)) // len(batch)
                yield _table_rows(piece, columns, first + low, done - read)
                read = done
        first += len(batch)


def _table_rows(batch: pa.RecordBatch, columns: Columns, first: int, size: int) -> Rows:
    bad: dict[int, str] = {}
    excerpts: dict[int, str] = {}
    texts, carried = [], []
    for number, kind in enumerate(columns.schema):
        column = batch.column(kind.name)
        is_string = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if is_string and not _is_unicode(column):
            values = column.cast(pa.large_binary()).to_pylist()
            for row, value in enumerate(values):
                if value is not None and (reason := _not_unicode(value)) is not None:
                    bad.setdefault(row, f"column {kind.name!r} {reason}")
                    excerpts.setdefault(row, _excerpt(value))
                    values[row] = None
            column = pa.array(values, pa.large_binary()).cast(kind.type)
        if number < len(columns.texts):
            values = column.to_pylist()
            for row, value in enumerate(values):
                if value is None:
                    bad.setdefault(row, f"column {kind.name!r} is null")
            texts.append([value or "" for value in values])
        else:
            carried.append(column)
    table = pa.table(carried, schema=columns.carried) if carried else _no_columns(len(batch))
    numbers = list(range(first, first + len(batch)))
    texts = [["" if row in bad else text for row, text in enumerate(column)] for column in texts] if bad else texts
    return Rows(texts, table, numbers, bad, excerpts, 0, size)


def _decoded(part: Part) -> Iterator[tuple[int, bytes, str, str | None]]:
    """Yield the number, bytes and text of each line, and an error message if the bytes are not UTF-8."""
    for number, line in enumerate(io.BytesIO(part.payload), part.first):
        try:
            yield number, line, line.decode().removesuffix("\n").removesuffix("\r"), None
        except UnicodeDecodeError:
            stripped = line.removesuffix(b"\n").removesuffix(b"\r")
            yield number, stripped, "", _not_unicode(stripped)


def _object(line: str, texts: Sequence[str]) -> tuple[dict[str, Any] | None, str | None]:
    """Parse a line of JSON; return its object, or `None` and the reason why it is not a document."""
    try:
        row = _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON: {error}"
    if not isinstance(row, dict):
        return None, f"is {_type_name(row)}, expected an object with a column {texts[0]!r}"
    for name in texts:
        if name not in row:
            return None, f"has no column {name!r}; its columns are {', '.join(map(repr, row))}"
        if row[name] is None:
            return None, f"column {name!r} is null"
        if not isinstance(row[name], str):
            return None, f"column {name!r} is {_type_name(row[name])}, expected text"
        if "\\u" in line and _has_surrogate(row[name]):
            return None, f"column {name!r} is not Unicode: it holds half a surrogate pair"
    return row, None


def _refuse_constant(name: str) -> Any:
    raise ValueError(explain(f"{name} is not a JSON value"))


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_TYPE_NAMES = {"str": "text", "NoneType": "null", "dict": "an object", "list": "a list", "bool": "a boolean"}


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value).__name__, type(value).__name__)


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _not_unicode(text: bytes) -> str | None:
    """Return the error message for bytes that are not UTF-8; `None` for valid UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8: byte 0x{text[error.start]:02x} at position {error.start} ({error.reason})"
    return None


def _is_unicode(column: pa.Array) -> bool:
    """Return True if all strings of an array are valid UTF-8; Arrow does not check this when it reads them."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _excerpt(line: bytes) -> str:
    """Return the first characters of a document; bytes that are not UTF-8 are escaped."""
    return line[: 4 * _EXCERPT].decode(errors="backslashreplace").rstrip("\r\n")[:_EXCERPT]


def runs(sizes: NDArray[Any], most: int) -> Iterator[tuple[int, int]]:
    r"""Yield runs of consecutive items, each of about a given total size; a larger item may form a run alone.

    Args:
        sizes (`np.ndarray` `(N,)` of integers): size of each item.
        most (`int`): approximate size of a run, within one item.

    Returns:
        Iterator over pairs `(start, stop)` of indices; empty for no items.

    Example:
        >>> list(runs(np.array([3, 3, 3, 9, 1]), 6))
        [(0, 2), (2, 4), (4, 5)]
    """
    before = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(np.diff(before // most, prepend=-1))
    yield from pairwise([*starts.tolist(), len(sizes)])
