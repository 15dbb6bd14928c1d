"""`Limits`: the maximal number of tokens in a row, and the truncation or splitting of longer texts.

Settings and arithmetic only. `Encoder` applies them to texts, and `TokenRows.truncate` to ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._common.errors import counted, value_error

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

        Args:
            special (`int`): number of special tokens in a row.

        Raises:
            ValueError: the message has the smallest sufficient `max_length`.
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


def window_offsets(length: int, window: int, stride: int, side: str) -> list[tuple[int, int]]:
    r"""Return the start and stop of each window over a sequence. Consecutive windows share `stride` tokens.

    Args:
        length (`int`): number of tokens in the sequence, at least 1.
        window (`int`): number of tokens in a window; the last window may have fewer.
        stride (`int`): tokens shared by consecutive windows, fewer than `window`.
        side (`"left"` or `"right"`): truncation side; with `"left"` the first window ends at the end of the sequence.

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
