"""Runs that are resumed with another number of processes or accumulated batches, compared with runs that are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st
from test_sampling_resume import mixed
from test_sampling_trainer import COUNT, Watched, build, flat, rows, run
from two_processes import skip_without_gloo, two_processes

from hf_posenc import TokenBudgetBatchSampler, TokenBudgetMixin, plan_batches

WAYS = [(8, 1), (4, 2), (2, 4), (1, 8)]  # processes, accumulated batches


class Budgeted(TokenBudgetMixin, Watched, token_budget=64, window=24): ...


def grouped(batches: list[list[list[int]]], accumulated: int) -> list[list[int]]:
    """Return the sorted rows of each optimizer step, from the batches of each process."""
    steps = len(batches[0]) // accumulated
    assert all(len(each) == steps * accumulated for each in batches)
    return [
        sorted(
            row for each in batches for batch in each[step * accumulated : (step + 1) * accumulated] for row in batch
        )
        for step in range(steps)
    ]


@given(st.lists(st.integers(1, 30), min_size=8, max_size=80), st.integers(0, 3), st.data())
def test_an_optimizer_step_has_the_same_rows_with_any_number_of_processes(
    lengths: list[int], epoch: int, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(60, 200))
    found, states, whole = [], [], []
    stop = data.draw(st.integers(0, plan_batches(lengths, budget, world_size=8).steps))
    for processes, accumulated in WAYS:
        more: dict[str, Any] = {"gradient_accumulation_steps": accumulated}
        samplers = [
            TokenBudgetBatchSampler(lengths, budget, world_size=processes, rank=rank, **more)
            for rank in range(processes)
        ]
        together = TokenBudgetBatchSampler(lengths, budget, world_size=processes, **more)
        for sampler in (*samplers, together):
            sampler.set_epoch(epoch)
        own = [list(sampler) for sampler in samplers]
        # accelerate divides the batches of all processes
        shared = [list(BatchSamplerShard(list(together), processes, rank)) for rank in range(processes)]  # type: ignore[arg-type]
        assert own == shared
        whole.append(grouped(own, accumulated))
        states.append(together.state_dict(stop))
        for sampler in samplers:
            sampler.load_state_dict(states[0])
        found.append(grouped([list(sampler) for sampler in samplers], accumulated))
    assert whole == whole[:1] * len(WAYS)
    assert sorted(flat(whole[0])) == list(range(len(lengths)))
    assert states == states[:1] * len(WAYS)
    assert found == [whole[0][stop:]] * len(WAYS)


def test_a_state_in_the_middle_of_an_optimizer_step_resumes_at_its_beginning() -> None:
    sampler = TokenBudgetBatchSampler([5] * 24, 10, gradient_accumulation_steps=3)
    batches = iter(sampler)
    read = [next(batches) for _ in range(5)]
    state = sampler.state_dict()
    assert state["step"] == 1
    fresh = TokenBudgetBatchSampler([5] * 24, 10, gradient_accumulation_steps=3)
    fresh.load_state_dict(state)
    assert list(fresh) == read[3:] + list(batches)


def test_rows_of_an_iterator_that_do_not_fill_the_batches_of_a_step_are_named(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="4 rows were left over, as a step needs 8 batches"):
        trainer = run(Budgeted, tmp_path, data=iter(list(rows())), max_steps=99, gradient_accumulation_steps=8)
    assert len(flat(trainer.documents())) == COUNT - 4


ENDS = (70, 130, 200)  # last steps of the three parts of a run
DATA: dict[str, Any] = {
    "mixture": mixed,
    "shuffled stream": lambda: rows().to_iterable_dataset(num_shards=3).shuffle(seed=3, buffer_size=16),
}


def train_part(folder: Path, name: str, part: int, processes: int, begin: int = 0) -> Any:
    """Train up to the end of a part, after its first checkpoint at step `begin`; four batches make a step."""
    return run(
        Budgeted,
        folder,
        data=DATA[name](),
        resume=folder / f"checkpoint-{begin}" if begin else None,
        max_steps=ENDS[part],
        learning_rate=0.01,  # small, so that rounding errors stay below 1e-6
        gradient_accumulation_steps=4 // processes,
        save_strategy="steps",
        save_steps=ENDS[part],
        dataloader_num_workers=part,
        ddp_backend="gloo" if processes > 1 else None,
    )


def train_in_two_processes(folder: Path, part: int) -> None:
    """Train one part for each kind of data; every process runs this function and saves its documents."""
    rank = int(os.environ["RANK"])
    for name in DATA:
        trainer = train_part(folder / name, name, part, 2, (0, *ENDS)[part])
        torch.save(trainer.documents(), folder / name / f"documents of part {part}, rank {rank}")


@pytest.mark.slow
def test_a_run_in_two_then_one_then_two_processes_ends_with_the_weights_of_one_in_a_single_process(
    tmp_path: Path,
) -> None:
    skip_without_gloo()
    with two_processes(tmp_path, "test_sampling_elastic", "train_in_two_processes", tmp_path, 0):
        pass
    middle = {name: train_part(tmp_path / name, name, 1, 1, ENDS[0]).documents() for name in DATA}
    with two_processes(tmp_path, "test_sampling_elastic", "train_in_two_processes", tmp_path, 2):
        pass
    for name in DATA:
        whole = train_part(tmp_path / f"{name}, whole", name, 2, 1)
        expected = grouped([whole.documents()], 4)
        parts = [
            [torch.load(tmp_path / name / f"documents of part {part}, rank {rank}") for rank in range(2)]
            for part in (0, 2)
        ]
        assert grouped(parts[0], 2) + grouped([middle[name]], 4) + grouped(parts[1], 2) == expected
        ended = type(whole.model).from_pretrained(tmp_path / name / f"checkpoint-{ENDS[-1]}")
        for key, weight in whole.model.state_dict().items():
            torch.testing.assert_close(ended.state_dict()[key], weight, rtol=0, atol=1e-6, msg=key)
        moved = np.mean(
            [
                (weight - build("gpt2").state_dict()[key]).abs().max().item()
                for key, weight in whole.model.state_dict().items()
            ]
        )
        assert moved > 1e-3  # the weights were trained
