"""Rejected documents: a file for each shard while a job runs, joined into `rejected.jsonl` at its end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from .._explain import explain
from .folder import REJECTED, output_file, rejected_in, rejected_name, shard_name
from .task import Rejected

_BLOCK = 1 << 20


class _Lines(NamedTuple):
    """The lines of one shard in a file: bytes from `start` to `stop`."""

    path: Path
    start: int
    stop: int
    number: int
    sha256: str


class RejectedFiles(NamedTuple):
    r"""Result of a comparison of the rejected documents on disk with the records of the shards.

    Args:
        good (`dict`): for each shard with intact rejected documents, their lines.
        bad (`dict`): for each shard with missing or changed rejected documents, the reason.
        joined (`bool`): True if `rejected.jsonl` holds those of all shards in order and nothing else, or if no document
            was rejected.
    """

    good: dict[int, _Lines]
    bad: dict[int, str]
    joined: bool


def write_rejected(folder: Path, shard: int, rejected: Sequence[Rejected]) -> str | None:
    """Write the rejected documents of a shard, and return the SHA-256 of the file; `None` if there are none."""
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
    r"""Compare the rejected documents on disk with the records of the shards.

    Args:
        folder (`Path`): the output folder.
        shards (mapping from number to record): records with `rejected`, a count, and `rejected_sha256`.
    """
    expected = {shard: shards[shard] for shard in sorted(shards) if shards[shard]["rejected"]}
    if not expected:
        return RejectedFiles({}, {}, joined=True)
    path = folder / REJECTED
    joined, parts = _lines_by_shard(path), rejected_in(folder)
    good, bad, offset = {}, {}, 0
    for shard, record in expected.items():
        part = _lines_by_shard(parts[shard]) if shard in parts else {}
        found = [lines[shard] for lines in (joined, part) if shard in lines]
        right = next((lines for lines in found if lines.sha256 == record["rejected_sha256"]), None)
        if right is not None:
            good[shard] = right
            offset = right.stop if right[:2] == (path, offset) else -1
        else:
            number = found[-1].number if found else 0
            bad[shard] = f"holds {number:,} documents of {shard_name(shard)}, expected {record['rejected']:,}"
            if number == record["rejected"]:
                bad[shard] = f"holds other documents of {shard_name(shard)} than were written"
    return RejectedFiles(good, bad, joined=not bad and path.is_file() and offset == path.stat().st_size)


def join_rejected(folder: Path, shards: Mapping[int, Mapping[str, Any]]) -> None:
    r"""Join the rejected documents of all shards, in order, into `rejected.jsonl`; write no file if there are none.

    The lines of shards that were not made again are copied from the earlier `rejected.jsonl`.

    Args:
        folder (`Path`): the output folder.
        shards (mapping from number to record): as for `find_rejected`.

    Raises:
        ValueError: if lines are missing.
    """
    found = find_rejected(folder, shards)
    for shard, reason in found.bad.items():
        raise ValueError(
            explain(
                f"the rejected documents of {shard_name(shard)} must be in {folder}, as they were written",
                got=f"a file that {reason}",
                fix="run the same command again: that shard is made again",
            )
        )
    if found.good and not found.joined:
        with output_file(folder / REJECTED) as temporary, temporary.open("wb") as joined:
            for path, start, stop, _, _ in found.good.values():
                with path.open("rb") as file:
                    file.seek(start)
                    while data := file.read(min(stop - file.tell(), _BLOCK)):
                        joined.write(data)
    for path in rejected_in(folder).values():
        path.unlink(missing_ok=True)


def _lines_by_shard(path: Path) -> dict[int, _Lines]:
    """Return the lines of each shard in a file, without lines that cannot be parsed."""
    found: dict[int, _Lines] = {}
    offset = 0
    try:
        file = path.open("rb")
    except (FileNotFoundError, IsADirectoryError):
        return found
    with file:
        for shard, lines in groupby(file, _shard_of):
            start, number, sha256 = offset, 0, hashlib.sha256()
            for line in lines:
                offset += len(line)
                number += 1
                sha256.update(line)
            if shard is not None and shard not in found:
                found[shard] = _Lines(path, start, offset, number, sha256.hexdigest())
    return found


def _shard_of(line: bytes) -> int | None:
    try:
        shard = json.loads(line)["shard"]
    except (ValueError, TypeError, KeyError):
        return None
    return shard if isinstance(shard, int) and line.endswith(b"\n") else None
