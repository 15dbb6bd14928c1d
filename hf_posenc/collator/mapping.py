"""Calls by `datasets.map`: what to return to it, and the arguments with which each batch fits into memory.

Sizes are estimates from the sizes of rows, which Arrow gives without reading them; only a few rows are tokenised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._arrow import column_sizes
from .._explain import explain, shorten
from .inputs import is_lazy_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from .settings import Settings
    from .stage import Stage

Sizes = NDArray[np.float64]

MEMORY = 64 * 2**20
# Rows read for the kinds of the columns; rows, and bytes of text, read for the number of tokens per byte.
_FEW, _SAMPLE, _SAMPLE_BYTES = 4, 32, 1 << 20
# Round numbers; the first is the default of `map`.
_BATCH_SIZES = (1000, 500, 200, 100, 50, 20, 10, 5, 2, 1)
# Measured memory of a batch while it is made: bytes per token for the tokenizer and a few columns, copies of each
# vector on the way to the disk, and copies of the columns that came.
_PER_TOKEN, _VECTORS, _CARRIED = 200, 4, 3
# Tokens per byte if no row shows it, and the factor by which others may exceed the sample.
_RATE, _MARGIN = 0.5, 1.25
# Number and rows of the parts that are measured in longer data sets.
_STRETCHES, _STRETCH = 100, 10_000

# The modules of `datasets` whose `map` calls a function.
_MAPS = ("datasets.arrow_dataset", "datasets.iterable_dataset")


def is_mapped() -> bool:
    """Return True if `datasets.map` calls the collator; its batches of streams and tensors are plain `dict`s."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame.f_globals.get("__name__") in _MAPS


def joins_columns(given: Any) -> bool:
    """Return True if `datasets.map` will join the columns of this batch and the result of the collator."""
    return is_lazy_batch(given) or (isinstance(given, Mapping) and is_mapped())


def removable(columns: Mapping[str, Any]) -> Any:
    r"""Return a batch of which `datasets.map` drops the columns in `remove_columns`, which it does not for a `dict`.

    Args:
        columns (mapping from `str` to sequence): all columns, those that came included.

    Returns:
        `datasets.formatting.formatting.LazyBatch`.
    """
    import pyarrow as pa
    from datasets.formatting.formatting import LazyBatch

    batch = LazyBatch(pa.table({}), None)
    batch.update(columns)
    return batch


def first_rows(rows: Any, count: int = _FEW) -> Any:
    r"""Return the first rows of a data set in any format, of a stream, of columns, a table, a data frame or a sequence.

    Example:
        >>> first_rows({"text": ["a", "b", "c"]}, 2), first_rows(["a", "b", "c"], 2)
        ({'text': ['a', 'b']}, ['a', 'b'])
    """
    if hasattr(rows, "with_format"):
        rows = rows.with_format(None)
        if not hasattr(rows, "__len__"):  # a stream
            return list(rows.take(count))
    if isinstance(rows, Mapping):
        return {name: rows[name][:count] for name in rows}
    return rows.slice(0, count).to_pydict() if hasattr(rows, "to_pydict") else rows[:count]


def arguments(
    mapped: Mapped, dataset: Any, features: Callable[..., Any], memory: Any, removed: str | Sequence[str]
) -> dict[str, Any]:
    r"""Return arguments for `dataset.map`, see `DataCollatorWithPositionalEncoding.map_arguments`.

    Args:
        mapped (`Mapped`): the collator.
        dataset (`datasets.Dataset`, `IterableDataset`, or a `dict` of them).
        features (function): from such a data set and `remove_columns` to its features.
        memory (`int`): bytes.
        removed (`str` or sequence of `str`): columns that `map` drops.

    Returns:
        `dict`.

    Raises:
        TypeError: if it is no data set.
        ValueError: if `memory` is no positive integer, or columns of tables are to be removed.
    """
    memory, splits = _checked_memory(memory), _splits(dataset)
    size = min((mapped.batch_size(rows, memory) for rows in splits), default=_BATCH_SIZES[0])
    found: dict[str, Any] = {"batched": True, "batch_size": size}
    if removed:
        found["remove_columns"] = removed
        for rows in splits:
            if getattr(rows, "format", {}).get("type") in ("arrow", "pandas", "polars"):
                raise ValueError(
                    explain(
                        "map removes no columns of a data set whose batches are tables",
                        got=f"remove_columns={removed!r} and the format {rows.format['type']!r}",
                        fix=f"dataset.map(collate, **collate.map_arguments(dataset)).remove_columns({removed!r})",
                    )
                )
    # No writer_batch_size: what `map` is given is written at once, and small ones only cut the file into more pieces.
    # Of a stream that does not say what it holds, the first rows may lack what later ones have.
    known = [rows for rows in splits if rows.features is not None or mapped.embedded]
    filled = next((rows for rows in known if not hasattr(rows, "__len__") or len(rows)), None)
    if filled is not None and len(known) == len(splits):
        found["features"] = features(filled, remove_columns=removed)
    return found


def _splits(given: Any) -> list[Any]:
    import datasets

    every = list(given.values()) if isinstance(given, dict) else [given]
    for one in every:
        if not isinstance(one, datasets.Dataset | datasets.IterableDataset):
            raise TypeError(
                explain(
                    "map_arguments takes the data set that is to be mapped",
                    got=shorten(one),
                    fix="dataset.map(collate, **collate.map_arguments(dataset))",
                )
            )
    return every


def _checked_memory(memory: Any) -> int:
    if isinstance(memory, bool) or not isinstance(memory, int | np.integer) or memory < 1:
        raise ValueError(
            explain("memory must be a positive whole number of bytes", got=shorten(memory), fix="memory=64 * 2**20")
        )
    return int(memory)


