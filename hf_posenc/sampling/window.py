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
from ..positions import by_document, documents_by_positions
from .lengths import list_lengths

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
    columns, lengths, indices = _documents(table, column, indices, with_labels=shifted)
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
    at, within = plan.places(begins)
    made = {name: values[at] for name, values in columns.items()}
    if shifted:
        made["labels"][within == 0] = IGNORED
    made["position_ids"] = within + first_position
    if document_ids:
        number = np.arange(len(sizes)) - np.repeat(plan.row_offsets[:-1], np.diff(plan.row_offsets))
        made["document_ids"] = np.repeat(number, sizes[plan.order])
    fills = {"input_ids": pad_token_id, "labels": IGNORED, "position_ids": first_position, "document_ids": -1}
    return _rows(made, fills, plan.row_lengths, capacity)


def _documents(
    table: Any, column: str, indices: Sequence[int], *, with_labels: bool
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64], Sequence[int]]:
    """Return columns with one value a token, flat and without padding; the documents' lengths; the row of each."""
    lengths = list_lengths(table.column(column), column, indices)
    columns = {"input_ids": _flat(table, column)}
    for name in ("labels", "token_type_ids", "attention_mask", "document_ids", "position_ids"):
        if name not in table.column_names:
            continue
        if name == "labels":
            _check_labels(table)
        theirs = list_lengths(table.column(name), name, indices)
        if not np.array_equal(theirs, lengths):
            wrong = int(np.flatnonzero(theirs != lengths)[0])
            raise ValueError(
                explain(
                    f"row {indices[wrong]}: {theirs[wrong]} values in '{name}' for {lengths[wrong]} tokens",
                    got=f"{int((theirs != lengths).sum())} such rows of {len(lengths)}",
                    fix=f"one value a token, or dataset.remove_columns('{name}')",
                )
            )
        columns[name] = _flat(table, name)
    if with_labels:
        columns.setdefault("labels", columns["input_ids"])
    real = columns.pop("attention_mask", np.ones(1)) != 0
    if "document_ids" in columns:
        real = real & (columns["document_ids"] >= 0)
    if not real.all():  # padding takes no room
        before = np.concatenate([[0], np.cumsum(real)])
        ends = np.cumsum(lengths)
        lengths = before[ends] - before[ends - lengths]
        columns = {name: values[real] for name, values in columns.items()}
    positions, documents = columns.pop("position_ids", None), columns.pop("document_ids", None)
    if documents is None and positions is not None:
        documents = documents_by_positions(positions, lengths)
    if documents is None:
        return columns, lengths, indices
    order, lengths, rows = by_document(documents, lengths)  # rows that came packed
    return {name: values[order] for name, values in columns.items()}, lengths, np.asarray(indices)[rows].tolist()


def _rows(
    columns: dict[str, NDArray[Any]], fills: dict[str, int], row_lengths: NDArray[np.int64], capacity: int
) -> Any:
    """Rows of equal length as Arrow lists, filled up at their ends."""
    import pyarrow as pa

    places = len(row_lengths) * capacity
    if places > np.iinfo(np.int32).max:  # of Arrow's offsets
        raise ValueError(
            explain(
                f"a window of {len(row_lengths)} rows of {capacity} tokens is more than Arrow's lists hold",
                got=f"{places} tokens",
                fix="a smaller window=10_000",
            )
        )
    inside = np.arange(capacity) < row_lengths[:, None]  # (R, capacity)
    offsets = np.arange(len(row_lengths) + 1, dtype=np.int32) * capacity
    arrays = {}
    for name in COLUMNS:
        if name in columns:
            row = np.full(inside.shape, fills.get(name, 0), dtype=np.int32)
            row[inside] = columns[name]
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
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = pc.list_flatten(table.column(name))
    if len(flat) and (flat.null_count or not (pa.types.is_integer(flat.type) or pa.types.is_boolean(flat.type))):
        raise TypeError(
            explain(
                f"column '{name}' must hold lists of whole numbers",
                got=f"{flat.null_count} of {len(flat)} values are None" if flat.null_count else f"lists of {flat.type}",
                fix="tokenise first: dataset.map(collate, batched=True)",
            )
        )
    values: NDArray[Any] = flat.to_numpy() if len(flat) else np.zeros(0, dtype=np.int64)
    return values


def _check_labels(table: Any) -> None:
    import pyarrow as pa

    kind = table.column("labels").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise ValueError(
            explain(
                "packed rows hold several documents, so one label a row has no place in them",
                got=f"column 'labels' of type {kind}, {len(table)} documents",
                fix="one label a token, or dataset.remove_columns('labels')",
            )
        )
