"""The bytes of rows of Arrow tables, held against values whose size is known, however they lie in memory."""

from __future__ import annotations

import datasets
import numpy as np
import pyarrow as pa
import pytest

from hf_posenc._common import arrow as _arrow
from hf_posenc._common.arrow import row_sizes, value_sizes


def test_the_bytes_of_rows_are_those_of_their_values() -> None:
    values = {
        "text": (["ab", None, "cde"], pa.large_string(), [2, 0, 3]),
        "binary": ([b"ab", b"", b"c"], pa.binary(), [2, 0, 1]),
        "number": ([1, 2, None], pa.int16(), [2, 2, 2]),
        "lists": ([[1, 2], None, [3]], pa.list_(pa.float32()), [8, 0, 4]),
        "words": ([["a", "bc"], None, ["d"]], pa.list_(pa.string()), [3, 0, 1]),
        "nested": ([[[1], [2, 3]], [], [[]]], pa.large_list(pa.list_(pa.int64())), [24, 0, 0]),
        "fixed": ([[1, 2]] * 3, pa.list_(pa.int8(), 2), [2, 2, 2]),
        "struct": ([{"a": "xy", "b": 1}] * 3, pa.struct({"a": pa.string(), "b": pa.int32()}), [6, 6, 6]),
        "truth": ([True] * 8, pa.bool_(), [1 / 8] * 8),
        "kinds": (["x", "y", "x"], pa.dictionary(pa.int8(), pa.string()), [1, 1, 1]),
        "map": ([[("a", 1)]], pa.map_(pa.string(), pa.int8()), [2]),
        "views": ([[1, 2], None, [3]], pa.list_view(pa.int16()), [4, 0, 2]),
        "large views": ([["a", "bc"], None, ["d"]], pa.large_list_view(pa.string()), [3, 0, 1]),
        "texts in views": (["a" * 20, None, "b"], pa.string_view(), [20, 0, 1]),
        "nothing": ([None, None], pa.null(), [8, 8]),
    }
    for name, (given, kind, want) in values.items():
        assert value_sizes(pa.array(given, kind)).tolist() == want, name
    table = pa.table({"a": ["xx", "y", "zzz"]})
    assert value_sizes(table.slice(1)["a"].chunk(0)).tolist() == [1, 3]
    vectors = datasets.Dataset.from_dict(
        {"v": [np.zeros((3, 2)), np.zeros((1, 2))]},
        features=datasets.Features({"v": datasets.Array2D((None, 2), "float32")}),
    )
    assert value_sizes(vectors.data.table["v"].chunk(0)).tolist() == [24, 8]


NESTED = {
    "lists": pa.array([[number] * (number % 4) for number in range(1000)]),
    "views": pa.array([["x" * (number % 3)] * (number % 4) for number in range(1000)], pa.list_view(pa.string())),
    "fixed": pa.array([["a", "b" * (number % 5)] for number in range(1000)], pa.list_(pa.string(), 2)),
    "map": pa.array([[("key", number)] * (number % 3) for number in range(1000)], pa.map_(pa.string(), pa.int16())),
    "struct": pa.array([None if number % 7 == 0 else {"a": "x" * (number % 5)} for number in range(1000)]),
    "kinds": pa.array([f"{number // 2}" for number in range(1000)]).dictionary_encode(),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_slice_has_the_sizes_of_its_rows_in_the_whole(name: str) -> None:
    whole = value_sizes(NESTED[name])
    assert whole.any()
    for start, length in ((0, 10), (10, 1), (13, 500), (999, 1), (1000, 0)):
        np.testing.assert_array_equal(value_sizes(NESTED[name].slice(start, length)), whole[start : start + length])


@pytest.mark.parametrize("name", NESTED)
def test_only_the_rows_of_a_slice_are_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    weigh = value_sizes
    monkeypatch.setattr(_arrow, "value_sizes", lambda values: looked_at.append(len(values)) or weigh(values))
    row_sizes(pa.record_batch({name: NESTED[name]}).slice(500, 10))
    assert 10 <= sum(looked_at) <= 100


def test_a_row_has_one_byte_and_the_sizes_of_its_values() -> None:
    batch = pa.record_batch({"text": ["ab", None], "id": [1, 2], "truth": [True, False]})
    assert row_sizes(batch).tolist() == [11, 9]
