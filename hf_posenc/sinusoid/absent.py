"""No positions at all: what a comparison is measured from.

It checks what the others check, so that code which runs with it runs with any of them.
"""

from __future__ import annotations

import torch

from .adding import PositionalEncoding


class NoPositionalEncoding(PositionalEncoding):
    r"""Adds nothing: `x * scale`, then dropout. Attention that may see everything then sees a bag of tokens.

    Args:
        d_model (`int`): width D >= 1.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by.
        dropout (`float`, *optional*, defaults to 0): probability, in training mode only.
        max_length (`int`, *optional*): refuse positions beyond so many, and longer inputs without positions.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if a setting is of the wrong kind.

    Source:
        Haviv et al. 2022, "Transformer Language Models without Positional Encodings Still Learn Positional
        Information", for models that see the past alone. arXiv:2203.16634.

    Example:
        >>> NoPositionalEncoding(2, scale=3)(torch.tensor([[[1.0, 2.0]]]))
        tensor([[[3., 6.]]])
    """

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """Zeros `(..., D)`."""
        self._checked_range(positions, bound)
        return like.new_zeros(*positions.shape, self.d_model)

    def _add_rows(self, positions: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None, bound: int) -> torch.Tensor:
        self._checked_range(positions, bound)
        return self._add(x, x, out)

    def _add(self, rows: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        if self.scale is not None:
            return torch.mul(x, self.factor, out=out)
        if out is None:
            return x.clone()
        return out if out is x else out.copy_(x)
