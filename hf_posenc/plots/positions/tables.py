"""Encodings as heat maps: positions down, columns across.

Orange is below 0, white is 0, purple above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...sinusoid import Convention
from .. import numbers
from ..canvas import FADED, LABEL, SMALL, axes, figure_of, heat, label, need_matplotlib
from ..colours import on_white
from ..limits import MOST
from ..numbers.columns import every_column
from ..numbers.positions import Table
from .naming import formula, ordinal, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TWO_NAMES = 1.6  # inches that each half needs for "cosines (odd columns)" above it


@on_white
def encoding(
    d_model: int,
    length: int,
    *,
    transpose: bool = False,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""A heat map of the encoding: a row a position, a column a column.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of positions, from 0 on. Above 2,000 neighbours share a row, which shows their mean.
        transpose (`bool`): positions across and columns down instead.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes`; its image holds `numbers.encoding(d_model, length).values`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> encoding(128, 100).images[0].get_array().shape
        (100, 128)
    """
    need_matplotlib()
    table = numbers.encoding(d_model, length, convention=convention, base=base)
    ax = axes(ax, 6.5, 4.0)
    box = (-0.5, d_model - 0.5, length - 0.5, -0.5)  # in columns and positions, also where several share a row
    what = f"{some(length, 'position')} × {some(d_model, 'column')}, {formula(convention, base)}"
    across, down = ("position", "column") if transpose else ("column", "position")
    label(ax, what + _thinned(table, d_model, "column" if transpose else "row"), across, down)
    if transpose:
        heat(ax, table.values.T, extent=(box[3], box[2], box[1], box[0]), largest=1, name="value")
    else:
        heat(ax, table.values, extent=box, largest=1, name="value")
    return ax


@on_white
def sine_and_cosine(
    d_model: int,
    length: int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Two heat maps side by side: the sine columns, and the cosine columns; in "vaswani" the even and the odd ones.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of positions, from 0 on.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes` with two images, those of `numbers.sine_and_cosine(d_model, length)`; with one where
        there is no cosine.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> [image.get_array().shape for image in sine_and_cosine(5, 100).images]
        [(100, 3), (100, 2)]
    """
    need_matplotlib()
    apart = numbers.sine_and_cosine(d_model, length, convention=convention, base=base)
    ax = axes(ax, 6.5, 4.0)
    halves = [(name, one) for name, one in zip(("sines", "cosines"), apart, strict=True) if len(one.columns)]
    what = f"{some(length, 'position')} × {some(d_model, 'column')}, {formula(convention, base)}"
    label(ax, what + _thinned(apart.sines, d_model, "row"), "column", "position", pad=18)
    gap = max(len(apart.sines.columns) // 16, 0.25)
    wide = ax.get_window_extent().width / figure_of(ax).dpi / 2 > _TWO_NAMES
    start, ticks, names = 0.0, [], []
    for name, one in halves:
        width = len(one.columns)
        heat(ax, one.values, extent=(start, start + width, length - 0.5, -0.5), largest=1, name=None)
        marked = np.unique(np.linspace(0, width, min(width, 4), endpoint=False).astype(int))
        ticks += [start + 0.5 + i for i in marked.tolist()]
        names += [str(one.columns[i]) for i in marked.tolist()]
        ax.text(
            start + width / 2,
            1.01,
            f"{name}{_which(one) if wide else ''}",
            transform=ax.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=SMALL,
            color=FADED,
        )
        for edge in (start, start + width):
            ax.axvline(edge, color=FADED, linewidth=0.8)
        start += width + gap
    ax.set_xlim(0, start - gap)
    ax.set_xticks(ticks, names)
    bar = ax.figure.colorbar(ax.images[0], ax=ax)
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("value", fontsize=LABEL)
    return ax


def _thinned(table: Table, d_model: int, row: str) -> str:
    """What was averaged or left out, in a second line."""
    said = [f"each {row} is the mean of {table.step:,} positions"] if table.step > 1 else []
    if d_model > MOST:
        said.append(f"every {ordinal(every_column(d_model))} column drawn")
    return f"\n{', '.join(said)}" if said else ""


def _which(table: Table) -> str:
    """Whether these are the even columns, or the odd ones."""
    kinds = set((table.columns % 2).tolist())
    return "" if len(kinds) == 2 or len(table.columns) < 2 else " (odd columns)" if 1 in kinds else " (even columns)"
