"""What training left behind, as pictures: loss curves, and predicted points beside the true ones.

Nothing is smoothed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain
from . import numbers
from .canvas import (
    BLUE,
    GREEN,
    GRID,
    LABEL,
    LINES,
    SMALL,
    TITLE,
    VERMILLION,
    axes,
    check_count,
    figure_of,
    label,
    need_matplotlib,
    new_figure,
    whole_ticks,
)
from .colours import on_white
from .labelling import write_beside
from .numbers.columns import check_number
from .numbers.training import Sequences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_CURVES = 14  # seven colours, two kinds of line
_INSIDE = 4  # names of curves; more of them stand beside the axes
_DOTTED = 60  # points; a curve with more has no dots
_MOST_SEQUENCES = 8


@on_white
def losses(
    history: Sequence[Mapping[str, Any]] | Mapping[str, Any], *, log: bool = False, ax: Axes | None = None
) -> Axes:
    r"""Draws training and evaluation losses against training steps.

    Args:
        history (`list` of `dict`, or mapping): `trainer.state.log_history`; or numbers by name, one for each step; or
            several log histories by name, to compare runs.
        log (`bool`, *optional*, defaults to `False`): a logarithmic scale of losses, where all are above 0.
        ax (`matplotlib.axes.Axes`, *optional*): draw into these axes of yours.

    Returns:
        `matplotlib.axes.Axes`

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if there is no loss, one is not finite, or there are more curves than can be told apart; with `log`,
            if one is not above 0.
        TypeError: if it is no history.

    Example:
        >>> axes = losses([{"loss": 0.9, "step": 10}, {"eval_loss": 0.8, "step": 10}, {"loss": 0.5, "step": 20}])
        >>> {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
        {'training': [0.9, 0.5], 'evaluation': [0.8]}
    """
    need_matplotlib()
    from matplotlib.ticker import FuncFormatter, LogLocator

    found = numbers.losses(history)
    check_count("curves", len(found), _MOST_CURVES, fix='plots.losses({"a": ..., "b": ...}) with fewer of them')
    lowest = min(float(curve.losses.min()) for curve in found.values())
    if log and lowest <= 0:
        raise ValueError(explain("on a logarithmic scale losses must be above 0", got=lowest, fix="log=False"))
    ax = axes(ax)
    for number, (name, curve) in enumerate(found.items()):
        dots = "o" if len(curve.steps) <= _DOTTED else ""
        colour, line = LINES[number % len(LINES)], "-" if number < len(LINES) else "--"
        ax.plot(
            curve.steps,
            curve.losses,
            color=colour,
            linestyle=line,
            marker=dots,
            markersize=3,
            linewidth=1.4,
            label=name,
        )
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        for place in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            place(FuncFormatter(lambda loss, _: f"{loss:g}"))
    else:
        ax.set_ylim(bottom=min(0.0, lowest))
    label(ax, "loss", "step", "loss")
    whole_ticks(ax.xaxis)
    ax.tick_params(which="both", labelsize=SMALL)
    ax.grid(color=GRID, linewidth=0.5)
    aside = {} if len(found) <= _INSIDE else {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    ax.legend(fontsize=SMALL, frameon=False, **aside)
    return ax


@on_white
def sequences(
    inputs: Any, truth: Any, prediction: Any, *, ax: Axes | None = None, most: int = _MOST_SEQUENCES
) -> Axes | Figure:
    r"""Draws sequences of points in the plane: what a model read, what was to come, what it predicted.

    Points are numbered in the order in which they come, and joined by lines. Predictions are crosses, joined to the
    true points that they stand for.

    Args:
        inputs (`torch.Tensor` or `np.ndarray` `(N, S, 2)`): sequences of S points that the model read.
        truth, prediction (`torch.Tensor` or `np.ndarray` `(N, T, 2)`): sequences of T points.
        ax (`matplotlib.axes.Axes`, *optional*): draw the first sequence alone, into these axes of yours.
        most (`int`, *optional*, defaults to 8): how many sequences to draw, a panel for each; the title says of how
            many.

    Returns:
        `matplotlib.figure.Figure`; `Axes` of a single sequence, and where `ax` is given.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if a shape does not fit, a number is not finite, or `most` is not positive.
        TypeError: if these are no numbers, or `most` is no whole one.

    Example:
        >>> axes = sequences([[0, 0], [0, 1]], [[1, 1], [1, 0]], [[1.1, 0.9], [1.0, 0.1]])
        >>> [collection.get_label() for collection in axes.collections]
        ['input', 'truth', 'prediction']
    """
    need_matplotlib()
    found = numbers.sequences(inputs, truth, prediction)
    count = min(len(found.truth), check_number("most", most, _MOST_SEQUENCES))
    if ax is not None or count == 1:
        ax = axes(ax, 4.2, 4.2)
        _sequence(ax, found, 0, _limits(found, 1))
        ax.legend(fontsize=SMALL, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)
        figure_of(ax).draw_without_rendering()
        _numbers(ax, found, 0)
        return ax
    abreast = min(count, 4)
    lines = -(-count // abreast)
    figure = new_figure(2.4 * abreast, 2.4 * lines + 0.7)
    cells = figure.subplots(lines, abreast, squeeze=False, sharex=True, sharey=True).flatten()
    limits = _limits(found, count)
    for number, cell in enumerate(cells):
        if number < count:
            _sequence(cell, found, number, limits)
        else:
            cell.set_axis_off()
    more = f", the first {count} of {len(found.truth)}" if count < len(found.truth) else ""
    figure.suptitle(f"predictions beside the truth{more}", fontsize=TITLE)
    handles, names = cells[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)
    figure.draw_without_rendering()
    for number, cell in enumerate(cells[:count]):
        _numbers(cell, found, number)
    return figure


def _sequence(ax: Axes, found: Sequences, number: int, limits: tuple[NDArray[Any], NDArray[Any]]) -> None:
    read, true, said = (points[number] for points in found)
    whole = np.concatenate([read, true])
    ax.plot(whole[:, 0], whole[:, 1], color=GRID, linewidth=1.0, zorder=1)
    for wanted, given in zip(true, said, strict=True):
        ax.plot(*np.stack([wanted, given]).T, color=VERMILLION, linewidth=0.8, zorder=2)
    ax.scatter(read[:, 0], read[:, 1], s=36, color=BLUE, marker="s", label="input", zorder=3)
    ax.scatter(true[:, 0], true[:, 1], s=46, facecolor="none", edgecolor=GREEN, linewidth=1.6, label="truth", zorder=3)
    ax.scatter(said[:, 0], said[:, 1], s=36, color=VERMILLION, marker="x", linewidth=1.6, label="prediction", zorder=4)
    ax.set_aspect("equal")
    ax.set_xlim(limits[0][0], limits[1][0])
    ax.set_ylim(limits[0][1], limits[1][1])
    ax.set_title(f"sequence {number}", fontsize=LABEL, loc="left")
    ax.tick_params(labelsize=SMALL)


def _numbers(ax: Axes, found: Sequences, number: int) -> None:
    """The place of each point in its sequence, beside it, and not over a prediction."""
    whole = np.concatenate([found.inputs[number], found.truth[number]])
    write_beside(ax, whole, [str(place + 1) for place in range(len(whole))], clear_of=found.prediction[number])


def _limits(found: Sequences, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The corners of what all panels show, with room for numbers."""
    points = np.concatenate([part[:count].reshape(-1, 2) for part in found])
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.16 * float((high - low).max()) or 1.0
    return low - margin, high + margin
