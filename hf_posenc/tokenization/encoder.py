"""`Encoder`: converts texts to rows of token ids, the same ids as `tokenizer(...)`.

For a fast tokenizer a backend of `tokenization` returns the ids, and `make_rows` truncates them and adds special
tokens. For other tokenizers see `call_encoder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.errors import value_error
from ..ragged import Ragged, lock_free_cache
from .backends import Backend, BackendName, DifferentIds, choose_backend
from .call_encoder import CallEncoder, Text, check_surrogates
from .limits import Limits
from .pieces import Pieces
from .rust import Template, TokenizersBackend, is_from_rust, post_processor
from .serialized import RustOnlyTokenizer, calls_only_rust
from .template import make_rows
from .token_rows import TokenRows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Characters of a piece of a long text, and of the pieces that are encoded at once: several, so that `tokenizers` uses
# several cores, but not many, because it needs about 150 bytes of memory for each character.
_PIECE, _AT_ONCE = 1 << 16, 1 << 18
# Characters per token of the first piece of a long text that is truncated; English has 4 to 5.
_CHARACTERS_A_TOKEN = 12


class Encoder:
    r"""Encoder from texts to rows of token ids, with special tokens and truncation, as in `tokenizer(...)`.

    Safe to use from several threads and in forked workers.

    Args:
        tokenizer (`PreTrainedTokenizerBase` or `RustOnlyTokenizer`): a private copy, see `loading.private_copy`.
        limits (`Limits`, *optional*): limit on the tokens of a row; by default none.
        add_special_tokens (`bool`, *optional*, defaults to `True`): as in transformers.
        is_split_into_words (`bool`, *optional*, defaults to `False`): as in transformers.
        word_ids (`bool`, *optional*, defaults to `False`): return also a column `word_ids`, the index of each token's
            word; -1 at special tokens.
        targets (`bool`, *optional*, defaults to `False`): encode texts as `tokenizer(text_target=...)` does. For some
            translation models, these ids differ.
        backend (`"auto"`, `"fast"` or `"tokenizers"`, *optional*): see `choose_backend`.
        dtype (NumPy type, *optional*, defaults to int64): dtype of the ids. A slow tokenizer, and a fast one with steps
            in Python, always give int64.

    Raises:
        ValueError: if `word_ids` is True and the tokenizer is slow or adds steps in Python; if `backend` is `"fast"`
            and this tokenizer has no fast backend.
        ImportError: if `backend` is `"fast"` and its library is not installed.

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
        tokenizer: PreTrainedTokenizerBase | RustOnlyTokenizer,
        limits: Limits | None = None,
        *,
        add_special_tokens: bool = True,
        is_split_into_words: bool = False,
        word_ids: bool = False,
        targets: bool = False,
        backend: BackendName = "auto",
        dtype: type[np.signedinteger[Any]] = np.int64,
    ) -> None:
        self.tokenizer, self.dtype = tokenizer, dtype
        self.limits = limits or Limits()
        self.word_ids = word_ids
        if targets and hasattr(tokenizer, "_switch_to_target_mode"):
            tokenizer._switch_to_target_mode()
        if word_ids and not tokenizer.is_fast:
            raise value_error(
                "whole_word_mask needs a fast tokenizer, because a slow one does not return the words of tokens",
                got=type(tokenizer).__name__,
                fix="whole_word_mask=False, or load the fast version of the tokenizer",
            )
        self._has_types = "token_type_ids" in tokenizer.model_input_names
        self.backend: Backend | None = None
        if calls_only_rust(tokenizer):
            text = tokenizer.json if isinstance(tokenizer, RustOnlyTokenizer) else tokenizer.backend_tokenizer.to_str()
            self.backend = choose_backend(
                text,
                backend,
                split_special_tokens=tokenizer.split_special_tokens,
                is_split_into_words=is_split_into_words,
                word_ids=word_ids,
            )
            processor = post_processor(self.backend.rust)
            self._templates = [
                Template.of(processor, pair=pair, add_special_tokens=add_special_tokens) for pair in (False, True)
            ]
            self._special = [template.special for template in self._templates]
        else:
            assert not isinstance(tokenizer, RustOnlyTokenizer)
            if backend == "fast":
                reason = f"{type(tokenizer).__name__}(...) takes steps of its own, in Python"
                raise value_error("this tokenizer has no fast backend", got=reason, fix='backend="auto"')
            if word_ids:
                raise value_error(
                    "whole_word_mask needs the words of tokens, and this tokenizer does not return them",
                    got=f"{type(tokenizer).__name__}(...) takes steps of its own, in Python",
                    fix="whole_word_mask=False",
                )
            self._special = [
                int(tokenizer.num_special_tokens_to_add(pair=pair)) if add_special_tokens else 0
                for pair in (False, True)
            ]
            self._calls = CallEncoder(
                tokenizer, self.limits, self._special[False], add_special_tokens, is_split_into_words, targets
            )

    def tokenize(self, texts: Sequence[Text], pairs: Sequence[Text] | None = None) -> TokenRows:
        r"""Tokenize and truncate a batch of texts or pairs, and return `TokenRows`.

        Args:
            texts (sequence of `str`, or of lists of words with `is_split_into_words`): the texts.
            pairs (the same, *optional*): the second text of each pair.

        Returns:
            `TokenRows` with the ids of `tokenizer(texts, pairs, ...)`. A long text gives several rows if `limits` has
            `overflow`.

        Raises:
            ValueError: if a text contains a lone surrogate, if `max_length` is too small for the special tokens, or if
                a pair cannot be truncated to `max_length`.
            DifferentIds: if the fast backend returned other ids than `tokenizers`.
        """
        self.limits.check_special_tokens(self._special[pairs is not None])
        if self.backend is None:
            return self._calls.tokenize(texts, pairs)
        given = [texts] if pairs is None else [texts, pairs]
        return self._rows([self._columns(self.backend, each, shorten=pairs is None) for each in given])

    def tokenize_blocks(self, blocks: Iterator[str]) -> TokenRows:
        r"""Tokenize and truncate one text that is given in blocks: `tokenize(["".join(blocks)])` in less memory.

        The blocks are read and tokenized one after another. If truncation removes the end of the text, reading stops
        soon after the last token that is kept. If `word_ids` is True, or `reason_not_cut` is not `None`, all blocks are
        joined first, which needs more memory.

        Args:
            blocks (iterator of `str`): the text in consecutive blocks of any size.

        Returns:
            `TokenRows`, with the ids of the whole text.

        Raises:
            ValueError: as in `tokenize`.
            DifferentIds: as in `tokenize`.
        """
        if self.backend is None or self.word_ids or self._pieces.reason is not None:
            return self.tokenize(["".join(blocks)])
        self.limits.check_special_tokens(self._special[False])
        with _tokenizer_errors([]):
            ids = self._joined(self.backend, [self._pieces.of(blocks, _PIECE)], self._enough)
        return self._rows([{"input_ids": ids}])

    def _rows(self, columns: list[dict[str, Ragged]]) -> TokenRows:
        """Return truncated rows with special tokens.

        `columns` has one dict for single texts, and two for pairs: the columns of the first and of the second texts.
        """
        template, side = self._templates[len(columns) - 1], self.tokenizer.truncation_side
        return make_rows(columns, template, self.limits, side=side, types=self._has_types, dtype=self.dtype)

    @property
    def _enough(self) -> int | None:
        """Number of ids after which the rest of a single text need not be encoded; `None` if all ids are needed."""
        limits = self.limits
        is_cut = limits.truncates and not limits.overflow and self.tokenizer.truncation_side == "right"
        return limits.max_length if is_cut else None

    def _columns(self, backend: Backend, texts: Sequence[Text], *, shorten: bool) -> dict[str, Ragged]:
        """Return the column `input_ids` of texts, without special tokens, and the column `word_ids` if it is needed.

        If `shorten` is True, the end of a very long text may be left out, because truncation would remove its tokens.
        """
        with _tokenizer_errors(texts):
            are_cut = max(map(len, texts), default=0) > _PIECE and self._pieces.reason is None
            if are_cut and shorten and (enough := self._enough) is not None:
                texts = [self._prefix(backend, text, enough) for text in texts]
            if self.word_ids and isinstance(backend, TokenizersBackend):
                return dict(zip(("input_ids", "word_ids"), backend.tokenize_with_words(texts), strict=True))
            if not are_cut:
                return {"input_ids": backend.tokenize(texts)}
            pieces = [self._pieces.of(text, _PIECE) if type(text) is str else [text] for text in texts]
            return {"input_ids": self._joined(backend, pieces)}

    def _prefix(self, backend: Backend, text: Any, enough: int) -> Any:
        """Return a beginning of `text` with more than `enough` ids, which are the first ids of the whole `text`.

        The whole `text` is returned if it has fewer ids, is not long, or is a list of words.
        """
        if type(text) is not str or len(text) <= _PIECE:
            return text
        ids = end = 0
        for piece in self._pieces.of(text, _CHARACTERS_A_TOKEN * enough):
            ids, end = ids + len(backend.tokenize([piece]).values), end + len(piece)
            if ids > enough:
                break
        return text[:end]

    def _joined(self, backend: Backend, texts: Sequence[Iterable[Any]], enough: int | None = None) -> Ragged:
        """Return the ids (int32) of long texts. Each text is given as an iterable of its consecutive pieces.

        If `enough` is given, the pieces of a text that follow its first `enough` ids may be left out.
        """
        values, lengths = bytearray(), np.zeros(len(texts), np.int64)

        def numbered_pieces() -> Iterator[tuple[int, Any]]:
            for row, pieces in enumerate(texts):
                for piece in pieces:
                    yield row, piece
                    if enough is not None and lengths[row] > enough:
                        break

        waiting = numbered_pieces()
        while some := _next_pieces(waiting):
            ids = backend.tokenize([piece for _, piece in some])
            values += ids.values.astype(np.int32).tobytes()
            np.add.at(lengths, [row for row, _ in some], ids.lengths)
        return Ragged(np.frombuffer(values, np.int32), lengths)

    @lock_free_cache
    def _pieces(self) -> Pieces:
        assert self.backend is not None
        return Pieces(self.backend.rust)

    @property
    def reason_not_cut(self) -> str | None:
        """Reason why long texts are encoded whole, which needs much memory; `None` if they are encoded in pieces."""
        return f"{type(self.tokenizer).__name__} is called for it" if self.backend is None else self._pieces.reason


@contextmanager
def _tokenizer_errors(texts: Sequence[Text]) -> Iterator[None]:
    """Replace an error of the tokenizers library by a clearer `ValueError`, in a `with` block that encodes `texts`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, DifferentIds) or not is_from_rust(error):
            raise
        for index, text in enumerate(texts):
            check_surrogates(index, text)
        raise value_error(
            "the tokenizer raised an error for this batch",
            got=str(error),
            fix="leave out the texts that tokenizer(text) refuses, or take a tokenizer with an unknown token",
        ) from error


def _next_pieces(pieces: Iterator[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Take pieces of texts from the iterator `pieces` until they have `_AT_ONCE` characters, and return them as a list.

    Each is a tuple (index of the text, piece). The list is empty if the iterator is exhausted.
    """
    some, size = [], 0
    for row, piece in pieces:
        some.append((row, piece))
        size += len(piece)
        if size >= _AT_ONCE:
            break
    return some
