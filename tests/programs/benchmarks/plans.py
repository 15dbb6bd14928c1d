"""Plans of packed rows beside TRL's, and of batches beside the samplers of transformers: time, and what stays empty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import BatchSampler
from transformers import trainer_pt_utils

from hf_posenc import pack, pack_dataset, plan_batches

from .measuring import Case, must_equal, take_turns

CAPACITY, BUDGET, WINDOW, ROWS, RANKS = 2_048, 8_192, 20_000, 32, 8


def log_normal(count: int) -> np.ndarray:
    """Return lengths of documents, 180 tokens on average, at most the capacity."""
    return np.clip(np.random.default_rng(0).lognormal(4.7, 1.0, count).astype(int), 1, CAPACITY)


def packing(rounds: int) -> Iterator[Case]:
    """Compare plans, then packed data sets, with TRL's (left out if TRL is not installed)."""
    try:
        from trl import data_utils as trl
    except ImportError:
        trl = None

    def documents(count: int, values: Any) -> tuple[np.ndarray, pa.Table]:
        lengths = log_normal(count)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        tokens = pa.array(values(int(offsets[-1])))
        return lengths, pa.table({"input_ids": pa.ListArray.from_arrays(offsets, tokens)})

    # TRL plans and moves the tokens in one call, so here they are one byte each.
    lengths, table = documents(1_000_000, lambda size: np.zeros(size, np.int8))
    plan = pack(lengths, CAPACITY)
    beyond = 100 * (len(plan) / math.ceil(lengths.sum() / CAPACITY) - 1)
    runs: dict[str, Callable[[], Any]] = {} if trl is None else {"TRL": lambda: trl._pack_bfd(table, CAPACITY)}
    if trl is not None:
        must_equal("the number of TRL's rows", len(plan), len(runs["TRL"]()))
    runs[f"hf_posenc, {beyond:.3f} % more rows than the lower bound"] = lambda: pack(lengths, CAPACITY)
    yield Case("plan of 1,000,000 documents", take_turns(runs, min(rounds, 2)))

    _, table = documents(100_000, lambda size: np.random.default_rng(0).integers(1, 30_000, size, np.int32))
    data = datasets.Dataset(table)
    window = 10_000
    runs = {"hf_posenc": lambda: pack_dataset(data, CAPACITY, window=window)}
    if trl is not None:
        runs = {"TRL": lambda: trl.pack_dataset(data, CAPACITY, map_kwargs={"batch_size": window}), **runs}
        must_equal("the number of TRL's rows", *(len(run()) for run in runs.values()))
    yield Case("data set of 100,000 documents", take_turns(runs, min(rounds, 3)))


def batches(rounds: int) -> Case:
    """Compare plans of batches; the names have the padding, and the longest step of 8 ranks beside the mean one."""
    lengths = log_normal(100_000)
    as_list = lengths.tolist()
    torch.manual_seed(0)

    def grouped() -> list[list[int]]:
        return list(BatchSampler(trainer_pt_utils.LengthGroupedSampler(ROWS, lengths=as_list), ROWS, True))

    def rebalanced() -> list[list[int]]:
        sampler = trainer_pt_utils.BatchRebalanceSampler
        ranks = [list(sampler(as_list, ROWS * RANKS, RANKS, 1, rank=rank)) for rank in range(RANKS)]
        return [list(batch) for step in zip(*ranks, strict=True) for batch in step]

    def planned(**more: Any) -> Callable[[], Any]:
        return lambda: plan_batches(lengths, BUDGET, window=WINDOW, **more)

    kinds: dict[str, Callable[[], Any]] = {
        "transformers, `group_by_length`": grouped,
        "transformers, `batch_rebalance`": rebalanced,
        "hf_posenc": planned(),
        "hf_posenc, `world_size=8`": planned(world_size=RANKS),
    }
    if not hasattr(trainer_pt_utils, "BatchRebalanceSampler"):  # an older transformers
        del kinds["transformers, `batch_rebalance`"]
    named = {}
    for name, make in kinds.items():
        plan = make()
        padding, longest = empty(lengths, list(plan))
        named[f"{name}: {100 * padding:.1f} % padding, {longest:.2f}"] = make
    return Case("batches of 100,000 documents", take_turns(named, min(rounds, 3)))


def empty(lengths: np.ndarray, plan: list[Sequence[int]]) -> tuple[float, float]:
    """Return the share of padding, and the sum of the longest steps over ranks divided by that of the mean ones."""
    widths = np.array([int(lengths[batch].max()) for batch in plan])
    places = widths * np.array([len(batch) for batch in plan])
    tokens = sum(int(lengths[batch].sum()) for batch in plan)
    steps = places[: len(places) // RANKS * RANKS].reshape(-1, RANKS)
    return 1 - tokens / int(places.sum()), float(steps.max(axis=1).sum() / steps.mean(axis=1).sum())


def run(rounds: int) -> Iterator[Case]:
    """Compare plans of rows and of batches."""
    yield from packing(rounds)
    yield batches(rounds)
