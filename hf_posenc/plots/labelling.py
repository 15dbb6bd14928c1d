"""Words beside points, none over another: each goes to the free place nearest to its point.

Places are tried in a fixed order, so that the same points give the same picture; where all are taken, the one that
covers least is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .canvas import FADED, INK, figure_of, fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AWAY = (5.0, 12.0, 20.0, 30.0, 42.0, 56.0, 72.0)  # points from the middle of a dot to the nearest edge of its word
_ROUND = tuple(itertools.product((0.0,), (1.0, -1.0))) + tuple(
    itertools.product((1.0, -1.0), (0.0, 1.0, -1.0, 0.5, -0.5))
)
_GAP = 1.0  # points of nothing around a word
_DOT = 4.0  # points; half of what a dot takes

Box = tuple[float, float, float, float]  # left, bottom, right, top


def write_beside(
    ax: Axes,
    points: NDArray[np.float64],
    words: Sequence[str],
    *,
    clear_of: NDArray[np.float64] | None = None,
    size: float = 8.0,
) -> None:
    r"""Writes a word at every point, with a thin line to those that had to go further away.

    Call it last, after `figure.draw_without_rendering()`: it needs the axes as they will be. What is laid out anew
    afterwards, in a window that is drawn larger for one, keeps its places in points.

    Args:
        ax (`Axes`): with the points in it.
        points (`np.ndarray` `(N, 2)`): in the numbers of the axes.
        words (`N` `str`): to write.
        clear_of (`np.ndarray` `(M, 2)`, *optional*): other points that no word shall cover.
        size (`float`, *optional*, defaults to 8): of the letters, in points.
    """
    from matplotlib.patheffects import withStroke

    figure = figure_of(ax)
    to_points = 72.0 / figure.dpi
    dots = ax.transData.transform(points) * to_points
    others = () if clear_of is None else ax.transData.transform(clear_of) * to_points
    frame = ax.get_window_extent()
    inside = (frame.x0 * to_points, frame.y0 * to_points, frame.x1 * to_points, frame.y1 * to_points)
    taken: list[Box] = [(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in (*dots, *others)]
    for (x, y), point, word in zip(dots, points, words, strict=True):
        note = ax.annotate(
            word,
            point,
            (0, 0),
            textcoords="offset points",
            ha="left",
            va="bottom",
            fontsize=size,
            family=fonts(),
            color=INK,
            parse_math=False,
        )
        note.set_in_layout(False)
        note.set_path_effects([withStroke(linewidth=2, foreground="white")])  # lines pass behind it
        extent = note.get_window_extent()
        width, height = extent.width * to_points + 2 * _GAP, extent.height * to_points + 2 * _GAP
        box = _best(x, y, width, height, taken, inside)
        taken.append(box)
        note.set_position((box[0] + _GAP - x, box[1] + _GAP - y))
        gap = max(box[0] - x, x - box[2], box[1] - y, y - box[3])
        if gap > 1.5 * _AWAY[0]:
            end = (min(max(x, box[0]), box[2]) - x, min(max(y, box[1]), box[3]) - y)
            line = ax.annotate(
                "", point, end, textcoords="offset points", arrowprops={"arrowstyle": "-", "color": FADED, "lw": 0.5}
            )
            line.set_in_layout(False)


def _best(x: float, y: float, width: float, height: float, taken: Sequence[Box], inside: Box) -> Box:
    least, best = np.inf, (x, y, x + width, y + height)
    for away in _AWAY:
        for across, up in _ROUND:
            left = x - width / 2 + across * (width / 2 + away)
            bottom = y - height / 2 + up * (height / 2 + away)
            box = (left, bottom, left + width, bottom + height)
            covered = sum(_common(box, other) for other in taken) + 4 * (width * height - _common(box, inside))
            if covered < least - 1e-9:
                least, best = covered, box
        if least <= 1e-6:
            break
    return best


def _common(one: Box, other: Box) -> float:
    """The area of two boxes' overlap."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return max(across, 0.0) * max(up, 0.0)
