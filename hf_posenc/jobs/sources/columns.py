"""Which further columns a corpus has, and of what types: read off its first rows.

A type found here is a promise about all rows; `rows` holds each of them to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.json

from ..._explain import explain
from ..rows import CHOSEN
from .lines import TextFile

_FIRST = 1 << 20  # bytes of a file that its columns are told from
_LINES = 1000


def json_schema(file: TextFile) -> pa.Schema | None:
    """The columns of the first JSON lines that can be read, dates left as text; `None` where there are no such lines."""
    reader = file.reader(0, 0)
    try:
        part = None
        while part is None and not reader.ended():
            part, _ = reader.take(_FIRST, must=True)
    finally:
        reader.close()
    # Only objects: a bare null crashes Arrow's parser (26.0). Bad lines are named where the rows are read.
    lines = [] if part is None else [line for line in part.payload.split(b"\n") if _is_object(line)]
    if not lines:
        return None
    if (whole := _told_from(b"\n".join(lines))) is not None:
        return whole
    schema = pa.schema([])
    for line in lines[:_LINES]:
        if (told := _told_from(line)) is not None:
            with suppress(pa.ArrowException):  # another kind than before: the first one counts
                schema = pa.unify_schemas([schema, told], promote_options="permissive")
    return schema


def _told_from(block: bytes) -> pa.Schema | None:
    """The columns of JSON lines as Arrow sees them; `None` where they do not agree."""
    try:
        table = pa.json.read_json(pa.BufferReader(block), pa.json.ReadOptions(block_size=len(block) + 1))
    except pa.ArrowInvalid:
        return None
    return pa.schema([pa.field(field.name, _as_written(field.type)) for field in table.schema])


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Arrow takes "2024-01-01" for a time, and would then refuse the next row's "unknown"."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_written(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_written(field.type)) for field in kind])
    return kind


def carried(schemas: Sequence[tuple[str, pa.Schema]], texts: Sequence[str], columns: Sequence[str] | None) -> pa.Schema:
    r"""The further columns of a corpus, once those of its sources are known.

    Args:
        schemas (sequence of name and `pyarrow.Schema`): the columns of each source that was looked at.
        texts (sequence of `str`): the columns of text, which are none of them.
        columns (sequence of `str`, *optional*): which ones were asked for; by default all.

    Returns:
        `pyarrow.Schema` in the order asked for, or that of the first source.
    """
    for name, schema in schemas:
        for column in [*texts, *(columns or ())]:
            if column not in schema.names:
                raise ValueError(missing_column(name, column, schema.names, is_text=column == texts[0]))
    try:
        merged = pa.unify_schemas([schema for _, schema in schemas] or [pa.schema([])], promote_options="permissive")
    except pa.ArrowException as wrong:
        raise ValueError(
            explain(
                f"the columns of {schemas[0][0]} and of the other inputs do not go together",
                got=str(wrong).splitlines()[0],
                fix="name the columns to carry, e.g. columns=[]",
            )
        ) from wrong
    if columns is None:
        return pa.schema([field for field in merged if field.name not in texts])
    return pa.schema([merged.field(column) for column in columns if column not in texts], metadata=CHOSEN)


def missing_column(source: str, column: str, there: Sequence[str], *, is_text: bool) -> str:
    """What to say about a column that a source does not have."""
    first = there[0] if there else "..."
    fix = f'text_column="{first}" (--text-column {first})' if is_text else "name one of those that are there"
    return explain(
        f"{source} has no column {column!r}", got=f"its columns are {', '.join(map(repr, there)) or 'none'}", fix=fix
    )
