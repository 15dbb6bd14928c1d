"""The encoding in threads, and in forked and spawned processes, compared with the function that keeps no tables."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch
from sinusoid_reference import ALL, widths

from hf_posenc.positions import SinusoidalPositionalEncoding, clear_cache, sinusoidal_encoding


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
