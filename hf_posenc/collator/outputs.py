"""Tokenised columns on their way out: to `datasets.map`, to Arrow, and what they are called there.

Storage only: what the columns hold was decided when the texts were arranged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..ragged import Ragged
from .columns import repeated
from .inputs import is_table, read

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from .arrange import Pieces
    from .collator import DataCollatorWithPositionalEncoding

Column = Ragged | NDArray[Any] | Sequence[Any]

# How many rows are looked at to know what columns look like.
_SAMPLE = 4


def to_columns(collator: DataCollatorWithPositionalEncoding, pieces: Pieces, given: object) -> Any:
    r"""The columns of these pieces, as a table where a table came in and as a mapping everywhere else.

    Args:
        collator (`DataCollatorWithPositionalEncoding`): its settings say which columns there are.
        pieces (`Pieces`): the tokenised rows.
        given (`object`): what the caller handed over.

    Returns:
        `dict` or `pyarrow.Table`.
    """
    columns: dict[str, Column] = {}
    padded = collator.padding == "max_length"
    for name, ragged, fill in pieces.to_store(collator):
        if padded and ragged is not pieces.targets:
            columns[name] = ragged.pad(fill, collator.max_length, side=pieces.side)
        else:
            columns[name] = ragged
    columns["length"] = pieces.ids.lengths
    if collator.return_overflowing_tokens:
        columns["overflow_to_sample_mapping"] = pieces.sample
    if collator.store_embeddings:
        columns["inputs_embeds"] = _stored_embeddings(collator, pieces)
    for name, values in pieces.columns.items():
        columns.setdefault(name, repeated(values, pieces.sample) if pieces.is_split else values)
    return to_table(columns) if is_table(given) else to_mapping(columns)


def _stored_embeddings(collator: DataCollatorWithPositionalEncoding, pieces: Pieces) -> Column:
    """All rows in one run without padding; on one thread, because torch's others do not survive a fork."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        table = collator._embedder
        device = table.embedding.weight.device
        ids = torch.from_numpy(pieces.ids.values[None]).to(device)
        positions = torch.from_numpy(pieces.positions.values[None]).to(device)
        was_training = table.training
        with torch.no_grad():
            flat = table.eval()(ids, position_ids=positions)[0].cpu()
        table.train(was_training)
    finally:
        torch.set_num_threads(threads)
    if flat.dtype == torch.bfloat16:  # neither NumPy nor Arrow has it
        flat = flat.float()
    rows = Ragged(flat.numpy(), pieces.ids.lengths)
    if collator.padding != "max_length":
        return rows
    out = np.zeros((len(rows), collator.max_length or 0, flat.shape[1]), dtype=rows.values.dtype)
    out[pieces.ids.mask(collator.max_length, side=pieces.side, dtype=np.bool_)] = rows.values
    return out


def to_mapping(columns: Mapping[str, Column]) -> dict[str, Any]:
    r"""Columns as `datasets.map` stores them fast: arrays, and lists of arrays where rows differ in length.

    Example:
        >>> to_mapping({"input_ids": Ragged.from_rows([[1, 2], [3]])})
        {'input_ids': [array([1, 2]), array([3])]}
    """
    return {name: list(column) if isinstance(column, Ragged) else column for name, column in columns.items()}


def to_table(columns: Mapping[str, Column]) -> pa.Table:
    r"""Columns as an Arrow table: rows of different lengths become lists without a copy of each row.

    Example:
        >>> to_table({"input_ids": Ragged.from_rows([[1, 2], [3]])}).schema.field("input_ids").type
        ListType(list<item: int64>)
    """
    import pyarrow as pa

    return pa.table({name: _arrow(column, pa) for name, column in columns.items()})


def _arrow(column: Column, pa: Any) -> Any:
    if isinstance(column, Ragged):
        flat = column.values
        values = pa.array(flat.reshape(-1)) if flat.ndim == 1 else _fixed_lists(flat, pa)
        return pa.ListArray.from_arrays(pa.array(column.offsets.astype(np.int32)), values)
    if isinstance(column, np.ndarray) and column.ndim > 1:
        return _fixed_lists(column, pa)
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)


def _fixed_lists(array: NDArray[Any], pa: Any) -> Any:
    values = pa.array(array.reshape(-1))
    for size in reversed(array.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def features_of(collator: DataCollatorWithPositionalEncoding, rows: Any) -> Features:
    r"""The `datasets.Features` of what `collator.columns` gives for such rows.

    Args:
        collator (`DataCollatorWithPositionalEncoding`): its settings say which columns there are.
        rows (`datasets.Dataset`, columns or rows): the first of them are tokenised to see.

    Returns:
        `datasets.Features`.
    """
    import datasets

    theirs: dict[str, Any] = {}
    if isinstance(rows, datasets.Dataset):
        theirs, rows = dict(rows.features), rows[:_SAMPLE]
    else:
        given = read(rows, collator._names)
        columns = dict(given.columns) or {collator.text_column: given.texts or []}
        rows = {name: list(values)[:_SAMPLE] for name, values in columns.items()}
    table = collator.replace(store_embeddings=False).columns(rows)
    found = dict(datasets.Dataset.from_dict(table).features)
    found.update({name: kind for name, kind in theirs.items() if name in table and name not in ("input_ids", "length")})
    if collator.store_embeddings:
        width = collator._embedder.d_model
        dtype = "float16" if collator._embedder.embedding.weight.dtype == torch.float16 else "float32"
        length = collator.max_length if collator.padding == "max_length" else None
        found["inputs_embeds"] = datasets.Array2D(shape=(length, width), dtype=dtype)
    return datasets.Features(found)
