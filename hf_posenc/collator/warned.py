"""What is said in a warning, once: limits that are lower than asked, rows that were cut, snapshots, shifting padding.

Words only; what raises instead is in `refusals`, or where the value is used.
"""

from __future__ import annotations

from .._explain import explain


def beyond(name: str, asked: int, limit: int, whose: str | None) -> str:
    """A limit was asked for that is not in force, because the tokenizer, or the model of that name, takes less."""
    if whose is not None:
        return explain(f"{name}={asked} is beyond what {whose} takes, so {limit} is in force", fix=f"{name}={limit}")
    return explain(
        f"{name}={asked} is beyond the tokenizer's own limit, so {limit} is in force",
        fix=f"tokenizer.model_max_length = {asked}, if the model takes that many",
    )


def were_cut(what: str, cut: int, count: int, limit: int | None, whose: str | None, more: int | None = None) -> str:
    """Return the warning about texts or targets that lost tokens to a limit: that of the model `whose` name is given,
    or the tokenizer's, where the model takes `more`.
    """
    by_tokenizer = f", tokenizer.model_max_length, and the model takes {more}" if more else ""
    return explain(
        f"{cut} of {count} {what} were cut to {limit} tokens"
        + (f", all that {whose} takes" if whose else by_tokenizer),
        got="the limit is not one that was asked for; this warning is given once",
        fix=(f"tokenizer.model_max_length = {more}, then make the collator; " if more else "")
        + "return_overflowing_tokens=True keeps the rest; truncation=False raises instead; "
        + f"{'max_target_length' if what == 'targets' else 'max_length'}={limit} asks for it",
    )


def left_out(names: list[str], *, packed: bool) -> str:
    """Return the warning for columns that came and are not in the batch."""
    return explain(
        f"columns {names} are not in the batch",
        got="packed rows hold several documents, and only values per token"
        if packed
        else "texts, empty lists, or None in every row: no tensor holds them",
        fix=f"dataset.remove_columns({names}), or map them to numbers first",
    )


def target_missing(wanted: str, meant: str) -> str:
    """Return the warning for rows without the column of targets that have one of nearly the same name."""
    return explain(
        f"column '{wanted}' is missing, so this batch has no labels",
        got=f"column '{meant}'",
        fix=f"text_target_column='{meant}', if that is the target",
    )


def label_missing(whose: str, meant: str) -> str:
    """Return the warning for rows without labels, and with a column of numbers that the model does not take."""
    return explain(
        f"{whose} takes labels and these rows bring none: column '{meant}' is not in the batch",
        got="no column 'label', 'label_ids' or 'labels'",
        fix=f"dataset.rename_column('{meant}', 'labels') if it holds them, else dataset.remove_columns('{meant}')",
    )


def snapshot() -> str:
    """A table that trains was embedded without gradient."""
    return explain(
        "collate(...) embeds with the weights of this moment and without gradient",
        got="a trainable table in training mode",
        fix="collate.embed(batch) inside the training loop; under Trainer let the model embed input_ids",
    )


def padding_shifts(whose: str) -> str:
    """A model counts padding on the left, or reads it, as if it were tokens."""
    return explain(
        f"padding on the left changes what {whose} says of the tokens behind it, and it takes no position_ids",
        got='padding_side="left"',
        fix='padding_side="right", or rows of one length',
    )
