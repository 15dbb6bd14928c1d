"""Progress bars of long work, which `datasets.disable_progress_bars()` hides."""

from __future__ import annotations

import sys
from typing import Any

import datasets
import pytest

from hf_posenc import DataCollatorWithPositionalEncoding, audit
from hf_posenc._common.compat import progress_bar


def test_a_progress_bar_waits_two_seconds_and_is_hidden_with_those_of_datasets() -> None:
    datasets.enable_progress_bars()
    with progress_bar("Batches", 3) as bar:
        assert not bar.disable
        assert (bar.total, bar.delay) == (3, 2)
    datasets.disable_progress_bars()
    try:
        with progress_bar("Batches", 3) as bar:
            assert bar.disable
    finally:
        datasets.enable_progress_bars()


def test_without_datasets_the_bar_is_that_of_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "datasets.utils.tqdm")
    with progress_bar("Batches", None) as bar:
        assert type(bar).__module__.startswith("tqdm")


def test_batches_and_labels_count_their_rows(word_level: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[tuple[str, int | None, int]] = []

    class Bar:
        def __init__(self, description: str, total: int | None) -> None:
            self.facts, self.rows = (description, total), 0

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            counts.append((*self.facts, self.rows))

        def update(self, rows: int) -> None:
            self.rows += rows

    monkeypatch.setattr("hf_posenc.collator.batches.progress_bar", Bar)
    monkeypatch.setattr(sys.modules["hf_posenc.audit.labels"], "progress_bar", Bar)  # `audit.labels` is a function
    collate = DataCollatorWithPositionalEncoding(word_level)
    list(collate.batches(["a b", "c", "d e f"], token_budget=8, window=2))
    list(collate.batches({"text": ["a b", "c"]}, token_budget=8))
    list(collate.batches(iter(["a b"]), token_budget=8))
    audit.labels(datasets.Dataset.from_dict({"input_ids": [[5, 6]] * 3, "labels": [[5, 6]] * 3}))
    assert counts == [("Batches", 3, 3), ("Batches", 2, 2), ("Batches", None, 1), ("Checking labels", 3, 3)]
