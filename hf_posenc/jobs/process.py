"""A worker process as its parent sees it: started when there is a task, started again when it dies, ended for sure.

One thread at a time gives it tasks; which task, and how many workers, is for `local` to say.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import RLock, Thread
from typing import IO, Any

from .._explain import explain
from .task import Task
from .worker import GREETING, Tick

DEATHS = 3  # of workers on the same task, before it is the task that is held to be deadly
_SECONDS_TO_END = 5.0
# The path before anything is imported, so that no file in the working directory is taken for a library; and the pipe
# put out of the way of print() before anything can print.
_START = """\
import os, sys
sys.path[:] = sys.argv[1:]
del sys.argv[1:]
answers_to = os.dup(1)
os.dup2(2, 1)
from hf_posenc.jobs.worker import serve
serve(answers_to)
"""


class RaisedInWorker(Exception):
    """Where in the worker an error was raised: never raised itself, but the cause that its traceback is shown by."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Died(Exception):
    """The process ended without an answer; says how, and its last words. Users never see it."""


class Worker:
    r"""One worker, whichever process it is at the moment.

    Args:
        make (`bytes`): a pickled function without arguments that returns a `worker.Writer`.
        path (sequence of `str`): where the worker finds modules, as `search_path` returns it.
    """

    def __init__(self, make: bytes, path: Sequence[str]) -> None:
        self._make = make
        self._path = path
        self._process: _Process | None = None
        self._stopped = False
        self._lock = RLock()  # for the process changing hands; a stop may come from any thread

    def do(self, task: Task, tick: Tick) -> tuple[str, Any]:
        r"""Has a task done.

        Args:
            task (`Task`): what to do.
            tick: called with the bytes and tokens newly done, and with negative ones for what is lost with a process.

        Returns:
            `("record", dict)`, or `("failed", exception)` if the work raised it or kills workers.

        Raises:
            Died: if it was killed by `stop`.
        """
        deaths: list[str] = []
        while len(deaths) < DEATHS:
            done = [0, 0]

            def count(size: int, tokens: int, done: list[int] = done) -> None:
                done[0] += size
                done[1] += tokens
                tick(size, tokens)

            try:
                return self._running().ask(task, count)
            except Died as death:
                if self._stopped:
                    raise
                deaths.append(str(death))
                tick(-done[0], -done[1])
        return "failed", RuntimeError(
            explain(
                f"{DEATHS} workers in a row died on {described(task)}",
                got=deaths[-1],
                fix="if memory ran out, fewer workers or smaller shards; else look for what is odd in these documents",
            )
        )

    def _running(self) -> _Process:
        with self._lock:
            if self._process is not None and not self._process.alive():  # died between two tasks: no task's fault
                self._process.end(kill=True)
                self._process = None
            if self._stopped:
                raise Died("stopped")
            if self._process is None:
                self._process = _Process(self._make, self._path)
            return self._process

    def kill(self) -> None:
        """Ends the process in the middle of whatever it does; no other one is started. From any thread."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def close(self, *, kill: bool) -> None:
        """Waits until the process is gone and lets go of its pipes. From the thread that gives it tasks."""
        with self._lock:
            self._stopped = True
            process, self._process = self._process, None
        if process is not None:
            process.end(kill=kill)


class _Process:
    """One process from its start to its end."""

    def __init__(self, make: bytes, path: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                [*_interpreter(), "-c", _START, *path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                # A group of its own: Ctrl-C in a terminal goes to the whole group of the parent, also while a worker
                # is starting and cannot ignore it yet.
                process_group=0 if os.name == "posix" else None,
            )
        except OSError as error:
            how = explain("a worker could not be started", got=error.strerror, fix="workers=1, or as many as fit")
            raise OSError(error.errno, how) from error
        self._make: bytes | None = make
        self._greeted = self._over = False
        self._last_words: deque[str] = deque(maxlen=12)
        self._listener = Thread(target=self._listen, args=(_open(self._process.stderr),), daemon=True)
        self._listener.start()

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    def ask(self, task: Task, tick: Tick) -> tuple[str, Any]:
        """Sends a task and waits for the answer."""
        requests, answers = _open(self._process.stdin), _open(self._process.stdout)
        try:
            while not self._greeted:
                if not (line := answers.readline()):
                    return self._ended()
                self._greeted = line.endswith(GREETING)
            with contextlib.suppress(BrokenPipeError):  # it is gone, or about to, and may have said why
                if self._make is not None:
                    pickle.dump(self._make, requests, 5)
                    self._make = None
                pickle.dump(task, requests, 5)  # to the pipe itself: a long payload is not copied
                requests.flush()
            while True:
                kind, *content = pickle.load(answers)
                if kind == "tick":
                    tick(*content)
                elif kind == "record":
                    return "record", content[0]
                else:
                    return "failed", unpacked(*content)
        except (EOFError, pickle.UnpicklingError):
            return self._ended()

    def _ended(self) -> tuple[str, Any]:
        """Without an answer: an error if it never got as far as working, else raises `Died`."""
        self.end(kill=False)
        how = _how_it_ended(self._process.returncode)
        got = "\n       ".join([how, *self._last_words])
        if self._greeted or self._process.returncode < 0:
            raise Died(got)
        return "failed", RuntimeError(
            explain(
                "a worker process ended before it could work",
                got=got,
                fix=f"see whether this works: {sys.executable} -c 'import hf_posenc.jobs.worker'",
            )
        )

    def _listen(self, errors: IO[bytes]) -> None:
        """Passes on what the process prints, and keeps the last of it."""
        with errors:
            while line := errors.readline(1 << 16):
                text = line.decode(errors="replace")
                self._last_words.append(text.rstrip())
                with contextlib.suppress(Exception):  # no stderr, or a closed one: then nobody wants to read it
                    sys.stderr.write(text)

    def end(self, *, kill: bool) -> None:
        """Waits for the end of the process, which comes by itself unless `kill`."""
        if self._over:
            return
        self._over = True
        if kill:
            self._process.kill()
        with contextlib.suppress(OSError), _open(self._process.stdin) as requests:
            if not kill:
                pickle.dump(None, requests, 5)
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _open(self._process.stdout).close()
        self._listener.join(1.0)  # ends with the process, unless that left something behind which can still print


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    """A pipe of a process that was started with all three."""
    if pipe is None:
        raise TypeError(explain("a worker is started with pipes"))
    return pipe


def unpacked(pickled: bytes | None, says: str, where: str) -> Exception:
    """What was raised in the worker, with the traceback from there as its cause."""
    error: Exception = RuntimeError(explain("a worker raised an error that cannot be handed over whole", got=says))
    if pickled is not None:
        with contextlib.suppress(Exception):  # of a class that only the worker can find
            error = pickle.loads(pickled)
    error.__cause__ = RaisedInWorker(where)
    return error


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was killed by {name}" + (", as the system does when memory runs out" if name == "SIGKILL" else "")


def described(task: Task) -> str:
    """Which documents a task holds, in words."""
    names = [f"{part.source} from {part.unit} {part.first}" for part in task.parts[:3]]
    more = len(task.parts) - len(names)
    return f"shard {task.shard} ({', '.join(names)}{f' and {more} more' if more else ''})"


def search_path() -> list[str]:
    r"""Where workers find modules: where this process does, whatever its working directory becomes.

    Returns:
        `list[str]`, with the folder of this package in any case.
    """
    found = []
    for entry in sys.path:
        with contextlib.suppress(OSError):  # relative to a working directory that has been removed
            found.append(os.path.abspath(entry) if isinstance(entry, str) else "")  # noqa: PTH100  (symlinks stay)
    here = str(Path(__file__).parents[2])
    return [*filter(None, found), *([] if here in found else [here])]


def _interpreter() -> list[str]:
    """This Python again, with those of its options that decide what it can load and how it reads text."""
    if not sys.executable:
        raise RuntimeError(
            explain(
                "workers need a Python interpreter, and this program does not say where one is",
                fix="sys.executable = '/usr/bin/python3'",
            )
        )
    options = {
        "-P": True,
        "-E": sys.flags.ignore_environment,
        "-B": sys.dont_write_bytecode,
        "-s": sys.flags.no_user_site,
    }
    return [sys.executable, *(option for option, on in options.items() if on), "-X", f"utf8={sys.flags.utf8_mode}"]


def _environment() -> dict[str, str]:
    """The workers are what works at the same time: inside each, one thread a library, unless the user says so."""
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**single, **os.environ, "TOKENIZERS_PARALLELISM": "false"}
