"""Waves and clock hands of a sinusoidal encoding: its dimensions, its positions, and the similarity of positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .._common.errors import counted, value_error
from ..positions import Convention
from .canvas import (
    BLUE,
    DASHES,
    FADED,
    GREEN,
    LINES,
    ORANGE,
    PALE,
    SEQUENTIAL,
    SKY,
    VERMILLION,
    color_bar,
    figure_of,
    integer_ticks,
    label,
    legend_below,
    new_axes,
    picture,
)
from .checks import as_count, as_integers, check_count
from .sinusoids import MOST_POINTS, Sinusoids, turn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES, _MOST_BANDS, _MOST_STARTS = 64, 12, 6
_MOST_PAIRS, _MOST_POSITIONS = 16, 32  # of clock hands


@picture
def curves(
    d_model: int = 128,
    length: int = 100,
    *,
    dimensions: Iterable[int] | int | None = None,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw dimensions of the encoding as waves along the positions.

    Args:
        d_model (`int`): width, the number of dimensions.
        length (`int`): number of positions from 0.
        dimensions (1 to 64 `int`, *optional*): indices of the dimensions to draw. By default up to four, whose waves
            make about 8, 4, 2 and 1 turns over the length. The colors of more than seven follow the dimension.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.figure.Figure`. Its axes have one line per dimension: x the positions, y the values.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `length` is not positive, a dimension does not exist, or there are more than 64
            dimensions to draw.

    Example:
        >>> [line.get_label() for line in curves(20, 100, dimensions=[4, 5]).axes[0].lines]
        ['dimension 4, sine, 39.6 positions a turn', 'dimension 5, cosine, 39.6 positions a turn']
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    table, count = Sinusoids(d_model, convention, base), as_count(length, "length", 100)
    if dimensions is None:  # fastest first, with about 8, 4, 2 and 1 turns
        with np.errstate(divide="ignore"):
            turns = np.log(table.frequency * count / (2 * np.pi))
        nearest = np.abs(turns[None, :] - np.log([[8], [4], [2], [1]])).argmin(axis=1)
        chosen = np.array(sorted(set(nearest.tolist()), key=lambda column: -turns[column]))
    else:
        chosen = as_integers(dimensions, "dimensions", _MOST_LINES, "[0]")
        if chosen.max() >= d_model:
            rule = f"dimensions must be integers from 0 to {d_model - 1} with d_model={d_model}"
            raise value_error(rule, got=f"dimension {chosen.max()}", fix=f"dimensions=[{d_model - 1}]")
    angles = np.outer(np.arange(count), table.frequency[chosen])  # (P, C); float64 errs by 1e-11 at 100,000
    values = np.sin(angles + table.phase[chosen])
    figure, ax = new_axes(ax, 6.5, 3.6)
    many = ScalarMappable(Normalize(0, d_model - 1), SEQUENTIAL) if len(chosen) > len(LINES) else None
    for i, column in enumerate(chosen.tolist()):
        with np.errstate(divide="ignore"):
            wavelength = turn(2 * np.pi / table.frequency[column])
        ax.plot(
            np.arange(count),
            values[:, i],
            color=many.to_rgba(column) if many else LINES[i],
            linestyle="-" if many else DASHES[i % 4],
            marker="." if count == 1 else None,
            label=f"dimension {column}, {'cosine' if column in table.cosines else 'sine'}, {wavelength}",
        )
    ax.set_ylim(-1.1, 1.1)
    if many:
        color_bar(ax, many, "dimension")
    else:
        legend_below(ax)
    integer_ticks(ax.xaxis)
    title = "Every dimension is a wave"
    label(ax, title, "position", "value", note=f"{counted(count, 'position')}, {table}", grid=True)
    return figure


@picture
def oscillation(
    d_model: int = 128,
    positions: Iterable[int] | int = (0, 1, 10, 100),
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw the encodings of several positions as waves over the dimensions: one band per position, below each other.

    Args:
        d_model (`int`): width, the number of dimensions.
        positions (`int`, or list of one to twelve `int`): one position, or several, to draw; each is 0 or more.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.figure.Figure`. Its axes have two lines per position, its sine dimensions and its cosine dimensions.
        The lines of `positions[i]` are shifted down by 3 · i.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` is not positive, a position is negative, or there are more than twelve positions.

    Example:
        >>> [text.get_text() for text in oscillation(64, [0, 10]).axes[0].get_yticklabels()]
        ['0', '10']
    """
    where = as_integers(positions, "positions", _MOST_BANDS, "[1, 10, 100]")
    table = Sinusoids(d_model, convention, base)
    table.check_waves()
    rows = table.rows(where)
    figure, ax = new_axes(ax, 6.5, 1.4 + 0.7 * len(where))
    for i, row in enumerate(rows):
        ax.axhspan(-3 * i - 1, -3 * i + 1, color=PALE, alpha=0.4, linewidth=0)
        kinds = (("sine dimensions", table.sines, BLUE, "-"), ("cosine dimensions", table.cosines, ORANGE, "--"))
        for name, columns, color, dashes in kinds:
            if len(columns):
                ax.plot(
                    columns,
                    row[columns] - 3 * i,
                    color=color,
                    linestyle=dashes,
                    marker="." if len(columns) <= 32 else None,
                    label=name if i == 0 else None,
                )
    ax.set_yticks([-3 * i for i in range(len(where))], [f"{dimension:,}" for dimension in where.tolist()])
    ax.set_ylim(1.5 - 3 * len(where), 1.5)
    legend_below(ax)
    integer_ticks(ax.xaxis)
    title = "The encoding of a position, along its dimensions"
    label(ax, title, "dimension", "position", note=f"{table}; each band is from -1 to 1")
    return figure


