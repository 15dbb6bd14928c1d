"""One run of a job in processes of its own, the ways to kill it, and a check that all its processes have ended.

Linux only: processes are found in /proc, by a variable in their environment.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

WAYS = ("parent", "worker", "both", "interrupt", "terminate")
GONE_WITHIN = 30.0  # seconds; they end within two on a quiet machine
_MARKER = "HF_POSENC_FAULTS"


class Run:
    r"""A process group and all processes that it starts.

    Args:
        command (sequence of `str`): what to run.
        log (`Path`): where its output goes; appended to.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.began = time.time()
        self._marker = secrets.token_hex(8)
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, _MARKER: self._marker, "HF_HUB_OFFLINE": "1"},
                cwd=Path(__file__).parents[3],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        """Process id of the parent."""
        return self._process.pid

    def alive(self) -> bool:
        """Return True if the parent still runs."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for the parent, and return its exit code."""
        return self._process.wait()

    def said(self) -> str:
        """Return the end of its output."""
        return self._log.read_text(errors="replace")[-2000:]

    def kill(self, way: str, chance: random.Random) -> str:
        """Kill in this way, or the parent if there is no worker yet; return the way that was taken."""
        if way == "interrupt":
            self.interrupt()
            return way
        if way == "terminate":
            _signal(self.pid, signal.SIGTERM)
            return way
        workers = self.workers()
        if way in ("worker", "both") and workers:
            _signal(chance.choice(workers), signal.SIGKILL)
        elif way != "parent":
            way = "parent"
        if way != "worker":
            _signal(self.pid, signal.SIGKILL)
        return way

    def interrupt(self) -> None:
        """Send Ctrl-C to the whole group, as a terminal does."""
        os.killpg(self.pid, signal.SIGINT)

    def workers(self) -> list[int]:
        """Return the processes that make shards at the moment."""
        return [pid for pid in self.processes() if pid != self.pid and _is_worker(pid)]

    def seconds_until_gone(self) -> float | None:
        """Return the seconds from now until the last process has ended; `None` if they are too many."""
        began = time.monotonic()
        while self.processes():
            if time.monotonic() - began > GONE_WITHIN:
                return None
            time.sleep(0.005)
        return time.monotonic() - began

    def processes(self) -> list[int]:
        """Return all running processes of the run, also those whose parent has ended."""
        marked = f"{_MARKER}={self._marker}".encode()
        return [pid for pid in _all() if marked in _read(pid, "environ") and _state(pid) != "Z"]


def _all() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # gone, or not ours
        return b""


def _state(pid: int) -> str:
    return _read(pid, "stat").rpartition(b") ")[2][:1].decode() or "Z"


def _is_worker(pid: int) -> bool:
    command = _read(pid, "cmdline")
    return b"hf_posenc.corpus.worker" in command or command.startswith(b"ray::")


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
