"""The sinusoids that a table holds: a convention, its base and a scale.

A value that goes into a model's configuration and comes back; the numbers are made by `sinusoid`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..sinusoid import Convention, sinusoidal_encoding


@dataclass(frozen=True)
class Formula:
    r"""Convention, base and scale of the rows of a table.

    Args:
        convention (`Convention`): layout and spacing.
        base (number, *optional*, defaults to 10000): as in `sinusoidal_encoding`.
        scale (`float`, *optional*, defaults to 1): factor of every row; exact if it is a power of two.

    Example:
        >>> str(Formula(Convention("vaswani"), 100, 0.125))
        'vaswani, base 100, times 0.125'
    """

    convention: Convention
    base: float | None = None
    scale: float = 1.0

    def rows(self, steps: torch.Tensor, d_model: int, dtype: torch.dtype) -> torch.Tensor:
        r"""Return the rows of tokens at the given distances from the first token.

        Args:
            steps (`torch.Tensor` `(...)` int64): 0 is the first token.
            d_model (`int`): width D.
            dtype (`torch.dtype`): of the result.

        Returns:
            `torch.Tensor` `(..., D)` on the device of `steps`.
        """
        positions = steps + self.convention.first_position
        rows = sinusoidal_encoding(positions, d_model, convention=self.convention, base=self.base, dtype=dtype)
        return rows * self.scale

    def __str__(self) -> str:
        bases = self.convention.bases
        if bases is not None and len(bases) > 8:
            words = f"{len(bases)} fixed bases, {min(bases):g} to {max(bases):g} positions a turn"
        else:
            words = self.convention.name + (f", base {self.base:g}" if self.base is not None else "")
        return words + (f", times {self.scale:g}" if self.scale != 1 else "")
