"""What the titles and labels of position pictures say, in the same words everywhere.

Words only: nothing is drawn.
"""

from __future__ import annotations

from ...sinusoid import Convention, resolve_convention


def formula(convention: str | Convention, base: float | None) -> str:
    """The convention's name, and the base where it is not the usual one."""
    name = resolve_convention(convention).name
    name = name if len(name) <= 40 else f"{name[:39]}…"
    return name if base is None else f"{name}, base {base:g}"


def some(count: int, name: str, step: int = 1) -> str:
    """How many there are, and that not all of them are drawn."""
    return f"{count:,} {name}{'' if count == 1 else 's'}" + (f", every {ordinal(step)} drawn" if step > 1 else "")


def ordinal(number: int) -> str:
    r"""The number as the place in an order.

    Example:
        >>> [ordinal(number) for number in (2, 3, 11, 21, 50)]
        ['2nd', '3rd', '11th', '21st', '50th']
    """
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def turn(wavelength: float) -> str:
    r"""How many positions a turn takes, short enough for a label.

    Example:
        >>> turn(6.2831), turn(62831.9), turn(float("inf"))
        ('6.28 positions a turn', '62,832 positions a turn', 'does not turn')
    """
    if wavelength == float("inf"):
        return "does not turn"
    digits = 2 if wavelength < 10 else 1 if wavelength < 100 else 0
    return f"{wavelength:,.{digits}f} positions a turn" if wavelength < 1e7 else f"{wavelength:.2g} positions a turn"
