"""How fast plans of rows and of batches are made and what they leave empty, beside TRL's packing and HF's samplers.

`python -m tests.benchmarks.plans [--rounds 5]`, or as a part of `tests.benchmarks`. TRL is no dependency of anything
here: where it is not installed, what it would be measured against is measured alone.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import numpy as np
import pyarrow as pa
import torch
from rich.console import Console
from rich.table import Table
from torch.utils.data import BatchSampler, RandomSampler
from transformers import trainer_pt_utils

from hf_posenc import lengths_of, pack, pack_dataset, plan_batches

from .measuring import Measured, Target, must_equal, show, take_turns

CAPACITY, BUDGET, WINDOW, ROWS, RANKS = 2_048, 8_192, 20_000, 32, 8


def log_normal(count: int) -> np.ndarray:
    """Lengths of documents, 180 tokens on average, at most the capacity."""
    return np.clip(np.random.default_rng(0).lognormal(4.7, 1.0, count).astype(int), 1, CAPACITY)


def packing(count: int, rounds: int) -> None:
    """A plan of rows; TRL makes it and moves the tokens in one call, so here they are one byte each."""
    lengths = log_normal(count)
    plan = pack(lengths, CAPACITY)
    beyond = len(plan) / plan.lower_bound - 1
    contenders = {"hf_posenc": lambda: pack(lengths, CAPACITY)}
    trl = _trl()
    if trl is not None:
        bfd = trl._pack_bfd
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        tokens = pa.array(np.zeros(int(offsets[-1]), dtype=np.int8))
        documents = pa.table({"input_ids": pa.ListArray.from_arrays(offsets, tokens)})
        contenders["TRL"] = lambda: bfd(documents, CAPACITY)
        must_equal("the number of TRL's rows", len(plan), len(bfd(documents, CAPACITY)))
    show(
        f"Packing to {CAPACITY:,}: {count:,} log-normal lengths; {len(plan):,} rows, lower bound {plan.lower_bound:,}, "
        f"{100 * beyond:.4f} % beyond it (promised ≤ 0.05 %: {_met(beyond <= 0.0005)})",
        take_turns(contenders, rounds),
        per_second=(count, "documents"),
        targets=[Target("hf_posenc", "TRL", "≥", 100)] if trl is not None else [],
    )
    if trl is None:
        Console().print("  TRL is not installed: not measured\n")


def data_sets(count: int, rounds: int) -> None:
    """A whole data set packed, tokens and all, in windows of the same size; and how long its lengths take."""
    lengths = log_normal(count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = pa.array(np.random.default_rng(0).integers(1, 30_000, int(offsets[-1]), dtype=np.int32))
    dataset = datasets.Dataset(pa.table({"input_ids": pa.ListArray.from_arrays(offsets, tokens)}))
    must_equal("the lengths", lengths_of(dataset), lengths)
    contenders: dict[str, Callable[[], Any]] = {
        "hf_posenc": lambda: pack_dataset(dataset, CAPACITY, window=10_000),
        "lengths_of": lambda: lengths_of(dataset),
    }
    trl = _trl()
    if trl is not None:
        contenders["TRL"] = lambda: trl.pack_dataset(dataset, CAPACITY, map_kwargs={"batch_size": 10_000})
        must_equal("the number of TRL's rows", len(contenders["hf_posenc"]()), len(contenders["TRL"]()))
    show(
        f"pack_dataset: {count:,} documents, {len(tokens):,} tokens, ids, positions, labels; TRL has ids and lengths",
        take_turns(contenders, rounds),
        per_second=(len(tokens), "tokens"),
        targets=[Target("hf_posenc", "TRL", "≥", 1)] if trl is not None else [],
    )


def _trl() -> Any:
    """TRL's `data_utils`, or `None` where it is not there."""
    try:
        from trl import data_utils
    except ImportError:
        return None
    return data_utils if hasattr(data_utils, "_pack_bfd") else None


