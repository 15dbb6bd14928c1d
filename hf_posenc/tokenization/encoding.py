"""Texts to ragged token ids, by the shortest way that gives the ids of `tokenizer(...)`.

Fast tokenizers are asked directly, through a clone of their Rust part that nobody else touches; all others are called.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..ragged import Ragged
from .long_text import enough_of

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as RustTokenizer
    from transformers import PreTrainedTokenizerBase

Truncation = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
Text = str | Sequence[str]

# A child made by fork inherits Rust's thread pool without its threads: a batch call would wait for them for ever.
_IMPORTED_IN = os.getpid()


@dataclass(frozen=True, eq=False)
class Encoded:
    r"""What a batch of texts became: one row a text, or several where a long text overflows.

    Args:
        input_ids (`Ragged` of int64): the token ids with special tokens, neither padded nor joined.
        token_type_ids (`Ragged` of int64, *optional*): which text of a pair; `None` where the tokenizer has none.
        word_ids (`Ragged` of int64, *optional*): which word each token is part of, -1 at special tokens; if asked for.
        sample (`np.ndarray` `(rows,)` int64): which of the texts each row comes from.
        cut (`int`): how many texts lost tokens to truncation.
    """

    input_ids: Ragged
    token_type_ids: Ragged | None
    word_ids: Ragged | None
    sample: NDArray[np.int64]
    cut: int


class Encoder:
    r"""One tokenizer with its settings: texts in, `Encoded` out. Thread safe, and safe in forked workers.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): a private copy, see `loading.private_copy`; it is only read.
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
        tokenizer: PreTrainedTokenizerBase,
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
        self._lock = threading.Lock()
        self._rust = self._clone() if _is_plain_fast(tokenizer) else None
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
        with self._lock:
            return self._encode_by_call(texts, pairs)

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
        from tokenizers import Tokenizer

        theirs = self.tokenizer.backend_tokenizer
        clone = Tokenizer.from_str(theirs.to_str())
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
        ids = _flat([e.ids for e in encodings])
        types: Ragged | None = None
        if self.types:
            if zero_types:
                types = Ragged(np.zeros(len(ids.values), dtype=np.int64), ids.lengths)
            else:
                types = _flat([e.type_ids for e in encodings])
        words = None
        if self.words:
            words = _flat([[-1 if word is None else word for word in e.word_ids] for e in encodings])
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
                inputs = [enough_of(one, self.max_length, rust, side) if type(one) is str else one for one in inputs]
            if os.getpid() != _IMPORTED_IN:
                return [call([one], **options)[0] for one in inputs]
            return list(call(inputs, **options))
        except BaseException as error:
            # Rust raises TypeError for what is no valid text, a bare Exception for most of the rest, and for a panic
            # something that is no Exception at all.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            for index, one in enumerate(inputs):
                _refuse_surrogates(index, one)
            raise ValueError(
                explain(
                    "the tokenizer refused this batch",
                    got=str(error),
                    fix=f"truncation={self.truncation!r} may not fit",
                )
            ) from error

    # -- any other tokenizer, by its own call --------------------------------------------------------------------

    def _encode_by_call(self, texts: Sequence[Text], pairs: Sequence[Text] | None) -> Encoded:
        ids: list[list[int]] = []
        types: list[list[int]] = []
        sample: list[int] = []
        cut = 0
        for index, text in enumerate(texts):
            pair = None if pairs is None else pairs[index]
            _refuse_surrogates(index, (text, pair))
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
        return Encoded(_flat(ids), _flat(types) if self.types else None, None, np.asarray(sample, dtype=np.int64), cut)

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
        room = (self.max_length or 0) - self._special[False]
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


def windows(length: int, room: int, stride: int, side: str) -> list[tuple[int, int]]:
    r"""Where the pieces of an overflowing text begin and end; neighbours share `stride` tokens, the last may be short.

    Example:
        >>> windows(10, 4, 1, "right"), windows(10, 4, 0, "left")
        ([(0, 4), (3, 7), (6, 10)], [(6, 10), (2, 6), (0, 2)])
    """
    step = room - stride
    if side == "right":
        pieces = [(start, min(start + room, length)) for start in range(0, length, step)]
        ends = [stop for _, stop in pieces]
        return pieces[: ends.index(length) + 1]
    pieces = [(max(stop - room, 0), stop) for stop in range(length, 0, -step)]
    starts = [start for start, _ in pieces]
    return pieces[: starts.index(0) + 1]


def _is_plain_fast(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether `tokenizer(...)` does nothing but ask its Rust part: a few model families add steps of their own."""
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    return (
        bool(tokenizer.is_fast)
        and type(tokenizer).__call__ is PreTrainedTokenizerBase.__call__
        and type(tokenizer)._encode_plus is PreTrainedTokenizerFast._encode_plus
    )


def _flat(rows: list[list[int]]) -> Ragged:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    values = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    return Ragged(values, lengths)


def _refuse_surrogates(index: int, given: object) -> None:
    texts = given if isinstance(given, (tuple, list)) else [given]
    for text in texts:
        if isinstance(text, (tuple, list)):
            _refuse_surrogates(index, text)
        elif isinstance(text, str):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(
                    explain(
                        f"row {index} holds a lone surrogate, which no tokenizer can read",
                        got=f"{shorten(text)}, character {error.start}",
                        fix="text.encode('utf-8', 'replace').decode('utf-8')",
                    )
                ) from error
