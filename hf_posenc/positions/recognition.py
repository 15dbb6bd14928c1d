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

from .._common.errors import shorten, type_error, value_error
from .._common.integers import to_numpy
from .arguments import DTYPES, USUAL_BASE
from .conventions import CONVENTIONS, FAMILIES, Convention, Layout, Spacing, resolve_convention
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
        rows, d_model (`int`): shape of the table.
        dtype (`torch.dtype`): dtype of the table.
        is_sinusoidal (`bool`): True if every number agrees with the formula, up to rounding to the dtype and the error
            of an angle in float32, which grows with the position.
        is_exact (`bool`): True if every number is the exact value of the formula, rounded once.
        exact_in (`torch.dtype`, *optional*): dtype of that rounding; `None` if `is_exact` is False. It may differ from
            `dtype`, because a float32 table may hold bfloat16 numbers. In float64, an error of 2**-51 is allowed.
        layout (`"interleaved"` or `"halves"`), cosine_first (`bool`): order of the columns, as in `Convention`.
        spacing (`"width"` or `"ends"`): frequency of pair i: base^(-2i/D) for `"width"`, base^(-i/(H-1)) for `"ends"`
            and H pairs of columns.
        base (`float`, *optional*): base of the frequencies; `None` if `bases` or `wavelengths` are given instead.
        bases (`tuple` of `float`, *optional*): positions per turn of each pair, for fixed bases.
        wavelengths (two `float`, *optional*): shortest and longest wavelength, for a convention defined by them.
        first_position (`int`): position of row 0; row r holds position r + `first_position`.
        zero_rows (`tuple` of `int`): indices of the rows that are zero.
        amplitude (`float`): factor of the sines and cosines.
        largest_error (`float`): largest difference between a number of the table and the formula in float64.
        at (`tuple` of `int`): row and column of that number.
        typical_error (`float`): root mean square of the differences in a sample of the rows.
        presets (`tuple` of `str`): names of conventions and model families with this formula; empty if `is_sinusoidal`
            is False.

    Example:
        >>> from hf_posenc import audit, sinusoidal_encoding
        >>> found = audit.identify(sinusoidal_encoding(torch.arange(512), 64, convention="marian"))
        >>> found.layout, found.spacing, found.base, found.presets[:3]
        ('halves', 'width', 10000.0, ('marian', 'Marian', 'Pegasus'))
    """

    rows: int
    d_model: int
    dtype: torch.dtype
    is_sinusoidal: bool
    is_exact: bool
    exact_in: torch.dtype | None
    layout: Layout
    cosine_first: bool
    spacing: Spacing
    base: float | None
    bases: tuple[float, ...] | None
    wavelengths: tuple[float, float] | None
    first_position: int
    zero_rows: tuple[int, ...]
    amplitude: float
    largest_error: float
    at: tuple[int, int]
    typical_error: float
    presets: tuple[str, ...]

    @property
    def is_near(self) -> bool:
        """True if `typical_error` is below a quarter of `amplitude`.

        This is still true for sinusoids after some further training.
        """
        return self.typical_error < abs(self.amplitude) / 4

    @property
    def convention(self) -> Convention:
        """The formula as a `Convention`, including its base and first position."""
        return Convention(
            "recognized",
            self.layout,
            self.spacing,
            self.first_position,
            bases=self.bases,
            cosine_first=self.cosine_first,
            base=self.base or USUAL_BASE,
            wavelengths=self.wavelengths,
        )

    def __str__(self) -> str:
        size = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'} of width {self.d_model}, {_short(self.dtype)}"
        if len(self.zero_rows) == self.rows:
            return f"not recognized: {size}\n  every row is zero"
        if not self.is_near:
            return f"not recognized: {size}\n  no known convention, at any scale, from position 0, 1 or 2"
        error = f"{self.largest_error:.3g} (row {self.at[0]}, column {self.at[1]})"
        if self.exact_in is not None:
            error += f": exact, rounded once to {_short(self.exact_in)}"
        elif not self.is_sinusoidal:
            error += f", typical {self.typical_error:.3g}"
        lines = {
            "formula" if self.is_sinusoidal else "nearest": str(self.convention),
            "rows": f"row 0 holds position {self.first_position}",
            "zero rows": _ranges(self.zero_rows),
            "amplitude": "" if self.amplitude == 1 else f"{self.amplitude:.7g}",
            "largest error": error,
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
          largest error  0.00195 (row 97, column 12): exact, rounded once to bfloat16
          used by        vaswani, DistilBERT, XLM, FlauBERT, VideoMAE
    """
    numbers = _read(table)
    d_model = numbers.shape[1]
    candidates = [resolve_convention(convention).formula for convention in (*conventions, *CONVENTIONS)]
    formulas = [
        formula for formula in dict.fromkeys(candidates) if formula.fits(d_model) and min(formula.counts(d_model)) > 0
    ]
    is_zero = (numbers == 0).all(1)
    rows = (~is_zero).nonzero().squeeze(1)[:_SAMPLE]
    dtypes, before = _precisions(numbers), int(rows[0]) if len(rows) else 0
    firsts = dict.fromkeys((*_FIRST_POSITIONS, *(first - before for first in _FIRST_POSITIONS)))
    fits = [_fit(numbers[rows].double(), rows, formula, first, dtypes[-1]) for formula in formulas for first in firsts]
    nearest = next(fit for fit in fits if fit.error <= 1.01 * min(fit.error for fit in fits) + 1e-12)
    result = _compare(numbers, is_zero, nearest, dtypes)
    # A few numbers can fit by chance.
    if not result.is_sinusoidal or not len(rows) or (len(rows) == 1 and d_model < 16):
        return replace(result, is_sinusoidal=False, is_exact=False, exact_in=None)
    return replace(result, presets=_users(nearest.formula, bool(result.zero_rows)))


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
    if not len(rows):
        return _Fit(formula, first_position, 0.0, math.inf)
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


