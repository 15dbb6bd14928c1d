"""The encoding as a module without state: adds to a batch of vectors the rows of their positions.

How they are added is said in `adding`; ids and padding are the business of `PositionalEmbedding`.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from .._explain import explain
from .adding import PositionalEncoding
from .cache import Encoding
from .conventions import Convention
from .lookup import fill_rows, rows_at, shared_rows, without_values


class SinusoidalPositionalEncoding(PositionalEncoding):
    r"""Adds sinusoidal position vectors: `x * scale + encoding`, then dropout.

    It has no parameter and no buffer, so there is nothing that a checkpoint, `.half()` or a start on the meta device
    could spoil; its rows are kept outside and exact in every dtype. A `pe` entry in an old checkpoint is passed over.
    Positions may be any real numbers: timestamps, fractions, negative ones.

    Args:
        d_model (`int`): width D >= 1.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing.
        base (number, *optional*, defaults to 10000): see `sinusoidal_encoding`.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): what `x` is multiplied by first; `"sqrt_d"` is √D, as in the
            paper, where `x` comes from an embedding with small weights.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): refuse positions beyond so many, and longer inputs without positions; the
            encoding itself has no limit.

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

    rows_are_kept = True
    rows_are_exact = True

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
        encoding = Encoding.of(convention, d_model, base)
        super().__init__(d_model, scale=scale, dropout=dropout, max_length=max_length)
        self._encoding = encoding
        if self.max_length is not None and self._limit < 0:  # which is how no limit is written
            first = self.first_position
            raise ValueError(
                explain(
                    "a max_length must reach position 0",
                    got=f"max_length={self.max_length} from position {first} on",
                    fix=f"max_length={-first} or more, or leave it out",
                )
            )

    @property
    def convention(self) -> Convention:
        """Layout and spacing."""
        return self._encoding.convention

    @property
    def base(self) -> float | None:
        """The base of the frequencies; `None` where the convention has fixed bases or wavelengths."""
        return self._encoding.base

    @property
    def first_position(self) -> int:
        """Position of a row's first token, where positions are not given: the convention's."""
        return self.convention.first_position

    @property
    def padding_position(self) -> int | None:
        """The position whose row the convention makes zero in a table, if there is one."""
        return self.convention.padding_position

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """The rows `(..., D)` of any positions; see `PositionalEncoding.rows`."""
        bound = self._useful(bound)
        return rows_at(positions, self._encoding, like.dtype, bound=bound, limit=self._limit).to(like.device)

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """The rows `(T, D)` of the first `length` positions, a view of a kept table where there is one."""
        first = self.first_position
        return shared_rows(first, first + length, self._encoding, like)

    def settings(self) -> dict[str, Any]:
        """The keyword arguments that make another one like it."""
        return {"convention": self.convention, "base": self.base, **super().settings()}

    def extra_repr(self) -> str:
        """The settings, for `print(module)`."""
        settings = {**self.settings(), "convention": self.convention.name}
        if self.base is None:
            del settings["base"]
        return ", ".join([str(self.d_model), *(f"{name}={value!r}" for name, value in settings.items())])

    def _useful(self, bound: int) -> int:
        """`bound`, or -1 where it says too little: then each position is to be looked at."""
        return -1 if 0 <= self._limit < bound else bound

    def _add_rows(self, positions: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None, bound: int) -> torch.Tensor:
        # On a busy machine every call that the cores share waits for all of them: two calls, not two for each row of x.
        # A subclass with rows of its own has other rows than the table.
        if (
            out is not None
            and type(self).rows is SinusoidalPositionalEncoding.rows
            and positions.shape == x.shape[:2]
            and _may_hold_rows(out, x)
            and fill_rows(out, positions, self._encoding, bound=self._useful(bound), limit=self._limit)
        ):
            return self._add(out, x, out)
        return super()._add_rows(positions, x, out, bound)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The buffer of the annotated transformer and of PyTorch's tutorial. Its rows are computed here instead.
        kept = {key: value for key, value in state_dict.items() if key != f"{prefix}pe"}
        super()._load_from_state_dict(kept, prefix, *args)


def _may_hold_rows(out: torch.Tensor, x: torch.Tensor) -> bool:
    """Return whether rows may be written into a checked buffer before `x` is read: on the CPU, where it is not `x`."""
    if without_values(x) or x.device.type != "cpu" or not out.is_contiguous():
        return False
    return out.data_ptr() != x.data_ptr()
