"""Tokens as labels along the axes of a picture: which ones, cut to a readable length, greyed at padding.

So many as can be read and no more; a longer text is drawn in stretches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..batch import written_tokens
from .canvas import FADED, INK, check_count, fonts, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TOKENS = 64
SIZE = 7.5  # points
_UPRIGHT = 0.058  # inches a character, at that size
_MARGIN = 0.12


def words_of(
    batch: Any,
    tokens: Sequence[Sequence[str]] | None,
    shape: tuple[int, int],
    *,
    rows: slice = slice(None),
    part: slice = slice(None),
    name: str = "input_ids",
) -> list[list[str]]:
    r"""What to write for the tokens of a batch, readable in any script.

    Args:
        batch (mapping): asked for its tokens where none are given, and for its ids where it knows no tokenizer.
        tokens (`B` lists of `T` `str`, *optional*): as `collate.tokens(batch)` gives them.
        shape (two `int`): B and T.
        rows, part (`slice`, *optional*): which rows, and which of their tokens. By default all.
        name (`str`, *optional*, defaults to `"input_ids"`): where the ids are.

    Returns:
        Lists of `str`, one for each of these rows; column numbers where there are no ids either.

    Raises:
        ValueError: if `tokens` has another shape.

    Example:
        >>> words_of({"input_ids": np.array([[5, 6]])}, None, (1, 2), part=slice(1, 2))
        [['6']]
    """
    ids = batch.get(name) if isinstance(batch, Mapping) else None
    if tokens is None and (ids is None or tuple(ids.shape) != shape):
        columns = [str(column) for column in range(shape[1])][part]
        return [columns for _ in range(shape[0])[rows]]
    given = written_tokens(batch, name, rows) if tokens is None else tokens
    if given is None:
        return [[str(token) for token in row] for row in batch[name][rows, part].tolist()]
    if tokens is not None:
        lengths = [len(row) for row in tokens]
        if isinstance(tokens, str) or len(lengths) != shape[0] or set(lengths) != {shape[1]}:
            raise ValueError(
                explain(
                    f"tokens must be {shape[0]} lists of {shape[1]} tokens, padding included",
                    got=f"{len(lengths)} of lengths {shorten(lengths)}",
                    fix="tokens=collate.tokens(batch)",
                )
            )
        given = list(tokens)[rows]
    return [[readable(token) for token in list(row)[part]] for row in given]


def stretch(span: tuple[int, int] | None, length: int, name: str = "span") -> slice:
    r"""The tokens to draw: those from the first number of `span` up to its second, or all.

    Raises:
        ValueError: if there are more than can be labelled, or none.

    Example:
        >>> stretch((8, 100), 20)
        slice(8, 20, None)
    """
    try:
        start, stop, _ = slice(*(span if span is not None else (0, length))).indices(length)
    except TypeError:
        raise ValueError(
            explain(f"{name} must be two whole numbers", got=shorten(span), fix=f"{name}=(0, {MOST_TOKENS})")
        ) from None
    if stop <= start:
        raise ValueError(explain(f"{name} names no token of {length}", got=shorten(span), fix=f"{name}=(0, {length})"))
    check_count(
        "tokens", stop - start, MOST_TOKENS, fix=f"{name}=({start}, {start + MOST_TOKENS}) draws the first of them"
    )
    return slice(start, stop)


def row_of(row: int | None, padding: NDArray[np.bool_], documents: NDArray[np.int64] | None = None) -> int:
    r"""The row to draw: the one asked for, else one where masks have most to show: many documents, much padding.

    Raises:
        ValueError: if there is no row of that number.

    Example:
        >>> row_of(None, np.array([[True, True], [True, False]]))
        1
    """
    if row is None:
        shared = np.zeros(len(padding), dtype=np.int64) if documents is None else documents.max(axis=1)
        return int(np.lexsort((padding.sum(axis=1), -shared))[0])
    if isinstance(row, bool) or not isinstance(row, int | np.integer) or not -len(padding) <= row < len(padding):
        raise ValueError(
            explain(
                f"row must be a number from 0 to {len(padding) - 1}", got=shorten(row), fix=f"row={len(padding) - 1}"
            )
        )
    return int(row) % len(padding)


def room(words: Sequence[str]) -> float:
    """How many inches the longest of these labels takes."""
    return _UPRIGHT * max((len(word) for word in words), default=0) + _MARGIN


def on_axes(
    ax: Axes,
    across: Sequence[str] | None,
    down: Sequence[str] | None,
    *,
    real_across: Sequence[bool] | None = None,
    real_down: Sequence[bool] | None = None,
) -> None:
    r"""Writes tokens at the columns and rows of a matrix, those of the padding in grey.

    Args:
        ax (`Axes`): with a matrix in it, one cell a unit.
        across, down (`str` each, *optional*): the tokens along x, written upwards, and along y; `None` leaves an axis
            without labels.
        real_across, real_down (`bool` each, *optional*): where no padding stands. Without it all are real.
    """
    for axis, words, real in ((ax.xaxis, across, real_across), (ax.yaxis, down, real_down)):
        if words is None:
            axis.set_ticks([])
            continue
        axis.set_ticks(range(len(words)), labels=list(words), fontsize=SIZE, family=fonts())
        for number, text in enumerate(axis.get_ticklabels()):
            text.set_parse_math(False)  # a token may well be "$x$", which is no formula here
            text.set_color(INK if real is None or real[number] else FADED)
    if across is not None:
        ax.tick_params(axis="x", labelrotation=90)
    ax.tick_params(length=0)
