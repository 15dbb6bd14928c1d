"""A worker process from inside: it makes a writer from what it is sent first, then writes a task at a time.

Started by `process` in a fresh interpreter; it never outlives its parent, not even when that is killed.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, Protocol

from ..._explain import explain

if TYPE_CHECKING:
    from ..job import Job

Tick = Callable[[int, int], None]
# What a worker says first. Whatever comes before it on the pipe was printed by others, such as a sitecustomize.
GREETING = b"\x00hf_posenc worker\x00\n"
_SECONDS_BETWEEN_TICKS = 0.1


class Writer(Protocol):
    """What a worker needs of the object that does the work."""

    def write(self, task: Any, tick: Tick | None) -> dict[str, Any]:
        """Does one task and returns its record; calls `tick(bytes, tokens)` with what is newly done as it goes."""


def shard_writer(job: Job) -> Writer:
    """The writer of shards; loaded here, so that the parent need not load what only workers use."""
    from ..shards.shard import ShardWriter

    return ShardWriter(job)


def serve(answers_to: int) -> None:
    """Works until told that there is no more, or until the parent is gone; does not return.

    Args:
        answers_to (`int`): file descriptor for the answers, which nothing else in this process writes to.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    faulthandler.enable()  # where a crash below Python happened: the parent shows the last words
    requests = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout = sys.stderr
    inbox: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_receive, args=(requests, inbox), daemon=True).start()
    Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    answers = _Answers(os.fdopen(answers_to, "wb"))
    answers.greet()
    _work(inbox, answers)
    sys.stderr.flush()
    os._exit(0)  # at once: taking down an interpreter full of threads takes time and may fail


def _receive(requests: IO[bytes], inbox: SimpleQueue[Any]) -> None:
    """Hands over what arrives, and ends the process when the other end of the pipe is closed.

    In a thread of its own, which is always about to read: the end of the parent is seen in the middle of a task.
    """
    while True:
        try:
            inbox.put(pickle.load(requests))  # a long payload is read into its place, without a copy
        except (EOFError, pickle.UnpicklingError, OSError):
            os._exit(1)
        except BaseException as error:  # what cannot be loaded is told; the pipe is of no use after it
            inbox.put(error)
            return


def _watch(parent: int) -> None:
    """Ends the process with its parent where the pipe does not tell: a fork of the parent holds it open as well."""
    try:
        gone = os.pidfd_open(parent)
    except (AttributeError, OSError):
        return  # not Linux, or forbidden: then the pipe alone tells
    select.select([gone], [], [])
    os._exit(1)


def _work(inbox: SimpleQueue[Any], answers: _Answers) -> None:
    """Answers every task with its record, or with what was raised, after which there is nothing more to do."""
    progress = _Progress(answers)
    try:
        writer = _made(inbox.get())
        while _one(writer, inbox, progress, answers):
            pass
    except BaseException as error:
        answers.send("raised", *packed(error))


def _one(writer: Writer, inbox: SimpleQueue[Any], progress: _Progress, answers: _Answers) -> bool:
    """The next task, if there is one. A function, so that the task is let go before the next one is waited for."""
    task = inbox.get()
    if task is None:
        return False
    if isinstance(task, BaseException):
        raise task
    answers.send("begun")
    record = writer.write(task, progress)
    progress.flush()
    answers.send("record", record)
    return True


def _made(made_from: bytes | BaseException) -> Writer:
    """The writer, from the pickled function that makes it."""
    if isinstance(made_from, BaseException):
        raise made_from
    try:
        make = pickle.loads(made_from)
    except (AttributeError, ImportError) as error:
        raise TypeError(
            explain(
                "a worker cannot load what the job is made of",
                got=f"{type(error).__name__}: {error}",
                fix="define classes of your own in a module that can be imported, not in the script or notebook itself",
            )
        ) from error
    writer: Writer = make()
    return writer


class _Answers:
    """The way to the parent. Where nobody is left to read, the process ends."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def greet(self) -> None:
        self._write(GREETING)

    def send(self, *answer: object) -> None:
        self._write(pickle.dumps(answer, 5))  # pickled first: what cannot be leaves nothing half written

    def _write(self, content: bytes) -> None:
        try:
            self._pipe.write(content)
            self._pipe.flush()
        except OSError:
            os._exit(1)


class _Progress:
    """Tells the parent what has been done, a few times a second however often it is called."""

    def __init__(self, answers: _Answers) -> None:
        self._answers = answers
        self._size = self._tokens = 0
        self._told = 0.0

    def __call__(self, size: int, tokens: int) -> None:
        self._size += size
        self._tokens += tokens
        if time.monotonic() - self._told >= _SECONDS_BETWEEN_TICKS:
            self.flush()

    def flush(self) -> None:
        """Tells what has not been told yet."""
        if self._size or self._tokens:
            self._answers.send("tick", self._size, self._tokens)
        self._size = self._tokens = 0
        self._told = time.monotonic()


def packed(error: BaseException) -> tuple[bytes | None, str, str]:
    """An exception as it travels: pickled if it survives that, what it says, and where it was raised."""
    where = "".join(traceback.format_exception(error))
    says = f"{type(error).__name__}: {error}"
    if not isinstance(error, Exception):
        return None, says, where  # SystemExit in a worker is no reason for the parent to exit
    try:
        pickled = pickle.dumps(error, 5)
        pickle.loads(pickled)  # an exception with arguments of its own often fails only here
    except Exception:
        return None, says, where
    return pickled, says, where
