"""Packed batches: several documents in a row, or all documents in one flat row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from ..documents import FURTHER_PER_TOKEN, Documents, ignore_document_starts
from ..ragged import Ragged, offsets_of
from .arrays import are_copies
from .config import Config
from .targets import have_target, supervised_rows


def documents_to_pack(config: Config, documents: Documents) -> tuple[dict[str, Ragged], int]:
    """Return the columns of documents to pack, and the number of documents left out.

    With the setting `unsupervised="drop"`, documents without a target are left out. If each label is predicted from the
    token before it, the first label of each document is set to -100.
    """
    names = ["input_ids", "position_ids", "labels", *({"token_type_ids"} & set(config.names)), *FURTHER_PER_TOKEN]
    columns = {name: documents.columns[name] for name in names if name in documents.columns}
    if "labels" in columns:
        columns["labels"] = ignore_document_starts(columns["labels"], predicts_next(config, documents))
        has_target = have_target(columns["labels"])
        supervised = supervised_rows(config, has_target, documents.ids.lengths, documents)
        if supervised is not None:
            columns = {name: column.take(supervised) for name, column in columns.items()}
    return columns, len(documents.ids) - len(columns["input_ids"])


def flat_row(config: Config, documents: dict[str, Ragged]) -> dict[str, Any]:
    """Return a batch with all documents in a single row, one after another, like `DataCollatorWithFlattening`.

    `documents` are the columns from `documents_to_pack`. Columns of the batch are `(1, N)` int64, and `seq_idx`
    `(1, N)` int32 has the number of each token's document. `cu_seq_lens_q` and `cu_seq_lens_k`, int32, are the offsets
    of the documents. `max_length_q` and `max_length_k`, `int`, are the length of the longest document.

    With `pad_to_multiple_of`, padding tokens with labels of -100 follow, as documents of their own.
    """
    ids, position_ids = documents["input_ids"], documents.get("position_ids")
    if position_ids is not None and not np.array_equal(position_ids.values, ids.counters(config.first_position).values):
        raise value_error(
            f"in a flat row the positions of each document must be consecutive, from {config.first_position}: "
            "they separate the documents",
            got=f"position_ids {shorten(position_ids.values.tolist())}",
            fix='dataset.remove_columns("position_ids"), or packing=True',
        )
    columns = {
        name: documents[name]
        for name in ("input_ids", "labels", "token_type_ids", *FURTHER_PER_TOKEN)
        if name in documents
    }
    padding = -len(ids.values) % (config.settings.pad_to_multiple_of or 1)
    # A model may limit the length of a document, so the padding is divided like a long text.
    parts = np.diff([*range(0, padding, config.limits.max_length or max(padding, 1)), padding])
    for name, column in columns.items():
        columns[name] = Ragged.joined([column, Ragged(np.full(padding, config.fills[name]), parts)])
    lengths = columns["input_ids"].lengths
    lengths = lengths[lengths > 0]
    offsets = offsets_of(lengths).astype(np.int32)
    return {
        **{name: column.values[None] for name, column in columns.items()},
        "position_ids": columns["input_ids"].counters(config.first_position).values[None],
        "seq_idx": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[None],
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets.copy(),
        "max_length_q": int(lengths.max(initial=0)),
        "max_length_k": int(lengths.max(initial=0)),
    }


def predicts_next(config: Config, documents: Documents) -> NDArray[np.bool_] | bool:
    """Return True for documents whose labels are predicted from the token before, as in a causal language model.

    The setting `labels` decides. Without it, the model decides. Without both, return True for `packing="flat"`, and for
    `packing=True` if the labels of the document are copies of its ids.
    """
    if config.label_kind is not None:
        return config.label_kind.predicts_next
    if config.shifts_labels is not None:
        return config.shifts_labels
    packing = config.settings.packing
    return packing == "flat" or (packing and are_copies(documents.columns["labels"], documents.ids))
