"""The sockets of `datasets` and `DataLoader`: map, transforms, streams, processes, workers, Arrow and pandas.

Held against the batch of the same texts; what could hang or write to stderr runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

from hf_posenc import DataCollatorWithPositionalEncoding, MaskedLM, PositionalEmbedding, stream_batches

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a", "unsurprisingly, so"]


@pytest.fixture(autouse=True)
def _without_progress_bars() -> Any:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.fixture
def rows() -> datasets.Dataset:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "n": datasets.Value("int8"),
        }
    )
    return datasets.Dataset.from_dict({"text": TEXTS, "label": [1, 0, 1, 0], "n": [1, 2, 3, 4]}, features=features)


def _same(one: Any, other: Any, names: Any = ("input_ids", "attention_mask", "token_type_ids", "position_ids")) -> None:
    for name in names:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("form", [None, "numpy", "torch", "pandas", "arrow"])
def test_map_then_collate_gives_the_batch_of_the_texts_in_every_format(wordpiece, rows, form: str | None) -> None:
    collate = C(wordpiece)
    want = collate(TEXTS)
    mapped = rows.with_format(form).map(collate, batched=True, batch_size=3)
    assert mapped.num_rows == 4
    assert {"text", "label", "n", "input_ids", "attention_mask", "token_type_ids", "length"} == set(mapped.column_names)
    batch = collate(list(mapped.with_format(None)))
    _same(batch, want)
    assert batch["labels"].tolist() == [1, 0, 1, 0]
    _same(collate(list(mapped.with_format("torch"))), want)
    _same(collate(list(mapped.with_format("numpy"))), want)
    assert isinstance(mapped.features["label"], datasets.ClassLabel)


@pytest.mark.parametrize(("form", "kind"), [("arrow", "Table of pyarrow"), ("pandas", "DataFrame of pandas")])
def test_a_formatted_stream_through_a_loader_is_refused_with_the_fix(wordpiece, rows, form: str, kind: str) -> None:
    collate, stream = C(wordpiece), rows.to_iterable_dataset().with_format(form)
    words = rf"(?s)row 0 is a {kind}, expected a text.*fix: stream\.with_format\(None\)"
    with pytest.raises(TypeError, match=words):
        next(iter(DataLoader(stream, batch_size=2, collate_fn=collate)))
    for collate_fn in (None, collate):
        with pytest.raises(TypeError, match=words):
            next(iter(stream_batches(stream, 64, collate_fn)))
    loader = DataLoader(stream.with_format(None), batch_size=4, collate_fn=collate)
    _same(next(iter(loader)), collate(TEXTS))
    for plain in ("numpy", "torch"):  # rows of arrays are rows
        _same(next(iter(DataLoader(stream.with_format(plain), batch_size=4, collate_fn=collate))), collate(TEXTS))


def test_the_rows_of_a_data_frame_are_dicts(wordpiece) -> None:
    frame = pd.DataFrame({"text": ["a", "I ride"], "label": [1, 0]})
    with pytest.raises(TypeError, match=r"(?s)row 0 of column 'text' is Series.*fix: .*frame\.to_dict\(\"records\"\)"):
        C(wordpiece)([row for _, row in frame.iterrows()])
    _same(C(wordpiece)(frame.to_dict("records")), C(wordpiece).batch(frame))
    assert C(wordpiece)([pd.Series([5, 6]), pd.Series([7])])["input_ids"].shape == (2, 2)  # ids


def test_tables_and_record_batches_give_tables(wordpiece) -> None:
    table = pa.table({"text": TEXTS, "label": [1, 0, 1, 0]})
    want = wordpiece(TEXTS)["input_ids"]
    for given in (table, table.to_batches()[0], table.slice(0), pa.concat_tables([table.slice(0, 2), table.slice(2)])):
        out = C(wordpiece)(given)
        assert isinstance(out, pa.Table)
        assert out["input_ids"].to_pylist() == want
        assert out["label"].to_pylist() == [1, 0, 1, 0]
    assert C(wordpiece)(table.slice(1, 2))["input_ids"].to_pylist() == want[1:3]
    assert C(wordpiece).batch(table)["input_ids"].shape[0] == 4
    padded = C(wordpiece, padding="max_length", max_length=16)(table)
    assert pa.types.is_fixed_size_list(padded.schema.field("input_ids").type)


def test_dictionaries_of_lists_are_repeated_with_their_rows(word_level) -> None:
    """Arrow cannot take from chunks of different dictionaries; the values are those of the plain column."""
    lists = pa.array([["a"], ["b", "c"], ["d"]])
    parts = [pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), lists.slice(start, 2)) for start in (0, 1)]
    column = pa.chunked_array([parts[0].slice(1), parts[1]])
    table = pa.table({"text": ["I ride bike I ride bike"] * len(column), "tags": column})
    collate = C(word_level, max_length=4, return_overflowing_tokens=True)
    plain = table.set_column(1, "tags", pa.array(column.to_pylist()))
    found, expected = collate(table), collate(plain)
    assert len(found) > len(table)
    assert found["tags"].to_pylist() == expected["tags"].to_pylist()


def test_features_fit_what_map_stores(wordpiece, word_level, rows) -> None:
    for collate in (C(wordpiece), C(wordpiece, padding="max_length", max_length=16)):
        features = collate.features(rows)
        mapped = rows.map(collate, batched=True, features=features)
        assert mapped.features == features
        assert mapped.features["n"] == datasets.Value("int8")
        assert isinstance(mapped.features["label"], datasets.ClassLabel)
    for dropped in ("text", ["text"]):
        features = C(wordpiece).features(rows, remove_columns=dropped)
        assert rows.map(C(wordpiece), batched=True, remove_columns=dropped, features=features).features == features
        assert "text" not in features
    pieces = C(word_level, max_length=2, return_overflowing_tokens=True)
    assert rows.map(pieces, batched=True, features=pieces.features(rows)).num_rows > 4
    for given in (TEXTS, [{"text": text} for text in TEXTS]):
        assert "input_ids" in C(wordpiece).features(given)


@pytest.mark.parametrize("padding", [True, "max_length"])
@pytest.mark.parametrize("form", [None, "arrow"])
def test_stored_embeddings_are_those_of_the_batch(wordpiece, rows, padding: Any, form: str | None) -> None:
    table = torch.nn.Embedding(1200, 8).requires_grad_(False)
    collate = C(wordpiece, embedding=table, store_embeddings=True, padding=padding, max_length=16)
    with pytest.warns(UserWarning, match="store_embeddings writes 32 bytes per token, 8 times what ids take"):
        mapped = rows.with_format(form).map(collate, batched=True, features=collate.features(rows))
    assert isinstance(mapped.features["inputs_embeds"], datasets.Array2D)
    want = collate(TEXTS)
    for row, values in enumerate(mapped.with_format("numpy")["inputs_embeds"]):
        length = int(want["attention_mask"][row].sum())
        np.testing.assert_allclose(values[:length], want["inputs_embeds"][row, :length].numpy(), rtol=0, atol=1e-6)
        assert not np.asarray(values[length:]).any()


@pytest.mark.parametrize("padding", [True, "max_length"])
def test_stored_embeddings_of_rows_with_padding_are_those_of_a_batch(wordpiece, padding: bool | str) -> None:
    rows = {
        "input_ids": [[0, 0, 7, 8], [7, 8, 0, 0], [7, 0, 8, 9], [7, 0, 8, 9]],
        "attention_mask": [[0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 1], [1, 1, 1, 1]],
    }
    collate = C(wordpiece, embedding=8, store_embeddings=True, padding=padding, max_length=6)
    with pytest.warns(UserWarning, match="store_embeddings"):
        stored = collate.columns(rows)["inputs_embeds"]
    batch = collate.batch(rows)
    assert [len(row) for row in stored] == ([2, 2, 3, 4] if padding is True else [6] * 4)
    for row, vectors in enumerate(stored):
        torch.testing.assert_close(torch.tensor(vectors), batch["inputs_embeds"][row, : len(vectors)], rtol=0, atol=0)
    assert (batch["inputs_embeds"][0, 2:] == 0).all()


def test_stored_embeddings_of_half_width_are_stored(wordpiece) -> None:
    for dtype, size in ((torch.float16, 16), (torch.bfloat16, 32)):  # as float32: Arrow has no bfloat16
        table = torch.nn.Embedding(1200, 8, dtype=dtype).requires_grad_(False)
        with pytest.warns(UserWarning, match=f"store_embeddings writes {size} bytes"):
            columns = C(wordpiece, embedding=table, store_embeddings=True)({"text": ["a b"]})
        assert columns["inputs_embeds"][0].shape == (4, 8)


@pytest.mark.workers
def test_one_matrix_crosses_a_workers_pipe_not_one_for_each_row(wordpiece) -> None:
    (batch,) = DataLoader(TEXTS, batch_size=4, collate_fn=C(wordpiece), num_workers=1)
    mask = batch["look_ahead_mask"]
    assert mask.stride()[0] == 0
    assert mask.untyped_storage().nbytes() == mask.shape[-1] ** 2


@pytest.mark.workers
def test_an_error_in_a_worker_arrives_with_its_words(wordpiece) -> None:
    with pytest.raises(TypeError, match="row 1 of column 'text' is NoneType, expected str") as refused:
        list(DataLoader(["a", None], batch_size=2, collate_fn=C(wordpiece), num_workers=1))
    traceback.clear_frames(refused.tb)  # else the worker ends five seconds late


_EVERYTHING = r"""
import multiprocess, multiprocessing, os, sys, warnings
import torch, datasets
from torch.utils.data import DataLoader
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from hf_posenc import DataCollatorWithPositionalEncoding as C

