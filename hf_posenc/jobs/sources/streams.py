"""The bytes of a file from any place on, decompressed on the way, with errors that name the file.

A plain file is entered by a jump, a compressed one by reading up to the place; only blocks are in memory, never a file.
"""

from __future__ import annotations

import lzma
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ..._explain import explain

_BLOCK = 4 << 20
_BROKEN = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)


class Stream:
    r"""A file, decompressed.

    Args:
        path (`str` or `Path`): the file.
        compression (`str`, *optional*): one of `kinds.COMPRESSIONS`.
        name (`str`): what messages call it.
        offset (`int`): where to begin, counted in decompressed bytes.

    Raises:
        OSError: if the file is not there or may not be read; a `ValueError` later if it turns out to be broken.

    Example:
        >>> stream = Stream(__file__, None, "streams.py", offset=3)
        >>> stream.read(9)
        b'The bytes'
        >>> stream.close()
    """

    def __init__(self, path: str | Path, compression: str | None, name: str, offset: int = 0) -> None:
        self.name = name
        self._compression = compression
        self._file = opened(path, compression, name)
        if compression is None:
            self._file.seek(offset)
            return
        while offset > 0:
            if not (block := self.read(min(offset, _BLOCK))):
                break
            offset -= len(block)

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only at the end of the file."""
        blocks: list[bytes] = []
        while size > 0:
            try:
                block = self._file.read(size)
            except _BROKEN as wrong:
                raise ValueError(self._broken(wrong)) from wrong
            if not block:
                break
            blocks.append(block)
            size -= len(block)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _broken(self, wrong: Exception) -> str:
        whole = "" if self._compression is None else f" as a whole {self._compression} file: it is cut off or damaged"
        return explain(
            f"{self.name} cannot be read{whole}",
            got=str(wrong).strip() or type(wrong).__name__,
            fix="fetch or write the file again, or leave it out",
        )


def opened(path: str | Path, compression: str | None, name: str) -> IO[bytes] | Any:
    r"""A file to read decompressed bytes from.

    Args:
        path (`str` or `Path`), compression (`str`, *optional*), name (`str`): as `Stream` takes them.

    Returns:
        A binary file, to be closed by the caller.
    """
    try:
        if compression is None:
            return Path(path).open("rb", buffering=0)
        if compression == "xz":
            return lzma.open(path)
        return pa.CompressedInputStream(pa.OSFile(str(path)), compression)
    except OSError as wrong:
        raise unreadable(name, wrong) from wrong


@contextmanager
def streamed(path: str | Path, compression: str | None, name: str) -> Iterator[Any]:
    r"""As `opened`, for a reader of Arrow's that reads ahead in a thread, and may be let go of at any time.

    Such a thread lives on for a while. It aborts the process if it needs Python once Python has ended, so it gets a
    file of Arrow's; that one is closed by whoever has it last, since its number may then be another file's.
    """
    if compression == "xz":
        with closing(_Outlived(opened(path, compression, name))) as file:
            yield file
    elif compression is not None:
        yield opened(path, compression, name)
    else:
        try:
            file = pa.OSFile(str(path))
        except OSError as wrong:
            raise unreadable(name, wrong) from wrong
        yield file


class _Outlived:
    """A file that only Python can read; whoever still reads ahead when it is closed is at the end, and waited for."""

    closed = False  # Arrow asks; `close` is for us
    _WAIT = 0.2  # seconds; a thread that has stopped by itself does not come

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._closing = False
        self._at_end = threading.Event()
        self._reading = threading.Lock()

    def read(self, size: int = -1) -> bytes:
        with self._reading:
            block = b"" if self._closing else self._file.read(size)
        if not block:
            self._at_end.set()
        return block

    def close(self) -> None:
        self._closing = True
        with self._reading:
            self._file.close()
        self._at_end.wait(self._WAIT)


def unreadable(name: str, wrong: OSError) -> OSError:
    """The same kind of error for a file that cannot be opened, in our words."""
    return type(wrong)(
        explain(
            f"{name} cannot be opened",
            got=wrong.strerror or str(wrong),
            fix="check the path and its permissions",
        )
    )
