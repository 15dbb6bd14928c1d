"""Padded batches of tokenized rows: labels, packing, padding, masks and position ids.

NumPy only, so that a forked worker can run it. The collator converts the arrays to tensors and adds embeddings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import counted, in_bytes, shorten, value_error
from ..masks import look_ahead_of_batch
from ..positions import padded_position_ids
from ..ragged import Ragged, offsets_of, round_up
from ..tokenization import TokenRows, ignore_document_starts, pack_rows
from .arrays import LABEL_COLUMNS, are_copies, as_array, as_list, given_labels, label_names, numbers, to_float32
from .fit import check_label_values
from .labels import decoder_inputs
from .tokens import Tokenized, name_taken, positions_of

if TYPE_CHECKING:
    from .config import Config

Arrays = dict[str, NDArray[Any]]
Labels = NDArray[Any] | Ragged | None  # one value per row, one per token, or none

# Columns that are not copied into a batch: they are read elsewhere, or no model accepts them.
NOT_COPIED = ("length", "offset_mapping", *LABEL_COLUMNS)


def pad_batch(config: Config, tokenized: Tokenized) -> tuple[Arrays, int]:
    """Return the batch of tokenized rows as arrays by name, padded or packed, and the number of rows left out of it.

    With the setting `unsupervised="drop"`, rows (or packed documents) whose labels are all -100 are left out; otherwise
    none are. Raise a `ValueError` if the padded rows do not fit into memory.
    """
    try:
        return _pad_or_pack(config, tokenized)
    except MemoryError as error:
        ids, width = tokenized.rows.ids, _width(config, tokenized.rows.ids)
        raise value_error(
            "this batch does not fit into memory, because all its rows are padded to one length",
            got=f"{counted(len(ids), 'row')} of {ids.shortest:,} to {ids.longest:,} tokens, padded to {width:,}: "
            f"input_ids alone would take {in_bytes(8 * len(ids) * width)}",
            fix="rows of similar length, as collate.batches(texts, token_budget=16384) and TokenBudgetBatchSampler "
            "choose them; or a smaller max_length or pad_to_multiple_of",
        ) from error


def _pad_or_pack(config: Config, tokenized: Tokenized) -> tuple[Arrays, int]:
    rows, labels = _make_labels(config, tokenized)
    if tokenized.positions_from_0:
        given = rows.columns["position_ids"]
        rows = rows.with_columns(position_ids=Ragged(given.values + config.first_position, given.lengths))
    if config.settings.packing:
        documents, left_out = _documents(config, rows, labels)
        out = _flat(config, documents) if config.settings.packing == "flat" else _packed(config, documents)
    else:
        supervision = labels if tokenized.targets is None else tokenized.targets
        kept = _supervised(config, supervision, rows) if isinstance(supervision, Ragged) else None
        left_out = 0 if kept is None else len(rows.ids) - len(kept)
        if kept is not None:
            rows, tokenized = rows.take(kept), tokenized.take(kept)
            labels = labels.take(kept) if isinstance(labels, Ragged) else labels
        out = _padded(config, tokenized, rows, labels)
    decoder_reads = "labels" if config.has_targets else "input_ids"  # an encoder needs no look-ahead mask
    if config.has_look_ahead and decoder_reads in out:
        out["look_ahead_mask"] = look_ahead_of_batch(*out[decoder_reads].shape)
    return out, left_out


def _supervised(config: Config, labels: Ragged, rows: TokenRows) -> NDArray[np.int64] | None:
    """Return the indices of the rows to keep in a batch; `None` if all are kept.

    The setting `unsupervised` applies to rows whose labels are all -100: `"drop"` leaves them out, `"keep"` keeps them,
    and `"error"` raises a `ValueError`. By default such a row raises too, unless it has masked labels or no tokens, or
    is a packed document of one token. `"drop"` also raises if no row is left.
    """
    settings, kind = config.settings, config.label_kind
    default = "error" if kind is None or kind.predicts_next else "keep"  # a short row may have no masked token
    is_read = config.accepts is None or "labels" in config.accepts
    if not is_read or (settings.unsupervised or default) == "keep":
        return None
    is_label = labels.values != IGNORED
    if is_label.all() and labels.shortest:
        return None
    has_label = labels.where(is_label).lengths > 0
    if settings.unsupervised is None:
        # Kept by default: rows of padding, for empty="keep", and packed documents whose only token is not predicted.
        has_label |= rows.without_padding().ids.lengths <= (1 if settings.packing else 0)
    kept = np.flatnonzero(has_label)
    if len(kept) == len(has_label):
        return None
    if settings.unsupervised == "drop" and len(kept):
        return kept
    row, name = int(has_label.argmin()), "max_target_length" if config.has_targets else "max_length"
    limit = (config.target_limits if config.has_targets else config.limits).max_length
    raise value_error(
        f"row {rows.sample[row]} has nothing to learn: its {labels.lengths[row]} labels are all -100"
        if settings.unsupervised != "drop"
        else "no row of the batch has a label other than -100, so none would be left",
        got=f"{len(has_label) - len(kept)} such rows of {len(has_label)}; {name}={limit}",
        fix=f'a larger {name}, if it truncated the labels; unsupervised="drop" leaves such rows out, "keep" keeps them',
    )


def _padded(config: Config, tokenized: Tokenized, rows: TokenRows, labels: Labels) -> Arrays:
    ids, documents, is_token = rows.ids, rows.documents, rows.is_token
    width = _width(config, ids)
    inside = ids.inside(width, side=config.side)

    def pad(name: str, column: Ragged) -> NDArray[Any]:
        return column.pad(config.fills[name], width, side=config.side, inside=inside)

    out = {"input_ids": pad("input_ids", ids)}
    mask = inside.astype(np.int64) if is_token is None else pad("attention_mask", rows.columns["attention_mask"])
    if documents is None:  # in packed rows, a mask would let documents attend to each other
        out["attention_mask"] = mask
    if "token_type_ids" in rows.columns and "token_type_ids" in config.names:
        out["token_type_ids"] = pad("token_type_ids", rows.columns["token_type_ids"])
    if is_token is None and documents is None and "position_ids" not in rows.columns:
        out["position_ids"] = padded_position_ids(
            mask, ids.lengths, first=config.first_position, padding=config.fills["position_ids"], side=config.side
        )
    else:
        positions = positions_of(rows, config.first_position)
        if is_token is not None:
            positions = np.where(is_token, positions, config.fills["position_ids"])
        out["position_ids"] = pad("position_ids", Ragged(positions, ids.lengths))
    numbered = rows.columns.get("document_ids", documents)
    if numbered is not None:
        out["document_ids"] = pad("document_ids", numbered)
    if tokenized.targets is not None:
        out |= _pad_targets(config, tokenized.targets)
    elif isinstance(labels, Ragged):
        if documents is not None and _predicts_next(config, ids, labels):
            labels = ignore_document_starts(labels, documents)
        out["labels"] = pad("labels", labels)
    elif labels is not None:
        out["labels"] = labels
    # Rows that were tokenized and split before keep the mapping to their texts.
    if config.limits.overflow and (tokenized.from_texts or "overflow_to_sample_mapping" not in tokenized.columns):
        out["overflow_to_sample_mapping"] = rows.sample
    return out | _other_columns(config, tokenized, out, inside) if tokenized.columns else out


def _other_columns(config: Config, tokenized: Tokenized, out: Arrays, inside: NDArray[np.bool_]) -> Arrays:
    """Return the numeric columns of the input that are not yet in the batch `out`, as arrays by name.

    Label columns, `length`, and columns that the model does not accept are left out. `inside` `(B, T)` is False at
    padding. Raise a `ValueError` if the input is texts, and one of its columns has the name of a key of `out`.
    """
    accepts, more = config.accepts, {}
    for name in tokenized.columns:
        if name in NOT_COPIED:
            continue
        if name in out:
            if tokenized.from_texts:
                raise ValueError(name_taken(name, tokenized))
        elif name == "inputs_embeds":  # stored embeddings; a collator with a table computes them again
            if not config.embeds:
                more[name] = _stored_embeddings(tokenized).pad(0, inside.shape[1], side=config.side, inside=inside)
        elif accepts is None or name in accepts:
            array = as_array(name, as_list(tokenized.columns[name]))
            if array is not None:
                more[name] = to_float32(name, array) if accepts is not None and array.dtype.kind == "f" else array
    return more


def _pad_targets(config: Config, targets: Ragged) -> Arrays:
    """Return targets, the token sequences to predict, as padded `labels` `(B, T)`.

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
    labels = targets.pad(IGNORED, width, side=config.side)
    if config.decoder_start is None:
        return {"labels": labels}
    return {**decoder_inputs(labels, config.decoder_start, config.fills["input_ids"], config.side), "labels": labels}


