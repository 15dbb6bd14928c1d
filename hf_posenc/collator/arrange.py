"""From what was read to rows of tokens: tokenise, hold to the limit, check.

NumPy only: a forked worker may run it. What becomes of the rows, a padded batch or columns, is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..positions import by_document, documents_by_positions
from ..ragged import Ragged
from ..tokenization.encoded import windows
from ..tokenization.encoding import Encoder
from .arrangement import Arrangement
from .columns import Values, repeated
from .inputs import Given, as_list
from .labels import IGNORED, given_labels, label_names, ragged_labels
from .targets import held

# Columns with one value a token, which rows may bring along with their ids.
PER_TOKEN = ("token_type_ids", "attention_mask", "position_ids", "document_ids", "special_tokens_mask", "word_ids")


@dataclass(frozen=True, eq=False)
class Pieces:
    r"""Rows of tokens before padding: one a text, or several where a long text overflows.

    Args:
        ids (`Ragged` of int64): token ids.
        per_token (`dict` from `str` to `Ragged`): further columns with one value a token.
        targets (`Ragged`, *optional*): labels that are token sequences of their own.
        columns (`dict` from `str` to sequence): the columns that came, one value a text.
        sample (`np.ndarray` `(rows,)` int64): which text each row comes from.
        count (`int`): how many texts there were.
        from_texts (`bool`): whether they were tokenised here, or came as ids.
        from_0 (`bool`): True if `position_ids` that came count from 0, where the model counts from another number.
        cut (`int`): how many texts lost tokens.
        targets_cut (`int`): how many targets did.
    """

    ids: Ragged
    per_token: dict[str, Ragged]
    targets: Ragged | None
    columns: dict[str, Values]
    sample: NDArray[np.int64]
    count: int
    from_texts: bool
    from_0: bool = False
    cut: int = 0
    targets_cut: int = 0

    @property
    def is_split(self) -> bool:
        """Whether a text gave more than one row."""
        return len(self.sample) != self.count

    def column(self, name: str) -> Values:
        """A column that came, one value a row: repeated where a text gave several."""
        values = as_list(self.columns[name])
        return repeated(values, self.sample) if self.is_split else values

    @property
    def real(self) -> NDArray[np.bool_] | None:
        """True at tokens and False at padding that came with the rows, `(N,)`; `None` if there is no padding."""
        mask = self.per_token.get("attention_mask")
        return None if mask is None else mask.values.astype(bool)

    @cached_property
    def documents(self) -> Ragged | None:
        """The document of each token in its row, -1 at padding; `None` if no row holds more than one."""
        numbers, positions = self.per_token.get("document_ids"), self.per_token.get("position_ids")
        if numbers is not None:
            tokens = numbers.where(numbers.values >= 0)
            return (
                numbers
                if len(by_document(tokens.values, tokens.lengths)[1]) > np.count_nonzero(tokens.lengths)
                else None
            )
        if positions is None:
            return None
        real = np.ones(len(self.ids.values), dtype=np.bool_) if self.real is None else self.real
        tokens = positions.where(real)
        found = documents_by_positions(tokens.values, tokens.lengths)
        if found is None:
            return None
        documents = np.full(len(real), -1)
        documents[real] = found
        return Ragged(documents, positions.lengths)

    def positions(self, start: int, padding: int | None = None) -> Ragged:
        """The position of every token, as the row has it or counted from `start` in each document; and of padding."""
        given = self.per_token.get("position_ids")
        if given is not None:
            values = given.values + start if self.from_0 else given.values
        elif self.documents is None:
            values = self.ids.counters(start).values
        else:
            order, lengths, _ = by_document(self.documents.values, self.documents.lengths)
            values = np.empty_like(order)
            values[order] = Ragged(order, lengths).counters(start).values
        if padding is not None and self.real is not None:
            values = np.where(self.real, values, padding)
        return Ragged(values, self.ids.lengths)


def pieces(how: Arrangement, given: Given, encoder: Encoder, target_encoder: Encoder | None) -> Pieces:
    r"""Tokenises the texts, or takes the ids that came, and holds them to the limit.

    Args:
        how (`Arrangement`): the settings.
        given (`Given`): the rows.
        encoder, target_encoder (`Encoder`): for the texts and for the targets.

    Returns:
        `Pieces`.

    Raises:
        ValueError: for a row without tokens, too many of them, ids out of range, or columns that do not fit the ids.
    """
    made = _from_texts(given, encoder) if given.texts is not None else _within_limit(how, _trimmed(how, given))
    _check_lengths(how, made)
    return _with_targets(how, made, given, target_encoder) if how.has_targets else made


def _with_targets(how: Arrangement, made: Pieces, given: Given, encoder: Encoder | None) -> Pieces:
    """Adds the targets, where they came: as texts, or as ids under the name of labels."""
    cuts = how.truncation != "do_not_truncate"
    if given.targets is not None and encoder is not None:
        encoded = encoder.encode(given.targets)
        targets, _ = held(encoded.input_ids, how.target_limit, cuts=cuts, whose=how.targets_limited_by)
        return replace(made, targets=targets.take(made.sample), targets_cut=encoded.cut)
    found = label_names(made.columns)
    if len(found) != 1:
        return made
    (name,) = found
    labels = ragged_labels(as_list(made.columns[name]))
    targets, cut = held(labels, how.target_limit, cuts=cuts, whose=how.targets_limited_by)
    if how.decoder_start is not None or how.known_ids is not None:  # a decoder looks them up as well
        _check_ids(how, Ragged(np.where(targets.values == IGNORED, 0, targets.values), targets.lengths), name)
    columns = _without(made.columns, name)
    return replace(made, targets=targets.take(made.sample), columns=columns, targets_cut=cut)


def _from_texts(given: Given, encoder: Encoder) -> Pieces:
    assert given.texts is not None
    encoded = encoder.encode(given.texts, given.pairs)
    per_token = {"token_type_ids": encoded.token_type_ids, "word_ids": encoded.word_ids}
    return Pieces(
        ids=encoded.input_ids,
        per_token={name: column for name, column in per_token.items() if column is not None},
        targets=None,
        columns=given.columns,
        sample=encoded.sample,
        count=given.count,
        from_texts=True,
        cut=encoded.cut,
    )


def _from_ids(how: Arrangement, given: Given) -> Pieces:
    columns = dict(given.columns)
    ids = Ragged.from_rows(as_list(columns.pop("input_ids")))
    _check_ids(how, ids)
    per_token = {name: _per_token(name, as_list(columns.pop(name)), ids) for name in PER_TOKEN if name in columns}
    real = np.ones(len(ids.values), dtype=np.bool_)
    if "attention_mask" in per_token:
        real = per_token.pop("attention_mask").values != 0
        _check_mask(how, ids, real)
    if "document_ids" in per_token:  # a negative number is padding too
        real = real & (per_token["document_ids"].values >= 0)
        per_token["document_ids"] = Ragged(np.where(real, per_token["document_ids"].values, -1), ids.lengths)
    if not real.all():  # else it says nothing that the lengths do not say
        per_token["attention_mask"] = Ragged(real.astype(np.int64), ids.lengths)
    made = Pieces(ids, per_token, None, columns, np.arange(len(ids), dtype=np.int64), len(ids), False)
    if how.model_start and "position_ids" in per_token:
        # Rows of one of the model's own batches begin at its first position; all others count from 0.
        numbers = per_token["position_ids"].values[real]
        return replace(made, from_0=int(numbers.min(initial=np.iinfo(np.int64).max)) != how.model_start)
    return made


def _check_mask(how: Arrangement, ids: Ragged, real: NDArray[np.bool_]) -> None:
    """Raise a ValueError for the first row whose tokens are all hidden: 0 at tokens is the opposite meaning."""
    tokens = ids.values != how.fills["input_ids"]
    hidden, seen = (ids.where(tokens & kept).lengths for kept in (~real, real))
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


def _trimmed(how: Arrangement, given: Given) -> Pieces:
    """Ids that came, without padding at their ends where rows would be too long with it: padding is no token."""
    made = _from_ids(how, given)
    mask = made.per_token.get("attention_mask")
    if mask is None or how.limit is None or made.ids.longest <= how.limit:
        return made
    keep = [np.zeros(0, dtype=bool)]
    for row in mask:
        at = np.flatnonzero(row)
        inner = np.zeros(len(row), dtype=bool)
        if len(at):
            inner[at[0] : at[-1] + 1] = True
        keep.append(inner)
    inside = np.concatenate(keep)
    per_token = {name: column.where(inside) for name, column in made.per_token.items()}
    columns = made.columns
    for name in label_names(columns):
        if not how.has_targets:
            labels = given_labels(as_list(columns[name]), made.ids.lengths, name=name)
            if isinstance(labels, Ragged):
                per_token[name], columns = labels.where(inside), _without(columns, name)
    return replace(made, ids=made.ids.where(inside), per_token=per_token, columns=columns)


def _within_limit(how: Arrangement, whole: Pieces) -> Pieces:
    """Holds ids that came tokenised to the limit, as truncation and overflow say; labels per token go along."""
    ids, columns, per_token = whole.ids, whole.columns, whole.per_token
    if how.limit is None or how.truncation == "do_not_truncate" or ids.longest <= how.limit:
        return whole
    for name in label_names(columns):
        if not how.has_targets:  # where trimming has not seen to it
            labels = given_labels(as_list(columns[name]), ids.lengths, name=name)
            if isinstance(labels, Ragged):
                per_token = {**per_token, name: labels}
                columns = _without(columns, name)
    parts: list[tuple[int, int, int]] = []
    for row, (begin, length) in enumerate(zip(ids.offsets[:-1].tolist(), ids.lengths.tolist(), strict=True)):
        spans = windows(length, how.limit, how.stride, how.truncation_side) if length else [(0, 0)]
        parts += [(row, begin + start, begin + stop) for start, stop in (spans if how.overflow else spans[:1])]
    picked = np.concatenate([np.arange(start, stop) for _, start, stop in parts])
    lengths = np.array([stop - start for _, start, stop in parts], dtype=np.int64)
    return replace(
        whole,
        ids=Ragged(ids.values[picked], lengths),
        per_token={name: Ragged(column.values[picked], lengths) for name, column in per_token.items()},
        columns=columns,
        sample=np.array([row for row, _, _ in parts], dtype=np.int64),
        cut=0 if how.overflow else int((ids.lengths > how.limit).sum()),
    )


def _per_token(name: str, values: Values, ids: Ragged) -> Ragged:
    if name in ("attention_mask", "special_tokens_mask"):  # True and False will do as well
        values = [np.asarray(row).astype(np.int64) if np.asarray(row).dtype == bool else row for row in values]
    if name == "word_ids":  # a tokenizer says None at special tokens
        values = [[-1 if item is None else item for item in row] for row in values]
    column = Ragged.from_rows(values, name=name)
    if not np.array_equal(column.lengths, ids.lengths):
        row = int(np.flatnonzero(column.lengths != ids.lengths)[0])
        raise ValueError(
            explain(
                f"row {row}: {column.lengths[row]} values in '{name}' for {ids.lengths[row]} tokens",
                fix=f"one value a token, or dataset.remove_columns('{name}')",
            )
        )
    if name == "attention_mask" and len(column.values) and not 0 <= column.values.min() <= column.values.max() <= 1:
        found = np.unique(column.values)[:8].tolist()
        raise ValueError(explain("attention_mask holds 1 for tokens and 0 for padding", got=shorten(found)))
    return column


def _check_ids(how: Arrangement, ids: Ragged, name: str = "input_ids") -> None:
    if not len(ids.values):
        return
    rows = how.known_ids
    # Read without a sign, a negative number is larger than any id: one look at the numbers finds both kinds.
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
            fix="check that the ids come from this tokenizer; -100 belongs into labels",
        )
    )


def _check_lengths(how: Arrangement, made: Pieces) -> None:
    lengths = made.ids.lengths
    if how.limit is not None and made.ids.longest > how.limit:
        raise ValueError(
            explain(
                f"row {int(made.sample[lengths.argmax()])} has {made.ids.longest} tokens, limit {how.limit}",
                got=f"truncation={how.truncation!r}" + f", and {how.limited_by} takes no more" * bool(how.limited_by),
                fix="truncation=True cuts, return_overflowing_tokens=True carries the rest into further rows",
            )
        )
    real = made.real
    counts = lengths if real is None else made.ids.where(real).lengths
    if not how.keep_empty and counts.min(initial=1) == 0:
        raise ValueError(
            explain(
                f"row {int(made.sample[counts.argmin()])} has no tokens",
                got="an empty text, or one that the tokenizer reads nothing in",
                fix='drop such rows first, or empty="keep" for a row of padding',
            )
        )


def _without(columns: dict[str, Values], name: str) -> dict[str, Values]:
    return {other: values for other, values in columns.items() if other != name}
