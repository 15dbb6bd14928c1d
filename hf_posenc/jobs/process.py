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
from threading import RLock, Thread
from typing import IO, Any

from .._explain import explain
from .interpreter import command, environment
from .task import Task
from .worker import GREETING, Tick

DEATHS = 3  # of workers in the middle of the same task, before it is the task that is held to be deadly
_DEATHS_BEFORE_WORK = 10  # in a row, of workers that were killed before they had begun on anything
_SECONDS_TO_END = 5.0


class RaisedInWorker(Exception):
    """Where in the worker an error was raised: never raised itself, but the cause that its traceback is shown by."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Died(Exception):
    """The process ended without an answer; says how, and its last words. Users never see it."""

    def __init__(self, how: str, *, begun: bool = False) -> None:
        super().__init__(how)
        self.begun = begun  # on the task: only then it may be the task's fault


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
        begun = idle = 0
        while True:
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
                begun, idle = begun + death.begun, idle + (not death.begun)
                if begun == DEATHS or idle == _DEATHS_BEFORE_WORK:
                    return "failed", _deadly(task, str(death)) if begun == DEATHS else _never_begun(str(death))
                tick(-done[0], -done[1])

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
                command(path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                # A group of its own: Ctrl-C in a terminal goes to the whole group of the parent, also while a worker
                # is starting and cannot ignore it yet.
                process_group=0 if os.name == "posix" else None,
            )
        except OSError as error:
            how = explain("a worker could not be started", got=error.strerror, fix="workers=1, or as many as fit")
            raise OSError(error.errno, how) from error
        self._make: bytes | None = make
        self._greeted = self._begun = self._over = False
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
        self._begun = False
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
                if kind == "begun":
                    self._begun = True
                elif kind == "tick":
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
            raise Died(got, begun=self._begun)
        return "failed", _never_begun(got)

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


def _deadly(task: Task, got: str) -> RuntimeError:
    return RuntimeError(
        explain(
            f"{DEATHS} workers in a row died on {described(task)}",
            got=got,
            fix="if memory ran out, fewer workers or smaller shards; else look for what is odd in these documents",
        )
    )


def _never_begun(got: str) -> RuntimeError:
    return RuntimeError(
        explain(
            "worker processes end before they can work",
            got=got,
            fix=f"see whether this works: {sys.executable} -c 'import hf_posenc.jobs.worker'",
        )
    )


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
