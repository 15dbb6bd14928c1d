"""A learned row for each position.

It knows as many positions as it has rows, and whole ones only.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .._explain import explain, shorten
from .adding import PositionalEncoding
from .checks import is_number
from .settings import Scale, check_length

SPREAD = math.sqrt(0.5)


class LearnedPositionalEncoding(PositionalEncoding):
    r"""Adds the rows of a table that is trained: `x * scale + weight[position]`, then dropout.

    Args:
        d_model (`int`): width D >= 1.
        max_length (`int`, *optional*, defaults to 512, which is BERT's): how many positions have a row, from 0 on.
        std (`float`, *optional*, defaults to √½, the spread of sinusoids): of the normal numbers that the table begins
            with, so that what is compared is the encoding and not how loud it is. BERT draws 0.02, as small as its
            token embeddings: a table much smaller than the tokens takes long to be heard.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by first.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.

    Raises:
        ValueError: if a setting is out of its range; when called, if a position has no row.
        TypeError: if a setting is of the wrong kind; when called, if positions are not whole numbers.

    Source:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1, arXiv:1705.03122. Devlin et al.
        2019, "BERT", arXiv:1810.04805.

    Example:
        >>> encode = LearnedPositionalEncoding(8, max_length=16)
        >>> encode(torch.zeros(2, 16, 8)).shape, list(encode.state_dict())
        (torch.Size([2, 16, 8]), ['weight'])
        >>> encode(torch.zeros(2, 17, 8))
        Traceback (most recent call last):
        ...
        ValueError: 17 tokens are more than the declared max_length of 16
          got: shape (2, 17, 8)
          fix: max_length=17, or a kind that has a row for every position, such as 'sinusoidal'
    """

    rows_are_kept = True

    def __init__(
        self,
        d_model: int,
        max_length: int = 512,
        *,
        std: float = SPREAD,
        scale: Scale = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, scale=scale, dropout=dropout, max_length=check_length(max_length))
        self.std = check_std(std)
        self.weight = nn.Parameter(torch.empty(self.positions, self.d_model))
        self.reset_parameters()

    @property
    def positions(self) -> int:
        """How many positions have a row."""
        return self.max_length or 0

    def reset_parameters(self) -> None:
        """Draws the table anew."""
        nn.init.normal_(self.weight, std=self.std)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """The rows `(..., D)` of whole positions; see `PositionalEncoding.rows`."""
        if positions.is_floating_point():
            raise TypeError(
                explain(
                    "a learned table has rows for whole positions only",
                    got=f"position_ids of {positions.dtype}",
                    fix="position_ids.long() where they are whole, or a kind for any real position: 'sinusoidal', "
                    "'scaled', 'fourier', 'exponential'",
                )
            )
        self._checked_range(positions, bound, negative=False)
        # F.embedding reads int32 and int64 alone.
        where = positions if positions.dtype == torch.int32 else positions.long()
        return F.embedding(where, self.weight).to(like.dtype)

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """The first `length` rows, as a view where `like` has their dtype."""
        return self.weight[:length].to(like.dtype)

    def settings(self) -> dict[str, object]:
        """The keyword arguments that make another one like it."""
        return {"max_length": self.max_length, "std": self.std, "scale": self.scale, "dropout": self.dropout}

    def _no_limit(self, needed: int) -> str:
        return f"max_length={needed}, or a kind that has a row for every position, such as 'sinusoidal'"


def check_std(std: float) -> float:
    """`std`, if it is a positive number."""
    if not is_number(std):
        raise TypeError(explain("std must be a number", got=shorten(std), fix="std=0.02"))
    if not 0 < std < math.inf:
        raise ValueError(explain("std must be positive and finite", got=std, fix="std=0.02"))
    return float(std)
