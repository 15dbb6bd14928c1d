"""`Documents`: rows of tokens without padding and gaps, as the collator, `pack_dataset` and the audit arrange them.

`reading` makes them of given rows, `tokenization` of texts. NumPy only, so that a forked worker can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import counted, value_error
from ..packing import pack
from ..ragged import Ragged, offsets_of, run_indices, runs
from .names import SUPERVISION

Truncation = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
Lengths = NDArray[np.int64]


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
        set_by (`str`, *optional*): origin of `max_length` in a collator: `"argument"`, `"tokenizer"`, `"model"` or
            `"embedding"`.

    Example:
        >>> Limits(512).truncates, Limits(512, "do_not_truncate").truncates
        (True, False)
    """

    max_length: int | None = None
    truncation: Truncation = "longest_first"
    overflow: bool = False
    stride: int = 0
    set_by: str | None = None

    @property
    def truncates(self) -> bool:
        """True if rows are limited to `max_length`; False if that is `None`, or with `"do_not_truncate"`."""
        return self.max_length is not None and self.truncation != "do_not_truncate"

    def check_special_tokens(self, special: int) -> None:
        r"""Raise if `max_length` is too small for the special tokens of a row, the stride and one more token.

        The stride counts only with `overflow`. Nothing is checked if rows are not truncated.
        """
        stride = self.stride if self.overflow else 0
        minimum = special + stride + 1
        if not self.truncates or self.max_length is None or self.max_length >= minimum:
            return
        raise value_error(
            f"max_length must leave room for {counted(special, 'special token')}"
            + (f", a stride of {stride}" if stride else "")
            + " and one more token",
            got=f"max_length={self.max_length}" + (f", stride={stride}" if stride else ""),
            fix=f"max_length={minimum} or more, or add_special_tokens=False"
            + (", or a smaller stride" if stride else ""),
        )


