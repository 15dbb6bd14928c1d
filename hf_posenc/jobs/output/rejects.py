"""The rows that were left out, or kept without tokens: noted shard by shard, joined to one file when the job ends.

Why a row is rejected is for `rows`; that it is noted, for `shard`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..._explain import explain
from .folder import REJECTED, rejected_in, shard_name, written_whole

_BLOCK = 1 << 20


class Lines(NamedTuple):
    """Where the lines of one shard stand in a file: bytes from `start` to `stop`, `rows` of them."""

    path: Path
    start: int
    stop: int
    rows: int
    sha256: str


class Found(NamedTuple):
    r"""The rejected rows that are on disk.

    Args:
        good (`dict`): for each shard that has some, and has them as they were written, where they stand.
        bad (`dict`): for each of the others in words what is wrong.
        joined (`bool`): whether `rejected.jsonl` holds those of all shards, in order, and nothing else. True where no
            row was rejected.
    """

    good: dict[int, Lines]
    bad: dict[int, str]
    joined: bool


def look(folder: Path, shards: Mapping[int, Mapping[str, Any]]) -> Found:
    r"""Holds the rejected rows on disk against what the shards' records say of them.

    Args:
        folder (`Path`): the output folder.
        shards (mapping from number to record): `rejected` says how many rows, `rejected_sha256` what their lines are.

    Returns:
        `Found`.
    """
    expected = {shard: shards[shard] for shard in sorted(shards) if shards[shard]["rejected"]}
    if not expected:
        return Found({}, {}, joined=True)
    path = folder / REJECTED
    joined, parts = _runs(path), rejected_in(folder)
    good, bad, place = {}, {}, 0
    for shard, record in expected.items():
        said = record["rejected"], record["rejected_sha256"]
        own = _runs(parts[shard]) if shard in parts else {}
        there = [lines[shard] for lines in (joined, own) if shard in lines]
        right = [lines for lines in there if (lines.rows, lines.sha256) == said]
        if right:
            good[shard] = right[0]
            place = right[0].stop if right[0][:2] == (path, place) else -1
        else:
            rows = there[-1].rows if there else 0
            bad[shard] = f"holds {rows:,} rows of {shard_name(shard)}, not {said[0]:,}"
            if rows == said[0]:
                bad[shard] = f"holds other rows of {shard_name(shard)} than were written (a bit flipped, or changed)"
    return Found(good, bad, joined=not bad and path.is_file() and place == path.stat().st_size)


def join_rejected(folder: Path, shards: Mapping[int, Mapping[str, Any]]) -> int:
    r"""Joins the rejected rows of all shards, in order, to `rejected.jsonl`. Being killed at any moment does no harm.

    Lines of shards that were not made again are taken from the `rejected.jsonl` that is there.

    Args:
        folder (`Path`): the output folder.
        shards (mapping from number to record): as for `look`.

    Returns:
        `int`: how many rows were rejected in all. Without any there is no file.

    Raises:
        ValueError: if lines that a record speaks of are not on disk.
    """
    found = look(folder, shards)
    for shard, reason in found.bad.items():
        raise ValueError(
            explain(
                f"the rejected rows of shard {shard} must all be in {folder}, as they were written",
                got=f"what {reason}",
                fix="run the same again: the shard is made again, and they with it",
            )
        )
    if found.good and not found.joined:
        with written_whole(folder / REJECTED) as aside, aside.open("wb") as joined:
            for path, start, stop, _, _ in found.good.values():
                with path.open("rb") as file:
                    file.seek(start)
                    _copy(file, joined, stop - start)
    for path in rejected_in(folder).values():
        path.unlink(missing_ok=True)
    return sum(lines.rows for lines in found.good.values())


def _copy(file: Any, to: Any, size: int) -> None:
    while size:
        block = file.read(min(size, _BLOCK))
        if not block:
            return
        to.write(block)
        size -= len(block)


def _runs(path: Path) -> dict[int, Lines]:
    """The runs of lines of one shard in a file. What is no such line belongs to none, and its neighbours lack it."""
    found: dict[int, Lines] = {}
    place = 0
    try:
        file = path.open("rb")
    except (FileNotFoundError, IsADirectoryError):
        return found
    with file:
        for shard, lines in groupby(file, _shard_of):
            start, count, digest = place, 0, hashlib.sha256()
            for line in lines:
                place += len(line)
                count += 1
                digest.update(line)
            if shard is not None and shard not in found:
                found[shard] = Lines(path, start, place, count, digest.hexdigest())
    return found


def _shard_of(line: bytes) -> int | None:
    try:
        shard = json.loads(line)["shard"]
    except (ValueError, TypeError, KeyError):
        return None
    return shard if isinstance(shard, int) and line.endswith(b"\n") else None
