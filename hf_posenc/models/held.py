"""What a position table holds before it is written over: nothing yet, sinusoids, or something learned.

Only the numbers are asked: a name or a path says nothing about whether a table was trained.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from .._explain import explain
from ..model_spec import PositionTable
from ..sinusoid.recognition import identify
from .formula import Formula

# How many standard errors the mean cosine of neighbouring rows must be away from zero.
_SURE = 6.0


def neighbours_alike(rows: torch.Tensor) -> float:
    r"""The mean cosine of neighbouring rows: 0.85 in a trained MiniLM, 0.00 in a fresh model.

    Args:
        rows (`torch.Tensor` `(N, D)`, floating): of positions that follow each other; rows of zeros do not count.

    Returns:
        `float` between -1 and 1; 0 for fewer than two rows.

    Example:
        >>> neighbours_alike(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        0.5
    """
    wide = rows.detach().double().cpu()
    norms = wide.norm(dim=1)
    unit = wide[norms > 0] / norms[norms > 0, None]
    return float((unit[1:] * unit[:-1]).sum(dim=1).mean()) if len(unit) > 1 else 0.0


def looks_trained(rows: torch.Tensor) -> bool:
    r"""Whether rows that follow each other are alike, or all differ from zero in one direction, as training makes them.

    Rows drawn independently have a mean cosine of 0 with a standard error of 1 / sqrt(N · D); six of those are beyond
    chance, at any size.

    Args:
        rows (`torch.Tensor` `(N, D)`, floating): as in `neighbours_alike`.

    Returns:
        `bool`.

    Example:
        >>> looks_trained(torch.randn(512, 64, generator=torch.Generator().manual_seed(0)))
        False
    """
    return neighbours_alike(rows) > _SURE / math.sqrt(max(rows.numel(), 1))


def holds(rows: torch.Tensor, formula: Formula) -> bool:
    r"""Whether rows are the encoding of positions that follow each other, rounded once, or once more to half precision.

    Args:
        rows (`torch.Tensor` `(N, D)`, floating): without those before a table's first row.
        formula (`Formula`): of the sinusoids; the first row has its first position.

    Returns:
        `bool`.

    Example:
        >>> from hf_posenc import Convention
        >>> holds(torch.tensor([[0.0, 1.0], [0.84147096, 0.5403023]]), Formula(Convention("vaswani")))
        True
    """
    if not formula.convention.fits(rows.shape[1]):
        return False
    ours = rows.detach().cpu()
    steps = torch.arange(len(rows), device="cpu")
    for rounded in (rows.dtype, torch.bfloat16, torch.float16, torch.float32):
        for which in (steps[:4], steps):  # a table of 8,192 rows is not computed to find that its first ones differ
            exact = formula.rows(which, rows.shape[1], rounded)
            if not torch.equal(ours[: len(which)], exact.to(rows.dtype)):
                break
        else:
            return True
    return False


def held_by(
    model: nn.Module, table: PositionTable, chosen: Formula, recorded: Formula | None, replace_trained: bool
) -> str:
    r"""What a table holds, in a word.

    Args:
        model (`nn.Module`): whose table it is, for the message.
        table (`PositionTable`): before anything is written.
        chosen (`Formula`), recorded (`Formula`, *optional*): what shall be written, and what an earlier call noted.
        replace_trained (`bool`): whether anything may be written over.

    Returns:
        "random", "trained", or which sinusoids.

    Raises:
        ValueError: if it was trained, or holds sinusoids that are not ours, and must not be written over.
    """
    rows = table.tensor[table.first_row :]
    # Before anything else: forty rows of two columns are too few numbers to tell sinusoids from random ones by.
    if holds(rows, chosen):
        return f"{chosen} sinusoids"
    if recorded is not None and holds(rows, recorded):
        return f"{recorded} sinusoids"
    if not looks_trained(rows):
        return "random"
    found = identify(rows)
    if found.is_sinusoidal and not replace_trained:
        of = ", ".join(found.presets) or "no family known"
        raise ValueError(
            explain(
                f"{table.name} of {type(model).__name__} holds sinusoids already, of another formula",
                got=f"convention={chosen.convention.name!r}, base={chosen.base}; those in the table are of {of}",
                fix="the convention that it has, or replace_trained=True to train from scratch",
            )
        )
    if not replace_trained:
        raise ValueError(
            explain(
                f"this replaces {len(rows)} trained positions of {table.name}, and the model would know none of them",
                got=f"neighbouring rows with a mean cosine of {neighbours_alike(rows):.2f}; before training it is 0.00",
                fix="leave a trained model its positions; to train it from scratch, replace_trained=True",
            )
        )
    return "other sinusoids" if found.is_sinusoidal else "trained"
