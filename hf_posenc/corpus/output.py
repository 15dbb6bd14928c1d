"""The output of a job: a local folder, or an address that `fsspec` can write to.

A file appears complete or not at all. `data/` holds only the shards, so that other libraries read it as one table.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .._common.errors import explain, value_error
from .._common.files import LARGEST, TEMPORARY, atomic_write
from .files import StorageOptions, filesystem, without_secrets

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DATA, REJECTED, TOKENIZER = "data", "rejected", "tokenizer"
JOB, MANIFEST, CARD, LOCK = "job.json", "manifest.json", "README.md", ".lock"
_OWN = rf"shard-\d{{6,}}-\d{{3,}}\.(parquet|jsonl)|{re.escape(JOB)}|{re.escape(MANIFEST)}|{re.escape(CARD)}"
_UNFINISHED = re.compile(rf"\.({_OWN}){TEMPORARY.pattern}")

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
_IN_USE = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK}
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


@dataclass(frozen=True)
class Output:
    r"""Output of a job; names of files are relative to it, such as `"data/shard-000003-000.parquet"`.

    Args:
        address (`str`): absolute path of a local folder, or an address.
        options (mapping): storage options of `fsspec`; never printed or stored.
    """

    address: str
    options: StorageOptions = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, output: str | os.PathLike[str], options: StorageOptions) -> Output:
        """Return the output for a folder or an address, as the user gave it."""
        address = os.fspath(output)
        if re.match(r"file:/", address):
            address = address.removeprefix("file://").removeprefix("file:")
        if "://" not in address:
            if re.match(r"[A-Za-z][\w+.-]+:/", address):  # as in Path("s3://bucket")
                raise value_error("an address has two slashes", got=address, fix=f'"{address.replace(":/", "://", 1)}"')
            return cls(str(Path(address).expanduser().absolute()))  # workers may have another working directory
        return cls(address.rstrip("/"), options)

    def __str__(self) -> str:
        return without_secrets(self.address)

    @property
    def folder(self) -> Path | None:
        """Local folder; `None` for an address."""
        return None if "://" in self.address else Path(self.address)

    def files(self, folder: str = "") -> dict[str, int]:
        """Return names and sizes of the files in a folder of the output, without hidden files and subfolders."""
        sizes: dict[str, int] = {}
        if self.folder is not None:
            for path in (self.folder / folder).iterdir() if (self.folder / folder).is_dir() else ():
                if path.is_file() and not path.name.startswith((".", "_")):
                    sizes[path.name] = path.stat().st_size
        else:
            system, root = self._system()
            system.invalidate_cache()
            with suppress(FileNotFoundError):
                for info in system.ls(f"{root}/{folder}".rstrip("/"), detail=True):
                    name = info["name"].rstrip("/").rsplit("/", 1)[-1]
                    if info["type"] == "file" and not name.startswith((".", "_")):
                        sizes[name] = info["size"]
        return {f"{folder}/{name}" if folder else name: size for name, size in sorted(sizes.items())}

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """Open a file of the output for reading bytes."""
        if self.folder is not None:
            with (self.folder / name).open("rb") as file:
                yield file
        else:
            system, root = self._system()
            with system.open(f"{root}/{name}", "rb") as file:
                yield file

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; `None` if there is no such file. Raise `ValueError` above `LARGEST` bytes."""
        try:
            with self.open(name) as file:
                content = bytes(file.read(LARGEST + 1))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(content) > LARGEST:
            raise value_error(f"{self}/{name} must have at most {LARGEST:,} bytes", got="a larger file")
        return content

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Yield a local path to write to; when the block ends without an error, the file appears in the output."""
        if self.folder is not None:
            path = self.folder / name
            with plain_errors(path):
                path.parent.mkdir(exist_ok=True)
                with atomic_write(path) as temporary:
                    yield temporary
            return
        system, root = self._system()
        with tempfile.TemporaryDirectory(prefix="hf-posenc-") as folder:
            temporary = Path(folder, "file")
            with plain_errors(temporary):
                yield temporary
            system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
            system.put_file(str(temporary), f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file, unless it has this content already."""
        if self.read(name) != content:
            with self.new_file(name) as temporary:
                temporary.write_bytes(content)

    def create(self, name: str, content: bytes) -> bytes:
        """Write a file unless there is one, and return its content: that of the run that wrote it first."""
        if (before := self.read(name)) is not None:
            return before
        if self.folder is not None:
            self.write(name, content)
        else:
            system, root = self._system()
            system.makedirs(root, exist_ok=True)
            with suppress(FileExistsError):
                try:
                    system.pipe_file(f"{root}/{name}", content, mode="create")
                except (TypeError, NotImplementedError):  # a file system without conditional writes
                    self.write(name, content)
        return self.read(name) or content

    def remove(self, name: str) -> None:
        """Delete a file if there is one."""
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)
        else:
            system, root = self._system()
            with suppress(FileNotFoundError):
                system.rm_file(f"{root}/{name}")

    def _system(self) -> tuple[Any, str]:
        return filesystem(self.address, self.options)

    @contextmanager
    def locked(self, share: str) -> Iterator[None]:
        r"""Create a local folder, and lock it while the block runs, so that no second run writes the same shards.

        Runs of different parts may use the folder together; `share` is the part in the name of their lock. Unfinished
        files of killed runs are removed. If the block raises an error before it writes a shard to a new folder, the
        folder is removed again. An address has no lock: two runs write the same bytes.
        """
        if self.folder is None:
            yield
            return
        path, is_new = self.folder, not self.folder.exists()
        try:
            with plain_errors(path / JOB):
                try:
                    path.mkdir(parents=True, exist_ok=True)
                except FileNotFoundError as error:  # below a folder in which none can be made, such as /proc
                    rule, fix = f"the output folder {path} cannot be made", "another --output folder"
                    raise value_error(rule, got=str(error), fix=fix) from error
        except (FileExistsError, NotADirectoryError) as error:
            got = f"a file: {next(ancestor for ancestor in (path, *path.parents) if ancestor.exists())}"
            raise value_error(f"the output {path} must be a folder", got=got, fix="another --output") from error
        with _shared_lock(path / LOCK) if share else nullcontext():
            lock = _acquired_lock(path / f"{LOCK}{share}")
            try:
                if not share:
                    self._remove_unfinished(path)
                yield
            except Exception:
                with suppress(OSError):
                    if is_new and {file.name for file in path.iterdir()} <= {DATA, REJECTED, JOB, LOCK, LOCK + share}:
                        for folder in (DATA, REJECTED):
                            if (path / folder).exists():
                                (path / folder).rmdir()  # raises if it holds a file
                        for name in (JOB, LOCK, LOCK + share):
                            (path / name).unlink(missing_ok=True)
                        path.rmdir()
                raise
            finally:
                with suppress(OSError):
                    if not share:
                        self._remove_unfinished(path)
                with suppress(OSError):
                    os.truncate(path / f"{LOCK}{share}", 0)
                lock.release()

    @staticmethod
    def _remove_unfinished(folder: Path) -> None:
        for directory in (folder, folder / DATA, folder / REJECTED):
            for path in directory.iterdir() if directory.is_dir() else ():
                if _UNFINISHED.fullmatch(path.name):
                    with suppress(PermissionError):  # on Windows, another run has it open
                        path.unlink(missing_ok=True)


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
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
def _shared_lock(path: Path) -> Iterator[None]:
    """Hold a shared lock on the lock file `path` while the block runs, or raise `OSError` if a run holds it alone."""
    is_new = not path.exists()
    with plain_errors(path):
        file = path.open("a+b")
    with file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _IN_USE:
                raise _in_use(path) from None
            if error.errno not in _NO_LOCKS:
                raise
            if is_new:  # without locks, the mere file would be one for filelock
                path.unlink(missing_ok=True)
        yield


def _acquired_lock(path: Path) -> FileLock:
    """Acquire the lock file `path` of an output folder and return the lock; raise `OSError` if another run holds it."""
    lock, refused = FileLock(path, thread_local=False), _in_use(path)
    try:
        with plain_errors(path):
            lock.acquire(blocking=False)
    except Timeout:
        raise refused from None
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        warnings.warn(
            f"{path.parent} is on a file system without locks: make sure that no second run uses it", stacklevel=4
        )
    with suppress(OSError):  # the disk may be full; the lock works without the text
        path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="ascii")
    return lock


def _in_use(path: Path) -> OSError:
    """Return the error for a lock file that another run holds, whose process the file names."""
    folder, holder = path.parent, ""
    with suppress(OSError, ValueError):
        pid, host = path.read_text(encoding="ascii").split()
        holder = f" (process {int(pid)}" + (")" if host == socket.gethostname() else f" on {host})")
    if not holder and path.name == LOCK and any(file.stat().st_size for file in folder.glob(f"{LOCK}-*-of-*")):
        holder = " of a part (--part)"
    return OSError(
        explain(
            f"the output folder {folder} is in use by another run{holder}",
            got="two runs on one folder",
            fix="wait for it or stop it, or use another --output folder",
        )
    )
