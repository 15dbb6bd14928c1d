"""Tokenised columns as results: for `datasets.map`, as Arrow tables, and their `datasets.Features`.

Storage only: what the columns hold was decided when the texts were arranged.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain
from ..ragged import Ragged
from .inputs import as_list, is_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from ..embedding import PositionalEmbedding
    from .arrange import Pieces
from .arrangement import Arrangement

_one_at_a_time = threading.Lock()  # modes of modules and the number of threads are everybody's
_IMPORTED_IN = os.getpid()

Column = Ragged | NDArray[Any] | Sequence[Any]


def to_columns(
    how: Arrangement, pieces: Pieces, embedder: PositionalEmbedding | None, *, carried: bool = True
) -> dict[str, Column]:
    r"""Return the columns of these pieces, by name.

    Args:
        how (`Arrangement`): its padding and names say which columns there are, and whether they are padded.
        pieces (`Pieces`): the tokenised rows.
        embedder (`PositionalEmbedding`, *optional*): adds `inputs_embeds`.
        carried (`bool`, *optional*, defaults to `True`): add the columns that came.

    Returns:
        `dict`; `to_mapping` and `to_table` put it into the caller's form.

    Raises:
        ValueError: if a column that came has the name of one that is made.
    """
    length = how.limit if how.padding == "max_length" else None
    inside = pieces.ids.inside(length, side=how.side) if length is not None else None
    ones = Ragged(np.ones(len(pieces.ids.values), dtype=np.int64), pieces.ids.lengths)
    own = {"input_ids": pieces.ids, "attention_mask": ones, **pieces.per_token}
    listed = [name for name in how.names if name in own]
    brought = [name for name in pieces.per_token if name not in listed and name != "token_type_ids"]
    columns: dict[str, Column] = {}
    for name in (*listed, *brought):
        column = own[name]
        columns[name] = column if length is None else column.pad(how.fills[name], length, side=how.side, inside=inside)
    if pieces.targets is not None:
        columns["labels"] = pieces.targets
    if how.overflow:
        columns["overflow_to_sample_mapping"] = pieces.sample
    if embedder is not None:
        rows = _embedded(how, pieces, embedder)
        columns["inputs_embeds"] = rows if inside is None else _padded(rows, inside)
    for name in pieces.columns:
        if name in columns or (name == "length" and pieces.from_texts):
            raise ValueError(
                explain(
                    f"column '{name}' came with the texts, and tokenising makes one of that name",
                    got=list(pieces.columns),
                    fix=f"dataset.rename_column('{name}', 'my_{name}')",
                )
            )
        if carried:
            columns[name] = _carried(pieces, name)
    columns["length"] = pieces.ids.lengths
    return columns


def _carried(pieces: Pieces, name: str) -> Column:
    """Return a column that came, as Arrow where it is one of Arrow."""
    values: Any = pieces.columns[name]
    if not is_arrow(values):
        return pieces.column(name)
    taken: Column = values.take(pieces.sample) if pieces.is_split else values
    return taken


def _embedded(how: Arrangement, pieces: Pieces, embedder: PositionalEmbedding) -> Ragged:
    """Embed all rows at once without padding, on one thread, because torch's others do not survive a fork."""
    device = embedder.embedding.weight.device
    ids = torch.from_numpy(pieces.ids.values[None]).to(device)  # (1, N)
    positions = torch.from_numpy(pieces.positions(how.start).values[None]).to(device)
    # A forked process has one thread, and the lock may have been held in another one when it was forked.
    with _one_at_a_time if os.getpid() == _IMPORTED_IN else contextlib.nullcontext():
        threads, modes = torch.get_num_threads(), [(module, module.training) for module in embedder.modules()]
        torch.set_num_threads(1)
        try:
            with torch.no_grad():
                flat = embedder.eval()(ids, position_ids=positions)[0].cpu()  # (N, D)
        finally:
            for module, was_training in modes:
                module.training = was_training
            torch.set_num_threads(threads)
    if flat.dtype == torch.bfloat16:  # neither NumPy nor Arrow has it
        flat = flat.float()
    return Ragged(flat.numpy(), pieces.ids.lengths)


def _padded(rows: Ragged, inside: NDArray[np.bool_]) -> NDArray[Any]:
    out = np.zeros((*inside.shape, rows.values.shape[1]), dtype=rows.values.dtype)  # (B, T, D)
    out[inside] = rows.values
    return out


class _NoTensors:
    """Words for the attributes of a batch and its tensors, which columns do not have."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            explain(
                f"collate(columns) returns columns, rows of different lengths, which have no attribute '{name}'",
                got="a mapping of columns, such as dataset[:4]",
                fix="collate.batch(dataset[:4]), which is padded tensors",
            )
        )


class _Columns(_NoTensors, dict[str, Any]):
    """Columns by name."""


class _Rows(_NoTensors, list[Any]):
    """Rows of a column, as arrays."""


def to_mapping(columns: Mapping[str, Column]) -> dict[str, Any]:
    r"""Return columns as `datasets.map` stores them fast: arrays, and lists of arrays where rows differ in length.

    Example:
        >>> to_mapping({"input_ids": Ragged.from_rows([[1, 2], [3]])})
        {'input_ids': [array([1, 2]), array([3])]}
    """
    return _Columns(
        (name, _Rows(column) if isinstance(column, Ragged) else as_list(column)) for name, column in columns.items()
    )


def to_table(columns: Mapping[str, Column]) -> pa.Table:
    r"""Return columns as an Arrow table: rows of different lengths become lists without a copy of each row.

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
    return column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)


def _fixed_lists(array: NDArray[Any], pa: Any) -> Any:
    values = pa.array(array.reshape(-1))
    for size in reversed(array.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def features_of(
    columns: dict[str, Any], known: Mapping[str, Any], embedded: tuple[int | None, int, str] | None
) -> Features:
    r"""Return the `datasets.Features` of tokenised columns.

    Args:
        columns (`dict`): a few rows of them, without embeddings.
        known (mapping from `str` to feature): what the data set says of the columns that it brings.
        embedded (`tuple`, *optional*): length, width and dtype of `inputs_embeds`; length `None` where it varies.

    Returns:
        `datasets.Features`; embeddings are `Array2D`, which stores and reads fastest.
    """
    import datasets

    found = dict(datasets.Dataset.from_dict(columns).features)
    found.update({name: kind for name, kind in known.items() if name in found and name not in ("input_ids", "length")})
    if embedded is not None:
        length, width, dtype = embedded
        found["inputs_embeds"] = datasets.Array2D(shape=(length, width), dtype=dtype)
    return datasets.Features(found)
