"""`hf-posenc encode` and `verify`: what reaches `jobs`, what is said on the way and at the end, and how it stops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main

from hf_posenc import cli
from hf_posenc.cli.encode import OPTIONS
from hf_posenc.cli.figures import Speed, clock
from hf_posenc.cli.progress import Bar
from hf_posenc.cli.terminal import Screen
from hf_posenc.cli.wording import in_options, size

RECORD = {"documents": 1_000, "rows": 900, "tokens": 30_000, "bytes": 2_000_000, "cut": 0, "rejected": 0}
GOES_ON = "the same command goes on where it was"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A terminal of 80 columns, and a folder of one's own to write to."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


class StandIn:
    """In the place of `jobs.encode`: keeps what it was given, and does what a test wants."""

    def __init__(self, then: Callable[[Any], None] | None = None, shards: int = 2) -> None:
        self.then, self.shards = then, shards

    def __call__(self, inputs: Any, tokenizer: Any, output: Any, **settings: Any) -> Any:
        self.given = {"inputs": inputs, "tokenizer": tokenizer, "output": output, **settings}
        progress = settings["progress"]
        if self.then is not None:
            self.then(progress)
        progress.stop()
        return SimpleNamespace(shards=dict.fromkeys(range(self.shards), RECORD))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StandIn]:
    def put(then: Callable[[Any], None] | None = None, shards: int = 2) -> StandIn:
        made = StandIn(then, shards)
        monkeypatch.setattr("hf_posenc.jobs.encode", made)
        return made

    return put


# ------------------------------------------------------------------------------------------------------- what is asked


def test_every_option_reaches_the_job_under_its_keyword(stand_in: Callable[..., StandIn]) -> None:
    job = stand_in()
    command = ["encode", "a.txt", "b/*.jsonl", "-t", "bert", "-o", "out"]
    options: dict[str, tuple[list[str], Any]] = {
        "text_column": (["--text-column", "body"], "body"),
        "text_pair_column": (["--text-pair-column", "title"], "title"),
        "columns": (["--column", "url", "--column", "id"], ["url", "id"]),
        "split": (["--split", "paragraphs"], "paragraphs"),
        "format": (["--format", "csv"], "csv"),
        "dataset_config": (["--dataset-config", "en"], "en"),
        "dataset_split": (["--dataset-split", "test"], "test"),
        "max_length": (["--max-length", "128"], 128),
        "too_long": (["--too-long", "split"], "split"),
        "stride": (["--stride", "8"], 8),
        "add_special_tokens": (["--no-special-tokens"], False),
        "pack": (["--pack", "2048"], 2048),
        "labels": (["--labels", "causal_lm"], "causal_lm"),
        "on_bad_row": (["--on-bad-row", "skip"], "skip"),
        "workers": (["--workers", "3"], 3),
        "engine": (["--engine", "ray"], "ray"),
        "address": (["--address", "ray://head:10001"], "ray://head:10001"),
        "shard_bytes": (["--shard-size", "64MB"], 64_000_000),
    }
    assert run(*command, *(word for words, _ in options.values() for word in words)) == 0
    first = job.given
    assert first.pop("inputs") == ["a.txt", "b/*.jsonl"]
    assert (first.pop("tokenizer"), first.pop("output")) == ("bert", Path("out"))
    assert isinstance(first.pop("progress"), Bar)
    assert first == {name: value for name, (_, value) in options.items()}
    assert run(*command, "--no-columns", "--special-tokens") == 0
    assert (job.given["columns"], job.given["add_special_tokens"]) == ([], True)


def test_the_options_are_the_keywords_of_the_job_and_mean_nothing_else_where_not_given(
    stand_in: Callable[..., StandIn],
) -> None:
    import inspect

    from hf_posenc import jobs

    keywords = {n: p.default for n, p in inspect.signature(jobs.encode).parameters.items() if n != "inputs"}
    assert [*keywords] == [*OPTIONS, "progress"]
    job = stand_in()
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 0
    # What None stands for where a collator is asked first; there is none here.
    meant = {**keywords, "too_long": "truncate", "stride": 0, "add_special_tokens": True}
    assert {name: job.given[name] for name in keywords if keywords[name] is not inspect.Parameter.empty} == {
        name: value for name, value in {**meant, "progress": job.given["progress"]}.items()
        if keywords[name] is not inspect.Parameter.empty
    }  # fmt: skip
    command = typer.main.get_command(cli.app).commands["encode"]  # type: ignore[attr-defined]
    named = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert {flag for option in OPTIONS.values() for flag in option.split("/")} <= named


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64MB", 64_000_000), ("512KB", 512_000), ("1GiB", 1 << 30), ("1.5 gib", 3 << 29), ("4096", 4096),
        ("7b", 7), ("2TB", 2 * 10**12), ("0.5KiB", 512), (" 3 MiB ", 3 << 20),
    ],
)  # fmt: skip
def test_a_size_is_a_number_and_a_unit(text: str, expected: int) -> None:
    assert size(text, "--shard-size") == expected


@pytest.mark.parametrize(
    ("text", "fix"),
    [("64M", "64MB"), ("2 giga", "2GB"), ("many", "64MB"), ("", "64MB"), ("-1MB", "64MB"), ("1e9", "64MB")],
)  # fmt: skip
def test_a_size_that_is_none_is_refused_with_what_was_meant(
    text: str, fix: str, capsys: pytest.CaptureFixture[str], stand_in: Callable[..., StandIn]
) -> None:
    stand_in(lambda _: pytest.fail("the job was begun"))
    assert run("encode", "a.txt", "-t", "bert", "-o", "out", f"--shard-size={text}") == 2
    err = capsys.readouterr().err
    assert err.startswith("--shard-size takes a number and a unit: B, KB, MB, GB, TB (thousands), KiB")
    assert err.endswith(f"  fix: --shard-size {fix}\n")


def test_standard_input_and_contradictions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("encode", "-", "-t", "bert", "-o", "out") == 2
    assert "standard input cannot be read a second time" in capsys.readouterr().err
    assert run("encode", "a.txt", "-t", "bert", "-o", "out", "--column", "id", "--no-columns") == 2
    assert "--no-columns and --column exclude each other" in capsys.readouterr().err
    assert run("encode", "a.txt", "-o", "out") == 2
    assert "--tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("stride must be less than 5|stride=4", "--stride must be less than 5|--stride 4"),
        ("x|on_bad_row=\"skip\" leaves them out", "x|--on-bad-row skip leaves them out"),
        ("x|too_long='split', or stride=0", "x|--too-long split, or --stride 0"),
        ("x|add_special_tokens=False", "x|--no-special-tokens"),
        ("x|columns=['url', 'my id']", "x|--column url --column 'my id'"),
        ("x|labels=None, or Collator(tok, labels='masked_lm')", "x|no --labels, or Collator(tok, labels='masked_lm')"),
        ("x|text_column='a' (--text-column a) names it", "x|--text-column a names it"),
        ("x|text_column=...", "x|--text-column ..."),
        ("text_column names no column of a/text_column.csv|x", "--text-column names no column of a/text_column.csv|x"),
        ("column 'max_length' is int64; the format is csv|x", "column 'max_length' is int64; the format is csv|x"),
    ],
)  # fmt: skip
def test_refusals_name_options(rule: str, fix: str) -> None:
    message, expected = (
        f"{rule}\n  got: max_length=3\n  fix: {fix}" for rule, fix in (rule.split("|"), fix.split("|"))
    )
    assert in_options(message, OPTIONS) == expected


def test_what_a_job_refuses_is_said_in_options_and_a_fault_of_ours_keeps_its_traceback(
    stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Any) -> None:
        raise ValueError("max_length must be at least 1\n  got: 0\n  fix: max_length=512")

    stand_in(refuse)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out", "--max-length", 0) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "--max-length must be at least 1\n  got: 0\n  fix: --max-length 512\n")

    def broken(_: Any) -> None:
        raise ValueError("a bug")

    stand_in(broken)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["encode", "a.txt", "-t", "bert", "-o", "out"])


# --------------------------------------------------------------------------------------------------------- what is said


def work(progress: Any) -> None:
    progress.say("rows have at most 512 tokens")
    progress.start(bytes_total=1_000, bytes_done=400, shards_done=1)
    progress.tick(600, 30_000)
    progress.shard({**RECORD, "rejected": 2})


def test_where_nobody_looks_only_what_stays_is_said(
    stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for force in ("", "1"):  # what CI sets to have colours
        monkeypatch.setenv("FORCE_COLOR", force)
        monkeypatch.setenv("NO_COLOR", "1")
        stand_in(work)
        assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 0
        out, err = capsys.readouterr()
        assert err == ""
        lines = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in out.splitlines()]
        assert lines[0] == "rows have at most 512 tokens"
        facts = {line[:11].strip(): line[11:] for line in lines[1:]}
        assert [*facts] == ["documents", "rows", "tokens", "shards", "read back"]
        assert (facts["documents"], facts["rows"]) == ("2,000", "1,800")
        assert facts["tokens"].startswith("60,000, ")
        assert facts["tokens"].endswith(" a second")
        assert facts["shards"] == "2 in out, 4.0 MB, 1 of them by runs before"
        assert facts["read back"] == 'datasets.load_dataset("parquet", data_files="out/data/*.parquet", split="train")'


def test_a_warning_on_the_way_is_a_note(stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(lambda _: warnings.warn("a model of another kind", UserWarning, stacklevel=1))
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 0
    assert capsys.readouterr().err == "note: a model of another kind\n"


def test_an_error_on_the_way_says_what_there_is_to_go_on_from(
    stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    def full(progress: Any) -> None:
        work(progress)
        raise OSError("the disk is full\n  got: 0 bytes\n  fix: room")

    stand_in(full)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == 2
    assert capsys.readouterr().err == (
        "note: 2 shards are finished, and stay\nthe disk is full\n  got: 0 bytes\n  fix: room\n"
    )


# ---------------------------------------------------------------------------------------------------------------- line


@pytest.fixture
def clockwork(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that a test sets."""
    now = SimpleNamespace(time=0.0)
    monkeypatch.setattr("hf_posenc.cli.progress.time", SimpleNamespace(monotonic=lambda: now.time))
    return now


