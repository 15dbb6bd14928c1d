"""Plots of a sinusoidal encoding as rotations: frequencies, angles at a position, clock hands, angles of fixed bases.

A pair of columns holds the sine and cosine of one angle: the coordinates of the tip of a clock hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.errors import counted, value_error
from ..positions import Convention, fixed_bases
from .canvas import (
    BLUE,
    DASHES,
    FADED,
    LINES,
    MEDIUM,
    SMALL,
    figure_of,
    ink,
    integer_ticks,
    label,
    legend_below,
    new_axes,
    picture,
)
from .checks import as_count, as_integers, check_count
from .sinusoids import Sinusoids, line_points, turn, with_gaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PAIRS, _MOST_POSITIONS = 16, 32  # of clock hands
_MOST_TURNED = 200  # positions that `degrees` draws by default until all hands meet again


@picture
def frequencies(
    d_model: int = 128,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the frequency of every pair of columns, by default 1/10000^(2i/D) for pair i of width D.

    A second axis on the right has the wavelengths, in positions per turn.

    Args:
        d_model (`int`): width, the number of columns.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.axes.Axes` with one line: x the pairs of columns, y the frequencies in radians per position.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` is not positive, or all columns are zeros, as in some conventions with `d_model=1`.

    Example:
        >>> frequencies(8).lines[0].get_ydata().round(4)
        array([1.   , 0.1  , 0.01 , 0.001])
    """
    table = Sinusoids(d_model, convention, base)
    table.check_waves()
    ax = new_axes(ax, 6.5, 3.4)
    ax.plot(table.rates, color=BLUE, marker="." if len(table.rates) <= 64 else None)
    if table.rates[0] > 10 * table.rates[-1]:
        ax.set_yscale("log")
    integer_ticks(ax.xaxis)
    title = "Frequencies of the pairs of columns"
    if (np.diff(table.rates) < 0).all():
        slower = "From pair to pair, columns oscillate more slowly"
        title = slower if len(table.rates) > 1 else "One pair of columns, one frequency"
    label(ax, title, "pair of columns", "radians per position", note=str(table), grid=True)
    right = ax.secondary_yaxis("right", functions=(_wavelength, _wavelength))
    right.set_ylabel("positions per turn", fontsize=MEDIUM, rotation=0, ha="right", va="bottom")
    right.yaxis.set_label_coords(1, 1, transform=ax.yaxis.label.get_transform())
    right.tick_params(which="both", labelsize=SMALL)
    return ax


