"""Atomic writes, and reads that are safe for files from anyone: of limited size, and from their own folder only.

Each write is atomic for one file only, not for several files together.
"""

from __future__ import annotations

import difflib
import errno
import glob
import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath

from .errors import explain, shorten, value_error

# Largest file that is read as a whole: well above the largest known tokenizers.
LARGEST = 2**28


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends, sync that file to disk and rename it to `path`.

    Readers see the old file or the new one, never part of one, even if the process is killed or power fails. After an
    error the temporary file is removed and the old file is unchanged.
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


@contextmanager
def write_output(path: Path) -> Iterator[Path]:
    """Do as `atomic_write`; an error of the system becomes an `OSError` with the path and a fix."""
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except OSError as error:
        got, fix = f"{path}: {error.strerror or error}", "an existing folder with write permission"
        raise OSError(explain("the file cannot be written", got=got, fix=fix)) from None


def check_suffix(path: str | os.PathLike[str], *formats: str) -> str:
    r"""Return the format of a file by its suffix; raise `ValueError` if it is not one of `formats`.

    Example:
        >>> check_suffix("decay.SVG", "png", "svg")
        'svg'
    """
    target = Path(path)
    suffix = target.suffix.lower().lstrip(".")
    if suffix not in formats:
        usual = f".{formats[0]}"
        raise value_error(
            f"the file name must end in {' or '.join(f'.{each}' for each in formats)}",
            got=repr(target.name),
            fix=repr(str(target.with_suffix(usual) if target.name else f"picture{usual}")),
        )
    return suffix


def read_whole(path: Path) -> bytes:
    """Return the bytes of a file; raise `ValueError` if it is larger than `LARGEST`, 256 MiB."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise value_error(f"{path} must have at most {LARGEST:,} bytes", got="a larger file")
    return content


def path_inside(folder: Path, name: object) -> Path:
    """Return `folder / name`; raise if this path could lie outside `folder`.

    Use it for names that were read from a file, such as a manifest, because anyone may have written the file.
    """
    path = PureWindowsPath(name) if isinstance(name, str) and "\0" not in name else None  # "/" and "\\" separate parts
    if path is None or path.anchor or ".." in path.parts:
        raise value_error("a file name must not lead out of its folder", got=shorten(name))
    return folder / str(name)


def is_path(name: str | os.PathLike[str]) -> bool:
    """Return True if `name` can only be a local path, because a name on the Hub is `name` or `owner/name`."""
    return re.match(r"[./~\\]|[A-Za-z]:", text := os.fspath(name)) is not None or text.count("/") > 1


def no_such_file(name: str) -> str:
    """Return the message for a path or pattern of no file: the names in the nearest folder that exists, and a fix.

    The fix is the path with the missing name replaced by the most similar one, if there is a file with it.
    """
    path = Path(name).expanduser()
    if path.is_symlink():
        target = os.readlink(path)  # noqa: PTH115 (a Path would normalize it)
        return explain(f"{name} is a link to a file that does not exist", got=target, fix="repair or remove the link")
    folder = next(parent for parent in path.parents if parent.is_dir())
    missing, *rest = path.relative_to(folder).parts
    names = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    similar = [str(folder.joinpath(near, *rest)) for near in difflib.get_close_matches(missing, names, n=1)]
    has_file = any(any(glob.iglob(each, recursive=True)) for each in similar)  # noqa: PTH207
    place = "the current folder" if folder == Path() else str(folder)
    got = f"{place} has {', '.join(names[:6])}{', ...' * (len(names) > 6)}" if names else f"{place} is empty"
    return explain(
        f"there is no file or folder {name}", got=got, fix=shlex.quote(similar[0]) if has_file else "check the path"
    )


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
