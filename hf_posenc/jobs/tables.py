"""Tables as sources (Parquet, Arrow, data sets): cut their rows, in order, into parts of limited size.

Each part is an Arrow IPC stream. A table yields its rows in batches of any size; the size does not affect the parts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .._common.arrow import row_sizes, runs
from .._common.errors import value_error
from .files import InputFile
from .schema import Columns, SourceColumns
from .task import Part

BATCH_BYTES = 4 << 20  # bytes of a table that are read at once
BATCH_ROWS = 8192
_LARGEST = 64 << 20  # bytes of one part


class Table(Protocol):
    """Source whose rows a `TableReader` reads: `ParquetFile`, `ArrowFile` or `DataSet`."""

    @property
    def name(self) -> str:
        """Name of the source in messages."""

    @property
    def can_seek(self) -> bool:
        """True if rows can be read by index; False for a stream, which is read from its start."""

    def batches(self, row: int, names: list[str]) -> Generator[pa.RecordBatch]:
        """Yield batches of the columns `names`, from row index `row` on; a stream ignores `row` and yields all rows."""


class TableReader:
    r"""Reader that returns consecutive rows of a table in parts of limited size; see `take`.

    The attribute `row` is the index of the next row. `offset` is always 0; only text files have byte offsets.

    Args:
        table (`Table`): the table.
        columns (`Columns`): the columns to read.
        longest (`int`): a row of more bytes raises `ValueError`.
    """

    offset = 0

    def __init__(self, table: Table, columns: Columns, longest: int) -> None:
        self._table, self._columns, self._longest = table, columns, longest
        self._open(0)

    def _open(self, row: int) -> None:
        self.row = row
        self._opened = self._table.batches(row, self._columns.schema.names)
        self._batches = (self._cast(small) for batch in self._opened for small in _split(batch))
        self._pending = pa.record_batch({})
        self._sizes = np.zeros(0, np.int64)

    def seek(self, offset: int, row: int) -> None:
        """Skip forward to the row with index `row`; a stream is read up to that row.

        `offset` is ignored; it is an argument because `TextReader.seek` needs it.
        """
        if row > self.row and self._table.can_seek:
            self.close()
            self._open(row)
        while self.row < row and not self.ended():
            self._advance(min(row - self.row, self._pending.num_rows))

    def take(self, limit: int, *, must: bool) -> Part | None:
        """Return a part with as many of the next rows as fit into `limit` bytes; `None` if none fits or none is left.

        If `must` is True and the next row does not fit, return a part with only this row, or raise `ValueError` if it
        is larger than the reader's argument `longest`. A `limit` above 64 MiB counts as 64 MiB.
        """
        limit = min(limit, _LARGEST)
        first, taken = self.row, 0
        batches: list[pa.RecordBatch] = []
        while not self.ended():
            rows = int(np.searchsorted(np.cumsum(self._sizes), limit - taken, "right"))
            if rows == 0 and must and not batches:
                rows = 1
                self._check_size(int(self._sizes[0]))
            if rows == 0:
                break
            batches.append(self._pending.slice(0, rows))
            taken += int(self._sizes[:rows].sum())
            self._advance(rows)
        return Part(self._table.name, "arrow", first, _stream(batches), taken) if batches else None

    def ended(self) -> bool:
        """Return True if the table has no further rows."""
        while self._pending.num_rows == 0:
            batch = next(self._batches, None)
            if batch is None:
                return True
            self._pending, self._sizes = batch, row_sizes(batch)
        return False

    def close(self) -> None:
        """Close the table."""
        self._opened.close()

    def _advance(self, rows: int) -> None:
        self._pending, self._sizes = self._pending.slice(rows), self._sizes[rows:]
        self.row += rows

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch in the order and with the types of the schema `self._columns.schema`."""
        made: dict[str, pa.Array] = {}
        for field in self._columns.schema:
            column = batch.column(field.name)
            if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(field.type):
                column = column.dictionary_decode()
            # A slice of a large_string of more than 2 GiB cannot be cast.
            if column.type != field.type and not (
                field.name in self._columns.texts and column.type == pa.large_string()
            ):
                try:
                    column = column.cast(field.type)
                except pa.ArrowException as error:
                    raise value_error(
                        f"{self._table.name}: column {field.name!r} is {column.type}, expected {field.type}",
                        got=str(error).splitlines()[0],
                        fix=f"name another type, columns=['{field.name}:string'], or leave it out",
                    ) from error
            made[field.name] = column
        return pa.record_batch(made)

    def _check_size(self, size: int) -> None:
        if size > self._longest:
            raise value_error(
                f"{self._table.name}, row {self.row}: one row is larger than {self._longest >> 20} MiB",
                got=f"{size} bytes",
                fix="cut the document in two first, or carry fewer columns: columns=[...]",
            )


