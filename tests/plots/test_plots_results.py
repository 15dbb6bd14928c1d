"""Loss curves and points in the plane, compared with the given numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_posenc import plots

# As Trainer writes it.
LOG: list[dict[str, Any]] = [
    {"loss": 0.9, "grad_norm": 1.0, "learning_rate": 1e-3, "epoch": 1.0, "step": 8},
    {"eval_loss": 0.8, "eval_runtime": 0.1, "eval_accuracy": 0.5, "epoch": 1.0, "step": 8},
    {"loss": 0.5, "epoch": 2.0, "step": 16},
    {"eval_loss": 0.6, "epoch": 2.0, "step": 16},
    {"train_runtime": 1.0, "train_loss": 0.7, "epoch": 2.0, "step": 16},
]


def drawn(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {
        str(line.get_label()): (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist())
        for line in axes.lines
    }


def test_a_log_history_is_drawn_as_training_and_evaluation_curves() -> None:
    axes = plots.losses(LOG)
    assert drawn(axes) == {"training": ([8, 16], [0.9, 0.5]), "evaluation": ([8, 16], [0.8, 0.6])}
    assert axes.get_ylim()[0] == 0


def test_evaluation_sets_runs_and_plain_losses_keep_their_names() -> None:
    log = [{"eval_de_loss": 0.3, "step": 1}, {"eval_fr_loss": 0.4, "step": 1}, {"loss": 0.5, "step": 1}]
    assert list(drawn(plots.losses(log))) == ["training", "evaluation, de", "evaluation, fr"]
    runs = plots.losses({"with positions": LOG, "without": LOG[:1]})
    assert set(drawn(runs)) == {"with positions, training", "with positions, evaluation", "without, training"}
    plain = plots.losses({"mine": torch.tensor([0.5, 0.25], dtype=torch.bfloat16), "theirs": [3]})
    assert drawn(plain) == {"mine": ([1, 2], [0.5, 0.25]), "theirs": ([1], [3])}
    mine = Figure().subplots()
    assert plots.losses(LOG, ax=mine) is mine


def test_float64_tensors_are_drawn_exactly() -> None:
    values = torch.tensor([0.1, 1.0 + 2**-40], dtype=torch.float64)
    assert drawn(plots.losses({"a": values}))["a"][1] == values.tolist()


def test_a_logarithmic_scale_has_plain_numbers() -> None:
    axes = plots.losses({"a": [2.0, 0.5, 0.02]}, log=True)
    assert axes.get_yscale() == "log"
    assert axes.figure is not None
    axes.figure.draw_without_rendering()
    written = {text.get_text() for text in [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]}
    assert {"0.1", "1", "0.2", "0.5"} <= written


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (
            lambda: plots.losses([{"loss": float("nan"), "step": 1}]),
            ValueError,
            r"losses of 'training' must be finite.*\n  got: nan at \[0\].*\n  fix: np.isfinite\(values",
        ),
        (lambda: plots.losses({"a": [1.0, float("inf")]}), ValueError, r"losses of 'a' must be finite"),
        (
            lambda: plots.losses([{"epoch": 1}]),
            ValueError,
            r"there is no loss to draw\n  got: \[\{'epoch': 1\}\]\n  fix: plots.losses\(",
        ),
        (lambda: plots.losses("loss"), TypeError, r"history must be a log history, or losses by name\n  got: 'loss'"),
        (lambda: plots.losses({"a": ["x"]}), TypeError, r"losses of 'a' must be numbers\n  got: \['x'\]"),
        (lambda: plots.losses({"a": 3.0}), ValueError, r"'a' must be a list of losses\n  got: shape \(\)"),
        (
            lambda: plots.losses({"a": [-1.0]}, log=True),
            ValueError,
            r"must be positive for a logarithmic scale\n  got: -1.0\n  fix: log=False",
        ),
        (lambda: plots.losses({str(name): [1.0] for name in range(15)}), ValueError, r"at most 14 curves.*\n  got: 15"),
    ],
)
def test_wrong_losses_are_refused(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


@pytest.fixture
def squares() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    chance = np.random.default_rng(0)
    corners = np.array([[-1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]) + 0.1 * chance.normal(size=(12, 4, 2))
    return corners[:, :2], corners[:, 2:], corners[:, 2:] + 0.2


def test_the_title_says_where_the_losses_end() -> None:
    two = {"training": [0.9, 0.5], "evaluation": [0.8, 0.625]}
    assert plots.losses(two).get_title() == "Loss: training ends at 0.5, evaluation ends at 0.62"
    assert plots.losses({"a": [1.0, 2.0]}).get_title() == "Loss: a ends at 2"
    assert plots.losses({"a": [1.0], "b": [0.5], "c": [2.0, 0.25]}).get_title() == "Loss: c ends lowest, at 0.25"


def test_a_panel_has_inputs_truth_and_prediction(squares: Any) -> None:
    figure = plots.sequences(*(torch.from_numpy(points) for points in squares))
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 8
    assert figure.get_suptitle() == "Predicted points are 0.28 from the true ones on average"
    assert figure.legends[0].get_title().get_text() == "the first 8 of 12 sequences"
    for number, axes in enumerate(figure.axes):
        held = {str(points.get_label()): np.asarray(points.get_offsets()) for points in axes.collections}
        for name, given in zip(("input", "truth", "prediction"), squares, strict=True):
            assert np.allclose(held[name], given[number])
        assert [text.get_text() for text in axes.texts if text.get_text()] == ["1", "2", "3", "4"]
    assert {axes.get_xlim() for axes in figure.axes} == {figure.axes[0].get_xlim()}


def test_a_single_sequence_is_drawn_on_axes(squares: Any) -> None:
    one = plots.sequences(*(points[0] for points in squares))
    assert isinstance(one, Axes)
    mine = Figure().subplots()
    assert plots.sequences(*squares, ax=mine) is mine
    three = plots.sequences(*squares, most=3)
    assert isinstance(three, Figure)
    assert len(three.axes) == 3


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (
            lambda read, true, said: plots.sequences(read, true[..., :1], said),
            ValueError,
            r"truth must be points in the plane.*\n  got: shape \(12, 2, 1\)",
        ),
        (
            lambda read, true, said: plots.sequences(read, true, said[:, :1]),
            ValueError,
            r"equal lengths\n  got: inputs \(12, 2, 2\), truth \(12, 2, 2\), prediction \(12, 1",
        ),
        (lambda read, true, said: plots.sequences(read[:3], true, said), ValueError, "equally many sequences"),
        (lambda read, true, said: plots.sequences(read, true, said * np.nan), ValueError, r"prediction must be finite"),
        (lambda read, true, said: plots.sequences("corners", true, said), TypeError, r"inputs must be numbers"),
        (
            lambda read, true, said: plots.sequences(read, true, said, most=0),
            ValueError,
            r"most must be positive\n  got: 0\n  fix: most=8",
        ),
        (
            lambda read, true, said: plots.sequences(read, true, said, most=2.5),
            TypeError,
            r"most must be an integer\n  got: 2.5\n  fix: most=8",
        ),
    ],
)
def test_points_that_do_not_fit_are_refused(squares: Any, call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call(*squares)


def test_a_single_step_has_an_integer_tick() -> None:
    axes = plots.losses([{"loss": 1.5, "step": 0}])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0"]
