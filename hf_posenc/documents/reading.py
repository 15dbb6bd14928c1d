"""Readers of given rows: the one place that knows how boundaries, padding and masks are written.

`read_documents` closes rows: what it returns has no padding and no gaps. Calls with texts do not import this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import counted, shorten, value_error
from ..ragged import Ragged, offsets_of, run_indices, runs
from .documents import Documents
from .foreign import fix_of_sizes
from .names import BOUNDARIES, LENGTHS, MASK_NUMBERS, NUMBERS, OFFSETS, SUPERVISION


def read_documents(
    columns: Mapping[str, Ragged], *, first_row: int = 0, is_packed: bool = False, padding_id: int | None = None
) -> tuple[Documents, NDArray[np.int64] | None]:
    r"""Close given rows: leave out padding, and bring the tokens of a document together.

    Args:
        columns (mapping from `str` to `Ragged`): `"input_ids"`, columns of the same lengths, and columns of boundaries:
            `document_ids` or `seq_idx` (a number for each token, negative at padding), `seq_lengths` (the lengths of a
            row's documents), `cu_seq_lens_q` (their offsets), or `position_ids` that restart. `attention_mask` has 0 at
            padding, and 1 at tokens, or the numbers 1, 2, ... of their documents.
        first_row (`int`, *optional*, defaults to 0): number of the first row, for messages.
        is_packed (`bool`, *optional*, defaults to `False`): the rows are known to be packed, so that every repeated
            smallest position begins a document; see `documents_by_positions`.
        padding_id (`int`, *optional*): id of padding, and of no other token. The last documents of a row with offsets
            are padding if all their ids are this one.

    Returns:
        `Documents`, with all columns but those of boundaries; and the index `(N,)` of each of its tokens among the
        given ones, `None` if these are all in their order.

    Raises:
        ValueError: if a column does not have one value per token, if the lengths of documents do not add up to those of
            their row, or if two columns disagree about where a document begins.

    Example:
        >>> rows = {"input_ids": [[5, 8, 0, 6]], "document_ids": [[3, 1, -1, 3]]}
        >>> rows, index = read_documents({name: Ragged.from_rows(row) for name, row in rows.items()})
        >>> rows.ids.values, rows.sizes.values, index
        (array([5, 6, 8]), array([2, 1]), array([0, 3, 1]))
    """
    ids = columns["input_ids"]
    kept = {name: column for name, column in columns.items() if name not in BOUNDARIES}
    boundaries = tuple(name for name in columns if name in BOUNDARIES)
    numbers, is_separated = number_tokens(columns, first_row=first_row, is_packed=is_packed)
    sample = np.arange(len(ids), dtype=np.int64)
    if numbers is None:
        return Documents(kept, sample, boundaries=boundaries), None
    if padding_id is not None and not columns.keys().isdisjoint(OFFSETS):
        numbers = without_padding_at_end(numbers, ids, padding_id)
    given = np.flatnonzero(numbers >= 0)
    lengths = ids.where(numbers >= 0).lengths
    index, sizes = _close(numbers[given], lengths) if is_separated else (np.arange(len(given)), None)
    index = given[index]
    is_same = len(index) == len(ids.values) and bool((index == np.arange(len(index))).all())
    if not is_same:
        kept = {name: Ragged(column.values[index], lengths) for name, column in kept.items()}
    return Documents(kept, sample, sizes=sizes, boundaries=boundaries), None if is_same else index


def number_tokens(
    columns: Mapping[str, Ragged], *, first_row: int = 0, is_packed: bool = False
) -> tuple[NDArray[np.int64] | None, bool]:
    """Return the document number of each given token `(N,)`, negative at padding; and True if a column separates them.

    The numbers are `None` if all tokens of a row are one document. The arguments are those of `read_documents`.
    """
    ids = columns["input_ids"]
    _check_values_per_token(columns, first_row)
    mask = columns.get("attention_mask")
    numbered = {name: columns[name] for name in (*NUMBERS, MASK_NUMBERS) if name in columns}
    if mask is not None and (mask.values.astype(np.uint64) > 1).any():  # of packed rows of axolotl and LLaMA-Factory
        _check_numbered_mask(mask, first_row)
        numbered["attention_mask"] = Ragged(mask.values - 1, ids.lengths)
    is_token: Any = np.True_ if mask is None else mask.values != 0
    for column in numbered.values():
        is_token = is_token & (column.values >= 0)  # a negative number marks padding, too
    has_padding = not np.all(is_token)
    lengths = ids.where(is_token).lengths if has_padding else ids.lengths

    def of_tokens(column: Ragged) -> NDArray[np.int64]:
        return column.values[is_token] if has_padding else column.values

    numbers = {name: of_tokens(column) for name, column in numbered.items()}
    for name in (*LENGTHS, *OFFSETS):
        if name in columns:
            numbers[name] = _numbers_of_sizes(columns[name], lengths, name, first_row)
    if "position_ids" in columns:
        by_positions = documents_by_positions(of_tokens(columns["position_ids"]), lengths, is_packed=is_packed)
        if by_positions is not None:
            numbers["position_ids"] = by_positions
    if not numbers:
        return is_token.astype(np.int64) - 1 if has_padding else None, False
    (name, first), *others = numbers.items()
    for second_name, second in others:
        _check_equal(name, first, second_name, second, lengths, first_row)
    if not has_padding:
        return first, True
    out = np.full(len(ids.values), -1, np.int64)
    out[is_token] = first
    return out, True


def _check_values_per_token(columns: Mapping[str, Ragged], first_row: int) -> None:
    """Raise a `ValueError` for a column without one value per token, and for a mask of supervision with other values.

    The values of such a mask are 0 and 1.
    """
    ids = columns["input_ids"]
    for name, column in columns.items():
        if name not in (*LENGTHS, *OFFSETS) and not np.array_equal(column.lengths, ids.lengths):
            wrong = np.flatnonzero(column.lengths != ids.lengths)
            row = int(wrong[0])
            raise value_error(
                f"row {first_row + row}: {column.lengths[row]} values in '{name}' for {ids.lengths[row]} tokens",
                got=f"{len(wrong)} such rows of {len(ids)}",
                fix=f"one value per token, or dataset.remove_columns('{name}')",
            )
        is_wrong = (column.values != 0) & (column.values != 1) if name in SUPERVISION else np.False_
        if np.any(is_wrong):
            row = column.row_of(int(is_wrong.argmax()))
            raise value_error(
                f"{name} must be 1 at tokens to train on, and 0 at others",
                got=f"row {first_row + row}: {shorten(column[row].tolist())}",
                fix=f"dataset.remove_columns('{name}')",
            )


def _close(numbers: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], Ragged]:
    """Return the index that brings the tokens of documents together, and the lengths of the documents of each row."""
    run_sizes = runs(numbers, lengths)
    starts = offsets_of(run_sizes.values)[:-1]
    rows = np.repeat(np.arange(len(lengths)), run_sizes.lengths)
    number = np.append(numbers, 0)[starts]  # a row without tokens has one run, of any number
    if ((number[1:] > number[:-1]) | (rows[1:] != rows[:-1])).all():  # as nearly always
        return np.arange(len(numbers)), run_sizes
    order = np.lexsort((number, rows))  # the runs of a document, in their order
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(rows[order]) != 0) | (np.diff(number[order]) != 0)
    first = np.flatnonzero(is_first)  # of the runs of each document
    if len(first) == len(order):
        return np.arange(len(numbers)), run_sizes
    by_begin = np.argsort(order[first])
    count = np.diff(first, append=len(order))[by_begin]
    order = order[run_indices(first[by_begin], count)]
    index = run_indices(starts[order], run_sizes.values[order])
    sizes = np.add.reduceat(run_sizes.values[order], offsets_of(count)[:-1])
    return index, Ragged(sizes, np.bincount(rows[order][offsets_of(count)[:-1]], minlength=len(lengths)))


def without_padding_at_end(numbers: NDArray[np.int64], ids: Ragged, padding_id: int) -> NDArray[np.int64]:
    """Return document numbers with -1 at the last documents of each row whose ids are all `padding_id`."""
    sizes = runs(numbers, ids.lengths)
    is_padding = np.diff(offsets_of(ids.values == padding_id)[offsets_of(sizes.values)]) == sizes.values
    keep = np.ones(len(is_padding), np.bool_)
    for start, stop in pairwise(sizes.offsets.tolist()):
        count = int(np.logical_and.accumulate(is_padding[start:stop][::-1]).sum())
        keep[stop - count : stop] = False
    return np.where(np.repeat(keep, sizes.values), numbers, -1)


def _check_numbered_mask(mask: Ragged, first_row: int) -> None:
    """Raise `ValueError` if the numbers of documents in an attention mask do not begin with 1, or fall, or skip."""
    tokens = mask.where(mask.values != 0)
    steps = np.diff(tokens.values, prepend=0)
    first = tokens.offsets[:-1][tokens.lengths > 0]
    steps[first] = tokens.values[first]
    is_wrong = (steps < 0) | (steps > 1)
    is_wrong[first] |= steps[first] != 1
    if is_wrong.any():
        row = tokens.row_of(int(is_wrong.argmax()))
        raise value_error(
            "attention_mask must be 0 at padding, and 1 at tokens, or 1, 2, 3, ... at those of a row's documents",
            got=f"row {first_row + row}: {shorten(mask[row].tolist())}",
            fix="dataset.rename_column('attention_mask', 'document_ids') for other numbers of documents, with -1 at "
            "padding; 2 for global attention belongs into global_attention_mask",
        )


def columns_of_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a batch, with one value for each row; a flat batch has one row."""
    offsets = batch.get(OFFSETS[0])
    if offsets is None or not len(offsets) or np.ndim(offsets[0]) > 0:
        return dict(batch)
    scalars = ("max_length_q", "max_length_k", "use_cache")
    return {name: [value] if name in OFFSETS else value for name, value in batch.items() if name not in scalars}


def _numbers_of_sizes(given: Ragged, lengths: NDArray[np.int64], name: str, first_row: int) -> NDArray[np.int64]:
    """Return the document number of each token from the lengths of the documents in each row, or from their offsets."""
    sizes, begins = given, np.ones(len(given), np.bool_)
    if name in OFFSETS:  # 0, ..., and the number of tokens
        inside = np.ones(len(given.values), np.bool_)
        inside[given.offsets[:-1][given.lengths > 0]] = False
        sizes = Ragged(np.diff(given.values, prepend=0)[inside], np.maximum(given.lengths - 1, 0))
        begins = np.append(given.values, -1)[given.offsets[:-1]] == 0
        begins &= given.lengths > 0
    offsets = offsets_of(sizes.values)[sizes.offsets]
    if not begins.all() or (sizes.values < 0).any() or not np.array_equal(np.diff(offsets), lengths):
        pairs = enumerate(zip(begins, sizes, lengths.tolist(), strict=False))
        wrong = (row for row, (begin, part, count) in pairs if not begin or (part < 0).any() or part.sum() != count)
        row = next(wrong, 0)
        rule = f"the documents in '{name}' must have as many tokens as the row"
        raise value_error(
            f"row {first_row + row}: " + (rule if begins[row] else f"'{name}' must begin with 0"),
            got=f"{shorten(given[row].tolist())}, in a row of {counted(lengths[row], 'token')}",
            fix=f"{fix_of_sizes(name)}; or dataset.remove_columns('{name}'), if the row is one document",
        )
    return np.repeat(sizes.counters().values, sizes.values)


def _check_equal(
    name: str,
    first: NDArray[np.int64],
    second_name: str,
    second: NDArray[np.int64],
    lengths: NDArray[np.int64],
    first_row: int,
) -> None:
    """Raise `ValueError` if two columns disagree about where a document begins."""
    starts = offsets_of(lengths)[:-1]
    begins = [np.diff(numbers, prepend=-1) != 0 for numbers in (first, second)]
    for is_start in begins:
        is_start[starts[lengths > 0]] = True
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    differs = begins[0] != begins[1]
    if second_name == "position_ids":  # those that do not restart in a row say nothing about it
        differs &= (np.bincount(row_of, second, minlength=len(lengths)) > 0)[row_of]
    if differs.any():
        row = int(row_of[differs.argmax()])
        inside = slice(starts[row], starts[row] + lengths[row])
        sizes = [np.diff([*np.flatnonzero(is_start[inside]), lengths[row]]).tolist() for is_start in begins]
        raise value_error(
            f"row {first_row + row}: '{name}' and '{second_name}' disagree about where documents begin",
            got=f"documents of {shorten(sizes[0])} and of {shorten(sizes[1])} tokens",
            fix=f"keep the right one: dataset.remove_columns('{second_name}'), or ('{name}')",
        )


def documents_by_positions(
    positions: NDArray[np.int64], lengths: NDArray[np.int64], *, is_packed: bool = False
) -> NDArray[np.int64] | None:
    r"""Return the document number of each token in packed rows, computed from the position ids of the tokens.

    The position ids of a packed row restart with each document. These rules decide, for each row alone:

    1. A document begins where the position falls to the smallest position of its row: 0 1 2 0 1 is two documents.
    2. If a position falls to another number than the smallest of its row, the whole row is one document: 0 2 1 0 1.
    3. Gaps and repeated positions do not begin a document: 0 1 1 3 is one document.
    4. Exception to rule 3, for documents of one token: a repeated smallest position begins a document if every larger
       position in its row is one more than the position before it, and if rule 1 finds several documents in the row
       or `is_packed` is True. So 0 1 0 0 1 is three documents, and 0 0 1 is one, or two if it is packed.

    Args:
        positions (`np.ndarray` `(N,)`): position ids of the real tokens of all rows, one row after the other.
        lengths (`np.ndarray` `(B,)` int64): number of real tokens in each row.
        is_packed (`bool`, *optional*, defaults to `False`): the rows are known to be packed.

    Returns:
        `np.ndarray` `(N,)` int64, document numbers from 0 in each row; `None` if no row has more than one document.

    Example:
        >>> documents_by_positions(np.array([0, 1, 2, 0, 1]), np.array([5]))
        array([0, 0, 0, 1, 1])
        >>> documents_by_positions(np.array([0, 1, 1, 2]), np.array([4])) is None   # a word of two tokens
        True
    """
    lengths = lengths[lengths > 0]
    if len(positions) == len(lengths):
        return None
    starts = offsets_of(lengths)[:-1]

    def in_rows_with(tokens: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a bool array: for each token, True if `tokens` is True at any token of the same row."""
        return np.repeat(np.logical_or.reduceat(tokens, starts), lengths)

    at_first = positions == np.repeat(np.minimum.reduceat(positions, starts), lengths)
    inside, falls, skips = np.ones((3, len(positions)), dtype=np.bool_)
    falls[1:], skips[1:] = positions[1:] < positions[:-1], positions[1:] != positions[:-1] + 1
    inside[starts] = falls[starts] = skips[starts] = False
    begins = falls & at_first & ~in_rows_with(falls & ~at_first)
    if not begins.any() and not is_packed:
        return None
    may_repeat = inside & at_first & ~in_rows_with(skips & ~at_first)
    begins |= may_repeat if is_packed else may_repeat & in_rows_with(begins)
    if not begins.any():
        return None
    numbers: NDArray[np.int64] = np.cumsum(begins)
    numbers -= np.repeat(numbers[starts], lengths)
    return numbers


def read_mask(columns: Mapping[str, Any], padding_id: int | None = None) -> tuple[dict[str, Any], bool]:
    r"""Return columns whose `attention_mask`, if there is one, has a value per token; and True if they are packed rows.

    A mask `(B, 1, T, T)`, or a dict of such masks for kinds of layers, isolates documents: it is replaced by their
    numbers, the column `MASK_NUMBERS`. Texts of `no_mask` are replaced by a mask of padding. Others stay as they are.

    Example:
        >>> read_mask({"attention_mask": np.array([[[[0.0, -9.0], [-9.0, -9.0]]]])})
        ({'attention_mask (B, 1, T, T)': array([[ 0, -1]])}, True)
        >>> read_mask({"input_ids": [[5, 6, 0]], "attention_mask": [no_mask(2)]})[0]["attention_mask"].values
        array([1, 1, 0])
    """
    columns = dict(columns)
    mask = columns.pop("attention_mask", None)
    if isinstance(mask, Mapping):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if mask is None:
        return columns, False
    if is_no_mask(mask):
        ids = columns.get("input_ids")
        if ids is not None:
            ids = ids.to_pylist() if hasattr(ids, "to_pylist") else ids
            columns["attention_mask"] = mask_of_texts(mask, np.array([len(row) for row in ids], dtype=np.int64))
        return columns, True
    if getattr(mask, "ndim", 2) != 4 or mask.shape[2] != mask.shape[3]:
        return {**columns, "attention_mask": mask}, False
    return {**columns, MASK_NUMBERS: documents_of_mask(mask, columns.get("input_ids"), padding_id)}, True


def documents_of_mask(mask: Any, ids: Any = None, padding_id: int | None = None) -> NDArray[np.int64]:
    r"""Return the document number of each token `(B, T)`, -1 at padding, from a mask `(B, 1, T, T)`.

    A token belongs to the document of the last earlier token that it attends to, and begins one if there is none.
    Padding does not attend to itself; or it attends to itself alone, at the beginning or the end of its row.

    Args:
        mask (array or tensor `(B, 1, T, T)`): bool, or numbers that are added to attention scores.
        ids (`(B, T)`, *optional*): token ids; padding at one end of a row then has one id.
        padding_id (`int`, *optional*): the id of padding. Without it, a document of one token at the end of a row
            counts as padding.

    Example:
        >>> documents_of_mask(np.tril(np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]]))[None, None] == 1, [[5, 6, 7]])
        array([[ 0,  0, -1]])
    """
    values = mask.detach().cpu() if hasattr(mask, "detach") else mask
    may = np.asarray(values == 0 if "float" in str(mask.dtype) else values != 0)[:, 0]  # (B, T, T)
    length = may.shape[1]
    is_token = may.diagonal(0, 1, 2)  # (B, T)
    before = np.tril(may, -1) & is_token[:, :, None]
    has_before = before.any(2)
    off_diagonal = may & ~np.eye(length, dtype=np.bool_)
    is_alone = ~has_before & ~off_diagonal.any(1) & ~off_diagonal.any(2)
    may_be_padding = ~is_token | is_alone
    if ids is not None:
        ids = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
        if ids.shape != may.shape[:2]:
            raise value_error(
                "attention_mask (B, 1, T, T) and input_ids (B, T) must have the same B and T",
                got=f"{tuple(mask.shape)} and {ids.shape}",
                fix="the mask of these ids; or leave it out, and give document_ids",
            )
        if padding_id is not None:
            may_be_padding = may_be_padding & (ids == padding_id)
    for side in (1, -1):
        edge = np.logical_and.accumulate(may_be_padding[:, ::side], 1)
        if ids is not None:
            edge &= np.logical_and.accumulate(ids[:, ::side] == ids[:, ::side][:, :1], 1)
        edge &= ~may_be_padding.all(1, keepdims=True)  # a row of documents of one token
        is_token = is_token & ~edge[:, ::side]
    first = np.where(has_before, length - 1 - before[:, :, ::-1].argmax(2), np.arange(length))
    for _ in range(length.bit_length()):  # to the token before, then 2, 4, ... tokens before
        first = np.take_along_axis(first, first, 1)
    numbers = np.cumsum((first == np.arange(length)) & is_token, 1) - 1
    return np.where(is_token, np.take_along_axis(numbers, first, 1), -1)


def is_no_mask(values: Any) -> bool:
    r"""Return True if the column `attention_mask` of a packed data set has texts of `no_mask` instead of masks.

    `pack_dataset` writes them, because a mask of ones would not separate the documents of a row. `values` is the
    column; only its first value is read.

    Example:
        >>> is_no_mask([no_mask(3)]), is_no_mask([[1, 1, 0]])
        (True, False)
    """
    first = next(iter(values), None) if getattr(values, "ndim", 1) and hasattr(values, "__iter__") else None
    is_text = type(first).__name__ in ("str", "str_", "StringScalar")
    return is_text and _NO_MASK.fullmatch(str(first)) is not None


def no_mask(tokens: int) -> str:
    """Return the text that stands in `attention_mask` of a packed row: it has the number of tokens before padding."""
    # transformers' default_data_collator leaves texts out of a batch. Other collators call `tokenizer.pad`, which adds
    # a mask of ones to rows without a mask, but raises for this text.
    return (
        "none: with a mask, packed documents would attend to each other; "
        f"use data_collator=transformers.default_data_collator; tokens before padding: {tokens}"
    )


_NO_MASK = re.compile(no_mask(0).replace("0", "([0-9]+)"))


def mask_of_texts(texts: Any, lengths: NDArray[np.int64]) -> Ragged:
    """Return the mask of padding that the texts of `no_mask` say, for rows with the given lengths."""
    counts = [
        int(match[1]) if (match := _NO_MASK.fullmatch(str(text))) else length
        for text, length in zip(texts, lengths.tolist(), strict=True)
    ]
    return Ragged((run_indices(0, lengths) < np.repeat(counts, lengths)).astype(np.int64), lengths)
