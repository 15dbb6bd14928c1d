"""A shard against the tokenizer itself: its rows, its figures, what bad documents get, and that its bytes are settled.

Tasks are made by hand here, so that each document's place is known; reading files is tested elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

from hf_posenc.jobs import documents, shard_columns
from hf_posenc.jobs.options import Job
from hf_posenc.jobs.shard_writer import ShardWriter
from hf_posenc.jobs.task import Cursor, Part, Task
from hf_posenc.tokenization import SerializedTokenizer, private_copy

TEXTS = ["I ride my bike", "she said", "to the sea, she said, and back", "no", "I ride", "the sea"]


def job_of(tokenizer: PreTrainedTokenizerBase, folder: Path, **settings: Any) -> Job:
    defaults: dict[str, Any] = {
        "text_column": "text",
        "text_pair_column": None,
        "carried": pa.schema([]),
        "max_length": 64,
    }
    (folder / "data").mkdir(exist_ok=True)
    return Job(folder=folder, tokenizer=SerializedTokenizer.of(private_copy(tokenizer)), **{**defaults, **settings})


def task_of(texts: list[str], shard: int = 0) -> Task:
    payload = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    part = Part("corpus.jsonl", "jsonl", 1, payload)
    return Task(shard, (part,), Cursor(0, 0, 0), Cursor(0, len(payload), len(texts)), len(payload))


def table_task(table: pa.Table) -> Task:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    part = Part("corpus.parquet", "arrow", 0, sink.getvalue().to_pybytes())
    return Task(0, (part,), Cursor(), Cursor(0, 0, len(table)), table.nbytes)


def written(job: Job, task: Task) -> tuple[dict[str, Any], pa.Table]:
    record = ShardWriter(job).write(task)
    return record, pq.read_table(job.folder / record["file"])


def rejected(job: Job, shard: int = 0) -> list[dict[str, Any]]:
    path = job.folder / f".rejected-{shard:06d}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


# ------------------------------------------------------------------------------------------------------------ the rows


def test_a_row_holds_the_ids_that_the_tokenizer_gives(any_fast: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(job_of(any_fast, tmp_path), task_of(TEXTS))
    ids = any_fast(TEXTS)["input_ids"]
    assert table.column("input_ids").to_pylist() == ids
    assert table.column("length").to_pylist() == list(map(len, ids))
    assert table.column_names == ["input_ids", "length"]
    assert (record["rows"], record["documents"], record["tokens"]) == (6, 6, sum(map(len, ids)))


def test_a_slow_tokenizer_travels_as_its_files(slow: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    job = pickle.loads(pickle.dumps(job_of(slow, tmp_path)))
    _, table = written(job, task_of(TEXTS))
    assert table.column("input_ids").to_pylist() == slow(TEXTS)["input_ids"]


def test_the_figures_are_those_of_the_file(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(job_of(wordpiece, tmp_path), task_of(TEXTS * 20))
    lengths = table.column("length").to_numpy()
    batches = [lengths[start : start + 32] for start in range(0, len(lengths), 32)]
    path = tmp_path / "data/shard-000000.parquet"
    assert record["bytes"] == path.stat().st_size
    assert record["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert record["longest"] == lengths.max()
    assert record["padded"] == sum(len(batch) * batch.max() for batch in batches)
    assert record["begins"] == [0, 0, 0]
    assert record["ends"][2] == 120


def test_a_text_that_is_too_long_is_cut_and_counted(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(job_of(wordpiece, tmp_path, max_length=5), task_of(TEXTS))
    whole = wordpiece(TEXTS)["input_ids"]
    assert table.column("input_ids").to_pylist() == wordpiece(TEXTS, truncation=True, max_length=5)["input_ids"]
    assert record["cut"] == sum(len(ids) > 5 for ids in whole) > 0


def test_a_text_that_is_split_goes_on_in_further_rows_with_its_columns(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = pa.table({"text": TEXTS, "source": [f"book {number}" for number in range(6)]})
    carried = pa.schema([("source", pa.string())])
    job = job_of(wordpiece, tmp_path, max_length=5, too_long="split", stride=1, carried=carried)
    record, table = written(job, table_task(rows))
    theirs = wordpiece(TEXTS, truncation=True, max_length=5, stride=1, return_overflowing_tokens=True)
    assert table.column("input_ids").to_pylist() == theirs["input_ids"]
    sample = theirs["overflow_to_sample_mapping"]
    assert table.column("source").to_pylist() == [f"book {number}" for number in sample]
    assert (record["cut"], record["documents"], record["rows"]) == (0, 6, len(sample))


def test_pairs_have_token_types(bert: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    other = TEXTS[::-1]
    job = job_of(bert, tmp_path, text_pair_column="reply")
    _, table = written(job, table_task(pa.table({"text": TEXTS, "reply": other})))
    theirs = bert(TEXTS, other)
    assert table.column("input_ids").to_pylist() == theirs["input_ids"]
    assert table.column("token_type_ids").to_pylist() == theirs["token_type_ids"]


def test_further_columns_stay_what_they_are(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    columns = {
        "label": pa.array(range(6), pa.int8()),
        "when": pa.array([0, 1, None, 3, 4, 5], pa.timestamp("ms", tz="UTC")),
        "tags": pa.array([["a"], [], None, ["b", "c"], [], ["d"]]),
        "meta": pa.array([{"x": 1.5}] * 6),
    }
    rows = pa.table({**columns, "text": TEXTS})
    job = job_of(wordpiece, tmp_path, carried=rows.drop_columns("text").schema)
    _, table = written(job, table_task(rows))
    assert table.column_names == ["input_ids", "length", *columns]
    for name, column in columns.items():
        assert table.column(name).combine_chunks().equals(column), name
        assert table.schema.field(name).type == column.type


def test_labels_are_the_ids_themselves(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    _, table = written(job_of(wordpiece, tmp_path, labels="causal_lm"), task_of(TEXTS))
    assert table.column("labels").equals(table.column("input_ids"))


# ---------------------------------------------------------------------------------------------------------- packed rows


def test_a_packed_row_holds_whole_documents_with_positions_of_their_own(
    any_fast: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    job = job_of(any_fast, tmp_path, max_length=12, pack=12, labels="causal_lm")
    record, table = written(job, task_of(TEXTS * 10))
    documents_found = []
    for row in table.to_pylist():
        assert row["length"] == len(row["input_ids"]) == len(row["position_ids"]) <= 12
        begins = [at for at, position in enumerate(row["position_ids"]) if position == 0]
        for begin, end in zip(begins, [*begins[1:], row["length"]], strict=True):
            documents_found.append(row["input_ids"][begin:end])
            assert row["position_ids"][begin:end] == list(range(end - begin))
            assert row["labels"][begin:end] == [-100, *row["input_ids"][begin + 1 : end]]
    theirs = any_fast(TEXTS * 10, truncation=True, max_length=12)["input_ids"]
    assert sorted(documents_found) == sorted(theirs)
    assert record["rows"] < len(theirs)
    assert record["documents"] == len(theirs)


def test_wide_rows_are_packed_from_as_many_documents_as_fill_hundreds_of_them(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_BATCH_BYTES", 400)
    job = job_of(wordpiece, tmp_path, max_length=12, pack=12)
    texts = np.random.default_rng(0).choice(TEXTS, 3000).tolist()
    records = [ShardWriter(job, window_tokens).write(task_of(texts)) for window_tokens in (100, 10**9)]
    assert records[0]["tokens"] == records[1]["tokens"]
    assert records[0]["rows"] <= 1.01 * records[1]["rows"]  # windows of 100 tokens would need 1.3 times the rows


def test_rows_of_two_shards_are_not_in_the_same_order(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    job = job_of(wordpiece, tmp_path, max_length=12, pack=12)
    first, second = (written(job, task_of(TEXTS * 10, shard))[1] for shard in (0, 1))
    assert not first.equals(second)
    assert sorted(map(str, first.to_pylist())) != [str(row) for row in first.to_pylist()]


def test_positions_may_begin_where_a_model_begins(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    _, table = written(job_of(wordpiece, tmp_path, max_length=12, pack=12, first_position=2), task_of(TEXTS))
    assert min(min(row) for row in table.column("position_ids").to_pylist()) == 2


# ------------------------------------------------------------------------------------------------------------ bad rows


def test_an_empty_text_is_refused_with_its_file_and_line(any_fast: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"corpus\.jsonl, line 3: has no tokens\n  got: no text\n  fix: .*skip.*rejected"
    ):
        ShardWriter(job_of(any_fast, tmp_path)).write(task_of([*TEXTS[:2], "", *TEXTS]))
    assert list(tmp_path.rglob("*")) == [tmp_path / "data"]


def test_a_skipped_row_is_listed_and_the_others_stay(any_fast: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    job = job_of(any_fast, tmp_path, on_bad_row="skip")
    record, table = written(job, task_of(["", TEXTS[0], "", TEXTS[1]]))
    assert table.column("input_ids").to_pylist() == any_fast(TEXTS[:2])["input_ids"]
    assert (record["documents"], record["rows"], record["rejected"]) == (4, 2, 2)
    assert rejected(job) == [
        {"shard": 0, "file": "corpus.jsonl", "line": line, "reason": "has no tokens"} for line in (1, 3)
    ]


def test_keep_empty_keeps_an_empty_text_in_the_place_of_a_bad_one(
    any_fast: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = pa.table({"text": [TEXTS[0], None, TEXTS[1]], "id": [7, 8, 9]})
    job = job_of(any_fast, tmp_path, on_bad_row="keep-empty", carried=pa.schema([("id", pa.int64())]))
    record, table = written(job, table_task(rows))
    assert table.column("input_ids").to_pylist() == any_fast([TEXTS[0], "", TEXTS[1]])["input_ids"]
    assert table.column("id").to_pylist() == [7, 8, 9]
    assert (record["rows"], record["rejected"]) == (3, 1)
    (found,) = rejected(job)
    assert (found["file"], found["row"]) == ("corpus.parquet", 1)
    assert "null" in found["reason"]


def test_a_text_above_the_limit_is_a_bad_row_where_the_job_says_so(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    count = len(wordpiece(TEXTS[2])["input_ids"])
    job = job_of(wordpiece, tmp_path, max_length=count - 1, too_long="error")
    with pytest.raises(ValueError, match=rf"line 3: has {count} tokens, limit {count - 1}\n  got: '{TEXTS[2]}'"):
        ShardWriter(job).write(task_of(TEXTS))
    skipping = replace(job, on_bad_row="skip")
    _, table = written(skipping, task_of(TEXTS))
    assert table.column("input_ids").to_pylist() == wordpiece(TEXTS[:2] + TEXTS[3:])["input_ids"]
    assert rejected(skipping)[0]["text"] == TEXTS[2]


def test_a_shard_without_a_good_row_has_its_columns(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(job_of(wordpiece, tmp_path, on_bad_row="skip"), task_of(["", ""]))
    assert (record["rows"], record["rejected"], record["longest"], len(table)) == (0, 2, 0, 0)
    assert table.column_names == ["input_ids", "length"]


def test_a_document_that_cannot_be_read_is_shown_as_it_stands_in_its_file(
    byte_bpe: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    payload = b'{"text": "I ride"}\n{"text": oops}\n'
    lines = Part("a.txt", "lines", 1, b"no\ncaf\xe9\n")
    task = Task(0, (lines, Part("a.jsonl", "jsonl", 1, payload)), Cursor(), Cursor(2), 30)
    written(job_of(byte_bpe, tmp_path, on_bad_row="skip"), task)
    assert [one["text"] for one in rejected(job_of(byte_bpe, tmp_path))] == ["caf\\xe9", '{"text": oops}']


def test_what_an_earlier_try_rejected_is_gone_when_nothing_is_now(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    job = job_of(wordpiece, tmp_path, on_bad_row="skip")
    written(job, task_of(["", "no"]))
    assert len(rejected(job)) == 1
    written(job, task_of(["no", "no"]))
    assert rejected(job) == []


# ------------------------------------------------------------------------------------------------------- settled bytes


@pytest.mark.parametrize("settings", [{}, {"pack": 16, "max_length": 16}, {"too_long": "split", "max_length": 4}])
def test_bytes_do_not_depend_on_the_process(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path, settings: dict[str, Any]
) -> None:
    job, task = job_of(wordpiece, tmp_path, **settings), task_of(TEXTS * 50)
    here = ShardWriter(job).write(task)["sha256"]
    (tmp_path / "sent").write_bytes(pickle.dumps((ShardWriter(job), task)))
    said = "import pickle, sys; w, t = pickle.load(open(sys.argv[1], 'rb')); print(w.write(t)['sha256'])"
    there = subprocess.run(
        [sys.executable, "-c", said, tmp_path / "sent"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert here == there


def test_small_batches_and_row_groups_change_no_row(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"text": TEXTS * 30, "number": list(range(180))})
    job = job_of(wordpiece, tmp_path, carried=pa.schema([("number", pa.int64())]), max_length=4, too_long="split")
    _, at_once = written(job, table_task(rows))
    monkeypatch.setattr(documents, "_BATCH_BYTES", 50)
    monkeypatch.setattr(shard_columns, "_GROUP_BYTES", 400)
    record, in_groups = written(job, table_task(rows))
    assert in_groups.equals(at_once)
    assert pq.ParquetFile(job.folder / record["file"]).num_row_groups > 10


def test_many_small_parts_make_one_shard(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    parts = tuple(Part(f"{number}.txt", "lines", 1, f"{text}\n".encode()) for number, text in enumerate(TEXTS * 3))
    _, table = written(job_of(wordpiece, tmp_path), Task(0, parts, Cursor(), Cursor(18), 0))
    assert table.column("input_ids").to_pylist() == wordpiece(TEXTS * 3)["input_ids"]


def test_a_large_column_beside_a_split_text_is_repeated_a_row_group_at_a_time(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_columns, "_GROUP_BYTES", 1 << 20)
    rows = pa.table({"text": ["she said no " * 400, "I ride"], "page": ["x" * 200_000, "y"]})
    carried = pa.schema([("page", pa.string())])
    job = job_of(wordpiece, tmp_path, carried=carried, max_length=8, too_long="split")
    record, table = written(job, table_task(rows))
    assert record["rows"] > 100
    assert set(table.column("page").to_pylist()[:-1]) == {"x" * 200_000}
    assert table.column("page").to_pylist()[-1] == "y"
    assert pq.ParquetFile(job.folder / record["file"]).num_row_groups > 10


def test_many_empty_texts_are_tokenised_a_few_at_a_time(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    job, task = job_of(wordpiece, tmp_path, on_bad_row="keep-empty"), task_of([""] * 100_000)
    record = ShardWriter(job).write(task)
    assert record["rows"] == record["rejected"] == 100_000
    assert len(list(documents.Documents(job).of(task, documents.Counted()))) >= 3
