"""Style of all plots, creation of figures and axes, and saving to files.

matplotlib is imported by the first call. `pyplot` is never used: no window opens, and no global setting changes.
"""

from __future__ import annotations

import functools
import io
import os
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from numpy.typing import NDArray

from .._common.calls import answers_tutorials
from .._common.errors import explain, pip_install
from .._common.files import check_suffix, write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Arguments = ParamSpec("_Arguments")

# Okabe and Ito 2008, "Color Universal Design": distinct with any kind of color vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
LINES = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)  # without yellow, which is faint on white
DASHES = ("-", "--", "-.", ":")  # distinguish lines in print
# Color maps: amounts from dark to bright; signed numbers orange below 0, white at 0 and purple above.
SEQUENTIAL, DIVERGING = "cividis", "PuOr"
INK, FADED, PALE = "#202020", "#6A6A6A", "#DCDCDC"  # text on white; text on pale; padding and backgrounds

LARGE, MEDIUM, SMALL = 10, 9, 8  # font sizes in points

_STYLE: dict[str, Any] = {
    "axes.titlelocation": "left",
    "axes.titlesize": LARGE,
    "figure.titlesize": LARGE,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "axes.grid": False,
}
# Common system fonts for other scripts. None has color bitmaps, which matplotlib cannot draw.
_OTHER_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC"),
    *("Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS"),
    *("Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Nirmala UI", "Leelawadee UI"),
    *("Noto Emoji", "Segoe UI Emoji", "Segoe UI Symbol"),
)
FORMATS = ("png", "svg")  # of files
_CHARACTERS_PER_INCH = 13  # in a title
_ONE_AT_A_TIME = threading.RLock()  # matplotlib's settings are global to the process


def picture(draw: Callable[_Arguments, Figure]) -> Callable[_Arguments, Figure]:
    r"""Decorate a plot function, so that its figure gets the fonts and font sizes of this package.

    The colors of texts and of the background are those of the current matplotlib style. Without `ax`, a notebook
    displays the returned figure as an image. With `ax`, the function draws into these axes and returns their figure.

    Example:
        >>> picture(lambda: new_figure(4, 3)).__name__
        '<lambda>'
    """

    draw = answers_tutorials(draw)

    @functools.wraps(draw)
    def styled(*args: _Arguments.args, **settings: _Arguments.kwargs) -> Figure:
        need_matplotlib()
        from matplotlib import style

        theirs = settings.get("ax") is not None
        ours = _STYLE | {"font.family": list(fonts())}
        with _ONE_AT_A_TIME, style.context(ours):
            figure = draw(*args, **settings)
            if not theirs:
                figure._repr_png_ = functools.partial(png, figure)  # type: ignore[attr-defined]  # without `pyplot`
                for ax in figure.axes:
                    for axis in [axis for panel in (ax, *ax.child_axes) for axis in (panel.xaxis, panel.yaxis)]:
                        axis.get_major_ticks(1), axis.get_minor_ticks(1)  # ticks get the style when they are created
        return figure

    return styled


@functools.cache
def fonts() -> dict[str, frozenset[int]]:
    """Return the installed fonts for labels: a dict from font name, preferred first, to its characters as code points.

    The first is DejaVu Sans, which is a part of matplotlib; others are for scripts that it does not have.
    """
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    names = ["DejaVu Sans", *(name for name in _OTHER_FONTS if name in installed)]
    return {name: frozenset(font_manager.get_font(font_manager.findfont(name)).get_charmap()) for name in names}


