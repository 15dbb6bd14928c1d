"""Exactness of every number of the encoding: the formula in mpmath, with 50 decimal places.

The bound: the exact value rounded once (0.51 units in the last place) in 32 and 16 bits, two units of 1 in float64.
"""

from __future__ import annotations

import math
import random
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from looping import slow
from sinusoid_reference import DIGITS, FORMATS, FORMULAS, named, sweep, units, value, worst_of

from hf_posenc import fixed_bases
from hf_posenc.positions import CONVENTIONS, Convention, frequencies, round_once, sinusoidal_encoding

LOW = list(FORMATS)
# 0.51 is documented; the bound is tighter to detect a second rounding to 16 bits, which adds at least 2**-17.
BOUND = {**dict.fromkeys(LOW, 0.5 + 2**-20), torch.float64: 2.0}
# Numerators of the continued fraction of π: integer positions at which sin(p) is nearest to zero.
NEAR_ZERO = [22, 355, 103993, 104348, 5419351, 80143857, 245850922, 411557987, 1068966896]


def any_convention(chosen: random.Random) -> tuple[Convention, int, float | None]:
    """Draw a convention, a width and a base: a preset, or random fields."""
    width = round(2 ** chosen.uniform(0, 11))
    base = chosen.choice([None, 10000.0, 500, 10 ** chosen.uniform(0.01, 12), 2.0 ** chosen.randint(1, 40)])
    kind = chosen.randrange(4)
    if kind == 0:
        return chosen.choice(list(CONVENTIONS.values())), width, base
    layout, spacing = chosen.choice(["interleaved", "halves"]), chosen.choice(["width", "ends"])
    settings: dict[str, Any] = {"layout": layout, "spacing": spacing, "cosine_first": chosen.random() < 0.5}
    if kind == 1:
        return Convention("drawn", **settings), width, base
    if kind == 2:
        shortest = 10 ** chosen.uniform(-1, 2)
        return (
            Convention("drawn", **settings, wavelengths=(shortest, shortest * 10 ** chosen.uniform(0.1, 8))),
            width,
            None,
        )
    bases = [chosen.choice([chosen.randint(2, 2000), chosen.uniform(1.1, 1e6)]) for _ in range(min(width, 40))]
    return (
        Convention("drawn", layout=layout, cosine_first=settings["cosine_first"], bases=tuple(bases)),
        2 * len(bases),
        None,
    )


def any_positions(chosen: random.Random, count: int) -> torch.Tensor:
    """Draw integers up to 2**31, small and large, of both signs; or fractions up to 2**40."""
    if chosen.random() < 0.5:
        whole = [chosen.randrange(2 ** chosen.randint(1, 31)) for _ in range(count)]
        return torch.tensor(
            [2**31 - each if chosen.random() < 0.1 else each * chosen.choice([1, 1, -1]) for each in whole]
        )
    real = [2 ** chosen.uniform(-40, 40) * chosen.choice([1, -1]) for _ in range(count)]
    return torch.tensor([round(each, 3) if chosen.random() < 0.3 else each for each in real], dtype=torch.float64)


def worst(
    convention: Convention, width: int, base: float | None, positions: torch.Tensor, columns: list[int]
) -> dict[torch.dtype, float]:
    """Return the largest error in one column of each position, by dtype."""
    found = dict.fromkeys(BOUND, 0.0)
    rows = {
        dtype: sinusoidal_encoding(positions, width, convention=convention, base=base, dtype=dtype).double().tolist()
        for dtype in BOUND
    }
    with mpmath.workdps(DIGITS):
        for row, (position, column) in enumerate(zip(positions.tolist(), columns, strict=True)):
            exact = value(convention, width, base, position, column)
            for dtype, numbers in rows.items():
                found[dtype] = max(found[dtype], units(numbers[row][column], exact, dtype))
    return found


def assert_bounded(found: dict[torch.dtype, float]) -> None:
    print({str(dtype).removeprefix("torch."): round(error, 5) for dtype, error in found.items()})
    for dtype, error in found.items():
        assert error <= BOUND[dtype], (dtype, error)


def test_four_thousand_draws_of_position_column_width_base_and_convention() -> None:
    chosen, most = random.Random(1), dict.fromkeys(BOUND, 0.0)
    for _ in range(200):
        convention, width, base = any_convention(chosen)
        columns = [chosen.randrange(width) for _ in range(20)]
        for dtype, error in worst(convention, width, base, any_positions(chosen, 20), columns).items():
            most[dtype] = max(most[dtype], error)
    assert_bounded(most)


