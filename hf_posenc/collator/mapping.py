"""Calls by `datasets.map`: detect them, and return a batch whose columns `map` can remove."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .inputs import is_lazy_batch

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


def first_rows(rows: Any, count: int = 4) -> Any:
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
