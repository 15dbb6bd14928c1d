"""The output folder: its file names, a lock against a second run, and file system errors in plain words.

`data/` holds only the shards, so that other libraries read it as one table; all other files are next to `data/`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from .._common.errors import explain, value_error
from .._common.files import TEMPORARY, atomic_write
from ..tokenization.loading import to_files
from .shard_file import is_shard

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DATA = "data"
MANIFEST = "manifest.json"
CARD = "README.md"
REJECTED = "rejected.jsonl"
TOKENIZER = "tokenizer"
STATE = ".state.json"

_LOCK = ".lock"
_SHARD = re.compile(r"shard-(\d{6,})\.parquet")
_REJECTED_PART = re.compile(r"\.rejected-\d{6,}\.jsonl")
_OWN = rf"({_SHARD.pattern}|{_REJECTED_PART.pattern}|{re.escape(MANIFEST)}|{CARD}|{REJECTED}|{re.escape(STATE)})"
_UNFINISHED = re.compile(rf"\.{_OWN}{TEMPORARY.pattern}")

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
    r"""Return the path of a shard, given its number, relative to the output folder.

    Example:
        >>> shard_name(3)
        'data/shard-000003.parquet'
    """
    return f"{DATA}/shard-{shard:06d}.parquet"


def rejected_name(shard: int) -> str:
    """Return the name of the temporary file that holds the rejected documents of a shard until the job ends."""
    return f".rejected-{shard:06d}.jsonl"


def shard_number(name: str) -> int | None:
    r"""Return the number of a shard, given its path in the output folder; `None` for any other path.

    Example:
        >>> shard_number("data/shard-000003.parquet"), shard_number("data/shard-3.parquet")
        (3, None)
    """
    match = _SHARD.fullmatch(name.removeprefix(f"{DATA}/"))
    return int(match[1]) if match and name == shard_name(int(match[1])) else None


def data_files(folder: Path) -> set[str]:
    """Return the paths of the files in `data/`, relative to the output folder.

    Files whose names begin with `.` or `_` are left out.
    """
    return {f"{DATA}/{path.name}" for path in _listing(folder / DATA) if not path.name.startswith((".", "_"))}


def rejected_parts(folder: Path) -> list[Path]:
    """Return the paths of all temporary files with rejected documents; there is at most one for each shard."""
    return [path for path in _listing(folder) if _REJECTED_PART.fullmatch(path.name)]


def _listing(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    r"""Yield a temporary path to write to, and rename that file to `path` when the block ends without an error.

    This is `atomic_write` with clearer error messages.
    """
    with _plain_errors(path), atomic_write(path) as temporary:
        yield temporary


def write_file(path: Path, content: bytes) -> None:
    """Write `content` atomically to a file of the output folder, unless the file has this content already."""
    if not (path.is_file() and path.read_bytes() == content):
        with output_file(path) as temporary:
            temporary.write_bytes(content)


def write_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write the files of a tokenizer to `tokenizer/` in the output folder."""
    for name, content in to_files(tokenizer).items():
        path = folder / TOKENIZER / name
        with _plain_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """Replace an `OSError` of the `with` block by one with a clearer message; the block writes the file `path`."""
    try:
        yield
    except OSError as error:
        folder = path.parent
        if error.errno in _FULL:
            rule, got = f"{path} cannot be written: {_FULL[error.errno]}", _free_space(folder)
            fix = "make room and run the same command again; finished shards are kept"
        elif error.errno in _READ_ONLY and _concerns(error, folder):
            rule, got = f"{folder} cannot be written to: {_READ_ONLY[error.errno]}", str(error)
            fix = "another --output folder"
        elif error.errno == errno.ENOENT and not folder.is_dir():
            rule, got = f"{path} cannot be written: its folder is gone", "a folder that existed when the run began"
            fix = "run the same command again, and leave the folder alone while it runs"
        else:
            raise
        plain = OSError(explain(rule, got=got, fix=fix))
        plain.errno = error.errno
        raise plain from error


