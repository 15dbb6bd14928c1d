"""A fresh interpreter that serves as a worker: how it is started, and what it finds around it.

Nothing of the caller's script is in it, only the caller's module path and environment.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..._explain import explain

# The path before anything is imported, so that no file in the working directory is taken for a library; and the pipe
# put out of the way of print() before anything can print.
_START = """\
import os, sys
sys.path[:] = sys.argv[1:]
del sys.argv[1:]
answers_to = os.dup(1)
os.dup2(2, 1)
from hf_posenc.jobs.engines.worker import serve
serve(answers_to)
"""


def search_path() -> list[str]:
    r"""Where workers find modules: where this process does, whatever its working directory becomes.

    Returns:
        `list[str]`, with the folder of this package in any case.
    """
    found = []
    for entry in sys.path:
        with contextlib.suppress(OSError):  # relative to a working directory that has been removed
            found.append(os.path.abspath(entry) if isinstance(entry, str) else "")  # noqa: PTH100  (symlinks stay)
    here = str(Path(__file__).parents[3])
    return [*filter(None, found), *([] if here in found else [here])]


def command(path: Sequence[str]) -> list[str]:
    """Starts this Python again, with those of its options that decide what it can load and how it reads text."""
    if not sys.executable:
        raise RuntimeError(
            explain(
                "workers need a Python interpreter, and this program does not say where one is",
                fix="sys.executable = '/usr/bin/python3'",
            )
        )
    options = {
        "-P": True,
        "-E": sys.flags.ignore_environment,
        "-B": sys.dont_write_bytecode,
        "-s": sys.flags.no_user_site,
    }
    chosen = [option for option, on in options.items() if on]
    return [sys.executable, *chosen, "-X", f"utf8={sys.flags.utf8_mode}", "-c", _START, *path]


def environment() -> dict[str, str]:
    """The workers are what works at the same time: inside each, one thread a library, unless the user says so."""
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**single, **os.environ, "TOKENIZERS_PARALLELISM": "false"}
