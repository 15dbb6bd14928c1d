"""Writers that do odd things, for the tests of the local engine: worker processes load them by name from this module."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from hf_posenc.jobs.task import Cursor, Part, Task


def task(shard: int, payload: bytes = b"") -> Task:
    """A small task with one part."""
    part = Part("corpus.txt", "lines", 10 * shard + 1, payload)
    return Task(shard, (part,), Cursor(0, shard, shard), Cursor(0, shard + 1, shard + 1), len(payload))


def tasks(number: int, size: int = 3) -> Iterator[Task]:
    """So many of them."""
    for shard in range(number):
        yield task(shard, bytes([shard % 251]) * size)


class Echo:
    """Says which task it was, in which process, and what has arrived; after `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def write(self, task: Task, tick: Any) -> dict[str, Any]:
        time.sleep(self.seconds)
        payload = task.parts[0].payload
        tick(task.size, 2)
        return {"shard": task.shard, "pid": os.getpid(), "size": len(payload), "ends": payload[-3:]}
