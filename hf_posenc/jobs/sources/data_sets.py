"""Data sets of `datasets`: objects, saved ones, and those it finds by a name or in a folder, on the Hub or not.

Its readers do the work; the rows come as Arrow tables, and nothing is kept of those that went by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from ..._arrow import row_sizes
from ..._explain import explain
from ..reading.rows import Reading
from .columns import Offered
from .files import InputFile
from .marks import State
from .tables import BATCH_BYTES, MOST_ROWS, TableReader, broken

_FIRST_ROWS = 64


@dataclass(frozen=True)
class AnySet(ABC):
    r"""What data sets have in common, whether their rows can be reached or not.

    Args:
        name (`str`): what messages call it.
        data (`datasets.Dataset` or `datasets.IterableDataset`): the set; a format that it has does not matter.
        identity (`dict`): what is written down about it.
        reading (`Reading`), kind (`str`), can_jump (`bool`): as for a file.
        files (`tuple` of `InputFile`): where it lies, if that is known.
    """

    name: str
    data: Any
    identity: dict[str, Any]
    reading: Reading = field(default_factory=Reading)
    kind: str = ""
    can_jump: bool = False
    files: tuple[InputFile, ...] = ()

    def about(self) -> dict[str, Any]:
        """What is written down about it, but for its files."""
        return {"name": self.name, "kind": self.kind, **self.identity}

    def mark(self) -> dict[str, Any]:
        """What is written down about it and its files."""
        return {**self.about(), "files": [file.mark() for file in self.files]} if self.files else self.about()

    def difference(self, before: dict[str, Any]) -> str | None:
        """What is different from what was written down, but for its name, in words; `None` when nothing is."""
        files = before.get("files", [])
        if len(files) != len(self.files):
            return f"input {self.name}: {len(files)} files before, {len(self.files)} now"
        for file, was in zip(self.files, files, strict=True):
            if (words := file.difference(was)) is not None:
                return words
        now = self.about()
        keys = [key for key in {**before, **now} if key not in ("name", "files") and before.get(key) != now.get(key)]
        words = ", ".join(f"{key} {before.get(key)} before, {now.get(key)} now" for key in keys)
        return f"input {self.name}: {words}" if keys else None

    def state(self) -> State:
        """What changes when one of its files is written to; a data set in memory does not change."""
        states = [file.state() for file in self.files]
        return State(
            sum(one.size for one in states),
            max((one.changed for one in states), default=0),
            hash(tuple(one.inode for one in states)),
        )

    def stamp(self) -> Any:
        """Return the times of its files, as a JSON value."""
        return [file.stamp() for file in self.files]

    @abstractmethod
    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on."""

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)


