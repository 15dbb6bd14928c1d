"""What a position table holds before it is written over: nothing yet, sinusoids, or something learned.

Only the numbers are asked: a name or a path says nothing about whether a table was trained.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn

from .._explain import explain
from ..model_spec import PositionTable
from ..sinusoid import identify
from .formula import Formula

# How many standard errors the rows of a table must be away from rows that were drawn independently.
_SURE = 6.0
_SIGNS = {
    "neighbours": "neighbouring rows with a mean cosine of {:.2f}, 0.00 before training",
    "direction": "rows with a mean cosine of {:.2f} to each other, 0.00 before training",
    "length": "rows {:.2g} times as long as those after them, as long before training",
}


def signs_of_training(rows: torch.Tensor) -> dict[tuple[str, int], tuple[float, float]]:
    r"""Measure how far rows are from ones drawn independently: the first row, the first 2, 4, 8, ... and all of them.

    Training makes neighbouring rows alike, moves rows in one direction, and changes their length. It reaches only the
    rows that are read: trained on short texts, a long table is as it was drawn but for the first rows.

    Args:
        rows (`torch.Tensor` `(N, D)`, floating): of positions that follow each other; rows of zeros do not count.

    Returns:
        `dict` from the kind of sign and the number of first rows to the measured value and its distance in standard
        errors: the square root of twice its log-likelihood ratio, so that 6 is beyond chance at any size.

    Example:
        >>> signs = signs_of_training(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        >>> [(sign, value) for sign, (value, _) in signs.items() if sign[0] == "neighbours"]
        [(('neighbours', 2), 1.0), (('neighbours', 3), 0.5)]
    """
    wide = rows.detach().double().cpu()
    norms = wide.norm(dim=1)
    unit, squares = wide[norms > 0] / norms[norms > 0, None], norms[norms > 0] ** 2
    count, d_model = unit.shape
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for first in sorted({min(2**power, count) for power in range(count.bit_length() + 1)} - {0}):
        if first > 1:
            cosine = float((unit[1:first] * unit[: first - 1]).sum(dim=1).mean())
            found["neighbours", first] = cosine, abs(cosine) * math.sqrt((first - 1) * d_model)
            spread = float((unit[:first].sum(dim=0) ** 2).sum()) / first  # 1 for independent rows
            surprise = d_model * (spread - 1 - math.log(spread)) if spread > 1 else 0.0
            found["direction", first] = (spread - 1) / (first - 1), math.sqrt(surprise)
        if first < count:
            here, after = float(squares[:first].mean()), float(squares[first:].mean())
            both = float(squares.mean())
            surprise = first * math.log(both / here) + (count - first) * math.log(both / after)
            found["length", first] = math.sqrt(here / after), math.sqrt(max(d_model * surprise, 0.0))
    return found


def looks_trained(rows: torch.Tensor, drawn: torch.Tensor | None = None) -> str:
    r"""Return the clearest sign that rows were trained, in words; nothing where they look as they were drawn.

    Args:
        rows (`torch.Tensor` `(N, D)`, floating): as in `signs_of_training`.
        drawn (`torch.Tensor` `(N, D)`, *optional*): rows that the model's own initialiser draws. Signs that these have
            too, as where all numbers are positive, count only if those of `rows` are twice as clear, because one draw
            differs from the next.

    Returns:
        `str`.

    Example:
        >>> fresh = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
        >>> looks_trained(fresh)
        ''
        >>> fresh[:32] *= 52
        >>> looks_trained(fresh)
        'the first 32 of 512: rows 53 times as long as those after them, as long before training'
    """
    own = {} if drawn is None else signs_of_training(drawn)
    clear = {
        sign: (apart - (2 * theirs if (theirs := own.get(sign, (0.0, 0.0))[1]) > _SURE else 0.0), value)
        for sign, (value, apart) in signs_of_training(rows).items()
    }
    if not clear or max(clear.values())[0] <= _SURE:
        return ""
    (kind, first), (_, value) = max(clear.items(), key=lambda sign: sign[1])
    return f"the first {first} of {len(rows)}: {_SIGNS[kind].format(value)}"


def _as_drawn(model: nn.Module, table: PositionTable) -> torch.Tensor | None:
    """The rows that the model's own initialiser draws for a table, where it is a module by itself."""
    if not isinstance(table.module, nn.Embedding):
        return None
    with torch.random.fork_rng([]), torch.no_grad():
        fresh = copy.deepcopy(table.module).cpu()
        fresh.reset_parameters()
        # The innermost model decides, in an encoder-decoder of two.
        owners: list[Any] = [each for each in model.modules() if hasattr(each, "_init_weights")]
        next(each for each in reversed(owners) if table.module in set(each.modules()))._init_weights(fresh)
    return fresh.weight[table.first_row :]


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
    if not looks_trained(rows) or not (sign := looks_trained(rows, _as_drawn(model, table))):
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
                got=sign,
                fix="leave a trained model its positions; to train it from scratch, replace_trained=True",
            )
        )
    return "other sinusoids" if found.is_sinusoidal else "trained"
