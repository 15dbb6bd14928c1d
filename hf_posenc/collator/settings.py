"""The settings of a collator: which values they take, and which of them exclude each other.

Checked once, at construction; what a tokenizer or a table adds to the rules is passed in as plain values.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .._explain import explain, one_of, unknown_keyword
from ..ragged import PaddingSide
from ..tokenization.encoding import Truncation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .collator import DataCollatorWithPositionalEncoding

Padding = Literal["longest", "max_length", "do_not_pad"]
LabelKind = Literal["causal_lm", "masked_lm"]
Class = TypeVar("Class", bound=type)


@dataclass(frozen=True)
class Arrangement:
    r"""What the arranging of rows needs to know: every setting in one spelling, and what the tokenizer adds.

    Args:
        limit (`int`, *optional*): how many tokens a row may have.
        padding, truncation (`str`): as transformers spells them.
        multiple (`int`, *optional*): T is rounded up to it.
        side, truncation_side (`"left"` or `"right"`): where padding goes, and where tokens are cut off.
        overflow (`bool`), stride (`int`): whether the rest of a long row goes on in further rows, and their overlap.
        keep_empty (`bool`): whether a row without tokens is kept.
        look_ahead (`bool`): whether the batch gets a look-ahead mask.
        packing (`bool`): whether documents share rows.
        labels (`str`, *optional*): which labels are made from the ids.
        has_targets (`bool`): whether labels are token sequences of their own.
        start (`int`): the first position.
        names (`tuple` of `str`): what the tokenizer says that its models read.
        fills (`dict` from `str` to `int`): what stands at padding, per column.
        table_rows (`int`, *optional*): how many ids can be embedded, where there is a table.
    """

    limit: int | None
    padding: Padding
    truncation: Truncation
    multiple: int | None
    side: PaddingSide
    truncation_side: str
    overflow: bool
    stride: int
    keep_empty: bool
    look_ahead: bool
    packing: bool
    labels: str | None
    has_targets: bool
    start: int
    names: tuple[str, ...]
    fills: dict[str, int]
    table_rows: int | None


# Keywords that people bring along from elsewhere, and what the same thing is called here.
_CALLED_HERE = {
    "d_model": "embedding=512, an int, makes a table of that width",
    "embedding_dim": "embedding=512, an int, makes a table of that width",
    "hidden_size": "embedding=512, an int, makes a table of that width",
    "mlm": 'labels="masked_lm", or labels="causal_lm" for mlm=False',
    "max_len": "max_length=512",
    "max_seq_length": "max_length=512",
    "causal": "look_ahead=True",
    "pad_token_id": 'pad_token="[PAD]", the token itself',
    "return_offsets_mapping": "whole_word_mask=True keeps the words of tokens",
    "text_target": 'text_target_column="target"',
    "text_pair": 'text_pair_column="text_pair"',
    "split_into_words": "is_split_into_words=True",
    "p": "dropout=0.1",
}


def refuses_unknown_keywords(cls: Class) -> Class:
    """Class decorator: a wrong keyword raises naming the right one, and the signature stays what it is."""
    init: Callable[..., None] = cls.__init__  # type: ignore[misc]  # ours, and not a subclass's
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **settings: Any) -> None:
        for name in settings:
            if name not in known:
                raise TypeError(unknown_keyword(name, known, _CALLED_HERE))
        init(self, *args, **settings)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


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


def check(collator: DataCollatorWithPositionalEncoding) -> None:
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
        if getattr(collator, name) not in options:
            raise ValueError(one_of(name, getattr(collator, name), options))
    for name, least in {
        "max_length": 1,
        "max_target_length": 1,
        "pad_to_multiple_of": 1,
        "stride": 0,
        "seed": 0,
    }.items():
        _check_whole(name, getattr(collator, name), least, required=name == "stride")
    for name in (
        "is_split_into_words",
        "return_overflowing_tokens",
        "add_special_tokens",
        "packing",
        "whole_word_mask",
        "zero_padding",
        "store_embeddings",
    ):
        if not isinstance(getattr(collator, name), bool):
            raise TypeError(
                explain(f"{name} must be True or False", got=repr(getattr(collator, name)), fix=f"{name}=True")
            )
    padding, truncation = padding_of(collator.padding), truncation_of(collator.truncation)
    if collator.return_overflowing_tokens and truncation == "do_not_truncate":
        raise ValueError(
            explain(
                "return_overflowing_tokens carries on what truncation cuts off, and truncation is off",
                got=f"truncation={collator.truncation!r}",
                fix="truncation=True",
            )
        )
    if collator.stride and not collator.return_overflowing_tokens:
        raise ValueError(
            explain(
                "stride is the overlap of the pieces of a long text, and there are no pieces",
                got=f"stride={collator.stride}",
                fix="return_overflowing_tokens=True",
            )
        )
    if collator.whole_word_mask and collator.labels != "masked_lm":
        raise ValueError(
            explain(
                "whole_word_mask belongs to masked labels", got=f"labels={collator.labels!r}", fix='labels="masked_lm"'
            )
        )
    if collator.packing and padding == "do_not_pad":
        raise ValueError(explain("packed rows are padded to one length", got="padding=False", fix="padding=True"))
    if collator.text_target_column is not None and collator.labels is not None:
        raise ValueError(
            explain(
                "labels come either from text_target_column or from the ids themselves",
                got=f"text_target_column={collator.text_target_column!r}, labels={collator.labels!r}",
                fix="labels=None",
            )
        )
    if collator.embedding is None and collator.store_embeddings:
        raise ValueError(
            explain(
                "store_embeddings needs an embedding to store",
                got="embedding=None",
                fix="embedding=model.get_input_embeddings()",
            )
        )
    if collator.return_tensors == "np" and collator.embedding is not None:
        raise ValueError(
            explain("embeddings are tensors", got='return_tensors="np" with an embedding', fix='return_tensors="pt"')
        )


def check_room(
    max_length: int | None, *, special: int, multiple: int | None, padding: Padding, truncation: Truncation
) -> None:
    r"""Raises where the limit on a row's length cannot be kept.

    Args:
        max_length (`int`, *optional*): the limit.
        special (`int`): how many special tokens a row gets.
        multiple, padding, truncation: the settings beside it.

    Raises:
        ValueError: with the figures.
    """
    if max_length is None:
        if padding == "max_length":
            raise ValueError(
                explain(
                    'padding="max_length" needs a length, and neither the collator nor the tokenizer has one',
                    got="max_length=None",
                    fix="max_length=512",
                )
            )
        return
    if truncation == "do_not_truncate":
        return
    if max_length < special:
        raise ValueError(
            explain(
                f"max_length must leave room for {special} special tokens",
                got=f"max_length={max_length}",
                fix=f"max_length={special + 1} or more, or add_special_tokens=False",
            )
        )
    if multiple is not None and padding != "do_not_pad" and max_length % multiple:
        raise ValueError(
            explain(
                "max_length must be a multiple of pad_to_multiple_of, or padding would go beyond it",
                got=f"max_length={max_length}, pad_to_multiple_of={multiple}",
                fix=f"max_length={max(max_length // multiple, 1) * multiple}",
            )
        )


def no_pad_token(tokenizer: PreTrainedTokenizerBase) -> str:
    """The message for a tokenizer that cannot pad, with two ways out that can be pasted."""
    spare = tokenizer.unk_token
    other = (
        f'pad_token="{spare}"' if spare is not None else 'tokenizer.add_special_tokens({"pad_token": "[PAD]"}) before'
    )
    return explain(
        f"this {type(tokenizer).__name__} has no padding token",
        got="pad_token=None",
        fix=('pad_token="eos"' if tokenizer.eos_token is not None else 'pad_token="..."') + f", or {other}",
    )


def _check_whole(name: str, value: Any, least: int, *, required: bool) -> None:
    if value is None and not required:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(explain(f"{name} must be a whole number", got=repr(value), fix=f"{name}={max(least, 8)}"))
    if value < least:
        raise ValueError(explain(f"{name} must be at least {least}", got=value, fix=f"{name}={max(least, 8)}"))
