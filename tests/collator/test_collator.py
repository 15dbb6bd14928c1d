"""The collator's settings, what it reads, and its sockets, compared with the tokenizer and with models.

Models are tiny and made from their configuration; messages are matched with the values that they print.
"""

from __future__ import annotations

import collections
import copy
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from looping import for_each
from small_models import of_class

from hf_posenc import DataCollatorWithPositionalEncoding, MaskedLM

C = DataCollatorWithPositionalEncoding


@pytest.mark.parametrize("length", [1, 2, 17, 300])
def test_the_look_ahead_mask_is_one_matrix_of_its_own(word_level, length: int) -> None:
    collate = C(word_level)
    batch = collate(["a " * length, "a", "a b"])
    mask = batch["look_ahead_mask"]
    width = max(length, 2)
    assert mask.shape == (3, 1, width, width)
    assert mask.stride()[0] == 0
    assert mask.untyped_storage().nbytes() == width * width
    assert torch.equal(mask[1, 0], torch.ones(width, width).tril().bool())
    array = collate.replace(return_tensors="np")(["a " * length, "a", "a b"])["look_ahead_mask"]
    assert np.array_equal(array, mask)
    assert not array.flags.writeable  # a value written to one row would change all rows


def test_a_look_ahead_mask_that_no_memory_holds_is_refused(word_level) -> None:
    rows = [{"input_ids": np.ones(1_000_000, dtype=np.int64)}]
    for settings in ({}, {"look_ahead": True}, {"embedding": 4}, {"return_tensors": "np"}):
        with pytest.raises(
            ValueError, match=r"at most 65,536 tokens\n  got: rows of 1,000,000 tokens, a mask of 1\.0 TB"
        ):
            C(word_level, **settings)(rows)
    assert C(word_level, look_ahead=False)(rows)["input_ids"].shape == (1, 1_000_000)


def assert_same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


