"""Conversion of the collator's input (rows, columns, tables or data frames) to a `Given`.

The input is read and checked, never tokenized or modified.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import explain, require_one_split, shorten, type_error, value_error
from ..documents import BOUNDARIES, LABEL_COLUMNS, PER_TOKEN, columns_of_batch, read_mask
from ..ragged import Ragged, lock_free_cache
from .formats import COMPLETION, PROMPT, is_conversation, missing, text_columns

if TYPE_CHECKING:
    from .settings import Settings

_DROP_ROWS = (
    'drop such rows first: ds.filter(lambda row: row["{0}"] is not None) for a data set, df.dropna(subset=["{0}"]) or '
    "series.dropna() for pandas (drop_nulls for polars), [row for row in rows if row is not None] for a list; pairs "
    "with None likewise"
)

# One value per row.
Values = Sequence[Any] | NDArray[Any] | Ragged
# Warnings of one call by kind, each given once by a collator.
Messages = dict[str, str]


@dataclass(frozen=True)
class Given:
    r"""Checked input of one call of the collator: texts, or tokenized rows with a column `input_ids`.

    Args:
        count (`int`): number of rows.
        texts (`list`, *optional*): checked texts, each a `str` or a list of words; `None` for tokenized rows, and for
            prompts.
        pairs (`list`, *optional*): the second text of each pair; `None` if the texts are not pairs.
        targets (`list`, *optional*): the texts to predict; `None` if there are none.
        prompts, completions (`list`, *optional*): checked texts; the completions are `None` for prompts alone.
        columns (`dict` from `str` to sequence): all columns of the input by name, including the text columns, but no
            conversations. Columns of a table are Arrow columns.
        text_columns (`tuple` of `str`, *optional*): names of the columns with the texts.
        conversations (`list`, *optional*): a list of messages for each row; `None` if the input has none.
        prompt_messages (`list` of `int`, *optional*): number of the first messages of each conversation that are its
            prompt, in which nothing is trained on; `None` if there are no prompts.
    """

    count: int
    texts: list[Any] | None = None
    pairs: list[Any] | None = None
    targets: list[Any] | None = None
    prompts: list[str] | None = None
    completions: list[str] | None = None
    columns: dict[str, Values] = field(default_factory=dict)
    text_columns: tuple[str, ...] = ()
    conversations: list[Any] | None = None
    prompt_messages: list[int] | None = None


class DatasetRows(Sequence[Any]):
    r"""Batch of rows that a `DataLoader` reads from a data set made by `with_arrow_batches`: a sequence of row dicts.

    The collator reads the attribute `columns` instead, which is faster. Row dicts are made when a row is first read.

    Args:
        columns (`dict` from `str` to sequence): the columns, as in `Given`.
        count (`int`): number of rows.
        decode (callable): makes the list of row dicts.
    """

    def __init__(self, columns: dict[str, Values], count: int, decode: Callable[[], list[Any]]) -> None:
        self.columns = columns
        self._count = count
        self._decode = decode

    @lock_free_cache
    def _rows(self) -> list[Any]:
        return self._decode()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __getattr__(self, name: str) -> Any:  # such as `keys`, of a collator that expects a list or columns
        raise AttributeError(
            explain(
                f"rows of with_arrow_batches(dataset) have no attribute '{name}'",
                got="another collator than DataCollatorWithPositionalEncoding",
                fix="this collator, or the data set itself without with_arrow_batches",
            )
        )


def is_columns(source: object) -> bool:
    """Return True for a mapping of columns, a table or a data frame, and False for a sequence of rows."""
    if isinstance(source, (list, tuple, str)):
        return False
    frame = getattr(sys.modules.get("pandas"), "DataFrame", ())  # without importing pandas
    return isinstance(source, (Mapping, frame)) or is_table(source) or _exports_table(source)


def parse_input(source: object, settings: Settings, padding_id: int | None = None) -> Given:
    r"""Convert the input of a collator, rows or columns, to a `Given`.

    `settings` contains the names of the text columns. Their texts are checked. `padding_id` is the id of padding.

    Example:
        >>> from hf_posenc.collator.settings import Settings
        >>> parse_input(["I ride bike", "bike ride I"], Settings(tokenizer=None)).count
        2
    """
    if isinstance(source, DatasetRows):
        return _with_texts(len(source), source.columns, settings)
    if is_columns(source):
        require_one_split(source)
        return _read_columns(_mapping(source), settings, padding_id)
    rows = [source] if isinstance(source, str) else as_list(source)
    if not len(rows):
        raise ValueError(empty_batch(source))
    if not isinstance(rows[0], str):
        check_row(0, rows[0])
        if isinstance(rows[0], Mapping):
            return _read_row_dicts(rows, settings)
        # An empty list may be a text or ids, so the first row that is not empty decides.
        first = next((row for row in rows if not (isinstance(row, list) and not row)), rows[0])
        if is_conversation(first):
            return Given(len(rows), conversations=_conversations(rows, settings.text_column))
        if _is_row_of_ids(first):
            for index, row in enumerate(rows):
                if isinstance(row, (str, dict)):
                    raise TypeError(_mixed_rows(index, row, first))
            return Given(len(rows), columns={"input_ids": rows})
    texts, pairs = _texts_and_pairs(rows, None, settings, settings.text_column)
    return Given(len(texts), texts, pairs)


def check_row(index: int, row: object) -> None:
    """Raise a `TypeError` if a row is a table or a data frame, as a `DataLoader` gets them from a formatted stream."""
    library = type(row).__module__.partition(".")[0]
    if library in ("pyarrow", "pandas", "polars") and hasattr(row, "columns"):
        raise type_error(
            f"row {index} is a {type(row).__name__} of {library}, expected a text, a dict or token ids",
            got="a list of tables, as of a stream with a format such as 'arrow' or 'pandas'",
            fix="stream.with_format(None); collate.batch(table) for a single table",
        )


def empty_batch(source: object) -> str:
    """Return the error message for a batch without rows."""
    return explain("empty batch: there is no row to collate", got=shorten(source), fix="skip empty batches")


def _texts_and_pairs(
    rows: Values, seconds: Values | None, settings: Settings, column: str
) -> tuple[list[Any], list[Any] | None]:
    """Return the checked texts, and the checked second texts if the texts are pairs, otherwise `None`."""
    words = settings.is_split_into_words
    if seconds is not None:
        pair = str(settings.text_pair_column)
        return _checked(rows, column, words), _checked(seconds, pair, words)
    # Lists are no pairs here: transformers reads a list of two texts as a pair, silently.
    # With `words`, a tuple of two `str` is one text of two words.
    first = rows[0] if len(rows) else None
    if not isinstance(first, tuple) or len(first) != 2 or (words and isinstance(first[0], str)):
        return _checked(rows, column, words), None
    for index, row in enumerate(rows):
        if not isinstance(row, tuple) or len(row) != 2:
            raise type_error(
                f"row {index} of column '{column}' is {type(row).__name__}, expected a pair like row 0",
                got=shorten(row),
                fix='pairs are tuples of two texts in every row, e.g. [("a", "b"), ("c", "d")]',
            )
        if any(isinstance(part, (int, float, np.number)) for part in row):
            raise type_error(
                f"row {index} is a tuple with a number: a number is a label, and a row with a label is a dict",
                got=shorten(row),
                fix='[{"text": text, "label": label} for text, label in rows], in the order of your tuples; or the '
                "data frame itself",
            )
    firsts, seconds = [row[0] for row in rows], [row[1] for row in rows]
    return _checked(firsts, column, words), _checked(seconds, f"{column} (second of the pair)", words)


def _read_row_dicts(rows: Any, settings: Settings) -> Given:
    keys = rows[0].keys()
    for index, row in enumerate(rows):  # before any value is read: reading a missing key of a defaultdict would add it
        is_row = isinstance(row, (dict, Mapping))  # `dict` first, because it is checked faster
        if not is_row:
            raise TypeError(_mixed_rows(index, row, rows[0]))
        if row.keys() != keys:
            raise value_error(
                f"row {index} does not have the columns of row 0, {sorted(keys, key=str)}",
                got=sorted(row, key=str),
                fix="give every row the same columns",
            )
    return _with_texts(len(rows), {key: [row[key] for row in rows] for key in keys}, settings)


def _read_columns(columns: Mapping[str, Any], settings: Settings, padding_id: int | None) -> Given:
    for name in dict.fromkeys((settings.text_column, "messages", PROMPT, COMPLETION, "input_ids")):
        value = columns.get(name)
        single = isinstance(value, str) or (isinstance(value, list) and is_conversation(value) and "role" in value[0])
        single = single or (name == "input_ids" and value is not None and _is_row_of_ids(value))
        if settings.is_split_into_words and name == settings.text_column:
            single = single or (isinstance(value, list) and _are_texts(value[:1]))
        if single:
            raise value_error(
                f"column '{name}' holds one row, and a mapping must hold columns: map needs batched=True",
                got=shorten(value),
                fix="dataset.map(collate, batched=True), or collate([row])",
            )
    if "input_ids" in columns:
        columns = columns_of_batch(columns)
        for name in {"input_ids", "labels", *PER_TOKEN, *BOUNDARIES} & columns.keys():
            if is_arrow(columns[name]) and (rows := Ragged.from_arrow(columns[name])) is not None:
                columns[name] = rows
        mask = columns.get("attention_mask")
        if isinstance(mask, Mapping) or getattr(mask, "ndim", 2) == 4:  # it has no value per token
            columns, _ = read_mask(columns, padding_id)
    for name, value in columns.items():
        if isinstance(value, str | int | float | np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
            raise type_error(
                f"column '{name}' is a single value, and a column has one for each row",
                got=shorten(value),
                fix="a list with one value for each row, or leave it out",
            )
    lists = {name: value if is_arrow(value) else as_list(value) for name, value in columns.items()}
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        raise value_error("columns must have the same number of rows", got=lengths, fix="pass the columns of one table")
    return _with_texts(next(iter(lengths.values()), 0), lists, settings)


def _with_texts(count: int, columns: dict[str, Values], settings: Settings) -> Given:
    """Return checked texts or token ids."""
    targets, name = None, settings.text_target_column
    if name is not None and name in columns:
        targets = _checked(as_list(columns[name]), name, settings.is_split_into_words)
    if "input_ids" in columns:  # tokenized targets are in `labels`
        return Given(count, targets=None if "labels" in columns else targets, columns=columns)
    names = text_columns(columns, settings)
    column, is_named = names[0], names == settings._text_columns
    for argument in ("text_column", "text_pair_column"):  # the target column may be missing, as at inference
        name = getattr(settings, argument) if is_named else None
        if name is not None and name not in columns:
            first = {key: next(iter(as_list(values)), None) for key, values in columns.items()}
            raise missing(name, argument, first, settings)
    texts_ = as_list(columns[column])
    completions = as_list(columns[COMPLETION]) if COMPLETION in names and not is_named else None
    first_text = next(iter(texts_), None)
    must_be_chat = not is_named and (column == "messages" or isinstance(first_text, list))
    if len(texts_) and (must_be_chat or is_conversation(first_text)):
        others = {name: values for name, values in columns.items() if name not in names}
        chats, sizes = _conversations(texts_, column), None
        if column == PROMPT and not is_named:
            sizes = [len(chat) for chat in chats]
            if completions is not None:
                answers = _conversations(completions, COMPLETION)
                chats = [[*chat, *answer] for chat, answer in zip(chats, answers, strict=True)]
        return Given(count, targets=targets, columns=others, conversations=chats, prompt_messages=sizes)
    if column == PROMPT and not is_named:
        prompts, *answers = (_checked(as_list(columns[name]), name, False) for name in names)
        return Given(
            count, prompts=prompts, completions=answers[0] if answers else None, columns=columns, text_columns=names
        )
    pair = settings.text_pair_column
    seconds = None if pair is None else as_list(columns[pair])
    texts, pairs = _texts_and_pairs(texts_, seconds, settings, column)
    return Given(count, texts, pairs, targets, columns=columns, text_columns=names)


def _conversations(rows: Values, column: str) -> list[Any]:
    """Return the conversations of a column; raise a `TypeError` or `ValueError` if a row is something else."""
    for index, row in enumerate(rows):
        if not is_conversation(row):
            raise type_error(
                f"row {index} of column '{column}' is {type(row).__name__}, expected a list of messages",
                got=shorten(row),
                fix='[{"role": "user", "content": "..."}, ...] in every row; json.loads makes one of a text',
            )
        if not all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in row):
            raise value_error(
                f"row {index} of column '{column}' has a message without 'role'",
                got=shorten(row[0]),
                fix='{"role": "user", "content": "..."}, keys that other libraries name "from" and "value"',
            )
    return list(rows)


def _checked(rows: Values, column: str, words: bool) -> list[Any]:
    """Return the texts of a column as a list of `str`, or of lists of `str` if `words` is True."""
    if not words:
        kinds = set(map(type, rows))
        if kinds == {str}:
            return list(rows)
        if not all(issubclass(kind, str) for kind in kinds):
            raise TypeError(_wrong_text(rows, column))
        return [str(row) for row in rows]  # also those of NumPy
    split = [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]
    good = [isinstance(row, (list, tuple)) and _are_texts(row) for row in split]
    if not all(good):
        first = good.index(False)
        raise type_error(
            f"row {first} of column '{column}' is {type(split[first]).__name__}, expected a list of words",
            got=shorten(split[first]),
            fix=_DROP_ROWS.format(column)
            if is_missing(split[first])
            else "is_split_into_words=False for texts, or text.split()",
        )
    return [[str(word) for word in row] for row in split]


def _mixed_rows(index: int, row: object, first: object) -> str:
    """Return the error message for rows of different kinds in one batch, such as a text and a tokenized row."""
    return explain(
        f"row {index} is {_kind_of(row)}, row 0 is {_kind_of(first)}",
        got=shorten(row),
        fix="only texts, only dicts, or only lists of token ids in one batch",
    )


def _kind_of(row: object) -> str:
    if isinstance(row, Mapping):
        return "tokenized" if "input_ids" in row else "a dict"
    if isinstance(row, str):
        return "a text"
    return "a list of token ids" if _is_row_of_ids(row) else f"a {type(row).__name__}"


def _wrong_text(rows: Values, column: str) -> str:
    bad = [index for index, row in enumerate(rows) if not isinstance(row, str)]
    first = rows[bad[0]]
    if is_missing(first):
        fix = _DROP_ROWS.format(column)
    elif isinstance(first, bytes):
        fix = 'text.decode("utf-8")'
    elif type(first).__name__ == "Series":
        fix = 'frame.to_dict("records") in pandas, frame.to_dicts() in polars; or dataset.with_format(None)'
    elif isinstance(first, (list, tuple, np.ndarray)) and not (bad[0] and _is_row_of_ids(first)):
        fix = (
            "is_split_into_words=True for lists of words; tokenizer.convert_tokens_to_ids(row) for lists of tokens; "
            'or a tuple ("a", "b") in every row for pairs'
        )
    elif bad[0] and hasattr(first, "__len__"):
        return _mixed_rows(bad[0], first, rows[0])
    elif hasattr(first, "__len__"):
        fix = "text_column=..., the name of a column of texts; dataset.flatten() makes columns of a column of dicts"
    else:  # of a column, `map` would cast texts back to its type
        fix = (
            f'features=Features({{"{column}": Value("string"), ...}}) when the file is read, which keeps 007; '
            f'ds.cast_column("{column}", Value("string")), if the numbers are meant as texts; '
            f'df.astype({{"{column}": str}}) for pandas; str(value) in a list'
        )
    return explain(
        f"row {bad[0]} of column '{column}' is {type(first).__name__}, expected str",
        got=f"{len(bad)} bad of {len(rows)} rows in this batch",
        fix=fix,
    )


def _are_texts(row: Iterable[Any]) -> bool:
    return all(isinstance(word, str) for word in row)


def _is_row_of_ids(row: Any) -> bool:
    if hasattr(row, "dtype") and hasattr(row, "ndim"):  # NumPy arrays and tensors
        return row.ndim == 1 and not str(row.dtype).startswith(("<U", "object", "|S", "str"))
    return isinstance(row, list) and bool(row) and isinstance(row[0], (int, np.integer)) and type(row[0]) is not bool


def _mapping(source: Any) -> Mapping[str, Any]:
    if is_lazy_batch(source):  # given columns stay encoded, because only texts and ids are read
        table, unread = source.pa_table, source.keys_to_format
        return {name: table[name] if name in unread else source[name] for name in source}
    if isinstance(source, Mapping):
        return source
    if _exports_table(source) and type(source).__module__.partition(".")[0] != "pandas":  # Arrow refuses mixed objects
        import pyarrow as pa

        source = pa.table(source)
    names = [str(name) for name in (source.column_names if is_table(source) else source.columns)]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise value_error(
            f"two columns have the name {twice[0]!r}, and a batch is read by name",
            got=names,
            fix="rename or drop one of them: table.rename_columns([...]), df.loc[:, ~df.columns.duplicated()]",
        )
    return dict(
        zip(names, source.columns if is_table(source) else (source[name] for name in source.columns), strict=True)
    )


def is_lazy_batch(source: object) -> bool:
    """Return True for a `LazyBatch`, which `Dataset.map` passes, and to which it adds the columns that it gets back.

    Does not import datasets.
    """
    formatting = sys.modules.get("datasets.formatting.formatting")
    return formatting is not None and isinstance(source, formatting.LazyBatch)


def is_table(source: object) -> bool:
    """Return True for a `pyarrow.Table` or record batch, without importing pyarrow."""
    return is_arrow(source) and hasattr(source, "column_names")


def _exports_table(source: object) -> bool:
    """Return True for a frame that Arrow can read, such as one of polars."""
    return hasattr(source, "__arrow_c_stream__") and hasattr(source, "columns")


def is_arrow(column: object) -> bool:
    """Return True for a pyarrow object, such as a column or a table, without importing pyarrow."""
    return type(column).__module__.startswith("pyarrow")


def as_list(values: Any) -> Values:
    """Return `values`, a column or a batch of rows, as a sequence.

    A list, tuple, `Ragged` or NumPy array of numbers is returned unchanged. Anything else, such as an Arrow column or a
    generator, becomes a list. Raise a `TypeError` for a set, for bytes and for a value that is not iterable.
    """
    if isinstance(values, (list, tuple, Ragged)):
        return values
    if isinstance(values, np.ndarray) and values.ndim and values.dtype.kind not in "OUS":
        return values
    if hasattr(values, "to_pylist"):  # pyarrow
        pylist: list[Any] = values.to_pylist()
        return pylist
    if hasattr(values, "tolist") and getattr(values, "ndim", 1) == 1 and type(values).__module__ != "torch":
        listed: list[Any] = values.tolist()  # NumPy strings and objects, pandas
        return listed
    no_rows = isinstance(values, (bytes, set, frozenset)) or getattr(values, "ndim", 1) == 0
    if no_rows or not isinstance(values, Iterable):
        raise type_error(
            f"{type(values).__name__} is not a batch: expected texts, rows or columns",
            got=shorten(values),
            fix="collate(frame.collect())"
            if hasattr(values, "collect")
            else 'collate(["a text", "another"]), collate([{"text": "..."}]) or collate({"text": ["..."]})',
        )
    return list(values)


def label_names(columns: Mapping[str, Values]) -> list[str]:
    r"""Return the names of the label columns in `columns`.

    A label column is named `label`, `label_ids` or `labels`, and has at least one value that is not None.

    Example:
        >>> label_names({"label": [1, 0], "labels": [None, None], "text": ["a", "b"]})
        ['label']
    """
    return [name for name in LABEL_COLUMNS if name in columns and not all(map(is_missing, as_list(columns[name])))]


def is_missing(value: object) -> bool:
    """Return True for `None` and for pandas' `NA` and NaN."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
