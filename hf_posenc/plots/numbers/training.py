"""What training left behind, as arrays: loss curves, and predicted points beside the true ones.

Nothing is smoothed and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._explain import explain, shorten
from ..limits import check_finite
from .arrays import as_numpy, numbers_of

_EXAMPLE = (
    'plots.losses(trainer.state.log_history), or plots.losses({"training": [0.9, 0.5], "evaluation": [0.8, 0.6]})'
)


class Curve(NamedTuple):
    r"""One loss curve.

    Args:
        steps (`np.ndarray` `(N,)` float64): where a loss was measured.
        losses (`np.ndarray` `(N,)` float64): how large it was.
    """

    steps: NDArray[np.float64]
    losses: NDArray[np.float64]


class Sequences(NamedTuple):
    r"""Sequences of points in the plane.

    Args:
        inputs (`np.ndarray` `(N, S, 2)` float64): what the model read.
        truth, prediction (`np.ndarray` `(N, T, 2)` float64): what was to come, and what the model said.
    """

    inputs: NDArray[np.float64]
    truth: NDArray[np.float64]
    prediction: NDArray[np.float64]


def losses(history: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> dict[str, Curve]:
    r"""Training and evaluation losses by name.

    Args:
        history (`list` of `dict`, or mapping): `trainer.state.log_history`; or numbers by name, one for each step; or
            several log histories by name, to compare runs.

    Returns:
        `dict` of `Curve`: `"training"` and `"evaluation"` from a log history, `"evaluation, de"` where there are
        several data sets; otherwise the names that were given.

    Raises:
        ValueError: if there is no loss, or one is not finite.
        TypeError: if it is nothing of these.

    Example:
        >>> losses([{"loss": 0.9, "step": 10}, {"eval_loss": 0.8, "step": 10}, {"loss": 0.5, "step": 20}])["training"]
        Curve(steps=array([10., 20.]), losses=array([0.9, 0.5]))
    """
    if isinstance(history, Mapping):
        found: dict[str, Curve] = {}
        for name, values in history.items():
            if _is_log(values):
                found |= {f"{name}, {kind}": curve for kind, curve in _from_log(values).items()}
            else:
                found[name] = _from_numbers(name, values)
    elif _is_log(history):
        found = _from_log(history)
    else:
        raise TypeError(explain("losses are a log history, or numbers by name", got=shorten(history), fix=_EXAMPLE))
    if not found:
        raise ValueError(explain("there is no loss to draw", got=shorten(history), fix=_EXAMPLE))
    return found


def sequences(inputs: Any, truth: Any, prediction: Any) -> Sequences:
    r"""Points that a model read, those that were to come, and those that it predicted.

    Args:
        inputs (`torch.Tensor` or `np.ndarray` `(N, S, 2)`): sequences of S points.
        truth, prediction (`torch.Tensor` or `np.ndarray` `(N, T, 2)`): sequences of T points.

    Returns:
        `Sequences` of NumPy arrays; a single sequence, `(T, 2)`, is a batch of one.

    Raises:
        ValueError: if a shape does not fit, or a number is not finite.
        TypeError: if these are no numbers.

    Example:
        >>> sequences([[0, 0], [0, 1]], [[1, 1]], [[1.1, 0.9]]).prediction
        array([[[1.1, 0.9]]])
    """
    given = {"inputs": inputs, "truth": truth, "prediction": prediction}
    found = {}
    for name, points in given.items():
        values = numbers_of(points, name, "torch.randn(8, 4, 2)")
        values = values[None] if values.ndim == 2 else values
        if values.ndim != 3 or values.shape[2] != 2 or 0 in values.shape:
            raise ValueError(
                explain(
                    f"{name} must be points in the plane, (sequences, points, 2)",
                    got=f"shape {tuple(np.shape(as_numpy(points)))}",
                    fix=f"{name}[..., :2] for two of the coordinates",
                )
            )
        found[name] = values
    if found["truth"].shape != found["prediction"].shape or len(found["inputs"]) != len(found["truth"]):
        raise ValueError(
            explain(
                "inputs, truth and prediction must be of the same sequences, truth and prediction equally long",
                got=", ".join(f"{name} {values.shape}" for name, values in found.items()),
                fix="plots.sequences(inputs, truth, model(inputs))",
            )
        )
    return Sequences(**found)


def _is_log(history: Any) -> bool:
    return isinstance(history, list | tuple) and len(history) > 0 and all(isinstance(log, Mapping) for log in history)


def _from_log(history: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    for number, log in enumerate(history):
        for key, value in log.items():
            name = _name(key)
            if name is not None:
                points.setdefault(name, []).append((float(log.get("step", number)), float(value)))
    ordered = sorted(points, key=lambda name: not name.startswith("training"))
    return {name: _curve(name, points[name]) for name in ordered}


def _name(key: str) -> str | None:
    """What a log calls a loss: `loss`, `eval_loss`, `eval_de_loss`; `train_loss` is the mean of a whole run."""
    if key == "loss":
        return "training"
    if key == "eval_loss":
        return "evaluation"
    return f"evaluation, {key[5:-5]}" if key.startswith("eval_") and key.endswith("_loss") else None


def _from_numbers(name: str, values: Any) -> Curve:
    found = numbers_of(values, f"losses of {name!r}", _EXAMPLE)
    if found.ndim != 1 or not len(found):
        raise ValueError(explain(f"{name!r} must be a list of losses", got=f"shape {found.shape}", fix=_EXAMPLE))
    return Curve(np.arange(1.0, len(found) + 1), found)


def _curve(name: str, points: list[tuple[float, float]]) -> Curve:
    values = np.array(points, dtype=np.float64)
    return Curve(values[:, 0], check_finite(f"losses of {name!r}", values[:, 1]))
