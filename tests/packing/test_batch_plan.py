"""Plans of batches compared with what every plan must keep, and with the figures to reach."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from looping import for_each

from hf_posenc import plan_batches
from hf_posenc.packing import BatchPlan

BUDGET = 8192


def real_looking(count: int, seed: int = 0) -> np.ndarray:
    """Log-normal lengths, 180 tokens on average, at most 2,048."""
    return np.clip(np.random.default_rng(seed).lognormal(4.7, 1.0, count).astype(int), 1, 2048)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    """Lengths and settings for which there is a plan: a budget that holds the longest, documents for every rank."""
    lengths = draw(st.lists(st.integers(1, 30), max_size=60))
    multiple_of = draw(st.one_of(st.none(), st.integers(1, 8)))
    widest = 30 if multiple_of is None else -(-30 // multiple_of) * multiple_of
    ranks = draw(st.integers(1, 4))
    settings: dict[str, Any] = {
        # Up to three batches of one document each may have to be split, which one document cannot be.
        "token_budget": draw(st.integers(widest if len(lengths) % ranks == 0 else 10**6, 10**6 + 100)),
        "window": draw(st.integers(1, 80)),
        "seed": draw(st.integers(0, 3)),
        "epoch": draw(st.integers(0, 3)),
        "world_size": ranks,
        "multiple_of": multiple_of,
    }
    if 0 < len(lengths) < ranks:
        lengths += [1] * (ranks - len(lengths))
        settings["token_budget"] = 10**6
    return lengths, settings


def plan_of(problem: tuple[list[int], dict[str, Any]], **more: Any) -> BatchPlan:
    lengths, settings = problem
    return plan_batches(lengths, **(settings | more))


def waiting(costs: np.ndarray, ranks: int) -> float:
    """How much longer steps take because all ranks wait for the one with the most expensive batch."""
    steps = costs.reshape(-1, ranks)
    return float(steps.max(axis=1).sum() / steps.mean(axis=1).sum())


def as_lists(plan: BatchPlan) -> list[list[int]]:
    return [batch.tolist() for batch in plan]


@given(problems())
def test_every_document_is_in_exactly_one_batch_and_no_batch_is_over_budget(
    problem: tuple[list[int], dict[str, Any]],
) -> None:
    lengths, settings = problem
    plan = plan_of(problem)
    batches = as_lists(plan)
    assert sorted(document for batch in batches for document in batch) == list(range(len(lengths)))
    assert all(batches)
    for batch, width in zip(batches, plan.widths.tolist(), strict=True):
        assert max(lengths[document] for document in batch) <= width
        assert width * len(batch) <= settings["token_budget"]


@given(problems())
def test_every_rank_has_the_same_number_of_batches_and_together_they_have_every_document(
    problem: tuple[list[int], dict[str, Any]],
) -> None:
    ranks = problem[1]["world_size"]
    whole = plan_of(problem)
    parts = [plan_of(problem, rank=rank) for rank in range(ranks)]
    assert {len(part) for part in parts} == {whole.steps}
    assert len(whole) == ranks * whole.steps
    dealt = [batch for step in zip(*map(as_lists, parts), strict=True) for batch in step]
    assert dealt == as_lists(whole)
    assert all(as_lists(whole.for_rank(rank)) == as_lists(part) for rank, part in enumerate(parts))


@given(problems(), st.integers(0, 5), st.integers(0, 5))
def test_every_epoch_and_seed_has_the_same_number_of_steps(
    problem: tuple[list[int], dict[str, Any]], seed: int, epoch: int
) -> None:
    assert len(plan_of(problem, seed=seed, epoch=epoch)) == len(plan_of(problem))


@given(problems())
def test_the_first_step_has_the_batch_with_the_most_rows_times_their_squared_length(
    problem: tuple[list[int], dict[str, Any]],
) -> None:
    plan = plan_of(problem)
    demand = [len(batch) * int(plan.lengths[batch].max()) ** 2 for batch in plan]
    assert max(demand[: plan.world_size], default=0) == max(demand, default=0)


@given(problems())
def test_the_figures_of_a_plan_are_those_of_its_batches(problem: tuple[list[int], dict[str, Any]]) -> None:
    lengths, settings = problem
    plan = plan_of(problem)
    step = settings["multiple_of"] or 1
    widths = [-(-max(lengths[document] for document in batch) // step) * step for batch in as_lists(plan)]
    assert plan.widths.tolist() == widths
    places = sum(width * len(batch) for width, batch in zip(widths, as_lists(plan), strict=True))
    assert plan.documents == len(lengths)
    assert plan.tokens == sum(lengths)
    assert plan.padding == places - sum(lengths)
    assert plan.utilisation == (sum(lengths) / places if lengths else 1.0)


@given(problems(), st.data())
def test_a_plan_goes_on_from_any_step_without_copying(
    problem: tuple[list[int], dict[str, Any]], data: st.DataObject
) -> None:
    rank = data.draw(st.one_of(st.none(), st.integers(0, problem[1]["world_size"] - 1)))
    plan = plan_of(problem, rank=rank)
    step = data.draw(st.integers(0, plan.steps))
    rest = plan.from_step(step)
    done = step * (plan.world_size if rank is None else 1)
    assert as_lists(rest) == as_lists(plan)[done:]
    assert rest.steps == plan.steps - step
    assert rest.order is plan.order
    assert np.shares_memory(rest.batch_offsets, plan.batch_offsets)
    assert rest.tokens + sum(problem[0][document] for batch in as_lists(plan)[:done] for document in batch) == (
        plan.tokens
    )


def test_batches_are_planned_by_a_given_cost() -> None:
    lengths = real_looking(3000)
    plan = plan_batches(lengths, BUDGET, cost=lambda width: width + width**2 / 4096, world_size=4)
    widths, rows = plan.widths, np.diff(plan.batch_offsets)
    costs = rows * (widths + widths**2 / 4096)
    assert costs.max() <= BUDGET
    long = widths > 1024
    assert (rows[long] * widths[long]).max() < 0.85 * BUDGET  # long rows take attention's room as well
    assert waiting(costs, 4) <= 1.08


def test_a_cost_may_be_below_one_or_the_same_for_all_lengths() -> None:
    lengths = [5, 3, 8, 2, 4, 4]
    assert as_lists(plan_batches(lengths, 3, cost=lambda width: width / 4)) == as_lists(plan_batches(lengths, 12))
    assert sorted(map(len, plan_batches(lengths, 4, cost=np.ones_like))) == [2, 4]


@given(st.lists(st.integers(1, 30), min_size=4, max_size=9), st.integers(2, 4))
@example([6, 6, 4, 4, 4], 3)  # no less than the whole budget is enough
def test_documents_are_divided_so_that_the_largest_batch_is_smallest(lengths: list[int], ranks: int) -> None:
    longest_first = sorted(lengths, reverse=True)
    divided = (
        [longest_first[start:stop] for start, stop in itertools.pairwise((0, *cuts, len(lengths)))]
        for cuts in itertools.combinations(range(1, len(lengths)), ranks - 1)
    )
    least = min(max(len(batch) * batch[0] for batch in batches) for batches in divided)
    for budget in (300, least):  # 300 is enough for all documents in one batch
        plan = plan_batches(lengths, budget, world_size=ranks)
        assert (plan.widths * np.diff(plan.batch_offsets)).max() == least


def test_lengths_are_not_sorted_over_time_nor_over_ranks_and_a_step_has_many() -> None:
    plan = plan_batches(real_looking(20_000), BUDGET, world_size=8, window=5000)
    steps = plan.widths.reshape(-1, 8)
    for index in np.indices(steps.shape):  # of time, of ranks
        assert abs(np.corrcoef(index.ravel(), steps.ravel())[0, 1]) < 0.15  # 464 batches: chance alone gives about 0.05
    assert steps.std(axis=1, ddof=1).mean() > 0.8 * steps.std()


def test_epochs_differ_in_their_order_and_in_who_is_in_a_batch_with_whom() -> None:
    lengths = real_looking(20_000)
    first, second = (plan_batches(lengths, BUDGET, window=2000, epoch=epoch) for epoch in (0, 1))
    assert as_lists(first)[0] != as_lists(second)[0]
    together = [{frozenset(batch) for batch in as_lists(plan)} for plan in (first, second)]
    assert len(together[0] & together[1]) < 0.02 * len(first)
    other_seed = plan_batches(lengths, BUDGET, window=2000, seed=1)
    assert not np.array_equal(first.order, other_seed.order)


def test_no_documents_make_no_batches() -> None:
    for settings in ({}, {"world_size": 8}, {"world_size": 8, "rank": 7}):
        plan = plan_batches([], 8, **settings)
        assert (len(plan), plan.steps, as_lists(plan), plan.tokens, plan.padding) == (0, 0, [], 0, 0)
        assert plan.utilisation == 1.0


def test_a_batch_is_an_array_of_its_own_and_counts_from_either_end() -> None:
    plan = plan_batches([5, 3, 8, 2, 4, 4], 12, seed=1)
    before = as_lists(plan)
    for batch in plan:
        assert batch.dtype == np.int64
        batch[:] = 99
    assert as_lists(plan) == before
    assert plan[-1].tolist() == before[-1] == plan[len(plan) - 1].tolist()
    with pytest.raises(IndexError, match="index out of range"):
        plan[3]
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.rank = 0  # type: ignore[misc]
    assert [batch.tolist() for batch in plan[1:]] == [batch.tolist() for batch in plan][1:]


def test_lengths_beyond_16_bits_are_planned_as_well() -> None:
    lengths = np.random.default_rng(0).integers(1, 10**6, 500)
    plan = plan_batches(lengths, 2 * 10**6, window=100, world_size=3)
    assert sorted(np.concatenate(list(plan)).tolist()) == list(range(500))
    assert (plan.widths * np.diff(plan.batch_offsets)).max() <= 2 * 10**6


@pytest.mark.parametrize("ranks", [1, 2, 8, 64])
def test_padding_is_at_most_six_tenths_of_a_percent_and_ranks_wait_eight_for_the_slowest(ranks: int) -> None:
    plan = plan_batches(real_looking(100_000), BUDGET, window=20_000, world_size=ranks)
    assert waiting(plan.widths * np.diff(plan.batch_offsets), ranks) <= 1.08
    assert 1 - plan.utilisation <= 0.006


REFUSED: list[tuple[Any, type[Exception], list[str]]] = [
    (
        lambda: plan_batches([5, 64, 90, 70], 64),
        ValueError,
        ["document 2 has 90 tokens, a batch may cost 64", "2 of 4 documents", "token_budget=90", "max_length=64"],
    ),
    (
        lambda: plan_batches([5, 61], 62, multiple_of=8),
        ValueError,
        ["document 1 has 61 tokens, 64 with padding, a batch may cost 62", "token_budget=64"],
    ),
    (
        lambda: plan_batches([5, 60], 62, cost=lambda width: 2 * width),
        ValueError,
        ["document 1 has 60 tokens and costs 120, a batch may cost 62", "token_budget=120"],
    ),
    (lambda: plan_batches([5], 0), ValueError, ["token_budget must be positive", "got: 0"]),
    (lambda: plan_batches([5, 0, 1, -1], 8), ValueError, ["lengths must be at least 1", "0 at index 1, 2 such of 4"]),
    (lambda: plan_batches([5], 8, window=0), ValueError, ["window must be positive", "got: 0"]),
    (lambda: plan_batches([5], 8, seed=-1), ValueError, ["seed must not be negative", "got: -1"]),
    (lambda: plan_batches([5], 8, epoch=-2), ValueError, ["epoch must not be negative", "got: -2"]),
    (lambda: plan_batches([5], 8, world_size=0), ValueError, ["world_size must be positive", "got: 0"]),
    (
        lambda: plan_batches([8] * 9, 8, world_size=4),
        ValueError,
        ["9 batches cannot be split into 12, a multiple of the 4 batches of a step", "leave 1 documents out"],
    ),
    (lambda: plan_batches([5], 8, multiple_of=0), ValueError, ["multiple_of must be positive", "got: 0"]),
    (
        lambda: plan_batches([5, 9], 64, cost=lambda width: 10 - width // 3),
        ValueError,
        ["never fall", "7 for 9 tokens, 9 for 5"],
    ),
    (lambda: plan_batches([5], 64, cost=lambda width: width * np.nan), ValueError, ["must be positive", "nan"]),
    (lambda: plan_batches([5], 64, cost=lambda width: 0 * width), ValueError, ["must be positive", "0 for 5 tokens"]),
    (
        lambda: plan_batches([5, 9], 64, cost=lambda width: np.where(width > 5, np.inf, 1)),
        ValueError,
        ["must be positive", "inf for 9 tokens"],
    ),
    (lambda: plan_batches([5], 64, cost=lambda width: 1), TypeError, ["one number for each padded length"]),
    (lambda: plan_batches([5, 5], 8).from_step(3), ValueError, ["the plan has 2 steps", "step 3"]),
]


@for_each(("call", "kind", "words"), REFUSED)
def test_impossible_plans_are_refused_with_the_numbers(call: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_a_plan_shows_its_figures() -> None:
    lengths = [6, 5, 6, 5, 3, 2]
    both = plan_batches(lengths, 12, world_size=2)
    assert repr(both) == (
        "BatchPlan(batches=4, steps=2, world_size=2, documents=6, tokens=27, token_budget=12, padding=0 (0.00 %))"
    )
    assert repr(both.for_rank(1)) == (
        "BatchPlan(batches=2, steps=2, world_size=2, rank=1, documents=3, tokens=12, token_budget=12, "
        "padding=0 (0.00 %))"
    )
