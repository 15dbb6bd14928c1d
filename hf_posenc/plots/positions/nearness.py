"""How far positions are from each other, and how alike: the encoding knows distances, not places.

Both pictures hold for any convention with as many cosines as sines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...sinusoid import Convention
from .. import numbers
from ..canvas import (
    BLACK,
    BLUE,
    GREEN,
    GRID,
    ORANGE,
    SKY,
    VERMILLION,
    axes,
    check_count,
    heat,
    label,
    legend_below,
    need_matplotlib,
    whole_ticks,
)
from ..colours import on_white
from ..numbers.nearness import Measure
from .naming import formula, ordinal, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ON_EACH_OTHER = (SKY, BLACK, ORANGE, BLUE, VERMILLION, GREEN)  # neighbours differ most


@on_white
def distances(
    d_model: int,
    length: int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""The matrix of Euclidean distances between positions.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of positions, from 0 on. Above 500 every second, third, … is drawn.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes`; its image holds `numbers.distances(d_model, length).distances`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> distances(64, 50).images[0].get_array().shape
        (50, 50)
    """
    need_matplotlib()
    found = numbers.distances(d_model, length, convention=convention, base=base)
    ax = axes(ax, 5.2, 4.4)
    thinned = f"\nevery {ordinal(found.step)} position drawn" if found.step > 1 else ""
    size = f"{some(length, 'position')} × {some(d_model, 'column')}, {formula(convention, base)}"
    label(ax, f"distances between positions\n{size}{thinned}", "position", "position")
    image = heat(ax, found.distances, extent=(-0.5, length - 0.5, length - 0.5, -0.5), name="distance")
    image.set_clim(0, found.distances.max() or 1)
    ax.set_aspect("equal")
    return ax


@on_white
def similarity(
    d_model: int,
    length: int,
    *,
    starts: Iterable[int] | int = (0, 10, 100),
    measure: Measure = "dot",
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""The dot product of two positions' rows against how far apart they are, from several starts.

    The lines lie on each other: the product depends on the distance alone.

    Args:
        d_model (`int`): width D >= 1.
        length (`int`): number of distances, from 0 on. Above 2,000 every second, third, … is drawn.
        starts (one to six `int`): positions to measure from.
        measure (`"dot"` or `"cosine"`): the dot product, or that of rows scaled to length 1.
        convention, base: see `sinusoidal_encoding`.
        ax (`matplotlib.axes.Axes`, *optional*): to draw into.

    Returns:
        `matplotlib.axes.Axes` with one line for each start, the `values` of `numbers.similarity`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `measure` is another, `d_model` or `length` not positive, a start negative, or there are more
            than six.

    Example:
        >>> [line.get_label() for line in similarity(64, 50).lines]
        ['from position 0', 'from position 10', 'from position 100']
    """
    need_matplotlib()
    found = numbers.similarity(d_model, length, starts=starts, measure=measure, convention=convention, base=base)
    check_count("starts", len(found.starts), len(_ON_EACH_OTHER), "starts=[0, 10, 100]")
    ax = axes(ax, 6.5, 3.4)
    count = len(found.starts)
    for i, one in enumerate(found.starts.tolist()):
        # The first is broad and pale, those on top of it ever thinner and broken, so that all of them are seen.
        width = 1.2 if count == 1 else 6 - 4.8 * i / (count - 1)
        style = "-" if i == 0 else (0, (4, 2 + 2 * i))
        marker = "." if length == 1 else None
        ax.plot(
            found.distances,
            found.values[i],
            color=_ON_EACH_OTHER[i],
            linewidth=width,
            linestyle=style,
            marker=marker,
            label=f"from position {one:,}",
        )
    ax.grid(color=GRID, linewidth=0.6)
    legend_below(ax, 1.6)
    whole_ticks(ax.xaxis)
    thinned = f"\nevery {ordinal(found.step)} distance drawn" if found.step > 1 else ""
    name = "dot product" if measure == "dot" else "cosine similarity"
    what = f"{name} by distance: {some(d_model, 'column')}, {formula(convention, base)}"
    label(ax, what + thinned, "distance in positions", name)
    return ax
