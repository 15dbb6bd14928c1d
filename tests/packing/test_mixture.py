"""Mixtures compared with what their order must keep: passes over each source, and its share in every stretch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from looping import for_each

from hf_posenc.packing import mixture


def taken(lengths: list[Any], order: Any) -> tuple[Any, Any]:
    """The source and the tokens of each row of an order."""
    sources = np.repeat(np.arange(len(lengths)), [len(each) for each in lengths])
    return sources[order], np.concatenate(lengths)[order]


sources = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any), min_size=1, max_size=4)


@given(sources, st.integers(1, 3000), st.integers(0, 3), st.data())
def test_each_source_is_read_in_passes_and_every_stretch_has_its_share(
    lengths: list[list[int]], tokens: int, seed: int, data: st.DataObject
) -> None:
    shares = np.array(data.draw(st.lists(st.floats(0.05, 9), min_size=len(lengths), max_size=len(lengths))))
    order, epochs = mixture(lengths, shares, tokens, seed=seed)
    assert order.dtype == np.int64
    source, sizes = taken(lengths, order)
    shares = shares / shares.sum()
    longest = np.array([max(each) for each in lengths])
    so_far = np.cumsum(np.eye(len(lengths))[source] * sizes[:, None], axis=0)
    assert (so_far[-1] >= shares * tokens - 1e-6).all()
    assert (so_far[-1] < shares * tokens + longest).all()
    np.testing.assert_allclose(epochs, so_far[-1] / [sum(each) for each in lengths])
    for number, each in enumerate(lengths):
        rows = order[source == number] - sum(map(len, lengths[:number]))
        for begin in range(0, len(rows), len(each)):
            part = rows[begin : begin + len(each)].tolist()
            assert sorted(part) == sorted(set(part))
            assert len(part) == len(each) or begin + len(each) > len(rows)
    # Until the first source has all of its tokens, each has its share to within half a row.
    running = so_far[: min(int(np.flatnonzero(source == number)[-1]) for number in range(len(lengths)))]
    time = running / shares
    half = longest / 2 / shares
    assert ((time - half).max(axis=1, initial=-np.inf) <= (time + half).min(axis=1, initial=np.inf) + 1e-6).all()


def test_a_million_tokens_have_the_shares_to_half_a_percent() -> None:
    """As rows that are drawn with these probabilities do not."""
    draw = np.random.default_rng(1)
    lengths = [
        np.clip(draw.lognormal(mean, 1, count), 4, 8192).astype(int)
        for mean, count in ((4, 40_000), (6, 3_000), (7, 400))
    ]
    order, epochs = mixture(lengths, [5, 3, 2], 6_000_000)
    source, sizes = taken(lengths, order)
    edges = np.searchsorted(np.cumsum(sizes), np.arange(0, 6_000_000, 1_000_000))
    for begin, end in pairwise(edges):
        tokens = np.bincount(source[begin:end], sizes[begin:end])
        np.testing.assert_allclose(tokens / tokens.sum(), [0.5, 0.3, 0.2], atol=0.005)
    assert (epochs > 1).tolist() == [False, False, True]


def test_a_seed_changes_the_order_and_another_source_does_not() -> None:
    lengths = [[3] * 9, [5] * 7, [2] * 8]
    one, other = (mixture(lengths[:2], [1, 1], 60, seed=seed).order.tolist() for seed in (0, 1))
    assert mixture(lengths[:2], [2.5, 2.5], 60).order.tolist() == one != other
    three = mixture(lengths, [1, 1, 1], 90).order.tolist()
    assert [row for row in three if row < 16] == one


def test_a_source_that_is_read_exactly_once_repeats_no_row() -> None:
    """The sum of these shares is 0.9999999999999999."""
    lengths = [[7] * 10, [4] * 5, [1] * 10]
    assert mixture(lengths, [0.7, 0.2, 0.1], 100).epochs.tolist() == [1, 1, 1]


REFUSED: list[Any] = [
    ([[3], [4]], [1, 0], 9, ValueError, ["one for each of the 2 sources", "got: [1, 0]", "shares=[1] * 2"]),
    ([[3], [4]], [1, float("nan")], 9, ValueError, ["shares must be positive numbers"]),
    ([[3], [4]], [1, float("inf")], 9, ValueError, ["shares must be positive numbers"]),
    ([[3], [4]], ["a", "b"], 9, ValueError, ["shares must be positive numbers"]),
    ([[3], [4]], [1], 9, ValueError, ["shares must be positive numbers", "[1] * 2"]),
    ([], [], 9, ValueError, ["each source must have tokens", "got: no sources"]),
    ([[3], []], [1, 1], 9, ValueError, ["each source must have tokens", "0 in the 0 rows of source 1"]),
    ([[0, 0], [4]], [1, 1], 9, ValueError, ["each source must have tokens", "0 in the 2 rows of source 0"]),
    ([[3], [4, -1]], [1, 1], 9, ValueError, ["lengths[1] must not be negative", "-1 at index 1"]),
    ([[3], [4.5]], [1, 1], 9, TypeError, ["lengths[1] must be a flat list of integers"]),
    ([3, 4], [1, 1], 9, TypeError, ["lengths[0] must be a flat list of integers"]),
    ([[3], [4]], [1, 1], 0, ValueError, ["tokens must be positive", "tokens=1000000"]),
    ([[3], [4]], [1, 1], 1.5, TypeError, ["tokens must be an integer"]),
]


@for_each(("lengths", "shares", "tokens", "kind", "words"), REFUSED)
def test_impossible_mixtures_are_refused(
    lengths: Any, shares: Any, tokens: Any, kind: type[Exception], words: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        mixture(lengths, shares, tokens)
    for word in words:
        assert word in str(caught.value)
    assert str(caught.value).count("\n") == 2
