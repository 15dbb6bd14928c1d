"""From a batch, or from lengths, to the document number of each token: the one array that `AttentionMask` holds.

Reads and checks; what may be seen is decided by `AttentionMask`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .._explain import explain, one_of, shorten
from ..positions import documents_by_positions
from .plain import PaddingSide, as_integers, as_length

PADDING = -1  # the document number at padding


def documents_of_batch(batch: Mapping[str, Any]) -> torch.Tensor:
    """Return documents `(B, T)` int64 in fresh memory: `document_ids` where given, else read off `position_ids`."""
    if not isinstance(batch, Mapping):
        raise TypeError(
            explain(
                "a batch is a mapping with attention_mask, document_ids or position_ids",
                got=type(batch).__name__,
                fix='AttentionMask.from_batch({"attention_mask": mask}), or AttentionMask.from_lengths(lengths)',
            )
        )
    mask, documents, positions = (batch.get(name) for name in ("attention_mask", "document_ids", "position_ids"))
    real = None if mask is None else _real(mask)
    if documents is not None:
        ids = as_integers(documents, "document_ids", dims=2, example="document_ids: [[0, 0, 1, -1]]").long()
        if real is None:
            return ids.clamp(min=PADDING)
        return torch.where(real, _fitting(ids, "document_ids", real).clamp(min=PADDING), PADDING)
    if positions is not None:
        ids = as_integers(positions, "position_ids", dims=2, example="position_ids: [[0, 1, 2, 0, 1]]").long()
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        return documents_in(real, _fitting(ids, "position_ids", real))
    if real is None:
        raise ValueError(
            explain(
                "the batch needs attention_mask, document_ids, or the position_ids of packed rows",
                got=f"keys {shorten(list(batch))}",
                fix="AttentionMask.from_lengths(lengths)",
            )
        )
    return real.long() - 1


def documents_of_lengths(
    documents: Sequence[Sequence[int]], max_length: int | None, padding_side: PaddingSide
) -> torch.Tensor:
    """`(B, T)` int64: per row the lengths of its documents, which are numbered from 0 in each row."""
    if padding_side not in ("left", "right"):
        raise ValueError(one_of("padding_side", padding_side, ("left", "right")))
    rows = [_checked_row(row, index) for index, row in enumerate(documents)]
    sums = [sum(row) for row in rows]
    longest = max(sums, default=0)
    width = longest if max_length is None else as_length(max_length, "max_length")
    if width < longest:
        raise ValueError(
            explain(
                f"row {sums.index(longest)} has documents of {longest} tokens together, max_length is {width}",
                got=f"{sum(total > width for total in sums)} of {len(sums)} rows longer than max_length",
                fix=f"max_length={longest}, or pack(lengths, {width}) for rows that fit",
            )
        )
    table = np.full((len(rows), width), PADDING, dtype=np.int64)
    for line, row, total in zip(table, rows, sums, strict=True):
        begin = width - total if padding_side == "left" else 0
        line[begin : begin + total] = np.repeat(np.arange(len(row)), row)
    return torch.from_numpy(table)


def _checked_row(row: Sequence[int], index: int) -> list[int]:
    try:
        lengths = [operator.index(length) for length in row]
    except TypeError:
        raise TypeError(
            explain(
                f"row {index} must be the lengths of its documents, whole numbers",
                got=shorten(row),
                fix="AttentionMask.from_documents([[5, 9], [11]])",
            )
        ) from None
    for document, length in enumerate(lengths):
        if length <= 0:
            raise ValueError(
                explain(
                    f"every document needs at least one token; document {document} of row {index} has length {length}",
                    got=shorten(lengths),
                    fix="leave it out of the row; a row of padding alone is []",
                )
            )
    return lengths


def _real(mask: object) -> torch.Tensor:
    """`attention_mask` of any kind and dtype as bool `(B, T)`."""
    tensor = mask if isinstance(mask, torch.Tensor) else torch.from_numpy(np.array(mask))
    if tensor.ndim != 2:
        raise ValueError(
            explain(
                "attention_mask must have 2 dimensions, (batch, length)",
                got=f"shape {tuple(tensor.shape)}",
                fix="pass the tokenizer's attention_mask, 1 at real tokens and 0 at padding",
            )
        )
    return tensor != 0


def _fitting(ids: torch.Tensor, name: str, real: torch.Tensor) -> torch.Tensor:
    """`ids` in the shape of `real`; one row may stand for all of them."""
    if ids.shape not in (real.shape, (1, real.shape[1])):
        raise ValueError(
            explain(
                f"{name} and attention_mask must have the same shape",
                got=f"{tuple(ids.shape)} and {tuple(real.shape)}",
                fix='AttentionMask.from_batch({"attention_mask": mask}) if the rows are not packed',
            )
        )
    return ids.expand(real.shape)


def documents_in(real: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    r"""Documents `(B, T)` int64 as `documents_by_positions` reads them, on the device of `real` `(B, T)` bool.

    Example:
        >>> documents_in(torch.tensor([[True, True, True, False]]), torch.tensor([[0, 1, 0, 0]]))
        tensor([[ 0,  0,  1, -1]])
    """
    keep = real.cpu().numpy()
    numbers = documents_by_positions(positions.expand(real.shape).cpu().numpy()[keep], keep.sum(axis=1))
    if numbers is None:
        return real.long() - 1
    documents = np.full(keep.shape, PADDING, dtype=np.int64)
    documents[keep] = numbers
    return torch.from_numpy(documents).to(real.device)
