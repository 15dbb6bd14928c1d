"""Sinusoids times one learned number: how loud positions are is left to training.

The sinusoids themselves stay what they are, exact and without state.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from .._explain import explain, shorten
from .checks import is_number
from .conventions import Convention
from .module import SinusoidalPositionalEncoding
from .settings import Scale


class ScaledSinusoidalPositionalEncoding(SinusoidalPositionalEncoding):
    r"""Adds sinusoids times one learned number: `x * scale + alpha * encoding`, then dropout.

    Args:
        d_model (`int`): width D >= 1.
        start (`float`, *optional*, defaults to 1): what `alpha` begins with. x-transformers starts at `d_model**-0.5`.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing.
        base (number, *optional*, defaults to 10000): see `sinusoidal_encoding`.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by first. It is a setting, and not
            learned.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): refuse positions beyond so many, and longer inputs without positions.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if a setting is of the wrong kind.

    Source:
        Li et al. 2019, "Neural Speech Synthesis with Transformer Network", section 3.2, arXiv:1809.08895; espnet's
        `ScaledPositionalEncoding`, x-transformers' `ScaledSinusoidalEmbedding` (convention `"marian"`).

    Example:
        >>> encode = ScaledSinusoidalPositionalEncoding(2, start=0.5)
        >>> encode(torch.zeros(1, 2, 2))
        tensor([[[0.0000, 0.5000],
                 [0.4207, 0.2702]]], grad_fn=<AddBackward0>)
        >>> encode.state_dict()
        OrderedDict([('alpha', tensor(0.5000))])
    """

    def __init__(
        self,
        d_model: int,
        *,
        start: float = 1.0,
        convention: str | Convention = "vaswani",
        base: float | None = None,
        scale: Scale = None,
        dropout: float = 0.0,
        max_length: int | None = None,
    ) -> None:
        super().__init__(d_model, convention=convention, base=base, scale=scale, dropout=dropout, max_length=max_length)
        self.start = _check_start(start)
        self.alpha = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Puts `alpha` back to where it began."""
        nn.init.constant_(self.alpha, self.start)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """The rows `(..., D)` of any positions; see `PositionalEncoding.rows`."""
        return super().rows(positions, like, bound=bound) * self.alpha.to(like.dtype)

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """The rows `(T, D)` of the first `length` positions."""
        return super().shared_rows(length, like) * self.alpha.to(like.dtype)

    def spread(self) -> float:
        """The standard deviation of the rows of the first 128 positions."""
        return super().spread() * abs(float(self.alpha.detach()))

    def settings(self) -> dict[str, Any]:
        """The keyword arguments that make another one like it."""
        return {**super().settings(), "start": self.start}


def _check_start(start: float) -> float:
    if not is_number(start):
        raise TypeError(explain("start must be a number", got=shorten(start), fix="start=1.0, or d_model**-0.5"))
    if not math.isfinite(start):
        raise ValueError(explain("start must be finite", got=start, fix="start=1.0, or d_model**-0.5"))
    return float(start)
