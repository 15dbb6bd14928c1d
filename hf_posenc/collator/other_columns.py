"""Columns of the input that are neither texts nor values of tokens that the collator reads: copied into a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import explain, shorten, value_error
from ..documents import LABEL_COLUMNS, LENGTHS, OFFSETS, PER_TOKEN, TOKEN_INDICES, Documents
from .arrays import as_array, to_float32
from .config import Config
from .inputs import Values, as_list

# Columns that are not copied into a batch: they are read elsewhere, or no model accepts them.
NOT_COPIED = ("length", *LENGTHS, *OFFSETS, *LABEL_COLUMNS)


def other_columns(
    config: Config, rows: Documents, out: Mapping[str, NDArray[Any]], width: int
) -> dict[str, NDArray[Any]]:
    """Return the numeric columns of the input that are not yet in the batch `out` of `width` columns, by name."""
    columns = {}
    for name in rows.per_row:
        if name in NOT_COPIED or (rows.source == "texts" and name in PER_TOKEN and name not in out):
            continue
        if name in out:
            if rows.source == "texts":
                raise ValueError(name_taken(name, rows))
        elif config.takes(name):
            values = as_list(rows.per_row[name])
            array = as_array(name, values)
            if array is None:
                continue
            if name in TOKEN_INDICES:
                array = padded_indices(rows, array, width, config.side)
            is_narrowed = config.accepts is not None and array.dtype.kind == "f"
            columns[name] = to_float32(name, array) if is_narrowed else array
    return columns


def padded_indices(
    rows: Documents, array: NDArray[np.int64], width: int | NDArray[np.int64], side: str
) -> NDArray[np.int64]:
    """Return indices of tokens in rows that are padded to `width`; those beyond their row become `width`."""
    lengths = rows.ids.lengths
    shift = (width - lengths if side == "left" else 0 * lengths).reshape(-1, *[1] * (array.ndim - 1))
    is_beyond = (array < 0) | (array >= lengths.reshape(shift.shape))
    beyond = np.broadcast_to(width, lengths.shape).reshape(shift.shape)
    keeps_0 = "question_positions" in rows.per_row  # Splinter pads its questions with 0, and ignores an answer there
    return np.where((array == 0) & keeps_0, 0, np.where(is_beyond, beyond, array + shift))


def refuse_token_indices(config: Config, columns: Mapping[str, Values]) -> None:
    """Raise a `ValueError` if texts came with indices of tokens, such as `start_positions`."""
    for name in TOKEN_INDICES:
        array = as_array(name, as_list(columns[name])) if name in columns and config.takes(name) else None
        if array is not None and array.dtype.kind in "bif":
            raise value_error(
                f"column '{name}' came with texts, and its values are indices of tokens, which do not exist yet",
                got=f"row 0: {shorten(array[0].tolist())}",
                fix="tokenize first, with tokenizer(..., return_offsets_mapping=True), and find the tokens of each "
                "answer by the offsets of their characters",
            )


def name_taken(name: str, rows: Documents) -> str:
    """Return the error message for a column of the input that has the `name` of a column made by tokenization."""
    return explain(
        f"the input already has a column '{name}', which tokenization creates",
        got=list(rows.per_row),
        fix=f"dataset.rename_column('{name}', 'my_{name}')",
    )
