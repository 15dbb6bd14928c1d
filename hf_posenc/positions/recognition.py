"""Recognition of sinusoids in a position table: find its convention, first position, amplitude and error.

The known conventions and those that a caller names are fitted, with position 0, 1 or 2 in the first row. A trained or
fine-tuned table is not identified as sinusoidal.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import counted, shorten, type_error, value_error
from .._common.integers import to_numpy
from .arguments import DTYPES
from .conventions import CONVENTIONS, FAMILIES, Convention, resolve_convention
from .exact import exact_rows, round_once, waves

_TABLE_NAMES = ("weight", "weights", "positional_embedding")  # attributes of modules that hold a table
_FIRST_POSITIONS = (0, 1, 2)  # tried for row 0 and for the first row that is not zero: RoBERTa's tokens begin at row 2
_SAMPLE = 64  # rows that choose the formula; the whole table is compared with that one only
_ELEMENTS = 2**20  # compared at once
# Difference between float64 encodings and the exact values.
_FLOAT64_ERROR = 2.0**-51


@dataclass(frozen=True)
class Identified:
    r"""Result of `identify`: the convention of a table, its first position and amplitude, and its largest error.

    If no formula explains the table, `is_sinusoidal` is False, and the fields describe the nearest formula.

    Args:
        shape (two `int`): rows and width of the table.
        dtype (`torch.dtype`): dtype of the table.
        convention (`Convention`): the formula, including its base and first position.
        first_position (`int`): position of row 0; row r holds position r + `first_position`.
        zero_rows (`tuple` of `int`): indices of the rows that are zero.
        amplitude (`float`): factor of the sines and cosines.
        largest_error (`float`): largest difference between a number of the table and the formula in float64.
        is_sinusoidal (`bool`): True if every number agrees with the formula, up to rounding to the dtype and the error
            of an angle in float32, which grows with the position.
        is_near (`bool`): True if the root mean square of the differences, in a sample of the rows, is below a quarter
            of the amplitude. This is still true for sinusoids after some further training.
        exact_in (`torch.dtype`, *optional*): dtype to which every number is the exact value of the formula, rounded
            once; `None` if there is none. It may differ from `dtype`, because a float32 table may hold bfloat16
            numbers. In float64, an error of 2**-51 is allowed.
        presets (`tuple` of `str`): names of conventions and model families with this formula; empty if `is_sinusoidal`
            is False.

    Example:
        >>> from hf_posenc import audit, sinusoidal_encoding
        >>> found = audit.identify(sinusoidal_encoding(torch.arange(512), 64, convention="marian"))
        >>> found.convention.layout, found.convention.spacing, found.convention.base, found.presets[:3]
        ('halves', 'width', 10000.0, ('marian', 'Marian', 'Pegasus'))
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    convention: Convention
    first_position: int
    zero_rows: tuple[int, ...]
    amplitude: float
    largest_error: float
    is_sinusoidal: bool
    is_near: bool
    exact_in: torch.dtype | None
    presets: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """True if every number is the exact value of the formula, rounded once to `exact_in`."""
        return self.exact_in is not None

    def __str__(self) -> str:
        size = f"{counted(self.shape[0], 'row')} of width {self.shape[1]}, {_short(self.dtype)}"
        if not self.is_near:
            return f"not recognized: {size}\n  no known convention, at any scale, from position 0, 1 or 2"
        lines = {
            "formula" if self.is_sinusoidal else "nearest": str(self.convention),
            "rows": f"row 0 holds position {self.first_position}",
            "zero rows": shorten(list(self.zero_rows)) if self.zero_rows else "",
            "amplitude": "" if self.amplitude == 1 else f"{self.amplitude:.7g}",
            "largest error": f"{self.largest_error:.3g}",
            "exact": f"rounded once to {_short(self.exact_in)}" if self.exact_in else "",
            "used by": ", ".join(self.presets),
        }
        output = [f"{'sinusoids' if self.is_sinusoidal else 'near sinusoids, but changed'}: {size}"]
        for name, value in lines.items():
            output += textwrap.wrap(value, 118, initial_indent=f"  {name:<13}  ", subsequent_indent=" " * 17)
        return "\n".join(output)


