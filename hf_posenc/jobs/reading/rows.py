"""The documents of a part: its bytes decoded and parsed to a table of texts, in the process that tokenises them.

NumPy and pyarrow only; where the bytes come from is for `sources`, what becomes of a bad row for `shard`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..task import Part
from .json_rows import JsonLines
from .text_lines import Ints, blank, decoded, is_unicode, not_unicode, spans, without

# In the metadata of `Reading.schema` where its columns were chosen by name: fields besides them do not matter then.
CHOSEN = {b"hf_posenc.columns": b"chosen"}


# A column of an Arrow part that says what is wrong with a row, where that was found before the part was made.
BAD = "hf_posenc.bad"
# And another that says how such a row begins in its file, where its columns do not.
RAW = "hf_posenc.raw"
EXCERPT = 200  # characters of it


@dataclass(frozen=True)
class Reading:
    r"""How the documents of a corpus are to be read; small and picklable.

    Args:
        text_column (`str`), text_pair_column (`str`, *optional*): where the texts stand; what the columns are called.
        schema (`pyarrow.Schema`): the further columns, as `Sources.schema` gives them, its metadata included.
    """

    text_column: str = "text"
    text_pair_column: str | None = None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that hold text: one, or two."""
        return (self.text_column,) if self.text_pair_column is None else (self.text_column, self.text_pair_column)

    @property
    def wanted(self) -> pa.Schema:
        """Every column of the table to make: the texts first, then the further ones."""
        return pa.schema([*(pa.field(name, pa.string()) for name in self.texts), *self.schema])

    @property
    def chosen(self) -> bool:
        """Whether the further columns were chosen by name."""
        return CHOSEN.items() <= dict(self.schema.metadata or {}).items()


@dataclass(frozen=True)
class Rows:
    r"""The documents of one part.

    Args:
        table (`pyarrow.Table`): a document a row: the texts (`string`, null where bad), then the further columns.
        numbers (NumPy `(rows,)` int64): the line (from 1) or row (from 0) of each, as `Part.unit` says.
        bad (`dict` from `int` to `str`): for each bad row of the table, what is wrong with it.
        excerpts (`dict` from `int` to `str`): how bad rows without a text begin in their file, where that is known.
    """

    table: pa.Table
    numbers: Ints
    bad: dict[int, str]
    excerpts: dict[int, str] = field(default_factory=dict)


def rows_of(part: Part, reading: Reading) -> Rows:
    r"""The documents of a part, in order; a bad one is a row without text and a reason, never an error.

    Args:
        part (`Part`): as `Sources.tasks` gives it.
        reading (`Reading`): which columns.

    Returns:
        `Rows`. Blank lines between JSON documents and between paragraphs are no documents; a blank line of text is one.

    Example:
        >>> rows = rows_of(Part("a.txt", "lines", 1, b"I ride\nb\xff\nbike"), Reading())
        >>> rows.table["text"].to_pylist(), rows.numbers
        (['I ride', None, 'bike'], array([1, 2, 3]))
        >>> rows.bad
        {1: 'is not UTF-8: byte 0xff at position 1 (invalid start byte)'}
    """
    if part.kind == "arrow":
        table, bad, raw = _arrow(part.payload, reading)
        return Rows(table, part.first + np.arange(len(table)), bad, raw)
    if part.kind == "jsonl":
        table, lines, bad = JsonLines(reading.texts, reading.wanted, reading.chosen).rows(part.payload)
        starts, ends = spans(part.payload) if bad else (lines, lines)
        raw = {row: shown(part.payload[starts[lines[row]] : ends[lines[row]]]) for row in bad}
        return Rows(table, part.first + lines, bad, raw)
    block = part.payload.replace(b"\r\n", b"\n") if b"\r" in part.payload else part.payload
    texts, lines, bad, raw = _paragraphs(block) if part.kind == "paragraphs" else _lines(block)
    return Rows(pa.table({reading.text_column: texts}), part.first + lines, bad, raw)