NO_LENGTH: list[dict[str, Any]] = [{"padding": "max_length"}, {"packing": True}]
REFUSED_ROWS: list[tuple[dict[str, Any], Any, type[Exception], str]] = [
    # no batch
    *(({}, rows, ValueError, "empty batch") for rows in ([], (), np.array([], dtype=object), np.array([]))),
    *(
        ({}, rows, TypeError, "is not a batch: expected texts, rows or columns\n  got: ")
        for rows in (5, None, b"a", {"a"}, 1.5, np.array("a"), np.array(3), torch.tensor(1.5))
    ),
    *(
        ({}, row, ValueError, "holds one row, and a mapping must hold columns: map needs batched=True")
        for row in (
            {"text": "a", "label": 1},
            *({"input_ids": kind([5, 6])} for kind in (list, np.array, torch.tensor)),
        )
    ),
    ({"is_split_into_words": True}, {"text": ["I", "ride"]}, ValueError, "batched=True"),
    # columns that are missing, or have another number of rows
    *(
        ({}, rows, ValueError, r"'text' is missing; .* arrived are \['label'\](?s:.*)columns=False.*\.map\(")
        for rows in ([{"label": 0}], {"label": [0]})
    ),
    (
        {},
        [{"prompt": "a", "chosen": "b", "rejected": "c"}],
        ValueError,
        r"DPOTrainer, .*: leave out data_collator=; one of them alone, dataset.rename_column\('chosen'",
    ),
    (
        {},
        [{"text": 7.0}],
        TypeError,
        r'is float, expected str\n.*\n  fix: features=Features\(\{"text": Value\("string"\)',
    ),
    ({}, [{"body": "a", 5: 3}], ValueError, r"'text' is missing; the columns that arrived are \[5, 'body'\]"),
    ({"text_pair_column": "other"}, [{"text": "a"}], ValueError, "column 'other' is missing"),
    ({}, [{"text": "a", 5: 3}, {"text": "a"}], ValueError, r"row 1 does not have the columns of row 0, \[5, 'text'\]"),
    # rows of two kinds
    ({}, ["a", {"input_ids": [5]}], TypeError, "row 1 is tokenized, row 0 is a text"),
    ({}, ["a", {"text": "b"}], TypeError, r"row 1 is a dict, row 0 is a text\n  got: {'text': 'b'}\n  fix: only texts"),
    ({}, ["a", [5]], TypeError, "row 1 is a list of token ids, row 0 is a text"),
    ({}, [np.array("a")], TypeError, "row 0 of column 'text' is ndarray, expected str"),
    ({}, ["a", pa.table({"text": ["b"]})], TypeError, "row 1 is a Table, row 0 is a text"),
    ({}, [{"input_ids": [5]}, "a"], TypeError, "row 1 is a text, row 0 is tokenized"),
    ({}, [{"text": "a"}, "b"], TypeError, "row 1 is a text, row 0 is a dict"),
    ({}, [[5], "a"], TypeError, "row 1 is a text, row 0 is a list of token ids"),
    ({}, [[5], {"input_ids": [5]}], TypeError, "row 1 is tokenized, row 0 is a list of token ids"),
    # splits
    (
        {},
        datasets.DatasetDict({name: datasets.Dataset.from_dict({"text": ["a"]}) for name in ("train", "test")}),
        TypeError,
        r"one split at a time\n  got: DatasetDict of \['train', 'test'\]\n  fix: dataset\['train'\]$",
    ),
    ({}, [{"text": "a", 5: 3}, {"text": "a", 6: 3}], ValueError, "row 1 does not have the columns of row 0"),
    ({}, {"text": ["a", "b"], "label": [1]}, ValueError, r"(?s)same number of rows.*'text': 2, 'label': 1"),
    # columns that a batch makes: a film's `length` in minutes is no number of tokens
    ({}, {"text": ["a b c"], "length": [90]}, ValueError, "the input already has a column 'length'"),
    ({}, {"text": ["a b c"], "attention_mask": [[1]]}, ValueError, "the input already has a column 'attention_mask'"),
    ({}, [{"text": "a", "position_ids": 3}], ValueError, "the input already has a column 'position_ids'"),
    # values that are no texts
    (
        {},
        ["a", None, "b"],
        TypeError,
        r"row 1 of column 'text' is NoneType, expected str\n  got: 1 bad of 3 rows.*\n  fix: drop such rows first: ds",
    ),
    ({}, [("a", "b"), ("c", None)], TypeError, r"NoneType(?s:.*)pairs with None likewise$"),
    ({"is_split_into_words": True}, [["a"], None], TypeError, r"NoneType(?s:.*)drop such rows first"),
    *(({}, {"text": ["a", x]}, TypeError, "row 1 .*(?s:.*)drop such rows first") for x in (pd.NA, float("nan"))),
    (
        {},
        [{"input_ids": [5, 6], "labels": [1, None]}],
        TypeError,
        "(?s)row 0 of column 'labels'.*-100 in place of None",
    ),
    ({}, {"text": [{"en": "a"}]}, TypeError, r"'text' is dict(?s:.*)fix: text_column=.*dataset\.flatten\(\)"),
    ({}, ["a", 5], TypeError, r"row 1 of column 'text' is int, expected str\n  got: 1 bad of"),
    ({}, [1.5], TypeError, r"row 0 of column 'text' is float, expected str\n  got: 1 bad of"),
    ({}, ["a", b"b"], TypeError, r"row 1 of column 'text' is bytes, expected str\n  got: 1 bad of"),
    ({}, ["a", ["b"]], TypeError, r"row 1 of column 'text' is list, expected str\n  got: 1 bad of"),
    *(
        ({}, rows, TypeError, r"row 1 of column 'text' is NoneType, expected str\n  got: 1 bad of")
        for rows in ([{"text": "a"}, {"text": None}], {"text": ["a", None]})
    ),
    ({}, [[["a"]]], TypeError, r"row 0 of column 'text' is list, expected str\n  got: 1 bad of"),
    *(
        ({}, rows, TypeError, "row 0 of column 'text' is list, expected str(?s:.*)is_split_into_words=True")
        for lists in ([["a", "b"], ["c", "d"]],)
        for rows in (lists, {"text": lists}, [{"text": words} for words in lists], [[True, False]])
    ),
    *(
        ({}, rows, TypeError, "row 1 of column 'text' is .*, expected a pair like row 0")
        for rows in ([("a", "b"), "c"], [("a", "b"), ("c", "d", "e")], [("a", "b"), ["c", "d"]])
    ),
    (
        {"text_column": "body"},
        {"body": ["a", None, "b"]},
        TypeError,
        r'got: 1 bad of 3 rows in this batch\n.*ds\.filter\(lambda row: row\["body"\] is not None\)',
    ),
    (
        {"text_pair_column": "other"},
        [{"text": "a", "other": "b"}, {"text": "a", "other": None}],
        TypeError,
        "row 1 of column 'other' is NoneType, expected str",
    ),
    *(
        (
            {"is_split_into_words": True},
            rows,
            TypeError,
            f"row {row} of column 'text' is {kind}, expected a list of words",
        )
        for rows, row, kind in (([["I", "ride"], "bike"], 1, "str"), ([["I", None]], 0, "list"))
    ),
    *(
        ({}, rows, ValueError, 'row 3 has no tokens(?s:.*)on_empty="keep"')
        for rows in (["a", "b", "c", ""], [[5], [6], [7], []], [{"text": text} for text in ("a", "b", "c", "")])
    ),
    # ids and values per token
    ({}, [[1, 2], [1, -100]], ValueError, "row 1, column 1 of 'input_ids' is -100"),
    ({"embedding": 4}, [[1, 2], [99999, 1]], ValueError, r"row 1, column 0 of 'input_ids' is 99999(?s:.*)\d+ rows"),
    *(
        ({}, [{"input_ids": ids}], TypeError, "row 0 of column 'input_ids' must be a flat list of integers")
        for ids in ([0.5], None, [[1]], "text")
    ),
    *(
        ({}, [{"input_ids": [1, 2], name: values}], error, f"row 0 of column '{name}' {words}")
        for values, error, words in (
            (torch.tensor([0, 1], dtype=torch.bfloat16), TypeError, "must be a flat list of integers"),
            (np.array([0, 2**64 - 1], dtype=np.uint64), TypeError, "must be a flat list of integers"),
        )
        for name in ("input_ids", "token_type_ids")
    ),
    (
        {"text_target_column": "t"},
        [{"input_ids": [1], "labels": torch.ones(2, requires_grad=True)}],
        TypeError,
        "row 0 of column 'labels' must be a flat list of integers",
    ),
    *(
        (
            {},
            [{"input_ids": [1, 2], "position_ids": [0, 1]}, {"input_ids": [1, 2], "position_ids": values}],
            TypeError,
            "row 1 of column 'position_ids' must be a flat list of integers that fit into int64",
        )
        for values in ([0, float("inf")], [0.0, 1.0], [0, 2**64], [0, 2**63], [-1, 2**63])
    ),
    (
        {},
        [{"input_ids": [1], "attention_mask": [1]}, {"input_ids": [1, 2], "attention_mask": [1, 1, 1]}],
        ValueError,
        "row 1: 3 values in 'attention_mask' for 2 tokens",
    ),
    (
        {},
        [{"input_ids": [1, 2], "attention_mask": [2, 0]}],
        ValueError,
        r"attention_mask must be 0 at padding, and 1 at tokens, or 1, 2, 3, \.\.\. .*\n  got: row 0: \[2, 0\]",
    ),
    ({}, [{"input_ids": [1, 2], "token_type_ids": [0]}], ValueError, "row 0: 1 values in 'token_type_ids' for 2"),
    # lengths
    *(
        ({"truncation": False, "max_length": 512}, rows, ValueError, f"row {row} has 700 tokens, limit 512")
        for rows, row in (
            *((rows, 0) for rows in (["a " * 700], {"text": ["a " * 700]}, [[5] * 700])),
            (["a", "b", "a " * 700], 2),
        )
    ),
    (
        {"max_length": 4, "return_overflowing_tokens": True, "stride": 4},
        [[1, 2, 3, 4, 5, 6, 7]],
        ValueError,
        "(?s)stride.*max_length=4, stride=4",
    ),
    ({"padding": False}, ["a", "a b"], ValueError, "without padding all rows must have one length, these have 1 to 2"),
    # settings that need a limit
    *((settings, ["a"], ValueError, "packed rows, and rows padded to a fixed") for settings in NO_LENGTH),
    # labels
    (
        {"packing": True, "max_length": 8},
        [{"text": "a", "label": 1}, {"text": "b", "label": 0}],
        ValueError,
        "one label per row does not fit",
    ),
    ({}, [{"text": "a", "label": [1]}, {"text": "b", "label": [1, 2]}], ValueError, "row 1: 2 labels for 1 tokens"),
    ({}, [{"text": "a", "label": "x"}] * 2, TypeError, "row 0 of column 'label' is str, expected a number"),
    (
        {"text_target_column": "t"},
        [{"text": "a", "t": x} for x in ("b", None)],
        TypeError,
        "row 1 of column 't' is NoneType",
    ),
    (
        {},
        [{"input_ids": [1] * n, "labels": [0] * m} for n, m in ((3, 3), (4, 4), (7, 5))],
        ValueError,
        "row 2: 5 labels for 7 tokens",
    ),
    (
        {"is_split_into_words": True},
        [{"text": ["I", "ride", "bike"], "labels": [0, 1]}],
        ValueError,
        r"row 0: 2 labels for 3 tokens(?s:.*)'Labels per word' in docs/datasets-map\.md",
    ),
    *(
        ({"max_length": 3}, rows, TypeError, f"row 1 of column 'label' is {type(label).__name__}, expected a number")
        for label, first in ((None, 1), ("spam", 1), (["B-PER"], [1, 2, 3]))
        for rows in (
            [{"text": "a b c", "label": first}, {"text": "b", "label": label}],
            [{"input_ids": [5, 6, 7, 8], "label": 1}, {"input_ids": [5], "label": label}],
        )
    ),
    *(
        (
            {},
            [{"text": "a", "label": x} for x in xs],
            ValueError,
            f"row {row} of column 'label' holds .* largest float32",
        )
        for row, xs in ((1, [0.5, 1e300]), (0, [[0.5, -1e39], [1.0, 2.0]]))
    ),
    (
        {},
        [{"input_ids": [1] * len(labels), "labels": labels} for labels in ([0.5, 1.0], [0.5, 1.0, 0.0])],
        ValueError,
        r"column 'labels' has lengths 2 and 3, and rows have the same number of labels\n  fix: one number, or lists",
    ),
    ({}, [{"text": "a", "label": 1, "labels": 2}], ValueError, "rows have more than one label column"),
    ({"labels": "causal_lm"}, [{"text": "a", "label": 1}], ValueError, "from the ids, and the rows have their own"),
    # lists of numbers
    (
        {},
        [{"text": "a", "tags": [1, 2, 3]}, {"text": "b", "tags": [1, 2, 3, 4, 5]}],
        ValueError,
        r"column 'tags' has lengths 3 and 5(?s:.*)remove_columns\('tags'\)",
    ),
    ({}, [{"text": "a", "x": []}, {"text": "b", "x": [3]}], ValueError, "column 'x' has lengths 0 and 1"),
    ({}, [{"text": "a", "x": [[1, 2], [3]]}], ValueError, "column 'x' has lists of different lengths in row 0"),
    # numbers that fit no tensor, or that a tensor would change
    *(
        ({}, [{"text": "a", name: x} for x in values], ValueError, f"row {row} of column '{name}' holds {number}")
        for name in ("x", "label")
        for values, row, number in (
            ([1, 2**63], 1, 2**63),
            ([2**63, 7], 0, 2**63),
            ([2**64 - 1, 2**64 - 2], 0, 2**64 - 1),
            ([1, -(2**63) - 1], 1, -(2**63) - 1),
            ([10**400, 1], 0, 10**400),
            ([np.uint64(2**63), np.uint64(1)], 0, 2**63),
            ([[1, 2], [2**63, 7]], 1, 2**63),
            ([[1, 2], [2**64, 7]], 1, 2**64),
            ([[0.5, 2], [0.5, 2**53 + 1]], 1, 2**53 + 1),
            ([np.array([1, 2]), np.array([1, 2**63], dtype=np.uint64)], 1, 2**63),
        )
    ),
    ({}, [{"text": "a", "x": x} for x in (0.5, 2**53 + 1)], ValueError, f"row 1 of column 'x' holds {2**53 + 1}"),
    # numbers and something else in one column
    *(
        (
            {},
            rows[::step],
            TypeError,
            f"row {row} of column 'x' is {type(other).__name__}, and the column holds numbers",
        )
        for other in ("7", b"7", ["x"], {"a": 1}, object())
        for rows in ([{"text": "a", "x": 3}, {"text": "b", "x": other}],)
        for step, row in ((1, 1), (-1, 0))
    ),
    *(
        ({}, rows, TypeError, f"row {len(rows) - 1} of column 'x' is list, and the column holds numbers as well")
        for other in (None, "x", [1, None], [1, "x"])
        for last in ({"text": "b", "x": [1, other]},)
        for rows in ([{"text": "a", "x": [1, 2]}, last], [last])
    ),
    *(
        ({}, [{"text": "a", "x": 3}, {"text": "b", "x": missing}], ValueError, "row 1 of column 'x' is None, and other")
        for missing in (None, pd.NA)
    ),
]


