"""Parts of the inputs, and batches of the documents that are read from them.

A document that cannot be decoded or parsed is marked as bad, with the reason; the other documents are still read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from .columns import Columns, SourceColumns, Values, is_string

LONGEST = 256 << 20  # bytes of one document
# Size of a batch of documents. The tokenizer needs about 100 bytes of memory per token, or 30 MB for such a batch.
BATCH_BYTES = 1 << 20
BATCH_ROWS = 1 << 15
_EXCERPT = 200  # characters of a bad document that are shown

Bad = dict[int, tuple[str, str | None]]


class Source(Protocol):
    """Input of a job: a file, or a data set of `datasets`."""

    @property
    def name(self) -> str:
        """Path, address or name, as the user gave it."""

    @property
    def recorded(self) -> str:
        """Name in the output, without private folders and keys."""

    @property
    def shown(self) -> str:
        """Name in messages."""

    @property
    def kind(self) -> str:
        """Format, such as `"jsonl"` or `"parquet"`."""

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the content in a later run."""

    def read_columns(self, texts: Sequence[str]) -> SourceColumns | None:
        """Return the names and types of the columns; `None` if there are none."""

    def text_bytes(self, columns: Columns) -> int | None:
        """Return the bytes to read, or an estimate; `None` if they are unknown."""

    def parts(self, shard_bytes: int, columns: Columns) -> Iterator[Part]:
        """Yield the parts of the source, in order."""

    def documents(self, part: Part, columns: Columns, shard_bytes: int) -> Iterator[Documents]:
        """Yield the documents of a part in batches, each of one shard."""


@dataclass(frozen=True)
class Part:
    r"""Consecutive documents of one source.

    Args:
        source (`Source`): the source.
        begin, end (`int`): bytes of text, row groups of Parquet, or rows of a table; an `end` of `None` is the end of
            the source.
        size (`int`): bytes of the part, or an estimate.
        several (`bool`): True if the part is written to as many shards as it needs, because one worker must read it.
        payload (`bytes`): for a data set that only the command can read, the rows as an Arrow IPC stream.
    """

    source: Source
    begin: int
    end: int | None
    size: int
    several: bool = False
    payload: bytes | None = None


@dataclass(frozen=True, eq=False)
class Documents:
    r"""Batch of parsed documents.

    Args:
        source (`Source`): their source.
        numbers (`list` of `int`): for text, the line where each document begins, counted from 1 at the start of the
            part; for tables, its row in the source, counted from 0.
        begins (array of int64): for text, the byte of the decompressed source at which each document begins; for
            tables, its row in the source. Both are counted from 0.
        texts (`list` of one or two `list` of `str`): the texts, and for text pairs the second texts; a bad document
            has an empty text.
        carried (`pyarrow.Table`): the columns to copy to the shard, one row for each document.
        bad (`dict` from `int` to a pair of `str`): for each bad document, by its index in the batch, the reason and
            its first characters.
        shard (`int`): number of its shard in the part.
        lines (`int`): lines of text in the batch, including blank ones; 0 for tables.
        blank (`int`): number of blank lines or files, which are not documents; 0 for paragraphs.
        raw (sequence of buffers): the bytes of the documents, for the digest of the shard.
        is_damage (`bool`): True if its only document stands for the rest of a damaged file.
    """

    source: Source
    numbers: list[int]
    begins: NDArray[np.int64]
    texts: list[list[str]]
    carried: pa.Table
    bad: Bad
    shard: int = 0
    lines: int = 0
    blank: int = 0
    raw: Sequence[Any] = ()
    is_damage: bool = False

    @property
    def unit(self) -> Literal["line", "row"]:
        """Unit of `numbers`."""
        return "row" if self.source.kind in ("parquet", "arrow", "data set", "stream") else "line"


def first_values(source: Source, names: list[str]) -> Values:
    """Return the first values of some columns as text; an empty `dict` if they cannot be read."""
    if not names:
        return {}
    columns = Columns((), pa.schema([(name, pa.string()) for name in dict.fromkeys(names)]))
    try:
        part = next(source.parts(BATCH_BYTES, columns))
        rows: dict[str, list[str | None]] = next(source.documents(part, columns, BATCH_BYTES)).carried[:100].to_pydict()
    except (ValueError, TypeError, OSError, StopIteration):
        return {}
    return rows


def make_documents(
    source: Source,
    numbers: list[int],
    begins: NDArray[np.int64],
    values: list[list[Any]],
    bad: Mapping[int, tuple[str, str | None]],
    columns: Columns,
    **more: Any,
) -> Documents:
    """Return a batch of documents, given the values of their columns: the texts, then the columns to copy."""
    split = len(columns.texts)
    texts, carried, bad = values[:split], [], dict(bad)
    for field, column in zip(columns.carried, values[split:], strict=True):
        array, wrong = _column(field, column)
        carried.append(array)
        bad = {**{row: (reason, texts[0][row]) for row, reason in wrong.items()}, **bad}
    return Documents(source, numbers, begins, *_without_bad(texts, bad, carried, columns), **more)


