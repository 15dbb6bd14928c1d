"""The local engine: run the tasks of a job in worker processes on this machine.

It keeps a bounded number of tasks in memory, yields records of shards in any order, and repeats the task of a worker
that died. Workers import this module first, so it has no slow imports. `on_ray` is the other engine.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from .._common.errors import explain

if TYPE_CHECKING:
    from .task import Task

ATTEMPTS = 3  # workers that may die on the same task
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # unless the user sets them
_SHUTDOWN_SECONDS = 5.0

Records = Generator[dict[str, Any], None, None]


class Writer(Protocol):
    """Interface of `ShardWriter`: a picklable object that writes the shard (a Parquet file) of each task."""

    def write(self, task: Task, /) -> dict[str, Any]:
        """Write the shard of a task, and return its record: a `dict` of the file name, counts and checksums."""


def until_error(tasks: Iterator[Task], errors: list[Exception]) -> Iterator[Task]:
    """Yield the items of `tasks` until the iterator raises an error; append that error to the list `errors`, and stop.

    The caller can then finish the earlier tasks before it raises the error.
    """
    try:
        yield from tasks
    except Exception as error:
        errors.append(error)


def write(pickled: bytes, task: Task) -> dict[str, Any]:
    """Write the shard of `task` with a `Writer`, given as its pickled bytes, and return the record of the shard.

    This function runs in a worker. An error that cannot be pickled, and so could not be sent to the calling process, is
    replaced by a `RuntimeError`.
    """
    try:
        return _unpickled(pickled).write(task)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(explain("a worker failed", got=f"{type(error).__name__}: {error}")) from error
        raise


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> Writer:
    writer: Writer = pickle.loads(pickled)
    return writer


def death_error(task: Task, got: str) -> RuntimeError:
    """Return the error to raise after three workers (`ATTEMPTS`) died on the same task.

    Its message names the shard and the inputs of the task. `got` is the description of the last death, such as
    `"a worker was killed by SIGKILL"`.
    """
    parts = [f"{part.source} from {part.unit} {part.first}" for part in task.parts[:3]]
    more = f" and {len(task.parts) - 3} more" if len(task.parts) > 3 else ""
    return RuntimeError(
        explain(
            f"{ATTEMPTS} workers died on shard {task.shard} ({', '.join(parts)}{more})",
            got=got,
            fix="workers=1 or a smaller shard_bytes if memory ran out; otherwise look for unusual documents there",
        )
    )


def run_in_processes(writer: Writer, tasks: Iterator[Task], *, workers: int) -> Records:
    r"""Write the shards of `tasks` in spawned processes, and yield the record of each shard as it finishes.

    At most `workers + 1` tasks are in memory. If a worker dies, all workers are replaced, and the unfinished tasks run
    again one at a time; later tasks run in parallel again. All workers are killed when the generator ends or is closed.

    Args:
        writer (`Writer`): picklable object that writes a shard.
        tasks (iterator of `Task`): read in the calling thread.
        workers (`int`): number of processes; 0 runs the tasks in this process, one after another.

    Returns:
        Generator of `dict`: the record (file name, counts and checksums) of each shard, in any order.

    Raises:
        RuntimeError: if three workers die on the same task.
        Exception: an error that the writer raises; an error that `tasks` raises, after all earlier tasks are finished.

    Example:
        >>> list(run_in_processes(None, iter([]), workers=2))
        []
    """
    if workers == 0:
        yield from map(writer.write, tasks)
        return
    pool, errors = _Pool(pickle.dumps(writer), workers), list[Exception]()
    unread = until_error(tasks, errors)
    running: dict[Future[dict[str, Any]], Task] = {}
    deaths: Counter[int] = Counter()  # for each unfinished shard, the pools that broke while its task was running
    try:
        while True:
            # Tasks that were running when a worker died run alone, so that the next death has one possible cause.
            for task in itertools.islice(unread, (1 if deaths else workers + 1) - len(running)):
                running[pool.submit(task)] = task
            if not running:
                break
            # With a timeout: a signal that arrives just before `wait` is handled when it returns.
            done = wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done
            try:
                for future in sorted(done, key=lambda future: future.exception() is not None):
                    record = future.result()
                    deaths.pop(running.pop(future).shard, None)
                    yield record
            except BrokenProcessPool:
                death = pool.death()
                pool.kill()
                deaths.update(task.shard for task in running.values())
                for task in running.values():
                    if deaths[task.shard] == ATTEMPTS:
                        raise death_error(task, death) from None
                unread = itertools.chain([*running.values()], unread)
                running.clear()
                pool = _Pool(pool.pickled, workers)
    finally:
        pool.kill()
    for error in errors:
        raise error


class _Pool:
    """Pool of worker processes that run tasks. All of them can be killed at any time, even in the middle of a task."""

    def __init__(self, pickled: bytes, workers: int) -> None:
        self.pickled = pickled
        self._context = _Context()
        self._executor = ProcessPoolExecutor(workers, mp_context=self._context, initializer=_start_worker)

    def submit(self, task: Task) -> Future[dict[str, Any]]:
        """Run `write` on a task in a worker, and return a future, whose result is the record of the shard.

        If a worker of the pool has died, the task does not run, and the future fails with `BrokenProcessPool`.
        """
        try:
            # Each task includes the writer: as an argument of a process, it would delay the start of the next process.
            return self._executor.submit(write, self.pickled, task)
        except (BrokenProcessPool, OSError, ValueError) as error:
            # If a worker dies while the executor starts another one, the executor has closed its pipes already.
            if not isinstance(error, BrokenProcessPool) and self._exit_code() is None:
                raise
            failed: Future[dict[str, Any]] = Future()
            failed.set_exception(BrokenProcessPool())
            return failed

    def _exit_code(self) -> int | None:
        """Return the exit code of the worker that died; `None` if it is unknown after a second."""
        # After a death, the executor ends the other workers with SIGTERM; workers that ended in this way are ignored.
        code, end = None, time.monotonic() + 1.0
        while code is None and time.monotonic() < end:  # a thread of the executor collects the exit codes
            codes = [process.exitcode for process in self._context.processes]
            code = next((code for code in codes if code not in (None, -signal.SIGTERM)), None)
            time.sleep(0.01)
        return code

    def death(self) -> str:
        """Return a description of the death of a worker, such as `"a worker ended with exit code 1"`."""
        code = self._exit_code()
        if code is None or code >= 0:
            return "a worker ended" + ("" if code is None else f" with exit code {code}")
        memory = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
        return f"a worker was killed by {signal.Signals(-code).name}{memory}"

    def kill(self) -> None:
        for process in self._context.processes:
            if process.pid is not None:
                process.kill()
        self._executor.shutdown()
        for process in self._context.processes:
            if process.pid is not None:
                process.join(_SHUTDOWN_SECONDS)


class _Process(SpawnProcess):
    """A spawned process that neither imports the caller's script nor receives Ctrl-C.

    Scripts therefore need no `if __name__ == "__main__"`, and workers print no traceback when the user stops the job.
    """

    def start(self) -> None:
        script, safe_path = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
        blocks = hasattr(signal, "pthread_sigmask")  # a process inherits the signals that its parent blocks
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if blocks else None
        sys.modules["__main__"] = ModuleType("__main__")
        os.environ["PYTHONSAFEPATH"] = "1"  # a file in the working directory is not imported instead of a library
        try:
            super().start()
        finally:
            sys.modules["__main__"] = script
            if safe_path is None:
                del os.environ["PYTHONSAFEPATH"]
            else:
                os.environ["PYTHONSAFEPATH"] = safe_path
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    """Multiprocessing context whose processes are of the class `_Process`; the list `processes` holds all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[_Process] = []

    def Process(self, *args: Any, **kwargs: Any) -> _Process:  # type: ignore[override]
        self.processes.append(_Process(*args, **kwargs))
        return self.processes[-1]


def _start_worker() -> None:
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # the system wakes and ends a suspended process if the parent of its group dies
    os.environ.update({**_ENVIRONMENT, **os.environ, "TOKENIZERS_PARALLELISM": "false"})
    faulthandler.enable()
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is None:
        return
    # A fork of the parent keeps the sentinel open, so its process id is compared as well.
    while not connection.wait([parent.sentinel], timeout=0.5) and (os.name == "nt" or os.getppid() == parent.pid):
        pass
    os._exit(1)
