"""Tokenizer objects that users may change after a collator copied them, which has no effect on the copy."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._common.compat import stored_special_tokens
from .._common.errors import shorten
from .loading import SharedTokenizer
from .rust import number_of_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .rust import RustTokenizer

_STORED = ("model_max_length", "padding_side", "truncation_side", "split_special_tokens")
_stored_values = operator.itemgetter(*_STORED)
_WATCHED = (*_STORED, "pad_token", "unk_token", "bos_token", "eos_token", "cls_token", "sep_token", "mask_token")


def watched(tokenizer: Any, copied: PreTrainedTokenizerBase, padding_side: str | None) -> list[WatchedTokenizer]:
    """Return the watched objects of a collator: the given tokenizer, unless it is a name, and its private copy."""
    in_use = {"pad_token": copied.pad_token, "padding_side": padding_side or copied.padding_side}
    given = [] if isinstance(tokenizer, str | os.PathLike | SharedTokenizer) else [tokenizer]
    return [WatchedTokenizer(source, in_use) for source in (copied, *given)]


class WatchedTokenizer:
    """Settings of a tokenizer object when a collator copied it, to notice changes that have no effect on the copy.

    Holds only a weak reference to the tokenizer, where its type allows one. `in_use` are settings that the collator
    uses instead of the tokenizer's; a change to one of these needs no notice.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | RustTokenizer, in_use: Mapping[str, Any]) -> None:
        self._in_use = in_use
        try:
            self._tokenizer: Callable[[], Any] = weakref.ref(tokenizer)
        except TypeError:  # tokenizers.Tokenizer before 0.23
            self._tokenizer = lambda: tokenizer
        self._before = self._settings()
        values = _values(tokenizer)
        self._values = values and (*values[:2], dict(values[2]))

    def changes(self) -> list[str]:
        """Return the settings that differ now, as text."""
        tokenizer = self._tokenizer()
        if tokenizer is None or (self._values is not None and _values(tokenizer) == self._values):
            return []
        now = self._settings() or self._before
        return [
            f"{name}={shorten(value)} instead of {shorten(self._before[name])}"
            for name, value in now.items()
            if value not in (self._before[name], self._in_use.get(name, self._before[name]))
        ]

    def _settings(self) -> dict[str, Any]:
        tokenizer = self._tokenizer()
        if tokenizer is None:  # deleted
            return {}
        has = {name: getattr(tokenizer, name) for name in _WATCHED if hasattr(tokenizer, name)}
        return {"vocabulary size": number_of_tokens(tokenizer), **has}


def _values(tokenizer: Any) -> tuple[int, tuple[Any, ...], dict[str, Any]] | None:
    """Return the values from which the settings are read: number of tokens, attributes, special tokens."""
    # They are compared in each call: reading the settings takes ten times as long.
    stored = vars(tokenizer)
    tokens = stored_special_tokens(stored)
    try:
        return None if tokens is None else (len(tokenizer), _stored_values(stored), tokens)
    except KeyError:  # a setting that a class computes
        return None
