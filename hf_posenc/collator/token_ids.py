"""Input that is tokenized already: checks of ids, masks and other columns of one value per token, and truncation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from ..documents import (
    FURTHER_PER_TOKEN,
    LENGTHS,
    MASK_NUMBERS,
    NUMBERS,
    OFFSETS,
    SUPERVISION,
    TOKEN_INDICES,
    Documents,
    read_documents,
    read_mask,
    without_padding_documents,
)
from ..ragged import Ragged
from .arrays import as_array, given_labels
from .config import PER_TOKEN, Config
from .inputs import Given, Values, as_list, label_names

_BEYOND = np.iinfo(np.int32).max  # an index beyond the row, in any padded row


def read_ids(config: Config, given: Given) -> tuple[Documents, dict[str, Values]]:
    """Return the checked rows of tokenized input, and the columns of the input that are not a part of these rows.

    The rows contain `input_ids` and the other columns with one value per token, such as `attention_mask`; `PER_TOKEN`
    lists them. Raise a `ValueError` if an id is not in the vocabulary, or if one of these columns does not have one
    value per id.
    """
    columns = dict(given.columns)
    if len(columns) == 1:
        ids = Ragged.from_rows(as_list(columns.pop("input_ids")))
        check_ids(config, ids)
        return read_documents({"input_ids": ids}), columns
    columns, is_packed = read_mask(columns)
    is_packed |= MASK_NUMBERS in columns
    ids = Ragged.from_rows(as_list(columns.pop("input_ids")))
    check_ids(config, ids)
    further = [name for name in FURTHER_PER_TOKEN if config.accepts is None or name in config.accepts]
    ragged_columns = {}
    for name in (*PER_TOKEN, MASK_NUMBERS, *LENGTHS, *OFFSETS, *further):
        if name in columns and not _is_missing(name, values := as_list(columns[name])):
            ragged_columns[name] = _ragged(name, values)
        if name not in (*LENGTHS, *OFFSETS):  # after truncation, `map` stores other ones
            columns.pop(name, None)
    rows = read_documents({"input_ids": ids, **ragged_columns}, is_packed=is_packed)
    if not ragged_columns.keys().isdisjoint(OFFSETS) and config.is_padding_unique:
        rows = without_padding_documents(rows, config.fills["input_ids"])
    if rows.is_token is not None and "attention_mask" in ragged_columns:
        _check_not_swapped(config, ids, rows.is_token)
    return _count_from_first(config, rows), columns


def _count_from_first(config: Config, rows: Documents) -> Documents:
    """Return rows in which given positions 0, 1, 2, ... of a document begin at the first position of the model."""
    position_ids, first = rows.columns.get("position_ids"), config.model_first_position
    if position_ids is None or not first:
        return rows
    positions = rows.split().columns["position_ids"]
    is_counted = positions.where(positions.values == positions.counters().values).lengths == positions.lengths
    if rows.order is not None:
        counted, row_of = np.bincount(rows.order[2], is_counted, len(rows.ids)), rows.order[2]
        is_mixed = is_counted != (counted > 0)[row_of]
        if is_mixed.any():
            row = int(row_of[is_mixed.argmax()])
            raise value_error(
                f"row {row}: the position_ids of one document count from 0, and those of another from {first} or more",
                got=shorten(position_ids[row].tolist()),
                fix="dataset.remove_columns('position_ids') to count them",
            )
    moved = Ragged(positions.values + first * np.repeat(is_counted, positions.lengths), positions.lengths)
    return rows.with_columns(position_ids=rows.join(moved, position_ids))


def token_indices(config: Config, given: Given, rows: Documents, columns: dict[str, Values]) -> dict[str, Values]:
    """Return the columns with indices of tokens, such as `start_positions`, moved with their tokens.

    The result has only these columns, as integers `(B,)` or `(B, n)`. An index beyond its row stays beyond it, because
    models ignore it. Raise a `ValueError` for texts, and if a token was cut or packed, or its row became several rows.
    """
    names = [name for name in TOKEN_INDICES if name in columns and (config.accepts is None or name in config.accepts)]
    arrays = {name: as_array(name, as_list(columns[name])) for name in names}
    indices: dict[str, Values] = {}
    for name, values in arrays.items():
        if values is None or values.dtype.kind not in "bif" or values.ndim > 2:
            continue
        if values.dtype.kind == "f":  # as pandas has them if one is missing
            is_whole = np.isfinite(values) & (values == np.floor(values))
            if not is_whole.all():
                row = int(np.argwhere(~is_whole)[0][0])
                raise value_error(
                    f"row {row} of column '{name}' is {shorten(values[row].tolist())}, and the index of a token is an "
                    "integer",
                    got=f"{np.count_nonzero(~is_whole)} such values",
                    fix="the index of [CLS], if a row has no answer; or leave out such rows",
                )
        array = values.astype(np.int64)
        if given.texts is not None:
            raise value_error(
                f"column '{name}' came with texts, and its values are indices of tokens, which do not exist yet",
                got=f"row 0: {shorten(array[0].tolist())}",
                fix="tokenize first, with tokenizer(..., return_offsets_mapping=True), and find the tokens of each "
                "answer by the offsets of their characters",
            )
        lengths = Ragged.from_rows(as_list(given.columns["input_ids"])).lengths
        removed = np.zeros(len(lengths), np.int64) if rows.removed is None else rows.removed
        reason = f"packing={config.settings.packing!r} moves rows into others" if config.settings.packing else None
        if len(rows.ids) != len(lengths) and reason is None:
            reason = "return_overflowing_tokens=True continues rows in further ones"
        if reason is not None:
            raise value_error(
                f"row 0 of column '{name}' is {shorten(array[0].tolist())}, the index of a token in its row",
                got=reason,
                fix="tokenize with tokenizer(..., return_overflowing_tokens=True, return_offsets_mapping=True), and "
                "find the answer of each piece; then collate the pieces as they are",
            )
        shape = (-1, *[1] * (array.ndim - 1))
        moved = array - removed.reshape(shape)
        is_inside = (array >= 0) & (array < lengths.reshape(shape))
        is_cut = is_inside & ((moved < 0) | (moved >= rows.ids.lengths.reshape(shape)))
        if is_cut.any():
            row = int(np.argwhere(is_cut)[0][0])
            raise value_error(
                f"row {row} of column '{name}' is {shorten(array[row].tolist())}, and this token was cut",
                got=f"a row of {lengths[row]} tokens, truncated to {rows.ids.lengths[row]}",
                fix="a larger max_length, or divide long texts by the tokenizer: tokenizer(..., "
                "return_overflowing_tokens=True, return_offsets_mapping=True)",
            )
        indices[name] = np.where(is_inside, moved, _BEYOND)
    return indices


def padded_indices(
    array: NDArray[np.int64], lengths: NDArray[np.int64], width: int | NDArray[np.int64], side: str, *, keeps_0: bool
) -> NDArray[np.int64]:
    """Return indices of tokens in rows that are padded to `width`; those beyond their row become `width`.

    With `keeps_0`, 0 stays 0: Splinter pads its questions with it, and ignores an answer there.
    """
    shift = (width - lengths if side == "left" else 0 * lengths).reshape(-1, *[1] * (array.ndim - 1))
    is_beyond = (array < 0) | (array >= lengths.reshape(shift.shape))
    beyond = np.broadcast_to(width, lengths.shape).reshape(shift.shape)
    return np.where((array == 0) & keeps_0, 0, np.where(is_beyond, beyond, array + shift))


def check_positions(config: Config, rows: Documents) -> None:
    """Raise a `ValueError` for the first of the given `position_ids` that the model has no row for, or never counts."""
    position_ids, first, model = rows.columns["position_ids"], config.model_first_position, config.model
    if model is None or "position_ids" not in model.accepts:
        return
    values = position_ids.values if rows.is_token is None else np.where(rows.is_token, position_ids.values, first)
    last = model.max_position
    is_beyond = np.zeros(len(values), np.bool_) if last is None else (values < 0) | (values > last)
    wrong = is_beyond if is_beyond.any() else values < first
    if not wrong.any():
        return
    place = int(wrong.argmax())
    row = int(np.searchsorted(position_ids.offsets, place, side="right")) - 1
    at = (
        f"row {rows.sample[row]}, column {place - position_ids.offsets[row]} of 'position_ids' is {values[place]}, and "
    )
    if wrong is is_beyond:
        raise value_error(
            at + f"{model.name} takes 0 to {last}",
            got=f"{np.count_nonzero(wrong)} such positions in this batch",
            fix="dataset.remove_columns('position_ids'), so that tokens are counted; or smaller positions",
        )
    if not first:
        raise value_error(
            at + "positions are 0 or more",
            got=shorten(position_ids[row].tolist()),
            fix="dataset.remove_columns('position_ids') to count them",
        )
    raise value_error(
        at
        + f"the positions of {model.name} begin at {first}: those of a document must be 0, 1, 2, ..., or {first} and "
        "more",
        got=shorten(position_ids[row].tolist()),
        fix=f"dataset.remove_columns('position_ids') to count them; or add {first} to those that count from 0",
    )


def unmasked_row(config: Config, given: Given, rows: Documents) -> int | None:
    """Return the index of the first tokenized row that begins or ends with padding ids without a mask, or `None`.

    Return `None` too if padding has the id of another special token, such as eos, which may end a text.
    """
    ids = rows.ids
    has_mask = not {"attention_mask", MASK_NUMBERS, *NUMBERS, *LENGTHS, *OFFSETS}.isdisjoint(given.columns)
    if has_mask or not config.is_padding_unique:
        return None
    is_padding = np.append(ids.values == config.fills["input_ids"], False)
    is_unmasked = (ids.lengths > 0) & (is_padding[ids.offsets[:-1]] | is_padding[ids.offsets[1:] - 1])
    return int(is_unmasked.argmax()) if is_unmasked.any() else None


def truncate_rows(config: Config, rows: Documents, columns: dict[str, Values]) -> tuple[Documents, dict[str, Values]]:
    """Truncate tokenized rows to the limit; return them and the columns that are not a part of them.

    If no row is too long, both are returned unchanged. With `packing`, rows are divided into documents first, always.
    Labels per token are moved from `columns` to the rows, so that they are truncated and divided too.
    """
    limit = config.limits.max_length
    is_divided = config.settings.packing and rows.order is not None
    if not is_divided and (limit is None or rows.ids.longest <= limit):
        return rows, columns
    for name in [] if config.has_targets else label_names(columns):
        labels = given_labels(columns[name], rows.ids.lengths, name=name)
        if isinstance(labels, Ragged):
            rows = rows.with_columns(**{name: labels})
            columns = {key: values for key, values in columns.items() if key != name}
    if is_divided:
        rows = rows.split()
    return rows.truncate(config.limits, side=config.tokenizer.truncation_side), columns


def _is_missing(name: str, rows: Values) -> bool:
    """Return True if all rows of a column are None; raise a `ValueError` if some are."""
    missing = [index for index, row in enumerate(rows) if row is None]
    if missing and len(missing) < len(rows):
        raise value_error(
            f"row {missing[0]} of column '{name}' is None, and other rows have values",
            got=f"{len(missing)} such rows of {len(rows)}",
            fix=f"dataset.remove_columns('{name}'), or a value per token in every row",
        )
    return bool(missing)


def _ragged(name: str, rows: Values) -> Ragged:
    """Return the values of a column that is read with the tokens as a `Ragged`."""
    if name == "word_ids":  # None at special tokens, as tokenizers return them
        rows = [[-1 if item is None else item for item in row] for row in rows]
    return Ragged.from_rows(rows, name=name, bools=name.endswith("_mask") or name in SUPERVISION)


def _check_not_swapped(config: Config, ids: Ragged, is_token: NDArray[np.bool_]) -> None:
    """Raise a `ValueError` if a row has tokens but its `attention_mask` is 0 at all of them: 0 and 1 may be swapped."""
    tokens = ids.values != config.fills["input_ids"]
    hidden, seen = (ids.where(tokens & part).lengths for part in (~is_token, is_token))
    wrong = np.flatnonzero((hidden > 0) & (seen == 0))
    if len(wrong):
        row = int(wrong[0])
        mask = is_token[ids.offsets[row] : ids.offsets[row + 1]].astype(int).tolist()
        raise value_error(
            f"attention_mask is 0 at all {hidden[row]} tokens of row {row}, and 0 means padding",
            got=f"attention_mask {shorten(mask)}",
            fix="1 - attention_mask, if 1 means padding in it; else drop such rows first",
        )


def check_ids(config: Config, ids: Ragged, name: str = "input_ids") -> None:
    """Raise `ValueError` if an id is negative, or has no row in the token embedding of the model."""
    if not len(ids.values):
        return
    rows = config.number_of_ids
    # Viewed as unsigned, a negative id exceeds every valid id, so that one maximum finds both kinds of errors.
    if int(ids.values.view(np.uint64).max()) < (2**63 if rows is None else rows):
        return
    smallest = int(ids.values.min())
    bad = ids.values < 0 if smallest < 0 or rows is None else ids.values >= rows
    at = int(np.flatnonzero(bad)[0])
    row = int(np.searchsorted(ids.offsets, at, side="right")) - 1
    column = at - int(ids.offsets[row])
    raise value_error(
        f"row {row}, column {column} of '{name}' is {int(ids.values[at])}, which is no token id",
        got="a negative id" if smallest < 0 else f"an embedding of {rows} rows",
        fix="check that the ids come from this tokenizer; -100 is for labels only",
    )
