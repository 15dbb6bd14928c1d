"""A lock that the kernel holds for a process, and lets go when that dies, however it dies.

The file says who holds it, for messages; that it is there means nothing.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from ..._explain import explain
from .whole import in_words

# File systems that know no locks say so in these ways.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK}


def try_lock(path: Path) -> int | None:
    r"""Locks a folder by a file in it, or refuses at once.

    Args:
        path (`Path`): the file, made if need be.

    Returns:
        `int`, the descriptor that holds the lock; `None` if the file was taken away before it could be locked.

    Raises:
        OSError: if another process, or another part of this one, holds it; if the file cannot be written.
    """
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock_now(opened)
    except OSError as error:
        if error.errno in _TAKEN:
            message = explain(
                f"the output folder {path.parent} is in use by another run{_holder(opened)}",
                got="two runs on one folder",
                fix="wait for it or stop it, or use another --output folder",
            )
            os.close(opened)
            raise in_words(message, error) from error
        if error.errno not in _NO_LOCKS:
            os.close(opened)
            if error.errno == errno.ESTALE:
                return None
            raise
        warnings.warn(
            f"{path.parent} is on a file system without locks: see to it that no second run uses it", stacklevel=3
        )
    if not same_file(opened, path):
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


def let_go(opened: int) -> None:
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


def same_file(opened: int, path: Path) -> bool:
    """Whether a descriptor is of the file that is there under this name now."""
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ESTALE}:  # on NFS, of a file that another machine took away
            return False
        raise
