"""`benchmarks.learning`: each plan has every document once, and as many tokens in a step as its budget allows."""

from __future__ import annotations

import numpy as np
from benchmarks.learning import PLANS, read
from looping import for_each

BUDGET = 256


@for_each("name", PLANS)
def test_a_plan_of_steps_has_each_document_once(name: str) -> None:
    lengths = np.random.default_rng(0).integers(4, 30, 500)
    steps = PLANS[name](lengths, BUDGET, 0)
    assert sorted(document for step in steps for document in step) == list(range(500))
    tokens = np.array([int(lengths[step].sum()) for step in steps])
    if "as many" not in name and "Trainer" not in name:  # these have as many rows in each step
        assert tokens.max() <= BUDGET
    assert 0.7 * BUDGET < tokens.mean() < 1.1 * BUDGET


def test_the_length_of_a_sentence_tells_its_template() -> None:
    tokenizer, rows = read("templates")
    first_letters: dict[int, set[str]] = {}
    for row in rows:
        words = tokenizer.decode(row[1:-1]).split()
        first_letters.setdefault(len(row), set()).update(word[0] for word in words if word[0] != "z")
    assert sorted(map(len, first_letters.values())) == [1] * 12
