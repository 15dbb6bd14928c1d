"""Columns that decay with the position, each at its own rate: no column turns, so none repeats.

Positions below zero have no place in it: their columns would grow without bound.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from .adding import PositionalEncoding
from .checks import USUAL_BASE, check_base
from .settings import Scale


class ExponentialPositionalEncoding(PositionalEncoding):
    r"""Adds `exp(-p * rate)`: `x * scale + encoding`, then dropout. Column i decays at the rate base^(-i/D).

    The rates are spaced like the frequencies of a sinusoid, from 1 down to nearly 1/base: the first column tells the
    first few positions apart, the last one goes on to about `base`. All columns are 1 at position 0 and fall towards 0,
    so far positions look more and more alike. There is nothing to learn and no state; float32 rows are within 3e-7 of
    the exact ones at any position.

    Args:
        d_model (`int`): width D >= 1.
        base (number, *optional*, defaults to 10000): how many positions the slowest column is good for.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by first.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): refuse positions beyond so many, and longer inputs without positions.

    Raises:
        ValueError: if a setting is out of its range; when called, if a position is negative (under a compiler, where
            numbers cannot be looked at, its columns are larger than 1 instead).
        TypeError: if a setting is of the wrong kind.

    Example:
        >>> ExponentialPositionalEncoding(2)(torch.zeros(1, 3, 2), torch.tensor([0.0, 0.5, 10.0]))
        tensor([[[1.0000e+00, 1.0000e+00],
                 [6.0653e-01, 9.9501e-01],
                 [4.5400e-05, 9.0484e-01]]])
    """

    def __init__(
        self,
        d_model: int,
        *,
        base: float = USUAL_BASE,
        scale: Scale = None,
        dropout: float = 0.0,
        max_length: int | None = None,
    ) -> None:
        super().__init__(d_model, scale=scale, dropout=dropout, max_length=max_length)
        self.base = check_base(base)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """The rows `(..., D)` of any positions from 0 on; see `PositionalEncoding.rows`."""
        bound = self._checked_range(positions, bound, negative=False)
        if 0 <= bound < positions.numel() and not positions.is_floating_point():
            # Many equal positions: each row is made once.
            return F.embedding(positions.long(), self._made(torch.arange(bound, device=like.device), like.dtype))
        return self._made(positions, like.dtype)

    def settings(self) -> dict[str, Any]:
        """The keyword arguments that make another one like it."""
        return {"base": self.base, **super().settings()}

    def _made(self, positions: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        # An error of one part in 2**24 in p·rate is less than that of 1 in the result: float32 is enough for any p.
        kind = torch.float64 if dtype == torch.float64 else torch.float32
        column = torch.arange(self.d_model, dtype=kind, device=positions.device)
        rates = torch.exp(column * (-math.log(self.base) / self.d_model))  # (D,)
        return torch.exp(positions.to(kind).unsqueeze(-1) * -rates).to(dtype)  # (..., D)
