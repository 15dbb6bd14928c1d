"""`collate.batches`: its batches beside those of `collate.batch`, and the order of results beside that of the texts."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hf_posenc import DataCollatorWithPositionalEncoding

C = DataCollatorWithPositionalEncoding
WORDS = ("I", "ride", "bike", "and", "she", "said")


def _texts(count: int) -> list[str]:
    """Texts of 1 to 40 words, all different."""
    draw = random.Random(0)
    return [" ".join([*draw.choices(WORDS, k=draw.choice((1, 2, 5, 12, 39))), f"n{number}"]) for number in range(count)]


def _ids(batch: Any) -> list[tuple[int, ...]]:
    """Return the ids of each row without padding: one value per row, which identifies the text."""
    return [
        tuple(token for token, real in zip(row, mask, strict=True) if real)
        for row, mask in zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True)
    ]


def _kinds(texts: list[str]) -> Iterator[tuple[str, Any]]:
    import datasets
    import pandas as pd
    import pyarrow as pa

    data = datasets.Dataset.from_dict({"text": texts})
    yield "tuple", tuple(texts)
    yield "NumPy", np.array(texts)
    yield "NumPy objects", np.array(texts, dtype=object)
    yield "pandas", pd.Series(texts, index=np.arange(len(texts))[::-1] / 2)
    yield "pandas of strings", pd.Series(texts, dtype="string")
    yield "Arrow", pa.array(texts)
    yield "Arrow in chunks", pa.chunked_array([texts[:5], texts[5:]])
    yield "generator", (text for text in texts)
    yield "dict values", dict(enumerate(texts)).values()
    yield "column of a data set", data["text"]
    yield "data set", data
    yield "data set in Arrow", data.with_format("arrow")[:]
    yield "stream", data.to_iterable_dataset()
    yield "row dicts", [{"text": text} for text in texts]
    yield "columns", {"text": texts}
    yield "data frame", pd.DataFrame({"text": texts})
    yield "table", pa.table({"text": texts})


def test_every_way_to_hand_over_texts_gives_the_same_results(wordpiece) -> None:
    texts = _texts(12)
    collate = C(wordpiece)
    want = _ids(collate(texts))
    for name, given in _kinds(texts):
        batches = collate.batches(given, 128, window=5)
        assert batches.in_order(_ids(batch) for batch in batches) == want, name
    one = collate.batches("I ride", 64)
    assert one.in_order(_ids(batch) for batch in one) == _ids(collate("I ride"))


def test_padding_counts_toward_the_budget(wordpiece) -> None:
    texts = ["I"] * 10  # 3 tokens each
    for collate, rows in (
        (C(wordpiece), 8),
        (C(wordpiece, pad_to_multiple_of=8), 3),
        (C(wordpiece, padding="max_length", max_length=12), 2),
    ):
        assert max(len(batch["input_ids"]) for batch in collate.batches(texts, 24)) == rows


def test_texts_are_tokenized_a_window_at_a_time(wordpiece) -> None:
    read = []

    def stream() -> Iterator[str]:
        for number, text in enumerate(_texts(30)):
            read.append(number)
            yield text

    batches = iter(C(wordpiece).batches(stream(), 256, window=10))
    next(batches)
    assert len(read) == 10


@pytest.mark.parametrize("texts", [[], (), {}, {"text": []}, iter([]), np.array([], dtype=object)])
def test_no_texts_give_no_batches_and_an_empty_result(wordpiece, texts: Any) -> None:
    batches = C(wordpiece).batches(texts, 64)
    result = batches.in_order(batch["input_ids"] for batch in batches)
    assert isinstance(result, torch.Tensor)
    assert result.shape == (0,)
    assert batches.overflow_to_sample_mapping.shape == (0,)
    arrays = C(wordpiece, return_tensors="np").batches([], 64)
    result = arrays.in_order(list(arrays))
    assert isinstance(result, np.ndarray)
    assert result.shape == (0,)


def test_empty_texts_are_refused_by_number_or_kept(word_level) -> None:
    texts = ["I ride", "", "bike", "", "I"]
    batches = C(word_level).batches(texts, 64, window=3)
    with pytest.raises(ValueError, match="row 1 has no tokens"):
        list(batches)
    kept = C(word_level, on_empty="keep").batches(texts, 2, window=3)
    assert kept.in_order(batch["attention_mask"].sum(1) for batch in kept).tolist() == [2, 0, 1, 0, 1]


def test_results_keep_their_shape_dtype_and_kind(wordpiece) -> None:
    texts = _texts(20)
    batches = C(wordpiece).batches(texts, 128, window=8)
    made = list(batches)
    lengths = [batch["attention_mask"].sum(1) for batch in made]
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.bool):
        result = batches.in_order([each.to(dtype) for each in lengths])
        assert result.dtype == dtype
        assert torch.equal(result, batches.in_order(lengths).to(dtype))
    wide = batches.in_order([each[:, None, None].expand(-1, 2, 3) for each in lengths])
    assert wide.shape == (20, 2, 3)
    assert torch.equal(wide[:, 1, 2], batches.in_order(lengths))
    arrays = batches.in_order([each.numpy() for each in lengths])
    assert isinstance(arrays, np.ndarray)
    assert arrays.tolist() == batches.in_order([each.tolist() for each in lengths])
    with torch.inference_mode():
        inside = [each.float() for each in lengths]
    assert batches.in_order(inside).tolist() == arrays.tolist()
    weight = torch.ones((), requires_grad=True)
    batches.in_order([each * weight for each in lengths]).sum().backward()
    assert weight.grad == arrays.sum()


def test_batches_can_be_iterated_again_and_peeked_at(wordpiece) -> None:
    texts = _texts(20)
    batches = C(wordpiece).batches(texts, 128, window=6)
    first = next(iter(batches))
    made = list(batches)
    assert torch.equal(first["input_ids"], made[0]["input_ids"])
    again = [_ids(batch) for batch in batches]
    assert again == [_ids(batch) for batch in made]
    assert batches.in_order(again) == _ids(C(wordpiece)(texts))


def test_an_iterator_is_not_read_twice(wordpiece) -> None:
    batches = C(wordpiece).batches((text for text in _texts(5)), 128)
    next(iter(batches))
    with pytest.raises(ValueError, match=r"only once(.|\n)*got: generator(.|\n)*list\(texts\)"):
        iter(batches)


def test_wrong_results_are_refused(wordpiece) -> None:
    texts = _texts(20)
    batches = C(wordpiece).batches(texts, 128)
    with pytest.raises(ValueError, match="no loop over them"):
        batches.in_order([])
    next(iter(batches))
    with pytest.raises(ValueError, match="a loop that ended after 1 batches"):
        batches.in_order([])
    with pytest.raises(ValueError, match="a loop that ended after 1 batches"):
        _ = batches.overflow_to_sample_mapping
    made = [batch["input_ids"].float().sum(1) for batch in batches]
    count = len(made)
    with pytest.raises(ValueError, match=rf"got: {count - 1} results for {count} batches"):
        batches.in_order(made[:-1])
    with pytest.raises(ValueError, match=rf"got: {count + 1} results for {count} batches"):
        batches.in_order([*made, made[0]])
    for wrong in ([torch.empty(0, 3) for _ in made], [[] for _ in made], [{"logits": each} for each in made]):
        with pytest.raises(ValueError, match="one value for each of its rows"):
            batches.in_order(wrong)
    with pytest.raises(RuntimeError):  # of torch
        batches.in_order([made[0][:, None], *made[1:]])


def test_settings_that_part_rows_from_texts_are_refused(wordpiece) -> None:
    for packing in (True, "flat"):
        collate = C(wordpiece, packing=packing, max_length=64)
        with pytest.raises(ValueError, match=r"packing puts several documents(.|\n)*replace\(packing=False\)"):
            collate.batches(["I"], 64)
    with pytest.raises(ValueError, match=r"left out of its batch(.|\n)*on_no_labels"):
        C(wordpiece, on_no_labels="skip").batches(["I"], 64)


def test_a_text_beyond_the_budget_is_refused_by_number(wordpiece) -> None:
    texts = ["I ride"] * 7 + ["I " * 30]
    with pytest.raises(ValueError, match=r"row 7 has 32 tokens, beyond(.|\n)*budget=24(.|\n)*token_budget=32, or"):
        list(C(wordpiece).batches(texts, 24, window=3))
    with pytest.raises(ValueError, match=r"row 7 has 32 tokens, 40 with padding(.|\n)*token_budget=40"):
        list(C(wordpiece, pad_to_multiple_of=20, max_length=40).batches(texts, 32))
    assert len(list(C(wordpiece, max_length=24).batches(texts, 24))) > 1


def test_a_bad_text_is_refused_by_number_also_in_a_later_window(wordpiece) -> None:
    texts: list[Any] = ["I ride", "bike", None, "I"]
    with pytest.raises(TypeError, match="row 2 of column 'text' is NoneType") as first:
        list(C(wordpiece).batches(texts, 64))
    assert not hasattr(first.value, "__notes__")
    with pytest.raises(TypeError, match=r"row 0 of column 'text' is NoneType(.|\n)*this message is row 2 of"):
        list(C(wordpiece).batches(texts, 64, window=2))

    rows = [{"text": "I " * (9 - number), "score": 1 if number < 7 else [1, 2]} for number in range(9)]
    with pytest.raises(ValueError, match=r"column 'score'(.|\n)*of this batch are rows \[\d, \d, \d, \d\] of"):
        list(C(wordpiece).batches(rows, 32))


def test_arguments_of_the_wrong_kind_are_refused(wordpiece) -> None:
    collate = C(wordpiece)
    for texts in (None, 3, {"a", "b"}, b"text"):
        with pytest.raises(TypeError, match="is not a batch"):
            collate.batches(texts, 64)
    for arguments in ({"token_budget": 0}, {"token_budget": 64, "window": 0}):
        with pytest.raises(ValueError, match="must be positive"):
            collate.batches(["a"], **arguments)
    with pytest.raises(TypeError, match="token_budget must be an integer"):
        collate.batches(["a"], 1.5)
    with pytest.raises(ValueError, match="same number of rows"):
        list(collate.batches({"text": ["a"] * 4, "other": [1] * 5}, 64, window=4))


def test_the_callers_texts_stay_as_they_are_and_truncation_warns_once(wordpiece) -> None:
    texts = _texts(20)
    before = list(texts)
    wordpiece.model_max_length = 16
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert sum(len(batch["input_ids"]) for batch in C(wordpiece).batches(texts, 64, window=5)) == 20
    assert texts == before
    assert [str(warning.message).splitlines()[0].partition(" texts were")[1] for warning in seen] == [" texts were"]
