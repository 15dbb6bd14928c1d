"""Input that is tokenized already: checks of ids, masks and other columns of one value per token, and truncation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from ..ragged import Ragged
from ..tokenization import TokenRows, is_no_mask
from .arrays import given_labels
from .config import PER_TOKEN, Config
from .inputs import Given, Values, as_list, label_names


def read_ids(config: Config, given: Given) -> tuple[TokenRows, dict[str, Values]]:
    """Return the checked rows of tokenized input, and the columns of the input that are not a part of these rows.

    The rows contain `input_ids` and the other columns with one value per token, such as `attention_mask`; `PER_TOKEN`
    lists them. Raise a `ValueError` if an id is not in the vocabulary, or if one of these columns does not have one
    value per id.
    """
    columns = dict(given.columns)
    if is_no_mask(columns.get("attention_mask", ())):
        del columns["attention_mask"]
    ids = Ragged.from_rows(as_list(columns.pop("input_ids")))
    check_ids(config, ids)
    rows = TokenRows({"input_ids": ids}, np.arange(len(ids), dtype=np.int64))
    per_token = {name: _per_token(name, as_list(columns.pop(name)), ids) for name in PER_TOKEN if name in columns}
    mask, real = per_token.pop("attention_mask", None), None
    if mask is not None and mask.values.min(initial=1) == 0:
        real = mask.values != 0
        _check_mask(config, ids, real)
    if "document_ids" in per_token:  # a negative number also marks padding
        numbers = per_token["document_ids"].values
        real = numbers >= 0 if real is None else real & (numbers >= 0)
        per_token["document_ids"] = Ragged(np.where(real, numbers, -1), ids.lengths)
    if real is not None and not real.all():
        per_token["attention_mask"] = Ragged(real.astype(np.int64), ids.lengths)
    return rows.with_columns(**per_token) if per_token else rows, columns


def count_from_0(config: Config, rows: TokenRows) -> bool:
    """Return True if the `position_ids` of tokenized rows count from 0, but the model's positions do not.

    They are assumed to count from 0 if their smallest value at a token is not the model's first position. Return False
    if there are no `position_ids`, or if the model's first position is 0.
    """
    given, first = rows.columns.get("position_ids"), config.model_first_position
    if given is None or not first:
        return False
    values = given.values if rows.is_token is None else given.values[rows.is_token]
    return int(values.min(initial=np.iinfo(np.int64).max)) != first


def unmasked_row(config: Config, given: Given, rows: TokenRows) -> int | None:
    """Return the index of the first tokenized row that begins or ends with padding ids without a mask, or `None`.

    Return `None` too if padding has the id of another special token, such as eos, which may end a text.
    """
    tokenizer, ids = config.tokenizer, rows.ids
    others = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "unk", "sep", "cls"))
    has_mask = "attention_mask" in given.columns or "document_ids" in given.columns
    if has_mask or tokenizer.pad_token_id in (None, *others):
        return None
    is_padding = np.append(ids.values == tokenizer.pad_token_id, False)
    found = (ids.lengths > 0) & (is_padding[ids.offsets[:-1]] | is_padding[ids.offsets[1:] - 1])
    return int(found.argmax()) if found.any() else None


def truncate_rows(config: Config, rows: TokenRows, columns: dict[str, Values]) -> tuple[TokenRows, dict[str, Values]]:
    """Truncate tokenized rows to the limit; return them and the columns that are not a part of them.

    If no row is too long, both are returned unchanged. Otherwise padding at the ends of rows is removed first. Labels
    per token are moved from `columns` to the rows, so that they are truncated too.
    """
    limit = config.limits.max_length
    if limit is None or rows.ids.longest <= limit or not (config.limits.truncates or rows.is_token is not None):
        return rows, columns
    for name in [] if config.has_targets else label_names(columns):
        labels = given_labels(columns[name], rows.ids.lengths, name=name)
        if isinstance(labels, Ragged):
            rows = rows.with_columns(**{name: labels})
            columns = {other: values for other, values in columns.items() if other != name}
    if rows.documents is not None:  # the positions that are left may not show where documents begin, as in 0 0 1
        rows = rows.with_columns(document_ids=rows.documents)
    return rows.trim().truncate(config.limits, side=config.tokenizer.truncation_side), columns


def _per_token(name: str, values: Values, ids: Ragged) -> Ragged:
    if name == "word_ids":  # None at special tokens, as tokenizers return them
        values = [[-1 if item is None else item for item in row] for row in values]
    column = Ragged.from_rows(values, name=name, bools=name in ("attention_mask", "special_tokens_mask"))
    if not np.array_equal(column.lengths, ids.lengths):
        row = int(np.flatnonzero(column.lengths != ids.lengths)[0])
        raise value_error(
            f"row {row}: {column.lengths[row]} values in '{name}' for {ids.lengths[row]} tokens",
            fix=f"one value per token, or dataset.remove_columns('{name}')",
        )
    # Viewed as unsigned, a negative number is larger than 1 too.
    if name == "attention_mask" and column.values.view(np.uint64).max(initial=0) > 1:
        found = np.unique(column.values)[:8].tolist()
        raise value_error("attention_mask must be 1 at tokens and 0 at padding", got=shorten(found))
    return column


def _check_mask(config: Config, ids: Ragged, real: NDArray[np.bool_]) -> None:
    """Raise a `ValueError` if a row has tokens but its `attention_mask` is 0 at all of them: 0 and 1 may be swapped."""
    tokens = ids.values != config.fills["input_ids"]
    hidden, seen = (ids.where(tokens & part).lengths for part in (~real, real))
    wrong = np.flatnonzero((hidden > 0) & (seen == 0))
    if len(wrong):
        row = int(wrong[0])
        mask = real[ids.offsets[row] : ids.offsets[row + 1]].astype(int).tolist()
        raise value_error(
            f"attention_mask is 0 at all {hidden[row]} tokens of row {row}, and 0 means padding",
            got=f"attention_mask {shorten(mask)}",
            fix="1 - attention_mask, if 1 means padding in it; else drop such rows first",
        )


def check_ids(config: Config, ids: Ragged, name: str = "input_ids") -> None:
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
