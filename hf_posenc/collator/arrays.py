"""Conversion of a column (one value per row) to a list, to a numeric array, or to labels.

A column is converted to an array if its values are numbers, whatever its name. A column that mixes numbers and other
values raises an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import shorten, type_error, value_error
from ..documents import LABEL_COLUMNS
from ..ragged import Ragged
from .inputs import Values, as_list, is_missing

_EXACT = np.float64(2.0**53)  # above it, float64 cannot represent every integer
_LABELS_OF_ROWS = "floats, [1.0, 0.0], for several labels of a row; or model=model, whose head decides"


def as_array(name: str, values: Values) -> NDArray[Any] | None:
    """Return the values of column `name`, stacked into a numeric array `(B,)` or `(B, ...)`; `None` if not numeric.

    Integers are int64, bools are bool, and floats keep their dtype (float64 for Python floats, float32 for bfloat16).
    The result is `None` if no value is a number: all are texts, empty lists or None. Raise a `TypeError` for a mix of
    numbers and texts, and a `ValueError` for a mix of numbers and None, or for values of different shapes.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "i":
        return values.astype(np.int64)
    values = [_as_lists(value) for value in values]
    if not {str, list, tuple, dict}.isdisjoint(map(type, values)):  # pandas has NaN where there is no text or list
        values = [None if is_missing(value) else value for value in values]
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
        raise _mixed_column(name, index, values[index])
    shapes = sorted({row.shape for row in arrays})
    if len(shapes) > 1:
        sizes = [shape[0] if len(shape) == 1 else shape or "(one number)" for shape in shapes]
        raise _uneven(name, f"lengths {sizes[0]} and {sizes[-1]}")
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
        raise _mixed_column(name, row, value)
    _check_integers(leaves, row, name)
    raise _uneven(name, f"lists of different lengths in row {row}")


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


def given_labels(
    values: Values,
    ids: Ragged,
    *,
    name: str = "labels",
    per: Literal["row", "token"] | None = None,
    is_token: NDArray[np.bool_] | None = None,
) -> NDArray[Any] | Ragged:
    r"""Convert a label column to an array `(B,)` or `(B, C)` of labels per row, or to a `Ragged` of labels per token.

    The model decides, if `per` is given. Otherwise the kind of the values does, never their number: a number is one
    label per row, a list of floats are several labels per row, and a list of integers are labels per token.

    Args:
        values (sequence): the labels of each row.
        ids (`Ragged`): the rows of token ids. Labels per token have the same lengths, padding included.
        name (`str`, *optional*, defaults to `"labels"`): name of the column, for messages.
        per (`"row"` or `"token"`, *optional*): the part of the input that has labels, for the model.
        is_token (`np.ndarray` `(N,)` bool, *optional*): False at padding. Labels may leave out the padding of their
            row, or have -100 there, or be ids everywhere.

    Raises:
        ValueError, TypeError: for labels of another kind or number, with the row.
    """
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "i" and per != "token":
        return values.astype(np.int64)
    if isinstance(values, Ragged) and per != "row":
        return _labels_of_tokens(values, ids, name, per, is_token)
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
        if per == "row" and row.ndim and row.dtype.kind == "i" and (row == IGNORED).any():
            raise value_error(
                f"row {index} of column '{name}' has several labels of the row, of which none can be ignored",
                got=shorten(row.tolist()),
                fix="0 or 1 for each class; or leave out such rows",
            )
    if len({row.ndim for row in rows}) > 1 or rows[0].ndim > 1:
        raise value_error(
            "labels must be one number in every row, or one flat list in every row",
            got=f"{sorted({row.ndim for row in rows})} dimensions",
        )
    are_floats = {row.dtype.kind == "f" for row in rows if row.size}
    if rows[0].ndim == 0:
        if per == "token":
            raise value_error(
                f"row 0 of column '{name}' is one number, and the model has an output for each token",
                got=shorten(rows[0].item()),
                fix="a list with one label per token in each row, or a model with one output for each row",
            )
        return np.stack(rows).astype(np.int64) if are_floats == {False} else to_float32(name, np.stack(rows))
    if per is None and len(are_floats) == 2:
        whole = next(index for index, row in enumerate(rows) if row.size and row.dtype.kind != "f")
        raise value_error(
            f"row {whole} of column '{name}' is a list of integers, which are labels of tokens, and other rows have "
            "floats, which are several labels of a row",
            got=shorten(rows[whole].tolist()),
            fix=_LABELS_OF_ROWS,
        )
    if per == "row" or (per is None and are_floats == {True}):
        widths = sorted({row.size for row in rows})
        if len(widths) > 1:
            raise value_error(
                f"column '{name}' has lengths {widths[0]} and {widths[-1]}, and rows have the same number of labels",
                fix="one number, or lists of the same length, in every row; integers for one label per token",
            )
        return to_float32(name, np.stack(rows))
    return _labels_of_tokens(Ragged.from_rows(rows, name="labels", mask=True), ids, name, per, is_token)


