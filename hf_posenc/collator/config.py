"""The resolved configuration of a collator: settings, tokenizer, model and embedding.

It is made once and does not change. The functions of the other modules take it as an argument.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._explain import explain, one_of
from ..model_spec import ModelSpec
from ..ragged import PaddingSide
from ..rows import IGNORED, Encoder, Limits
from ..sinusoid import resolve_convention
from ..tokenization.loading import private_copy, stated_limit
from .embed import Embedder
from .fit import check_fit, decoder_start, numbering, was_examined
from .labels import LABEL_COLUMNS, LABEL_KINDS, LabelKind, LabelMaker
from .settings import Padding, Settings, padding_of, truncation_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Columns with one value per token that given rows of ids may contain.
PER_TOKEN = ("token_type_ids", "attention_mask", "position_ids", "document_ids", "special_tokens_mask", "word_ids")


@dataclass(frozen=True, eq=False)
class Config:
    r"""Resolved configuration: everything that the output of a collator depends on.

    Args:
        settings (`Settings`): the arguments.
        tokenizer (`PreTrainedTokenizerBase`): a private copy.
        model (`ModelSpec`, *optional*): the model to fit.
        embedder (`Embedder`): the table behind `embedding=`.
        limits, target_limits (`Limits`): limits on the tokens of rows and of targets.
        padding (`str`), side (`"left"` or `"right"`): as in transformers.
        encoder, target_encoder (`Encoder`): encoders of texts and of target texts.
        label_maker (callable, *optional*): makes labels from the ids.
        label_kind (`LabelKind`, *optional*): the entry of `LABEL_KINDS` for these labels.
        first_position (`int`): position of a row's first token.
        fills (`dict` from `str` to `int`): padding value of each column.
        has_targets (`bool`): True if labels are token sequences of their own.
        decoder_start (`int`, *optional*): first id of `decoder_input_ids`, if the collator makes them.
        number_of_ids (`int`, *optional*): number of rows of the table or of the model's embedding.
    """

    settings: Settings
    tokenizer: PreTrainedTokenizerBase
    model: ModelSpec | None
    embedder: Embedder
    limits: Limits
    target_limits: Limits
    padding: Padding
    side: PaddingSide
    encoder: Encoder
    target_encoder: Encoder | None
    label_maker: LabelMaker | None
    label_kind: LabelKind | None
    first_position: int
    fills: dict[str, int]
    has_targets: bool
    decoder_start: int | None
    number_of_ids: int | None

    @classmethod
    def of(cls, settings: Settings) -> Config:
        r"""Return the configuration for the given settings.

        Args:
            settings (`Settings`): checked settings.

        Raises:
            ValueError, TypeError: for settings that are incompatible with the tokenizer, the model or the embedding.
        """
        if settings.labels not in (None, *LABEL_KINDS):
            raise ValueError(one_of("labels", settings.labels, (None, *LABEL_KINDS)))
        tokenizer = private_copy(settings.tokenizer, pad_token=settings.pad_token)
        model = None if settings.model is None else ModelSpec.of(settings.model)
        embedder = Embedder(settings, tokenizer)
        if model is not None:
            check_fit(settings, model, tokenizer)
        truncation = truncation_of(settings.truncation)
        limits = Limits(
            _max_length(settings, tokenizer, model, embedder.max_length),
            truncation,
            overflow=settings.return_overflowing_tokens,
            stride=settings.stride,
        )
        target_limits = Limits(_max_target_length(settings, tokenizer, model), truncation)
        first, padding_position = numbering(
            model, resolve_convention(embedder.settings["convention"]), embeds=embedder.rows is not None
        )
        targets_by_model = model is not None and model.is_encoder_decoder and model.shifts_labels
        has_targets = settings.text_target_column is not None or bool(targets_by_model and settings.labels is None)
        kind = None if settings.labels is None else LABEL_KINDS[settings.labels]
        fills = dict.fromkeys(PER_TOKEN, 0) | {"special_tokens_mask": 1, "word_ids": -1, "document_ids": -1}
        fills |= dict.fromkeys(LABEL_COLUMNS, IGNORED)
        fills["input_ids"] = int(tokenizer.pad_token_id or 0)
        fills["token_type_ids"] = int(tokenizer.pad_token_type_id)
        fills["position_ids"] = padding_position
        rows = (embedder.rows, None if model is None else model.num_embeddings)
        _check_lengths(settings, tokenizer, model, limits, target_limits)
        options: dict[str, Any] = {
            "add_special_tokens": settings.add_special_tokens,
            "is_split_into_words": settings.is_split_into_words,
        }
        target_encoder = None
        if settings.text_target_column is not None:
            target_encoder = Encoder(private_copy(tokenizer), target_limits, targets=True, **options)
        return cls(
            settings=settings,
            tokenizer=tokenizer,
            model=model,
            embedder=embedder,
            limits=limits,
            target_limits=target_limits,
            padding=padding_of(settings.padding),
            side=settings.padding_side or tokenizer.padding_side,
            encoder=Encoder(tokenizer, limits, word_ids=settings.whole_word_mask, **options),
            target_encoder=target_encoder,
            label_maker=None if kind is None else kind.maker(settings, tokenizer),
            label_kind=kind,
            first_position=first,
            fills=fills,
            has_targets=has_targets,
            decoder_start=decoder_start(model, tokenizer) if has_targets else None,
            number_of_ids=_smallest(*rows),
        )

    @property
    def in_force(self) -> dict[str, Any]:
        """Settings after resolution, such as the smallest limit; they become attributes of the collator."""
        return {
            **self.settings.settings(),
            "tokenizer": self.tokenizer,
            "embedding": self.settings.embedding,
            "model": self.model,
            "max_length": self.limits.max_length,
            "max_target_length": self.target_limits.max_length,
            **self.embedder.settings,
        }

    @property
    def saved(self) -> dict[str, Any]:
        """Arguments that make an equal collator: with the given limits, not those of the tokenizer and the model."""
        given = {name: getattr(self.settings, name) for name in ("max_length", "max_target_length")}
        names = self.settings.settings()
        return {name: self.in_force[name] if given.get(name, 0) is not None else None for name in names}

    @property
    def accepts(self) -> frozenset[str] | None:
        """Names of the arguments of the model's forward; `None` without a model."""
        return None if self.model is None else frozenset(self.model.accepts)

    @property
    def embeds(self) -> bool:
        """True if there is a table, so that batches have `inputs_embeds`."""
        return self.embedder.rows is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Inputs that the tokenizer lists for its models."""
        return tuple(self.tokenizer.model_input_names)

    @property
    def model_first_position(self) -> int:
        """First position in the model's numbering; 0 if the model has none."""
        return 0 if self.model is None or self.embeds else self.model.first_position

    @property
    def has_look_ahead(self) -> bool:
        """True if a batch has `look_ahead_mask`."""
        given, model = self.settings.look_ahead, self.model
        return bool(given if given is not None else model is None or "look_ahead_mask" in model.accepts)

    @property
    def shifts_labels(self) -> bool | None:
        """True if the model predicts each label from the token before it; `None` if that is unknown."""
        return bool(self.model.shifts_labels) if self.model is not None and was_examined(self.model) else None

    def limited_by(self, name: str) -> str | None:
        """Return the model's name if its limit is the smallest one for `max_length` or `max_target_length`."""
        limit = self.limits.max_length if name == "max_length" else self.target_limits.max_length
        return self.model.name if self.model is not None and limit == getattr(self.model, name) is not None else None


