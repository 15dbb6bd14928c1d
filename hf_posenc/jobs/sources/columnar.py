"""Parquet and Arrow files: read row by row from where they lie, never a whole row group or file in memory.

A finished shard's rows are passed over by what the files say about themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..reading.rows import Reading
from .columns import Offered
from .files import InputFile
from .tables import BATCH_BYTES, MOST_ROWS, TableReader, broken, slices


@dataclass(frozen=True)
class ParquetFile(InputFile):
    """A Parquet file."""

    reading: Reading = field(default_factory=Reading)
    can_jump: bool = True

    def offered(self) -> Offered:
        """Its columns."""
        with closing(self._opened()) as file:
            return Offered(self.name, file.schema_arrow)

    def size(self) -> int | None:
        """Bytes of the columns that are read, decompressed."""
        names = set(self.reading.wanted.names)
        with closing(self._opened()) as file:
            found = file.metadata
            groups = [found.row_group(number) for number in range(found.num_row_groups)]
            columns = [group.column(number) for group in groups for number in range(group.num_columns)]
            return sum(int(c.total_uncompressed_size) for c in columns if c.path_in_schema.split(".")[0] in names)

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on: row groups before it are not read, large ones page by page."""
        with closing(self._opened()) as file:
            there = [name for name in names if name in file.schema_arrow.names]
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                if row >= group.num_rows:
                    row -= group.num_rows
                    continue
                rows = max(1, min(MOST_ROWS, BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))
                try:
                    for batch in file.iter_batches(rows, row_groups=[number], columns=there, use_threads=False):
                        if row < batch.num_rows:
                            yield from slices(batch, row)
                        row = max(0, row - batch.num_rows)
                except (pa.ArrowException, OSError) as wrong:
                    raise ValueError(broken(self.name, "Parquet", wrong)) from wrong

    def _opened(self) -> Any:
        import pyarrow.parquet as pq

        try:
            # Buffered and not read ahead: a column of a row group may be larger than memory.
            return pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20)
        except (pa.ArrowException, OSError) as wrong:
            raise ValueError(broken(self.name, "Parquet", wrong)) from wrong


@dataclass(frozen=True)
class ArrowFile(InputFile):
    """A file of Arrow's own, with a footer (`.feather`, Ray) or without (`datasets`); mapped into memory."""

    reading: Reading = field(default_factory=Reading)
    can_jump: bool = True

    def offered(self) -> Offered:
        """Its columns."""
        with closing(self._mapped()) as source:
            return Offered(self.name, self._opened(source).schema)

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on."""
        with closing(self._mapped()) as source:
            for batch in self._record_batches(source):
                if row < batch.num_rows:
                    yield from slices(batch.select([name for name in names if name in batch.schema.names]), row)
                row = max(0, row - batch.num_rows)

    def _record_batches(self, source: Any) -> Iterator[pa.RecordBatch]:
        opened = self._opened(source)
        try:
            if isinstance(opened, pa.RecordBatchFileReader):
                for number in range(opened.num_record_batches):
                    yield opened.get_batch(number)
            else:
                yield from opened
        except (pa.ArrowException, OSError) as wrong:
            raise ValueError(broken(self.name, "Arrow", wrong)) from wrong

    def _mapped(self) -> Any:
        try:
            return pa.memory_map(str(self.path))
        except (pa.ArrowException, OSError) as wrong:
            raise ValueError(broken(self.name, "Arrow", wrong)) from wrong

    def _opened(self, source: Any) -> Any:
        try:
            if bytes(source.read(6)) == b"ARROW1":
                return pa.ipc.open_file(source)
            source.seek(0)
            return pa.ipc.open_stream(source)
        except (pa.ArrowException, OSError) as wrong:
            raise ValueError(broken(self.name, "Arrow", wrong)) from wrong