@dataclass(frozen=True)
class Mapped:
    r"""Estimates of the memory of a batch while a collator maps it.

    Args:
        settings (`Settings`), stage (`Stage`): its own.
        embedded (`int`): how many bytes of embeddings it stores a token.
    """

    settings: Settings
    stage: Stage
    embedded: int

    @property
    def special(self) -> int:
        """Number of special tokens in a row."""
        if not self.settings.add_special_tokens:
            return 0
        return int(self.settings.tokenizer.num_special_tokens_to_add(pair=self.settings.text_pair_column is not None))

    def memory_of(self, table: pa.Table, rate: float) -> Sizes:
        """Return the bytes that each row takes while it is mapped, if texts make `rate` tokens a byte."""
        texts, everything, ids = _weighed(table, self.settings)
        how, tokens = self.stage.how, texts * rate + self.special if ids is None else ids
        pieces = np.ones(len(tokens))
        if how.limit is not None and how.overflow:
            room = max(how.limit - self.special - how.stride, 1)
            pieces = np.maximum(np.ceil(tokens / room), 1)
            tokens = tokens * (how.limit / room)
        elif how.limit is not None and how.truncation != "do_not_truncate":
            tokens = np.minimum(tokens, how.limit)
        if how.limit is not None and how.padding == "max_length":
            tokens = pieces * how.limit
        made: Sizes = tokens * (_PER_TOKEN + _VECTORS * self.embedded) + _CARRIED * everything * pieces
        return made

    def tokens_per_byte(self, sample: pa.Table) -> float:
        """Return the tokens per byte of text, by those rows of the sample that lost no token to a limit."""
        texts, _, ids = _weighed(sample, self.settings)
        how = self.stage.how
        if ids is not None:
            return 0.0
        try:
            pieces = self.stage.pieces(sample)
        except (TypeError, ValueError):  # a bad row: `map` will come to it, and knows its number
            return _RATE
        tokens = np.bincount(pieces.sample, pieces.ids.lengths, minlength=len(sample))
        if how.limit is not None and not how.overflow:
            kept = tokens < how.limit
            tokens, texts = tokens[kept], texts[kept]
        if not texts.sum():
            return _RATE
        return float(np.clip(_MARGIN * (tokens - self.special).sum() / texts.sum(), 0.0, 1.0))

    def batch_size(self, rows: Any, memory: int) -> int:
        r"""Return the number of rows with which no batch takes more than `memory`; 1 where the longest row alone does.

        Args:
            rows (`datasets.Dataset` or `datasets.IterableDataset`): of a stream its first rows are all that is known.
            memory (`int`): bytes.

        Returns:
            `int` from 1 to 1000.
        """
        is_stream = not hasattr(rows, "__len__")
        sample = _table(first_rows(rows, _SAMPLE)) if is_stream else _spread(rows, self.settings)
        if not len(sample):
            return _BATCH_SIZES[0]
        rate = self.tokens_per_byte(sample)
        per_row = np.concatenate([self.memory_of(table, rate) for table in ([sample] if is_stream else _parts(rows))])
        if is_stream:  # what comes later may be as long as the longest so far
            per_row = np.full(_BATCH_SIZES[0], per_row.max())
        elif (indices := getattr(rows, "_indices", None)) is not None and len(per_row) == len(rows.data):
            per_row = per_row[indices.column(0).to_numpy()]  # a shuffled set, or a selection
        for size in _BATCH_SIZES:
            if np.add.reduceat(per_row, np.arange(0, len(per_row), size)).max() <= memory:
                return size
        return 1


def _weighed(table: pa.Table, settings: Settings) -> tuple[Sizes, Sizes, Sizes | None]:
    """Return, for each row, the bytes of its texts and of everything, and the number of ids where ids came instead."""
    names = (settings.text_column, settings.text_pair_column, settings.text_target_column)
    sizes = {name: column_sizes(table[name]) for name in table.column_names}
    zeros = np.zeros(len(table))
    everything: Sizes = sum(sizes.values(), zeros)
    texts: Sizes = sum((sizes[name] for name in names if name in sizes), zeros)
    ids = None
    if settings.text_column not in sizes and "input_ids" in sizes:
        import pyarrow.compute as pc

        lengths = pc.fill_null(pc.list_value_length(table["input_ids"]), 0)
        ids = lengths.to_numpy().astype(np.float64)
    return texts, everything, ids


def _spread(rows: Any, settings: Settings) -> pa.Table:
    """Return a few rows from all over a data set, and fewer of long documents."""
    import pyarrow as pa

    arrow = rows.with_format("arrow")
    some, left = [arrow[:0]], float(_SAMPLE_BYTES)
    for index in np.unique(np.linspace(0, len(rows) - 1, _SAMPLE, dtype=np.int64)).tolist() if len(rows) else []:
        row = arrow[index : index + 1]
        texts = _weighed(row, settings)[0].sum()
        if texts <= left or len(some) == 1:
            some.append(row)
            left -= texts
    return pa.concat_tables(some)


def _parts(rows: Any) -> list[pa.Table]:
    """Return the table behind a data set, or parts from all over a long one."""
    table = rows.data.table
    if len(table) <= _STRETCHES * _STRETCH:
        return [table]
    starts = np.linspace(0, len(table) - _STRETCH, _STRETCHES, dtype=np.int64)
    return [table.slice(start, _STRETCH) for start in starts.tolist()]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows of a stream, without columns that Arrow cannot hold, such as decoded pictures."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in rows[0] if rows else ():
        try:
            columns[name] = pa.array([row[name] for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue
    return pa.table(columns)
