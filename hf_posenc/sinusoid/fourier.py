"""Learnable Fourier features: frequencies are learned, and a small network makes of their cosines and sines the rows.

One number a position; the paper's own case, several coordinates of a pixel, is not covered.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._explain import explain, shorten
from .adding import PositionalEncoding
from .checks import is_number
from .learned import SPREAD, check_std
from .settings import Scale, check_length

# The mean square of GELU(z) for a standard normal z: what the output's weights are drawn by.
_GELU = 0.4252


class FourierPositionalEncoding(PositionalEncoding):
    r"""Adds learnable Fourier features of real-valued positions: `x * scale + MLP(features(p))`, then dropout.

    The features of a position are its cosines and sines at F/2 learned frequencies, over √F; the MLP has one hidden
    layer with GELU. Rows are made anew at each call, with gradient for all weights, at the cost of a small feed-forward
    layer; equal positions have equal rows to rounding.

    Args:
        d_model (`int`): width D >= 1.
        num_features (`int`, *optional*, defaults to `d_model`, or one more where that is odd): F, an even number.
        hidden_size (`int`, *optional*, defaults to `d_model`): width of the hidden layer.
        gamma (`float`, *optional*, defaults to 10): how far apart positions look alike at first, in positions:
            frequencies are drawn from a normal distribution of standard deviation 1/gamma, and the features of two
            positions have the product exp(-distance²/(2·gamma²))/2. For timestamps give it in their unit.
        std (`float`, *optional*, defaults to √½, the spread of sinusoids): of the rows at first.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by first.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): refuse positions beyond so many, and longer inputs without positions.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if a setting is of the wrong kind.

    Source:
        Li et al. 2021, "Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding", section 3 and
        algorithm 1, arXiv:2106.02795. The weights of the MLP are drawn by our own rule, so that rows begin with `std`.

    Example:
        >>> encode = FourierPositionalEncoding(8)
        >>> encode(torch.zeros(2, 3, 8), torch.tensor([-0.5, 0.25, 1e3])).shape
        torch.Size([2, 3, 8])
        >>> sorted(encode.state_dict())
        ['frequencies', 'inner.bias', 'inner.weight', 'outer.bias', 'outer.weight']
    """

    def __init__(
        self,
        d_model: int,
        *,
        num_features: int | None = None,
        hidden_size: int | None = None,
        gamma: float = 10.0,
        std: float = SPREAD,
        scale: Scale = None,
        dropout: float = 0.0,
        max_length: int | None = None,
    ) -> None:
        super().__init__(d_model, scale=scale, dropout=dropout, max_length=max_length)
        self.num_features = _check_features(self.d_model + self.d_model % 2 if num_features is None else num_features)
        self.hidden_size = self.d_model if hidden_size is None else check_length(hidden_size, "hidden_size")
        self.gamma = _check_gamma(gamma)
        self.std = check_std(std)
        self.frequencies = nn.Parameter(torch.empty(self.num_features // 2))
        self.inner = nn.Linear(self.num_features, self.hidden_size)
        self.outer = nn.Linear(self.hidden_size, self.d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all weights anew."""
        nn.init.normal_(self.frequencies, std=1 / self.gamma)
        # The squares of the features sum to one half, so that the hidden layer begins with a variance of one.
        nn.init.normal_(self.inner.weight, std=math.sqrt(2))
        nn.init.normal_(self.outer.weight, std=self.std / math.sqrt(_GELU * self.hidden_size))
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """The rows `(..., D)` of any positions; see `PositionalEncoding.rows`."""
        bound = self._checked_range(positions, bound)
        if 0 <= bound < positions.numel() and not positions.is_floating_point():
            once = self._made(torch.arange(bound, device=like.device))
            return F.embedding(positions.long(), once).to(like.dtype)
        return self._made(positions).to(like.dtype)

    def features(self, positions: torch.Tensor) -> torch.Tensor:
        r"""Cosines and sines over √F.

        Args:
            positions (`torch.Tensor` `(...)`).

        Returns:
            `torch.Tensor` `(..., F)` in the dtype of the weights. Angles are float32, or float64 where positions
            or weights are.
        """
        exact = torch.float64 in (positions.dtype, self.frequencies.dtype)
        kind = torch.float64 if exact else torch.float32
        angles = positions.to(kind).unsqueeze(-1) * self.frequencies.to(kind)  # (..., F/2)
        both = torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(self.num_features)
        return both.to(self.frequencies.dtype)

    def settings(self) -> dict[str, Any]:
        """The keyword arguments that make another one like it."""
        own = ("num_features", "hidden_size", "gamma", "std")
        return {**{name: getattr(self, name) for name in own}, **super().settings()}

    def _made(self, positions: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.outer(F.gelu(self.inner(self.features(positions))))
        return made


def _check_features(num_features: int) -> int:
    number = check_length(num_features, "num_features")
    if number % 2:
        raise ValueError(
            explain("num_features counts cosines and sines", got=number, fix=f"num_features={number + 1}, an even one")
        )
    return number


def _check_gamma(gamma: float) -> float:
    if not is_number(gamma):
        raise TypeError(explain("gamma must be a number of positions", got=shorten(gamma), fix="gamma=10.0"))
    if not 0 < gamma < math.inf:
        raise ValueError(explain("gamma must be positive and finite", got=gamma, fix="gamma=10.0"))
    return float(gamma)
