"""Names that other libraries give to columns which are read here under another name.

Lengths and offsets of documents are refused by their name, other columns if their values, too, have the form of what
the name says; the message renames them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from .names import LENGTHS, OFFSETS

# Names that other libraries give to what is read here under another name: MosaicML, torchtune, OLMo-core, unsloth,
# NeMo, datatrove, nanotron, verl, T5X and others.
_FOREIGN = {
    "document_ids": "sequence_id sequence_ids segment_ids segment_id document_id doc_ids doc_id packed_seq_ids",
    "seq_lengths": "seq_lens seq_len seqlens doc_lens doc_lengths document_lengths packed_seq_lengths packed_seq_lens "
    "sequence_lengths",
    "cu_seq_lens_q": "cu_seqlens cu_seqlens_q cu_seqlens_k cu_seqlens_kv cu_seqlens_padded cu_seqlens_q_padded "
    "cu_seqlens_kv_padded cu_seqlens_unpadded cu_seq_lens cu_doc_lens seq_start_id",
    "position_ids": "positions position input_pos pos_ids position_id",
    "loss_mask": "label_mask labels_mask response_mask answer_mask target_mask action_mask train_mask",
}
FOREIGN = {name: ours for ours, names in _FOREIGN.items() for name in names.split()}
_KINDS = {
    "document_ids": "numbers of documents",
    "seq_lengths": "lengths of documents",
    "cu_seq_lens_q": "offsets of documents",
    "position_ids": "positions of tokens",
    "loss_mask": "a mask of the tokens to train on",
}
# Names of token ids, where there are no `input_ids`.
_FOREIGN_IDS = ("tokens", "token_ids", "input_tokens", "ids", "text_ids", "input")


def refuse_foreign_names(
    columns: Mapping[str, Any], lengths: NDArray[np.int64], *, first_row: int = 0, named: Collection[str] = ()
) -> None:
    r"""Raise `ValueError` for a column that is read under another name, such as `seq_lens`: the message renames it.

    A list under a name of lengths or offsets of documents is refused, in any form. Other columns are refused if a row,
    alone, has the form of what its name says: numbers of documents, each at consecutive tokens; positions that rise by
    one or restart; zeros and ones.

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
          fix: dataset.map(lambda row: {'seq_lengths': [n for n in row['seq_lens'] if n > 0]},
          remove_columns='seq_lens'); or dataset.remove_columns('seq_lens')
    """
    for name in [name for name in FOREIGN if name in columns and name not in named]:
        ours, values = FOREIGN[name], columns[name]
        values = values.to_pylist() if hasattr(values, "to_pylist") else values
        rows = [row.tolist() if hasattr(row, "tolist") else row for row in values]
        pairs = zip(rows, lengths.tolist(), strict=False)
        found = [row for row, (given, tokens) in enumerate(pairs) if _is_foreign(name, given, tokens)]
        if not found:
            continue
        fix = f"dataset.rename_column('{name}', '{ours}')"
        if ours in (*LENGTHS, *OFFSETS):
            fix = fix_of_sizes(name)
        elif name.startswith("segment_id"):
            fix += ", or 'token_type_ids' if they are BERT's segments"
        row = max(found, key=lambda row: len(rows[row]))
        raise value_error(
            f"column '{name}' has {_KINDS[ours]}, which are read from '{ours}'",
            got=f"row {first_row + row}: {shorten(rows[row])}, in a row of {lengths[row]} tokens",
            fix=(f"{fix}; or " if ours not in columns else "") + f"dataset.remove_columns('{name}')",
        )


def _is_foreign(name: str, row: Any, tokens: int) -> bool:
    """Return True for a value that is refused under the name of others, in a row of the given number of tokens."""
    ours = FOREIGN[name]
    if not isinstance(row, list) or ours in (*LENGTHS, *OFFSETS):
        return isinstance(row, list)
    if len(row) != tokens or tokens < 2 or not all(isinstance(value, int | float) for value in row):
        return False
    values = np.array(row, np.float64)
    if ours == "document_ids":  # a run of tokens for each number, but padding at the ends: 0 or -1
        numbers = np.trim_zeros(np.maximum(values, 0))
        return bool(np.count_nonzero(np.diff(numbers)) < max(1, len(np.unique(numbers))))
    if ours == "loss_mask":
        return bool(np.isin(values, (0, 1)).all())
    rises = np.diff(values) == 1
    return bool(rises.any() and (rises | (values[1:] == values[0])).all())


def fix_of_sizes(name: str) -> str:
    """Return code that gives the lengths or offsets of documents in a column their name and form.

    Padding of other libraries is left out, and the first offset, 0, and the last, the number of tokens, are added.
    """
    ours = FOREIGN.get(name, name)
    removed = "" if ours == name else f", remove_columns='{name}'"
    if ours in LENGTHS:
        return f"dataset.map(lambda row: {{'{ours}': [n for n in row['{name}'] if n > 0]}}{removed})"
    return (
        f"dataset.map(lambda row: {{'{ours}': sorted({{0, *row['{name}'], sum(row['attention_mask']) "
        f"if 'attention_mask' in row else len(row['input_ids'])}} - {{-1}})}}{removed})"
    )


def is_foreign_ids(name: object, value: object) -> bool:
    """Return True for token ids under a name that other libraries use, such as `tokens` or `chosen_input_ids`."""
    is_named = name in _FOREIGN_IDS or str(name).startswith(("chosen_", "rejected_", "prompt_", "completion_"))
    row = value.tolist() if hasattr(value, "tolist") else value
    is_list = isinstance(row, list) and len(row) > 0 and all(type(token) is int for token in row)
    return is_named and is_list and not str(name).endswith("mask")
