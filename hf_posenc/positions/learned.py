"""Learned encoding: a table with a row for each position.

Its initial vectors have the standard deviation of sinusoids, so that comparisons of encodings are fair.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .._common.calls import answers_tutorials
from .._common.errors import type_error
from .arguments import Scale, as_index, check_length, check_number
from .module import PositionalEncoding

_STD_OF_SINUSOIDS = math.sqrt(0.5)


class LearnedPositionalEncoding(PositionalEncoding):
    r"""Learned position table: `x * scale + weight[position]`, then dropout.

    Args:
        d_model (`int`): width D >= 1.
        max_length (`int`, *optional*, defaults to 512, as in BERT): number of rows, for positions from 0 on.
        std (`float`, *optional*, defaults to √½, the standard deviation of sinusoids): standard deviation of the
            table's normal initialization. BERT uses 0.02, as for its token embeddings. If position vectors are much
            smaller than the token embeddings, they are learned late.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): factor of `x`; `None` is 1, `"sqrt_d"` is √D.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.

    Raises:
        ValueError: if a setting is out of its range. A call raises it for a position without a row.
        TypeError: if a setting has the wrong type. A call raises it for positions that are not integers.

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

    @answers_tutorials
    def __init__(
        self,
        d_model: int,
        max_length: int = 512,
        *,
        std: float = _STD_OF_SINUSOIDS,
        scale: Scale = None,
        dropout: float = 0.0,
    ) -> None:
        rows = check_length(max_length)
        super().__init__(d_model, scale=scale, dropout=dropout, max_length=rows)
        self.std = check_number(std, "std", above=0, fix="std=0.02")
        self.weight = nn.Parameter(torch.empty(rows, self.d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the table `weight` again with random numbers."""
        nn.init.normal_(self.weight, std=self.std)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """Return the table's rows for integer `positions` `(...)`; see `PositionalEncoding.rows`."""
        if positions.is_floating_point():
            raise type_error(
                "a learned table has rows for integer positions only",
                got=f"position_ids of {positions.dtype}",
                fix="position_ids.long() if they are integers, or a kind for any real position, such as 'sinusoidal'",
            )
        self._check_positions(positions, bound, negative=False)
        return F.embedding(as_index(positions), self.weight).to(like.dtype)

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """Return the first `length` rows of the table, or all if it has fewer; see `PositionalEncoding.shared_rows`."""
        return self.weight[:length].to(like.dtype)

    def settings(self) -> dict[str, object]:
        """Return all arguments of the constructor except `d_model`; the weights are not among them."""
        return {"max_length": self.max_length, "std": self.std, "scale": self.scale, "dropout": self.dropout}

    def _length_fix(self, length: int) -> str:
        return f"max_length={length}, or a kind that has a row for every position, such as 'sinusoidal'"
