"""Tokenize documents in a worker, and find the documents that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..ragged import Ragged
from ..rows import Encoder, Limits, TokenRows
from .options import Job


class Tokens:
    r"""Tokenizer of a job, loaded in a worker.

    Args:
        job (`Job`): its tokenizer and limits.
    """

    def __init__(self, job: Job) -> None:
        self._refuses_long = job.too_long == "error"
        self._limits = Limits(
            job.max_length,
            "do_not_truncate" if self._refuses_long else "longest_first",
            overflow=job.too_long == "split",
            stride=job.stride,
        )
        self._encoder = Encoder(job.tokenizer.load(), self._limits, add_special_tokens=job.add_special_tokens)
        self._empty = self._encoder.encode([""], None if job.text_pair_column is None else [""])

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None) -> tuple[TokenRows, dict[int, str]]:
        r"""Tokenize a batch of documents.

        Args:
            texts, pairs (sequence of `str`): valid Unicode.

        Returns:
            `TokenRows`, and for each unusable document, by its index, the reason. An unusable document gets the row of
            an empty text. A document with special tokens only is unusable.
        """
        bad: dict[int, str] = {}
        try:
            rows = self._encoder.encode(texts, pairs)
        except ValueError:  # the tokenizer's error names no row: encode each document alone
            for index, text in enumerate(texts):
                try:
                    self._encoder.encode([text], None if pairs is None else [pairs[index]])
                except ValueError as error:
                    bad[index] = f"is refused by the tokenizer: {_reason(error)}"
            if not bad:
                raise
            texts = ["" if index in bad else text for index, text in enumerate(texts)]
            pairs = None if pairs is None else ["" if index in bad else text for index, text in enumerate(pairs)]
            rows = self._encoder.encode(texts, pairs)
        for row in np.flatnonzero(self._is_empty(rows.ids)).tolist():
            bad.setdefault(int(rows.sample[row]), "has no tokens")
        limit = self._limits.max_length
        if self._refuses_long and limit is not None and rows.ids.longest > limit:
            too_long = rows.ids.lengths > limit  # (documents,): there is one row for each document here
            for row in np.flatnonzero(too_long).tolist():
                bad.setdefault(row, f"has {rows.ids.lengths[row]} tokens, limit {limit}")
            empty = self._empty.columns
            columns = {
                name: [empty[name].values if is_long else row for row, is_long in zip(column, too_long, strict=True)]
                for name, column in rows.columns.items()
            }
            rows = TokenRows({name: Ragged.from_rows(column) for name, column in columns.items()}, rows.sample)
        return rows, bad

    def _is_empty(self, ids: Ragged) -> NDArray[np.bool_]:
        """Return True for each row that is the same as the row of an empty text."""
        empty = self._empty.ids.values
        same: NDArray[np.bool_] = ids.lengths == len(empty)
        rows = np.flatnonzero(same)
        tokens = ids.values[ids.offsets[rows][:, None] + np.arange(len(empty))]  # (rows, tokens of an empty text)
        same[rows] = (tokens == empty).all(axis=1)
        return same


def _reason(error: ValueError) -> str:
    lines = str(error).splitlines()
    return next((line.split("got: ", 1)[1] for line in lines if "got: " in line), lines[0])