def _max_length(
    settings: Settings, tokenizer: PreTrainedTokenizerBase, model: ModelSpec | None, positions: int | None
) -> int | None:
    """Return the smallest limit on a row, and warn if it is below the one given."""
    others = _smallest(settings.max_length, stated_limit(tokenizer), None if model is None else model.max_length)
    limit = _smallest(others, positions)
    source = "the encoding of embedding=" if limit != others else _model_name(model, "max_length", limit)
    _warn_if_lower("max_length", settings.max_length, limit, source)
    return limit


def _max_target_length(settings: Settings, tokenizer: PreTrainedTokenizerBase, model: ModelSpec | None) -> int | None:
    """Return the smallest limit on a target. The model's limit replaces the tokenizer's, which is for inputs."""
    own = None if model is None else model.max_target_length
    limit = _smallest(settings.max_target_length, stated_limit(tokenizer) if own is None else own)
    name = "max_target_length"
    _warn_if_lower(name, settings.max_target_length, limit, _model_name(model, name, limit))
    return limit


def _smallest(*limits: int | None) -> int | None:
    return min((int(limit) for limit in limits if limit is not None), default=None)


def _model_name(model: ModelSpec | None, name: str, limit: int | None) -> str | None:
    return model.name if model is not None and limit is not None and getattr(model, name) == limit else None


