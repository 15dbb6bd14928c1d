"""The two steps of a call: texts or given rows become `Documents`, and documents are arranged as a batch.

NumPy only, so that a forked worker can run it. The collator converts the arrays to tensors and adds embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import counted, shorten, value_error
from ..documents import LABEL_COLUMNS, PER_TOKEN, TOKEN_INDICES, Documents
from ..masks import look_ahead_of_batch
from ..ragged import Ragged, round_up
from .config import Config
from .conversations import tokenize_conversations
from .inputs import Messages, label_names, parse_input
from .other_columns import other_columns, refuse_token_indices
from .prompts import tokenize_prompts
from .several_documents import flat_row, packed_rows
from .targets import pad_targets, read_targets, with_labels
from .token_ids import read_ids

Arrays = dict[str, NDArray[Any]]


def to_documents(config: Config, rows_or_columns: object) -> tuple[Documents, Messages]:
    """Return the input of a collator, rows or columns, as `Documents` truncated to the limits, and warnings by kind.

    Texts are tokenized. Tokenized rows are checked and closed. Raise for invalid input, for rows without tokens (unless
    `on_empty="keep"`), and for rows that are too long if truncation is off.
    """
    given = parse_input(rows_or_columns, config.settings, config.padding_id)
    for name in config.settings.token_columns:
        if name not in given.columns or "input_ids" not in given.columns:
            raise value_error(
                f"token_columns has {name!r}, a column with one value per token, and these rows have none",
                got=f"columns {sorted(given.columns, key=str)}" if given.columns else "texts",
                fix="rows of input_ids with this column, which Trainer drops unless TrainingArguments has "
                "remove_unused_columns=False; or collate.replace(token_columns=()) for other rows",
            )
    if given.columns and "input_ids" not in given.columns and not given.columns.keys().isdisjoint(TOKEN_INDICES):
        refuse_token_indices(config, given.columns)
    if given.prompts is not None:
        given = tokenize_prompts(config, given)
    if given.conversations is not None:
        given = tokenize_conversations(config, given)
    if given.texts is not None:
        if config.settings.is_split_into_words:
            _check_words(config, given.texts)
        rows, columns, messages = config.encoder.tokenize(given.texts, given.pairs), given.columns, Messages()
    else:
        rows, columns, messages = read_ids(config, given)
    _check_lengths(config, rows)
    targets = None
    if config.has_targets:
        targets, columns = read_targets(config, given, columns)
    if given.texts is not None:
        source = "texts"
    elif given.prompts is not None:
        source = "prompts"
    else:
        source = "ids" if given.conversations is None else "conversations"
    rows = rows.replaced(per_row=columns, targets=targets, source=source, text_columns=given.text_columns)
    return rows.with_row_values_of(rows.given_row) if len(rows.given_row) != given.count else rows, messages


def _check_words(config: Config, texts: Sequence[Sequence[str]]) -> None:
    """Raise a `ValueError` if a row has tokens of the tokenizer, such as "Ġride", instead of words."""
    marks = ("Ġ", "▁", "##")  # of byte-level BPE, SentencePiece and WordPiece
    vocabulary: dict[str, int] = {}
    for row, words in enumerate(texts):
        for word in words:
            if not word.startswith(marks) or len(word) < 2:
                continue
            vocabulary = vocabulary or config.tokenizer.get_vocab()
            if word in vocabulary:
                raise value_error(
                    f"row {row} has the token {word!r} of this tokenizer, and is_split_into_words=True reads words",
                    got=shorten(list(words)),
                    fix='{"input_ids": tokenizer.convert_tokens_to_ids(row)} for each row of tokens',
                )


def _check_lengths(config: Config, rows: Documents) -> None:
    ids, limit = rows.ids, config.limits.max_length
    if limit is not None and ids.longest > limit:
        model = config.limited_by("max_length")
        raise value_error(
            f"row {int(rows.given_row[ids.lengths.argmax()])} has {ids.longest} tokens, limit {limit}",
            got=f"truncation={config.settings.truncation!r}" + (f", and {model} takes no more" if model else ""),
            fix="truncation=True, or truncation=True, return_overflowing_tokens=True to continue it in further rows",
        )
    if config.settings.on_empty != "keep" and ids.shortest == 0 and len(ids):
        raise value_error(
            f"row {int(rows.given_row[ids.lengths.argmin()])} has no tokens",
            got="an empty row, padding alone, or a text in which the tokenizer finds no token",
            fix='drop such rows first, or on_empty="keep" for a row of padding',
        )


# ---------------------------------------------------------------------------------------------------------- arrangement


def arrange(config: Config, rows: Documents) -> tuple[Arrays, int]:
    """Return the batch of `Documents` as arrays by name, padded or packed, and the number of rows left out of it.

    With the setting `on_no_labels="skip"`, rows (or packed documents) whose labels are all -100 are left out; otherwise
    none are.
    """
    count, row_labels = len(rows.ids), None
    is_labelled = config.label_maker is not None or rows.targets is not None
    if is_labelled or not rows.columns.keys().isdisjoint(LABEL_COLUMNS) or label_names(rows.per_row):
        rows, row_labels = with_labels(config, rows)
    if config.settings.packing:
        if not len(rows.ids.values):
            raise value_error(
                "packed rows have no place for rows without tokens, and this batch has no other rows",
                got=f"{counted(count, 'empty row')}, packing={config.settings.packing!r}",
                fix="packing=False, which keeps them as rows of padding; or drop such rows first",
            )
        if config.settings.packing == "flat":
            out = flat_row(config, rows)
        else:
            packed = packed_rows(config, rows)
            width = _width(config, packed["input_ids"])
            out = {name: column.pad(config.fills[name], width, side=config.side) for name, column in packed.items()}
    else:
        out = _padded(config, rows, row_labels)
    decoder_reads = "labels" if config.has_targets else "input_ids"  # an encoder needs no look-ahead mask
    if config.has_look_ahead and decoder_reads in out:
        out["look_ahead_mask"] = look_ahead_of_batch(*out[decoder_reads].shape)
    if config.settings.on_no_labels is not None and "labels" not in out:
        raise value_error(
            "on_no_labels is the treatment of rows without labels, and this batch has none at all",
            got=f"on_no_labels={config.settings.on_no_labels!r}, labels=None, and no column of labels",
            fix='labels="causal_lm" or "masked_lm", or a column labels; or collate.replace(on_no_labels=None)',
        )
    return out, count - len(rows.ids)


def _padded(config: Config, rows: Documents, row_labels: NDArray[Any] | None) -> Arrays:
    ids = rows.ids
    width = _width(config, ids)
    inside = ids.inside(width, side=config.side)

    def pad(name: str, column: Ragged) -> NDArray[Any]:
        return column.pad(config.fills[name], width, side=config.side, inside=inside)

    out = {"input_ids": pad("input_ids", ids)}
    # In packed rows, a mask would let documents attend to each other.
    if rows.sizes is None or not rows.is_several.any():
        # From lengths, never from ids: the id of padding may be that of eos, which ends a text (transformers #23530).
        out["attention_mask"] = inside.astype(np.int64)
    # BERT reads pairs wrongly without them: its states differ by 0.12 at a scale of 0.31.
    if "token_type_ids" in rows.columns and "token_type_ids" in config.names:
        out["token_type_ids"] = pad("token_type_ids", rows.columns["token_type_ids"])
    if rows.sizes is None and "position_ids" not in rows.columns:
        first, fill = config.first_position, config.fills["position_ids"]
        out["position_ids"] = ids.padded_counters(first, fill, inside, side=config.side)
    else:
        out["position_ids"] = pad("position_ids", rows.positions(config.first_position))
    if rows.sizes is not None:
        out["document_ids"] = pad("document_ids", rows.document_ids)
    for name, column in rows.columns.items():
        is_own = name in config.settings.token_columns and config.takes(name)
        is_named = name in PER_TOKEN and PER_TOKEN[name].in_batch and name != "token_type_ids"
        is_made = name in out or (name == "inputs_embeds" and config.embedder.rows is not None)  # by the table
        if (is_own or is_named) and not is_made:
            out[name] = pad(name, column)
    if rows.targets is not None:
        out |= pad_targets(config, rows.targets.ids)
    elif "labels" in rows.columns:
        out["labels"] = pad("labels", rows.columns["labels"])
    elif row_labels is not None:
        out["labels"] = row_labels
    # Rows that were tokenized and split before keep the mapping to their texts.
    if config.limits.overflow and (rows.source == "texts" or "overflow_to_sample_mapping" not in rows.per_row):
        out["overflow_to_sample_mapping"] = rows.given_row
    if not rows.per_row:
        return out
    return out | other_columns(config, rows, out, width)


def _width(config: Config, ids: Ragged) -> int:
    if config.padding == "do_not_pad":
        if ids.shortest != ids.longest:
            raise value_error(
                f"without padding all rows must have one length, these have {ids.shortest} to {ids.longest} tokens",
                got="padding=False",
                fix="padding=True",
            )
        return ids.longest
    # A batch of empty rows has one column of padding.
    return round_up(config.fixed_length or max(ids.longest, 1), config.settings.pad_to_multiple_of)