def _free_space(folder: Path) -> str:
    """Return the free space on the disk of a folder as text; if there are no free inodes, report that instead."""
    with suppress(OSError):
        if hasattr(os, "statvfs") and (state := os.statvfs(folder)).f_files and not state.f_favail:
            return f"no free inodes: the file system cannot hold more than {state.f_files:,} files"
        return f"{shutil.disk_usage(folder).free:,} bytes free"
    return "an unknown number of bytes free"


def _concerns(error: OSError, folder: Path) -> bool:
    """Return True if the path in `error` is `folder`, one of its parents, or a file in it; False if it has no path."""
    if error.filename is None:
        return False
    path = Path(os.fsdecode(error.filename)).absolute()
    return path.parent == folder.absolute() or path in {folder.absolute(), *folder.absolute().parents}


@contextmanager
def output_folder(path: Path) -> Iterator[None]:
    r"""Create the output folder, and lock it while the block runs, so that no second run writes to it.

    - Unfinished files of earlier runs that were killed are removed.
    - If the folder is new, and the block raises an error before a shard is written, the folder is removed again.
    - The operating system releases the lock when the process ends, even if it is killed. If the file system has no
      locks, a warning is issued instead.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent, output_folder(Path(parent, "out")):
        ...     print(Path(parent, "out").is_dir())
        True
    """
    is_new = not path.exists()
    try:
        with _plain_errors(path / _LOCK):
            path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        got = f"a file: {error.filename}"
        raise value_error(f"the output {path} must be a folder", got=got, fix="another --output") from error
    _refuse_other_files(path)
    lock = _acquired_lock(path / _LOCK)
    try:
        with _plain_errors(path / DATA):
            _remove_unfinished(path)
            (path / DATA).mkdir(exist_ok=True)
        yield
    except Exception:
        with suppress(OSError):
            if is_new and {file.name for file in path.iterdir()} <= {DATA, MANIFEST, STATE, _LOCK}:
                (path / DATA).rmdir()  # raises if it holds a shard
                for name in (MANIFEST, STATE, _LOCK):
                    (path / name).unlink(missing_ok=True)
                path.rmdir()
        raise
    finally:
        with suppress(OSError):  # the folder may be gone, or read-only by now
            _remove_unfinished(path)
        with suppress(OSError):
            os.truncate(path / _LOCK, 0)
        lock.release()


def _refuse_other_files(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    # A listing may miss a file that is replaced at that moment, such as the manifest of another run.
    if (folder / MANIFEST).exists() or any(is_shard(folder / name) for name in data_files(folder)):
        return
    if names and not (names == [DATA] and not data_files(folder)):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise value_error(
            f"the output folder {folder} holds other files, and no {MANIFEST} of an earlier run",
            got=", ".join(names[:3]) + more,
            fix="another --output folder, new or empty",
        )


def _acquired_lock(path: Path) -> FileLock:
    """Acquire the lock file `path` of an output folder and return the lock; raise `OSError` if another run holds it."""
    lock, holder = FileLock(path, thread_local=False), ""
    with suppress(OSError, ValueError):
        pid, host = path.read_text(encoding="ascii").split()
        holder = f" (process {int(pid)}" + (")" if host == socket.gethostname() else f" on {host})")
    try:
        with _plain_errors(path):
            lock.acquire(blocking=False)
    except Timeout:
        raise OSError(
            explain(
                f"the output folder {path.parent} is in use by another run{holder}",
                got="two runs on one folder",
                fix="wait for it or stop it, or use another --output folder",
            )
        ) from None
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        warnings.warn(
            f"{path.parent} is on a file system without locks: make sure that no second run uses it", stacklevel=4
        )
    with suppress(OSError):  # the disk may be full; the lock works without the text
        path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="ascii")
    return lock


def _remove_unfinished(folder: Path) -> None:
    for path in (*_listing(folder), *_listing(folder / DATA)):
        if _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)
