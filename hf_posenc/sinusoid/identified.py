"""What a table of positions was found to be, as a value that prints well.

How it is found is in `recognition`.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import torch

from .arguments import USUAL_BASE
from .conventions import Convention, Layout, Spacing


@dataclass(frozen=True)
class Identified:
    r"""What a table of positions was found to be.

    Where `is_sinusoidal` is false, the formula is the nearest one, and `largest_error` says how far away it is.

    Args:
        rows, d_model (`int`): shape of the table.
        dtype (`torch.dtype`): of the table.
        is_sinusoidal (`bool`): whether its dtype, and angles computed in float32, explain every difference.
        is_exact (`bool`): whether every number is the exact one, rounded once.
        exact_in (`torch.dtype`, *optional*): to what it was rounded, where it is exact; a float32 table may hold
            bfloat16 numbers. float64 tables are exact within 2**-51.
        layout (`"interleaved"` or `"halves"`), cosine_first (`bool`): which column is what.
        spacing (`"width"` or `"ends"`): base^(-2i/D), or base^(-i/(H-1)) for H pairs of columns.
        base (`float`, *optional*): of the spacing; `None` with `bases` or `wavelengths`.
        bases (`tuple` of `float`, *optional*): positions per turn of each pair, where no spacing explains them.
        wavelengths (two `float`, *optional*): the shortest and the longest, where the first pair turns by another angle
            than 1 radian a position.
        first_position (`int`): row r holds position r + `first_position`.
        zero_rows (`tuple` of `int`): rows of nothing but zeros.
        amplitude (`float`): what the sines and cosines are multiplied by.
        largest_error (`float`): the largest difference to the formula in float64, at row and column `at`.
        at (`tuple` of `int`): row and column of that difference.
        typical_error (`float`): the root mean square of the differences, over some of the rows.
        presets (`tuple` of `str`): every convention and model family that uses the formula, or one that gives the
            same table.
        others (`tuple` of `str`): those further formulas, in words.

    Example:
        >>> from hf_posenc import sinusoidal_encoding
        >>> from hf_posenc.audit import identify
        >>> found = identify(sinusoidal_encoding(torch.arange(512), 64, convention="marian"))
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
    others: tuple[str, ...]

    @property
    def is_near(self) -> bool:
        """Whether most of the table follows the formula: sinusoids that were trained further do."""
        return is_near(self.typical_error, self.amplitude)

    @property
    def convention(self) -> Convention:
        """The convention that makes such rows, its base included."""
        return Convention(
            "recognised",
            self.layout,
            self.spacing,
            self.first_position,
            bases=self.bases,
            cosine_first=self.cosine_first,
            base=self.base or USUAL_BASE,
            wavelengths=self.wavelengths,
        )

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def is_near(error: float, amplitude: float) -> bool:
    """Whether differences of that size, root mean square, leave most of a formula to be seen."""
    return error < abs(amplitude) / 4


def _lines(found: Identified) -> list[str]:
    """How a finding is printed."""
    size = f"{found.rows:,} {'row' if found.rows == 1 else 'rows'} of width {found.d_model}, {_short(found.dtype)}"
    if len(found.zero_rows) == found.rows:
        return [f"no sinusoids: {size}", "  every row is zero"]
    position = f"row 0 holds position {found.first_position}"
    error = f"{found.largest_error:.3g} (row {found.at[0]}, column {found.at[1]})"
    if found.is_sinusoidal:
        kind = "sinusoids"
        if found.exact_in is not None:
            error += f": exact, rounded once to {_short(found.exact_in)}"
    else:
        kind = "near sinusoids, but changed" if found.is_near else "no sinusoids"
        error += f", typical {found.typical_error:.3g}"
    lines = {
        "formula" if found.is_sinusoidal else "nearest": str(found.convention),
        "or": "; ".join(found.others),
        "rows": position if found.is_near else "",
        "zero rows": _ranges(found.zero_rows),
        "amplitude": "" if found.amplitude == 1 or not found.is_near else f"{found.amplitude:.7g}",
        "largest error": error,
        "used by": ", ".join(found.presets),
    }
    shown = [f"{kind}: {size}"]
    for name, value in lines.items():
        shown += textwrap.wrap(value, 118, initial_indent=f"  {name:<13}  ", subsequent_indent=" " * 17)
    return shown


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _ranges(numbers: tuple[int, ...]) -> str:
    """Numbers in order, runs as first and last: "0, 4 to 9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in runs[:6]]
    return ", ".join(shown) + (f" and {len(runs) - 6} more runs" if len(runs) > 6 else "")
