"""How a job knows its inputs again: what a file was like when it was first read, and what has changed since.

Size and times of a file are looked at first; its content is read only when they cannot settle the matter.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from .streams import unreadable

_BLOCK = 4 << 20


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


def _times(found: os.stat_result) -> dict[str, int]:
    """When a file was last changed. Anybody may set `mtime`, as copies and archives do; `ctime` is the system's own."""
    return {"mtime_ns": found.st_mtime_ns, "ctime_ns": found.st_ctime_ns}


def digest_of(path: Path, name: str) -> str:
    r"""xxh3_128 of the whole content.

    Example:
        >>> len(digest_of(Path(__file__), "marks.py"))
        32
    """
    hashed = xxhash.xxh3_128()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                hashed.update(block)
    except OSError as wrong:
        raise unreadable(name, wrong) from wrong
    return hashed.hexdigest()


def mark_of(path: Path, name: str, kind: str) -> dict[str, Any]:
    """What is written down about a file; JSON values."""
    found = _stat(path, name)
    return {"name": name, "kind": kind, "size": found.st_size, **_times(found), "digest": digest_of(path, name)}


def difference(path: Path, name: str, kind: str, before: dict[str, Any]) -> str | None:
    r"""What is different about a file since `before` was written down, in words; `None` when its content is the same.

    A file that was touched, copied or moved, but holds the same bytes, is the same.
    """
    was = before.get("name")
    called = name if was == name else f"{name} (before: {was})"
    if before.get("kind") != kind:
        return f"input {called}: read as {before.get('kind')} before, as {kind} now"
    try:
        found = _stat(path, name)
    except OSError:
        return f"input {called}: is gone"
    size = found.st_size
    if size != before["size"]:
        return f"input {called}: {before['size']} bytes became {size}"
    if was == name and all(before.get(key) == time for key, time in _times(found).items()):
        return None
    return None if digest_of(path, name) == before["digest"] else f"input {called}: {size} bytes with another content"
