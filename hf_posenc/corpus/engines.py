"""Engines: run the tasks of a job in processes of this machine or on a Ray cluster, and yield the records of shards.

At most twice as many tasks as workers are sent out at a time. A worker process that dies ends the run; Ray repeats the
tasks of a machine that is lost.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import pickle
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from .._common.errors import explain, pip_install, value_error
from ..ragged import lock_free_cache

if TYPE_CHECKING:
    from .shards import Job, ShardWriter, Task

Records = Generator[dict[str, Any], None, None]
_RETRIES = 3  # times that Ray repeats a task whose machine was lost


Function = Callable[["Task"], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class WriteShards:
    """Function of a worker: write the shards of a task, and yield their records."""

    job: Job

    def __call__(self, task: Task) -> Iterator[dict[str, Any]]:
        return self._writer.write(task)

    @lock_free_cache
    def _writer(self) -> ShardWriter:
        from .shards import ShardWriter

        return ShardWriter(self.job)


def library_versions(names: Iterable[str]) -> dict[str, str]:
    r"""Return a `dict` from each name to the installed version of that library, or `"unknown"` if it is not installed.

    Example:
        >>> library_versions(["no-such-distribution"])
        {'no-such-distribution': 'unknown'}
    """
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions


def run_in_processes(function: Function, tasks: Iterator[Task], *, workers: int) -> Records:
    r"""Call `function` on each task in worker processes, and yield the results as they come.

    Args:
        function (callable): picklable; its argument is a task, and it returns an iterator of results.
        tasks (iterator of `Task`): read in the calling thread.
        workers (`int`): number of processes; 0 calls the function in this process.

    Returns:
        Generator of the results, in any order. The workers are killed when it ends or is closed.

    Raises:
        RuntimeError: if a worker dies.
        Exception: an error that the function or `tasks` raises.
    """
    if workers == 0:
        for task in tasks:
            yield from function(task)
        return
    pool = _Pool(pickle.dumps(function))
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(workers) as threads:
        try:
            while True:
                running |= {threads.submit(pool.run, task) for task in islice(tasks, 2 * workers - len(running))}
                if not running:
                    return
                # With a timeout: a task of several shards has results before its end.
                done, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                while not pool.results.empty():
                    yield pool.results.get()
                for future in done:
                    future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            pool.kill()


class _Pool:
    """Worker processes, each served by one thread of the calling process."""

    def __init__(self, pickled: bytes) -> None:
        self.results: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._pickled = pickled
        self._thread, self._lock = threading.local(), threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    def run(self, task: Task) -> None:
        """Send a task to the worker of this thread, and put its results into the queue."""
        process = self._worker()
        try:
            self._send(process, pickle.dumps(task))
            assert process.stdout is not None
            while (answer := pickle.load(process.stdout))[0] == "result":
                self.results.put(answer[1])
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise RuntimeError(_death(task, _words(process.wait()))) from error
        if answer[0] == "error":
            raise answer[1]

    def kill(self) -> None:
        """Kill the workers, in the middle of their tasks."""
        with self._lock:
            self._is_closed = True
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.wait()
                for pipe in filter(None, (process.stdin, process.stdout)):
                    with suppress(OSError):
                        pipe.close()

    def _worker(self) -> subprocess.Popen[bytes]:
        """Return the worker of this thread, and start it for the first task."""
        if not hasattr(self._thread, "process"):
            # The module path of this process. The working directory stays in it only if this package lies there: a
            # file there must not stand in for a library. Scripts need no `if __name__ == "__main__"`, because a worker
            # does not import them.
            root = str(Path(__file__).parents[2])
            path = [entry or root for entry in sys.path if entry or root not in sys.path]
            code = f"import sys; sys.path[:] = {path!r}; from hf_posenc.corpus.worker import main; main({os.getpid()})"
            with self._lock:
                if self._is_closed:
                    raise CancelledError
                # A session of its own: Ctrl-C reaches only the calling process.
                command = [sys.executable, "-c", code]
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
                )
                self._processes.append(process)
            self._thread.process = process
            self._send(process, self._pickled)
        worker: subprocess.Popen[bytes] = self._thread.process
        return worker

    @staticmethod
    def _send(process: subprocess.Popen[bytes], pickled: bytes) -> None:
        assert process.stdin is not None
        pickle.dump(pickled, process.stdin)
        process.stdin.flush()


def _words(code: int) -> str:
    """Return a description of the end of a process, such as `"a worker ended with exit code 1"`."""
    if code >= 0:
        return f"a worker ended with exit code {code}"
    memory = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
    return f"a worker was killed by {signal.Signals(-code).name}{memory}"


def _death(task: Task, got: str) -> str:
    return explain(
        f"a worker died on task {task.number} ({task})",
        got=got,
        fix="the same command continues; with fewer workers or a smaller shard_bytes if memory ran out",
    )


# ----------------------------------------------------------------------------------------------------------------- Ray


def run_on_ray(
    function: Function,
    tasks: Iterator[Task],
    *,
    workers: int | None = None,
    address: str | None = None,
    libraries: Mapping[str, str],
) -> Records:
    r"""Call `function` on each task on a Ray cluster, and yield the results as they come.

    A connection of the caller is used and stays open. Otherwise Ray is started on this machine, or the cluster at
    `address` is joined, until the generator ends or is closed.

    Args:
        function (callable): picklable; its argument is a task, and it returns an iterator of results.
        tasks (iterator of `Task`): read in the calling thread.
        workers (`int`, *optional*): maximum number of tasks at a time; by default the number of cores in the cluster.
        address (`str`, *optional*): `"auto"`, `"host:6379"` or `"ray://host:10001"`; by default `RAY_ADDRESS`, or a
            new Ray on this machine.
        libraries (mapping from `str` to `str`): name and version of libraries; every machine must have these.

    Returns:
        Generator of the results, in any order.

    Raises:
        ImportError: if Ray is not installed.
        ConnectionError: if no cluster answers at `address`.
        RuntimeError: if a machine has another version of a library, or if workers die on the same task repeatedly.
        OSError: if a machine cannot open an input or the output.
    """
    with _connected(address, workers) as (ray, is_callers):
        shared = ray.put(pickle.dumps(function))
        call = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call_on_ray)
        limit = workers or 2 * int(ray.cluster_resources().get("CPU", 1))
        running: dict[Any, Task] = {}
        try:
            while True:
                for task in islice(tasks, limit - len(running)):
                    running[call.remote(shared, task, dict(libraries))] = task
                if not running:
                    return
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    results = _ray_results(ray, reference, running[reference])
                    del running[reference]
                    yield from results
        finally:
            # No `ray.cancel`: for a task that is just finishing, it aborts the calling process (Ray 2.60).
            if running and is_callers:
                ray.wait(list(running), num_returns=len(running))


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> Function:
    function: Function = pickle.loads(pickled)
    return function


def _call_on_ray(pickled: bytes, task: Task, libraries: dict[str, str]) -> list[dict[str, Any]]:
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
    try:
        return list(_unpickled(pickled)(task))
    except OSError as error:
        rule = "every machine of a cluster must be able to open the inputs and the output"
        fix = "a folder on the cluster's shared file system, or an address such as s3://..."
        raise OSError(explain(rule, got=f"on {platform.node()}: {error}", fix=fix)) from None


def _ray_results(ray: Any, reference: Any, task: Task) -> list[dict[str, Any]]:
    try:
        results: list[dict[str, Any]] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # raised by the function
        raise error.cause from error
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise RuntimeError(_death(task, str(error).strip().splitlines()[0])) from error
    return results


@contextmanager
def _connected(address: str | None, workers: int | None) -> Iterator[tuple[Any, bool]]:
    """Connect to Ray; yield the `ray` module, and True if the caller had connected to Ray before."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(explain('engine="ray" needs Ray', got=str(error), fix=pip_install("ray"))) from error
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in {None, "auto", here}:
            raise value_error(
                "Ray is connected to one cluster at a time",
                got=f"{here}, and now {address}",
                fix="ray.shutdown(), or no address",
            )
        yield ray, True
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
        yield ray, False
    finally:
        ray.shutdown()
        if not own_debugger:
            os.environ.pop("PYTHONBREAKPOINT", None)
        if in_main_thread:
            signal.signal(signal.SIGTERM, on_sigterm)
