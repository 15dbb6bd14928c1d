"""Checks of arguments that are integers, or lists of integers. Other arguments are checked where they are used."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from .errors import shorten, type_error, value_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def as_integer(value: object, name: str, *, minimum: int | None = None, example: object) -> int:
    """Check an integer argument and return it as an `int`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        if isinstance(value, str) and value.isdecimal():
            example = int(value)
        raise type_error(f"{name} must be an integer", got=shorten(value), fix=f"{name}={example}")
    if minimum is not None and number < minimum:
        rule = {0: "must not be negative", 1: "must be positive"}.get(minimum, f"must be at least {minimum}")
        raise value_error(f"{name} {rule}", got=number, fix=f"{name}={example}")
    return number


def to_numpy(values: Any) -> NDArray[Any]:
    """Return a list, array or tensor as an array; one of two dimensions without values if it is none."""
    import numpy as np  # here, because the command line loads this module, and not NumPy

    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (ValueError, TypeError):  # lists of unequal lengths; a tensor of bfloat16
        return np.empty((0, 0), dtype=object)


def as_integers(values: Any, name: str, *, minimum: int, fix: str) -> NDArray[np.int64]:
    """Return a flat list, array or tensor of integers as a new int64 array `(N,)`; raise for anything else."""
    import numpy as np

    array = to_numpy(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        kind = values.dtype if hasattr(values, "detach") else array.dtype
        got = f"{type(values).__name__} {shorten(values)}, {array.ndim}-dimensional values of {kind}"
        raise type_error(f"{name} must be a flat list of integers", got=got, fix=fix)
    bad = np.flatnonzero(array < minimum)
    if len(bad):
        rule = "not be negative" if minimum == 0 else f"be at least {minimum}"
        got = f"{array[bad[0]]} at index {bad[0]}" + (f", {len(bad)} such of {len(array)}" if len(bad) > 1 else "")
        raise value_error(f"{name} must {rule}", got=got, fix=fix)
    return array.astype(np.int64)
