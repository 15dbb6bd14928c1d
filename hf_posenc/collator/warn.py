"""Warnings of a collator, each given once: truncated texts, columns left out, label columns with an unusual name."""

from __future__ import annotations

import difflib
import re
import warnings
from typing import TYPE_CHECKING, Any

from .._common.errors import explain, shorten
from ..documents import FURTHER_PER_TOKEN, LENGTHS, OFFSETS, Documents, supervision_message, unread_masks_message
from ..tokenization.loading import stated_limit
from .arrays import numbers
from .inputs import LABEL_COLUMNS, as_list, is_missing, label_names
from .pipeline import NOT_COPIED, Arrays

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .config import Config
    from .settings import Settings

# Names of columns that contain row numbers.
_NUMBERS_ROWS = re.compile(r"(.*_)?(id|idx|index)|__index_level_\d+__", re.IGNORECASE)


class Warnings:
    """Record of the kinds of warnings that a collator has given in this process, so that each is given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def __contains__(self, kind: str) -> bool:
        return kind in self._given

    def once(self, kind: str, message: str) -> None:
        """Give the warning `message`, unless a warning of this `kind` was given before."""
        if kind not in self._given:
            self._given.add(kind)
            warnings.warn(message, stacklevel=5)


def changed_tokenizer_warning(change: str) -> str:
    """Return the warning that a tokenizer was changed after a collator copied it."""
    return explain(
        "the tokenizer was changed after the collator was made, and the collator uses the copy that it made then",
        got=change,
        fix="collate = collate.replace(tokenizer=tokenizer), or make the collator after the change",
    )


def truncation_warning(config: Config, what: str, truncated: int, count: int, name: str) -> str:
    """Return the warning that `truncated` of `count` texts or targets were truncated.

    `what` is `"texts"` or `"targets"`, and `name` is the setting: `"max_length"` or `"max_target_length"`.
    """
    limits = config.limits if name == "max_length" else config.target_limits
    limit, model = limits.max_length, config.limited_by(name)
    larger = None if config.model is None or name != "max_length" else config.model.max_length
    if larger is not None and not (limit is not None and limit < larger and limit == stated_limit(config.tokenizer)):
        larger = None  # the limit is not the tokenizer's own
    by_tokenizer = f", tokenizer.model_max_length, and the model takes {larger}" if larger else ""
    return explain(
        f"{truncated} of {count} {what} were truncated to {limit} tokens"
        + (f", the limit of {model}" if model else by_tokenizer),
        got="no such limit was set; this warning is given once",
        fix=(f"tokenizer.model_max_length = {larger}, then make the collator; " if larger else "")
        + "return_overflowing_tokens=True keeps the rest; truncation=False raises instead; "
        + f"{name}={limit} sets the limit",
    )


def warn_of_pieces(config: Config, tokenized: Documents) -> None:
    """Warn that a batch has more rows than it was given, but not of plain texts that the batch numbers.

    The message is always the same, so that Python shows it once for each place that calls the collator.
    """
    settings, dropped = config.settings, ""
    if not tokenized.per_row and (config.accepts is None or "overflow_to_sample_mapping" in config.accepts):
        return
    if tokenized.from_texts:
        target = None if tokenized.targets is None else settings.text_target_column
        names = [name for name in (settings.text_column, settings.text_pair_column, target) if name]
        dropped = f", remove_columns={names}"
    message = explain(
        "a batch has more rows than it was given, one for each piece of a long text: predictions do not belong to the "
        "rows of the data set, and accelerate cuts those of the last batch",
        got="return_overflowing_tokens=True",
        fix=f"before Trainer.predict or evaluate, dataset = dataset.map(collate, batched=True{dropped})",
    )
    warnings.warn(message, stacklevel=5)


def left_out_warning(config: Config, left_out: int, count: int) -> str:
    """Return the warning that `left_out` of `count` rows were left out of a batch: all their labels are -100.

    With packing, `left_out` is the number of documents.
    """
    what = "documents" if config.settings.packing else f"of {count} rows"
    return explain(
        f"{left_out} {what} were left out: their labels are all -100",
        got='unsupervised="drop", so Trainer.predict returns fewer rows; this warning is given once',
        fix='unsupervised="error" names the row; "keep" keeps such rows',
    )


def masks_warning(config: Config, tokenized: Documents) -> str | None:
    """Return the warning that masks of supervision decide which tokens are trained on, or that they are not read."""
    names = tokenized.masks
    if not names or label_names(tokenized.per_row) or not set(LABEL_COLUMNS).isdisjoint(tokenized.columns):
        return None
    if config.label_kind is not None and config.label_kind.predicts_next:
        return supervision_message(tokenized.split())
    unread = [name for name in names if config.accepts is None or name not in config.accepts]
    return unread_masks_message(unread, config.settings.labels) if unread else None


def missing_target_warning(tokenized: Documents, settings: Settings) -> str | None:
    """Return a warning if the target column is missing, and another column may be meant; otherwise `None`.

    That is a column with a similar name or, if there is none, a column of texts that is not read. The name of the
    target column is `settings.text_target_column`. If there is a label column, the result is `None`.
    """
    wanted = str(settings.text_target_column)
    if tokenized.targets is not None or wanted in tokenized.per_row or label_names(tokenized.per_row):
        return None
    texts = (settings.text_column, settings.text_pair_column)
    others = {str(name).lower(): name for name in tokenized.per_row if name not in texts}
    near = difflib.get_close_matches(wanted.lower(), others, n=1)
    meant = [others[name] for name in near] or _unread_texts(tokenized, settings)
    if not meant:  # rows to predict
        return None
    return explain(
        f"column '{wanted}' is missing, so this batch has no labels",
        got=f"columns {meant}" if meant[1:] else f"column '{meant[0]}'",
        fix=f"text_target_column='{meant[0]}', if that is the target; rows to predict need none",
    )


def unmasked_warning(config: Config, tokenized: Documents) -> str:
    """Return the warning that a tokenized row begins or ends with padding ids, and no mask says that they are."""
    row, ids = tokenized.unmasked, tokenized.ids
    assert row is not None
    return explain(
        f"row {row} begins or ends with the padding id {config.fills['input_ids']}, and the rows have no "
        "attention_mask: padding counts as tokens",
        got=f"input_ids {shorten(ids.values[ids.offsets[row] : ids.offsets[row + 1]].tolist())}",
        fix="keep the tokenizer's column attention_mask, or leave the padding out of the rows",
    )


def numbering_warning(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the warning that position ids begin at 0, but the model of this tokenizer may count from 2."""
    return explain(
        "position_ids count from 0, and models with a vocabulary like this one, such as RoBERTa, count from 2",
        got=f"{type(tokenizer).__name__} with padding id 1, and no model; this warning is given once",
        fix="model=model, which gives the model's own numbers",
    )