def need_matplotlib() -> None:
    """Raise `ImportError` if matplotlib is not installed; the message contains the command that installs it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            explain("pictures need matplotlib, which is not installed", fix=pip_install("matplotlib"))
        ) from error


def new_figure(width: float, height: float) -> Figure:
    r"""Return an empty figure of `width` by `height` inches.

    A notebook page has room for a width of 6.5 inches.

    Example:
        >>> new_figure(4, 3).get_size_inches()
        array([4., 3.])
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_axes(ax: Axes | None = None, width: float = 6.5, height: float = 3.5) -> tuple[Figure, Axes]:
    r"""Return `ax` and its figure if it is given, else a new figure of `width` by `height` inches and its axes.

    Example:
        >>> figure, ax = new_axes(width=4, height=3)
        >>> figure.get_size_inches()
        array([4., 3.])
    """
    if ax is None:
        figure = new_figure(width, height)
        return figure, figure.add_subplot()
    return figure_of(ax), ax


def grid_shape(count: int, most: int) -> tuple[int, int]:
    r"""Return the shape of a grid for `count` panels, (lines, columns): as few lines as possible, then as few columns.

    There are at most `most` columns, but at least one.

    Example:
        >>> grid_shape(4, 3), grid_shape(12, 5), grid_shape(2, 0)
        ((2, 2), (3, 4), (2, 1))
    """
    lines = -(-count // max(most, 1))
    return lines, -(-count // lines)


def width_of(ax: Axes) -> float:
    """Return the current width of axes in inches; the final layout of the figure may change it."""
    return float(ax.get_window_extent().width / figure_of(ax).dpi)


def label(
    ax: Axes,
    title: str,
    across: str,
    down: str,
    *,
    note: str = "",
    size: int = LARGE,
    grid: bool = False,
) -> None:
    r"""Set the title of axes, the x label `across`, and the y label `down`, which is horizontal, above the y axis.

    `note` is a smaller text below the title. Long titles and notes are wrapped only if `size`, the font size of the
    title, is the default. With `grid`, a faint grid is drawn.
    """
    from matplotlib.transforms import offset_copy

    if size == LARGE:
        title = _wrapped(title, max(int(width_of(ax) * _CHARACTERS_PER_INCH), 20))
        note = _wrapped(note, max(int(width_of(ax) * (_CHARACTERS_PER_INCH + 3)), 20))
    height = 4.0  # points above the axes
    ax.set_ylabel(down, fontsize=size - 1, rotation=0, ha="left", va="bottom")
    ax.yaxis.set_label_coords(0, 1, transform=offset_copy(ax.transAxes, figure_of(ax), y=height, units="points"))
    height += 1.35 * (size - 1) if down else 0.0
    if note:
        style: dict[str, Any] = {"fontsize": SMALL, "alpha": 0.75, "ha": "left", "va": "bottom", "gid": "note"}
        ax.annotate(note, (0, 1), (0, height), xycoords="axes fraction", textcoords="offset points", **style)
    # A title that is set later has the same place, so that it does not cover the y label and the note.
    distance = height + 1.3 * SMALL * len(note.splitlines()) + 2
    set_title = functools.partial(type(ax).set_title, ax, loc="center", x=0, ha="left", pad=distance)
    ax.set_title = set_title  # type: ignore[method-assign]
    ax.set_title(title, fontsize=size)
    ax.set_xlabel(across, fontsize=size - 1)
    ax.tick_params(which="both", labelsize=SMALL)
    if grid:
        ax.grid(color=FADED, alpha=0.25, linewidth=0.6)  # faint on white and on black
        ax.set_axisbelow(True)


def headline(figure: Figure, title: str, note: str = "", handles: Sequence[Any] = ()) -> None:
    """Set the title of a figure with several panels; below the panels, add a smaller note and a legend of `handles`."""
    inches = float(figure.get_size_inches()[0])
    figure.suptitle(_wrapped(title, int(inches * _CHARACTERS_PER_INCH)), x=0.01, ha="left")
    if handles:
        below: dict[str, Any] = {"title": note, "title_fontsize": SMALL, "alignment": "left"}
        columns = 4 if len(handles) <= 4 else 3  # more would be too wide for a picture of masks
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, **below)
    elif note:
        figure.supxlabel(note, x=0.01, ha="left", fontsize=SMALL)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.fill(line, width) for line in text.split("\n"))


