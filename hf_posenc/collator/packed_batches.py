"""Packed batches: several documents in a row, or all documents in one flat row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._common.errors import shorten, value_error
from ..ragged import Ragged, offsets_of
from ..tokenization import TokenRows, ignore_document_starts
from .arrays import are_copies
from .config import Config
from .labels import Labels
from .targets import supervised_rows


def documents_to_pack(config: Config, rows: TokenRows, labels: Labels) -> tuple[dict[str, Ragged], int]:
    """Return the columns to pack, with one row per document, and the number of documents left out.

    With the setting `unsupervised="drop"`, documents whose labels are all -100 are left out. If each label is predicted
    from the token before it, the first label of each document is set to -100.
    """
    if isinstance(labels, np.ndarray):
        raise value_error(
            "packed rows hold several documents, so one label per row does not fit them",
            got=f"labels of shape {labels.shape}",
            fix="packing=False, or one label per token",
        )
    if labels is not None:
        rows = rows.with_columns(labels=labels)
    kept = {"input_ids", "position_ids", "labels", *({"token_type_ids"} & set(config.names))}
    split = rows.split_documents()
    documents = {name: column for name, column in split.columns.items() if name in kept}
    if labels is not None:
        if predicts_next(config, documents["input_ids"], documents["labels"]):
            documents["labels"] = ignore_document_starts(documents["labels"])
        supervised = supervised_rows(config, documents["labels"], split)
        if supervised is not None:
            documents = {name: column.take(supervised) for name, column in documents.items()}
    return documents, len(split.ids) - len(documents["input_ids"])


def flat_row(config: Config, documents: dict[str, Ragged]) -> dict[str, Any]:
    """Return a batch with all documents in a single row, one after another, like `DataCollatorWithFlattening`.

    `documents` are the columns from `documents_to_pack`. Columns of the batch are `(1, N)` int64, and `seq_idx`
    `(1, N)` int32 has the number of each token's document. `cu_seq_lens_q` and `cu_seq_lens_k`, int32, are the offsets
    of the documents. `max_length_q` and `max_length_k`, `int`, are the length of the longest document.

    With `pad_to_multiple_of`, padding tokens with labels of -100 follow, as documents of their own.
    """
    ids, given = documents["input_ids"], documents.get("position_ids")
    if given is not None and not np.array_equal(given.values, ids.counters(config.first_position).values):
        raise value_error(
            f"in a flat row the positions of each document must be consecutive, from {config.first_position}: "
            "they separate the documents",
            got=f"position_ids {shorten(given.values.tolist())}",
            fix='dataset.remove_columns("position_ids"), or packing=True',
        )
    columns = {name: documents[name] for name in ("input_ids", "labels", "token_type_ids") if name in documents}
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


def predicts_next(config: Config, ids: Ragged, labels: Ragged) -> bool:
    """Return True if each label is predicted from the token before it, as in a causal language model.

    The setting `labels` decides. Without it, the model decides. Without both, return True for `packing="flat"`, and for
    `packing=True` if the labels are copies of the ids.
    """
    if config.label_kind is not None:
        return config.label_kind.predicts_next
    if config.shifts_labels is not None:
        return config.shifts_labels
    packing = config.settings.packing
    return packing == "flat" or (packing and are_copies(labels, ids))
