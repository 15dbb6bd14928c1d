"""`hf-posenc encode` and `verify`: options, output, errors, and how a run stops and continues."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest

from hf_posenc import cli
from hf_posenc import corpus as corpora
from hf_posenc._common.errors import value_error

RECORD = {"documents": 1_000, "rows": 900, "tokens": 30_000, "bytes": 2_000_000, "cut": 0, "rejected": 0, "read": 50}
TOTALS = {**{name: 2 * value for name, value in RECORD.items()}, "shards": 2}
CONTINUES = "the same command continues where it was"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the terminal 80 columns wide, and the working directory a new folder."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object) -> int:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


class StandIn:
    """A replacement of `corpora.encode` that keeps its arguments, and calls a function of the test."""

    def __init__(self, then: Callable[[Any], None] | None = None) -> None:
        self.then = then

    def __call__(self, inputs: Any, tokenizer: Any, output: Any, **settings: Any) -> Any:
        self.given = {"inputs": inputs, "tokenizer": tokenizer, "output": output, **settings}
        progress = settings["progress"]
        if self.then is not None:
            self.then(progress)
        progress.stop()
        return SimpleNamespace(totals=TOTALS)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StandIn]:
    def put(then: Callable[[Any], None] | None = None) -> StandIn:
        made = StandIn(then)
        monkeypatch.setattr("hf_posenc.corpus.encode", made)
        return made

    return put


# -------------------------------------------------------------------------------------------------------------- options


def test_every_option_reaches_the_job_under_its_keyword(stand_in: Callable[..., StandIn]) -> None:
    parameters = inspect.signature(corpora.encode).parameters
    job = stand_in()
    command = ["encode", "a.txt", "b/*.jsonl", "-t", "bert", "-o", "out"]
    options: dict[str, tuple[list[str], Any]] = {
        "text_column": (["--text-column", "body"], "body"),
        "text_pair_column": (["--text-pair-column", "title"], "title"),
        "columns": (["--column", "id", "--column", "url"], ["id", "url"]),
        "source_columns": (["--source-columns"], True),
        "document": (["--document", "paragraph"], "paragraph"),
        "format": (["--format", "csv"], "csv"),
        "dataset_config": (["--dataset-config", "en"], "en"),
        "split": (["--split", "test"], "test"),
        "on_bad_row": (["--on-bad-row", "skip"], "skip"),
        "max_length": (["--max-length", "128"], 128),
        "too_long": (["--too-long", "split"], "split"),
        "stride": (["--stride", "8"], 8),
        "add_special_tokens": (["--no-add-special-tokens"], False),
        "pack": (["--pack", "2048"], 2048),
        "labels": (["--labels", "causal_lm"], "causal_lm"),
        "shard_bytes": (["--shard-bytes", "64000000"], 64_000_000),
        "backend": (["--backend", "fast"], "fast"),
        "workers": (["--workers", "3"], 3),
        "engine": (["--engine", "ray"], "ray"),
        "address": (["--address", "ray://head:10001"], "ray://head:10001"),
        "part": (["--part", "3/8"], "3/8"),
    }
    assert list(options) == [
        name for name in parameters if name not in ("inputs", "tokenizer", "output", "storage_options", "progress")
    ]
    assert run(*command, *(word for words, _ in options.values() for word in words)) == 0
    given = job.given
    assert given.pop("inputs") == ["a.txt", "b/*.jsonl"]
    assert (given.pop("tokenizer"), given.pop("output")) == ("bert", "out")
    assert isinstance(given.pop("progress"), corpora.Progress)
    assert given == {name: value for name, (_, value) in options.items()}
    assert run(*command) == 0
    for name in options:
        assert job.given[name] == parameters[name].default


def test_the_help_shows_whole_names_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("encode", "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in ("--text-pair-column", "--source-columns / --no-source-columns", "--no-add-special-tokens"):
        assert any(name in line for line in lines)


# ------------------------------------------------------------------------------------------------------------- progress


def work(progress: Any) -> None:
    progress.backend("nanotoken 0.1.0")
    progress.message("max_length is 512, the limit of the tokenizer, and not 1024")
    progress.start(bytes_total=100, bytes_done=0, shards_done=1)
    progress.shard(RECORD)


def test_a_run_whose_output_goes_to_files_prints_notes_and_a_summary(
    stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    def warned(progress: Any) -> None:
        work(progress)
        warnings.warn("a file was left out", stacklevel=1)

    stand_in(warned)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 0
    out, errors = capsys.readouterr()
    assert errors.splitlines() == [
        "note: max_length is 512, the limit of the tokenizer, and not 1024",
        "note: a file was left out",
    ]
    facts = {line[:11].strip(): line[11:].strip() for line in out.splitlines()}
    assert facts["documents"] == "2,000"
    assert facts["tokens"].startswith("60,000, ")
    assert facts["tokens"].endswith(" a second with nanotoken 0.1.0")
    assert "1 of them by earlier runs" in facts["shards"]


def test_a_file_gets_one_line_a_minute(
    stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def slowly(progress: Any) -> None:
        progress.start(bytes_total=500, bytes_done=0, shards_done=0)
        for _ in range(8):
            now[0] += 20
            progress.shard(RECORD)

    stand_in(slowly)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 0
    assert capsys.readouterr().err == "30%, 3 shards\n60%, 6 shards\n"


@pytest.mark.parametrize("error", [value_error("the rule", got=1, fix="2"), OSError("the disk is full")])
def test_an_error_names_what_is_finished(
    error: Exception, stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(progress: Any) -> None:
        work(progress)
        raise error

    stand_in(breaks)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 2
    assert capsys.readouterr().err.endswith(f"note: 2 shards finished and kept\n{error}\n")


def test_ctrl_c_prints_one_line(stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(_: Any) -> None:
        raise KeyboardInterrupt

    stand_in(stopped)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 130
    assert capsys.readouterr() == ("", f"stopped: no shard is finished; {CONTINUES}\n")


_WATCHED = """
import sys, time
from types import SimpleNamespace
from hf_posenc import cli
from hf_posenc import corpus as corpora
from hf_posenc._common.errors import value_error
def encode(*_, progress, **__):
    progress.message("a note")
    progress.start(bytes_total=1_000_000, bytes_done=0, shards_done=0)
    for step in range(2):
        progress.shard({"read": 250_000, "tokens": 60_000, "rejected": 0})
        time.sleep(0.3)
        print("printed by a library", file=sys.stderr)
    progress.stop()
    names = ("documents", "rows", "tokens", "shards", "bytes", "cut", "rejected")
    return SimpleNamespace(totals=dict.fromkeys(names, 0))