def table_documents(
    source: Source, batches: Iterator[pa.RecordBatch], columns: Columns, first: int, shard: int = 0
) -> Iterator[Documents]:
    """Yield the rows of `batches` as documents, in batches of about a megabyte; `first` is the number of the first."""
    for batch in batches:
        sizes = np.ones(batch.num_rows)
        for name in columns.texts:
            sizes += _text_sizes(batch.column(name))
        if (most := sizes.max(initial=0)) > LONGEST:
            raise value_error(
                f"{source.shown}, row {first + int(sizes.argmax())}: one row is larger than {LONGEST >> 20} MiB",
                got=f"{int(most)} bytes",
                fix="cut the document in two first",
            )
        group = (np.cumsum(sizes) - sizes) // BATCH_BYTES
        starts = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
        for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            yield _rows(source, batch.slice(start, stop - start), columns, first + start, shard)
        first += batch.num_rows


def _text_sizes(column: pa.Array) -> Any:
    """Return the bytes of each text; those of a dictionary are counted as often as they occur."""
    if pa.types.is_dictionary(column.type):
        sizes = _text_sizes(column.dictionary)
        where = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        return sizes[where] if len(sizes) else np.zeros(len(column))
    if pa.types.is_null(column.type):
        return np.zeros(len(column))
    if column.type == pa.string_view():
        column = column.cast(pa.large_binary())
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.float64)


def _rows(source: Source, batch: pa.RecordBatch, columns: Columns, first: int, shard: int) -> Documents:
    bad: Bad = {}
    arrays = []
    for field in columns.schema:
        column = _cast(source, batch.column(field.name), field)
        if pa.types.is_string(field.type) and not _is_unicode(column):
            values = column.cast(pa.large_binary()).to_pylist()
            for row, value in enumerate(values):
                if value is not None and (reason := not_unicode(value)) is not None:
                    bad.setdefault(row, (f"column {field.name!r} {reason}", excerpt(value)))
                    values[row] = None
            column = pa.array(values, pa.large_binary()).cast(field.type)
        arrays.append(column)
    raw = [buffer for array in arrays for buffer in _compacted(array).buffers() if buffer is not None]
    texts = [column.to_pylist() for column in arrays[: len(columns.texts)]]
    for name, column in zip(columns.texts, texts, strict=True):
        for row, value in enumerate(column):
            if value is None:
                bad.setdefault(row, (f"column {name!r} is null", texts[0][row]))
    numbers = list(range(first, first + len(batch)))
    parts = _without_bad(texts, bad, arrays[len(columns.texts) :], columns)
    return Documents(source, numbers, np.array(numbers, np.int64), *parts, shard=shard, raw=raw)


def _without_bad(
    texts: list[list[Any]], bad: Bad, carried: list[pa.Array], columns: Columns
) -> tuple[list[list[str]], pa.Table, Bad]:
    """Replace the texts of bad documents by empty ones, and shorten their excerpts."""
    excerpts = {row: (reason, text[:_EXCERPT] if text else None) for row, (reason, text) in sorted(bad.items())}
    for column in texts:
        for row in bad:
            column[row] = ""
    table = pa.table(carried, schema=columns.carried) if carried else pa.table({"": pa.nulls(len(texts[0]))}).select([])
    return texts, table, excerpts


def _cast(source: Source, column: pa.Array, field: pa.Field) -> pa.Array:
    """Convert a column of a table to the type of `field`."""
    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(field.type):
        column = column.dictionary_decode()
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise value_error(
            f"{source.shown}: column {field.name!r} is {column.type}, expected {field.type}",
            got=str(error).splitlines()[0],
            fix=f"name another type, columns={[f'{field.name}:string']!r}, or leave it out",
        ) from error


def _compacted(column: pa.Array) -> pa.Array:
    """Copy a column to buffers that hold only its own values, the same ones however it was read."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pa.concat_arrays([column, column.slice(0, 0)])


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
    if is_string(kind) or any(isinstance(value, str) for value in values):
        texts = [value if isinstance(value, str | None) else _JSON.encode(value) for value in values]
        return pa.array(texts, pa.string()).cast(kind)
    if pa.types.is_integer(kind) and any(isinstance(value, float) for value in values):
        return pa.array(values, pa.float64()).cast(kind)
    return pa.array(values, kind)


_JSON = json.JSONEncoder(ensure_ascii=False)


def not_unicode(text: bytes) -> str | None:
    """Return the reason why `text` is not valid UTF-8, such as `"is not UTF-8: ..."`; `None` if it is valid."""
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


def excerpt(raw: bytes) -> str:
    """Return the first characters of a document, given its bytes; bytes that are not UTF-8 are escaped."""
    return raw[: 4 * _EXCERPT].decode(errors="backslashreplace").rstrip("\r\n")[:_EXCERPT]
