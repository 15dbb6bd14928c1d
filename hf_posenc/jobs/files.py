"""Input files: find, open and decompress them, and detect whether they changed since an earlier run.

Paths are local, or URLs that `fsspec` opens (`s3://`, `hf://`, `https://`). `text_files` and `tables` parse the
content.
"""

from __future__ import annotations

import bz2
import difflib
import glob
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

import fsspec
import pyarrow as pa
import xxhash

from .._common.errors import explain, value_error

Format = Literal["text", "json", "csv", "parquet", "arrow"]

_BY_ENDING: dict[str, Format] = {
    "txt": "text",
    "text": "text",
    "jsonl": "json",
    "ndjson": "json",
    "json": "json",
    "csv": "csv",
    "tsv": "csv",
    "parquet": "parquet",
    "pq": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
}
_COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "xz": "xz", "zst": "zstd", "lz4": "lz4"}
# Files that describe a data set and contain no rows.
_METADATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "readme.md", "readme.txt"}
_MANIFEST_OF_OURS = re.compile(rb'\s*\{\s*"written_by":\s*"hf-posenc"')

_BLOCK = 1 << 20


def format_of(name: str) -> tuple[Format | None, str | None]:
    r"""Return the format and the compression of a file, from the extensions of its name; `None` for each unknown one.

    Example:
        >>> format_of("a.txt"), format_of("pile/00.jsonl.zst"), format_of("README")
        (('text', None), ('json', 'zstd'), (None, None))
    """
    endings = name.replace("\\", "/").rsplit("/", 1)[-1].lower().split(".")[1:]
    compression = _COMPRESSIONS.get(endings[-1]) if endings else None
    endings = endings[:-1] if compression else endings
    return _BY_ENDING.get(endings[-1]) if endings else None, compression


def is_url(name: str) -> bool:
    """Return True if a name contains `://` and no local file or folder has that name."""
    return "://" in name and not Path(name).exists()


