"""Columns of the input that are neither texts nor values of tokens that the collator reads: copied into a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import explain, shorten, value_error
from ..documents import LENGTHS, OFFSETS, SUPERVISION, TOKEN_INDICES, Documents
from .arrays import as_array, stored_embeddings, to_float32
from .config import Config
from .inputs import LABEL_COLUMNS, Values, as_list

# Columns that are not copied into a batch: they are read elsewhere, or no model accepts them.
NOT_COPIED = ("length", "offset_mapping", *LENGTHS, *OFFSETS, *LABEL_COLUMNS)


def other_columns(
    config: Config, rows: Documents, out: Mapping[str, NDArray[Any]], inside: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Return the numeric columns of the input that are not yet in the batch `out`, as arrays by name.

    `inside` `(B, T)` is True at tokens of the padded rows.
    """
    columns, embeds = {}, config.embedder.rows is not None
    for name, fill in rows.moved.items():
        column = rows.columns[name]
        if name in (*NOT_COPIED, *out) or not config.takes(name) or (name == "inputs_embeds" and embeds):
            continue
        if name == "inputs_embeds":
            column = stored_embeddings(list(column), rows.ids.lengths)
        if column.values.dtype.kind in "iufb":
            array = column.pad(fill, inside.shape[1], side=config.side, inside=inside)
            columns[name] = _for_model(config, name, array)
        else:
            as_array(name, list(column))  # raises for numbers beside other values
    for name in rows.per_row:
        if name in NOT_COPIED or (rows.source == "texts" and name in SUPERVISION):
            continue
        if name in out:
            if rows.source == "texts":
                raise ValueError(name_taken(name, rows))
        elif name == "inputs_embeds":  # stored embeddings; a collator with a table computes them again
            if not embeds:
                embeddings = stored_embeddings(as_list(rows.per_row[name]), rows.ids.lengths)
                columns[name] = embeddings.pad(0, inside.shape[1], side=config.side, inside=inside)
        elif config.takes(name) and (values := as_array(name, as_list(rows.per_row[name]))) is not None:
            if name in TOKEN_INDICES:
                values = padded_indices(rows, values, inside.shape[1], config.side)
            columns[name] = _for_model(config, name, values)
    return columns


def _for_model(config: Config, name: str, array: NDArray[Any]) -> NDArray[Any]:
    return to_float32(name, array) if config.accepts is not None and array.dtype.kind == "f" else array


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
