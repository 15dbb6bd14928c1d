"""`dataset.map` with the collator: stored rows equal the batch, and columns can be removed."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from looping import for_each
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a", "unsurprisingly, so"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="store_embeddings writes")
        warnings.filterwarnings("ignore", message=r".* texts were truncated to 512 tokens")
        warnings.filterwarnings("ignore", message="To copy construct from a tensor")  # of a stream in torch's format
        yield
    datasets.enable_progress_bars()


@pytest.fixture
def rows() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": TEXTS, "n": [1, 2, 3, 4]})


def _stores(tokenizer: Any, **settings: Any) -> C:
    table = nn.Embedding.from_pretrained(torch.randn(1200, 8, generator=torch.Generator().manual_seed(0)))
    return C(tokenizer, embedding=table, store_embeddings=True, **settings)


def _settings(collate: C, rows: Any, **removed: Any) -> dict[str, Any]:
    return {"batched": True, "batch_size": 64, "features": collate.features(rows, **removed), **removed}


def test_an_empty_data_set_is_mapped(wordpiece) -> None:
    empty = datasets.Dataset.from_dict({"text": []})
    collate = _stores(wordpiece)
    assert len(empty.map(collate, batched=True, batch_size=64)) == 0


def test_features_of_tables_and_data_frames_are_found(wordpiece, rows) -> None:
    collate = _stores(wordpiece)
    want = collate.features(rows)
    assert collate.features(rows.with_format("arrow")) == want
    assert collate.features(rows.with_format("pandas")) == want
    assert collate.features(pa.table({"text": TEXTS, "n": [1, 2, 3, 4]})) == want
    assert collate.features(rows.to_pandas()) == want
    assert collate.features(rows.to_iterable_dataset()) == want


MADE = {"input_ids", "attention_mask", "token_type_ids", "length"}


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
@pytest.mark.parametrize("stream", [False, True])
def test_map_removes_the_columns_in_remove_columns(wordpiece, rows, form: Any, stream: bool) -> None:
    collate = C(wordpiece)
    given = (rows.to_iterable_dataset() if stream else rows).with_format(form)
    for removed, kept in ((["text", "n"], set()), (["text"], {"n"}), ("n", {"text"}), (None, {"text", "n"})):
        # A stream and a data set with a format pass plain columns, which the collator returns, except for the texts.
        for call, names in ((collate.columns, kept), (collate, kept | ({"n"} if stream or form else set()))):
            mapped = given.map(call, batched=True, batch_size=3, remove_columns=removed)
            found = [set(row) for row in mapped] if stream else [set(mapped.column_names)]
            assert found == [MADE | names] * len(found)
            ids = [[int(token) for token in row["input_ids"]] for row in mapped]
            assert ids == wordpiece(TEXTS)["input_ids"]


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ([0, True], "bool"),
        ([1j, 2j], "complex"),
        ([2**63, -1], "too large"),
        ([datetime.now(), np.array([1, 2])], "arrays"),
    ],
)
def test_a_column_that_fits_no_arrow_type_is_named(wordpiece, values: list[Any], got: str) -> None:
    frame = pd.DataFrame({"text": TEXTS[:2], "idx": values}, dtype=object)
    with pytest.raises(TypeError, match=rf"the values of column 'idx' fit no Arrow type\n  got: .*{got}"):
        DataCollatorWithPositionalEncoding(wordpiece)(frame)


@pytest.mark.parametrize("form", [None, "arrow"])
def test_columns_that_map_keeps_keep_their_types_and_values(wordpiece, form: Any) -> None:
    table = pa.table(
        {
            "text": pa.array(["I ride bike", "a"], pa.large_string()),
            "small": pa.array([1, 2], pa.int8()),
            "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
            "half": pa.array(np.array([0.5, 0.25], np.float16)),
            "when": pa.array([1_700_000_000_000_000_001, 2], pa.timestamp("ns")),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4, dtype=np.float32)), 2),
            "tags": pa.array([["x"], []]),
            "nothing": pa.nulls(2),
        }
    )
    rows = datasets.Dataset(table).cast_column("small", datasets.ClassLabel(names=["a", "b", "c"]))
    mapped = rows.with_format(form).map(C(wordpiece), batched=True)
    for name, kind in rows.features.items():
        assert mapped.features[name] == kind, name
        assert mapped.data[name].equals(rows.data[name]), name


def test_map_decodes_no_column_that_it_keeps(wordpiece, rows, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets.formatting.formatting import LazyBatch

    decoded: list[str] = []
    theirs = LazyBatch.format
    monkeypatch.setattr(LazyBatch, "format", lambda batch, name: decoded.append(name) or theirs(batch, name))
    assert set(rows.map(C(wordpiece), batched=True).column_names) == MADE | {"text", "n"}
    assert decoded == []
    changed = rows.map(lambda batch: C(wordpiece)({**batch, "text": ["a"] * len(batch["text"])}), batched=True)
    assert changed["length"][:] == [3] * 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", [None, "numpy"])
def test_a_column_named_by_input_columns_is_tokenized_and_not_padded(wordpiece, rows, form, stream: bool) -> None:
    given = (rows.to_iterable_dataset() if stream else rows).with_format(form)
    mapped = list(given.map(C(wordpiece).columns, batched=True, input_columns="text"))
    assert set(mapped[0]) == MADE | {"text", "n"}
    assert [list(row["input_ids"]) for row in mapped] == wordpiece(TEXTS)["input_ids"]


def test_plain_columns_and_transforms_keep_every_column_but_the_texts_that_were_read(wordpiece, rows) -> None:
    collate = C(wordpiece)
    assert set(collate({"text": TEXTS, "n": [1, 2, 3, 4]})) == MADE | {"n"}
    assert set(collate({"text": np.array(TEXTS), "n": np.arange(4)})) == MADE | {"n"}
    assert set(rows.with_transform(collate)[0]) == MADE | {"n"}
    assert set(rows.with_transform(collate)[:2]) == MADE | {"n"}
    pairs = collate.replace(text_pair_column="other", text_target_column="target")
    assert set(pairs(dict.fromkeys(("text", "other", "target", "kept"), TEXTS))) == MADE | {"labels", "kept"}
    ids = {"input_ids": [[5, 6]], "text": ["a"]}  # tokenized rows: no text is read
    assert set(collate(ids)) == MADE - {"token_type_ids"} | {"text"}


def test_the_caller_does_not_change_what_the_collator_returns(wordpiece, rows) -> None:
    collate = C(wordpiece)

    class Subclass(C):
        def __call__(self, given: Any = None, **settings: Any) -> Any:
            return super().__call__(given, **settings)

    for call in (collate, lambda given: collate(given), Subclass(wordpiece)):  # noqa: PLW0108
        assert set(rows.map(call, batched=True, remove_columns="text").column_names) == MADE | {"n"}
        assert "look_ahead_mask" in rows.map(call, batched=True, input_columns="text").column_names  # a list: rows
        assert set(call({"text": TEXTS, "n": [1, 2, 3, 4]})) == MADE | {"n"}
    for columns in (collate.columns, lambda given: collate.columns(given)):  # noqa: PLW0108
        assert set(rows.map(columns, batched=True, input_columns="text").column_names) == MADE | {"text", "n"}
        assert set(columns({"text": TEXTS, "n": [1, 2, 3, 4]})) == set(columns(TEXTS)) == MADE
        assert set(columns(rows.with_format("arrow")[:]).column_names) == MADE


def test_input_columns_keep_a_given_length(wordpiece) -> None:
    films = datasets.Dataset.from_dict({"text": TEXTS, "length": [90, 95, 100, 120]})
    with pytest.raises(ValueError, match="the input already has a column 'length'"):
        films.map(C(wordpiece), batched=True)
    renamed = films.rename_column("length", "minutes").map(C(wordpiece).columns, batched=True, input_columns="text")
    assert renamed["minutes"][:] == [90, 95, 100, 120]


def test_a_table_of_many_megabytes_is_pickled_as_its_digest(wordpiece) -> None:
    table = nn.Embedding.from_pretrained(torch.randn(30_000, 300))
    assert len(pickle.dumps(C(wordpiece, embedding=table))) < 2**20
    assert len(pickle.dumps(C(wordpiece, embedding=table, store_embeddings=True))) > table.weight.nbytes


def test_indices_that_the_model_does_not_take_are_left_alone(wordpiece) -> None:
    spec = ModelSpec(accepts=("input_ids", "attention_mask"))
    stored = C(wordpiece, model=spec)({"input_ids": [[5, 6, 7]], "start_positions": [250]})
    assert list(stored["start_positions"]) == [250]


def test_a_column_of_vectors_is_never_read_as_one_value_per_token(wordpiece) -> None:
    """Its vectors are as long as the tokens of their rows, as their padded rows, or as neither."""
    rows = [
        {"input_ids": [5, 6, 7, 0, 0], "attention_mask": [1, 1, 1, 0, 0]},
        {"input_ids": [5, 6, 7, 8, 9], "attention_mask": [1, 1, 1, 1, 1]},
    ]
    for vector in ([3, 1, 2], [3, 1, 2, 4, 4], [0.5] * 7):
        given = [{**row, "vector": vector} for row in rows]
        for several in (given, given[:1]):
            batch = C(wordpiece, max_length=5)(several)
            assert batch["vector"].tolist() == [vector] * len(several)
            assert C(wordpiece)({name: [row[name] for row in several] for name in several[0]})["vector"] == [
                vector
            ] * len(several)
    with pytest.warns(UserWarning, match=r"(?s)\['vector'\] have as many values.*token_columns=\('vector',\)"):
        stored = C(wordpiece, max_length=2, add_special_tokens=False)({"input_ids": [[5, 6, 7]], "vector": [[3, 1, 2]]})
    assert stored["vector"] == [[3, 1, 2]]
    ragged = [{"input_ids": [5, 6, 7], "tags": [3, 1, 2]}, {"input_ids": [5], "tags": [1]}]
    with pytest.raises(ValueError, match=r"(?s)'tags' has lengths 1 and 3.*fix: token_columns=\('tags',\)"):
        C(wordpiece)(ragged)


def test_a_declared_column_of_another_length_or_that_is_missing_is_refused(wordpiece) -> None:
    collate = C(wordpiece, token_columns=["weight"])
    assert collate.token_columns == ("weight",)
    for rows in (["I ride"], [{"text": "I", "weight": [1.0]}], [{"input_ids": [5]}]):
        with pytest.raises(ValueError, match="token_columns has 'weight', a column with one value per token"):
            collate(rows)
    with pytest.raises(ValueError, match="row 1 of column 'weight' must have one value for each of its 3 tokens"):
        collate([{"input_ids": [5], "weight": [1.0]}, {"input_ids": [5, 6, 7], "weight": [1.0, 2.0]}])
    for name in ("labels", "bbox", "attention_mask", "start_positions"):
        with pytest.raises(ValueError, match=rf"(?s)\['{name}'\], which are read.*fix: token_columns=\('weight',\)"):
            C(wordpiece, token_columns=("weight", name))


@for_each("kind", [int, float, bool, np.float32])
def test_declared_columns_follow_their_tokens_into_packed_rows(wordpiece, kind: Any) -> None:
    rows = [{"input_ids": [5, 6, 7, 0], "attention_mask": [1, 1, 1, 0], "weight": [1, 2, 3, 0]}]
    rows = [{**row, "weight": [kind(value) for value in row["weight"]]} for row in rows]
    rows += [{"input_ids": [8, 9], "attention_mask": [1, 1], "weight": [kind(4), kind(5)]}]
    settings: dict[str, Any] = {"token_columns": "weight", "look_ahead": False, "add_special_tokens": False}
    packed = C(wordpiece, packing=True, max_length=6, **settings)(rows)["weight"]
    flat = C(wordpiece, packing="flat", pad_to_multiple_of=4, **settings)(rows)["weight"]
    padded = C(wordpiece, max_length=2, **settings)(rows)["weight"]
    expected = [kind(value) for value in (1, 2, 3, 4, 5)]
    assert packed.tolist() == [expected]
    assert flat.tolist() == [[*expected, *[kind(0)] * 3]]
    assert padded.tolist() == [expected[:2], expected[3:5]]


def test_a_long_text_that_continues_in_further_rows_is_not_repeated_in_memory(wordpiece) -> None:
    """Repeated for each of its rows, this text would have 45 GB."""
    dataset = datasets.Dataset.from_dict({"text": ["I ride a bike to the sea, she said. " * 120_000, "a"], "n": [1, 2]})
    collate = C(wordpiece, max_length=128, return_overflowing_tokens=True)
    stored = dataset.map(collate, batched=True, remove_columns=["text"])
    assert set(stored["overflow_to_sample_mapping"]) == {0, 1}
    assert stored["n"][:2] == [1, 1]
    with pytest.raises(ValueError, match=r"(?s)column 'text' repeats long texts.* GB.*remove_columns=\['text'\]"):
        dataset.with_format("arrow").map(collate, batched=True)


def test_rows_that_map_stored_from_a_batch_warn_when_they_are_collated(wordpiece, rows) -> None:
    """`map(collate, input_columns=...)` calls the collator with a list of texts, and so gets a padded batch."""
    collate = C(wordpiece)
    stored = rows.map(collate, input_columns="text", batched=True, remove_columns=["text", "n"])
    for call in (lambda each: each(list(stored)), lambda each: stored.map(each, batched=True)):
        with pytest.warns(UserWarning, match=r"(?s)look_ahead_mask has T×T values.*collate.columns, input_columns="):
            call(C(wordpiece))
    ids = rows.map(collate.columns, input_columns="text", batched=True, remove_columns=["text", "n"])
    with warnings.catch_warnings(action="error"):
        assert collate(list(ids))["input_ids"].equal(collate(TEXTS)["input_ids"])
        C(wordpiece)(list(stored.remove_columns("look_ahead_mask")))


@pytest.mark.parametrize("look_ahead", [None, False])
def test_masks_that_map_stored_warn_without_labels_and_are_refused_with_them(wordpiece, rows, look_ahead: Any) -> None:
    drawn = C(wordpiece, labels="masked_lm", mlm_probability=0.5, seed=0)
    stored = rows.map(drawn, input_columns="text", batched=True, remove_columns=["text", "n"])
    with pytest.warns(UserWarning, match=r"(?s)masked already.*\n  fix: .*collate.columns, .*are drawn for each batch"):
        batch = C(wordpiece, look_ahead=look_ahead)(list(stored))
    assert batch["labels"].equal(drawn(TEXTS)["labels"])
    for labels in ("masked_lm", "causal_lm"):
        with pytest.raises(ValueError, match=r"masked already.*\n.*\n  fix: .*collate.columns, "):
            C(wordpiece, labels=labels)(list(stored))
    own = {"input_ids": [5, wordpiece.mask_token_id], "labels": [-100, wordpiece.mask_token_id]}
    with warnings.catch_warnings(action="error"):
        C(wordpiece)([own, {**own, "labels": [7, -100]}])
