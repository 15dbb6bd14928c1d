"""Reference of the encoding in mpmath, written from the formulas, for tests of exactness.

Shares nothing with the package but the fields of a `Convention`. The conventions that every test goes through are here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import torch

from hf_posenc import fixed_bases, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, Convention

FIXED = fixed_bases(4, 5, 7)
ALL = [*CONVENTIONS.values(), FIXED]
# Conventions that differ in more than their name.
DISTINCT = list({replace(convention, name=""): convention for convention in reversed(ALL)}.values())[::-1]
# Conventions that give a position different rows.
FORMULAS = list({convention.formula: convention for convention in reversed(ALL)}.values())[::-1]
# Significant bits, and the exponent of the smallest normal number: units of smaller numbers have the same size.
FORMATS = {torch.float32: (24, -126), torch.bfloat16: (8, -126), torch.float16: (11, -14)}
# 50 decimal places at 2**31 turns.
DIGITS = 60


def table_of(rows: int, width: int, convention: str = "vaswani", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the table of a model family: row p is the encoding of position p, and the row of padding is zero."""
    table = sinusoidal_encoding(range(rows), width, convention=convention, dtype=dtype)
    if (padding := CONVENTIONS[convention].padding_position) is not None:
        table[padding] = 0
    return table


def named(convention: Convention) -> str:
    """Return the id of a convention for pytest."""
    return convention.name


def widths(convention: Convention) -> list[int]:
    """Return an even and an odd width, or the only width of fixed bases."""
    return [12, 7] if convention.bases is None else [2 * len(convention.bases)]


def place(convention: Convention, width: int, column: int) -> tuple[bool, int] | None:
    """Return True if a column holds cosines, and the index of its frequency; `None` for a column of zeros."""
    pairs = _pairs(convention, width)
    if convention.layout == "interleaved":
        pair, second = divmod(column, 2)
    else:
        second, pair = divmod(column, pairs) if pairs else (2, 0)
    return None if second > 1 else (bool(second) != convention.cosine_first, pair)


def value(convention: Convention, width: int, base: float | None, position: float, column: int) -> Any:
    """Return one number of the encoding as an mpmath number, to the digits of the context."""
    found = place(convention, width, column)
    if found is None:
        return mpmath.mpf(0)
    is_cosine, pair = found
    if convention.bases is not None:
        half_turns = 2 * mpmath.mpf(position) / mpmath.mpf(convention.bases[pair])
        return mpmath.cospi(half_turns) if is_cosine else mpmath.sinpi(half_turns)
    angle = mpmath.mpf(position) * radians(convention, width, base, pair)
    return mpmath.cos(angle) if is_cosine else mpmath.sin(angle)


def radians(convention: Convention, width: int, base: float | None, pair: int) -> Any:
    """Return the radians per position of a pair of columns: Vaswani et al. 2017, section 3.5, and its variants."""
    if convention.bases is not None:
        return 2 * mpmath.pi / mpmath.mpf(convention.bases[pair])
    steps = mpmath.mpf(max(_pairs(convention, width) - 1, 1)) if convention.spacing == "ends" else mpmath.mpf(width) / 2
    if convention.wavelengths is not None:
        shortest, longest = map(mpmath.mpf, convention.wavelengths)
        return 2 * mpmath.pi / shortest * mpmath.power(shortest / longest, pair / steps)
    return mpmath.power(mpmath.mpf(convention.base if base is None else base), -pair / steps)


def unit(exact: Any, dtype: torch.dtype) -> Any:
    """Return one unit in the last place of `dtype` at an exact value."""
    digits, least = FORMATS[dtype]
    # frexp: exact = m * 2**e with m from a half to 1.
    exponent = least if exact == 0 else max(int(mpmath.frexp(exact)[1]) - 1, least)
    return mpmath.ldexp(1, exponent - digits + 1)


def units(ours: float, exact: Any, dtype: torch.dtype) -> float:
    """Return the error of a number in units in the last place; for float64 in units of 1."""
    size = mpmath.ldexp(1, -52) if dtype == torch.float64 else unit(exact, dtype)
    return float(abs(mpmath.mpf(ours) - exact) / size)


def sweep(convention: Convention, width: int, rows: int) -> Any:
    """Return all rows of positions 0 to `rows` - 1 as an array `(rows, width)` of `longdouble`.

    mpmath gives sine and cosine of about 2·√rows angles; the others are their sums: sin(a + b) = sin a cos b + cos a
    sin b, in `longdouble`.
    """
    step = 1 << (rows.bit_length() // 2)
    counts = range(step), range(0, rows, step)
    exact = np.zeros((rows, width), np.longdouble)
    with mpmath.workdps(DIGITS):
        for column in range(width):
            found = place(convention, width, column)
            if found is None:
                continue
            is_cosine, pair = found
            turned = radians(convention, width, None, pair)
            (cosines, sines), (far_cosines, far_sines) = (
                np.array([[_long(part) for part in mpmath.cos_sin(count * turned)] for count in some]).T
                for some in counts
            )
            if is_cosine:
                total = np.outer(far_cosines, cosines) - np.outer(far_sines, sines)
            else:
                total = np.outer(far_sines, cosines) + np.outer(far_cosines, sines)
            exact[:, column] = total.reshape(-1)[:rows]
            for row in np.flatnonzero(np.abs(exact[:, column]) < 1e-6):  # whose relative error is too large
                exact[row, column] = _long((mpmath.cos if is_cosine else mpmath.sin)(int(row) * turned))
    return exact


def _long(exact: Any) -> Any:
    return np.longdouble(mpmath.nstr(exact, 40))


def worst_of(ours: torch.Tensor, exact: Any) -> float:
    """Return the largest error of a table in units in the last place of its dtype; for float64 in units of 1."""
    error = np.abs(ours.double().numpy() - exact)
    if ours.dtype == torch.float64:
        return float(error.max() * 2.0**52)
    digits, least = FORMATS[ours.dtype]
    exponents = np.maximum(np.frexp(exact)[1] - 1, least)
    return float(np.ldexp(error, digits - 1 - exponents).max())


def _pairs(convention: Convention, width: int) -> int:
    return width // 2 if convention.layout == "halves" and convention.spacing == "ends" else (width + 1) // 2
