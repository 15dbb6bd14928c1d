"""Documents to token ids inside a worker, and which of them have none.

The encoder is that of every collator; here it is built once a process from what a job carries, and asked in batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...ragged import Ragged
from ...tokenization.encoded import Encoded
from ...tokenization.encoding import Encoder
from ..job import Job


@dataclass(frozen=True, eq=False)
class Tokenised:
    r"""A batch of documents, tokenised.

    Args:
        encoded (`Encoded`): one row a document, or several where a long one goes on.
        bad (`dict` from `int` to `str`): documents that a job cannot take as they are, with the reason; their rows are
            those of an empty text.
    """

    encoded: Encoded
    bad: dict[int, str]


class Tokens:
    r"""The tokenizer of a job, ready to use.

    Args:
        job (`Job`): its tokenizer and limits.
    """

    def __init__(self, job: Job) -> None:
        self._pairs = job.text_pair_column is not None
        self._refuses_long = job.too_long == "error"
        self._limit = job.max_length
        self._encoder = Encoder(
            job.tokenizer.load(),
            max_length=job.max_length,
            truncation="do_not_truncate" if self._refuses_long else "longest_first",
            overflow=job.too_long == "split",
            stride=job.stride,
            add_special_tokens=job.add_special_tokens,
        )
        self._nothing = self._encode([""]).input_ids.values

    def of(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Tokenised:
        r"""Tokenises a batch.

        Args:
            texts, pairs (sequence of `str`): valid Unicode, as Arrow holds it.

        Returns:
            `Tokenised`. A document without tokens of its own, besides special ones, is among the bad.
        """
        try:
            encoded, bad = self._encoder.encode(texts, pairs), {}
        except ValueError:  # a tokenizer names no row
            bad = self._refused(texts, pairs)
            if not bad:
                raise
            texts = [text if index not in bad else "" for index, text in enumerate(texts)]
            pairs = None if pairs is None else [text if index not in bad else "" for index, text in enumerate(pairs)]
            encoded = self._encoder.encode(texts, pairs)
        for row in np.flatnonzero(self._has_nothing(encoded.input_ids)).tolist():
            bad.setdefault(int(encoded.sample[row]), "has no tokens")
        if self._refuses_long and self._limit is not None and encoded.input_ids.longest > self._limit:
            encoded = self._without_long(encoded, bad, self._limit)
        return Tokenised(encoded, bad)

    def _encode(self, texts: list[str]) -> Encoded:
        return self._encoder.encode(texts, list(texts) if self._pairs else None)

    def _has_nothing(self, ids: Ragged) -> NDArray[np.bool_]:
        """Which rows are those of an empty text."""
        nothing: NDArray[np.bool_] = ids.lengths == len(self._nothing)
        at = np.flatnonzero(nothing)
        tokens = ids.values[ids.offsets[at][:, None] + np.arange(len(self._nothing))]  # (rows, tokens of an empty text)
        nothing[at] = (tokens == self._nothing).all(axis=1)
        return nothing

    def _refused(self, texts: Sequence[str], pairs: Sequence[str] | None) -> dict[int, str]:
        """The documents that the tokenizer refuses, each asked alone."""
        bad = {}
        for index, text in enumerate(texts):
            try:
                self._encoder.encode([text], None if pairs is None else [pairs[index]])
            except ValueError as error:
                bad[index] = f"is refused by the tokenizer: {_reason(error)}"
        return bad

    def _without_long(self, encoded: Encoded, bad: dict[int, str], limit: int) -> Encoded:
        """The rows with an empty text in place of each that is too long; there is one row a document here."""
        ids = encoded.input_ids
        rows = list(ids)
        types = None if encoded.token_type_ids is None else list(encoded.token_type_ids)
        empty = self._encode([""])
        for row in np.flatnonzero(ids.lengths > limit).tolist():
            bad.setdefault(row, f"has {ids.lengths[row]} tokens, limit {limit}")
            rows[row] = empty.input_ids.values
            if types is not None and empty.token_type_ids is not None:
                types[row] = empty.token_type_ids.values
        return replace(
            encoded,
            input_ids=Ragged.from_rows(rows),
            token_type_ids=None if types is None else Ragged.from_rows(types),
        )


def _reason(error: ValueError) -> str:
    lines = str(error).splitlines()
    return next((line.split("got: ", 1)[1] for line in lines if "got: " in line), lines[0])