def warn_of_columns(config: Config, tokenized: Documents, arrays: Arrays, given: Warnings) -> None:
    """Warn about columns of the input that are not in the batch, and about missing labels.

    `arrays` is the batch by name. `given` records earlier warnings, so that each is given once.
    """
    settings, model = config.settings, config.model
    texts = {settings.text_column, settings.text_pair_column, settings.text_target_column}
    read = {*texts, *NOT_COPIED, "inputs_embeds"}
    if tokenized.from_texts:  # those of texts say nothing about tokens
        read -= {*LENGTHS, *OFFSETS}
    # With a model too, a text that is not read is named, because it may be the forgotten second text of pairs.
    unread = [] if settings.text_pair_column or settings.packing else _unread_texts(tokenized, settings)
    if settings.text_target_column not in (None, *tokenized.per_row):  # the warning of missing targets names them
        read |= {*unread}
        unread = []
    accepts = tokenized.per_row if config.accepts is None else config.accepts.union(unread)
    left_out = [name for name in tokenized.per_row if name in accepts and name not in read and name not in arrays]
    if left_out:
        message = explain(
            f"columns {left_out} are not in the batch",
            got="packed rows hold several documents, so only columns with one value per token are kept"
            if settings.packing
            else "texts, empty lists, or None in every row, which no tensor can hold",
            fix=f"dataset.remove_columns({left_out}), or map them to numbers first"
            + (f"; {_column_of(unread[0], config)}" if unread else ""),
        )
        given.once("columns", message)
    is_fitted = model is not None and not tokenized.from_texts  # without a model, they are arrays or named above
    per_token = _unread_per_token(tokenized, {*map(str, read), *arrays, *FURTHER_PER_TOKEN}) if is_fitted else []
    if model is not None and per_token:
        message = explain(
            f"columns {per_token} have one value per token, and they are not read",
            got=f"{model.name} takes none of these names",
            fix=f"dataset.remove_columns({per_token}); document_ids or seq_lengths divide a row into documents, and "
            "completion_mask selects the tokens to train on",
        )
        given.once("per token", message)
    if model is None or "labels" not in model.accepts or "labels" in arrays:
        return
    if any(name in tokenized.per_row for name in LABEL_COLUMNS) or (unread and model.is_encoder_decoder):
        return
    known = {*model.accepts, *read, "overflow_to_sample_mapping"}
    candidates = [
        name
        for name in tokenized.per_row
        if name not in known
        and ("label" in name.lower() or not _NUMBERS_ROWS.fullmatch(name))
        and _holds_numbers(tokenized, name)
    ]
    if candidates:
        likely = max(candidates, key=_likeness)
        message = explain(
            f"{model.name} takes labels and these rows have none: column '{likely}' is not in the batch",
            got="no column 'label', 'label_ids' or 'labels'",
            fix=f"dataset.rename_column('{likely}', 'labels') if it holds them, "
            f"else dataset.remove_columns('{likely}')",
        )
        given.once("label", message)
    elif config.is_training and model.num_labels == model.num_embeddings:  # a language model: its classes are the ids
        if model.is_encoder_decoder:
            fix = 'text_target_column="target", the column of the texts to predict'
        else:
            fix = 'labels="causal_lm"' if model.shifts_labels else 'labels="masked_lm"'
        message = explain(
            f"{model.name} is in training mode, and this batch has no labels: the model will return no loss",
            got=f"labels={settings.labels!r}, and rows without labels",
            fix=f"{fix}; or model.eval() if it is not trained",
        )
        given.once("label", message)