def _predicts_next(config: Config, ids: Ragged, labels: Ragged) -> bool:
    """Return True if each label is predicted from the token before it, as in a causal language model.

    The setting `labels` decides. Without it, the model decides. Without both, return True for `packing="flat"`, and for
    `packing=True` if the labels are copies of the ids.
    """
    if config.label_kind is not None:
        return config.label_kind.predicts_next
    if config.shifts_labels is not None:
        return config.shifts_labels
    packing = config.settings.packing
    return packing == "flat" or (packing and are_copies(labels, ids))


def _stored_embeddings(tokenized: Tokenized) -> Ragged:
    """Return the given column `inputs_embeds`, one float vector per token; raise if a row has more or fewer."""
    rows: list[NDArray[Any]] = []
    stored = as_list(tokenized.columns["inputs_embeds"])
    for index, (value, length) in enumerate(zip(stored, tokenized.rows.ids.lengths, strict=True)):
        row = numbers(value, index, "inputs_embeds")
        if row is None or row.ndim != 2 or len(row) != length:
            raise value_error(
                f"row {index}: 'inputs_embeds' of shape {getattr(row, 'shape', None)} for {length} tokens",
                fix="one vector per token, or dataset.remove_columns('inputs_embeds')",
            )
        rows.append(row)
    flat = np.concatenate(rows)
    return Ragged(flat if flat.dtype == np.float16 else flat.astype(np.float32), tokenized.rows.ids.lengths)


