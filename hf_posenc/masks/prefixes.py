"""Prefixes: the tokens at the beginning of a document that all of it may see, however they are told.

From numbers to one bool a token; what a prefix means is decided where masks are rendered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .._explain import explain, shorten
from .plain import as_integers

_EXAMPLE = "prefix=3, or one number for each row: prefix=[3, 2]"


def prefix_marks(documents: torch.Tensor, prefix: Any) -> torch.Tensor | None:
    r"""Marks the tokens of each prefix.

    Args:
        documents (`torch.Tensor` `(B, T)`, integer): as in `AttentionMask`.
        prefix (`int`, integers `(B,)`, bool `(B, T)`, or `None`): how many tokens of every document, or of those of
            each row; bool marks are taken as they are. More than a document has means all of it.

    Returns:
        `torch.Tensor` `(B, T)` bool, fresh, False at padding; `None` for `None`.

    Raises:
        ValueError: if a number is negative, or the shape does not fit.
        TypeError: if they are neither whole numbers nor bools.

    Example:
        >>> prefix_marks(torch.tensor([[0, 0, 0, 1, 1, -1]]), 2)
        tensor([[ True,  True, False,  True,  True, False]])
    """
    if prefix is None:
        return None
    rows = documents.shape[0]
    marks = prefix if isinstance(prefix, torch.Tensor) else _array(prefix)
    if marks.dtype in (torch.bool, np.bool_):
        marks = torch.as_tensor(marks).to(documents.device)
        if marks.shape != documents.shape:
            raise ValueError(
                explain(
                    "bool marks of a prefix must be (batch, length)",
                    got=f"{tuple(marks.shape)} and {tuple(documents.shape)}",
                    fix=_EXAMPLE,
                )
            )
        return marks & (documents >= 0)
    single = marks.ndim == 0
    counts = as_integers(marks[None] if single else marks, "prefix", dims=1, example=_EXAMPLE).to(documents.device)
    if not single and len(counts) != rows:
        raise ValueError(explain("prefix needs one number for each row", got=f"{len(counts)} for {rows}", fix=_EXAMPLE))
    if len(counts) and int(counts.min()) < 0:
        raise ValueError(explain("a prefix must not be negative", got=int(counts.min()), fix=_EXAMPLE))
    return (rank_in_document(documents) < counts[:, None]) & (documents >= 0)


def _array(prefix: Any) -> Any:
    try:
        return np.asarray(prefix)
    except ValueError:  # rows of unequal lengths
        fix = "from_documents([[5, 9], [11]], prefix=[[2, 3], [4]], look_ahead=True), which takes one for each document"
        raise ValueError(
            explain("prefix must be a number, or one for each row", got=shorten(prefix), fix=fix)
        ) from None


def prefix_marks_of_lengths(documents: Sequence[Sequence[int]], table: torch.Tensor, prefix: Any) -> Any:
    """Numbers told in the shape of `documents`, one for each, as bool marks; anything else as it is."""
    if not isinstance(prefix, Sequence) or not any(isinstance(row, Sequence) for row in prefix):
        return prefix
    shape, told = ([len(row) if isinstance(row, Sequence) else row for row in rows] for rows in (documents, prefix))
    if shape != told:
        raise ValueError(
            explain(
                "prefix needs one number for each document, row by row",
                got=f"{shorten(prefix)} for documents {shorten(documents)}",
                fix="from_documents([[5, 9], [11]], prefix=[[2, 3], [4]], look_ahead=True)",
            )
        )
    flat = as_integers([number for row in prefix for number in row], "prefix", dims=1, example="prefix=[[2, 3], [4]]")
    if len(flat) and int(flat.min()) < 0:
        raise ValueError(explain("a prefix must not be negative", got=int(flat.min()), fix="prefix=[[2, 3], [4]]"))
    real = table >= 0
    lengths = torch.tensor([length for row in documents for length in row], dtype=torch.int64)
    limits = torch.zeros_like(table)
    limits[real] = flat.long().repeat_interleave(lengths)
    return real & (rank_in_document(table) < limits)


def rank_in_document(documents: torch.Tensor) -> torch.Tensor:
    r"""How many tokens of its document stand before each token, `(B, T)` int64; documents may be interleaved.

    Example:
        >>> rank_in_document(torch.tensor([[4, 4, 9, 4]]))
        tensor([[0, 1, 0, 2]])
    """
    order = documents.argsort(dim=1, stable=True)
    grouped = documents.gather(1, order)
    columns = torch.arange(documents.shape[1], device=documents.device).expand_as(grouped)
    begins = torch.ones_like(grouped, dtype=torch.bool)
    begins[:, 1:] = grouped[:, 1:] != grouped[:, :-1]
    start = torch.where(begins, columns, 0).cummax(dim=1).values if columns.numel() else columns
    return torch.empty_like(order).scatter_(1, order, columns - start)
