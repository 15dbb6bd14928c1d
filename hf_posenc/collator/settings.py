"""The settings of a collator: which there are, which values they take, and which of them exclude each other.

Checked once, at construction; what a tokenizer or a table adds to the rules is checked where those are read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._explain import as_integer, explain, one_of
from ..ragged import PaddingSide
from ..tokenization.encoded import Truncation

if TYPE_CHECKING:
    from torch import nn

    from ..embedding import PositionalEmbedding
    from ..sinusoid import Convention
    from .table import TableLeftBehind

Padding = Literal["longest", "max_length", "do_not_pad"]


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """The fields of `DataCollatorWithPositionalEncoding`, which says what they mean."""

    tokenizer: Any
    _: KW_ONLY
    embedding: int | nn.Embedding | PositionalEmbedding | TableLeftBehind | None = None
    model: Any = None
    text_column: str = "text"
    text_pair_column: str | None = None
    text_target_column: str | None = None
    is_split_into_words: bool = False
    padding: bool | str = True
    padding_side: PaddingSide | None = None
    pad_token: str | None = None
    pad_to_multiple_of: int | None = None
    truncation: bool | str = True
    max_length: int | None = None
    max_target_length: int | None = None
    return_overflowing_tokens: bool = False
    stride: int = 0
    add_special_tokens: bool = True
    empty: str = "error"
    look_ahead: bool | None = None
    packing: bool = False
    labels: str | None = None
    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    whole_word_mask: bool = False
    seed: int | None = None
    convention: str | Convention = "vaswani"
    base: float | None = None
    scale: Literal["sqrt_d"] | float | None = None
    dropout: float = 0.0
    zero_padding: bool = True
    device: Any = None
    store_embeddings: bool = False
    return_tensors: str = "pt"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.integer | np.floating):  # lengths.max() is as good as a number of Python's own
                object.__setattr__(self, field.name, value.item())
        check(self)

    def settings(self) -> dict[str, Any]:
        """Every field but the tokenizer and the embedding."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("tokenizer", "embedding")]
        return {name: getattr(self, name) for name in names}


def padding_of(padding: object) -> Padding:
    r"""`padding` as transformers spells it, in one spelling.

    Example:
        >>> padding_of(True), padding_of("max_length"), padding_of(False)
        ('longest', 'max_length', 'do_not_pad')
    """
    spelled: dict[object, Padding] = {True: "longest", False: "do_not_pad"}
    for name in ("longest", "max_length", "do_not_pad"):
        spelled[name] = name
    found: Padding = _spelled("padding", padding, spelled)
    return found


def truncation_of(truncation: object) -> Truncation:
    r"""`truncation` as transformers spells it, in one spelling.

    Example:
        >>> truncation_of(True), truncation_of(None), truncation_of("only_first")
        ('longest_first', 'do_not_truncate', 'only_first')
    """
    spelled: dict[object, Truncation] = {True: "longest_first", False: "do_not_truncate", None: "do_not_truncate"}
    for name in ("longest_first", "only_first", "only_second", "do_not_truncate"):
        spelled[name] = name
    found: Truncation = _spelled("truncation", truncation, spelled)
    return found


def _spelled(name: str, value: object, spelled: dict[object, Any]) -> Any:
    value = getattr(value, "value", value)  # transformers' enumerations
    if not isinstance(value, (bool, str, type(None))) or value not in spelled:
        raise ValueError(one_of(name, value, [option for option in spelled if option is not None]))
    return spelled[value]


def check(settings: Settings) -> None:
    r"""Raises for the first setting that is wrong by itself, or together with another.

    Raises:
        ValueError: for a value out of range or settings that exclude each other.
        TypeError: for a value of the wrong kind.
    """
    choices = {
        "padding_side": (None, "left", "right"),
        "empty": ("error", "keep"),
        "labels": (None, "causal_lm", "masked_lm"),
        "look_ahead": (None, True, False),
        "return_tensors": ("pt", "np"),
    }
    for name, options in choices.items():
        if getattr(settings, name) not in options:
            raise ValueError(one_of(name, getattr(settings, name), options))
    for name in ("text_column", "text_pair_column", "text_target_column"):
        column = getattr(settings, name)
        if not isinstance(column, str) and not (column is None and name != "text_column"):
            raise TypeError(explain(f"{name} must be the name of a column", got=repr(column), fix=f'{name}="text"'))
    for name, (least, usual) in {
        "max_length": (1, 512),
        "max_target_length": (1, 128),
        "pad_to_multiple_of": (1, 8),
        "stride": (0, 16),
        "seed": (0, 0),
    }.items():
        if getattr(settings, name) is not None or name == "stride":
            as_integer(getattr(settings, name), name, minimum=least, example=usual)
    for name in (
        "is_split_into_words",
        "return_overflowing_tokens",
        "add_special_tokens",
        "packing",
        "whole_word_mask",
        "zero_padding",
        "store_embeddings",
    ):
        if not isinstance(getattr(settings, name), bool):
            raise TypeError(
                explain(f"{name} must be True or False", got=repr(getattr(settings, name)), fix=f"{name}=True")
            )
    padding, truncation = padding_of(settings.padding), truncation_of(settings.truncation)
    if settings.return_overflowing_tokens and truncation == "do_not_truncate":
        raise ValueError(
            explain(
                "return_overflowing_tokens carries on what truncation cuts off, and truncation is off",
                got=f"truncation={settings.truncation!r}",
                fix="truncation=True",
            )
        )
    if settings.stride and not settings.return_overflowing_tokens:
        raise ValueError(
            explain(
                "stride is the overlap of the pieces of a long text, and there are no pieces",
                got=f"stride={settings.stride}",
                fix="return_overflowing_tokens=True",
            )
        )
    if settings.whole_word_mask and settings.labels != "masked_lm":
        raise ValueError(
            explain(
                "whole_word_mask belongs to masked labels", got=f"labels={settings.labels!r}", fix='labels="masked_lm"'
            )
        )
    if settings.packing and padding == "do_not_pad":
        raise ValueError(explain("packed rows are padded to one length", got="padding=False", fix="padding=True"))
    if settings.text_target_column is not None and settings.labels is not None:
        raise ValueError(
            explain(
                "labels come either from text_target_column or from the ids themselves",
                got=f"text_target_column={settings.text_target_column!r}, labels={settings.labels!r}",
                fix="labels=None",
            )
        )
    if settings.embedding is None and settings.store_embeddings:
        raise ValueError(
            explain(
                "store_embeddings needs an embedding to store",
                got="embedding=None",
                fix="embedding=model.get_input_embeddings()",
            )
        )
    if settings.return_tensors == "np" and settings.embedding is not None:
        raise ValueError(
            explain("embeddings are tensors", got='return_tensors="np" with an embedding', fix='return_tensors="pt"')
        )
