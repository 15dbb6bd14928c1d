"""Texts to ragged token ids, by the shortest way that gives the ids of `tokenizer(...)`.

Fast tokenizers are asked directly, through a clone of their Rust part that nobody else touches; all others are called.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .._explain import explain
from ..ragged import Ragged
from .by_call import ByCall
from .encoded import Encoded, Text, Truncation, flat, refuse_surrogates
from .loading import rust_from
from .long_text import enough_of, long_for
from .serialized import RustOnlyTokenizer, calls_only_rust

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as RustTokenizer
    from transformers import PreTrainedTokenizerBase

# A child made by fork inherits Rust's thread pool without its threads: a batch call would wait for them for ever.
_IMPORTED_IN = os.getpid()


class Encoder:
    r"""One tokenizer with its settings: texts in, `Encoded` out. Thread safe, and safe in forked workers.

    Args:
        tokenizer (`PreTrainedTokenizerBase` or `RustOnlyTokenizer`): a private copy, see
            `loading.private_copy`; only read.
        max_length (`int`, *optional*): limit on the tokens of a row, special tokens included.
        truncation (`str`, *optional*): as transformers spells it.
        overflow (`bool`, *optional*): carry the rest of a long text into further rows.
        stride (`int`, *optional*): tokens that neighbouring pieces of an overflowing text share.
        add_special_tokens, is_split_into_words (`bool`, *optional*): as transformers spells them.
        words (`bool`, *optional*): also give `word_ids`.
        targets (`bool`, *optional*): the texts are what a model shall write: some tokenizers have a mode for that.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from hf_posenc.tokenization.loading import private_copy
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2, "bike": 3}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> Encoder(private_copy(raw)).encode(["I ride bike", "bike"]).input_ids.pad(0)
        array([[1, 2, 3],
               [3, 0, 0]])
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | RustOnlyTokenizer,
        *,
        max_length: int | None = None,
        truncation: Truncation = "longest_first",
        overflow: bool = False,
        stride: int = 0,
        add_special_tokens: bool = True,
        is_split_into_words: bool = False,
        words: bool = False,
        targets: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = None if truncation == "do_not_truncate" else max_length
        self.truncation = truncation
        self.overflow = overflow and self.max_length is not None
        self.stride = stride if self.overflow else 0
        self.add_special_tokens = add_special_tokens
        self.is_split_into_words = is_split_into_words
        self.words = words
        self.targets = targets
        if targets and hasattr(tokenizer, "_switch_to_target_mode"):
            tokenizer._switch_to_target_mode()
        self.types = "token_type_ids" in tokenizer.model_input_names
        self._special = [
            int(tokenizer.num_special_tokens_to_add(pair=pair)) if add_special_tokens else 0 for pair in (False, True)
        ]
        self._by_call = ByCall(
            tokenizer,
            types=self.types,
            special=self._special[False],
            max_length=self.max_length,
            truncation=truncation,
            overflow=self.overflow,
            stride=self.stride,
            add_special_tokens=add_special_tokens,
            is_split_into_words=is_split_into_words,
            targets=targets,
        )
        self._rust = self._clone() if calls_only_rust(tokenizer) else None
        self._types_of_single_are_zero = self._rust is not None and self._single_types_are_zero(self._rust)
        if words and not tokenizer.is_fast:
            raise ValueError(
                explain(
                    "whole_word_mask needs a fast tokenizer, which knows the words that tokens come from",
                    got=type(tokenizer).__name__,
                    fix="whole_word_mask=False, or load the fast version of the tokenizer",
                )
            )

    def encode(self, texts: Sequence[Text], pairs: Sequence[Text] | None = None) -> Encoded:
        r"""Encodes a batch.

        Args:
            texts (sequence of `str`, or of lists of words with `is_split_into_words`): checked by the caller.
            pairs (the same, *optional*): the second text of each pair.

        Returns:
            `Encoded` with the ids of `tokenizer(texts, pairs, ...)`.

        Raises:
            ValueError: if a text is not valid Unicode (a lone surrogate).
        """
        if self.max_length is not None:
            self._check_room(self.max_length, pair=pairs is not None)
        if self._rust is not None:
            return self._encode_fast(self._rust, texts, pairs)
        return self._by_call.encode(texts, pairs)

    def _check_room(self, limit: int, *, pair: bool) -> None:
        """A row must hold its special tokens; a piece of a long text the stride and one new token besides."""
        needed = self._special[pair] + (self.stride + 1 if self.overflow else 0)
        if limit < needed:
            what = f"{self._special[pair]} special tokens" + (", the stride and one new token" * self.overflow)
            raise ValueError(
                explain(
                    f"a row must hold {what}",
                    got=f"max_length={limit}" + (f", stride={self.stride}" if self.overflow else ""),
                    fix=f"max_length={needed + (not self.overflow)} or more, or add_special_tokens=False",
                )
            )

    # -- the Rust part, asked directly ---------------------------------------------------------------------------

    def _clone(self) -> RustTokenizer:
        mine = self.tokenizer
        clone = rust_from(mine.json if isinstance(mine, RustOnlyTokenizer) else mine.backend_tokenizer.to_str())
        clone.no_padding()
        clone.no_truncation()
        # The one setting that the JSON does not carry.
        clone.encode_special_tokens = bool(getattr(self.tokenizer, "split_special_tokens", False))
        if self.max_length is not None:
            clone.enable_truncation(
                self.max_length,
                stride=self.stride,
                strategy=self.truncation,
                direction=self.tokenizer.truncation_side,
            )
        return clone

    def _single_types_are_zero(self, rust: RustTokenizer) -> bool:
        """Whether a text alone always gets token type 0: a template sets the types, so any one token shows them."""
        probe = rust.encode("a", add_special_tokens=self.add_special_tokens)
        return not any(probe.type_ids) and 0 in probe.sequence_ids

    def _encode_fast(self, rust: RustTokenizer, texts: Sequence[Text], pairs: Sequence[Text] | None) -> Encoded:
        inputs: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        zero_types = pairs is None and self._types_of_single_are_zero
        # The quick call leaves offsets out, and word ids and the types of further pieces with them.
        quick = not self.words and not (self.overflow and self.types and not zero_types)
        encodings = self._call_rust(rust, inputs, quick=quick)
        cut = 0
        sample = np.arange(len(encodings), dtype=np.int64)
        if self.max_length is not None:
            # Only a full row can have lost anything, and asking for the lost part is not free.
            rest = {i: e.overflowing for i, e in enumerate(encodings) if len(e) >= self.max_length and e.overflowing}
            if rest and self.overflow:
                pieces = [[e, *rest.get(i, [])] for i, e in enumerate(encodings)]
                sample = np.repeat(sample, [len(group) for group in pieces])
                encodings = list(chain.from_iterable(pieces))
            else:
                cut = len(rest)
        ids = flat([e.ids for e in encodings])
        types: Ragged | None = None
        if self.types:
            if zero_types:
                types = Ragged(np.zeros(len(ids.values), dtype=np.int64), ids.lengths)
            else:
                types = flat([e.type_ids for e in encodings])
        words = None
        if self.words:
            words = flat([[-1 if word is None else word for word in e.word_ids] for e in encodings])
        return Encoded(ids, types, words, sample, cut)

    def _call_rust(self, rust: RustTokenizer, inputs: list[Any], *, quick: bool) -> list[Encoding]:
        call = rust.encode_batch_fast if quick else rust.encode_batch
        options: dict[str, bool] = {
            "is_pretokenized": self.is_split_into_words,
            "add_special_tokens": self.add_special_tokens,
        }
        try:
            if self.max_length is not None and not self.overflow:
                side = self.tokenizer.truncation_side
                longest = long_for(self.max_length)
                is_long = [type(one) is str and len(one) > longest for one in inputs]
                if any(is_long):
                    pairs = zip(inputs, is_long, strict=True)
                    inputs = [enough_of(one, self.max_length, rust, side) if long else one for one, long in pairs]
            if os.getpid() != _IMPORTED_IN:
                return [call([one], **options)[0] for one in inputs]
            return list(call(inputs, **options))
        except BaseException as error:
            # Rust raises TypeError for what is no valid text, a bare Exception for most of the rest, and for a panic
            # something that is no Exception at all.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            for index, one in enumerate(inputs):
                refuse_surrogates(index, one)
            raise ValueError(
                explain(
                    "the tokenizer refused this batch",
                    got=str(error),
                    fix=f"truncation={self.truncation!r} may not fit",
                )
            ) from error
