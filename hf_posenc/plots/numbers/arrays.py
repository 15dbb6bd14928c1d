"""Tensors and lists as NumPy arrays, and the refusal of those that cannot be drawn.

Only kinds and shapes are looked at here; what the numbers mean, each picture knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._explain import explain, shorten
from ..limits import check_finite


def as_numpy(value: Any) -> NDArray[Any]:
    r"""A tensor of any device and dtype, an array or lists, as an array.

    Example:
        >>> import torch
        >>> as_numpy(torch.ones(2, dtype=torch.bfloat16, requires_grad=True))
        array([1., 1.], dtype=float32)
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()  # NumPy has no bfloat16
    return np.asarray(value)


def numbers_of(value: Any, what: str, example: str) -> NDArray[np.float64]:
    r"""Numbers as float64, all of them finite.

    Example:
        >>> numbers_of([1, 2], "losses", "[0.5, 0.4]")
        array([1., 2.])
    """
    try:
        values = np.asarray(as_numpy(value), dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(explain(f"{what} must be numbers", got=shorten(value), fix=example)) from None
    return check_finite(what, values)
