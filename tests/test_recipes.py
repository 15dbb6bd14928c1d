"""The default recipe of `use_sinusoidal_positions` in training, against learned positions and the paper's sinusoids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.recipes import (
    RESULTS,
    ROOT,
    TASKS,
    chosen_rate,
    read,
    rows,
    scores,
    summary,
    table,
    text_table,
    verdict,
)
from looping import for_each


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow  # three training runs for each family
@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_a_small_model_learns_with_the_default_recipe_as_with_learned_positions(family: str) -> None:
    found = {arm: scores(family, "every second", 64, arm, 1e-3, 600, 0)[-1] for arm in ("none", "stock", "default")}
    assert found["none"] < 0.6
    assert found["default"] > found["stock"] - 0.05
    assert found["stock"] > 0.85


@pytest.mark.slow  # two training runs
def test_a_small_bert_learns_with_the_default_recipe_and_not_with_the_papers() -> None:
    found = {arm: scores("bert", "every second", 64, arm, 1e-3, 600, 0)[-1] for arm in ("default", "paper")}
    assert found["default"] > 0.95
    assert found["default"] > found["paper"] + 0.2


@for_each("family", ["bert", "gpt2", "bart"])
@for_each("task", TASKS)
def test_the_answer_is_read_from_the_labels_only(task: str, family: str) -> None:
    made = rows(task, family, 20, 0)
    known = (made["labels"] != -100).sum(1)
    assert bool((known >= 1).all())
    if family == "bert":
        assert torch.equal(made["input_ids"] == 4, made["labels"] != -100)  # a [MASK] for each
    elif family == "gpt2":
        scored = made["labels"] != -100
        assert torch.equal(made["input_ids"][scored], made["labels"][scored])


@pytest.mark.parametrize(
    ("learned", "default", "word"),
    [
        ([0.9, 0.9, 0.9, 0.9, 0.9], [0.95, 0.96, 0.95, 0.96, 0.95], "better"),
        ([0.9, 0.9, 0.9, 0.9, 0.9], [0.85, 0.84, 0.85, 0.84, 0.85], "worse"),
        ([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.99, 1.0, 1.0], "as good"),
        ([0.9, 0.4, 1.0, 0.7, 0.8], [0.9, 0.4, 1.0, 0.7, 0.8], "as good"),  # the same with each seed
        ([0.9, 0.4, 1.0, 0.7, 0.8], [0.4, 0.9, 0.7, 1.0, 0.8], "not decided"),  # the same on average only
    ],
)
def test_a_verdict_needs_the_interval_of_the_paired_differences(
    learned: list[float], default: list[float], word: str
) -> None:
    assert verdict(np.array(learned), np.array(default))[2] == word


def test_the_learning_rate_is_chosen_by_the_last_score_then_by_the_earlier_ones() -> None:
    cell = ("bert", "halves", 64)

    def chosen(low: list[float], high: list[float]) -> float:
        runs = {(*cell, "stock", rate, 600, 100): shares for rate, shares in ((1e-3, low), (3e-3, high))}
        return chosen_rate(runs, cell, "stock")

    assert chosen([0.5, 0.9], [0.7, 0.8]) == 1e-3
    assert chosen([0.5, 1.0], [0.7, 1.0]) == 3e-3


def test_the_table_and_the_sentence_of_the_pages_are_those_of_the_runs() -> None:
    results = read(RESULTS)
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert table(results) in page
    assert text_table(results) in page
    assert summary(results) in (ROOT / "README.md").read_text(encoding="utf-8")
