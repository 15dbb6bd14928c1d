"""Columns of a corpus: text columns, and carried columns, which the user selects to be copied to the shards.

Values from JSON and CSV are strings unless a type is given; Parquet, Arrow and data sets have their own types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .._common.errors import explain, type_error, value_error

HUGGING_FACE = b"huggingface"  # metadata key under which datasets stores the features of a schema


@dataclass(frozen=True)
class Columns:
    r"""Columns to read from every source.

    Args:
        texts (`tuple` of `str`): the text column, or the two columns of text pairs.
        carried (`pyarrow.Schema`): the further columns to copy to the shards, with their types.
    """

    texts: tuple[str, ...]
    carried: pa.Schema = field(default_factory=lambda: pa.schema([]))

    @property
    def schema(self) -> pa.Schema:
        """Schema of all columns: first the text columns, with the type string, then the columns to copy."""
        return pa.schema([*(pa.field(name, pa.string()) for name in self.texts), *self.carried])


@dataclass(frozen=True)
class SourceColumns:
    r"""Columns of one source: a file or a data set.

    Args:
        name (`str`): name of the source in messages.
        schema (`pyarrow.Schema`): its columns; those of JSON and CSV are strings.
        complete (`bool`): False for JSON lines: only the first lines were read, and later ones may have more columns.
        typed (`bool`): False for a stream whose column types are unknown; its columns cannot be copied to the shards.
    """

    name: str
    schema: pa.Schema
    complete: bool = True
    typed: bool = True


def named_columns(columns: Sequence[str] | None) -> dict[str, pa.DataType | None]:
    r"""Parse column names with optional types, such as `"label:int64"`, into a `dict` from name to type.

    The type is `None` for a name without one. Text after a colon that is not an Arrow type belongs to the name.

    Example:
        >>> named_columns(["id", "label:int64", "dc:title"])
        {'id': None, 'label': DataType(int64), 'dc:title': None}
    """
    named: dict[str, pa.DataType | None] = {}
    for column in columns or ():
        name, _, kind = column.rpartition(":")
        try:
            named[name or column] = pa.type_for_alias(kind) if name else None
        except ValueError:  # a colon in the name
            named[column] = None
    return named


def carried_columns(
    sources: Sequence[SourceColumns], texts: Sequence[str], named: Mapping[str, pa.DataType | None]
) -> pa.Schema:
    r"""Check that every source has the text columns and the columns to copy; return the schema of the columns to copy.

    Columns of JSON lines are known from the first lines only; a column to copy may be missing if its type is given.
    """
    named = {name: kind for name, kind in named.items() if name not in texts}
    for source in sources:
        names = source.schema.names
        for name in [*texts, *named]:
            if names.count(name) > 1:
                raise value_error(f"{source.name} has several columns {name!r}", fix="rename them")
            if name not in names and (source.complete or named.get(name) is None):
                raise ValueError(_missing_column(source, name, texts))
        for name in texts:
            if not _is_text(source.schema.field(name).type):
                raise TypeError(_not_text(source, name, texts))
        if named and not source.typed:
            raise value_error(
                f"{source.name} does not state the types of its columns, so it can carry none",
                got=f"columns={list(named)!r}",
                fix="data.cast(Features({...})), or IterableDataset.from_generator(rows, features=Features({...}))",
            )
    types = [(name, kind or _common_type(name, sources)) for name, kind in named.items()]
    fields = [pa.field(name, _WITHOUT_VIEWS.get(kind, kind)) for name, kind in types]
    for one in fields:
        if not _can_store(one.type):
            raise type_error(
                f"column {one.name!r} has a type that Parquet or datasets cannot store",
                got=str(one.type),
                fix=f"cast it first, e.g. columns=['{one.name}:string'], or leave it out",
            )
    features = _features([name for name, kind in named.items() if kind is None], sources)
    return pa.schema(fields, metadata=features or None)


_WITHOUT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # Arrow takes no rows of views


def is_string(kind: pa.DataType) -> bool:
    """Return True for the Arrow types string, large string and string view."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_text(kind: pa.DataType) -> bool:
    """Return True for any Arrow string type, also in a dictionary, and for the null type."""
    return _is_text(kind.value_type) if pa.types.is_dictionary(kind) else is_string(kind) or pa.types.is_null(kind)


