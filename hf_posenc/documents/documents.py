"""`Documents`: rows of tokens without padding and gaps, as the collator, `pack_dataset` and the audit arrange them.

`reading` makes them of given rows, `tokenization` of texts. NumPy only, so that a forked worker can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import value_error
from ..packing import pack
from ..ragged import Ragged, offsets_of, run_indices, runs
from .names import SUPERVISION
from .truncation import Limits, truncate


@dataclass(frozen=True, eq=False)
class Documents:
    r"""Rows of documents before a collator arranges them, stored as `Ragged` columns with one value per token.

    Rows are closed: they have no padding and no gaps, the tokens of a document are neighbors, and documents stand in
    the order in which they begin. A row of a tokenized text is one document, and a given row may hold several.

    Args:
        columns (`dict` from `str` to `Ragged`): `"input_ids"`, and other columns of the same lengths.
        sample (`np.ndarray` `(R,)` int64): index of the text or given row of each row; a long text may give several.
        truncated (`int`, *optional*, defaults to 0): number of texts, given rows or their documents that lost tokens.
        sizes (`Ragged`, *optional*): lengths of the documents in each row. A row without tokens has one of length 0.
            `None` if no column says where documents begin: each row is one document.
        boundaries (`tuple` of `str`, *optional*): names of the given columns of `BOUNDARIES`.
        places (`Ragged`, *optional*): index of each token in its document before truncation; `None` if no token was
            removed. `token_places` returns them in any case.
        places_unknown (`bool`, *optional*, defaults to `False`): True if a tokenizer with steps in Python truncated a
            text, and does not return the places of its tokens.
        per_row (mapping from `str` to sequence, *optional*): other columns of the input, with one value for each row.
        targets (`Documents`, *optional*): separate token sequences to predict, one for each row; `None` if there are
            none.
        source (`"texts"`, `"prompts"`, `"conversations"` or `"ids"`, *optional*, defaults to `"ids"`): kind of the
            collator's input.
        text_columns (`tuple` of `str`, *optional*): names of the columns in `per_row` whose texts were tokenized.

    Example:
        >>> rows = Documents({"input_ids": Ragged.from_rows([[7, 8, 9], [5]])}, np.arange(2))
        >>> rows.truncate(Limits(2)).ids.values
        array([7, 8, 5])
    """

    columns: dict[str, Ragged]
    sample: NDArray[np.int64]
    truncated: int = 0
    sizes: Ragged | None = None
    boundaries: tuple[str, ...] = ()
    places: Ragged | None = None
    places_unknown: bool = False
    per_row: Mapping[str, Any] = field(default_factory=dict)
    targets: Documents | None = None
    source: Literal["texts", "prompts", "conversations", "ids"] = "ids"
    text_columns: tuple[str, ...] = ()

    @property
    def ids(self) -> Ragged:
        """Token ids of the rows: the column `input_ids`."""
        return self.columns["input_ids"]

    @property
    def is_several(self) -> NDArray[np.bool_]:
        """Mask `(R,)` that is True for rows with several documents."""
        return np.zeros(len(self.ids), np.bool_) if self.sizes is None else self.sizes.lengths > 1

    @property
    def row_of_document(self) -> NDArray[np.int64]:
        """Index `(D,)` of the row of each document."""
        rows = np.arange(len(self.ids))
        return rows if self.sizes is None else np.repeat(rows, self.sizes.lengths)

    @property
    def _document_lengths(self) -> NDArray[np.int64]:
        return self.ids.lengths if self.sizes is None else self.sizes.values

    @property
    def document_ids(self) -> Ragged:
        """Number of each token's document in its row, counted from 0."""
        if self.sizes is None:
            return Ragged(np.zeros(len(self.ids.values), np.int64), self.ids.lengths)
        return Ragged(np.repeat(self.sizes.counters().values, self.sizes.values), self.ids.lengths)

    @property
    def token_places(self) -> Ragged:
        """Index of each token in its document, before truncation, counted from 0."""
        if self.places_unknown:
            raise value_error(
                "the places that tokens had before truncation are unknown",
                got="texts that a tokenizer with steps in Python truncated",
                fix="a fast tokenizer, or tokenize first: dataset.map(collate.replace(max_length=None), batched=True)",
            )
        if self.places is not None:
            return self.places
        return Ragged(run_indices(0, self._document_lengths), self.ids.lengths)

    def positions(self, start: int) -> Ragged:
        """Return the position of each token: the column `position_ids`, or counted from `start` in each document."""
        if "position_ids" in self.columns:
            return self.columns["position_ids"]
        return Ragged(run_indices(start, self._document_lengths), self.ids.lengths)

    @property
    def masks(self) -> list[str]:
        """Names of the columns that mask the tokens to train on."""
        return [name for name in SUPERVISION if name in self.columns]

    def in_rows(self, column: Ragged) -> Ragged:
        """Return a column of `split()`, one row for each document, as a column of these rows."""
        return Ragged(column.values, self.ids.lengths)

    def replaced(self, **fields: Any) -> Documents:
        """Return a copy of the rows with some fields replaced."""
        rows = object.__new__(type(self))  # a fifth of the time of `dataclasses.replace`
        vars(rows).update(vars(self), **fields)
        return rows

    def with_columns(self, **columns: Ragged) -> Documents:
        """Return a copy of the rows with the given columns added or replaced."""
        return self.replaced(columns={**self.columns, **columns})

    def take(self, rows: NDArray[np.int64]) -> Documents:
        """Return the rows with the given indices, in this order."""
        return self.with_row_values_of(rows).replaced(
            columns={name: column.take(rows) for name, column in self.columns.items()},
            sample=self.sample[rows],
            sizes=None if self.sizes is None else self.sizes.take(rows),
            places=None if self.places is None else self.places.take(rows),
        )

    def with_row_values_of(self, rows: NDArray[np.int64]) -> Documents:
        """Return a copy whose values per row, `per_row` and `targets`, are those of the rows with the given indices."""
        per_row = {name: repeated(values, rows) for name, values in self.per_row.items()}
        return self.replaced(per_row=per_row, targets=None if self.targets is None else self.targets.take(rows))

    def split(self) -> Documents:
        """Return one row for each document."""
        if self.sizes is None:
            return self
        row, sizes = self.row_of_document, self.sizes.values
        return self.with_row_values_of(row).replaced(
            columns={name: Ragged(column.values, sizes) for name, column in self.columns.items()},
            sample=self.sample[row],
            sizes=None,
            places=None if self.places is None else Ragged(self.places.values, sizes),
        )

    def supervise(
        self, labels: Ragged, *, predicts_next: bool | None, shares_row: NDArray[np.bool_] | bool = True
    ) -> tuple[Ragged, NDArray[np.bool_]]:
        r"""Return labels with -100 at tokens that are no targets, and True for each document that may have a target.

        Each row must be one document. A token is a target if it has a label, 1 in all masks of supervision, and a token
        of its document before it, if its label is predicted from that token.

        Args:
            labels (`Ragged`): one label per token.
            predicts_next (`bool`, *optional*): True if labels are predicted from the token before. `None` if that is
                unknown: then exactly those that equal the ids of their own tokens are.
            shares_row (`bool` or `np.ndarray` `(D,)` bool, *optional*, defaults to `True`): True if padding or another
                document stands before the document in its row: its first label then becomes -100. Otherwise the label
                is kept, as in transformers, although it is no target.

        Example:
            >>> rows = Documents({"input_ids": Ragged.from_rows([[5, 6, 7], [8, 9]])}, np.arange(2))
            >>> labels, has_target = rows.supervise(Ragged.from_rows([[5, 6, 7], [1, -100]]), predicts_next=None)
            >>> labels.values, has_target
            (array([-100,    6,    7,    1, -100]), array([ True,  True]))
        """
        values, has_tokens = labels.values, labels.lengths > 0
        for name in self.masks:
            values = np.where(self.columns[name].values != 0, values, IGNORED)
        first = labels.offsets[:-1][has_tokens]
        starts = np.zeros(len(labels), np.bool_)  # documents whose first label is predicted from a token before it
        if predicts_next is None:
            starts[has_tokens] = (values[first] == self.ids.values[first]) & (values[first] != IGNORED)
        elif predicts_next:
            starts[has_tokens] = values[first] != IGNORED
        count = labels.lengths if values is self.ids.values else np.diff(offsets_of(values != IGNORED)[labels.offsets])
        has_target = count > (starts if predicts_next is not None else 0)
        # Behind padding, this label is predicted at a query without visible keys, for which eager attention averages
        # all values and sdpa returns zeros: two losses for one row.
        dropped = starts & shares_row
        if dropped.any():
            values = values.copy()
            values[labels.offsets[:-1][dropped]] = IGNORED
        elif values is labels.values:
            return labels, has_target
        return Ragged(values, labels.lengths), has_target

    def truncate(self, limits: Limits, *, side: str = "right") -> Documents:
        """Return the rows truncated to `max_length`, or split into several rows with `limits.overflow`."""
        if not limits.truncates:
            return self
        parts = truncate([self.ids.lengths], replace(limits, truncation="longest_first"), side=side)  # no row is a pair
        if not parts.starts:
            return self
        lengths, sizes = parts.lengths[0], None
        if self.sizes is not None:
            document = np.repeat(np.arange(len(self.sizes.values)), self.sizes.values)
            sizes = runs(parts.of(0, Ragged(document, self.ids.lengths)), lengths)
        return self.replaced(
            columns={name: Ragged(parts.of(0, column), lengths) for name, column in self.columns.items()},
            sample=self.sample[parts.sample],
            truncated=self.truncated + parts.truncated,
            sizes=sizes,
            places=None if self.places_unknown else Ragged(parts.of(0, self.token_places), lengths),
        )


