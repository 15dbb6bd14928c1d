"""The folder a job writes to: one run at a time, every file whole or absent, nobody else's file touched.

What stands in the files is for `manifest`, `shard` and `card`.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from .._explain import explain, shorten

MANIFEST = "manifest.json"
CARD = "README.md"
REJECTED = "rejected.jsonl"

_LOCK = ".lock"
# What may lie here while a job runs, and after it was killed. The names are so particular that they can be only ours.
_SHARD = re.compile(r"shard-(\d{6,})\.parquet")
_REJECTED_PART = re.compile(r"\.rejected-(\d{6,})\.jsonl")
_ASIDE = re.compile(
    rf"\.({_SHARD.pattern}|{_REJECTED_PART.pattern}|{re.escape(MANIFEST)}|{CARD}|{REJECTED})"
    r"\.\d+-[0-9a-f]{8}\.aside"
)
# File systems that know no locks say so in these ways.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK}
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file may not grow further here (ulimit -f, or the file system)",
}
_SHUT = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "its permissions do not allow it",
    errno.EPERM: "its permissions do not allow it",
}


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


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    r"""A file that appears whole or not at all: written under another name, synced to disk, then renamed.

    Args:
        path (`Path`): where it goes. What is there is replaced, in one step.

    Yields:
        `Path` beside it, hidden, to write to. It is gone after an error.

    Raises:
        OSError: if the disk is full, if the folder cannot be written to or is gone; any other error as it comes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with written_whole(Path(folder, "a.txt")) as aside:
        ...         _ = aside.write_text("whole")
        ...     print([path.name for path in Path(folder).iterdir()])
        ['a.txt']
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.aside")
    try:
        yield aside
        _sync(aside, os.O_RDWR)
        aside.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and (message := _why(error, path)):
            raise _os_error(message, error) from error
        raise


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a loss of power, where folders can be synced at all."""
    if sys.platform == "win32":
        return
    try:
        _sync(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise


def _os_error(message: str, error: OSError) -> OSError:
    """An `OSError` that says these words alone, its number kept for those who look."""
    explained = OSError(message)
    explained.errno = error.errno
    return explained


def _why(error: OSError, path: Path) -> str | None:
    """What stopped a file from being written, in words; `None` where the error has to speak for itself."""
    if error.errno in _FULL:
        free = "unknown"
        with suppress(OSError):
            free = f"{shutil.disk_usage(path.parent).free:,}"
        return explain(
            f"{path} cannot be written: {_FULL[error.errno]}",
            got=f"{free} bytes free",
            fix="make room and run the same again; the shards that are finished are kept",
        )
    if error.errno in _SHUT and _is_about(error, path.parent):
        return explain(
            f"{path.parent} cannot be written to: {_SHUT[error.errno]}", got=error, fix="another --output folder"
        )
    if error.errno == errno.ENOENT and not path.parent.is_dir():
        return explain(
            f"{path} cannot be written: its folder is gone",
            got="a folder that was there when the run began",
            fix="run the same again, and leave the folder alone while it runs",
        )
    return None


def _is_about(error: OSError, folder: Path) -> bool:
    """Whether an error names a file in this folder, the folder itself or, while it is being made, one above."""
    if error.filename is None:
        return False
    named = Path(os.fsdecode(error.filename)).absolute()
    return named.parent == folder.absolute() or named in {folder.absolute(), *folder.absolute().parents}


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
                    self._lock = self._try_lock()
        except OSError as error:
            if error.filename is not None and (message := _why(error, self.path / _LOCK)):
                raise _os_error(message, error) from error
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
            if sys.platform != "win32" and _same_file(lock, self.path / _LOCK):
                (self.path / _LOCK).unlink()
        _let_go(lock)
        if self._made:
            with suppress(OSError):  # of a run that was refused nothing stays; a folder with files in it does
                self.path.rmdir()

    def _clear(self) -> None:
        """Removes the files that were broken off."""
        for path in self.path.iterdir():
            if _ASIDE.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _make(self) -> None:
        there = self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ValueError(
                explain(
                    f"the output {self.path} must be a folder", got=f"a file: {error.filename}", fix="another --output"
                )
            ) from error
        self._made = self._made or not there

    def _refuse_foreign(self) -> None:
        names = sorted(path.name for path in self.path.iterdir())
        if MANIFEST in names:
            return
        foreign = [name for name in names if name != _LOCK and not _ASIDE.fullmatch(name)]
        if foreign:
            more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
            raise ValueError(
                explain(
                    f"the output folder {self.path} holds other files, and no {MANIFEST} of an earlier run",
                    got=", ".join(foreign[:3]) + more,
                    fix="another --output folder, new or empty",
                )
            )

    def _try_lock(self) -> int | None:
        """The descriptor that holds the lock; `None` if the file was taken away before it could be locked."""
        path = self.path / _LOCK
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock_now(opened)
        except OSError as error:
            if error.errno in _TAKEN:
                message = explain(
                    f"the output folder {self.path} is in use by another run{_holder(opened)}",
                    got="two runs on one folder",
                    fix="wait for it or stop it, or use another --output folder",
                )
                os.close(opened)
                raise _os_error(message, error) from error
            if error.errno not in _NO_LOCKS:
                os.close(opened)
                raise
            warnings.warn(
                f"{self.path} is on a file system without locks: see to it that no second run uses it", stacklevel=3
            )
        if not _same_file(opened, path):
            os.close(opened)
            return None
        with suppress(OSError):  # a full disk: the lock holds, nameless
            os.ftruncate(opened, 0)
            os.write(opened, f"{os.getpid()} {socket.gethostname()}\n".encode())
        return opened


def _lock_now(opened: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(opened, 1 << 20, os.SEEK_SET)  # behind the text, which others have to read
        msvcrt.locking(opened, msvcrt.LK_NBLCK, 1)
        os.lseek(opened, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _let_go(opened: int) -> None:
    """Unlocks for every process that has this file open: one that was forked meanwhile may outlive this one."""
    if sys.platform != "win32":
        import fcntl

        with suppress(OSError):  # of a file system without locks
            fcntl.flock(opened, fcntl.LOCK_UN)
    os.close(opened)


def _holder(opened: int) -> str:
    with suppress(OSError, ValueError):
        pid, host = os.read(opened, 300).decode().split()
        return f" (process {int(pid)})" if host == socket.gethostname() else f" (process {int(pid)} on {host})"
    return ""


def _same_file(opened: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except FileNotFoundError:
        return False