def budgets(count: int, rounds: int) -> None:
    """What a batch of each kind leaves empty, how even steps are over ranks, and what planning takes."""
    lengths = log_normal(count)
    as_list = lengths.tolist()
    torch.manual_seed(0)

    def rebalanced() -> list[list[int]]:
        ranks = [
            list(trainer_pt_utils.BatchRebalanceSampler(as_list, ROWS * RANKS, RANKS, 1, rank=rank))
            for rank in range(RANKS)
        ]
        return [list(batch) for step in zip(*ranks, strict=True) for batch in step]

    def grouped() -> list[list[int]]:
        return list(BatchSampler(trainer_pt_utils.LengthGroupedSampler(ROWS, lengths=as_list), ROWS, True))

    def planned(**more: Any) -> Any:
        return plan_batches(lengths, BUDGET, window=WINDOW, **more)

    kinds: dict[str, Any] = {
        f"random, {ROWS} rows": lambda: list(BatchSampler(RandomSampler(as_list), ROWS, True)),
        f"HF group_by_length, {ROWS} rows": grouped,
        f"HF batch_rebalance, {ROWS} rows": rebalanced,
        f"budget {BUDGET:,}": planned,
        f"budget {BUDGET:,}, {RANKS} ranks": lambda: planned(world_size=RANKS),
        f"budget {BUDGET:,}, 16 × 128": lambda: planned(shapes=range(128, CAPACITY + 1, 128)),
        f"budget {BUDGET:,}, shapes=16": lambda: planned(shapes=16),
    }
    if not hasattr(trainer_pt_utils, "BatchRebalanceSampler"):  # younger than the oldest transformers we take
        del kinds[f"HF batch_rebalance, {ROWS} rows"]
    table = Table()
    for column in ("", "padding", "straggler", "median ms", "fastest ms"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    found: dict[str, tuple[float, float, Measured]] = {}
    for name, make in kinds.items():
        plan = make()
        shapes = getattr(plan, "shapes", None)
        waste, straggler = _figures(lengths, list(plan), shapes)
        [measured] = take_turns({name: make}, rounds if "HF" not in name else 1)
        found[name] = waste, straggler, measured
        table.add_row(
            name,
            f"{100 * waste:.2f} %",
            f"{straggler:.3f}",
            f"{1e3 * measured.median:.1f}",
            f"{1e3 * min(measured.seconds):.1f}",
        )
    console = Console()
    console.print(f"Batches: {count:,} log-normal lengths, window {WINDOW:,}; straggler over {RANKS} ranks")
    console.print(table)
    one = found[f"budget {BUDGET:,}"]
    many, few = found[f"budget {BUDGET:,}, {RANKS} ranks"], found[f"budget {BUDGET:,}, shapes=16"]
    began = time.process_time()
    for epoch in range(rounds):
        planned(epoch=epoch)
    of_its_own = (time.process_time() - began) / rounds
    for what, value, bound in (
        ("padding, %", 100 * one[0], 0.6),
        ("plan, ms", 1e3 * one[2].median, 20),
        ("plan, ms of processor time", 1e3 * of_its_own, 20),
        (f"straggler over {RANKS} ranks", many[1], 1.05),
        ("waste with 16 shapes, %", 100 * few[0], 13),
    ):
        console.print(f"  {what}: {value:.3f} (promised ≤ {bound}): {_met(value <= bound)}")
    console.print()


def _figures(lengths: np.ndarray, batches: list[Sequence[int]], shapes: tuple[int, ...] | None) -> tuple[float, float]:
    """Share of the places that are padding, and the straggler over ranks, of any batches in the order of the steps."""
    widths = np.array([int(lengths[batch].max()) for batch in batches])
    if shapes is not None:
        widths = np.array(shapes)[np.searchsorted(shapes, widths)]
    places = widths * np.array([len(batch) for batch in batches])
    tokens = sum(int(lengths[batch].sum()) for batch in batches)
    steps = places[: len(places) // RANKS * RANKS].reshape(-1, RANKS)
    return 1 - tokens / int(places.sum()), float(steps.max(axis=1).sum() / steps.mean(axis=1).sum())


def _met(yes: bool) -> str:
    return "met" if yes else "NOT MET"


def run(rounds: int) -> None:
    """Everything about plans."""
    datasets.disable_progress_bars()
    packing(1_000_000, min(rounds, 2))  # TRL takes its time
    data_sets(100_000, min(rounds, 3))
    budgets(100_000, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    run(parser.parse_args().rounds)