def _documents(config: Config, rows: TokenRows, labels: Labels) -> tuple[dict[str, Ragged], int]:
    """Return the columns to pack, with one row per document, and the number of documents left out.

    With the setting `unsupervised="drop"`, documents whose labels are all -100 are left out. If each label is predicted
    from the token before it, the first label of each document is set to -100.
    """
    if isinstance(labels, np.ndarray):
        raise value_error(
            "packed rows hold several documents, so one label per row does not fit them",
            got=f"labels of shape {labels.shape}",
            fix="packing=False, or one label per token",
        )
    if labels is not None:
        rows = rows.with_columns(labels=labels)
    kept = {"input_ids", "position_ids", "labels", *({"token_type_ids"} & set(config.names))}
    split = rows.split_documents()
    documents = {name: column for name, column in split.columns.items() if name in kept}
    if labels is not None:
        if _predicts_next(config, documents["input_ids"], documents["labels"]):
            documents["labels"] = ignore_document_starts(documents["labels"])
        supervised = _supervised(config, documents["labels"], split)
        if supervised is not None:
            documents = {name: column.take(supervised) for name, column in documents.items()}
    return documents, len(split.ids) - len(documents["input_ids"])


def _packed(config: Config, documents: dict[str, Ragged]) -> Arrays:
    """Return a padded batch with several documents per row; `position_ids` restart at each document.

    `documents` are the columns from `_documents`, with one row for each document.
    """
    assert config.limits.max_length is not None
    packed = pack_rows(documents, config.limits.max_length, first_position=config.first_position)
    width = _width(config, packed["input_ids"])
    return {name: column.pad(config.fills[name], width, side=config.side) for name, column in packed.items()}


