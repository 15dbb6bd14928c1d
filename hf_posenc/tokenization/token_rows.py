"""`TokenRows`: rows of tokens before padding, with ids and other columns of one value per token; and their `Limits`.

NumPy only, so that a forked worker can use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._common.errors import counted, value_error
from ..packing import documents_by_positions, order_by_document
from ..ragged import Ragged, lock_free_cache

Truncation = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]


@dataclass(frozen=True)
class Limits:
    r"""Limit on the number of tokens in a row, including special tokens.

    Args:
        max_length (`int`, *optional*): maximal number of tokens; by default there is no limit.
        truncation (`"longest_first"`, `"only_first"`, `"only_second"` or `"do_not_truncate"`, *optional*, defaults to
            `"longest_first"`): as in transformers.
        overflow (`bool`, *optional*, defaults to `False`): continue a longer text in further rows instead of leaving
            out its rest.
        stride (`int`, *optional*, defaults to 0): tokens shared by consecutive rows of one text, with `overflow`.

    Example:
        >>> Limits(512).truncates, Limits(512, "do_not_truncate").truncates
        (True, False)
    """

    max_length: int | None = None
    truncation: Truncation = "longest_first"
    overflow: bool = False
    stride: int = 0

    @property
    def truncates(self) -> bool:
        """True if rows are limited to `max_length`; False if that is `None`, or with `"do_not_truncate"`."""
        return self.max_length is not None and self.truncation != "do_not_truncate"

    def check_special_tokens(self, special: int) -> None:
        r"""Raise if `max_length` is too small for the special tokens of a row, the stride and one more token.

        The stride counts only with `overflow`. Nothing is checked if rows are not truncated.
        """
        stride = self.stride if self.overflow else 0
        needed = special + stride + 1
        if not self.truncates or self.max_length is None or self.max_length >= needed:
            return
        ways = [f"max_length={needed} or more"]
        if stride and self.max_length > special:
            ways.append(f"stride={self.max_length - special - 1}")
        if special:
            ways.append("add_special_tokens=False")
        raise value_error(
            f"max_length must leave room for {counted(special, 'special token')}"
            + (f", a stride of {stride}" if stride else "")
            + " and one more token",
            got=f"max_length={self.max_length}" + (f", stride={stride}" if stride else ""),
            fix=", or ".join(ways),
        )


@dataclass(frozen=True, eq=False)
class TokenRows:
    r"""Rows of tokens before a collator pads them to a batch, stored as `Ragged` columns with one value per token.

    Args:
        columns (`dict` from `str` to `Ragged`): `"input_ids"`, and other columns of the same lengths.
            `"attention_mask"` is present only if rows already contain padding, where it is 0. `"document_ids"`, the
            number of each token's document in a packed row, is -1 at padding.
        sample (`np.ndarray` `(R,)` int64): index of the text of each row; a long text may give several rows.
        truncated (`int`, *optional*, defaults to 0): number of texts that lost tokens.

    Example:
        >>> rows = TokenRows({"input_ids": Ragged.from_rows([[7, 8, 9], [5]])}, np.arange(2))
        >>> rows.truncate(Limits(2)).ids.values
        array([7, 8, 5])
    """

    columns: dict[str, Ragged]
    sample: NDArray[np.int64]
    truncated: int = 0

    @property
    def ids(self) -> Ragged:
        """Token ids of the rows: the column `input_ids`."""
        return self.columns["input_ids"]

    @property
    def token_type_ids(self) -> Ragged | None:
        """Column `token_type_ids`; `None` if there is none."""
        return self.columns.get("token_type_ids")

    @property
    def is_token(self) -> NDArray[np.bool_] | None:
        """Mask `(N,)` of all rows, concatenated: True at tokens, False at padding. `None` if there is no padding."""
        mask = self.columns.get("attention_mask")
        return None if mask is None else mask.values.astype(bool)

    @lock_free_cache
    def documents(self) -> Ragged | None:
        """Document number of each token within its row, -1 at padding; `None` if every row is one document.

        The numbers are those of the column `document_ids`. Without it, a document begins where `position_ids` restart.
        """
        numbers, positions = self.columns.get("document_ids"), self.columns.get("position_ids")
        if numbers is not None:
            tokens = numbers.where(numbers.values >= 0)
            several = len(order_by_document(tokens.values, tokens.lengths)[1]) > np.count_nonzero(tokens.lengths)
            return numbers if several else None
        if positions is None:
            return None
        real = np.ones(len(self.ids.values), dtype=np.bool_) if self.is_token is None else self.is_token
        tokens = positions.where(real)
        found = documents_by_positions(tokens.values, tokens.lengths)
        if found is None:
            return None
        documents = np.full(len(real), -1)
        documents[real] = found
        return Ragged(documents, positions.lengths)

    def positions_in_documents(self, start: int) -> NDArray[np.int64]:
        """Return the position of each token in its document, `(N,)` int64; the first token of a document has `start`.

        N is the number of tokens in all rows, padding included. The positions of padding have no meaning.
        """
        if self.documents is None:
            if self.is_token is None:
                return self.ids.counters(start).values
            positions = np.full(len(self.ids.values), start)
            positions[self.is_token] = self.ids.where(self.is_token).counters(start).values
            return positions
        order, lengths, _ = order_by_document(self.documents.values, self.documents.lengths)
        values = np.empty_like(order)
        values[order] = Ragged(order, lengths).counters(start).values
        return values

    def with_columns(self, **columns: Ragged) -> TokenRows:
        """Return a copy of the rows with the given columns added or replaced."""
        return replace(self, columns={**self.columns, **columns})

    def where(self, keep: NDArray[np.bool_]) -> TokenRows:
        """Return the rows without the tokens at which `keep` is False.

        `keep` `(N,)` has one value for each token of all rows, one row after the other.
        """
        return replace(self, columns={name: column.where(keep) for name, column in self.columns.items()})

    def take(self, rows: NDArray[np.int64]) -> TokenRows:
        """Return the rows with the given indices, in this order."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return replace(self, columns=columns, sample=self.sample[rows])

    def without_padding(self) -> TokenRows:
        """Return the rows without padding, and without `attention_mask`."""
        if self.is_token is None:
            return self
        rows = self.where(self.is_token)
        return replace(rows, columns={name: c for name, c in rows.columns.items() if name != "attention_mask"})

    def trim(self) -> TokenRows:
        """Return the rows without the padding at the start and end of each row; padding between tokens is kept."""
        mask = self.columns.get("attention_mask")
        if mask is None:
            return self
        keep = np.zeros(len(mask.values), dtype=np.bool_)
        for row, start in zip(mask, mask.offsets.tolist(), strict=False):
            tokens = np.flatnonzero(row)
            if len(tokens):
                keep[start + tokens[0] : start + tokens[-1] + 1] = True
        return self.where(keep)

    def truncate(self, limits: Limits, *, side: str = "right") -> TokenRows:
        r"""Return the rows truncated to `max_length`, or split into several rows with `limits.overflow`."""
        ids, limit = self.ids, limits.max_length
        if limit is None or not limits.truncates or ids.longest <= limit:
            return self
        parts: list[tuple[int, int, int]] = []
        for row, (begin, length) in enumerate(zip(ids.offsets[:-1].tolist(), ids.lengths.tolist(), strict=True)):
            windows = window_offsets(length, limit, limits.stride, side) if length else [(0, 0)]
            windows = windows if limits.overflow else windows[:1]
            parts += [(row, begin + start, begin + stop) for start, stop in windows]
        picked = np.concatenate([np.arange(start, stop) for _, start, stop in parts])
        lengths = np.array([stop - start for _, start, stop in parts], dtype=np.int64)
        return TokenRows(
            columns={name: Ragged(column.values[picked], lengths) for name, column in self.columns.items()},
            sample=self.sample[[row for row, _, _ in parts]],
            truncated=self.truncated + (0 if limits.overflow else int((ids.lengths > limit).sum())),
        )

    def split_documents(self) -> TokenRows:
        """Return one row for each document. Padding and the columns `document_ids` and `attention_mask` are removed."""
        documents, real = self.documents, self.is_token
        columns = {name: c for name, c in self.without_padding().columns.items() if name != "document_ids"}
        if documents is None:
            return replace(self, columns=columns)
        documents = documents if real is None else documents.where(real)
        order, lengths, row = order_by_document(documents.values, documents.lengths)
        columns = {name: Ragged(column.values[order], lengths) for name, column in columns.items()}
        return replace(self, columns=columns, sample=self.sample[row])


def window_offsets(length: int, window: int, stride: int, side: str) -> list[tuple[int, int]]:
    r"""Return the start and stop of each window over a sequence. Consecutive windows share `stride` tokens.

    Example:
        >>> window_offsets(10, 4, 1, "right"), window_offsets(10, 4, 0, "left")
        ([(0, 4), (3, 7), (6, 10)], [(6, 10), (2, 6), (0, 2)])
    """
    step = window - stride
    if side == "right":
        offsets = [(start, min(start + window, length)) for start in range(0, length, step)]
        return offsets[: [stop for _, stop in offsets].index(length) + 1]
    offsets = [(max(stop - window, 0), stop) for stop in range(length, 0, -step)]
    return offsets[: [start for start, _ in offsets].index(0) + 1]