def _warn_if_lower(name: str, given: int | None, limit: int | None, source: str | None) -> None:
    if given is None or limit is None or limit >= given:
        return
    fix = f"{name}={limit}" if source else f"tokenizer.model_max_length = {given}, if the model takes that many"
    message = explain(f"{name}={given} is beyond the limit of {source or 'the tokenizer'}, so {limit} is used", fix=fix)
    warnings.warn(message, stacklevel=7)


def _check_lengths(
    settings: Settings,
    tokenizer: PreTrainedTokenizerBase,
    model: ModelSpec | None,
    limits: Limits,
    target_limits: Limits,
) -> None:
    """Raise if the limits do not allow the padding, packing or truncation in the settings."""
    padding, multiple, limit = padding_of(settings.padding), settings.pad_to_multiple_of, limits.max_length
    if tokenizer.pad_token_id is None and padding != "do_not_pad":
        spare = tokenizer.unk_token if tokenizer.unk_token != tokenizer.eos_token else None
        other = 'tokenizer.add_special_tokens({"pad_token": "[PAD]"}) before'
        raise ValueError(
            explain(
                f"this {type(tokenizer).__name__} has no padding token",
                got="pad_token=None",
                fix=('pad_token="eos"' if tokenizer.eos_token is not None else 'pad_token="..."')
                + (f', or pad_token="{spare}"' if spare is not None else f", or {other}"),
            )
        )
    if settings.packing and limit is None:
        raise ValueError(
            explain("packing=True needs the capacity of a row", got="max_length=None", fix="max_length=1024")
        )
    own = _model_name(model, "max_target_length", target_limits.max_length)
    if settings.text_target_column is not None and own is not None:
        _check_multiple("max_target_length", target_limits.max_length, multiple)
    if limit is None:
        if padding == "max_length":
            raise ValueError(
                explain(
                    'padding="max_length" needs a length, and neither the collator nor the tokenizer has one',
                    got="max_length=None",
                    fix="max_length=512",
                )
            )
        return
    if limits.truncates:
        pair = settings.text_pair_column is not None
        limits.check_special_tokens(
            int(tokenizer.num_special_tokens_to_add(pair=pair)) if settings.add_special_tokens else 0
        )
        if padding != "do_not_pad":
            _check_multiple("max_length", limit, multiple)


def _check_multiple(name: str, limit: int | None, multiple: int | None) -> None:
    if limit is not None and multiple is not None and limit % multiple:
        raise ValueError(
            explain(
                f"{name} must be a multiple of pad_to_multiple_of, or padding would exceed it",
                got=f"{name}={limit}, pad_to_multiple_of={multiple}",
                fix=f"{name}={max(limit // multiple, 1) * multiple}",
            )
        )
