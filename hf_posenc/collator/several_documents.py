"""Packed batches: several documents in a row, or all documents in one flat row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._common.errors import shorten, value_error
from ..documents import PER_TOKEN, Documents, pack_rows
from ..ragged import Ragged, offsets_of, round_up
from .config import Config


def packed_rows(config: Config, documents: Documents) -> dict[str, Ragged]:
    """Return the columns of packed rows, each of at most `max_length` tokens."""
    assert config.limits.max_length is not None
    return pack_rows(_packed(config, documents), config.limits.max_length, first_position=config.first_position)


def flat_row(config: Config, documents: Documents) -> dict[str, Any]:
    """Return a batch with all documents in a single row, one after another, like `DataCollatorWithFlattening`.

    Columns of the batch are `(1, N)` int64, and `seq_idx` `(1, N)` int32 has the number of each token's document.
    `cu_seq_lens_q` and `cu_seq_lens_k`, int32, are the offsets of the documents. `max_length_q` and `max_length_k`,
    `int`, are the length of the longest document.

    With `pad_to_multiple_of`, padding tokens with labels of -100 follow, as documents of their own, and `torch.compile`
    meets few shapes: the largest length is rounded up, and the last offset is repeated up to 16, 32, 64, ... offsets.
    """
    columns = _packed(config, documents)
    ids, position_ids = columns["input_ids"], columns.pop("position_ids", None)
    if position_ids is not None and not np.array_equal(position_ids.values, ids.counters(config.first_position).values):
        raise value_error(
            f"in a flat row the positions of each document must be consecutive, from {config.first_position}: "
            "they separate the documents",
            got=f"position_ids {shorten(position_ids.values.tolist())}",
            fix='dataset.remove_columns("position_ids"), or packing=True',
        )
    multiple = config.settings.pad_to_multiple_of
    if padding := -len(ids.values) % (multiple or 1):
        # A model may limit the length of a document, so the padding is divided like a long text.
        parts = np.diff([*range(0, padding, config.limits.max_length or padding), padding])
        for name, column in columns.items():
            fill = np.full((padding, *column.values.shape[1:]), config.fills[name], column.values.dtype)
            columns[name] = Ragged(np.concatenate([column.values, fill]), np.append(column.lengths, parts))
    lengths = columns["input_ids"].lengths
    lengths = lengths[lengths > 0]
    offsets = offsets_of(lengths).astype(np.int32)
    # Documents without tokens cost a kernel little, but its grid has a place for each of them, so there are not T.
    if multiple is not None and not (config.model is not None and config.model.is_recurrent):
        count = max(16, 1 << (len(offsets) - 1).bit_length())
        offsets = np.pad(offsets, (0, count - len(offsets)), mode="edge")
    longest = round_up(int(lengths.max(initial=0)), multiple)
    return {
        **{name: column.values[None] for name, column in columns.items()},
        "position_ids": columns["input_ids"].counters(config.first_position).values[None],
        "seq_idx": np.arange(len(lengths), dtype=np.int32).repeat(lengths)[None],
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets.copy(),
        "max_length_q": longest,
        "max_length_k": longest,
    }


def _packed(config: Config, documents: Documents) -> dict[str, Ragged]:
    """Return the columns of documents that packed rows keep."""
    names = [name for name, column in PER_TOKEN.items() if column.packed]
    names += [name for name in config.settings.token_columns if config.takes(name)]
    if "labels" not in documents.columns:  # whoever makes labels of the packed rows needs them
        names += documents.masks
    if "token_type_ids" not in config.names:
        names.remove("token_type_ids")
    return {name: documents.columns[name] for name in ("input_ids", "labels", *names) if name in documents.columns}
