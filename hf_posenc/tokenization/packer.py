"""Packing of tokenized documents into rows, and the labels of packed rows.

`packing.pack` assigns documents to rows by their lengths; this module copies their tokens into the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._common.constants import IGNORED
from ..packing import pack
from ..ragged import Ragged

# Text that `pack_dataset` stores as `attention_mask`. transformers' default_data_collator leaves texts out of a batch.
# Other collators call `tokenizer.pad`, which adds a mask of ones to rows without a mask, but raises for this text.
NO_MASK = (
    "none: with a mask, packed documents would attend to each other; "
    "use data_collator=transformers.default_data_collator"
)


def pack_rows(
    documents: Mapping[str, Ragged], capacity: int, *, seed: int | None = None, first_position: int = 0
) -> dict[str, Ragged]:
    r"""Pack tokenized documents into rows: one or more documents per row, with at most `capacity` tokens in total.

    Example:
        >>> rows = pack_rows({"input_ids": Ragged.from_rows([[5, 6], [7], [8, 9, 4]])}, 4)
        >>> rows["input_ids"].pad(0)
        array([[8, 9, 4, 7],
               [5, 6, 0, 0]])
        >>> rows["position_ids"].pad(0), rows["document_ids"].pad(-1)
        (array([[0, 1, 2, 0],
               [0, 1, 0, 0]]), array([[ 0,  0,  0,  1],
               [ 0,  0, -1, -1]]))
    """
    ids = documents["input_ids"]
    filled = np.flatnonzero(ids.lengths)
    plan = pack(ids.lengths[filled], capacity, seed=seed)
    index, place = plan.places(ids.offsets[:-1][filled])
    lengths = plan.row_lengths
    rows = {name: Ragged(column.values[index], lengths) for name, column in documents.items()}
    if "position_ids" not in rows:
        rows["position_ids"] = Ragged(place + first_position, lengths)
    number = np.arange(len(plan.order)) - np.repeat(plan.row_offsets[:-1], np.diff(plan.row_offsets))
    rows["document_ids"] = Ragged(np.repeat(number, plan.lengths[plan.order]), lengths)
    return rows


def is_no_mask(values: Any) -> bool:
    r"""Return True if the column `attention_mask` of a packed data set has the text `NO_MASK` instead of masks.

    `pack_dataset` writes this text, because a mask of ones would not separate the documents of a row. `values` is the
    column; only its first value is compared.

    Example:
        >>> is_no_mask([NO_MASK]), is_no_mask([[1, 1, 0]])
        (True, False)
    """
    first = next(iter(values), None) if getattr(values, "ndim", 1) and hasattr(values, "__iter__") else None
    return type(first).__name__ in ("str", "str_", "StringScalar") and str(first) == NO_MASK


def ignore_document_starts(labels: Ragged, documents: Ragged | None = None) -> Ragged:
    r"""Return labels with -100 at the first token of each document.

    A causal model predicts each label from the token before it, so it would predict the first token of a document from
    the end of another document.

    Example:
        >>> ignore_document_starts(Ragged.from_rows([[5, 6, 7], [8, 9]])).values
        array([-100,    6,    7, -100,    9])
    """
    values = labels.values.copy()
    values[labels.offsets[:-1][labels.lengths > 0]] = IGNORED
    if documents is not None:
        values[np.diff(documents.values, prepend=-1) != 0] = IGNORED
    return Ragged(values, labels.lengths)
