"""Parquet and Arrow files: read row by row from where they lie, never a whole row group or file in memory.

A finished shard's rows are passed over by what the files say about themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from ..._arrow import row_sizes
from ..reading.rows import Reading
from .columns import Offered
from .files import InputFile
from .tables import BATCH_BYTES, MOST_ROWS, TableReader, broken, slices

_SAMPLES = 8  # places of a file that its size is told from


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
        """Bytes of the columns that are read: decompressed, and each repeated text as often as it is repeated."""
        names = self.reading.wanted.names
        with closing(self._opened()) as file:
            found = file.metadata
            words = _with_dictionaries(file, names)
        stored = [_stored(found.row_group(number), names) for number in range(found.num_row_groups)]
        total = sum(sum(group.values()) for group in stored)
        if not words or not found.num_rows:
            return total
        held, rows = 0.0, 0
        with closing(self._opened(words, found)) as file:
            for number in _spread(found.num_row_groups):
                if (first := next(self._of_group(file, number, words, MOST_ROWS), None)) is not None:
                    held, rows = held + int(row_sizes(first).sum()), rows + first.num_rows
        decoded = int(held * found.num_rows / max(rows, 1))
        encoded = sum(group.get(name, 0) for group in stored for name in words)
        # Of texts that hardly repeat the sum is right, and a sample would be a guess.
        return total - encoded + decoded if decoded > 2 * encoded else total

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on: row groups before it are not read, large ones page by page."""
        with closing(self._opened()) as file:
            there = [name for name in names if name in file.schema_arrow.names]
            words = _with_dictionaries(file, there)
            found = file.metadata
        # One text of a megabyte, repeated in every row, is a small file: decoded, a batch of it were eight gigabytes.
        with closing(self._opened(words, found)) as file:
            for number in range(found.num_row_groups):
                group = found.row_group(number)
                if row >= group.num_rows:
                    row -= group.num_rows
                    continue
                stored = sum(_stored(group, there).values())
                rows = max(1, min(MOST_ROWS, BATCH_BYTES * group.num_rows // max(1, stored)))
                for batch in self._of_group(file, number, there, rows):
                    if row < batch.num_rows:
                        yield from slices(batch, row)
                    row = max(0, row - batch.num_rows)

    def _of_group(self, file: Any, number: int, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """A row group in batches of so many rows."""
        try:
            yield from file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False)
        except (pa.ArrowException, OSError) as wrong:
            raise ValueError(broken(self.name, "Parquet", wrong)) from wrong

    def _opened(self, words: list[str] | None = None, metadata: Any = None) -> Any:
        """The file; the columns `words` are left in the dictionaries they are stored with."""
        import pyarrow.parquet as pq

        try:
            # Buffered and not read ahead: a column of a row group may be larger than memory.
            return pq.ParquetFile(
                self.path, pre_buffer=False, buffer_size=1 << 20, read_dictionary=words, metadata=metadata
            )
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

    def size(self) -> int | None:
        """Estimate the bytes of the columns that are read from some of the batches."""
        import pyarrow.dataset

        names = self.reading.wanted.names
        with closing(self._mapped()) as source:
            opened = self._opened(source)
            begins = int(source.tell())
            held = rows = 0
            for batch in islice(self._some_batches(opened), _SAMPLES):
                held += int(row_sizes(batch.select([name for name in names if name in batch.schema.names])).sum())
                rows += batch.num_rows
            if isinstance(opened, pa.RecordBatchFileReader):
                # Counted in the metadata of batches; a reader itself has `count_rows` in the newest pyarrow alone.
                return held * int(pyarrow.dataset.dataset(self.path, format="ipc").count_rows()) // max(rows, 1)
            whole, seen = int(source.size()) - begins, int(source.tell()) - begins
            return held * whole // max(seen, 1)

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on."""
        with closing(self._mapped()) as source:
            opened = self._opened(source)
            for batch in self._record_batches(opened, range(_count(opened))):
                if row < batch.num_rows:
                    yield from slices(batch.select([name for name in names if name in batch.schema.names]), row)
                row = max(0, row - batch.num_rows)

    def _some_batches(self, opened: Any) -> Iterator[pa.RecordBatch]:
        """Batches from all over a file, or the first ones where it has no footer."""
        return self._record_batches(opened, _spread(_count(opened)))

    def _record_batches(self, opened: Any, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        try:
            if isinstance(opened, pa.RecordBatchFileReader):
                for number in numbers:
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


def _count(opened: Any) -> int:
    """The batches of an Arrow file; 0 where it does not say."""
    return opened.num_record_batches if isinstance(opened, pa.RecordBatchFileReader) else 0


def _spread(count: int) -> list[int]:
    """A few numbers from 0 to `count`, evenly."""
    return sorted({number * count // _SAMPLES for number in range(_SAMPLES)}) if count else []


def _stored(group: Any, names: Iterable[str]) -> dict[str, int]:
    """The bytes of each of those columns in a row group of Parquet, decompressed."""
    stored = dict.fromkeys(names, 0)
    for number in range(group.num_columns):
        chunk = group.column(number)
        name = chunk.path_in_schema.split(".")[0]
        if name in stored:
            stored[name] += int(chunk.total_uncompressed_size)
    return stored


def _with_dictionaries(file: Any, names: Iterable[str]) -> list[str]:
    """Which of those columns are texts that Parquet stores once each, and numbers in place of them."""
    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    maybe = {field.name for field in file.schema_arrow if field.name in set(names) and field.type in texts}
    groups = [file.metadata.row_group(number) for number in _spread(file.metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    found = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    return [name for name in names if name in maybe and name in found]
