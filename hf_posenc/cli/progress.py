"""The progress of a job on stderr: a line that renews itself on a terminal, one line a minute in a file."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .._explain import counted, in_bytes
from ..jobs.progress import Progress as Callbacks
from .figures import short
from .terminal import Screen

_SECONDS_PER_LINE = 60.0  # in a file


class ProgressLine(Callbacks):
    r"""Callbacks of `jobs.encode` that show its progress and count its shards and tokens; use as a context manager.

    Args:
        screen (`Screen`): where to write.

    Example:
        >>> with ProgressLine(Screen()) as line:
        ...     line.start(bytes_total=1_000, bytes_done=500, shards_done=1)
        ...     line.shard({"read": 250, "tokens": 60, "rejected": 2})
        >>> line.finished, line.tokens, line.text
        (2, 60, '75%, 2 shards, 2 rejected')
    """

    def __init__(self, screen: Screen) -> None:
        self.finished = self.made = self.tokens = self.rejected = 0
        self.tokens_a_second = 0.0
        self.text = ""
        self._screen = screen
        self._total: int | None = None
        self._read = self._checked = 0
        self._started = self._written = time.monotonic()
        console = screen.passing
        # FORCE_COLOR makes rich take a file for a terminal.
        self._live = console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
        self._bar = Progress(
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._task = self._bar.add_task("getting ready", total=None)

    def __enter__(self) -> ProgressLine:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def message(self, text: str) -> None:
        """Write a note that stays on the screen."""
        self._screen.complain(f"note: {text}")

    def checked(self, size: int) -> None:
        """Count the bytes of finished shards that were read again."""
        self._checked += size
        self._show(f"{in_bytes(self._checked)} of finished shards checked")

    def start(self, *, bytes_total: int | None, bytes_done: int, shards_done: int) -> None:
        """Start the bar."""
        self._started = time.monotonic()
        self._total, self._read, self.finished = bytes_total, bytes_done, shards_done
        self._bar.reset(self._task, total=bytes_total, completed=bytes_done)
        self._show(counted(self.finished, "shard"))

    def shard(self, record: dict[str, Any]) -> None:
        """Count a finished shard."""
        self.finished += 1
        self.made += 1
        self._read += record["read"]
        self.tokens += record["tokens"]
        self.rejected += record["rejected"]
        self.tokens_a_second = self.tokens / max(time.monotonic() - self._started, 1e-3)
        rejected = [f"{self.rejected:,} rejected"] if self.rejected else []
        speed = [f"{short(self.tokens_a_second)} tokens/s"] if self._live else []
        share = [f"{min(100, 100 * self._read // self._total)}%"] if self._total else [in_bytes(self._read)]
        self._bar.update(self._task, completed=self._read)
        self.text = ", ".join([*share, counted(self.finished, "shard"), *rejected])
        self._show(", ".join([counted(self.finished, "shard"), *speed, *rejected]))

    def stop(self) -> None:
        """Remove the line."""
        self._bar.stop()

    def _show(self, text: str) -> None:
        self._bar.update(self._task, description=text)
        if not self._live and time.monotonic() - self._written >= _SECONDS_PER_LINE:
            self._written = time.monotonic()
            self._screen.passing.print(self.text or text, soft_wrap=True)
