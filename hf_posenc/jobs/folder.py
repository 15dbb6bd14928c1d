"""The output folder: its file names, a lock against a second run, and file system errors in plain words.

`data/` holds only the shards, so that other libraries read it as one table; all other files are beside it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from .._explain import explain
from .._files import TEMPORARY, atomic_write
from .shard_file import is_shard

DATA = "data"
MANIFEST = "manifest.json"
CARD = "README.md"
REJECTED = "rejected.jsonl"
STATE = ".state.json"

_LOCK = ".lock"
_SHARD = re.compile(r"shard-(\d{6,})\.parquet")
_REJECTED_PART = re.compile(r"\.rejected-(\d{6,})\.jsonl")
_OWN = rf"({_SHARD.pattern}|{_REJECTED_PART.pattern}|{re.escape(MANIFEST)}|{CARD}|{REJECTED}|{re.escape(STATE)})"
_UNFINISHED = re.compile(rf"\.{_OWN}{TEMPORARY.pattern}")
# NFS renames a removed file that is still open to a name of this form.
_NFS = re.compile(r"\.nfs[0-9a-f]{8,}")
_TRIES = 20  # attempts to enter a folder that other runs create and remove

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file may not become larger (ulimit -f, or the file system)",
}
_READ_ONLY = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "its permissions do not allow it",
    errno.EPERM: "its permissions do not allow it",
}
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


def shard_name(shard: int) -> str:
    r"""Return the name of a shard, relative to the output folder.

    Example:
        >>> shard_name(3)
        'data/shard-000003.parquet'
    """
    return f"{DATA}/shard-{shard:06d}.parquet"


def rejected_name(shard: int) -> str:
    """Return the name of the file with the rejected documents of one shard, which exists until the job ends."""
    return f".rejected-{shard:06d}.jsonl"


def shard_number(name: str) -> int | None:
    r"""Return the number of a shard; `None` if no shard has that name.

    Example:
        >>> shard_number("data/shard-000003.parquet"), shard_number("data/shard-3.parquet")
        (3, None)
    """
    match = _SHARD.fullmatch(name.removeprefix(f"{DATA}/"))
    return int(match[1]) if match and name == shard_name(int(match[1])) else None


def shards_in(folder: Path) -> dict[int, Path]:
    """Return the files of an output folder that have the name of a shard, by number."""
    numbered = {shard_number(f"{DATA}/{path.name}"): path for path in _listing(folder / DATA)}
    return {shard: numbered[shard] for shard in sorted(one for one in numbered if one is not None)}


def rejected_in(folder: Path) -> dict[int, Path]:
    """Return the files of an output folder that hold the rejected documents of one shard, by number."""
    matches = ((_REJECTED_PART.fullmatch(path.name), path) for path in _listing(folder))
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def other_files(folder: Path, shards: set[int]) -> list[str]:
    """Return the visible files in `data/` that are not among these shards; libraries would read them as well."""
    own = {shard_name(shard) for shard in shards}
    names = sorted(f"{DATA}/{path.name}" for path in _listing(folder / DATA) if not path.name.startswith((".", "_")))
    return [name for name in names if name not in own]


def _listing(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    r"""Write a file with `atomic_write`, with error messages in plain words.

    Raises:
        OSError: if the disk is full, or the folder cannot be written to or is gone; other errors unchanged.
    """
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except OSError as error:
        raise explained(error, path) from error


def explained(error: OSError, path: Path) -> OSError:
    """Return the error with a message in plain words if the file system prevents writing `path`."""
    message = None
    if error.errno in _FULL:
        message = explain(
            f"{path} cannot be written: {_FULL[error.errno]}",
            got=_room(path.parent),
            fix="make room and run the same command again; finished shards are kept",
        )
    elif error.errno in _READ_ONLY and _names(error, path.parent):
        message = explain(
            f"{path.parent} cannot be written to: {_READ_ONLY[error.errno]}", got=error, fix="another --output folder"
        )
    elif error.errno == errno.ENOENT and not path.parent.is_dir():
        message = explain(
            f"{path} cannot be written: its folder is gone",
            got="a folder that existed when the run began",
            fix="run the same command again, and leave the folder alone while it runs",
        )
    if message is None:
        return error
    result = OSError(message)
    result.errno = error.errno
    return result


def _room(folder: Path) -> str:
    """Describe the free space of a file system, or its lack of inodes if that is the problem."""
    with suppress(OSError):
        if hasattr(os, "statvfs") and (state := os.statvfs(folder)).f_files and not state.f_favail:
            return f"no free inodes: the file system cannot hold more than {state.f_files:,} files"
        return f"{shutil.disk_usage(folder).free:,} bytes free"
    return "an unknown number of bytes free"


def _names(error: OSError, folder: Path) -> bool:
    """Return True if the error names a file in this folder, the folder itself, or one above it."""
    if error.filename is None:
        return False
    path = Path(os.fsdecode(error.filename)).absolute()
    return path.parent == folder.absolute() or path in {folder.absolute(), *folder.absolute().parents}


class Folder:
    r"""Context manager for the output folder of a running job: creates it, locks it, and removes unfinished files.

    The operating system releases the lock when the process ends, even if it is killed. A file system without locks
    gives a warning instead.

    Args:
        path (`str` or `Path`): a new or empty folder, or the output of an earlier run.

    Raises:
        ValueError: on entering, if the path is a file, or the folder holds other files and no earlier output.
        OSError: on entering, if another run uses the folder, or it cannot be written to.

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
        self.path = Path(path).absolute()  # workers may have another working directory
        self._lock = FileLock(self.path / _LOCK, thread_local=False)
        self._created = False

    def __enter__(self) -> Folder:
        for attempt in range(_TRIES):
            try:
                self._create()
                self._refuse_other_files()
                self._acquire()
                break
            except FileNotFoundError as error:  # another run has just removed the folder
                if attempt == _TRIES - 1:
                    raise explained(error, self.path / _LOCK) from error
                time.sleep(0.01 * attempt)
            except OSError as error:
                raise explained(error, self.path / _LOCK) from error
        try:
            self._remove_unfinished()
            self._create_data()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _create(self) -> None:
        existed = self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            if isinstance(error, FileExistsError) and not os.path.lexists(error.filename):
                return  # another run removed it; opening the lock fails, and the caller tries again
            raise ValueError(
                explain(
                    f"the output {self.path} must be a folder", got=f"a file: {error.filename}", fix="another --output"
                )
            ) from error
        self._created = self._created or not existed

    def _create_data(self) -> None:
        try:
            (self.path / DATA).mkdir(exist_ok=True)
        except OSError as error:
            raise explained(error, self.path / DATA) from error

    def _refuse_other_files(self) -> None:
        names = sorted(path.name for path in self.path.iterdir())
        # A listing may miss a file that is replaced at that moment, such as the manifest of another run.
        if MANIFEST in names or (self.path / MANIFEST).exists() or any(map(is_shard, shards_in(self.path).values())):
            return
        others = [name for name in names if not _may_be_in_a_new_folder(name)]
        if others == [DATA] and not any((self.path / DATA).iterdir()):
            return
        if others:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            raise ValueError(
                explain(
                    f"the output folder {self.path} holds other files, and no {MANIFEST} of an earlier run",
                    got=", ".join(others[:3]) + more,
                    fix="another --output folder, new or empty",
                )
            )

    def _acquire(self) -> None:
        path = self.path / _LOCK
        holder = ""
        with suppress(OSError, ValueError):
            pid, host = path.read_text(encoding="ascii").split()
            holder = f" (process {int(pid)}" + (")" if host == socket.gethostname() else f" on {host})")
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise OSError(
                explain(
                    f"the output folder {self.path} is in use by another run{holder}",
                    got="two runs on one folder",
                    fix="wait for it or stop it, or use another --output folder",
                )
            ) from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                raise
            warnings.warn(
                f"{self.path} is on a file system without locks: make sure that no second run uses it", stacklevel=3
            )
        with suppress(OSError):  # a full disk: the lock works without the text
            path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="ascii")

    def _remove_unfinished(self) -> None:
        for path in (*_listing(self.path), *_listing(self.path / DATA)):
            if _UNFINISHED.fullmatch(path.name):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise explained(error, path) from error

    def _leave(self) -> None:
        with suppress(OSError):  # the folder may be gone, or read-only by now
            self._remove_unfinished()
        with suppress(OSError):
            os.truncate(self.path / _LOCK, 0)
        with suppress(OSError):
            if not any((self.path / DATA).iterdir()):
                (self.path / DATA).rmdir()
        with suppress(OSError):  # a run that fails to start removes the folder that it created
            if self._created and {path.name for path in self.path.iterdir()} == {_LOCK}:
                (self.path / _LOCK).unlink()
                self.path.rmdir()
        self._lock.release()


def _may_be_in_a_new_folder(name: str) -> bool:
    """Return True for a file left by a run that was killed before it saved its first manifest."""
    return name in {_LOCK, STATE} or bool(_UNFINISHED.fullmatch(name) or _NFS.fullmatch(name))
