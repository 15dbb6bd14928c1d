"""What every positional encoding does with a batch of vectors: check it, scale it, add rows to it, drop some out.

Which rows those are is for a subclass to say, by `rows`; ids and padding are the business of `PositionalEmbedding`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._explain import explain
from .checks import beyond_length, check_width
from .inputs import check_out, check_positions, check_vectors
from .lookup import without_values
from .settings import Scale, check_dropout, check_length, check_scale

_AT_ONCE = 2**17  # elements that are looked up before they are added
_SAMPLE = 128  # positions whose rows say how far an encoding spreads


class PositionalEncoding(nn.Module):
    r"""Adds position vectors: `x * scale + rows`, then dropout. The base of every kind; a subclass brings `rows`.

    Args:
        d_model (`int`): width D >= 1.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by first.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): refuse positions beyond so many, and longer inputs without positions.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if a setting is of the wrong kind.

    Example:
        >>> class Ramp(PositionalEncoding):
        ...     def rows(self, positions, like, *, bound=-1):
        ...         return positions.to(like.dtype).unsqueeze(-1).repeat(*[1] * positions.ndim, self.d_model)
        >>> Ramp(1)(torch.zeros(1, 3, 1)).flatten()
        tensor([0., 1., 2.])
    """

    # Whether rows cost no more when they are asked for a few at a time.
    rows_are_kept = False
    # Whether float64 positions say more than float32 ones, and may be on the CPU while vectors are elsewhere.
    rows_are_exact = False

    def __init__(
        self, d_model: int, *, scale: Scale = None, dropout: float = 0.0, max_length: int | None = None
    ) -> None:
        super().__init__()
        self._d_model = check_width(d_model)
        self.scale = check_scale(scale)
        self.dropout = check_dropout(dropout)
        self.max_length = None if max_length is None else check_length(max_length)

    @property
    def d_model(self) -> int:
        """The width D."""
        return self._d_model

    @property
    def first_position(self) -> int:
        """Position of a row's first token, where positions are not given."""
        return 0

    @property
    def padding_position(self) -> int | None:
        """The position whose row a table of these holds as zeros, if there is one."""
        return None

    @property
    def factor(self) -> float:
        """What `x` is multiplied by, as a number."""
        if self.scale is None:
            return 1.0
        return math.sqrt(self.d_model) if self.scale == "sqrt_d" else float(self.scale)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        r"""The rows of positions.

        Args:
            positions (`torch.Tensor` `(...)`, integer or float): on the device of `like`.
            like (`torch.Tensor`): of what they are added to.
            bound (`int`, *optional*): a number that all positions are known to be below, if they are also known not to
                be negative; else -1.

        Returns:
            `torch.Tensor` `(..., D)`, dtype and device of `like`, in memory that is nobody else's.
        """
        raise NotImplementedError(f"{type(self).__name__} is to say what the rows of positions are")

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        r"""The rows `(T, D)` of the first `length` positions, to be read at once and never handed out."""
        first = self.first_position
        where = torch.arange(first, first + length, device=like.device)
        return self.rows(where, like, bound=first + length if first >= 0 else -1)

    def spread(self) -> float:
        """The standard deviation of the rows of the first 128 positions."""
        device = next((weight.device for weight in self.parameters()), torch.device("cpu"))
        like = torch.empty(0, dtype=torch.float32, device=device)
        with torch.no_grad():
            return float(self.shared_rows(min(_SAMPLE, self.max_length or _SAMPLE), like).std(correction=0))

    def settings(self) -> dict[str, Any]:
        """The keyword arguments that make another one like it."""
        return {"scale": self.scale, "dropout": self.dropout, "max_length": self.max_length}

    def forward(
        self,
        x: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        *,
        bound: int | None = None,
    ) -> torch.Tensor:
        r"""`x * scale + rows`, in one pass over `x`.

        Args:
            x (`torch.Tensor` `(B, T, D)`, floating point).
            position_ids (`torch.Tensor` `(B, T)`, `(1, T)` or `(T,)`, *optional*): by default each row counts from the
                first position. Fractional and negative ones where the kind of encoding has rows for them.
            out (`torch.Tensor` `(B, T, D)`, *optional*): a buffer for the result, `x` itself if you like. Without a
                gradient only.
            bound (`int`, *optional*): a number that the position ids are known to be below, if you also know that none
                is negative. On an accelerator it saves a wait for the largest of them.

        Returns:
            `torch.Tensor` `(B, T, D)`, dtype and device of `x`; `out` if it was given, otherwise memory of its own.

        Raises:
            ValueError: if a shape does not fit, or a position, or T without positions, exceeds `max_length`.
            TypeError: if `x` is not floating point.
        """
        check_vectors(x, self.d_model, type(self).__name__)
        if position_ids is None and self.max_length is not None and x.shape[1] > self.max_length:
            raise ValueError(
                explain(
                    f"{x.shape[1]} tokens are more than the declared max_length of {self.max_length}",
                    got=f"shape {tuple(x.shape)}",
                    fix=self._no_limit(x.shape[1]),
                )
            )
        if out is not None:
            check_out(out, x, self)
        if position_ids is None:
            out = self._add(self.shared_rows(x.shape[1], x), x, out)
        else:
            positions = check_positions(position_ids, x, exact=self.rows_are_exact)
            out = self._add_rows(positions, x, out, -1 if bound is None else bound)
        if self.dropout and self.training:
            return F.dropout(out, self.dropout, inplace=True)
        return out

    def extra_repr(self) -> str:
        """The settings, for `print(module)`."""
        return ", ".join([str(self.d_model), *(f"{name}={value!r}" for name, value in self.settings().items())])

    @property
    def _limit(self) -> int:
        """The first position that is too much; -1 without a limit."""
        return -1 if self.max_length is None else self.first_position + self.max_length

    def _no_limit(self, needed: int) -> str:
        """What to write instead of a `max_length` that is too small."""
        return f"max_length={needed}, or max_length=None: the encoding itself has no limit"

    def _checked_range(self, positions: torch.Tensor, bound: int, *, negative: bool = True) -> int:
        """A number that all positions are below, or -1 where nobody knows one or some are negative; one wait at most.

        Refuses positions beyond `max_length`, and negative ones where they have no row.
        """
        limit, whole = self._limit, not positions.is_floating_point()
        if without_values(positions) or not positions.numel():
            return -1
        if bound >= 0 and (limit < 0 or bound <= limit):
            return bound
        free = whole and positions.device.type == "cpu"
        if negative and limit < 0 and not free:
            return -1
        lowest, highest = torch.stack(positions.aminmax()).tolist()
        if lowest < 0 and not negative:
            raise ValueError(
                explain(
                    f"{type(self).__name__} has no row for a negative position",
                    got=f"positions {lowest:g} to {highest:g}",
                    fix="positions from 0 on: position_ids - position_ids.min(), or 'sinusoidal' for any at all",
                )
            )
        if 0 <= limit <= highest:
            fix = self._no_limit(math.floor(highest) + 1 - self.first_position)
            raise ValueError(beyond_length(lowest, highest, limit, fix))
        return highest + 1 if whole and lowest >= 0 else -1

    def _add_rows(self, positions: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None, bound: int) -> torch.Tensor:
        whole = not self.rows_are_kept or x.device.type != "cpu" or positions.ndim == 1 or without_values(x)
        if out is None or whole:
            rows = self.rows(positions, x, bound=bound)
            if out is None and rows.ndim == x.ndim and rows.shape[0] == x.shape[0] and not without_values(x):
                # The rows are ours alone: no third buffer. (Under vmap they may stand for more samples than one.)
                return rows.add_(x) if self.scale is None else rows.addcmul_(x, x.new_ones(()), value=self.factor)
            return self._add(rows, x, out)
        # A few rows of the batch at a time: what was looked up is added while it lies in the cores' cache.
        positions = positions.expand(len(x), -1)
        step = max(1, _AT_ONCE // max(1, x.shape[1] * x.shape[2]))
        for start in range(0, len(x), step):
            some = slice(start, start + step)
            self._add(self.rows(positions[some], x, bound=bound), x[some], out[some])
        return out

    def _add(self, rows: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        if self.scale is None:
            return torch.add(rows, x, out=out)
        # Not add(alpha=): in 16 bits that rounds the product first, and not alike in the middle and at the end of a
        # row, so that padding would change a token's vector.
        return torch.addcmul(rows, x, x.new_ones(()), value=self.factor, out=out)
