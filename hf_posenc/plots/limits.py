"""What can be drawn at all: how much of a long axis, how many things, and finite numbers only.

Arithmetic and refusals; no matplotlib.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain

MOST = 2000  # rows or columns; a picture has fewer pixels than that


def every(count: int, most: int = MOST) -> int:
    r"""How many neighbours share one row or column of a picture, so that at most `most` are drawn.

    Example:
        >>> every(2000), every(100_000)
        (1, 50)
    """
    return max(-(-count // most), 1)


def check_finite(name: str, values: NDArray[Any]) -> NDArray[Any]:
    r"""The values, if all of them can be drawn.

    Raises:
        ValueError: if one is NaN or infinite; the message says where.

    Example:
        >>> check_finite("attention", np.ones(2))
        array([1., 1.])
    """
    wrong = ~np.isfinite(values)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        # "losses of 'a'" says what they are, and is nothing that one could index
        called, variable, place = (repr(name), name, name) if name.isidentifier() else (name, "numbers", "")
        raise ValueError(
            explain(
                f"NaN or infinity in the data: {called} must be finite to be drawn",
                got=f"{values[first]} at {place}{list(first)}; {int(wrong.sum()):,} of {values.size:,} numbers",
                fix=f"np.isfinite({variable}) finds them all",
            )
        )
    return values


def check_count(what: str, count: int, most: int, fix: str) -> None:
    r"""Refuses more things than can be labelled and told apart.

    Raises:
        ValueError: if `count` is more than `most`.

    Example:
        >>> check_count("columns", 3, 7, "columns=[0, 1]")
    """
    if count > most:
        raise ValueError(explain(f"at most {most} {what} can be labelled in one picture", got=count, fix=fix))