def halfway(now: SimpleNamespace, total: int | None = 100_000_000) -> Bar:
    bar = Bar(Screen())
    now.time += 5.0
    assert bar.line(80) == "getting ready  0:05"
    bar.checked(7_000_000)
    assert bar.line(80) == "7.0 MB of finished shards checked  0:05"
    bar.start(bytes_total=total, bytes_done=20_000_000, shards_done=3)
    for _ in range(10):
        now.time += 1.0
        bar.tick(3_000_000, 750_000)
    for rejected in (0, 1_200):
        bar.shard({"rejected": rejected})
    return bar


def test_the_line_says_share_speed_time_left_shards_and_rejected_rows(clockwork: SimpleNamespace) -> None:
    line = halfway(clockwork).line(100)
    bar, _, words = line.partition("  ")
    assert words == "50%  750k tokens/s  0:17 left  5 shards  1,200 rejected"
    assert len(line) == 100
    assert bar == "█" * 21 + "·" * 22
    assert halfway(clockwork, None).line(100) == "50.0 MB  750k tokens/s  5 shards  1,200 rejected"


def test_the_line_fits_any_width_and_keeps_what_matters_most(clockwork: SimpleNamespace) -> None:
    bar = halfway(clockwork)
    for width in range(4, 140):
        assert len(bar.line(width)) <= width
    assert bar.line(60).endswith("· 50% 750k tok/s 0:17 left 5 shards 1,200 rejected")
    assert bar.line(50) == "50% 750k tok/s 0:17 left 5 shards 1,200 rejected"
    assert bar.line(40) == "50% 0:17 left 5 shards 1,200 rejected"
    assert bar.line(30) == "50% 0:17 left 1,200 rejected"
    assert bar.line(13) == "50% 0:17 left"
    assert bar.line(4) == "50%"


