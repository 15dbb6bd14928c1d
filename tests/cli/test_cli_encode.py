"""`hf-posenc encode` and `verify`: options, output, exit status and errors. The shards are those of `corpus.encode`."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pyarrow.parquet as pq
import pytest

from hf_posenc import cli
from hf_posenc import corpus as corpora
from hf_posenc.cli.corpus import encode as command
from hf_posenc.collator.settings import Settings

NOT_READ_BACK = "finished   no: shards of other parts are missing"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the terminal 80 columns wide, and the working directory a new folder."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Broken(fsspec.AbstractFileSystem):
    """A file system whose library fails with an error of any class."""

    protocol = "broken"

    def info(self, *_: Any, **__: Any) -> Any:
        raise KeyError("no answer")


fsspec.register_implementation("broken", Broken, clobber=True)


@pytest.fixture
def corpus(here: Path) -> Path:
    """JSON lines with two rows without tokens."""
    rows = [{"text": "I ride bike" * (number % 7 != 2), "id": number} for number in range(10)]
    (here / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return here / "corpus.jsonl"


def run(*arguments: object) -> int:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_options_are_the_arguments_of_encode_with_their_defaults() -> None:
    parameters = inspect.signature(corpora.encode).parameters
    arguments = {setting.name: setting.default for setting in dataclasses.fields(Settings)}
    arguments |= {name: parameter.default for name, parameter in parameters.items()}
    options = inspect.signature(command).parameters
    assert {*parameters} - {*options} == {"columns", "storage_options", "settings"}
    assert {*options} - {*arguments} == {"column"}
    for name in {*options} & {*arguments}:
        assert options[name].default in (arguments[name], None), name


def test_the_help_shows_whole_names_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("encode", "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in ("--text-pair-column", "--return-overflowing-tokens", "--no-add-special-tokens"):
        assert any(name in line for line in lines)


def test_the_command_line_loads_neither_numpy_nor_what_it_does_not_need() -> None:
    heavy = "('numpy', 'torch', 'transformers', 'pyarrow')"
    script = f"import sys, hf_posenc.cli; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_file_is_encoded_read_back_and_verified_and_a_damaged_shard_is_found(
    corpus: Path, bert: Any, bert_folder: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--column", "id", "--on-bad-row", "skip", "--shards", 2, "--workers", 0]
    assert run("encode", corpus, "-t", bert_folder, "-o", "out", *options) == 0
    out, errors = capsys.readouterr()
    facts = dict(line.split("  ", 1) for line in out.splitlines())
    assert {name: int(facts[name]) for name in ("documents", "bad", "shards")} == {
        "documents": 8, "bad": 2, "shards": 2,
    }  # fmt: skip
    assert errors.endswith("note: row 2 was left out: no tokens, ''\nnote: row 9 was left out: no tokens, ''\n")
    rows = eval(facts["read back"].replace(", split=", ', cache_dir="cache", split='), {"datasets": datasets})
    assert rows["id"][:] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert rows["input_ids"][:] == [bert("I ride bike")["input_ids"]] * 8
    assert run("verify", "out") == 0
    assert capsys.readouterr().out == "out: all shards are as they were written\n"
    shard = here / "out" / "data" / "shard-000001.parquet"
    shard.write_bytes(shard.read_bytes()[:-9])
    assert run("verify", "out") == 1
    assert "data/shard-000001.parquet is damaged" in capsys.readouterr().out


def test_parts_splits_and_arguments_of_load_dataset_are_passed_on(
    here: Path, bert: Any, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.txt").write_bytes("Größe\nrot\nblau\n".encode("latin-1"))
    options = ["--loading", "encoding=latin-1", "--split", "train[:2]", "--shards", 2, "--workers", 0]
    assert run("encode", "a.txt", "-t", bert_folder, "-o", "out", *options, "--part", "2/2") == 0
    assert NOT_READ_BACK in capsys.readouterr().out
    assert run("verify", "out") == 2
    assert (
        "1 of 2 shards are missing\n  fix: the same encode with --part 1/2, or without --part"
        in capsys.readouterr().err
    )
    assert run("encode", "a.txt", "-t", bert_folder, "-o", "out", *options, "--part", "1/2") == 0
    assert NOT_READ_BACK not in capsys.readouterr().out
    assert pq.read_table("out/data")["input_ids"].to_pylist() == bert(["Größe", "rot"])["input_ids"]


def test_errors_are_printed_without_a_traceback_and_their_kind_is_the_exit_status(
    corpus: Path, bert_folder: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 is bad data, 2 a wrong command or a missing input, and 75 what may work later."""
    bert = ("-t", bert_folder)
    for options, status, phrase in (
        ([corpus, *bert, "-o", "out"], 1, "row 2 of the input has no tokens"),
        (
            [corpus, *bert, "-o", "out", "--loading", "a=1"],
            2,
            "keyword argument 'a'\"\n  fix: check --format, --split and",
        ),
        ([corpus, *bert, "-o", "out", "--format", "none"], 2, "load_dataset refuses its arguments"),
        ([corpus, *bert, "-o", "out", "--engine", "local"], 2, "--engine"),
        ([corpus, *bert, "-o", bert_folder], 2, "holds a tokenizer"),
        ([corpus, *bert, "-o", corpus], 2, "must be a folder"),
        ([corpus, *bert, "-o", corpus / "out"], 2, "must be a folder"),
        ([corpus, *bert, "-o", "/proc/none/out"], 75, "/proc/none/out cannot be read or written\n  got: No such file"),
        ([corpus, *bert, "-o", "broken://out"], 75, "broken://out cannot be read or written\n  got: KeyError: "),
        (["broken://a.txt", *bert, "-o", "out"], 75, "broken://a.txt cannot be read or written\n  got: KeyError: "),
        (["a text", *bert, "-o", "out"], 2, 'in Python datasets.Dataset.from_dict({"text": texts})'),
        ([corpus, "-t", "encoded", "-o", "out"], 2, "fix: 'encoded/tokenizer'"),
    ):
        (here / "encoded/tokenizer").mkdir(parents=True, exist_ok=True)
        assert run("encode", *options, "--workers", 0, "--quiet") == status, options
        errors = capsys.readouterr().err
        assert "Traceback" not in errors
        assert phrase in errors
    for output, phrase in (
        ("out", "is not the output of a finished job"),
        (
            "outt",
            "there is no file or folder outt\n  got: the current folder has corpus.jsonl, encoded, out\n  fix: out\n",
        ),
        ("nowhere://bucket", "nowhere://bucket cannot be read or written"),
    ):
        assert run("verify", output) == 2, output
        assert phrase in capsys.readouterr().err


def test_ctrl_c_prints_one_line(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hf_posenc.corpus.encode", stopped)
    assert run("encode", corpus, "-t", "bert", "-o", "out") == 130
    assert capsys.readouterr() == ("", "stopped; the same command continues where it was\n")
