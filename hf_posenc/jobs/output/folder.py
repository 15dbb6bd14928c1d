"""The folder a job writes to: one run at a time, every file whole or absent, nobody else's file touched.

What stands in the files is for `manifest`, `shard` and `card`.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..._explain import explain, shorten
from ..._files import TEMPORARY
from .lock import let_go, same_file, try_lock
from .whole import in_words, why_not, written_whole

__all__ = [
    "CARD",
    "MANIFEST",
    "REJECTED",
    "Folder",
    "is_shard_name",
    "rejected_in",
    "rejected_name",
    "shard_name",
    "shard_number",
    "shards_in",
    "written_whole",
]

MANIFEST = "manifest.json"
CARD = "README.md"
REJECTED = "rejected.jsonl"

_LOCK = ".lock"
# What may lie here while a job runs, and after it was killed. The names are so particular that they can be only ours.
_SHARD = re.compile(r"shard-(\d{6,})\.parquet")
_REJECTED_PART = re.compile(r"\.rejected-(\d{6,})\.jsonl")
_BROKEN_OFF = re.compile(
    rf"\.({_SHARD.pattern}|{_REJECTED_PART.pattern}|{re.escape(MANIFEST)}|{CARD}|{REJECTED}){TEMPORARY.pattern}"
)
# What is left by name of a file that was removed while a process had it open, such as the lock, on NFS.
_NFS = re.compile(r"\.nfs[0-9a-f]{8,}").fullmatch


def shard_name(shard: int) -> str:
    """The file of a shard: `shard-000003.parquet`."""
    return f"shard-{shard:06d}.parquet"


def shard_number(name: str) -> int:
    r"""The number of a shard, from the name of its file.

    Raises:
        ValueError: if it is not named like one.

    Example:
        >>> shard_number(shard_name(3))
        3
    """
    if (match := _SHARD.fullmatch(name)) is None:
        raise ValueError(explain("a shard must be named like one", got=shorten(name), fix=shard_name(0)))
    return int(match[1])


def is_shard_name(name: str) -> bool:
    """Whether a file of this name is a shard."""
    return _SHARD.fullmatch(name) is not None


def rejected_name(shard: int) -> str:
    """Where a worker leaves the rejected rows of a shard until the job ends: `.rejected-000003.jsonl`."""
    return f".rejected-{shard:06d}.jsonl"


def shards_in(folder: Path) -> dict[int, Path]:
    """The files in a folder that are named like shards, by number."""
    return _numbered(folder, _SHARD)


def rejected_in(folder: Path) -> dict[int, Path]:
    """The files in a folder that hold the rejected rows of one shard, by number."""
    return _numbered(folder, _REJECTED_PART)


def _numbered(folder: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    found = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


class Folder:
    r"""The output folder while a job runs: made if need be, locked against a second run, cleared of broken-off files.

    The kernel holds the lock for this process and lets go when it dies, however it dies. A file system that knows no
    locks gets a warning instead.

    Args:
        path (`str` or `Path`): where the shards go. It may be absent, empty, or hold an earlier run of such a job.

    Raises:
        ValueError: on entering, if there is a file in its place, or if other things are in it and no manifest.
        OSError: on entering, if another run uses it, or if it cannot be written to.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with Folder(Path(parent, "out")) as folder:
        ...         print(folder.path.name, folder.path.is_dir())
        ...     print(folder.path.exists())  # nothing was written
        out True
        False
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()  # workers may stand elsewhere
        self._made = False
        self._lock: int | None = None

    def __enter__(self) -> Folder:
        try:
            # Whoever leaves takes the lock's file, and an empty folder, away: then there is none, or the file that was
            # locked here is no longer the one that others see, and it is tried again.
            while self._lock is None:
                self._make()
                with suppress(FileNotFoundError):
                    self._refuse_foreign()
                    self._lock = try_lock(self.path / _LOCK)
        except OSError as error:
            if error.filename is not None and (message := why_not(error, self.path / _LOCK)):
                raise in_words(message, error) from error
            raise
        try:
            self._clear()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        with suppress(OSError):  # the folder may be gone, or no longer ours to write to
            self._clear()  # of workers that were stopped
        with suppress(OSError):
            if sys.platform != "win32" and same_file(lock, self.path / _LOCK):
                (self.path / _LOCK).unlink()
        let_go(lock)
        if self._made:
            with suppress(OSError):  # of a run that was refused nothing stays; a folder with files in it does
                self.path.rmdir()

    def _clear(self) -> None:
        """Removes the files that were broken off."""
        for path in self.path.iterdir():
            if _BROKEN_OFF.fullmatch(path.name):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise in_words(why_not(error, path) or str(error), error) from error

    def _make(self) -> None:
        there = self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            if isinstance(error, FileExistsError) and _is_folder_or_gone(error.filename):
                return  # another run, leaving, took it away just now, or made it again
            raise ValueError(
                explain(
                    f"the output {self.path} must be a folder", got=f"a file: {error.filename}", fix="another --output"
                )
            ) from error
        self._made = self._made or not there

    def _refuse_foreign(self) -> None:
        names = sorted(path.name for path in self.path.iterdir())
        # A listing need not show a file that is renamed over another meanwhile, as the manifest of another run is.
        if MANIFEST in names or (self.path / MANIFEST).exists():
            return
        foreign = [name for name in names if name != _LOCK and not _BROKEN_OFF.fullmatch(name) and not _NFS(name)]
        if foreign:
            more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
            raise ValueError(
                explain(
                    f"the output folder {self.path} holds other files, and no {MANIFEST} of an earlier run",
                    got=", ".join(foreign[:3]) + more,
                    fix="another --output folder, new or empty",
                )
            )


def _is_folder_or_gone(path: str) -> bool:
    return Path(path).is_dir() or not os.path.lexists(path)
