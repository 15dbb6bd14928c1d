"""Checksums of files of any size, and what is wrong with a file that does not have the one it should.

Read in blocks; SHA-256, because that is what the Hugging Face hub shows for every large file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path

OnChecked = Callable[[int], None]


class _Counted:
    """A file that tells how much of it was read: `file_digest` reads it by these two methods."""

    def __init__(self, file: RawIOBase, on_checked: OnChecked) -> None:
        self._file = file
        self._on_checked = on_checked

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        count = self._file.readinto(buffer) or 0
        self._on_checked(count)
        return count


def sha256(path: Path, on_checked: OnChecked | None = None) -> str:
    r"""The SHA-256 of a file, as `sha256sum` prints it.

    Args:
        path (`Path`): the file.
        on_checked (callable, *optional*): is told the number of bytes of each block that was read.

    Returns:
        `str` of 64 hexadecimal digits.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     sha256(Path(file.name))[:16]
        'e3b0c44298fc1c14'
    """
    with path.open("rb", buffering=0) as file:
        read = file if on_checked is None else _Counted(file, on_checked)
        return hashlib.file_digest(read, "sha256").hexdigest()


def fault(path: Path, size: int | None, digest: str, on_checked: OnChecked | None = None) -> str | None:
    r"""What is wrong with a file, in words; `None` if it is as it was written.

    Args:
        path (`Path`): the file.
        size (`int`, *optional*): the bytes it should have.
        digest (`str`): the SHA-256 it should have.
        on_checked (callable, *optional*): see `sha256`.

    Returns:
        `str`, or `None`.

    Raises:
        OSError: if the file is there and may not be read: that is no reason to make it again.
    """
    try:
        if path.is_dir():
            return "is no file but a folder"
        found = path.stat().st_size
        if size is not None and found != size:
            return f"has {found:,} bytes, not {size:,} (broken off, or written by something else)"
        if sha256(path, on_checked) != digest:
            return "checksum differs (a bit flipped, or written by something else)"
    except FileNotFoundError:
        return "is missing"
    return None
