"""JSON lines to a table: a whole block at once by Arrow's parser, and smaller blocks only where that one fails.

Every line is read by the same parser and schema, whatever its neighbours are: one bad line changes nothing about the
others, and what cannot be said in that schema is a bad row, never a field lost.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from .text_lines import Ints, blank, decoded, not_unicode, spans

# A bare null where an object should begin crashes Arrow's parser (26.0). This finds one behind an object on its line.
_NULL_BEHIND = re.compile(rb"\}[ \t\r]*null")
_NAMES = {"str": "text", "NoneType": "null", "dict": "an object", "list": "a list", "bool": "a truth value"}


@dataclass(frozen=True)
class JsonLines:
    r"""What is expected of each line.

    Args:
        texts (`tuple` of `str`): the columns that must hold text.
        wanted (`pyarrow.Schema`): every column to read, those first.
        chosen (`bool`): fields besides them are left out; otherwise they make a row bad.
    """

    texts: tuple[str, ...]
    wanted: pa.Schema
    chosen: bool

    def rows(self, block: bytes) -> tuple[pa.Table, Ints, dict[int, str]]:
        r"""The documents of a block of lines; blank lines are none.

        Args:
            block (`bytes`): whole lines.

        Returns:
            the table, the number of each row's line counted from 0, and what is wrong with the bad rows.

        Example:
            >>> reader = JsonLines(("text",), pa.schema([("text", pa.string())]), chosen=True)
            >>> table, lines, bad = reader.rows(b'{"text": "I ride", "id": 1}\n\n{"text": 7}\n')
            >>> table["text"].to_pylist(), lines, bad
            (['I ride', None], array([0, 2]), {1: "column 'text' is int, expected text"})
        """
        starts, ends = spans(block)
        lines = np.flatnonzero(~blank(block, starts, ends))
        starts, ends = starts[lines], ends[lines]
        whole = _looks_whole(block, starts, ends)
        tables: list[pa.Table] = []
        bad: dict[int, str] = {}
        todo = [(0, len(lines))]
        while todo:
            first, last = todo.pop()
            if first == last:
                continue
            piece = block[starts[first] : ends[last - 1]]
            one = last - first == 1
            sound = whole[first:last].all() or (one and _is_object(piece))
            table = self._parse(piece, last - first) if sound else None
            if table is not None:
                tables.append(table)
            elif one:
                bad[first] = self._reason(piece)
                tables.append(_nulls(self.wanted))
            else:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]
        found = pa.concat_tables(tables) if tables else self.wanted.empty_table()
        for name in self.texts:
            for row in np.flatnonzero(found[name].is_null().to_numpy()):
                bad.setdefault(int(row), self._reason(block[starts[row] : ends[row]]))
        return found, lines, dict(sorted(bad.items()))

    def _parse(self, piece: bytes, rows: int) -> pa.Table | None:
        """A table of so many rows, or `None` where Arrow cannot make one of these lines."""
        if _NULL_BEHIND.search(piece) and (rows > 1 or not _is_object(piece)):
            return None
        try:
            table = pa.json.read_json(
                pa.BufferReader(piece),
                pa.json.ReadOptions(use_threads=False, block_size=len(piece) + 1),
                pa.json.ParseOptions(
                    explicit_schema=self.wanted, unexpected_field_behavior="ignore" if self.chosen else "error"
                ),
            )
        except pa.ArrowInvalid:
            return None
        # Arrow's parser lets bytes that are not UTF-8 through, and takes two objects on a line for two rows.
        if table.num_rows != rows or decoded(piece, np.array([0, len(piece)]))[1]:
            return None
        return table.select(self.wanted.names)

    def _reason(self, line: bytes) -> str:
        """What is wrong with a line that Arrow did not take, or that has no text."""
        if (reason := not_unicode(line)) is not None:
            return reason
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as wrong:
            return f"is not JSON: {wrong}"
        if not isinstance(value, dict):
            return f"is {_name(value)}, expected an object with a column {self.texts[0]!r}"
        for name in self.texts:
            if name not in value:
                return f"has no column {name!r}; its columns are {', '.join(map(repr, value))}"
            if value[name] is None:
                return f"column {name!r} is null"
            if not isinstance(value[name], str):
                return f"column {name!r} is {_name(value[name])}, expected text"
        for name, held in value.items():
            if name not in self.wanted.names:
                if not self.chosen:
                    return f"has a column {name!r}, which the first rows did not have; {_choose(self.wanted.names)}"
            elif self._parse_field(name, held) is None:
                kind = self.wanted.field(name).type
                said = "text" if kind == pa.string() else kind
                if name in self.texts:
                    return f"column {name!r} is not Unicode: it holds half a surrogate pair"
                others = [other for other in self.wanted.names if other != name]
                return f"column {name!r} is {_name(held)}, expected {said} as in the first rows; {_choose(others)}"
        return f"is not JSON as Arrow reads it: {self._words(line)}"

    def _parse_field(self, name: str, held: Any) -> pa.Table | None:
        alone = JsonLines((), pa.schema([self.wanted.field(name)]), chosen=True)
        return alone._parse(json.dumps({name: held}).encode(), 1)

    def _words(self, line: bytes) -> str:
        try:  # an object for certain: Python has read it
            pa.json.read_json(pa.BufferReader(line), pa.json.ReadOptions(block_size=len(line) + 1))
        except pa.ArrowInvalid as wrong:
            return str(wrong).removeprefix("JSON parse error: ")
        return "its columns are not those of the first rows"


def _looks_whole(block: bytes, starts: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """Lines from brace to brace. No object goes on from one such line to the next: between `}` and `{` it must end."""
    held = np.frombuffer(block, np.uint8)
    last = ends - 1
    last = last - (held[last] == ord("\r"))
    whole: npt.NDArray[np.bool_] = (held[starts] == ord("{")) & (held[last] == ord("}"))
    return whole


def _is_object(line: bytes) -> bool:
    """Whether Python reads one object here."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _nulls(schema: pa.Schema) -> pa.Table:
    """One row that holds nothing."""
    return pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)


def _choose(names: list[str]) -> str:
    """The way out when columns vary: say which ones are wanted."""
    return f"name the columns to carry, e.g. columns={names[1:]!r}"


def _name(value: object) -> str:
    kind = type(value).__name__
    return _NAMES.get(kind, kind)