class Both:
    def __init__(self, *collators):
        self.collators = collators

    def __call__(self, texts):
        return [collate(texts)["input_ids"].tolist() for collate in self.collators]

if __name__ == "__main__":
    for library in (multiprocess, multiprocessing):
        library.set_start_method(sys.argv[2])
        library.set_forkserver_preload(["hf_posenc.collator", "transformers"])
    os.environ.pop("TOKENIZERS_PARALLELISM", None)
    datasets.disable_progress_bars()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[1], pad_token="[PAD]", mask_token="[MASK]")
    texts = [f"I ride bike {n} and so on, she said" for n in range(200)]
    same_length = {"padding": "max_length", "max_length": 48}
    collate, masked = C(tokenizer, **same_length), C(tokenizer, labels="masked_lm")
    stored = C(tokenizer, embedding=8, store_embeddings=True, **same_length)
    before = dict(os.environ)
    want = collate(texts)["input_ids"].tolist()          # Rust's threads have run in this process
    (torch.randn(600, 600) @ torch.randn(600, 600)).exp().sum()  # and torch's
    masked(texts)
    with warnings.catch_warnings(action="ignore"):
        stored.columns({"text": texts})
        rows = datasets.Dataset.from_dict({"text": texts})
        for processes in (1, 2):
            for one in (collate, stored):
                mapped = rows.map(one, batched=True, batch_size=50, num_proc=processes, load_from_cache_file=False)
                assert mapped["input_ids"][:] == want
    both = Both(collate, masked)
    batches = list(DataLoader(texts, batch_size=50, collate_fn=both, num_workers=2))
    assert [row for ids, _ in batches for row in ids] == want
    assert sum(len(ids) for _, ids in batches) == 200
    assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
    print("finished")
