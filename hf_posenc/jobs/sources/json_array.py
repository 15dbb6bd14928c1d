"""Files of JSON that are one list of objects, taken apart element by element, so that none is in memory as a whole.

An element that is no good is a bad row; a list that breaks off is an error, because nothing behind it can be found.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from ..._arrow import row_sizes
from ..._explain import explain
from ..reading.json_rows import JsonLines
from ..reading.rows import BAD, RAW, Reading, shown
from .columns import FIRST, Offered, told_from_json
from .files import InputFile
from .lines import LONGEST
from .streams import Stream
from .tables import TableReader

_BLOCK = 1 << 20
_SPACES = frozenset(" \t\r\n")
_FOLLOWS = _SPACES | {",", "]"}
_BREAKS_OFF = 64  # characters: longer than any word, number or escape of JSON
_DECODER = json.JSONDecoder()
_BOM = b"\xef\xbb\xbf"


def is_array(path: str, compression: str | None, name: str) -> bool:
    r"""Whether a file of JSON begins like a list, so that it is no file of JSON lines.

    Args:
        path (`str`), compression (`str`, *optional*), name (`str`): as `Stream` takes them.

    Returns:
        `bool`.
    """
    with closing(Stream(path, compression, name)) as stream:
        while block := stream.read(4096):
            if start := block.removeprefix(_BOM).lstrip():
                return start.startswith(b"[")
    return False


@dataclass(frozen=True)
class JsonArrayFile(InputFile):
    """A file of JSON that is one list."""

    reading: Reading = field(default_factory=Reading)
    can_jump: bool = False

    def offered(self) -> Offered | None:
        """Its columns, as its first elements show them."""
        first = next(self._runs(FIRST), None)
        told = None if first is None else told_from_json(first)
        return None if told is None else Offered(self.name, told, strict=False)

    def size(self) -> int | None:
        """Bytes of the columns that are read, all elements taken to be like the first ones."""
        whole = super().size()
        run: list[bytes] = []
        held = 0
        with closing(Stream(self.path, self.compression, self.name)) as stream:
            scanner = _Scanner(stream)
            for element in scanner.elements():
                run.append(element)
                held += len(element)
                if held >= FIRST:
                    break
            else:
                whole = scanner.passed
        held = sum(int(row_sizes(batch).sum()) for batch in self._parsed(run))
        return None if whole is None else whole * held // scanner.passed

    def reader(self, offset: int, row: int) -> TableReader:
        """One who reads on from a row."""
        return TableReader(self, row)

    def batches(self, row: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The elements from `row` on; those before are read and passed over."""
        for run in self._runs(_BLOCK):
            yield from self._parsed(run[row:])
            row = max(0, row - len(run))

    def _parsed(self, elements: list[bytes]) -> Iterator[pa.RecordBatch]:
        """Elements as rows; two more columns say what is wrong with bad ones, and how they begin."""
        if not elements:
            return
        parser = JsonLines(self.reading.texts, self.reading.wanted, self.reading.chosen)
        table, _, bad = parser.rows(b"\n".join(elements))
        reasons = [bad.get(number) for number in range(len(table))]
        begins = [shown(elements[number]) if number in bad else None for number in range(len(table))]
        for name, said in ((BAD, reasons), (RAW, begins)):
            table = table.append_column(name, pa.array(said, pa.string()))
        yield from table.combine_chunks().to_batches()

    def _runs(self, size: int) -> Iterator[list[bytes]]:
        """The elements, each on one line, in runs of about so many bytes."""
        run: list[bytes] = []
        held = 0
        for element in self._elements():
            run.append(element)
            held += len(element)
            if held >= size:
                yield run
                run, held = [], 0
        if run:
            yield run

    def _elements(self) -> Iterator[bytes]:
        with closing(Stream(self.path, self.compression, self.name)) as stream:
            yield from _Scanner(stream).elements()


class _Scanner:
    """Goes along a list; holds what was read of the element it is at."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # Bytes that are not UTF-8 come through as half surrogates, and go back to what they were.
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._number = 0
        self._read = 0

    @property
    def passed(self) -> int:
        """Bytes that lie behind."""
        return self._read - len(self._text[self._at :].encode("utf-8", "surrogateescape"))

    def elements(self) -> Iterator[bytes]:
        """Each element as bytes on one line: no line break of JSON stands inside a text."""
        self._pass("[")
        while self._next() != "]":
            if self._number:
                self._pass(",")
            start, end = self._element()
            self._at = end
            self._number += 1
            yield self._text[start:end].encode("utf-8", "surrogateescape").replace(b"\n", b" ").replace(b"\r", b" ")
        self._pass("]")
        if self._next():
            raise ValueError(self._broken("there is more behind the end of the list"))

    def _element(self) -> tuple[int, int]:
        """Where the next element begins and ends."""
        self._next()
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
                # "1" may go on as "1.5e3": something that cannot be part of a number has to follow.
                if self._text[end : end + 1] in _FOLLOWS or self._ended or len(self._text) - end > _BREAKS_OFF:
                    return self._at, end
            except json.JSONDecodeError as wrong:
                # A text that does not end may end in what is still to be read; so may whatever breaks off here.
                unfinished = wrong.msg.startswith("Unterminated") or len(self._text) - wrong.pos < _BREAKS_OFF
                if self._ended or not unfinished:
                    raise ValueError(self._broken(wrong.msg)) from wrong
            except RecursionError as wrong:
                raise ValueError(self._broken("too deeply nested")) from wrong
            self._more()

    def _pass(self, expected: str) -> None:
        found = self._next()
        if found != expected:
            said = f"{found!r}" if found else "the end of the file"
            raise ValueError(self._broken(f"{said} where {expected!r} is expected"))
        self._at += 1

    def _next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._text[self._at : self._at + 1] in _SPACES:
                self._at += 1
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def _more(self) -> None:
        """Read on; twice as much each time an element does not end."""
        rest = self._text[self._at :]
        block = self._stream.read(max(_BLOCK, len(rest)))
        self._ended = not block
        self._read += len(block)
        self._text, self._at = rest + self._decode(block, self._ended), 0
        if len(rest) > LONGEST:
            raise ValueError(self._broken(f"one element is longer than {LONGEST >> 20} MiB"))

    def _broken(self, said: str) -> str:
        return explain(
            f"{self._stream.name} is a list of JSON that cannot be read beyond row {self._number}",
            got=said,
            fix="write or fetch the file again; JSON lines (an object a line) can be read in spite of bad ones",
        )
