"""The encoding in threads, in forked and spawned processes, and in ranks whose rows differ in length: the same rows.

No lock, nothing broadcast: tables are compared with the function that keeps none, ranks with a run in one process.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from sinusoid_reference import ALL, widths
from torch import nn
from two_processes import skip_without_gloo, two_processes

from hf_posenc.positions import Convention, SinusoidalPositionalEncoding, clear_cache, sinusoidal_encoding


@pytest.mark.workers
def test_another_process_has_the_same_rows() -> None:
    """Forked with tables at hand, or started without; the second length is longer than any of them."""
    modules = [SinusoidalPositionalEncoding(widths(each)[0], convention=each) for each in ALL]
    for module in modules:
        module(torch.zeros(1, 300, module.d_model))
    expected = [module(torch.zeros(1, 700, module.d_model)).tolist() for module in modules]
    for how in (None, "spawn"):
        with torch.multiprocessing.get_context(how).Pool(1) as pool:
            assert pool.apply_async(rows_elsewhere, (modules, 700)).get(timeout=100) == expected


def rows_elsewhere(modules: list[SinusoidalPositionalEncoding], length: int) -> list[Any]:
    torch.set_num_threads(1)  # OpenMP's threads are not there after a fork
    return [module(torch.zeros(1, length, module.d_model)).tolist() for module in modules]


@pytest.mark.slow  # two ranks, each with torch in memory
def test_ranks_may_have_different_lengths(tmp_path: Path) -> None:
    """Under DDP nothing of the encoding is broadcast, so there is nothing to disagree about."""
    skip_without_gloo()
    with two_processes(tmp_path, "test_processes", "train_a_rank", tmp_path):
        pass
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert len(one) == len(ALL)
    for convention, ours, theirs in zip(ALL, one, other, strict=True):
        alone = build(convention)
        for step in range(3):
            losses = [_loss(alone, rank, step) for rank in range(2)]
            gradients = torch.autograd.grad(sum(losses) / 2, list(alone.parameters()))
            with torch.no_grad():
                for weight, gradient in zip(alone.parameters(), gradients, strict=True):
                    weight.sub_(0.1 * gradient)
        for weight, here, there in zip(alone.parameters(), ours, theirs, strict=True):
            assert torch.equal(here, there)
            torch.testing.assert_close(here, weight.detach(), rtol=1e-5, atol=1e-6)


class Model(nn.Module):
    """A table, the encoding, a layer."""

    def __init__(self, convention: Convention) -> None:
        super().__init__()
        width = widths(convention)[0]
        self.embedding, self.head = nn.Embedding(16, width), nn.Linear(width, 3)
        self.pos = SinusoidalPositionalEncoding(width, convention=convention, scale="sqrt_d")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.pos(self.embedding(ids)))


def build(convention: Convention) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model(convention)


def _loss(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    length = (5, 300)[(rank + step) % 2] + step  # one rank's table grows where the other's does not
    ids = torch.arange(2 * length).view(2, length) % 16
    return model(ids).square().mean()


def train_a_rank(folder: Path) -> None:
    """Three steps for each convention, as one of two processes."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    left = []
    for convention in ALL:
        model = build(convention)
        wrapped = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            _loss(wrapped, rank, step).backward()
            optimizer.step()
        left.append([weight.detach() for weight in model.parameters()])
    torch.save(left, folder / f"{rank}.pt")
    torch.distributed.barrier()


def test_threads_get_the_right_rows_while_tables_grow() -> None:
    """Eight threads, every convention, two dtypes, lengths up to 3,000 in any order, tables thrown away in between."""
    modules = [SinusoidalPositionalEncoding(widths(each)[0], convention=each) for each in ALL]
    dtypes = (torch.float32, torch.bfloat16)
    expected = {
        (index, dtype): sinusoidal_encoding(
            torch.arange(3002), module.d_model, convention=module.convention, dtype=dtype
        )
        for index, module in enumerate(modules)
        for dtype in dtypes
    }
    wrong: list[Any] = []
    clear_cache()

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        try:
            for _ in range(60):
                index, dtype, length = chosen.randrange(len(modules)), chosen.choice(dtypes), chosen.randint(1, 3000)
                module = modules[index]
                x, first = torch.zeros(1, length, module.d_model, dtype=dtype), module.convention.first_position
                given = None if chosen.random() < 0.5 else torch.arange(first, first + length)
                if not torch.equal(module(x, position_ids=given)[0], expected[index, dtype][first : first + length]):
                    wrong.append((index, dtype, length))
                if chosen.random() < 0.05:
                    clear_cache()
        except Exception as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []
