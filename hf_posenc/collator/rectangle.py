"""From rows of tokens to one rectangle: labels, packing, padding, masks and position ids.

NumPy only: a forked worker may run it. Tensors and embeddings are made from its arrays elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain
from ..packing import pack
from ..positions import by_document, position_ids_from_mask
from ..ragged import Ragged, round_up
from .arrange import Pieces
from .arrangement import Arrangement
from .columns import as_array, numbers, to_float32
from .labels import IGNORED, LABEL_COLUMNS, Masking, copies, given_labels, label_names
from .targets import decoder_inputs

Arrays = dict[str, NDArray[Any]]

# Known from the ids themselves, or of no use to a model.
NO_TENSORS = ("length", "offset_mapping", *LABEL_COLUMNS)


def rectangle(how: Arrangement, pieces: Pieces, masking: Masking | None) -> Arrays:
    r"""Pads the pieces, and makes everything that belongs to a padded batch.

    Args:
        how (`Arrangement`): the settings.
        pieces (`Pieces`): the rows.
        masking (`Masking`, *optional*): for masked labels.

    Returns:
        `dict` of `np.ndarray`, `input_ids` first; every array has the rows in dimension 0 but `look_ahead_mask` (T, T).

    Raises:
        ValueError: for labels or further columns that make no tensor, or rows of several lengths without padding.
    """
    ids, labels = _labels(how, pieces, masking)
    out = _packed(how, pieces, ids, labels) if how.packing else _padded(how, pieces, ids, labels)
    reads = "labels" if how.has_targets else "input_ids"  # a decoder's: an encoder may look anywhere
    if how.look_ahead and reads in out:
        out["look_ahead_mask"] = _look_ahead(out[reads].shape[1])
    return out


def _padded(how: Arrangement, pieces: Pieces, ids: Ragged, labels: NDArray[Any] | Ragged | None) -> Arrays:
    width, side = _width(how, ids), how.side
    per_token = pieces.per_token
    inside = ids.inside(width, side=side)

    def pad(column: Ragged, fill: int) -> NDArray[Any]:
        return column.pad(fill, width, side=side, inside=inside)

    out = {"input_ids": pad(ids, how.fills["input_ids"])}
    mask = per_token.get("attention_mask")
    out["attention_mask"] = inside.astype(np.int64) if mask is None else pad(mask, 0)
    if "token_type_ids" in per_token and "token_type_ids" in how.names:
        out["token_type_ids"] = pad(per_token["token_type_ids"], how.fills["token_type_ids"])
    documents = pieces.documents
    if "position_ids" in per_token or documents is not None:
        fill = how.fills["position_ids"]
        out["position_ids"] = pad(pieces.positions(how.start, fill), fill)
    elif mask is None:
        out["position_ids"] = _counted(how, ids.lengths, out["attention_mask"])
    else:
        out["position_ids"] = position_ids_from_mask(out["attention_mask"], start=how.start)
        if how.fills["position_ids"] != how.start:
            out["position_ids"][out["attention_mask"] == 0] = how.fills["position_ids"]
    numbered = per_token.get("document_ids", documents)
    if numbered is not None:
        out["document_ids"] = pad(numbered, how.fills["document_ids"])
    if documents is not None:  # rows that came packed: a mask of ones would let their documents see each other
        del out["attention_mask"]
        if isinstance(labels, Ragged) and _are_next_tokens(how, ids, labels):
            labels = _without_first(labels, documents)
    if pieces.targets is not None:
        out |= _targets(how, pieces.targets)
    elif isinstance(labels, Ragged):
        out["labels"] = pad(labels, IGNORED)
    elif labels is not None:
        out["labels"] = labels
    if how.overflow:
        out["overflow_to_sample_mapping"] = pieces.sample
    for name in pieces.columns:
        if name in NO_TENSORS:
            continue
        if name in out and pieces.from_texts:
            raise ValueError(
                explain(
                    f"column '{name}' came with the texts, and tokenising makes one of that name",
                    got=list(pieces.columns),
                    fix=f"dataset.rename_column('{name}', 'my_{name}')",
                )
            )
        if name in out:
            continue
        if name == "inputs_embeds":  # stored with the ids; a collator that embeds does it anew
            if not how.embeds:
                out[name] = _padded_vectors(pieces, inside)
            continue
        if how.accepts is not None and name not in how.accepts:
            continue
        array = as_array(name, pieces.column(name))
        if array is not None:
            out[name] = to_float32(name, array) if how.accepts is not None and array.dtype.kind == "f" else array
    return out


def _targets(how: Arrangement, targets: Ragged) -> Arrays:
    """Labels, and what a decoder reads while it learns them, where the model does not make that itself."""
    longest = how.target_limit if how.padding == "max_length" else None
    width = max(round_up(longest or targets.longest, how.multiple), 1)
    if how.targets_limited_by is not None and how.target_limit is not None and width > how.target_limit:
        raise ValueError(
            explain(
                f"targets of {targets.longest} tokens would be padded to {width}, limit {how.target_limit}",
                got=f"pad_to_multiple_of={how.multiple}, and {how.targets_limited_by} takes no more",
                fix=f"max_target_length={width - (how.multiple or 0)}",
            )
        )
    labels = targets.pad(IGNORED, width, side=how.side)
    if how.decoder_start is None:
        return {"labels": labels}
    return {**decoder_inputs(labels, how.decoder_start, how.fills["input_ids"], how.side), "labels": labels}


def _are_next_tokens(how: Arrangement, ids: Ragged, labels: Ragged) -> bool:
    """Return True if each label is to be predicted from the token before it, as a causal language model does."""
    if how.labels is not None or how.shifts_labels is not None:
        return how.labels == "causal_lm" or (how.labels is None and bool(how.shifts_labels))
    return how.packing and copies(labels, ids)


def _without_first(labels: Ragged, documents: Ragged) -> Ragged:
    """Return labels without that of the first token of each row, and of each document inside.

    Causal models shift labels by one, so the last token of a document would have to predict the first of the next.
    """
    first = np.diff(documents.values, prepend=-1) != 0
    first[documents.offsets[:-1][documents.lengths > 0]] = True
    return Ragged(np.where(first, IGNORED, labels.values), labels.lengths)


def _padded_vectors(pieces: Pieces, inside: NDArray[np.bool_]) -> NDArray[Any]:
    """Stored embeddings (B, T, D), zero at padding."""
    rows: list[NDArray[Any]] = []
    for index, (value, length) in enumerate(zip(pieces.column("inputs_embeds"), pieces.ids.lengths, strict=True)):
        row = numbers(value, index, "inputs_embeds")
        if row is None or row.ndim != 2 or len(row) != length:
            raise ValueError(
                explain(
                    f"row {index}: 'inputs_embeds' of shape {getattr(row, 'shape', None)} for {length} tokens",
                    fix="one vector a token, or dataset.remove_columns('inputs_embeds')",
                )
            )
        rows.append(row)
    flat = np.concatenate(rows)
    flat = flat if flat.dtype == np.float16 else flat.astype(np.float32)
    out = np.zeros((*inside.shape, flat.shape[1]), dtype=flat.dtype)
    out[inside] = flat
    return out


def _packed(how: Arrangement, pieces: Pieces, ids: Ragged, labels: NDArray[Any] | Ragged | None) -> Arrays:
    """Several documents a row: positions restart, `document_ids` tell them apart, and no label crosses a boundary."""
    assert how.limit is not None
    if labels is not None and not isinstance(labels, Ragged):
        raise ValueError(
            explain(
                "packed rows hold several documents, so one label a row has no place in them",
                got=f"labels of shape {labels.shape}",
                fix="packing=False, or one label a token",
            )
        )
    columns = {"input_ids": ids, "position_ids": pieces.positions(how.start)}
    if "token_type_ids" in pieces.per_token and "token_type_ids" in how.names:
        columns["token_type_ids"] = pieces.per_token["token_type_ids"]
    if labels is not None:
        columns["labels"] = labels
    documents = pieces.documents
    if pieces.real is not None:  # rows that came padded: padding takes no room either
        columns = {name: column.where(pieces.real) for name, column in columns.items()}
        documents = None if documents is None else documents.where(pieces.real)
    if documents is not None:  # rows that came packed: each of their documents finds a place of its own
        order, lengths, _ = by_document(documents.values, documents.lengths)
        columns = {name: Ragged(column.values[order], lengths) for name, column in columns.items()}
    ids = columns["input_ids"]
    if labels is not None and _are_next_tokens(how, ids, columns["labels"]):
        columns["labels"] = _without_first(columns["labels"], Ragged(np.zeros_like(ids.values), ids.lengths))
    with_tokens = np.flatnonzero(ids.lengths)  # a document without tokens takes no room
    plan = pack(ids.lengths[with_tokens], how.limit)
    order, counts = with_tokens[plan.order], np.diff(plan.row_offsets)
    columns = {name: column.take(order) for name, column in columns.items()}
    number = Ragged(np.empty(len(order), dtype=np.int64), counts).counters().values
    lengths = columns["input_ids"].lengths
    columns["document_ids"] = Ragged(np.repeat(number, lengths), lengths)
    rows = {name: column.group(plan.row_offsets) for name, column in columns.items()}
    width = _width(how, rows["input_ids"])
    return {name: row.pad(how.fills[name], width, side=how.side) for name, row in rows.items()}


def _labels(how: Arrangement, pieces: Pieces, masking: Masking | None) -> tuple[Ragged, NDArray[Any] | Ragged | None]:
    """The ids, which masking changes, and the labels: made from them, or the ones that rows bring."""
    found = [*label_names(pieces.columns), *(name for name in LABEL_COLUMNS if name in pieces.per_token)]
    if len(found) > 1:
        raise ValueError(
            explain("rows bring more than one label column", got=found, fix=f"dataset.remove_columns({found[1:]})")
        )
    labels: NDArray[Any] | Ragged | None = None
    if found and pieces.targets is None:
        given = pieces.per_token.get(found[0])
        labels = given_labels(pieces.column(found[0]), pieces.ids.lengths, name=found[0]) if given is None else given
    real = pieces.real
    causal = isinstance(labels, Ragged) and copies(labels, pieces.ids, real)
    if found and how.labels is not None:
        raise ValueError(
            explain(
                f"labels={how.labels!r} makes labels from the ids, and the rows bring their own",
                got=f"column '{found[0]}'" + ", the tokens themselves: labels for causal models" * causal,
                fix=f"dataset.remove_columns('{found[0]}')"
                + (", or pack_dataset(..., labels=None)" if causal else ", or labels=None to use them"),
            )
        )
    if causal and how.shifts_labels is False:
        raise ValueError(
            explain(
                "the labels of these rows are their own tokens, which the model sees: it would learn to copy them",
                got=f"column '{found[0]}' for a model that does not predict the next token",
                fix=f"dataset.remove_columns('{found[0]}') and labels=\"masked_lm\", or a causal model",
            )
        )
    if masking is not None:
        return masking(pieces.ids, pieces.per_token.get("word_ids"), real, pieces.per_token.get("special_tokens_mask"))
    if how.labels == "causal_lm":  # the ids themselves: models shift by one inside
        ids = pieces.ids
        return ids, ids if real is None else Ragged(np.where(real, ids.values, IGNORED), ids.lengths)
    return pieces.ids, labels


def _width(how: Arrangement, ids: Ragged) -> int:
    longest = ids.longest
    if how.padding == "do_not_pad":
        if ids.shortest != longest:
            raise ValueError(
                explain(
                    f"without padding all rows must have one length, these have {ids.shortest} to {longest} tokens",
                    got="padding=False",
                    fix="padding=True",
                )
            )
        return longest
    if how.padding == "max_length" and how.limit is not None:
        longest = how.limit
    # A batch of nothing but empty rows still has one column, of padding.
    return max(round_up(longest, how.multiple), 1)


def _counted(how: Arrangement, lengths: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position ids of rows without gaps, from the mask that says where they stand."""
    padding = how.fills["position_ids"]
    columns = np.arange(mask.shape[1]) + (how.start - padding)
    first = 0 if how.side == "right" else len(columns) - lengths[:, None]
    positions: NDArray[np.int64] = (columns - first) * mask
    return positions + padding if padding else positions


def _look_ahead(length: int) -> NDArray[np.bool_]:
    """(T, T), True where column j <= row i: each row is one run of True and False, read from a step further left."""
    run = np.zeros(2 * length, dtype=np.bool_)
    run[:length] = True
    shifted = np.ndarray((length, length), np.bool_, run, offset=length - 1, strides=(-1, 1))
    return shifted.copy()
