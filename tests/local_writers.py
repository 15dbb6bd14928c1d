"""Writers with faults, for the tests of the engines. Worker processes import them from here."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """The attributes of a part that engines name in messages, and its bytes."""

    source: str
    unit: str
    first: int
    payload: bytes


@dataclass(frozen=True, eq=False)
class Task:
    """A task as engines see it."""

    shard: int
    parts: tuple[Part, ...]


def task(shard: int, payload: bytes = b"") -> Task:
    """A small task with one part."""
    return Task(shard, (Part("corpus.txt", "line", 10 * shard + 1, payload),))


def tasks(number: int, size: int = 3) -> Iterator[Task]:
    """Tasks with different payloads."""
    for shard in range(number):
        yield task(shard, bytes([shard % 251]) * size)


def record(task: Task) -> dict[str, Any]:
    """The record of a task: its number, the process, and a part of the payload."""
    payload = task.parts[0].payload
    return {"shard": task.shard, "pid": os.getpid(), "size": len(payload), "ends": payload[-3:]}


class Echo:
    """Returns the record after some seconds; creates a file in `folder` when it starts."""

    def __init__(self, folder: Path | None = None, seconds: float = 0.0) -> None:
        self.folder, self.seconds = folder, seconds

    def write(self, task: Task) -> dict[str, Any]:
        if self.folder is not None:
            (self.folder / f"{task.shard}.{os.getpid()}").touch()
        time.sleep(self.seconds)
        return record(task)


class Busy(Echo):
    """Computes instead of sleeping, without a break."""

    def write(self, task: Task) -> dict[str, Any]:
        end = time.monotonic() + self.seconds
        self.seconds, found = 0.0, super().write(task)
        while time.monotonic() < end:
            pass
        return found


class Deadly:
    """Ends its own process on one shard, a given number of times."""

    def __init__(self, folder: Path, shard: int, times: int, code: int) -> None:
        self.folder, self.shard, self.times, self.code = folder, shard, times, code

    def write(self, task: Task) -> dict[str, Any]:
        if task.shard == self.shard and len(list(self.folder.iterdir())) < self.times:
            (self.folder / str(os.getpid())).touch()
            if self.code < 0:
                os.kill(os.getpid(), -self.code)
            os._exit(self.code)
        return record(task)


class Particular(ValueError):
    """An exception that pickle can take apart but not put together."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file}, line {line}")


class Raises:
    """Raises the given error on shard 1."""

    def __init__(self, error: str) -> None:
        self.error = error

    def write(self, task: Task) -> dict[str, Any]:
        if task.shard != 1:
            return record(task)
        if self.error == "row":
            raise ValueError("row 7 is bad")
        if self.error == "disk":
            raise OSError(28, "No space left on device", "shard-000001.parquet")
        if self.error == "particular":
            raise Particular("corpus.txt", 12)
        if self.error == "lock":
            error = ValueError("with a lock")
            error.lock = threading.Lock()  # type: ignore[attr-defined]
            raise error
        return {"record": threading.Lock()}


class Surroundings:
    """Returns the state of the worker process."""

    def write(self, task: Task) -> dict[str, Any]:
        return {
            **record(task),
            "modules": sorted(sys.modules),
            "environment": dict(os.environ),
            "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        }


class FailsFirst:
    """Fails on shard 0; takes some seconds for any other, and then creates a file in `folder`."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def write(self, task: Task) -> dict[str, Any]:
        if task.shard == 0:
            raise ValueError("row 7 is bad")
        time.sleep(self.seconds)
        (self.folder / str(task.shard)).touch()
        return record(task)


class Stored:
    """Writes the payload to a file, or only pretends to."""

    def __init__(self, folder: Path, *, pretends: bool = False) -> None:
        self.folder, self.pretends = folder, pretends

    def write(self, task: Task) -> dict[str, Any]:
        name, payload = f"shard-{task.shard:06d}.parquet", task.parts[0].payload
        if not self.pretends:
            (self.folder / name).write_bytes(payload)
        return {"file": name, "bytes": len(payload)}
