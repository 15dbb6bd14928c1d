"""Names that other libraries give to columns which are read here under another name.

A column is refused if its values, too, have the form of what its name says; the message renames it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from ..ragged import Ragged

# Names that other libraries give to what is read here under another name: MosaicML, torchtune, OLMo-core, unsloth,
# NeMo, datatrove, nanotron, verl, T5X and others.
_FOREIGN = {
    "document_ids": "sequence_id sequence_ids segment_ids segment_id document_id doc_ids doc_id packed_seq_ids",
    "seq_lengths": "seq_lens seq_len seqlens doc_lens doc_lengths packed_seq_lengths sequence_lengths",
    "cu_seq_lens_q": "cu_seqlens cu_seqlens_q cu_seq_lens cu_doc_lens seq_start_id",
    "position_ids": "positions position input_pos pos_ids position_id",
    "loss_mask": "label_mask labels_mask response_mask answer_mask target_mask action_mask train_mask",
}
FOREIGN = {name: ours for ours, names in _FOREIGN.items() for name in names.split()}
# Names of token ids, where there are no `input_ids`.
_FOREIGN_IDS = ("tokens", "token_ids", "input_tokens", "ids", "text_ids", "input")


def refuse_foreign_names(
    columns: Mapping[str, Any], lengths: NDArray[np.int64], *, first_row: int = 0, named: Collection[str] = ()
) -> None:
    r"""Raise `ValueError` for a column that is read under another name, such as `seq_lens`: the message renames it.

    A column is refused if its values have the form of what its name says in every row: numbers of documents that never
    fall, but to padding at the end; lengths that add up to the row; offsets; positions that rise by one or restart;
    zeros and ones. Other columns may have these names.

    Args:
        columns (mapping from `str` to sequence): columns with one value per row, as lists, arrays or Arrow columns.
        lengths (`np.ndarray` `(R,)` int64): number of tokens in each row.
        first_row (`int`, *optional*, defaults to 0): number of the first row, for the message.
        named (names, *optional*): arguments of the model, which are never refused.

    Example:
        >>> refuse_foreign_names({"seq_lens": [[2, 1]], "positions": [[7, 3, 9]]}, np.array([3]))
        Traceback (most recent call last):
        ValueError: column 'seq_lens' has lengths of documents, which are read from 'seq_lengths'
          got: row 0: [2, 1], in a row of 3 tokens
          fix: dataset.rename_column('seq_lens', 'seq_lengths'); or dataset.remove_columns('seq_lens')
    """
    names = [name for name in FOREIGN if name in columns and name not in named]
    mask = _integers("attention_mask", columns["attention_mask"]) if names and "attention_mask" in columns else None
    is_mask = mask is not None and np.array_equal(mask.lengths, lengths)
    real = mask.where(mask.values != 0).lengths if mask is not None and is_mask else lengths
    for name in names:
        ours, rows = FOREIGN[name], _integers(name, columns[name])
        if rows is None or len(rows) != len(lengths) or rows.longest < 2:
            continue
        values, per_token = rows.values, np.array_equal(rows.lengths, lengths)
        is_first = np.zeros(len(values), np.bool_)
        is_first[rows.offsets[:-1][rows.lengths > 0]] = True
        step = np.diff(values, prepend=0)[~is_first]
        first, last, total = (
            np.array([pick(row) if len(row) else -1 for row in rows])
            for pick in (lambda row: row[0], lambda row: row[-1], np.sum)
        )
        adds_up = ((total == lengths) | (total == real)).all()
        ends = ((last < lengths) if name == "seq_start_id" else (last == lengths) | (last == real)).all()
        restarts = values[~is_first] == np.repeat(first, rows.lengths)[~is_first]
        kind, fits = {
            "document_ids": ("numbers of documents", per_token and all(map(_never_falls, rows))),
            "seq_lengths": ("lengths of documents", (values >= 0).all() and adds_up),
            "cu_seq_lens_q": ("offsets of documents", (first == 0).all() and (step >= 0).all() and ends),
            "position_ids": ("positions of tokens", per_token and ((step == 1) | restarts).all()),
            "loss_mask": ("a mask of the tokens to train on", per_token and np.isin(values, (0, 1)).all()),
        }[ours]
        if not fits or not len(values):
            continue
        row, fix = int(rows.lengths.argmax()), f"dataset.rename_column('{name}', '{ours}')"
        if name == "seq_start_id":  # the end is missing
            fix = (
                f"dataset.map(lambda row: {{'{ours}': [*row['{name}'], len(row['input_ids'])]}}, "
                f"remove_columns='{name}')"
            )
        elif name.startswith("segment_id"):
            fix += ", or 'token_type_ids' if they are BERT's segments"
        raise value_error(
            f"column '{name}' has {kind}, which are read from '{ours}'",
            got=f"row {first_row + row}: {shorten(rows[row].tolist())}, in a row of {lengths[row]} tokens",
            fix=f"{fix}; or dataset.remove_columns('{name}')",
        )


def _never_falls(numbers: NDArray[np.int64]) -> bool:
    """Return True if numbers never fall, but to padding at the end: 0 or -1."""
    tokens = numbers[: len(np.trim_zeros(np.maximum(numbers, 0), "b"))] if numbers.max(initial=0) > 0 else numbers
    return bool((np.diff(tokens) >= 0).all())


def _integers(name: str, values: Any) -> Ragged | None:
    """Return a column of lists of integers; `None` if it is another one."""
    try:
        return Ragged.from_rows(values.to_pylist() if hasattr(values, "to_pylist") else values, name=name, mask=True)
    except (TypeError, ValueError):
        return None


def is_foreign_ids(name: object, value: object) -> bool:
    """Return True for token ids under a name that other libraries use, such as `tokens` or `chosen_input_ids`."""
    is_named = name in _FOREIGN_IDS or str(name).startswith(("chosen_", "rejected_", "prompt_", "completion_"))
    row = value.tolist() if hasattr(value, "tolist") else value
    is_list = isinstance(row, list) and len(row) > 0 and all(type(token) is int for token in row)
    return is_named and is_list and not str(name).endswith("mask")
