"""The slow path of `Encoder`: calls the tokenizer once per text.

Used for slow tokenizers, and for fast ones whose Python class adds steps. transformers returns no overflowing rows for
a slow tokenizer, so this module splits its long texts.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._common.errors import lone_surrogate, shorten, value_error
from ..documents import Documents, Limits
from .rust import ragged_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Text = str | Sequence[str]
_Row: TypeAlias = dict[str, list[int]]


class CallEncoder:
    """Encoder that calls the tokenizer once per text, which is slow.

    `Encoder` uses it for slow tokenizers, and for fast ones whose class has steps in Python. `tokenizer` is a private
    copy, because calls change its attributes. `special` is the number of special tokens of a row with one text.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        special: int,
        add_special_tokens: bool,
        is_split_into_words: bool,
        targets: bool,
    ) -> None:
        self.tokenizer = tokenizer
        self.special = special
        self.add_special_tokens = add_special_tokens
        self.is_split_into_words = is_split_into_words
        self.targets = targets
        self._has_types = "token_type_ids" in tokenizer.model_input_names
        self._lock = threading.Lock()  # a call sets attributes of the tokenizer

    def tokenize(self, texts: Sequence[Text], pairs: Sequence[Text] | None, limits: Limits) -> Documents:
        """Tokenize a batch of texts or pairs with one call of the tokenizer for each, and return `Documents`."""
        made: list[_Row] = []
        sample: list[int] = []
        truncated = 0
        # With four threads and no lock, 292 of 1,200 batches had other lengths.
        with self._lock:
            for index, text in enumerate(texts):
                pair = None if pairs is None else pairs[index]
                check_surrogates(index, (text, pair))
                rows = self._call(text, pair, Limits())
                limit, whole = limits.max_length, len(rows[0]["input_ids"])
                if limit is not None and limits.truncates and whole > limit:
                    truncated += not limits.overflow
                    if limits.overflow and not self.tokenizer.is_fast:
                        rows = self._windows(index, text, pair, replace(limits, max_length=limit - self.special))
                    else:
                        rows = self._call(text, pair, limits)
                    longest = max(len(row["input_ids"]) for row in rows)
                    if longest > limit:  # of a text that must not be truncated, or of tokens that are not counted
                        how = f"truncation={limits.truncation!r}"
                        raise value_error(
                            f"row {index} cannot be truncated to {limit} tokens with {how}",
                            got=f"{longest} tokens" + (" and no second text" if pair is None else ""),
                            fix='truncation="longest_first"; a larger max_length; or a single TemplateProcessing(...) '
                            "with all special tokens as post_processor",
                        )
                made += rows
                sample += [index] * len(rows)
        columns = {"input_ids": ragged_ids([row["input_ids"] for row in made])}
        if self._has_types:
            types = [row.get("token_type_ids") or [0] * len(row["input_ids"]) for row in made]
            columns["token_type_ids"] = ragged_ids(types)
        is_cut = truncated > 0 or len(sample) > len(texts)
        return Documents(columns, np.asarray(sample, dtype=np.int64), truncated, places_unknown=is_cut)

    def _call(self, text: Text, pair: Text | None, limits: Limits) -> list[_Row]:
        """Call the tokenizer on a text or pair, and return its row, or several of one that is too long."""
        # An empty list of words is no text for a slow tokenizer; an empty word has no tokens.
        arguments: list[Any] = [
            part if part is None or not self.is_split_into_words else list(part) or [""] for part in (text, pair)
        ]
        # transformers ignores a second text that is "", except in a batch.
        is_batch = self.tokenizer.is_fast and isinstance(pair, str) and not pair
        if is_batch:
            arguments = [[part] for part in arguments]
        names = ("text_target", "text_pair_target") if self.targets else ("text", "text_pair")
        row = self.tokenizer(
            **dict(zip(names, arguments, strict=True)),
            add_special_tokens=self.add_special_tokens,
            is_split_into_words=self.is_split_into_words,
            truncation=limits.truncation if limits.truncates else "do_not_truncate",
            max_length=limits.max_length,
            stride=limits.stride,
            return_overflowing_tokens=limits.overflow,
            return_attention_mask=False,
            return_token_type_ids=self._has_types,
            verbose=False,
        )
        columns = {name: row[name] for name in ("input_ids", "token_type_ids") if name in row}
        if not is_batch and not limits.overflow:
            return [columns]
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _windows(self, index: int, text: Text, pair: Text | None, limits: Limits) -> list[_Row]:
        """Split a text that is too long for one row, because a slow tokenizer does not split texts."""
        if pair is not None:
            raise value_error(
                f"return_overflowing_tokens with text pairs needs a fast tokenizer; row {index} is too long",
                got=type(self.tokenizer).__name__,
                fix="return_overflowing_tokens=False, or load the fast version of the tokenizer",
            )
        bare = self.tokenizer(
            list(text) if self.is_split_into_words else text,  # too long for one row, so not empty
            add_special_tokens=False,
            is_split_into_words=self.is_split_into_words,
            verbose=False,
        )["input_ids"]
        whole = Documents({"input_ids": ragged_ids([bare])}, np.zeros(1, np.int64))
        rows = [ids.tolist() for ids in whole.truncate(limits, side=self.tokenizer.truncation_side).ids]
        if not self.add_special_tokens:
            return [{"input_ids": ids} for ids in rows]
        return [
            {
                "input_ids": self.tokenizer.build_inputs_with_special_tokens(ids),
                "token_type_ids": self.tokenizer.create_token_type_ids_from_sequences(ids),
            }
            for ids in rows
        ]


def check_surrogates(index: int, value: object) -> None:
    """Raise `ValueError` if row `index`, a text or nested lists of texts, contains a lone surrogate."""
    for text in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(text, (tuple, list)):
            check_surrogates(index, text)
        elif isinstance(text, str) and (at := lone_surrogate(text)) is not None:
            raise value_error(
                f"row {index} contains a lone surrogate, which is not valid Unicode",
                got=f"{shorten(text)}, character {at}",
                fix="text.encode('utf-8', 'replace').decode('utf-8')",
            )