"""


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_processes_after_threads_finish_without_a_word_and_leave_the_environment_alone(
    raw_wordpiece, tmp_path: Path, start_method: str
) -> None:
    """Used in the parent first: by torch's threads, which do not survive a fork, and by Rust's, which warn of it."""
    raw_wordpiece.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "everything.py").write_text(_EVERYTHING, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "everything.py"), str(tmp_path / "tokenizer.json"), start_method],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "finished"
    assert "fork" not in done.stderr, done.stderr
    assert "TOKENIZERS_PARALLELISM" not in done.stderr


def _fingerprints(folder: str) -> list[str]:
    collate = C(folder, labels="masked_lm", seed=1)
    found = [_fingerprint(collate)]
    collate(["I ride bike"])
    collate({"text": ["a"]})
    repr(collate), hash(collate), collate.max_length
    return [*found, _fingerprint(collate)]


def test_a_fingerprint_is_the_same_in_another_process_and_after_use(
    wordpiece, bert_folder: Path, tmp_path: Path, other_process: ProcessPoolExecutor
) -> None:
    wordpiece.save_pretrained(tmp_path)
    first, second = (_fingerprints(str(folder)) for folder in (tmp_path, bert_folder))
    assert other_process.submit(_fingerprints, str(tmp_path)).result() == first == first[:1] * 2
    assert other_process.submit(_fingerprints, str(bert_folder)).result() == second == second[:1] * 2
    assert first != second


def _fingerprint(collate: Any) -> str:
    from datasets.fingerprint import Hasher

    return str(Hasher.hash(collate))


def test_a_second_run_hits_the_cache_also_after_use(wordpiece, rows, tmp_path: Path) -> None:
    rows.save_to_disk(tmp_path / "rows")
    on_disk = datasets.load_from_disk(tmp_path / "rows")
    collate = C(wordpiece)
    first = on_disk.map(collate, batched=True)
    collate(TEXTS)
    asked: list[Any] = []

    class Counting(C):
        """Another class has another fingerprint: it shows that a miss would be seen."""

        def __call__(self, given: Any = None, **settings: Any) -> Any:
            asked.append(given)
            return super().__call__(given, **settings)

    on_disk.map(Counting(wordpiece), batched=True)
    assert asked
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "rows").iterdir()}
    second = on_disk.map(collate.replace(), batched=True)
    assert second._fingerprint == first._fingerprint
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "rows").iterdir()} == before


def test_every_setting_that_changes_the_output_changes_the_fingerprint(wordpiece) -> None:
    base = C(wordpiece)
    table = torch.nn.Embedding.from_pretrained(torch.zeros(1200, 4))
    settings: list[dict[str, Any]] = [
        {"convention": "marian"},
        {"scale": "sqrt_d"},
        {"base": 100},
        {"dropout": 0.1},
        {"zero_padding": False},
    ]
    others = [
        base.replace(max_length=64),
        base.replace(padding_side="left"),
        base.replace(padding="max_length"),
        base.replace(add_special_tokens=False),
        base.replace(text_column="body"),
        base.replace(truncation="only_first"),
        base.replace(return_overflowing_tokens=True),
        base.replace(embedding=8),
        base.replace(embedding=8, seed=1),
        *(base.replace(embedding=PositionalEmbedding(table, **each)) for each in settings),
        base.replace(labels="masked_lm"),
        base.replace(labels=MaskedLM(whole_word_mask=True)),
        base.replace(embedding=table),
        base.replace(embedding=torch.nn.Embedding.from_pretrained(torch.ones(1200, 4))),
        base.replace(embedding=torch.nn.Embedding.from_pretrained(torch.ones(1200, 4).half())),
    ]
    wordpiece.add_tokens(["bicycle"])
    others.append(C(wordpiece))
    prints = [_fingerprint(collate) for collate in (base, *others)]
    assert len(set(prints)) == len(prints)


def test_two_columns_of_one_name_are_refused(wordpiece) -> None:
    import pandas as pd

    frame = pd.DataFrame([["a", "b", 1]], columns=["text", "text", "n"])
    table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["text", "text", "n"])
    for given in (frame, table, table.to_batches()[0]):
        for call in (C(wordpiece), C(wordpiece).batch, C(wordpiece).columns):
            with pytest.raises(ValueError, match="two columns have the name 'text'"):
                call(given)


class Frame:
    """A data frame of a library that exports Arrow, such as polars."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._table = pa.table(columns)
        self.columns = list(columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("column", [{"text": ["I ride bike", "bike"]}, {"input_ids": [[5, 6], [7]]}])
def test_a_frame_that_exports_arrow_is_read_as_a_table(wordpiece: Any, column: dict[str, Any]) -> None:
    collate = DataCollatorWithPositionalEncoding(wordpiece)
    columns = {**column, "label": [1, 0]}
    assert collate(Frame(columns)).equals(collate(pa.table(columns)))
    assert torch.equal(collate.batch(Frame(columns))["input_ids"], collate.batch(columns)["input_ids"])
