"""Decides if a position table contains random rows, given sinusoids or trained rows, before it is overwritten.

It looks only at the numbers, because a name or path does not show if a table was trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .._common.errors import value_error
from ..positions import Convention, sinusoidal_encoding
from .position_tables import PositionTable

# Rows count as trained if they differ from independently drawn rows by more than this many standard errors.
_THRESHOLD = 6.0


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


def table_content(table: PositionTable, chosen: Formula, replace_trained: bool) -> str:
    r"""Return a description of the content of a table; raise if it must not be overwritten."""
    rows = table.tensor[table.first_row :]
    # Check this first, because forty rows of two columns are too few numbers to distinguish sinusoids from random ones.
    if chosen.matches(rows):
        return f"{chosen} sinusoids"
    if not (sign := looks_trained(rows)):
        return "random"
    if replace_trained:
        return "trained"
    raise value_error(
        f"this would overwrite {len(rows)} trained position vectors of {table.name}, or other sinusoids",
        got=sign,
        fix="keep the positions of a trained model; to train it from scratch, replace_trained=True",
    )


def looks_trained(rows: torch.Tensor) -> str:
    r"""Return the clearest sign that `rows` were trained, as text; an empty string if they look newly initialized.

    Example:
        >>> fresh = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
        >>> looks_trained(fresh)
        ''
        >>> fresh[:32] *= 10
        >>> looks_trained(fresh)
        'the first 32 of 512 rows differ from newly drawn ones by ... standard errors'
    """
    distance, first = max(_distances(rows), default=(0.0, 0))
    if distance <= _THRESHOLD:
        return ""
    return f"the first {first} of {len(rows)} rows differ from newly drawn ones by {distance:.0f} standard errors"


def _distances(rows: torch.Tensor) -> Iterator[tuple[float, int]]:
    """Yield distances from independently drawn rows, in standard errors, each with the number of first rows."""
    # Training on short texts changes only the first rows of a long table, so each measure is computed for the first 1,
    # 2, 4, 8, ... rows, and for all rows.
    wide = rows.detach().double().cpu()
    norms = wide.norm(dim=1)
    unit, squares = wide[norms > 0] / norms[norms > 0, None], norms[norms > 0] ** 2
    count, d_model = unit.shape
    for first in sorted({min(2**power, count) for power in range(count.bit_length() + 1)} - {0}):
        if first > 1:
            cosine = float((unit[1:first] * unit[: first - 1]).sum(dim=1).mean())  # of neighbors
            yield abs(cosine) * math.sqrt((first - 1) * d_model), first
            spread = float((unit[:first].sum(dim=0) ** 2).sum()) / first  # of directions; 1 for independent rows
            yield math.sqrt(d_model * (spread - 1 - math.log(spread)) if spread > 1 else 0.0), first
        if first < count:
            before, after, mean = (float(part.mean()) for part in (squares[:first], squares[first:], squares))
            surprise = first * math.log(mean / before) + (count - first) * math.log(mean / after)
            yield math.sqrt(max(d_model * surprise, 0.0)), first
