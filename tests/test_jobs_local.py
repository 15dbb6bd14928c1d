"""The local engine: every task done exactly once and no process left, whoever is killed, and whenever.

Held against the process table: parents are real scripts in processes of their own, and what is killed is killed.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from local_writers import BadRow, Deadly, Echo, Raises, Surroundings, Talks, mute, record, task, tasks

from hf_posenc.jobs.engines import interpreter
from hf_posenc.jobs.engines.local import run_local, run_writers
from hf_posenc.jobs.task import Task

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")


def children(parent: int | None = None) -> set[int]:
    """The processes, zombies too, whose parent is this one or the one given."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == (parent or os.getpid()):
                found.add(int(stat.parent.name))
    return found


def running(process: int) -> bool:
    """Whether it is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def soon(condition: Callable[[], Any], seconds: float = 20.0) -> bool:
    """Whether it comes true in time; with a look every hundredth of a second."""
    until = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.01)
    return bool(met)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Holds for every test: no process, no thread and no open file is left behind."""
    before = children()
    files, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    yield
    gc.collect()
    assert soon(lambda: threading.active_count() <= threads, 2), threading.enumerate()
    assert children() <= before
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


_PATH = os.pathsep.join(str(folder) for folder in Path(__file__).parents[:2])
_BEFORE = """\
import os, sys, time
from functools import partial
from pathlib import Path
from local_writers import *
from hf_posenc.jobs.engines.local import run_writers
"""


def script(text: str, *arguments: object, options: tuple[str, ...] = (), **settings: Any) -> subprocess.Popen[str]:
    """A parent in a process of its own, which finds the writers through PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": _PATH}
    command = [sys.executable, *options, "-c", _BEFORE + text, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{"env": environment, **pipes, **settings})


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How it ended, and what it printed."""
    try:
        out, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, out, errors


def begun(folder: Path, number: int) -> set[int]:
    """The workers that have begun on a task, once there are so many."""
    assert soon(lambda: len(list(folder.iterdir())) >= number)
    return {int(path.suffix[1:]) for path in folder.iterdir()}


# -------------------------------------------------------------------------------------------------- all goes well


def test_every_task_gives_one_record() -> None:
    records = list(run_writers(Echo, tasks(200), workers=2))
    assert sorted(found["shard"] for found in records) == list(range(200))
    assert len({found["pid"] for found in records}) <= 2


def test_no_task_starts_no_worker_and_there_are_no_more_workers_than_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **more: started.append(args) or popen(*args, **more))
    assert list(run_writers(Echo, iter([]), workers=8)) == []
    assert started == []
    assert len(list(run_writers(partial(Echo, None, 0.1), tasks(2), workers=8))) == 2
    assert len(started) == 2


def test_a_worker_is_started_when_there_is_a_task_that_no_other_waits_for() -> None:
    go_on = threading.Event()

    def slowly() -> Iterator[Task]:
        yield task(0)
        go_on.wait(20)
        yield task(1)

    before = children()
    records = run_writers(Echo, slowly(), workers=4)
    first = next(records)
    assert len(children() - before) == 1
    go_on.set()
    assert [found["pid"] for found in records] == [first["pid"]]


def test_long_payloads_arrive_whole() -> None:
    found = sorted(run_writers(Echo, tasks(3, 64 << 20), workers=2), key=lambda found: found["shard"])
    assert [(got["size"], got["ends"]) for got in found] == [(64 << 20, bytes([shard]) * 3) for shard in range(3)]


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_than_one_task_a_worker_and_one_ahead_are_held(workers: int) -> None:
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

    held = [len(alive) for _ in run_writers(partial(Echo, None, 0.02), counted(), workers=workers)]
    assert most <= workers + 1
    assert held[-1] == 0


def test_ticks_add_up_and_come_in_the_thread_that_iterates() -> None:
    told: list[tuple[int, int]] = []
    threads = set()

    def tick(size: int, tokens: int) -> None:
        told.append((size, tokens))
        threads.add(threading.current_thread())

    assert len(list(run_writers(Echo, tasks(20, 7), workers=2, tick=tick))) == 20
    assert [sum(column) for column in zip(*told, strict=True)] == [140, 40]
    assert threads == {threading.current_thread()}


def test_a_worker_waits_without_work() -> None:
    ticks = os.sysconf("SC_CLK_TCK")

    def used(process: int) -> float:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    go_on = threading.Event()

    def slowly() -> Iterator[Task]:
        yield task(0)
        go_on.wait(20)

    before = children()
    records = run_writers(Echo, slowly(), workers=1)
    next(records)
    (worker,) = children() - before
    rest = threading.Thread(target=list, args=(records,))
    rest.start()
    earlier = used(worker), used(os.getpid())
    time.sleep(1.0)
    later = used(worker), used(os.getpid())
    go_on.set()
    rest.join()
    assert later[0] - earlier[0] <= 0.02
    assert later[1] - earlier[1] <= 0.05


def test_a_worker_loads_no_library_before_it_needs_one_and_has_its_own_surroundings() -> None:
    (found,) = run_writers(Surroundings, tasks(1), workers=1)
    assert not {"torch", "transformers", "datasets", "ray", "pytest"} & set(found["modules"])
    assert found["environment"]["TOKENIZERS_PARALLELISM"] == "false"
    assert found["environment"]["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
    assert found["interrupt"] == signal.SIG_IGN
    assert "TOKENIZERS_PARALLELISM" not in os.environ or os.environ["TOKENIZERS_PARALLELISM"] != "false"


# --------------------------------------------------------------------------------------------- a worker is killed


@pytest.mark.parametrize("seed", range(1))
def test_workers_killed_at_random_moments_change_nothing(seed: int) -> None:
    chance, mine, done = random.Random(seed), children(), threading.Event()
    killed: set[int] = set()
    shards: list[int] = []
    told: list[tuple[int, int]] = []

    def kill() -> None:
        seen = -1
        while not done.wait(chance.uniform(0.0, 0.1)):
            # Not again before something was done: however slow a start is here, no task loses all its workers.
            if len(shards) > seen and (workers := sorted(children() - mine)):
                seen = len(shards)
                killed.add(chosen := chance.choice(workers))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chosen, signal.SIGKILL)

    def until_some_are_killed() -> Iterator[Task]:
        for made in tasks(10_000, 1000):
            yield made
            if len(killed) >= 6:
                return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        make = partial(Echo, None, 0.02)
        run = run_writers(make, until_some_are_killed(), workers=2, tick=lambda *new: told.append(new))
        shards.extend(found["shard"] for found in run)
    finally:
        done.set()
        killer.join()
    assert len(killed) >= 6
    assert sorted(shards) == list(range(len(shards)))
    assert [sum(column) for column in zip(*told, strict=True)] == [1000 * len(shards), 2 * len(shards)]


@pytest.mark.parametrize("how", [-signal.SIGSEGV, 0])
def test_a_task_whose_worker_dies_twice_is_done_by_the_third(tmp_path: Path, how: int) -> None:
    told = []
    run = run_writers(partial(Deadly, tmp_path, 1, 2, how), tasks(3, 10), workers=1, tick=lambda *new: told.append(new))
    assert [found["shard"] for found in run] == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 2
    assert [sum(column) for column in zip(*told, strict=True)] == [30, 6]  # what died with a worker is taken back
    assert min(told) < (0, 0)


def test_a_task_that_kills_three_workers_is_named_with_their_last_words(tmp_path: Path) -> None:
    make, got = partial(Deadly, tmp_path, 2, 99, -signal.SIGKILL), []
    with pytest.raises(RuntimeError) as caught:
        got.extend(found["shard"] for found in run_writers(make, tasks(9), workers=1))
    assert got == [0, 1]
    assert len(list(tmp_path.iterdir())) == 3
    for part in (
        "3 workers",
        "shard 2",
        "corpus.txt from line 21",
        "SIGKILL",
        "memory",
        "nothing but these last words",
    ):
        assert part in str(caught.value)


def test_a_worker_killed_between_two_tasks_is_no_fault_of_the_next_one() -> None:
    workers = []

    def tasks_that_kill() -> Iterator[Task]:
        for shard in range(3):
            yield task(shard)
            assert soon(lambda: children() - before)
            assert soon(lambda shard=shard: len(workers) > shard)
            os.kill(workers[-1], signal.SIGKILL)
            assert soon(lambda: not running(workers[-1]))

    before = children()
    for found in run_writers(Echo, tasks_that_kill(), workers=1):
        workers.append(found["pid"])
    assert len(set(workers)) == 3


