"""Shard files: Parquet files that are hashed while they are written, with a record in the footer.

The footer holds the statistics of the shard and the settings of its job, so that a lost manifest can be rebuilt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .._explain import explain

FORMAT_VERSION = 2  # of shards and manifest
_RECORD, _DIGEST = b"hf_posenc", b"hf_posenc_sha256"  # keys in the footer
_BLOCK = 1 << 20

OnRead = Callable[[int], None]


class ShardFile:
    r"""Writer of one Parquet file: tables as row groups, then the record of the shard in the footer.

    Args:
        path (`Path`): the file to write.
        schema (`pyarrow.Schema`): the columns.
        use_dictionary (`list` of `str`): columns to encode with a dictionary.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path, table = Path(folder, "a.parquet"), pa.table({"length": [3, 4]})
        ...     with ShardFile(path, table.schema, use_dictionary=[]) as shard:
        ...         shard.write(table)
        ...         written = shard.finish({"rows": 2}, settings={})
        ...     record, settings = read_record(path)
        ...     record == written, record["rows"]
        (True, 2)
    """

    def __init__(self, path: Path, schema: pa.Schema, *, use_dictionary: list[str]) -> None:
        self._file = _HashedFile(path)
        # Token ids spread over the whole vocabulary: a dictionary of them costs more than it saves, and zstd compresses
        # them to a third.
        self._writer = pq.ParquetWriter(
            self._file, schema, compression="zstd", compression_level=1, use_dictionary=use_dictionary
        )

    def __enter__(self) -> ShardFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(Exception):  # after an error; `finish` has closed it otherwise
            self._writer.close()
        with suppress(OSError) if kind is not None else nullcontext():
            self._file.close()

    def write(self, table: pa.Table) -> None:
        """Write a table as one row group."""
        self._writer.write_table(table, row_group_size=len(table))

    def finish(self, record: Mapping[str, Any], *, settings: Mapping[str, Any]) -> dict[str, Any]:
        r"""Write the footer.

        Args:
            record (mapping of JSON values): the figures of the shard.
            settings (mapping of JSON values): the settings of the job.

        Returns:
            `dict`: the record, with the size (`bytes`) and the `sha256` of the whole file.
        """
        content = {"format_version": FORMAT_VERSION, "size": self._file.size, "record": record, "settings": settings}
        text = json.dumps(content).encode()
        digest = self._file.sha256.copy()
        digest.update(text)
        self._writer.add_key_value_metadata({_RECORD: text, _DIGEST: digest.hexdigest().encode()})
        self._writer.close()
        return {**record, "bytes": self._file.size, "sha256": self._file.sha256.hexdigest()}


class _HashedFile:
    """A binary file for `ParquetWriter` that counts and hashes the bytes written to it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self.sha256 = hashlib.sha256()
        self.size = 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_record(path: Path, on_read: OnRead | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    r"""Read a whole shard, and return its record if the file is intact.

    Args:
        path (`Path`): the shard.
        on_read (callable, *optional*): called with the number of bytes of each block.

    Returns:
        `tuple` of two `dict`: the record, as `ShardFile.finish` returned it, and the settings of the job.

    Raises:
        ValueError: if the file is not a shard of this format, or was changed.
    """
    content, digest = read_footer(path)
    sha256, data = hashlib.sha256(), b""
    left = size = content["size"]
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, _BLOCK))):
            sha256.update(data)
            left -= len(data)
            if on_read is not None:
                on_read(len(data))
        written = sha256.copy()
        written.update(json.dumps(content).encode())
        footer = file.read()
    sha256.update(footer)
    if left or written.hexdigest() != digest:
        raise ValueError(explain(f"{path} must be as it was written", got="another checksum"))
    record = {**content["record"], "bytes": size + len(footer), "sha256": sha256.hexdigest()}
    return record, content["settings"]


def read_footer(path: Path) -> tuple[dict[str, Any], str]:
    r"""Return the content of a shard's footer and its checksum, without reading the rows.

    Raises:
        ValueError: if the file is not a shard of this format.
    """
    try:
        metadata = pq.read_metadata(path).metadata or {}
        content, digest = json.loads(metadata[_RECORD]), metadata[_DIGEST].decode()
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None and path.is_file():
            raise  # a file without read permission is not a damaged file
        raise ValueError(explain(f"{path} must be a shard that hf-posenc wrote", got=error)) from error
    if content.get("format_version") != FORMAT_VERSION:
        got = content.get("format_version")
        raise ValueError(explain(f"{path} must have format version {FORMAT_VERSION}", got=got))
    return content, digest


def is_shard(path: Path) -> bool:
    """Return True if the footer says that hf-posenc wrote this file in this format."""
    try:
        read_footer(path)
    except ValueError:
        return False
    return True


def sha256_of(path: Path, on_read: OnRead | None = None) -> str:
    r"""Return the SHA-256 of a file, as `sha256sum` prints it.

    Args:
        path (`Path`): the file.
        on_read (callable, *optional*): called with the number of bytes of each block.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     sha256_of(Path(file.name))[:16]
        'e3b0c44298fc1c14'
    """
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_BLOCK):
            sha256.update(data)
            if on_read is not None:
                on_read(len(data))
    return sha256.hexdigest()


def damage(path: Path, record: Mapping[str, Any], on_read: OnRead | None = None) -> str | None:
    r"""Compare a file with the size and the SHA-256 in a record.

    Args:
        path (`Path`): the file.
        record (mapping): `bytes` and `sha256`.
        on_read (callable, *optional*): see `sha256_of`.

    Returns:
        `str`: the difference; `None` if there is none.

    Raises:
        OSError: if the file exists and may not be read.
    """
    try:
        if path.is_dir():
            return "is a folder, expected a file"
        size = path.stat().st_size
        if size != record["bytes"]:
            return f"has {size:,} bytes, expected {record['bytes']:,}"
        if sha256_of(path, on_read) != record["sha256"]:
            return "has another checksum than the one in the manifest"
    except FileNotFoundError:
        return "is missing"
    return None
