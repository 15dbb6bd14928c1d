"""`PositionalEncoding`, the base class of modules that add position vectors to `x`, and the sinusoidal subclass.

These modules take embeddings `(B, T, D)`, or `(T, D)` for a single row; `PositionalEmbedding` handles token ids and
padding.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._common.calls import answers_tutorials
from .._common.errors import explain, value_error
from .arguments import (
    NO_LIMIT,
    Scale,
    beyond_length,
    check_dropout,
    check_input,
    check_length,
    check_out,
    check_position_ids,
    check_scale,
    without_values,
)
from .cache import Encoding, fill_rows, rows_at, shared_rows
from .conventions import CONVENTIONS, Convention
from .recognition import identify

_SPREAD_POSITIONS = 128


class PositionalEncoding(nn.Module):
    r"""Base class of modules that add a position vector to each token: `x * scale + rows`, then dropout.

    A row is the vector `(D,)` of one position. A subclass implements `rows()`, which returns the rows of positions.

    Args:
        d_model (`int`): width D >= 1.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): factor of `x`; `None` is 1, `"sqrt_d"` is √D.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): number of allowed positions, by default unlimited. More tokens or a later
            position raise `ValueError`.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if a setting has the wrong type.

    Example:
        >>> class Ramp(PositionalEncoding):
        ...     def rows(self, positions, like, *, bound=-1):
        ...         return positions.to(like.dtype).unsqueeze(-1).repeat(*[1] * positions.ndim, self.d_model)
        >>> Ramp(1)(torch.zeros(1, 3, 1)).flatten()
        tensor([0., 1., 2.])
    """

    # True if rows of float64 positions differ from those of float32 ones; such positions may stay on the CPU.
    needs_float64_positions = False

    @answers_tutorials
    def __init__(
        self, d_model: int, *, scale: Scale = None, dropout: float = 0.0, max_length: int | None = None
    ) -> None:
        super().__init__()
        self.d_model = check_length(d_model, "d_model")  # width D of the position vectors
        self.scale = check_scale(scale)
        self.dropout = check_dropout(dropout)
        self.max_length = None if max_length is None else check_length(max_length)

    @property
    def first_position(self) -> int:
        """Position of the first token if no `position_ids` are given."""
        return 0

    @property
    def padding_position(self) -> int | None:
        """Position of padding tokens; `None` if the encoding has none."""
        return None

    @property
    def factor(self) -> float:
        """Number that multiplies `x`: 1 for `scale=None`, √D for `scale="sqrt_d"`."""
        if self.scale is None:
            return 1.0
        return math.sqrt(self.d_model) if self.scale == "sqrt_d" else float(self.scale)

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        r"""Return a row, the position vector `(D,)`, for each of `positions`. Subclasses implement it.

        Args:
            positions (`torch.Tensor` `(...)`, integer or float): on the device of `like`.
            like (`torch.Tensor`): tensor with the dtype and device of the result.
            bound (`int`, *optional*): give it if you are sure that all positions are from 0 to `bound` - 1, so that
                their range need not be computed; -1, the default, if you are not.

        Returns:
            `torch.Tensor` `(..., D)`, dtype and device of `like`, in new memory.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement rows()")

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        r"""Return the rows `(length, D)` of positions `first_position` to `first_position + length - 1`.

        They have the dtype and device of `like`. Never write to them: they may be a view of a table.
        """
        first = self.first_position
        where = torch.arange(first, first + length, device=like.device)
        return self.rows(where, like, bound=first + length if first >= 0 else -1)

    def spread(self) -> float:
        """Return the standard deviation of all numbers in the first 128 position vectors (of `max_length` if less)."""
        device = next((weight.device for weight in self.parameters()), torch.device("cpu"))
        like = torch.empty(0, dtype=torch.float32, device=device)
        length = min(_SPREAD_POSITIONS, self.max_length or _SPREAD_POSITIONS)
        with torch.no_grad():
            return float(self.shared_rows(length, like).std(correction=0))

    def settings(self) -> dict[str, Any]:
        """Return the arguments for an equal encoding: a dict of all arguments of the constructor except `d_model`."""
        return {"scale": self.scale, "dropout": self.dropout, "max_length": self.max_length}

    def forward(
        self,
        x: torch.Tensor,
        *,
        position_ids: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        bound: int | None = None,
    ) -> torch.Tensor:
        r"""Return `x * scale` plus the position vectors, with dropout in training mode.

        Args:
            x (`torch.Tensor` `(B, T, D)` or `(T, D)`, floating point): with two dimensions, the T tokens of one row,
                never one token for each of several rows.
            position_ids (`torch.Tensor` `(B, T)`, `(1, T)` or `(T,)`, *optional*): position of each token; by default,
                they count up from `first_position` in each row of the batch. They may be fractional or negative, but
                a learned table needs integers >= 0, and exponential decay needs numbers >= 0.
            out (`torch.Tensor`, shape of `x`, *optional*): buffer for the result, which may be `x` itself; by default,
                a new tensor. Not allowed if gradients are needed.
            bound (`int`, *optional*): a number larger than all position ids. Give it only if none of them is negative.
                On an accelerator it avoids a synchronization to find the largest position.

        Returns:
            `torch.Tensor`, shape, dtype and device of `x`: `out` if it was given, otherwise new memory.

        Raises:
            ValueError: if a shape does not fit, a position is beyond `max_length`, or T is larger than `max_length` and
                no `position_ids` are given. In compiled code and on an accelerator, only sinusoids and learned tables
                check `position_ids`, and torch raises its own error for an index that a table does not have. There,
                sinusoids with `max_length` may also refuse negative positions.
            TypeError: if `x` is not floating point.
        """
        check_input(x, self.d_model, type(self).__name__)
        if out is not None:
            check_out(out, tuple(x.shape), x, self)
        if x.ndim == 2:
            row = x[None]
            buffer = row if out is x else None if out is None else out[None]
            result = PositionalEncoding.forward(self, row, position_ids=position_ids, out=buffer, bound=bound)
            return result[0] if out is None else out
        if position_ids is None and self.max_length is not None and x.shape[1] > self.max_length:
            raise value_error(
                f"{x.shape[1]} tokens are more than the declared max_length of {self.max_length}",
                got=f"shape {tuple(x.shape)}",
                fix=self._length_fix(x.shape[1]),
            )
        if position_ids is None:
            out = self._add(self.shared_rows(x.shape[1], x), x, out)
        else:
            positions = check_position_ids(position_ids, x, keep_float64=self.needs_float64_positions)
            out = self._add_rows(positions, x, out, -1 if bound is None else bound)
        if self.dropout and self.training:
            return F.dropout(out, self.dropout, inplace=True)
        return out

    def extra_repr(self) -> str:
        """Return the settings as text for `print(module)`."""
        return ", ".join([str(self.d_model), *(f"{name}={value!r}" for name, value in self.settings().items())])

    @property
    def _limit(self) -> int:
        """First position that `max_length` does not allow."""
        return NO_LIMIT if self.max_length is None else self.first_position + self.max_length

    def _length_fix(self, length: int) -> str:
        """Return the part of an error message that explains how to allow `length` positions."""
        return f"max_length={length}, or max_length=None: the encoding itself has no limit"

    def _check_positions(self, positions: torch.Tensor, bound: int, *, negative: bool = True) -> int:
        """Raise if a position is not allowed; otherwise return a number that is larger than all positions, or -1."""
        limit, is_integer = self._limit, not positions.is_floating_point()
        if without_values(positions) or not positions.numel():
            return -1
        if 0 <= bound <= limit:
            return bound
        # On an accelerator, reading the values would wait for it; the tables of torch check indices there.
        if positions.device.type != "cpu" or (negative and limit == NO_LIMIT and not is_integer):
            return -1
        lowest, highest = torch.stack(positions.aminmax()).tolist()
        if lowest < 0 and not negative:
            raise value_error(
                f"{type(self).__name__} has no row for a negative position",
                got=f"positions {lowest:g} to {highest:g}",
                fix="positions from 0 on: position_ids - position_ids.min(), or 'sinusoidal' for any position",
            )
        if limit <= highest:
            fix = self._length_fix(math.floor(highest) + 1 - self.first_position)
            raise ValueError(beyond_length(lowest, highest, limit, fix))
        return highest + 1 if is_integer and lowest >= 0 else -1

    def _add_rows(self, positions: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None, bound: int) -> torch.Tensor:
        """Return `x * scale` plus the vectors of `positions`, written to `out` if it is given."""
        rows = self.rows(positions, x, bound=bound)
        if out is None and rows.ndim == x.ndim and rows.shape[0] == x.shape[0] and not without_values(x):
            # The rows are in new memory, so they become the result. (Under vmap they may be shared.)
            return rows.add_(x) if self.scale is None else rows.addcmul_(x, x.new_ones(()), value=self.factor)
        return self._add(rows, x, out)

    def _add(self, rows: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return `x * scale + rows`, written to `out` if it is given."""
        if self.scale is None:
            return torch.add(rows, x, out=out)
        # Not add(alpha=): in 16 bits it rounds the product first, and differently in the middle and at the end of a
        # row, so that padding would change a token's vector.
        return torch.addcmul(rows, x, x.new_ones(()), value=self.factor, out=out)


class SinusoidalPositionalEncoding(PositionalEncoding):
    r"""Sinusoidal positional encoding: `x * scale + encoding`, then dropout.

    The position vectors are exact in every dtype. They are cached outside the module, which has no parameters and no
    buffers. So a checkpoint, `.half()` or the meta device cannot change them. A table `pe` in an old checkpoint is
    compared with the vectors of this module: `load_state_dict` raises if it holds others.
    Positions may be any real numbers: timestamps, fractions, negative ones.

    Args:
        d_model (`int`): width D >= 1.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): order and frequencies of the columns.
        base (number, *optional*, defaults to 10000): the lowest frequency is about 1/base, see `sinusoidal_encoding`.
        scale (`None`, `"sqrt_d"` or `float`, *optional*): factor of `x`; `None` is 1. `"sqrt_d"` is √D, as in the
            paper, for an `x` from an embedding with small weights.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        max_length (`int`, *optional*): number of allowed positions, by default unlimited. More tokens or a later
            position raise `ValueError`.

    Raises:
        ValueError: if a setting is out of its range.
        TypeError: if a setting has the wrong type.

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

    needs_float64_positions = True

    @answers_tutorials
    def __init__(
        self,
        d_model: int,
        *,
        convention: str | Convention = "vaswani",
        base: float | None = None,
        scale: Scale = None,
        dropout: float = 0.0,
        max_length: int | None = None,
    ) -> None:
        encoding = Encoding.of(convention, d_model, base)
        super().__init__(d_model, scale=scale, dropout=dropout, max_length=max_length)
        # Not a buffer: one that is not saved comes back from `from_pretrained` with what was in memory (transformers
        # #48892).
        self._encoding = encoding

    @property
    def convention(self) -> Convention:
        """Convention of the encoding: order and frequencies of its columns."""
        return self._encoding.convention

    @property
    def base(self) -> float | None:
        """Base of the frequencies; `None` if the convention has fixed bases or wavelengths."""
        return self._encoding.base

    @property
    def first_position(self) -> int:
        """Position of the first token in the convention, used if no `position_ids` are given."""
        return self.convention.first_position

    @property
    def padding_position(self) -> int | None:
        """Position of padding tokens; `None` if the convention has none."""
        return self.convention.padding_position

    def rows(self, positions: torch.Tensor, like: torch.Tensor, *, bound: int = -1) -> torch.Tensor:
        """Return the sinusoids of any `positions` `(...)`; see `PositionalEncoding.rows`."""
        rows = rows_at(positions, self._encoding, like.dtype, bound=self._usable(bound), limit=self._limit)
        return rows.to(like.device)

    def shared_rows(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """Return the sinusoids of the first `length` positions; see `PositionalEncoding.shared_rows`."""
        first = self.first_position
        return shared_rows(first, first + length, self._encoding, like)

    def settings(self) -> dict[str, Any]:
        """Return the arguments for an equal encoding: a dict of all arguments of the constructor except `d_model`."""
        return {"convention": self.convention, "base": self.base, **super().settings()}

    def extra_repr(self) -> str:
        """Return the settings as text for `print(module)`."""
        settings = {**self.settings(), "convention": self.convention.name}
        if self.base is None:
            del settings["base"]
        return ", ".join([str(self.d_model), *(f"{name}={value!r}" for name, value in settings.items())])

    def _usable(self, bound: int) -> int:
        """Return `bound` if `max_length` allows all positions below it, otherwise -1, so that positions are checked."""
        return -1 if self._limit < bound else bound

    def _add_rows(self, positions: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None, bound: int) -> torch.Tensor:
        # The rows are copied from the table to `out`, without memory of their own. Subclasses that override `rows` do
        # not use the table.
        if (
            out is not None
            and type(self).rows is SinusoidalPositionalEncoding.rows
            and positions.shape == x.shape[:2]
            and not without_values(x)
            and x.device.type == "cpu"
            and out.is_contiguous()
            and out.data_ptr() != x.data_ptr()  # rows are written into `out` before `x` is read
            and fill_rows(out, positions, self._encoding, bound=self._usable(bound), limit=self._limit)
        ):
            return self._add(out, x, out)
        return super()._add_rows(positions, x, out, bound)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # Leave out the buffer of the annotated transformer and of PyTorch's tutorial: its rows are computed here.
        state = dict(state_dict)
        self._check_table(state.pop(f"{prefix}pe", None), f"{prefix}pe", error_messages=args[-1])
        super()._load_from_state_dict(state, prefix, *args)

    def _check_table(self, table: Any, name: str, error_messages: list[str]) -> None:
        """Append a message if a saved table of positions, `(T, D)`, `(1, T, D)` or `(T, 1, D)`, is not that of here."""
        if not isinstance(table, torch.Tensor) or without_values(table) or not table.numel():
            return
        rows = table.detach().squeeze(0).squeeze(1) if table.ndim == 3 else table.detach()
        description, fix = f"shape {tuple(table.shape)}", f"{type(self).__name__}({table.shape[-1]})"
        if rows.ndim == 2 and rows.shape[1] == self.d_model and rows.is_floating_point():
            rows = rows.float()
            error = (rows - SinusoidalPositionalEncoding.shared_rows(self, len(rows), rows)).abs().max()
            # The angles of tutorials are products in float32, whose error grows with the position.
            if error <= 6.1e-8 * max(len(rows), 64) + torch.finfo(table.dtype).eps:
                return
            description, fix = self._describe(rows)
        rule = f"{name} holds other positions than {self!r} computes"
        fix += f", or del state_dict[{name!r}] to take the positions of this module"
        error_messages.append(explain(rule, got=description, fix=fix))

    def _describe(self, rows: torch.Tensor) -> tuple[str, str]:
        """Return the convention of a table, and the line that makes a module with its rows."""
        fix = f"positional_encoding('learned', {self.d_model}, max_length={len(rows)}) with these rows as its weight"
        try:
            result = identify(rows)
        except ValueError as error:  # numbers that are not finite, or a single column
            return str(error).partition("\n")[0], fix
        if not result.is_sinusoidal:
            return "no known convention", fix
        name = next(preset for preset in result.presets if preset in CONVENTIONS)
        if abs(result.amplitude - 1) > 1e-3 or result.first_position != CONVENTIONS[name].first_position:
            return f"{name!r} times {result.amplitude:g}, from position {result.first_position} on", fix
        return repr(name), f"SinusoidalPositionalEncoding({self.d_model}, convention={name!r})"
