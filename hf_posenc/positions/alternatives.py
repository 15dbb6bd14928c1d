"""Encodings with scaled sinusoids, exponential decay or no positions; `positional_encoding` makes any kind by name.

All kinds have the interface of `PositionalEncoding`, so comparing two encodings means changing one argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from .._common.calls import answers_tutorials, wrong_call
from .._common.errors import require_one_of, shorten, type_error, value_error
from .arguments import USUAL_BASE, check_base
from .learned import LearnedPositionalEncoding
from .module import PositionalEncoding, SinusoidalPositionalEncoding


class NoPositionalEncoding(PositionalEncoding):
    """No positions: `x * scale`, then dropout; positions are checked like those of the other kinds."""

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """Return a zero vector for each of `positions` `(...)`; see `PositionalEncoding.rows`."""
        self._check_positions(positions, bound)
        return like.new_zeros(*positions.shape, self.d_model)


class ScaledSinusoidalPositionalEncoding(SinusoidalPositionalEncoding):
    """Sinusoids times one learned number `alpha`, as espnet's `ScaledPositionalEncoding` and x-transformers' class."""

    @answers_tutorials
    def __init__(self, d_model: int, **settings: Any) -> None:
        super().__init__(d_model, **settings)
        self.alpha = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set `alpha` to its initial value, 1."""
        nn.init.ones_(self.alpha)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """Return the sinusoids of `positions` `(...)`, times `alpha`; see `PositionalEncoding.rows`."""
        return super().rows(positions, like, bound=bound) * self.alpha.to(like.dtype)

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """Return `alpha` times the sinusoids of `length` tokens; see `PositionalEncoding.shared_rows`."""
        return super().shared_rows(length, like) * self.alpha.to(like.dtype)


class ExponentialPositionalEncoding(PositionalEncoding):
    r"""Columns that decay: `x * scale + exp(-p * base^(-i/D))` in column i for position p, then dropout.

    All columns are 1 at position 0, so distant positions become more and more alike. Within 3e-7 of the exact values in
    float32. A call raises for a negative position; compiled code does not check it.
    """

    @answers_tutorials
    def __init__(self, d_model: int, *, base: float = USUAL_BASE, **settings: Any) -> None:
        super().__init__(d_model, **settings)
        self.base = check_base(base)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """Return the vectors of `positions` `(...)`, which must be >= 0; see `PositionalEncoding.rows`."""
        bound = self._check_positions(positions, bound, negative=False)
        if 0 <= bound < positions.numel() and not positions.is_floating_point():
            # Fewer distinct positions than elements: compute each row once.
            return F.embedding(positions.long(), self._compute(torch.arange(bound, device=like.device), like.dtype))
        return self._compute(positions, like.dtype)

    def settings(self) -> dict[str, Any]:
        """Return the arguments for an equal encoding: a dict of all arguments of the constructor except `d_model`."""
        return {"base": self.base, **super().settings()}

    def _compute(self, positions: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        # float32 suffices for any position: an error of 2**-24 relative to p·rate is smaller than that of the result.
        inner = torch.float64 if dtype == torch.float64 else torch.float32
        column = torch.arange(self.d_model, dtype=inner, device=positions.device)
        rates = torch.exp(column * (-math.log(self.base) / self.d_model))  # (D,)
        return torch.exp(positions.to(inner).unsqueeze(-1) * -rates).to(dtype)  # (..., D)


# -------------------------------------------------------------------------------------------------------- kinds by name

Kind = Literal["sinusoidal", "scaled", "learned", "exponential", "none"]

KINDS: Mapping[str, type[PositionalEncoding]] = MappingProxyType(
    {
        "sinusoidal": SinusoidalPositionalEncoding,
        "scaled": ScaledSinusoidalPositionalEncoding,
        "learned": LearnedPositionalEncoding,
        "exponential": ExponentialPositionalEncoding,
        "none": NoPositionalEncoding,
    }
)


@answers_tutorials
def positional_encoding(kind: Kind, d_model: int, **settings: Any) -> PositionalEncoding:
    r"""Return a new positional encoding of the given kind, as a module.

    The kinds, and their settings with the defaults:

    - `"sinusoidal"`: `SinusoidalPositionalEncoding`, with `convention="vaswani"` and `base=10000`.
    - `"scaled"`: sinusoids times one learned number `alpha`, which begins at 1; also `convention` and `base`.
    - `"learned"`: `LearnedPositionalEncoding`, a table of `max_length=512` rows, drawn with `std=0.7071`.
    - `"exponential"`: column j of position p is exp(-p * base^(-j/D)), with `base=10000`; positions must be >= 0.
    - `"none"`: no positions.

    Args:
        kind (`str`): one of the names above.
        d_model (`int`): width D >= 1.
        **settings: those of the kind, and for every kind `scale`, `dropout` and `max_length`, as in
            `SinusoidalPositionalEncoding`.

    Returns:
        `PositionalEncoding`, an `nn.Module` that is called as `encode(x, position_ids=None, out=None)`. Positions may
        be any real numbers, such as timestamps. But a learned table needs integers, and exponential decay needs numbers
        of at least 0.

    Raises:
        ValueError: if the kind is unknown, or a setting is out of its range.
        TypeError: if a setting does not exist for the kind, or has the wrong type.

    Source:
        "scaled": Li et al. 2019, "Neural Speech Synthesis with Transformer Network", section 3.2, arXiv:1809.08895.

    Example:
        >>> import torch
        >>> x = torch.zeros(1, 3, 4)
        >>> for kind in ("sinusoidal", "scaled", "learned", "exponential", "none"):
        ...     encode = positional_encoding(kind, 4)
        ...     print(f"{kind:11}", tuple(encode(x).shape), sum(p.numel() for p in encode.parameters()))
        sinusoidal  (1, 3, 4) 0
        scaled      (1, 3, 4) 1
        learned     (1, 3, 4) 2048
        exponential (1, 3, 4) 0
        none        (1, 3, 4) 0
    """
    if isinstance(kind, int):
        raise wrong_call(positional_encoding, (kind, d_model), settings, "the kind of a module is first, not a length")
    require_one_of("kind", kind, KINDS)
    return KINDS[kind](d_model, **settings)


def resolve_encoding(encoding: object, d_model: int, settings: Mapping[str, Any]) -> PositionalEncoding:
    """Return `encoding` if it is a module of width `d_model`; if it is the name of a kind, return a new module."""
    if isinstance(encoding, PositionalEncoding):
        if settings:
            name, value = next(iter(settings.items()))
            raise value_error(
                f"{name}= is set by the encoding, and cannot be given beside it",
                got=f"{name}={value!r}, and {encoding!r}",
                fix=f"positional_encoding(kind, {d_model}, {name}={value!r})",
            )
        if encoding.d_model != d_model:
            raise value_error(
                "embedding and encoding must have the same width",
                got=f"an embedding of width {d_model}, an encoding of width {encoding.d_model}",
                fix=f"positional_encoding(kind, {d_model})",
            )
        return encoding
    if not isinstance(encoding, str):
        raise type_error(
            "encoding must be the name of a kind or a PositionalEncoding",
            got=shorten(encoding),
            fix="encoding='learned', or encoding=positional_encoding('learned', d_model, max_length=1024)",
        )
    require_one_of("encoding", encoding, KINDS)
    return KINDS[encoding](d_model, **settings)
