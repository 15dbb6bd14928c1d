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
        ValueError: if lists of numbers differ in length.

    Example:
        >>> as_array("age", [3, 5]), as_array("name", ["Ada", "Alan"])
        (array([3, 5]), None)
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _narrow(values)
    if any(value is None or isinstance(value, (str, bytes)) for value in values):
        return None
    rows = [np.asarray(value) if not _is_ragged(value) else np.empty(0, dtype=object) for value in values]
    if any(row.dtype.kind not in "iubf" and row.size for row in rows) or any(row.dtype == object for row in rows):
        return None
    lengths = sorted({row.shape for row in rows})
    if len(lengths) > 1:
        sizes = [shape[0] if len(shape) == 1 else shape for shape in lengths]
        raise ValueError(
            explain(
                f"column '{name}' has lengths {sizes[0]} and {sizes[-1]}",
                got="lists of numbers of different lengths, which make no tensor",
                fix=f"dataset.remove_columns('{name}'), or pad it first; per-token labels go by the name 'labels'",
            )
        )
    return _narrow(np.stack(rows)) if rows else None


def _is_ragged(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, (list, tuple, str, dict)) for item in value)


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