def _flat(config: Config, documents: dict[str, Ragged]) -> dict[str, Any]:
    """Return a batch with all documents in a single row, one after another, like `DataCollatorWithFlattening`.

    `documents` are the columns from `_documents`. Columns of the batch are `(1, N)` int64, and `seq_idx` `(1, N)` int32
    has the number of each token's document. `cu_seq_lens_q` and `cu_seq_lens_k`, int32, are the offsets of the
    documents. `max_length_q` and `max_length_k`, `int`, are the length of the longest document.
    """
    ids = documents["input_ids"]
    lengths = ids.lengths[ids.lengths > 0]
    positions = ids.counters(config.first_position).values
    if "position_ids" in documents and not np.array_equal(documents["position_ids"].values, positions):
        raise value_error(
            f"in a flat row the positions of each document must be consecutive, from {config.first_position}: "
            "they separate the documents",
            got=f"position_ids {shorten(documents['position_ids'].values.tolist())}",
            fix='dataset.remove_columns("position_ids"), or packing=True',
        )
    offsets = offsets_of(lengths).astype(np.int32)
    names = ("input_ids", "labels", "token_type_ids")
    return {
        **{name: documents[name].values[None].copy() for name in names if name in documents},
        "position_ids": positions[None],
        "seq_idx": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[None],
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets.copy(),
        "max_length_q": int(lengths.max(initial=0)),
        "max_length_k": int(lengths.max(initial=0)),
    }


def _make_labels(config: Config, tokenized: Tokenized) -> tuple[TokenRows, Labels]:
    """Return the rows and their labels; `None` instead of labels if there are none.

    Labels are made from the ids, or read from a label column. With `labels="masked_lm"` some ids of the returned rows
    are masked. Raise a `ValueError` if there is more than one source of labels, or if the labels are copies of the ids
    but the model does not predict the next token.
    """
    rows = tokenized.rows
    labels: Labels = None
    names = [*label_names(tokenized.columns), *(name for name in LABEL_COLUMNS if name in rows.columns)]
    if len(names) > 1:
        raise value_error("rows have more than one label column", got=names, fix=f"dataset.remove_columns({names[1:]})")
    if names and tokenized.targets is None:
        labels = rows.columns.get(names[0])
        if labels is None:
            labels = given_labels(tokenized.columns[names[0]], rows.ids.lengths, name=names[0])
        if config.model is not None:
            check_label_values(labels, config.model, rows.sample, names[0])
    causal = isinstance(labels, Ragged) and are_copies(labels, rows.ids, rows.is_token)
    if names and config.label_maker is not None:
        raise value_error(
            f"labels={config.settings.labels!r} makes labels from the ids, and the rows have their own",
            got=f"column '{names[0]}'" + (", the tokens themselves: labels for causal models" if causal else ""),
            fix=f"dataset.remove_columns('{names[0]}')"
            + (", or pack_dataset(..., labels=None)" if causal else ", or labels=None to use them"),
        )
    if causal and config.shifts_labels is False:
        raise value_error(
            "the labels of these rows are their own tokens, which the model sees: it would learn to copy them",
            got=f"column '{names[0]}' for a model that does not predict the next token",
            fix=f"dataset.remove_columns('{names[0]}') and labels=\"masked_lm\", or a causal model",
        )
    if config.label_maker is None:
        return rows, labels
    ids, labels = config.label_maker(rows)
    return rows.with_columns(input_ids=ids), labels


def _width(config: Config, ids: Ragged) -> int:
    if config.padding == "do_not_pad":
        if ids.shortest != ids.longest:
            raise value_error(
                f"without padding all rows must have one length, these have {ids.shortest} to {ids.longest} tokens",
                got="padding=False",
                fix="padding=True",
            )
        return ids.longest
    # A batch of empty rows has one column of padding. No array has more than 2**59 values of int64.
    width = round_up(config.fixed_length or max(ids.longest, 1), config.settings.pad_to_multiple_of)
    return min(width, 2**59 // max(len(ids), 1))
