"""Files of comma- or tab-separated values, streamed by Arrow's reader.

Texts are read as they are written: an empty field is an empty text, and "NA" or "null" are words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..._explain import explain
from ..reading.rows import Reading
from .columns import Offered
from .files import InputFile
from .lines import LONGEST
from .streams import Stream, opened
from .tables import TableReader, broken, slices

_FIRST = 1 << 20  # bytes that the columns are told from
_BLOCK = 8 << 20
_BROKEN = (pa.ArrowException, OSError, EOFError)


@dataclass(frozen=True)
class CsvFile(InputFile):
    """A file with a line of names on top, compressed or not; `.tsv` has tabs, all others have commas."""

    reading: Reading = field(default_factory=Reading)
    can_jump: bool = False

    def offered(self) -> Offered | None:
        """Its columns, their types told from the first rows; `None` when it is empty."""
        with closing(Stream(self.path, self.compression, self.name)) as stream:
            if not stream.read(_FIRST).strip():
                return None
        told = self._told_from(_FIRST)
        texts = self.reading.texts
        fields = [pa.field(one.name, pa.string() if one.name in texts else _as_written(one.type)) for one in told]
        return Offered(self.name, pa.schema(fields))

    def _told_from(self, block: int) -> pa.Schema:
        try:
            with self._opened({}, block) as file:
                return file.schema
        except ValueError as wrong:
            if block == LONGEST or not _is_straddling(wrong.__cause__):
                raise
            return self._told_from(LONGEST)

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on; those before are read and passed over."""
        there = self.offered()
        if there is None:
            return
        wanted = {kind.name: kind.type for kind in self.reading.wanted}
        # Bytes, so that one text that is not UTF-8 is one bad row.
        types = {name: pa.binary() if name in self.reading.texts else kind for name, kind in wanted.items()}
        names = [name for name in names if name in there.schema.names]
        for block in (_BLOCK, LONGEST):
            given = 0
            try:
                with self._opened(types, block, names) as file:
                    for batch in file:
                        yield from slices(self._as_text(batch), min(max(0, row - given), batch.num_rows))
                        given += batch.num_rows
                        row = max(row, given)
                return
            except _BROKEN as wrong:
                if block == LONGEST or not _is_straddling(wrong):
                    raise ValueError(self._broken(wrong)) from wrong
            except ValueError as wrong:  # worded when it was opened
                if block == LONGEST or not _is_straddling(wrong.__cause__):
                    raise

    def _as_text(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        texts = {name: columns[name].view(pa.string()) for name in self.reading.texts if name in columns}
        return pa.record_batch({**columns, **texts})

    @contextmanager
    def _opened(self, types: dict[str, pa.DataType], block: int, names: list[str] | None = None) -> Iterator[Any]:
        with closing(opened(self.path, self.compression, self.name)) as stream:
            try:
                file = self._reader(stream, types, block, names)
            except _BROKEN as wrong:
                raise ValueError(self._broken(wrong)) from wrong
            with closing(file):
                yield file

    def _reader(self, stream: Any, types: dict[str, pa.DataType], block: int, names: list[str] | None = None) -> Any:
        from pyarrow import csv

        tabs = "tsv" in self.path.name.lower().split(".")
        return csv.open_csv(
            stream,
            csv.ReadOptions(block_size=block, use_threads=False),
            csv.ParseOptions(delimiter="\t" if tabs else ",", newlines_in_values=True),
            csv.ConvertOptions(column_types=types, include_columns=names, check_utf8=False),
        )

    def _broken(self, wrong: Exception) -> str:
        said = str(wrong).removeprefix("CSV parse error: ").removeprefix("In ")
        if "onversion error" in said:
            return explain(
                f"{self.name}: a column is of another kind than in the first rows",
                got=said,
                fix="name the columns to carry, e.g. columns=[]",
            )
        if _is_straddling(wrong):
            limit = f"{LONGEST >> 20} MiB"
            return explain(f"{self.name}: a row is longer than {limit}", got=said, fix="cut the document in two first")
        if said.startswith("Row #"):
            return explain(
                f"{self.name}, {said.partition(':')[0].lower().replace('#', '')}: as many fields as names are expected",
                got=said.partition(": ")[2],
                fix="put quotation marks around fields that hold separators or line breaks",
            )
        return broken(self.name, "CSV", wrong)


def _is_straddling(wrong: object) -> bool:
    """Whether Arrow met a row that is longer than a block."""
    return "straddling" in str(wrong)


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Dates and times stay text, since the next row may say "unknown", and so does what is empty at first."""
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind
