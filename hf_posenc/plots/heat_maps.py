"""Heat maps of a sinusoidal encoding: its sines and cosines, and the distances between positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from .._common.errors import counted
from ..positions import Convention
from .canvas import FADED, SMALL, color_bar, heat_map, label, new_axes, picture
from .checks import as_count
from .sinusoids import Sinusoids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_DISTANCES = 500  # rows and dimensions of the matrix
_MOST_NUMBERS = 10  # rows of a matrix whose cells have room for their numbers


@picture
def encoding(
    d_model: int = 128,
    length: int = 100,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    in_order: bool = False,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw the encoding as two heat maps side by side, its sines and its cosines: one row for each position.

    Sines and cosines in turn, as a row stores them, blur to one color in a wide encoding. `in_order=True` draws them
    so, in one heat map, as most tutorials do.

    Args:
        d_model (`int`): width, the number of dimensions.
        length (`int`): number of positions from 0. An image has at most 2,000 rows, or 2**20 / `d_model` if this is
            less. For more positions, each row is the mean of several.
        convention (`str` or `Convention`): order of the dimensions and spacing of the frequencies; see
            `sinusoidal_encoding`.
        base (`float`, *optional*): base of the frequencies. By default that of the convention.
        in_order (`bool`, *optional*, defaults to `False`): draw the dimensions in the order in which a row has them.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw into. By default those of a new figure.

    Returns:
        `matplotlib.figure.Figure`. Its axes have two images, the sines and the cosines of the encoding. Both are
        float64, and `(length, dimensions)` if no positions are averaged. Without cosines, as with `d_model=1`, or with
        `in_order`, there is one image.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> [image.get_array().shape for image in encoding(5, 100).axes[0].images]
        [(100, 3), (100, 2)]
    """
    count, table = as_count(length, "length", 100), Sinusoids(d_model, convention, base)
    values, step = table.mean_rows(count)
    halves = {name: kind for name, kind in (("sines", table.sines), ("cosines", table.cosines)) if len(kind)}
    figure, ax = new_axes(ax, 6.5, 4.0)
    if in_order:
        halves = {"dimensions": np.arange(d_model)}
    averaged = f"; each row is the mean of {step:,} positions" if step > 1 else ""
    note = f"{counted(count, 'position')}, {table}{averaged}"
    across = f"dimension: {', '.join(halves)}" if len(halves) > 1 else "dimension"
    label(ax, "Every row is a position", across, "position", note=note)
    start, ticks = 0.0, {}
    for columns in (halves or {"zeros": np.arange(d_model)}).values():
        stop = start + len(columns)
        heat_map(ax, values[:, columns], limits=(-1, 1), extent=(start, stop, count - 0.5, -0.5))
        for i in np.linspace(0, len(columns), min(len(columns), 4), endpoint=False).astype(int):
            ticks[start + 0.5 + i] = str(columns[i])
        for edge in (start, stop):
            ax.axvline(edge, color=FADED, linewidth=0.8)
        start = stop + max(d_model // 32, 0.25)
    ax.set_xlim(0, stop)
    ax.set_xticks(list(ticks), list(ticks.values()))
    color_bar(ax, ax.images[0], "value")
    return figure


@picture
def distances(
    d_model: int = 128,
    length: int = 100,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw the Euclidean distances between the encodings of all pairs of positions.

    Args:
        d_model (`int`): width, the number of dimensions.
        length (`int`): number of positions from 0. Above 500, only every n-th position is drawn, so that at most 500
            remain.
        convention, base, ax: as in `encoding`.

    Returns:
        `matplotlib.figure.Figure`. `axes[0].images[0].get_array()` holds the distances of the drawn positions, float64.
        Its shape is `(length, length)` if no positions are skipped. The cells of up to ten positions have their
        numbers.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `d_model` or `length` is not positive.

    Example:
        >>> distances(64, 50).axes[0].images[0].get_array().shape
        (50, 50)
    """
    count, table = as_count(length, "length", 100), Sinusoids(d_model, convention, base)
    step = -(-count // _MOST_DISTANCES)
    rows = torch.from_numpy(table.rows(np.arange(0, count, step)))
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")  # matmul errs in the eighth digit
    figure, ax = new_axes(ax, 5.2, 4.4)
    title = "Distances between the encodings of positions"
    further = apart[tuple(torch.triu_indices(len(rows), len(rows), 2, device="cpu"))]
    if len(further) and bool(apart.diagonal(1).max() < further.min()):
        title = "Near positions have close encodings"
    thinned = f"; one of every {step:,} positions drawn" if step > 1 else ""
    label(ax, title, "position", "position", note=f"{counted(count, 'position')}, {table}{thinned}")
    image = heat_map(ax, apart.numpy(), extent=(-0.5, count - 0.5, count - 0.5, -0.5), name="distance")
    if count <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(apart.numpy()):
            red, green, blue, _ = image.to_rgba(value)
            color = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black"
            ax.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=SMALL)
    return figure
