"""Shard files: Parquet files that are hashed while they are written, with a record in the footer.

The footer holds the statistics of the shard and the settings of its job, so that a lost manifest can be rebuilt.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .._common.errors import value_error

FORMAT_VERSION = 2  # of shards and manifest
_RECORD, _DIGEST = b"hf_posenc", b"hf_posenc_sha256"  # keys in the footer
_BLOCK = 1 << 20


def write_shard(
    path: Path,
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    finish: Callable[[], dict[str, Any]],
    *,
    settings: Mapping[str, Any],
    carried: list[str],
) -> dict[str, Any]:
    r"""Write a shard: a Parquet file with one row group for each table; the footer holds the record and settings.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path, table = Path(folder, "a.parquet"), pa.table({"length": [3, 4]})
        ...     options = {"settings": {}, "carried": []}
        ...     written = write_shard(path, [table], table.schema, lambda: {"rows": 2}, **options)
        ...     record, settings = read_footer(path)  # without sha256, which `damage` adds
        ...     print(damage(path, record), record == written, record["rows"])
        None True 2
    """
    # Token ids spread over the whole vocabulary: a dictionary or statistics of them cost more than they save, and zstd
    # compresses them to a third.
    options = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": carried,
        "write_statistics": ["length", *carried],
    }
    with _HashedFile(path) as file, pq.ParquetWriter(file, schema, **options) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=len(table))
        figures = finish()
        content = {"format_version": FORMAT_VERSION, "size": file.tell(), "record": figures, "settings": settings}
        text = json.dumps(content).encode()
        checksum = file.sha256.copy()
        checksum.update(text)
        writer.add_key_value_metadata({_RECORD: text, _DIGEST: checksum.hexdigest().encode()})
        writer.close()
        return {**figures, "bytes": file.tell(), "sha256": file.sha256.hexdigest()}


class _HashedFile(io.BufferedWriter):
    """A binary file opened for writing; its attribute `sha256` is the hash object of all bytes written so far."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return super().write(data)


def read_footer(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    r"""Return the record in a shard's footer, and the settings of its job, without reading the rows."""
    content, _ = _footer(path)
    return {**content["record"], "bytes": path.stat().st_size}, content["settings"]


def _footer(path: Path) -> tuple[dict[str, Any], str]:
    """Return the parsed JSON in the footer of a shard, and the SHA-256 of row groups and JSON together."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
        content, checksum = json.loads(metadata[_RECORD]), metadata[_DIGEST].decode()
    except (OSError, ValueError, KeyError, RecursionError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None and path.is_file():
            raise  # a file without read permission is not a damaged file
        raise value_error(f"{path} must be a shard that hf-posenc wrote", got=error) from error
    got = content.get("format_version") if isinstance(content, dict) else None
    if got != FORMAT_VERSION:
        raise value_error(f"{path} must have format version {FORMAT_VERSION}", got=got)
    types = {"size": int, "record": dict, "settings": dict}
    if not all(isinstance(content.get(name), kind) for name, kind in types.items()):
        raise value_error(f"{path} must be a shard that hf-posenc wrote", got="a footer without a record")
    return content, checksum


def is_shard(path: Path) -> bool:
    """Return True if a file has the footer of a shard of this format; False if it is missing. The rows are not read."""
    try:
        _footer(path)
    except ValueError:
        return False
    return True


def damage(path: Path, record: dict[str, Any]) -> str | None:
    r"""Compare a shard with its record; return a difference, such as `"is missing"`, or `None` if the shard is intact.

    Size and checksum are compared. A record from `read_footer` has no `sha256`: then the checksum in the footer of the
    shard is used, and if the shard is intact, the SHA-256 of the file is added to `record`.
    """
    try:
        if path.is_dir():
            return "is a folder, expected a file"
        if (size := path.stat().st_size) != record["bytes"]:
            return f"has {size:,} bytes, expected {record['bytes']:,}"
        if "sha256" in record:
            with path.open("rb") as file:
                is_same = hashlib.file_digest(file, "sha256").hexdigest() == record["sha256"]
            return None if is_same else "has another checksum than the one in the manifest"
        sha256 = _sha256(path)
        if sha256 is None:
            return "is damaged"
        record["sha256"] = sha256
    except FileNotFoundError:
        return "is missing"
    return None


def _sha256(path: Path) -> str | None:
    """Return the SHA-256 of a shard, in hexadecimal; `None` if the file differs from the checksum in its own footer."""
    try:
        content, checksum = _footer(path)
    except ValueError:
        return None
    sha256, left = hashlib.sha256(), content["size"]
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, _BLOCK))):
            sha256.update(data)
            left -= len(data)
        written = sha256.copy()
        written.update(json.dumps(content).encode())
        while data := file.read(_BLOCK):
            sha256.update(data)
    return sha256.hexdigest() if left == 0 and written.hexdigest() == checksum else None
