"""Run the tasks of a job: in this process, in worker processes of this machine, or on Ray.

Each engine keeps a bounded number of tasks in memory, yields records in any order, and repeats the task of a worker
that died. Workers import this module first, so it has no slow imports.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import platform
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from .._explain import explain, shorten

if TYPE_CHECKING:
    from .shard_writer import ShardWriter
    from .task import Task

_ATTEMPTS = 3  # workers that may die on the same task
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # unless the user sets them
_SHUTDOWN_SECONDS = 5.0

Records = Generator[dict[str, Any], None, None]


class Writer(Protocol):
    """A picklable object that performs tasks, such as `ShardWriter`."""

    def write(self, task: Task, /) -> dict[str, Any]:
        """Perform one task and return its record."""


def run(writer: ShardWriter, tasks: Iterator[Task]) -> Records:
    """Yield the record of each task, performed by the engine that the job names."""
    job = writer.job
    if job.engine == "ray":
        settings = {"workers": job.workers, "address": job.address, "libraries": job.settings["libraries"]}
        return run_on_ray(writer, tasks, folder=job.folder, **settings)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return run_in_processes(writer, tasks, workers=cores if job.workers is None else job.workers)


class _Tasks:
    """Tasks of a reader. An error of the reader ends them; `check` raises it after the tasks before it are done."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks
        self._error: Exception | None = None

    def next(self) -> Task | None:
        try:
            return next(self._tasks, None) if self._error is None else None
        except Exception as error:
            self._error = error
            return None

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _write(pickled: bytes, task: Task) -> dict[str, Any]:
    """Perform a task in a worker. Every error that it raises can be pickled."""
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


def _died(task: Task, got: str) -> RuntimeError:
    parts = [f"{part.source} from {part.unit} {part.first}" for part in task.parts[:3]]
    more = f" and {len(task.parts) - 3} more" if len(task.parts) > 3 else ""
    return RuntimeError(
        explain(
            f"{_ATTEMPTS} workers died on shard {task.shard} ({', '.join(parts)}{more})",
            got=got,
            fix="workers=1 or a smaller shard_bytes if memory ran out; otherwise look for unusual documents there",
        )
    )


# -- processes of this machine -----------------------------------------------------------------------------------------


def run_in_processes(writer: Writer, tasks: Iterator[Task], *, workers: int) -> Records:
    r"""Yield the record of each task, performed by a pool of spawned processes, or in this process.

    At most `workers + 1` tasks are in memory. If a worker dies, a new pool runs the unfinished tasks again, one at a
    time, until they are done. All workers are killed when the generator ends or is closed.

    Args:
        writer (`Writer`): must be picklable.
        tasks (iterator of `Task`): read in the calling thread.
        workers (`int`): number of processes; 0 performs the tasks in this process, one after another.

    Returns:
        Generator of `dict`.

    Raises:
        RuntimeError: if three workers die on the same task.
        Exception: any error of the writer or of `tasks`.

    Example:
        >>> list(run_in_processes(None, iter([]), workers=2))
        []
    """
    if workers == 0:
        yield from map(writer.write, tasks)
        return
    source, pool = _Tasks(tasks), _Pool(pickle.dumps(writer), workers)
    running: dict[Future[dict[str, Any]], Task] = {}
    waiting: deque[Task] = deque()
    deaths: Counter[int] = Counter()  # for each shard, the pools that broke while its task was running
    try:
        while True:
            try:
                # A task that was running when a worker died runs alone, so that the next death has one possible cause.
                alone = any(deaths[task.shard] for task in (*waiting, *running.values()))
                while len(running) < (1 if alone else workers + 1):
                    if not waiting:
                        waiting.extend(filter(None, [source.next()]))
                    if not waiting:
                        break
                    future = pool.submit(waiting[0])
                    running[future] = waiting.popleft()
                if not running:
                    source.check()
                    return
                # With a timeout: a signal that arrives just before `wait` is handled when it returns.
                done = wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done
                for future in sorted(done, key=lambda future: future.exception() is not None):
                    record = future.result()
                    del running[future]
                    yield record
            except BrokenProcessPool:
                death = pool.death()
                pool.kill()
                for task in running.values():
                    deaths[task.shard] += 1
                    if deaths[task.shard] == _ATTEMPTS:
                        raise _died(task, death) from None
                waiting.extendleft(reversed(running.values()))
                running.clear()
                pool = _Pool(pool.pickled, workers)
    finally:
        pool.kill()


