"""One window of documents as rows of several: Arrow lists in, Arrow lists out.

Knows nothing of data sets; a forked worker of `datasets.map` runs it, so NumPy only.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._explain import explain
from ..packing import pack, split_long
from ..packing.runs import gathered

TooLong = Literal["error", "truncate", "split"]

IGNORED = -100  # the label of what is not to be learnt, as everywhere in transformers
COLUMNS = ("input_ids", "token_type_ids", "position_ids", "document_ids", "labels")


def packed_window(
    table: Any,
    indices: Sequence[int],
    *,
    capacity: int,
    column: str,
    too_long: TooLong,
    shifted: bool,
    document_ids: bool,
    pad_token_id: int,
    first_position: int,
    seed: int,
    format_version: int,
    known: bool = False,
) -> Any:
    r"""One window of documents as rows: what `pack_dataset` maps over a data set in Arrow's format.

    Args:
        table (`pyarrow.Table`), indices (sequence of `int`): the documents and their numbers in the data set.
        known (`bool`, *optional*, defaults to `False`): whether their lengths have been looked at, and warned of.

    Returns:
        `pyarrow.Table` of the rows.
    """
    import pyarrow as pa

    tokens = _flat(table, column)
    lengths = _lengths(table, column, indices)
    columns = {"input_ids": tokens}
    if "labels" in table.column_names or shifted:
        columns["labels"] = _labels(table, lengths) if "labels" in table.column_names else tokens
    if "token_type_ids" in table.column_names:
        columns["token_type_ids"] = _flat(table, "token_type_ids")
    for name, values in columns.items():
        if len(values) != len(tokens):
            raise ValueError(
                explain(
                    f"{len(values)} values in '{name}' for {len(tokens)} tokens in '{column}'",
                    got=f"documents {indices[0]} to {indices[-1]}",
                    fix=f"one value a token, or dataset.remove_columns('{name}')",
                )
            )
    if "attention_mask" in table.column_names:
        real = _flat(table, "attention_mask") != 0
        if not real.all():  # padding takes no room
            before = np.concatenate([[0], np.cumsum(real)])
            ends = np.cumsum(lengths)
            lengths = before[ends] - before[ends - lengths]
            columns = {name: values[real] for name, values in columns.items()}
    if not known and int(lengths.max(initial=0)) > capacity:
        tell_long(lengths, capacity, too_long, indices, counted=False)
    # Which run of tokens each piece is: a document, or a part of one.
    begins = np.cumsum(lengths) - lengths
    kept = np.flatnonzero(lengths)  # a document without tokens takes no room
    if too_long == "split":
        document, start, sizes = split_long(lengths[kept], capacity)
        begins = begins[kept][document] + start
    else:
        begins, sizes = begins[kept], np.minimum(lengths[kept], capacity)
    plan = pack(sizes, capacity, seed=seed)
    sizes, begins = sizes[plan.order], begins[plan.order]
    made = {name: gathered(values, begins, sizes)[0] for name, values in columns.items()}
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # 0, 1, … in every piece
    if shifted:
        made["labels"][within == 0] = IGNORED
    made["position_ids"] = within + first_position
    number = np.arange(len(sizes)) - np.repeat(plan.row_offsets[:-1], np.diff(plan.row_offsets))
    if document_ids:
        made["document_ids"] = np.repeat(number, sizes)
    fills = {"input_ids": pad_token_id, "labels": IGNORED, "position_ids": first_position, "document_ids": -1}
    inside = np.arange(capacity) < plan.row_lengths[:, None]  # (R, capacity)
    offsets = np.arange(len(plan) + 1, dtype=np.int32) * capacity
    arrays = {}
    for name in COLUMNS:
        if name in made:
            row = np.full(inside.shape, fills.get(name, 0), dtype=np.int32)
            row[inside] = made[name]
            arrays[name] = pa.ListArray.from_arrays(offsets, row.ravel())
    return pa.table(arrays)


def tell_long(
    lengths: NDArray[np.int64], capacity: int, too_long: TooLong, numbers: Sequence[int], *, counted: bool
) -> None:
    """Refuses documents that are too long, or says that they are cut; once, so without a count window by window."""
    beyond = int((lengths > capacity).sum())
    if too_long == "error":
        longest = int(lengths.argmax())
        raise ValueError(
            explain(
                f"document {numbers[longest]} has {lengths[longest]} tokens, a row holds {capacity}",
                got=f"{beyond} of {len(lengths)} documents longer than the capacity",
                fix='too_long="split" makes several of them, too_long="truncate" cuts them',
            )
        )
    if too_long == "truncate":
        some = f"{beyond} of {len(lengths)} documents were" if counted else "documents of the stream are"
        warnings.warn(f"{some} cut to {capacity} tokens", stacklevel=4)


def _flat(table: Any, name: str) -> NDArray[Any]:
    """The values of a column of lists, one after the other."""
    import pyarrow.compute as pc

    values: NDArray[Any] = pc.list_flatten(table.column(name)).to_numpy()
    return values


def _lengths(table: Any, name: str, indices: Sequence[int]) -> NDArray[np.int64]:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(table.column(name))
    if lengths.null_count:
        missing = np.flatnonzero(lengths.is_null().to_numpy())
        raise ValueError(
            explain(
                f"row {indices[int(missing[0])]} of column '{name}' is None, expected a list of tokens",
                got=f"{len(missing)} missing of {len(lengths)} rows",
                fix=f'dataset.filter(lambda row: row["{name}"] is not None)',
            )
        )
    counted: NDArray[np.int64] = lengths.to_numpy().astype(np.int64)
    return counted


def _labels(table: Any, lengths: NDArray[np.int64]) -> NDArray[Any]:
    import pyarrow as pa

    kind = table.column("labels").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise ValueError(
            explain(
                "packed rows hold several documents, so one label a row has no place in them",
                got=f"column 'labels' of type {kind}, {len(lengths)} documents",
                fix="one label a token, or dataset.remove_columns('labels')",
            )
        )
    return _flat(table, "labels")
