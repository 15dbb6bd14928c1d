"""The phase of a run, derived from the files in its folder, so that the package needs no hooks for tests."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

# Files whose appearance marks a phase. Temporary files exist only while a file is written, synced and renamed.
SIGHTS = {
    "the job is described": r"job\.json",
    "a shard is written": r"\.shard-.*\.parquet\..*\.tmp",
    "a shard is renamed": r"shard-.*\.parquet",
    "the manifest is saved": r"\.manifest\.json\..*\.tmp",
    "rejected rows are written": r"\.shard-.*\.jsonl\..*\.tmp",
    "rejected rows are there": r"shard-.*\.jsonl",
    "the card is written": r"\.README\.md\..*\.tmp",
    "the card is there": r"README\.md",
}
BUSY = {"a shard is written", "a shard is renamed"}  # when there are workers
_CLOCK = 0.01  # seconds that the time of a file may lag behind
_POLL = 0.0003  # seconds; a rename after a sync takes about as long


def names_in(folder: Path) -> set[str]:
    """Return the names of the files in an output folder, `data/` and `rejected/`; none if there is no folder yet."""
    names: set[str] = set()
    for path in (folder, folder / "data", folder / "rejected"):
        with contextlib.suppress(FileNotFoundError):
            names.update(os.listdir(path))  # noqa: PTH208  (several times as fast as iterdir, and time matters here)
    return names


def wait_for(sight: str, times: int, folder: Path, alive: Callable[[], bool]) -> bool:
    """Wait until such files have newly appeared so many times; return False if the process ended before."""
    pattern = re.compile(SIGHTS[sight])
    seen = names_in(folder)
    checked = 0.0
    while True:
        now = names_in(folder)
        times -= sum(1 for name in now - seen if pattern.fullmatch(name))
        if times <= 0:
            return True
        seen = now
        if time.monotonic() > checked:
            if not alive():
                return False
            checked = time.monotonic() + 0.05
        time.sleep(_POLL)


def wait_long(seconds: float, alive: Callable[[], bool]) -> bool:
    """Wait for so many seconds; return False if the process ended before."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not alive():
            return False
        time.sleep(min(0.01, max(until - time.monotonic(), 0)))
    return alive()


def phases_of(folder: Path, since: float) -> list[str]:
    """Return the phases of a run that began at `since` (`time.time`), according to the files in its folder."""
    names = names_in(folder)
    new = {name for name in names if _changed(folder / name) >= since - _CLOCK}
    aside = {name.split(".")[1] for name in new if name.endswith(".tmp")}
    if "job.json" not in names:
        return ["the job is being described" if "job" in aside else "start-up"]
    found = []
    if any(name.startswith("shard-") for name in aside):
        found.append("a shard is written")
    if "manifest" in aside:
        found.append("the manifest is saved")
    if "README" in aside:
        found.append("the card is written")
    elif "README.md" in new:
        found.append("finished")
    if found:
        return found
    return ["between two steps" if any(name.startswith("shard-") for name in new) else "start-up"]


def _changed(path: Path) -> float:
    for one in (path, path.parent / "data" / path.name, path.parent / "rejected" / path.name):
        with contextlib.suppress(FileNotFoundError):
            return one.stat().st_mtime
    return 0.0