@dataclass(frozen=True)
class InputFile:
    r"""Input file of a job, on a local disk or at a URL; base class of `TextFile`, `ParquetFile` and `ArrowFile`.

    Args:
        name (`str`): path or URL, as the user gave it.
        kind (`str`): format of the content, such as `"jsonl"`.
        compression (`str`, *optional*): one of `"gzip"`, `"bz2"`, `"xz"`, `"zstd"`, `"lz4"`; `None` if not compressed.
    """

    name: str
    kind: str
    compression: str | None = None

    @property
    def path(self) -> Path | None:
        """Local path; `None` for a URL."""
        return None if is_url(self.name) else Path(self.name).expanduser()

    def open(self) -> IO[bytes] | Any:
        """Open the file for reading its stored bytes, which may be compressed."""
        try:
            return self.path.open("rb") if self.path is not None else filesystem(self.name)[0].open(self.name, "rb")
        except OSError as error:
            raise _open_error(self.name, error) from error

    def blocks(self, offset: int = 0) -> Generator[bytes]:
        """Yield the decompressed bytes of the file, from byte `offset` on, in blocks of up to 1 MiB.

        For a compressed file, `offset` must be 0. A damaged file gives the same blocks before the error in every run.
        """
        with self.open() as raw:
            raw.seek(offset)
            read = raw.read
            if self.compression in ("zstd", "lz4"):
                read = pa.CompressedInputStream(raw, self.compression).read
            elif self.compression is not None:
                opened: Any = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}[self.compression]
                read = opened(raw).read1  # returns all bytes before an error; `read` would lose them
            try:
                while block := read(_BLOCK):
                    yield block
            except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, OSError) as error:
                is_system = isinstance(error, TimeoutError | ConnectionError) or getattr(error, "errno", None)
                if self.compression is None or is_system:
                    raise
                words = str(error).strip() or type(error).__name__
                raise DamagedError(
                    f"cannot be read further as a {self.compression} file: it is cut off or damaged ({words})"
                ) from error

    def bytes(self) -> int:
        """Return the size of the stored file in bytes."""
        return int(self.stamp()[0])

    def fingerprint(self) -> dict[str, Any]:
        """Return JSON values that identify the content of the file in a later run: kind, size and digest.

        The digest covers up to 1 MiB each from the beginning, the middle and the end of the stored file.
        """
        digest, size = xxhash.xxh3_128(), self.bytes()
        with self.open() as file:
            for offset in (0, max(_BLOCK, (size - _BLOCK) // 2), max(2 * _BLOCK, size - _BLOCK)):
                file.seek(offset)
                digest.update(file.read(_BLOCK) if offset < size else b"")
        return {"kind": self.kind, "size": size, "digest": digest.hexdigest()}

    def stamp(self) -> list[Any]:
        """Return `[size, inode, mtime, ctime]` of the file in bytes and nanoseconds, to detect changes.

        `mtime` alone does not show every change, because copying and unpacking may set it to an old value. Only the
        operating system sets `ctime`. For a URL, inode and `ctime` are `None`; `mtime` is a `str`, or `None` if
        unknown.
        """
        if self.path is not None:
            try:
                found = self.path.stat()
            except OSError as error:
                raise _open_error(self.name, error) from error
            return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
        system, path = filesystem(self.name)
        size = system.size(path)
        if size is None:
            raise value_error(f"{self.name} has no known size", fix="download it, and encode the local copy")
        try:
            return [int(size), None, str(system.modified(path)), None]
        except NotImplementedError:
            return [int(size), None, None, None]


@dataclass(frozen=True)
class ByteRange:
    r"""Reference to consecutive bytes of a local file; a task holds it in place of the bytes of a long document.

    Args:
        file (`InputFile`): the file.
        offset, size (`int`): first byte and number of bytes, both counted in the decompressed file.
        digest (`str`): the xxh3_128 digest of the bytes, in hexadecimal.
    """

    file: InputFile
    offset: int
    size: int
    digest: str

    def blocks(self) -> Iterator[bytes]:
        """Read the bytes and yield them in blocks; a compressed file is decompressed from its beginning."""
        digest, is_stored = xxhash.xxh3_128(), self.file.compression is None
        first = 0 if is_stored else self.offset
        blocks, passed = self.file.blocks(self.offset if is_stored else 0), 0
        with closing(blocks), suppress(DamagedError):
            while passed < first + self.size and (block := next(blocks, b"")):
                some = block[max(first - passed, 0) : first + self.size - passed]
                passed += len(block)
                digest.update(some)
                yield some
        if digest.hexdigest() != self.digest:
            raise ValueError(changed(self.file.name, f"other content from byte {self.offset} on"))


def changed(name: str, got: str) -> str:
    """Return the error message for the input file `name`, which changed during a job; `got` describes the change."""
    fix = "wait until the file is complete; encode a copy, or into a new folder"
    return explain(f"{name} changed while it was read", got=got, fix=fix)


def recorded_names(names: Sequence[str]) -> list[str]:
    r"""Return the input names that manifest and shards store: absolute paths without the folders that they all share.

    These folders, such as `/home/me`, may be private. `file://` URLs count as paths; other names are not changed.

    Example:
        >>> recorded_names(["/home/me/en/a.txt", "/home/me/de/a.txt", "old/a.txt", "hf://datasets/me/a.txt"])
        ['en/a.txt', 'de/a.txt', 'old/a.txt', 'hf://datasets/me/a.txt']
    """
    paths = [Path(name.removeprefix("file://")) for name in names]
    folders = [path.parent.parts for path in paths if path.is_absolute()]
    shared = len(os.path.commonprefix(folders))  # noqa: RUF071 (compares parts; `commonpath` refuses two Windows drives)
    return [
        "/".join(path.parts[max(shared, 1) :]) if path.is_absolute() else name
        for name, path in zip(names, paths, strict=True)
    ]


class DamagedError(Exception):
    """Error raised if a compressed file cannot be decompressed further; its message is the reason."""


def filesystem(url: str) -> tuple[Any, str]:
    r"""Return the `fsspec` file system of a URL, and the path within that file system."""
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ImportError(
            explain(f"{url} needs another package", got=str(error), fix=f"pip install {error}")
        ) from error
    return system, path


def find_files(name: str, *, every: bool) -> tuple[list[str], list[str]] | None:
    r"""Find the files that a path, folder, glob pattern or URL refers to; subfolders of a folder are searched too."""
    if is_url(name):
        return _remote(name, every=every)
    path = Path(name).expanduser()
    if path.is_dir():
        inside = (os.path.join(name, os.path.relpath(one, path)) for one in _walk(path))  # noqa: PTH118
        return _data_files(name, inside, every=every)
    if path.exists():
        if not path.is_file():
            fix = "write it to a file first: a job that was interrupted reads its input again"
            raise value_error(f"{name} must be a file", got="a pipe or a device", fix=fix)
        return [name], []
    if glob.has_magic(name):
        matches = [Path(one) for one in sorted(glob.glob(str(path), recursive=True)) if Path(one).is_file()]  # noqa: PTH207
        files = _without_repeats(matches, path)
        if not files:
            got = "nothing but the output of earlier runs" if matches else None
            raise FileNotFoundError(
                explain(f"no file matches {name!r}", got=got, fix="check the folder and the pattern")
            )
        return [str(one) for one in files], []
    if _looks_like_path(name):
        raise FileNotFoundError(no_such_file(name))
    return None


def no_such_file(name: str) -> str:
    """Return the error message for a local path that does not exist; it suggests a file of similar name, if any."""
    path = Path(name).expanduser()
    if path.is_symlink():
        target = os.readlink(path)  # noqa: PTH115 (a Path would normalize it)
        return explain(f"{name} is a link to a file that does not exist", got=target, fix="repair or remove the link")
    names = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    folder = f"; {path.parent} exists" if path.parent.is_dir() else f", and no folder {path.parent}"
    return explain(
        f"there is no file {name}",
        got=f"no such file{folder}",
        fix=str(path.parent / near[0]) if near else "check the path",
    )


def _remote(url: str, *, every: bool) -> tuple[list[str], list[str]]:
    system, path = filesystem(url)
    if glob.has_magic(path):
        found = [system.unstrip_protocol(one) for one in sorted(system.glob(path))]
        if not found:
            raise FileNotFoundError(explain(f"no file matches {url!r}", fix="check the pattern"))
        return found, []
    if not url.startswith(("http://", "https://")) and system.isdir(path):
        return _data_files(url, map(system.unstrip_protocol, sorted(system.find(path))), every=every)
    if not system.exists(path):
        raise FileNotFoundError(explain(f"there is no file {url}", fix="check the URL"))
    return [url], []


def _data_files(folder: str, names: Iterable[str], *, every: bool) -> tuple[list[str], list[str]]:
    """Split the file names of a folder into two lists: files to read, and files that are skipped."""
    data: list[str] = []
    others: list[str] = []
    for name in names:
        (data if every or format_of(name)[0] is not None else others).append(name)
    if not data:
        raise value_error(
            f"{folder} has no data files",
            got=f"{len(others)} files, none with the ending of text, JSON, CSV, Parquet or Arrow",
            fix="format='text' (--format text) reads all files in the folder",
        )
    return data, others


def _walk(folder: Path) -> Iterator[str]:
    """Yield the paths of all input files below a folder, sorted; files of a folder come before its subfolders."""
    # A folder that is reached twice because of links is read once.

    def refuse(error: OSError) -> None:
        raise _open_error(str(error.filename), error) from error

    read: set[str] = set()
    for current, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        is_new = (real := os.path.realpath(current)) not in read
        read.add(real)
        folders[:] = [
            one for one in sorted(folders) if is_new and one[0] not in "._" and not _is_output(Path(current, one))
        ]
        for name in sorted(names) if is_new else ():
            if name[0] not in "._" and name.lower() not in _METADATA:
                yield os.path.join(current, name)  # noqa: PTH118


def _is_output(folder: Path) -> bool:
    """Return True if the folder is the output of a job: it has a `manifest.json` that this package wrote."""
    try:
        with (folder / "manifest.json").open("rb") as file:
            return _MANIFEST_OF_OURS.match(file.read(200)) is not None
    except OSError:
        return False


def _without_repeats(files: list[Path], pattern: Path) -> list[Path]:
    """Return the files that match `pattern`, without duplicates and without files in output folders of jobs."""
    top = next(folder for folder in pattern.parents if not glob.has_magic(str(folder)))
    is_output = cache(_is_output)
    shortest: dict[Path, Path] = {}
    for folder in sorted({file.parent for file in files}, key=lambda one: (len(one.parts), one)):
        shortest.setdefault(folder.resolve(), folder)
    kept = {
        folder
        for folder in shortest.values()
        if not any(is_output(one) for one in (folder, *folder.parents) if one != top and one.is_relative_to(top))
    }
    return [file for file in files if file.parent in kept]


def _looks_like_path(name: str) -> bool:
    """Return True if a name looks like a file path, and False if it may be a data set: `name` or `owner/name`."""
    known, compression = format_of(name)
    return (
        (known or compression) is not None
        or name.startswith((".", "/", "~"))
        or name.count("/") > 1
        or "\\" in name
        or not name.strip()
    )


def _open_error(name: str, error: OSError) -> OSError:
    """Return an error of the class of `error`, with a clear message that the file `name` cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(no_such_file(name))
    words = explain(f"{name} cannot be opened", got=error.strerror or str(error), fix="check its permissions")
    return type(error)(words)
