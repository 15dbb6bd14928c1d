"""The collator's `model=` and `use_sinusoidal_positions` in two processes.

Runs in two processes are compared with the same run in one; the ranks' side is `train_everything`, started by torchrun.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from test_readme import REPO
from trainer_runs import (
    STEPS,
    TEXTS,
    Watched,
    arguments,
    build,
    position_modules,
    rows,
    table_of,
)
from transformers import AutoTokenizer
from two_processes import skip_without_gloo, two_processes

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe, use_sinusoidal_positions

pytestmark = pytest.mark.slow  # two processes that train

C = DataCollatorWithPositionalEncoding
TOGETHER = len(TEXTS) // STEPS  # documents in a step, over all ranks: every document once
LONGEST = 32  # tokens: more than any document has


def fed_documents(fed: dict[str, torch.Tensor]) -> list[tuple[int, ...]]:
    """The ids of every row, without padding."""
    pairs = zip(fed["input_ids"], fed["attention_mask"].bool(), strict=True)
    return [tuple(ids[real].tolist()) for ids, real in pairs]


def train_everything(folder: Path) -> None:
    """Every kind of run in turn, in this process as one of however many; leaves in a folder what it saw."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world > 1:
        warnings.simplefilter("error", UserWarning)  # as in this process
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    spec = C(tokenizer, model=build("bert", tokenizer)).model
    to_one_length = C(tokenizer, model=spec, padding="max_length", max_length=LONGEST)
    stream = rows().to_iterable_dataset(num_shards=2)
    runs: dict[str, dict[str, Any]] = {
        "map-style, mapped": {
            "data": rows().map(to_one_length.replace(padding=True), batched=True),
        },
        "map-style, raw text, two workers": {
            "data": rows(),
            "remove_unused_columns": False,
            "dataloader_num_workers": 2,
        },
        "stream, dispatched": {"data": stream, "remove_unused_columns": False, "collate": to_one_length},
        "stream, each rank reads": {
            "data": rows().to_iterable_dataset(num_shards=1),  # of two shards, each rank would read one: another order
            "remove_unused_columns": False,
            "accelerator_config": {"dispatch_batches": False},
        },
        "a sequence to a sequence": {"data": rows("target"), "remove_unused_columns": False, "family": "bart"},
    }
    together = {"per_device_train_batch_size": TOGETHER // world, "ddp_backend": "gloo" if world > 1 else None}
    for name, settings in runs.items():
        seen = _train_one(folder, tokenizer, **together, **settings)
        torch.save(seen, folder / f"{name} {rank} of {world}.pt")
    if world > 1:  # the last one: its ranks do not end together
        try:
            _train_one(folder, tokenizer, data=stream, remove_unused_columns=False, **together)
            said = "nothing"
        except RuntimeError as refused:
            said = str(refused)
        (folder / f"lengths that differ {rank}.json").write_text(json.dumps(said))
        os._exit(0)  # no farewell to a rank that waits for a batch


def _train_one(
    folder: Path, tokenizer: Any, *, data: Any, collate: Any = None, family: str = "bert", **settings: Any
) -> dict[str, Any]:
    model = build(family, tokenizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the positions written into Bart")  # frozen ones are learned later
        use_sinusoidal_positions(model, recipe="paper")
    if collate is None:
        targets = {"text_target_column": "target"} if family == "bart" else {}
        collate = C(tokenizer, model=model, **targets)

    trainer = Watched(
        model=model,
        # Plain gradient descent: Adam divides what rounding left of a gradient of zero by its own size.
        args=arguments(
            folder / f"run of {os.environ.get('WORLD_SIZE', '1')}", optim="sgd", learning_rate=0.1, **settings
        ),
        train_dataset=data,
        data_collator=collate,
        processing_class=collate,
    )
    trainer.train()
    return {
        "world": trainer.accelerator.num_processes,
        "losses": trainer.losses,
        "fed": trainer.fed,
        "weights": {name: weight.detach().clone() for name, weight in model.state_dict().items()},
        "exact": [
            torch.equal(table.weight, table_of(first)) and not table.weight.requires_grad and table.weight.grad is None
            for _, _, table, first in position_modules(model, family)
        ],
    }


RUNS = [
    "map-style, mapped",
    "map-style, raw text, two workers",
    "stream, dispatched",
    "stream, each rank reads",
    "a sequence to a sequence",
]
SEVERAL_LENGTHS = ["map-style, mapped", "map-style, raw text, two workers", "stream, each rank reads"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks left, and what one process leaves."""
    skip_without_gloo()
    folder = tmp_path_factory.mktemp("ranks")
    train_bpe(TEXTS, vocab_size=300, progress=False).save_pretrained(folder / "tokenizer")
    with two_processes(folder, "test_trainer_processes", "train_everything", folder, timeout=180):
        train_everything(folder)  # meanwhile, the run that they are compared with
    return folder


def read(folder: Path, name: str, world: int) -> list[dict[str, Any]]:
    found = [torch.load(folder / f"{name} {rank} of {world}.pt", weights_only=False) for rank in range(world)]
    assert [each["world"] for each in found] == [world] * world
    return found


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_learn_what_one_does(results: Path, name: str) -> None:
    (alone,), ranks = read(results, name, 1), read(results, name, 2)
    assert len(alone["losses"]) == STEPS
    means = [sum(losses) / 2 for losses in zip(*(rank["losses"] for rank in ranks), strict=True)]
    if name != "a sequence to a sequence":  # there a mean over tokens, of which ranks have more or fewer
        torch.testing.assert_close(means, alone["losses"], rtol=1e-5, atol=1e-6)
        for key, weight in alone["weights"].items():
            torch.testing.assert_close(ranks[0]["weights"][key], weight, rtol=1e-4, atol=1e-5, msg=key)
    for key, weight in ranks[0]["weights"].items():
        assert torch.equal(weight, ranks[1]["weights"][key]), key


@pytest.mark.parametrize("name", RUNS)
def test_every_rank_uses_exact_positions(results: Path, name: str) -> None:
    for rank in read(results, name, 2):
        assert rank["exact"]
        assert all(rank["exact"])


@pytest.mark.parametrize("name", RUNS)
def test_every_document_is_seen_once_and_in_the_step_that_one_process_sees_it(results: Path, name: str) -> None:
    (alone,), ranks = read(results, name, 1), read(results, name, 2)
    assert len({document for fed in alone["fed"] for document in fed_documents(fed)}) == len(TEXTS)
    for step in range(STEPS):
        together = [document for rank in ranks for document in fed_documents(rank["fed"][step])]
        assert len(together) == TOGETHER
        assert sorted(together) == sorted(fed_documents(alone["fed"][step]))


@pytest.mark.parametrize("name", SEVERAL_LENGTHS)
def test_ranks_may_have_rows_of_different_lengths(results: Path, name: str) -> None:
    one, other = read(results, name, 2)
    lengths = [
        (a["input_ids"].shape[1], b["input_ids"].shape[1]) for a, b in zip(one["fed"], other["fed"], strict=True)
    ]
    assert any(a != b for a, b in lengths)


def test_a_dispatched_stream_of_different_lengths_is_refused_by_accelerate_and_the_guide_explains_it(
    results: Path,
) -> None:
    said = json.loads((results / "lengths that differ 0.json").read_text())
    assert "batches of different size" in said
    page = (REPO / "docs" / "trainer.md").read_text(encoding="utf-8")
    assert "batches of different" in page  # what a reader will search for
    for fix in ("dispatch_batches", 'padding="max_length"', "pad_to_multiple_of"):
        assert fix in page
