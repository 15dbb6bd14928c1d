"""A worker process as its parent sees it: started, given tasks, and ended for sure; and how its death is told.

One thread at a time gives it tasks. What follows from a death is for `restarting` to say.
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
from threading import Thread
from typing import IO, Any

from ..._explain import explain
from ..task import Task
from .interpreter import command, environment
from .worker import GREETING, Tick

DEATHS = 3  # of workers in the middle of the same task, before it is the task that is held to be deadly
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


class Process:
    r"""One process from its start to its end.

    Args:
        make (`bytes`): a pickled function without arguments that returns a `worker.Writer`.
        path (sequence of `str`): where it finds modules, as `interpreter.search_path` returns it.

    Raises:
        OSError: if the machine has no room for another process.
    """

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
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Ends it in the middle of whatever it does; from any thread."""
        self._process.kill()

    def ask(self, task: Task, tick: Tick) -> tuple[str, Any]:
        r"""Sends a task and waits for the answer.

        Args:
            task (`Task`): what to do.
            tick: called with the bytes and tokens newly done.

        Returns:
            `("record", dict)`, or `("failed", exception)` if the work raised it or the process cannot work at all.

        Raises:
            Died: if it ended without an answer.
        """
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
        """What follows from an end without an answer."""
        self.end(kill=False)
        how = _how_it_ended(self._process.returncode)
        got = "\n       ".join([how, *self._last_words])
        if self._greeted or self._process.returncode < 0:
            raise Died(got, begun=self._begun)
        return "failed", never_begun(got)

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


def deadly(described: str, got: str) -> RuntimeError:
    """The error for a task that has killed `DEATHS` workers; the task as `described` puts it."""
    return RuntimeError(
        explain(
            f"{DEATHS} workers in a row died on {described}",
            got=got,
            fix="if memory ran out, fewer workers or smaller shards; else look for what is odd in these documents",
        )
    )


def never_begun(got: str) -> RuntimeError:
    """The error for processes that do not get as far as a task."""
    return RuntimeError(
        explain(
            "worker processes end before they can work",
            got=got,
            fix=f"fewer workers if memory ran out; else see {sys.executable} -c 'import hf_posenc.jobs.engines.worker'",
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
