"""`dataset.map` with the collator: stored rows equal the batch, columns can be removed, the cache is hit.

Beside it the claims about fingerprints that `test_collator_datasets` leaves open.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from looping import for_each
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec, PositionalEmbedding

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


def _check(got: Any, want: Any) -> None:
    """Rows with embeddings are those of the batch, without its padding."""
    for row, values in enumerate(got):
        length = int(want["attention_mask"][row].sum())
        np.testing.assert_allclose(
            np.asarray(values["inputs_embeds"])[:length], want["inputs_embeds"][row, :length], rtol=0, atol=1e-6
        )
        assert np.asarray(values["input_ids"])[:length].tolist() == want["input_ids"][row, :length].tolist()


@pytest.mark.parametrize("form", [None, "torch", "numpy", "arrow", "pandas"])
@pytest.mark.parametrize("padding", [True, "max_length"])
def test_a_data_set_in_every_format_is_mapped(wordpiece, rows, form: Any, padding: Any) -> None:
    collate = _stores(wordpiece, padding=padding, max_length=16)
    formatted = rows.with_format(form)
    mapped = formatted.map(collate, **_settings(collate, formatted))
    shape = (16 if padding == "max_length" else None, 8)
    assert mapped.features["inputs_embeds"] == datasets.Array2D(shape=shape, dtype="float32")
    want = collate(TEXTS)
    for read in ("torch", "numpy"):
        _check(mapped.with_format(read), want)


@pytest.mark.parametrize("form", [None, "torch", "numpy", "arrow"])
def test_a_stream_is_mapped(wordpiece, rows, form: Any) -> None:
    collate = _stores(wordpiece)
    stream = rows.to_iterable_dataset().with_format(form)
    mapped = stream.map(collate, **_settings(collate, stream))
    assert mapped.features["inputs_embeds"] == datasets.Array2D(shape=(None, 8), dtype="float32")
    _check(mapped.with_format("numpy"), collate(TEXTS))


@pytest.mark.parametrize("form", [None, "arrow"])
def test_overflowing_rows_are_mapped_without_removing_columns(wordpiece, form: Any) -> None:
    rows = datasets.Dataset.from_dict({"text": ["I ride bike and so on " * 9, "a"], "n": [1, 2]}).with_format(form)
    collate = _stores(wordpiece, max_length=8, return_overflowing_tokens=True, stride=2)
    mapped = rows.map(collate, **_settings(collate, rows)).with_format("numpy")
    assert len(mapped) > 2
    assert mapped["n"][:].tolist() == [1] * (len(mapped) - 1) + [2]
    assert [len(row["inputs_embeds"]) for row in mapped] == mapped["length"][:].tolist()


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


@pytest.mark.workers
def test_map_removes_columns_in_processes_in_splits_and_behind_a_function(wordpiece, rows) -> None:
    collate = C(wordpiece)
    names = rows.column_names
    assert set(rows.map(collate, batched=True, num_proc=2, remove_columns=names).column_names) == MADE
    both = datasets.DatasetDict(train=rows, test=rows).map(collate, batched=True, remove_columns=names)
    assert {name for split in both.values() for name in split.column_names} == MADE
    behind = rows.map(lambda batch: {**collate(batch)}, batched=True, remove_columns=names)
    assert set(behind.column_names) == MADE
    assert set(rows.map(collate.columns, batched=True, remove_columns=names).column_names) == MADE


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
def test_map_removes_columns_of_rows_that_overflow_and_repeats_the_others(wordpiece, form: Any) -> None:
    rows = datasets.Dataset.from_dict({"text": ["I ride bike and so on " * 9, "a"], "n": [1, 2], "m": [3, 4]})
    collate = C(wordpiece, max_length=8, return_overflowing_tokens=True)
    removed = ["text", "n"] if form is None else rows.column_names
    mapped = rows.with_format(form).map(collate, batched=True, remove_columns=removed).with_format(None)
    assert set(mapped.column_names) == MADE | {"m", "overflow_to_sample_mapping"} | (set() if form is None else {"n"})
    assert mapped["m"][:] == [3] * (len(mapped) - 1) + [4]
    assert mapped["input_ids"][:] == [ids.tolist() for ids in collate({"text": rows["text"][:]})["input_ids"]]


def test_columns_may_have_numbers_as_names(wordpiece) -> None:
    collate = DataCollatorWithPositionalEncoding(wordpiece)
    for rows in ({"input_ids": [[1, 2]], 1: [[4, 5]]}, [{"input_ids": [1, 2], 1: [4, 5]}]):
        assert collate.batch(rows)[1][0].tolist() == [4, 5]


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


def test_ids_that_are_mapped_again_are_not_removed(word_level) -> None:
    rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3, 4], [5]], "labels": [[1, 2, 3, 4], [5]], "n": [7, 8]})
    cut = rows.map(C(word_level, max_length=3), batched=True, remove_columns=rows.column_names)
    assert cut["input_ids"][:] == cut["labels"][:] == [[1, 2, 3], [5]]
    assert "n" not in cut.column_names
    pieces = C(word_level, max_length=3, return_overflowing_tokens=True)
    split = rows.map(pieces, batched=True, remove_columns=["input_ids", "labels"])
    assert split["input_ids"][:] == split["labels"][:] == [[1, 2, 3], [4], [5]]
    assert split["n"][:] == [7, 7, 8]


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


@pytest.mark.parametrize("stream", [False, True])
def test_removed_columns_are_left_out_of_the_features(wordpiece, rows, stream) -> None:
    for collate in (C(wordpiece), _stores(wordpiece)):
        given = rows.to_iterable_dataset() if stream else rows
        settings = _settings(collate, given, remove_columns=["text", "n"])
        mapped = given.map(collate.columns, **settings)
        assert mapped.features == settings["features"]
        assert "text" not in mapped.features
        assert set(next(iter(mapped))) == set(settings["features"])
        assert collate.features(rows, remove_columns="n").keys() == collate.features(rows).keys() - {"n"}


def _fingerprint(collate: Any) -> str:
    from datasets.fingerprint import Hasher

    return str(Hasher.hash(collate))


@pytest.mark.parametrize("stored", [False, True])
def test_the_fingerprint_changes_with_one_number_of_a_table_or_an_encoding(wordpiece, stored: bool) -> None:
    embed = PositionalEmbedding(nn.Embedding.from_pretrained(torch.randn(1200, 8)), encoding="learned", max_length=16)
    collate = C(wordpiece, embedding=embed.requires_grad_(False), store_embeddings=stored)
    prints = [_fingerprint(collate)]
    for weight in embed.parameters():
        weight[3, 2] += 1
        prints += [_fingerprint(collate), _fingerprint(collate)]
    assert prints[1] == prints[2] != prints[0]
    assert prints[3] == prints[4] != prints[1]


def test_a_map_with_embeddings_hits_the_cache_until_the_table_changes(wordpiece, rows, tmp_path: Path) -> None:
    rows.save_to_disk(tmp_path / "rows")
    on_disk = datasets.load_from_disk(tmp_path / "rows")
    collate = _stores(wordpiece)
    first = on_disk.map(collate, **_settings(collate, on_disk))
    collate(TEXTS)
    again = pickle.loads(pickle.dumps(collate))
    assert on_disk.map(again, **_settings(again, on_disk))._fingerprint == first._fingerprint
    with torch.no_grad():
        collate.embedding.weight[7, 3] += 1
    changed = on_disk.map(collate, **_settings(collate, on_disk))
    assert changed._fingerprint != first._fingerprint


def test_a_table_of_many_megabytes_is_pickled_as_its_digest(wordpiece) -> None:
    table = nn.Embedding.from_pretrained(torch.randn(30_000, 300))
    assert len(pickle.dumps(C(wordpiece, embedding=table))) < 2**20
    assert len(pickle.dumps(C(wordpiece, embedding=table, store_embeddings=True))) > table.weight.nbytes


def test_labels_that_came_with_masks_of_supervision_are_stored_as_a_batch_has_them(wordpiece) -> None:
    collate = C(wordpiece, labels="causal_lm")
    rows = {"input_ids": [[5, 6, 7, 8]], "labels": [[-100, -100, 7, 8]], "completion_mask": [[1, 1, 1, 0]]}
    with warnings.catch_warnings(action="ignore"):
        stored = collate(rows)
        batch = collate.batch(rows)
    assert [row.tolist() for row in stored["labels"]] == batch["labels"].tolist() == [[-100, -100, 7, -100]]


def test_token_types_that_the_tokenizer_does_not_return_are_stored_without_padding(word_level) -> None:
    word_level.model_input_names = ["input_ids", "attention_mask"]
    padded = {"input_ids": [[0, 5, 6]], "attention_mask": [[0, 1, 1]], "token_type_ids": [[0, 0, 1]]}
    stored = datasets.Dataset.from_dict(padded).map(C(word_level), batched=True)
    assert stored["input_ids"][0] == [5, 6]
    assert stored["token_type_ids"][0] == [0, 1]


def test_indices_that_the_model_does_not_take_are_left_alone(wordpiece) -> None:
    spec = ModelSpec(accepts=("input_ids", "attention_mask"))
    stored = C(wordpiece, model=spec)({"input_ids": [[5, 6, 7]], "start_positions": [250]})
    assert list(stored["start_positions"]) == [250]


def test_columns_with_one_value_per_token_are_padded_with_and_without_padding_in_the_rows(wordpiece) -> None:
    rows = [{"input_ids": [5, 6, 7], "weight": [0.5, 1.0, 2.0]}, {"input_ids": [8, 9], "weight": [3.0, 4.0]}]
    padded = [
        {"input_ids": [5, 6, 7, 0], "weight": [0.5, 1.0, 2.0, 0.0], "attention_mask": [1, 1, 1, 0]},
        {"input_ids": [0, 8, 9], "weight": [0.0, 3.0, 4.0], "attention_mask": [0, 1, 1]},
    ]
    for given in (rows, padded):
        for side, second in (("right", [3, 4, 0]), ("left", [0, 3, 4])):
            collate = C(wordpiece, padding_side=side, token_columns=("weight",))
            assert collate(given)["weight"].tolist() == [[0.5, 1, 2], second]
    boxes = [
        {**row, "bbox": [[9, n, n, n] if m else [7] * 4 for n, m in enumerate(row["attention_mask"])]} for row in padded
    ]
    boxes = [{name: value for name, value in row.items() if name != "weight"} for row in boxes]
    assert C(wordpiece)(boxes)["bbox"][1].tolist() == [[9, 1, 1, 1], [9, 2, 2, 2], [0, 0, 0, 0]]


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


_GIVEN: dict[str, tuple[list[int], list[int]]] = {  # of a padded row of two documents, and of a row of one
    "document_ids": ([-1, 0, 0, 0, 1, 1, -1], [0, 0]),
    "seq_idx": ([-1, 0, 0, 0, 1, 1, -1], [0, 0]),
    "seq_lengths": ([3, 2], [2]),
    "cu_seq_lens_q": ([0, 3, 5], [0, 2]),
    "position_ids": ([0, 0, 1, 2, 0, 1, 0], [0, 1]),
    "attention_mask": ([0, 1, 1, 1, 2, 2, 0], [1, 1]),
}


@for_each("settings", [{}, {"max_length": 4}, {"max_length": 4, "return_overflowing_tokens": True}])
@pytest.mark.filterwarnings("ignore:a batch has more rows than it was given")
@for_each("names", [*_GIVEN, *combinations(_GIVEN, 2)])
def test_padded_rows_of_several_documents_are_read_again_after_map(
    word_level, names: str | tuple[str, str], settings: dict[str, Any]
) -> None:
    rows = [
        {"input_ids": [0, 5, 6, 7, 8, 9, 0], "attention_mask": [0, 1, 1, 1, 1, 1, 0], "n": 1},
        {"input_ids": [8, 9], "attention_mask": [1, 1], "n": 2},
    ]
    for number, row in enumerate(rows):
        row |= {name: _GIVEN[name][number] for name in ([names] if isinstance(names, str) else names)}
    dataset = datasets.Dataset.from_list(rows)
    collate = C(word_level, labels="causal_lm", on_no_labels="keep", **settings)
    want = collate(rows)["labels"]
    for removed in ([], ["n"], ["attention_mask"], dataset.column_names):
        for how in ({"batch_size": 1}, {}):
            stored = dataset.map(collate, batched=True, remove_columns=removed, **how)
            assert not {"n"} & {*removed} & {*stored.column_names}
            assert torch.equal(collate.batch(stored[:])["labels"], want), (removed, how, stored.column_names)
    assert torch.equal(collate.batch(dataset.with_format("numpy").map(collate, batched=True)[:])["labels"], want)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_further_values_of_tokens_are_truncated_and_removed_in_batches_with_and_without_padding(
    word_level, size: int
) -> None:
    rows = {
        "input_ids": [[5, 6, 7, 0], [8, 9], [8, 9, 4, 4], [3, 4, 5]],
        "attention_mask": [[1, 1, 1, 0], [1, 1], [1, 1, 1, 1], [1, 1, 1]],
        "weight": [[1.0, 2, 3, 0], [4, 5], [6, 7, 8, 9], [1, 2, 3]],
    }
    dataset, collate = datasets.Dataset.from_dict(rows), C(word_level, max_length=2, token_columns="weight")
    stored = dataset.map(collate, batched=True, batch_size=size)
    assert stored["weight"][:] == [[1, 2], [4, 5], [6, 7], [1, 2]]
    kept = dataset.map(collate, batched=True, batch_size=size, remove_columns=dataset.column_names)
    assert sorted(kept.column_names) == ["attention_mask", "input_ids", "length", "weight"]
    assert "weight" in collate.features(dataset, remove_columns=["weight"])


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
