"""Input files: find, open, decompress and identify them, on a local disk or wherever `fsspec` can read."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import xxhash

from .._common.errors import explain, option, value_error
from .._common.files import nearest_folder, no_such_file

Format = Literal["text", "json", "csv", "parquet", "arrow"]
StorageOptions = Mapping[str, Any]

_BY_ENDING: dict[str, Format] = {
    **dict.fromkeys(("txt", "text"), "text"),
    **dict.fromkeys(("jsonl", "ndjson", "json"), "json"),
    **dict.fromkeys(("csv", "tsv"), "csv"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
    **dict.fromkeys(("arrow", "feather"), "arrow"),
}
_COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "xz": "xz", "zst": "zstd", "lz4": "lz4"}
# Files that describe a data set and contain no rows.
_METADATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "readme.md", "readme.txt"}
_JOB_OF_OURS = re.compile(rb'\s*\{\s*"written_by":\s*"hf-posenc"')
_SAMPLE = 1 << 16  # bytes from the head, the middle and the tail of a local file that identify it


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


def without_secrets(name: str) -> str:
    r"""Return an address without user, password and query, which may hold keys.

    Example:
        >>> without_secrets("ftp://me:secret@host/a.txt"), without_secrets("https://host/a.txt?Signature=abc")
        ('ftp://host/a.txt', 'https://host/a.txt')
    """
    return re.sub(r"(https?://[^?#]*)[?#].*", r"\1", re.sub(r"://[^/@]*@", "://", name))


def recorded_names(names: Sequence[str]) -> list[str]:
    r"""Return the input names that the output stores: absolute paths without the folders that they all share.

    These folders, such as `/home/me`, may be private. `file://` URLs count as paths; addresses lose their secrets.

    Example:
        >>> recorded_names(["/home/me/en/a.txt", "/home/me/de/a.txt", "old/a.txt", "hf://datasets/me/a.txt"])
        ['en/a.txt', 'de/a.txt', 'old/a.txt', 'hf://datasets/me/a.txt']
    """
    paths = [Path(name.removeprefix("file://")) for name in names]
    folders = [path.parent.parts for path in paths if path.is_absolute()]
    shared = len(os.path.commonprefix(folders))  # noqa: RUF071 (compares parts; `commonpath` refuses two Windows drives)
    return [
        "/".join(path.parts[max(shared, 1) :]) if path.is_absolute() else without_secrets(name)
        for name, path in zip(names, paths, strict=True)
    ]


class DamagedError(Exception):
    """Error raised if a compressed file cannot be decompressed further; its message is the reason."""


@dataclass(frozen=True)
class InputFile:
    r"""Input file of a job, on a local disk or at an address.

    Args:
        name (`str`): path or address, as it is opened.
        kind (`str`): format of the content, such as `"jsonl"`.
        compression (`str`, *optional*): `"gzip"`, `"bz2"`, `"xz"`, `"zstd"` or `"lz4"`; `None` if not compressed.
        size (`int`, *optional*): bytes of the stored file; `None` if the server does not tell.
        can_seek (`bool`): False if the server sends the file only from its start.
        stamp (`int` or `str`, *optional*): time of the last change of a local file in nanoseconds, or ETag.
        recorded (`str`): name of the file in the output and in messages.
        options (mapping): storage options of `fsspec`; never printed or stored.
    """

    name: str
    kind: str
    compression: str | None = None
    size: int | None = None
    can_seek: bool = True
    stamp: int | str | None = None
    recorded: str = ""
    options: StorageOptions = field(default_factory=dict, repr=False)

    @property
    def path(self) -> Path | None:
        """Local path; `None` for an address."""
        return None if is_url(self.name) else Path(self.name).expanduser()

    @property
    def shown(self) -> str:
        """Name of the file in messages."""
        return without_secrets(self.name)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the stored bytes, which may be compressed; raise `ValueError` at the end if the file changed."""
        try:
            if self.path is not None:
                file: Any = self.path.open("rb")
            else:
                system, path = filesystem(self.name, self.options)
                file = system.open(path, "rb")
        except OSError as error:
            raise open_error(self.name, error) from error
        with file:
            before = os.fstat(file.fileno()) if self.path is not None else None
            self._check_unchanged(before)
            yield file
            if before is not None:
                self._check_unchanged(os.fstat(file.fileno()))

    def _check_unchanged(self, now: os.stat_result | None) -> None:
        """Raise `ValueError` if a local file is not as it was when the work was planned."""
        if now is not None and (now.st_size != self.size or self.stamp not in (None, now.st_mtime_ns)):
            sizes = f"{self.size} bytes became {now.st_size}"
            got = "it was written to or replaced" if now.st_size == self.size else sizes
            fix = "wait until the file is complete; encode a copy, or into a new folder"
            raise ValueError(explain(f"{self.shown} changed while it was read", got=got, fix=fix))

    def reader(self, raw: Any) -> Any:
        """Return a function `read(size)` of the decompressed bytes of the opened file `raw`.

        It raises `DamagedError` at the same byte in every run if the compressed file is damaged.
        """
        if self.compression is None:
            return raw.read
        if self.compression in ("zstd", "lz4"):
            read = pa.CompressedInputStream(raw, self.compression).read
        else:
            opened: Any = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}[self.compression]
            read = opened(raw).read1  # returns all bytes before an error; `read` would lose them

        def read_or_damage(size: int) -> bytes:
            try:
                return bytes(read(size))
            except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, OSError) as error:
                if isinstance(error, TimeoutError | ConnectionError) or getattr(error, "errno", None):
                    raise
                words = str(error).strip() or type(error).__name__
                raise DamagedError(
                    f"cannot be read further as a {self.compression} file: it is cut off or damaged ({words})"
                ) from error

        return read_or_damage

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the content: size, and a digest of samples of a local file or the ETag."""
        if self.path is None:
            return {"size": self.size, "etag": self.stamp}
        digest, size = xxhash.xxh3_128(), self.size or 0
        with self.open() as file:
            for offset in sorted({0, max(0, (size - _SAMPLE) // 2), max(0, size - _SAMPLE)}):
                file.seek(offset)
                digest.update(file.read(_SAMPLE))
        return {"size": size, "digest": digest.hexdigest(), "mtime": self.stamp}


def filesystem(url: str, options: StorageOptions) -> tuple[Any, str]:
    r"""Return the `fsspec` file system of a URL, and the path within that file system."""
    import fsspec  # only for addresses

    try:
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        from fsspec.registry import known_implementations

        protocol = url.partition("://")[0]
        package = known_implementations[protocol]["class"].partition(".")[0]  # "s3fs.S3FileSystem"
        fix = f"pip install {package}" if package != "fsspec" else f"the package that fsspec names for {protocol}://"
        raise ImportError(explain(f"{without_secrets(url)} needs another package", got=str(error), fix=fix)) from error
    return system, path


def check_path(name: str) -> None:
    """Raise `FileNotFoundError` for a local path that does not exist, and for a local pattern that no file matches.

    A name that may be a data set on the Hub, and an address, are not looked up.
    """
    path = Path(name).expanduser()
    if path.exists() or is_url(name):
        return
    if not glob.has_magic(name):
        if _looks_like_path(name):
            raise FileNotFoundError(no_such_file(name))
    elif path.parent.is_dir() and not glob.has_magic(path.name):  # the folder alone has brackets in its name
        raise FileNotFoundError(no_such_file(name))
    elif not _has_match(path):
        content, similar = nearest_folder(path)
        fix = shlex.quote(str(similar)) if similar is not None and _has_match(similar) else "check the pattern"
        raise FileNotFoundError(_no_match(name, str(path), os.path.isdir, got=content, fix=fix))


def _has_match(pattern: Path) -> bool:
    return any(map(os.path.isfile, glob.iglob(str(pattern), recursive=True)))  # noqa: PTH207


def find_files(name: str, *, every: bool, options: StorageOptions) -> tuple[list[InputFile], list[str]] | None:
    r"""Find the files that a path, folder, glob pattern or URL refers to; subfolders of a folder are searched too.

    Args:
        name (`str`): path, folder, pattern or URL.
        every (`bool`): True to return all files of a folder, also those with unknown extensions.
        options (mapping): storage options of `fsspec`.

    Returns:
        The files, sorted by name, and the names of the files of a folder that are skipped; `None` if `name` does not
        look like a file.
    """
    check_path(name)
    if is_url(name):
        return _remote(name, every=every, options=options)
    path = Path(name).expanduser()
    skipped: list[str] = []
    if path.is_dir():
        inside = (os.path.join(name, os.path.relpath(file, path)) for file in _walk(path))  # noqa: PTH118
        names, skipped = _data_files(name, inside, every=every)
    elif path.exists():
        if not path.is_file():
            fix = "write it to a file first: a job that was interrupted reads its input again"
            raise value_error(f"{name} must be a file", got="a pipe or a device", fix=fix)
        names = [name]
    elif glob.has_magic(name):
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True)) if Path(match).is_file()]  # noqa: PTH207
        top = next(folder for folder in path.parents if not glob.has_magic(str(folder)))
        names = [str(file) for file in _without_repeats(matches, top)]
        if not names:
            got = "nothing but the output of earlier runs"
            raise FileNotFoundError(_no_match(name, str(path), os.path.isdir, got=got))
    else:
        return None
    return [_local(file) for file in names], skipped


def _local(name: str) -> InputFile:
    try:
        status = Path(name).expanduser().stat()
    except OSError as error:
        raise open_error(name, error) from error
    return InputFile(name, "", size=status.st_size, stamp=status.st_mtime_ns)


def _remote(url: str, *, every: bool, options: StorageOptions) -> tuple[list[InputFile], list[str]]:
    system, path = filesystem(url, options)
    system.invalidate_cache()
    skipped: list[str] = []
    if glob.has_magic(path) and not system.exists(path):
        file_infos = dict(system.glob(path, detail=True))
        if not file_infos:
            raise FileNotFoundError(_no_match(without_secrets(url), path, system.isdir))
    elif not url.startswith(("http://", "https://")) and system.isdir(path):
        file_infos = dict(system.find(path, detail=True))
        names, skipped = _data_files(without_secrets(url), sorted(file_infos), every=every)
        file_infos = {name: file_infos[name] for name in names}
    else:
        try:
            file_infos = {path: system.info(path)}
        except FileNotFoundError:
            fix = "check the URL"
            raise FileNotFoundError(explain(f"there is no file {without_secrets(url)}", fix=fix)) from None
    files = []
    for file, info in sorted(file_infos.items()):
        stamp = next((str(info[key]) for key in ("ETag", "etag", "md5Hash", "LastModified") if info.get(key)), None)
        address = url if file == path else system.unstrip_protocol(file)
        can_seek = info.get("size") is not None and info.get("partial", True)
        files.append(InputFile(address, "", None, info.get("size"), can_seek, stamp, options=options))
    return files, skipped


def _data_files(folder: str, names: Iterable[str], *, every: bool) -> tuple[list[str], list[str]]:
    """Split the file names of a folder into two lists: files to read, and files that are skipped."""
    data: list[str] = []
    other_files: list[str] = []
    for name in names:
        (data if every or format_of(name)[0] is not None else other_files).append(name)
    if not data:
        raise value_error(
            f"{folder} has no data files",
            got=f"{len(other_files)} files, none with the ending of text, JSON, CSV, Parquet or Arrow",
            fix=f"{option('format', 'text')} reads all files in the folder" if other_files else "check the path",
        )
    return data, other_files


def _walk(folder: Path) -> Iterator[str]:
    """Yield the paths of all input files below a folder, sorted; files of a folder come before its subfolders."""

    def refuse(error: OSError) -> None:
        raise open_error(str(error.filename), error) from error

    folders_read: set[str] = set()  # a folder that is reached twice because of links is read once
    for current, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        is_new = (target := os.path.realpath(current)) not in folders_read
        folders_read.add(target)
        folders[:] = [
            subfolder
            for subfolder in sorted(folders)
            if is_new and subfolder[0] not in "._" and not _is_output(Path(current, subfolder))
        ]
        for name in sorted(names) if is_new else ():
            if name[0] not in "._" and name.lower() not in _METADATA:
                yield os.path.join(current, name)  # noqa: PTH118


def _is_output(folder: Path) -> bool:
    """Return True if the folder is the output of a job: it has a `job.json` that this package wrote."""
    try:
        with (folder / "job.json").open("rb") as file:
            return _JOB_OF_OURS.match(file.read(200)) is not None
    except OSError:
        return False


def _without_repeats(files: list[Path], top: Path) -> list[Path]:
    """Return the files without those that links repeat, and without those in output folders below `top`."""
    unique_files: dict[Path, Path] = {}
    for file in sorted(files, key=lambda path: (len(path.parts), path)):
        above = (parent for parent in file.parents if parent != top and parent.is_relative_to(top))
        if not any(map(_is_output, above)):
            unique_files.setdefault(file.parent.resolve() / file.name, file)
    return sorted(unique_files.values())


def _looks_like_path(name: str) -> bool:
    """Return True if a name looks like a file path, and False if it may be a data set: `name` or `owner/name`."""
    form, compression = format_of(name)
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or not name.strip()
    return (form or compression) is not None or is_path


def _no_match(
    pattern: str, path: str, is_folder: Callable[[str], bool], *, got: str | None = None, fix: str = "check the pattern"
) -> str:
    """Return the error message for a pattern without matches: a folder in it may have brackets in its name.

    `path` is the part of the pattern that `is_folder` takes.
    """
    folder = path
    while glob.has_magic(folder := folder.rpartition("/")[0]):
        if is_folder(folder):
            got = f"a folder {folder!r}, and its name is a pattern too"
            fix = f"{shlex.quote(pattern.replace(folder, glob.escape(folder), 1))}, as glob.escape(folder) writes it"
            break
    return explain(f"no file matches {pattern!r}", got=got, fix=fix)


def open_error(name: str, error: OSError) -> OSError:
    """Return an error of the class of `error`, with a clear message that the file `name` cannot be opened."""
    address = without_secrets(name)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(no_such_file(name) if not is_url(name) else explain(f"there is no file {address}"))
    words = explain(f"{address} cannot be opened", got=error.strerror or str(error), fix="check its permissions")
    return type(error)(words)