@dataclass(frozen=True, eq=False)
class Documents:
    r"""Rows of documents before a collator arranges them, stored as `Ragged` columns with one value per token.

    Rows are closed: they have no padding and no gaps, the tokens of a document are neighbors, and documents stand in
    the order in which they begin. A row of a tokenized text is one document, and a given row may hold several.

    Args:
        columns (`dict` from `str` to `Ragged`): `"input_ids"`, and other columns of the same lengths.
        given_row (`np.ndarray` `(R,)` int64): index of the text or given row of each row; a long text may give several.
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
    given_row: NDArray[np.int64]
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
            given_row=self.given_row[rows],
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
            given_row=self.given_row[row],
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
        alone = replace(limits, truncation="longest_first")  # a row has no second text
        parts = kept_parts([self.ids.lengths], alone, side=side)
        if not parts.starts:
            return self
        lengths, sizes = parts.lengths[0], None
        if self.sizes is not None:
            document = np.repeat(np.arange(len(self.sizes.values)), self.sizes.values)
            sizes = runs(parts.of(0, Ragged(document, self.ids.lengths)), lengths)
        return self.replaced(
            columns={name: Ragged(parts.of(0, column), lengths) for name, column in self.columns.items()},
            given_row=self.given_row[parts.given_row],
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


# ---------------------------------------------------------------------- truncation, of the lengths of the whole batch


class Parts(NamedTuple):
    """Range of tokens that each row contains of its text, or of both texts of its pair; made by `kept_parts`.

    Each array has one value per row. Each list has one array for single texts, and two arrays for pairs: one for the
    first and one for the second texts.

    Args:
        starts (list): index of the range's first token in its text. The list is empty if no text is too long.
        lengths (list): number of tokens in the range.
        windows (list): number of the range in its text, counted from 0. The list is empty if no text was split.
        given_row (array): index of the row's text or pair.
        truncated (`int`): number of texts that lost tokens.
    """

    starts: list[Lengths]
    lengths: list[Lengths]
    windows: list[Lengths]
    given_row: Lengths
    truncated: int

    def of(self, text: int, column: Ragged) -> NDArray[np.int64]:
        """Return the values of `column`, of the first or second texts, at the tokens of the rows, row after row."""
        if not self.starts:
            return column.values
        starts = self.starts[text] + column.offsets[self.given_row]
        return column.values[run_indices(starts, self.lengths[text])]


def kept_parts(lengths: list[Lengths], limits: Limits, *, special: int = 0, side: str) -> Parts:
    r"""Return the range of tokens that each row contains, so that no row exceeds the limit.

    `lengths` are those of the texts, or of the first and of the second texts of pairs; `special` is the number of
    special tokens in a row. Raise `ValueError` if a row cannot be truncated to the limit.

    Example:
        >>> parts = kept_parts([np.array([10, 2])], Limits(4, overflow=True, stride=1), side="right")
        >>> parts.starts, parts.lengths, parts.given_row
        ([array([0, 3, 6, 0])], [array([4, 4, 4, 2])], array([0, 0, 0, 1]))
    """
    sample = np.arange(len(lengths[0]))
    parts = Parts([], lengths, [], sample, 0)
    if limits.max_length is None or not limits.truncates:
        return parts
    total = lengths[0] if len(lengths) == 1 else lengths[0] + lengths[1]
    too_long = total > limits.max_length - special
    if not np.count_nonzero(too_long):
        return parts
    kept = _kept(lengths, too_long, limits, special)
    if not limits.overflow:
        starts = [length - part if side == "left" else 0 * part for length, part in zip(lengths, kept, strict=True)]
        return Parts(starts, kept, [], sample, int(np.count_nonzero(too_long)))
    # A text is split into windows of `kept` tokens; consecutive windows share `stride` tokens.
    steps = [np.maximum(part - limits.stride, 1) for part in kept]
    counts = [1 - (part - length) // step for length, part, step in zip(lengths, kept, steps, strict=True)]
    sample, windows = _windows_of_rows(counts)
    starts, sizes = [], []
    for length, part, step, window in zip(lengths, kept, steps, windows, strict=False):
        # `offset`: tokens before this window, counted from the start of the text, or from its end if side is "left".
        offset, stop = window * step[sample], length[sample]
        size = np.minimum(part[sample], stop - offset)
        starts.append(stop - offset - size if side == "left" else offset)
        sizes.append(size)
    return Parts(starts, sizes, windows, sample, 0)


def _windows_of_rows(counts: list[Lengths]) -> tuple[Lengths, list[Lengths]]:
    """Return for each row the index of its text or pair, and the numbers of the windows that it contains."""
    # A pair gives one row for each combination of windows of its two texts, in the order of `tokenizers`: for 2 and 3
    # windows (0, 0), (1, 0), (1, 1), (1, 2), (0, 1) and (0, 2).
    second = counts[-1] if len(counts) == 2 else np.ones_like(counts[0])
    rows = counts[0] * second
    sample = np.repeat(np.arange(len(rows)), rows)
    rows, second = rows[sample], second[sample]
    row = np.arange(len(sample)) - np.searchsorted(sample, sample)
    cell = np.where(row == 0, 0, row + second - 1)
    cell = np.where(cell < rows, cell, cell - rows + 1)
    return sample, [cell // second, cell % second]


def _kept(lengths: list[Lengths], too_long: NDArray[np.bool_], limits: Limits, special: int) -> list[Lengths]:
    """Return the number of tokens of each text after truncation: one array (B,) for texts, two for pairs."""
    assert limits.max_length is not None
    limit = limits.max_length - special
    first, second = lengths[0], lengths[-1]
    # The longer text loses tokens first, and then both, as in `tokenizers`. Of an odd number the longer text, or the
    # second of two equal ones, keeps one token more.
    if limits.truncation == "longest_first" and len(lengths) == 2:
        short, long = np.minimum(first, second), np.maximum(first, second)
        long = np.maximum(short, limit - short)
        halved = short + long > limit
        short, long = np.where(halved, limit // 2, short), np.where(halved, limit - limit // 2, long)
        kept = [np.where(first <= second, short, long), np.where(first <= second, long, short)]
    elif limits.truncation == "only_second":
        kept = [first, limit - first] if len(lengths) == 2 else [np.zeros_like(first)]  # raises below
    else:
        kept = [limit - second, second] if len(lengths) == 2 else [np.full_like(first, limit)]
    kept = [np.where(too_long, part, length) for part, length in zip(kept, lengths, strict=True)]
    smallest = limits.stride + 1 if limits.overflow else 0 if limits.truncation == "longest_first" else 1
    refused = np.any([part < np.minimum(length, smallest) for part, length in zip(kept, lengths, strict=True)], axis=0)
    if refused.any():
        row = int(refused.argmax())
        counts = " and ".join(str(int(length[row])) for length in lengths)
        stride = f" and stride={limits.stride}" if limits.overflow and limits.stride else ""
        raise value_error(
            f"row {row} cannot be truncated to {limits.max_length} tokens with "
            f"truncation={limits.truncation!r}{stride}",
            got=f"{counts} tokens" + ("" if len(lengths) == 2 else " and no second text"),
            fix="a larger max_length"
            if limits.truncation == "longest_first"
            else 'truncation="longest_first", or a larger max_length',
        )
    return kept
