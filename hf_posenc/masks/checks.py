"""Whether what a description holds can be: shapes and kinds, and for each query of another batch a key to look at.

Checks alone; a query without a key would become NaN in a softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._explain import explain, shorten
from .plain import as_integers

_EXAMPLE = "AttentionMask.from_documents([[5, 9], [11]])"


def check_fields(documents: Any, look_ahead: bool, window: Any, prefix: Any, queries: Any) -> None:
    r"""Raises where the fields of an `AttentionMask` do not go together.

    Args, Raises: as `AttentionMask`.

    Example:
        >>> check_fields(torch.zeros(2, 3, dtype=torch.int64), True, window=2, prefix=None, queries=None)
    """
    shape = as_integers(documents, "documents", dims=2, example=_EXAMPLE).shape
    if window is not None and (isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1):
        raise ValueError(
            explain(
                "window must be a whole number of at least 1: a token sees itself and window - 1 before it",
                got=shorten(window),
                fix="window=None for no limit",
            )
        )
    if prefix is not None:
        if not look_ahead:
            raise ValueError(
                explain(
                    "a prefix is what all of a document may see although look-ahead hides the rest",
                    got="prefix without look_ahead=True",
                    fix="look_ahead=True, or prefix=None, because nothing is hidden",
                )
            )
        if not isinstance(prefix, torch.Tensor) or prefix.dtype != torch.bool or prefix.shape != shape:
            raise ValueError(
                explain(
                    "prefix must be bool marks in the shape of documents",
                    got=shorten(prefix),
                    fix="AttentionMask.from_batch(batch, prefix=3, look_ahead=True), which takes numbers",
                )
            )
    if queries is not None:
        as_integers(queries, "queries", dims=2, example=_EXAMPLE)
        if look_ahead or window is not None or prefix is not None:
            raise ValueError(
                explain(
                    "look-ahead, window and prefix are of a batch that looks at itself",
                    got=f"look_ahead={look_ahead}, window={window}, and queries of another batch",
                    fix="AttentionMask.cross(target, source)",
                )
            )
        check_crossing(queries, documents)


def check_crossing(queries: torch.Tensor, keys: torch.Tensor) -> None:
    r"""Raises where a query would have nothing to look at.

    Args:
        queries (`torch.Tensor` `(B, Q)`, integer): the documents that look; negative at padding.
        keys (`torch.Tensor` `(B, K)`, integer): the documents that are looked at. A row of padding alone can be looked
            at by everyone, as in all masks.

    Raises:
        ValueError: naming the row and the document.

    Example:
        >>> check_crossing(torch.tensor([[0, 0, -1]]), torch.tensor([[0, -1]]))
    """
    if len(queries) != len(keys):
        raise ValueError(
            explain(
                "queries and keys must have the same number of rows",
                got=f"{len(queries)} and {len(keys)}",
                fix="describe the two sides of the same batch",
            )
        )
    if not queries.numel():
        return
    known = torch.nn.functional.pad(keys.long(), (0, 1), value=-1).sort(dim=1).values.contiguous()
    place = torch.searchsorted(known, queries.long().contiguous()).clamp(max=known.shape[1] - 1)
    lost = (queries >= 0) & (known.gather(1, place) != queries) & (keys >= 0).any(dim=1, keepdim=True)
    if bool(lost.any()):
        row, column = (int(index) for index in lost.nonzero()[0])
        raise ValueError(
            explain(
                f"document {int(queries[row, column])} in row {row} has queries and no keys to look at",
                got=f"{int(lost.sum())} such queries; documents of row {row} among the keys: "
                f"{sorted({int(number) for number in keys[row].tolist() if number >= 0})}",
                fix="give both sides the same document numbers, e.g. from_documents with as many documents a row",
            )
        )
