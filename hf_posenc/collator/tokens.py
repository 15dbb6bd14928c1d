"""Rows of tokens within the limits: texts are tokenized, given ids are checked and truncated.

NumPy only, so that a forked worker can run it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..ragged import Ragged
from ..rows import IGNORED, TokenRows
from .arrays import Values, repeated
from .config import PER_TOKEN, Config
from .inputs import Given, as_list
from .labels import given_labels, label_names, truncate_targets


@dataclass(frozen=True, eq=False)
class Tokenized:
    r"""Rows of tokens, and the columns and targets that belong to them.

    Args:
        rows (`TokenRows`): one per text, or several for a long text.
        columns (`dict` from `str` to sequence): the other columns, one value per text.
        count (`int`): number of texts.
        from_texts (`bool`): True for texts, False for tokenized rows.
        targets (`Ragged`, *optional*): labels that are token sequences of their own, one per row.
        targets_truncated (`int`, *optional*): number of targets that lost tokens.
        from_0 (`bool`, *optional*): True if given `position_ids` count from 0, but the model's first position is not 0.
    """

    rows: TokenRows
    columns: dict[str, Values]
    count: int
    from_texts: bool
    targets: Ragged | None = None
    targets_truncated: int = 0
    from_0: bool = False

    @property
    def ids(self) -> Ragged:
        """Token ids."""
        return self.rows.ids

    @property
    def has_split_texts(self) -> bool:
        """True if any text gave more than one row."""
        return len(self.rows.sample) != self.count

    def column(self, name: str) -> Values:
        """Return another column with one value per row: repeated for the rows of one text."""
        values = as_list(self.columns[name])
        return repeated(values, self.rows.sample) if self.has_split_texts else values

    def positions(self, start: int, padding: int | None = None) -> Ragged:
        """Return the position of every token: given `position_ids`, or counted from `start` in each document."""
        rows, given = self.rows, self.rows.columns.get("position_ids")
        if given is not None:
            values = given.values + start if self.from_0 else given.values
        else:
            values = rows.document_counters(start)
        if padding is not None and rows.is_token is not None:
            values = np.where(rows.is_token, values, padding)
        return Ragged(values, rows.ids.lengths)


def tokenize(config: Config, given: Given) -> Tokenized:
    r"""Return rows of tokens within the limits.

    Args:
        config (`Config`): the configuration of the collator.
        given (`Given`): the input of the call.

    Returns:
        `Tokenized`.

    Raises:
        ValueError: for a row without tokens or with too many, for ids out of range, and for columns of other lengths.
    """
    if given.texts is not None:
        made = Tokenized(config.encoder.encode(given.texts, given.pairs), given.columns, given.count, True)
    else:
        made = _truncated(config, _read_ids(config, given))
    _check_lengths(config, made)
    return _with_targets(config, made, given) if config.has_targets else made


def _read_ids(config: Config, given: Given) -> Tokenized:
    """Return rows of given ids, checked."""
    columns = dict(given.columns)
    ids = Ragged.from_rows(as_list(columns.pop("input_ids")))
    _check_ids(config, ids)
    per_token = {name: _per_token(name, as_list(columns.pop(name)), ids) for name in PER_TOKEN if name in columns}
    real = np.ones(len(ids.values), dtype=np.bool_)
    if "attention_mask" in per_token:
        real = per_token.pop("attention_mask").values != 0
        _check_mask(config, ids, real)
    if "document_ids" in per_token:  # a negative number also marks padding
        real = real & (per_token["document_ids"].values >= 0)
        per_token["document_ids"] = Ragged(np.where(real, per_token["document_ids"].values, -1), ids.lengths)
    if not real.all():
        per_token["attention_mask"] = Ragged(real.astype(np.int64), ids.lengths)
    from_0 = False
    if config.model_first_position and "position_ids" in per_token:
        # Position ids made for this model start at its first position; any others are taken to count from 0.
        numbers = per_token["position_ids"].values[real]
        from_0 = int(numbers.min(initial=np.iinfo(np.int64).max)) != config.model_first_position
    rows = TokenRows({"input_ids": ids, **per_token}, np.arange(len(ids), dtype=np.int64))
    return Tokenized(rows, columns, len(ids), False, from_0=from_0)


def _truncated(config: Config, made: Tokenized) -> Tokenized:
    """Return given ids within the limit. If any row is too long, padding at the ends is removed before truncation."""
    limit = config.limits.max_length
    if limit is None or made.ids.longest <= limit or not (config.limits.truncates or made.rows.is_token is not None):
        return made
    rows, columns = made.rows, dict(made.columns)
    for name in [] if config.has_targets else label_names(columns):
        labels = given_labels(as_list(columns[name]), rows.ids.lengths, name=name)
        if isinstance(labels, Ragged):
            rows = rows.with_columns(**{name: labels})
            del columns[name]
    rows = rows.trim().truncate(config.limits, side=config.tokenizer.truncation_side)
    return replace(made, rows=rows, columns=columns)


def _with_targets(config: Config, made: Tokenized, given: Given) -> Tokenized:
    """Add the targets, from texts or from a label column of ids."""
    model, sample = config.limited_by("max_target_length"), made.rows.sample
    if given.targets is not None and config.target_encoder is not None:
        encoded = config.target_encoder.encode(given.targets)
        targets, _ = truncate_targets(encoded.ids, config.target_limits, model)
        return replace(made, targets=targets.take(sample), targets_truncated=encoded.truncated)
    names = label_names(made.columns)
    if len(names) != 1:
        return made
    labels = Ragged.from_rows(list(as_list(made.columns[names[0]])), name="labels")
    targets, truncated = truncate_targets(labels, config.target_limits, model)
    if config.decoder_start is not None or config.number_of_ids is not None:  # the decoder looks them up
        _check_ids(config, Ragged(np.where(targets.values == IGNORED, 0, targets.values), targets.lengths), names[0])
    columns = {name: values for name, values in made.columns.items() if name != names[0]}
    return replace(made, targets=targets.take(sample), columns=columns, targets_truncated=truncated)


def _per_token(name: str, values: Values, ids: Ragged) -> Ragged:
    if name in ("attention_mask", "special_tokens_mask"):  # may be bool
        values = [np.asarray(row).astype(np.int64) if np.asarray(row).dtype == bool else row for row in values]
    if name == "word_ids":  # None at special tokens, as tokenizers return them
        values = [[-1 if item is None else item for item in row] for row in values]
    column = Ragged.from_rows(values, name=name)
    if not np.array_equal(column.lengths, ids.lengths):
        row = int(np.flatnonzero(column.lengths != ids.lengths)[0])
        raise ValueError(
            explain(
                f"row {row}: {column.lengths[row]} values in '{name}' for {ids.lengths[row]} tokens",
                fix=f"one value per token, or dataset.remove_columns('{name}')",
            )
        )
    if name == "attention_mask" and len(column.values) and not 0 <= column.values.min() <= column.values.max() <= 1:
        found = np.unique(column.values)[:8].tolist()
        raise ValueError(explain("attention_mask must be 1 at tokens and 0 at padding", got=shorten(found)))
    return column


def _check_mask(config: Config, ids: Ragged, real: NDArray[np.bool_]) -> None:
    """Raise for the first row whose mask is 0 at all tokens: the mask probably has the opposite meaning."""
    tokens = ids.values != config.fills["input_ids"]
    hidden, seen = (ids.where(tokens & part).lengths for part in (~real, real))
    wrong = np.flatnonzero((hidden > 0) & (seen == 0))
    if len(wrong):
        row = int(wrong[0])
        mask = real[ids.offsets[row] : ids.offsets[row + 1]].astype(int).tolist()
        raise ValueError(
            explain(
                f"attention_mask is 0 at all {hidden[row]} tokens of row {row}, and 0 means padding",
                got=f"attention_mask {shorten(mask)}",
                fix="1 - attention_mask, if 1 means padding in it; else drop such rows first",
            )
        )


def _check_ids(config: Config, ids: Ragged, name: str = "input_ids") -> None:
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
    raise ValueError(
        explain(
            f"row {row}, column {column} of '{name}' is {int(ids.values[at])}, which is no token id",
            got="a negative id" if smallest < 0 else f"an embedding of {rows} rows",
            fix="check that the ids come from this tokenizer; -100 is for labels only",
        )
    )


def _check_lengths(config: Config, made: Tokenized) -> None:
    lengths, limit, sample = made.ids.lengths, config.limits.max_length, made.rows.sample
    if limit is not None and made.ids.longest > limit:
        model = config.limited_by("max_length")
        raise ValueError(
            explain(
                f"row {int(sample[lengths.argmax()])} has {made.ids.longest} tokens, limit {limit}",
                got=f"truncation={config.limits.truncation!r}" + (f", and {model} takes no more" if model else ""),
                fix="truncation=True, or return_overflowing_tokens=True, which continues the text in further rows",
            )
        )
    counts = lengths if made.rows.is_token is None else made.rows.without_padding().ids.lengths
    if config.settings.empty != "keep" and counts.min(initial=1) == 0:
        raise ValueError(
            explain(
                f"row {int(sample[counts.argmin()])} has no tokens",
                got="an empty text, or one in which the tokenizer finds no token",
                fix='drop such rows first, or empty="keep" for a row of padding',
            )
        )