@picture
def similarity(
    d_model: int = 128,
    length: int = 100,
    *,
    starts: Iterable[int] | int = (0, 10, 100),
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw the dot product of the encodings of two positions over their distance, one line per starting position.

    The lines coincide: the product is the sum of cos(distance · frequency) over the pairs of dimensions, which
    depends on the distance alone. With an odd width the last sine has no cosine, and the lines differ a little. The
    cosine similarity is the product divided by `d_model / 2`, because every encoding has the length √(d_model / 2).

    Args:
        d_model (`int`): width, the number of dimensions.
        length (`int`): number of distances from 0. Above 2,000, only every n-th distance is drawn, so that at most
            2,000 remain.
        starts (one to six `int`): starting positions, 0 or more. The other position is the start plus the distance.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.figure.Figure`. Its axes have one line per start: x the distances, y the dot products.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `length` is not positive, a start is negative, or there are more than six starts.

    Example:
        >>> [line.get_label() for line in similarity(64, 50).axes[0].lines]
        ['from position 0', 'from position 10', 'from position 100']
    """
    from matplotlib import rcParams

    where = as_integers(starts, "starts", _MOST_STARTS, "[0, 10, 100]").tolist()
    count, table = as_count(length, "length", 100), Sinusoids(d_model, convention, base)
    step = -(-count // MOST_POINTS)
    apart = np.arange(0, count, step)
    lines = []
    for start in where:
        lines.append(table.rows(start + apart) @ table.rows(np.array([start]))[0])
    figure, ax = new_axes(ax, 6.5, 3.4)
    # Lines coincide, so consecutive colors differ strongly.
    colors = (SKY, rcParams["text.color"], ORANGE, BLUE, VERMILLION, GREEN)
    for i, (start, values) in enumerate(zip(where, lines, strict=True)):
        # The first line is broad and pale; the lines on top are thinner and dashed, so that all are visible.
        ax.plot(
            apart,
            values,
            color=colors[i],
            linewidth=1.2 if len(where) == 1 else 6 - 4.8 * i / (len(where) - 1),
            linestyle="-" if i == 0 else (0, (4, 2 + 2 * i)),
            marker="." if count == 1 else None,
            label=f"from position {start:,}",
        )
    legend_below(ax, 1.6)
    integer_ticks(ax.xaxis)
    title, values = "The dot product of two positions by their distance", np.mean(lines, axis=0)
    near, far = np.array_split(values, 2)
    if len(values) > 3 and values[1] > values[2:].max() and near.mean() > far.mean():
        title = f"{'Near positions' if step > 1 else 'Neighbors'} are alike: the dot product falls with distance"
    thinned = f"; one of every {step:,} distances drawn" if step > 1 else ""
    label(ax, title, "distance in positions", "dot product", note=f"{table}{thinned}", grid=True)
    return figure


@picture
def dials(
    d_model: int = 8,
    positions: int = 10,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw the angle of each pair of dimensions at each position as a clock with one hand.

    A hand points right at angle 0 and turns counterclockwise from position to position. The height of its tip is the
    value of the sine dimension, and the horizontal offset that of the cosine dimension.

    Args:
        d_model (`int`): width, the number of dimensions, 1 to 32.
        positions (`int`): number of positions, 1 to 32.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.figure.Figure`. The last collection of its axes holds the hands, pair by pair: for position p and
        pair i from the point (p, -i) to that point plus 0.4 times (cosine, sine).

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `positions` is not positive, or larger than 32.

    Example:
        >>> [text.get_text() for text in dials(4, 3).axes[0].get_yticklabels()]
        ['dimensions 0, 1\n6.28 positions a turn', 'dimensions 2, 3\n628 positions a turn']
    """
    from matplotlib.collections import LineCollection

    length = as_count(positions, "positions", 10, most=_MOST_POSITIONS)
    table = Sinusoids(d_model, convention, base)
    table.check_waves()
    count = len(table.rates)
    check_count("pairs of dimensions", count, _MOST_PAIRS, f"d_model={2 * _MOST_PAIRS}")
    size = min(0.5, 5.0 / length)
    figure, ax = new_axes(ax, max(2.0 + size * length, 4.2), 1.0 + size * count)
    centers = np.stack(np.meshgrid(np.arange(length), -np.arange(count)), axis=-1).reshape(-1, 2)
    around = np.linspace(0, 2 * np.pi, 49)
    rims = 0.44 * np.stack([np.cos(around), np.sin(around)], axis=-1)  # (49, 2)
    ax.add_collection(LineCollection(list(centers[:, None] + rims), colors=FADED, linewidths=0.6))
    angles = np.outer(table.rates, np.arange(length)).reshape(-1)
    tips = centers + 0.4 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    ax.scatter(tips[:, 0], tips[:, 1], s=6, color=BLUE, zorder=3)
    ax.add_collection(LineCollection(list(np.stack([centers, tips], axis=1)), colors=BLUE, linewidths=1.4))
    ax.set_xlim(-0.6, length - 0.4)
    ax.set_ylim(0.4 - count, 0.6)
    ax.set_aspect("equal")
    ax.set_anchor("W")  # aligned with the title
    for side in ax.spines.values():
        side.set_visible(False)
    label(ax, "Clock hands: one for each pair of dimensions", "position", "", note=str(table))
    names = [f"dimensions {sine}, {cosine}" for sine, cosine in zip(table.sines, table.cosines, strict=False)]
    alone = [*table.sines[len(names) :], *table.cosines[len(names) :]]  # the last dimension of an odd width
    names += [f"dimension {column}" for column in alone]
    inside = ax.get_window_extent()
    row = min(inside.height / count, inside.width / length) / figure_of(ax).dpi  # inches, about
    if size > 0.4 and row > 0.35:  # room for two lines
        names = [f"{name}\n{turn(2 * np.pi / rate)}" for name, rate in zip(names, table.rates, strict=True)]
    ax.set_yticks(-np.arange(count), names)
    ax.set_xticks(range(0, length, 1 if length <= 16 else 2))
    ax.tick_params(length=0)
    return figure
