"""The default recipe of `use_sinusoidal_positions` in training, against learned positions and the paper's sinusoids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.recipes import mirror, scores, share_of


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow  # four training runs
def test_a_small_bert_learns_with_the_default_recipe_as_with_learned_positions_and_not_with_the_papers() -> None:
    """Every token is labeled with the one at the mirrored place, which takes positions."""
    task = mirror()
    found = {arm: np.mean(scores(task, 32, arm, seed=0)) for arm in ("none", "stock", "matched", "paper")}
    assert found["none"] < 0.4  # letters alone
    assert found["matched"] > found["paper"] + 0.2
    assert found["matched"] > found["none"] + 0.95 * (found["stock"] - found["none"])


def test_the_share_is_0_at_the_scores_without_positions_and_1_at_those_of_learned_ones() -> None:
    none, stock = np.array([0.4, 0.5]), np.array([0.8, 0.9])
    for matched, expected in ((none, 0.0), (stock, 1.0), ((none + stock) / 2, 0.5)):
        share, low, high = share_of({"none": none, "stock": stock, "matched": matched})
        assert share == pytest.approx(expected)
        assert low <= share <= high
