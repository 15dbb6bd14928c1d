"""From what was read to rows of tokens, and from those to one rectangle: the CPU stage of a batch.

NumPy only: a forked worker may run it. The order is tokenise, cut, label, pack, pad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..packing import pack
from ..positions import position_ids_from_mask
from ..ragged import PaddingSide, Ragged, round_up
from ..sinusoid import resolve_convention
from ..tokenization.encoding import windows
from .columns import as_array, repeated
from .inputs import Given
from .labels import IGNORED, LABEL_COLUMNS, given_labels, ragged_labels
from .settings import padding_of, truncation_of

if TYPE_CHECKING:
    from .collator import DataCollatorWithPositionalEncoding

# Columns with one value a token, and what stands at padding. `None`: taken from the tokenizer.
_PER_TOKEN: dict[str, int | None] = {
    "token_type_ids": None,
    "attention_mask": 0,
    "position_ids": 0,
    "special_tokens_mask": 1,
    "word_ids": -1,
}
# Known from the ids themselves, or of no use to a model.
_LEFT_OUT = frozenset({"length", "special_tokens_mask", "word_ids", "offset_mapping"})


@dataclass(frozen=True, eq=False)
class Pieces:
    r"""Rows of tokens before padding: one a text, or several where a long text overflows.

    Args:
        ids (`Ragged` of int64): token ids.
        per_token (`dict` from `str` to `Ragged`): further columns with one value a token.
        targets (`Ragged`, *optional*): labels that are token sequences of their own.
        columns (`dict`): the columns that came, one value a text.
        sample (`np.ndarray` `(rows,)` int64): which text each row comes from.
        is_split (`bool`): whether a text gave more than one row.
        cut (`int`): how many texts lost tokens.
        side (`str`): where padding goes.
        start (`int`): the first position.
    """

    ids: Ragged
    per_token: dict[str, Ragged]
    targets: Ragged | None
    columns: dict[str, Sequence[Any]]
    sample: NDArray[np.int64]
    is_split: bool
    cut: int
    side: PaddingSide
    start: int

    @property
    def positions(self) -> Ragged:
        """The position of every token: those that came with the rows, else counted, over masked tokens too."""
        given = self.per_token.get("position_ids")
        return self.ids.counters(self.start) if given is None else given

    def to_store(self, collator: DataCollatorWithPositionalEncoding) -> Iterator[tuple[str, Ragged, int]]:
        """The columns with one value a token that `map` stores: name, values, and what to pad with."""
        fills = _fills(collator)
        ones = Ragged(np.ones(len(self.ids.values), dtype=np.int64), self.ids.lengths)
        own = {"input_ids": self.ids, "attention_mask": ones, **self.per_token}
        for name in collator.tokenizer.model_input_names:
            if name in own:
                yield name, own.pop(name), fills[name]
        for name in (
            "position_ids",
            "special_tokens_mask",
            "word_ids",
            "labels",
        ):  # as far as rows brought or need them
            if name in own:
                yield name, own[name], fills[name]
        if self.targets is not None:
            yield "labels", self.targets, IGNORED


def pieces(collator: DataCollatorWithPositionalEncoding, given: Given) -> Pieces:
    r"""Tokenises the texts, or takes the ids that came, and holds them to the limit.

    Args:
        collator (`DataCollatorWithPositionalEncoding`): the settings.
        given (`Given`): the rows.

    Returns:
        `Pieces`.

    Raises:
        ValueError: for a row without tokens, too many of them, ids out of range, or columns that do not fit the ids.
    """
    columns = dict(given.columns)
    per_token: dict[str, Ragged] = {}
    if given.texts is not None:
        encoded = collator._encoder.encode(given.texts, given.pairs)
        ids, sample, cut = encoded.input_ids, encoded.sample, encoded.cut
        if encoded.token_type_ids is not None:
            per_token["token_type_ids"] = encoded.token_type_ids
        if encoded.word_ids is not None:
            per_token["word_ids"] = encoded.word_ids
    else:
        ids = Ragged.from_rows(columns.pop("input_ids"))
        _check_ids(ids, collator)
        for name in _PER_TOKEN:
            if name in columns:
                per_token[name] = _per_token(name, columns.pop(name), ids)
        ids, per_token, columns, sample, cut = _within_limit(collator, ids, per_token, columns)
    _check_lengths(collator, ids, sample)
    targets = None
    if given.targets is not None:
        targets = _targets(collator, given, sample)
        columns.pop("labels", None)
    elif collator.text_target_column is not None and "labels" in columns:
        targets = ragged_labels(columns.pop("labels")).take(sample)
    return Pieces(
        ids=ids,
        per_token=per_token,
        targets=targets,
        columns=columns,
        sample=sample,
        is_split=len(sample) != given.count,
        cut=cut,
        side=collator.padding_side or collator.tokenizer.padding_side,
        start=resolve_convention(collator.convention).first_position,
    )


def rectangle(collator: DataCollatorWithPositionalEncoding, pieces: Pieces) -> dict[str, NDArray[Any]]:
    r"""Pads the pieces, and makes everything that belongs to a padded batch.

    Args:
        collator (`DataCollatorWithPositionalEncoding`): the settings.
        pieces (`Pieces`): the rows.

    Returns:
        `dict` of `np.ndarray`, `input_ids` first; every array has the rows in dimension 0 but `look_ahead_mask` (T, T).
    """
    ids, per_token = pieces.ids, dict(pieces.per_token)
    labels, ids = _labels(collator, pieces, ids)
    if isinstance(labels, Ragged) and pieces.targets is None:
        per_token["labels"] = labels
    columns = {name: values for name, values in pieces.columns.items() if name not in LABEL_COLUMNS}
    if collator.packing:
        return _packed(collator, pieces, ids, per_token)
    fills = _fills(collator)
    width = _width(collator, ids)
    side = pieces.side
    out = {"input_ids": ids.pad(fills["input_ids"], width, side=side)}
    mask = per_token.get("attention_mask")
    out["attention_mask"] = ids.mask(width, side=side) if mask is None else mask.pad(0, width, side=side)
    if "token_type_ids" in per_token and "token_type_ids" in collator.tokenizer.model_input_names:
        out["token_type_ids"] = per_token["token_type_ids"].pad(fills["token_type_ids"], width, side=side)
    if "position_ids" in per_token:
        out["position_ids"] = per_token["position_ids"].pad(pieces.start, width, side=side)
    elif mask is None:
        out["position_ids"] = _counted(ids.lengths, out["attention_mask"], side, pieces.start)
    else:
        out["position_ids"] = position_ids_from_mask(out["attention_mask"], start=pieces.start)
    if collator.look_ahead in (None, True):
        out["look_ahead_mask"] = _look_ahead(out["input_ids"].shape[1])
    if pieces.targets is not None:
        out["labels"] = pieces.targets.pad(IGNORED, side=side)
    elif isinstance(labels, Ragged):
        out["labels"] = labels.pad(IGNORED, width, side=side)
    elif labels is not None:
        out["labels"] = labels
    if collator.return_overflowing_tokens:
        out["overflow_to_sample_mapping"] = pieces.sample
    for name, values in columns.items():
        if name in out or name in _LEFT_OUT:
            continue
        array = as_array(name, repeated(values, pieces.sample) if pieces.is_split else values)
        if array is not None:
            out[name] = array
    return out


def _packed(
    collator: DataCollatorWithPositionalEncoding, pieces: Pieces, ids: Ragged, per_token: dict[str, Ragged]
) -> dict[str, NDArray[Any]]:
    """Several documents a row: positions restart, `document_ids` tell them apart, and no label crosses a boundary."""
    assert collator.max_length is not None
    full = ids.lengths > 0  # a document without tokens takes no room and has nothing to say
    if not full.all():
        keep = np.flatnonzero(full)
        ids, per_token = ids.take(keep), {name: column.take(keep) for name, column in per_token.items()}
    plan = pack(ids.lengths, collator.max_length)
    columns = {"input_ids": ids, **per_token, "position_ids": ids.counters(pieces.start)}
    if collator.labels == "causal_lm":  # models shift labels by one: a first token would be predicted by its neighbour
        first = columns["labels"].values.copy()
        first[ids.offsets[:-1]] = IGNORED
        columns["labels"] = Ragged(first, ids.lengths)
    documents_a_row = np.diff(plan.row_offsets)
    number = Ragged(np.concatenate([np.arange(n) for n in documents_a_row]), documents_a_row).values
    in_order = {name: column.take(plan.order) for name, column in columns.items()}
    in_order["document_ids"] = Ragged(np.repeat(number, ids.lengths[plan.order]), ids.lengths[plan.order])
    rows = {name: column.group(plan.row_offsets) for name, column in in_order.items()}
    fills = {**_fills(collator), "document_ids": -1, "position_ids": pieces.start}
    width = _width(collator, rows["input_ids"])
    keep_types = "token_type_ids" in collator.tokenizer.model_input_names
    names = ["input_ids", *(["token_type_ids"] if keep_types and "token_type_ids" in rows else [])]
    names += ["position_ids", "document_ids", *(["labels"] if "labels" in rows else [])]
    out = {name: rows[name].pad(fills[name], width, side=pieces.side) for name in names}
    if collator.look_ahead in (None, True):
        out["look_ahead_mask"] = _look_ahead(out["input_ids"].shape[1])
    return out


def _labels(
    collator: DataCollatorWithPositionalEncoding, pieces: Pieces, ids: Ragged
) -> tuple[NDArray[Any] | Ragged | None, Ragged]:
    """The labels of the batch, and the ids, which masking changes."""
    found = [name for name in LABEL_COLUMNS if name in pieces.columns]
    if "labels" in pieces.per_token and not found:
        return pieces.per_token["labels"], ids
    if len(found) > 1:
        raise ValueError(
            explain("rows bring more than one label column", got=found, fix=f"dataset.remove_columns({found[1:]})")
        )
    if collator.labels is not None:
        if found:
            raise ValueError(
                explain(
                    f"labels={collator.labels!r} makes labels from the ids, and the rows bring their own",
                    got=f"column '{found[0]}'",
                    fix=f"labels=None to use them, or dataset.remove_columns('{found[0]}')",
                )
            )
        if collator._masking is not None:
            ids, labels = collator._masking(ids, pieces.per_token.get("word_ids"))
            return labels, ids
        return Ragged(ids.values.copy(), ids.lengths), ids
    if pieces.targets is not None or not found:
        return pieces.targets, ids
    values = pieces.columns[found[0]]
    return given_labels(repeated(values, pieces.sample) if pieces.is_split else values, ids.lengths), ids


def _within_limit(
    collator: DataCollatorWithPositionalEncoding,
    ids: Ragged,
    per_token: dict[str, Ragged],
    columns: dict[str, Sequence[Any]],
) -> tuple[Ragged, dict[str, Ragged], dict[str, Sequence[Any]], NDArray[np.int64], int]:
    """Holds ids that came tokenised to the limit, as truncation and overflow say; labels per token go along."""
    everything = np.arange(len(ids), dtype=np.int64)
    limit = collator.max_length
    if limit is None or truncation_of(collator.truncation) == "do_not_truncate" or ids.lengths.max(initial=0) <= limit:
        return ids, per_token, columns, everything, 0
    for name in LABEL_COLUMNS:
        if name in columns and collator.text_target_column is None:
            labels = given_labels(columns[name], ids.lengths)
            if isinstance(labels, Ragged):
                per_token = {**per_token, "labels": labels}
                columns = {other: values for other, values in columns.items() if other != name}
    parts: list[tuple[int, int, int]] = []
    for row, (begin, length) in enumerate(zip(ids.offsets[:-1].tolist(), ids.lengths.tolist(), strict=True)):
        spans = windows(length, limit, collator.stride, collator.tokenizer.truncation_side) if length else [(0, 0)]
        for start, stop in spans if collator.return_overflowing_tokens else spans[:1]:
            parts.append((row, begin + start, begin + stop))
    lengths = np.array([stop - start for _, start, stop in parts], dtype=np.int64)
    picked = np.concatenate([np.arange(start, stop) for _, start, stop in parts])
    per_token = {name: Ragged(column.values[picked], lengths) for name, column in per_token.items()}
    sample = np.array([row for row, _, _ in parts], dtype=np.int64)
    cut = 0 if collator.return_overflowing_tokens else int((ids.lengths > limit).sum())
    return Ragged(ids.values[picked], lengths), per_token, columns, sample, cut


def _targets(collator: DataCollatorWithPositionalEncoding, given: Given, sample: NDArray[np.int64]) -> Ragged:
    assert given.targets is not None
    assert collator._target_encoder is not None
    encoded = collator._target_encoder.encode(given.targets)
    if encoded.cut:
        collator._warn_once(
            "targets",
            explain(
                f"{encoded.cut} of {given.count} targets were cut to {collator._target_encoder.max_length} tokens",
                got="said once; further ones are cut without a word",
                fix="a larger max_target_length",
            ),
        )
    return encoded.input_ids.take(sample)


def _check_ids(ids: Ragged, collator: DataCollatorWithPositionalEncoding) -> None:
    if not len(ids.values):
        return
    rows = collator._table_rows
    smallest, largest = int(ids.values.min()), int(ids.values.max())
    if smallest >= 0 and (rows is None or largest < rows):
        return
    bad = ids.values < 0 if smallest < 0 or rows is None else ids.values >= rows
    at = int(np.flatnonzero(bad)[0])
    row = int(np.searchsorted(ids.offsets, at, side="right")) - 1
    raise ValueError(
        explain(
            f"row {row}, column {at - int(ids.offsets[row])} of 'input_ids' is {int(ids.values[at])}, which is no token id",
            got="a negative id" if smallest < 0 else f"an embedding of {rows} rows",
            fix="check that the ids come from this tokenizer; -100 belongs into labels",
        )
    )


def _per_token(name: str, values: Sequence[Any], ids: Ragged) -> Ragged:
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
    if name == "attention_mask" and not np.isin(column.values, (0, 1)).all():
        raise ValueError(
            explain(
                "attention_mask holds 1 for tokens and 0 for padding", got=shorten(np.unique(column.values).tolist())
            )
        )
    return column


def _check_lengths(collator: DataCollatorWithPositionalEncoding, ids: Ragged, sample: NDArray[np.int64]) -> None:
    limit = collator.max_length
    longest = int(ids.lengths.max(initial=0))
    if limit is not None and longest > limit:
        row = int(sample[ids.lengths.argmax()])
        raise ValueError(
            explain(
                f"row {row} has {longest} tokens, limit {limit}",
                got=f"truncation={collator.truncation!r}",
                fix="truncation=True cuts, return_overflowing_tokens=True carries the rest into further rows",
            )
        )
    if collator.empty == "error" and len(ids) and int(ids.lengths.min()) == 0:
        row = int(sample[ids.lengths.argmin()])
        raise ValueError(
            explain(
                f"row {row} has no tokens",
                got="an empty text, or one that the tokenizer reads nothing in",
                fix='drop such rows first, or empty="keep" for a row of padding',
            )
        )


def _width(collator: DataCollatorWithPositionalEncoding, ids: Ragged) -> int:
    longest = int(ids.lengths.max(initial=0))
    padding = padding_of(collator.padding)
    if padding == "do_not_pad":
        shortest = int(ids.lengths.min(initial=longest))
        if shortest != longest:
            raise ValueError(
                explain(
                    f"without padding all rows must have one length, these have {shortest} to {longest} tokens",
                    got=f"padding={collator.padding!r}",
                    fix="padding=True",
                )
            )
        return longest
    if padding == "max_length":
        assert collator.max_length is not None
        longest = collator.max_length
    # A batch of nothing but empty rows still has one column, of padding.
    return max(round_up(longest, collator.pad_to_multiple_of), 1)


def _fills(collator: DataCollatorWithPositionalEncoding) -> dict[str, int]:
    tokenizer = collator.tokenizer
    pad_id = 0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    fixed = {name: fill for name, fill in _PER_TOKEN.items() if fill is not None}
    return {**fixed, "input_ids": pad_id, "token_type_ids": int(tokenizer.pad_token_type_id), "labels": IGNORED}


def _counted(lengths: NDArray[np.int64], mask: NDArray[Any], side: PaddingSide, start: int) -> NDArray[Any]:
    """Position ids of rows without gaps, from the mask that says where they stand."""
    width = mask.shape[1]
    positions = (
        np.arange(width)[None] * mask if side == "right" else (np.arange(width) - (width - lengths[:, None])) * mask
    )
    if start:
        positions += start
    return positions


def _look_ahead(length: int) -> NDArray[np.bool_]:
    """(T, T), True where column j <= row i: every row is the same run of True and False, read from one step further left."""
    run = np.zeros(max(2 * length - 1, 0), dtype=np.bool_)
    run[:length] = True
    step = run.strides[0]
    shifted = np.lib.stride_tricks.as_strided(run[length - 1 :], (length, length), (-step, step), writeable=False)
    return np.ascontiguousarray(shifted)