def identify(
    table: torch.Tensor | NDArray[Any] | torch.nn.Module, *, conventions: Sequence[str | Convention] = ()
) -> Identified:
    r"""Find the convention of a position table, its first position and amplitude, and its largest error.

    Args:
        table (`torch.Tensor` or array `(N, D)`, or a module with a table as its `weight`, `weights` or
            `positional_embedding`): any floating dtype and device; it is not changed. D is at least 2.
        conventions (sequence of `str` or `Convention`, *optional*): conventions to try before those in `CONVENTIONS`,
            for example with a base of your own. No others are tried.

    Returns:
        `Identified`. If no convention explains the table, it has `is_sinusoidal=False` and the nearest formula.

    Raises:
        ValueError: if the table does not have two dimensions, or has no rows, fewer than two columns, or a number that
            is not finite.
        TypeError: if it is not a table of floating-point numbers.

    Example:
        >>> from hf_posenc import sinusoidal_encoding
        >>> print(identify(sinusoidal_encoding(torch.arange(2, 130), 64, dtype=torch.bfloat16)))
        sinusoids: 128 rows of width 64, bfloat16
          formula        sines and cosines side by side, of p / 10000^(2i/D)
          rows           row 0 holds position 2
          largest error  0.00195
          exact          rounded once to bfloat16
          used by        vaswani, DistilBERT, XLM, FlauBERT, VideoMAE
    """
    numbers = _read(table)
    d_model = numbers.shape[1]
    candidates = [resolve_convention(convention).formula for convention in (*conventions, *CONVENTIONS)]
    formulas = [formula for formula in dict.fromkeys(candidates) if formula.fits(d_model)]
    rows = numbers.any(1).nonzero().squeeze(1)[:_SAMPLE]  # those of zeros may be padding
    rows = rows if len(rows) else torch.zeros(1, dtype=torch.int64, device="cpu")
    # The dtypes that can represent all numbers, from the dtype of the table on.
    least = torch.finfo(numbers.dtype).eps
    coarser = [dtype for dtype in DTYPES if torch.finfo(dtype).eps >= least and _can_hold(dtype, numbers)]
    dtypes = sorted(coarser, key=lambda dtype: torch.finfo(dtype).eps)
    firsts = dict.fromkeys((*_FIRST_POSITIONS, *(first - int(rows[0]) for first in _FIRST_POSITIONS)))
    fits = [_fit(numbers[rows].double(), rows, formula, first, dtypes[-1]) for formula in formulas for first in firsts]
    nearest = next(fit for fit in fits if fit.error <= 1.01 * min(fit.error for fit in fits) + 1e-12)
    return _compare(numbers, nearest, dtypes, is_enough=len(rows) > 1 or d_model >= 16)


def _can_hold(dtype: torch.dtype, numbers: torch.Tensor) -> bool:
    return torch.equal(numbers.to(dtype).to(numbers.dtype), numbers)


class _Fit(NamedTuple):
    """A formula, its best amplitude for sampled rows of a table, and the root mean square of the differences."""

    formula: Convention
    first_position: int
    amplitude: float
    error: float


def _fit(
    values: torch.Tensor, rows: torch.Tensor, formula: Convention, first_position: int, precision: torch.dtype
) -> _Fit:
    """Fit the amplitude of `formula` to the sampled `values` `(R, D)`, which are `rows` `(R,)` of a table."""
    exact = _exact(rows + first_position, formula, values.shape[1])
    # The median over rows is not affected by a few changed ones.
    amplitude = float(((values * exact).sum(1) / exact.square().sum(1)).median())
    power = 2.0 ** round(math.log2(abs(amplitude) or 1.0))
    if abs(amplitude / power - 1) <= max(torch.finfo(precision).eps / 2, 1e-6):
        amplitude = power  # multiplying by a power of two rounds nothing, so the rest can be exact
    return _Fit(formula, first_position, amplitude, float((values - amplitude * exact).square().mean().sqrt()))


def _exact(positions: torch.Tensor, formula: Convention, d_model: int) -> torch.Tensor:
    """Return the float64 encodings `(R, D)` of `positions` `(R,)` by `formula`."""
    return exact_rows(positions.double(), waves(formula, d_model, formula.check_fit(d_model)), torch.float64)


# ---------------------------------------------------------------------------------------- comparison with a whole table


