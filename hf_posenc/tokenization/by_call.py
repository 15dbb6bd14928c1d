"""Any tokenizer by its own call, a text at a time: slow ones, and fast ones with steps of their own.

No claim to speed. What transformers does not offer to a slow tokenizer, further rows of a long text, is cut here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._explain import explain
from .encoded import Encoded, Text, Truncation, flat, refuse_surrogates, windows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class ByCall:
    r"""One tokenizer with its settings; see `Encoder`, which says what they mean.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): a private copy.
        types (`bool`): whether it names `token_type_ids`.
        special (`int`): how many special tokens a single text gets.
        max_length, truncation, overflow, stride, add_special_tokens, is_split_into_words, targets: of the `Encoder`.
    """

    tokenizer: PreTrainedTokenizerBase
    types: bool
    special: int
    max_length: int | None
    truncation: Truncation
    overflow: bool
    stride: int
    add_special_tokens: bool
    is_split_into_words: bool
    targets: bool
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def encode(self, texts: Sequence[Text], pairs: Sequence[Text] | None) -> Encoded:
        """A batch, one call at a time: the call sets states of the tokenizer."""
        with self._lock:
            return self._encode(texts, pairs)

    def _encode(self, texts: Sequence[Text], pairs: Sequence[Text] | None) -> Encoded:
        ids: list[list[int]] = []
        types: list[list[int]] = []
        sample: list[int] = []
        cut = 0
        for index, text in enumerate(texts):
            pair = None if pairs is None else pairs[index]
            refuse_surrogates(index, (text, pair))
            whole = self._call(text, pair, truncation="do_not_truncate", max_length=None)
            rows = [whole]
            if self.max_length is not None and len(whole["input_ids"]) > self.max_length:
                if self.overflow:
                    rows = (
                        self._pieces_by_call(text, pair) if self.tokenizer.is_fast else self._pieces(index, text, pair)
                    )
                else:
                    rows = [self._call(text, pair, truncation=self.truncation, max_length=self.max_length)]
                    cut += 1
            for row in rows:
                ids.append(list(row["input_ids"]))
                types.append(list(row.get("token_type_ids") or [0] * len(row["input_ids"])))
                sample.append(index)
        return Encoded(flat(ids), flat(types) if self.types else None, None, np.asarray(sample, dtype=np.int64), cut)

    def _call(self, text: Text, pair: Text | None, **settings: Any) -> dict[str, Any]:
        given = [one if one is None or not self.is_split_into_words else list(one) for one in (text, pair)]
        names = ("text_target", "text_pair_target") if self.targets else ("text", "text_pair")
        row = self.tokenizer(
            **dict(zip(names, given, strict=True)),
            add_special_tokens=self.add_special_tokens,
            is_split_into_words=self.is_split_into_words,
            return_attention_mask=False,
            return_token_type_ids=self.types,
            verbose=False,
            **settings,
        )
        return dict(row)

    def _pieces_by_call(self, text: Text, pair: Text | None) -> list[dict[str, list[int]]]:
        """The windows of a long text, from a fast tokenizer with steps of its own."""
        several = self._call(
            text,
            pair,
            truncation=self.truncation,
            max_length=self.max_length,
            stride=self.stride,
            return_overflowing_tokens=True,
        )
        names = [name for name in ("input_ids", "token_type_ids") if name in several]
        return [dict(zip(names, row, strict=True)) for row in zip(*(several[name] for name in names), strict=True)]

    def _pieces(self, index: int, text: Text, pair: Text | None) -> list[dict[str, list[int]]]:
        """The windows of a long text, as Rust cuts them; transformers has no such thing for a slow tokenizer."""
        if pair is not None:
            raise ValueError(
                explain(
                    f"return_overflowing_tokens with text pairs needs a fast tokenizer; row {index} is too long",
                    got=type(self.tokenizer).__name__,
                    fix="return_overflowing_tokens=False, or load the fast version of the tokenizer",
                )
            )
        room = (self.max_length or 0) - self.special
        bare = self.tokenizer(
            list(text) if self.is_split_into_words else text,
            add_special_tokens=False,
            is_split_into_words=self.is_split_into_words,
            verbose=False,
        )["input_ids"]
        pieces = []
        for start, stop in windows(len(bare), room, self.stride, self.tokenizer.truncation_side):
            piece = bare[start:stop]
            row = {"input_ids": piece}
            if self.add_special_tokens:
                row = {
                    "input_ids": self.tokenizer.build_inputs_with_special_tokens(piece),
                    "token_type_ids": self.tokenizer.create_token_type_ids_from_sequences(piece),
                }
            pieces.append(row)
        return pieces
