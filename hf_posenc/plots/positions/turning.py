"""Encodings as things that turn: the decay of the frequencies, hands of a clock, degrees of fixed bases.

A pair of columns, sine and cosine of the same angle, is the tip of a hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...sinusoid import Convention
from .. import numbers
from ..canvas import (
    BLUE,
    FADED,
    GRID,
    LINES,
    SMALL,
    axes,
    check_count,
    figure_of,
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

_MOST_DIALS, _MOST_POSITIONS = 16, 32


@on_white
def frequencies(
    d_model: int, *, convention: str | Convention = "vaswani", base: float | None = None, ax: Axes | None = None
) -> Axes:
    r"""The decay of 1/10000^(2i/D) over the pairs of columns, with the wavelengths on the right.

    Args:
        d_model (`int`): width D >= 1.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes`; its line holds `numbers.frequencies(d_model).frequencies`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` is not positive.

    Example:
        >>> frequencies(8).lines[0].get_ydata().round(4)
        array([1.   , 0.1  , 0.01 , 0.001])
    """
    need_matplotlib()
    found = numbers.frequencies(d_model, convention=convention, base=base)
    ax = axes(ax, 6.5, 3.4)
    pairs = np.arange(len(found.frequencies))
    ax.plot(pairs, found.frequencies, color=BLUE, marker="." if len(pairs) <= 64 else None)
    if found.frequencies[0] > 10 * found.frequencies[-1]:
        ax.set_yscale("log")
    whole_ticks(ax.xaxis)
    ax.grid(color=GRID, linewidth=0.6)
    label(
        ax,
        f"decay of the frequencies: {some(d_model, 'column')}, {formula(convention, base)}",
        "i, the pair of columns",
        "radians per position",
    )
    right = ax.secondary_yaxis("right", functions=(_other, _other))
    right.set_ylabel("wavelength: positions per turn", fontsize=ax.yaxis.label.get_fontsize())
    right.tick_params(which="both", labelsize=SMALL)
    return ax


@on_white
def dials(
    d_model: int = 8,
    positions: int = 10,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""A clock for each pair of columns at each position: hands that turn at falling speeds.

    A hand starts at the right, where its angle is 0, and turns to the left; how high its tip is, is the sine column,
    and how far right, the cosine column.

    Args:
        d_model (`int`): width, 1 to 32.
        positions (`int`): how many, 1 to 32.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes`. Its last collection holds the hands, from (p, -f) to (p, -f) plus 0.4 times cosine and
        sine of `numbers.dials(...).angles[f, p]`, pair by pair.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `positions` is not positive, or more than can be labelled.

    Example:
        >>> [text.get_text() for text in dials(4, 3).get_yticklabels()]
        ['columns 0, 1\n6.28 positions a turn', 'columns 2, 3\n628 positions a turn']
    """
    from matplotlib.collections import LineCollection

    need_matplotlib()
    found = numbers.dials(d_model, positions, convention=convention, base=base)
    count, length = found.angles.shape
    check_count("pairs of columns", count, _MOST_DIALS, f"d_model={2 * _MOST_DIALS}")
    check_count("positions", length, _MOST_POSITIONS, f"positions={_MOST_POSITIONS}")
    size = min(0.5, 5.0 / length)
    ax = axes(ax, max(2.0 + size * length, 4.2), 1.0 + size * count)
    centres = np.stack(np.meshgrid(np.arange(length), -np.arange(count)), axis=-1).reshape(-1, 2)  # (F·P, 2)
    angles = found.angles.reshape(-1)
    around = np.linspace(0, 2 * np.pi, 49)
    rims = 0.44 * np.stack([np.cos(around), np.sin(around)], axis=-1)  # (49, 2)
    ax.add_collection(LineCollection(list(centres[:, None] + rims), colors=FADED, linewidths=0.6))
    tips = centres + 0.4 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    ax.scatter(tips[:, 0], tips[:, 1], s=6, color=BLUE, zorder=3)
    ax.add_collection(LineCollection(list(np.stack([centres, tips], axis=1)), colors=BLUE, linewidths=1.4))
    ax.set_xlim(-0.6, length - 0.4)
    ax.set_ylim(0.4 - count, 0.6)
    ax.set_aspect("equal")
    ax.set_anchor("W")  # where the title begins
    for side in ax.spines.values():
        side.set_visible(False)
    label(ax, f"{some(d_model, 'column')} as hands of clocks, {formula(convention, base)}", "position", "")
    names = [f"column{'s' if len(pair) > 1 else ''} {', '.join(map(str, pair))}" for pair in found.pairs]
    inside = ax.get_window_extent()
    row = min(inside.height / count, inside.width / length) / figure_of(ax).dpi  # inches, about
    if size > 0.4 and row > 0.35:  # room for two lines
        names = [f"{name}\n{turn(wave)}" for name, wave in zip(names, found.wavelengths, strict=True)]
    ax.set_yticks(-np.arange(count), names)
    ax.set_xticks(range(0, length, 1 if length <= 16 else 2))
    ax.tick_params(length=0)
    return ax


@on_white
def degrees(bases: tuple[float, ...] = (4, 5, 7), length: int | None = None, *, ax: Axes | None = None) -> Axes:
    r"""The angles of fixed bases by position: base 4 makes a quarter turn from each position to the next.

    Args:
        bases (one to seven numbers): positions per turn, each larger than 1.
        length (`int`, *optional*): number of positions. By default three turns of the largest base.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes` with one line for each base, the `degrees` of `numbers.degrees`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if a base is not larger than 1, `length` not positive, or there are more than seven bases.

    Example:
        >>> degrees().get_title(loc="left")
        'degrees of bases 4, 5, 7: the same again after 140 positions'
    """
    need_matplotlib()
    found = numbers.degrees(bases, length)
    check_count("bases", len(found.bases), len(LINES), "bases=(4, 5, 7)")
    ax = axes(ax, 6.5, 3.4)
    few = len(found.positions) <= 60
    for i, one in enumerate(found.bases):
        back = np.flatnonzero(np.diff(found.degrees[:, i]) < 0) + 1 if found.step == 1 else np.array([], dtype=int)
        ax.plot(
            gaps(found.positions[:, i], back),
            gaps(found.degrees[:, i], back),
            color=LINES[i],
            linestyle=("-", "--", "-.", ":")[i % 4] if few else "-",
            marker="os^Dv*P"[i] if few else None,
            markersize=4,
            linewidth=1,
            label=f"base {one:g}: {360 / one:.4g}° a position",
        )
    ax.set_ylim(-10, 370)
    ax.set_yticks(range(0, 361, 90), [f"{tick}°" for tick in range(0, 361, 90)])
    ax.grid(color=GRID, linewidth=0.6)
    legend_below(ax, 1.6)
    whole_ticks(ax.xaxis)
    listed = ", ".join(f"{one:g}" for one in found.bases)
    name = f"degrees of base{'s' if len(found.bases) > 1 else ''} {listed}"
    again = f": the same again after {found.period:,} positions" if found.period else ""
    thinned = f"\nlowest and highest of every {2 * found.step:,} positions drawn" if found.step > 1 else ""
    label(ax, name + again + thinned, "position", "angle")
    return ax


def _other(values: Any) -> Any:
    """Wavelength to frequency, and back."""
    with np.errstate(divide="ignore"):
        return 2 * np.pi / np.asarray(values)