class _Pool:
    """Worker processes that can be killed at any time."""

    def __init__(self, pickled: bytes, workers: int) -> None:
        self.pickled = pickled
        self._context = _Context()
        self._executor = ProcessPoolExecutor(
            workers, mp_context=self._context, initializer=_start_worker, initargs=(pickled,)
        )

    def submit(self, task: Task) -> Future[dict[str, Any]]:
        try:
            return self._executor.submit(_write_in_process, task)
        except (OSError, ValueError) as error:
            # If a worker dies while `submit` starts another one, the executor has closed its pipes already.
            if self._exit_code() is None:
                raise
            raise BrokenProcessPool from error

    def _exit_code(self) -> int | None:
        """Return the exit code of the worker that died; `None` if there is none. The executor terminates the others."""
        code, end = None, time.monotonic() + 1.0
        while code is None and time.monotonic() < end:  # a thread of the executor collects the exit codes
            codes = [process.exitcode for process in self._context.processes]
            code = next((code for code in codes if code not in (None, -signal.SIGTERM)), None)
            time.sleep(0.01)
        return code

    def death(self) -> str:
        """Describe the end of the worker that died: its exit code or signal."""
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
    """The spawn context, with a list of the processes that were started."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[_Process] = []

    def Process(self, *args: Any, **kwargs: Any) -> _Process:  # type: ignore[override]
        self.processes.append(_Process(*args, **kwargs))
        return self.processes[-1]


_pickled_writer = b""  # in a worker process


def _start_worker(pickled: bytes) -> None:
    global _pickled_writer  # noqa: PLW0603
    _pickled_writer = pickled
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


def _write_in_process(task: Task) -> dict[str, Any]:
    return _write(_pickled_writer, task)


# -- Ray ---------------------------------------------------------------------------------------------------------------


def run_on_ray(
    writer: Writer,
    tasks: Iterator[Task],
    *,
    folder: Path,
    workers: int | None = None,
    address: str | None = None,
    libraries: Mapping[str, str] | None = None,
    visible_within: float = 30.0,
) -> Records:
    r"""Yield the record of each task, performed by Ray tasks.

    An existing Ray connection is used and stays open. Otherwise this function starts Ray on this machine, or connects
    to the cluster at `address`, until the generator ends or is closed. Only this process reads the corpus.

    Args:
        writer (`Writer`): must be picklable.
        tasks (iterator of `Task`): read in the calling thread.
        folder (`Path`): output folder, which every machine must be able to open under this path.
        workers (`int`, *optional*): largest number of tasks at a time; by default the number of cores in the cluster.
        address (`str`, *optional*): `"auto"`, `"host:6379"` or `"ray://host:10001"`; by default `RAY_ADDRESS`, or a
            new Ray on this machine.
        libraries (mapping from `str` to `str`, *optional*): versions that every machine must have.
        visible_within (`float`, *optional*, defaults to 30): seconds within which a shard written by another machine
            must appear in `folder`.

    Returns:
        Generator of `dict`.

    Raises:
        ImportError: if Ray is not installed.
        ConnectionError: if no cluster answers at `address`.
        ValueError: if the folder is not shared, or Ray is connected to another cluster.
        RuntimeError: if three workers die on the same task, or a machine has other versions.
        Exception: any error of the writer or of `tasks`.
    """
    with _connected(address, workers) as ray:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if not cores:
            raise RuntimeError(explain("Ray needs a CPU to work on", got=0, fix="ray.init(num_cpus=2)"))
        limit = workers if workers and workers < cores else cores + max(2, cores // 4)
        write = ray.remote(num_cpus=1, max_retries=_ATTEMPTS - 1)(_write_on_ray)
        shared = ray.put(pickle.dumps(writer))
        running: dict[Any, Task] = {}
        source = _Tasks(tasks)
        try:
            while True:
                while len(running) < limit and (task := source.next()) is not None:
                    running[write.remote(shared, task, folder, dict(libraries or {}))] = task
                if not running:
                    source.check()
                    return
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    record = _ray_result(ray, reference, running[reference])
                    _check_visible(folder, record, visible_within)
                    del running[reference]
                    yield record
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=_SHUTDOWN_SECONDS)


def _write_on_ray(pickled: bytes, task: Task, folder: Path, libraries: Mapping[str, str]) -> dict[str, Any]:
    from .manifest import library_versions

    if not folder.is_dir():
        raise ValueError(_not_shared(folder, f"there is no such folder on {platform.node()}"))
    here = library_versions(libraries)
    wrong = [f"{name} {here[name]} instead of {libraries[name]}" for name in libraries if here[name] != libraries[name]]
    if wrong:
        raise RuntimeError(
            explain(
                "every machine of a cluster must have the library versions of the machine that starts the job",
                got=f"on {platform.node()}: {', '.join(wrong)}",
                fix=f"pip install {' '.join(f'{name}=={version}' for name, version in libraries.items())}",
            )
        )
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a task has one core
    return _write(pickled, task)


def _ray_result(ray: Any, reference: Any, task: Task) -> dict[str, Any]:
    try:
        record: dict[str, Any] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # raised by the writer
        raise error.cause from error
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise _died(task, str(error).strip().splitlines()[0]) from error
    return record


def _check_visible(folder: Path, record: Mapping[str, Any], seconds: float) -> None:
    path = folder / record["file"]
    end = time.monotonic() + seconds
    while not (path.is_file() and path.stat().st_size == record["bytes"]):
        if time.monotonic() > end:
            raise ValueError(_not_shared(folder, f"{path.name} was written by another machine, and is not here"))
        time.sleep(0.2)
        os.listdir(path.parent)  # noqa: PTH208  (refreshes the cache of a network file system)


def _not_shared(folder: Path, got: str) -> str:
    return explain(
        "on a cluster the output must be a folder that every machine sees under the same name",
        got=f"{shorten(str(folder))}: {got}",
        fix="a folder on the cluster's shared file system (NFS, Lustre, FSx)",
    )


@contextmanager
def _connected(address: str | None, workers: int | None) -> Iterator[Any]:
    """Connect to Ray, or use the caller's connection; close only a connection that was opened here."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            explain('engine="ray" needs Ray', got=str(error), fix='pip install "hf-posenc[ray]"')
        ) from error
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in {None, "auto", here}:
            raise ValueError(
                explain(
                    "Ray is connected to one cluster at a time",
                    got=f"{here}, and now {address}",
                    fix="ray.shutdown(), or no address",
                )
            )
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    settings = {"include_dashboard": False, "num_cpus": workers} if address == "local" else {}
    in_main_thread = threading.current_thread() is threading.main_thread()
    on_sigterm = signal.getsignal(signal.SIGTERM)  # Ray replaces it
    own_debugger = "PYTHONBREAKPOINT" in os.environ  # Ray sets it to a debugger of its own
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # errors are raised
    try:
        if host := re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address):  # Ray itself would wait for minutes
            socket.create_connection((host[1], int(host[2])), timeout=10).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice about later versions of Ray
            ray.init(address, log_to_driver=False, configure_logging=False, **settings)
    except OSError as error:
        raise ConnectionError(
            explain(
                "a Ray cluster must answer",
                got=f"{address}: {error}",
                fix="ray start --head, and the address that it prints, or 'auto'",
            )
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
        if not own_debugger:
            os.environ.pop("PYTHONBREAKPOINT", None)
        if in_main_thread:
            signal.signal(signal.SIGTERM, on_sigterm)
