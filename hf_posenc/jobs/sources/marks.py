"""How a job knows its inputs again: what a file was like when it was first read, and what has changed since.

Size and times of a file are looked at first; its content is read only when they cannot settle the matter.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from .streams import unreadable

_BLOCK = 1 << 20


class State(NamedTuple):
    r"""What changes when a file is written to, or another is put in its place.

    Args:
        size (`int`): bytes.
        changed (`int`): nanoseconds of the last change.
        inode (`int`): which file it is; not written down, because a copy is as good.
    """

    size: int
    changed: int
    inode: int


def state_of(path: Path, name: str) -> State:
    """What a file is like now, without a look inside."""
    found = _stat(path, name)
    return State(found.st_size, found.st_mtime_ns, found.st_ino)


def _stat(path: Path, name: str) -> os.stat_result:
    try:
        return path.stat()
    except OSError as wrong:
        raise unreadable(name, wrong) from wrong


def stamp_of(path: Path, name: str) -> list[int]:
    """Return the times of a file: anybody may set `mtime`, as copies and archives do; `ctime` is the system's own."""
    found = _stat(path, name)
    return [found.st_mtime_ns, found.st_ctime_ns]


def digest_of(path: Path, name: str) -> str:
    r"""Return the xxh3_128 digest of the head, middle and tail of a file; of all of it if it is small.

    Example:
        >>> len(digest_of(Path(__file__), "marks.py"))
        32
    """
    hashed = xxhash.xxh3_128()
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            middle, tail = max(_BLOCK, (size - _BLOCK) // 2), max(2 * _BLOCK, size - _BLOCK)
            for offset in (0, middle, tail):
                file.seek(offset)
                hashed.update(file.read(_BLOCK))
    except OSError as wrong:
        raise unreadable(name, wrong) from wrong
    return hashed.hexdigest()


def mark_of(path: Path, name: str, kind: str) -> dict[str, Any]:
    """Return the fingerprint of a file: JSON values, no times among them."""
    return {"name": name, "kind": kind, "size": _stat(path, name).st_size, "digest": digest_of(path, name)}


def difference(path: Path, name: str, kind: str, before: dict[str, Any]) -> str | None:
    r"""Return in words how a file differs from an earlier fingerprint; `None` if it does not.

    A file that was touched, copied or moved, but holds the same bytes, is the same.
    """
    was = before.get("name")
    called = name if was == name else f"{name} (before: {was})"
    if before.get("kind") != kind:
        return f"input {called}: read as {before.get('kind')} before, as {kind} now"
    try:
        size = _stat(path, name).st_size
    except OSError:
        return f"input {called}: is gone"
    if size != before["size"]:
        return f"input {called}: {before['size']} bytes became {size}"
    return None if digest_of(path, name) == before["digest"] else f"input {called}: {size} bytes with another content"