@pytest.mark.parametrize("convention", FORMULAS, ids=named)
def test_integer_positions_where_a_sine_or_cosine_is_almost_zero(convention: Convention) -> None:
    """The zeros of sin(p) itself, and of every other column, by the continued fraction of its half turn."""
    width = 12 if convention.bases is None else 6
    near = NEAR_ZERO + [p // 2 for p in NEAR_ZERO] + [2**31 - 1, 2**31]
    for column in range(width):
        positions = torch.tensor(near + list(range(140)))
        assert_bounded(worst(convention, width, None, positions, [column] * len(positions)))


def test_bases_chosen_so_that_a_sine_or_cosine_is_almost_zero() -> None:
    """The worst case of 53 bits: a base with p / base^(2i/D) next to a multiple of π/2."""
    chosen = random.Random(5)
    for _ in range(300):
        width, quarters = 2 * chosen.randint(2, 64), chosen.randint(1, 9)
        pair, position = chosen.randrange(1, width // 2), chosen.randrange(100, 2 ** chosen.randint(8, 22))
        base = float((position / (quarters * math.pi / 2)) ** (width / (2 * pair)))
        if 1 < base < 1e300:
            with mpmath.workdps(DIGITS):
                nearest = mpmath.power(position / (quarters * mpmath.pi / 2), mpmath.mpf(width) / (2 * pair))
            column = 2 * pair + quarters % 2
            assert_bounded(worst(CONVENTIONS["vaswani"], width, float(nearest), torch.tensor([position]), [column]))


def test_fixed_bases_next_to_a_divisor_of_a_position() -> None:
    """p / b as near to a half turn as float64 allows: b · turns = 2p + 2**-50 has a p for any odd number of turns."""
    chosen, tried = random.Random(6), 0
    for _ in range(300):
        turns = chosen.randrange(3, 2 ** chosen.randint(3, 29), 2)
        position = -pow(2**51, -1, turns) % turns + turns * chosen.randint(1, 3)
        bits = (position * 2**51 + 1) // turns
        if bits.bit_length() == 52 or (bits.bit_length() == 53 and bits % 2 == 0):
            base = math.ldexp(bits, -50)
            assert bits * turns == position * 2**51 + 1
            tried += 1
            for column in (0, 1):
                assert_bounded(worst(fixed_bases(base), 2, None, torch.tensor([position, 2 * position]), [column] * 2))
    assert tried > 50


def test_multiples_of_a_turn_and_of_a_quarter_turn_are_exact() -> None:
    for base in (3, 4, 5, 7, 12, 44, 1000, 4097, 2**20 + 4, 2.5):
        step = int(base * 2)
        times = torch.tensor([0, 1, 2, 3, 500, 2**31 // step - 1, -7])
        rows = sinusoidal_encoding(times * step, 2, convention=fixed_bases(base))
        assert torch.equal(rows, torch.tensor([[0.0, 1.0]]).expand(7, -1)), base
        if base % 4 == 0:
            rows = sinusoidal_encoding(times * base + base // 4, 2, convention=fixed_bases(base))
            assert torch.equal(rows, torch.tensor([[1.0, 0.0]]).expand(7, -1)), base
    ours = sinusoidal_encoding(torch.arange(5), 4, convention=Convention("seconds", wavelengths=(4.0, 64.0)))
    assert ours[:, 0].tolist() == [0, 1, 0, -1, 0]
    assert ours[:, 1].tolist() == [1, 0, -1, 0, 1]


@pytest.mark.parametrize("dtype", LOW)
def test_subnormal_values_are_rounded_once_too(dtype: torch.dtype) -> None:
    """The smallest unit is 2**-24 in float16, 2**-133 in bfloat16, 2**-149 in float32."""
    digits, least = FORMATS[dtype]
    smallest = least - digits + 1
    chosen = random.Random(7)
    positions = [chosen.choice([1, -1]) * 2.0 ** chosen.uniform(smallest - 3, least + 2) for _ in range(300)]
    positions += [1.5 * 2.0**smallest, 0.5 * 2.0**smallest, 0.50001 * 2.0**smallest]
    found = worst(CONVENTIONS["vaswani"], 4, 1e8, torch.tensor(positions, dtype=torch.float64), [0] * len(positions))
    assert 0.4 < found[dtype] <= BOUND[dtype]
    steep = worst(CONVENTIONS["vaswani"], 6, 1e60, torch.arange(1, 2000), [4] * 1999)
    assert_bounded(steep)


# Orders of many positions, made from a run of them.
ORDERS: dict[str, Any] = {
    "run": lambda run: run,
    "reversed": lambda run: run.flip(0),
    "shuffled": lambda run: run[torch.randperm(len(run), generator=torch.Generator().manual_seed(0))],
    "restarting": lambda run: run[:90].repeat(4),
    "with gaps": lambda run: torch.cat([run[:100], run[130:]]),
    "every seventh": lambda run: run[0] + 7 * (run - run[0]),
    "drawn": lambda run: run[torch.randint(len(run), (400,), generator=torch.Generator().manual_seed(1))],
    "far apart": lambda run: torch.cat([run[:150], run[150:] + 2.0**30]),
    "quarters": lambda run: run / 4,
    "rows": lambda run: run[:256].view(2, 8, 16).repeat(3, 1, 1),
}


@pytest.mark.parametrize("order", ORDERS)
def test_many_positions_have_the_bits_of_few_of_them(order: str) -> None:
    """Rows of many positions may be products of other rows, or copies; those of a hundred are computed one by one."""
    chosen = random.Random(9)
    for _ in range(40):
        convention, width, base = any_convention(chosen)
        if width < 2**9:  # too few numbers for products
            width *= 2 ** chosen.choice([0, 3, 5]) if convention.bases is None else 1
        length = chosen.choice([256, 257, 320, chosen.randint(256, 600)])
        near = chosen.choice([0, 1, -length // 2, -length])
        first = chosen.choice([near, chosen.randrange(-(2**31), 2**31), 2**31 - length, near + 0.5, near + 0.1])
        positions = ORDERS[order](torch.arange(length, dtype=torch.float64) + first)
        for dtype in BOUND:
            many, *few = (
                sinusoidal_encoding(part, width, convention=convention, base=base, dtype=dtype)
                for part in (positions, *positions.flatten().split(100))
            )
            assert many.shape == (*positions.shape, width)
            same = many.flatten(0, -2).view(torch.uint8).equal(torch.cat(few).view(torch.uint8))
            assert same, (convention, width, base, first, length, dtype)


@pytest.mark.parametrize("convention", [FORMULAS[0], *map(slow, FORMULAS[1:])], ids=named)
def test_every_row_to_131072(convention: Convention) -> None:
    width = 7 if convention.bases is None else 6
    exact = sweep(convention, width, 131_073)
    found = {}
    for dtype in BOUND:
        ours = sinusoidal_encoding(torch.arange(131_073), width, convention=convention, dtype=dtype)
        found[dtype] = worst_of(ours, exact)
    assert_bounded(found)


def test_both_references_agree() -> None:
    chosen = random.Random(8)
    for convention in FORMULAS:
        width = 9 if convention.bases is None else 6
        exact = sweep(convention, width, 5000)
        with mpmath.workdps(DIGITS):
            for _ in range(60):
                row, column = chosen.randrange(5000), chosen.randrange(width)
                error = mpmath.mpf(str(exact[row, column])) - value(convention, width, None, row, column)
                assert abs(error) < 4 * float(np.finfo(np.longdouble).eps)


def test_frequencies_are_the_nearest_float64() -> None:
    for width, base in ((512, None), (7, 500.0), (64, 1e6)):
        with mpmath.workdps(50):
            exact = [mpmath.power(base or 10000, -mpmath.mpf(2 * i) / width) for i in range((width + 1) // 2)]
            assert frequencies(width, base=base).tolist() == [float(each) for each in exact]


@given(st.floats(-1, 1, allow_subnormal=False))
def test_sixteen_bits_are_rounded_once(number: float) -> None:
    given_value = torch.tensor(number, dtype=torch.float64)
    for dtype in (torch.bfloat16, torch.float16):
        near = given_value.to(dtype)
        up, down = (torch.nextafter(near, torch.tensor(side, dtype=dtype)) for side in (9.0, -9.0))
        ours = round_once(given_value, dtype)
        best = min(abs(each.double() - given_value) for each in (near, up, down))
        assert abs(ours.double() - given_value) == best