def _unread_per_token(tokenized: Documents, read: set[str]) -> list[str]:
    """Return the names of the columns that have as many values as tokens in the first row, which has several."""
    found = []
    for name, values in tokenized.per_row.items():
        row: Any = next(iter(as_list(values)), None)
        is_list = isinstance(row, list | tuple) or getattr(row, "ndim", 0) == 1
        if name not in read and is_list and 1 < len(row) == tokenized.ids.lengths[0] and "label" not in name.lower():
            found.append(name)
    return found


def _column_of(name: str, config: Config) -> str:
    """Return the setting that reads a further column of texts: the targets of an encoder-decoder, or second texts."""
    if config.model is not None and config.model.is_encoder_decoder:
        return f"text_target_column='{name}', if it holds the targets"
    return f"text_pair_column='{name}', if it holds the second texts of pairs"


def _likeness(name: str) -> float:
    return max(difflib.SequenceMatcher(None, name.lower(), word).ratio() for word in ("labels", "target"))


def _unread_texts(tokenized: Documents, settings: Settings) -> list[str]:
    """Return the names of the columns of texts beside the texts that were tokenized, without those that number rows."""
    if not tokenized.from_texts:
        return []
    read = (settings.text_column, settings.text_pair_column, settings.text_target_column)
    found = []
    for name, values in tokenized.per_row.items():
        if name in read or _NUMBERS_ROWS.fullmatch(str(name)):
            continue
        plain = (value.as_py() if hasattr(value, "as_py") else value for value in values)
        value = next((value for value in plain if not is_missing(value)), None)
        if settings.is_split_into_words and isinstance(value, list | tuple) and value:
            value = value[0]
        if isinstance(value, str):
            found.append(name)
    return found


def _holds_numbers(tokenized: Documents, name: str) -> bool:
    """Return True if column `name` contains numbers or lists of numbers, judged by its first value that is not None."""
    value = next((value for value in as_list(tokenized.per_row[name]) if not is_missing(value)), None)
    try:
        array = None if value is None else numbers(value, 0, name)
    except (TypeError, ValueError):
        return False
    return array is not None and array.ndim < 2
