"""Input that is tokenized already: rows of ids are checked, closed and truncated. Calls with texts do not load this."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .._common.errors import explain, shorten, value_error
from ..documents import (
    BOUNDARIES,
    LABEL_COLUMNS,
    LENGTHS,
    MASK_NUMBERS,
    NUMBERS,
    OFFSETS,
    PER_TOKEN,
    SUPERVISION,
    TOKEN_INDICES,
    Documents,
    is_no_mask,
    read_documents,
    read_mask,
    refuse_foreign_names,
)
from ..ragged import Ragged
from .arrays import as_array, given_labels, to_float32, token_values
from .config import Config
from .inputs import Given, Messages, Values, as_list, is_missing, label_names

BEYOND = np.iinfo(np.int32).max  # an index of a token beyond its row, in any padded row
_GIVEN = "index among the given tokens"  # a column of rows while they are truncated


def read_ids(config: Config, given: Given) -> tuple[Documents, dict[str, Values], Messages]:
    """Return the closed, truncated rows of tokenized input, the columns that are no part of them, and warnings by kind.

    The rows contain `input_ids`, the other columns of `PER_TOKEN`, and labels per token. Raise a `ValueError` if an id
    is not in the vocabulary, or if one of these columns does not have one value per id.
    """
    columns = dict(given.columns)
    if len(columns) == 1:
        ids = Ragged.from_rows(columns.pop("input_ids"))
        check_ids(config, ids)
        rows, _ = read_documents({"input_ids": ids})
        return _truncate_rows(config, rows), columns, _warning_of_padding(config, ids, {})
    texts = {name: mask for name, mask in columns.items() if name == "attention_mask" and is_no_mask(mask)}
    columns, is_packed = read_mask(columns, config.tokenizer.pad_token_id)
    is_packed |= MASK_NUMBERS in columns
    ids = Ragged.from_rows(columns.pop("input_ids"))
    check_ids(config, ids)
    refuse_foreign_names(columns, ids.lengths, named=config.accepts or ())
    per_token = _read_per_token(config, columns, ids)
    mask = per_token.get("attention_mask")
    if mask is not None and config.accepts is not None and "global_attention_mask" in config.accepts:
        _check_no_global_attention(mask)
    rows, index = read_documents(
        {"input_ids": ids, **per_token},
        is_packed=is_packed,
        padding_id=config.fills["input_ids"] if config.is_padding_unique else None,
    )
    if texts:  # `map` stores them as they are
        columns |= texts
        rows = rows.replaced(boundaries=tuple(name for name in rows.boundaries if name not in texts))
    is_token, messages = None, Messages()
    if index is not None:
        _check_not_hidden(config, ids, rows, per_token)
        is_token = np.zeros(len(ids.values), np.bool_)
        is_token[index] = True
    for name in [] if config.has_targets else label_names(columns):
        labels = given_labels(columns[name], ids, name=name, per=config.labels_per, is_token=is_token)
        if isinstance(labels, Ragged):
            values = labels.values if index is None else labels.values[index]
            rows = rows.with_columns(**{name: Ragged(values, rows.ids.lengths)})
            del columns[name]
    has_indices = not columns.keys().isdisjoint(TOKEN_INDICES)
    if has_indices:
        given_places = np.arange(len(ids.values)) if index is None else index
        rows = rows.with_columns(**{_GIVEN: Ragged(given_places, rows.ids.lengths)})
    rows = _truncate_rows(config, _count_from_first(config, rows))
    if rows.truncated and (names := _as_long_as_rows(columns, ids.lengths)):
        messages["whole columns"] = explain(
            f"columns {names} have as many values as their rows had tokens before truncation, and stay whole",
            got=f"{rows.truncated} rows truncated to {config.limits.max_length} tokens; this warning is given once",
            fix=f"token_columns={tuple(names)}, if they have one value per token",
        )
    if "position_ids" in rows.columns:
        check_positions(config, rows)
    if has_indices:
        columns |= _token_indices(config, columns, ids, rows)
        del rows.columns[_GIVEN]
    return rows, columns, messages | _warning_of_padding(config, ids, per_token)


def _read_per_token(config: Config, columns: dict[str, Values], ids: Ragged) -> dict[str, Ragged]:
    """Remove the columns with one value per token, and those of boundaries, from `columns`, and return them."""
    per_token: dict[str, Ragged] = {}
    named = [name for name, column in PER_TOKEN.items() if not column.if_named or config.takes(name)]
    own = config.settings.token_columns
    for name in (*BOUNDARIES, *named, *own):
        if name in columns and not all(map(is_missing, values := as_list(columns[name]))):
            if name in own or (name in PER_TOKEN and PER_TOKEN[name].is_vector):
                column = token_values(name, values, ids.lengths)
                if config.accepts is not None and column.values.dtype == np.float64:
                    column = Ragged(to_float32(name, column.values), column.lengths)
                per_token[name] = column
            else:
                per_token[name] = _ragged(name, values)
        if name not in (*LENGTHS, *OFFSETS):  # after truncation, `map` stores other ones
            columns.pop(name, None)
    return per_token


def _as_long_as_rows(columns: dict[str, Values], lengths: NDArray[np.int64]) -> list[str]:
    """Return the names of columns of lists that have as many values as the rows have tokens."""
    names = []
    for name in columns.keys() - {*LENGTHS, *OFFSETS, *LABEL_COLUMNS, *TOKEN_INDICES}:
        rows = as_list(columns[name])
        sizes = [len(row) if isinstance(row, list | tuple) or np.ndim(row) else -1 for row in rows]
        if np.array_equal(sizes, lengths):
            names.append(name)
    return sorted(names, key=str)


def _truncate_rows(config: Config, rows: Documents) -> Documents:
    """Return rows truncated to the limit; with `packing`, they are divided into documents first."""
    rows = rows.split() if config.settings.packing else rows
    return rows.truncate(config.limits, side=config.tokenizer.truncation_side)


def _count_from_first(config: Config, rows: Documents) -> Documents:
    """Count given positions 0, 1, 2, ... of a document from the model's first one; raise for others before that."""
    first = config.model_first_position
    if "position_ids" not in rows.columns or not first:
        return rows
    positions = rows.split().columns["position_ids"]
    is_counted = positions.where(positions.values == positions.counters().values).lengths == positions.lengths
    row_of = rows.row_of_document
    is_mixed = is_counted != (np.bincount(row_of, is_counted, len(rows.ids)) > 0)[row_of]
    if is_mixed.any():
        row = int(row_of[is_mixed.argmax()])
        raise value_error(
            f"row {row}: the position_ids of one document count from 0, and those of another from {first} or more",
            got=shorten(rows.columns["position_ids"][row].tolist()),
            fix="dataset.remove_columns('position_ids') to count them",
        )
    moved = Ragged(positions.values + first * np.repeat(is_counted, positions.lengths), positions.lengths)
    is_below = moved.values < first
    if config.model is not None and is_below.any():  # before truncation, which may leave the others
        row = rows.columns["position_ids"].row_of(int(is_below.argmax()))
        raise value_error(
            f"{_first_position(rows, is_below)}, and the positions of {config.model.name} begin at {first}: those of a "
            f"document must be 0, 1, 2, ..., or {first} and more",
            got=shorten(rows.columns["position_ids"][row].tolist()),
            fix=f"dataset.remove_columns('position_ids') to count them; or add {first} to those that count from 0",
        )
    return rows.with_columns(position_ids=rows.in_rows(moved))


