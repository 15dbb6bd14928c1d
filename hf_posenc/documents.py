"""Rows of tokens and their documents: the one reader of boundaries, padding and supervision in given rows.

`read_documents` converts given columns to `Documents`, rows of tokens before a collator pads them. `pack_rows` puts
several documents into a row. NumPy only, so that a forked worker can use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._common.constants import IGNORED
from ._common.errors import counted, explain, shorten, value_error
from .packing import pack
from .ragged import Ragged, lock_free_cache, offsets_of, run_indices

Truncation = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]

# Columns that say where documents begin, beside position ids that restart: a number for each token, or lengths of
# documents (TRL), or their offsets (the keys of transformers' DataCollatorWithFlattening).
NUMBERS, LENGTHS, OFFSETS = ("document_ids", "seq_idx"), ("seq_lengths",), ("cu_seq_lens_q", "cu_seq_lens_k")
# Document numbers from an attention mask that isolates documents, see `read_mask`.
MASK_NUMBERS = "attention_mask (B, 1, T, T)"
# Masks with 1 at the tokens to train on: of TRL, of `apply_chat_template`, and of other libraries.
SUPERVISION = ("completion_mask", "assistant_masks", "assistant_tokens_mask", "loss_mask")

# Columns of indices of tokens in their row: answers to questions, and inputs of XLM, XLNet, GPT-2, Splinter and LUKE.
TOKEN_INDICES = (
    *("start_positions", "end_positions", "cls_index", "mc_token_ids", "question_positions"),
    *("entity_start_positions", "entity_end_positions"),
)
# Further columns with one value per token that some models take: Longformer, ERNIE, multimodal models, XLM and XLNet.
FURTHER_PER_TOKEN = ("global_attention_mask", "task_type_ids", "mm_token_type_ids", "langs", "p_mask")

# Text that `pack_dataset` stores as `attention_mask`. transformers' default_data_collator leaves texts out of a batch.
# Other collators call `tokenizer.pad`, which adds a mask of ones to rows without a mask, but raises for this text.
NO_MASK = (
    "none: with a mask, packed documents would attend to each other; "
    "use data_collator=transformers.default_data_collator"
)


@dataclass(frozen=True)
class Limits:
    r"""Limit on the number of tokens in a row, including special tokens.

    Args:
        max_length (`int`, *optional*): maximal number of tokens; by default there is no limit.
        truncation (`"longest_first"`, `"only_first"`, `"only_second"` or `"do_not_truncate"`, *optional*, defaults to
            `"longest_first"`): as in transformers.
        overflow (`bool`, *optional*, defaults to `False`): continue a longer text in further rows instead of leaving
            out its rest.
        stride (`int`, *optional*, defaults to 0): tokens shared by consecutive rows of one text, with `overflow`.

    Example:
        >>> Limits(512).truncates, Limits(512, "do_not_truncate").truncates
        (True, False)
    """

    max_length: int | None = None
    truncation: Truncation = "longest_first"
    overflow: bool = False
    stride: int = 0

    @property
    def truncates(self) -> bool:
        """True if rows are limited to `max_length`; False if that is `None`, or with `"do_not_truncate"`."""
        return self.max_length is not None and self.truncation != "do_not_truncate"

    def check_special_tokens(self, special: int) -> None:
        r"""Raise if `max_length` is too small for the special tokens of a row, the stride and one more token.

        The stride counts only with `overflow`. Nothing is checked if rows are not truncated.
        """
        stride = self.stride if self.overflow else 0
        minimum = special + stride + 1
        if not self.truncates or self.max_length is None or self.max_length >= minimum:
            return
        ways = [f"max_length={minimum} or more"]
        if stride and self.max_length > special:
            ways.append(f"stride={self.max_length - special - 1}")
        if special:
            ways.append("add_special_tokens=False")
        raise value_error(
            f"max_length must leave room for {counted(special, 'special token')}"
            + (f", a stride of {stride}" if stride else "")
            + " and one more token",
            got=f"max_length={self.max_length}" + (f", stride={stride}" if stride else ""),
            fix=", or ".join(ways),
        )


@dataclass(frozen=True, eq=False)
class Documents:
    r"""Rows of tokens before a collator pads them, stored as `Ragged` columns with one value per token.

    A row of a tokenized text is one document. A given row may hold several documents, and padding; `split` returns
    them with one row for each document, and `join` puts values of their tokens back into the given rows.

    Args:
        columns (`dict` from `str` to `Ragged`): `"input_ids"`, and other columns of the same lengths.
            `"attention_mask"` is present only if rows contain padding, where it is 0. `"document_ids"`, the number of
            each token's document in its row, is -1 at padding.
        sample (`np.ndarray` `(R,)` int64): index of the text or given row of each row; a long text may give several.
        truncated (`int`, *optional*, defaults to 0): number of texts that lost tokens.
        per_row (mapping from `str` to sequence, *optional*): other columns of the input, with one value for each row.
        targets (`Ragged`, *optional*): separate token sequences to predict, one for each row; `None` if there are none.
        targets_truncated (`int`, *optional*, defaults to 0): number of targets that lost tokens.
        count (`int`, *optional*, defaults to 0): number of texts or given rows in the input of a collator.
        from_texts (`bool`, *optional*, defaults to `False`): True if the input was texts.
        unmasked (`int`, *optional*): index of a given row that begins or ends with padding ids, without a mask; `None`
            if there is none.
        removed (`np.ndarray` `(R,)` int64, *optional*): number of values removed at the start of each given row.

    Example:
        >>> rows = Documents({"input_ids": Ragged.from_rows([[7, 8, 9], [5]])}, np.arange(2))
        >>> rows.truncate(Limits(2)).ids.values
        array([7, 8, 5])
    """

    columns: dict[str, Ragged]
    sample: NDArray[np.int64]
    truncated: int = 0
    per_row: Mapping[str, Any] = field(default_factory=dict)
    targets: Ragged | None = None
    targets_truncated: int = 0
    count: int = 0
    from_texts: bool = False
    unmasked: int | None = None
    removed: NDArray[np.int64] | None = None

    @property
    def ids(self) -> Ragged:
        """Token ids of the rows: the column `input_ids`."""
        return self.columns["input_ids"]

    @property
    def token_type_ids(self) -> Ragged | None:
        """Column `token_type_ids`; `None` if there is none."""
        return self.columns.get("token_type_ids")

    @lock_free_cache
    def is_token(self) -> NDArray[np.bool_] | None:
        """Mask `(N,)` of all rows, concatenated: True at tokens, False at padding. `None` if there is no padding."""
        mask = self.columns.get("attention_mask")
        return None if mask is None else mask.values.astype(bool)

    @lock_free_cache
    def order(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Indices `(M,)` of the tokens without padding, document by document; the length and row of each document.

        `None` if every row is one document without padding. A row without tokens is a document of length 0, unless a
        row holds several documents.
        """
        numbers, is_token = self.columns.get("document_ids"), self.is_token
        if numbers is None and is_token is None:
            return None
        index = np.arange(len(self.ids.values)) if is_token is None else np.flatnonzero(is_token)
        lengths = self.ids.lengths if is_token is None else self.ids.where(is_token).lengths
        if numbers is not None:
            order, sizes, rows = order_by_document(numbers.values[index], lengths)
            if len(sizes) > np.count_nonzero(lengths):
                return index[order], sizes, rows
        return None if is_token is None else (index, lengths, np.arange(len(lengths)))

    @property
    def beginnings(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Two masks of the documents `(D,)`: those that share their row with others, and those that follow padding."""
        if self.order is None:
            none = np.zeros(len(self.ids), np.bool_)
            return none, none
        index, lengths, row = self.order
        first = np.append(index, 0)[offsets_of(lengths)[:-1]]
        return self.is_several[row], (lengths > 0) & (first > self.ids.offsets[row])

    @property
    def after_gap(self) -> NDArray[np.bool_]:
        """Mask `(M,)` of the tokens of `split()`: True where padding, or another document, stands before a token.

        The first token of a document is False.
        """
        if self.order is None:
            return np.zeros(len(self.ids.values), np.bool_)
        index, lengths, _ = self.order
        is_after: NDArray[np.bool_] = np.diff(index, prepend=-1) != 1
        is_after[offsets_of(lengths)[:-1][lengths > 0]] = False
        return is_after

    @property
    def is_several(self) -> NDArray[np.bool_]:
        """Mask `(R,)` that is True for rows with several documents."""
        if self.order is None:
            return np.zeros(len(self.ids), np.bool_)
        return np.bincount(self.order[2], minlength=len(self.ids)) > 1

    def with_columns(self, **columns: Ragged) -> Documents:
        """Return a copy of the rows with the given columns added or replaced."""
        return replace(self, columns={**self.columns, **columns})

    def take(self, rows: NDArray[np.int64]) -> Documents:
        """Return the rows with the given indices, in this order."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return replace(self.with_row_values_of(rows), columns=columns, sample=self.sample[rows])

    def with_row_values_of(self, rows: NDArray[np.int64]) -> Documents:
        """Return a copy whose values per row, `per_row` and `targets`, are those of the rows with the given indices."""
        per_row = {name: repeated(values, rows) for name, values in self.per_row.items()}
        return replace(self, per_row=per_row, targets=None if self.targets is None else self.targets.take(rows))

    def split(self) -> Documents:
        """Return one row for each document, without padding and the columns that describe rows."""
        if self.order is None:
            return self if "document_ids" not in self.columns else replace(self, columns=self._own_columns)
        index, lengths, row = self.order
        columns = {name: Ragged(column.values[index], lengths) for name, column in self._own_columns.items()}
        return replace(self.with_row_values_of(row), columns=columns, sample=self.sample[row])

    def join(self, column: Ragged, padding: int | Ragged) -> Ragged:
        """Return values of the tokens of `split()` as a column of these rows; `padding` are the values at padding."""
        if self.order is None:
            return column
        if isinstance(padding, Ragged):
            values = padding.values.copy()
        else:
            values = np.full(len(self.ids.values), padding, column.values.dtype)
        values[self.order[0]] = column.values
        return Ragged(values, self.ids.lengths)

    @property
    def masks(self) -> list[str]:
        """Names of the columns that mask the tokens to train on."""
        return [name for name in SUPERVISION if name in self.columns]

    def trained_ids(self) -> Ragged:
        """Return labels: the ids of the tokens with 1 in all of `masks`, and -100 at all others and at padding."""
        names = ["attention_mask"] * ("attention_mask" in self.columns) + self.masks
        if not names:
            return self.ids
        keep = np.logical_and.reduce([self.columns[name].values != 0 for name in names])
        return Ragged(np.where(keep, self.ids.values.astype(np.int64), IGNORED), self.ids.lengths)

    @property
    def _own_columns(self) -> dict[str, Ragged]:
        return {name: c for name, c in self.columns.items() if name not in ("document_ids", "attention_mask")}

    def truncate(self, limits: Limits, *, side: str = "right") -> Documents:
        r"""Return the rows truncated to `max_length`, or split into several rows with `limits.overflow`.

        If a row is too long, the padding at the ends of all rows is removed first; padding between tokens is kept.
        """
        limit = limits.max_length
        if limit is None or self.ids.longest <= limit or not (limits.truncates or self.is_token is not None):
            return self
        rows = self._trimmed()
        ids = rows.ids
        if not limits.truncates or ids.longest <= limit:
            return rows
        parts: list[tuple[int, int, int]] = []
        for row, (begin, length) in enumerate(zip(ids.offsets[:-1].tolist(), ids.lengths.tolist(), strict=True)):
            windows = window_offsets(length, limit, limits.stride, side) if length else [(0, 0)]
            windows = windows if limits.overflow else windows[:1]
            parts += [(row, begin + start, begin + stop) for start, stop in windows]
        of_row, starts, stops = np.array(parts, dtype=np.int64).reshape(-1, 3).T
        picked, lengths = run_indices(starts, stops - starts), stops - starts
        before = np.zeros(len(of_row), np.int64) if rows.removed is None else rows.removed[of_row]
        return replace(
            rows,
            columns={name: Ragged(column.values[picked], lengths) for name, column in rows.columns.items()},
            sample=rows.sample[of_row],
            truncated=rows.truncated + (0 if limits.overflow else int((ids.lengths > limit).sum())),
            removed=before + starts - ids.offsets[of_row],
        )

    def _trimmed(self) -> Documents:
        mask = self.columns.get("attention_mask")
        if mask is None:
            return self
        keep, removed = np.zeros(len(mask.values), dtype=np.bool_), np.zeros(len(mask), dtype=np.int64)
        for number, (row, start) in enumerate(zip(mask, mask.offsets.tolist(), strict=False)):
            tokens = np.flatnonzero(row)
            if len(tokens):
                keep[start + tokens[0] : start + tokens[-1] + 1] = True
                removed[number] = tokens[0]
        columns = {name: column.where(keep) for name, column in self.columns.items()}
        return replace(self, columns=columns, removed=removed)


# ---------------------------------------------------------------------------------------------------------- given rows


def read_documents(columns: Mapping[str, Ragged], *, first_row: int = 0, is_packed: bool = False) -> Documents:
    r"""Read where the documents of given rows begin, which tokens are padding, and which are trained on.

    Args:
        columns (mapping from `str` to `Ragged`): `"input_ids"`, and any columns of the same lengths. Documents are
            divided by `document_ids` or `seq_idx` (a number for each token, negative at padding), `seq_lengths` (the
            lengths of a row's documents), `cu_seq_lens_q` (their offsets), or `position_ids` that restart. Padding has
            0 in `attention_mask`. The tokens to train on have 1 in all of the masks in `SUPERVISION`.
        first_row (`int`, *optional*, defaults to 0): number of the first row, for messages.
        is_packed (`bool`, *optional*, defaults to `False`): the rows are known to be packed, so that every repeated
            smallest position begins a document; see `documents_by_positions`.

    Returns:
        `Documents`, with the columns that are described there, and all others as they are.

    Raises:
        ValueError: if a column does not have one value per token, if the lengths of documents do not add up to those of
            their row, or if two columns disagree about where a document begins.

    Example:
        >>> rows = {"input_ids": [[5, 6, 7, 8, 9]], "seq_lengths": [[2, 3]]}
        >>> read_documents({name: Ragged.from_rows(row) for name, row in rows.items()}).split().ids.lengths
        array([2, 3])
    """
    columns = dict(columns)
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
    if len(columns) == 1:
        return Documents(columns, np.arange(len(ids), dtype=np.int64))
    for name in ("attention_mask", *SUPERVISION):
        if name in columns:
            _check_mask(name, columns[name], first_row)
    numbered = {name: columns.pop(name) for name in (*NUMBERS, MASK_NUMBERS) if name in columns}
    mask = columns.pop("attention_mask", None)
    is_token = None if mask is None or mask.values.min(initial=1) else mask.values != 0
    for column in numbered.values():
        if column.values.min(initial=0) < 0:  # a negative number marks padding, too
            is_token = (column.values >= 0) if is_token is None else is_token & (column.values >= 0)
    lengths = ids.lengths if is_token is None else ids.where(is_token).lengths

    def of_tokens(column: Ragged) -> NDArray[np.int64]:
        return column.values if is_token is None else column.values[is_token]

    numbers = {name: of_tokens(column) for name, column in numbered.items()}
    for name in (*LENGTHS, *OFFSETS):
        if name in columns:
            sizes = columns.pop(name)
            sizes = sizes if name in LENGTHS else _differences(sizes, name, first_row)
            numbers[name] = _numbers_of_lengths(sizes, lengths, name, first_row)
    if "position_ids" in columns:
        document_numbers = documents_by_positions(of_tokens(columns["position_ids"]), lengths, is_packed=is_packed)
        if document_numbers is not None:
            numbers["position_ids"] = document_numbers
    if numbers:
        name, first = next(iter(numbers.items()))
        for second_name, second in list(numbers.items())[1:]:
            _check_equal(name, first, second_name, second, lengths, first_row)
        documents = np.full(len(ids.values), -1)
        documents[slice(None) if is_token is None else is_token] = first
        columns["document_ids"] = Ragged(documents, ids.lengths)
    if is_token is not None:
        columns["attention_mask"] = Ragged(is_token.astype(np.int64), ids.lengths)
    return Documents(columns, np.arange(len(ids), dtype=np.int64))


def _check_mask(name: str, mask: Ragged, first_row: int) -> None:
    """Raise `ValueError` if a mask has other values than 0 and 1."""
    is_wrong = (mask.values != 0) & (mask.values != 1)
    if not is_wrong.any():
        return
    row = int(np.searchsorted(mask.offsets, int(is_wrong.argmax()), side="right")) - 1
    if name == "attention_mask":
        rule, fix = "1 at tokens and 0 at padding", "the numbers of documents belong into a column document_ids"
    else:
        rule, fix = "1 at tokens to train on, and 0 at others", f"dataset.remove_columns('{name}')"
    raise value_error(f"{name} must be {rule}", got=f"row {first_row + row}: {shorten(mask[row].tolist())}", fix=fix)


def columns_of_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a batch, with one value for each row; a flat batch has one row."""
    offsets = batch.get(OFFSETS[0])
    if offsets is None or not len(offsets) or np.ndim(offsets[0]) > 0:
        return dict(batch)
    scalars = ("max_length_q", "max_length_k", "use_cache")
    return {name: [value] if name in OFFSETS else value for name, value in batch.items() if name not in scalars}


def _differences(offsets: Ragged, name: str, first_row: int) -> Ragged:
    """Return the lengths of documents from their offsets, 0, ..., and the number of tokens, for each row."""
    wrong = [row for row, row_offsets in enumerate(offsets) if not len(row_offsets) or row_offsets[0] != 0]
    if wrong:
        got, fix = shorten(offsets[wrong[0]].tolist()), "[0, 2, 5] for documents of 2 and 3 tokens"
        raise value_error(f"row {first_row + wrong[0]}: '{name}' must begin with 0", got=got, fix=fix)
    inside = np.ones(len(offsets.values), np.bool_)
    inside[offsets.offsets[:-1]] = False
    return Ragged(np.diff(offsets.values, prepend=0)[inside], offsets.lengths - 1)


def _numbers_of_lengths(sizes: Ragged, lengths: NDArray[np.int64], name: str, first_row: int) -> NDArray[np.int64]:
    """Return the document number of each token from the lengths of the documents in each row."""
    offsets = offsets_of(sizes.values)[sizes.offsets]
    if len(sizes) != len(lengths) or (sizes.values < 0).any() or not np.array_equal(np.diff(offsets), lengths):
        row = next(
            (row for row, row_sizes in enumerate(sizes) if (row_sizes < 0).any() or row_sizes.sum() != lengths[row]), 0
        )
        raise value_error(
            f"row {first_row + row}: the documents in '{name}' must have as many tokens as the row",
            got=f"documents of {shorten(sizes[row].tolist())} tokens, in a row of {lengths[row]}",
            fix=f"dataset.remove_columns('{name}'), if the row is one document",
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
    """Raise `ValueError` if two columns disagree about where a document begins.

    Position ids that do not restart in a row say nothing about it.
    """
    starts = offsets_of(lengths)[:-1]
    begins = [np.diff(numbers, prepend=-1) != 0 for numbers in (first, second)]
    for is_start in begins:
        is_start[starts[lengths > 0]] = True
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    differs = begins[0] != begins[1]
    if second_name == "position_ids":
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


def order_by_document(
    documents: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    r"""Return the order of tokens that puts the tokens of each document together, with the documents' lengths and rows.

    A document is all tokens of one row with the same document number; they need not be neighbors.

    Args:
        documents (`np.ndarray` `(N,)`): document number of each token, one row after the other.
        lengths (`np.ndarray` `(B,)` int64): number of tokens in each row.

    Returns:
        Three arrays of integers: the token indices `(N,)`, sorted by row and then by document number; the length of
        each document `(D,)`; and the row of each document `(D,)`.

    Example:
        >>> order_by_document(np.array([0, 0, 1, 4, 5, 4]), np.array([3, 3]))
        (array([0, 1, 2, 3, 5, 4]), array([2, 1, 2, 1]), array([0, 0, 1, 1]))
    """
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((documents, rows))  # tokens of equal numbers stay in their order
    ends = np.ones(len(order) + 1, dtype=np.bool_)
    ends[1:-1] = (np.diff(rows[order]) != 0) | (np.diff(documents[order]) != 0)
    starts = np.flatnonzero(ends)
    return order, np.diff(starts), rows[order][starts[:-1]]


def repeated(values: Any, rows: NDArray[np.int64]) -> Any:
    """Return the values with the indices `rows` of a column with one value per row; an Arrow column stays one."""
    if type(values).__module__.startswith("pyarrow"):
        return values.take(rows)
    return values[rows] if isinstance(values, np.ndarray) else [values[index] for index in rows.tolist()]


def window_offsets(length: int, window: int, stride: int, side: str) -> list[tuple[int, int]]:
    r"""Return the start and stop of each window over a sequence. Consecutive windows share `stride` tokens.

    Example:
        >>> window_offsets(10, 4, 1, "right"), window_offsets(10, 4, 0, "left")
        ([(0, 4), (3, 7), (6, 10)], [(6, 10), (2, 6), (0, 2)])
    """
    step = window - stride
    if side == "right":
        offsets = [(start, min(start + window, length)) for start in range(0, length, step)]
        return offsets[: [stop for _, stop in offsets].index(length) + 1]
    offsets = [(max(stop - window, 0), stop) for stop in range(length, 0, -step)]
    return offsets[: [start for start, _ in offsets].index(0) + 1]


def without_padding_documents(rows: Documents, padding_id: int) -> Documents:
    """Return the rows of a flat batch in which the last documents, if all their ids are `padding_id`, are padding."""
    if rows.order is None:
        return rows
    documents = rows.split().ids
    is_padding = documents.where(documents.values != padding_id).lengths == 0
    is_padding &= np.logical_and.accumulate(is_padding[::-1])[::-1]
    if not is_padding.any():
        return rows
    is_token = rows.join(Ragged(np.repeat(~is_padding, documents.lengths), documents.lengths), 0)
    numbers = rows.columns["document_ids"]
    return rows.with_columns(
        attention_mask=Ragged(is_token.values.astype(np.int64), numbers.lengths),
        document_ids=Ragged(np.where(is_token.values, numbers.values, -1), numbers.lengths),
    )


def read_mask(columns: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    r"""Return columns whose `attention_mask`, if there is one, has a value per token; and True if they are packed rows.

    A mask `(B, 1, T, T)`, or a dict of such masks for kinds of layers, isolates documents: it is replaced by their
    numbers, the column `MASK_NUMBERS`. The text `NO_MASK` is left out. Other masks are returned as they are.

    Example:
        >>> read_mask({"attention_mask": np.array([[[[0.0, -9.0], [-9.0, -9.0]]]])})
        ({'attention_mask (B, 1, T, T)': array([[ 0, -1]])}, True)
        >>> read_mask({"attention_mask": [NO_MASK]}), read_mask({"attention_mask": [[1, 1, 0]]})
        (({}, True), ({'attention_mask': [[1, 1, 0]]}, False))
    """
    columns = dict(columns)
    mask = columns.pop("attention_mask", None)
    if isinstance(mask, Mapping):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if mask is None or is_no_mask(mask):
        return columns, mask is not None
    if getattr(mask, "ndim", 2) != 4 or mask.shape[2] != mask.shape[3]:
        return {**columns, "attention_mask": mask}, False
    return {**columns, MASK_NUMBERS: documents_of_mask(mask, columns.get("input_ids"))}, True


def documents_of_mask(mask: Any, ids: Any = None) -> NDArray[np.int64]:
    r"""Return the document number of each token `(B, T)`, -1 at padding, from a mask `(B, 1, T, T)`.

    A token belongs to the document of the last earlier token that it attends to, and begins one if there is none.
    Padding does not attend to itself; or it attends to itself alone, at the beginning or the end of its row.

    Args:
        mask (array or tensor `(B, 1, T, T)`): bool, or numbers that are added to attention scores.
        ids (`(B, T)`, *optional*): token ids; padding at one end of a row then has one id.

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


def supervision_message(documents: Documents) -> str:
    """Return the warning that labels are made only for the tokens of masks, such as `completion_mask`.

    `documents` are the result of `split`. The share counts no first token, as in `audit.labels`.
    """
    names, labels = documents.masks, ignore_document_starts(documents.trained_ids())
    share = np.count_nonzero(labels.values != IGNORED) / max(1, len(labels.values))
    return explain(
        f"labels are made only for the tokens with 1 in {' and '.join(map(repr, names))}: {share:.0%} of the tokens",
        got="the first rows; this warning is given once",
        fix=f"dataset.remove_columns({names}) to train on all tokens",
    )


def unread_masks_message(names: Sequence[str], labels: object) -> str:
    """Return the warning that masks of supervision have no effect on the labels."""
    return explain(
        f"columns {list(names)} are not read: they select the tokens of causal labels, and none are made",
        got=f"labels={labels!r}; this warning is given once",
        fix=f'labels="causal_lm", or dataset.remove_columns({list(names)})',
    )


def is_no_mask(values: Any) -> bool:
    r"""Return True if the column `attention_mask` of a packed data set has the text `NO_MASK` instead of masks.

    `pack_dataset` writes this text, because a mask of ones would not separate the documents of a row. `values` is the
    column; only its first value is compared.

    Example:
        >>> is_no_mask([NO_MASK]), is_no_mask([[1, 1, 0]])
        (True, False)
    """
    first = next(iter(values), None) if getattr(values, "ndim", 1) and hasattr(values, "__iter__") else None
    return type(first).__name__ in ("str", "str_", "StringScalar") and str(first) == NO_MASK


# --------------------------------------------------------------------------------------------------------- packed rows


def pack_rows(
    documents: Mapping[str, Ragged], capacity: int, *, seed: int | None = None, first_position: int = 0
) -> dict[str, Ragged]:
    r"""Pack tokenized documents into rows: one or more documents per row, with at most `capacity` tokens in total.

    Example:
        >>> rows = pack_rows({"input_ids": Ragged.from_rows([[5, 6], [7], [8, 9, 4]])}, 4)
        >>> rows["input_ids"].pad(0)
        array([[8, 9, 4, 7],
               [5, 6, 0, 0]])
        >>> rows["position_ids"].pad(0), rows["document_ids"].pad(-1)
        (array([[0, 1, 2, 0],
               [0, 1, 0, 0]]), array([[ 0,  0,  0,  1],
               [ 0,  0, -1, -1]]))
    """
    ids = documents["input_ids"]
    filled = np.flatnonzero(ids.lengths)
    plan = pack(ids.lengths[filled], capacity, seed=seed)
    index, place = plan.places(ids.offsets[:-1][filled])
    lengths = plan.row_lengths
    rows = {name: Ragged(column.values[index], lengths) for name, column in documents.items()}
    if "position_ids" not in rows:
        rows["position_ids"] = Ragged(place + first_position, lengths)
    number = np.arange(len(plan.order)) - np.repeat(plan.row_offsets[:-1], np.diff(plan.row_offsets))
    rows["document_ids"] = Ragged(np.repeat(number, plan.lengths[plan.order]), lengths)
    return rows


def ignore_document_starts(labels: Ragged, which: NDArray[np.bool_] | bool = True) -> Ragged:
    r"""Return labels of documents with -100 at the first token of each, or only of those at which `which` is True.

    A causal model predicts each label from the token before it: from padding, or the end of another document.

    Example:
        >>> ignore_document_starts(Ragged.from_rows([[5, 6, 7], [8, 9]])).values
        array([-100,    6,    7, -100,    9])
    """
    values = labels.values.copy()
    values[labels.offsets[:-1][(labels.lengths > 0) & which]] = IGNORED
    return Ragged(values, labels.lengths)
