"""Position ids beside a description: whether they contradict it, and whether a model reads the same off them.

transformers begins a document at every position that is not one more than the last; this package, at a restart.
"""

from __future__ import annotations

import torch

from .._explain import explain
from .reading import documents_in


def restarts_inside(documents: torch.Tensor, position_ids: torch.Tensor) -> tuple[int, int] | None:
    r"""Return row and column of the first position that restarts inside a document; `None` if there is none.

    Example:
        >>> restarts_inside(torch.tensor([[0, 0, 0, 0]]), torch.tensor([[0, 1, 0, 1]]))
        (0, 2)
    """
    _check_shape(documents, position_ids)
    found = documents_in(documents >= 0, position_ids.to(documents.device))
    same = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    wrong = (same & (found[:, 1:] != found[:, :-1])).nonzero()
    return (int(wrong[0, 0]), int(wrong[0, 1]) + 1) if len(wrong) else None


def isolated_by(documents: torch.Tensor, position_ids: torch.Tensor) -> bool:
    r"""Return True if a model of transformers that isolates by positions keeps exactly these documents apart.

    Args:
        documents (`torch.Tensor` `(B, T)`, integer): as in `AttentionMask`.
        position_ids (`torch.Tensor` `(B, T)` or `(1, T)`, integer): as a model will be given them.

    Returns:
        `bool`.

    Example:
        >>> isolated_by(torch.tensor([[0, 0, 1, 1]]), torch.tensor([[0, 1, 0, 1]]))
        True
        >>> isolated_by(torch.tensor([[0, 0, 1, 1]]), torch.arange(4)[None])
        False
    """
    _check_shape(documents, position_ids)
    steps = position_ids.to(documents.device).diff(dim=1).expand(len(documents), -1)
    before, after = documents[:, :-1], documents[:, 1:]
    padding = (before < 0) & (after < 0)  # where it is cut does not matter
    return bool((((steps == 1) == (before == after)) | padding).all())


def _check_shape(documents: torch.Tensor, position_ids: torch.Tensor) -> None:
    if position_ids.shape not in (documents.shape, (1, documents.shape[1])):
        raise ValueError(
            explain(
                "position_ids must have the shape of the mask, (batch, length)",
                got=f"{tuple(position_ids.shape)} and {tuple(documents.shape)}",
                fix="position_ids_from_documents([[5, 9], [11]])",
            )
        )
