"""Engines: write shards in processes of this machine or as tasks of Ray, and yield their records."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from itertools import islice
from typing import Any

from .._common.errors import explain, pip_install, runtime_error, value_error
from .reading import RemoteFiles, Slices
from .shards import Job, write_shard

_in_worker: dict[str, Any] = {}  # the job and the input, in a worker process


def run_in_processes(
    job: Job, source: Slices | RemoteFiles, numbers: Sequence[int], *, workers: int
) -> Iterator[dict[str, Any]]:
    """Write shards in worker processes, each of which opens the input itself; 0 workers work in this process.

    Raise `RuntimeError` if a worker dies. An error in one shard lets those that were begun be finished.
    """
    if workers == 0:
        yield from (write_shard(job, number, source) for number in numbers)
        return
    # The start method is Python's own, as in `datasets.map`. A forked worker starts at once, while others import torch
    # and transformers: one job on two cores took 5 s of CPU with fork, 9 s with forkserver, 11 s with spawn.
    pool = ProcessPoolExecutor(max(1, min(workers, len(numbers))), initializer=_begin, initargs=(job, source))
    try:
        for future in as_completed([pool.submit(_write, number) for number in numbers]):
            yield future.result()
    except BrokenProcessPool as error:
        fix = (
            "the same call continues; fewer workers if memory ran out; on macOS, Windows, and Linux from Python 3.14, "
            'a script calls encode under `if __name__ == "__main__":`'
        )
        raise ChildProcessError(explain("a worker process died", got=str(error), fix=fix)) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(job: Job, source: Slices | RemoteFiles) -> None:
    _in_worker.update(job=job, source=source)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a process for each core
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:  # if that is killed, a worker would wait for shards forever
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _write(number: int) -> dict[str, Any]:
    return write_shard(number=number, **_in_worker)


def run_on_ray(
    job: Job, source: Slices | RemoteFiles, numbers: Sequence[int], *, workers: int | None, address: str | None
) -> Iterator[dict[str, Any]]:
    """Write shards as tasks of Ray: on the cluster of the caller, at `address`, or on this machine.

    Rows of a data set are sent to the tasks. Files at addresses are opened by them. At most twice as many tasks as
    cores, or as many as `workers`, are sent out at a time. Ray repeats tasks of a machine that is lost.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError(explain('engine="ray" needs Ray', got=str(error), fix=pip_install("ray"))) from error
    is_own = not ray.is_initialized()
    if not is_own and address not in (None, "auto", here := ray.get_runtime_context().gcs_address):
        fix = "ray.shutdown() before, or no address"
        raise value_error("Ray is connected to one cluster at a time", got=f"{here}, and now {address}", fix=fix)
    if is_own:
        settings = {} if address else {"num_cpus": workers, "include_dashboard": False}
        ray.init(address or "local", log_to_driver=False, **settings)
    try:
        write, shared, waiting = ray.remote(max_retries=3)(_write_on_ray), ray.put(job), set[Any]()
        limit = workers or 2 * int(ray.cluster_resources().get("CPU", 1))
        left = iter(numbers)
        while True:
            waiting |= {
                write.remote(shared, number, source.alone(number)) for number in islice(left, limit - len(waiting))
            }
            if not waiting:
                return
            ready, rest = ray.wait(list(waiting))
            waiting = set(rest)
            for reference in ready:
                try:
                    record = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                    message = explain("a worker of Ray died", got=error, fix="the same call continues")
                    raise ChildProcessError(message) from error
                yield record
    finally:
        if is_own:
            ray.shutdown()


def _write_on_ray(job: Job, number: int, source: Slices | RemoteFiles) -> dict[str, Any]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a task has one core
    here = {name: version(name) for name in job.versions}
    if here != job.versions:
        needed = " ".join(f"{name}=={job.versions[name]}" for name in here if here[name] != job.versions[name])
        rule = "every machine of a cluster must have the versions of the machine that starts the job"
        raise runtime_error(rule, got=f"{here} on {os.uname().nodename}", fix=f"pip install {needed}")
    return write_shard(job, number, source)
