"""`Encoder`: converts texts to rows of token ids, the same ids as `tokenizer(...)`.

For a fast tokenizer a backend of `tokenization` returns the ids, and `make_rows` truncates them and adds special
tokens. For other tokenizers see `call_encoder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._common.compat import switch_mode
from .._common.errors import value_error
from ..documents import Documents, Limits, Parts, kept_parts
from ..ragged import Ragged, lock_free_cache, run_indices
from .backends import Backend, BackendName, DifferentIds, choose_backend
from .call_encoder import CallEncoder, Text, check_surrogates
from .pieces import LONG_TEXT, Pieces
from .rust import TokenizersBackend, is_from_rust, to_json
from .template import Template, templates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Encoder:
    r"""Encoder from texts to rows of token ids, with special tokens and truncation, as in `tokenizer(...)`.

    Safe to use from several threads and in forked workers.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): a private copy, see `loading.private_copy`.
        limits (`Limits`, *optional*): limit on the tokens of a row; by default none.
        add_special_tokens (`bool`, *optional*, defaults to `True`): as in transformers.
        is_split_into_words (`bool`, *optional*, defaults to `False`): as in transformers.
        word_ids (`bool`, *optional*, defaults to `False`): return also a column `word_ids`, the index of each token's
            word; -1 at special tokens.
        targets (`bool`, *optional*, defaults to `False`): encode texts as `tokenizer(text_target=...)` does. For some
            translation models, these ids differ.
        backend (`"auto"` or the name of a library, *optional*): see `choose_backend`.

    Raises:
        ValueError: if `word_ids` is True and the tokenizer is slow or adds steps in Python; if `backend` is a library
            that cannot make the ids of this tokenizer.
        ImportError: if `backend` is a library that is not installed.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from hf_posenc.tokenization.loading import private_copy
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2, "bike": 3}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> Encoder(private_copy(raw)).tokenize(["I ride bike", "bike"]).ids.pad(0)
        array([[1, 2, 3],
               [3, 0, 0]])
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        limits: Limits | None = None,
        *,
        add_special_tokens: bool = True,
        is_split_into_words: bool = False,
        word_ids: bool = False,
        targets: bool = False,
        backend: BackendName = "auto",
    ) -> None:
        self.tokenizer = tokenizer
        self.limits = limits or Limits()
        self.word_ids = word_ids
        if targets:
            switch_mode(tokenizer, targets=True)
        self._has_types = "token_type_ids" in tokenizer.model_input_names
        self.backend: Backend | None = None
        self._templates = templates(tokenizer, add_special_tokens=add_special_tokens)
        if self._templates:
            self.backend = choose_backend(
                to_json(tokenizer),
                backend,
                split_special_tokens=bool(getattr(tokenizer, "split_special_tokens", False)),
                is_split_into_words=is_split_into_words,
                word_ids=word_ids,
            )
            self._special = [template.special for template in self._templates]
        else:
            reason = f"{type(tokenizer).__name__}(...) takes steps of its own, in Python"
            if backend not in ("auto", "tokenizers"):
                raise value_error(f"{backend} cannot make the ids of this tokenizer", got=reason, fix='backend="auto"')
            if word_ids:
                rule = "whole_word_mask needs the words of tokens, and this tokenizer does not return them"
                raise value_error(rule, got=reason, fix="whole_word_mask=False, or the fast version of the tokenizer")
            self._special = [
                int(tokenizer.num_special_tokens_to_add(pair=pair)) if add_special_tokens else 0
                for pair in (False, True)
            ]
            self._calls = CallEncoder(tokenizer, self._special[False], add_special_tokens, is_split_into_words, targets)

    def tokenize(
        self, texts: Sequence[Text], pairs: Sequence[Text] | None = None, *, limits: Limits | None = None
    ) -> Documents:
        r"""Tokenize and truncate a batch of texts or pairs, and return `Documents`; `limits` replace the encoder's."""
        limits = limits or self.limits
        limits.check_special_tokens(self._special[pairs is not None])
        if self.backend is None:
            return self._calls.tokenize(texts, pairs, limits)
        sources = [texts] if pairs is None else [texts, pairs]
        columns = [self._columns(self.backend, source, limits, shorten=pairs is None) for source in sources]
        template, side = self._templates[pairs is not None], self.tokenizer.truncation_side
        return make_rows(columns, template, limits, side=side, types=self._has_types)

    def _columns(self, backend: Backend, texts: Sequence[Text], limits: Limits, *, shorten: bool) -> dict[str, Ragged]:
        """Return the column `input_ids` of texts, without special tokens, and the column `word_ids` if it is needed."""
        # If `shorten` is True, the end of a very long text may be left out, because truncation would remove its tokens.
        is_cut = shorten and limits.truncates and not limits.overflow and self.tokenizer.truncation_side == "right"
        try:
            is_long = max(map(len, texts), default=0) > LONG_TEXT and self._pieces.reason is None
            # Tokenized whole, 10 MB of text take 5.5 s, and one word of 20 MB 26 s.
            if is_long and is_cut and limits.max_length is not None:
                texts = [self._pieces.prefix(backend.tokenize, text, limits.max_length) for text in texts]
            if self.word_ids and isinstance(backend, TokenizersBackend):
                return dict(zip(("input_ids", "word_ids"), backend.tokenize_with_words(texts), strict=True))
            if is_long:
                return {"input_ids": self._pieces.tokenize(backend.tokenize, texts)}
            return {"input_ids": backend.tokenize(texts)}
        except BaseException as error:  # a panic of the tokenizers library is no Exception
            if isinstance(error, DifferentIds) or not is_from_rust(error):
                raise
            for index, text in enumerate(texts):
                check_surrogates(index, text)
            raise value_error(
                "the tokenizer raised an error for this batch",
                got=str(error),
                fix="leave out the texts that tokenizer(text) refuses, or take a tokenizer with an unknown token",
            ) from error

    @lock_free_cache
    def _pieces(self) -> Pieces:
        assert self.backend is not None
        return Pieces(self.backend.rust)


