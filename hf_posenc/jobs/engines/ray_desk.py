r"""How tasks reach the writers on Ray: a feeder reads them in the driver, an actor hands them out by number.

What is done with them is for `ray_clerk`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from ..._explain import explain
from ..task import Task
from .process import described

# How often the desk is told again what there is, which may have died and been started anew; seconds.
_AGAIN = 1.0
_SECONDS_TO_STOP = 2.0  # for a source that is in the middle of reading


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
            if hasattr(self._tasks, "close"):
                self._tasks.close()
        except BaseException as problem:  # raised by `check_complete`, once the tasks before are written
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
        """Stops reading, tells whoever waits at the desk that nothing will come, and asks nothing of Ray any more."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self.join(_SECONDS_TO_STOP)
        if self._ray.is_initialized():  # else asking would start one
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(self._desk.tell.remote(self._turn + 1, {}, self._count, True), timeout=_SECONDS_TO_STOP)
                self._ray.kill(self._desk)

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
        # Not tried again by Ray: the next telling comes soon enough.
        tell = self._desk.tell.options(max_task_retries=0)
        tell.remote(self._turn, self.window, self._count, self._ended)


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
