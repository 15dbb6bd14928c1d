"""Reading rows, columns, tables and data frames into one form: texts or token ids, and the columns beside them.

Reading and checking only; nothing is tokenised here, and the caller's objects are never changed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._explain import explain, shorten
from .columns import Values


class TextColumns(NamedTuple):
    """Names of the columns with texts, and True if those are lists of words."""

    text: str
    pair: str | None
    target: str | None
    words: bool


@dataclass(frozen=True)
class Given:
    r"""One call's input: either `texts` or an `input_ids` column, each value belonging to the row of the same index.

    Args:
        count (`int`): number of rows.
        texts (`list`, *optional*): checked texts, each a `str` or a list of words.
        pairs, targets (`list`, *optional*): the second text of each pair; the texts to predict.
        columns (`dict` from `str` to sequence): every column that arrived, the texts' own included; those of a table
            are still Arrow's.
    """

    count: int
    texts: list[Any] | None
    pairs: list[Any] | None
    targets: list[Any] | None
    columns: dict[str, Values]


def is_columns(given: object) -> bool:
    """Return True for a mapping of columns, a table or a data frame, and False for a sequence of rows."""
    return isinstance(given, Mapping) or is_table(given) or is_frame(given)


def read(given: object, names: TextColumns) -> Given:
    r"""Read rows or columns.

    Args:
        given: a `str`, a sequence of texts, of pairs (tuples), of token ids or of row dicts; or columns: a mapping, a
            `pyarrow.Table` or a `pandas.DataFrame`.
        names (`TextColumns`): where the texts stand.

    Returns:
        `Given`, with texts that are `str` (or lists of `str`) throughout.

    Raises:
        TypeError: for a row of the wrong kind, with its number and column.
        ValueError: for an empty batch, a missing column, rows or columns that do not agree.

    Example:
        >>> read(["I ride bike", "bike ride I"], TextColumns("text", None, None, False)).count
        2
    """
    if is_columns(given):
        return _read_columns(_mapping(given), names)
    if isinstance(given, str):
        return _read_texts([given], names)
    rows = as_list(given)
    if not len(rows):
        raise ValueError(empty_batch(given))
    if isinstance(rows[0], Mapping):
        return _read_row_dicts(rows, names)
    # An empty list says nothing of its kind, so the first row that is none decides.
    telling = next((row for row in rows if not (isinstance(row, list) and not row)), rows[0])
    if _is_row_of_ids(telling):
        return Given(len(rows), None, None, None, {"input_ids": rows})
    return _read_texts(rows, names)


def empty_batch(given: object) -> str:
    """Return the message for a batch without rows."""
    return explain("empty batch: there is no row to collate", got=shorten(given), fix="leave empty batches out before")


def _read_texts(rows: Values, names: TextColumns) -> Given:
    """Read a plain sequence: texts, or pairs of texts as tuples."""
    pairs: list[Any] | None = None
    if isinstance(rows[0], tuple) and len(rows[0]) == 2 and not (names.words and isinstance(rows[0][0], str)):
        rows, pairs = _split_pairs(rows, names)
    texts = _checked(rows, names.text, names.words)
    if pairs is not None:
        pairs = _checked(pairs, f"{names.text} (second of the pair)", names.words)
    return Given(len(texts), texts, pairs, None, {})


def _read_row_dicts(rows: Values, names: TextColumns) -> Given:
    keys = rows[0].keys()
    # Compared before anything is read: reading a missing key of a defaultdict would add it.
    if not all(isinstance(row, Mapping) and row.keys() == keys for row in rows):
        index = next(i for i, row in enumerate(rows) if not isinstance(row, Mapping) or row.keys() != keys)
        odd = rows[index]
        raise ValueError(
            explain(
                f"row {index} does not have the columns of row 0, {sorted(keys, key=str)}",
                got=sorted(odd, key=str) if isinstance(odd, Mapping) else type(odd).__name__,
                fix="give every row the same columns",
            )
        )
    return _with_texts(len(rows), {key: [row[key] for row in rows] for key in keys}, names)


def _read_columns(columns: Mapping[str, Any], names: TextColumns) -> Given:
    for name in (names.text, "input_ids"):
        value = columns.get(name)
        single = isinstance(value, str) or (name == "input_ids" and value is not None and _is_row_of_ids(value))
        if single or (names.words and name == names.text and isinstance(value, list) and _are_texts(value[:1])):
            raise ValueError(
                explain(
                    f"column '{name}' holds one row, and a mapping must hold columns: map needs batched=True",
                    got=shorten(value),
                    fix="dataset.map(collate, batched=True), or collate([row])",
                )
            )
    lists = {name: value if is_arrow(value) else as_list(value) for name, value in columns.items()}
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            explain("columns must have the same number of rows", got=lengths, fix="pass the columns of one table")
        )
    return _with_texts(next(iter(lengths.values()), 0), lists, names)


def _with_texts(count: int, columns: dict[str, Values], names: TextColumns) -> Given:
    targets = None
    if names.target is not None and names.target in columns:
        targets = _checked(as_list(columns[names.target]), names.target, names.words)
    if "input_ids" in columns:  # targets that came tokenised too are in `labels`
        return Given(count, None, None, None if "labels" in columns else targets, columns)
    for name in (names.text, names.pair):  # a target may be missing: nobody knows it when a model is used
        if name is not None and name not in columns:
            raise ValueError(
                explain(
                    f"column '{name}' is missing; the columns that arrived are {sorted(columns, key=str)}",
                    fix=(
                        "Trainer drops text columns: TrainingArguments(remove_unused_columns=False), or tokenise "
                        "first, dataset.map(collate, batched=True); another column: text_column='...'"
                    ),
                )
            )
    rows, pairs = as_list(columns[names.text]), None
    if names.pair is not None:
        pairs = as_list(columns[names.pair])
    elif (
        count and isinstance(rows[0], tuple) and len(rows[0]) == 2 and not (names.words and isinstance(rows[0][0], str))
    ):
        rows, pairs = _split_pairs(rows, names)
    texts = _checked(rows, names.text, names.words)
    if pairs is not None:
        pairs = _checked(pairs, names.pair or f"{names.text} (second of the pair)", names.words)
    return Given(count, texts, pairs, targets, columns)


def _split_pairs(rows: Values, names: TextColumns) -> tuple[list[Any], list[Any]]:
    for index, row in enumerate(rows):
        if not isinstance(row, tuple) or len(row) != 2:
            raise TypeError(
                explain(
                    f"row {index} of column '{names.text}' is {type(row).__name__}, expected a pair like row 0",
                    got=shorten(row),
                    fix='pairs are tuples of two texts in every row, e.g. [("a", "b"), ("c", "d")]',
                )
            )
    return [row[0] for row in rows], [row[1] for row in rows]


def _checked(rows: Values, column: str, words: bool) -> list[Any]:
    """Return the texts as `str` (or lists of `str`), or raise a TypeError that names the first bad row."""
    if not words:
        if set(map(type, rows)) <= {str}:
            return list(rows)
        if all(isinstance(row, str) for row in rows):
            return [str(row) for row in rows]
        bad = [index for index, row in enumerate(rows) if not isinstance(row, str)]
        raise TypeError(_wrong_text(rows, bad, column))
    split = [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]
    good = [isinstance(row, (list, tuple)) and _are_texts(row) for row in split]
    if not all(good):
        first = good.index(False)
        raise TypeError(
            explain(
                f"row {first} of column '{column}' is {type(split[first]).__name__}, expected a list of words",
                got=shorten(split[first]),
                fix="is_split_into_words=False for texts, or text.split()",
            )
        )
    return [[str(word) for word in row] for row in split]


def _wrong_text(rows: Values, bad: list[int], column: str) -> str:
    first = rows[bad[0]]
    if first is None:
        fix = f'drop empty rows first, e.g. ds.filter(lambda r: r["{column}"] is not None)'
    elif type(first).__name__ == "NAType" or (isinstance(first, float) and math.isnan(first)):
        fix = f'drop rows without a text first: df.dropna(subset=["{column}"])'
    elif isinstance(first, bytes):
        fix = 'text.decode("utf-8")'
    elif isinstance(first, (list, tuple, np.ndarray)):
        fix = 'is_split_into_words=True for lists of words, or a tuple ("a", "b") in every row for pairs'
    else:
        fix = "str(value), if the value is meant as text"
    return explain(
        f"row {bad[0]} of column '{column}' is {type(first).__name__}, expected str",
        got=f"{len(bad)} bad of {len(rows)} rows in this batch",
        fix=fix,
    )


def _are_texts(row: Iterable[Any]) -> bool:
    return all(isinstance(word, str) for word in row)


def _are_ints(row: Iterable[Any]) -> bool:
    return all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in row)


def _is_row_of_ids(row: Any) -> bool:
    if hasattr(row, "dtype") and hasattr(row, "ndim"):  # NumPy arrays and tensors
        return row.ndim == 1 and not str(row.dtype).startswith(("<U", "object", "|S"))
    return isinstance(row, list) and len(row) > 0 and _are_ints(row[:1])


def _mapping(given: Any) -> Mapping[str, Any]:
    if is_lazy_batch(given):  # what map keeps is neither decoded nor changed: only texts and ids are read
        table, unread = given.pa_table, given.keys_to_format
        return {name: table[name] if name in unread else given[name] for name in given}
    if isinstance(given, Mapping):
        return given
    names = [str(name) for name in (given.column_names if is_table(given) else given.columns)]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            explain(
                f"two columns have the name {twice[0]!r}, and a batch is read by name",
                got=names,
                fix="rename or drop one of them: table.rename_columns([...]), df.loc[:, ~df.columns.duplicated()]",
            )
        )
    return dict(zip(names, given.columns if is_table(given) else (given[name] for name in given.columns), strict=True))


def is_lazy_batch(given: object) -> bool:
    """Return True for a batch of `datasets.map`, which decodes a column when it is read; imports nothing."""
    loaded = sys.modules.get("datasets.formatting.formatting")
    return loaded is not None and isinstance(given, loaded.LazyBatch)


def is_table(given: object) -> bool:
    """Return True for a `pyarrow.Table` or record batch; imports nothing."""
    return type(given).__module__.startswith("pyarrow") and hasattr(given, "column_names")


def is_frame(given: object) -> bool:
    """Return True for a `pandas.DataFrame`, also of a subclass; imports nothing."""
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return frame is not None and isinstance(given, frame)


def is_arrow(column: object) -> bool:
    """Return True for a column of pyarrow; imports nothing."""
    return type(column).__module__.startswith("pyarrow")


def as_list(values: Any) -> Values:
    """Return a column or a batch as something with a length and an order; numbers stay in their arrays."""
    if isinstance(values, (list, tuple)):
        return values
    if isinstance(values, np.ndarray) and values.ndim and values.dtype.kind not in "OUS":
        return values
    if hasattr(values, "to_pylist"):  # pyarrow
        pylist: list[Any] = values.to_pylist()
        return pylist
    if hasattr(values, "tolist") and getattr(values, "ndim", 1) == 1 and type(values).__module__ != "torch":
        listed: list[Any] = values.tolist()  # NumPy strings and objects, pandas
        return listed
    if isinstance(values, (bytes, set, frozenset)) or not isinstance(values, Iterable):
        raise TypeError(
            explain(
                f"{type(values).__name__} is no batch: expected texts, rows or columns",
                got=shorten(values),
                fix='collate(["a text", "another"]), collate([{"text": "..."}]) or collate({"text": ["..."]})',
            )
        )
    return list(values)
