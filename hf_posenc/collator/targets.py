"""Targets, which are labels that are separate token sequences; and rows whose labels are all -100. NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import value_error
from ..documents import Documents, Limits
from ..ragged import Ragged, offsets_of, round_up
from .config import Config


def truncate_targets(targets: Ragged, limits: Limits, model: str | None) -> tuple[Ragged, int]:
    r"""Truncate targets, the token sequences to predict, to `limits.max_length`.

    Return them and the number of targets that lost tokens. If a target is too long, labels of -100 at both ends are
    removed before any token is. If it is still too long and truncation is off, raise a `ValueError`. If the limit is a
    model's, `model` is its name, for the message.

    Example:
        >>> targets, lost = truncate_targets(Ragged.from_rows([[5, 6, 7], [8, -100, -100]]), Limits(2), None)
        >>> targets.values, lost
        (array([5, 6, 8]), 1)
    """
    limit = limits.max_length
    if limit is None or targets.longest <= limit:
        return targets, 0
    rows, lost = [], 0
    for index, target in enumerate(targets):
        row = target
        if len(row) > limit:
            places = np.flatnonzero(row != IGNORED)
            row = row[places[0] : places[-1] + 1] if len(places) else row[:0]
        if len(row) > limit and not limits.truncates:
            raise value_error(
                f"the target of row {index} has {len(row)} tokens, limit {limit}",
                got="truncation off" + (f", and {model} takes no more" if model is not None else ""),
                fix="truncation=True, or drop such rows first",
            )
        lost += len(row) > limit
        rows.append(row[:limit])
    return Ragged.from_rows(rows, name="labels"), lost


def decoder_inputs(labels: NDArray[np.int64], start: int, padding: int) -> dict[str, NDArray[Any]]:
    r"""Return the inputs of a decoder for training: for each row a start token, then its labels without the last one.

    So each label is predicted from the ones before it.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1 (outputs shifted right). arXiv:1706.03762.

    Example:
        >>> made = decoder_inputs(np.array([[5, 6, 7], [8, -100, -100]]), 1, 0)
        >>> made["decoder_input_ids"], made["decoder_attention_mask"]
        (array([[1, 5, 6],
               [1, 0, 0]]), array([[1, 1, 1],
               [1, 0, 0]]))
    """
    rows, length = labels.shape
    has_label = labels != IGNORED  # (B, T)
    first = has_label.argmax(axis=1)  # 0 in a row without labels
    last = length - 1 - has_label[:, ::-1].argmax(axis=1)
    before = np.full_like(labels, IGNORED)
    before[:, 1:] = labels[:, :-1]
    is_input = (before != IGNORED) & (np.arange(length) <= last[:, None])  # (B, T)
    ids = np.where(is_input, before, padding)
    starts = np.arange(rows), first
    ids[starts], is_input[starts] = start, True
    return {"decoder_input_ids": ids, "decoder_attention_mask": is_input.astype(np.int64)}


def pad_targets(config: Config, targets: Ragged) -> dict[str, NDArray[Any]]:
    """Return targets, the token sequences to predict, as `labels` `(B, T)`, padded on the right.

    The inputs may be padded on the left. A model that shifts labels itself would read padding there without a mask.
    `decoder_input_ids` and `decoder_attention_mask` are added if the model does not make the inputs of its decoder.
    Raise a `ValueError` if rounding up to `pad_to_multiple_of` exceeds the model's limit.
    """
    limit, multiple = config.target_limits.max_length, config.settings.pad_to_multiple_of
    longest = limit if config.padding == "max_length" else None
    width = round_up(max(longest or targets.longest, 1), multiple)
    model = config.limited_by("max_target_length")
    if model is not None and limit is not None and width > limit:
        raise value_error(
            f"targets of {targets.longest} tokens would be padded to {width}, limit {limit}",
            got=f"pad_to_multiple_of={multiple}, and {model} takes no more",
            fix=f"max_target_length={width - (multiple or 0)}",
        )
    labels = targets.pad(IGNORED, width)
    if config.decoder_start is None:
        return {"labels": labels}
    return {**decoder_inputs(labels, config.decoder_start, config.fills["input_ids"]), "labels": labels}


def have_target(
    labels: Ragged, ids: Ragged | None = None, *, starts: NDArray[np.bool_] | bool = False
) -> NDArray[np.bool_]:
    """Return True for each row with a label other than -100; where `starts` is True, that of the first token is none.

    `ids` are the token ids of the rows, which saves time if the labels are the same object.
    """
    if labels is ids:
        return labels.lengths > np.asarray(starts)
    is_target = labels.values != IGNORED
    is_target[labels.offsets[:-1][(labels.lengths > 0) & starts]] = False
    return np.diff(offsets_of(is_target)[labels.offsets]) > 0


def supervised_rows(
    config: Config, has_target: NDArray[np.bool_], labels: NDArray[np.int64], rows: Documents
) -> NDArray[np.int64] | None:
    """Return the indices of the rows, or packed documents, to keep in a batch; `None` if all are kept.

    The setting `unsupervised` applies to rows without a target: `"drop"` leaves them out, `"keep"` keeps them, and
    `"error"` raises a `ValueError`. By default such a row raises too, unless it has masked labels or no tokens, or is a
    packed document of one token beside others with targets. `"drop"` also raises if no row is left. `labels` are the
    numbers of labels of the rows.
    """
    settings, kind = config.settings, config.label_kind
    default = "error" if kind is None or kind.predicts_next else "keep"  # a short row may have no masked token
    is_read = config.accepts is None or "labels" in config.accepts
    if has_target.all() or not is_read or (settings.unsupervised or default) == "keep":
        return None
    is_kept = has_target
    if settings.unsupervised is None:
        tokens = rows.ids.lengths if rows.is_token is None else rows.ids.where(rows.is_token).lengths
        is_kept = has_target | (tokens == 0)  # rows of padding, for empty="keep"
        if settings.packing and has_target.any():
            is_kept |= tokens == 1
    kept = np.flatnonzero(is_kept)
    if len(kept) == len(is_kept):
        return None
    if settings.unsupervised == "drop" and len(kept):
        return kept
    row, name = int(is_kept.argmin()), "max_target_length" if config.has_targets else "max_length"
    limit = (config.target_limits if config.has_targets else config.limits).max_length
    no_target = "-100" if config.has_targets or kind is None else "-100, or of the first token of a document"
    raise value_error(
        f"row {rows.sample[row]} has nothing to learn: its {labels[row]} labels are all {no_target}"
        if settings.unsupervised != "drop"
        else "no row of the batch has a label other than -100, so none would be left",
        got=f"{len(is_kept) - len(kept)} such rows of {len(is_kept)}; {name}={limit}",
        fix=f'a larger {name}, if it truncated the labels; unsupervised="drop" leaves such rows out, "keep" keeps them',
    )
