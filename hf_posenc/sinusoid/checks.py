"""What the settings of an encoding may be: widths, bases, wavelengths, positions with a meaning.

Refuses, or hands back the value in its one form; what the settings mean is said in `conventions`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten

USUAL_BASE = 10000.0
FURTHEST = 2**53  # beyond it float64 does not hold every whole number


def check_width(d_model: int) -> int:
    """`d_model` as an `int` of at least 1."""
    try:
        width = operator.index(d_model)
    except TypeError:
        raise TypeError(explain("d_model must be a whole number", got=shorten(d_model), fix="d_model=512")) from None
    if isinstance(d_model, bool) or width < 1:
        raise ValueError(explain("d_model must be positive", got=repr(d_model), fix="d_model=512"))
    return width


def is_number(value: object) -> TypeGuard[float]:
    r"""Whether it is a real number, Python's or NumPy's.

    Example:
        >>> is_number(np.float32(2)), is_number(True), is_number("2")
        (True, False, False)
    """
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_base(base: Any) -> float:
    """`base` as a `float` larger than 1."""
    if not is_number(base):
        raise TypeError(explain("base must be a number", got=shorten(base), fix="base=10000"))
    # At 1 all columns would turn alike, and below it the later ones faster than the first.
    if not 1 < _float(base) < math.inf:
        raise ValueError(explain("base must be finite and larger than 1", got=shorten(base), fix="base=10000"))
    return float(base)


def check_bases(bases: Iterable[float]) -> tuple[float, ...]:
    """Positions per turn of each pair of columns, each larger than 1."""
    if not isinstance(bases, Iterable):
        raise TypeError(
            explain("fixed bases are several numbers of positions", got=shorten(bases), fix="fixed_bases(4, 5, 7)")
        )
    found = tuple(bases)
    if not found:
        raise ValueError(explain("fixed bases need at least one number", fix="fixed_bases(4, 5, 7)"))
    for base in found:
        if not is_number(base):
            raise TypeError(
                explain("a base must be a number of positions", got=shorten(base), fix="fixed_bases(4, 5, 7)")
            )
        if not 1 < _float(base) < math.inf:
            raise ValueError(
                explain("a base must be more than 1 position a turn", got=shorten(base), fix="fixed_bases(4, 5, 7)")
            )
    # NumPy's numbers are floats, too, but are spelled in a way that no JSON and no operator of ours reads.
    return tuple(int(base) if isinstance(base, int | np.integer) else float(base) for base in found)


def check_wavelengths(wavelengths: Iterable[float]) -> tuple[float, float]:
    """Shortest and longest, in positions per turn."""
    found = tuple(wavelengths) if isinstance(wavelengths, Iterable) else (wavelengths,)
    if not all(map(is_number, found)):
        raise TypeError(
            explain("a wavelength must be a number of positions", got=shorten(found), fix="wavelengths=(4, 4096)")
        )
    if len(found) != 2 or not 0 < _float(found[0]) < _float(found[1]) < math.inf:
        raise ValueError(
            explain(
                "wavelengths are the shortest and the longest, both finite and positive",
                got=shorten(found),
                fix="wavelengths=(4, 4096), in positions per turn",
            )
        )
    return float(found[0]), float(found[1])


def _float(number: float) -> float:
    """A number as a float, infinity where it is an `int` beyond them all."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def check_kinds(name: object, cosine_first: object) -> None:
    """Refuses a name that is no text, and an order of columns that is neither of the two."""
    if not isinstance(name, str):
        raise TypeError(explain("a convention's name must be text", got=shorten(name), fix="Convention('mine')"))
    if not isinstance(cosine_first, bool):
        raise TypeError(
            explain("cosine_first must be True or False", got=shorten(cosine_first), fix="cosine_first=True")
        )


def check_place(place: Any, name: str, *, negative: bool) -> int:
    """Return a position that a convention gives a meaning to, as an `int`."""
    try:
        number = operator.index(place)
    except TypeError:
        number = None
    if number is None or isinstance(place, bool):
        raise TypeError(explain(f"{name} must be a whole position", got=shorten(place), fix=f"{name}=1"))
    if number < 0 and not negative:
        raise ValueError(explain(f"{name} must be a row of a table", got=number, fix=f"{name}=1, or leave it out"))
    check_reach(np.array([number], dtype=object), name)
    return number


def check_reach(positions: NDArray[Any], name: str) -> None:
    """Raise where positions are infinite, NaN, or too far out for float64 to hold each of them."""
    bad = ~((positions >= -FURTHEST) & (positions <= FURTHEST)).astype(bool)
    if not bad.any():
        return
    rule = "between -2**53 and 2**53, beyond which float64 does not hold every whole number"
    kind, fix = "beyond", f"{name} - {name}.min(), or a larger unit"
    if positions.dtype.kind == "f" and not np.isfinite(positions).all():
        bad, rule, kind = ~np.isfinite(positions), "finite", "NaN or infinite"
        fix = f"{name}.nan_to_num(0.0), if their tokens are masked"
    index = tuple(np.argwhere(bad)[0].tolist())
    found = f"{int(bad.sum())} of {bad.size} are {kind}: {positions[index]} at index {index}"
    raise ValueError(explain(f"{name} must be {rule}", got=found, fix=fix))


def check_one_kind(bases: tuple[float, ...] | None, wavelengths: tuple[float, float] | None, base: float) -> None:
    """Refuses two ways at once of saying how fast columns turn."""
    if bases is not None and wavelengths is not None:
        raise ValueError(
            explain(
                "fixed bases and wavelengths both say how fast columns turn",
                got=f"bases={shorten(bases)}, wavelengths={wavelengths}",
                fix="one of the two",
            )
        )
    if base != USUAL_BASE and (bases is not None or wavelengths is not None):
        check_places(bases, wavelengths, base)


def check_places(
    bases: tuple[float, ...] | None,
    wavelengths: tuple[float, float] | None,
    base: float | None,
    d_model: int | None = None,
) -> None:
    """Refuses a base where others decide, and a width that fixed bases do not fill."""
    if wavelengths is not None and base is not None:
        raise ValueError(
            explain(
                "wavelengths take no base of their own",
                got=f"base={base}, wavelengths {wavelengths}",
                fix="leave base out",
            )
        )
    if bases is None:
        return
    if base is not None:
        raise ValueError(
            explain("fixed bases take no base of their own", got=f"base={base}, bases {bases}", fix="leave base out")
        )
    if d_model is not None and d_model != 2 * len(bases):
        raise ValueError(
            explain(
                f"{len(bases)} fixed bases make {2 * len(bases)} columns",
                got=f"d_model={d_model}, bases {bases}",
                fix=f"d_model={2 * len(bases)}",
            )
        )


def beyond_length(lowest: float, highest: float, limit: int, fix: str) -> str:
    """What is said of positions up to `highest` where the last one allowed is `limit` - 1."""
    return explain(
        f"position {highest:g} is beyond the declared length",
        got=f"positions {lowest:g} to {highest:g}, the last one allowed is {limit - 1}",
        fix=fix,
    )
