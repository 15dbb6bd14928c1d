"""`Encoder`: converts texts to rows of token ids, the same ids as `tokenizer(...)`.

For a fast tokenizer it calls a private clone of the Rust part directly. For all others see `call_encoder`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .._explain import explain
from ..ragged import Ragged
from ..tokenization.loading import rust_from
from ..tokenization.long_text import characters_read_whole, sufficient_prefix
from ..tokenization.serialized import RustOnlyTokenizer, calls_only_rust
from .call_encoder import CallEncoder, Text, check_surrogates
from .limits import Limits
from .token_rows import TokenRows, ragged_ids

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as RustTokenizer
    from transformers import PreTrainedTokenizerBase

# A forked child inherits Rust's thread pool without its threads, and a batch call would wait for them forever.
_IMPORTED_IN = os.getpid()


class Encoder:
    r"""Encoder of texts to `TokenRows` with a tokenizer and limits. Safe in threads and in forked workers.

    Args:
        tokenizer (`PreTrainedTokenizerBase` or `RustOnlyTokenizer`): a private copy, see `loading.private_copy`.
        limits (`Limits`, *optional*): limit on the tokens of a row; by default none.
        add_special_tokens, is_split_into_words (`bool`, *optional*): as in transformers.
        word_ids (`bool`, *optional*): add a column `word_ids`, the index of each token's word; -1 at special tokens.
        targets (`bool`, *optional*): encode in the target mode of the tokenizer, if it has one.

    Raises:
        ValueError: if `word_ids` is True and the tokenizer is slow.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from hf_posenc.tokenization.loading import private_copy
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2, "bike": 3}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> Encoder(private_copy(raw)).encode(["I ride bike", "bike"]).ids.pad(0)
        array([[1, 2, 3],
               [3, 0, 0]])
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | RustOnlyTokenizer,
        limits: Limits | None = None,
        *,
        add_special_tokens: bool = True,
        is_split_into_words: bool = False,
        word_ids: bool = False,
        targets: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.limits = limits or Limits()
        self.word_ids = word_ids
        if targets and hasattr(tokenizer, "_switch_to_target_mode"):
            tokenizer._switch_to_target_mode()
        if word_ids and not tokenizer.is_fast:
            raise ValueError(
                explain(
                    "whole_word_mask needs a fast tokenizer, because a slow one does not return the words of tokens",
                    got=type(tokenizer).__name__,
                    fix="whole_word_mask=False, or load the fast version of the tokenizer",
                )
            )
        self._has_types = "token_type_ids" in tokenizer.model_input_names
        self._special = [self._number_of_special_tokens(pair, add_special_tokens) for pair in (False, True)]
        self._options = {"add_special_tokens": add_special_tokens, "is_pretokenized": is_split_into_words}
        self._rust: RustTokenizer | None = None
        if calls_only_rust(tokenizer):
            self._rust = _rust_clone(tokenizer, self.limits)
            # A template sets the types of a single text, so that one token shows them.
            probe = self._rust.encode("a", add_special_tokens=add_special_tokens)
            self._single_types_are_zero = not any(probe.type_ids) and 0 in probe.sequence_ids
        else:
            self._calls = CallEncoder(
                tokenizer, self.limits, self._special[False], add_special_tokens, is_split_into_words, targets
            )

    def encode(self, texts: Sequence[Text], pairs: Sequence[Text] | None = None) -> TokenRows:
        r"""Encode a batch.

        Args:
            texts (sequence of `str`, or of lists of words with `is_split_into_words`): the texts.
            pairs (the same, *optional*): the second text of each pair.

        Returns:
            `TokenRows` with the ids of `tokenizer(texts, pairs, ...)`.

        Raises:
            ValueError: if a text contains a lone surrogate, or rows have no room for the special tokens.
        """
        self.limits.check_special_tokens(self._special[pairs is not None])
        if self._rust is not None:
            return self._encode_with_rust(self._rust, texts, pairs)
        return self._calls.encode(texts, pairs)

    def _number_of_special_tokens(self, pair: bool, add_special_tokens: bool) -> int:
        return int(self.tokenizer.num_special_tokens_to_add(pair=pair)) if add_special_tokens else 0

    def _encode_with_rust(self, rust: RustTokenizer, texts: Sequence[Text], pairs: Sequence[Text] | None) -> TokenRows:
        limits, limit = self.limits, self.limits.max_length
        inputs: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        zero_types = pairs is None and self._single_types_are_zero
        # The fast call returns neither word ids nor the token types of overflowing rows.
        fast = not self.word_ids and not (limits.overflow and self._has_types and not zero_types)
        encodings = self._call_rust(rust, inputs, fast=fast)
        truncated = 0
        sample = np.arange(len(encodings), dtype=np.int64)
        if limit is not None and limits.truncates:
            # Check full rows only, because reading `overflowing` is slow.
            rest = {i: e.overflowing for i, e in enumerate(encodings) if len(e) >= limit and e.overflowing}
            if rest and limits.overflow:
                groups = [[e, *rest.get(i, [])] for i, e in enumerate(encodings)]
                sample = np.repeat(sample, [len(group) for group in groups])
                encodings = list(chain.from_iterable(groups))
            else:
                truncated = len(rest)
        ids = ragged_ids([e.ids for e in encodings])
        columns = {"input_ids": ids}
        if self._has_types:
            zeros = Ragged(np.zeros(len(ids.values), dtype=np.int64), ids.lengths) if zero_types else None
            columns["token_type_ids"] = zeros or ragged_ids([e.type_ids for e in encodings])
        if self.word_ids:
            columns["word_ids"] = ragged_ids([[-1 if word is None else word for word in e.word_ids] for e in encodings])
        return TokenRows(columns, sample, truncated)

    def _call_rust(self, rust: RustTokenizer, inputs: list[Any], *, fast: bool) -> list[Encoding]:
        call = rust.encode_batch_fast if fast else rust.encode_batch
        limits = self.limits
        try:
            if limits.max_length is not None and limits.truncates and not limits.overflow:
                longest = characters_read_whole(limits.max_length)
                for index, text in enumerate(inputs):
                    if type(text) is str and len(text) > longest:
                        side = self.tokenizer.truncation_side
                        inputs[index] = sufficient_prefix(text, limits.max_length, rust, side)
            if os.getpid() != _IMPORTED_IN:
                return [call([text], **self._options)[0] for text in inputs]
            return list(call(inputs, **self._options))
        except BaseException as error:
            # Rust raises TypeError for an invalid text, a bare Exception for most other errors, and for a panic
            # something that is not an Exception.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            for index, text in enumerate(inputs):
                check_surrogates(index, text)
            raise ValueError(
                explain(
                    "the tokenizer raised an error for this batch",
                    got=str(error),
                    fix=f"another truncation than {limits.truncation!r}, if it does not fit these texts",
                )
            ) from error


def _rust_clone(tokenizer: PreTrainedTokenizerBase | RustOnlyTokenizer, limits: Limits) -> RustTokenizer:
    """Return a copy of the Rust part of a tokenizer that truncates to `limits`."""
    json = tokenizer.json if isinstance(tokenizer, RustOnlyTokenizer) else tokenizer.backend_tokenizer.to_str()
    clone = rust_from(json)
    clone.no_padding()
    clone.no_truncation()
    # This setting is not in the JSON.
    clone.encode_special_tokens = bool(getattr(tokenizer, "split_special_tokens", False))
    if limits.max_length is not None and limits.truncates:
        clone.enable_truncation(
            limits.max_length,
            stride=limits.stride if limits.overflow else 0,
            strategy=limits.truncation,
            direction=tokenizer.truncation_side,
        )
    return clone
