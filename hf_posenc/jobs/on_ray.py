"""The Ray engine: run the tasks of a job on a Ray cluster.

It keeps a bounded number of tasks in memory and yields the records of shards as they finish, in any order. Ray repeats
tasks whose worker died.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import platform
import re
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._common.errors import explain, shorten, value_error
from .manifest import library_versions
from .processes import ATTEMPTS, Records, Writer, death_error, until_error, write

if TYPE_CHECKING:
    from .task import Task


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
    r"""Write the shards of `tasks` with Ray, and yield the record of each shard as it finishes.

    - If the caller has connected to Ray, that connection is used and stays open. When the generator is closed or raises
      an error, the running tasks still finish.
    - Otherwise this function starts Ray on this machine, or connects to the cluster at `address`. It disconnects when
      the generator ends or is closed, and that kills the running tasks.

    Args:
        writer (`Writer`): picklable object that writes the shard of a task.
        tasks (iterator of `Task`): the tasks, one for each shard. If other machines do not have the input files, pass
            tasks with all documents in memory (`Task.loaded`).
        folder (`Path`): output folder, which every machine must be able to open under this path.
        workers (`int`, *optional*): maximum number of tasks at a time; by default the number of cores in the cluster.
        address (`str`, *optional*): `"auto"`, `"host:6379"` or `"ray://host:10001"`; by default `RAY_ADDRESS`, or a
            new Ray on this machine.
        libraries (mapping from `str` to `str`, *optional*): name and version of libraries; every machine must have
            these.
        visible_within (`float`, *optional*, defaults to 30): seconds within which a shard written by another machine
            must appear in `folder`.

    Returns:
        Generator of `dict`: the record of each shard, in any order.

    Raises:
        ImportError: if Ray is not installed.
        ConnectionError: if no cluster answers at `address`.
        ValueError: if the folder is not shared, or Ray is connected to another cluster.
        RuntimeError: if three workers die on the same task, a machine has other library versions, or Ray has no CPU.
        Exception: any error of the writer or of `tasks`.
    """
    with _connected(address, workers) as (ray, is_callers):
        cores = int(ray.cluster_resources().get("CPU", 0))
        if not cores:
            raise RuntimeError(explain("Ray needs a CPU to work on", got=0, fix="ray.init(num_cpus=2)"))
        limit = workers if workers and workers < cores else cores + max(2, cores // 4)
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_write_on_ray)
        shared = ray.put(pickle.dumps(writer))
        running: dict[Any, Task] = {}
        errors: list[Exception] = []
        unread = until_error(tasks, errors)
        try:
            while True:
                for task in itertools.islice(unread, limit - len(running)):
                    running[remote.remote(shared, task, folder, dict(libraries or {}))] = task
                if not running:
                    break
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    record = _ray_result(ray, reference, running[reference])
                    _check_visible(folder, record, visible_within)
                    del running[reference]
                    yield record
        finally:
            # No `ray.cancel`: for a task that is just finishing, it aborts the calling process (Ray 2.60).
            if running and is_callers:
                ray.wait(list(running), num_returns=len(running))
    for error in errors:
        raise error


def _write_on_ray(pickled: bytes, task: Task, folder: Path, libraries: Mapping[str, str]) -> dict[str, Any]:
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
    return write(pickled, task)


def _ray_result(ray: Any, reference: Any, task: Task) -> dict[str, Any]:
    try:
        record: dict[str, Any] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # raised by the writer
        raise error.cause from error
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise death_error(task, str(error).strip().splitlines()[0]) from error
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
def _connected(address: str | None, workers: int | None) -> Iterator[tuple[Any, bool]]:
    """Connect to Ray; yield the `ray` module, and True if the caller had connected to Ray before."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            explain('engine="ray" needs Ray', got=str(error), fix='pip install "hf-posenc[ray]"')
        ) from error
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