@picture
def offsets(
    d_model: int = 128,
    position: Iterable[int] | int = (1, 10, 100),
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the angle of every column at some positions: the frequency times the position.

    The angle axis is logarithmic, so a larger position shifts the whole line up. A horizontal line marks one turn, 2π.
    Where the line of a position is above it, the column has begun to repeat its values before that position.

    Args:
        d_model (`int`): width, the number of columns.
        position (one to six `int`): positions to draw, 1 or more.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.axes.Axes` with these lines: the frequencies, the angles at each position, and one turn. x are the
        columns, y the angles in radians. If a convention has all sines before all cosines, each line has a NaN between
        them, which makes a gap.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or a position is not positive, or there are more than six positions.

    Example:
        >>> offsets(64, [10, 100]).get_ylabel()
        'angle in radians'
    """
    where = as_integers(position, "position", "[1, 10, 100]")
    check_count("positions", len(where), len(LINES) - 1, "position=[1, 10, 100]")
    if not where.all():
        rule = "position must be at least 1: at position 0 every angle is 0, which a logarithmic axis cannot show"
        raise value_error(rule, got=0, fix="position=[1, 10, 100]")
    table = Sinusoids(d_model, convention, base)
    table.check_waves()
    columns = np.flatnonzero(table.frequency)
    rates = table.frequency[columns]
    ends = np.flatnonzero(np.diff(rates) > 0) + 1  # with halves, the index where the cosines begin
    across, marker = with_gaps(columns, ends), "." if len(columns) == 1 else None
    ax = new_axes(ax, 6.5, 3.6)
    # Broad and pale, so that the line of position 1, which coincides, is visible on it.
    shown: dict[str, Any] = {"color": FADED, "linewidth": 5, "alpha": 0.4, "label": "frequencies: position 1"}
    ax.plot(across, with_gaps(rates, ends), marker=marker, **shown)
    for i, one in enumerate(where.tolist()):
        ax.plot(across, with_gaps(rates * one, ends), color=LINES[i], marker=marker, label=f"position {one:,}")
    ax.axhline(2 * np.pi, color=FADED, linewidth=0.8)
    end: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "top", "fontsize": SMALL}
    ax.text(0.99, 2 * np.pi, "one turn", **end)
    ax.set_yscale("log")
    legend_below(ax, 1.6)
    integer_ticks(ax.xaxis)
    furthest = int(where.max())
    unturned = int((rates * furthest < 2 * np.pi).sum())
    number = f"{unturned if unturned else 'none'} of {counted(len(rates), 'column')}"
    title = f"By position {furthest:,}, {number} {'has' if unturned == 1 else 'have'} not yet made a full turn"
    label(ax, title, "column", "angle in radians", note=str(table), grid=True)
    return ax


@picture
def dials(
    d_model: int = 8,
    positions: int = 10,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the angle of each pair of columns at each position as a clock with one hand.

    A hand points right at angle 0 and turns counterclockwise from position to position. The height of its tip is the
    value of the sine column, and the horizontal offset that of the cosine column.

    Args:
        d_model (`int`): width, the number of columns, 1 to 32.
        positions (`int`): number of positions, 1 to 32.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.axes.Axes`. The last collection holds the hands, pair by pair: for position p and pair i from the
        point (p, -i) to that point plus 0.4 times (cosine, sine).

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `positions` is not positive, or larger than 32.

    Example:
        >>> [text.get_text() for text in dials(4, 3).get_yticklabels()]
        ['columns 0, 1\n6.28 positions a turn', 'columns 2, 3\n628 positions a turn']
    """
    from matplotlib.collections import LineCollection

    length = as_count(positions, "positions", 10, most=_MOST_POSITIONS)
    table = Sinusoids(d_model, convention, base)
    table.check_waves()
    count = len(table.rates)
    check_count("pairs of columns", count, _MOST_PAIRS, f"d_model={2 * _MOST_PAIRS}")
    size = min(0.5, 5.0 / length)
    ax = new_axes(ax, max(2.0 + size * length, 4.2), 1.0 + size * count)
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
    slower = count > 1 and (np.diff(table.rates) < 0).all()
    title = f"{'Slower and slower clock hands' if slower else 'Clock hands'}: one for each pair of columns"
    label(ax, title, "position", "", note=str(table))
    names = [f"columns {sine}, {cosine}" for sine, cosine in zip(table.sines, table.cosines, strict=False)]
    alone = [*table.sines[len(names) :], *table.cosines[len(names) :]]  # the last column of an odd width
    names += [f"column {column}" for column in alone]
    inside = ax.get_window_extent()
    row = min(inside.height / count, inside.width / length) / figure_of(ax).dpi  # inches, about
    if size > 0.4 and row > 0.35:  # room for two lines
        names = [f"{name}\n{turn(2 * np.pi / rate)}" for name, rate in zip(names, table.rates, strict=True)]
    ax.set_yticks(-np.arange(count), names)
    ax.set_xticks(range(0, length, 1 if length <= 16 else 2))
    ax.tick_params(length=0)
    return ax


@picture
def degrees(bases: tuple[float, ...] = (4, 5, 7), length: int | None = None, *, ax: Axes | None = None) -> Axes:
    r"""Draw the angles of clock hands over positions, one hand per base: base 4 makes a quarter turn per position.

    Args:
        bases (one to seven numbers): positions per turn, each larger than 1.
        length (`int`, *optional*): number of positions from 0. By default the plot ends where all hands are back at 0
            degrees for the first time. If that is after position 200, or a base is not an integer, three turns of the
            largest base are drawn.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw into. By default those of a new figure.

    Returns:
        `matplotlib.axes.Axes` with one line per base: x the positions, y the angle in degrees, from 0 to below 360. Up
        to 2,000 positions, a NaN before every new turn makes a gap in the line.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if a base is not larger than 1, `length` is not positive, or there are more than seven bases.

    Example:
        >>> degrees().get_title()
        'The hands point the same way again after 140 positions'
    """
    turns = fixed_bases(*bases).bases or ()
    check_count("bases", len(turns), len(LINES), "bases=(4, 5, 7)")
    together = math.lcm(*map(int, turns)) if all(float(one).is_integer() for one in turns) else None
    count = math.ceil(3 * max(turns)) if together is None or together > _MOST_TURNED else together + 1
    if length is not None:
        count = as_count(length, "length", 21)
    numbers = np.array(turns, dtype=np.float64)
    positions, values, step = line_points(np.arange(count)[:, None] % numbers * 360 / numbers)
    ax = new_axes(ax, 6.5, 3.4)
    few = len(positions) <= 60
    for i, one in enumerate(turns):
        starts = np.flatnonzero(np.diff(values[:, i]) < 0) + 1 if step == 1 else np.array([], dtype=int)
        ax.plot(
            with_gaps(positions[:, i], starts),
            with_gaps(values[:, i], starts),
            color=LINES[i],
            linestyle=DASHES[i % 4] if few else "-",
            marker="os^Dv*P"[i] if few else None,
            markersize=4,
            linewidth=1,
            label=f"base {one:g}: {360 / one:.4g}° per position",
        )
    ax.set_ylim(-10, 370)
    ax.set_yticks(range(0, 361, 90), [f"{tick}°" for tick in range(0, 361, 90)])
    title, names = "The angle of each hand over the positions", ", ".join(f"{one:g}" for one in turns)
    if together is not None and together < count and len(turns) > 1:
        title = f"The hands point the same way again after {together:,} positions"
        meetings = np.arange(0, count, together)
        ax.scatter(meetings, 0 * meetings, s=60, facecolor="none", edgecolor=ink(), zorder=4, label="all hands at 0°")
    legend_below(ax, 1.6)
    integer_ticks(ax.xaxis)
    thinned = f"; lowest and highest angle of every {2 * step:,} positions drawn" if step > 1 else ""
    label(ax, title, "position", "angle", note=f"{counted(count, 'position')}, bases {names}{thinned}", grid=True)
    return ax


def _wavelength(values: Any) -> Any:
    """Convert frequencies to wavelengths, or wavelengths to frequencies: both are 2π / `values`."""
    with np.errstate(divide="ignore"):
        return 2 * np.pi / np.asarray(values)