corpora.encode = encode
cli.main(["encode", "a.txt", "-t", "bert", "-o", "out"])
"""


def watched(**environment: str) -> str:
    """Return what the script writes to a terminal of 80 columns."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    there = {"TERM": "xterm-256color", "PATH": os.environ["PATH"], "COLUMNS": "80", **environment}
    there["PYTHONPATH"] = str(Path(cli.__file__).parents[2])
    command = [sys.executable, "-c", _WATCHED]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=there) as script:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the other end is closed
            while block := os.read(ours, 65536):
                seen += block
        os.close(ours)
    assert script.returncode == 0
    return seen.decode()


def test_a_terminal_shows_a_line_below_the_notes_that_is_gone_at_the_end() -> None:
    shown = watched()
    for words in ("a note", " 50%", "2 shards, ", "tokens/s", "\x1b[?25h"):
        assert words in shown
    assert shown.count("printed by a library") == 2
    assert "%" not in shown[shown.rindex("documents") :]
    plain = watched(TERM="dumb")
    assert "note: a note" in plain
    assert "\x1b" not in plain
    assert "%" not in plain


def test_the_command_line_loads_neither_numpy_nor_what_it_does_not_need() -> None:
    heavy = "('numpy', 'torch', 'transformers', 'pyarrow')"
    script = f"import sys, hf_posenc.cli; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


# ------------------------------------------------------------------------------------------------------- a real corpus


@pytest.fixture
def corpus(here: Path) -> Path:
    path = here / "corpus.jsonl"
    lines = [{"text": f"I ride bike number {number}", "id": number} for number in range(3_000)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"text": 7, "id": 0}]), encoding="utf-8")
    return path


