"""The encoding as a module without state: adds to a batch of vectors the rows of their positions.

Knows nothing of ids and padding; `PositionalEmbedding` does.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from .._explain import explain, one_of, shorten
from .cache import Encoding, rows_at, shared_rows, without_values
from .conventions import Convention
from .exact import DTYPES
from .values import as_positions

_AT_ONCE = 2**17  # elements that are looked up before they are added


class SinusoidalPositionalEncoding(nn.Module):
    r"""Adds sinusoidal position vectors: `x * scale + encoding`, then dropout.

    It has no parameter and no buffer, so there is nothing that a checkpoint, `.half()` or a start on the meta device
    could spoil; its rows are kept outside and exact in every dtype. A `pe` entry in an old checkpoint is passed over.

    Args:
        d_model (`int`): width D >= 1.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing.
        base (number, *optional*, defaults to 10000): see `sinusoidal_encoding`.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by first; `"sqrt_d"` is √D, as in the
            paper, where `x` comes from an embedding with small weights.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): refuse longer inputs; the encoding itself has no limit.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if a setting is of the wrong kind.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", sections 3.4 (√D), 3.5 and 5.4 (dropout). arXiv:1706.03762.

    Example:
        >>> encode = SinusoidalPositionalEncoding(2, scale="sqrt_d")
        >>> encode(torch.tensor([[[-1.0, -1.0], [-1.0, 1.0]]]))
        tensor([[[-1.4142, -0.4142],
                 [-0.5727,  1.9545]]])
        >>> encode.state_dict()
        OrderedDict()
    """

    def __init__(
        self,
        d_model: int,
        *,
        convention: str | Convention = "vaswani",
        base: float | None = None,
        scale: Literal["sqrt_d"] | float | None = None,
        dropout: float = 0.0,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        self._encoding = Encoding.of(convention, d_model, base)
        self.scale = check_scale(scale)
        self.dropout = check_dropout(dropout)
        if max_length is not None and max_length < 1:
            raise ValueError(explain("max_length must be positive", got=max_length, fix="max_length=512, or None"))
        self.max_length = max_length

    @property
    def d_model(self) -> int:
        """The width D."""
        return self._encoding.d_model

    @property
    def convention(self) -> Convention:
        """Layout and spacing."""
        return self._encoding.convention

    @property
    def base(self) -> float | None:
        """The base of the frequencies; `None` where the convention has fixed bases."""
        return self._encoding.base

    @property
    def factor(self) -> float:
        """What `x` is multiplied by, as a number."""
        if self.scale is None:
            return 1.0
        return math.sqrt(self.d_model) if self.scale == "sqrt_d" else float(self.scale)

    def forward(
        self,
        x: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        *,
        bound: int | None = None,
    ) -> torch.Tensor:
        r"""`x * scale + encoding`, in one pass over `x`.

        Args:
            x (`torch.Tensor` `(B, T, D)`, floating point).
            position_ids (`torch.Tensor` `(B, T)`, `(1, T)` or `(T,)`, *optional*): by default each row counts from the
                convention's first position.
            out (`torch.Tensor` `(B, T, D)`, *optional*): a buffer for the result, `x` itself if you like. Without a
                gradient only.
            bound (`int`, *optional*): a number that the position ids are known to be below, if you also know that none
                is negative. On an accelerator it saves a wait for the largest of them.

        Returns:
            `torch.Tensor` `(B, T, D)`, dtype and device of `x`; `out` if it was given, otherwise memory of its own.

        Raises:
            ValueError: if a shape does not fit, or T or a position exceeds the declared `max_length`.
            TypeError: if `x` is not floating point.
        """
        self._check(x, out)
        first, length = self.convention.first_position, x.shape[1]
        if position_ids is None:
            rows = shared_rows(first, first + length, self._encoding, x)
            out = self._add(rows, x, out)
        else:
            limit = -1 if self.max_length is None else first + self.max_length
            positions = self._checked_positions(position_ids, x)
            out = self._add_rows(positions, x, out, bound=-1 if bound is None else bound, limit=limit)
        if self.dropout and self.training:
            return F.dropout(out, self.dropout, inplace=True)
        return out

    def _add_rows(
        self, positions: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None, *, bound: int, limit: int
    ) -> torch.Tensor:
        if out is None or x.device.type != "cpu" or positions.ndim == 1 or without_values(x):
            rows = rows_at(positions, self._encoding, x.dtype, bound=bound, limit=limit)
            if out is None and rows.ndim == x.ndim and rows.shape[0] == x.shape[0]:
                # The rows are ours alone: no third buffer.
                return rows.add_(x) if self.scale is None else rows.addcmul_(x, x.new_ones(()), value=self.factor)
            return self._add(rows, x, out)
        # A few rows of the batch at a time: what was looked up is added while it lies in the cores' cache.
        positions = positions.expand(len(x), -1)
        step = max(1, _AT_ONCE // max(1, x.shape[1] * x.shape[2]))
        for start in range(0, len(x), step):
            some = slice(start, start + step)
            rows = rows_at(positions[some], self._encoding, x.dtype, bound=bound, limit=limit)
            self._add(rows, x[some], out[some])
        return out

    def _add(self, rows: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        if self.scale is None:
            return torch.add(rows, x, out=out)
        # Not add(alpha=): in 16 bits that rounds the product first, and not alike in the middle and at the end of a
        # row, so that padding would change a token's vector.
        return torch.addcmul(rows, x, x.new_ones(()), value=self.factor, out=out)

    def extra_repr(self) -> str:
        """The settings, for `print(module)`."""
        settings: dict[str, Any] = {"convention": self.convention.name}
        if self.base is not None:
            settings["base"] = self.base
        settings |= {"scale": self.scale, "dropout": self.dropout, "max_length": self.max_length}
        return ", ".join([str(self.d_model), *(f"{name}={value!r}" for name, value in settings.items())])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The buffer of the annotated transformer and of PyTorch's tutorial. Its rows are computed here instead.
        kept = {key: value for key, value in state_dict.items() if key != f"{prefix}pe"}
        super()._load_from_state_dict(kept, prefix, *args)

    def _check(self, x: torch.Tensor, out: torch.Tensor | None) -> None:
        if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
            kind = f"a tensor of {x.dtype}" if isinstance(x, torch.Tensor) else shorten(x)
            raise TypeError(
                explain(
                    "x must be vectors: a floating-point tensor (batch, length, d_model)",
                    got=kind,
                    fix="PositionalEmbedding(embedding)(input_ids) for ids, sinusoidal_encoding for positions",
                )
            )
        if x.ndim != 3 or x.shape[2] != self.d_model:
            raise ValueError(
                explain(
                    f"expected (batch, length, d_model) with d_model={self.d_model}",
                    got=f"shape {tuple(x.shape)}",
                    fix="x[None] for a single row"
                    if x.ndim == 2 and x.shape[1] == self.d_model
                    else f"SinusoidalPositionalEncoding({x.shape[-1]})"
                    if x.ndim == 3
                    else "x.reshape(batch, length, d_model)",
                )
            )
        if self.max_length is not None and x.shape[1] > self.max_length:
            raise ValueError(
                explain(
                    f"{x.shape[1]} tokens are more than the declared max_length of {self.max_length}",
                    got=f"shape {tuple(x.shape)}",
                    fix=f"max_length={x.shape[1]}, or max_length=None: the encoding itself has no limit",
                )
            )
        if out is None:
            return
        if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
            raise ValueError(
                explain(
                    "out must be a buffer like x",
                    got=f"out {tuple(out.shape)} {out.dtype} {out.device}, x {tuple(x.shape)} {x.dtype} {x.device}",
                    fix="out=torch.empty_like(x)",
                )
            )
        if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
            raise ValueError(
                explain("out has no place in a gradient's graph", got="x with requires_grad=True", fix="leave out away")
            )

    def _checked_positions(self, position_ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        positions = as_positions(position_ids, "position_ids")
        batch, length = x.shape[:2]
        # One dimension at a time: comparing whole shapes would tie B to T in an exported program.
        rows = positions.shape[0] if positions.ndim == 2 else 1
        if positions.ndim not in (1, 2) or positions.shape[-1] != length or rows not in (1, batch):
            raise ValueError(
                explain(
                    "position_ids must be (batch, length) or (length,)",
                    got=f"shape {tuple(positions.shape)}, x {tuple(x.shape)}",
                    fix="position_ids_from_mask(attention_mask), or leave them out to count from the first token",
                )
            )
        return positions.to(x.device)


def check_scale(scale: Any) -> Literal["sqrt_d"] | float | None:
    """`scale`, if it is one of the three kinds."""
    if isinstance(scale, str):
        if scale != "sqrt_d":
            raise ValueError(one_of("scale", scale, ("sqrt_d", None)))
        return "sqrt_d"
    if scale is None:
        return None
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise TypeError(
            explain("scale must be None, 'sqrt_d' or a number", got=shorten(scale), fix="scale='sqrt_d' for √d_model")
        )
    if not math.isfinite(scale):
        raise ValueError(explain("scale must be finite", got=scale, fix="scale='sqrt_d' for √d_model"))
    return scale


def check_dropout(dropout: float) -> float:
    """`dropout`, if it is a probability."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float):
        raise TypeError(explain("dropout must be a number", got=shorten(dropout), fix="dropout=0.1"))
    if not 0 <= dropout <= 1:
        raise ValueError(explain("dropout must be between 0 and 1", got=dropout, fix="dropout=0.1"))
    return dropout