def _token_indices(config: Config, columns: dict[str, Values], ids: Ragged, rows: Documents) -> dict[str, Values]:
    """Return columns of indices of tokens, such as `start_positions`, `(B,)` or `(B, n)`, moved with their tokens."""
    # An index beyond its row stays beyond it: the heads of transformers ignore it, as the answer of another piece.
    indices: dict[str, Values] = {}
    for name in TOKEN_INDICES:
        values = as_array(name, as_list(columns[name])) if name in columns and config.takes(name) else None
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
        reason = f"packing={config.settings.packing!r} moves rows into others" if config.settings.packing else None
        if len(rows.ids) != len(ids) and reason is None:
            reason = "return_overflowing_tokens=True continues rows in further ones"
        if reason is not None:
            raise value_error(
                f"row 0 of column '{name}' is {shorten(array[0].tolist())}, the index of a token in its row",
                got=reason,
                fix="tokenize with tokenizer(..., return_overflowing_tokens=True, return_offsets_mapping=True), and "
                "find the answer of each piece; then collate the pieces as they are",
            )
        shape = (-1, *[1] * (array.ndim - 1))
        is_inside = (array >= 0) & (array < ids.lengths.reshape(shape))
        moved = np.full(len(ids.values) + 1, -1)  # the place of each given token in its row; -1 if it is not there
        moved[rows.columns[_GIVEN].values] = rows.ids.counters().values
        place = np.where(is_inside, array + ids.offsets[:-1].reshape(shape), -1)
        new = moved[place]
        if "question_positions" in columns:  # 0 is padding of Splinter's
            new = np.where(array == 0, 0, new)
        if (is_inside & (new < 0)).any():
            row = int(np.argwhere(is_inside & (new < 0))[0][0])
            raise value_error(
                f"row {row} of column '{name}' is {shorten(array[row].tolist())}, and this token was cut or is padding",
                got=f"a row of {ids.lengths[row]} tokens, of which {rows.ids.lengths[row]} are left",
                fix="the index of [CLS], if a row has no answer; a larger max_length, or divide long texts by the "
                "tokenizer: tokenizer(..., return_overflowing_tokens=True, return_offsets_mapping=True)",
            )
        indices[name] = np.where(is_inside, new, BEYOND)
    return indices


