"""Whether two batches can look at each other: as many rows, and a document to look at for every document that looks.

A check alone; a query without a key would become NaN in a softmax.
"""

from __future__ import annotations

import torch

from .._explain import explain


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
