"""Conversion of a column (one value per row) to a list, to a numeric array, or to labels.

A column is converted to an array if its values are numbers, whatever its name. A column that mixes numbers and other
values raises an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import explain, shorten, type_error, value_error
from ..ragged import Ragged
from .inputs import LABEL_COLUMNS, Values, as_list, is_missing

_EXACT = np.float64(2.0**53)  # above it, float64 cannot represent every integer


def as_array(name: str, values: Values) -> NDArray[Any] | None:
    """Return the values of column `name`, stacked into a numeric array `(B,)` or `(B, ...)`; `None` if not numeric.

    Integers are int64, bools are bool, and floats keep their dtype (float64 for Python floats, float32 for bfloat16).
    The result is `None` if no value is a number: all are texts, empty lists or None. Raise a `TypeError` for a mix of
    numbers and texts, and a `ValueError` for a mix of numbers and None, or for values of different shapes.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "i":
        return values.astype(np.int64)
    values = [_as_lists(value) for value in values]
    rows = [numbers(value, index, name) for index, value in enumerate(values)]
    pairs = zip(rows, values, strict=True)
    arrays = [row for row in rows if row is not None]
    # An empty list has no type: in a column of texts it is a text without words, in one of numbers a shorter list.
    if all(row is None or (row.size == 0 and isinstance(value, list | tuple)) for row, value in pairs):
        return None
    if len(arrays) < len(rows):
        index = next(index for index, row in enumerate(rows) if row is None)
        if is_missing(values[index]):
            raise value_error(
                f"row {index} of column '{name}' is None, and other rows hold numbers",
                got=f"{sum(map(is_missing, values))} missing of {len(values)} rows in this batch",
                fix=f"fill it, drop such rows, or dataset.remove_columns('{name}')",
            )
        raise _mixed(name, index, values[index])
    shapes = sorted({row.shape for row in arrays})
    if len(shapes) > 1:
        sizes = [shape[0] if len(shape) == 1 else shape or "(one number)" for shape in shapes]
        raise ValueError(_ragged(name, f"lengths {sizes[0]} and {sizes[-1]}"))
    stacked = np.stack(arrays)
    if stacked.dtype.kind == "f" and (np.abs(stacked) >= _EXACT).any():
        for index, row in enumerate(arrays):
            _check_integers(row.ravel().tolist(), index, name, beside_floats=True)
    return stacked


def numbers(value: Any, row: int, name: str) -> NDArray[Any] | None:
    """Return `value`, one value of a column, as an int64, bool or float array; `None` if it is not numeric.

    `value` is a number, an array, a tensor or nested lists; the result may share memory with it. Raise if no array can
    represent it, for example an integer beyond int64 or a list that mixes numbers and texts.
    """
    if isinstance(value, str | bytes):
        return None
    if isinstance(value, torch.Tensor):
        narrow = value.is_floating_point() and value.itemsize < 4 and value.dtype != torch.float16
        try:
            value = (value.float() if narrow else value).cpu().numpy()  # NumPy has no bfloat16
        except (TypeError, RuntimeError) as error:
            raise value_error(
                f"row {row} of column '{name}' is a tensor that cannot be copied into a batch",
                got=error,
                fix="tensor.detach() for one with gradient, tensor.to_dense() for a sparse one",
            ) from error
    value = _as_lists(value)
    try:
        array = np.asarray(value)
    except ValueError:  # nested lists of different lengths
        array = np.empty((), dtype=object)
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
            raise _too_large(name, row, int(array.max()))
        return array.astype(np.int64)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind == "f":
        if isinstance(value, list | tuple) and (np.abs(array) >= _EXACT).any():
            _check_integers(_leaves(value), row, name, beside_floats=True)
        return array.astype(np.float64) if array.dtype.itemsize > 8 else array
    leaves = list(_leaves(value)) if array.dtype.kind in "OU" else []
    are_numbers = [isinstance(leaf, int | float | np.number) for leaf in leaves]
    if not any(are_numbers):
        return None
    if not all(are_numbers):
        raise _mixed(name, row, value)
    _check_integers(leaves, row, name)
    raise ValueError(_ragged(name, f"lists of different lengths in row {row}"))


