r"""The engine for more than one machine: Ray Data's `map_batches` calls the writer wherever Ray has a core to spare.

The corpus is read in the driver, a few tasks ahead of the writers; the shards' folder must be one that every machine
sees.

What streams through Ray Data are the numbers of tasks. The tasks themselves lie in the object store, so many at a time,
until their record is back, and a writer fetches its own by number. So memory is bounded by that count and not by Ray's
estimates, nothing is read a second time when a process dies, and the input has to be visible to the driver alone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..._explain import explain
from ..output.libraries import installed
from ..task import Task
from .process import deadly, unpacked
from .ray_clerk import Clerk, not_shared
from .ray_connection import connected, unwarned
from .ray_desk import Desk, Feeder, numbers
from .worker import Writer

# On a network's file system the file of another machine may be seen late; seconds.
_SEEN_WITHIN = 30.0


def run_on_ray(
    writer: Writer,
    tasks: Iterator[Task],
    *,
    folder: Path,
    workers: int | None = None,
    address: str | None = None,
    libraries: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    r"""Writes a shard for each task, on Ray.

    Where Ray is connected already, that is used and left as it is. Otherwise it is started on this machine, or the
    cluster at `address` is connected to, until the iterator ends or is closed.

    Args:
        writer (`Writer`): makes a shard of a task; travels by pickle.
        tasks (iterator of `Task`): read by a thread of this process, a few ahead of the writers.
        folder (`Path`): where the shards go. Every machine of a cluster must see it under this name, this one included.
        workers (`int`, *optional*): how many tasks are written at once at most; by default one a core of Ray's.
        address (`str`, *optional*): of a cluster: `"auto"`, `"host:6379"`, `"ray://host:10001"`. By default
            `RAY_ADDRESS`; where that is not set either, Ray is started here.
        libraries (mapping, *optional*): versions that every machine must have, as `libraries.installed` tells them; by
            default those that every job depends on, as they are here.

    Returns:
        iterator of `dict`: the writer's records, in the order in which shards are finished. If it ends without an
        error, each task has had one.

    Raises:
        ImportError: if Ray is missing.
        ConnectionError: if no cluster answers at `address`.
        ValueError: if the folder is not shared, or another cluster is connected to already.
        RuntimeError: for a task that three workers died of, or machines with other versions of the libraries.
        Exception: what the reader or the writer raises, as it is.

    Example:
        >>> records = run_on_ray(writer, tasks, folder=Path("/shared/out"), address="auto")  # doctest: +SKIP
    """
    with connected(address, workers) as ray:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if not cpus:
            raise RuntimeError(explain("Ray needs a CPU to work on", got=0, fix="ray.init(num_cpus=2)"))
        at_once = min(workers or cpus, cpus)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": 10_000}
        desk = ray.remote(Desk).options(**options).remote()
        # Beyond those being written: the next one for each where they are few, for every fourth where they are many.
        feeder = Feeder(ray, desk, tasks, at_most=at_once + max(2, at_once // 4))
        clerk = {
            "desk": desk,
            "writer": [ray.put(writer)],
            "folder": folder,
            "versions": dict(libraries or installed()),
        }
        how = _placed(ray.data, clerk, cpus, at_once)
        feeder.start()
        with contextlib.closing(_stream(ray, desk, how)) as tables:
            try:
                yield from _records(ray, tables, feeder, folder)
                feeder.check_complete()
            finally:
                feeder.close()


def _placed(data: Any, clerk: dict[str, Any], cpus: int, at_once: int) -> dict[str, Any]:
    """The arguments of `map_batches` that say where a clerk runs."""
    # Tasks rather than actors: they use whatever core is free, and their processes are kept for the next one.
    pool = data.TaskPoolStrategy(size=at_once if at_once < cpus else None)
    return {"fn": Clerk(**clerk), "num_cpus": 1, "compute": pool}


def _stream(ray: Any, desk: Any, how: dict[str, Any]) -> Generator[Any, None, None]:
    """Ray Data's tables of answers, under settings of ours and none of the caller's."""
    data = ray.data
    with unwarned():
        data.DataContext.get_current()
        context = data.DataContext()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.max_errored_blocks = 0  # a budget of errors loses rows and reports success
    context.target_max_block_size = 1  # a block for each number: those in one block are written one after the other
    context.execution_no_progress_timeout_s = -1  # a long shard takes its time, and so may reading
    with data.DataContext.current(context):
        # No core for the numbers: on a machine of one, none would be left for writing. As they ask for other resources,
        # Ray Data does not fuse the two steps either, which would have one process do it all.
        read = data.read_datasource(numbers(ray, desk), num_cpus=0, override_num_blocks=1)
        answers = read.map_batches(batch_size=1, batch_format="pyarrow", **how)
    yield from answers.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)


def _records(ray: Any, tables: Iterator[Any], feeder: Feeder, folder: Path) -> Iterator[dict[str, Any]]:
    """One record for each task, whatever Ray tried more than once."""
    while True:
        try:
            table = next(tables, None)
        except ray.exceptions.RayError as problem:
            fix = "see that every machine has hf-posenc; then the same again, which keeps what is written"
            raise RuntimeError(explain("Ray gave up", got=_gist(problem), fix=fix)) from problem
        if table is None:
            return
        for number, answer in zip(table["task"].to_pylist(), table["answer"].to_pylist(), strict=True):
            if number in feeder.window:  # else made twice: an equal file in the place of the first
                record = _record(number, *pickle.loads(answer), feeder=feeder)
                _check_there(folder, record)
                feeder.done(number)
                yield record


def _record(number: int, kind: str, *content: Any, feeder: Feeder) -> dict[str, Any]:
    """The record that came as an answer; raises if it was something else."""
    if kind == "raised":
        raise unpacked(*content)
    if kind == "deaths":
        raise deadly(feeder.described(number), f"handed out {content[0]} times")
    record: dict[str, Any] = content[0]
    return record


def _gist(problem: Exception) -> str:
    """What Ray's pages about an error come to: the last error that they name."""
    named = re.findall(r"^\s*(?!ray\.)([\w.]*(?:Error|Exception)\b: .+)$", str(problem), re.MULTILINE)
    return str(named[-1]) if named else f"{type(problem).__name__}: {str(problem).strip().splitlines()[0]}"


def _check_there(folder: Path, record: dict[str, Any]) -> None:
    """What a writer reports is there for this process as well."""
    path = folder / record["file"]
    until = time.monotonic() + _SEEN_WITHIN
    while not (path.is_file() and path.stat().st_size == record["bytes"]):
        if time.monotonic() > until:
            raise ValueError(not_shared(folder, f"{path.name} was written by another machine, and is not here"))
        time.sleep(0.2)
        os.listdir(folder)  # noqa: PTH208  (makes a network's file system look again)
