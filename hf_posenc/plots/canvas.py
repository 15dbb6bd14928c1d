"""What every picture needs: axes that no window or notebook owns, colours, text that any font can show, refusals.

Nothing here touches `pyplot`, whose state belongs to the user; writing files is in `saving`.
"""

from __future__ import annotations

import functools
import io
import textwrap
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._explain import explain
from .glyphs import fonts, readable
from .limits import MOST, check_count, check_finite, every
from .saving import figure_of, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Picture = TypeVar("_Picture", "Figure", "Axes")

__all__ = [
    "BLACK",
    "BLUE",
    "DIVERGING",
    "FADED",
    "GREEN",
    "GRID",
    "INK",
    "LABEL",
    "LINES",
    "MOST",
    "ORANGE",
    "PADDING",
    "PURPLE",
    "SEQUENTIAL",
    "SKY",
    "SMALL",
    "TITLE",
    "VERMILLION",
    "YELLOW",
    "axes",
    "check_count",
    "check_finite",
    "every",
    "figure_of",
    "fonts",
    "gaps",
    "heat",
    "label",
    "legend_below",
    "need_matplotlib",
    "new_figure",
    "readable",
    "save",
    "whole_ticks",
]

# Okabe and Ito 2008, "Color Universal Design": these stand apart with any kind of colour vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
# For lines, in the order of use: without yellow, which is faint on white.
LINES = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
# Amounts grow from dark to bright; numbers with a sign are orange below 0, white at 0 and purple above it.
SEQUENTIAL, DIVERGING = "cividis", "PuOr"
PADDING, GRID = "#DCDCDC", "#DCDCDC"
INK, FADED = "#202020", "#6A6A6A"  # to write with: on white, and on PADDING

TITLE, LABEL, SMALL = 10, 9, 8  # points
_CHARACTERS = 13  # of a title, in an inch


def axes(ax: Axes | None = None, width: float = 6.5, height: float = 3.5) -> Axes:
    r"""The axes to draw into: yours, or those of a new figure.

    Args:
        ax (`matplotlib.axes.Axes`, *optional*): returned as they are.
        width, height (`float`): of the new figure, in inches; a notebook shows about 6.5.

    Returns:
        `matplotlib.axes.Axes`

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if `ax` is something else, a whole figure for instance.

    Example:
        >>> axes(width=4, height=3).figure.get_size_inches()
        array([4., 3.])
    """
    need_matplotlib()
    if ax is None:
        made = new_figure(width, height).add_subplot()
        return _shown_by_notebooks(made)
    if not hasattr(ax, "imshow"):
        raise TypeError(
            explain("ax must be matplotlib axes", got=type(ax).__name__, fix="ax=figure.add_subplot(), or leave it out")
        )
    return ax


def new_figure(width: float, height: float) -> Figure:
    r"""An empty figure with a canvas of its own, drawn without a display; a notebook shows it all the same.

    Args:
        width, height (`float`): in inches.

    Returns:
        `matplotlib.figure.Figure`

    Raises:
        ImportError: if matplotlib is not installed, with the line that installs it.

    Example:
        >>> new_figure(4, 3).get_size_inches()
        array([4., 3.])
    """
    need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return _shown_by_notebooks(figure)


def label(ax: Axes, title: str, across: str, down: str, *, pad: float | None = None) -> None:
    """Title and names of both axes, in the sizes of every picture; a title longer than the axes gets more lines."""
    wide = ax.get_window_extent().width / figure_of(ax).dpi
    lines = [textwrap.fill(line, max(int(wide * _CHARACTERS), 20)) for line in title.split("\n")]
    ax.set_title("\n".join(lines), fontsize=TITLE, loc="left", pad=pad)
    ax.set_xlabel(across, fontsize=LABEL)
    ax.set_ylabel(down, fontsize=LABEL)
    ax.tick_params(which="both", labelsize=SMALL)


def whole_ticks(*each: Any) -> None:
    """Ticks at whole numbers only, for positions and columns: axes (`ax.xaxis`) whose limits are set already."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    for axis in each:
        low, high = sorted(axis.get_view_interval())
        if high - low <= 1:  # matplotlib would write fractions of the only one
            axis.set_ticks([round((low + high) / 2)])
        else:
            axis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def legend_below(ax: Axes, wide: float = 2.4) -> None:
    """A legend under the name of the axis across, where it hides nothing; each entry `wide` inches."""
    from matplotlib.transforms import ScaledTranslation

    figure = figure_of(ax)
    columns = max(int(ax.get_window_extent().width / figure.dpi / wide), 1)
    below = ax.transAxes + ScaledTranslation(0, -0.48, figure.dpi_scale_trans)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below}
    ax.legend(**place, ncols=columns, fontsize=SMALL, frameon=False, borderaxespad=0, borderpad=0)


def heat(
    ax: Axes,
    values: NDArray[Any],
    *,
    extent: tuple[float, float, float, float] | None = None,
    largest: float | None = None,
    name: str | None = None,
) -> Any:
    r"""Numbers as colours, first row on top, with whole numbers along both axes.

    Args:
        ax (`Axes`): to draw into.
        values (`np.ndarray` `(R, C)`): finite, see `check_finite`.
        extent (four `float`, *optional*): left, right, bottom, top in the numbers of the axes. By default row and
            column numbers; give it where rows or columns were left out.
        largest (`float`, *optional*): colours with white at 0, from -`largest` to `largest`. Without it, colours from
            the smallest to the largest number.
        name (`str`, *optional*): of the colour bar. Without it there is none.

    Returns:
        `matplotlib.image.AxesImage`
    """
    scale: dict[str, Any] = (
        {"cmap": SEQUENTIAL} if largest is None else {"cmap": DIVERGING, "vmin": -largest, "vmax": largest}
    )
    # Where there are more numbers than pixels this averages them; leaving some out would draw waves that are not there.
    # Numbers are averaged, not colours: orange and purple would make brown, which the colour bar does not know.
    smooth: dict[str, Any] = {"interpolation": "antialiased", "interpolation_stage": "data"}
    image = ax.imshow(values, aspect="auto", extent=extent, **smooth, **scale)
    whole_ticks(ax.xaxis, ax.yaxis)
    if name is not None:
        bar = ax.figure.colorbar(image, ax=ax)
        bar.ax.tick_params(labelsize=SMALL)
        bar.set_label(name, fontsize=LABEL)
    return image


def gaps(numbers: NDArray[Any], before: NDArray[Any]) -> NDArray[np.float64]:
    r"""A line's numbers with a gap before some of them: matplotlib draws none to and from NaN.

    Example:
        >>> gaps(np.array([1, 2, 3]), np.array([2]))
        array([ 1.,  2., nan,  3.])
    """
    return np.insert(numbers.astype(np.float64), before, np.nan)


def need_matplotlib() -> None:
    """Raises, with the line that installs it, where matplotlib is missing: the first thing that a picture asks."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            explain("pictures need matplotlib, which is not installed", fix='pip install "hf-posenc[plots]"')
        ) from error


def _shown_by_notebooks(picture: _Picture) -> _Picture:
    """A notebook shows by itself what pyplot knows; anything else, figures and axes alike, it asks for this method."""
    asked: Any = picture
    asked._repr_png_ = functools.partial(png, picture)
    return picture


def png(picture: Figure | Axes) -> bytes:
    """The bytes of a picture as PNG, those that `save` writes."""
    file = io.BytesIO()
    figure_of(picture).savefig(file, format="png", facecolor=figure_of(picture).get_facecolor())
    return file.getvalue()