def to_float32(name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    """Convert the numbers of column `name` to float32; raise if a finite number becomes infinite."""
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    lost = np.isinf(narrow) & ~np.isinf(array)
    if lost.any():
        row = int(np.argwhere(lost)[0, 0])
        raise value_error(
            f"row {row} of column '{name}' holds {array[lost][0]}, which is beyond the largest float32",
            got="labels, and columns for a model, are float32",
            fix="scale it, or take its logarithm",
        )
    return narrow


def given_labels(values: Values, lengths: NDArray[np.int64], *, name: str = "labels") -> NDArray[Any] | Ragged:
    """Convert a label column to an array, or to a `Ragged` (a flat array with row lengths) for one label per token."""
    if isinstance(values, Ragged) and np.array_equal(values.lengths, lengths):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "i":
        return values.astype(np.int64)
    rows = []
    for index, value in enumerate(as_list(values)):
        row = numbers(value, index, name)
        if row is None:
            raise type_error(
                f"row {index} of column '{name}' is {type(value).__name__}, expected a number or a list of numbers",
                got=repr(value)[:60],
                fix=_label_fix(name, value),
            )
        rows.append(row)
    if len({row.ndim for row in rows}) > 1 or rows[0].ndim > 1:
        raise value_error(
            "labels must be one number in every row, or one flat list in every row",
            got=f"{sorted({row.ndim for row in rows})} dimensions",
        )
    integers = all(row.dtype.kind in "iub" or row.size == 0 for row in rows)
    if rows[0].ndim == 0 or not integers:
        widths = sorted({row.size for row in rows})
        if len(widths) > 1:
            raise value_error(
                f"column '{name}' has lengths {widths[0]} and {widths[-1]}, all floats",
                fix="one number, or lists of the same length, in every row; integers for one label per token",
            )
        return np.stack(rows).astype(np.int64) if integers else to_float32(name, np.stack(rows))
    for index, (row, length) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        if row.size != length:
            raise value_error(
                f"row {index}: {row.size} labels for {length} tokens",
                got="each token needs a label, special tokens too",
                fix="one label per word: see 'Labels per word' in docs/datasets-map.md; "
                "or give one number per row (floats for several per text)",
            )
    return Ragged.from_rows(rows, name="labels", mask=True)


def has_one_per_token(values: Values, lengths: NDArray[np.int64]) -> bool:
    """Return True if each row of a column is a sequence with one value per token."""
    rows = as_list(values)
    sizes = [len(row) if hasattr(row, "__len__") and getattr(row, "ndim", 1) != 0 else -1 for row in rows]
    return bool(np.array_equal(sizes, lengths))


def _as_lists(value: Any) -> Any:
    """Return `value.tolist()` if `value` is a NumPy array of dtype object, otherwise `value` itself."""
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype == object else value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        yield value
        return
    for item in value:
        yield from _leaves(item)


def _check_integers(leaves: Iterable[Any], row: int, name: str, *, beside_floats: bool = False) -> None:
    """Raise a `ValueError` if `leaves`, the single numbers in the value of a row, contain an integer beyond int64."""
    for leaf in leaves:
        if not isinstance(leaf, int | np.integer):
            continue
        if not -(2**63) <= leaf < 2**63 or (beside_floats and int(float(leaf)) != leaf):
            raise _too_large(name, row, int(leaf))


def _too_large(name: str, row: int, number: int) -> ValueError:
    return value_error(
        f"row {row} of column '{name}' holds {number}, which does not fit into int64",
        got="integers are int64, below 2**63; beside floats they are float64, exact up to 2**53",
        fix=f"map it to smaller numbers or texts first, or dataset.remove_columns('{name}')",
    )


def _mixed(name: str, row: int, value: Any) -> TypeError:
    fix = f"values of one type in a column, or dataset.remove_columns('{name}')"
    return type_error(
        f"row {row} of column '{name}' is {type(value).__name__}, and the column holds numbers as well",
        got=shorten(value),
        fix=_label_fix(name, value) if name in LABEL_COLUMNS else fix,
    )


def _label_fix(name: str, value: Any) -> str:
    if is_missing(value):
        return f'drop such rows first, e.g. ds.filter(lambda row: row["{name}"] is not None)'
    if not isinstance(value, str) and any(map(is_missing, _leaves(value))):
        return "-100 in place of None, at tokens without a label"
    if isinstance(value, str):
        return f'map names to numbers first, e.g. ds.class_encode_column("{name}")'
    return f'map names to numbers first, e.g. ds.map(lambda row: {{"{name}": [names.index(x) for x in row["{name}"]]}})'


def _ragged(name: str, sizes: str) -> str:
    return explain(
        f"column '{name}' has {sizes}",
        got="lists of numbers of different lengths, which cannot be stacked",
        fix=f"dataset.remove_columns('{name}'), or pad it first; per-token labels belong into a column 'labels'",
    )


def stored_embeddings(stored: Values, lengths: NDArray[np.int64]) -> Ragged:
    """Return the given column `inputs_embeds`, one float vector per token; raise if a row has more or fewer."""
    rows: list[NDArray[Any]] = []
    for index, (value, length) in enumerate(zip(stored, lengths, strict=True)):
        row = numbers(value, index, "inputs_embeds")
        if row is None or row.ndim != 2 or len(row) != length:
            raise value_error(
                f"row {index}: 'inputs_embeds' of shape {getattr(row, 'shape', None)} for {length} tokens",
                fix="one vector per token, or dataset.remove_columns('inputs_embeds')",
            )
        rows.append(row)
    flat = np.concatenate(rows)
    return Ragged(flat if flat.dtype == np.float16 else flat.astype(np.float32), lengths)
