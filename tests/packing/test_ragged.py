"""`Ragged` compared with plain lists of rows, and its padding with a loop written from the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from looping import for_each

from hf_posenc.ragged import Ragged, round_up


def padded(rows: list[list[int]], fill: int, width: int, side: str) -> list[list[int]]:
    """What padding means, row by row."""
    out = []
    for row in rows:
        gap = [fill] * (width - len(row))
        out.append(row + gap if side == "right" else gap + row)
    return out


ROWS = st.lists(st.lists(st.integers(-(2**40), 2**40), max_size=12), max_size=8)
SIDES = st.sampled_from(["left", "right"])


@given(rows=ROWS, fill=st.sampled_from([0, 1, -100]), extra=st.integers(0, 5), side=SIDES)
@example(rows=[[0, 0], [0]], fill=1, extra=0, side="left")
def test_pad_puts_every_row_at_its_side_and_the_fill_everywhere_else(
    rows: list[list[int]], fill: int, extra: int, side: str
) -> None:
    width = max(map(len, rows), default=0) + extra
    assert Ragged.from_rows(rows).pad(fill, width, side=side).tolist() == padded(rows, fill, width, side)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("fill", [0, 7])
def test_long_rows_are_padded_like_short_ones(side: str, fill: int) -> None:
    """Rows of hundreds of values are copied one by one, and those of a few are scattered: two ways, one result."""
    rows = [list(range(1, 401)), list(range(1, 600)), [], list(range(5, 505))]
    assert Ragged.from_rows(rows).pad(fill, side=side).tolist() == padded(rows, fill, 599, side)
    assert Ragged.from_rows(rows).pad(fill, side=side).dtype == np.int64


@pytest.mark.parametrize("length", [2**15, 40_000])
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_beyond_the_range_of_16_bits_are_padded_right(side: str, length: int) -> None:
    rows = [[1] * length, [2] * 3]
    inside = Ragged.from_rows(rows).inside(side=side)
    assert inside.sum(axis=1).tolist() == [length, 3]
    assert inside[1, :3].all() == (side == "right")
    assert inside[1, -3:].all() == (side == "left")


@given(rows=ROWS, side=SIDES)
def test_the_inside_of_a_padded_array_is_the_values(rows: list[list[int]], side: str) -> None:
    ragged = Ragged.from_rows(rows)
    inside = ragged.inside(side=side)
    assert np.array_equal(ragged.pad(0, side=side)[inside], ragged.values)
    assert inside.sum(axis=1).tolist() == [len(row) for row in rows]


@given(rows=ROWS)
def test_iterating_gives_the_rows_back(rows: list[list[int]]) -> None:
    ragged = Ragged.from_rows(rows)
    assert [row.tolist() for row in ragged] == rows
    assert len(ragged) == len(rows)
    assert ragged.longest == max(map(len, rows), default=0)
    assert ragged.shortest == min(map(len, rows), default=0)


@given(rows=ROWS.filter(len), data=st.data())
def test_take_picks_rows_in_any_order_and_more_than_once(rows: list[list[int]], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
    taken = Ragged.from_rows(rows).take(np.array(order, dtype=np.int64))
    assert [row.tolist() for row in taken] == [rows[index] for index in order]


def test_array_rows_of_any_dtype_and_memory_layout_are_copied() -> None:
    every_second, big = np.arange(6)[::2], np.array([7, 8], dtype=">i8")
    for rows in ([every_second, every_second], [big, big], [big, np.array([9], dtype=np.int8)], [every_second, big]):
        made = Ragged.from_rows(rows)
        assert [row.tolist() for row in made] == [row.tolist() for row in rows]
        assert made.values.dtype == np.int64
        made.values[:] = 0  # shares no memory with the rows, and may be written
    assert (every_second.tolist(), big.tolist()) == ([0, 2, 4], [7, 8])


@given(rows=ROWS, start=st.integers(-3, 9))
def test_counters_restart_in_every_row(rows: list[list[int]], start: int) -> None:
    counted = Ragged.from_rows(rows).counters(start)
    assert [row.tolist() for row in counted] == [list(range(start, start + len(row))) for row in rows]


@given(length=st.integers(0, 10_000), multiple=st.integers(1, 512))
def test_rounding_up_is_enough_tight_and_idempotent(length: int, multiple: int) -> None:
    rounded = round_up(length, multiple)
    assert rounded >= length
    assert rounded % multiple == 0
    assert rounded - length < multiple
    assert round_up(rounded, multiple) == rounded
    assert round_up(length, None) == length


@settings(max_examples=30)
@given(rows=ROWS.filter(len))
def test_from_rows_reads_lists_arrays_and_tensors_alike_and_shares_no_memory(rows: list[list[int]]) -> None:
    arrays = [np.array(row, dtype=np.int64) for row in rows]
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    want = Ragged.from_rows(rows)
    for given_rows in (arrays, tensors):
        got = Ragged.from_rows(given_rows)
        assert got.values.dtype == np.int64
        assert np.array_equal(got.values, want.values)
        got.values[:] = -7
    assert [array.tolist() for array in arrays] == rows
    assert [tensor.tolist() for tensor in tensors] == rows


ARROW_ROWS = [
    (pa.list_(pa.int8()), [[5, -6], [], [7]]),
    (pa.large_list(pa.uint32()), [[5], [2**31]]),
    (pa.list_(pa.int64(), 2), [[5, 6], [7, 8]]),
    (pa.list_(pa.uint64()), [[5], [6, 7]]),  # read value by value, as are those below
    (pa.list_(pa.int16()), [[], []]),
    (pa.list_(pa.bool_()), [[True], [False, True]]),
    (pa.list_(pa.float32()), [[1.0, 0.0], [1.0]]),
]


@pytest.mark.parametrize(("dtype", "rows"), ARROW_ROWS)
def test_an_arrow_column_is_read_as_its_lists(dtype: Any, rows: list[Any]) -> None:
    array = pa.array(rows, dtype)
    chunks = pa.chunked_array([array.slice(1), array.slice(0, 1), array])
    for column, lists in ((array, rows), (array[1:], rows[1:]), (chunks, [*rows[1:], rows[0], *rows])):
        ragged = Ragged.from_rows(column, mask=True)
        assert [row.tolist() for row in ragged] == lists
        assert ragged.values.dtype == ragged.lengths.dtype == np.int64
        assert ragged.values.flags.writeable


def test_a_wrong_row_of_an_arrow_column_is_named_by_its_number_in_the_data_set() -> None:
    for rows in ([[5], None], [[5], [6, None]]):
        with pytest.raises(TypeError, match="row 11 of column 'ids' must be a flat list of integers"):
            Ragged.from_rows(pa.array(rows), name="ids", first_row=10)
    with pytest.raises(TypeError, match="row 0 of column 'input_ids' must be a flat list of integers"):
        Ragged.from_rows(pa.array(["I ride"]).dictionary_encode())


def test_one_row_alone_shares_no_memory_either() -> None:
    row = np.array([1, 2, 3])
    assert not np.shares_memory(Ragged.from_rows([row]).values, row)
    assert not np.shares_memory(Ragged.from_rows([row]).pad(0), row)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint8, np.uint16, np.int64])
def test_every_kind_of_whole_number_becomes_int64(kind: type) -> None:
    assert Ragged.from_rows([np.array([1, 2], dtype=kind), [3]]).values.tolist() == [1, 2, 3]
    assert Ragged.from_rows([np.array([1, 2], dtype=kind), [3]]).values.dtype == np.int64


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_bools_and_whole_floats_become_integers_in_masks(kind: Any) -> None:
    for values in ([True, False], [1.0, 0.0]):
        rows = Ragged.from_rows([kind(values), [1]], mask=True)
        assert rows.values.tolist() == [1, 0, 1]
        assert rows.values.dtype == np.int64
        with pytest.raises(TypeError, match="row 0 of column 'input_ids' must be a flat list of integers"):
            Ragged.from_rows([kind(values), [1]])
    for wrong in ([0.5, 1.0], [float("nan")], [float("inf")]):
        with pytest.raises(TypeError, match=r"row 1 of column 'loss_mask' .*\n.*\n  fix: one list of integers per row"):
            Ragged.from_rows([kind([1.0]), kind(wrong)], mask=True, name="loss_mask")


def test_unsigned_values_that_fit_into_int64_are_accepted() -> None:
    largest = [np.array([2**63 - 1], dtype=np.uint64), np.array([], dtype=np.uint64), [0]]
    assert [row.tolist() for row in Ragged.from_rows(largest)] == [[2**63 - 1], [], [0]]


FLAT = "must be a flat list of integers that fit into int64"
THREE = Ragged.from_rows([[1, 2, 3], [4]])
REFUSED: list[tuple[Any, type[Exception], str]] = [
    *(
        (lambda rows=rows: Ragged.from_rows(rows), TypeError, f"row {len(rows) - 1} of column 'input_ids' {FLAT}")
        for rows in (
            [[1, 2], [0.5]],
            [[1, 2], [[1], [2]]],
            [[[1], [2, 3]]],
            [[1], 5],
            [[1], None],
            [["a"]],
            [np.array([1, -200], dtype=object)],
            [[True, False]],
        )
    ),
    (
        lambda: Ragged.from_rows([[1], np.zeros((2, 2))]),
        TypeError,
        f"^row 1 of column 'input_ids' {FLAT}\n  got: 2-dimensional values of float64: .*\n"
        r"  fix: pass one list of token ids per row, e.g. \[101, 7592, 102\]$",
    ),
    (lambda: Ragged.from_rows([[0.5]], name="token_type_ids"), TypeError, f"column 'token_type_ids' {FLAT}"),
    # NumPy converts such lists to floats or objects
    *(
        (lambda row=row: Ragged.from_rows([[1], row], name="labels"), TypeError, f"row 1 of column 'labels' {FLAT}")
        for row in ([5, 2**63], (5, -1, 2**63), [-7, 2**64], [5, -(2**63) - 1], np.array([2**63], dtype=np.uint64))
    ),
    (lambda: Ragged(np.arange(4), np.array([2, 3])), ValueError, "(?s)must add up.*5 and 4"),
    *(
        (call, ValueError, "(?s)width 2, longest row 3.*fix: width=3, or truncate the rows first")
        for call in (lambda: THREE.pad(0, 2), lambda: THREE.inside(2))
    ),
]


@for_each(("call", "error", "words"), REFUSED)
def test_wrong_rows_and_widths_are_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
