"""Truncation or splitting of token ids to rows, and addition of special tokens and token types.

Computed in NumPy for the whole batch. The results equal those of post-processing and truncation in `tokenizers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.errors import value_error
from ..ragged import Ragged, run_indices
from .limits import Limits
from .rust import Template
from .token_rows import TokenRows

Lengths = NDArray[np.int64]


def make_rows(
    texts: Sequence[Mapping[str, Ragged]],
    template: Template,
    limits: Limits,
    *,
    side: str,
    types: bool,
    dtype: type[np.signedinteger[Any]] = np.int64,
) -> TokenRows:
    r"""Return rows of token ids with special tokens, truncated or split to the limit.

    Args:
        texts (one or two mappings from `str` to `Ragged`): the columns of the texts; for pairs, those of the first and
            of the second texts. A mapping has `input_ids`, and may have other columns with one value per token. The
            other columns get -1 at special tokens.
        template (`Template`): order of texts and special tokens in a row.
        limits (`Limits`): limit on the tokens of a row.
        side (`"left"` or `"right"`): truncation side.
        types (`bool`): add the column `token_type_ids`.
        dtype (NumPy type, *optional*, defaults to int64): dtype of the columns of the rows.

    Returns:
        `TokenRows`, with the rows in the same order as in `tokenizers`.

    Raises:
        ValueError: if a row cannot be truncated to the limit.

    Example:
        >>> ids = Ragged.from_rows([[7, 8, 9], [5]])
        >>> bert = Template(((101, 0), (Template.FIRST, 0), (102, 0)))
        >>> make_rows([{"input_ids": ids}], bert, Limits(4), side="right", types=False).ids.pad(0)
        array([[101,   7,   8, 102],
               [101,   5, 102,   0]])
    """
    parts = _truncate([text["input_ids"].lengths for text in texts], limits, template.special, side)
    tokens, kinds, lengths = np.repeat(template.single_row, len(parts.sample), axis=1)  # each (rows, pieces)
    for piece, (token, _) in enumerate(template.pieces):
        if token < 0:
            text = Template.FIRST - token
            lengths[:, piece] = parts.lengths[text]
            if parts.windows and not template.types_windows:
                kinds[parts.windows[text] > 0, piece] = text
    row_lengths, lengths = lengths.sum(axis=1), lengths.ravel()
    ids = np.repeat(tokens.ravel().astype(dtype), lengths)  # (N,), FIRST and SECOND at the tokens of texts
    inside = [ids == Template.FIRST - text for text in range(len(texts))]
    columns = {}
    for name in texts[0]:
        values = ids if name == "input_ids" else np.full(len(ids), -1, dtype)
        for text, here in enumerate(inside):
            values[here] = parts.of(text, texts[text][name])
        columns[name] = Ragged(values, row_lengths)
    if types:
        flat = np.repeat(kinds.ravel().astype(dtype), lengths) if kinds.any() else np.zeros(len(ids), dtype)
        columns["token_type_ids"] = Ragged(flat, row_lengths)
    return TokenRows(columns, parts.sample, parts.truncated)


class _Parts(NamedTuple):
    """Range of tokens that each row contains of its text, or of both texts of its pair; made by `_truncate`.

    Each array has one value per row. Each list has one array for single texts, and two arrays for pairs: one for the
    first and one for the second texts.

    Args:
        starts (list): index of the range's first token in its text. The list is empty if the rows contain each token of
            the texts once and in order.
        lengths (list): number of tokens in the range.
        windows (list): number of the range in its text, counted from 0. The list is empty if no text was split.
        sample (array): index of the row's text or pair.
        truncated (`int`): number of texts that lost tokens.
    """

    starts: list[Lengths]
    lengths: list[Lengths]
    windows: list[Lengths]
    sample: Lengths
    truncated: int

    def of(self, text: int, column: Ragged) -> NDArray[np.int64]:
        """Return the values of `column` at the tokens that the rows contain, in one array, row after row.

        `text` is 0 if the column belongs to single or first texts, and 1 if it belongs to the second texts of pairs.
        """
        if not self.starts:
            return column.values
        starts = self.starts[text] + column.offsets[self.sample]
        return column.values[run_indices(starts, self.lengths[text])]


def _truncate(lengths: list[Lengths], limits: Limits, special: int, side: str) -> _Parts:
    """Return the range of tokens that each row contains, so that no row exceeds the limit.

    `lengths` has the numbers of tokens of the texts; for pairs, two arrays. `special` is the number of special tokens
    in a row, and `side` is the truncation side.
    """
    sample = np.arange(len(lengths[0]))
    whole = _Parts([], lengths, [], sample, 0)
    if limits.max_length is None or not limits.truncates:
        return whole
    total = lengths[0] if len(lengths) == 1 else lengths[0] + lengths[1]
    too_long = total > limits.max_length - special
    if not too_long.any():
        return whole
    kept = _kept(lengths, too_long, limits, special)
    if not limits.overflow:
        starts = [each - part if side == "left" else 0 * part for each, part in zip(lengths, kept, strict=True)]
        return _Parts(starts, kept, [], sample, int(np.count_nonzero(too_long)))
    # A text is split into windows of `kept` tokens; consecutive windows share `stride` tokens.
    steps = [np.maximum(part - limits.stride, 1) for part in kept]
    counts = [1 - (part - each) // step for each, part, step in zip(lengths, kept, steps, strict=True)]
    sample, windows = _windows_of_rows(counts)
    starts, sizes = [], []
    for each, part, step, window in zip(lengths, kept, steps, windows, strict=False):
        # `passed`: tokens before this window, counted from the start of the text, or from its end if side is "left".
        passed, stop = window * step[sample], each[sample]
        size = np.minimum(part[sample], stop - passed)
        starts.append(stop - passed - size if side == "left" else passed)
        sizes.append(size)
    if len(lengths) == 1 and side == "right" and not limits.stride:
        starts = []
    return _Parts(starts, sizes, windows, sample, 0)


def _windows_of_rows(counts: list[Lengths]) -> tuple[Lengths, list[Lengths]]:
    """Return for each row the index of its text or pair, and the numbers of the windows that it contains.

    Long texts are split into windows. A row contains one window of a text, or one of each text of a pair. `counts` has
    the number of windows of each text: one array for single texts, two for pairs. The second result is always two
    arrays: for each row, the number of its window in the first text, and in the second text (0 for single texts).

    A pair gives one row for each combination of windows of its two texts, in the order of `tokenizers`. If the texts
    have 2 and 3 windows, the rows are (0, 0), (1, 0), (1, 1), (1, 2), (0, 1) and (0, 2).
    """
    second = counts[-1] if len(counts) == 2 else np.ones_like(counts[0])
    rows = counts[0] * second
    sample = np.repeat(np.arange(len(rows)), rows)
    rows, second = rows[sample], second[sample]
    row = np.arange(len(sample)) - np.searchsorted(sample, sample)
    cell = np.where(row == 0, 0, row + second - 1)
    cell = np.where(cell < rows, cell, cell - rows + 1)
    return sample, [cell // second, cell % second]


def _kept(lengths: list[Lengths], too_long: NDArray[np.bool_], limits: Limits, special: int) -> list[Lengths]:
    """Return the number of tokens of each text after truncation: one array `(B,)` for B single texts, two for B pairs.

    `lengths` has the numbers before truncation, in the same form, and `special` is the number of special tokens in a
    row. Only texts or pairs at which `too_long` `(B,)` is True are truncated. Raise `ValueError` if one of them cannot
    be truncated to the limit.
    """
    assert limits.max_length is not None
    limit = limits.max_length - special
    first, second = lengths[0], lengths[-1]
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
    kept = [np.where(too_long, part, each) for part, each in zip(kept, lengths, strict=True)]
    smallest = limits.stride + 1 if limits.overflow else 0 if limits.truncation == "longest_first" else 1
    refused = [(part < each) & (part < smallest) for part, each in zip(kept, lengths, strict=True)]
    if any(each.any() for each in refused):
        row = int(np.flatnonzero(np.any(refused, axis=0))[0])
        counts = " and ".join(str(int(each[row])) for each in lengths)
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