def _labels_of_tokens(
    labels: Ragged, ids: Ragged, name: str, per: str | None, is_token: NDArray[np.bool_] | None
) -> Ragged:
    """Return labels per token in rows with the lengths of `ids`, -100 at padding that was left out."""
    is_whole = labels.lengths == ids.lengths
    tokens = ids.lengths if is_token is None else ids.where(is_token).lengths
    fits = is_whole | (labels.lengths == tokens)
    if not fits.all():
        row = int(fits.argmin())
        raise value_error(
            f"row {row}: {labels.lengths[row]} labels for {tokens[row]} tokens",
            got="a list of integers: each token needs a label, special tokens too",
            fix="one label per word: see 'Labels per word' in docs/datasets-map.md"
            + ("" if per == "token" else f"; {_LABELS_OF_ROWS}"),
        )
    if is_token is None:
        return labels
    values = np.full(len(ids.values), IGNORED)
    values[np.repeat(is_whole, ids.lengths) | is_token] = labels.values
    if per is None:  # labels of a row, such as classes, could be as many as its padded row is wide
        is_ignored = values == IGNORED
        is_own = is_ignored | (values == ids.values)
        is_wrong = ids.where(~is_token & ~is_ignored).lengths.astype(np.bool_) & (ids.where(~is_own).lengths > 0)
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise value_error(
                f"row {row} of column '{name}' has {ids.lengths[row]} labels, as many as its padded row, and those at "
                "padding are not -100: they may be labels of tokens or of the row",
                got=shorten(labels[row].tolist()),
                fix=f"-100 at padding for labels of tokens; {_LABELS_OF_ROWS}",
            )
    return Ragged(values, ids.lengths)


def token_values(name: str, rows: Values, lengths: NDArray[np.int64]) -> Ragged:
    """Return a column with a number or a vector per token; raise if a row has more or fewer, or other values."""
    arrays: list[NDArray[Any]] = []
    for index, (row, length) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        array = numbers(row, index, name)
        if length and (array is None or array.ndim == 0 or len(array) != length):
            raise value_error(
                f"row {index} of column '{name}' must have one value for each of its {length} tokens",
                got=shorten(row) if array is None else f"values of shape {array.shape}",
                fix=f"one value per token, or dataset.remove_columns('{name}')",
            )
        if length and array is not None:
            arrays.append(array)
    if len(shapes := {array.shape[1:] for array in arrays}) > 1:
        raise value_error(
            f"the vectors of column '{name}' must have one width",
            got=f"widths {sorted(shapes)}",
            fix=f"vectors of one width, or dataset.remove_columns('{name}')",
        )
    flat = np.concatenate(arrays) if arrays else np.empty(0)
    if name == "inputs_embeds" and flat.ndim != 2:
        raise value_error(
            "'inputs_embeds' must have a vector for each token",
            got="one number per token" if len(flat) else "rows without tokens",
            fix="vectors of the model's width, or dataset.remove_columns('inputs_embeds')",
        )
    return Ragged(flat.astype(np.float32) if name == "inputs_embeds" and flat.dtype != np.float16 else flat, lengths)


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


def _mixed_column(name: str, row: int, value: Any) -> TypeError:
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
        return (
            "-100 in place of None, at tokens without a label; of several labels of a row, drop such rows first: "
            f'ds.filter(lambda row: None not in row["{name}"])'
        )
    if isinstance(value, str):
        return f'map names to numbers first, e.g. ds.class_encode_column("{name}")'
    return f'map names to numbers first, e.g. ds.map(lambda row: {{"{name}": [names.index(x) for x in row["{name}"]]}})'


def _uneven(name: str, sizes: str) -> ValueError:
    return value_error(
        f"column '{name}' has {sizes}",
        got="lists of numbers of different lengths, which cannot be stacked",
        fix=f"token_columns=('{name}',), if rows of input_ids have one value per token in it; "
        f"dataset.remove_columns('{name}'), or pad it first; per-token labels belong into a column 'labels'",
    )
