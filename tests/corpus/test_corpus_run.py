"""Shards of `encode`: the rows of the collator, whole or not there at all, and equal whoever wrote them and when."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import datasets
import psutil
import pyarrow.parquet as pq
import pytest
from looping import for_each, slow
from reading import BYTES, read, table, texts

from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc.corpus import encode, verify
from hf_posenc.corpus import output as output_module

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* were truncated to 512 tokens"),
    pytest.mark.filterwarnings("ignore:.* were truncated to 1024 tokens"),
]
SETTINGS: dict[str, Any] = {"workers": 0, "progress": False, "shards": 4}


@pytest.fixture
def rows(sentences: list[str]) -> datasets.Dataset:
    columns = {"text": sentences, "pair": sentences[::-1], "n": range(len(sentences))}
    return datasets.Dataset.from_dict({**columns, "input_ids": columns["n"]})


def sums(output: Path) -> dict[str, str]:
    """Return the checksums of the shards."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.glob("data/*.parquet")}


@pytest.mark.parametrize("name", [slow("bert"), "byte_bpe", "unigram", "wordpiece", "slow"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_length": 16},
        {"max_length": 16, "return_overflowing_tokens": True, "stride": 4},
        {"text_pair_column": "pair", "max_length": 32},
        {"text_target_column": "pair"},
        {"add_special_tokens": False},
    ],
    ids=str,
)
def test_shards_have_the_rows_of_map(
    name: str, settings: dict[str, Any], rows: datasets.Dataset, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    report = encode(rows, tokenizer, tmp_path, columns=["n"], **{**SETTINGS, "max_length": 512, **settings})
    made = table(tmp_path)
    given = settings if tokenizer.pad_token else {**settings, "pad_token": "eos"}
    collate = C(tokenizer, **{"max_length": 512, "on_empty": "keep", **given})
    stored = rows.remove_columns("input_ids").map(
        collate, batched=True, batch_size=1000, remove_columns=["text", "pair"]
    )
    for column in ("input_ids", "labels", "length", "n", "overflow_to_sample_mapping"):
        assert (column in made.column_names) <= (column in stored.column_names)
        if column in made.column_names:
            assert made[column].to_pylist() == stored[column][:], column
    assert made.schema.field("input_ids").type.value_type == "int32"
    assert ("token_type_ids" in made.column_names) == (
        "text_pair_column" in settings and "token_type_ids" in tokenizer.model_input_names
    )
    assert report.totals["rows"] == len(made)
    assert report.totals["tokens"] == sum(made["length"].to_pylist())
    assert report.totals["documents"] == len(rows)
    assert verify(tmp_path) == []


def test_words_and_conversations_are_read(wordpiece: Any, tmp_path: Path) -> None:
    words = datasets.Dataset.from_dict({"text": [["she", "said"], None, [], ["I"]]})
    report = encode(words, wordpiece, tmp_path / "words", is_split_into_words=True, on_bad_row="skip", **SETTINGS)
    whole = C(wordpiece, is_split_into_words=True).columns({"text": [["she", "said"], ["I"]]})["input_ids"]
    assert table(tmp_path / "words")["input_ids"].to_pylist() == [row.tolist() for row in whole]
    assert [row["reason"] for row in report.bad_rows] == ["no text", "no tokens"]
    wordpiece.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    talk = [[{"role": "user", "content": "I ride"}, {"role": "assistant", "content": "she said"}]]
    encode(datasets.Dataset.from_dict({"text": talk}), wordpiece, tmp_path / "talk", **SETTINGS)
    assert table(tmp_path / "talk")["input_ids"].to_pylist() == C(wordpiece)(talk)["input_ids"].tolist()


@pytest.mark.parametrize("overflow", [False, True])
def test_packed_rows_hold_every_document_and_are_read_again(
    byte_bpe: Any, rows: datasets.Dataset, tmp_path: Path, overflow: bool
) -> None:
    settings = {"packing": True, "max_length": 64, "labels": "causal_lm", "return_overflowing_tokens": overflow}
    encode(rows, byte_bpe, tmp_path, on_no_labels="keep", **settings, **SETTINGS)
    packed = table(tmp_path)
    documents = []
    for row in packed.to_pylist():
        assert row["length"] == len(row["input_ids"]) <= 64
        for number in sorted({*row["document_ids"]}):
            places = [place for place, of in enumerate(row["document_ids"]) if of == number]
            documents.append(tuple(row["input_ids"][place] for place in places))
            assert [row["position_ids"][place] for place in places] == list(range(len(places)))
            assert [row["labels"][place] for place in places] == [-100, *documents[-1][1:]]
    whole = C(byte_bpe, pad_token="eos", max_length=64, return_overflowing_tokens=overflow)
    assert sorted(documents) == sorted(map(tuple, whole.columns({"text": rows["text"][:]})["input_ids"]))
    loaded = datasets.load_dataset(str(tmp_path), split="train")
    batch = C(byte_bpe, pad_token="eos", on_no_labels="keep").batch(loaded.remove_columns("length")[:])
    assert batch["document_ids"][0].tolist()[: packed["length"][0].as_py()] == packed["document_ids"][0].as_py()
    assert sorted(batch["labels"][batch["labels"] != -100].tolist()) == sorted(
        label for row in packed["labels"].to_pylist() for label in row if label != -100
    )


def test_labels_are_stored_as_a_batch_has_them(byte_bpe: Any, tmp_path: Path) -> None:
    given = datasets.Dataset.from_dict({"text": ["I ride bike", "a"]})
    with pytest.raises(ValueError, match="nothing to learn"):
        encode(given, byte_bpe, tmp_path / "a", labels="causal_lm", add_special_tokens=False, **SETTINGS)
    for on_no_labels, count in (("skip", 1), ("keep", 2)):
        folder = tmp_path / on_no_labels
        encode(given, byte_bpe, folder, labels="causal_lm", on_no_labels=on_no_labels, **{**SETTINGS, "shards": 1})
        assert table(folder)["labels"].to_pylist() == table(folder)["input_ids"].to_pylist()
        assert len(table(folder)) == count


def test_a_collator_gives_its_settings_and_those_of_batches_have_no_effect(wordpiece: Any, tmp_path: Path) -> None:
    given = datasets.Dataset.from_dict({"body": ["I ride bike, she said", "she said"]})
    collate = C(
        wordpiece, text_column="body", max_length=8, pad_to_multiple_of=8, padding_side="left", look_ahead=False
    )
    assert encode(given, collate, tmp_path / "a", **SETTINGS).job["max_length"] == 8
    whole = collate.columns({"body": given["body"][:]})["input_ids"]
    assert table(tmp_path / "a")["input_ids"].to_pylist() == [row.tolist() for row in whole]
    assert encode(given, collate, tmp_path / "b", max_length=4, **SETTINGS).totals["longest"] == 4


@for_each(
    ("settings", "message"),
    [
        ({"look_ahead": True}, "look_ahead has no effect on stored rows"),
        ({"padding": "max_length"}, "padding has no effect on stored rows"),
        ({"labels": "masked_lm"}, "masked labels are drawn for each batch"),
        ({"packing": "flat"}, "stored rows have a length"),
        ({"on_empty": "keep"}, "on_bad_row"),
        ({"stride": 2}, "stride is the overlap"),
        ({"on_no_labels": "skip"}, "encode stores none"),
        ({"on_bad_row": "drop"}, "on_bad_row must be one of"),
        ({"address": "auto"}, "address is that of a Ray cluster"),
        ({"part": "4/3"}, "part must be k/n"),
        ({"columns": ["text"]}, "no column of texts is copied"),
        ({"columns": ["n", "n"]}, "a column is copied once"),
        ({"columns": ["input_ids"]}, "makes a column 'input_ids' itself"),
        ({"packing": True, "max_length": 8, "columns": ["n"]}, "none is copied to packed rows"),
        ({"workers": -1}, "workers must not be negative"),
        ({"shards": 0}, "shards must be positive"),
        ({"num_workers": 4}, "there is no argument 'num_workers'\n  fix: workers=..."),
        ({"num_proc": 4}, "there is no argument 'num_proc'\n  fix: workers=..."),
        ({"remove_columns": ["a"]}, r"there is no argument 'remove_columns'\n  fix: columns=\[...\]"),
        ({"streaming": True}, "there is no argument 'streaming'\n  fix: leave it out"),
        ({"batch_size": 8}, "there is no argument 'batch_size'\n  fix: leave it out"),
        ({"columns": "n"}, r"columns must be a list of names\n  got: 'n'\n  fix: columns=\['n'\]$"),
        ({"columns": ["n", "n"]}, r"fix: columns=\['n'\]$"),
        ({"text_pair_column": "text"}, r"fix: columns=\[\], and a column for each text$"),
        ({"max_len": 4}, "there is no argument 'max_len'\n  fix: max_length=4"),
    ],
)
def test_wrong_settings_are_refused_before_a_shard_is_written(
    settings: dict[str, Any], message: str, wordpiece: Any, rows: datasets.Dataset, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        encode(rows, wordpiece, tmp_path / "out", **{**SETTINGS, **settings})
    assert not list((tmp_path / "out").glob("data/*"))


def test_a_tokenizer_that_draws_at_random_is_refused(byte_bpe: Any, rows: datasets.Dataset, tmp_path: Path) -> None:
    byte_bpe.backend_tokenizer.model.dropout = 0.1
    with pytest.raises(ValueError, match=r"(?s)draws tokens at random.*dropout=0\.1"):
        encode(rows, byte_bpe, tmp_path, **SETTINGS)


@pytest.mark.workers
def test_a_run_goes_on_where_another_ended_and_the_bytes_are_equal(
    wordpiece: Any, rows: datasets.Dataset, tmp_path: Path
) -> None:
    whole = encode(rows, wordpiece, tmp_path / "whole", **SETTINGS)
    again = encode(rows, wordpiece, tmp_path / "again", **{**SETTINGS, "workers": 2})
    assert sums(tmp_path / "whole") == sums(tmp_path / "again")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "again/data").iterdir()}
    gone = tmp_path / "again/data/shard-000001.parquet"
    gone.unlink()
    damaged = tmp_path / "again/data/shard-000002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert verify(tmp_path / "again") == [
        "data/shard-000001.parquet is missing; run the same encode again",
        "data/shard-000002.parquet is damaged: its checksum differs; delete it, and run the same encode again",
    ]
    assert encode(rows, wordpiece, tmp_path / "again", **SETTINGS).totals == whole.totals == again.totals
    assert sums(tmp_path / "whole") == sums(tmp_path / "again")
    kept = [path for path, time_ in times.items() if path.stat().st_mtime_ns == time_]
    assert sorted(path.name for path in kept) == ["shard-000000.parquet", "shard-000003.parquet"]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)  # its footer is whole
    assert encode(rows, wordpiece, tmp_path / "again", **SETTINGS).totals == whole.totals
    assert [line.partition(":")[0] for line in verify(tmp_path / "again")] == ["data/shard-000002.parquet is damaged"]
    damaged.unlink()
    encode(rows, wordpiece, tmp_path / "again", **SETTINGS)
    assert sums(tmp_path / "whole") == sums(tmp_path / "again")
    (tmp_path / "again/data/other.parquet").write_bytes(gone.read_bytes())
    assert verify(tmp_path / "again") == ["data/other.parquet is not in manifest.json"]


def test_another_job_in_the_same_output_is_refused_naming_what_differs(
    wordpiece: Any, bert: Any, rows: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = encode(rows, wordpiece, tmp_path, max_length=32, **SETTINGS)
    for given, settings, differs in (
        (rows, {"max_length": 16}, "max_length: 32 before, 16 now"),
        (rows, {"max_length": 32, "columns": ["n"]}, "columns: '' before, 'n' now"),
        (rows, {"max_length": 32, "shards": 3}, "shards: 4 before, 3 now"),
        (rows.select(range(50)), {"max_length": 32}, r"rows of the input: \d+ before, 50 now"),
        (rows.map(lambda row: {"text": row["text"] + "!"}), {"max_length": 32}, "fingerprint of the input"),
    ):
        with pytest.raises(ValueError, match=rf"(?s)holds another job.*{differs}"):
            encode(given, wordpiece, tmp_path, **{**SETTINGS, **settings})
    with pytest.raises(ValueError, match="sha256 of the tokenizer"):
        encode(rows, bert, tmp_path, max_length=32, **SETTINGS)
    monkeypatch.setattr(sys.modules["hf_posenc.corpus.encode"], "version", lambda name: f"{name} 99")
    assert encode(rows, wordpiece, tmp_path, max_length=32, **SETTINGS) == report  # nothing is left to write
    (tmp_path / report.shards[0]["file"]).unlink()
    with pytest.raises(ValueError, match=r"(?s)holds another job.*version of hf-posenc"):
        encode(rows, wordpiece, tmp_path, max_length=32, **SETTINGS)
    (tmp_path / "job.json").unlink()
    with pytest.raises(ValueError, match="holds another job"):
        encode(rows, wordpiece, tmp_path, max_length=32, **SETTINGS)


@pytest.mark.parametrize("name", ["job.json", "manifest.json"])
@pytest.mark.parametrize("content", ['{"a": ', "5"])
def test_a_damaged_record_of_a_job_is_named_and_a_run_without_it_goes_on(
    name: str, content: str, wordpiece: Any, rows: datasets.Dataset, tmp_path: Path
) -> None:
    before = encode(rows, wordpiece, tmp_path, **SETTINGS)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name} is damaged\n  got: .*\n  fix: delete {name}, and run the same"):
        encode(rows, wordpiece, tmp_path, **SETTINGS)
    (tmp_path / name).unlink()
    assert encode(rows, wordpiece, tmp_path, **SETTINGS) == before
    assert verify(tmp_path) == []


def test_parts_of_a_job_are_written_apart_and_the_last_one_finishes_it(
    wordpiece: Any, rows: datasets.Dataset, tmp_path: Path
) -> None:
    encode(rows, wordpiece, tmp_path / "whole", **SETTINGS)
    for k, count, left in ((2, 1, ["1/3", "3/3"]), (3, 2, ["1/3"]), (1, 4, [])):
        report = encode(rows, wordpiece, tmp_path / "parts", part=f"{k}/3", **SETTINGS)
        assert (len(report.shards), report.finished) == (count, not left)
        if left:
            with pytest.raises(ValueError, match="are missing") as raised:
                verify(tmp_path / "parts")
            assert re.findall(r'part="(.*?)"', str(raised.value)) == left
    assert sums(tmp_path / "parts") == sums(tmp_path / "whole")
    assert verify(tmp_path / "parts") == []
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        verify(tmp_path / "nothing")


SCRIPT = """\
import datasets, multiprocessing, sys
from hf_posenc.corpus import encode
rows = datasets.load_from_disk(sys.argv[1])
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[5], force=True)
    encode(rows, sys.argv[2], sys.argv[3], workers=int(sys.argv[4]), shards=40, progress=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
@pytest.mark.parametrize(
    ("victim", "start_method"),
    [("the run", "fork"), ("the run, by SIGTERM", "fork"), ("a worker", "fork"), ("the run", "forkserver")],
)
def test_a_killed_run_leaves_whole_shards_and_no_worker_and_goes_on(
    victim: str, start_method: str, wordpiece: Any, sentences: list[str], tmp_path: Path
) -> None:
    rows = datasets.Dataset.from_dict({"text": sentences * 300})
    rows.save_to_disk(tmp_path / "rows")
    wordpiece.save_pretrained(tmp_path / "tokenizer")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "rows"), str(tmp_path / "tokenizer"), str(tmp_path / "out")]
    run = subprocess.Popen([*command, "2", start_method], stderr=subprocess.PIPE, text=True)
    while len(sums(tmp_path / "out")) < 3 and run.poll() is None:
        time.sleep(0.01)
    below = psutil.Process(run.pid).children(recursive=True)
    workers = [each for each in below if not each.children() and "resource_tracker" not in str(each.cmdline())]
    how = signal.SIGTERM if "SIGTERM" in victim else signal.SIGKILL
    os.kill(workers[0].pid if victim == "a worker" else run.pid, how)
    _, errors = run.communicate(timeout=60)
    finished = sums(tmp_path / "out")
    assert 3 <= len(finished) < 40
    if victim == "a worker":
        assert "a worker process died" in errors
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    subprocess.run([*command, "0", start_method], check=True)
    encode(
        datasets.load_from_disk(tmp_path / "rows"),
        str(tmp_path / "tokenizer"),
        tmp_path / "whole",
        **{**SETTINGS, "shards": 40},
    )
    assert sums(tmp_path / "out") == sums(tmp_path / "whole")
    assert finished.items() <= sums(tmp_path / "out").items()
    assert not list((tmp_path / "out/data").glob(".*"))


def test_a_second_run_in_the_same_folder_is_refused(wordpiece: Any, rows: datasets.Dataset, tmp_path: Path) -> None:
    place = output_module.Output.of(tmp_path, {})
    with place.locked(""), pytest.raises(OSError, match="in use by another run"):
        encode(rows, wordpiece, tmp_path, **SETTINGS)


def test_a_full_disk_stops_the_run_which_goes_on_later(
    wordpiece: Any, rows: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pq.ParquetWriter.write_table
    count = 0

    def full(self: Any, *args: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(self, *args)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(
        OSError, match=r"(?s)cannot be read or written.*No space left on device; 2 shards are written.*continues"
    ):
        encode(rows, wordpiece, tmp_path, **SETTINGS)
    assert len(sums(tmp_path)) == 2
    assert not list((tmp_path / "data").glob(".*"))
    assert encode(rows, wordpiece, tmp_path, **SETTINGS).finished
    (tmp_path / "a.txt").write_text("I ride bike\n")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "a.txt" / "cache")
    with pytest.raises(OSError, match=r"(?s)into its cache.*a\.txt/cache: Not a directory.*HF_DATASETS_CACHE"):
        encode(tmp_path / "a.txt", wordpiece, tmp_path / "b", **SETTINGS)


def test_the_output_is_a_data_set_with_its_tokenizer_and_names_no_folder_of_this_machine(
    bert_folder: Path, rows: datasets.Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report = encode(rows, bert_folder, out, columns=["n"], **SETTINGS)
    loaded = datasets.load_dataset(str(out), split="train")
    assert loaded.column_names == ["input_ids", "length", "n"]
    assert C(str(out / "tokenizer")).batch(loaded[:2])["input_ids"].shape[0] == 2
    with pytest.raises(ValueError, match=r"fix: '/.*out/tokenizer'$"):
        C(str(out))
    with pytest.raises(ValueError, match="out/tokenizer holds a tokenizer"):
        encode(rows, bert_folder, out / "tokenizer", **SETTINGS)
    card, job = (out / "README.md").read_text(), json.loads((out / "job.json").read_text())
    assert f"{report.totals['tokens']:,} token ids of {len(rows):,} documents" in card
    assert job["tokenizer"] == bert_folder.name
    for path in out.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".md"):
            assert str(tmp_path) not in path.read_text()
            assert str(bert_folder.parent) not in path.read_text()
    (out / "README.md").write_text("mine")
    encode(rows, bert_folder, out, columns=["n"], **SETTINGS)
    assert (out / "README.md").read_text() == "mine"


@pytest.mark.parametrize("texts", [["", "", "a b"], ["a b", "", ""], ["", "", *["a b"] * 10_000, ""]], ids=len)
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"packing": True, "max_length": 8}, {"columns": ["n"]}], ids=str)
def test_load_dataset_opens_shards_whose_rows_were_left_out(
    texts: list[str], shards: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    """The tokens that `load_dataset` reads are those of the texts that are not empty."""
    given = datasets.Dataset.from_dict({"text": ["", *[""] * 10_000, *texts], "n": range(10_001 + len(texts))})
    encode(given, BYTES, tmp_path, **{**SETTINGS, "shards": shards}, on_bad_row="skip", **settings)
    rows = datasets.load_dataset(str(tmp_path), split="train", cache_dir=str(tmp_path / "cache"))
    assert sum(rows["length"]) == 3 * sum(text == "a b" for text in texts)
    assert verify(tmp_path) == []


@pytest.mark.parametrize("fault", ["no rows in the first group", "other columns", "not Parquet"])
def test_verify_names_shards_that_datasets_cannot_open(fault: str, tmp_path: Path) -> None:
    encode(datasets.Dataset.from_dict({"text": ["a", "b"]}), BYTES, tmp_path, **{**SETTINGS, "shards": 2})
    path = tmp_path / "data/shard-000001.parquet"
    rows = pq.read_table(path)
    if fault == "not Parquet":
        path.write_text("")
    else:
        pq.write_table(rows.slice(1) if fault.startswith("no") else rows.rename_columns(["ids", "length"]), path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["shards"][1]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (line,) = verify(tmp_path)
    assert line.startswith("data/shard-000001.parquet is damaged: `datasets` cannot open it")


def test_truncated_documents_are_counted_and_named_unless_the_limit_was_given(
    wordpiece: Any, rows: datasets.Dataset, tmp_path: Path
) -> None:
    wordpiece.model_max_length = 8
    with pytest.warns(UserWarning, match="documents were truncated to 8 tokens"):
        report = encode(rows, wordpiece, tmp_path / "a", **SETTINGS)
    assert report.totals["cut"] > 0
    assert encode(rows, wordpiece, tmp_path / "b", max_length=8, **SETTINGS).totals["cut"] == report.totals["cut"]


def test_without_a_terminal_progress_is_a_line(
    wordpiece: Any, rows: datasets.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encode(rows, wordpiece, tmp_path, workers=0, shards=3)
    lines = capsys.readouterr().err.splitlines()
    (last,) = [line for line in lines if "encode: 100%" in line]
    assert "tokens/s" in last
    assert len(list(filter(None, lines))) <= 3


def test_a_long_text_continues_in_further_rows() -> None:
    given = datasets.Dataset.from_dict({"text": ["I ride bike, she said. " * 100_000]})
    found, made, _ = read(given, max_length=1000, return_overflowing_tokens=True)
    assert "".join(found) == given[0]["text"]
    assert {*made["overflow_to_sample_mapping"].to_pylist()} == {0}
    assert texts(made.slice(0, 1)) == [given[0]["text"][:1000]]


def test_the_tokenizer_may_have_no_padding_token(rows: datasets.Dataset, tmp_path: Path) -> None:
    encode(rows, BYTES, tmp_path / "rows", **SETTINGS)
    encode(rows, BYTES, tmp_path / "packed", packing=True, max_length=128, **SETTINGS)
    assert sum(table(tmp_path / "packed")["length"].to_pylist()) <= sum(table(tmp_path / "rows")["length"].to_pylist())