def shown(line: bytes) -> str:
    r"""How the bytes of a document begin, whatever they are.

    Example:
        >>> shown(b"caf\xe9\n")
        'caf\\xe9'
    """
    return line[: 4 * EXCERPT].decode(errors="backslashreplace").strip()[:EXCERPT]


_Texts = tuple[pa.Array, Ints, dict[int, str], dict[int, str]]


def _lines(block: bytes) -> _Texts:
    """A document a line: the very bytes without the line ends, and where each line then ends."""
    starts, ends = spans(block)
    lines = np.arange(len(ends))
    texts, bad = decoded(block.replace(b"\n", b""), np.concatenate(([0], ends - lines)))
    return texts, lines, bad, {row: shown(block[starts[row] : ends[row]]) for row in bad}


def _paragraphs(block: bytes) -> _Texts:
    """A document from each first line that is not blank to the last one before the next blank."""
    starts, ends = spans(block)
    full = np.concatenate(([False], ~blank(block, starts, ends), [False]))
    first = np.flatnonzero(full[1:-1] & ~full[:-2])
    last = np.flatnonzero(full[1:-1] & ~full[2:])
    pieces = [block[start:end] for start, end in zip(starts[first], ends[last], strict=True)]
    texts, bad = decoded(b"".join(pieces), np.concatenate(([0], np.cumsum(ends[last] - starts[first]))))
    return texts, first, bad, {row: shown(pieces[row]) for row in bad}


def _arrow(stream: bytes, reading: Reading) -> tuple[pa.Table, dict[int, str], dict[int, str]]:
    """The rows of a table, its texts turned to strings; bad where they are null, or not Unicode."""
    with pa.ipc.open_stream(stream) as opened:
        table = opened.read_all()
    bad: dict[int, str] = {}
    if BAD in table.column_names:
        bad = _noted(table[BAD])
    raw = _noted(table[RAW]) if RAW in table.column_names else {}
    columns = {}
    for wanted in reading.wanted:
        column = table[wanted.name]
        if wanted.name in reading.texts:
            column = column if column.type == pa.string() else _bytes(column).cast(pa.binary())
            for null in np.flatnonzero(column.is_null().to_numpy()):
                bad.setdefault(int(null), f"column {wanted.name!r} is null")
        if wanted.type == pa.string():
            column, wrong = _unicode(column)
            for row, reason in wrong.items():
                bad.setdefault(row, f"column {wanted.name!r} {reason}")
                raw.setdefault(row, shown(table[wanted.name][row].cast(pa.binary()).as_py()))
        columns[wanted.name] = column
    for name in reading.texts:
        if bad:
            chunk = columns[name].combine_chunks()
            columns[name] = pa.chunked_array([without(chunk, bad)])
    return pa.table(columns, schema=reading.wanted), dict(sorted(bad.items())), raw


def _noted(column: pa.ChunkedArray) -> dict[int, str]:
    """The rows of a column of remarks that have one."""
    if column.null_count == len(column):
        return {}
    return {row: said for row, said in enumerate(column.to_pylist()) if said is not None}


def _bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts as bytes, whatever the encoding, unchecked."""
    if pa.types.is_null(column.type) or pa.types.is_binary(column.type):
        return column
    return column.cast(pa.large_binary())


def _unicode(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[int, str]]:
    """A column as strings, null where they are not UTF-8, and why."""
    chunks, bad, first = [], {}, 0
    for chunk in column.chunks:
        texts = chunk if chunk.type == pa.string() else chunk.cast(pa.binary()).view(pa.string())
        if not is_unicode(texts):
            found = {row: not_unicode(text) for row, text in enumerate(texts.view(pa.binary()).to_pylist()) if text}
            wrong = {row: reason for row, reason in found.items() if reason is not None}
            texts = without(texts, wrong)
            bad.update({first + row: reason for row, reason in wrong.items()})
        chunks.append(texts)
        first += len(chunk)
    return pa.chunked_array(chunks, pa.string()), bad
