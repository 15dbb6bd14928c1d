"""Decides if a position table contains random rows, sinusoids or trained rows, before it is overwritten.

It looks only at the numbers, because a name or path does not show if a table was trained.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn

from .._common.compat import initialize
from .._common.errors import value_error
from ..positions import Convention, identify, sinusoidal_encoding
from .position_tables import PositionTable

# Rows count as trained if they differ from independently drawn rows by more than this many standard errors.
_THRESHOLD = 6.0
_SIGNS = {
    "neighbors": "neighboring rows with a mean cosine of {:.2f}, 0.00 before training",
    "direction": "rows with a mean cosine of {:.2f} to each other, 0.00 before training",
    "length": "rows {:.2g} times as long as those after them, 1 before training",
}


@dataclass(frozen=True)
class Formula:
    """Formula of the sinusoids in a position table: a convention, a base as in `sinusoidal_encoding`, and a factor.

    A factor `scale` that is a power of two adds no rounding error.
    """

    convention: Convention
    base: float | None = None
    scale: float = 1.0

    def rows(self, steps: torch.Tensor, d_model: int, dtype: torch.dtype) -> torch.Tensor:
        r"""Return the sinusoids of tokens, given their indices in the sequence."""
        positions = steps + self.convention.first_position
        rows = sinusoidal_encoding(positions, d_model, convention=self.convention, base=self.base, dtype=dtype)
        return rows * self.scale

    def table(self, like: torch.Tensor, first_row: int) -> torch.Tensor:
        """Return a whole table: zeros before `first_row`, then the sinusoids of one position per row."""
        rows = torch.zeros(like.shape, dtype=like.dtype, device="cpu")
        rows[first_row:] = self.rows(torch.arange(len(rows) - first_row, device="cpu"), rows.shape[1], rows.dtype)
        return rows

    def matches(self, rows: torch.Tensor) -> bool:
        """Return True if `rows` are this formula's sinusoids of the first N positions, also rounded to fewer bits."""
        if not self.convention.fits(rows.shape[1]):
            return False
        rows = rows.detach().cpu()
        steps = torch.arange(len(rows), device="cpu")
        for rounded in (rows.dtype, torch.bfloat16, torch.float16, torch.float32):
            # Compare four rows first, because a table may have 8,192.
            if all(
                torch.equal(rows[: len(part)], self.rows(part, rows.shape[1], rounded).to(rows.dtype))
                for part in (steps[:4], steps)
            ):
                return True
        return False

    def __str__(self) -> str:
        base = "" if self.base is None else f", base {self.base:g}"
        return self.convention.name + base + ("" if self.scale == 1 else f", times {self.scale:g}")


def table_content(model: nn.Module, table: PositionTable, chosen: Formula, replace_trained: bool) -> str:
    r"""Return a description of the content of a table; raise if it must not be overwritten."""
    rows = table.tensor[table.first_row :]
    # Check this first, because forty rows of two columns are too few numbers to distinguish sinusoids from random ones.
    if chosen.matches(rows):
        return f"{chosen} sinusoids"
    if not looks_trained(rows) or not (sign := looks_trained(rows, _freshly_drawn(model, table))):
        return "random"
    identified = identify(rows)
    if replace_trained:
        return "other sinusoids" if identified.is_sinusoidal else "trained"
    rule, got = f"this would overwrite {len(rows)} trained position vectors of {table.name}", sign
    fix = "keep the positions of a trained model; to train it from scratch, replace_trained=True"
    if identified.is_sinusoidal:
        rule = f"{table.name} of {type(model).__name__} already contains sinusoids, of another formula"
        convention = ", ".join(identified.presets) or "an unknown convention"
        got = f"convention={chosen.convention.name!r}, base={chosen.base}; the table has {convention}"
        fix = "the convention of the table, or replace_trained=True to train from scratch"
    raise value_error(rule, got=got, fix=fix)


def looks_trained(rows: torch.Tensor, drawn: torch.Tensor | None = None) -> str:
    r"""Return the clearest sign that `rows` were trained, as text; an empty string if they look newly initialized.

    Example:
        >>> fresh = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
        >>> looks_trained(fresh)
        ''
        >>> fresh[:32] *= 10
        >>> looks_trained(fresh)
        'the first 32 of 512: rows 10 times as long as those after them, 1 before training'
    """
    expected = {} if drawn is None else _signs_of_training(drawn)
    clear = {
        sign: (distance - (2 * usual if (usual := expected.get(sign, (0.0, 0.0))[1]) > _THRESHOLD else 0.0), value)
        for sign, (value, distance) in _signs_of_training(rows).items()
    }
    if not clear or max(clear.values())[0] <= _THRESHOLD:
        return ""
    (kind, first), (_, value) = max(clear.items(), key=lambda sign: sign[1])
    return f"the first {first} of {len(rows)}: {_SIGNS[kind].format(value)}"


def _signs_of_training(rows: torch.Tensor) -> dict[tuple[str, int], tuple[float, float]]:
    """Return measures of how much `rows` look trained rather than random, and how significant each measure is."""
    # Training on short texts changes only the first rows of a long table, so each measure is computed for the first 1,
    # 2, 4, 8, ... rows, and for all rows.
    wide = rows.detach().double().cpu()
    norms = wide.norm(dim=1)
    unit, squares = wide[norms > 0] / norms[norms > 0, None], norms[norms > 0] ** 2
    count, d_model = unit.shape
    signs: dict[tuple[str, int], tuple[float, float]] = {}
    for first in sorted({min(2**power, count) for power in range(count.bit_length() + 1)} - {0}):
        if first > 1:
            cosine = float((unit[1:first] * unit[: first - 1]).sum(dim=1).mean())
            signs["neighbors", first] = cosine, abs(cosine) * math.sqrt((first - 1) * d_model)
            spread = float((unit[:first].sum(dim=0) ** 2).sum()) / first  # 1 for independent rows
            surprise = d_model * (spread - 1 - math.log(spread)) if spread > 1 else 0.0
            signs["direction", first] = (spread - 1) / (first - 1), math.sqrt(surprise)
        if first < count:
            before, after = float(squares[:first].mean()), float(squares[first:].mean())
            mean = float(squares.mean())
            surprise = first * math.log(mean / before) + (count - first) * math.log(mean / after)
            signs["length", first] = math.sqrt(before / after), math.sqrt(max(d_model * surprise, 0.0))
    return signs


def _freshly_drawn(model: nn.Module, table: PositionTable) -> torch.Tensor | None:
    """Return rows drawn by the model's own initializer; `None` if the table is not an `nn.Embedding`."""
    if not isinstance(table.module, nn.Embedding):
        return None
    with torch.random.fork_rng([]), torch.no_grad():
        fresh = copy.deepcopy(table.module).cpu()
        fresh.reset_parameters()
        initialize(fresh, model, table.module)
    return fresh.weight[table.first_row :]
