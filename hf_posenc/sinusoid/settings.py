"""What the settings of a module that adds positions may be: scale, dropout, lengths.

Refuses, or hands back the value in its one form; those of the frequencies are in `checks`.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal

from .._explain import explain, one_of, shorten
from .checks import is_number

Scale = Literal["sqrt_d"] | float | None


def check_scale(scale: Any) -> Scale:
    """`scale`, if it is one of the three kinds."""
    if isinstance(scale, str):
        if scale != "sqrt_d":
            raise ValueError(one_of("scale", scale, ("sqrt_d", None)))
        return "sqrt_d"
    if scale is None:
        return None
    if not is_number(scale):
        raise TypeError(
            explain("scale must be None, 'sqrt_d' or a number", got=shorten(scale), fix="scale='sqrt_d' for √d_model")
        )
    if not math.isfinite(scale):
        raise ValueError(explain("scale must be finite", got=scale, fix="scale='sqrt_d' for √d_model"))
    return scale if isinstance(scale, int) else float(scale)


def check_dropout(dropout: float) -> float:
    """`dropout`, if it is a probability."""
    if not is_number(dropout):
        raise TypeError(explain("dropout must be a number", got=shorten(dropout), fix="dropout=0.1"))
    if not 0 <= dropout <= 1:
        raise ValueError(explain("dropout must be between 0 and 1", got=dropout, fix="dropout=0.1"))
    return dropout if isinstance(dropout, int) else float(dropout)


def check_length(length: Any, name: str = "max_length", *, is_optional: bool = True) -> int:
    """A number of things as an `int` of at least 1."""
    fix = f"{name}=512, or leave it out" if is_optional else f"{name}=512"
    try:
        number = operator.index(length)
    except TypeError:
        number = None
    if number is None or isinstance(length, bool):
        raise TypeError(explain(f"{name} must be a whole number", got=shorten(length), fix=fix))
    if number < 1:
        raise ValueError(explain(f"{name} must be positive", got=length, fix=fix))
    return number