def integer_ticks(*each: Any, most: int = 8) -> None:
    """Set about `most` ticks, only at integers, on each axis, such as `ax.xaxis`; call it after setting the limits."""
    from matplotlib.ticker import MaxNLocator

    for axis in each:
        low, high = sorted(axis.get_view_interval())
        if high - low <= 1:  # otherwise matplotlib would label fractions
            axis.set_ticks([round((low + high) / 2)])
        else:
            axis.set_major_locator(MaxNLocator(nbins=most, integer=True, steps=[1, 2, 5, 10]))
        axis.set_major_formatter("{x:,.0f}")


def legend_below(ax: Axes, entry_width: float = 2.4) -> None:
    """Add a legend below the x label, with as many columns of `entry_width` inches as fit the axes."""
    from matplotlib.transforms import offset_copy

    below = offset_copy(ax.transAxes, figure_of(ax), y=-0.48)  # inches
    corner: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below}
    ax.legend(**corner, ncols=max(int(width_of(ax) / entry_width), 1), borderaxespad=0, borderpad=0)


def heat_map(
    ax: Axes,
    values: NDArray[Any],
    *,
    limits: tuple[float, float] | None = None,
    extent: tuple[float, float, float, float] | None = None,
    name: str | None = None,
) -> Any:
    r"""Draw a matrix of numbers as a heat map, first row on top, with integer ticks on both axes."""
    low, high = limits or (0.0, float(values.max()) or 1.0)
    # If there are more numbers than pixels, average the numbers, not their colors: a mean of orange and purple would
    # be a brown that is not in the color bar.
    smooth: dict[str, Any] = {"interpolation": "antialiased", "interpolation_stage": "data"}
    colors = DIVERGING if low < 0 else SEQUENTIAL
    image = ax.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto", extent=extent, **smooth)
    integer_ticks(ax.xaxis, ax.yaxis)
    if name is not None:
        color_bar(ax, image, name)
    return image


def color_bar(ax: Any, image: Any, name: str, **settings: Any) -> None:
    """Add a color bar with the label `name` for `image` beside one or several axes.

    `settings` are passed to `figure.colorbar`.
    """
    bar = figure_of(ax[0] if isinstance(ax, list) else ax).colorbar(image, ax=ax, **settings)
    bar.ax.tick_params(labelsize=SMALL)
    bar.ax.annotate(name, (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points", fontsize=SMALL)


def save(picture: Figure | Axes, path: str | os.PathLike[str]) -> Path:
    r"""Save a picture as PNG or SVG, by the suffix of the file name.

    The file is written atomically. Equal pictures give equal SVG files, without a date or random ids.

    Args:
        picture (`matplotlib.figure.Figure` or `Axes`): figure to save. For axes, their whole figure is saved.
        path (`str` or path): file name that ends in .png or .svg. An existing file is replaced.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: if the suffix is not .png or .svg.
        OSError: if the file cannot be written.

    Example:
        >>> import tempfile
        >>> from hf_posenc import plots
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(plots.dials(8), Path(folder) / "decay.svg").name
        'decay.svg'
    """
    from matplotlib import rc_context

    target, suffix = Path(path), check_suffix(path, *FORMATS)
    figure, metadata = figure_of(picture), {"Date": None} if suffix == "svg" else {}
    with write_output(target) as temporary, rc_context({"svg.hashsalt": "hf_posenc"}):
        figure.savefig(temporary, format=suffix, metadata=metadata, facecolor=figure.get_facecolor())
    return target


def png(figure: Figure) -> bytes:
    """Return a figure as the bytes of the PNG file that `save` would write."""
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor=figure.get_facecolor())
    return file.getvalue()


def figure_of(picture: Figure | Axes) -> Figure:
    """Return the top-level figure that contains the given axes or subfigure."""
    return picture.get_figure(root=True)  # type: ignore[return-value]  # axes in use have a figure
