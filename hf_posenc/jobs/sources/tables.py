"""Sources that are tables: rows taken in order by their bytes, and handed on as Arrow streams.

Each kind of table only has to say what its columns are and to yield its rows in batches; how large these are changes
nothing about what is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from ..._arrow import row_sizes
from ..._explain import explain
from ..reading.rows import BAD, RAW, Reading
from ..task import Part
from .columns import is_text, missing_column, not_text
from .lines import LARGEST, LONGEST

BATCH_BYTES = 4 << 20  # about how much of a table is read at once
MOST_ROWS = 8192


class Table(Protocol):
    """A source of rows."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def can_jump(self) -> bool:
        """Whether rows can be reached without reading those before."""

    @property
    def reading(self) -> Reading:
        """Which columns to read."""

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on, of those columns, in batches of a few megabytes."""


class TableReader:
    r"""Reads a table in order, whole rows at a time.

    Args:
        table (`Table`): what to read.
        row (`int`): rows that lie before; kept up to date.
    """

    def __init__(self, table: Table, row: int = 0) -> None:
        self.table = table
        self.offset = 0
        self.row = row
        self._schema = table.reading.wanted
        self._batches = table.batches(row, self._schema.names)
        self._fitting = (self._fitted(piece) for batch in self._batches for piece in _pieces(batch))
        self._held: pa.RecordBatch | None = None
        self._sizes = np.zeros(0, np.int64)

    def take(self, limit: int, *, must: bool) -> tuple[Part | None, int]:
        r"""The next rows that fit into `limit` bytes.

        Args:
            limit (`int`): how many bytes at most.
            must (`bool`): take one row even if it is larger.

        Returns:
            the part, `None` where no row fits, and how many bytes it took.
        """
        limit = min(limit, LARGEST)
        first, taken = self.row, 0
        batches: list[pa.RecordBatch] = []
        while not self.ended() and self._held is not None:
            rows = int(np.searchsorted(np.cumsum(self._sizes), limit - taken, "right"))
            if rows == 0 and must and not batches:
                rows = 1
                self._check_size(int(self._sizes[0]))
            if rows == 0:
                break
            batches.append(self._held.slice(0, rows))
            taken += int(self._sizes[:rows].sum())
            self._held, self._sizes = self._held.slice(rows), self._sizes[rows:]
            self.row += rows
        if not batches:
            return None, 0
        return Part(self.table.name, "arrow", first, _stream_of(batches)), taken

    def ended(self) -> bool:
        """Whether nothing is left."""
        while self._held is None or self._held.num_rows == 0:
            self._held = next(self._fitting, None)
            if self._held is None:
                return True
            self._sizes = row_sizes(self._held)
        return False

    def forward(self, offset: int, row: int) -> bool:
        """Pass over the rows up to a place further on, where the table has to be read anyway."""
        if self.table.can_jump or row < self.row:
            return False
        while self.row < row and not self.ended() and self._held is not None:
            passed = min(row - self.row, self._held.num_rows)
            self._held, self._sizes = self._held.slice(passed), self._sizes[passed:]
            self.row += passed
        return True

    def close(self) -> None:
        """Let go of what is open."""
        self._batches.close()  # type: ignore[attr-defined]

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that were promised, in that order and of those types; texts however they are encoded."""
        made: dict[str, pa.Array] = {}
        for field in self._schema:
            if field.name not in batch.schema.names:
                texts = self.table.reading.texts
                names = [name for name in batch.schema.names if name not in (BAD, RAW)]
                raise ValueError(missing_column(self.table.name, field.name, names, texts))
            column = batch.column(field.name)
            if field.name in self.table.reading.texts:
                if not is_text(column.type):
                    raise TypeError(not_text(self.table.name, field.name, batch.schema, self.table.reading.texts))
                # A dictionary, or the memory that a view looks at, would travel whole with every part.
                column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                column = column.cast(pa.string()) if column.type == pa.string_view() else column
            elif column.type != field.type:
                if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(field.type):
                    column = column.dictionary_decode()
                column = self._cast(field, column)
            made[field.name] = column
        made |= {name: batch.column(name) for name in (BAD, RAW) if name in batch.schema.names}
        return pa.record_batch(made)

    def _cast(self, field: pa.Field, column: pa.Array) -> pa.Array:
        try:
            return column.cast(field.type)
        except pa.ArrowException as wrong:
            raise ValueError(
                explain(
                    f"{self.table.name}: column {field.name!r} is {column.type}, in the inputs before it {field.type}",
                    got=str(wrong).splitlines()[0],
                    fix="name the columns to carry, e.g. columns=[]",
                )
            ) from wrong

    def _check_size(self, size: int) -> None:
        if size > LONGEST:
            raise ValueError(
                explain(
                    f"{self.table.name}, row {self.row}: one row is larger than {LONGEST >> 20} MiB",
                    got=f"{size} bytes",
                    fix="cut the document in two first, or carry fewer columns: columns=[...]",
                )
            )


def _stream_of(batches: list[pa.RecordBatch]) -> bytes:
    """The rows as one Arrow stream of one batch: the same bytes however the rows lay in the batches before."""
    table = pa.Table.from_batches(batches)
    columns = [_afresh(column) for column in table.columns]
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(columns, names=table.column_names)
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def _afresh(column: pa.ChunkedArray) -> pa.Array:
    """The same values in memory of their own, so that no bit of a neighbour is left in it."""
    kind = column.type
    if pa.types.is_dictionary(kind):  # the dictionary in the order of these rows, without what others need
        values = pa.concat_arrays([chunk.dictionary_decode() for chunk in column.chunks])
        encoded = values.dictionary_encode()
        return encoded if kind == encoded.type else encoded.cast(kind)
    if kind in (pa.string_view(), pa.binary_view()):  # a view keeps all memory that it looks at, other rows' too
        plain = pa.large_string() if kind == pa.string_view() else pa.large_binary()
        return column.cast(plain).combine_chunks().cast(kind)
    values = column.combine_chunks()
    try:
        return values.take(pa.array(np.arange(len(values))))
    except pa.ArrowNotImplementedError:  # a kind that Arrow cannot gather
        return values


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in slices of a few megabytes, as large as its rows will be: not as they are, in a dictionary."""
    sizes = row_sizes(batch)
    before = np.cumsum(sizes) - sizes
    starts = np.flatnonzero(np.diff(before // BATCH_BYTES, prepend=-1)).tolist()
    for start, end in pairwise([*starts, batch.num_rows]):
        yield batch.slice(start, end - start)


def slices(batch: pa.RecordBatch, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """A batch of any length in shorter ones, the first rows left out."""
    for start in range(skip, batch.num_rows, MOST_ROWS):
        yield batch.slice(start, MOST_ROWS)


def broken(name: str, kind: str, wrong: Exception) -> str:
    """What to say about a table that cannot be read."""
    return explain(
        f"{name} cannot be read as {kind}: it is cut off, damaged, or something else",
        got=str(wrong).strip().splitlines()[0] if str(wrong).strip() else type(wrong).__name__,
        fix='write or fetch the file again, or say what it is: format="text" (--format)',
    )
