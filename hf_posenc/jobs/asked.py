"""The settings of a job as they were asked for, checked once, with a tokenizer or a collator to take the rest from.

No input is looked at here, and nothing is written.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from .._explain import as_integer, explain, one_of
from ..rows import Limits
from ..tokenization.loading import number_of_ids, private_copy, stated_limit
from ..tokenization.serialized import SerializedTokenizer
from .job import OnBadRow, TooLong

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_MOST_IDS = 2**31  # int32


@dataclass(frozen=True)
class Asked:
    r"""What decides the rows, apart from the input; see `encode`, whose arguments these are.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): a private copy.
        first_position (`int`): the position of a document's first token.
        max_length (`int`, *optional*): the limit in force.
        told (`tuple` of `str`): what is to be said before the work begins.
    """

    tokenizer: PreTrainedTokenizerBase
    text_column: str
    text_pair_column: str | None
    max_length: int | None
    too_long: TooLong
    stride: int
    add_special_tokens: bool
    pack: int | None
    first_position: int
    labels: Any
    on_bad_row: OnBadRow
    told: tuple[str, ...]

    def settings(self) -> dict[str, Any]:
        """What the manifest keeps of them: all that decides the bytes, as JSON values."""
        names = ["text_column", "text_pair_column", "max_length", "too_long", "stride", "add_special_tokens", "pack"]
        names += ["first_position", "labels", "on_bad_row"]
        return {name: getattr(self, name) for name in names}

    def serialized(self) -> SerializedTokenizer:
        """The tokenizer as it is sent to workers."""
        return SerializedTokenizer.of(self.tokenizer)


def asked_for(
    tokenizer: Any,
    *,
    text_column: str | None,
    text_pair_column: str | None,
    max_length: int | None,
    too_long: TooLong | None,
    stride: int | None,
    add_special_tokens: bool | None,
    pack: int | None,
    labels: str | None,
    on_bad_row: OnBadRow,
) -> Asked:
    r"""Checks the settings, and fills in those that were not given: a collator's own, or the defaults.

    Args:
        tokenizer: as in `private_copy`, or a `DataCollatorWithPositionalEncoding`.
        text_column, text_pair_column, max_length, too_long, stride, add_special_tokens, pack, labels, on_bad_row: as in
            `encode`; `None` if not given.

    Returns:
        `Asked`.

    Raises:
        ValueError, TypeError: for settings that are wrong, or that a collator has and shards cannot hold.
    """
    _check_choices(too_long=too_long, on_bad_row=on_bad_row, labels=labels)
    collate = tokenizer if _is_collator(tokenizer) else None
    given: dict[str, Any] = {} if collate is None else _of_collator(collate)
    mine = private_copy(tokenizer if collate is None else collate.tokenizer)
    too_long = too_long or given.get("too_long", "truncate")
    pack = given.get("pack") if pack is None else as_integer(pack, "pack", minimum=1, example=2048)
    stride = given.get("stride", 0) if stride is None else as_integer(stride, "stride", minimum=0, example=64)
    _check_together(too_long, stride, pack, on_bad_row)
    limits = {
        "the tokenizer": stated_limit(mine),
        "the collator": given.get("max_length"),
        "a packed row": pack,
    }
    limit, told = _limit(max_length, limits)
    adds = given.get("add_special_tokens", True) if add_special_tokens is None else add_special_tokens
    pair = text_pair_column or given.get("text_pair_column")
    special = int(mine.num_special_tokens_to_add(pair=pair is not None)) if adds else 0
    Limits(limit, overflow=too_long == "split", stride=stride).check_special_tokens(special)
    _check_ids(mine)
    return Asked(
        tokenizer=mine,
        text_column=text_column or given.get("text_column", "text"),
        text_pair_column=pair,
        max_length=limit,
        too_long=too_long,
        stride=stride,
        add_special_tokens=adds,
        pack=pack,
        first_position=given.get("first_position", 0),
        labels=labels,
        on_bad_row=on_bad_row,
        told=told,
    )


def _check_choices(*, too_long: str | None, on_bad_row: str, labels: str | None) -> None:
    if labels == "masked_lm":
        raise ValueError(_drawn_anew())
    for name, value, allowed in (
        ("too_long", too_long, get_args(TooLong)),
        ("on_bad_row", on_bad_row, get_args(OnBadRow)),
        ("labels", labels, ("causal_lm",)),
    ):
        if value is not None and value not in allowed:
            raise ValueError(one_of(name, value, allowed))


def _check_together(too_long: str, stride: int, pack: int | None, on_bad_row: str) -> None:
    if stride and too_long != "split":
        raise ValueError(
            explain(
                "stride is what the rows of a split text share",
                got=f"stride={stride}, too_long={too_long!r}",
                fix='too_long="split", or stride=0',
            )
        )
    if pack is not None and on_bad_row == "keep-empty":
        raise ValueError(
            explain(
                "packed rows hold no empty documents",
                got=f'pack={pack}, on_bad_row="keep-empty"',
                fix='on_bad_row="skip", which lists them in rejected.jsonl',
            )
        )


def _limit(asked: int | None, limits: dict[str, int | None]) -> tuple[int | None, tuple[str, ...]]:
    """The smallest limit, which is in force, and what to say where it is not the one that was asked for."""
    if asked is not None:
        asked = as_integer(asked, "max_length", minimum=1, example=512)
    told = [
        f"rows have at most {limit} tokens, which is what {whose} takes, and not {asked}"
        for whose, limit in limits.items()
        if limit is not None and asked is not None and limit < asked
    ]
    return min((one for one in (asked, *limits.values()) if one is not None), default=None), tuple(told)


def _check_ids(tokenizer: PreTrainedTokenizerBase) -> None:
    if (ids := number_of_ids(tokenizer)) > _MOST_IDS:
        raise ValueError(
            explain(
                "shards hold ids below 2**31",
                got=f"a tokenizer with an id of {ids - 1:,}",
                fix="ids without gaps, such as a tokenizer gives its tokens by itself",
            )
        )


def _drawn_anew() -> str:
    """Why masked labels are not stored."""
    return explain(
        "masked labels are drawn anew for every epoch, when a batch is made: stored ones would be the same for ever",
        got='labels="masked_lm"',
        fix='labels=None here, and DataCollatorWithPositionalEncoding(tokenizer, labels="masked_lm") for what reads '
        "the shards",
    )


def _is_collator(tokenizer: Any) -> bool:
    """Told without loading the collator, which loads torch: nobody can hold one who has not."""
    module = sys.modules.get("hf_posenc.collator.collator")
    return module is not None and isinstance(tokenizer, module.DataCollatorWithPositionalEncoding)


def _of_collator(collate: Any) -> dict[str, Any]:
    """What a collator says of how documents become rows."""
    for name, fix in (
        ("text_target_column", "dataset.map(collate, batched=True) stores targets"),
        ("is_split_into_words", "join the words, or dataset.map(collate, batched=True)"),
        (
            "store_embeddings",
            "collate.replace(store_embeddings=False): embeddings are made from ids faster than a disk reads them; "
            "or dataset.map(collate, batched=True, batch_size=64)",
        ),
    ):
        if getattr(collate, name):
            raise ValueError(
                explain("a corpus is made of texts alone", got=f"{name}={getattr(collate, name)!r}", fix=fix)
            )
    if collate.labels == "masked_lm":
        raise ValueError(_drawn_anew())
    from ..collator.fit import numbering
    from ..sinusoid import resolve_convention

    first, _ = numbering(collate.model, resolve_convention(collate.convention), embeds=collate.embedding is not None)
    cuts = collate.truncation not in (False, "do_not_truncate")
    return {
        "text_column": collate.text_column,
        "text_pair_column": collate.text_pair_column,
        "max_length": collate.max_length,
        "too_long": ("split" if collate.return_overflowing_tokens else "truncate") if cuts else "error",
        "stride": collate.stride if cuts and collate.return_overflowing_tokens else 0,
        "add_special_tokens": collate.add_special_tokens,
        "pack": collate.max_length if collate.packing else None,
        "first_position": first,
    }
