"""`Batches`: batches of texts of similar length for inference, and their results in the order of the texts.

The texts are tokenized once, in parts of `window` texts, and only the batch in use is padded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.compat import progress_bar
from .._common.errors import require_one_split, shorten, value_error
from .._common.integers import as_integer
from ..documents import Documents
from ..packing import BatchPlan, plan_batches
from ..ragged import round_up
from .batch import Batch
from .inputs import as_list, is_arrow, is_columns

if TYPE_CHECKING:
    from .collator import DataCollatorWithPositionalEncoding


class Batches:
    r"""Iterable over batches of texts, or tokenized rows, of similar length. `collate.batches` makes it, for inference.

    Every loop over it yields the same batches. If the texts come from an iterator, such as a generator, only one loop
    is possible. After a loop, `in_order` puts the results of the batches in the order of the texts.

    Args:
        collate (`DataCollatorWithPositionalEncoding`): the collator that makes the batches.
        texts: rows, columns or an iterable of rows, as `collate.batches` accepts them.
        token_budget (`int`): maximal number of tokens in a batch, padding included.
        window (`int`): number of texts that are tokenized and sorted by length together.
    """

    def __init__(self, collate: DataCollatorWithPositionalEncoding, texts: Any, token_budget: int, window: int) -> None:
        if collate.packing:
            raise value_error(
                "packing puts several documents into one row, so that a document has no result of its own",
                got=f"packing={collate.packing!r}",
                fix="collate.replace(packing=False).batches(...)",
            )
        if collate.on_no_labels == "skip":
            raise value_error(
                "a row that is left out of its batch has no result",
                got='on_no_labels="skip"',
                fix='collate.replace(on_no_labels="keep").batches(...)',
            )
        require_one_split(texts)
        self._texts = [texts] if isinstance(texts, str) else texts
        if not (is_columns(texts) or isinstance(texts, Iterable)) or isinstance(texts, bytes | set | frozenset):
            as_list(texts)  # raises
        self._budget = as_integer(token_budget, "token_budget", minimum=1, example=16_384)
        self._window = as_integer(window, "window", minimum=1, example=20_000)
        self._collate = collate
        self._begun = self._complete = False  # True if an iteration has begun, and if one has reached its end
        self._rows: list[NDArray[np.int64]] = []  # the rows of each batch that was yielded
        self._texts_of_rows: list[NDArray[np.int64]] = []  # the text of each row, for each window

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches, one window of texts after another. In a window, batches with longer rows come first.

        A window is a part of the texts that is tokenized and sorted at once. Raise a `ValueError` if the texts come
        from an iterator and an earlier loop has begun.
        """
        if self._begun and isinstance(self._texts, Iterator):
            raise value_error(
                "texts from an iterator can be read only once, and an earlier iteration read some of them",
                got=type(self._texts).__name__,
                fix="collate.batches(list(texts), ...), or one loop over the batches",
            )
        self._begun = True
        return self._iterate()

    def _iterate(self) -> Iterator[Batch]:
        number = first_row = 0
        with progress_bar("Batches", _count(self._texts)) as bar:
            for index, (first_text, window) in enumerate(_windows(self._texts, self._window)):
                tokenized = self._tokenized(window, first_text)
                plan = self._plan(tokenized)
                if index == len(self._texts_of_rows):
                    self._texts_of_rows.append(tokenized.given_row)
                for place in np.argsort(-plan.widths, kind="stable").tolist():
                    rows = plan[place]
                    if number == len(self._rows):
                        self._rows.append(first_row + rows)
                    number += 1
                    try:
                        batch = self._collate.batch(tokenized.take(rows))
                    except (TypeError, ValueError) as error:
                        numbers = tokenized.given_row[rows].tolist()
                        error.add_note(f"  the rows of this batch are rows {shorten(numbers)} of the input")
                        raise
                    yield batch
                    bar.update(len(rows))
                first_row += len(tokenized.ids)
        self._complete = True

    def _tokenized(self, window: Any, first_text: int) -> Documents:
        """Tokenize one window, a part of the texts."""
        try:
            tokenized = self._collate._to_documents(window)
        except (TypeError, ValueError) as error:
            if first_text:
                error.add_note(f"  row 0 of this message is row {first_text} of the input")
            raise
        return tokenized.replaced(given_row=tokenized.given_row + first_text)

    def _plan(self, tokenized: Documents) -> BatchPlan:
        """Divide the rows of a tokenized window into batches within the token budget."""
        multiple, fixed = self._collate.pad_to_multiple_of, self._collate._config.fixed_length
        lengths = np.maximum(tokenized.ids.lengths, 1)  # a row without tokens is padded to one
        if fixed is not None:
            lengths = np.full_like(lengths, fixed)
        longest = int(lengths.max(initial=0))
        if (width := round_up(longest, multiple)) > self._budget:
            with_padding = "" if width == longest else f", {width} with padding"
            raise value_error(
                f"row {tokenized.given_row[lengths.argmax()]} has {longest} tokens{with_padding}, beyond the budget",
                got=f"token_budget={self._budget}",
                fix=f"token_budget={width}, or a collator with a smaller max_length",
            )
        return plan_batches(lengths, self._budget, window=max(len(lengths), 1), multiple_of=multiple)

    @property
    def overflow_to_sample_mapping(self) -> NDArray[np.int64]:
        """Indices `(N,)` int64 of the texts to which the N values returned by `in_order` belong.

        They are 0, 1, 2, … unless `return_overflowing_tokens` split a long text into several rows, each with its own
        value. Raises a `ValueError` until one loop over the batches has ended.
        """
        self._check_complete()
        return np.concatenate(self._texts_of_rows, dtype=np.int64) if self._texts_of_rows else np.empty(0, np.int64)

    def in_order(self, results: Iterable[Any]) -> Any:
        r"""Return the results of all batches as one tensor, array or list, in the order of the texts.

        Args:
            results (iterable): one result for each batch, in the order of the batches: a tensor or array `(B, ...)`, or
                a list of B values of any kind. With a generator, only one batch is in memory at a time.

        Returns:
            `torch.Tensor` or `np.ndarray` `(N, ...)` of the dtype and device of the results, or a `list` of N values. N
            is the number of texts. If `return_overflowing_tokens` split texts, N is the number of rows instead; see
            `overflow_to_sample_mapping`. Without texts, return an empty tensor, or array with `return_tensors="np"`.

        Raises:
            ValueError: if there is not one result for each batch, with one value for each row; if no loop over the
                batches has ended.
            Exception: of torch or NumPy, if the results do not fit together.

        Example:
            >>> from tokenizers import Tokenizer, models, pre_tokenizers
            >>> from hf_posenc import DataCollatorWithPositionalEncoding
            >>> raw = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
            >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
            >>> batches = DataCollatorWithPositionalEncoding(raw).batches(["a", "b b b", "b a", "a a b"], 4)
            >>> batches.in_order(batch.input_ids.sum(dim=1) for batch in batches)
            tensor([2, 9, 5, 7])
        """
        parts = deque(results)
        self._check_complete()
        sizes, result_sizes = [len(rows) for rows in self._rows], [len(part) for part in parts]
        if result_sizes != sizes:
            raise value_error(
                "in_order needs one result for each batch, with one value for each of its rows",
                got=f"{len(result_sizes)} results for {len(sizes)} batches; "
                f"{shorten(result_sizes)} values for {shorten(sizes)} rows",
                fix="batches.in_order(model(**batch).pooler_output for batch in batches)",
            )
        if not parts:
            return np.empty(0) if self._collate.return_tensors == "np" else torch.empty(0, device="cpu")
        first, count = parts[0], sum(sizes)
        out: Any = [None] * count
        if not isinstance(first, list):
            shape = (count, *first.shape[1:])
            out = np.empty(shape, first.dtype) if isinstance(first, np.ndarray) else first.new_empty(shape)
        for rows in self._rows:
            part = parts.popleft()  # its memory is free once it is copied
            if isinstance(first, list):
                for row, value in zip(rows.tolist(), part, strict=True):
                    out[row] = value
            else:
                out[rows] = part
        return out

    def _check_complete(self) -> None:
        """Raise a `ValueError` if no loop over the batches has reached its end."""
        if not self._complete:
            raise value_error(
                "the results can be sorted once all batches were made",
                got=f"a loop that ended after {len(self._rows)} batches" if self._begun else "no loop over them",
                fix="batches.in_order(model(**batch).pooler_output for batch in batches)",
            )


def _count(texts: Any) -> int | None:
    """Return the number of texts, which are given as rows or as columns; `None` for an iterator."""
    if isinstance(texts, Mapping):
        # The longest column, so that the collator sees and refuses columns of different lengths.
        return max(map(len, texts.values()), default=0)
    return len(texts) if hasattr(texts, "__len__") else None


def _windows(texts: Any, size: int) -> Iterator[tuple[int, Any]]:
    """Split `texts`, which are given as rows or as columns, into parts of `size` rows; the last may have fewer."""
    if is_columns(texts) or is_arrow(texts):
        for start in range(0, _count(texts) or 0, size):
            yield start, _slice(texts, start, size)
        return
    rows, start = iter(texts), 0
    while window := list(islice(rows, size)):
        yield start, window
        start += len(window)


def _slice(source: Any, start: int, size: int) -> Any:
    if isinstance(source, Mapping):
        return {name: _slice(column, start, size) for name, column in source.items()}
    if is_arrow(source):
        return source.slice(start, size)
    return getattr(source, "iloc", source)[start : start + size]