def test_a_run_that_was_stopped_goes_on_and_verify_names_what_is_missing_and_what_is_bad(
    corpus: Path, bert_folder: Path, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "encode",
        corpus,
        "--column",
        "id:int64",
        "-t",
        bert_folder,
        "--workers",
        0,
        "--shard-bytes",
        30_000,
        "--on-bad-row",
        "skip",
        "-o",
    ]
    assert run(*command, "whole") == 0
    facts = {line[:11].strip(): line[11:] for line in capsys.readouterr().out.splitlines()}
    assert (facts["documents"], facts["rows"], facts["rejected"]) == (
        "3,001", "3,000", "1 document, listed in whole/rejected/",
    )  # fmt: skip
    (listed,) = (here / "whole" / "rejected").iterdir()
    assert '"line": 3001' in listed.read_text()
    assert run("verify", "whole") == 0
    sound = capsys.readouterr().out
    assert sound.count("\n") == 1
    assert "3,000 rows" in sound

    encode = corpora.encode

    def interrupted(*given: Any, progress: corpora.Progress, **settings: Any) -> corpora.Manifest:
        shard = progress.shard
        progress.shard = lambda record: (shard(record), signal.raise_signal(signal.SIGINT))  # type: ignore
        return encode(*given, progress=progress, **settings)

    with monkeypatch.context() as patch:
        patch.setattr("hf_posenc.corpus.encode", interrupted)
        assert run(*command, "out") == 130
    assert capsys.readouterr().err == f"stopped: 1 shard finished; {CONTINUES}\n"
    assert run("verify", "out") == 1
    assert "is not finished" in capsys.readouterr().out
    assert run(*command, "out") == 0
    assert "1 of them by earlier runs" in capsys.readouterr().out
    whole, out = (
        {path.relative_to(here / name): path.read_bytes() for path in (here / name).rglob("[!.]*") if path.is_file()}
        for name in ("whole", "out")
    )
    assert whole == out

    bad = here / "out" / "data" / "shard-000001-000.parquet"
    damaged = bytearray(bad.read_bytes())
    damaged[100] ^= 1
    bad.write_bytes(damaged)
    assert run("verify", "out") == 1
    assert "data/shard-000001-000.parquet: has another checksum" in capsys.readouterr().out
    assert run(*command, "out") == 0
    assert run("verify", "out") == 0
    assert bad.read_bytes() == (here / "whole" / "data" / bad.name).read_bytes()


def test_a_split_of_a_saved_data_set_is_chosen_by_name(
    here: Path, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = {"train": ["I ride", "she said", "no"], "test": ["bike"]}
    data = {name: datasets.Dataset.from_dict({"text": texts}) for name, texts in splits.items()}
    datasets.DatasetDict(data).save_to_disk("saved")
    capsys.readouterr()  # the progress of datasets
    command = ["encode", "saved", "-t", bert_folder, "-o", "out", "--workers", 0]
    assert run(*command) == 2
    assert "saved has several splits, and one must be chosen\n  got: train, test\n" in capsys.readouterr().err
    assert run(*command, "--split", "train") == 0
    assert "documents  3" in capsys.readouterr().out


def test_the_line_that_reads_the_shards_works_for_an_output_with_brackets_in_its_name(
    here: Path, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.txt").write_text("I ride\n")
    assert run("encode", "a.txt", "-t", bert_folder, "-o", "out [1]", "--workers", 0) == 0
    line = capsys.readouterr().out.partition("read back  ")[2].replace(", split=", ', cache_dir="cache", split=')
    assert len(eval(line, {"datasets": datasets})) == 1


def test_refusals_name_the_option_and_the_line(
    corpus: Path, bert_folder: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, phrases in (
        (["--max-length", 0], ("max_length must be positive", "fix: max_length=512")),
        (["--too-long", "cut"], ("too_long must be one of", "fix: too_long='truncate'")),
        (["--text-column", "body"], ("no column 'body'",)),
        (["--max-length", 64], ("line 3001", 'on_bad_row="skip"')),
    ):
        assert run("encode", corpus, "-t", bert_folder, "-o", "out", "--workers", 0, *options) == 2
        errors = capsys.readouterr().err
        assert "Traceback" not in errors
        for phrase in phrases:
            assert phrase in errors
    assert run("encode", "-", "-t", "bert", "-o", "out") == 2
    assert "standard input cannot be read a second time" in capsys.readouterr().err
    assert run("verify", here) == 2
    assert "holds no manifest.json" in capsys.readouterr().err
    assert run("verify", here / "nowhere") == 2
