"""The output of `encode`: other libraries read it, it is the same on every machine, and no fault loses a shard."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_posenc.corpus import Manifest, Progress, encode, verify

TOKENIZER = Tokenizer(models.WordLevel({"?": 0, **{str(n): n + 1 for n in range(10)}}, unk_token="?"))
TOKENIZER.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
NOT_UTF8 = b"\xff\xff\xff\n"  # a bad row
BAD = ("shard-000001-000.parquet", "shard-000003-000.parquet")  # the shards that hold a rejected document


def text(start: int = 100, stop: int = 150) -> str:
    """Return a document a line, four bytes each."""
    return "".join(f"{number}\n" for number in range(start, stop))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Text for five shards of ten documents; the second and the fourth shard hold a document that is not UTF-8."""
    path = tmp_path / "corpus.txt"
    path.write_bytes(text().encode().replace(b"115\n", NOT_UTF8).replace(b"133\n", NOT_UTF8))
    return path


def run(inputs: Any, output: Path, tokenizer: Any = TOKENIZER, **settings: Any) -> Manifest:
    return encode(inputs, tokenizer, output, **{"workers": 0, "shard_bytes": 40, "on_bad_row": "skip", **settings})


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of an output folder, apart from hidden ones and `job.json`, which holds times of the inputs."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "job.json")))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Made(Progress):
    """The shards that a run made; optionally stops the run after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.shards: list[str] = []
        self.stop_after = stop_after

    def shard(self, record: dict[str, Any]) -> None:
        self.shards.append(Path(record["file"]).name)
        if len(self.shards) == self.stop_after:
            raise KeyboardInterrupt


def rejected(folder: Path) -> list[dict[str, Any]]:
    """Return the rejected documents of a job, in order."""
    files = sorted((folder / "rejected").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def stopped(inputs: Any, output: Path, after: int, **settings: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(inputs, output, progress=Made(after), **settings)


def made(inputs: Any, output: Path, **settings: Any) -> list[str]:
    progress = Made()
    run(inputs, output, progress=progress, **settings)
    return progress.shards


# ------------------------------------------------------------------------------------------------- the finished folder


def test_pandas_pyarrow_and_datasets_read_the_shards_as_one_table(corpus: Path, tmp_path: Path) -> None:
    manifest = run(corpus, tmp_path / "out")
    lengths = [3] * manifest.totals["rows"]
    assert list(pd.read_parquet(tmp_path / "out" / "data")["length"]) == lengths
    assert pyarrow.dataset.dataset(tmp_path / "out" / "data").to_table()["length"].to_pylist() == lengths
    for folder in ("out", "out/data"):
        rows = datasets.load_dataset(str(tmp_path / folder), split="train", cache_dir=str(tmp_path / "cache"))
        assert list(rows["length"]) == lengths
        assert rows.column_names == ["input_ids", "length"]


def test_the_manifest_is_json_with_a_shard_a_line_and_without_times(corpus: Path, tmp_path: Path) -> None:
    manifest = run(corpus, tmp_path / "out")
    written = (tmp_path / "out" / "manifest.json").read_text()
    parsed = json.loads(written)
    assert list(parsed) == [
        "written_by", "format_version", "digest", "config", "tokenizer", "inputs", "libraries", "finished", "totals",
        "shards",
    ]  # fmt: skip
    assert Manifest.read(tmp_path / "out").shards == manifest.shards == parsed["shards"]
    assert sum('{"file": "data/shard-' in line for line in written.splitlines()) == len(parsed["shards"]) == 5
    assert parsed["totals"] == manifest.totals
    assert (manifest.totals["documents"], manifest.totals["rows"], manifest.totals["rejected"]) == (50, 48, 2)
    assert str(corpus.stat().st_mtime_ns) not in written
    for record in parsed["shards"]:
        shard = (tmp_path / "out" / record["file"]).read_bytes()
        assert (record["bytes"], record["sha256"]) == (len(shard), hashlib.sha256(shard).hexdigest())


def test_the_footer_of_a_shard_holds_its_record(corpus: Path, tmp_path: Path) -> None:
    manifest = run(corpus, tmp_path / "out")
    for record in manifest.shards:
        footer = json.loads(pq.read_metadata(tmp_path / "out" / record["file"]).metadata[b"hf_posenc"])
        assert {**footer["record"], **{name: record[name] for name in ("bytes", "sha256", "first_line")}} == record


def test_nothing_in_the_folder_names_a_folder_of_the_machine(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for language in ("en", "de"):
        (tmp_path / "in" / language).mkdir(parents=True)
        shutil.copyfile(corpus, tmp_path / "in" / language / "corpus.txt")
    datasets.Dataset.from_dict({"text": ["1", ""]}).save_to_disk(str(tmp_path / "in" / "saved"))
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    inputs = [tmp_path / "in" / "en", "~/in/de/*.txt", "~/in/de/corpus.txt", f"file://{tmp_path}/in/de", "~/in/saved"]
    with pytest.warns(UserWarning, match="given more than once"):
        manifest = run(inputs, tmp_path / "out", tokenizer=tmp_path / "tokenizer.json")
    names = ["en/corpus.txt", "de/corpus.txt", "~/in/de/corpus.txt", "de/corpus.txt", "saved"]
    assert [one["name"] for one in manifest.inputs] == names
    assert {one["file"] for one in rejected(tmp_path / "out")} == set(names)
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes(), path
    with pytest.raises(ValueError, match=f"{tmp_path}/in/en/corpus.txt, line 16: is not UTF-8"):  # for the user
        run(inputs[:2], tmp_path / "refused", on_bad_row="error")


def test_equal_corpora_on_two_machines_give_equal_folders(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for machine, workers in (("a", 1), ("b", 2)):
        (tmp_path / machine).mkdir()
        monkeypatch.chdir(tmp_path / machine)
        shutil.copyfile(corpus, "corpus.txt")
        os.utime("corpus.txt", ns=(0, workers))
        TOKENIZER.save("tokenizer.json")
        run("corpus.txt", Path("out"), workers=workers)
        folders.append(content(Path("out")))
    assert folders[0] == folders[1]


def test_a_finished_folder_is_not_written_to_again(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out")
    before = content(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("[!.]*")}
    os.utime(corpus)  # the same bytes with another time
    assert made(corpus, tmp_path / "out") == []
    assert content(tmp_path / "out") == before
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("[!.]*")} == times


# ---------------------------------------------------------------------------------------------- lost, changed, damaged

LOSSES: dict[str, Callable[[Path], object]] = {
    "lost": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe"),
    "totals": lambda path: path.write_text(path.read_text().replace('"tokens": ', '"tokens": 1')),
    "settings": lambda path: path.write_text(path.read_text().replace('"first_position": 0', '"first_position": 1')),
    "a size": lambda path: path.write_text(re.sub(r'"bytes": \d+, "cut"', '"cut"', path.read_text(), count=1)),
    "a record": lambda path: path.write_text("\n".join([*path.read_text().splitlines()[:-4], "  ]", "}", ""])),
}


@pytest.mark.parametrize("name", ["manifest.json", "job.json"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_or_changed_manifest_is_rebuilt_from_the_shards(
    corpus: Path, tmp_path: Path, loss: str, name: str
) -> None:
    out = tmp_path / "out"
    run(corpus, tmp_path / "whole")
    run(corpus, out)
    if name == "job.json" and loss in ("settings", "totals", "a size", "a record"):
        pytest.skip("job.json has no such value, or is another job with it")
    LOSSES[loss](out / name)
    again = made(corpus, out)
    assert len(again) == {"totals": 5}.get(loss, 0)  # records that differ from the footers
    assert content(out) == content(tmp_path / "whole")
    assert (verify(out).bad, verify(out).finished) == ((), True)


def test_without_a_manifest_only_damaged_shards_are_made_again(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    whole = content(out)
    (out / "manifest.json").unlink()
    damaged = bytearray(whole["data/shard-000002-000.parquet"])
    damaged[40] ^= 1
    (out / "data/shard-000002-000.parquet").write_bytes(damaged)
    shutil.copy(
        out / "data/shard-000000-000.parquet", out / "data/shard-000004-000.parquet"
    )  # a copy under another name
    assert [bad.file for bad in verify(out).bad] == ["data/shard-000002-000.parquet", "data/shard-000004-000.parquet"]
    assert made(corpus, out) == ["shard-000002-000.parquet", "shard-000004-000.parquet"]
    assert content(out) == whole


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_length": 2}, "max_length: None before, 2 now"),
        ({"shard_bytes": 80}, "shard_bytes: 40 before, 80 now"),
        ({"tokenizer": Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))}, "tokenizer: other files"),
        ({"inputs": None}, "other content in data/shard-000000-000.parquet"),
    ],
)
def test_without_a_manifest_another_job_is_refused_by_name(
    corpus: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    (out / "manifest.json").unlink()
    before = content(out)
    if "inputs" in change:
        corpus.write_text(text(200, 250))
        change = {}
    with pytest.raises(ValueError, match=f"holds the output of another job\n  got: .*{words}"):
        run(corpus, out, **change)
    assert content(out) == before


def test_a_repair_that_is_stopped_loses_no_record_and_goes_on(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    whole = content(out)
    for shard in (0, 3):
        (out / f"data/shard-00000{shard}-000.parquet").write_bytes(b"x")
    stopped(corpus, out, after=1)
    assert {bad.file for bad in verify(out).bad} <= {"data/shard-000003-000.parquet"}
    assert verify(out).shards == 5
    assert set(made(corpus, out)) <= {"shard-000003-000.parquet"}  # the worker may have been quick
    assert content(out) == whole


HARMS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda lines: b"",
    "cut": lambda lines: lines[:-5],
    "further lines": lambda lines: lines + b'{"reason": "another"}\n',
}


@pytest.mark.parametrize("harm", ["lost", *HARMS])
def test_lost_or_changed_rejected_documents_are_found_again(corpus: Path, tmp_path: Path, harm: str) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    whole, name = content(out), f"rejected/{BAD[0].replace('parquet', 'jsonl')}"
    if harm == "lost":
        (out / name).unlink()
    else:
        (out / name).write_bytes(HARMS[harm](whole[name]))
    assert {bad.file for bad in verify(out).bad} == {name}
    assert made(corpus, out) == [BAD[0]]
    assert content(out) == whole


def test_rejected_documents_are_listed_with_file_line_and_reason(corpus: Path, tmp_path: Path) -> None:
    manifest = run(corpus, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out/rejected").iterdir()}
    assert names == {name.replace("parquet", "jsonl") for name in BAD}
    lines = rejected(tmp_path / "out")
    assert [line["line"] for line in lines] == [16, 34]
    assert [record["first_line"] for record in manifest.shards] == [1, 11, 21, 31, 41]
    assert {line["file"] for line in lines} == {corpus.name}
    assert all("UTF-8" in line["reason"] for line in lines)


# ----------------------------------------------------------------------------------------- other settings, other inputs


def test_a_finished_folder_refuses_another_treatment_of_bad_rows(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    before = content(out)
    for other in ("keep-empty", "error"):
        with pytest.raises(ValueError, match=f"on_bad_row: 'skip' before, '{other}' now"):
            run(corpus, out, on_bad_row=other)
    assert content(out) == before


def test_an_unfinished_job_may_treat_bad_rows_otherwise_and_keeps_every_shard_until_it_is_replaced(
    corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(corpus, tmp_path / "whole", on_bad_row="keep-empty")
    with pytest.raises(ValueError, match=r"line 16: .*UTF-8"):
        run(corpus, out, on_bad_row="error")
    assert verify(out).shards == 1
    stopped(corpus, out, after=3)
    assert verify(out).shards == 4
    stopped(corpus, out, after=1, on_bad_row="keep-empty")
    assert (verify(out).shards, verify(out).bad) == (4, ())
    assert made(corpus, out, on_bad_row="keep-empty") == ["shard-000003-000.parquet", "shard-000004-000.parquet"]
    assert content(out) == content(tmp_path / "whole")


def test_a_replaced_shard_that_is_not_in_the_manifest_yet_is_not_bad(corpus: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    stopped(corpus, out, after=4)
    stopped(corpus, other, after=4, on_bad_row="keep-empty")
    shutil.copy(other / "data/shard-000001-000.parquet", out / "data/shard-000001-000.parquet")
    assert verify(out).bad == ()
    run(corpus, out, on_bad_row="keep-empty")
    run(corpus, other, on_bad_row="keep-empty")
    assert content(out) == content(other)


def test_an_input_may_change_behind_its_finished_parts(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text(text(100, 120))
    second.write_text(text(200, 215))
    stopped([first, second], tmp_path / "out", after=1)
    second.write_text(text(300, 340))
    run([first, second], tmp_path / "out")
    run([first, second], tmp_path / "whole")
    rows = [pd.read_parquet(tmp_path / name / "data")["input_ids"].map(list).tolist() for name in ("out", "whole")]
    assert rows[0] == rows[1]
    first.write_text(text(500, 520))
    with pytest.raises(ValueError, match=r"another job\n  got: input \S+a.txt: other content in data/shard-000000"):
        run([first, second], tmp_path / "out")
    with pytest.raises(ValueError, match=r"got: inputs: 2 before, 1 now"):
        run([second], tmp_path / "out")


def test_shards_that_are_missing_must_be_made_by_the_same_versions(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(corpus, tmp_path / "out")
    before = content(tmp_path / "out")
    version = importlib.metadata.version
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "version", lambda name: "9.9" if name == "tokenizers" else version(name))
        assert made(corpus, tmp_path / "out") == []
        (tmp_path / "out/data/shard-000002-000.parquet").unlink()
        with pytest.raises(ValueError, match=r"made by the versions .*\n  got: tokenizers: '\S+' before, '9.9' now\n"):
            run(corpus, tmp_path / "out")
    assert made(corpus, tmp_path / "out") == ["shard-000002-000.parquet"]
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("[1, 2]", r"was not written by hf-posenc\n  got: \[1, 2\]"),
        ('{"name": "a web page", "icons": []}', "was not written by hf-posenc"),
        ('{"written_by": "hf-posenc", "format_version": 1}', r"must have format version 3\n  got: 1\n  fix: "),
    ],
)
def test_a_manifest_of_something_else_or_of_another_format_is_refused_and_left(
    corpus: Path, tmp_path: Path, written: str, words: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text(written)
    (out / "shard-000000-000.parquet").write_text("of another layout")
    before = content(out)
    for call in (lambda: run(corpus, out), lambda: verify(out)):
        with pytest.raises(ValueError, match=f"manifest.json {words}"):
            call()
    assert content(out) == before


# ------------------------------------------------------------------------------------------- the folder and other files


@pytest.mark.parametrize(
    "name", ["README.md", "shard-000000-000.parquet", "data/shard-000000-000.parquet", "data/a.txt"]
)
def test_a_folder_with_other_files_is_refused_and_left(corpus: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine")
    with pytest.raises(ValueError, match=rf"other files, and no job.json of an earlier run\n  got: {name[:4]}"):
        run(corpus, out)
    assert content(out) == {name: b"mine"}


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_place_of_the_folder_is_refused(corpus: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ValueError, match=r"must be a folder\n  got: a file: .*out"):
        run(corpus, tmp_path / "out" / below)
    assert (tmp_path / "out").read_text() == "mine"


def test_a_run_that_made_nothing_leaves_nothing_and_decides_nothing(corpus: Path, tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": ["1"], "length": [1]})
    with pytest.raises(ValueError, match="column 'length' comes with the documents"):
        run(rows, tmp_path / "a" / "out", columns=["length"])
    assert not (tmp_path / "a" / "out").exists()
    corpus.write_bytes(NOT_UTF8 + corpus.read_bytes())
    with pytest.raises(ValueError, match=r"line 1: .*UTF-8"):
        run(corpus, tmp_path / "out", on_bad_row="error")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match=r"line 1: .*UTF-8"):
        run(corpus, tmp_path / "out", on_bad_row="error")
    run(corpus, tmp_path / "out", shard_bytes=80)


def test_unfinished_files_of_killed_runs_are_removed_and_no_others(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    unfinished = [
        "data/.shard-000003-000.parquet.12-0a1b2c3d.tmp",
        "rejected/.shard-000003-000.jsonl.12-0a1b2c3d.tmp",
        ".manifest.json.12-0a1b2c3d.tmp",
        ".README.md.1-ffffffff.tmp",
        ".job.json.1-ffffffff.tmp",
    ]
    others = ["notes.txt", ".notes.txt.12-0a1b2c3d.tmp", "data/.shard-000003-000.parquet.tmp"]
    for name in [*unfinished, *others]:
        (out / name).touch()
    run(corpus, out)
    assert [name for name in unfinished if (out / name).exists()] == []
    assert [name for name in others if not (out / name).exists()] == []


@pytest.mark.parametrize("name", ["shard-2.parquet", "shard-0 (copy).parquet", "shard-000009-000.parquet", "a.txt"])
def test_files_beside_the_shards_are_refused_because_libraries_would_read_them(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    shutil.copy(out / "data/shard-000000-000.parquet", out / "data" / name)
    with pytest.raises(ValueError, match=r"files that are not of this job(.|\n)*move them") as refused:
        run(corpus, out)
    assert f"data/{name}" in str(refused.value)
    assert (out / "data" / name).exists()


def test_a_second_run_is_refused_with_the_process_of_the_first(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = iter([f"{os.getpid()} {socket.gethostname()}", "77 far.away", ""])

    class Second(Progress):
        def shard(self, record: dict[str, Any]) -> None:
            if (holder := next(names, None)) is None:
                return
            (out / ".lock").write_text(holder)
            pid, _, host = holder.partition(" ")
            words = {"": "", socket.gethostname(): rf" \(process {pid}\)"}.get(host, rf" \(process {pid} on {host}\)")
            with pytest.raises(OSError, match=rf"out is in use by another run{words}\n  got: two runs on one folder"):
                run(corpus, out)

    run(corpus, out, progress=Second())
    assert verify(out).finished
    assert next(names, "all were tried") == "all were tried"


@pytest.mark.parametrize("part", [None, "1/1"])
def test_a_file_system_without_locks_is_used_with_a_warning(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str | None
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.warns(UserWarning, match="on a file system without locks") as warned:
        run(corpus, tmp_path / "out", part=part)
    assert len(warned) == 1
    assert verify(tmp_path / "out").finished
    assert (tmp_path / "out/.lock").exists() == (part is None)


def test_a_folder_that_is_removed_during_the_run_is_named(corpus: Path, tmp_path: Path) -> None:
    class Remove(Progress):
        def shard(self, record: dict[str, Any]) -> None:
            shutil.rmtree(tmp_path / "out", ignore_errors=True)

    with pytest.raises(OSError, match=r"\S+ cannot be written: its folder is gone"):
        run(corpus, tmp_path / "out", progress=Remove())


@pytest.fixture
def few_inodes(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system that can hold twelve files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=9m,nr_inodes=12", "tmpfs", str(disk)]
    if sys.platform != "linux" or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this process may not mount file systems")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_file_system_without_free_inodes_is_named_as_such(tmp_path: Path, few_inodes: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(text(100, 300))
    message = r"cannot be written: the disk is full\n  got: no free inodes: .* more than 12 files\n  fix: make room"
    with pytest.raises(OSError, match=message):
        run(corpus, few_inodes / "out")
    assert verify(few_inodes / "out").bad == ()
    subprocess.run(["mount", "-o", "remount,nr_inodes=99", str(few_inodes)], check=True)
    run(corpus, few_inodes / "out")
    run(corpus, tmp_path / "whole")
    assert content(few_inodes / "out") == content(tmp_path / "whole")


def test_names_that_are_not_unicode_are_kept(tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt"))
    try:
        path.write_bytes(NOT_UTF8 + text().encode())
    except OSError:
        pytest.skip("this file system has no such names")
    manifest = run(path, tmp_path / "out")
    assert Manifest.read(tmp_path / "out").inputs == manifest.inputs
    assert manifest.inputs[0]["name"] == path.name
    assert verify(tmp_path / "out").bad == ()
    assert "# `?.txt` as token ids" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
