"""Position ids from a mask, from lengths, or from the documents of packed rows.

They are never computed from token ids, because the padding id may also be a real token such as eos.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.constants import PaddingSide
from .._common.errors import require_one_of, shorten, type_error, value_error
from .._common.integers import as_integer, as_integers
from ..ragged import Ragged, run_indices
from .arguments import can_check_values

_Array = TypeVar("_Array", torch.Tensor, NDArray[Any])


def position_ids_from_mask(attention_mask: _Array, *, start: int = 0) -> _Array:
    r"""Return position ids that count the real tokens of each row. Padding may be anywhere, also between tokens.

    Args:
        attention_mask (`torch.Tensor` or `np.ndarray` `(B, T)`, bool or 0 and 1): True, or 1, at real tokens.
        start (`int`, *optional*, defaults to 0): position of a row's first real token.

    Returns:
        `(B, T)` int64: start, start + 1, … at the real tokens of each row, `start` at padding. It is an array for an
        array, and a tensor on the same device for a tensor. A text has the same positions with left padding, right
        padding and none.

    Raises:
        ValueError: if the mask is not two-dimensional, or contains a value other than 0 and 1. Values are checked on
            the CPU only, because on an accelerator the check would wait for the device.
        TypeError: if it is neither a tensor nor an array.

    Example:
        >>> position_ids_from_mask(torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1]]))
        tensor([[0, 1, 2, 0],
                [0, 0, 1, 2]])
        >>> position_ids_from_mask(np.array([[True, False, True]]), start=2)
        array([[2, 2, 3]])
    """
    keep: _Array = check_mask(attention_mask)
    return unchecked_position_ids(keep, as_integer(start, "start", example=0))


def check_mask(attention_mask: Any) -> Any:
    """Return `attention_mask`, a tensor or array `(B, T)`, as bool, True at real tokens; raise for any other.

    Values other than 0 and 1 raise on the CPU only, because on an accelerator the check would wait for the device.
    """
    if not isinstance(attention_mask, (torch.Tensor, np.ndarray)):
        raise type_error(
            "attention_mask must be a tensor or an array (batch, length)",
            got=shorten(attention_mask),
            fix="torch.tensor(attention_mask)",
        )
    if attention_mask.ndim != 2:
        raise value_error(
            "attention_mask must be (batch, length): 1 at real tokens, 0 at padding",
            got=f"shape {tuple(attention_mask.shape)}",
            fix="attention_mask[None] for a single row"
            if attention_mask.ndim == 1
            else "pass the tokenizer's own mask, before its conversion to (B, 1, T, T)",
        )
    if attention_mask.dtype in (torch.bool, np.bool_):
        return attention_mask
    numbers = attention_mask
    if isinstance(attention_mask, torch.Tensor):
        if not can_check_values(attention_mask):
            return attention_mask == 1
        numbers = attention_mask.detach()
        numbers = (numbers.float() if numbers.is_floating_point() else numbers).numpy()
    keep = numbers == 1
    wrong = ~(keep | (numbers == 0))
    if wrong.any():
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        raise value_error(
            "attention_mask must contain only 0 and 1",
            got=f"{numbers[row, column].item()} in row {row}, column {column}",
            fix="attention_mask == 0 for an additive mask, where 0 means a real token",
        )
    return torch.from_numpy(keep) if isinstance(attention_mask, torch.Tensor) else keep


def position_ids_from_lengths(
    lengths: torch.Tensor | NDArray[Any] | Sequence[int],
    max_length: int | None = None,
    *,
    start: int = 0,
    padding_side: PaddingSide = "right",
) -> Any:
    r"""Return position ids for rows with the given numbers of real tokens; they count up from `start` in each row.

    Args:
        lengths (`torch.Tensor`, `np.ndarray` or sequence of `int`, `(B,)`): real tokens in each row; 0 is allowed.
        max_length (`int`, *optional*): length T of the padded rows; by default the largest of `lengths`.
        start (`int`, *optional*, defaults to 0): position of a row's first token.
        padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): side of a row with the padding.

    Returns:
        `(B, T)` int64: start, start + 1, … at the real tokens of each row, `start` at padding. It is an array for an
        array, otherwise a tensor on the device of `lengths`, or on the CPU for a sequence.

    Raises:
        ValueError: if a length is negative or larger than `max_length`, or `padding_side` is neither side.
        TypeError: if `lengths` are not integers.

    Example:
        >>> position_ids_from_lengths([3, 1])
        tensor([[0, 1, 2],
                [0, 0, 0]])
        >>> position_ids_from_lengths(np.array([3, 1]), 4, padding_side="left")
        array([[0, 0, 1, 2],
               [0, 0, 0, 0]])
    """
    require_one_of("padding_side", padding_side, ("left", "right"))
    counts = as_integers(lengths, "lengths", minimum=0, fix="position_ids_from_lengths([3, 1])")
    width = row_length(counts, max_length)
    begin = as_integer(start, "start", example=0)
    return _like(Ragged(run_indices(begin, counts), counts).pad(begin, width, side=padding_side), lengths)


def position_ids_from_documents(documents: Sequence[Any], max_length: int | None = None, *, start: int = 0) -> Any:
    r"""Return position ids of packed rows, which hold several documents each; they restart at every document.

    Args:
        documents (sequence of `B` sequences, arrays or tensors of `int`): for each row, the lengths of its documents in
            tokens, in order.
        max_length (`int`, *optional*): length T of the padded rows; by default the length of the longest row.
        start (`int`, *optional*, defaults to 0): position of a document's first token.

    Returns:
        `(B, T)` int64, padded on the right with `start`. It is an array if the elements of `documents` are arrays,
        otherwise a tensor on their device, or on the CPU for sequences.

    Raises:
        ValueError: if a length is negative, or a row has more tokens than `max_length`.
        TypeError: if a length is not an integer.

    Example:
        >>> position_ids_from_documents([[3, 2], [4]])
        tensor([[0, 1, 2, 0, 1],
                [0, 1, 2, 3, 0]])
    """
    rows = list(documents)
    parts = [
        as_integers(row, f"the document lengths of row {index}", minimum=0, fix="[[3, 2], [4]]")
        for index, row in enumerate(rows)
    ]
    totals = np.array([part.sum() for part in parts], dtype=np.int64)
    begin = as_integer(start, "start", example=0)
    positions = run_indices(begin, np.concatenate([np.zeros(0, dtype=np.int64), *parts]))
    padded = Ragged(positions, totals).pad(begin, row_length(totals, max_length))
    return _like(padded, rows[0] if rows else None)


def unchecked_position_ids(keep: _Array, start: int) -> _Array:
    """Return the result of `position_ids_from_mask` for a bool mask `(B, T)`, without its checks."""
    if isinstance(keep, torch.Tensor):
        if can_check_values(keep):  # NumPy takes one core; torch would wait for all of them
            return torch.from_numpy(unchecked_position_ids(keep.numpy(), start))
        return (keep.cumsum(1) - 1).mul_(keep).add_(start)
    ids: NDArray[np.int64] = (keep.cumsum(1, dtype=np.int64) - 1) * keep + start
    return ids


def row_length(totals: NDArray[np.int64], max_length: int | None) -> int:
    """Return the length T to which rows are padded: `max_length`, which must be enough, or that of the longest row."""
    longest = int(totals.max(initial=0))
    length = longest if max_length is None else as_integer(max_length, "max_length", minimum=0, example=longest)
    if length < longest:
        raise value_error(
            f"row {int(totals.argmax())} has {longest} tokens, max_length is {length}",
            got=f"{int((totals > length).sum())} of {len(totals)} rows longer than max_length",
            fix=f"max_length={longest}, or truncate the rows first",
        )
    return length


def _like(ids: NDArray[np.int64], values: object) -> Any:
    """Return `ids` as an array if `values` is one, as a tensor on its device if it is a tensor, else on the CPU."""
    if isinstance(values, np.ndarray):
        return ids
    return torch.from_numpy(ids).to(values.device if isinstance(values, torch.Tensor) else "cpu")
