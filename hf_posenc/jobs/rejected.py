"""Rejected documents: one temporary file per shard while a job runs; at its end, all are joined to `rejected.jsonl`.

A rejected document is a bad row that the job left out or replaced by an empty text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from .._common.errors import value_error
from .folder import REJECTED, output_file, rejected_name, rejected_parts, shard_name
from .task import Rejected

_BLOCK = 1 << 20
_LINE = re.compile(rb'\{"shard": (\d+), .*\}\n')


class _Lines(NamedTuple):
    """Byte range of a file that holds the rejected documents of one shard.

    The range is `start` to `stop`, and `sha256` is the digest of its bytes, in hexadecimal.
    """

    path: Path
    start: int
    stop: int
    sha256: str


class RejectedFiles(NamedTuple):
    r"""Result of `find_rejected`: the shards with intact rejected documents, and those with missing or changed ones.

    Shards without rejected documents are in neither `good` nor `bad`.

    Args:
        good (`dict` from shard number to `_Lines`): location of the rejected documents, if they are intact.
        bad (`dict` from shard number to `str`): the reason, if the rejected documents are missing or changed.
        joined (`bool`): True if `rejected.jsonl` holds the rejected documents of all shards in order and nothing else,
            or if no document was rejected.
    """

    good: dict[int, _Lines]
    bad: dict[int, str]
    joined: bool


def write_rejected(folder: Path, shard: int, rejected: Sequence[Rejected]) -> str | None:
    """Write the rejected documents of a shard to a temporary file in the output folder, one JSON object per line.

    Return the SHA-256 of the file. Without rejected documents, return `None`, and delete the temporary file that an
    earlier run may have written for this shard.
    """
    path = folder / rejected_name(shard)
    if not rejected:
        path.unlink(missing_ok=True)
        return None
    sha256 = hashlib.sha256()
    with output_file(path) as temporary, temporary.open("wb") as file:
        for one in rejected:
            # File names may hold any bytes; those that are not UTF-8 are escaped.
            line = json.dumps(one.entry(shard), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
            sha256.update(line)
            file.write(line)
    return sha256.hexdigest()


def find_rejected(folder: Path, shards: Mapping[int, Mapping[str, Any]]) -> RejectedFiles:
    """Return the shards whose rejected documents are intact on disk, and those whose documents are missing or changed.

    The documents are in `rejected.jsonl` or, until the job ends, in a temporary file for each shard. They are compared
    with the checksums in the records of the shards. `shards` maps the number of each shard to its record.
    """
    path, found = folder / REJECTED, dict[tuple[int, str], _Lines]()
    for file in (path, *rejected_parts(folder)):
        for shard, lines in _lines_by_shard(file):
            found.setdefault((shard, lines.sha256), lines)
    good: dict[int, _Lines] = {}
    bad: dict[int, str] = {}
    for shard, record in sorted(shards.items()):
        if (shard, record["rejected_sha256"]) in found:
            good[shard] = found[shard, record["rejected_sha256"]]
        elif record["rejected"]:
            bad[shard] = f"holds other documents of {shard_name(shard)} than the {record['rejected']:,} rejected ones"
    starts = [0, *(lines.stop for lines in good.values())]
    end = starts.pop()
    in_order = [(path, start) for start in starts] == [(lines.path, lines.start) for lines in good.values()]
    joined = not bad and (not good or (in_order and end == path.stat().st_size))
    return RejectedFiles(good, bad, joined)


def join_rejected(folder: Path, shards: Mapping[int, Mapping[str, Any]]) -> None:
    r"""Write the rejected documents of all shards, in order, to `rejected.jsonl`, and delete the temporary files.

    Documents of shards that earlier runs wrote are copied from the existing `rejected.jsonl`. If no document was
    rejected, no file is written.
    """
    found = find_rejected(folder, shards)
    for shard, reason in found.bad.items():
        raise value_error(
            f"the rejected documents of {shard_name(shard)} must be in {folder}, as they were written",
            got=f"a file that {reason}",
            fix="run the same command again: that shard is made again",
        )
    if not found.joined:
        with output_file(folder / REJECTED) as temporary, temporary.open("wb") as joined:
            for lines in found.good.values():
                with lines.path.open("rb") as file:
                    file.seek(lines.start)
                    while data := file.read(min(lines.stop - file.tell(), _BLOCK)):
                        joined.write(data)
    for path in rejected_parts(folder):
        path.unlink(missing_ok=True)


def _lines_by_shard(path: Path) -> Iterator[tuple[int, _Lines]]:
    """Yield a shard number, and the byte range of its lines in `path`, a file that lists rejected documents."""
    if path.is_file():
        with path.open("rb") as file:
            stop = 0
            for shard, lines in groupby(file, _shard_of):
                start, sha256 = stop, hashlib.sha256()
                for line in lines:
                    stop += len(line)
                    sha256.update(line)
                if shard is not None:
                    yield shard, _Lines(path, start, stop, sha256.hexdigest())


def _shard_of(line: bytes) -> int | None:
    match = _LINE.fullmatch(line)
    return int(match[1]) if match else None