def _compare(numbers: torch.Tensor, fit: _Fit, dtypes: list[torch.dtype], *, is_enough: bool) -> Identified:
    """Compare the table `numbers` `(N, D)` with the formula of `fit`."""
    is_power = math.frexp(abs(fit.amplitude))[0] == 0.5
    exact_in = dtypes if is_power else []
    rounding = torch.finfo(dtypes[-1]).eps / 2 * (1.01 if is_power else 3.0)
    angle = (len(numbers) + 2) * 2**-22  # error of the angle in float32, at the last position
    largest, is_within = 0.0, is_enough and fit.amplitude != 0  # a few numbers can fit by chance
    is_zero = ~numbers.any(1)
    positions = torch.arange(len(numbers), device="cpu") + fit.first_position
    step = max(1, _ELEMENTS // numbers.shape[1])
    parts = [torch.split(each, step) for each in (numbers, positions, is_zero)]
    for rows, where, zeros in zip(*parts, strict=True):
        block, exact = rows.double(), _exact(where, fit.formula, numbers.shape[1])
        exact[zeros] = 0
        error = (block - fit.amplitude * exact).abs()
        largest = max(largest, float(error.max()))
        is_within &= bool((error <= abs(fit.amplitude) * (exact.abs() * rounding + angle)).all())
        exact_in = [dtype for dtype in exact_in if _is_rounded_once(block / fit.amplitude, exact, dtype)]
    return Identified(
        shape=(numbers.shape[0], numbers.shape[1]),
        dtype=numbers.dtype,
        convention=replace(fit.formula, name="recognized", first_position=fit.first_position),
        first_position=fit.first_position,
        zero_rows=tuple(is_zero.nonzero().squeeze(1).tolist()),
        amplitude=fit.amplitude,
        largest_error=largest,
        is_sinusoidal=is_within,
        is_near=fit.error < abs(fit.amplitude) / 4,
        exact_in=exact_in[0] if is_within and exact_in else None,
        presets=_users(fit.formula, bool(is_zero.any())) if is_within else (),
    )


def _is_rounded_once(values: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return True if `values` equal `exact` rounded once to `dtype`; with float64 they may differ by 2**-51."""
    if dtype == torch.float64:
        return bool(((values - exact).abs() <= _FLOAT64_ERROR).all())
    return torch.equal(round_once(exact, dtype).double(), values)


def _users(formula: Convention, has_zero_rows: bool) -> tuple[str, ...]:
    """Return the names of presets with this formula, those that also fit `has_zero_rows` first, then of families."""
    names = [name for name, convention in CONVENTIONS.items() if convention.formula == formula]
    names.sort(key=lambda name: (CONVENTIONS[name].padding_position is not None) != has_zero_rows)
    families = [family for name in names for family in FAMILIES.get(name, "").split(", ") if family]
    return (*names, *families)


# ------------------------------------------------------------------------------------------------- reading and printing


def _read(table: Any) -> torch.Tensor:
    """Return `table`, a tensor, an array or a module with a table, as a CPU tensor `(N, D)`; raise if it is invalid."""
    if isinstance(table, torch.nn.Module):
        tensors = [getattr(table, name, None) for name in _TABLE_NAMES]
        table = next((candidate for candidate in tensors if isinstance(candidate, torch.Tensor)), table)
    if not isinstance(table, (torch.Tensor, torch.nn.Module)):
        array = to_numpy(table)
        if array.dtype.kind == "f":  # torch has no numbers of another byte order or of 80 bits
            table = torch.from_numpy(array.astype(array.dtype.newbyteorder("=") if array.itemsize <= 8 else np.float64))
    if not isinstance(table, torch.Tensor) or table.dtype not in DTYPES:
        raise type_error(
            "a table must hold floating-point numbers (N, D); a module must have it as weight(s) or "
            "positional_embedding",
            got=f"a tensor of {table.dtype}" if isinstance(table, torch.Tensor) else shorten(table),
            fix="the table itself, such as module.embeddings.position_embeddings, in a floating-point dtype",
        )
    if table.dim() != 2 or len(table) < 1 or table.shape[1] < 2:
        raise value_error(
            "a table must have a row for each position and at least two columns",
            got=f"shape {tuple(table.shape)}",
            fix="a table of shape (N, D), such as table[0] of shape (1, N, D)",
        )
    numbers: torch.Tensor = table.detach().to("cpu")
    if not bool(numbers.isfinite().all()):
        raise value_error(
            "every number of a table must be finite",
            got=f"{int((~numbers.isfinite()).sum())} of {numbers.numel()} are NaN or infinite",
            fix="load the weights again: a buffer outside of the checkpoint may be uninitialized",
        )
    return numbers


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
