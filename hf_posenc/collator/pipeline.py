"""The two steps of a call: rows or columns become tokenized rows, and tokenized rows a padded or packed batch.

NumPy only, so that a forked worker can run it. The collator converts the arrays to tensors and adds embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import counted, explain, in_bytes, shorten, value_error
from ..documents import FURTHER_PER_TOKEN, LENGTHS, OFFSETS, TOKEN_INDICES, Documents, ignore_document_starts, pack_rows
from ..masks import look_ahead_of_batch
from ..positions import padded_position_ids
from ..ragged import Ragged, round_up
from .arrays import are_copies, as_array, given_labels, stored_embeddings, to_float32
from .config import Config
from .fit import check_label_values
from .inputs import LABEL_COLUMNS, Given, Values, as_list, label_names, read
from .packed_batches import documents_to_pack, flat_row, predicts_next
from .targets import have_target, pad_targets, supervised_rows, truncate_targets
from .token_ids import (
    check_ids,
    check_positions,
    padded_indices,
    read_ids,
    token_indices,
    truncate_rows,
    unmasked_row,
)

Arrays = dict[str, NDArray[Any]]

# Columns that are not copied into a batch: they are read elsewhere, or no model accepts them.
NOT_COPIED = ("length", "offset_mapping", *LENGTHS, *OFFSETS, *LABEL_COLUMNS)


def tokenize(config: Config, rows_or_columns: object) -> Documents:
    """Convert the input of a collator, rows or columns, to `Documents`, truncated to the limits of `config`.

    Texts are tokenized. Tokenized rows are checked. Raise for invalid input, for rows without tokens (unless
    `empty="keep"`), and for rows that are too long if truncation is off.
    """
    given, unmasked = read(rows_or_columns, config.settings), None
    if given.texts is not None:
        if config.settings.is_split_into_words:
            _check_words(config, given.texts)
        rows, columns = config.encoder.tokenize(given.texts, given.pairs), given.columns
    else:
        rows, columns = read_ids(config, given)
        unmasked = unmasked_row(config, given, rows)
        rows, columns = truncate_rows(config, rows, columns)
        if "position_ids" in rows.columns:
            check_positions(config, rows)
    _check_lengths(config, rows)
    if not set(TOKEN_INDICES).isdisjoint(columns):
        columns = {**columns, **token_indices(config, given, rows, columns)}
    targets, truncated = None, 0
    if config.has_targets:
        targets, columns, truncated = _targets(config, given, columns)
    rows = replace(
        rows,
        per_row=columns,
        targets=targets,
        targets_truncated=truncated,
        count=given.count,
        from_texts=given.texts is not None,
        unmasked=unmasked,
    )
    return rows.with_row_values_of(rows.sample) if not np.array_equal(rows.sample, np.arange(given.count)) else rows


def _check_words(config: Config, texts: Sequence[Sequence[str]]) -> None:
    """Raise a `ValueError` if a row has tokens of the tokenizer, such as "Ġride", instead of words."""
    marks = ("Ġ", "▁", "##")  # of byte-level BPE, SentencePiece and WordPiece
    for row, words in enumerate(texts):
        for word in words:
            if not word.startswith(marks) or len(word) < 2:
                continue
            if config.tokenizer.convert_tokens_to_ids(word) not in (None, config.tokenizer.unk_token_id):
                raise value_error(
                    f"row {row} has the token {word!r} of this tokenizer, and is_split_into_words=True reads words",
                    got=shorten(list(words)),
                    fix='{"input_ids": tokenizer.convert_tokens_to_ids(row)} for each row of tokens',
                )


def positions_of(rows: Documents, start: int, padding: int) -> Ragged:
    """Return the position of each token: the column `position_ids`, or else counted from `start` in each document."""
    position_ids = rows.columns.get("position_ids")
    return rows.join(rows.split().ids.counters(start), padding) if position_ids is None else position_ids


def name_taken(name: str, rows: Documents) -> str:
    """Return the error message for a column of the input that has the `name` of a column made by tokenization."""
    return explain(
        f"the input already has a column '{name}', which tokenization creates",
        got=list(rows.per_row),
        fix=f"dataset.rename_column('{name}', 'my_{name}')",
    )


def _targets(config: Config, given: Given, columns: dict[str, Values]) -> tuple[Ragged | None, dict[str, Values], int]:
    """Return the truncated targets, the columns without the targets, and the number of targets that lost tokens."""
    model = config.limited_by("max_target_length")
    if given.targets is not None and config.target_encoder is not None:
        tokenized_targets = config.target_encoder.tokenize(given.targets)
        targets, _ = truncate_targets(tokenized_targets.ids, config.target_limits, model)
        return targets, columns, tokenized_targets.truncated
    names = label_names(columns)
    if len(names) != 1:
        return None, columns, 0
    labels = Ragged.from_rows(as_list(columns[names[0]]), name=names[0])
    targets, truncated = truncate_targets(labels, config.target_limits, model)
    if config.decoder_start is not None or config.number_of_ids is not None:  # the decoder looks them up
        check_ids(config, Ragged(np.where(targets.values == IGNORED, 0, targets.values), targets.lengths), names[0])
    return targets, {name: values for name, values in columns.items() if name != names[0]}, truncated


def _check_lengths(config: Config, rows: Documents) -> None:
    lengths, limit, longest = rows.ids.lengths, config.limits.max_length, rows.ids.longest
    if limit is not None and longest > limit:
        model = config.limited_by("max_length")
        raise value_error(
            f"row {int(rows.sample[lengths.argmax()])} has {longest} tokens, limit {limit}",
            got=f"truncation={config.limits.truncation!r}" + (f", and {model} takes no more" if model else ""),
            fix="truncation=True, or truncation=True, return_overflowing_tokens=True to continue it in further rows",
        )
    counts = lengths if rows.is_token is None else rows.ids.where(rows.is_token).lengths
    if config.settings.empty != "keep" and counts.min(initial=1) == 0:
        raise value_error(
            f"row {int(rows.sample[counts.argmin()])} has no tokens",
            got="an empty text, or one in which the tokenizer finds no token",
            fix='drop such rows first, or empty="keep" for a row of padding',
        )


# -------------------------------------------------------------------------------------------------------------- padding


def pad_batch(config: Config, rows: Documents) -> tuple[Arrays, int]:
    """Return the batch of tokenized rows as arrays by name, padded or packed, and the number of rows left out of it.

    With the setting `unsupervised="drop"`, rows (or packed documents) whose labels are all -100 are left out; otherwise
    none are. Raise a `ValueError` if the padded rows do not fit into memory.
    """
    try:
        return _pad_or_pack(config, rows)
    except MemoryError as error:
        ids, width = rows.ids, _width(config, rows.ids)
        raise value_error(
            "this batch does not fit into memory, because all its rows are padded to one length",
            got=f"{counted(len(ids), 'row')} of {ids.shortest:,} to {ids.longest:,} tokens, padded to {width:,}: "
            f"input_ids alone would take {in_bytes(8 * len(ids) * width)}",
            fix="rows of similar length, as collate.batches(texts, token_budget=16384) and TokenBudgetBatchSampler "
            "choose them; or a smaller max_length or pad_to_multiple_of",
        ) from error


def _pad_or_pack(config: Config, rows: Documents) -> tuple[Arrays, int]:
    documents, row_labels = _with_labels(config, rows)
    if config.settings.packing:
        if row_labels is not None:
            raise value_error(
                "packed rows hold several documents, so one label per row does not fit them",
                got=f"labels of shape {row_labels.shape}",
                fix="packing=False, or one label per token",
            )
        columns, left_out = documents_to_pack(config, documents)
        if config.settings.packing == "flat":
            out = flat_row(config, columns)
        else:
            assert config.limits.max_length is not None
            packed = pack_rows(columns, config.limits.max_length, first_position=config.first_position)
            width = _width(config, packed["input_ids"])
            out = {name: column.pad(config.fills[name], width, side=config.side) for name, column in packed.items()}
    else:
        if "labels" in documents.columns:
            documents = _without_gaps(config, rows, documents)
        kept = _kept_rows(config, rows, documents)
        left_out = 0 if kept is None else len(rows.ids) - len(kept)
        if kept is not None:
            row_of = np.arange(len(documents.ids)) if rows.order is None else rows.order[2]
            documents, rows = documents.take(np.flatnonzero(np.isin(row_of, kept))), rows.take(kept)
            row_labels = None if row_labels is None else row_labels[kept]
        out = _padded(config, rows, documents, row_labels)
    decoder_reads = "labels" if config.has_targets else "input_ids"  # an encoder needs no look-ahead mask
    if config.has_look_ahead and decoder_reads in out:
        out["look_ahead_mask"] = look_ahead_of_batch(*out[decoder_reads].shape)
    return out, left_out


def _without_gaps(config: Config, rows: Documents, documents: Documents) -> Documents:
    """Return documents with labels of -100 for tokens that would be predicted from padding or another document."""
    is_gap = rows.after_gap & predicts_next(config, documents) if rows.order is not None else np.False_
    if config.label_kind is None and rows.order is not None:  # given labels stay in rows of one document
        is_gap = is_gap & np.repeat(rows.is_several[rows.order[2]], rows.order[1])
    if not is_gap.any():
        return documents
    labels = documents.columns["labels"]
    return documents.with_columns(labels=Ragged(np.where(is_gap, IGNORED, labels.values), labels.lengths))


def _kept_rows(config: Config, rows: Documents, documents: Documents) -> NDArray[np.int64] | None:
    """Return the indices of the rows to keep in a padded batch; `None` if all are kept."""
    labels, targets = documents.columns.get("labels"), rows.targets
    if targets is not None:
        return supervised_rows(config, have_target(targets), targets.lengths, rows)
    if labels is None:
        return None
    has_target = have_target(labels, documents.ids, starts=predicts_next(config, documents))
    if rows.order is None:
        return supervised_rows(config, has_target, labels.lengths, rows)
    has_target = np.bincount(rows.order[2], has_target, minlength=len(rows.ids)) > 0
    return supervised_rows(config, has_target, rows.ids.lengths, rows)


def _padded(config: Config, rows: Documents, documents: Documents, row_labels: NDArray[Any] | None) -> Arrays:
    ids = rows.join(documents.ids, rows.ids)
    width = _width(config, ids)
    inside = ids.inside(width, side=config.side)

    def pad(name: str, column: Ragged) -> NDArray[Any]:
        return column.pad(config.fills[name], width, side=config.side, inside=inside)

    out = {"input_ids": pad("input_ids", ids)}
    mask = inside.astype(np.int64) if rows.is_token is None else pad("attention_mask", rows.columns["attention_mask"])
    if (
        rows.order is None or not rows.is_several.any()
    ):  # in packed rows, a mask would let documents attend to each other
        out["attention_mask"] = mask
    if "token_type_ids" in rows.columns and "token_type_ids" in config.names:
        out["token_type_ids"] = pad("token_type_ids", rows.columns["token_type_ids"])
    if rows.order is None and "position_ids" not in documents.columns:
        out["position_ids"] = padded_position_ids(
            mask, ids.lengths, first=config.first_position, padding=config.fills["position_ids"], side=config.side
        )
    else:
        positions = documents.columns.get("position_ids", documents.ids.counters(config.first_position))
        out["position_ids"] = pad("position_ids", rows.join(positions, config.fills["position_ids"]))
    if len(rows.columns) > 1:
        out |= {
            name: pad(name, rows.columns[name])
            for name in ("document_ids", *rows.masks, *FURTHER_PER_TOKEN)
            if name in rows.columns
        }
    if rows.targets is not None:
        out |= pad_targets(config, rows.targets)
    elif "labels" in documents.columns:
        out["labels"] = pad("labels", _padded_labels(config, rows, documents))
    elif row_labels is not None:
        out["labels"] = row_labels
    # Rows that were tokenized and split before keep the mapping to their texts.
    if config.limits.overflow and (rows.from_texts or "overflow_to_sample_mapping" not in rows.per_row):
        out["overflow_to_sample_mapping"] = rows.sample
    return out | _other_columns(config, rows, out, inside) if rows.per_row else out


def _padded_labels(config: Config, rows: Documents, documents: Documents) -> Ragged:
    """Return the labels of the rows, from those of their documents, with -100 at first tokens that are no targets."""
    labels = documents.columns["labels"]
    # The first label of a row stays, as in `DataCollatorForLanguageModeling` of transformers: models that shift labels
    # never read it. That of a document behind another one becomes -100; that behind padding, if labels are made here.
    if rows.order is not None or (config.label_kind is not None and config.side == "left"):
        shares_row, after_padding = rows.beginnings
        is_ignored = shares_row | ((config.label_kind is not None) & (after_padding | (config.side == "left")))
        labels = ignore_document_starts(labels, is_ignored & predicts_next(config, documents))
    row_labels = rows.columns.get("labels")
    return rows.join(labels, IGNORED if row_labels is None else row_labels)


def _other_columns(config: Config, rows: Documents, out: Arrays, inside: NDArray[np.bool_]) -> Arrays:
    """Return the numeric columns of the input that are not yet in the batch `out`, as arrays by name."""
    accepts, columns = config.accepts, {}
    for name in rows.per_row:
        if name in NOT_COPIED:
            continue
        if name in out:
            if rows.from_texts:
                raise ValueError(name_taken(name, rows))
        elif name == "inputs_embeds":  # stored embeddings; a collator with a table computes them again
            if not config.embeds:
                embeddings = stored_embeddings(as_list(rows.per_row[name]), rows.ids.lengths)
                columns[name] = embeddings.pad(0, inside.shape[1], side=config.side, inside=inside)
        elif accepts is None or name in accepts:
            array = as_array(name, as_list(rows.per_row[name]))
            if name in TOKEN_INDICES and array is not None:
                array = padded_indices(
                    array,
                    rows.ids.lengths,
                    inside.shape[1],
                    config.side,
                    keeps_0="question_positions" in rows.per_row,
                )
            if array is not None:
                columns[name] = to_float32(name, array) if accepts is not None and array.dtype.kind == "f" else array
    return columns


def _with_labels(config: Config, rows: Documents) -> tuple[Documents, NDArray[Any] | None]:
    """Return the documents, with `labels` if there is one for each token; and labels of rows, or `None`."""
    names = [*label_names(rows.per_row), *(name for name in LABEL_COLUMNS if name in rows.columns)]
    if len(names) > 1:
        raise value_error("rows have more than one label column", got=names, fix=f"dataset.remove_columns({names[1:]})")
    labels: Ragged | NDArray[Any] | None = None
    if names and rows.targets is None:
        if (labels := rows.columns.get(names[0])) is None:
            labels = given_labels(rows.per_row[names[0]], rows.ids.lengths, name=names[0])
        if config.model is not None:
            check_label_values(labels, config.model, rows.sample, names[0])
    documents = (rows.with_columns(labels=labels) if isinstance(labels, Ragged) else rows).split()
    causal = isinstance(labels, Ragged) and _are_causal(documents)
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
        return documents, None if isinstance(labels, Ragged) else labels
    ids, new_labels = config.label_maker(documents)
    return documents.with_columns(input_ids=ids, labels=new_labels), None


def _are_causal(documents: Documents) -> bool:
    """Return True if the labels of all documents that have a target are their own ids."""
    copied = are_copies(documents.columns["labels"], documents.ids)[documents.ids.lengths > 1]
    return bool(len(copied) and copied.all())


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