def _compare(numbers: torch.Tensor, is_zero: torch.Tensor, fit: _Fit, dtypes: list[torch.dtype]) -> Identified:
    """Compare the table `numbers` `(N, D)`, whose zero rows are marked, with the formula of `fit`."""
    is_power = math.frexp(abs(fit.amplitude))[0] == 0.5
    exact_in = dtypes if is_power else []
    rounding = torch.finfo(dtypes[-1]).eps / 2 * (1.01 if is_power else 3.0)
    angle = (len(numbers) + 2) * 2**-22  # error of the angle in float32, at the last position
    is_within = True
    largest, at = -1.0, (0, 0)
    step = max(1, _ELEMENTS // numbers.shape[1])
    for start in range(0, len(numbers), step):
        block = numbers[start : start + step].double()
        positions = torch.arange(start, start + len(block), device="cpu") + fit.first_position
        exact = _exact(positions, fit.formula, numbers.shape[1])
        exact[is_zero[start : start + step]] = 0
        error = (block - fit.amplitude * exact).abs()
        if float(error.max()) > largest:
            row, column = divmod(int(error.argmax()), numbers.shape[1])
            largest, at = float(error.max()), (start + row, column)
        is_within &= bool((error <= abs(fit.amplitude) * (exact.abs() * rounding + angle)).all())
        exact_in = [dtype for dtype in exact_in if _is_rounded_once(block / fit.amplitude, exact, dtype)]
    formula = fit.formula
    return Identified(
        rows=numbers.shape[0],
        d_model=numbers.shape[1],
        dtype=numbers.dtype,
        is_sinusoidal=is_within,
        is_exact=bool(exact_in),
        exact_in=exact_in[0] if exact_in else None,
        layout=formula.layout,
        cosine_first=formula.cosine_first,
        spacing=formula.spacing,
        base=None if formula.bases or formula.wavelengths else formula.base,
        bases=formula.bases,
        wavelengths=formula.wavelengths,
        first_position=fit.first_position,
        zero_rows=tuple(is_zero.nonzero().squeeze(1).tolist()),
        amplitude=fit.amplitude,
        largest_error=largest,
        at=at,
        typical_error=fit.error,
        presets=(),
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
        tensor = next((candidate for candidate in tensors if isinstance(candidate, torch.Tensor)), None)
        if tensor is None:
            raise type_error(
                "a module must have its table as weight(s) or positional_embedding",
                got=f"{type(table).__name__}, which has neither",
                fix="the table itself, e.g. module.embeddings.position_embeddings",
            )
        table = tensor
    if not isinstance(table, torch.Tensor):
        array = to_numpy(table)
        if array.dtype.kind != "f":
            got = shorten(table)
            raise type_error("a table must hold floating-point numbers", got=got, fix="an array (N, D)")
        native = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.dtype(np.float64)
        table = torch.from_numpy(np.array(array, dtype=native))
    if table.is_meta:
        got = "a tensor on the meta device"
        raise value_error("the table has no numbers yet", got=got, fix="load the model's weights first")
    if table.dtype not in DTYPES:
        got = f"a tensor of {table.dtype}"
        raise type_error("a table must hold floating-point numbers", got=got, fix=".float()")
    if table.dim() != 2 or len(table) < 1 or table.shape[1] < 2:
        is_nested = table.dim() > 2 and table.numel() == table.shape[-1] * max(table.shape[:-1])
        raise value_error(
            "a table must have a row for each position and at least two columns",
            got=f"shape {tuple(table.shape)}",
            fix=f"table.reshape(-1, {table.shape[-1]})" if is_nested else "a table of shape (N, D)",
        )
    numbers: torch.Tensor = table.detach().to("cpu")
    if not bool(numbers.isfinite().all()):
        row, column = (~numbers.isfinite()).nonzero()[0].tolist()
        raise value_error(
            "every number of a table must be finite",
            got=f"{float(numbers[row, column])} in row {row}, column {column}",
            fix="load the weights again: a buffer outside of the checkpoint may be uninitialized",
        )
    return numbers


def _precisions(numbers: torch.Tensor) -> list[torch.dtype]:
    """Return the dtypes that can represent all numbers of the table `numbers`: its own first, the coarsest last."""
    coarser = [
        dtype
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        if torch.finfo(dtype).eps > torch.finfo(numbers.dtype).eps
        and torch.equal(numbers.to(dtype).to(numbers.dtype), numbers)
    ]
    return [numbers.dtype, *coarser]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _ranges(numbers: tuple[int, ...]) -> str:
    """Return ascending integers as text, such as "0, 4 to 9"; after six ranges, only the number of the others."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    ranges = [str(first) if first == last else f"{first} to {last}" for first, last in runs[:6]]
    return ", ".join(ranges) + (f" and {len(runs) - 6} more runs" if len(runs) > 6 else "")