def _can_store(kind: pa.DataType) -> bool:
    r"""Return True if Parquet can store columns of a type and `datasets` can read them.

    Example:
        >>> _can_store(pa.list_(pa.int64())), _can_store(pa.month_day_nano_interval()), _can_store(pa.struct([]))
        (True, False, False)
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):  # those of datasets, and Arrow's own
        return not kind.extension_name.startswith("arrow.") or kind.extension_name == "arrow.json"
    if types.is_dictionary(kind):
        return not types.is_nested(kind.value_type) and _can_store(kind.value_type)
    if types.is_struct(kind) or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = [kind.field(number).type for number in range(kind.num_fields)]
        return bool(inner) and getattr(kind, "list_size", 1) > 0 and all(map(_can_store, inner))
    if types.is_decimal(kind):
        return bool(types.is_decimal128(kind) or types.is_decimal256(kind))
    without = (types.is_nested, types.is_run_end_encoded, types.is_interval)
    return not any(is_without(kind) for is_without in without)  # nested: maps, unions, views of lists


def _common_type(column: str, sources: Sequence[SourceColumns]) -> pa.DataType:
    """Return an Arrow type that can hold a column of all sources: for example int64, if one has int32 and one int64."""
    common: pa.DataType | None = None
    for source in sources:
        kind = source.schema.field(column).type
        if common is None or kind == common:
            common = kind
            continue
        try:
            pair = [pa.schema([(column, common)]), pa.schema([(column, kind)])]
            common = pa.unify_schemas(pair, promote_options="permissive").field(0).type
        except pa.ArrowException as error:
            raise value_error(
                f"column {column!r} is {kind} in {source.name}, but {common} in the inputs before it",
                fix=f"name its type, columns=['{column}:string'], or leave it out",
            ) from error
    return common if common is not None else pa.string()


def _features(names: Sequence[str], sources: Sequence[SourceColumns]) -> dict[bytes, bytes]:
    """Return Arrow metadata with the `datasets` features of the columns `names`, such as the names of classes."""
    stored: list[dict[str, Any]] = []
    for source in sources:
        info = json.loads((source.schema.metadata or {}).get(HUGGING_FACE, b"{}")).get("info") or {}
        stored.append(info.get("features") or {})
    first = (stored or [{}])[0]
    same = {
        name: first[name] for name in names if name in first and all(one.get(name) == first[name] for one in stored)
    }
    return {HUGGING_FACE: json.dumps({"info": {"features": same}}).encode()} if same else {}


def _missing_column(source: SourceColumns, column: str, texts: Sequence[str]) -> str:
    """Return the error message for a column that a source lacks, with the columns that it has and a suggestion."""
    names = source.schema.names
    fix = _text_option(column, names, texts) if column in texts else f"columns={[n for n in names if n not in texts]!r}"
    got = f"its columns are {', '.join(map(repr, names)) or 'none'}"
    return explain(f"{source.name} has no column {column!r}", got=got, fix=fix)


def _not_text(source: SourceColumns, column: str, texts: Sequence[str]) -> str:
    others = [one.name for one in source.schema if _is_text(one.type)]
    return explain(
        f"column {column!r} of {source.name} is {source.schema.field(column).type}, expected text",
        got=f"its columns of text are {', '.join(map(repr, others)) or 'none'}",
        fix=_text_option(column, others, texts)
        if set(others) - set(texts)
        else f'cast it to text first, e.g. data.cast_column("{column}", Value("string"))',
    )


def _text_option(column: str, columns: Sequence[str], texts: Sequence[str]) -> str:
    """Return the option to suggest in an error message about the text column `column`, such as `text_column="body"`."""
    option = "text_column" if column == texts[0] else "text_pair_column"
    first = next((name for name in columns if name not in texts), "...")
    return f'{option}="{first}" (--{option.replace("_", "-")} {first})'
