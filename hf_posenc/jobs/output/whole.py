"""Files that appear whole or not at all, and in words what kept one from being written.

The name aside is the only promise about what lies beside a file meanwhile: whoever owns the folder clears it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..._explain import explain
from ..._files import atomic_write

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
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except OSError as error:
        if message := why_not(error, path):
            raise in_words(message, error) from error
        raise


def in_words(message: str, error: OSError) -> OSError:
    """An `OSError` that says these words alone, its number kept for those who look."""
    explained = OSError(message)
    explained.errno = error.errno
    return explained


def why_not(error: OSError, path: Path) -> str | None:
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
