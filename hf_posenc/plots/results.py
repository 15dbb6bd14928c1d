"""Plots of training results: loss curves without smoothing, and predicted points beside the true ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import counted, shorten, type_error, value_error
from .canvas import (
    BLUE,
    DASHES,
    GREEN,
    GRID,
    LINES,
    MEDIUM,
    VERMILLION,
    figure_of,
    grid_shape,
    headline,
    integer_ticks,
    label,
    new_axes,
    new_figure,
    picture,
)
from .checks import as_count, as_finite, as_numpy, check_count
from .token_labels import label_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_CURVES = 14  # seven colors, two dashes
_INSIDE = 4  # curves named inside the axes; more are named beside them
_DOTTED = 60  # points; curves with more have no dots
_MOST_SEQUENCES = 8
_HISTORY = (
    'plots.losses(trainer.state.log_history), or plots.losses({"training": [0.9, 0.5], "evaluation": [0.8, 0.6]})'
)


@picture
def losses(
    history: Sequence[Mapping[str, Any]] | Mapping[str, Any], *, log: bool = False, ax: Axes | None = None
) -> Axes:
    r"""Draw training and evaluation losses against training steps.

    Args:
        history (`list` of `dict`, or mapping): one of three forms. A log history, which is
            `trainer.state.log_history`; a mapping from curve name to a list of losses, one per step; or, to compare
            runs, a mapping from run name to log history.
        log (`bool`): True uses a logarithmic scale for the losses.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw into. By default those of a new figure.

    Returns:
        `matplotlib.axes.Axes` with one line per curve: x the steps, y the losses. The curves of a log history are
        named "training" (key `loss`), "evaluation" (key `eval_loss`), and for an evaluation data set `de`
        "evaluation, de" (key `eval_de_loss`). If runs are compared, the name of the run precedes these.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if there is no loss, or more than 14 curves; if a loss is not finite, or with `log` not positive.
        TypeError: if `history` has none of the three forms.

    Example:
        >>> axes = losses([{"loss": 0.9, "step": 10}, {"eval_loss": 0.8, "step": 10}, {"loss": 0.5, "step": 20}])
        >>> {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
        {'training': [0.9, 0.5], 'evaluation': [0.8]}
    """
    from matplotlib.ticker import LogLocator

    curves = _curves(history)
    check_count("curves", len(curves), _MOST_CURVES, fix='plots.losses({"a": ..., "b": ...}) with fewer of them')
    lowest = min(float(values.min()) for _, values in curves.values())
    if log and lowest <= 0:
        raise value_error("losses must be positive for a logarithmic scale", got=lowest, fix="log=False")
    ax = new_axes(ax)
    for number, (name, (steps, values)) in enumerate(curves.items()):
        ax.plot(
            steps,
            values,
            color=LINES[number % len(LINES)],
            linestyle=DASHES[number % 2 + 2 * (number // len(LINES))],  # a curve below another shows in the gaps
            marker="o" if len(steps) <= _DOTTED else "",
            markersize=3,
            label=name,
        )
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
    else:
        ax.set_ylim(bottom=min(0.0, lowest))
    integer_ticks(ax.xaxis)
    ends = {name: f"{values[-1]:.2g}" for name, (_, values) in curves.items()}
    if len(ends) > 2:
        lowest_name = min(curves, key=lambda name: curves[name][1][-1])
        ends = {f"{lowest_name} ends lowest,": ends[lowest_name]}
    title = ", ".join(f"{name}{' ends' * (len(curves) < 3)} at {value}" for name, value in ends.items())
    label(ax, f"Loss: {title}", "step", "loss", grid=True)
    ax.legend(**({} if len(curves) <= _INSIDE else {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}))
    return ax


@picture
def sequences(
    inputs: Any, truth: Any, prediction: Any, *, ax: Axes | None = None, most: int = _MOST_SEQUENCES
) -> Axes | Figure:
    r"""Draw the inputs, the true outputs and the predicted outputs of a model whose data are points in the plane.

    There is one panel per sequence. Input points and true output points are numbered in order and joined by a line.
    Predicted points are crosses; a line joins each of them to its true point.

    Args:
        inputs (`torch.Tensor` or `np.ndarray` `(N, S, 2)`): N sequences of S input points.
        truth, prediction (`torch.Tensor` or `np.ndarray` `(N, T, 2)`): N sequences of T output points. For a single
            sequence, all three arguments may be without the dimension N.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw into. They show only the first sequence. By default those
            of a new figure.
        most (`int`): largest number of sequences to draw. Further ones are left out, with a note.

    Returns:
        `matplotlib.figure.Figure` of several panels, or `matplotlib.axes.Axes` of a single one. The three collections
        of each panel hold the inputs, the truth and the prediction.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if a shape does not fit, a number is not finite, or `most` is not positive.
        TypeError: if an argument is not numeric, or `most` is not an integer.

    Example:
        >>> axes = sequences([[0, 0], [0, 1]], [[1, 1], [1, 0]], [[1.1, 0.9], [1.0, 0.1]])
        >>> [collection.get_label() for collection in axes.collections]
        ['input', 'truth', 'prediction']
    """
    parts = _checked_sequences({"inputs": inputs, "truth": truth, "prediction": prediction})
    total = len(parts[0])
    count = min(total, as_count(most, "most", _MOST_SEQUENCES)) if ax is None else 1
    points = np.concatenate([part[:count].reshape(-1, 2) for part in parts])
    margin = 0.16 * float(np.ptp(points, axis=0).max()) or 1.0  # for the numbers beside the points
    limits = np.stack([points.min(axis=0) - margin, points.max(axis=0) + margin])
    error = np.linalg.norm(parts[1][:count] - parts[2][:count], axis=-1).mean()
    title = f"Predicted points are {error:.2g} from the true ones on average"
    if count == 1:
        made: Any = new_axes(ax, 4.2, 4.2)
        cells = [made]
        _draw_sequence(made, parts, 0, limits)
        label(made, title, "", "", note=f"the first of {counted(total, 'sequence')}" if total > 1 else "")
        made.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)
    else:
        lines, abreast = grid_shape(count, 4)
        made = new_figure(2.4 * abreast, 2.4 * lines + 0.7)
        grid = made.subplots(lines, abreast, squeeze=False, sharex=True, sharey=True).flatten().tolist()
        cells = grid[:count]
        for number, cell in enumerate(cells):
            _draw_sequence(cell, parts, number, limits)
        for cell in grid[count:]:
            cell.set_axis_off()
        note = f"the first {count} of {total} sequences" if count < total else f"{count} sequences"
        headline(made, title, note, cells[0].get_legend_handles_labels()[0])
    figure_of(cells[0]).draw_without_rendering()  # numbers are placed for the final size of the axes
    for number, cell in enumerate(cells):
        whole = np.concatenate([parts[0][number], parts[1][number]])
        label_points(cell, whole, [str(i + 1) for i in range(len(whole))], clear_of=parts[2][number])
    return made  # type: ignore[no-any-return]


def _curves(history: Any) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the curves of a `history`, in any form that `losses` accepts: a dict from name to (steps, losses)."""
    if _is_log(history):
        curves = _curves_of_log(history)
    elif isinstance(history, Mapping):
        curves = {}
        for name, values in history.items():
            if _is_log(values):
                curves |= {f"{name}, {kind}": curve for kind, curve in _curves_of_log(values).items()}
                continue
            numbers = as_finite(values, f"losses of {name!r}", _HISTORY)
            if numbers.ndim != 1 or not len(numbers):
                rule = f"{name!r} must be a list of losses"
                raise value_error(rule, got=f"shape {numbers.shape}", fix=_HISTORY)
            curves[name] = np.arange(1.0, len(numbers) + 1), numbers
    else:
        rule = "history must be a log history, or losses by name"
        raise type_error(rule, got=shorten(history), fix=_HISTORY)
    if not curves:
        raise value_error("there is no loss to draw", got=shorten(history), fix=_HISTORY)
    return curves


def _is_log(history: Any) -> bool:
    return isinstance(history, list | tuple) and len(history) > 0 and all(isinstance(log, Mapping) for log in history)


def _curves_of_log(history: Sequence[Mapping[str, Any]]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    points: dict[str, list[tuple[float, float]]] = {"training": []}
    for number, log in enumerate(history):
        for key, value in log.items():
            if key == "loss":
                name = "training"
            elif key.startswith("eval_") and key.endswith("_loss"):  # eval_loss, or eval_de_loss of several sets
                name = f"evaluation, {key[5:-5]}" if key != "eval_loss" else "evaluation"
            else:
                continue
            points.setdefault(name, []).append((float(log.get("step", number)), float(value)))
    curves = {name: np.array(found).T for name, found in points.items() if found}
    return {
        name: (steps, as_finite(values, f"losses of {name!r}", _HISTORY)) for name, (steps, values) in curves.items()
    }


def _checked_sequences(given: Mapping[str, Any]) -> list[NDArray[np.float64]]:
    """Return the inputs, the truth and the prediction of `sequences` as float64 arrays `(N, points, 2)`."""
    found = {}
    for name, points in given.items():
        values = as_finite(points, name, "torch.randn(8, 4, 2)")
        found[name] = values[None] if values.ndim == 2 else values
        if found[name].ndim != 3 or found[name].shape[2] != 2 or 0 in found[name].shape:
            rule = f"{name} must be points in the plane, (sequences, points, 2)"
            got = f"shape {tuple(np.shape(as_numpy(points)))}"
            raise value_error(rule, got=got, fix=f"{name}[..., :2] draws the first two coordinates")
    inputs, truth, prediction = found.values()
    if truth.shape != prediction.shape or len(inputs) != len(truth):
        raise value_error(
            "inputs, truth and prediction must have equally many sequences, truth and prediction equal lengths",
            got=", ".join(f"{name} {values.shape}" for name, values in found.items()),
            fix="plots.sequences(inputs, truth, model(inputs))",
        )
    return [inputs, truth, prediction]


def _draw_sequence(ax: Axes, parts: Sequence[NDArray[np.float64]], number: int, limits: NDArray[np.float64]) -> None:
    inputs, truth, prediction = (part[number] for part in parts)
    whole = np.concatenate([inputs, truth])
    ax.plot(whole[:, 0], whole[:, 1], color=GRID, linewidth=1.0, zorder=1)
    for pair in np.stack([truth, prediction], axis=1):
        ax.plot(pair[:, 0], pair[:, 1], color=VERMILLION, linewidth=0.8, zorder=2)
    dots: dict[str, dict[str, Any]] = {
        "input": {"marker": "s", "s": 36, "color": BLUE},
        "truth": {"marker": "o", "s": 46, "facecolor": "none", "edgecolor": GREEN, "linewidth": 1.6},
        "prediction": {"marker": "x", "s": 36, "color": VERMILLION, "linewidth": 1.6},
    }
    for (name, style), points in zip(dots.items(), (inputs, truth, prediction), strict=True):
        ax.scatter(points[:, 0], points[:, 1], label=name, zorder=3, **style)
    ax.set_aspect("equal")
    ax.set_xlim(*limits[:, 0])
    ax.set_ylim(*limits[:, 1])
    label(ax, f"sequence {number}", "", "", size=MEDIUM)
