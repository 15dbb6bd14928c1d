r"""How tasks reach the writers on Ray: a feeder in the driver, a desk that hands them out, a clerk around each writer.

Knows what tasks and numbers are, and nothing of how Ray Data is set up or what a shard is.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import pickle
import platform
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from .._explain import explain, shorten
from .process import DEATHS, described
from .task import Task
from .worker import Writer, packed

# How often the desk is told again what there is, which may have died and been started anew; seconds.
_AGAIN = 1.0
# What decides the bytes of a shard besides the settings.
_LIBRARIES = ("hf-posenc", "tokenizers", "pyarrow", "numpy")


class Desk:
    """An actor between driver and writers: which tasks there are, by number, and where in the object store they lie.

    It holds nothing that it is not told again every second, so that it may die and be started anew.
    """

    def __init__(self) -> None:
        self._window: dict[int, list[Any]] = {}
        self._count = self._turn = 0
        self._ended = False
        self._asked: dict[int, int] = {}
        self._news = asyncio.Condition()

    async def tell(self, turn: int, window: dict[int, list[Any]], count: int, ended: bool) -> None:
        """So many tasks were read by now, these of them are not written yet, and whether more will come."""
        if turn <= self._turn:  # overtaken by a later one
            return
        async with self._news:
            self._turn, self._window, self._count, self._ended = turn, window, count, ended
            self._asked = {number: times for number, times in self._asked.items() if number in window}
            self._news.notify_all()

    async def is_there(self, number: int) -> bool:
        """Whether a task of this number exists; waits until that is known."""
        async with self._news:
            await self._news.wait_for(lambda: number < self._count or self._ended)
            return number < self._count

    async def take(self, number: int) -> tuple[int, list[Any]]:
        """How many have taken this task before, and its reference in a list; an empty one if it is written already."""
        async with self._news:
            await self._news.wait_for(lambda: number < self._count or self._ended)
            before = self._asked.get(number, 0)
            self._asked[number] = before + 1
            return before, self._window.get(number, [])


class Feeder(threading.Thread):
    r"""Reads tasks, puts them into the object store, a bounded number at a time, and tells the desk.

    Args:
        ray: the module.
        desk: handle of the `Desk`.
        tasks (iterator of `Task`): what to read.
        at_most (`int`): how many tasks may lie in the store, those that are being written included.
    """

    def __init__(self, ray: Any, desk: Any, tasks: Iterator[Task], at_most: int) -> None:
        super().__init__(name="hf-posenc-ray-feeder", daemon=True)
        self.window: dict[int, list[Any]] = {}
        self._described: dict[int, str] = {}
        self._ray, self._desk, self._tasks, self._at_most = ray, desk, tasks, at_most
        self._count = self._turn = 0
        self._problem: BaseException | None = None
        self._ended = self._closed = False
        self._news = threading.Condition()

    def run(self) -> None:
        """Reads to the end, or until closed, and keeps the desk informed for as long as there is something open."""
        try:
            for task in self._tasks:
                if not self._offered(task):
                    break
        except BaseException as problem:  # raised in the driver's own thread, once the tasks before are written
            self._problem = problem
        with self._news:
            self._ended = True
            while not self._closed:
                self._tell()
                self._news.wait(_AGAIN)

    def done(self, number: int) -> None:
        """The record of this task has come: it makes room for another."""
        with self._news:
            self.window.pop(number)
            self._described.pop(number)
            self._news.notify_all()

    def described(self, number: int) -> str:
        """Which documents the task holds, in words."""
        return self._described[number]

    def close(self) -> None:
        """Stops reading; returns when the thread has ended, which takes as long as reading one task."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self.join()

    def check_complete(self) -> None:
        """Raises what reading raised, and if tasks were lost."""
        if self._problem is not None:
            raise self._problem
        if self.window or not self._ended:
            raise RuntimeError(
                explain(
                    "Ray Data ended before every task was written",
                    got=f"{len(self.window)} of {self._count} are missing",
                    fix="run the same again: what is written is kept",
                )
            )

    def _offered(self, task: Task) -> bool:
        """Puts a task where writers find it, as soon as there is room. False if there is no need any more."""
        with self._news:
            while len(self.window) >= self._at_most and not self._closed:
                self._tell()
                self._news.wait(_AGAIN)
            if self._closed:
                return False
            # In a list: a bare reference would arrive at the desk as what it refers to.
            self.window[self._count] = [self._ray.put(task)]
            self._described[self._count] = described(task)
            self._count += 1
            self._tell()
            return True

    def _tell(self) -> None:
        self._turn += 1
        self._desk.tell.remote(self._turn, self.window, self._count, self._ended)


