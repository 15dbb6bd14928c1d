"""Errors of float32 position tables, ours and peers': `python -m tests.programs.benchmarks.accuracy`.

The reference is the formula in float64 with frequencies of 50 digits, which errs by 3e-10 at most up to position
1,000,000; `check_reference` compares it with mpmath. Rows in bfloat16 and times are those of tables of 8,192 rows.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import mpmath
import numpy as np
import torch

from hf_posenc import SinusoidalPositionalEncoding, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, clear_cache

from .peers import PEERS, Peer

WIDTH = 512
LAST_POSITIONS = (512, 8_192, 131_072, 1_000_000)
DISTINCT = 8_192
REFERENCE_ERROR = 3e-10
DRAWN = 15_360  # rows of a longer table that are compared, and a fifteenth as many at its end
OURS = "**hf_posenc**, every convention"
HEADER = ("", "follows", *(f"0..{last:,}" for last in LAST_POSITIONS), "distinct rows in bfloat16", "made in")


class Accuracy(NamedTuple):
    """One row of the printed table; errors are `None` for a table that takes too long to compute."""

    name: str
    convention: str
    errors: tuple[float | None, ...]
    distinct: int
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        errors = ["not made" if error is None else f"{error:.0e}" for error in self.errors]
        milliseconds = 1e3 * self.seconds
        shown = f"{milliseconds:,.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"
        return self.name, self.convention, *errors, f"{self.distinct:,}", shown


def positions_to(last: int, drawn: int = DRAWN) -> np.ndarray:
    """Return the positions to compare: all of them, or many drawn ones and the last ones."""
    if last <= drawn:
        return np.arange(last + 1)
    some = np.random.default_rng(last).integers(0, last, drawn)
    return np.unique(np.concatenate([some, np.arange(last + 1 - drawn // 15, last + 1)]))


@functools.cache
def _rates(spacing: str, width: int) -> list[mpmath.mpf]:
    """Return the radians per position of each pair of columns."""
    pairs = width // 2
    with mpmath.workdps(50):
        steps = mpmath.mpf(max(pairs - 1, 1) if spacing == "ends" else pairs)
        return [mpmath.power(10000, -i / steps) for i in range(pairs)]


def _columns(convention: str, width: int) -> tuple[slice, slice]:
    """Return the columns of the sines and those of the cosines, for an even width."""
    kind, half = CONVENTIONS[convention], width // 2
    pair = (slice(0, None, 2), slice(1, None, 2)) if kind.layout == "interleaved" else (slice(half), slice(half, None))
    return (pair[1], pair[0]) if kind.cosine_first else pair


def reference(positions: np.ndarray, width: int, convention: str) -> torch.Tensor:
    """Return the rows `(N, width)` of the formula in float64, without code of the package."""
    rates = torch.tensor([float(rate) for rate in _rates(CONVENTIONS[convention].spacing, width)], dtype=torch.float64)
    angles = torch.from_numpy(positions)[:, None] * rates  # (N, width // 2)
    rows = angles.new_empty(len(positions), width)
    sines, cosines = _columns(convention, width)
    rows[:, sines], rows[:, cosines] = angles.sin(), angles.cos()
    return rows


def check_reference(draws: int = 200) -> float:
    """Return the largest error of `reference` at positions and columns drawn at random, and at the last position."""
    draw, worst = np.random.default_rng(0), 0.0
    for convention in CONVENTIONS:
        positions = np.append(draw.integers(0, LAST_POSITIONS[-1], draws - 1), LAST_POSITIONS[-1])
        rows, (sines, cosines) = reference(positions, WIDTH, convention), _columns(convention, WIDTH)
        rates = _rates(CONVENTIONS[convention].spacing, WIDTH)
        with mpmath.workdps(50):
            for position, row in zip(positions.tolist(), rows.numpy(), strict=True):
                pair = int(draw.integers(0, WIDTH // 2))
                angle = position * rates[pair]
                for exact, made in ((mpmath.sin(angle), row[sines][pair]), (mpmath.cos(angle), row[cosines][pair])):
                    worst = max(worst, float(abs(exact - mpmath.mpf(float(made)))))
    return worst


def largest_error(rows: torch.Tensor, positions: np.ndarray, convention: str) -> float:
    """Return the largest difference of float32 rows `(N, D)` from the formula."""
    worst = 0.0
    for start in range(0, len(positions), 1_024):
        some = slice(start, start + 1_024)
        exact = reference(positions[some], rows.shape[1], convention)
        worst = max(worst, float((rows[some] - exact).abs().max()))
    return worst


def fastest(make: Callable[[], object], rounds: int) -> float:
    """Return the CPU seconds of the fastest round on one core, which depend little on the load of the machine."""
    threads, found = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for _ in range(rounds):
            began = time.process_time()
            make()
            found.append(time.process_time() - began)
    finally:
        torch.set_num_threads(threads)
    return min(found)


def ours(rounds: int, drawn: int = DRAWN) -> Accuracy:
    """Return the row of this package, with the worst of all conventions."""

    def error(last: int) -> float:
        positions = positions_to(last, drawn)
        where = torch.from_numpy(positions)
        return max(
            largest_error(sinusoidal_encoding(where, WIDTH, convention=name), positions, name) for name in CONVENTIONS
        )

    def from_nothing() -> torch.Tensor:
        clear_cache()
        return sinusoidal_encoding(torch.arange(DISTINCT), WIDTH)

    module = SinusoidalPositionalEncoding(WIDTH).bfloat16()
    halved = module(torch.zeros(1, DISTINCT, WIDTH, dtype=torch.bfloat16))[0]
    errors = tuple(error(last) for last in LAST_POSITIONS)
    return Accuracy(OURS, "each", errors, len(torch.unique(halved, dim=0)), fastest(from_nothing, rounds))


def of_peer(peer: Peer, rounds: int) -> Accuracy:
    """Return the row of a peer. Its tables are computed one at a time, because the longest takes gigabytes."""
    errors: list[float | None] = []
    for last in LAST_POSITIONS:
        if peer.slow and last > DISTINCT:
            errors.append(None)
            continue
        positions = positions_to(last)
        rows = peer.rows(last + 1, WIDTH, torch.float32)[torch.from_numpy(positions)]
        errors.append(largest_error(rows, positions, peer.convention))
    halved = peer.rows(DISTINCT, WIDTH, torch.bfloat16)
    seconds = fastest(lambda: peer.rows(DISTINCT, WIDTH, torch.float32), 1 if peer.slow else rounds)
    name = f"{peer.package} {peer.version}: {peer.name}" if peer.package else peer.name
    return Accuracy(name, peer.convention, tuple(errors), len(torch.unique(halved, dim=0)), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.benchmarks.accuracy")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    worst = check_reference()
    if worst > REFERENCE_ERROR:
        raise SystemExit(f"the reference itself errs by {worst:.1e}")
    lines = [ours(given.rounds), *(of_peer(peer, given.rounds) for peer in PEERS)]
    rows = [HEADER, ("---",) * len(HEADER), *(line.cells() for line in lines)]
    print(*(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows), sep="\n")
    print(f"\nthe reference errs by {worst:.0e}")


if __name__ == "__main__":
    main()
