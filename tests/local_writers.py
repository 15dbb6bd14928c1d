"""Writers that do odd things, for the tests of the local engine: worker processes load them from here by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_posenc.jobs.task import Cursor, Part, Task


def task(shard: int, payload: bytes = b"") -> Task:
    """A small task with one part."""
    part = Part("corpus.txt", "lines", 10 * shard + 1, payload)
    return Task(shard, (part,), Cursor(0, shard, shard), Cursor(0, shard + 1, shard + 1), len(payload))


def tasks(number: int, size: int = 3) -> Iterator[Task]:
    """So many of them, each with a payload of its own."""
    for shard in range(number):
        yield task(shard, bytes([shard % 251]) * size)


def record(task: Task) -> dict[str, Any]:
    """Which task it was, in which process, and what has arrived."""
    payload = task.parts[0].payload
    return {"shard": task.shard, "pid": os.getpid(), "size": len(payload), "ends": payload[-3:]}


class Echo:
    """Takes `seconds` for a task, and tells in `folder` when it begins."""

    def __init__(self, folder: Path | None = None, seconds: float = 0.0, *, busy: bool = False) -> None:
        self.folder, self.seconds, self.busy = folder, seconds, busy

    def write(self, task: Task, tick: Any) -> dict[str, Any]:
        if self.folder is not None:
            (self.folder / f"{task.shard}.{os.getpid()}").touch()
        until = time.monotonic() + self.seconds
        while self.busy and time.monotonic() < until:
            pass
        time.sleep(max(0.0, until - time.monotonic()))
        tick(task.size, 2)
        return record(task)


class Deadly:
    """On one shard it ends its own process, as often as told, after having done half of the work."""

    def __init__(self, folder: Path, shard: int, times: int, how: int) -> None:
        self.folder, self.shard, self.times, self.how = folder, shard, times, how

    def write(self, task: Task, tick: Any) -> dict[str, Any]:
        tick(task.size // 2, 1)
        if task.shard == self.shard and len(list(self.folder.iterdir())) < self.times:
            (self.folder / str(os.getpid())).touch()
            time.sleep(0.15)  # so that the next tick is told at once
            tick(1, 0)
            print("nothing but these last words", file=sys.stderr, flush=True)
            if self.how < 0:
                os.kill(os.getpid(), -self.how)
            os._exit(self.how)
        tick(task.size - task.size // 2, 1)
        return record(task)


class Particular(ValueError):
    """An exception with arguments of its own, which pickle can take apart but not put together."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file}, line {line}")


class BadRow(ValueError):
    """One that keeps what it was given."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.row = 7


class Raises:
    """Raises what it is told to, on shard 1."""

    def __init__(self, what: str) -> None:
        self.what = what

    def write(self, task: Task, tick: Any) -> dict[str, Any]:
        if task.shard != 1:
            return record(task)
        if self.what == "row":
            raise BadRow("row 7 is bad")
        if self.what == "disk":
            raise OSError(28, "No space left on device", "shard-000001.parquet")
        if self.what == "pipe":
            raise BrokenPipeError(32, "of somebody else")
        if self.what == "particular":
            raise Particular("corpus.txt", 12)
        if self.what == "lock":
            error = ValueError("with a lock")
            error.lock = threading.Lock()  # type: ignore[attr-defined]
            raise error
        if self.what == "exit":
            sys.exit("enough")
        return {"record": threading.Lock()}


class Talks:
    """Prints by every way there is, and reads what is typed."""

    def write(self, task: Task, tick: Any) -> dict[str, Any]:
        print(f"printed {task.shard}")
        print("to the first stdout", file=sys.__stdout__, flush=True)
        os.write(1, b"written to 1\n")
        subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
        return {**record(task), "typed": sys.stdin.read()}


class Mute:
    """Never gets to work."""

    def __init__(self) -> None:
        raise ImportError("this writer needs a library that is not there")


def mute() -> Mute:
    """Makes one, in the worker."""
    return Mute()


class Surroundings:
    """What a worker finds around it."""

    def write(self, task: Task, tick: Any) -> dict[str, Any]:
        return {
            **record(task),
            "modules": sorted(sys.modules),
            "path": list(sys.path),
            "environment": dict(os.environ),
            "interrupt": signal.getsignal(signal.SIGINT),
        }
