"""Which sinusoids a table shall hold: a convention, and its base.

A value that goes into a model's configuration and comes back; the numbers are made by `sinusoid`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..sinusoid import Convention, sinusoidal_encoding


@dataclass(frozen=True)
class Formula:
    r"""A convention with the base that it is used with.

    Args:
        convention (`Convention`): layout and spacing.
        base (number, *optional*, defaults to 10000): as in `sinusoidal_encoding`.

    Example:
        >>> str(Formula(Convention("vaswani"), 100))
        'vaswani, base 100'
    """

    convention: Convention
    base: float | None = None

    def rows(self, steps: torch.Tensor, d_model: int, dtype: torch.dtype) -> torch.Tensor:
        r"""The rows of tokens that are so many steps after a row's first one.

        Args:
            steps (`torch.Tensor` `(...)` int64): 0 is the first token.
            d_model (`int`): width D.
            dtype (`torch.dtype`): of the result.

        Returns:
            `torch.Tensor` `(..., D)` on the device of `steps`.
        """
        positions = steps + self.convention.first_position
        return sinusoidal_encoding(positions, d_model, convention=self.convention, base=self.base, dtype=dtype)

    def __str__(self) -> str:
        bases = self.convention.bases
        if bases is not None and len(bases) > 8:
            return f"{len(bases)} fixed bases, {min(bases):g} to {max(bases):g} positions a turn"
        return self.convention.name + (f", base {self.base:g}" if self.base is not None else "")
