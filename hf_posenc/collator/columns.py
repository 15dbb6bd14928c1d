"""Output of `collate.columns`: dicts for `datasets.map`, Arrow tables, and their `datasets.Features`."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import explain, in_bytes, require_one_split, type_error, value_error
from ..documents import LABEL_COLUMNS, LENGTHS, MASK_NUMBERS, NUMBERS, OFFSETS, TOKEN_INDICES, Documents
from ..ragged import Ragged
from .arrays import as_array
from .inputs import as_list, label_names
from .other_columns import name_taken, padded_indices
from .pipeline import to_documents
from .targets import pad_targets

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from ..positions import PositionalEmbedding
    from .config import Config

_one_at_a_time = threading.Lock()  # `_embed_rows` changes global state: training modes and the number of threads
_IMPORTED_IN = os.getpid()
_LARGEST = 1 << 30  # characters of repeated texts in a table

Column = Ragged | NDArray[Any] | Sequence[Any]


def to_columns(config: Config, rows: Documents, embedder: PositionalEmbedding | None) -> dict[str, Column]:
    r"""Return the new columns of tokenized rows by name, such as `input_ids`; raise if the input has one of the names.

    A new column with values per token is a `Ragged` (a flat array with row lengths), or a padded array with
    `padding="max_length"`. `to_mapping` and `to_table` convert the result for the user.
    """
    ids, length = rows.ids, config.fixed_length

    def padded(name: str, column: Ragged) -> Column:
        return column if length is None else column.pad(config.fills[name], length, side=config.side)

    per_token = _per_token(config, rows)
    listed = [name for name in config.names if name in per_token]
    other_names = [name for name in per_token if name not in (*listed, "input_ids")]
    columns = {name: padded(name, per_token[name]) for name in (*listed, *other_names)}
    if rows.targets is not None:
        is_padded = length is not None and config.target_limits.max_length is not None
        columns["labels"] = pad_targets(config, rows.targets.ids)["labels"] if is_padded else rows.targets.ids
    if config.limits.overflow:
        columns["overflow_to_sample_mapping"] = rows.given_row
    if embedder is not None:
        columns["inputs_embeds"] = padded("inputs_embeds", _embed_rows(config, rows, embedder))
    for name, values in rows.per_row.items():
        if name in columns or (name == "length" and rows.source == "texts"):
            raise ValueError(name_taken(name, rows))
        if name in TOKEN_INDICES and rows.source != "texts" and config.takes(name):  # they move with their tokens
            array = as_array(name, as_list(values))
            if array is not None:
                width, side = (ids.lengths, "right") if length is None else (length, config.side)
                columns[name] = padded_indices(rows, array, width, side)
    return {**columns, **_boundaries(rows), "length": ids.lengths}


def _per_token(config: Config, rows: Documents) -> dict[str, Ragged]:
    """Return the columns with one value per token to store: those of the rows, and their boundaries and masks.

    Labels are among them if masks of supervision select the tokens to train on; others are made for each batch.
    """
    per_token = dict(rows.columns)
    # The columns depend on those that were given, not on the rows, because `map` needs the same ones in every batch.
    is_separated = not set(rows.boundaries) <= {"attention_mask"} or "position_ids" in per_token
    if is_separated:
        names = ["document_ids", *(name for name in NUMBERS if name in rows.boundaries)]
        per_token |= dict.fromkeys(names, rows.document_ids)
        per_token["position_ids"] = rows.positions(config.first_position)
    if not is_separated or not {"attention_mask", MASK_NUMBERS}.isdisjoint(rows.boundaries):
        has_global = config.accepts is not None and "global_attention_mask" in config.accepts  # 2 is no document there
        mask = np.ones_like(rows.ids.values) if has_global else rows.document_ids.values + 1
        per_token["attention_mask"] = Ragged(mask, rows.ids.lengths)
    given = [name for name in LABEL_COLUMNS if name in rows.columns]
    if rows.masks and config.predicts_next and config.label_maker is not None and not label_names(rows.per_row):
        documents, shares_row = rows.split(), rows.is_several[rows.row_of_document]
        labels = documents.columns[given[0]] if given else config.label_maker(documents)[1]
        labels, _ = documents.supervise(labels, predicts_next=True, shares_row=shares_row)
        per_token[given[0] if given else "labels"] = rows.in_rows(labels)
    return per_token


def _boundaries(rows: Documents) -> dict[str, Column]:
    """Return the given columns of the lengths or offsets of documents, for the documents after truncation."""
    if rows.source == "texts":
        return {}
    sizes = Ragged(rows.ids.lengths, np.ones(len(rows.ids), np.int64)) if rows.sizes is None else rows.sizes
    columns: dict[str, Column] = {name: sizes for name in LENGTHS if name in rows.per_row}
    if not rows.per_row.keys().isdisjoint(OFFSETS):
        offsets = Ragged.from_rows([np.append(0, np.cumsum(row)) for row in sizes])
        columns |= {name: offsets for name in OFFSETS if name in rows.per_row}
    return columns


def _embed_rows(config: Config, rows: Documents, embedder: PositionalEmbedding) -> Ragged:
    """Return the embeddings `(N, D)` of all tokens, positions included, as a `Ragged` without gradient."""
    # Only one thread computes, because torch's threads do not survive a fork.
    device = embedder.embedding.weight.device
    ids = torch.from_numpy(rows.ids.values[None]).to(device)  # (1, N)
    positions = torch.from_numpy(rows.positions(config.first_position).values[None]).to(device)
    # A forked process skips the lock: it has one thread, and a thread of the parent may have held the lock.
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
    return Ragged(flat.numpy(), rows.ids.lengths)


def to_mapping(columns: Mapping[str, Column]) -> dict[str, Any]:
    r"""Return columns as a dict for `datasets.map`. A `Ragged` becomes a list with one array per row.

    Example:
        >>> to_mapping({"input_ids": Ragged.from_rows([[1, 2], [3]])})
        {'input_ids': [array([1, 2]), array([3])]}
    """
    return {name: _Rows(column) if isinstance(column, Ragged) else as_list(column) for name, column in columns.items()}


class _Rows(list[Any]):
    """List with one array per row, for a column in which rows may differ in length.

    Reading an attribute such as `shape` raises an `AttributeError` that suggests `collate.batch`.
    """

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            explain(
                f"collate(columns) returns columns, rows of different lengths, which have no attribute '{name}'",
                got="a mapping of columns, such as dataset[:4]",
                fix="collate.batch(dataset[:4]), which returns padded tensors",
            )
        )


def check_repeated(columns: Mapping[str, Any]) -> None:
    """Raise `ValueError` if texts, repeated for each of their rows, would fill the memory as a column of a table."""
    for name, values in columns.items():
        size = sum(len(value) for value in values if isinstance(value, str)) if isinstance(values, list) else 0
        if size > _LARGEST:
            raise value_error(
                f"column {name!r} repeats long texts for each of their rows, and a table would hold {in_bytes(size)}",
                got=f"return_overflowing_tokens=True, {len(values):,} rows",
                fix=f"dataset.with_format(None).map(collate, batched=True, remove_columns=[{name!r}])",
            )


def to_table(columns: Mapping[str, Column]) -> pa.Table:
    r"""Return columns as an Arrow table. A `Ragged` becomes a list column, without a loop over its rows.

    Example:
        >>> to_table({"input_ids": Ragged.from_rows([[1, 2], [3]])}).schema.field("input_ids").type
        ListType(list<item: int64>)
    """
    import pyarrow as pa

    arrays = {}
    for name, column in columns.items():
        try:
            arrays[name] = _arrow(column, pa)
        except (ValueError, TypeError, OverflowError) as error:  # several types, or one that Arrow lacks
            raise type_error(
                f"the values of column {name!r} fit no Arrow type",
                got=str(error),
                fix="convert them to one type, such as int, float or str; or leave the column out",
            ) from error
    return pa.table(arrays)


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


def features_of(config: Config, rows: Any, dropped: set[str]) -> Features:
    """Return the `datasets.Features` of the columns that the collator returns for `rows`.

    `dropped` are names of columns of `rows` to leave out. Columns that the collator makes itself are never left out.
    """
    import datasets

    tokenized, _ = to_documents(config, first_rows(rows))
    columns = to_mapping({**tokenized.per_row, **to_columns(config, tokenized, None)})
    removed = dropped & (tokenized.per_row.keys() - {"length", *TOKEN_INDICES})
    kept = {name: column for name, column in columns.items() if name not in removed}
    features = dict(datasets.Dataset.from_dict(kept).features)
    row_features = dict(getattr(rows, "features", None) or {})
    features.update(
        {name: kind for name, kind in row_features.items() if name in features and name not in ("input_ids", "length")}
    )
    if config.settings.store_embeddings:
        # `datasets` writes arrays with this feature at 1,150 MB/s, without it at 890, and lists of Python floats at 35.
        dtype = str(config.embedder.stored_dtype).removeprefix("torch.")
        shape = (config.fixed_length, config.embedder.ready().d_model)
        features["inputs_embeds"] = datasets.Array2D(shape=shape, dtype=dtype)
    return datasets.Features(features)


def first_rows(rows: Any, count: int = 4) -> Any:
    r"""Return the first `count` rows of a data set, columns, a table or a sequence; all rows if there are fewer.

    Example:
        >>> first_rows({"text": ["a", "b", "c"]}, 2), first_rows(["a", "b", "c"], 2)
        ({'text': ['a', 'b']}, ['a', 'b'])
    """
    require_one_split(rows)
    if hasattr(rows, "with_format"):
        rows = rows.with_format(None)
        if not hasattr(rows, "__len__"):  # a stream
            return list(rows.take(count))
    if isinstance(rows, Mapping):
        return {name: rows[name][:count] for name in rows}
    return rows.slice(0, count).to_pydict() if hasattr(rows, "to_pydict") else rows[:count]
