"""The engine of worker processes: one record for each task and no process left, whichever process is killed.

Compared with the process table: parents are scripts in processes of their own.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from local_writers import Deadly, Echo, Raises, Surroundings, Task, task, tasks

from hf_posenc.jobs import run_in_processes

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the process table in /proc")


def workers_of(parent: int) -> set[int]:
    """Return the worker processes of a process, zombies included. Python's resource tracker is not one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and b"resource_tracker" not in (stat.parent / "cmdline").read_bytes():
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
    gc.collect()
    assert soon(lambda: threading.active_count() <= threads), threading.enumerate()
    assert workers_of(os.getpid()) <= before


def script(text: str, *arguments: object, **settings: Any) -> subprocess.Popen[str]:
    """Start a parent in a process of its own."""
    path = os.pathsep.join(str(folder) for folder in Path(__file__).parents[:3])
    text = f"""\
import os, sys, threading, time
from pathlib import Path
from local_writers import *
from hf_posenc.jobs import run_in_processes
{text}"""
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit status and what was printed."""
    try:
        out, errors = process.communicate(timeout=180)
    finally:
        process.kill()
    return process.returncode, out, errors


def started(folder: Path, number: int) -> set[int]:
    """Return the workers that have started on a task, once there are so many."""
    assert soon(lambda: len(list(folder.iterdir())) >= number)
    return {int(path.suffix[1:]) for path in folder.iterdir()}


# ------------------------------------------------------------------------------------------------------ without a fault


def test_each_task_gives_one_record_and_long_payloads_arrive_whole() -> None:
    records = list(run_in_processes(Echo(), tasks(20, 8 << 20), workers=2))
    assert sorted(found["shard"] for found in records) == list(range(20))
    assert all((found["size"], found["ends"]) == (8 << 20, bytes([found["shard"]]) * 3) for found in records)
    assert len({found["pid"] for found in records}) <= 2


@pytest.mark.parametrize("workers", [1, 3])
def test_at_most_one_task_a_worker_and_one_more_are_in_memory(workers: int) -> None:
    alive: weakref.WeakSet[Task] = weakref.WeakSet()
    most = 0

    def counted() -> Iterator[Task]:
        nonlocal most
        for shard in range(12):
            made = task(shard, b"x" * 100)
            alive.add(made)
            most = max(most, len(alive))
            yield made
            del made

    assert len(list(run_in_processes(Echo(None, 0.02), counted(), workers=workers))) == 12
    assert most <= workers + 2  # one more for the task that was read last


def test_a_worker_imports_no_heavy_library_and_ignores_ctrl_c() -> None:
    before = os.environ.get("TOKENIZERS_PARALLELISM")  # pipelines of transformers set it
    (found,) = run_in_processes(Surroundings(), tasks(1), workers=1)
    assert not {"torch", "transformers", "datasets", "ray", "numpy", "pytest"} & set(found["modules"])
    assert found["environment"]["TOKENIZERS_PARALLELISM"] == "false"
    assert found["environment"]["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
    assert signal.SIGINT in found["blocked"]
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_two_runs_at_a_time_do_not_disturb_each_other() -> None:
    first, second = (run_in_processes(Echo(None, 0.01), tasks(4), workers=1) for _ in range(2))
    got = list(zip(first, second, strict=True))
    assert sorted(a["shard"] for a, _ in got) == sorted(b["shard"] for _, b in got) == list(range(4))
    assert not {a["pid"] for a, _ in got} & {b["pid"] for _, b in got}


# --------------------------------------------------------------------------------------------------- a worker is killed


def test_workers_that_are_killed_while_they_work_change_nothing() -> None:
    shards, killed = [], set()
    mine = workers_of(os.getpid())
    for found in run_in_processes(Echo(None, 0.02), tasks(12, 1000), workers=2):
        shards.append(found["shard"])
        if len(shards) in (2, 5, 9):
            killed.add(worker := max(workers_of(os.getpid()) - mine))
            os.kill(worker, signal.SIGKILL)
    assert len(killed) == 3
    assert sorted(shards) == list(range(12))


def test_a_worker_that_dies_while_another_one_starts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, submit, calls = workers_of(os.getpid()), ProcessPoolExecutor.submit, []

    def breaking(self: ProcessPoolExecutor, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            os.kill(min(workers_of(os.getpid()) - mine), signal.SIGKILL)
            raise OSError("handle is closed")
        return submit(self, *args)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", breaking)
    found = list(run_in_processes(Echo(), tasks(6), workers=2))
    assert sorted(one["shard"] for one in found) == list(range(6))


@pytest.mark.parametrize("code", [-signal.SIGSEGV, 0])
def test_a_task_whose_worker_dies_twice_is_done_by_the_third(tmp_path: Path, code: int) -> None:
    found = run_in_processes(Deadly(tmp_path, 1, 2, code), tasks(4, 10), workers=2)
    assert sorted(one["shard"] for one in found) == [0, 1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_kills_three_workers_is_named(tmp_path: Path) -> None:
    got = []
    with pytest.raises(RuntimeError) as caught:
        got.extend(run_in_processes(Deadly(tmp_path, 2, 99, -signal.SIGKILL), tasks(9), workers=2))
    assert {0, 1} <= {found["shard"] for found in got}
    assert len(list(tmp_path.iterdir())) == 3
    for words in ("3 workers died on shard 2", "corpus.txt from line 21", "SIGKILL", "memory", "workers=1"):
        assert words in str(caught.value)


# -------------------------------------------------------------------------------------------------- something is raised


def test_an_error_of_a_worker_arrives_whole_after_the_records_before_it() -> None:
    got = []
    with pytest.raises(ValueError, match=r"^row 7 is bad$") as caught:
        got.extend(found["shard"] for found in run_in_processes(Raises("row"), tasks(9), workers=1))
    assert 0 in got
    assert 'raise ValueError("row 7 is bad")' in "".join(traceback.format_exception(caught.value))
    with pytest.raises(OSError, match="No space left") as full:
        list(run_in_processes(Raises("disk"), tasks(2), workers=1))
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, "shard-000001.parquet")


@pytest.mark.parametrize(
    ("error", "words"), [("particular", "Particular: corpus.txt, line 12"), ("lock", "ValueError: with a lock")]
)
def test_an_error_that_cannot_be_pickled_arrives_in_words(error: str, words: str) -> None:
    with pytest.raises(RuntimeError, match="a worker failed") as caught:
        list(run_in_processes(Raises(error), tasks(2), workers=1))
    assert f"got: {words}" in str(caught.value)
    assert "local_writers.py" in "".join(traceback.format_exception(caught.value))


def test_a_record_that_cannot_be_pickled_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"pickle.*lock"):
        list(run_in_processes(Raises("record"), tasks(2), workers=1))


def test_an_error_of_the_reader_is_raised_when_the_tasks_before_it_are_done() -> None:
    def source() -> Iterator[Task]:
        yield from tasks(3)
        raise OSError(errno.EIO, "a bad block", "corpus.txt")

    got = []
    with pytest.raises(OSError, match="a bad block") as caught:
        got.extend(found["shard"] for found in run_in_processes(Echo(None, 0.1), source(), workers=2))
    assert sorted(got) == [0, 1, 2]
    assert any(frame.name == "source" for frame in traceback.extract_tb(caught.tb))


def test_closing_kills_the_workers_in_the_middle_of_a_task(tmp_path: Path) -> None:
    run = run_in_processes(Echo(tmp_path, 0.3), tasks(100), workers=2)
    next(run)
    run.close()
    assert not any(map(running, started(tmp_path, 1)))
    run_in_processes(Echo(), tasks(3), workers=2).close()  # before the first record


# -------------------------------------------------------------------------------------------------- the parent stops


_LONG = """\
folder, writer = Path(sys.argv[1]), {"Busy": Busy, "Echo": Echo}[sys.argv[2]]
try:
    list(run_in_processes(writer(folder, 60), tasks(9, 1000), workers=2))
