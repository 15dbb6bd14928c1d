"""The CPU stage of one collator: its tokenizer and settings, ready to turn what is given into arrays.

Puts the rooms of this folder together; tensors, embeddings and warnings are the collator's.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from .._explain import explain
from ..sinusoid import resolve_convention
from ..tokenization.encoding import Encoder
from ..tokenization.loading import private_copy
from .arrange import PER_TOKEN, Pieces, pieces
from .arrangement import Arrangement
from .columns import is_missing, numbers
from .fitting import (
    decoder_start,
    limit_of,
    numbering,
    padding_shifts_tokens,
    taken_by,
    target_limit_of,
    wants_look_ahead,
    was_looked_at,
)
from .inputs import TextColumns, as_list, read
from .labels import IGNORED, LABEL_COLUMNS, Masking, label_names
from .rectangle import NO_TENSORS, Arrays, rectangle
from .settings import Settings, padding_of, truncation_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Names of columns that number the rows.
_NUMBERS_ROWS = re.compile(r"(.*_)?(id|idx|index)|__index_level_\d+__", re.IGNORECASE)


class Stage:
    r"""Reads, tokenises, arranges and pads, with one tokenizer and one set of settings.

    Args:
        settings (`Settings`): checked ones.
        tokenizer (`PreTrainedTokenizerBase`): a private copy.
        table_rows (`int`, *optional*): how many ids can be embedded, where there is a table.

    Raises:
        ValueError: if the tokenizer cannot do what the settings ask for.
    """

    def __init__(self, settings: Settings, tokenizer: PreTrainedTokenizerBase, table_rows: int | None) -> None:
        self.names = TextColumns(
            settings.text_column, settings.text_pair_column, settings.text_target_column, settings.is_split_into_words
        )
        self.how = self._arrangement(settings, tokenizer, table_rows)
        self.shifts = settings.model is not None and padding_shifts_tokens(settings.model, self.how.side)
        self._check(settings, tokenizer)
        self.encoder = self._encoder(settings, tokenizer, self.how.limit, targets=False)
        self.target_encoder: Encoder | None = None
        if settings.text_target_column is not None:
            target = private_copy(tokenizer)
            self.target_encoder = self._encoder(settings, target, self.how.target_limit, targets=True)
        self.masking: Masking | None = None
        if settings.labels == "masked_lm":
            self.masking = Masking(
                tokenizer,
                seed=settings.seed,
                mlm_probability=settings.mlm_probability,
                mask_replace_prob=settings.mask_replace_prob,
                random_replace_prob=settings.random_replace_prob,
                whole_word_mask=settings.whole_word_mask,
            )

    def pieces(self, given: object) -> Pieces:
        """What is given, tokenised and held to the limit."""
        return pieces(self.how, read(given, self.names), self.encoder, self.target_encoder)

    def arrays(self, rows: Pieces) -> Arrays:
        """The rows as one rectangle, with everything that belongs to a padded batch."""
        return rectangle(self.how, rows, self.masking)

    def left_out(self, rows: Pieces, arrays: Arrays) -> list[str]:
        """Return the columns that came and are not in the arrays, without those that were read and tokenised."""
        read = {*self.names, *NO_TENSORS, "inputs_embeds"}
        accepts = rows.columns if self.how.accepts is None else self.how.accepts
        return [name for name in rows.columns if name in accepts and name not in read and name not in arrays]

    def target_meant(self, rows: Pieces) -> str | None:
        """Return the column whose name is close to a missing `text_target_column`, if rows without targets have one."""
        wanted = self.names.target
        if wanted is None or rows.targets is not None or wanted in rows.columns or label_names(rows.columns):
            return None
        others = {name.lower(): name for name in rows.columns if name not in (self.names.text, self.names.pair)}
        near = difflib.get_close_matches(wanted.lower(), others, n=1)
        return others[near[0]] if near else None

    def label_meant(self, rows: Pieces, arrays: Arrays) -> str | None:
        """Return the likeliest label column of rows without labels, for a model that names labels: one of numbers."""
        accepts = self.how.accepts or frozenset()
        if "labels" not in accepts or "labels" in arrays or any(name in rows.columns for name in LABEL_COLUMNS):
            return None
        known = {*accepts, *self.names, *NO_TENSORS, "inputs_embeds", "overflow_to_sample_mapping"}
        found = [
            name
            for name in rows.columns
            if name not in known
            and ("label" in name.lower() or not _NUMBERS_ROWS.fullmatch(name))
            and _holds_numbers(rows, name)
        ]

        def likeness(name: str) -> float:
            return max(difflib.SequenceMatcher(None, name.lower(), one).ratio() for one in ("labels", "target"))

        return max(found, key=likeness, default=None)

    @staticmethod
    def _arrangement(settings: Settings, tokenizer: PreTrainedTokenizerBase, table_rows: int | None) -> Arrangement:
        spec, embeds = settings.model, table_rows is not None
        start, padding_position = numbering(spec, resolve_convention(settings.convention), embeds=embeds)
        writes = spec is not None and spec.is_encoder_decoder and spec.shifts_labels and settings.labels is None
        has_targets = settings.text_target_column is not None or bool(writes)
        limit = limit_of(tokenizer, settings.max_length, spec)
        target_limit = target_limit_of(tokenizer, settings.max_target_length, spec)
        known = [rows for rows in (table_rows, spec and spec.num_embeddings) if rows is not None]
        fills = dict.fromkeys(PER_TOKEN, 0) | {"special_tokens_mask": 1, "word_ids": -1, "document_ids": -1}
        fills |= dict.fromkeys(LABEL_COLUMNS, IGNORED)
        fills["input_ids"] = int(tokenizer.pad_token_id or 0)
        fills["token_type_ids"] = int(tokenizer.pad_token_type_id)
        fills["position_ids"] = padding_position
        return Arrangement(
            limit=limit,
            limited_by=taken_by(spec, "max_length", limit),
            padding=padding_of(settings.padding),
            truncation=truncation_of(settings.truncation),
            multiple=settings.pad_to_multiple_of,
            side=settings.padding_side or tokenizer.padding_side,
            truncation_side=tokenizer.truncation_side,
            overflow=settings.return_overflowing_tokens,
            stride=settings.stride,
            keep_empty=settings.empty == "keep",
            look_ahead=wants_look_ahead(spec, settings.look_ahead),
            packing=settings.packing,
            labels=settings.labels,
            shifts_labels=bool(spec.shifts_labels) if spec is not None and was_looked_at(spec) else None,
            has_targets=has_targets,
            target_limit=target_limit,
            targets_limited_by=taken_by(spec, "max_target_length", target_limit),
            decoder_start=decoder_start(spec, tokenizer) if has_targets else None,
            start=start,
            model_start=0 if spec is None or embeds else spec.first_position,
            names=tuple(tokenizer.model_input_names),
            fills=fills,
            accepts=None if spec is None else frozenset(spec.accepts),
            known_ids=min(known, default=None),
            embeds=embeds,
        )

    def _encoder(
        self, settings: Settings, tokenizer: PreTrainedTokenizerBase, limit: int | None, *, targets: bool
    ) -> Encoder:
        return Encoder(
            tokenizer,
            max_length=limit,
            truncation=self.how.truncation,
            overflow=settings.return_overflowing_tokens and not targets,
            stride=settings.stride,
            add_special_tokens=settings.add_special_tokens,
            is_split_into_words=settings.is_split_into_words,
            words=settings.whole_word_mask and not targets,
            targets=targets,
        )

    def _check(self, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> None:
        """What only the tokenizer can say about the settings."""
        how = self.how
        if tokenizer.pad_token_id is None and how.padding != "do_not_pad":
            raise ValueError(_no_pad_token(tokenizer))
        if settings.packing and how.limit is None:
            raise ValueError(
                explain("packing=True needs the capacity of a row", got="max_length=None", fix="max_length=1024")
            )
        special = 0
        if settings.add_special_tokens:
            special = int(tokenizer.num_special_tokens_to_add(pair=settings.text_pair_column is not None))
        _check_room(how, special, targets=settings.text_target_column is not None)


def _holds_numbers(rows: Pieces, name: str) -> bool:
    """Return True if the first value of a column that is not None is a number, or a list of numbers."""
    value = next((value for value in as_list(rows.columns[name]) if not is_missing(value)), None)
    try:
        array = None if value is None else numbers(value, 0, name)
    except (TypeError, ValueError):
        return False
    return array is not None and array.ndim < 2


def _check_room(how: Arrangement, special: int, *, targets: bool) -> None:
    """Raises, with the figures, where the limit on a row's length cannot be kept."""
    decoder = how.target_limit if targets and how.targets_limited_by else None
    if decoder is not None and how.multiple is not None and decoder % how.multiple:
        raise ValueError(_no_multiple("max_target_length", decoder, how.multiple))
    if how.limit is None:
        if how.padding == "max_length":
            raise ValueError(
                explain(
                    'padding="max_length" needs a length, and neither the collator nor the tokenizer has one',
                    got="max_length=None",
                    fix="max_length=512",
                )
            )
        return
    if how.truncation == "do_not_truncate":
        return
    needed = special + (how.stride + 1 if how.overflow else 0)
    if how.limit < needed:
        raise ValueError(
            explain(
                f"max_length must leave room for {special} special tokens"
                + (", the stride and one new token" if how.overflow else ""),
                got=f"max_length={how.limit}" + (f", stride={how.stride}" if how.overflow else ""),
                fix=f"max_length={max(needed, special + 1)} or more",
            )
        )
    if how.multiple is not None and how.padding != "do_not_pad" and how.limit % how.multiple:
        raise ValueError(_no_multiple("max_length", how.limit, how.multiple))


def _no_multiple(name: str, limit: int, multiple: int) -> str:
    return explain(
        f"{name} must be a multiple of pad_to_multiple_of, or padding would go beyond it",
        got=f"{name}={limit}, pad_to_multiple_of={multiple}",
        fix=f"{name}={max(limit // multiple, 1) * multiple}",
    )


def _no_pad_token(tokenizer: PreTrainedTokenizerBase) -> str:
    """The message for a tokenizer that cannot pad, with two ways out that can be pasted."""
    spare = tokenizer.unk_token if tokenizer.unk_token != tokenizer.eos_token else None
    other = (
        f'pad_token="{spare}"' if spare is not None else 'tokenizer.add_special_tokens({"pad_token": "[PAD]"}) before'
    )
    return explain(
        f"this {type(tokenizer).__name__} has no padding token",
        got="pad_token=None",
        fix=('pad_token="eos"' if tokenizer.eos_token is not None else 'pad_token="..."') + f", or {other}",
    )
