"""Worker processes of `encode`: whichever process is killed, none is left, and the same call ends with the same bytes.

Compared with the process table: parents are scripts in processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import installed
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_posenc.corpus import Progress, encode, verify

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the process table in /proc")

TOKENIZER = Tokenizer(models.WordLevel({"?": 0, "I": 1, "ride": 2}, unk_token="?"))
TOKENIZER.pre_tokenizer = pre_tokenizers.Whitespace()


def workers_of(parent: int) -> set[int]:
    """Return the child processes of a process, zombies included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.add(int(stat.parent.name))
    return found


def running(process: int) -> bool:
    """Return True if the process exists and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def soon(condition: Callable[[], Any], seconds: float = 120.0) -> bool:
    """Return True if the condition comes true in time."""
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(met)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before, threads = workers_of(os.getpid()), threading.active_count()
    yield
    assert soon(lambda: threading.active_count() <= threads), threading.enumerate()
    assert workers_of(os.getpid()) <= before


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Text for 200 shards, and the tokenizer beside it."""
    (tmp_path / "corpus.txt").write_text("I ride\n" * 20_000)
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "corpus.txt"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


class At(Progress):
    """Calls a function after a number of shards."""

    def __init__(self, number: int, then: Callable[[], object]) -> None:
        self.left, self.then = number, then

    def shard(self, record: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            self.then()


def run(corpus: Path, output: Path, **settings: Any) -> dict[str, bytes]:
    tokenizer = corpus.with_name("tokenizer.json")
    encode(corpus, tokenizer, output, **{"workers": 2, "shard_bytes": 700, **settings})
    return files(output)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_ends_the_run_with_its_task_and_the_same_call_continues(
    corpus: Path, tmp_path: Path, number: int
) -> None:
    mine = workers_of(os.getpid())

    def kill() -> None:
        for worker in workers_of(os.getpid()) - mine:
            os.kill(worker, number)

    with pytest.raises(
        RuntimeError, match=r"a worker died on task \d+ \(\S+corpus.txt from byte [\d,]+\)\n  got: "
    ) as died:
        run(corpus, tmp_path / "out", progress=At(3, kill))
    assert signal.Signals(number).name in str(died.value)
    so_far = verify(tmp_path / "out")
    assert so_far.bad == ()
    assert 3 <= so_far.shards < 200
    assert run(corpus, tmp_path / "out", workers=1) == run(corpus, tmp_path / "whole", workers=0)


def test_two_runs_at_a_time_in_threads_do_not_disturb_each_other(corpus: Path, tmp_path: Path) -> None:
    got: dict[str, dict[str, bytes]] = {}
    threads = [
        threading.Thread(target=lambda name=name: got.update({name: run(corpus, tmp_path / name, workers=1)}))
        for name in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got["a"] == got["b"]
    assert len(got["a"]) > 200


SCRIPT = """\
import os, sys, threading, time
from pathlib import Path
folder = Path(sys.argv[1])
from hf_posenc.corpus import Progress, encode
class Printed(Progress):
    def shard(self, record):
        print(record["file"], flush=True)
{before}
try:
    settings = dict(workers=2, shard_bytes=700, progress={progress})
    encode(folder / "corpus.txt", folder / "tokenizer.json", folder / "out", **settings)
except BaseException as error:
    print(type(error).__name__)
    raise
{after}
"""


def script(
    folder: Path, *, before: str = "", after: str = "", progress: str = "Printed()", **settings: Any
) -> subprocess.Popen[str]:
    """Start a parent in a process of its own, without `if __name__ == "__main__"`."""
    (folder / "script.py").write_text(SCRIPT.format(before=before, after=after, progress=progress))
    (folder / "pickle.py").write_text("raise ImportError('not this one')")  # the working directory is on no path
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": folder}
    shown = ["-W", "error"]
    if installed.before("torch", "2.8"):  # it leaves a temporary folder
        shown += ["-W", "ignore:Implicitly cleaning up:ResourceWarning"]
    command = [sys.executable, "-P", *shown, "script.py", str(folder)]
    path = str(Path(__file__).parents[2])
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **{**pipes, **settings})


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit status and the output."""
    try:
        out, errors = process.communicate(timeout=180)
    finally:
        process.kill()
    return process.returncode, out, errors


def at_work(parent: subprocess.Popen[str]) -> set[int]:
    """Return the workers of a script, once it has written a shard."""
    assert parent.stdout is not None
    assert parent.stdout.readline().startswith("data/shard-")
    return workers_of(parent.pid)


def test_a_script_without_a_guard_is_not_run_again_by_its_workers(corpus: Path, tmp_path: Path) -> None:
    code, out, errors = outcome(script(tmp_path, before='print("once")', after='print("done")'))
    assert (code, errors) == (0, "")
    assert out.startswith("once\ndata/shard-")
    assert out.count("once") == out.count("done") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_a_parent_that_is_killed(corpus: Path, tmp_path: Path, number: int) -> None:
    parent = script(tmp_path)
    workers = at_work(parent)
    assert len(workers) == 2
    parent.send_signal(number)
    assert soon(lambda: not any(map(running, workers)))
    assert outcome(parent)[0] == -number
    assert run(corpus, tmp_path / "out") == run(corpus, tmp_path / "whole", workers=0)


def test_no_worker_outlives_a_parent_whose_pipes_a_fork_of_it_keeps_open(corpus: Path, tmp_path: Path) -> None:
    fork = """\
class Printed(Progress):
    def shard(self, record):
        if not (folder / "forked").exists():
            (folder / "forked").touch()
            if (child := os.fork()) == 0:
                time.sleep(60)
                os._exit(0)
            print(child, flush=True)
"""
    parent = script(tmp_path, before=fork)
    assert parent.stdout is not None
    fork_of_it = int(parent.stdout.readline())
    workers = workers_of(parent.pid) - {fork_of_it}
    parent.kill()
    try:
        assert soon(lambda: not any(map(running, workers)))
        assert running(fork_of_it)
    finally:
        os.kill(fork_of_it, signal.SIGKILL)
    outcome(parent)


STARTS = """\
import pickle, signal, subprocess
class Worker(subprocess.Popen):
    def __init__(self, *given, **settings):
        super().__init__(*given, **settings)
        if self.stdin is None:  # ldconfig, which a CUDA build of torch starts when imported
            return
        {then}
subprocess.Popen = Worker
"""
DIES = """\
if child := os.fork():
            print(self.pid, child, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the fork keeps the pipes open
        os._exit(0)
"""
SENDS_HALF = """\
self.stdin.write(pickle.dumps(b"x" * 100_000)[:50_000])
        self.stdin.close()
        print(self.pid, os.getpid(), flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("then", [DIES, SENDS_HALF], ids=["dies at once", "sends half a message"])
def test_no_worker_outlives_a_parent_that(corpus: Path, tmp_path: Path, then: str) -> None:
    parent = script(tmp_path, before=STARTS.format(then=then))
    assert parent.stdout is not None
    worker, still_there = map(int, parent.stdout.readline().split())
    try:
        assert soon(lambda: not running(worker), seconds=30)
        assert running(still_there)
    finally:
        for process in filter(running, (worker, still_there)):
            os.kill(process, signal.SIGKILL)
    outcome(parent)
    assert run(corpus, tmp_path / "out") == run(corpus, tmp_path / "whole", workers=0)


def test_a_class_that_workers_cannot_import_is_named(corpus: Path, tmp_path: Path) -> None:
    mine = """\
import pickle, transformers
class Mine(transformers.ByT5Tokenizer):
    pass
encode = lambda text, _, *given, _encode=encode, **settings: _encode(text, Mine(), *given, **settings)
"""
    code, out, errors = outcome(script(tmp_path, before=mine))
    assert (code, out) == (1, "RuntimeError\n")
    assert "RuntimeError: a worker cannot import what the calling process uses\n  got: AttributeError: " in errors
    assert "'Mine'" in errors.splitlines()[-2]
    assert "workers=0" in errors.splitlines()[-1]


def test_ctrl_c_ends_the_workers_and_they_print_nothing(corpus: Path, tmp_path: Path) -> None:
    parent = script(tmp_path, start_new_session=True)
    workers = at_work(parent)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    code, out, errors = outcome(parent)
    assert not any(map(running, workers))
    assert code == -signal.SIGINT
    assert out.endswith("KeyboardInterrupt\n")
    assert errors.count("KeyboardInterrupt") == 1


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("import io\nsys.stdout = sys.stderr = io.StringIO()", id="streams without a file"),
        pytest.param("sys.stdout = sys.stderr = sys.stdin = None", id="no streams"),
        pytest.param("os.close(0)", id="stdin closed"),
        pytest.param("os.close(2)", id="stderr closed"),
    ],
)
def test_it_works_whatever_the_standard_streams_are(corpus: Path, tmp_path: Path, before: str) -> None:
    code, out, errors = outcome(script(tmp_path, before=before, after="os.write(1, b'done')", progress="Progress()"))
    assert (code, out, errors) == (0, "done", "")
