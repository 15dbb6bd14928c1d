"""Columns of a corpus: text columns, and carried columns, which the user selects to be copied to the shards.

Values from JSON and CSV are strings unless a type is given; Parquet, Arrow and data sets have their own types.
"""

from __future__ import annotations

import difflib
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .._common.errors import explain, option, shorten, type_error, value_error
from ..documents import TOKEN_INDICES

HUGGING_FACE = b"huggingface"  # metadata key under which datasets stores the features of a schema
Values = Mapping[str, Sequence[str | None]]  # of columns, by name


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
        first_values (callable): returns the first values of the given columns as text, by name, for messages.
        add_header (callable, *optional*): for CSV, returns a command of the shell that writes the file again with the
            given names above it.
    """

    name: str
    schema: pa.Schema
    complete: bool = True
    typed: bool = True
    first_values: Callable[[list[str]], Values] = lambda names: {}
    add_header: Callable[[list[str]], str] | None = None


def named_columns(columns: Sequence[str] | None) -> dict[str, pa.DataType | None]:
    r"""Parse column names with optional types, such as `"label:int64"`, into a `dict` from name to type.

    The type is `None` for a name without one. Text after a colon that is not an Arrow type belongs to the name.

    Example:
        >>> named_columns(["id", "label:int64", "dc:title"])
        {'id': None, 'label': DataType(int64), 'dc:title': None}
    """
    types: dict[str, pa.DataType | None] = {}
    for column in columns or ():
        name, _, kind = column.rpartition(":")
        try:
            types[name or column] = pa.type_for_alias(kind) if name else None
        except ValueError:  # a colon in the name
            types[column] = None
    return types


def carried_columns(
    sources: Sequence[SourceColumns], texts: Sequence[str], named: Mapping[str, pa.DataType | None]
) -> pa.Schema:
    r"""Check that every source has the text columns and the columns to copy; return the schema of the columns to copy.

    Columns of JSON lines are known from the first lines only; a column to copy may be missing if its type is given.
    """
    named = {name: kind for name, kind in named.items() if name not in texts}
    if indices := [name for name in named if name in TOKEN_INDICES]:
        raise value_error(
            f"column '{indices[0]}' holds indices of tokens, and texts have no tokens before the job",
            got=f"columns={list(named)!r}",
            fix="leave it out, or rename it if it counts characters, e.g. 'start_characters'",
        )
    for source in sources:
        names = source.schema.names
        for name in [*texts, *named]:
            if names.count(name) > 1:
                raise value_error(f"{source.name} has several columns {name!r}", fix="rename them")
            if name not in names and (source.complete or named.get(name) is None):
                _check_texts(source)
                raise ValueError(_missing_column(source, name, texts))
        for name in texts:
            if not _is_text(source.schema.field(name).type):
                _check_texts(source)
                raise TypeError(_not_text(source, name, texts))
        if named and not source.typed:
            raise value_error(
                f"{source.name} does not state the types of its columns, so it can carry none",
                got=f"columns={list(named)!r}",
                fix="data.cast(Features({...})), or IterableDataset.from_generator(rows, features=Features({...}))",
            )
    types = [(name, kind or _common_type(name, sources)) for name, kind in named.items()]
    fields = [pa.field(name, _WITHOUT_VIEWS.get(kind, kind)) for name, kind in types]
    for column in fields:
        if not _can_store(column.type):
            raise type_error(
                f"column {column.name!r} has a type that Parquet or datasets cannot store",
                got=str(column.type),
                fix=f"cast it first, e.g. columns={[f'{column.name}:string']!r}, or leave it out",
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
                fix=f"name its type, columns={[f'{column}:string']!r}, or leave it out",
            ) from error
    return common if common is not None else pa.string()


def _features(names: Sequence[str], sources: Sequence[SourceColumns]) -> dict[bytes, bytes]:
    """Return Arrow metadata with the `datasets` features of the columns `names`, such as the names of classes."""
    stored: list[dict[str, Any]] = []
    for source in sources:
        info = json.loads((source.schema.metadata or {}).get(HUGGING_FACE, b"{}")).get("info") or {}
        stored.append(info.get("features") or {})
    first = (stored or [{}])[0]
    shared = {
        name: first[name]
        for name in names
        if name in first and all(features.get(name) == first[name] for features in stored)
    }
    return {HUGGING_FACE: json.dumps({"info": {"features": shared}}).encode()} if shared else {}


def _check_texts(source: SourceColumns) -> None:
    """Raise a `ValueError` if the rows of a source are tokenized."""
    if "input_ids" in source.schema.names:
        raise value_error(
            f"the rows of {source.name} are tokenized already, and encode reads texts",
            got="a column 'input_ids'",
            fix="datasets.load_dataset reads them for a Trainer, and pack_dataset(dataset, capacity) packs them; "
            "if there is a column of texts too, --text-column names it",
        )


def _missing_column(source: SourceColumns, column: str, texts: Sequence[str]) -> str:
    """Return the error message for a column that a source lacks, with the columns that it has and a suggestion."""
    names = source.schema.names
    rule, got = f"{source.name} has no column {column!r}", f"its columns are {', '.join(map(repr, names)) or 'none'}"
    if column not in texts:
        candidates = [name for name in names if name not in texts]
        near = difflib.get_close_matches(column, candidates, n=1, cutoff=0) or ["..."]
        return explain(rule, got=got, fix=option("columns", near[0], repeatable=True))
    values = source.first_values([column.name for column in source.schema if _is_text(column.type)])
    setting = "text_column" if column == texts[0] else "text_pair_column"
    if source.add_header is not None and not set(texts) & set(names) and _looks_like_data(names, values):
        rows = {name: [name, *values.get(name, [])] for name in names}
        header = [f"column_{number}" for number in range(1, len(names) + 1)]
        for text, name in zip(texts, _by_likeness_to_text(names, rows), strict=False):
            header[names.index(name)] = text
        got = f"a first line that looks like data: {', '.join(map(shorten, names[:5]))}" + ", ..." * (len(names) > 5)
        fix, flag = f"{source.add_header(header)} writes a copy with a header", f"--{setting.replace('_', '-')}"
        return explain(rule, got=got, fix=f"{fix}; if the first line is a header, {flag} names a column in it")
    return explain(rule, got=got, fix=_text_option(setting, source, texts))


def _not_text(source: SourceColumns, column: str, texts: Sequence[str]) -> str:
    text_columns = [column.name for column in source.schema if _is_text(column.type)]
    return explain(
        f"column {column!r} of {source.name} is {source.schema.field(column).type}, expected text",
        got=f"its columns of text are {', '.join(map(repr, text_columns)) or 'none'}",
        fix=_text_option("text_column" if column == texts[0] else "text_pair_column", source, texts)
        if set(text_columns) - set(texts)
        else f'cast it to text first, e.g. data.cast_column({json.dumps(column)}, Value("string"))',
    )


def _text_option(setting: str, source: SourceColumns, texts: Sequence[str]) -> str:
    """Return the option to suggest for a text column, such as `text_column="body"`: the column most like text."""
    names = [column.name for column in source.schema if _is_text(column.type) and column.name not in texts]
    if not names:
        return "an input with a column of texts"
    return option(setting, _by_likeness_to_text(names, source.first_values(names))[0])


# --------------------------------------------------------------------------------------------- guesses for the messages

_NUMBER = re.compile(r"[-+.$€£]*\d[\d.,:/+\-TZeE% ]*")  # or a date or a time
_NOTHING = {"", "-", "?", "na", "n/a", "nan", "none", "null"}


def _by_likeness_to_text(names: Sequence[str], values: Values) -> list[str]:
    """Sort columns by the letters in their values, most first; repeated values, as of labels, count once."""

    def likeness(name: str) -> float:
        texts = values.get(name, [])
        return sum(map(_letters, set(texts))) / max(len(texts), 1)

    return sorted(names, key=likeness, reverse=True)


def _letters(value: str | None) -> int:
    """Return the number of letters in a value; 0 for JSON, and 1 for a long word in ASCII, such as a link or a key."""
    if not value or value[0] in "[{":
        return 0
    letters = sum(map(str.isalpha, value))
    return min(letters, 1) if len(value) > 30 and value.isascii() and len(value.split()) == 1 else letters


def _looks_like_data(names: Sequence[str], values: Values) -> bool:
    """Return True if the first line of a table, `names`, is probably a row like those below it, `values`."""
    if [name for name in names if name] == [str(number) for number in range(len(names) - ("" in names))]:
        return False  # as pandas numbers columns
    is_row = False
    for number, name in enumerate(names):
        below = [value for value in values.get(name, []) if value and value.strip().lower() not in _NOTHING]
        is_number = _NUMBER.fullmatch(name) is not None
        if below and all(map(_NUMBER.fullmatch, below)) and not is_number and name.strip().lower() not in _NOTHING:
            return False  # a name above numbers
        if not (number or name) and below == [str(row) for row in range(len(below))]:
            return False  # the index of pandas
        words = len(name.split())
        usual = statistics.median(len(value.split()) for value in below) if below else 0
        # "First name" above single words is a header, "I ride" above "bike ride" is not.
        is_row |= is_number or name in below or words > 7 or (words > 1 and usual != 1 and words >= usual / 2)
    return is_row
