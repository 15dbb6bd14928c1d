"""Warnings of a collator, each given once.

`warn_of_tokens` is called after tokenization, `warn_of_batch` for each batch, and `warn_of_source` for what was given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.constants import IGNORED
from .._common.errors import explain, warn
from ..documents import LABEL_COLUMNS, LENGTHS, OFFSETS, PER_TOKEN, Documents
from ..ragged import Ragged
from .inputs import Messages, label_names
from .other_columns import NOT_COPIED
from .pipeline import Arrays

if TYPE_CHECKING:
    from ..tokenization.watching import WatchedTokenizer
    from .config import Config

# Names of columns that contain row numbers.
_NUMBERS_ROWS = re.compile(r"(.*_)?(id|idx|index)|__index_level_\d+__", re.IGNORECASE)


class Warnings:
    """Record of the kinds of warnings that a collator has given in this process, so that each is given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def __contains__(self, kind: str) -> bool:
        return kind in self._given

    def once(self, kind: str, rule: str, *, got: object = None, fix: str | None = None) -> None:
        """Give a warning, unless one of this `kind` was given before."""
        if kind not in self._given:
            self._given.add(kind)
            warn(rule, got=got, fix=fix)


def warn_of_tokens(
    config: Config, tokenized: Documents, messages: Messages, tokenizers: Sequence[WatchedTokenizer], history: Warnings
) -> None:
    """Warn of tokens lost to a limit that the user did not set, of changed `tokenizers`, and by `messages`."""
    settings = config.settings
    for name, rows in (("max_length", tokenized), ("max_target_length", tokenized.targets)):
        if rows is not None and rows.truncated and getattr(settings, name) is None:
            history.once(name, _truncation(config, rows, name))
    if changes := [change for tokenizer in tokenizers for change in tokenizer.changes()]:
        history.once(
            "tokenizer",
            "the tokenizer was changed after the collator was made, and the collator uses the copy that it made then",
            got=changes[0],
            fix="collate = collate.replace(tokenizer=tokenizer), or make the collator after the change",
        )
    for kind, message in messages.items():
        history.once(kind, message)
    _warn_of_stored_batch(config, tokenized, history)


def _warn_of_stored_batch(config: Config, rows: Documents, history: Warnings) -> None:
    """Warn of rows that `map` stored from a padded batch: with a mask of T×T values, or with tokens that are masked."""
    fix = "dataset.map(collate.columns, input_columns='text', batched=True) stores the ids alone"
    if "look_ahead_mask" in rows.per_row and rows.source == "ids":
        history.once(
            "stored mask",
            "these rows were stored from a padded batch: look_ahead_mask has T×T values for each of them",
            got="column 'look_ahead_mask', as of dataset.map(collate, input_columns=...); given once",
            fix=f"{fix}; or dataset.remove_columns('look_ahead_mask')",
        )
    labels = [rows.columns[name].values for name in LABEL_COLUMNS if name in rows.columns]
    if labels and config.label_maker is None:  # with one, they are refused
        is_masked = rows.ids.values == config.tokenizer.mask_token_id
        if np.any(is_masked & (labels[0] != IGNORED) & (labels[0] != rows.ids.values)):
            history.once(
                "stored labels",
                "tokens of these rows are masked already: they were drawn once, and are the same in each epoch",
                got=f"labels at {config.tokenizer.mask_token}, as of a batch that was stored; given once",
                fix=f"{fix}, and masked labels are drawn for each batch",
            )


def _truncation(config: Config, rows: Documents, name: str) -> str:
    """Return the warning that texts or given rows were truncated to `max_length`, or targets to `max_target_length`."""
    what, count = "texts" if rows.source == "texts" else "rows", len(np.unique(rows.given_row))
    if name == "max_target_length":
        what = "targets"
    elif config.settings.packing and what == "rows":  # the documents of given rows are truncated one by one
        what, count = "documents", len(rows.ids)
    limits = config.limits if name == "max_length" else config.target_limits
    limit, model = limits.max_length, config.limited_by(name)
    is_tokenizers = limits.set_by == "tokenizer" and config.model is not None and name == "max_length"
    larger = config.model.max_length if is_tokenizers and config.model is not None else None
    by_tokenizer = f", tokenizer.model_max_length, and the model takes {larger}" if larger else ""
    return explain(
        f"{rows.truncated} of {count} {what} were truncated to {limit} tokens"
        + (f", the limit of {model}" if model else by_tokenizer),
        got="no such limit was set; this warning is given once",
        fix=(f"tokenizer.model_max_length = {larger}, then make the collator; " if larger else "")
        + ("return_overflowing_tokens=True keeps the rest; " if what != "targets" else "")
        + "truncation=False raises instead; "
        + f"{name}={limit} sets the limit",
    )


