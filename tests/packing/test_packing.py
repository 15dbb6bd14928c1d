"""Packing compared with best-fit decreasing written as a loop over documents, and with what every plan must keep."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from looping import for_each

from hf_posenc.documents import documents_by_positions
from hf_posenc.packing import PackingPlan, pack


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int]:
    """Lengths that fit, and a capacity; often with many equal ones."""
    capacity = draw(st.integers(1, 40))
    return draw(st.lists(st.integers(1, capacity), max_size=60)), capacity


seeds = st.one_of(st.none(), st.integers(0, 3))


def free_space_of_best_fit_decreasing(lengths: list[int], capacity: int) -> list[int]:
    """One document at a time: into the row with the least free space that still holds it."""
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row, space in enumerate(free) if space >= length]
        if fitting:
            free[min(fitting, key=free.__getitem__)] -= length
        else:
            free.append(capacity - length)
    return free


@given(problems(), seeds)
def test_the_rows_are_filled_as_by_best_fit_decreasing_one_document_at_a_time(
    problem: tuple[list[int], int], seed: int | None
) -> None:
    lengths, capacity = problem
    plan = pack(lengths, capacity, seed=seed)
    expected = free_space_of_best_fit_decreasing(lengths, capacity)
    assert len(plan) == len(expected)
    assert sorted(capacity - plan.row_lengths) == sorted(expected)


@given(problems(), seeds)
def test_every_document_stands_in_exactly_one_row_and_no_row_is_over_capacity(
    problem: tuple[list[int], int], seed: int | None
) -> None:
    lengths, capacity = problem
    plan = pack(lengths, capacity, seed=seed)
    rows = list(plan)
    assert sorted(document for row in rows for document in row.tolist()) == list(range(len(lengths)))
    assert len(rows) == len(plan) == len(plan.row_offsets) - 1
    assert all(len(row) >= 1 for row in rows)
    assert [sum(lengths[document] for document in row) for row in rows] == plan.row_lengths.tolist()
    assert max(plan.row_lengths, default=0) <= capacity
    for array in (plan.order, plan.row_offsets, plan.row_lengths, *rows):
        assert array.dtype == np.int64


@given(problems(), seeds)
def test_the_figures_of_a_plan_add_up(problem: tuple[list[int], int], seed: int | None) -> None:
    lengths, capacity = problem
    plan = pack(lengths, capacity, seed=seed)
    assert plan.padding == sum(capacity - row for row in plan.row_lengths.tolist())
    assert plan.utilisation == (sum(lengths) / (len(plan) * capacity) if lengths else 1.0)


@given(problems(), st.integers(0, 5))
def test_a_seed_gives_the_same_plan_every_time_and_any_seed_as_many_rows(
    problem: tuple[list[int], int], seed: int
) -> None:
    lengths, capacity = problem
    first, second = pack(lengths, capacity, seed=seed), pack(lengths, capacity, seed=seed)
    assert np.array_equal(first.order, second.order)
    assert np.array_equal(first.row_offsets, second.row_offsets)
    assert len(first) == len(pack(lengths, capacity))


def test_a_seed_shuffles_the_rows_and_documents_of_equal_length() -> None:
    lengths = [7] * 50 + [3] * 50
    plain, one, two = pack(lengths, 10, seed=None), pack(lengths, 10, seed=1), pack(lengths, 10, seed=2)
    assert not np.array_equal(one.order, two.order)
    assert plain.order.tolist() == [document for row in range(50) for document in (row, row + 50)]
    assert [sorted(row) for row in one] != [sorted(row) for row in plain]  # other partners, too
    assert pack([7] * 50, 350, seed=1).order.tolist() != list(range(50))  # within a row as well
    assert pack(range(51, 100), 99).row_lengths.tolist() != [*range(99, 50, -1)]  # one document in a row
    assert one.utilisation == 1.0
    assert pack(lengths, 10).order.tolist() == pack(lengths, 10, seed=0).order.tolist() != plain.order.tolist()


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 20))
def test_splitting_keeps_every_token_once_and_in_order(lengths: list[int], capacity: int) -> None:
    plan = pack(lengths, capacity, too_long="split")
    document, start, length = plan.documents, plan.starts, plan.lengths
    assert document is not None
    assert start is not None
    tokens = [
        (d, token) for d, s, n in zip(document, start, length, strict=True) for token in range(int(s), int(s + n))
    ]
    assert tokens == [(d, token) for d, n in enumerate(lengths) for token in range(n)]
    assert all(1 <= n <= capacity for n in length)
    assert len(document) == sum(math.ceil(n / capacity) for n in lengths)
    assert {array.dtype for array in (document, start, length)} == {np.dtype(np.int64)}
    assert plan.row_lengths.max(initial=0) <= capacity
    assert sorted(plan.order) == list(range(len(document)))


def test_a_million_documents_pack_into_almost_as_few_rows_as_there_can_be() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(4.7, 1.0, 1_000_000).astype(int), 1, 2048)
    plan = pack(lengths, 2048)
    assert len(plan) <= 1.0005 * math.ceil(lengths.sum() / 2048)


def test_a_capacity_beyond_16_bits_packs_as_well() -> None:
    lengths = np.random.default_rng(0).integers(1, 100_000, 400)
    for capacity in (100_000, 10**12):
        expected = free_space_of_best_fit_decreasing(lengths.tolist(), capacity)
        assert sorted(capacity - pack(lengths, capacity).row_lengths) == sorted(expected)


def test_a_plan_stays_as_it_is_when_rows_or_lengths_are_written_to() -> None:
    lengths = np.array([5, 3, 8])
    plan = pack(lengths, 8)
    before = repr(plan), [row.tolist() for row in plan]
    for row in plan:
        row[:] = 0
    lengths[:] = 1
    assert (repr(plan), [row.tolist() for row in plan]) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.capacity = 9  # type: ignore[misc]
    assert isinstance(plan, PackingPlan)


REFUSED: list[tuple[Any, type[Exception], list[str]]] = [
    (
        lambda: pack([5, 3, 12, 11], 10),
        ValueError,
        ["document 2 has 12 tokens, a row holds 10", "2 of 4 documents", 'too_long="split"'],
    ),
    (lambda: pack([5, 0, -3], 10), ValueError, ["lengths must be at least 1", "0 at index 1, 2 such of 3"]),
    (lambda: pack([5], 0), ValueError, ["capacity must be positive", "got: 0"]),
    (lambda: pack([5.0], 8), TypeError, ["lengths must be a flat list of integers", "float64"]),
    (lambda: pack([[5, 3]], 8), TypeError, ["lengths must be a flat list of integers", "2-dimensional"]),
    (lambda: pack({"input_ids": [[5]]}, 8), TypeError, ["flat list of integers", "got: dict", 'dataset["length"]']),  # type: ignore[arg-type]
    (lambda: pack([5], 8, too_long="cut"), ValueError, ["one of 'error', 'split'", "'cut'"]),
    (lambda: pack([5], 8, seed=-1), ValueError, ["seed must not be negative", "got: -1"]),
]


@for_each(("call", "kind", "words"), REFUSED)
def test_impossible_packings_are_refused_with_the_numbers(call: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def documents_of_rows(rows: list[list[int]], is_packed: bool) -> list[int] | None:
    """The rule of `documents_by_positions`, token by token."""
    starts = []
    for row in rows:
        falls = [i for i in range(1, len(row)) if row[i] < row[i - 1]]
        starts.append(falls if all(row[i] == min(row) for i in falls) else [])
    numbers = []
    for row, falls in zip(rows, starts, strict=True):
        after = range(1, len(row))
        counts_by_ones = (falls or is_packed) and all(row[i] in (row[i - 1] + 1, min(row)) for i in after)
        begins = [i for i in after if row[i] == min(row)] if counts_by_ones else falls
        numbers += [sum(begin <= i for begin in begins) for i in range(len(row))]
    return numbers if any(numbers) else None


@given(rows=st.lists(st.lists(st.integers(0, 3), max_size=7), max_size=4), is_packed=st.booleans())
@settings(max_examples=300)
@example(rows=[[0, 1, 0, 0, 1], [0, 0, 1]], is_packed=False)  # a document of one token; and a row that does not fall
@example(rows=[[0, 0, 1]], is_packed=True)
@example(rows=[[0, 1, 0], [0, 1, 1, 2]], is_packed=False)  # a word of two tokens
@example(rows=[[0, 1, 0, 0, 2], [], [0, 2, 1, 0]], is_packed=False)
@example(rows=[[5, 6, 5, 7], [0, 1, 2]], is_packed=False)
def test_a_document_begins_where_positions_fall_back_to_the_smallest_of_their_row(
    rows: list[list[int]], is_packed: bool
) -> None:
    tokens = np.array([position for row in rows for position in row], dtype=np.int64)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    found = documents_by_positions(tokens, lengths, is_packed=is_packed)
    assert (None if found is None else found.tolist()) == documents_of_rows(rows, is_packed)
