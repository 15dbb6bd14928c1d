"""A few hundred random examples, always the same ones, compared with the slow reference of `tests/programs/fuzz`.

`python -m tests.programs.fuzz --examples 300000` runs as many as one likes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fuzz.running import PARTS, run_part

from hf_posenc import DataCollatorWithPositionalEncoding as C


@pytest.mark.parametrize("part", PARTS)
def test_random_examples_give_the_expected_result_or_a_documented_error(part: str) -> None:
    figures = run_part(part, 300, 0, draws=50)
    assert not figures.failures, "\n".join(figures.failures)
    assert figures.examples >= 300


def test_a_wrong_id_in_a_batch_is_found(monkeypatch) -> None:
    right = C.batch

    def wrong(self: C, given: Any) -> Any:
        batch = right(self, given)
        batch["input_ids"] = batch["input_ids"] + 1 if isinstance(batch["input_ids"], torch.Tensor) else None
        return batch

    monkeypatch.setattr(C, "batch", wrong)
    assert run_part("ids", 10, 0, draws=10, shrinks=False).failures
