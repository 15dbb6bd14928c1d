"""Positions that restart: whether they say the same about documents as a description does.

Models that read documents off positions do it as here: a new one begins wherever the next number is not one more.
"""

from __future__ import annotations

import torch

from .._explain import explain


def restarts_inside(documents: torch.Tensor, position_ids: torch.Tensor) -> tuple[int, int] | None:
    r"""Row and column of the first token that stands no further right than the one before it in its document.

    Example:
        >>> restarts_inside(torch.tensor([[0, 0, 0, 0]]), torch.tensor([[0, 1, 0, 1]]))
        (0, 2)
    """
    steps = _steps(documents, position_ids)
    same = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    wrong = (same & (steps <= 0)).nonzero()
    return (int(wrong[0, 0]), int(wrong[0, 1]) + 1) if len(wrong) else None


def isolated_by(documents: torch.Tensor, position_ids: torch.Tensor) -> bool:
    r"""Whether positions alone tell each document from the others, and from padding.

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
    steps = _steps(documents, position_ids)
    before, after = documents[:, :-1], documents[:, 1:]
    padding = (before < 0) & (after < 0)  # where it is cut does not matter
    return bool((((steps == 1) == (before == after)) | padding).all())


def _steps(documents: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    if position_ids.shape not in (documents.shape, (1, documents.shape[1])):
        raise ValueError(
            explain(
                "position_ids must have the shape of the mask, (batch, length)",
                got=f"{tuple(position_ids.shape)} and {tuple(documents.shape)}",
                fix="position_ids_from_documents([[5, 9], [11]])",
            )
        )
    return position_ids.to(documents.device).diff(dim=1).expand(len(documents), -1)