@dataclass(frozen=True)
class DataSet(AnySet):
    """A data set whose rows can be reached by number."""

    kind: str = "data set"
    can_jump: bool = True

    def size(self) -> int | None:
        """Bytes of the columns that are read, all rows taken to be like the first ones."""
        first = next(self.batches(0, self.reading.wanted.names), None)
        return None if first is None else int(row_sizes(first).mean() * len(self.data))

    def about(self) -> dict[str, Any]:
        """Its number of rows, too."""
        return {"name": self.name, "kind": self.kind, "rows": len(self.data), **self.identity}

    def offered(self) -> Offered:
        """Its columns."""
        return Offered(self.name, self.data.features.arrow_schema)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on; how many at a time follows from how large the last ones were."""
        there = [name for name in names if name in self.data.column_names]
        rows = self.data.select_columns(there).with_format("arrow")
        step = _FIRST_ROWS
        while row < len(rows):
            for batch in rows[row : row + step].combine_chunks().to_batches():
                yield batch
                size = int(row_sizes(batch).sum())
            row += step
            step = max(1, min(MOST_ROWS, 2 * step, step * BATCH_BYTES // max(1, size)))


@dataclass(frozen=True)
class StreamedSet(AnySet):
    """A data set that can only be gone through: rows before those to be read are passed over by `skip`."""

    kind: str = "streamed data set"

    def size(self) -> int | None:
        """Nobody knows."""
        return None

    def offered(self) -> Offered | None:
        """Its columns, as it says itself or as its first rows show them."""
        if self.data.features is not None:
            return Offered(self.name, self.data.features.arrow_schema)
        first = next(self._tables(), None)
        # A row may lack what others have, as one of JSON lines may.
        return None if first is None else Offered(self.name, first.schema, strict=self._has_tables())

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows from `row` on."""
        for given in self._tables(row, names):
            table = self._whole(given, row) if self.data.features is None else given
            there = table.select([name for name in names if name in table.column_names])
            yield from there.combine_chunks().to_batches()
            row += len(table)

    def _tables(self, skip: int = 0, names: list[str] | None = None) -> Iterator[pa.Table]:
        data = self.data.skip(skip) if skip else self.data
        try:
            if not self._has_tables():
                for rows in data.with_format(None).iter(batch_size=_FIRST_ROWS):
                    yield self._table(rows, names)
            elif self.data._ex_iterable.iter_arrow is not None:
                yield from data.with_format("arrow").iter(batch_size=_FIRST_ROWS)
            else:  # datasets joins rows before it gives them the types that were stated
                alone = data.with_format("arrow").iter(batch_size=1)
                while tables := list(islice(alone, _FIRST_ROWS)):
                    yield pa.concat_tables(tables)
        except pa.ArrowException as wrong:
            if self.data.features is None:
                raise ValueError(_varying(self.name, "the columns of its rows vary", str(wrong))) from wrong
            raise ValueError(broken(self.name, "a data set", wrong)) from wrong
        except (OSError, EOFError) as wrong:
            raise ValueError(broken(self.name, "a data set", wrong)) from wrong

    def _has_tables(self) -> bool:
        """Whether rows come as tables, or agree on their types; those of a generator may do neither."""
        return self.data.features is not None or self.data._ex_iterable.iter_arrow is not None

    def _table(self, rows: dict[str, list[Any]], names: list[str] | None) -> pa.Table:
        """Python's values as a table, their types told from all rows at once; other columns than `names` are null."""
        from datasets.features.features import cast_to_python_objects

        columns = {}
        for name, values in rows.items():
            columns[name] = pa.nulls(len(values))
            try:
                if names is None or name in names:
                    columns[name] = pa.array(cast_to_python_objects(values))
            except (pa.ArrowException, OverflowError) as wrong:
                if names is None:  # which columns are wanted is not known yet
                    continue
                rule = f"column {name!r} holds values of several kinds"
                raise ValueError(_varying(self.name, rule, str(wrong))) from wrong
        return pa.table(columns)

    def _whole(self, table: pa.Table, row: int) -> pa.Table:
        """A table of rows whose types nobody stated, as the first rows promised it; what these lack is null."""
        wanted = self.reading.wanted
        late = [name for name in table.column_names if name not in wanted.names]
        if late and not self.reading.chosen:
            rule = f"rows from {row} on have a column {late[0]!r}, which the first rows did not have"
            raise ValueError(_varying(self.name, rule, ", ".join(map(repr, table.column_names))))
        columns = {}
        for name, kind in zip(wanted.names, wanted.types, strict=True):
            column = table[name] if name in table.column_names else pa.nulls(len(table), kind)
            try:
                same = name in self.reading.texts or column.type == kind
                columns[name] = column if same else column.cast(kind)
            except pa.ArrowException as wrong:
                rule = f"column {name!r} is {column.type} in rows from {row} on, in the first rows {kind}"
                raise ValueError(_varying(self.name, rule, str(wrong))) from wrong
        return pa.table(columns)


def _varying(name: str, rule: str, said: str) -> str:
    """What to say about rows that do not agree, where nobody stated their types."""
    return explain(
        f"{name}: {rule}",
        got=said.strip().splitlines()[0] if said.strip() else "schemas that differ",
        fix="state the types, IterableDataset.from_generator(rows, features=Features({...})) or data.cast(Features("
        "{...})), or name the columns to carry, e.g. columns=[]",
    )