@for_each(("settings", "rows", "error", "words"), REFUSED_ROWS)
def test_rows_are_refused_with_row_column_and_fix(
    word_level, settings: dict[str, Any], rows: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as refused:
        C(word_level, **settings)(rows)
    assert "\n  fix: " in str(refused.value)
    assert "Unable to create tensor" not in str(refused.value)  # the sentence of transformers


def test_a_batch_of_empty_columns_is_refused_and_columns_stay_empty(wordpiece) -> None:
    """`map` may call with nothing; a model may not."""
    columns = C(wordpiece)({"text": []})
    assert {len(values) for values in columns.values()} == {0}
    with pytest.raises(ValueError, match="empty batch"):
        C(wordpiece).batch({"text": []})


def test_other_columns_go_by_kind(wordpiece) -> None:
    rows = [
        {"text": "a", "n": 3, "share": 0.5, "ok": True, "name": "x", "tags": ["p"], "box": [1, 2]},
        {"text": "b", "n": 4, "share": 0.25, "ok": False, "name": "y", "tags": ["q", "r"], "box": [3, 4]},
    ]
    with pytest.warns(UserWarning, match=r"columns \['name', 'tags'\] are not in the batch"):
        batch = C(wordpiece, look_ahead=False)(rows)
    assert batch["n"].dtype == torch.int64
    assert batch["share"].dtype == torch.float64
    assert batch["ok"].dtype == torch.bool
    assert batch["box"].tolist() == [[1, 2], [3, 4]]
    assert not {"text", "name", "tags"} & batch.keys()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([3, -(2**63)], torch.int64),
        ([2**63 - 1, True], torch.int64),
        ([np.uint8(3), np.int16(4)], torch.int64),
        ([1_700_000_123.25, 1e300], torch.float64),
        ([-1000, 0.5], torch.float64),
        ([float("nan"), float("inf")], torch.float64),
        ([np.float32(0.5), np.float32(2)], torch.float32),
        ([np.float16(0.5), np.float16(2)], torch.float16),
        ([np.float16(0.5), 3.0], torch.float64),
        ([torch.tensor(0.5), torch.tensor(2.0)], torch.float32),
        ([torch.tensor([0.5, 2]).bfloat16(), torch.tensor([1.0, 3]).bfloat16()], torch.float32),
        ([np.array([1, 2], dtype=object), [3, 4]], torch.int64),
        ([[[1.0], [2.0]], [[3.0], [4.0]]], torch.float64),
        ([True, False], torch.bool),
        ([0.5, 2**60], torch.float64),
    ],
)
def test_numbers_keep_their_values_in_a_dtype_that_their_kind_decides(wordpiece, values: list, dtype) -> None:
    rows = [{"text": "a", "x": value} for value in values]
    for given in (rows, {"text": ["a", "b"], "x": values}):
        found = C(wordpiece, look_ahead=False).batch(given)["x"]
        assert found.dtype == dtype
        for row, value in zip(found, values, strict=True):
            if isinstance(value, torch.Tensor):
                assert torch.equal(row, value.float())
            else:
                np.testing.assert_array_equal(
                    row, np.asarray(value, dtype=np.float64 if dtype == torch.float64 else None)
                )