def numbers(ray: Any, desk: Any) -> Any:
    """A source for `ray.data.read_datasource`: the numbers of the tasks, a block each, as they come to be there."""
    from ray.data.block import BlockMetadata
    from ray.data.datasource import ReadTask

    class Numbers(ray.data.Datasource):  # type: ignore[misc]
        def get_name(self) -> str:
            return "Tasks"

        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            nothing_known = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ReadTask(partial(_count, desk), nothing_known)]

    return Numbers()


def _count(desk: Any) -> Iterator[pa.Table]:
    import ray

    number = 0
    while ray.get(desk.is_there.remote(number)):
        yield pa.table({"task": [number]})
        number += 1


# What this process unpickled last: writers take a while to set up, and a process serves many tasks of one run.
_held: tuple[Any, Any] = (None, None)


@dataclass(eq=False)
class Clerk:
    r"""What `map_batches` calls: numbers of tasks in, the pickled answer to each out.

    An error of the writer's is an answer as well: were it raised here, Ray would bury it under pages of its own.

    Args:
        desk: handle of the `Desk`.
        writer (sequence): reference to a `Writer` in the object store.
        folder (`Path`): where shards go.
        versions (`dict`): of the driver's libraries.
    """

    desk: Any
    writer: Sequence[Any]
    folder: Path
    versions: Mapping[str, str]

    def __call__(self, batch: pa.Table) -> pa.Table:
        asked = batch.column("task").to_pylist()
        answers = [pickle.dumps(self._answer(number)) for number in asked]
        return pa.table({"task": asked, "answer": pa.array(answers, pa.binary())})

    def _answer(self, number: int) -> tuple[Any, ...]:
        """`("record", dict)`, `("raised", ...)` as `packed` has it, `("deaths", int)`, or `("written before",)`."""
        import ray

        before, where = ray.get(self.desk.take.remote(number))
        if not where:
            return ("written before",)
        if before >= DEATHS:
            return "deaths", before
        try:
            self._check_node()
            with environment(TOKENIZERS_PARALLELISM="false"):  # a core a task is what Ray was asked for
                return "record", self._writer().write(ray.get(where[0]), None)
        except Exception as problem:
            return "raised", *packed(problem)

    def _writer(self) -> Writer:
        import ray

        global _held  # noqa: PLW0603  (a cache of one)
        if _held[0] != self.writer[0]:
            _held = self.writer[0], ray.get(self.writer[0])
        writer: Writer = _held[1]
        return writer

    def _check_node(self) -> None:
        if not self.folder.is_dir():
            raise ValueError(not_shared(self.folder, f"there is no such folder on {platform.node()}"))
        here = versions()
        wrong = [f"{name} {here[name]} instead of {said}" for name, said in self.versions.items() if here[name] != said]
        if wrong:
            raise RuntimeError(
                explain(
                    "every machine of a cluster must have the versions of the one that starts the job",
                    got=f"on {platform.node()}: {', '.join(wrong)}",
                    fix=f"pip install {' '.join(f'{name}=={said}' for name, said in self.versions.items())}",
                )
            )


def versions() -> dict[str, str]:
    """Of what decides the bytes of a shard, as installed here."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a checkout on the path
            found[name] = "unknown"
    return found


def not_shared(folder: Path, got: str) -> str:
    """The message for a folder that is not the same one everywhere."""
    return explain(
        "on a cluster the output must be a folder that every machine sees under the same name",
        got=f"{shorten(str(folder))}: {got}",
        fix="a folder on the cluster's shared file system (NFS, Lustre, FSx)",
    )


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Environment variables set for a while, and put back as they were."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            set_variable(name, value)


def set_variable(name: str, value: str | None) -> None:
    """An environment variable as it was, which may be not at all."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