def warn_of_batch(config: Config, tokenized: Documents, arrays: Arrays, left_out: int, history: Warnings) -> None:
    """Warn of what a batch has: packed documents, positions that count from 0, fewer rows, masks.

    `arrays` is the batch by name, and `left_out` the number of rows, or packed documents, that are not in it.
    """
    settings, model = config.settings, config.model
    if model is None and settings.look_ahead is None and "packed" not in history:
        numbers = arrays.get("document_ids", arrays.get("seq_idx"))
        if numbers is not None and int(numbers.max(initial=0)) > 0:
            of_packing = f"packing={settings.packing!r}" if settings.packing else "rows of several documents"
            history.once(
                "packed",
                "packed documents attend to each other, unless the model gets a mask or positions that keep them apart",
                got=f"{of_packing}, model=None",
                fix="model=model, which fits the batch to it; or look_ahead=False, and "
                "AttentionMask.from_batch(batch).for_hf(model) in your own loop",
            )
    if left_out:
        unit = "documents" if settings.packing else f"of {len(tokenized.ids)} rows"
        history.once(
            "on_no_labels",
            f"{left_out} {unit} were left out: their labels are all -100",
            got='on_no_labels="skip", so Trainer.predict returns fewer rows; this warning is given once',
            fix='on_no_labels="error" names the row; "keep" keeps such rows',
        )
    given = tokenized.columns.get("position_ids")
    if config.may_count_from_2 and (given is None or given.values.min(initial=2) < 2):
        history.once(
            "positions",
            "position_ids count from 0, and models with a vocabulary like this one, such as RoBERTa, count from 2",
            got=f"{type(config.tokenizer).__name__} with padding id 1, and no model; this warning is given once",
            fix="model=model, which gives the model's own numbers",
        )
    may_have_masks = tokenized.masks or tokenized.per_row
    if may_have_masks and "masks" not in history and (message := _supervision(config, tokenized)):
        history.once("masks", message)


def _supervision(config: Config, tokenized: Documents) -> str | None:
    """Return the warning that masks decide which tokens are trained on, or that they or other values are not read."""
    if tokenized.source == "texts":
        names = [name for name in PER_TOKEN if name in tokenized.per_row]
        message = explain(
            f"columns {names} came with texts and are not read: they have values of tokens, and there are none yet",
            got="texts; this warning is given once",
            fix=f"rows of input_ids with them; or dataset.remove_columns({names})",
        )
        return message if names else None
    if not tokenized.masks or tokenized.source in ("conversations", "prompts"):
        return None
    documents = tokenized.split()
    labels = next((documents.columns[name] for name in LABEL_COLUMNS if name in documents.columns), None)
    if config.label_kind is not None and config.label_kind.predicts_next:
        labels = documents.ids
    if labels is not None or config.label_kind is not None:
        return supervision_message(documents, labels, config.predicts_next)
    unread = [name for name in tokenized.masks if config.accepts is None or name not in config.accepts]
    return unread_masks_message(unread, config.settings.labels) if unread else None


def supervision_message(documents: Documents, labels: Ragged | None, predicts_next: bool | None) -> str:
    """Return the warning that only the tokens of masks, such as `completion_mask`, are targets.

    Each row of `documents` is one document. The share of targets is named if the labels are known.
    """
    names, share, got = documents.masks, "", "the first rows; this warning is given once"
    if "loss_mask" in names:
        mask = documents.columns["loss_mask"]
        last = mask.values[mask.offsets[1:][mask.lengths > 0] - 1]
        got = (
            f"rows with 0 at the last token of {np.count_nonzero(last == 0)} of {len(last)} documents. 1 marks "
            "the token to be learnt itself; in verl before 0.5 and NeMo it marks the token before"
        )
    if labels is not None:
        targets, _ = documents.supervise(labels, predicts_next=predicts_next)
        share = f": {np.count_nonzero(targets.values != IGNORED) / max(1, len(targets.values)):.0%} of the tokens"
    return explain(
        f"only the tokens with 1 in {' and '.join(map(repr, names))} are trained on{share}",
        got=got,
        fix=f"dataset.remove_columns({names}) to train on all tokens",
    )


def unread_masks_message(names: Sequence[str], labels: object) -> str:
    """Return the warning that masks of supervision have no effect, because there are no labels."""
    return explain(
        f"columns {list(names)} are not read: they select which labels are trained on, and there are none",
        got=f"labels={labels!r}; this warning is given once",
        fix=f'labels="causal_lm", or dataset.remove_columns({list(names)})',
    )


