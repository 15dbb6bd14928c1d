"""Atomic writes: a file is replaced as a whole, or stays unchanged.

Each write is atomic for one file only, not for several files together.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Suffix of temporary file names: a process id and a random number.
TEMPORARY = re.compile(r"\.\d+-[0-9a-f]{8}\.tmp")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    r"""Yield a temporary path beside `path`; when the block ends, sync that file to disk and rename it to `path`.

    Readers see the old file or the new one, never part of one, even if the process is killed or power fails. After an
    error the temporary file is removed and the old file is unchanged.

    Args:
        path (`Path`): the file to create or replace. Its folder must exist.

    Yields:
        `Path`: a hidden temporary file in the same folder, to write to.

    Raises:
        OSError: if the file cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_write(Path(folder, "a.txt")) as temporary:
        ...         _ = temporary.write_text("whole")
        ...     print([path.name for path in Path(folder).iterdir()])
        ['a.txt']
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        _sync(temporary, os.O_RDWR)
        temporary.replace(path)
        if sys.platform != "win32":
            _sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that a rename in it survives a power failure; do nothing if the file system cannot."""
    try:
        _sync(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