def repeated(values: Any, rows: NDArray[np.int64]) -> Any:
    """Return the values with the indices `rows` of a column with one value per row; an Arrow column stays one.

    Texts become a list: a long text, repeated for each of its rows, would fill the memory.
    """
    if type(values).__module__.startswith("pyarrow"):
        import pyarrow as pa

        if not str(values.type).endswith(("string", "string_view")):
            with suppress(pa.ArrowException):  # it cannot take from dictionaries of lists that are slices, or differ
                return values.take(rows)
        values = values.to_pylist()
    return values[rows] if isinstance(values, np.ndarray) else [values[index] for index in rows.tolist()]


def pack_rows(
    documents: Mapping[str, Ragged], capacity: int, *, seed: int | None = None, first_position: int = 0
) -> dict[str, Ragged]:
    r"""Pack tokenized documents into rows: one or more documents per row, with at most `capacity` tokens in total.

    Example:
        >>> rows = pack_rows({"input_ids": Ragged.from_rows([[5, 6], [7], [8, 9, 4]])}, 4)
        >>> rows["input_ids"].pad(0)
        array([[8, 9, 4, 7],
               [5, 6, 0, 0]])
        >>> rows["position_ids"].pad(0), rows["document_ids"].pad(-1)
        (array([[0, 1, 2, 0],
               [0, 1, 0, 0]]), array([[ 0,  0,  0,  1],
               [ 0,  0, -1, -1]]))
    """
    ids = documents["input_ids"]
    filled = np.flatnonzero(ids.lengths)
    plan = pack(ids.lengths[filled], capacity, seed=seed)
    index, place = plan.places(ids.offsets[:-1][filled])
    lengths = plan.row_lengths
    rows = {name: Ragged(column.values[index], lengths) for name, column in documents.items()}
    if "position_ids" not in rows:
        rows["position_ids"] = Ragged(place + first_position, lengths)
    number = np.arange(len(plan.order)) - np.repeat(plan.row_offsets[:-1], np.diff(plan.row_offsets))
    rows["document_ids"] = Ragged(np.repeat(number, plan.lengths[plan.order]), lengths)
    return rows
