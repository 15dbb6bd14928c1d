"""Labels of plots with tokens, readable in any script: on the axes of a matrix, or beside points.

At most 64 tokens are labeled; for a longer text, pass `span` to the plot.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from ..collator import written_tokens
from .canvas import FADED, SMALL, figure_of, fonts
from .checks import check_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TOKENS = 64
_TOKEN_SIZE = 7.5  # points

# Words beside points: candidate offsets in points from a dot to its word, nearest first, and the directions tried.
_OFFSETS = (5.0, 12.0, 20.0, 30.0, 42.0, 56.0, 72.0)
_SIDES = [(right, up) for right in (1.0, -1.0) for up in (0.0, 1.0, -1.0, 0.5, -0.5)]
_DIRECTIONS = np.array([(0.0, 1.0), (0.0, -1.0), *_SIDES])
_GAP, _DOT = 1.0, 4.0  # points around a word; radius of a dot


def readable(text: str, longest: int = 12) -> str:
    r"""Return `text` as a label of at most `longest` characters; a truncated label ends in "…".

    Control characters are escaped. A character that no installed font can show becomes its code point, `U+XXXX`. A
    dollar sign gets a backslash, because matplotlib would read a formula.

    Example:
        >>> readable("ride\n"), readable("internationalization")
        ('ride\\n', 'internation…')
    """
    word = "".join(map(_shown, text))
    word = word if len(word) <= longest else f"{word[: longest - 1]}…"
    return word.replace("$", r"\$")  # two dollar signs would mark a formula


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
    r"""Return the labels of the tokens in a batch: a list of `str` for each row.

    The labels are `tokens` if given, else the tokens that a `Batch` can decode, else the ids. If the batch has no ids
    of this shape, they are the column numbers.

    Example:
        >>> token_labels({"input_ids": np.array([[5, 6]])}, None, (1, 2), span=slice(1, 2))
        [['6']]
    """
    if tokens is not None:
        lengths = [len(row) for row in tokens]
        if isinstance(tokens, str) or len(lengths) != shape[0] or set(lengths) != {shape[1]}:
            raise value_error(
                f"tokens must be {shape[0]} lists of {shape[1]} tokens, padding included",
                got=f"{len(lengths)} of lengths {shorten(lengths)}",
                fix="tokens=collate.tokens(batch)",
            )
        return [[readable(token) for token in list(row)[span]] for row in list(tokens)[rows]]
    ids = batch.get(name) if isinstance(batch, Mapping) else None
    if ids is None or tuple(ids.shape) != shape:
        return [[str(column) for column in range(shape[1])][span] for _ in range(shape[0])[rows]]
    words = written_tokens(batch, name, rows)
    if words is None:
        return [[str(token) for token in row] for row in ids[rows, span].tolist()]
    return [[readable(token) for token in row[span]] for row in words]


def span_of(span: tuple[int, int] | None, length: int) -> slice:
    r"""Return the argument `span` of a plot as a slice of the `length` tokens in a row.

    `span` is (start, stop), for the tokens from index start to stop - 1. Negative numbers count from the end, and
    numbers above `length` are replaced by `length`. `None` selects all tokens.

    Example:
        >>> span_of((8, 100), 20)
        slice(8, 20, None)
    """
    first, last = span or (0, length)
    start, stop, _ = slice(first, last).indices(length)
    if stop <= start:
        raise value_error(f"span contains none of the {length} tokens", got=shorten(span), fix=f"span=(0, {length})")
    check_count("tokens", stop - start, MOST_TOKENS, fix=f"span=({start}, {start + MOST_TOKENS}) draws the first ones")
    return slice(start, stop)


def inches_of(labels: Sequence[str]) -> float:
    """Return the estimated width of the widest of some labels, in inches; 0 without labels."""
    wide = [sum(unicodedata.east_asian_width(character) in "FW" for character in label) for label in labels]
    return max((0.058 * (len(label) + more) + 0.12 for label, more in zip(labels, wide, strict=True)), default=0.0)


class Side(NamedTuple):
    """Tokens on one axis of a matrix: their labels, and for each if it is not padding."""

    labels: list[str]
    real: list[bool]


def label_matrix(ax: Axes, across: Side, down: Side, cell: float) -> None:
    r"""Label the columns and rows of a drawn matrix with tokens; labels of padding tokens are gray.

    The labels of columns are rotated by 90 degrees if one is wider than a column, of `cell` inches.
    """
    rotation = 90 if inches_of(across.labels) > cell else 0
    for axis, side, degrees in ((ax.xaxis, across, rotation), (ax.yaxis, down, 0)):
        axis.set_ticks(range(len(side.labels)), labels=side.labels, fontsize=_TOKEN_SIZE, rotation=degrees)
        for text, is_real in zip(axis.get_ticklabels(), side.real, strict=True):
            if not is_real:
                text.set_color(FADED)
    ax.tick_params(length=0)


def label_points(ax: Axes, points: NDArray[np.float64], words: Sequence[str]) -> None:
    r"""Write a word beside every point, if possible without overlaps.

    If a word must be further away from its point, a thin line joins both. If every place overlaps, the one with the
    least overlap is used. Call this function last, after `figure.draw_without_rendering()`, because it needs the final
    size of the axes.
    """
    from matplotlib.patheffects import withStroke

    to_points = 72.0 / figure_of(ax).dpi
    dots = ax.transData.transform(points) * to_points
    inside = np.asarray(ax.get_window_extent().extents) * to_points
    boxes = [np.concatenate([dot - _DOT, dot + _DOT]) for dot in dots]  # left, bottom, right, top, in points
    offsets, directions = np.repeat(_OFFSETS, len(_DIRECTIONS))[:, None], np.tile(_DIRECTIONS, (len(_OFFSETS), 1))
    for dot, point, word in zip(dots, points, words, strict=True):
        note = ax.annotate(word, point, (0, 0), textcoords="offset points", ha="left", va="bottom", fontsize=SMALL)
        note.set_in_layout(False)
        note.set_path_effects([withStroke(linewidth=2, foreground=ax.get_facecolor())])  # readable on lines
        size = np.asarray(note.get_window_extent().size) * to_points + 2 * _GAP
        middles = dot + directions * (size / 2 + offsets)
        candidates = np.concatenate([middles - size / 2, middles + size / 2], axis=1)  # (C, 4)
        covered = _overlap(candidates[:, None], np.stack(boxes)).sum(axis=1)
        covered += 4 * (size.prod() - _overlap(candidates, inside))
        box = candidates[covered.round(6).argmin()]
        boxes.append(box)
        note.set_position(tuple(box[:2] + _GAP - dot))
        nearest = np.clip(dot, box[:2], box[2:]) - dot
        if np.abs(nearest).max() > 1.5 * _OFFSETS[0]:
            style = {"arrowstyle": "-", "color": FADED, "lw": 0.5}
            ax.annotate("", point, nearest, textcoords="offset points", arrowprops=style).set_in_layout(False)


def _overlap(ones: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the area of the intersection of boxes `(..., 4)` with other boxes, broadcast against each other."""
    sides = np.minimum(ones[..., 2:], others[..., 2:]) - np.maximum(ones[..., :2], others[..., :2])
    return sides.clip(min=0).prod(axis=-1)  # type: ignore[no-any-return]
