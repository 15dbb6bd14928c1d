"""Checks of plot arguments: conversion to NumPy arrays and integers, and errors for values that cannot be plotted.

The error messages contain the argument's `name`, and an `example` or a `fix`. This module does not need matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, type_error, value_error
from .._common.integers import as_integer
from .._common.integers import as_integers as _as_integers

_LARGEST = 2**24  # number of positions; more would fill the memory


def as_numpy(value: Any) -> NDArray[Any]:
    r"""Convert a tensor, an array or nested lists to a NumPy array; float tensors of 8 or 16 bits become float32.

    Example:
        >>> import torch
        >>> as_numpy(torch.ones(2, dtype=torch.bfloat16, requires_grad=True))
        array([1., 1.], dtype=float32)
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        is_small = value.is_floating_point() and value.element_size() < 4
        value = (value.float() if is_small else value).numpy()  # NumPy has no bfloat16
    return np.asarray(value)


def as_finite(value: Any, name: str, example: str = "torch.randn(8, 4)") -> NDArray[np.float64]:
    r"""Return `value`, a tensor, an array or nested lists, as a float64 array of the same shape.

    The error messages contain `name`, the argument's name, and `example`, a correct value.

    Example:
        >>> as_finite([1, 2], "losses", "[0.5, 0.4]")
        array([1., 2.])
    """
    try:
        values = np.asarray(as_numpy(value), dtype=np.float64)
    except (TypeError, ValueError):
        raise type_error(f"{name} must be numbers", got=shorten(value), fix=example) from None
    wrong = ~np.isfinite(values)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise value_error(
            f"{name} must be finite to be drawn",
            got=f"{values[first]} at {list(first)}; {int(wrong.sum()):,} of {values.size:,} are NaN or infinite",
            fix=f"np.isfinite({name if name.isidentifier() else 'values'}) finds them all",
        )
    return values


def check_count(name: str, count: int, most: int, fix: str) -> None:
    r"""Raise `ValueError` if `count`, the number of items that a plot would label, is larger than `most`.

    The error message contains `name`, the plural noun of the items, and `fix`, advice to the user.

    Example:
        >>> check_count("columns", 3, 7, "columns=[0, 1]")  # 3 columns of at most 7: no error
    """
    if count > most:
        raise value_error(f"a picture can label at most {most} {name}", got=count, fix=fix)


def as_count(value: object, name: str, example: int, *, most: int = _LARGEST) -> int:
    r"""Return `value`, an integer argument of a plot, as an `int` from 1 to `most` (2**24 by default).

    The error messages contain `name`, the argument's name, and `example`, a correct value.

    Example:
        >>> as_count(np.int64(3), "length", 100)
        3
    """
    number = as_integer(value, name, minimum=1, example=example)
    if number > most:
        raise value_error(f"a picture shows {name} up to {most:,}", got=number, fix=f"{name}={example}")
    return number


def as_integers(values: object, name: str, most: int, example: str) -> NDArray[np.int64]:
    r"""Return an integer, or a list, tuple, range or array of 1 to `most` integers, as an int64 array `(N,)`.

    The error messages contain `name`, the argument's name, and `example`, a correct value.

    Example:
        >>> as_integers(3, "columns", 7, "[0, 1]")
        array([3])
    """
    sequence = values if isinstance(values, Sequence) or getattr(values, "ndim", None) else [values]
    array = _as_integers(sequence, name, minimum=0, fix=f"{name}={example}")
    if not len(array):
        raise value_error(f"{name} must not be empty", got=shorten(values), fix=f"{name}={example}")
    check_count(name, len(array), most, f"{name}={example}")
    return array


def as_indices(wanted: object, count: int, name: str, others: str = "") -> list[int]:
    r"""Return one or several indices, such as the argument `layer` of a plot, as a list of `int` from 0 to `count` - 1.

    Example:
        >>> as_indices([0, -1], 3, "layer", ', several, or "all"'), as_indices("all", 3, "layer", ', or "all"')
        ([0, 2], [0, 1, 2])
    """
    if others and isinstance(wanted, str) and wanted == "all":
        return list(range(count))
    numbers: list[Any] = list(wanted) if others and isinstance(wanted, list | tuple | range) else [wanted]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not -count <= number < count:
            rule = f"{name} must be an integer from 0 to {count - 1}{others}"
            raise value_error(rule, got=shorten(number), fix=f"{name}={count - 1}")
    if not numbers:
        raise value_error(f"{name} must not be empty", got=shorten(wanted), fix=f"{name}=0")
    return [int(number) % count for number in numbers]