def calls_only_rust(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return True if calling `tokenizer` only runs its Rust tokenizer; a few model families add steps in Python."""
    return bool(templates(tokenizer))


# ---------------------------------------------------------------------- special tokens, for the whole batch in NumPy


def make_rows(
    texts: Sequence[Mapping[str, Ragged]],
    template: Template,
    limits: Limits,
    *,
    side: str,
    types: bool,
) -> Documents:
    r"""Return rows of token ids with special tokens, truncated or split to the limit, in the order of `tokenizers`.

    `texts` are the columns of the texts, or of the first and of the second texts of pairs: `input_ids`, and other
    columns with one value per token, which get -1 at special tokens. `types` adds the column `token_type_ids`. Raise
    `ValueError` if a row cannot be truncated to the limit.

    Example:
        >>> ids = Ragged.from_rows([[7, 8, 9], [5]])
        >>> bert = Template(((101, 0), (Template.FIRST, 0), (102, 0)))
        >>> make_rows([{"input_ids": ids}], bert, Limits(4), side="right", types=False).ids.pad(0)
        array([[101,   7,   8, 102],
               [101,   5, 102,   0]])
    """
    parts = kept_parts([text["input_ids"].lengths for text in texts], limits, special=template.special, side=side)
    row_lengths = sum(parts.lengths[1:], parts.lengths[0] + template.special)
    if len(template.ids) == 1:  # rows are texts, without special tokens
        piece_lengths = row_lengths
        columns = {name: Ragged(parts.of(0, column), row_lengths) for name, column in texts[0].items()}
    else:
        tokens, lengths = np.empty((2, len(parts.given_row), len(template.ids)), np.int64)
        tokens[:], lengths[:] = template.ids, 1
        for piece, of_text in zip(template.texts, parts.lengths, strict=True):
            lengths[:, piece] = of_text
        piece_lengths = lengths.ravel()
        ids = tokens.ravel().repeat(piece_lengths)  # (N,), FIRST and SECOND at the tokens of texts
        inside = [ids == Template.FIRST - text for text in range(len(texts))]
        columns = {}
        for name in texts[0]:
            values = ids if name == "input_ids" else np.full(len(ids), -1)
            for text, here in enumerate(inside):
                values[here] = parts.of(text, texts[text][name])
            columns[name] = Ragged(values, row_lengths)
    if types:
        count = len(columns["input_ids"].values)
        columns["token_type_ids"] = Ragged(_token_types(template, parts, piece_lengths, count), row_lengths)
    places = None
    if parts.starts:  # of each piece: its tokens before truncation, and the place of the first that is left
        whole, starts = np.ones((2, len(parts.given_row), len(template.ids)), np.int64)
        starts[:] = 0
        for text, piece in enumerate(template.texts):
            whole[:, piece] = texts[text]["input_ids"].lengths[parts.given_row]
            starts[:, piece] = parts.starts[text]
        begins = np.cumsum(whole, axis=1) - whole + starts
        places = Ragged(run_indices(begins.ravel(), piece_lengths), row_lengths)
    return Documents(columns, parts.given_row, parts.truncated, places=places)


def _token_types(template: Template, parts: Parts, lengths: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the token types of `count` tokens; `lengths` are those of the pieces of all rows."""
    later_windows = parts.windows and not template.types_windows
    if not later_windows and not np.count_nonzero(template.types):
        return np.zeros(count, np.int64)
    kinds = np.empty((len(parts.given_row), len(template.types)), np.int64)
    kinds[:] = template.types
    for text, piece in enumerate(template.texts if later_windows else ()):
        kinds[parts.windows[text] > 0, piece] = text
    return kinds.ravel().repeat(lengths)
