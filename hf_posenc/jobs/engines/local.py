"""The local engine: tasks read ahead by a thread, done by worker processes, records handed out as they come.

For one machine. The processes are fresh interpreters that know nothing of the caller's script, so that no
`if __name__ == "__main__"` is needed and notebooks and threads may call it.
"""

from __future__ import annotations

import atexit
import pickle
from collections.abc import Callable, Generator, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from threading import Condition, Thread, current_thread
from typing import Any, Literal

from ..._explain import as_integer, explain
from ..job import Job
from ..task import Task
from .interpreter import search_path
from .process import Died
from .restarting import Worker
from .worker import Tick, Writer, shard_writer

_SECONDS_TO_STOP = 2.0  # for a source that is in the middle of reading; workers are gone before
# Python handles a signal that comes just before a thread begins to wait only when it wakes: here, Ctrl-C at the latest
# after so long. (On Windows, any Ctrl-C.)
_SECONDS_DEAF = 1.0
_Event = tuple[Literal["record", "tick", "failed", "left"], Any]


def run_local(
    job: Job, tasks: Iterator[Task], *, workers: int, tick: Tick | None = None
) -> Generator[dict[str, Any], None, None]:
    r"""Has the tasks of a job done by processes of this machine.

    At most `workers + 1` tasks are held at a time: one for each worker, and one ahead. A worker that dies is started
    again, and its task given again. Close the generator (`contextlib.closing`) to end early; no worker is left then.

    Args:
        job (`Job`): what each worker has to know.
        tasks (iterator of `Task`): what is to be done; read in a thread of its own, and closed at the end.
        workers (`int`): how many processes at most; none is started before there is a task for it.
        tick (*optional*): called with the bytes and tokens newly done, in the thread that iterates; with negative ones
            where work is lost with a worker.

    Returns:
        Generator of `dict`: the record of each task, in any order.

    Raises:
        TypeError: if the job cannot be sent to another process, or `workers` is no whole number.
        ValueError: if `workers` is not positive.
        RuntimeError: while iterating, if workers cannot start, or if one task kills three of them. What a worker or
            the iterator raises is raised as it is.

    Example:
        >>> from pathlib import Path
        >>> job = Job(Path("out"), None, text_column="text", text_pair_column=None, carried=None, max_length=8)
        >>> list(run_local(job, iter([]), workers=2))
        []
    """
    return run_writers(partial(shard_writer, job), tasks, workers=workers, tick=tick)


def run_writers(
    make: Callable[[], Writer], tasks: Iterator[Task], *, workers: int, tick: Tick | None = None
) -> Generator[dict[str, Any], None, None]:
    r"""As `run_local`, for any writer: each worker calls `make()` once, and `.write(task, tick)` for each task.

    Args:
        make: a function without arguments that can be pickled and returns a `worker.Writer`.
        tasks, workers, tick: as in `run_local`.

    Returns:
        Generator of what the writers return.

    Raises:
        TypeError, ValueError, RuntimeError: as in `run_local`.

    Example:
        >>> list(run_writers(partial(shard_writer, None), iter([]), workers=2))
        []
    """
    workers = as_integer(workers, "workers", minimum=1, example=2)
    try:
        pickled = pickle.dumps(make, 5)
    except Exception as error:
        raise TypeError(
            explain(
                "the job cannot be sent to a worker",
                got=f"{type(error).__name__}: {error}",
                fix="use functions and classes that can be imported, no lambda and no open file",
            )
        ) from error
    return _records(_Run(pickled, iter(tasks), workers), tick)


def _records(run: _Run, tick: Tick | None) -> Generator[dict[str, Any], None, None]:
    atexit.register(run.stop)  # for a generator that is still open when the interpreter ends
    failure: BaseException | None = None
    try:
        run.start_reading()
        left = 0
        while left < run.started and failure is None:
            try:
                kind, content = run.events.get(timeout=_SECONDS_DEAF)
            except Empty:
                continue
            if kind == "record":
                yield content
            elif kind == "tick" and tick is not None:
                tick(*content)
            elif kind == "failed":
                failure = content
            elif kind == "left":
                left += 1
        run.stop()
        while not run.events.empty():  # what else was finished is not lost with what failed
            kind, content = run.events.get()
            if kind == "record":
                yield content
        if failure is not None:
            raise failure
    finally:
        run.stop()
        atexit.unregister(run.stop)
        del failure  # which holds this frame by its traceback


class _Run:
    """The threads of one run: one that reads tasks, and one for each worker. They tell what happens by `events`."""

    def __init__(self, make: bytes, tasks: Iterator[Task], workers: int) -> None:
        self.events: SimpleQueue[_Event] = SimpleQueue()
        self.started = 0  # threads; the reader is the last to start one, and leaves after that
        self._make = make
        self._tasks = tasks
        self._most = workers
        self._path = search_path()
        self._threads: list[Thread] = []
        self._workers: list[Worker] = []
        self._change = Condition()  # guards what follows
        self._ahead: Task | None = None
        self._waiting = 0  # workers without a task
        self._all_read = False
        self._stopping = False

    def start_reading(self) -> None:
        self._start(self._read)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        self.started += 1
        thread = Thread(target=target, args=args, daemon=True)  # never keeps an interpreter from ending
        self._threads.append(thread)
        thread.start()

    def _read(self) -> None:
        try:
            while self._has_room() and self._read_one():
                pass
        except BaseException as error:
            self.events.put(("failed", error))
        finally:
            with self._change:
                self._all_read = True
                self._change.notify_all()
            self._close_tasks()
            self.events.put(("left", None))

    def _has_room(self) -> bool:
        """Waits until no task lies ahead; False if none is wanted any more."""
        with self._change:
            self._change.wait_for(lambda: self._stopping or self._ahead is None)
            return not self._stopping

    def _read_one(self) -> bool:
        """A function, so that this thread does not hold the task afterwards."""
        task = next(self._tasks, None)
        if task is None:
            return False
        with self._change:
            if self._stopping:
                return False
            self._ahead = task
            if not self._waiting and len(self._workers) < self._most:
                worker = Worker(self._make, self._path)
                self._workers.append(worker)
                self._start(self._work, worker)
            self._change.notify_all()
        return True

    def _close_tasks(self) -> None:
        close = getattr(self._tasks, "close", None)
        try:
            if close is not None:
                close()
        except Exception as error:
            self.events.put(("failed", error))

    def _work(self, worker: Worker) -> None:
        kill = True
        try:
            while self._work_on_one(worker):
                pass
            kill = self._stopping
        except Died:
            pass  # by `stop`: there is nobody to tell
        except BaseException as error:
            self.events.put(("failed", error))
        finally:
            worker.close(kill=kill)
            self.events.put(("left", None))

    def _work_on_one(self, worker: Worker) -> bool:
        """The next task, if there is one; it is let go as soon as its record is there."""
        with self._change:
            self._waiting += 1
            self._change.wait_for(lambda: self._stopping or self._all_read or self._ahead is not None)
            self._waiting -= 1
            task, self._ahead = self._ahead, None
            if self._stopping or task is None:
                return False
            self._change.notify_all()
        kind, content = worker.do(task, lambda size, tokens: self.events.put(("tick", (size, tokens))))
        del task
        self.events.put((kind, content))  # type: ignore[arg-type]  # one of its names
        return kind == "record"

    def stop(self) -> None:
        """Ends all workers at once, if there still are any; from any thread, more than once."""
        with self._change:
            self._stopping = True
            self._ahead = None
            workers = list(self._workers)
            self._change.notify_all()
        for worker in workers:
            worker.kill()
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(_SECONDS_TO_STOP)
