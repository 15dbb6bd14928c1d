"""The default recipe of `use_sinusoidal_positions` in training, against learned positions and the paper's sinusoids."""

from __future__ import annotations

import pytest
import torch
from benchmarks.recipes import TASKS, rows, score, table


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow  # three training runs for each family
@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_a_small_model_learns_with_the_default_recipe_as_with_learned_positions(family: str) -> None:
    found = {arm: score(family, "every second", 64, arm, 0, 1e-3) for arm in ("none", "stock", "default")}
    assert found["none"] < 0.6
    assert found["default"] > found["stock"] - 0.05
    assert found["stock"] > 0.85


@pytest.mark.slow  # two training runs
def test_a_small_bert_learns_with_the_default_recipe_and_not_with_the_papers() -> None:
    found = {arm: score("bert", "every second", 64, arm, 0, 1e-3) for arm in ("default", "paper")}
    assert found["default"] > 0.95
    assert found["default"] > found["paper"] + 0.2


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
@pytest.mark.parametrize("task", TASKS)
def test_the_answer_is_read_from_the_labels_only(task: str, family: str) -> None:
    made = rows(task, family, 20, 0)
    known = (made["labels"] != -100).sum(1)
    assert bool((known >= 1).all())
    if family == "bert":
        assert torch.equal(made["input_ids"] == 4, made["labels"] != -100)  # a [MASK] for each
    elif family == "gpt2":
        scored = made["labels"] != -100
        assert torch.equal(made["input_ids"][scored], made["labels"][scored])


def test_the_verdict_compares_the_default_with_learned_positions_and_with_none() -> None:
    def verdict(none: float, stock: float, default: float) -> str:
        values = {"none": none, "stock": stock, "default": default}
        found = {("bert", "depth", 64, arm, seed): value for arm, value in values.items() for seed in range(2)}
        return table(found).splitlines()[-1].split("|")[-2].strip()

    assert verdict(0.3, 0.9, 0.89) == "as good"
    assert verdict(0.3, 0.9, 0.95) == "better"
    assert verdict(0.3, 0.9, 0.8) == "worse"
    assert verdict(0.3, 0.9, 0.2) == "worse than none"
    assert verdict(0.85, 0.9, 0.9) == "(as good)"  # learned positions gain too little
