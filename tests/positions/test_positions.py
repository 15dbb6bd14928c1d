"""Position ids compared with a loop over tokens, in torch and in NumPy, and refused arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from looping import for_each

from hf_posenc.positions import position_ids_from_documents, position_ids_from_lengths, position_ids_from_mask

KINDS = [torch.tensor, np.array]


def count_by_hand(mask: list[list[int]], start: int) -> list[list[int]]:
    rows = []
    for row in mask:
        seen, ids = start, []
        for real in row:
            ids.append(seen if real else start)
            seen += real
        rows.append(ids)
    return rows


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_mask_counts_real_tokens_wherever_the_padding_is(kind: Any, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 9))
    mask = data.draw(st.lists(st.lists(st.integers(0, 1), min_size=length, max_size=length), min_size=1, max_size=4))
    start = data.draw(st.integers(-3, 5))
    array = kind(mask).reshape(len(mask), length)
    expected = count_by_hand(mask, start)
    for given_mask in (array, array == 1):
        ids = position_ids_from_mask(given_mask, start=start)
        assert type(ids) is type(array)
        assert ids.dtype in (torch.int64, np.int64)
        assert ids.tolist() == expected


@pytest.mark.parametrize("kind", [*KINDS, list])
@pytest.mark.parametrize("side", ["left", "right"])
@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=4), spare=st.integers(0, 2), start=st.integers(-2, 3))
def test_ids_of_lengths_equal_those_of_the_mask(
    kind: Any, side: Any, lengths: list[int], spare: int, start: int
) -> None:
    width = max(lengths) + spare
    mask = [[1] * n + [0] * (width - n) if side == "right" else [0] * (width - n) + [1] * n for n in lengths]
    ids = position_ids_from_lengths(kind(lengths), width, start=start, padding_side=side)
    assert isinstance(ids, np.ndarray if kind is np.array else torch.Tensor)
    assert ids.shape == (len(lengths), width)
    assert ids.dtype in (torch.int64, np.int64)
    assert ids.tolist() == count_by_hand(mask, start)


@pytest.mark.parametrize("kind", [*KINDS, list])
def test_positions_restart_at_every_document_of_a_packed_row(kind: Any) -> None:
    ids = position_ids_from_documents([kind([3, 0, 2]), kind([1])], 6, start=2)
    assert isinstance(ids, np.ndarray if kind is np.array else torch.Tensor)
    assert ids.tolist() == [[2, 3, 4, 2, 3, 2], [2, 2, 2, 2, 2, 2]]
    assert position_ids_from_documents([kind([3]), kind([1])]).tolist() == position_ids_from_lengths([3, 1]).tolist()


def test_an_empty_batch_has_empty_ids() -> None:
    assert position_ids_from_mask(torch.ones(0, 4)).shape == (0, 4)
    assert position_ids_from_lengths([]).shape == (0, 0)
    assert position_ids_from_documents([]).shape == (0, 0)
    assert position_ids_from_documents([[], []]).shape == (2, 0)


def test_the_mask_is_not_changed() -> None:
    mask = torch.tensor([[0, 1, 1]])
    position_ids_from_mask(mask).fill_(7)
    assert mask.tolist() == [[0, 1, 1]]


@for_each(
    ("call", "error", "words"),
    [
        (lambda: position_ids_from_mask(torch.ones(3)), ValueError, r"\(batch, length\)[\s\S]*\(3,\)[\s\S]*mask\[None"),
        (
            lambda: position_ids_from_mask(torch.ones(1, 1, 3, 3)),
            ValueError,
            r"got: shape \(1, 1, 3, 3\)\n  fix: pass the",
        ),
        (
            lambda: position_ids_from_mask(torch.tensor([[1, 0], [1, 2]])),
            ValueError,
            "0 and 1\n  got: 2 in row 1, column 1",
        ),
        (
            lambda: position_ids_from_mask(np.array([[0.0, -5.0]])),
            ValueError,
            r"-5\.0 in row .*\n  fix: attention_mask == 0",
        ),
        (lambda: position_ids_from_mask(torch.ones(1, 2), start=0.5), TypeError, "start must be an integer"),
        (
            lambda: position_ids_from_lengths([1.5]),
            TypeError,
            r"flat list of integers\n  got: list \[1\.5\], .*\n  fix: pos",
        ),
        (
            lambda: position_ids_from_lengths([3, -1]),
            ValueError,
            "must not be negative\n  got: -1 at index 1\n  fix: pos",
        ),
        (
            lambda: position_ids_from_lengths([3, 9, 5], 4),
            ValueError,
            "row 1 has 9 .* is 4\n  got: 2 of 3 .*\n  fix: .*=9",
        ),
        (lambda: position_ids_from_lengths([1], padding_side="top"), ValueError, r"'left', 'right'\n.*'top'"),
        (lambda: position_ids_from_documents([5, 9]), TypeError, r"lengths of row 0[\s\S]*\[\[3, 2\], \[4\]\]"),
    ],
)
def test_wrong_arguments_are_refused_with_their_values(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