def test_a_stream_that_knows_only_ascii_gets_a_bar_of_ascii(
    clockwork: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    bar = halfway(clockwork).line(80)
    assert bar.isascii()
    assert "###" in bar
    assert "..." in bar


def test_a_speed_is_that_of_the_last_twenty_seconds_and_survives_work_that_was_lost() -> None:
    speed = Speed(now=0.0)
    for second in range(1, 101):
        speed.add(100 if second <= 50 else 10, now=float(second))
    assert speed.a_second(now=100.0) == pytest.approx(10)
    assert speed.a_second(now=110.0) == pytest.approx(5, rel=0.1)
    speed.add(-5_000, now=111.0)
    assert speed.a_second(now=112.0) == 0
    assert speed.total == 50 * 100 + 50 * 10 - 5_000


def test_times_are_written_as_on_a_clock() -> None:
    assert [clock(seconds) for seconds in (0, 7, 59.6, 754, 3723)] == ["0:00", "0:07", "1:00", "12:34", "1:02:03"]


# ------------------------------------------------------------------------------------------------------------- stopping


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_job_with_one_line_that_says_how_to_go_on(
    number: signal.Signals, status: int, stand_in: Callable[..., StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    def stopped_early(_: Any) -> None:
        signal.raise_signal(number)

    stand_in(stopped_early)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == status
    assert capsys.readouterr() == ("", f"stopped: no shard is finished; {GOES_ON}\n")

    def stopped_twice(progress: Any) -> None:
        work(progress)
        try:
            signal.raise_signal(number)
        finally:  # one press that came twice: the cleaning up is not disturbed
            signal.raise_signal(number)
            progress.shard(RECORD)

    stand_in(stopped_twice)
    assert run("encode", "a.txt", "-t", "bert", "-o", "out") == status
    assert capsys.readouterr().err == f"stopped: 3 shards are finished; {GOES_ON}\n"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


_IMPATIENT = """
import atexit, signal, sys
from types import SimpleNamespace
from hf_posenc.cli import main, stopping
def encode(*_, **__):
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        if LATER:
            stopping._SAME_PRESS = -1.0
            signal.raise_signal(signal.SIGINT)
            print("not reached")
sys.modules["hf_posenc.jobs"] = SimpleNamespace(encode=encode)
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv[1:] = ["encode", "a.txt", "-t", "bert", "-o", "out"]
main()
"""


def test_a_further_ctrl_c_while_it_stops_ends_the_process_without_a_traceback() -> None:
    for later, words in ((True, "stopped; "), (False, "stopped: no shard is finished; ")):
        script = _IMPATIENT.replace("LATER", str(later))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{words}{GOES_ON}\n")


# ----------------------------------------------------------------------------------------------------------- a terminal

_WATCHED = """
import sys, time
from types import SimpleNamespace
from hf_posenc.cli import main
def encode(*_, progress, **__):
    progress.say("rows have at most 512 tokens")
    progress.start(bytes_total=1_000_000, bytes_done=0, shards_done=0)
    for step in range(2):
        time.sleep(0.6)
        progress.tick(250_000, 60_000)
        print("a library says so", file=sys.stderr)
    time.sleep(0.6)
    progress.stop()
    return SimpleNamespace(shards={})
sys.modules["hf_posenc.jobs"] = SimpleNamespace(encode=encode)
main(["encode", "a.txt", "-t", "bert", "-o", "out"])
"""


def watched(script: str, **environment: str) -> list[str]:
    """What a script writes to a terminal of 60 columns."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    there = {"TERM": "xterm-256color", "PATH": os.environ["PATH"], "COLUMNS": "60", **environment}
    with subprocess.Popen([sys.executable, "-c", script], stdin=theirs, stdout=theirs, stderr=theirs, env=there) as run:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # which says that nobody is at the other end any more
            while block := os.read(ours, 65536):
                seen += block
        os.close(ours)
    assert run.returncode == 0
    return seen.decode().split("\r\n")


def test_on_a_terminal_a_line_renews_itself_below_what_is_said_and_is_gone_at_the_end() -> None:
    lines = watched(_WATCHED)
    drawn = [part for line in lines for part in line.split("\r\x1b[2K")]
    assert any(re.fullmatch(r"█+·+  50%  [\d.]+k tokens/s  0:0\d left  0 shards", part) for part in drawn), drawn
    assert lines[0].endswith("rows have at most 512 tokens")
    assert sum(line.endswith("a library says so") for line in lines) == 2
    assert "\x1b[?25h" in "".join(lines)  # the cursor is there again
    end = next(number for number, line in enumerate(lines) if "documents" in line)
    assert not any("%" in line for line in lines[end:])


def test_a_dumb_terminal_gets_no_codes() -> None:
    lines = watched(_WATCHED, TERM="dumb")
    assert "\x1b" not in "".join(lines)
    assert lines[0] == "rows have at most 512 tokens"
    assert not any("%" in line for line in lines)


def test_a_reader_who_has_seen_enough_is_no_failure() -> None:
    script = _WATCHED.replace("0.6", "0.0")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.close()
        assert run.stderr is not None
        said = run.stderr.read().decode()
    assert (run.returncode, said) == (0, "a library says so\n" * 2)


def test_the_command_line_is_there_without_loading_numpy_or_what_it_does_not_need() -> None:
    heavy = "('numpy', 'torch', 'transformers', 'pyarrow')"
    script = f"import sys, hf_posenc.cli; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


# ------------------------------------------------------------------------------------------------------------- for real


@pytest.fixture
def corpus(here: Path) -> Path:
    path = here / "corpus.jsonl"
    lines = [{"text": f"I ride bike number {number}", "id": number} for number in range(3_000)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"text": 7, "id": 0}]), encoding="utf-8")
    return path


def test_a_run_that_was_stopped_goes_on_and_verify_says_what_is_missing_and_what_is_bad(
    corpus: Path, bert_folder: Path, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "encode",
        corpus,
        "-t",
        bert_folder,
        "--workers",
        1,
        "--shard-size",
        "30KB",
        "--on-bad-row",
        "skip",
        "-o",
    ]
    assert run(*command, "whole") == 0
    facts = {line[:11].strip(): line[11:] for line in capsys.readouterr().out.splitlines()}
    assert (facts["documents"], facts["rows"], facts["rejected"]) == (
        "3,001", "3,000", "1 document, listed in whole/rejected.jsonl",
    )  # fmt: skip
    assert '"line": 3001' in (here / "whole" / "rejected.jsonl").read_text()
    assert run("verify", "whole") == 0
    sound = capsys.readouterr().out
    assert sound.count("\n") == 1
    assert "3,000 rows" in sound

    with monkeypatch.context() as patch:
        shard = Bar.shard
        patch.setattr(Bar, "shard", lambda bar, record: (shard(bar, record), signal.raise_signal(signal.SIGINT)))
        assert run(*command, "out") == 130
    assert capsys.readouterr().err == f"stopped: 1 shard is finished; {GOES_ON}\n"
    assert run("verify", "out") == 1
    assert "is not finished" in capsys.readouterr().out
    assert run(*command, "out") == 0
    assert "1 of them by runs before" in capsys.readouterr().out
    whole, out = (
        {path.relative_to(here / name): path.read_bytes() for path in (here / name).rglob("[!.]*") if path.is_file()}
        for name in ("whole", "out")
    )
    assert whole == out

    bad = here / "out" / "data" / "shard-000001.parquet"
    damaged = bytearray(bad.read_bytes())
    damaged[100] ^= 1
    bad.write_bytes(damaged)
    assert run("verify", "out") == 1
    assert "data/shard-000001.parquet: has another checksum" in capsys.readouterr().out
    assert run(*command, "out") == 0
    assert run("verify", "out") == 0
    assert bad.read_bytes() == (here / "whole" / "data" / bad.name).read_bytes()


def test_refusals_of_the_real_job_are_said_in_options(
    corpus: Path, bert_folder: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong: list[tuple[list[object], tuple[str, ...]]] = [
        (["--max-length", 0], ("--max-length must be positive", "fix: --max-length 512")),
        (["--too-long", "cut"], ("--too-long must be one of", "fix: --too-long truncate")),
        (["--engine", "spark"], ("--engine must be one of", "fix: --engine local")),
        (["--text-column", "body"], ("no column 'body'", "--text-column text")),
        (["--labels", "masked_lm"], ("drawn anew", "fix: no --labels here, and DataCollator")),
        (["--max-length", 64], ("line 3001", "--on-bad-row skip")),
    ]
    for options, phrases in wrong:
        assert run("encode", corpus, "-t", bert_folder, "-o", "out", "--workers", 1, *options) == 2
        err = capsys.readouterr().err
        assert "Traceback" not in err
        for phrase in phrases:
            assert phrase in err
    assert run("verify", here) == 2
    assert "holds no manifest.json" in capsys.readouterr().err
    assert run("verify", here / "nowhere") == 2