class ParquetFile(InputFile):
    """Source that reads the rows of a Parquet file."""

    can_seek = True

    def read_columns(self, texts: object) -> SourceColumns:
        """Return the names and types of the columns of the file. `texts` is ignored; only `TextFile` uses it."""
        with self._open() as file:
            return SourceColumns(self.name, file.schema_arrow)

    def size(self, columns: Columns) -> int:
        """Return the decompressed size of `columns` in bytes."""
        with self._open() as file:
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        return sum(_stored_bytes(group, columns.schema.names) for group in groups)

    def batches(self, row: int, names: list[str]) -> Generator[pa.RecordBatch]:
        """Yield batches of the columns `names`, from row `row` on; earlier row groups are not read."""
        with self._open() as file:
            # The same long text in every row is small in a file and gigabytes once decoded: such columns stay encoded.
            encoded = _dictionary_columns(file, names)
        with self._open(encoded) as file, refuse_damage(self.name, "Parquet"):
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                if row >= group.num_rows:
                    row -= group.num_rows
                    continue
                rows = max(1, min(BATCH_ROWS, BATCH_BYTES * group.num_rows // max(1, _stored_bytes(group, names))))
                for batch in file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False):
                    if row < batch.num_rows:
                        yield batch.slice(row)
                    row = max(0, row - batch.num_rows)

    @contextmanager
    def _open(self, encoded: list[str] | None = None) -> Iterator[pq.ParquetFile]:
        with refuse_damage(self.name, "Parquet"):
            source = self.path if self.path is not None else self.open()
            # Buffered and not read ahead: a column of a row group may be larger than memory.
            file = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20, read_dictionary=encoded)
        with closing(file):
            yield file


class ArrowFile(InputFile):
    """Source that reads the rows of an Arrow IPC file or stream; a local file is memory-mapped."""

    can_seek = True

    def read_columns(self, texts: object) -> SourceColumns:
        """Return the names and types of the columns of the file. `texts` is ignored; only `TextFile` uses it."""
        with self._open() as file:
            return SourceColumns(self.name, file.schema)

    def size(self, columns: Columns) -> int:
        """Return the size of the file in bytes, as an estimate of the size of `columns`."""
        return self.bytes()

    def batches(self, row: int, names: list[str]) -> Generator[pa.RecordBatch]:
        """Yield batches of the columns `names`, from row `row` on."""
        with self._open() as file, refuse_damage(self.name, "Arrow"):
            has_footer = isinstance(file, pa.RecordBatchFileReader)
            for batch in map(file.get_batch, range(file.num_record_batches)) if has_footer else file:
                if row < batch.num_rows:
                    yield batch.select(names).slice(row)
                row = max(0, row - batch.num_rows)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with refuse_damage(self.name, "Arrow"):
            source = pa.PythonFile(self.open(), "r") if self.path is None else pa.memory_map(str(self.path))
            with_footer = bytes(source.read(6)) == b"ARROW1"
            source.seek(0)
            file = pa.ipc.open_file(source) if with_footer else pa.ipc.open_stream(source)
        with closing(source):
            yield file


@contextmanager
def refuse_damage(name: str, kind: str) -> Iterator[None]:
    """Replace an Arrow error, `OSError` or `EOFError` in the `with` block by a `ValueError`: `name` cannot be read.

    `kind` is the format that the message names, such as `"Parquet"`.
    """
    try:
        yield
    except (pa.ArrowException, OSError, EOFError) as error:
        raise value_error(
            f"{name} cannot be read as {kind}: it is cut off, damaged, or something else",
            got=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            fix='write or fetch the file again, or name its format: format="text" (--format)',
        ) from error


def _chunks(group: Any) -> list[Any]:
    return [group.column(number) for number in range(group.num_columns)]


def _stored_bytes(group: Any, names: Sequence[str]) -> int:
    """Return the decompressed size in bytes of the columns `names` in one Parquet row group."""
    return sum(one.total_uncompressed_size for one in _chunks(group) if one.path_in_schema.split(".")[0] in names)


def _dictionary_columns(file: Any, names: list[str]) -> list[str]:
    """Return the columns among `names` that hold strings or bytes, and are dictionary-encoded in the Parquet file."""
    strings = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    groups = [file.metadata.row_group(number) for number in range(min(file.metadata.num_row_groups, 8))]
    encoded = {chunk.path_in_schema for group in groups for chunk in _chunks(group) if chunk.has_dictionary_page}
    return [name for name in names if file.schema_arrow.field(name).type in strings and name in encoded]


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices of at most 8192 rows and about 4 MiB, measured as if its dictionaries were decoded."""
    for start in range(0, batch.num_rows, BATCH_ROWS):  # the sizes of all rows of a large file would fill memory
        rows = batch.slice(start, BATCH_ROWS)
        for first, end in runs(row_sizes(rows), BATCH_BYTES):
            yield rows.slice(first, end - first)


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    """Return the rows of all `batches` as the bytes of one Arrow IPC stream, which holds them in a single batch."""
    table = pa.Table.from_batches(batches)
    batch = pa.record_batch([_compacted(column) for column in table.columns], names=table.column_names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def _compacted(column: pa.ChunkedArray) -> pa.Array:
    """Copy a column to a new array that holds only the values of its rows."""
    kind = column.type
    if pa.types.is_dictionary(kind):  # drop dictionary values that only other rows use
        encoded = pa.concat_arrays([chunk.dictionary_decode() for chunk in column.chunks]).dictionary_encode()
        return encoded if kind == encoded.type else encoded.cast(kind)
    if kind in (pa.string_view(), pa.binary_view()):  # a view keeps its whole buffer
        plain = pa.large_string() if kind == pa.string_view() else pa.large_binary()
        return column.cast(plain).combine_chunks().cast(kind)
    values = column.combine_chunks()
    try:
        return values.take(pa.array(np.arange(len(values))))
    except pa.ArrowNotImplementedError:  # a type that Arrow cannot gather
        return values
