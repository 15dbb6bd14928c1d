"""Files of comma- or tab-separated values, streamed by Arrow's reader.

Texts are read as they are written: an empty field is an empty text, and "NA" or "null" are words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ..._arrow import row_sizes
from ..._explain import explain
from ..reading.rows import BAD, EXCERPT, RAW, Reading
from .columns import FIRST, Offered
from .files import InputFile
from .lines import LONGEST
from .streams import Stream, streamed
from .tables import TableReader, broken, slices

_BLOCK = 8 << 20
# What is written where others have a comma, in words.
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_BROKEN = (pa.ArrowException, OSError, EOFError)


@dataclass(frozen=True)
class CsvFile(InputFile):
    """A file with a line of names on top, compressed or not; `.tsv` has tabs, all others have commas."""

    reading: Reading = field(default_factory=Reading)
    can_jump: bool = False

    def offered(self) -> Offered | None:
        """Its columns, their types told from the first rows; `None` when it is empty."""
        with closing(Stream(self.path, self.compression, self.name)) as stream:
            if not stream.read(FIRST).strip():
                return None
        told = self._told_from(FIRST)
        texts = self.reading.texts
        if len(told) == 1 and told.names[0] not in texts:
            self._check_separator(told.names[0])
        fields = [pa.field(one.name, pa.string() if one.name in texts else _as_written(one.type)) for one in told]
        return Offered(self.name, pa.schema(fields))

    def _told_from(self, block: int) -> pa.Schema:
        try:
            with self._opened({}, block, _Ragged()) as file:
                return file.schema
        except ValueError as wrong:
            if block == LONGEST or not _is_straddling(wrong.__cause__):
                raise
            return self._told_from(LONGEST)

    def size(self) -> int | None:
        """Bytes of the columns that are read, all rows taken to be like the first ones."""
        whole = super().size()
        with closing(Stream(self.path, self.compression, self.name)) as stream:
            first = stream.read(FIRST)
            ended = not stream.read(1)
        first = first if ended else first[: _last_end(first)]
        ragged = _Ragged()
        try:
            with closing(
                self._reader(pa.BufferReader(first), self._types, len(first) + 1, ragged, self.reading.wanted.names)
            ) as file:
                held = sum(int(row_sizes(batch).sum()) for batch in ragged.among(file))
        except _BROKEN:  # it is told when it is read
            return whole
        return held if ended or whole is None else whole * held // len(first)

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on; those before are read and passed over."""
        there = self.offered()
        if there is None:
            return
        names = [name for name in names if name in there.schema.names]
        for block in (_BLOCK, LONGEST):
            given = 0
            ragged = _Ragged()
            try:
                with self._opened(self._types, block, ragged, names) as file:
                    for batch in ragged.among(file):
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

    @property
    def _types(self) -> dict[str, pa.DataType]:
        """Texts are read as bytes, so that one that is not UTF-8 is one bad row."""
        texts = self.reading.texts
        return {kind.name: pa.binary() if kind.name in texts else kind.type for kind in self.reading.wanted}

    def _as_text(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        texts = {name: columns[name].view(pa.string()) for name in self.reading.texts if name in columns}
        return pa.record_batch({**columns, **texts})

    @contextmanager
    def _opened(
        self, types: dict[str, pa.DataType], block: int, ragged: _Ragged, names: list[str] | None = None
    ) -> Iterator[Any]:
        with streamed(self.path, self.compression, self.name) as stream:
            try:
                file = self._reader(stream, types, block, ragged, names)
            except _BROKEN as wrong:
                raise ValueError(self._broken(wrong)) from wrong
            with closing(file):
                yield file

    def _reader(
        self, stream: Any, types: dict[str, pa.DataType], block: int, ragged: _Ragged, names: list[str] | None
    ) -> Any:
        from pyarrow import csv

        tabs = "tsv" in self.path.name.lower().split(".")
        return csv.open_csv(
            stream,
            csv.ReadOptions(block_size=block, use_threads=False),
            csv.ParseOptions(delimiter="\t" if tabs else ",", newlines_in_values=True, invalid_row_handler=ragged.note),
            csv.ConvertOptions(column_types=types, include_columns=names, check_utf8=False),
        )

    def _check_separator(self, only: str) -> None:
        found = next((one for one in _SEPARATORS if one in only), None)
        if found is not None:
            words = _SEPARATORS[found]
            raise ValueError(
                explain(
                    f"{self.name} has no commas between its columns",
                    got=f"one column {only!r}, with {words} in its name",
                    fix="end its name in .tsv"
                    if found == "\t"
                    else f'pandas.read_csv(path, sep="{found}").to_csv("commas.csv", index=False)',
                )
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
        return broken(self.name, "CSV", wrong)


class _Ragged:
    """The rows of a file that have too many or too few fields, which Arrow leaves out: put back where they stood."""

    def __init__(self) -> None:
        self._found: deque[tuple[int, str, str]] = deque()
        self._row = 0

    def note(self, row: Any) -> str:
        """Called by Arrow for each of them, in order; it counts the rows from 1, the names among them."""
        reason = f"has {row.actual_columns} fields, where the first line names {row.expected_columns}"
        self._found.append((row.number - 2, reason, row.text[:EXCERPT]))
        return "skip"

    def among(self, file: Any) -> Iterator[pa.RecordBatch]:
        """The batches with them as rows of nulls; two more columns say what is wrong with each, and how it begins."""
        for batch in file:
            yield self._joined(batch)
        if self._found:
            yield self._joined(pa.record_batch([pa.nulls(0, one.type) for one in file.schema], schema=file.schema))

    def _joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch, and what stood between and right behind them."""
        bad: dict[int, tuple[str, str]] = {}
        while self._found and (place := self._found[0][0] - self._row) <= batch.num_rows + len(bad):
            bad[place] = self._found.popleft()[1:]
        rows = batch.num_rows + len(bad)
        self._row += rows
        said = [pa.nulls(rows, pa.string())] * 2
        if bad:
            sound = np.ones(rows, bool)
            sound[list(bad)] = False
            batch = batch.take(pa.array(np.cumsum(sound) - 1, pa.int64(), mask=~sound))
            words = [bad.get(row, (None, None)) for row in range(rows)]
            said = [pa.array(column, pa.string()) for column in zip(*words, strict=True)]
        return batch.append_column(BAD, said[0]).append_column(RAW, said[1])


def _last_end(block: bytes) -> int:
    """Where the last whole row ends: line breaks between quotation marks end none."""
    end, marks = len(block), block.count(b'"')
    while (before := block.rfind(b"\n", 0, end)) >= 0:
        end, marks = before, marks - block.count(b'"', before, end)
        if marks % 2 == 0:
            return end + 1
    return 0


def _is_straddling(wrong: object) -> bool:
    """Whether Arrow met a row that is longer than a block."""
    return "straddling" in str(wrong)


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Dates and times stay text, since the next row may say "unknown", and so does what is empty at first."""
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind
