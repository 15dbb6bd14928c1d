"""Progress and summary of a job: a bar on a terminal, one line per minute in a file, and the totals at the end."""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .._common.errors import counted, in_bytes
from ..corpus.options import Progress as Callbacks
from .terminal import Screen

_SECONDS_PER_LINE = 60.0  # between two lines of progress, if the output is a file


class ProgressLine(Callbacks):
    r"""Display of the progress of `corpus.encode`: a bar if stderr is a terminal, else one line per minute.

    It is a context manager, whose methods `corpus.encode` calls. The attribute `finished` is the number of shards that
    this and earlier runs finished, `tokens` the number of tokens of this run, and `text` the current line of progress.

    Args:
        screen (`Screen`): the output streams.

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
        self.text = self.library = ""
        self._screen = screen
        self._total: int | None = None
        self._read = self._checked = 0
        self._started = self._written = time.monotonic()
        console = screen.passing
        # With FORCE_COLOR, rich treats a file as a terminal.
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
        """Print a message above the progress bar."""
        self._screen.complain(f"note: {text}")

    def backend(self, name: str) -> None:
        """Store the name of the tokenization library for the summary."""
        self.library = name

    def checked(self, size: int) -> None:
        """Count `size` more bytes of finished shards that were compared with their checksums, and show the total."""
        self._checked += size
        self._show(f"{in_bytes(self._checked)} of finished shards checked")

    def start(self, *, bytes_total: int | None, bytes_done: int, shards_done: int) -> None:
        """Start the progress bar at the work of earlier runs: `bytes_done` bytes of input, and `shards_done` shards.

        `bytes_total` is the size of the input, where the bar ends. If it is `None`, no percentage is shown.
        """
        self._started = time.monotonic()
        self._total, self._read, self.finished = bytes_total, bytes_done, shards_done
        self._bar.reset(self._task, total=bytes_total, completed=bytes_done)
        self._show(counted(self.finished, "shard"))

    def shard(self, record: dict[str, Any]) -> None:
        """Add the numbers of a finished shard to the totals, and update the bar.

        `record` has the input bytes of the shard (`read`), its `tokens`, and its `rejected` documents.
        """
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

    def summary(self, totals: Mapping[str, int], output: str) -> dict[str, str]:
        r"""Return the totals of a job, and code that loads its shards, as a dict from name to printable text.

        The text of `tokens` includes the speed if this run finished a shard. The numbers of truncated and rejected
        documents are left out if they are 0.

        Example:
            >>> totals = {"documents": 3, "rows": 2, "tokens": 9, "shards": 1, "bytes": 2_000_000, "rejected": 1}
            >>> for name, value in ProgressLine(Screen()).summary(totals | {"cut": 0}, "out").items():
            ...     print(name, "-", value)
            documents - 3
            rows - 2
            tokens - 9
            shards - 1 in out, 2.0 MB, all by earlier runs
            rejected - 1 document, listed in out/rejected/
            read back - datasets.load_dataset("parquet", data_files="out/data/*.parquet", split="train")
        """
        speed = f", {short(self.tokens_a_second)} a second with {self.library}" if self.tokens_a_second else ""
        before = totals["shards"] - self.made
        earlier = (f", {before:,} of them by earlier runs" if self.made else ", all by earlier runs") if before else ""
        facts = {
            "documents": f"{totals['documents']:,}",
            "rows": f"{totals['rows']:,}",
            "tokens": f"{totals['tokens']:,}{speed}",
            "shards": f"{totals['shards']:,} in {output}, {in_bytes(totals['bytes'])}{earlier}",
        }
        if totals["cut"]:
            facts["truncated"] = counted(totals["cut"], "document")
        if totals["rejected"]:
            facts["rejected"] = f"{counted(totals['rejected'], 'document')}, listed in {output}/rejected/"
        pattern = json.dumps(f"{glob.escape(output)}/data/*.parquet", ensure_ascii=False)  # also a valid Python string
        facts["read back"] = f'datasets.load_dataset("parquet", data_files={pattern}, split="train")'
        return facts

    def _show(self, text: str) -> None:
        self._bar.update(self._task, description=text)
        if not self._live and time.monotonic() - self._written >= _SECONDS_PER_LINE:
            self._written = time.monotonic()
            self._screen.passing.print(self.text or text, soft_wrap=True)


def short(number: float) -> str:
    r"""Format a number with about three digits and the unit k, M or G.

    Example:
        >>> short(999), short(12_345), short(1_234_567)
        ('999', '12.3k', '1.23M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"