def check_positions(config: Config, rows: Documents) -> None:
    """Raise a `ValueError` for the first of the given `position_ids` that the model has no row for."""
    model = config.model
    if model is None or "position_ids" not in model.accepts:
        return
    values, last = rows.columns["position_ids"].values, model.max_position
    is_wrong = values < 0 if last is None else (values < 0) | (values > last)
    if is_wrong.any():
        raise value_error(
            f"{_first_position(rows, is_wrong)}, and "
            + ("positions are 0 or more" if last is None else f"{model.name} takes 0 to {last}"),
            got=f"{np.count_nonzero(is_wrong)} such positions in this batch",
            fix="dataset.remove_columns('position_ids'), so that tokens are counted; or smaller positions",
        )


def _first_position(rows: Documents, is_wrong: NDArray[np.bool_]) -> str:
    """Return the place and the value of the first wrong position, for a message."""
    given, place = rows.columns["position_ids"], int(is_wrong.argmax())
    row = given.row_of(place)
    return f"row {rows.given_row[row]}, column {place - given.offsets[row]} of 'position_ids' is {given.values[place]}"


def _warning_of_padding(config: Config, ids: Ragged, per_token: dict[str, Ragged]) -> Messages:
    """Return `padding_message` by its kind, or nothing."""
    if not config.is_padding_unique:  # an id that is also that of eos may end a text
        return {}
    message = padding_message(ids, config.fills["input_ids"], per_token)
    return {"no mask": message} if message else {}


def padding_message(ids: Ragged, padding_id: int, per_token: Mapping[str, Ragged]) -> str | None:
    """Return the warning of a row that begins or ends with padding ids, if no column marks padding; otherwise `None`.

    `per_token` has the other columns that were read. Document numbers without a negative one mark no padding.
    """
    marks = {name for name in BOUNDARIES if name in per_token}
    marks -= {name for name in NUMBERS if name in per_token and per_token[name].values.min(initial=0) >= 0}
    if marks:
        return None
    has_tokens = slice(None) if ids.shortest else ids.lengths > 0
    edges = ids.values[np.array([ids.offsets[:-1][has_tokens], ids.offsets[1:][has_tokens] - 1])]  # (2, rows)
    found = edges == padding_id
    if not found.any():
        return None
    row = int(np.arange(len(ids))[has_tokens][found.any(axis=0).argmax()])
    numbers = next((name for name in NUMBERS if name in per_token), None)
    return explain(
        f"row {row} begins or ends with the padding id {padding_id}, and the rows have no "
        "attention_mask: padding counts as tokens",
        got=f"input_ids {shorten(ids[row].tolist())}"
        + (f", {numbers} {shorten(per_token[numbers][row].tolist())}" if numbers else ""),
        fix="keep the tokenizer's column attention_mask, or leave the padding out of the rows"
        + (f"; or -1 in {numbers} at padding" if numbers else ""),
    )


def _check_no_global_attention(mask: Ragged) -> None:
    """Raise a `ValueError` for 2 in an attention mask: it is no document for a model with global attention."""
    if (mask.values > 1).any():
        row = mask.row_of(int((mask.values > 1).argmax()))
        raise value_error(
            "this model takes global_attention_mask, so attention_mask must be 0 or 1",
            got=f"row {row}: {shorten(mask[row].tolist())}",
            fix="a column global_attention_mask with 1 at global tokens; document_ids for numbers of documents",
        )


def _check_not_hidden(config: Config, ids: Ragged, rows: Documents, per_token: dict[str, Ragged]) -> None:
    """Raise a `ValueError` if a row has tokens but its `attention_mask` is 0 at all of them: 0 and 1 may be swapped."""
    mask = per_token.get("attention_mask")
    if mask is None:
        return
    given, seen = (each.where(each.values != config.fills["input_ids"]).lengths for each in (ids, rows.ids))
    wrong = np.flatnonzero((given > 0) & (seen == 0))
    if len(wrong):
        row = int(wrong[0])
        raise value_error(
            f"attention_mask is 0 at all {given[row]} tokens of row {row}, and 0 means padding",
            got=f"attention_mask {shorten(mask[row].tolist())}",
            fix="1 - attention_mask, if 1 means padding in it; else drop such rows first",
        )


def _ragged(name: str, rows: Values) -> Ragged:
    """Return the values of a column that is read with the tokens as a `Ragged`."""
    if name == "word_ids":  # None at special tokens, as tokenizers return them
        rows = [row if row is None else [-1 if item is None else item for item in row] for row in rows]
    return Ragged.from_rows(rows, name=name, mask=name.endswith("_mask") or name in SUPERVISION)


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
    row = ids.row_of(at)
    column = at - int(ids.offsets[row])
    raise value_error(
        f"row {row}, column {column} of '{name}' is {int(ids.values[at])}, which is no token id",
        got="a negative id" if smallest < 0 else f"an embedding of {rows} rows",
        fix="check that the ids come from this tokenizer; -100 is for labels only",
    )
