"""`Limits` on the tokens of a row, and `truncate`: the tokens that rows keep of their texts, from lengths alone.

NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.errors import counted, value_error
from ..ragged import Ragged, run_indices

Lengths = NDArray[np.int64]
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
        ways = [f"max_length={minimum} or more"]
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


class Parts(NamedTuple):
    """Range of tokens that each row contains of its text, or of both texts of its pair; made by `truncate`.

    Each array has one value per row. Each list has one array for single texts, and two arrays for pairs: one for the
    first and one for the second texts.

    Args:
        starts (list): index of the range's first token in its text. The list is empty if no text is too long.
        lengths (list): number of tokens in the range.
        windows (list): number of the range in its text, counted from 0. The list is empty if no text was split.
        sample (array): index of the row's text or pair.
        truncated (`int`): number of texts that lost tokens.
        in_order (`bool`): True if the rows contain each token of the texts once and in order.
    """

    starts: list[Lengths]
    lengths: list[Lengths]
    windows: list[Lengths]
    sample: Lengths
    truncated: int
    in_order: bool

    def of(self, text: int, column: Ragged) -> NDArray[np.int64]:
        """Return the values of `column`, of the first or second texts, at the tokens of the rows, row after row."""
        if self.in_order:
            return column.values
        starts = self.starts[text] + column.offsets[self.sample]
        return column.values[run_indices(starts, self.lengths[text])]


def truncate(lengths: list[Lengths], limits: Limits, *, special: int = 0, side: str) -> Parts:
    r"""Return the range of tokens that each row contains, so that no row exceeds the limit.

    `lengths` are those of the texts, or of the first and of the second texts of pairs; `special` is the number of
    special tokens in a row. Raise `ValueError` if a row cannot be truncated to the limit.

    Example:
        >>> parts = truncate([np.array([10, 2])], Limits(4, overflow=True, stride=1), side="right")
        >>> parts.starts, parts.lengths, parts.sample
        ([array([0, 3, 6, 0])], [array([4, 4, 4, 2])], array([0, 0, 0, 1]))
    """
    sample = np.arange(len(lengths[0]))
    parts = Parts([], lengths, [], sample, 0, in_order=True)
    if limits.max_length is None or not limits.truncates:
        return parts
    total = lengths[0] if len(lengths) == 1 else lengths[0] + lengths[1]
    too_long = total > limits.max_length - special
    if not np.count_nonzero(too_long):
        return parts
    kept = _kept(lengths, too_long, limits, special)
    if not limits.overflow:
        starts = [length - part if side == "left" else 0 * part for length, part in zip(lengths, kept, strict=True)]
        return Parts(starts, kept, [], sample, int(np.count_nonzero(too_long)), in_order=False)
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
    in_order = len(lengths) == 1 and side == "right" and not limits.stride
    return Parts(starts, sizes, windows, sample, 0, in_order)


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