@pytest.mark.parametrize("name", ["x", "label", "labels"])
def test_a_tensor_with_gradient_is_refused_and_other_tensors_are_read(wordpiece, name: str) -> None:
    with pytest.raises(ValueError, match=rf"row 1 of column '{name}' is a tensor that cannot[\s\S]*detach\(\)"):
        C(wordpiece)([{"text": "a", name: 0.5}, {"text": "a", name: torch.tensor(0.5, requires_grad=True)}])
    for tensor in (torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(
            ValueError, match=f"row 0 of column '{name}' is a tensor that cannot be copied into a batch"
        ):
            C(wordpiece)([{"text": "a", name: tensor}])
    halves = [torch.tensor(0.5).bfloat16(), torch.tensor(2.0).bfloat16()]
    batch = C(wordpiece)([{"text": "a", name: half} for half in halves])
    assert batch["x" if name == "x" else "labels"].tolist() == [0.5, 2]


def test_stored_vectors_may_be_bfloat16_and_carry_no_gradient(word_level) -> None:
    vectors = torch.tensor([[0.5, 1], [2, 3]])
    batch = C(word_level)([{"input_ids": [1, 2], "inputs_embeds": vectors.bfloat16()}])
    assert torch.equal(batch["inputs_embeds"][0], vectors)
    with pytest.raises(ValueError, match="row 0 of column 'inputs_embeds' is a tensor that cannot"):
        C(word_level)([{"input_ids": [1, 2], "inputs_embeds": vectors.requires_grad_()}])


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize(
    "values", [[[], []], [["x"], []], [["x"], None], [[], None], [None, None], [["x"], ["y", "z"]]]
)
def test_a_column_without_numbers_is_left_out_of_every_batch_and_named_once(
    wordpiece, values: list, array: bool
) -> None:
    collate = C(wordpiece, look_ahead=False)
    if array:  # as pandas and Arrow have lists of texts
        values = [value if value is None else np.array(value, dtype=object) for value in values]
    rows = [{"text": "a", "tags": value} for value in values]
    with pytest.warns(UserWarning, match=r"columns \['tags'\] are not in the batch[\s\S]*remove_columns\(\['tags'\]\)"):
        batch = collate(rows)
    assert batch.keys() == collate(["a"]).keys() == collate(rows).keys()


@pytest.mark.parametrize("ids", [[2, 5, 3, 0, 0], [0, 0, 2, 5, 3]])
def test_rows_with_padding_and_no_mask_are_named_once(wordpiece, ids: list[int]) -> None:
    collate = C(wordpiece)
    with pytest.warns(
        UserWarning, match=r"(?s)row 1 begins or ends with the padding id 0.*got: input_ids \[.*attention_m"
    ):
        batch = collate([[2, 5, 6, 7, 3], ids])
    assert batch["attention_mask"].all()  # no mask is inferred from ids
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collate([ids])
        mask = [int(token != 0) for token in ids]
        C(wordpiece)([{"input_ids": ids, "attention_mask": mask}])
        C(wordpiece)([{"input_ids": [2, 0, 3], "length": 3}])
        wordpiece.eos_token = wordpiece.pad_token
        C(wordpiece)([ids])


def test_cut_texts_are_counted_and_reported_once(word_level) -> None:
    word_level.model_max_length = 3
    collate = C(word_level)
    texts = ["a a a a"] * 12 + ["a"] * 52
    with pytest.warns(UserWarning, match=r"12 of 64 texts were truncated to 3 tokens\n  got: no such limit was set"):
        collate(texts)
    collate(texts)
    collate({"text": texts})  # warned once, also by the other method


def test_texts_truncated_to_a_given_length_are_not_reported(word_level, wordpiece) -> None:
    C(word_level, max_length=3)(["a a a a"])
    C(word_level, max_length=3)({"text": ["a a a a"]})
    rows = [{"text": "a", "target": "a a a a"}]
    C(word_level, text_target_column="target", max_target_length=3)(rows)
    with pytest.warns(UserWarning, match="max_length=1000 is beyond the limit of the tokenizer, so 512 is used"):
        asked = C(wordpiece, max_length=1000)
    asked(["a " * 600])  # warned when the collator was made
    with pytest.warns(UserWarning, match=r"1 of 1 texts were truncated to 512(?s:.*)max_length=512 sets the limit"):
        C(wordpiece)(["a " * 600])


@pytest.mark.slow
def test_truncated_texts_are_reported_once_by_each_process_of_a_loader() -> None:
    script = """
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from hf_posenc import DataCollatorWithPositionalEncoding
raw = Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1}, unk_token="a"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
texts = ["a"] * 8 + ["a a a a a"] * 4 + ["a"] * 4  # only one batch, of worker 0, has texts that are too long
for start, workers, epochs, limit in (("fork", 2, 2, 3), ("spawn", 1, 1, 4)):
    words = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", model_max_length=limit)
    collate = DataCollatorWithPositionalEncoding(words)
    for _ in range(epochs):
        loader = torch.utils.data.DataLoader(
            texts, 4, num_workers=workers, collate_fn=collate, multiprocessing_context=start
        )
        batches = [batch["input_ids"].tolist() for batch in loader]
        assert batches == [[[1]] * 4] * 2 + [[[1] * limit] * 4] + [[[1]] * 4]
"""
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    for limit, processes in ((3, 2), (4, 1)):  # one batch of an epoch has such texts, and each epoch starts processes
        assert ran.stderr.count(f"4 of 4 texts were truncated to {limit} tokens") == processes


@pytest.mark.filterwarnings("ignore:a batch has more rows")
def test_rows_of_long_texts_keep_their_mapping_when_they_are_collated_later(word_level) -> None:
    collate = C(word_level, max_length=3, return_overflowing_tokens=True)
    texts = ["I ride bike and she said so", "I", "bike ride I she said"]
    columns = collate.columns({"text": texts})
    right = collate(texts)["overflow_to_sample_mapping"].tolist()
    assert collate.batch(columns)["overflow_to_sample_mapping"].tolist() == right == [0, 0, 0, 1, 2, 2]
    rows = [{name: columns[name][row] for name in ("input_ids", "overflow_to_sample_mapping")} for row in (5, 0)]
    assert collate(rows)["overflow_to_sample_mapping"].tolist() == [2, 0]
    shorter = C(word_level, max_length=2, return_overflowing_tokens=True)(rows)  # splits the second row once more
    assert shorter["overflow_to_sample_mapping"].tolist() == [2, 0, 0]


def _addresses(value: Any) -> set[int]:
    tensors = [tensor for tensor in value.values() if isinstance(tensor, torch.Tensor)]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}


