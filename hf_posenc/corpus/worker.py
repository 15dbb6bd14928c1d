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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from .._common.errors import explain

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # unless the user sets them


def main() -> None:
    """Run the tasks that the parent sends; each message is a pickle, and so is each answer."""
    answers, tasks = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the workers
    with suppress(OSError, ValueError, RuntimeError, AttributeError):  # the parent may have no standard error
        os.dup2(2, 1)  # the output of a library does not get among the answers
        faulthandler.enable()
    os.environ.update({**_ENVIRONMENT, **os.environ, "TOKENIZERS_PARALLELISM": "false"})
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(tasks, waiting), daemon=True).start()
    threading.Thread(target=_exit_without_parent, daemon=True).start()
    with suppress(ImportError):
        import nanotoken

        nanotoken.set_cache_entries(65_536)  # 22 MB in each worker; the default of 160 MB is slower
    function = waiting.get()
    while True:
        for answer in _answers(function, waiting.get()):
            pickle.dump(answer, answers)
            answers.flush()


def _receive(tasks: Any, waiting: queue.SimpleQueue[Any]) -> None:
    with suppress(EOFError, OSError):
        while True:
            waiting.put(pickle.load(tasks))
    os._exit(1)  # the parent closed the pipe or ended


def _exit_without_parent() -> None:
    # A fork of the parent keeps the pipe open, so the process id of the parent is compared as well.
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _answers(function: Callable[[Any], Iterator[Any]], task: Any) -> Iterator[tuple[str, Any]]:
    """Yield the results of a task, then its end or its error."""
    try:
        for result in function(task):
            yield "result", result
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
            yield "error", error
        except Exception:
            yield "error", RuntimeError(explain("a worker failed", got=f"{type(error).__name__}: {error}"))
        return
    yield "end", None
