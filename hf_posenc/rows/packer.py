"""The packer: documents of tokens into rows of several documents each, and their labels.

Which documents share a row is decided by `packing.pack`, which sees lengths only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..packing import pack
from ..ragged import Ragged

IGNORED = -100  # the label that the losses of torch and transformers ignore


def pack_rows(
    documents: Mapping[str, Ragged], capacity: int, *, seed: int | None = None, first_position: int = 0
) -> dict[str, Ragged]:
    r"""Pack documents into rows of at most `capacity` tokens.

    Args:
        documents (mapping from `str` to `Ragged`): `input_ids`, and further columns of the same lengths. A document
            without tokens is left out.
        capacity (`int`): tokens of a row.
        seed (`int`, *optional*): shuffles the rows, see `pack`.
        first_position (`int`, *optional*, defaults to 0): position of a document's first token.

    Returns:
        `dict`: the columns as rows, `position_ids` that restart with each document unless there are some already, and
        `document_ids`, counted from 0 in each row.

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


def ignore_document_starts(labels: Ragged, documents: Ragged | None = None) -> Ragged:
    r"""Return labels with -100 at the first token of each row, and of each document in it.

    A causal model predicts each label from the token before it. The first token of a document would be predicted from
    the end of another one.

    Args:
        labels (`Ragged` of int64): one label per token.
        documents (`Ragged` of int64, *optional*): number of each token's document; by default a row is one document.

    Example:
        >>> ignore_document_starts(Ragged.from_rows([[5, 6, 7], [8, 9]])).values
        array([-100,    6,    7, -100,    9])
    """
    values = labels.values.copy()
    values[labels.offsets[:-1][labels.lengths > 0]] = IGNORED
    if documents is not None:
        values[np.diff(documents.values, prepend=-1) != 0] = IGNORED
    return Ragged(values, labels.lengths)
