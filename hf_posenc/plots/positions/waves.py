"""Encodings as waves: columns along the positions, positions along the columns.

At most seven lines in a picture: more cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._explain import explain
from ...sinusoid import Convention
from .. import numbers
from ..canvas import (
    BLUE,
    FADED,
    GRID,
    LINES,
    ORANGE,
    SMALL,
    axes,
    check_count,
    gaps,
    label,
    legend_below,
    need_matplotlib,
    whole_ticks,
)
from ..colours import on_white
from .naming import formula, some, turn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LANES = 12


@on_white
def curves(
    d_model: int,
    length: int,
    *,
    columns: Iterable[int] | int | None = None,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Some columns as waves along the positions.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of positions, from 0 on. Above 2,000 a wave too fast to be seen is drawn as a band.
        columns (one to seven `int`, *optional*): which. By default up to four, those that turn 8, 4, 2 and 1 times.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes` with one line a column, the points of `numbers.curves`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if there is no such column, or there are more than seven.

    Example:
        >>> [line.get_label() for line in curves(20, 100, columns=[4, 5]).lines]
        ['column 4, sine, 39.6 positions a turn', 'column 5, cosine, 39.6 positions a turn']
    """
    need_matplotlib()
    waves = numbers.curves(d_model, length, columns=columns, convention=convention, base=base)
    check_count("columns", len(waves.columns), len(LINES), "columns=[0, 1]")
    ax = axes(ax, 6.5, 3.6)
    for i, column in enumerate(waves.columns.tolist()):
        kind = "cosine" if waves.cosine[i] else "sine"
        about = f"column {column}, {kind}, {turn(waves.wavelengths[i])}"
        # Dashes tell apart what colours cannot, in print for instance.
        ax.plot(
            waves.positions[:, i],
            waves.values[:, i],
            color=LINES[i],
            linestyle=("-", "--", "-.", ":")[i % 4],
            linewidth=1.4,
            marker="." if length == 1 else None,
            label=about,
        )
    ax.set_ylim(-1.1, 1.1)
    ax.grid(color=GRID, linewidth=0.6)
    legend_below(ax)
    thinned = f"\nlowest and highest of every {2 * waves.step:,} positions drawn" if waves.step > 1 else ""
    whole_ticks(ax.xaxis)
    what = f"{some(length, 'position')} × {some(d_model, 'column')} as waves, {formula(convention, base)}"
    label(ax, what + thinned, "position", "value")
    return ax


@on_white
def offsets(
    d_model: int,
    position: Iterable[int] | int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""The offset that a position puts on the decay of the frequencies: the angle by which it turns each column.

    On the logarithmic axis the decay is shifted up by the position. Columns above the line of one turn have come round.

    Args:
        d_model (`int`): width D >= 1.
        position (one to six `int`): from 1 on; position 0 turns nothing.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes` with the line of the decay, and then one for each position: the `angles` of
        `numbers.offsets`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or a position is not positive, or there are more than six positions.

    Example:
        >>> offsets(64, [10, 100]).get_ylabel()
        'angle in radians'
    """
    need_matplotlib()
    found = numbers.offsets(d_model, position, convention=convention, base=base)
    check_count("positions", len(found.positions), len(LINES) - 1, "position=[1, 10, 100]")
    if not found.positions.all():
        raise ValueError(
            explain("position 0 turns no column", got="position 0, on a logarithmic axis", fix="position=[1, 10, 100]")
        )
    ax = axes(ax, 6.5, 3.6)
    turning = found.decay > 0
    columns, decay = found.columns[turning], found.decay[turning]
    apart = np.flatnonzero(np.diff(decay) > 0) + 1  # halves: the sines end and the cosines begin
    across, marker = gaps(columns, apart), "." if len(columns) == 1 else None
    about: dict[str, Any] = {"label": "the decay: position 1", "zorder": 3}  # seen also where position 1 is asked for
    ax.plot(across, gaps(decay, apart), color=FADED, linestyle=":", marker=marker, **about)
    for i, one in enumerate(found.positions.tolist()):
        angles = gaps(found.angles[i][turning], apart)
        ax.plot(across, angles, color=LINES[i], marker=marker, label=f"× {one:,}: position {one:,}")
    ax.axhline(2 * np.pi, color=FADED, linewidth=0.8)
    ax.set_yscale("log")
    low, high = np.log(ax.get_ylim())
    under = (np.log(2 * np.pi) - low) / (high - low) > 0.85  # above the line it would run into the title
    ax.annotate(
        "one turn",
        (1, 2 * np.pi),
        xycoords=("axes fraction", "data"),
        xytext=(-3, -2 if under else 2),
        textcoords="offset points",
        ha="right",
        va="top" if under else "bottom",
        fontsize=SMALL,
    )
    ax.grid(color=GRID, linewidth=0.6)
    legend_below(ax)
    whole_ticks(ax.xaxis)
    what = f"how far a position turns each of {some(d_model, 'column')}, {formula(convention, base)}"
    label(ax, what, "column", "angle in radians")
    return ax


@on_white
def oscillation(
    d_model: int,
    positions: Iterable[int] | int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""The rows of several positions, one below the other: waves over the columns that slow down.

    Args:
        d_model (`int`): width D >= 1.
        positions (one to twelve `int`): not negative.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes`. Position i has the lane around y = -3 · i; its lines are the `values` of
        `numbers.oscillation` there, sines and cosines apart.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` is not positive, a position negative, or there are more than twelve.

    Example:
        >>> [text.get_text() for text in oscillation(64, [0, 10]).get_yticklabels()]
        ['0', '10']
    """
    need_matplotlib()
    found = numbers.oscillation(d_model, positions, convention=convention, base=base)
    check_count("positions", len(found.positions), _MOST_LANES, "positions=[1, 10, 100]")
    ax = axes(ax, 6.5, 1.4 + 0.7 * len(found.positions))
    for i, row in enumerate(found.values):
        ax.axhspan(-3 * i - 1, -3 * i + 1, color=GRID, alpha=0.4, linewidth=0)
        for some_columns, colour, name, style in (
            (found.sine, BLUE, "sine columns", "-"),
            (found.cosine, ORANGE, "cosine columns", "--"),
        ):
            if some_columns.any():
                ax.plot(
                    found.columns[some_columns],
                    row[some_columns] - 3 * i,
                    color=colour,
                    linestyle=style,
                    linewidth=1.2,
                    marker="." if some_columns.sum() <= 32 else None,
                    label=name if i == 0 else None,
                )
    ax.set_yticks([-3 * i for i in range(len(found.positions))], [f"{one:,}" for one in found.positions.tolist()])
    ax.set_ylim(1.5 - 3 * len(found.positions), 1.5)
    legend_below(ax)
    whole_ticks(ax.xaxis)
    what = f"{some(len(found.positions), 'position')} over {some(d_model, 'column')}, {formula(convention, base)}"
    label(ax, f"{what}\nthe band of each position: -1 to 1", "column", "position")
    return ax