def test_a_worker_that_cannot_start_is_told_of_once_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "import os\nopen(f'{__file__}.{os.getpid()}', 'w').close()\nraise ImportError('a broken file')"
    (tmp_path / "pickle.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError) as caught:
        list(run_writers(Echo, tasks(5, 1 << 20), workers=1))
    message = str(caught.value)
    assert "worker processes end before they can work" in message
    assert "exit code 1" in message
    assert "ImportError: a broken file" in message
    assert "import hf_posenc.jobs.engines.worker" in message
    assert "ImportError: a broken file" in capsys.readouterr().err
    assert len(list(tmp_path.glob("pickle.py.*"))) == 1


def test_workers_that_are_killed_whenever_they_start_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_START", "import os\nos.kill(os.getpid(), 9)")
    with pytest.raises(RuntimeError, match=r"end before they can work\n  got: it was killed by SIGKILL, as the system"):
        list(run_writers(Echo, tasks(3), workers=1))


def test_a_writer_that_cannot_be_made_says_why() -> None:
    with pytest.raises(ImportError, match="needs a library that is not there"):
        list(run_writers(mute, tasks(5, 1 << 20), workers=2))  # type: ignore[arg-type]


def test_a_machine_without_room_for_a_process_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **more: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(OSError, match=r"a worker could not be started\n  got: Resource temporarily"):
        list(run_writers(Echo, tasks(5), workers=2))


def test_a_program_without_an_interpreter_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(RuntimeError, match=r"sys\.executable = "):
        list(run_writers(Echo, tasks(1), workers=1))


# --------------------------------------------------------------------------------------------- something is raised


def test_what_a_worker_raises_arrives_whole_with_the_place_where_it_was_raised() -> None:
    with pytest.raises(BadRow, match=r"^row 7 is bad$") as caught:
        list(run_writers(partial(Raises, "row"), tasks(9), workers=2))
    assert caught.value.row == 7
    printed = "".join(traceback.format_exception(caught.value))
    assert "local_writers.py" in printed
    assert 'raise BadRow("row 7 is bad")' in printed


@pytest.mark.parametrize(("what", "number"), [("disk", errno.ENOSPC), ("pipe", errno.EPIPE)])
def test_errors_of_the_system_keep_their_number_and_file(what: str, number: int) -> None:
    with pytest.raises(OSError, match=r"device|somebody") as caught:
        list(run_writers(partial(Raises, what), tasks(2), workers=1))
    assert caught.value.errno == number
    assert caught.value.filename == ("shard-000001.parquet" if what == "disk" else None)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("particular", "Particular: corpus.txt, line 12"),
        ("lock", "ValueError: with a lock"),
        ("exit", "SystemExit: enough"),
    ],
)
def test_what_cannot_be_handed_over_is_told_in_words(what: str, says: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        list(run_writers(partial(Raises, what), tasks(2), workers=1))
    assert f"got: {says}" in str(caught.value)
    assert "local_writers.py" in "".join(traceback.format_exception(caught.value))


def test_a_record_that_cannot_be_sent_is_an_error_and_does_not_hang() -> None:
    with pytest.raises(TypeError, match=r"pickle.*lock"):
        list(run_writers(partial(Raises, "record"), tasks(2), workers=1))


def test_records_that_are_ready_come_before_the_error() -> None:
    got = []
    run = run_writers(partial(Raises, "row"), tasks(2), workers=1)
    with pytest.raises(BadRow):
        got.extend(found["shard"] for found in run if time.sleep(0.2) is None)  # meanwhile the error arrives
    assert got == [0]


def test_a_job_that_cannot_be_sent_is_refused_before_anything_starts() -> None:
    with pytest.raises(TypeError, match=r"cannot be sent to a worker\n  got: .*lambda"):
        run_writers(lambda: Echo(None), tasks(1), workers=1)


def test_a_task_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(Exception, match="pickle") as caught:
        list(run_writers(Echo, iter([task(0), lambda: None]), workers=1))  # type: ignore[list-item]
    assert isinstance(caught.value, TypeError | AttributeError | ValueError)


@pytest.mark.parametrize(("workers", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (None, TypeError)])
def test_workers_are_a_positive_number(workers: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"workers must be .*\n  got: "):
        run_local(None, iter([]), workers=workers)  # type: ignore[arg-type]


def test_what_the_source_raises_is_raised_here_when_the_workers_are_gone() -> None:
    def source() -> Iterator[Task]:
        yield from tasks(3)
        raise OSError(errno.EIO, "a bad block", "corpus.txt")

    before = children()
    with pytest.raises(OSError, match="a bad block") as caught:
        list(run_writers(partial(Echo, None, 0.5), source(), workers=2))
    assert children() == before
    assert any(frame.name == "source" for frame in traceback.extract_tb(caught.tb))


def test_what_the_caller_raises_ends_the_workers() -> None:
    def tick(size: int, tokens: int) -> None:
        raise ValueError("the bar is broken")

    before = children()
    with pytest.raises(ValueError, match="the bar is broken"):
        list(run_writers(Echo, tasks(30), workers=2, tick=tick))
    assert children() == before


# ------------------------------------------------------------------------------------------------ the parent stops


def test_closing_ends_workers_in_the_middle_of_a_task_and_closes_the_source(tmp_path: Path) -> None:
    closed = []

    def source() -> Iterator[Task]:
        try:
            yield from tasks(100)
        finally:
            closed.append(threading.current_thread())

    before = children()
    run = run_writers(partial(Echo, tmp_path, 0.3), source(), workers=2)
    next(run)
    begin = time.monotonic()
    run.close()
    assert time.monotonic() - begin < 0.5
    assert children() == before
    assert len(closed) == 1


def test_a_run_that_is_never_begun_does_nothing() -> None:
    run_writers(Echo, tasks(3), workers=2).close()
    run = run_writers(Echo, tasks(3), workers=2)
    del run


_LONG = """\
folder = Path(sys.argv[1])
try:
    list(run_writers(partial(Echo, folder, 60, busy=bool(int(sys.argv[2]))), tasks(9, 1000), workers=2))
except BaseException as error:
    left = [pid for path in folder.iterdir() if Path("/proc", pid := path.suffix[1:]).exists()]
    print(type(error).__name__, "left:", left)
    raise
"""


@pytest.mark.parametrize(("how", "busy"), [(signal.SIGKILL, 1), (signal.SIGTERM, 0)])
def test_workers_are_gone_within_a_second_of_a_parent_that_is_killed(tmp_path: Path, how: int, busy: int) -> None:
    parent = script(_LONG, tmp_path, busy)
    workers = begun(tmp_path, 2)
    assert len(workers) == 2
    parent.send_signal(how)
    assert soon(lambda: not any(map(running, workers)), 1.0)
    assert outcome(parent)[0] == -how


def test_workers_are_gone_with_a_parent_whose_pipes_a_fork_of_it_holds_open(tmp_path: Path) -> None:
    fork = """\
import threading
def fork():
    while len(list(Path(sys.argv[1]).iterdir())) < 2: time.sleep(0.01)
    if (child := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
threading.Thread(target=fork, daemon=True).start()
"""
    parent = script(fork + _LONG, tmp_path, 0)
    workers = begun(tmp_path, 2)
    assert parent.stdout is not None
    fork_of_it = int(parent.stdout.readline())
    parent.kill()
    try:
        assert soon(lambda: not any(map(running, workers)), 1.0)
        assert running(fork_of_it)
    finally:
        os.kill(fork_of_it, signal.SIGKILL)
    outcome(parent)


def test_ctrl_c_ends_the_workers_before_the_exception_leaves_and_they_say_nothing(tmp_path: Path) -> None:
    parent = script(_LONG, tmp_path, 0, start_new_session=True)
    workers = begun(tmp_path, 2)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    code, out, errors = outcome(parent)
    assert not any(map(running, workers))
    assert code == -signal.SIGINT
    assert out == "KeyboardInterrupt left: []\n"
    assert errors.count("KeyboardInterrupt") == 1


def test_ctrl_c_while_workers_start_leaves_nothing_behind(tmp_path: Path) -> None:
    text = 'print("now", flush=True)\nlist(run_writers(partial(Echo, Path(sys.argv[1]), 60), tasks(9), workers=2))'
    for wait in (0.0, 0.01, 0.03):
        parent = script(text, tmp_path, start_new_session=True)
        assert parent.stdout is not None
        parent.stdout.readline()
        time.sleep(wait)
        workers = children(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)
        _, _, errors = outcome(parent)
        assert errors.count("KeyboardInterrupt") == 1
        assert not any(map(running, workers))


def test_an_interrupt_of_a_worker_alone_is_ignored() -> None:
    def interrupting() -> Iterator[Task]:
        yield task(0)
        assert soon(lambda: workers)
        os.kill(workers[0], signal.SIGINT)
        yield task(1)

    workers: list[int] = []
    for found in run_writers(Echo, interrupting(), workers=1):
        workers.append(found["pid"])
    assert workers[0] == workers[1]


def test_an_interpreter_ends_though_a_run_is_still_open(tmp_path: Path) -> None:
    text = "run = run_writers(partial(Echo, Path(sys.argv[1]), 0.3), tasks(99), workers=2)\nprint(next(run)['shard'])"
    begin = time.monotonic()
    code, out, errors = outcome(script(text, tmp_path, options=("-X", "dev")))
    assert (code, errors) == (0, "")
    assert out in ("0\n", "1\n")
    assert time.monotonic() - begin < 5
    assert not any(map(running, begun(tmp_path, 1)))


# -------------------------------------------------------------------------------------------- where it is called


_SHORT = """\
records = list(run_writers(Echo, tasks(3), workers=1))
assert [record["shard"] for record in records] == [0, 1, 2]
os.write(1, b"done")
"""


@pytest.mark.parametrize(
    ("text", "options"),
    [
        pytest.param(_SHORT, (), id="python -c"),
        pytest.param(_SHORT, ("-W", "error", "-X", "dev"), id="python -W error"),
        pytest.param(f"sys.path.insert(0, sys.path[1])\n{_SHORT}", (), id="twice on the path"),
        pytest.param(
            f"import io\nsys.stdout = io.StringIO()\nsys.stderr = io.StringIO()\n{_SHORT}", (), id="no fileno"
        ),
        pytest.param(f"sys.stdout = sys.stderr = sys.stdin = None\n{_SHORT}", (), id="no streams"),
        pytest.param(f"os.close(0)\n{_SHORT}", (), id="stdin closed"),
        pytest.param(
            f"import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{_SHORT}", (), id="SIGCHLD ignored"
        ),
        pytest.param(
            f"import tempfile\ngone = tempfile.mkdtemp()\nos.chdir(gone)\nos.rmdir(gone)\n{_SHORT}", (), id="cwd"
        ),
        pytest.param(
            f"import threading\nthread = threading.Thread(target=exec, args=({_SHORT!r}, globals()))\n"
            "thread.start()\nthread.join()",
            (),
            id="thread",
        ),
    ],
)
def test_it_works_from(text: str, options: tuple[str, ...]) -> None:
    assert outcome(script(text, options=options)) == (0, "done", "")


def test_it_works_from_a_script_without_a_guard_that_found_its_modules_by_a_path_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    writers = Path(__file__).parent
    file.write_text(f"import sys\nsys.path.append({str(writers)!r})\n{_BEFORE}os.chdir('/')\n{_SHORT}")
    (tmp_path / "mine.py").write_text("from local_writers import Echo as Base\nclass Echo(Base): pass")
    file.write_text(file.read_text().replace("from hf_posenc", "from mine import Echo\nfrom hf_posenc"))
    command = [sys.executable, "script.py"]  # the folder of the script is on the path, under a relative name
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done", "")


def test_files_in_the_working_directory_are_not_taken_for_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise ImportError('not this one')")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    assert len(list(run_writers(Echo, tasks(2), workers=1))) == 2


def test_a_class_of_the_script_itself_is_refused_with_the_way_out() -> None:
    text = "class Mine(Echo): pass\nlist(run_writers(Mine, tasks(2), workers=1))"
    code, _, errors = outcome(script(text))
    assert code == 1
    assert "a worker cannot load what the job is made of" in errors
    assert "Can't get attribute 'Mine' on <module '__main__'" in errors
    assert "fix: define classes of your own in a module that can be imported" in errors


def test_what_workers_print_goes_to_stderr_and_spoils_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(run_writers(Talks, tasks(2), workers=1))
    assert [got["typed"] for got in found] == ["", ""]
    out, errors = capsys.readouterr()
    assert out == ""
    for line in ("printed 0", "printed 1", "to the first stdout", "written to 1", "by a child"):
        assert line in errors.splitlines()


def test_what_is_printed_before_a_worker_knows_of_it_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(1, b'welcome\\n' * 100_000 + b'!')")
    path = os.pathsep.join([str(tmp_path), _PATH])
    text = "got = list(run_writers(Echo, tasks(5, 1 << 20), workers=2))\nprint('done', len(got))"
    code, out, errors = outcome(script(text, env={**os.environ, "PYTHONPATH": path}))
    assert (code, errors) == (0, "")
    assert out.endswith("!done 5\n")


def test_a_closed_stderr_stops_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert len(list(run_writers(Talks, tasks(2), workers=1))) == 2


def test_two_runs_at_a_time_do_not_disturb_each_other() -> None:
    first, second = (run_writers(partial(Echo, None, 0.01), tasks(10), workers=2) for _ in range(2))
    got = list(zip(first, second, strict=True))
    assert sorted(a["shard"] for a, _ in got) == sorted(b["shard"] for _, b in got) == list(range(10))
    assert not {a["pid"] for a, _ in got} & {b["pid"] for _, b in got}


def test_a_record_says_what_was_sent() -> None:
    (found,) = run_writers(Echo, iter([task(4, b"abcdef")]), workers=1)
    assert found == {**record(task(4, b"abcdef")), "pid": found["pid"]}
