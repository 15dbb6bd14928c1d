"""A worker process of the local engine: reads tasks from standard input, and writes the records of their shards.

`python -m hf_posenc.corpus.worker` would import the package of the working directory, so the engine starts `main` with
the module path of the calling process. The process ends when its parent does.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from .._common.errors import explain

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # unless the user sets them


def main(parent: int) -> None:
    """Run the tasks that the process `parent` sends as pickles, and write the answers as pickles."""
    answers, tasks = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the workers
    with suppress(OSError, ValueError, RuntimeError, AttributeError):  # the parent may have no standard error
        os.dup2(2, 1)  # the output of a library does not get among the answers
        faulthandler.enable()
    os.environ.update({**_ENVIRONMENT, **os.environ, "TOKENIZERS_PARALLELISM": "false"})
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(tasks, waiting), daemon=True).start()
    if sys.platform != "win32":  # a virtual environment starts Python through another process there
        threading.Thread(target=_exit_without, args=(parent,), daemon=True).start()
    with suppress(ImportError):
        import nanotoken

        nanotoken.set_cache_entries(65_536)  # 22 MB in each worker; the default of 160 MB is slower
    function = waiting.get()
    while True:
        for answer in _answers(function, waiting.get()):
            pickle.dump(answer, answers)
            answers.flush()


def _receive(tasks: Any, waiting: queue.SimpleQueue[bytes]) -> None:
    # Each message is a pickle of bytes, so loading fails only where the parent closed the pipe or ended.
    try:
        while True:
            waiting.put(pickle.load(tasks))
    finally:
        os._exit(1)


def _exit_without(parent: int) -> None:
    # A fork of the parent keeps the pipe open, so the process id of the parent is compared as well.
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@lru_cache(maxsize=1)
def _unpickled(function: bytes) -> Any:
    return pickle.loads(function)


def _answers(function: bytes, task: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the results of a task, then its end or its error."""
    try:
        call, argument = _unpickled(function), pickle.loads(task)
    except Exception as error:
        rule = "a worker cannot import what the calling process uses"
        fix = "define classes in a module and import it; or workers=0, which starts no process"
        yield "error", RuntimeError(explain(rule, got=f"{type(error).__name__}: {error}", fix=fix))
        return
    try:
        for result in call(argument):
            yield "result", result
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
            yield "error", error
        except Exception:
            yield "error", RuntimeError(explain("a worker failed", got=f"{type(error).__name__}: {error}"))
        return
    yield "end", None
