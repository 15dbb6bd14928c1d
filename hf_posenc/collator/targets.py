"""Targets: which labels are trained on, rows without any, and labels that are separate token sequences. NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import shorten, value_error
from ..documents import LABEL_COLUMNS, Documents
from ..ragged import Ragged, offsets_of, round_up
from .arrays import given_labels
from .config import Config
from .fit import check_label_values
from .inputs import Given, Values, label_names
from .token_ids import check_ids

# ----------------------------------------------------------------------------------------------------- labels of tokens


def with_labels(config: Config, rows: Documents) -> tuple[Documents, NDArray[Any] | None]:
    """Return rows with the column `labels` if there is one label per token, and otherwise labels of rows.

    Labels are -100 at tokens that are no targets. With the setting `on_no_labels="skip"`, rows without a target are
    left out.
    """
    names = [*label_names(rows.per_row), *(name for name in LABEL_COLUMNS if name in rows.columns)]
    if len(names) > 1:
        raise value_error("rows have more than one label column", got=names, fix=f"dataset.remove_columns({names[1:]})")
    if rows.targets is not None:
        targets = rows.targets.ids
        has_target = np.diff(offsets_of(targets.values != IGNORED)[targets.offsets]) > 0
        return _kept_rows(config, has_target, targets.lengths, rows), None
    documents, labels = rows.split(), None
    if names:
        given: NDArray[Any] | Ragged | None = rows.columns.get(names[0])
        if given is None:
            given = given_labels(rows.per_row[names[0]], rows.ids, name=names[0], per=config.labels_per)
        if config.model is not None:
            check_label_values(given, config.model, rows.given_row, names[0])
        labels = Ragged(given.values, documents.ids.lengths) if isinstance(given, Ragged) else None
        if config.label_maker is not None or config.predicts_next is False:
            _check_given_labels(config, names[0], labels, documents)
        if not isinstance(given, Ragged):  # with a label maker, they were refused
            if config.settings.packing:
                raise value_error(
                    "packed rows hold several documents, so one label per row does not fit them",
                    got=f"labels of shape {given.shape}",
                    fix="packing=False, or one label per token",
                )
            return rows, given
    if labels is None:
        assert config.label_maker is not None
        ids, labels = config.label_maker(documents)
        if ids is not documents.ids:
            rows = rows.with_columns(input_ids=rows.in_rows(ids))
    # A row of one document that is padded on the right keeps the label of its first token, as in transformers.
    shares_row: NDArray[np.bool_] | bool = bool(config.settings.packing) or config.side == "left"
    if rows.sizes is not None:
        shares_row = shares_row | rows.is_several[rows.row_of_document]
    labels, has_target = documents.supervise(labels, predicts_next=config.predicts_next, shares_row=shares_row)
    if rows.sizes is not None:
        has_target = np.bincount(rows.row_of_document, has_target, minlength=len(rows.ids)) > 0
    rows = rows.with_columns(labels=rows.in_rows(labels))
    return _kept_rows(config, has_target, rows.ids.lengths, rows), None


def _check_given_labels(config: Config, name: str, labels: Ragged | None, documents: Documents) -> None:
    """Raise a `ValueError` for given labels that the collator would make otherwise, or that a model would only copy."""
    if config.label_maker is not None:
        is_own = labels is not None and (labels.values == documents.ids.values) | (labels.values == IGNORED)
        if config.predicts_next and np.all(is_own):  # as `map` stores them for masks of supervision
            return
        is_copied = labels is not None and _are_own_tokens(labels, documents)
        mask_id = config.tokenizer.mask_token_id
        if labels is not None and np.any((labels.values != IGNORED) & (documents.ids.values == mask_id)):
            raise value_error(  # without the labels, the masked ids would be trained on
                "these rows are masked already: they were stored from a batch, which has labels",
                got=f"column '{name}', with labels at {config.tokenizer.mask_token}",
                fix="dataset.map(collate.columns, input_columns='text', batched=True) stores ids alone, and labels are "
                "drawn for each batch",
            )
        raise value_error(
            f"labels={config.settings.labels!r} makes labels from the ids, and the rows have their own",
            got=f"column '{name}'" + (", the tokens themselves: labels for causal models" if is_copied else ""),
            fix=f"dataset.remove_columns('{name}')"
            + (", or pack_dataset(..., labels=None)" if is_copied else ", or labels=None to use them"),
        )
    if labels is not None and _are_own_tokens(labels, documents):
        raise value_error(
            "the labels of these rows are their own tokens, which the model sees: it would learn to copy them",
            got=f"column '{name}' for a model that does not predict the next token",
            fix=f"dataset.remove_columns('{name}') and labels=\"masked_lm\", or a causal model",
        )


def _are_own_tokens(labels: Ragged, documents: Documents) -> bool:
    """Return True if each document with labels has one at every token from some token on, and all are the own ids."""
    offsets, has_label = labels.offsets, labels.values != IGNORED
    before = offsets_of(has_label)[offsets]
    count = np.diff(before)
    has = (count > 0) & (labels.lengths > 1)
    first = np.flatnonzero(has_label)[before[:-1][has]]  # the first token with a label
    is_whole = first + count[has] == offsets[1:][has]
    own = offsets_of(has_label & (labels.values == documents.ids.values))[offsets]
    return bool(has.any() and is_whole.all() and (np.diff(own)[has] == count[has]).all())


def _kept_rows(config: Config, has_target: NDArray[np.bool_], labels: NDArray[np.int64], rows: Documents) -> Documents:
    """Return the rows, or packed documents, that stay in a batch; raise for one without a target by `on_no_labels`."""
    # `labels` are the numbers of labels of the rows.
    settings, kind = config.settings, config.label_kind
    default = "error" if kind is None or kind.predicts_next else "keep"  # a short row may have no masked token
    is_read = config.accepts is None or "labels" in config.accepts
    if has_target.all() or not is_read or (settings.on_no_labels or default) == "keep":
        return rows
    is_kept = has_target
    if settings.on_no_labels is None:
        is_kept = has_target | (rows.ids.lengths == 0)  # rows of padding, for on_empty="keep"
        if settings.packing and has_target.any():
            is_kept |= rows.ids.lengths == 1  # a document of one token beside others
    kept = np.flatnonzero(is_kept)
    if len(kept) == len(is_kept):
        return rows
    if settings.on_no_labels == "skip" and len(kept):
        return rows.take(kept)
    row, name = int(is_kept.argmin()), "max_target_length" if config.has_targets else "max_length"
    limit = (config.target_limits if config.has_targets else config.limits).max_length
    no_target = "-100, or of the first token of a document"
    if config.has_targets or config.predicts_next is False:
        no_target = "-100"
    raise value_error(
        f"row {rows.given_row[row]} has nothing to learn: its {labels[row]} labels are all {no_target}"
        if settings.on_no_labels != "skip"
        else "no row of the batch has a label other than -100, so none would be left",
        got=f"{len(is_kept) - len(kept)} such rows of {len(is_kept)}; {name}={limit}",
        fix=f'a larger {name}, if it truncated the labels; on_no_labels="skip" leaves such rows out, "keep" keeps them',
    )


# ------------------------------------------------------------------------- targets that are separate token sequences


def read_targets(
    config: Config, given: Given, columns: dict[str, Values]
) -> tuple[Documents | None, dict[str, Values]]:
    """Return the closed, truncated targets, and the columns without them."""
    if given.targets is not None and config.target_encoder is not None:
        return _truncate_targets(config, config.target_encoder.tokenize(given.targets)), columns
    names = label_names(columns)
    if len(names) != 1:
        return None, columns
    targets = Ragged.from_rows(columns[names[0]], name=names[0])
    mask = columns.get("decoder_attention_mask")
    is_token = None
    if mask is not None:
        mask = Ragged.from_rows(mask, name="decoder_attention_mask", mask=True)
        if not np.array_equal(mask.lengths, targets.lengths):
            row = int((mask.lengths != targets.lengths).argmax())
            raise value_error(
                f"row {row}: {mask.lengths[row]} values in 'decoder_attention_mask' for {targets.lengths[row]} targets",
                fix="one value per label, or dataset.remove_columns('decoder_attention_mask')",
            )
        is_token = mask.values != 0
    elif config.is_padding_unique and len(targets.values):
        _check_not_padded(targets, config.fills["input_ids"], names[0])
    if "decoder_input_ids" in columns:  # they stay beside their labels
        values = targets.values if is_token is None else np.where(is_token, targets.values, IGNORED)
        targets = Ragged(values, targets.lengths)
    else:
        targets = close_targets(targets if is_token is None else targets.where(is_token))
        columns = {name: values for name, values in columns.items() if name != "decoder_attention_mask"}
    documents = _truncate_targets(config, Documents({"input_ids": targets}, np.arange(len(targets))))
    if config.decoder_start is not None or config.number_of_ids is not None:  # the decoder looks them up
        ids = documents.ids
        check_ids(config, Ragged(np.where(ids.values == IGNORED, 0, ids.values), ids.lengths), names[0])
    return documents, {name: values for name, values in columns.items() if name != names[0]}


def _check_not_padded(targets: Ragged, padding: int, name: str) -> None:
    """Raise a `ValueError` if targets begin or end with the id of padding, which would be trained on."""
    has_tokens = targets.lengths > 0
    ends = targets.values[[targets.offsets[:-1][has_tokens], targets.offsets[1:][has_tokens] - 1]]  # (2, rows)
    is_padded = (ends == padding).any(axis=0)
    if is_padded.any():
        row = int(np.flatnonzero(has_tokens)[is_padded.argmax()])
        code = f"{{'{name}': [-100 if token == {padding} else token for token in row['{name}']]}}"
        raise value_error(
            f"row {row} of column '{name}' begins or ends with the padding id {padding}, and padding is no target",
            got=shorten(targets[row].tolist()),
            fix=f"dataset.map(lambda row: {code}); or a column decoder_attention_mask with 0 at padding",
        )


def close_targets(targets: Ragged) -> Ragged:
    r"""Return targets without padding: labels of -100 at their ends.

    Example:
        >>> list(close_targets(Ragged.from_rows([[-100, 5, -100, 6], [8, -100], [-100]])))
        [array([   5, -100,    6]), array([8]), array([], dtype=int64)]
    """
    labels = offsets_of(targets.values != IGNORED)  # number of labels before each token
    before, after = np.repeat([labels[targets.offsets[:-1]], labels[targets.offsets[1:]]], targets.lengths, axis=1)
    return targets.where((labels[1:] > before) & (labels[:-1] < after))


def _truncate_targets(config: Config, targets: Documents) -> Documents:
    """Return targets truncated to their limit, on the tokenizer's side."""
    limits, lengths = config.target_limits, targets.ids.lengths
    if limits.max_length is not None and targets.ids.longest > limits.max_length and not limits.truncates:
        row, model = int((lengths > limits.max_length).argmax()), config.limited_by("max_target_length")
        raise value_error(
            f"the target of row {row} has {lengths[row]} tokens, limit {limits.max_length}",
            got="truncation off" + (f", and {model} takes no more" if model is not None else ""),
            fix="truncation=True, or drop such rows first",
        )
    return targets.truncate(limits, side=config.tokenizer.truncation_side)


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
    """
    longest = config.target_limits.max_length if config.padding == "max_length" else None
    labels = targets.pad(IGNORED, round_up(max(longest or targets.longest, 1), config.settings.pad_to_multiple_of))
    if config.decoder_start is None:
        return {"labels": labels}
    return {**decoder_inputs(labels, config.decoder_start, config.fills["input_ids"]), "labels": labels}
