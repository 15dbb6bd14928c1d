"""The resolved configuration of a collator: settings, tokenizer, model and embedding.

It is made once and does not change. The functions of the other modules take it as an argument.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .._common.compat import has_target_mode
from .._common.constants import IGNORED, PaddingSide
from .._common.errors import value_error, warn
from ..documents import LABEL_COLUMNS, NUMBERS, PER_TOKEN, Limits
from ..models import ModelSpec
from ..tokenization import Encoder
from ..tokenization.encoder import calls_only_rust
from ..tokenization.loading import private_copy, stated_limit
from .embed import Embedder
from .fit import check_fit, decoder_start
from .labels import LABEL_KINDS, space_inside_words
from .settings import MaskedLM, Settings, padding_of, truncation_of


class Config:
    r"""Resolved configuration of a collator: everything that its output depends on, such as limits and padding values.

    A collator makes one when it is constructed, from its arguments, the tokenizer, the model and the embedding.

    Args:
        settings (`Settings`): the arguments of the collator.

    Raises:
        ValueError, TypeError: for settings that are incompatible with the tokenizer, the model or the embedding.
    """

    def __init__(self, settings: Settings) -> None:
        self.model = model = None if settings.model is None else ModelSpec.of(settings.model)
        self.tokenizer = tokenizer = private_copy(settings.tokenizer, pad_token=settings.pad_token)
        # The arguments as given, except the model and the tokenizer, which may be freed.
        self.settings = settings = replace(settings, model=model, tokenizer=tokenizer)
        self.embedder = Embedder(settings, tokenizer)
        # Warning of a tokenizer with few of the model's ids, for the first batch; `None` if it has enough.
        self.warning_of_ids = None if model is None else check_fit(settings, model, tokenizer)
        # Names of the arguments of the model's forward; `None` without a model.
        self.accepts = None if model is None else frozenset(model.accepts)
        # Number of rows of the table or of the model's embedding.
        rows = self.embedder.rows, None if model is None else model.num_embeddings
        self.number_of_ids = min(filter(None, rows), default=None)

        self.padding = padding_of(settings.padding)
        self.side: PaddingSide = settings.padding_side or tokenizer.padding_side
        self.limits, self.target_limits = self._limits()
        # Number of tokens of every row; `None` if it depends on the batch.
        self.fixed_length = self.limits.max_length if self.padding == "max_length" else None
        self._check_lengths()

        # Positions of a row's first token and of padding: the model's if it has positions, otherwise the convention's.
        counts: ModelSpec | Embedder = self.embedder
        if model is not None and self.embedder.rows is None and (model.positions or model.first_position):
            counts = model
        self.first_position = counts.first_position
        # First position in the model's numbering; 0 if the model has none.
        self.model_first_position = 0 if counts is self.embedder else self.first_position
        at_padding = self.first_position if counts.padding_position is None else counts.padding_position
        # Padding value of each column.
        self.fills = {
            **{name: column.fill for name, column in PER_TOKEN.items()},
            **dict.fromkeys(NUMBERS, -1),
            **dict.fromkeys(LABEL_COLUMNS, IGNORED),
            **dict.fromkeys(settings.token_columns, 0),
            "input_ids": int(tokenizer.pad_token_id or 0),
            "token_type_ids": int(tokenizer.pad_token_type_id),
            "attention_mask": 0,
            "position_ids": at_padding,
        }
        self.padding_id = tokenizer.pad_token_id
        special = {name: getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "unk", "sep", "cls")}
        # True if the padding id is that of no other special token, such as eos, which may end a text.
        self.is_padding_unique = self.padding_id not in (None, *special.values())
        # True if there is no model, and models with such a tokenizer count positions from 2, as RoBERTa and XLM-R.
        first = special["cls"] if special["bos"] is None else special["bos"]
        is_fairseq = (first, self.padding_id, special["eos"]) == (0, 1, 2)
        is_theirs = type(tokenizer).__module__.startswith("transformers.models.")
        self.may_count_from_2 = model is None and settings.embedding is None and is_fairseq and is_theirs

        # Input names that the tokenizer lists, such as `token_type_ids`.
        self.names = tuple(tokenizer.model_input_names)
        # True if labels are separate token sequences, as in translation.
        by_model = model is not None and model.is_encoder_decoder and bool(model.shifts_labels)
        self.has_targets = settings.text_target_column is not None or (by_model and settings.labels is None)
        self.encoder, self.target_encoder = self._encoders()
        # First id of `decoder_input_ids`, if the collator makes them.
        self.decoder_start = decoder_start(model, tokenizer) if self.has_targets else None

        self.label_kind = None if settings.label_name is None else LABEL_KINDS[settings.label_name]
        self.label_maker = None if self.label_kind is None else self.label_kind.maker(settings, tokenizer)
        self._check_targets()
        # True if each label is predicted from the token before it: the kind of labels says so, or else the model.
        self.predicts_next = bool(model.shifts_labels) if model is not None and model.is_examined else None
        # What given labels belong to, by the model; `None` if that is unknown.
        self.labels_per = None if model is None else model.labels_per
        if self.label_kind is not None:
            self.predicts_next, self.labels_per = self.label_kind.predicts_next, None
        # True if batches have a look-ahead mask. Masked language models attend to all tokens.
        self.has_look_ahead = settings.packing != "flat" and settings.label_name != "masked_lm"
        if self.accepts is not None:
            self.has_look_ahead = "look_ahead_mask" in self.accepts
        if settings.look_ahead is not None:
            self.has_look_ahead = settings.look_ahead

    def _encoders(self) -> tuple[Encoder, Encoder | None]:
        """Return the encoder of texts, and that of targets; `None` without targets."""
        settings, tokenizer = self.settings, self.tokenizer
        options: dict[str, Any] = {
            "add_special_tokens": settings.add_special_tokens,
            "is_split_into_words": settings.is_split_into_words,
            "backend": settings.backend,
        }
        whole_words = isinstance(settings.labels, MaskedLM) and settings.labels.whole_word_mask
        whole_words = whole_words and space_inside_words(tokenizer, settings) is None
        encoder = Encoder(tokenizer, self.limits, word_ids=whole_words, **options)
        if not self.has_targets:
            return encoder, None
        # A mode for targets is a state of the tokenizer, so inputs and targets cannot share one.
        is_shared = calls_only_rust(tokenizer) and not has_target_mode(tokenizer)
        target_tokenizer = tokenizer if is_shared else private_copy(tokenizer)
        return encoder, Encoder(target_tokenizer, self.target_limits, targets=True, **options)

    def takes(self, name: str) -> bool:
        """Return True if the forward of the model has this argument, or without a model."""
        return self.accepts is None or name in self.accepts

    @property
    def saved(self) -> dict[str, Any]:
        """Arguments by name that make an equal collator, together with the tokenizer and the embedding.

        The limits `max_length` and `max_target_length` are those in use, but `None` if the user did not set them.
        """
        settings = self.settings.settings()
        limits = {name: limit for name, limit in self.limits_in_use().items() if settings[name] is not None}
        return {**settings, **limits}

    def limited_by(self, name: str) -> str | None:
        """Return the name of the model if the limit in use is the model's, otherwise `None`.

        `name` is the setting with the limit: `"max_length"` or `"max_target_length"`.
        """
        limits = self.limits if name == "max_length" else self.target_limits
        return self.model.name if self.model is not None and limits.set_by == "model" else None

    def limits_in_use(self) -> dict[str, int | None]:
        """Return `max_length` and `max_target_length`: the smallest of argument, tokenizer, model and embedding."""
        return {"max_length": self.limits.max_length, "max_target_length": self.target_limits.max_length}

    def _limits(self) -> tuple[Limits, Limits]:
        """Return the limits on the tokens of a row and of a target; warn if one is below its argument."""
        settings, model, by_tokenizer = self.settings, self.model, stated_limit(self.tokenizer)
        by_model, on_targets = (None, None) if model is None else (model.max_length, model.max_target_length)
        found: list[Limits] = []
        for name, sources in {
            "max_length": {"model": by_model, "tokenizer": by_tokenizer, "embedding": self.embedder.max_length},
            # The model's limit on targets replaces the tokenizer's, which is for inputs.
            "max_target_length": {"model": on_targets, "tokenizer": by_tokenizer if on_targets is None else None},
        }.items():
            argument = getattr(settings, name)
            limits = {source: int(limit) for source, limit in sources.items() if limit is not None}
            limits |= {} if argument is None else {"argument": argument}
            source = min(limits, key=limits.__getitem__, default=None)  # the first of several
            limit = None if source is None else limits[source]
            found.append(Limits(limit, truncation_of(settings.truncation), set_by=source))
            if argument is not None and limit != argument:
                whose = {"model": getattr(model, "name", ""), "embedding": "the encoding of embedding="}
                fix = f"{name}={limit}"
                if source == "tokenizer":
                    fix = f"tokenizer.model_max_length = {argument}, if the model takes that many"
                rule = f"{name}={argument} is beyond the limit of {whose.get(str(source), 'the tokenizer')}"
                warn(f"{rule}, so {limit} is used", fix=fix)
        return replace(found[0], overflow=settings.return_overflowing_tokens, stride=settings.stride), found[1]

    def _check_lengths(self) -> None:
        """Raise a `ValueError` if rows cannot be padded or truncated with these settings."""
        settings, tokenizer, limit = self.settings, self.tokenizer, self.limits.max_length
        is_flat = settings.packing == "flat"
        is_padded = settings.pad_to_multiple_of is not None if is_flat else self.padding != "do_not_pad"
        if tokenizer.pad_token_id is None and is_padded:
            raise value_error(
                f"this {type(tokenizer).__name__} has no padding token",
                got="pad_token=None",
                fix=('pad_token="eos"' if tokenizer.eos_token is not None else 'pad_token="..."')
                + ', or tokenizer.add_special_tokens({"pad_token": "[PAD]"}) before',
            )
        if limit is None and (self.padding == "max_length" or settings.packing is True):
            raise value_error(
                "packed rows, and rows padded to a fixed length, need max_length, and the tokenizer has no limit",
                got="max_length=None",
                fix="max_length=512",
            )
        if self.limits.truncates:
            pair = settings.text_pair_column is not None
            special = int(tokenizer.num_special_tokens_to_add(pair=pair)) if settings.add_special_tokens else 0
            self.limits.check_special_tokens(special)
            if is_padded and not is_flat:
                self._check_multiple("max_length", limit)

    def _check_targets(self) -> None:
        """Raise a `ValueError` for settings of targets or labels where there can be none."""
        settings = self.settings
        if settings.max_target_length is not None and not self.has_targets:
            raise value_error(
                "max_target_length is a limit of targets, the texts to predict, and there are none",
                got=f"max_target_length={settings.max_target_length}, text_target_column=None",
                fix='text_target_column="target"; max_length limits texts',
            )
        if self.has_targets and self.limited_by("max_target_length"):
            self._check_multiple("max_target_length", self.target_limits.max_length)
        if settings.on_no_labels is not None and not self.takes("labels"):
            raise value_error(
                "on_no_labels is the treatment of rows without labels, and the model takes no labels",
                got=f"on_no_labels={settings.on_no_labels!r}",
                fix="leave it out",
            )

    def _check_multiple(self, name: str, limit: int | None) -> None:
        multiple = self.settings.pad_to_multiple_of
        if limit is not None and multiple is not None and limit % multiple:
            raise value_error(
                f"{name} must be a multiple of pad_to_multiple_of, or padding would exceed it",
                got=f"{name}={limit}, pad_to_multiple_of={multiple}",
                fix=f"{name}={max(limit // multiple, 1) * multiple}",
            )