def test_batches_share_no_memory_with_each_other_or_with_their_inputs(wordpiece) -> None:
    ids, labels = np.array([5, 6, 7]), np.array([1, 2, 3])
    matrix, tensor = np.ones((2, 2)), torch.ones(3)
    rows = [{"input_ids": ids, "labels": labels, "matrix": matrix, "tensor": tensor}]
    collate = C(wordpiece, embedding=4)
    one, two = collate(rows), collate(rows)
    assert not _addresses(one) & _addresses(two)
    for value in one.values():
        value.contiguous().clone()
    for name in ("input_ids", "attention_mask", "position_ids", "labels", "matrix", "tensor", "inputs_embeds"):
        one[name].zero_()
    one["look_ahead_mask"][0, 0].zero_()
    assert (ids.tolist(), labels.tolist()) == ([5, 6, 7], [1, 2, 3])
    assert matrix.all()
    assert tensor.all()
    assert_same(collate(rows), two)


def test_collating_leaves_cuda_and_the_environment_alone_and_rooms_load_when_they_are_named() -> None:
    code = """
import os, sys, warnings
before = dict(os.environ)
import torch, logging
handlers, filters = list(logging.getLogger().handlers), list(warnings.filters)
import hf_posenc
assert warnings.filters == filters and logging.getLogger().handlers == handlers
from hf_posenc import DataCollatorWithPositionalEncoding as C
from tokenizers import Tokenizer, models, pre_tokenizers
raw = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token="[UNK]"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
batch = C(raw)(["a a", "a"])
assert {t.device.type for t in batch.values()} == {"cpu"}
C(raw)({"text": ["a"]})
assert not torch.cuda.is_initialized()
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
assert not {f"hf_posenc.{room}" for room in ("audit", "plots", "testing", "corpus")} & sys.modules.keys()
print(hf_posenc.audit.check, hf_posenc.plots.__name__, hf_posenc.testing.__name__, hf_posenc.corpus.encode)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "function check" in done.stdout
    assert "hf_posenc.plots hf_posenc.testing <function encode" in done.stdout


def test_tokens_are_one_a_column_and_decode_leaves_padding_out(wordpiece) -> None:
    collate = C(wordpiece, padding_side="left")
    batch = collate(["I ride bike", "a"])
    tokens = collate.tokens(batch)
    assert {len(row) for row in tokens} == {batch["input_ids"].shape[1]}
    assert tokens[1][0] == "[PAD]"
    assert collate.decode(batch) == ["i ride bike", "a"]
    assert collate.decode(collate.replace(return_tensors="np")(["a"])) == ["a"]


def test_replace_parses_the_tokenizer_again_only_for_another_tokenizer_or_pad_token(wordpiece, byte_bpe) -> None:
    one = C(wordpiece, text_target_column="target")

    def shares(other: C) -> bool:
        return other.tokenizer.backend_tokenizer is one.tokenizer.backend_tokenizer

    others = [one.replace(**new) for new in ({}, {"max_length": 9}, {"truncation": False}, {"embedding": 8})]
    assert all(map(shares, others))
    assert all(other.replace(max_length=None, truncation=True, embedding=None) == one for other in others)
    padded, replaced = one.replace(pad_token="[SEP]"), one.replace(tokenizer=byte_bpe, pad_token="eos")
    assert not shares(padded)
    assert padded.tokenizer.pad_token_id == wordpiece.sep_token_id
    assert not shares(replaced)
    assert replaced.tokenizer.pad_token_id == byte_bpe.eos_token_id


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that take turns 500 times as often as usual, so that races show."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def test_collators_that_share_a_tokenizer_do_not_influence_one_another(wordpiece, slow, eager_threads) -> None:
    for tokenizer in (wordpiece, slow):
        one = C(tokenizer, max_length=12)
        other = one.replace(max_length=5, padding_side="left")
        before = [pickle.dumps(each) for each in (one, other)]
        expected = [each(["I ride bike", "a"])["input_ids"] for each in (one, other)]

        def call(number: int, pair=(one, other), expected=expected) -> bool:
            side = number % 2
            if not number % 20:
                pickle.dumps(pair[side].replace(max_length=7 + number))
            return torch.equal(pair[side](["I ride bike", "a"])["input_ids"], expected[side])

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(call, range(300)))
        other.tokenizer.padding_side = other.tokenizer.truncation_side = "left"  # as some pipelines of transformers do
        other.tokenizer.pad_token = None
        assert one.replace(look_ahead=False).padding_side is None
        assert torch.equal(one.replace(look_ahead=True)(["I ride bike", "a"])["input_ids"], expected[0])
        assert pickle.dumps(one) == before[0]
        assert C(tokenizer, max_length=5, padding_side="left") == pickle.loads(before[1])


def test_it_is_frozen_and_hashable(wordpiece) -> None:
    import dataclasses

    collate = C(wordpiece)
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"fix: collate = collate\.replace\(max_length=5\)"):
        collate.max_length = 5
    assert hash(collate) == hash(collate.replace())
    assert collate == collate.replace()
    assert collate != 5
    assert copy.deepcopy(collate) is collate


def test_columns_passed_to_a_model_raise_with_the_fix(wordpiece) -> None:
    model = of_class("BertModel")
    collate = C(wordpiece, model=model)
    columns = collate({"text": ["I ride", "I"]})
    with pytest.raises(
        AttributeError, match=r"no attribute '(size|device)'\n  got: .*\n  fix: collate\.batch\(dataset\[:4\]\)"
    ):
        model(**columns)
    assert pickle.loads(pickle.dumps(columns)).keys() == copy.deepcopy(columns).keys() == columns.keys()
    model(**collate.batch({"text": ["I ride", "I"]}))


def test_the_repr_names_every_setting(wordpiece) -> None:
    import dataclasses

    text = repr(C(wordpiece, labels=MaskedLM(mlm_probability=0.3), max_length=64))
    for field in dataclasses.fields(C):
        assert f"{field.name}=" in text
    assert "labels=MaskedLM(mlm_probability=0.3, " in text
    assert "max_length=64" in text
    assert "1200 ids" in text


@for_each(
    ("settings", "error", "words"),
    [
        ({"d_model": 8}, TypeError, "there is no argument 'd_model'(?s:.*)embedding=8"),
        ({"max_lenght": 8}, TypeError, "max_length="),
        ({"max_length": 0}, ValueError, "max_length must be positive"),
        ({"max_length": "128"}, TypeError, "max_length must be an integer\n  got: '128'\n  fix: max_length=128$"),
        ({"max_length": 64.0}, TypeError, "max_length must be an integer\n  got: 64.0\n  fix: max_length=512$"),
        ({"max_length": 1}, ValueError, "max_length must leave room for 2 special tokens"),
        ({"max_length": True}, TypeError, "max_length must be an integer\n  got: True\n  fix: max_length=512$"),
        ({"pad_to_multiple_of": 0}, ValueError, "pad_to_multiple_of must be positive"),
        ({"pad_to_multiple_of": 8, "max_length": 20}, ValueError, "max_length must be a multiple of"),
        ({"stride": 2}, ValueError, "stride is the overlap"),
        ({"stride": -1, "return_overflowing_tokens": True}, ValueError, "stride must not be negative"),
        ({"return_overflowing_tokens": True, "truncation": False}, ValueError, "truncation is off"),
        ({"padding_side": "lft"}, ValueError, "padding_side must be one of"),
        ({"padding": "longst"}, ValueError, "padding must be one of"),
        ({"packing": 1}, ValueError, "packing must be one of True, False, 'flat'\n  got: 1"),
        ({"look_ahead": 0}, ValueError, "look_ahead must be one of True, False, None\n  got: 0"),
        ({"truncation": "only_frist"}, ValueError, "(?s)truncation must be one of.*fix: truncation='only_first'"),
        ({"labels": MaskedLM}, TypeError, r"(?s)instance of MaskedLM.*fix: labels=MaskedLM\(\)"),
        ({"conventoin": "marian"}, TypeError, r"(?s)conventoin.*PositionalEmbedding\(table, convention=...\)"),
        ({"labels": "causal"}, ValueError, "(?s)labels must be one of.*labels='causal_lm'"),
        ({"on_empty": "drop"}, ValueError, "on_empty must be one of 'error', 'keep'"),
        ({"return_tensors": "tf"}, ValueError, "return_tensors must be one of 'pt', 'np'"),
        ({"is_split_into_words": "yes"}, ValueError, "is_split_into_words must be one of True, False"),
        ({"store_embeddings": True}, ValueError, "store_embeddings needs an embedding"),
        (
            {"labels": MaskedLM(mlm_probability=0.3), "mlm_probability": 0.4},
            ValueError,
            "mlm_probability is the share of tokens",
        ),
        ({"packing": True, "padding": False}, ValueError, "packed rows are padded"),
        ({"text_target_column": "t", "labels": "causal_lm"}, ValueError, "labels come either from"),
        ({"embedding": 0}, ValueError, "embedding must be positive"),
        ({"embedding": True}, TypeError, "embedding must be an integer"),
        ({"seed": -1}, ValueError, "seed must not be negative"),
        ({"text_column": ["a", "b"]}, TypeError, "text_column must be"),
        # values that could not be saved
        ({"mlm_probability": Decimal(1)}, TypeError, "mlm_probability must be a number.*\n  got: "),
        ({"mlm_probability": True}, TypeError, "mlm_probability must be a number.*\n  got: "),
        ({"mlm_probability": np.array([0.1, 0.2])}, TypeError, "mlm_probability must be a number.*\n  got: "),
        ({"look_ahead": Decimal(1)}, ValueError, "look_ahead must be one of True, False, None.*\n  got: "),
        ({"packing": np.array([1, 2])}, ValueError, "packing must be one of True, False, 'flat'.*\n  got: "),
        ({"padding": np.array([1, 2])}, ValueError, "padding must be one of True, False.*\n  got: "),
    ],
)
def test_a_wrong_setting_is_refused_at_construction(
    wordpiece, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as refused:
        C(wordpiece, **settings)
    assert "\n  fix: " in str(refused.value)


def test_labels_and_the_result_of_generate_can_be_decoded(wordpiece) -> None:
    collate = C(wordpiece)
    batch = collate(["I ride bike", "a dog"])
    ids = batch["input_ids"]
    assert collate.decode(ids) == collate.decode(batch)
    assert collate.decode(ids.numpy()) == collate.decode(ids.tolist()) == collate.decode(batch)
    labels = ids.masked_fill(batch["attention_mask"] == 0, -100)
    assert collate.decode(labels) == collate.decode(batch)
    assert collate.tokens(labels)[1][-1] == "-100"
    with pytest.raises(ValueError, match=r"ids to be read come as rows, \(batch, length\)"):
        collate.tokens(ids[0])


def test_rows_are_read_without_adding_keys_to_them(word_level) -> None:
    rows = [{"text": "a", "label": 1}, collections.defaultdict(int, text="b")]
    with pytest.raises(ValueError, match="row 1 does not have the columns of row 0"):
        C(word_level)(rows)
    assert rows[1] == {"text": "b"}


def test_a_text_without_words_has_the_special_tokens_of_a_slow_tokenizer(slow) -> None:
    batch = C(slow, is_split_into_words=True)([[], ["ab"]])
    assert batch["input_ids"].tolist() == [[1, 0, 0], slow("ab")["input_ids"]]
