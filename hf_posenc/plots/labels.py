"""Tokens as labels of a plot: readable in any script, on the axes of a matrix or beside points.

At most 64 tokens are labelled; for a longer text, choose a span.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..batch import written_tokens
from .arguments import check_count
from .canvas import FADED, SMALL, figure_of, fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TOKENS = 64
_TOKEN_SIZE = 7.5  # points

# Words beside points: candidate offsets in points from a dot to its word, nearest first, and the directions tried.
_OFFSETS = (5.0, 12.0, 20.0, 30.0, 42.0, 56.0, 72.0)
_DIRECTIONS = ((0.0, 1.0), (0.0, -1.0), *itertools.product((1.0, -1.0), (0.0, 1.0, -1.0, 0.5, -0.5)))
_GAP, _DOT = 1.0, 4.0  # points around a word; radius of a dot

_Box = tuple[float, float, float, float]  # left, bottom, right, top


def readable(text: str, longest: int = 12) -> str:
    r"""Return the text in displayable form: a missing glyph as its code point, a long text truncated.

    Example:
        >>> readable("ride\n"), readable("internationalisation")
        ('ride\\n', 'internation…')
    """
    shown = "".join(map(_shown, text))
    shown = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
    return shown.replace("$", r"\$")  # two dollar signs would mark a formula


def _shown(character: str) -> str:
    if unicodedata.category(character)[0] in "CZ" and character != " ":  # control, format and separator characters
        return character.encode("unicode_escape").decode()
    if any(ord(character) in glyphs for glyphs in fonts().values()):
        return character
    return f"U+{ord(character):04X}"


def token_labels(
    batch: Any,
    tokens: Sequence[Sequence[str]] | None,
    shape: tuple[int, int],
    *,
    rows: slice = slice(None),
    span: slice = slice(None),
    name: str = "input_ids",
) -> list[list[str]]:
    r"""Return the labels for the tokens of a batch: the tokens, else the ids, else the column numbers.

    Args:
        batch (mapping): for a `Batch` its tokens are shown, for another mapping the ids.
        tokens (`B` lists of `T` `str`, *optional*): the result of `collate.tokens(batch)`.
        shape (two `int`): B and T.
        rows, span (`slice`, *optional*): the rows, and the tokens in them. By default all.
        name (`str`, *optional*, defaults to `"input_ids"`): the key of the ids.

    Raises:
        ValueError: if `tokens` has another shape.

    Example:
        >>> token_labels({"input_ids": np.array([[5, 6]])}, None, (1, 2), span=slice(1, 2))
        [['6']]
    """
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
        return [[readable(token) for token in list(row)[span]] for row in list(tokens)[rows]]
    ids = batch.get(name) if isinstance(batch, Mapping) else None
    if ids is None or tuple(ids.shape) != shape:
        return [[str(column) for column in range(shape[1])][span] for _ in range(shape[0])[rows]]
    known = written_tokens(batch, name, rows)
    if known is None:
        return [[str(token) for token in row] for row in ids[rows, span].tolist()]
    return [[readable(token) for token in row[span]] for row in known]


def span_of(span: tuple[int, int] | None, length: int) -> slice:
    r"""Return the tokens to draw: from the first number of `span` up to, not including, the second; by default all.

    Raises:
        ValueError: if there are more than can be labelled, or none.

    Example:
        >>> span_of((8, 100), 20)
        slice(8, 20, None)
    """
    try:
        start, stop, _ = slice(*(span if span is not None else (0, length))).indices(length)
    except TypeError:
        raise ValueError(
            explain("span must be two integers", got=shorten(span), fix=f"span=(0, {MOST_TOKENS})")
        ) from None
    if stop <= start:
        raise ValueError(
            explain(f"span contains none of the {length} tokens", got=shorten(span), fix=f"span=(0, {length})")
        )
    check_count("tokens", stop - start, MOST_TOKENS, fix=f"span=({start}, {start + MOST_TOKENS}) draws the first ones")
    return slice(start, stop)


def row_index(row: Any, rows: int) -> int:
    r"""Return the index of a row, from 0, or raise if there is no such row.

    Example:
        >>> row_index(-1, 3)
        2
    """
    if isinstance(row, bool) or not isinstance(row, int | np.integer) or not -rows <= row < rows:
        raise ValueError(
            explain(f"row must be an integer from 0 to {rows - 1}", got=shorten(row), fix=f"row={rows - 1}")
        )
    return int(row) % rows


def inches_of(labels: Sequence[str]) -> float:
    """Return the width of the longest token label in inches."""
    return 0.058 * max((len(label) for label in labels), default=0) + 0.12


def label_matrix(
    ax: Axes,
    across: Sequence[str],
    down: Sequence[str],
    *,
    real_across: Sequence[bool] | None = None,
    real_down: Sequence[bool] | None = None,
) -> None:
    r"""Label the columns and rows of a matrix with tokens, padding in grey.

    Args:
        ax (`Axes`): with a matrix drawn, one unit a cell.
        across, down (sequences of `str`): the labels along x, rotated, and along y.
        real_across, real_down (sequences of `bool`, *optional*): False at padding. By default no label is padding.
    """
    for axis, labels, real in ((ax.xaxis, across, real_across), (ax.yaxis, down, real_down)):
        axis.set_ticks(range(len(labels)), labels=list(labels), fontsize=_TOKEN_SIZE)
        for text, is_real in zip(axis.get_ticklabels(), real or (), strict=False):
            if not is_real:
                text.set_color(FADED)
    ax.tick_params(axis="x", labelrotation=90)
    ax.tick_params(length=0)


def label_points(
    ax: Axes, points: NDArray[np.float64], words: Sequence[str], *, clear_of: NDArray[np.float64] | None = None
) -> None:
    r"""Write a word beside every point so that none overlaps, with a thin line to words that are further away.

    Candidate places are tried in a fixed order; if all overlap, the one with the least overlap is used. Call this
    function last, after `figure.draw_without_rendering()`, because it needs the final size of the axes.

    Args:
        ax (`Axes`): with the points drawn.
        points (`np.ndarray` `(N, 2)`): in data coordinates.
        words (`N` `str`): the labels.
        clear_of (`np.ndarray` `(M, 2)`, *optional*): other points that no word may cover.
    """
    from matplotlib.patheffects import withStroke

    to_points = 72.0 / figure_of(ax).dpi
    dots = ax.transData.transform(points) * to_points
    others = () if clear_of is None else ax.transData.transform(clear_of) * to_points
    frame = ax.get_window_extent()
    inside = (frame.x0 * to_points, frame.y0 * to_points, frame.x1 * to_points, frame.y1 * to_points)
    taken: list[_Box] = [(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in (*dots, *others)]
    for (x, y), point, word in zip(dots, points, words, strict=True):
        note = ax.annotate(word, point, (0, 0), textcoords="offset points", ha="left", va="bottom", fontsize=SMALL)
        note.set_in_layout(False)
        note.set_path_effects([withStroke(linewidth=2, foreground=ax.get_facecolor())])  # lines are drawn behind it
        extent = note.get_window_extent()
        width, height = extent.width * to_points + 2 * _GAP, extent.height * to_points + 2 * _GAP
        box = _best_box(x, y, width, height, taken, inside)
        taken.append(box)
        note.set_position((box[0] + _GAP - x, box[1] + _GAP - y))
        if max(box[0] - x, x - box[2], box[1] - y, y - box[3]) > 1.5 * _OFFSETS[0]:
            nearest = (min(max(x, box[0]), box[2]) - x, min(max(y, box[1]), box[3]) - y)
            style = {"arrowstyle": "-", "color": FADED, "lw": 0.5}
            ax.annotate("", point, nearest, textcoords="offset points", arrowprops=style).set_in_layout(False)


def _best_box(x: float, y: float, width: float, height: float, taken: Sequence[_Box], inside: _Box) -> _Box:
    least, best = np.inf, (x, y, x + width, y + height)
    for offset in _OFFSETS:
        for right, up in _DIRECTIONS:
            left = x - width / 2 + right * (width / 2 + offset)
            bottom = y - height / 2 + up * (height / 2 + offset)
            box = (left, bottom, left + width, bottom + height)
            covered = sum(_overlap(box, other) for other in taken) + 4 * (width * height - _overlap(box, inside))
            if covered < least - 1e-9:
                least, best = covered, box
        if least <= 1e-6:
            break
    return best


def _overlap(one: _Box, other: _Box) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
