"""JSON lines to a table: a whole block at once by Arrow's parser, and line by line only where that one fails.

Every line is read by the same parser and schema, whatever its neighbours are: one bad line changes nothing about the
others, and what cannot be said in that schema is a bad row, never a field lost.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
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
        if not len(lines):
            return self.wanted.empty_table(), lines, {}
        whole = _looks_whole(block, starts, ends)
        found = self._parse(block[starts[0] : ends[-1]], len(lines)) if whole.all() else None
        bad: dict[int, str] = {}
        if found is None:
            pieces = [block[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            found, bad = self._apart(pieces, whole)
        for name in self.texts:
            for row in np.flatnonzero(found[name].is_null().to_numpy()).tolist():
                if row not in bad:
                    bad[row] = self._reason(block[starts[row] : ends[row]])
        return found, lines, dict(sorted(bad.items()))

    def _apart(self, lines: list[bytes], whole: npt.NDArray[np.bool_]) -> tuple[pa.Table, dict[int, str]]:
        """The same of lines that Arrow does not take together."""
        # Python finds nearly all bad lines, and in microseconds: a column that turns up late spoils all lines behind.
        bad = {row: reason for row, line in enumerate(lines) if (reason := self._surely(line, whole[row])) is not None}
        maybe = [row for row in range(len(lines)) if row not in bad]
        tables: list[pa.Table] = []
        good: list[int] = []
        todo = [maybe]
        while todo:
            if not (rows := todo.pop()):
                continue
            table = self._parse(b"\n".join([lines[row] for row in rows]), len(rows))
            if table is not None:
                tables.append(table)
                good += rows
            elif len(rows) == 1:
                bad[rows[0]] = self._reason(lines[rows[0]])
            else:
                middle = len(rows) // 2
                todo += [rows[middle:], rows[:middle]]
        place = np.full(len(lines), len(good))  # one row of nulls, behind the good ones
        place[good] = np.arange(len(good))
        return pa.concat_tables([*tables, _nulls(self.wanted)]).take(pa.array(place)), bad

    def _surely(self, line: bytes, whole: bool) -> str | None:
        """What is wrong with a line that Arrow is certain not to take; `None` where it may."""
        if (reason := not_unicode(line)) is not None:
            return reason
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return None if whole else self._reason(line)
        if not isinstance(value, dict):
            return self._reason(line)
        if not self.chosen and not self._kinds.keys() >= value.keys():
            return self._reason(line)
        for name, allowed in self._kinds.items():
            if allowed and (held := value.get(name)) is not None and type(held) not in allowed:
                return self._reason(line)
        return None

    @cached_property
    def _kinds(self) -> dict[str, tuple[type, ...]]:
        """The kinds of Python that Arrow may make something of in each column; none where that is not certain."""
        return {field.name: _python_kinds(field.type) for field in self.wanted}

    def _parse(self, piece: bytes, rows: int) -> pa.Table | None:
        """A table of so many rows, or `None` where Arrow cannot make one of these lines."""
        if _NULL_BEHIND.search(piece) and (rows > 1 or not is_object(piece)):
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
        for name in value:
            if name not in self._kinds and not self.chosen:
                return f"has a column {name!r}, which the first rows did not have; {_choose(self.wanted.names)}"
        for name, held in value.items():
            if name in self._kinds and not self._takes(name, held):
                kind = self.wanted.field(name).type
                said = "text" if kind == pa.string() else kind
                if name in self.texts:
                    return f"column {name!r} is not Unicode: it holds half a surrogate pair"
                others = [other for other in self.wanted.names if other != name]
                return f"column {name!r} is {_name(held)}, expected {said} as in the first rows; {_choose(others)}"
        return f"is not JSON as Arrow reads it: {self._words(line)}"

    def _takes(self, name: str, held: Any) -> bool:
        """Whether Arrow takes such a value for that column."""
        if held is None:
            return True
        kinds = self._kinds[name]
        if kinds and type(held) not in kinds:
            return False
        if kinds == (str,):
            return _is_unicode(held)
        alone = JsonLines((), pa.schema([self.wanted.field(name)]), chosen=True)
        return alone._parse(json.dumps({name: held}).encode(), 1) is not None

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


def is_object(line: bytes) -> bool:
    """Whether Python reads one object here."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _python_kinds(kind: pa.DataType) -> tuple[type, ...]:
    """What `json.loads` gives where Arrow may find a value of that type; none where it turns one kind to another."""
    if pa.types.is_null(kind):
        return (type(None),)
    if pa.types.is_integer(kind):
        return (int,)
    if kind in (pa.float32(), pa.float64()):
        return (int, float)
    if kind in (pa.string(), pa.large_string()):
        return (str,)
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_list(kind):
        return (list,)
    return (dict,) if pa.types.is_struct(kind) else ()


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, which JSON can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nulls(schema: pa.Schema) -> pa.Table:
    """One row that holds nothing."""
    return pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)


def _choose(names: list[str]) -> str:
    """The way out when columns vary: say which ones are wanted."""
    return f"name the columns to carry, e.g. columns={names[1:]!r}"


def _name(value: object) -> str:
    kind = type(value).__name__
    return _NAMES.get(kind, kind)
