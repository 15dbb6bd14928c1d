"""Which further columns a corpus has, and of what types: read off its first rows.

A type found here is a promise about all rows; `rows` holds each of them to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.json

from ..._explain import explain
from ..reading.json_rows import is_object
from ..reading.rows import CHOSEN
from .held import can_hold

FIRST = 1 << 20  # bytes of a file that its columns are told from
HUGGING_FACE = b"huggingface"  # the key in a schema's metadata under which datasets keeps its features
_LINES = 1000


def told_from_json(lines: Iterable[bytes]) -> pa.Schema | None:
    """The columns of those JSON lines that can be read, dates left as text; `None` where there are no such lines."""
    # Only objects: a bare null crashes Arrow's parser (26.0). Bad lines are named where the rows are read.
    lines = [line for line in lines if is_object(line)]
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


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Arrow takes "2024-01-01" for a time, and would then refuse the next row's "unknown"."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_written(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_written(field.type)) for field in kind])
    return kind


@dataclass(frozen=True)
class Offered:
    r"""The columns of one source.

    Args:
        name (`str`): what messages call it.
        schema (`pyarrow.Schema`): its columns.
        strict (`bool`): whether it has no others; JSON lines may have columns that their first rows do not show.
    """

    name: str
    schema: pa.Schema
    strict: bool = True


def carried(sources: Sequence[Offered], texts: Sequence[str], columns: Sequence[str] | None) -> pa.Schema:
    r"""The further columns of a corpus, once those of its sources are known.

    Args:
        sources (sequence of `Offered`): those that were looked at.
        texts (sequence of `str`): the columns of text, which are none of them.
        columns (sequence of `str`, *optional*): which ones were asked for; by default all.

    Returns:
        `pyarrow.Schema` in the order asked for, or that of the first source; its metadata is for `Reading`, and holds
        what `datasets` noted about these columns.
    """
    there = dict.fromkeys(name for source in sources for name in source.schema.names)
    names = [name for name in (there if columns is None else dict.fromkeys(columns)) if name not in texts]
    for source in sources:
        for name in [*texts, *names]:
            if source.schema.names.count(name) > 1:
                raise ValueError(
                    explain(
                        f"{source.name} has several columns {name!r}", fix="rename them, or choose others: columns=[]"
                    )
                )
        for name in texts:
            if name not in source.schema.names:
                raise ValueError(missing_column(source.name, name, source.schema.names, texts))
            kind = source.schema.field(name).type
            if source.strict and not is_text(kind):
                raise TypeError(not_text(source.name, name, source.schema, texts))
        for name in names:
            if name not in source.schema.names and (source.strict or columns is not None):
                raise ValueError(missing_column(source.name, name, source.schema.names, texts))
    found = [pa.field(name, _common_type(name, sources)) for name in names]
    kept = [field.name for field in found if can_hold(field.type)]
    for field in found:
        if field.name not in kept:
            raise TypeError(
                explain(
                    f"column {field.name!r} is of a kind that Parquet or datasets cannot hold",
                    got=str(field.type),
                    fix=f"cast it first, or carry the others: columns={kept!r}",
                )
            )
    metadata = {**({} if columns is None else CHOSEN), **_features(names, sources)}
    return pa.schema(found, metadata=metadata or None)


def _features(names: Sequence[str], sources: Sequence[Offered]) -> dict[bytes, bytes]:
    """What `datasets` noted about those columns (names of classes, pictures) where all sources note the same."""
    noted = []
    for source in sources:
        info = json.loads((source.schema.metadata or {}).get(HUGGING_FACE, b"{}")).get("info") or {}
        noted.append({name: kind for name, kind in (info.get("features") or {}).items() if name in names})
    same = {name: kind for name, kind in (noted or [{}])[0].items() if all(one.get(name) == kind for one in noted)}
    return {HUGGING_FACE: json.dumps({"info": {"features": same}}).encode()} if same else {}


def _common_type(column: str, sources: Sequence[Offered]) -> pa.DataType:
    """The type that holds a column of every source."""
    type_of = {source.name: source.schema.field(column).type for source in sources if column in source.schema.names}
    joined: pa.DataType | None = None
    for name, kind in type_of.items():
        if joined is None or kind == joined:
            joined = kind
            continue
        try:
            pair = [pa.schema([(column, joined)]), pa.schema([(column, kind)])]
            joined = pa.unify_schemas(pair, promote_options="permissive").field(0).type
        except pa.ArrowException as wrong:
            raise ValueError(
                explain(
                    f"column {column!r} is {kind} in {name}, but {joined} in the inputs before it",
                    fix="name the columns to carry, e.g. columns=[] (--columns '')",
                )
            ) from wrong
    return joined


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, however it is encoded; a column of nulls may."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    known = (pa.string(), pa.large_string(), pa.string_view(), pa.null())
    return kind in known


def not_text(source: str, column: str, schema: pa.Schema, texts: Sequence[str]) -> str:
    """What to say about a column that holds something else."""
    there = [field.name for field in schema if is_text(field.type)]
    return explain(
        f"column {column!r} of {source} is {schema.field(column).type}, expected text",
        got=f"its columns of text are {', '.join(map(repr, there)) or 'none'}",
        fix=_option(column, there, texts)
        if set(there) - set(texts)
        else f'cast it to text first, e.g. data.cast_column("{column}", Value("string"))',
    )


def missing_column(source: str, column: str, there: Sequence[str], texts: Sequence[str]) -> str:
    """What to say about a column that a source does not have."""
    there = list(there)
    further = [name for name in there if name not in texts]
    got = f"its columns are {', '.join(map(repr, there)) or 'none'}"
    fix = _option(column, there, texts) if column in texts else f"columns={further!r}"
    return explain(f"{source} has no column {column!r}", got=got, fix=fix)


def _option(column: str, there: Sequence[str], texts: Sequence[str]) -> str:
    """The way to name another column of text."""
    option = "text_column" if column == texts[0] else "text_pair_column"
    first = next((name for name in there if name not in texts), "...")
    return f'{option}="{first}" (--{option.replace("_", "-")} {first})'