def warn_of_source(
    config: Config, tokenized: Documents, arrays: Arrays, history: Warnings, *, is_training: bool
) -> None:
    """Warn of rows that became several, of columns that are not read, and of missing labels for a language model.

    `arrays` is the batch by name, and `is_training` is True if the model is in training mode.
    """
    settings, model = config.settings, config.model
    if settings.return_overflowing_tokens and len(arrays["input_ids"]) > len(np.unique(tokenized.given_row)):
        _warn_of_pieces(config, tokenized)
    read = {*settings._text_columns, *tokenized.text_columns, *NOT_COPIED, *arrays}
    read |= {"inputs_embeds", "overflow_to_sample_mapping", "attention_mask"}
    if tokenized.source == "texts":  # lengths say nothing about tokens; masks are named by `warn_of_batch`
        read = (read - {*LENGTHS, *OFFSETS}) | {*PER_TOKEN}
    unread = [name for name in tokenized.per_row if name not in read]
    unread += [name for name in settings.token_columns if name not in arrays]
    unread = [name for name in unread if not _numbers_rows(name, tokenized.per_row.get(name))]
    if unread:
        reason = "texts, empty lists, or None in every row, which no tensor can hold"
        if settings.packing:
            reason = "packed rows hold several documents, so only columns with one value per token are kept"
        elif model is not None:
            reason = f"{model.name} takes none of these names, or they hold no numbers"
        history.once(
            "columns",
            f"columns {unread} are not in the batch",
            got=reason,
            fix=f"dataset.remove_columns({unread}), if they are not needed; a column of labels must be named labels, "
            "and text_pair_column and text_target_column name the columns of further texts",
        )
    has_labels = not set(LABEL_COLUMNS).isdisjoint(tokenized.columns) or label_names(tokenized.per_row)
    if not config.takes("labels") or "labels" in arrays or has_labels:
        return
    if empty := [name for name in LABEL_COLUMNS if name in tokenized.per_row]:
        history.once(
            "empty labels",
            f"column '{empty[0]}' is None in every row of this batch, which has no labels",
            got=f"labels={settings.labels!r}; this warning is given once",
            fix=f"dataset.remove_columns({empty}), if the rows have no labels; otherwise check how the column is made",
        )
    elif model is None:
        return
    elif is_training and model.num_labels == model.num_embeddings:  # a language model: its classes are the ids
        if model.is_encoder_decoder:
            fix = 'text_target_column="target", the column of the texts to predict'
        else:
            fix = 'labels="causal_lm"' if model.shifts_labels else 'labels="masked_lm"'
        history.once(
            "label",
            f"{model.name} is in training mode, and this batch has no labels: the model will return no loss",
            got=f"labels={settings.labels!r}, and rows without labels",
            fix=f"{fix}; or model.eval() if it is not trained",
        )
    elif settings.packing and settings.padding_side == "left" and model.shifts_labels:
        history.once(
            "packed prompts",
            "packed rows hold several prompts, and generate continues rows",
            got=f"packing={settings.packing!r}, padding_side='left', and no labels",
            fix="packing=False, if the rows are prompts of generate",
        )


def _warn_of_pieces(config: Config, tokenized: Documents) -> None:
    """Warn that a batch has more rows than it was given, but not of plain texts that the batch numbers."""
    # The message is always the same, so that Python shows it once for each place that calls the collator.
    settings, dropped = config.settings, ""
    if not tokenized.per_row and config.takes("overflow_to_sample_mapping"):
        return
    if tokenized.source == "texts":
        target = None if tokenized.targets is None else settings.text_target_column
        names = [name for name in (settings.text_column, settings.text_pair_column, target) if name]
        dropped = f", remove_columns={names}"
    warn(
        "a batch has more rows than it was given, one for each piece of a long row: predictions do not belong to the "
        "rows of the data set, and accelerate cuts those of the last batch",
        got="return_overflowing_tokens=True",
        fix=f"before Trainer.predict or evaluate, dataset = dataset.map(collate, batched=True{dropped})",
    )


def _numbers_rows(name: object, values: Any) -> bool:
    """Return True for a column of row numbers: one value per row, and a usual name."""
    first = None if values is None else next(iter(values), None)
    is_scalar = isinstance(first, str) or not hasattr(first, "__len__")
    return values is not None and is_scalar and bool(_NUMBERS_ROWS.fullmatch(str(name)))
