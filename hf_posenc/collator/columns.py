"""Further columns on their way into a batch: which of them make a tensor, and which are repeated.

By the kind of their values alone; their names decide nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain

# One value a row.
Values = Sequence[Any] | NDArray[Any]


def as_array(name: str, values: Values) -> NDArray[Any] | None:
    r"""A further column as one array, by kind.

    Args:
        name (`str`): the column, for error messages.
        values (sequence): one value a row.

    Returns:
        `np.ndarray` `(B,)` or `(B, ...)`: int64 for whole numbers, float32 for fractions, bool for truth values. `None`
        for texts and other things that no tensor holds: they stay out of the batch.

    Raises:
        ValueError: if numbers are missing in some rows, or lists of numbers differ in length.

    Example:
        >>> as_array("age", [3, 5]), as_array("name", ["Ada", "Alan"])
        (array([3, 5]), None)
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _narrow(values)
    rows = [_numbers(value) for value in values if value is not None]
    numbers = [row for row in rows if row is not None]
    if not rows or len(numbers) < len(rows):
        return None
    if len(rows) < len(values):
        missing = next(index for index, value in enumerate(values) if value is None)
        raise ValueError(
            explain(
                f"row {missing} of column '{name}' is None, and other rows hold numbers",
                got=f"{len(values) - len(rows)} missing of {len(values)} rows in this batch",
                fix=f"fill it, drop such rows, or dataset.remove_columns('{name}')",
            )
        )
    shapes = sorted({row.shape for row in numbers})
    if len(shapes) > 1 or numbers[0].dtype == object:
        sizes = [shape[0] if len(shape) == 1 else shape for shape in shapes]
        raise ValueError(
            explain(
                f"column '{name}' has lengths {sizes[0]} and {sizes[-1]}",
                got="lists of numbers of different lengths, which make no tensor",
                fix=f"dataset.remove_columns('{name}'), or pad it first; per-token labels go by the name 'labels'",
            )
        )
    return _narrow(np.stack(numbers))


def _numbers(value: Any) -> NDArray[Any] | None:
    """A value as an array of numbers, of dtype object where nested lists differ in length; else `None`."""
    if isinstance(value, (str, bytes)):
        return None
    try:
        array = np.asarray(value)
    except ValueError:
        flat = [_numbers(item) for item in value]
        return np.empty(len(flat), dtype=object) if all(item is not None for item in flat) else None
    return array if array.dtype.kind in "iubf" else None


def _narrow(array: NDArray[Any]) -> NDArray[Any] | None:
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    return array.copy() if array.dtype.kind == "b" else None


def repeated(values: Values, sample: NDArray[np.int64]) -> Values:
    r"""The value of each row's text, where one text gave several rows.

    Example:
        >>> repeated(["a", "b"], np.array([0, 0, 1]))
        ['a', 'a', 'b']
    """
    if isinstance(values, np.ndarray):
        taken: NDArray[Any] = values[sample]
        return taken
    return [values[index] for index in sample.tolist()]
