"""A worker that outlasts its processes: started when there is a task, started again when it dies.

Only deaths are made good; what the work itself raises is handed on. How many workers there are is for `local` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any

from ..task import Task
from .process import DEATHS, Died, Process, deadly, described, never_begun
from .worker import Tick

# Of workers that had not begun on the task, and so not by its fault: a run outlives a machine short of memory for a
# while, but does not go on for ever.
_DEATHS_BEFORE_WORK = 10


class Worker:
    r"""One worker, whichever process it is at the moment.

    Args:
        make (`bytes`): a pickled function without arguments that returns a `worker.Writer`.
        path (sequence of `str`): where the worker finds modules, as `search_path` returns it.
    """

    def __init__(self, make: bytes, path: Sequence[str]) -> None:
        self._make = make
        self._path = path
        self._process: Process | None = None
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
        in_work = before_work = 0
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
                if death.begun:
                    in_work += 1
                else:
                    before_work += 1
                if in_work == DEATHS:
                    return "failed", deadly(described(task), str(death))
                if before_work == _DEATHS_BEFORE_WORK:
                    return "failed", never_begun(str(death))
                tick(-done[0], -done[1])

    def _running(self) -> Process:
        with self._lock:
            if self._process is not None and not self._process.alive():  # died between two tasks: no task's fault
                self._process.end(kill=True)
                self._process = None
            if self._stopped:
                raise Died("stopped")
            if self._process is None:
                self._process = Process(self._make, self._path)
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