except BaseException as error:
    left = [pid for path in folder.iterdir() if Path("/proc", pid := path.suffix[1:]).exists()]
    print(type(error).__name__, "left:", left)
    raise
"""


@pytest.mark.parametrize(("number", "writer"), [(signal.SIGKILL, "Busy"), (signal.SIGTERM, "Echo")])
def test_no_worker_outlives_a_parent_that_is_killed(tmp_path: Path, number: int, writer: str) -> None:
    parent = script(_LONG, tmp_path, writer)
    workers = started(tmp_path, 2)
    parent.send_signal(number)
    assert soon(lambda: not any(map(running, workers)))
    assert outcome(parent)[0] == -number


def test_no_worker_outlives_a_parent_whose_pipes_a_fork_of_it_keeps_open(tmp_path: Path) -> None:
    fork = """\
def fork():
    while len(list(Path(sys.argv[1]).iterdir())) < 2: time.sleep(0.01)
    if (child := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
threading.Thread(target=fork, daemon=True).start()
"""
    parent = script(fork + _LONG, tmp_path, "Echo")
    workers = started(tmp_path, 2)
    assert parent.stdout is not None
    fork_of_it = int(parent.stdout.readline())
    parent.kill()
    try:
        assert soon(lambda: not any(map(running, workers)))
        assert running(fork_of_it)
    finally:
        os.kill(fork_of_it, signal.SIGKILL)
    outcome(parent)


def test_ctrl_c_ends_the_workers_before_the_exception_leaves_and_they_print_nothing(tmp_path: Path) -> None:
    parent = script(_LONG, tmp_path, "Echo", start_new_session=True)
    workers = started(tmp_path, 2)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    code, out, errors = outcome(parent)
    assert not any(map(running, workers))
    assert code == -signal.SIGINT
    assert out == "KeyboardInterrupt left: []\n"
    assert errors.count("KeyboardInterrupt") == 1


def test_ctrl_c_while_workers_start_leaves_nothing_behind(tmp_path: Path) -> None:
    text = 'print("now", flush=True)\nlist(run_in_processes(Echo(Path(sys.argv[1]), 60), tasks(9), workers=2))'
    for wait in (0.0, 0.05):
        parent = script(text, tmp_path, start_new_session=True)
        assert parent.stdout is not None
        parent.stdout.readline()
        time.sleep(wait)
        workers = workers_of(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)
        _, _, errors = outcome(parent)
        assert errors.count("KeyboardInterrupt") == 1
        assert soon(lambda workers=workers: not any(map(running, workers)))


# -------------------------------------------------------------------------------------------------- where it is called


def test_a_script_without_a_guard_is_not_run_again_by_its_workers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"""\
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
from local_writers import *
from hf_posenc.jobs import run_in_processes
print("once")
print(sorted(found["shard"] for found in run_in_processes(Echo(), tasks(3), workers=1)))
""")
    (tmp_path / "pickle.py").write_text("raise ImportError('not this one')")  # the working directory is on no path
    command = [sys.executable, "-P", "-W", "error", "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "once\n[0, 1, 2]\n", "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import io\nsys.stdout = sys.stderr = io.StringIO()", id="streams without a file"),
        pytest.param("sys.stdout = sys.stderr = sys.stdin = None", id="no streams"),
        pytest.param("os.close(0)", id="stdin closed"),
    ],
)
def test_it_works_whatever_the_standard_streams_are(text: str) -> None:
    short = "assert len(list(run_in_processes(Echo(), tasks(3), workers=1))) == 3\nos.write(1, b'done')"
    assert outcome(script(f"{text}\n{short}")) == (0, "done", "")


def test_it_works_in_a_thread() -> None:
    got: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: got.extend(run_in_processes(Echo(), tasks(3), workers=1)))
    thread.start()
    thread.join()
    assert sorted(found["shard"] for found in got) == [0, 1, 2]
