"""`dataset.map(collate, **collate.map_arguments(dataset))`: what is stored, held against the batch, and what it takes.

Beside it the claims about fingerprints that `test_collator_datasets` leaves open.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding
from hf_posenc.collator import mapping, saving

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a", "unsurprisingly, so"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="store_embeddings writes")
        warnings.filterwarnings("ignore", message=r".* texts were cut to 512 tokens")
        warnings.filterwarnings("ignore", message="To copy construct from a tensor")  # of a stream in torch's format
        yield
    datasets.enable_progress_bars()


@pytest.fixture
def rows() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": TEXTS, "n": [1, 2, 3, 4]})


def _stores(tokenizer: Any, **settings: Any) -> C:
    table = nn.Embedding.from_pretrained(torch.randn(1200, 8, generator=torch.Generator().manual_seed(0)))
    return C(tokenizer, embedding=table, store_embeddings=True, **settings)


def _check(got: Any, want: Any) -> None:
    """Rows with embeddings are those of the batch, without its padding."""
    for row, values in enumerate(got):
        length = int(want["attention_mask"][row].sum())
        np.testing.assert_allclose(
            np.asarray(values["inputs_embeds"])[:length], want["inputs_embeds"][row, :length], rtol=0, atol=1e-6
        )
        assert np.asarray(values["input_ids"])[:length].tolist() == want["input_ids"][row, :length].tolist()


# ---------------------------------------------------------------------------------------------------------- one line


@pytest.mark.parametrize("form", [None, "torch", "numpy", "arrow", "pandas"])
@pytest.mark.parametrize("padding", [True, "max_length"])
def test_one_line_maps_a_data_set_in_every_format(wordpiece, rows, form: Any, padding: Any) -> None:
    collate = _stores(wordpiece, padding=padding, max_length=16)
    formatted = rows.with_format(form)
    said = collate.map_arguments(formatted)
    assert said == collate.map_arguments(rows)
    mapped = formatted.map(collate, **said)
    shape = (16 if padding == "max_length" else None, 8)
    assert mapped.features["inputs_embeds"] == datasets.Array2D(shape=shape, dtype="float32")
    want = collate(TEXTS)
    for read in ("torch", "numpy"):
        _check(mapped.with_format(read), want)


@pytest.mark.parametrize("form", [None, "torch", "numpy", "arrow"])
def test_a_stream_is_mapped_by_the_same_line(wordpiece, rows, form: Any) -> None:
    collate = _stores(wordpiece)
    stream = rows.to_iterable_dataset().with_format(form)
    said = collate.map_arguments(stream)
    assert said["batch_size"] == 1000
    mapped = stream.map(collate, **said)
    assert mapped.features["inputs_embeds"] == datasets.Array2D(shape=(None, 8), dtype="float32")
    _check(mapped.with_format("numpy"), collate(TEXTS))


def test_a_stream_that_does_not_say_what_it_holds_is_mapped_too(wordpiece) -> None:
    def lines() -> Any:
        yield from ({"text": text, "extra": None if text == TEXTS[0] else text} for text in TEXTS)

    stream = datasets.IterableDataset.from_generator(lines)
    assert stream.features is None
    ids = C(wordpiece)
    said = ids.map_arguments(stream)
    assert "features" not in said
    assert [len(row["input_ids"]) for row in stream.map(ids, **said)] == [
        len(ids([text])["input_ids"][0]) for text in TEXTS
    ]
    stored = _stores(wordpiece)
    _check(
        stream.remove_columns("extra").map(stored, **stored.map_arguments(stream.remove_columns("extra"))),
        stored(TEXTS),
    )


def test_a_dict_of_splits_is_mapped_by_its_largest_rows(wordpiece, rows) -> None:
    collate = _stores(wordpiece)
    long = datasets.Dataset.from_dict({"text": ["I ride bike " * 2_000] * 40, "n": [0] * 40})
    both = datasets.DatasetDict(short=rows, long=long)
    few = 2**22
    said = collate.map_arguments(both, memory=few)
    assert said["batch_size"] == collate.map_arguments(long, memory=few)["batch_size"] < 40
    mapped = both.map(collate, **said)
    assert (len(mapped["short"]), len(mapped["long"])) == (4, 40)


def test_embeddings_need_not_be_stored(wordpiece, rows) -> None:
    collate = C(wordpiece)
    said = collate.map_arguments(rows)
    assert (said["batch_size"], said["batched"]) == (1000, True)
    assert rows.map(collate, **said).features == said["features"]


@pytest.mark.parametrize("form", [None, "arrow"])
def test_what_overflows_is_mapped_without_columns_removed(wordpiece, form: Any) -> None:
    rows = datasets.Dataset.from_dict({"text": ["I ride bike and so on " * 9, "a"], "n": [1, 2]}).with_format(form)
    collate = _stores(wordpiece, max_length=8, return_overflowing_tokens=True, stride=2)
    mapped = rows.map(collate, **collate.map_arguments(rows)).with_format("numpy")
    assert len(mapped) > 2
    assert mapped["n"][:].tolist() == [1] * (len(mapped) - 1) + [2]
    assert [len(row["inputs_embeds"]) for row in mapped] == mapped["length"][:].tolist()


def test_an_empty_data_set_is_mapped(wordpiece) -> None:
    empty = datasets.Dataset.from_dict({"text": []})
    collate = _stores(wordpiece)
    said = collate.map_arguments(empty)
    assert said == {"batched": True, "batch_size": 1000}
    assert len(empty.map(collate, **said)) == 0


def test_features_are_told_of_tables_and_data_frames_as_well(wordpiece, rows) -> None:
    collate = _stores(wordpiece)
    want = collate.features(rows)
    assert collate.features(rows.with_format("arrow")) == want
    assert collate.features(rows.with_format("pandas")) == want
    assert collate.features(pa.table({"text": TEXTS, "n": [1, 2, 3, 4]})) == want
    assert collate.features(rows.to_pandas()) == want
    assert collate.features(rows.to_iterable_dataset()) == want


# ---------------------------------------------------------------------------------------------------- columns removed

MADE = {"input_ids", "attention_mask", "token_type_ids", "length"}


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
@pytest.mark.parametrize("stream", [False, True])
def test_map_removes_the_columns_that_it_is_asked_to_remove(wordpiece, rows, form: Any, stream: bool) -> None:
    collate = C(wordpiece)
    given = (rows.to_iterable_dataset() if stream else rows).with_format(form)
    for removed, kept in ((["text", "n"], set()), (["text"], {"n"}), ("n", {"text"}), (None, {"text", "n"})):
        mapped = given.map(collate, batched=True, batch_size=3, remove_columns=removed)
        names = [set(row) for row in mapped] if stream else [set(mapped.column_names)]
        assert names == [MADE | kept] * len(names)
        ids = [[int(token) for token in row["input_ids"]] for row in mapped]
        assert ids == wordpiece(TEXTS)["input_ids"]


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
    mapped = rows.with_format(form).map(collate, batched=True, remove_columns=["text", "n"]).with_format(None)
    assert set(mapped.column_names) == MADE | {"m", "overflow_to_sample_mapping"}
    assert mapped["m"][:] == [3] * (len(mapped) - 1) + [4]
    assert mapped["input_ids"][:] == [ids.tolist() for ids in collate({"text": rows["text"][:]})["input_ids"]]


def test_ids_that_are_mapped_again_are_not_removed_with_those_that_came(word_level) -> None:
    rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3, 4], [5]], "labels": [[1, 2, 3, 4], [5]], "n": [7, 8]})
    cut = rows.map(C(word_level, max_length=3), batched=True, remove_columns=rows.column_names)
    assert cut["input_ids"][:] == cut["labels"][:] == [[1, 2, 3], [5]]
    assert "n" not in cut.column_names
    pieces = C(word_level, max_length=3, return_overflowing_tokens=True)
    split = rows.map(pieces, batched=True, remove_columns=["input_ids", "labels"])
    assert split["input_ids"][:] == split["labels"][:] == [[1, 2, 3], [4], [5]]
    assert split["n"][:] == [7, 7, 8]


@pytest.mark.parametrize("form", [None, "numpy", "arrow"])
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
def test_a_column_named_by_input_columns_is_tokenised_and_not_padded(wordpiece, rows, form, stream: bool) -> None:
    given = (rows.to_iterable_dataset() if stream else rows).with_format(form)
    mapped = list(given.map(C(wordpiece), batched=True, input_columns="text"))
    assert set(mapped[0]) == MADE | {"text", "n"}
    assert [list(row["input_ids"]) for row in mapped] == wordpiece(TEXTS)["input_ids"]


@pytest.mark.parametrize("stream", [False, True])
def test_input_columns_without_batched_are_told_of_it(wordpiece, rows, stream: bool) -> None:
    with pytest.raises(ValueError, match="map needs batched=True"):
        list((rows.to_iterable_dataset() if stream else rows).map(C(wordpiece), input_columns="text"))


@pytest.mark.parametrize("form", ["arrow", "pandas"])
def test_tables_keep_their_columns_in_map_which_the_arguments_for_it_say(wordpiece, rows, form: str) -> None:
    tables, collate = rows.with_format(form), C(wordpiece)
    assert set(tables.map(collate, batched=True, remove_columns=["n"]).column_names) == MADE | {"text", "n"}
    with pytest.raises(ValueError, match=r"removes no columns of a data set whose batches are tables") as refused:
        collate.map_arguments(datasets.DatasetDict(a=rows, b=tables), remove_columns=["n"])
    assert ".remove_columns(['n'])" in str(refused.value)


def test_plain_columns_and_transforms_keep_every_column(wordpiece, rows) -> None:
    collate = C(wordpiece)
    assert set(collate({"text": TEXTS, "n": [1, 2, 3, 4]})) == MADE | {"text", "n"}
    assert set(collate({"text": np.array(TEXTS), "n": np.arange(4)})) == MADE | {"text", "n"}
    assert set(rows.with_transform(collate)[0]) == MADE | {"text", "n"}
    assert set(rows.with_transform(collate)[:2]) == MADE | {"text", "n"}


@pytest.mark.parametrize("stream", [False, True])
def test_the_arguments_for_map_remove_columns_and_leave_them_out_of_the_features(wordpiece, rows, stream) -> None:
    for collate in (C(wordpiece), _stores(wordpiece)):
        given = rows.to_iterable_dataset() if stream else rows
        said = collate.map_arguments(given, remove_columns=["text", "n"])
        mapped = given.map(collate, **said)
        assert mapped.features == said["features"]
        assert "text" not in mapped.features
        assert set(next(iter(mapped))) == set(said["features"])
        assert collate.features(rows, remove_columns="n").keys() == collate.features(rows).keys() - {"n"}


# ------------------------------------------------------------------------------------------------------ bytes, not rows


def test_batches_are_counted_in_bytes(wordpiece) -> None:
    short = datasets.Dataset.from_dict({"text": ["I ride bike"] * 3000})
    long = datasets.Dataset.from_dict({"text": ["I ride bike " * 400] * 100})
    ids = C(wordpiece)
    assert ids.map_arguments(short)["batch_size"] == 1000
    few = 2**23
    assert 1 < ids.map_arguments(long, memory=few)["batch_size"] < 100
    stored = _stores(wordpiece)
    assert (
        stored.map_arguments(long, memory=few)["batch_size"]
        < ids.map_arguments(long, memory=few)["batch_size"]
        < C(wordpiece, max_length=64).map_arguments(long, memory=few)["batch_size"]
    )
    pieces = C(wordpiece, return_overflowing_tokens=True)
    assert pieces.map_arguments(long, memory=few)["batch_size"] < ids.map_arguments(long, memory=few)["batch_size"]
    sizes = [ids.map_arguments(long, memory=2**bits)["batch_size"] for bits in (10, 22, 24, 26, 30)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 1000)


def test_the_longest_neighbours_decide_also_after_sorting_and_shuffling(wordpiece) -> None:
    texts = ["a"] * 2000 + ["I ride bike " * 2_000] * 50
    together = datasets.Dataset.from_dict({"text": texts})
    spread = together.select(
        [place for long in range(50) for place in (*range(40 * long, 40 * long + 40), 2000 + long)]
    )
    collate = C(wordpiece)
    assert collate.map_arguments(together, memory=2**22)["batch_size"] < 50
    assert collate.map_arguments(spread, memory=2**22)["batch_size"] >= 50
    assert collate.map_arguments(together.select(range(2000)), memory=2**22)["batch_size"] == 1000


def test_columns_that_are_carried_count_and_so_do_ids_that_came(wordpiece) -> None:
    carried = datasets.Dataset.from_dict({"text": ["a"] * 50, "bytes": [b"x" * 10**6] * 50})
    assert C(wordpiece).map_arguments(carried)["batch_size"] == 20
    ids = datasets.Dataset.from_dict({"input_ids": [[5] * 20_000] * 50})
    assert C(wordpiece).map_arguments(ids, memory=2**20)["batch_size"] < 50


def test_a_long_data_set_is_weighed_in_parts(wordpiece, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = datasets.Dataset.from_dict({"text": ["I ride bike " * 200] * 500})
    want = C(wordpiece).map_arguments(rows, memory=2**22)["batch_size"]
    monkeypatch.setattr(mapping, "_STRETCHES", 5)
    monkeypatch.setattr(mapping, "_STRETCH", 20)
    assert C(wordpiece).map_arguments(rows, memory=2**22)["batch_size"] == want < 100


def test_columns_of_a_stream_that_arrow_cannot_hold_are_left_to_map(wordpiece) -> None:
    stream = datasets.IterableDataset.from_generator(lambda: ({"text": text, "odd": object()} for text in TEXTS))
    assert C(wordpiece).map_arguments(stream)["batch_size"] == 1000


def test_nonsense_is_refused_with_the_way_out(wordpiece, rows) -> None:
    collate = C(wordpiece)
    for memory in (0, -5, True, 1.5, "64MB", None):
        with pytest.raises(ValueError, match=r"memory must be a positive whole number of bytes"):
            collate.map_arguments(rows, memory=memory)
    for given in (TEXTS, {"text": TEXTS}, None, "imdb"):
        with pytest.raises(TypeError, match=r"the data set that is to be mapped[\s\S]*map_arguments\(dataset\)"):
            collate.map_arguments(given)
    with pytest.raises(ValueError, match="body"):
        collate.replace(text_column="body").map_arguments(rows)


def test_a_bad_row_is_left_for_map_to_name(wordpiece) -> None:
    bad = datasets.Dataset.from_dict({"text": [*TEXTS, *TEXTS, None]})
    collate = C(wordpiece)
    said = collate.map_arguments(bad)
    with pytest.raises(TypeError, match="row 8 of column 'text' is NoneType"):
        bad.map(collate, **said)


# -------------------------------------------------------------------------------------------------------- fingerprints


def _fingerprint(collate: Any) -> str:
    from datasets.fingerprint import Hasher

    return str(Hasher.hash(collate))


def test_the_fingerprint_changes_with_the_format_version(wordpiece, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _fingerprint(C(wordpiece))
    monkeypatch.setattr(saving, "FORMAT_VERSION", saving.FORMAT_VERSION + 1)
    assert _fingerprint(C(wordpiece)) != before


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
    first = on_disk.map(collate, **collate.map_arguments(on_disk))
    collate(TEXTS)
    again = pickle.loads(pickle.dumps(collate))
    assert on_disk.map(again, **again.map_arguments(on_disk))._fingerprint == first._fingerprint
    with torch.no_grad():
        collate.embedding.weight[7, 3] += 1
    changed = on_disk.map(collate, **collate.map_arguments(on_disk))
    assert changed._fingerprint != first._fingerprint


def test_a_table_of_many_megabytes_is_told_by_its_digest(wordpiece) -> None:
    """How fast that is, is measured by `tests.benchmarks.storing`."""
    table = nn.Embedding.from_pretrained(torch.randn(30_000, 300))
    assert len(pickle.dumps(C(wordpiece, embedding=table))) < 2**20
    assert len(pickle.dumps(C(wordpiece, embedding=table, store_embeddings=True))) > table.weight.nbytes
