"""What texts become: ragged token ids, and what both ways of making them share.

Values and checks; which way a tokenizer is asked is decided in `encoding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..ragged import Ragged

Truncation = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
Text = str | Sequence[str]


@dataclass(frozen=True, eq=False)
class Encoded:
    r"""What a batch of texts became: one row a text, or several where a long text overflows.

    Args:
        input_ids (`Ragged` of int64): the token ids with special tokens, neither padded nor joined.
        token_type_ids (`Ragged` of int64, *optional*): which text of a pair; `None` where the tokenizer has none.
        word_ids (`Ragged` of int64, *optional*): which word each token is part of, -1 at special tokens; if asked for.
        sample (`np.ndarray` `(rows,)` int64): which of the texts each row comes from.
        cut (`int`): how many texts lost tokens to truncation.
    """

    input_ids: Ragged
    token_type_ids: Ragged | None
    word_ids: Ragged | None
    sample: NDArray[np.int64]
    cut: int


def windows(length: int, room: int, stride: int, side: str) -> list[tuple[int, int]]:
    r"""Where the pieces of an overflowing text begin and end; neighbours share `stride` tokens, the last may be short.

    Example:
        >>> windows(10, 4, 1, "right"), windows(10, 4, 0, "left")
        ([(0, 4), (3, 7), (6, 10)], [(6, 10), (2, 6), (0, 2)])
    """
    step = room - stride
    if side == "right":
        pieces = [(start, min(start + room, length)) for start in range(0, length, step)]
        ends = [stop for _, stop in pieces]
        return pieces[: ends.index(length) + 1]
    pieces = [(max(stop - room, 0), stop) for stop in range(length, 0, -step)]
    starts = [start for start, _ in pieces]
    return pieces[: starts.index(0) + 1]


def flat(rows: list[list[int]]) -> Ragged:
    """Rows of Python numbers, joined."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    values = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    return Ragged(values, lengths)


def refuse_surrogates(index: int, given: object) -> None:
    """Raises if a text of row `index`, or of a pair or list in it, is not valid Unicode."""
    texts = given if isinstance(given, (tuple, list)) else [given]
    for text in texts:
        if isinstance(text, (tuple, list)):
            refuse_surrogates(index, text)
        elif isinstance(text, str):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(
                    explain(
                        f"row {index} holds a lone surrogate, which no tokenizer can read",
                        got=f"{shorten(text)}, character {error.start}",
                        fix="text.encode('utf-8', 'replace').decode('utf-8')",
                    )
                ) from error
