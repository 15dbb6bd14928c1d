"""The rows that were left out, or kept without tokens: noted shard by shard, joined to one file when the job ends.

Why a row is rejected is for `rows`; that it is noted, for `shard`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from ..._explain import explain
from .folder import REJECTED, rejected_in, written_whole

_BLOCK = 1 << 20


class Lines(NamedTuple):
    """Where the lines of one shard stand in a file: bytes from `start` to `stop`, `rows` of them."""

    path: Path
    start: int
    stop: int
    rows: int


def lines_by_shard(folder: Path, *, joined: bool = True) -> dict[int, int]:
    r"""How many rejected rows of each shard are on disk.

    Args:
        folder (`Path`): the output folder.
        joined (`bool`): count those in `rejected.jsonl` too, of shards that have no file of their own.

    Returns:
        `dict` from number of shard to lines; a shard that has none is not in it.
    """
    return {shard: lines.rows for shard, lines in _lines(folder, joined).items()}


def join_rejected(folder: Path, shards: Mapping[int, Mapping[str, Any]]) -> int:
    r"""Joins the rejected rows of all shards, in order, to `rejected.jsonl`. Being killed at any moment does no harm.

    Lines of shards that were not made again are taken from the `rejected.jsonl` that is there.

    Args:
        folder (`Path`): the output folder.
        shards (mapping from number to record): the `rejected` of a record says how many lines there must be.

    Returns:
        `int`: how many rows were rejected in all. Without any there is no file.

    Raises:
        ValueError: if lines that a record speaks of are not on disk.
    """
    expected = {shard: int(shards[shard].get("rejected") or 0) for shard in sorted(shards)}
    if total := sum(expected.values()):
        found = _lines(folder, joined=True)
        for shard, count in expected.items():
            have = found[shard].rows if shard in found else 0
            if count and have != count:
                raise ValueError(
                    explain(
                        f"the rejected rows of shard {shard} must all be in {folder}",
                        got=f"{have} of {count}",
                        fix="run the same again: the shard is made again, and they with it",
                    )
                )
        with written_whole(folder / REJECTED) as aside, aside.open("wb") as joined:
            for shard in (shard for shard, count in expected.items() if count):
                path, start, stop, _ = found[shard]
                with path.open("rb") as file:
                    file.seek(start)
                    _copy(file, joined, stop - start)
    for path in rejected_in(folder).values():
        path.unlink(missing_ok=True)
    return total


def _copy(file: Any, to: Any, size: int) -> None:
    while size:
        block = file.read(min(size, _BLOCK))
        if not block:
            return
        to.write(block)
        size -= len(block)


def _lines(folder: Path, joined: bool) -> dict[int, Lines]:
    """Where the lines of each shard are: in a file of their own if there is one, else in the joined file."""
    found = _runs(folder / REJECTED) if joined else {}
    for shard, path in rejected_in(folder).items():
        own = _runs(path).get(shard)
        if own is not None:
            found[shard] = own
    return found


def _runs(path: Path) -> dict[int, Lines]:
    """The runs of lines of one shard in a file. What is no such line belongs to none, and its neighbours lack it."""
    found: dict[int, Lines] = {}
    place = 0
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return found
    with file:
        for shard, lines in groupby(file, _shard_of):
            start, count = place, 0
            for line in lines:
                place += len(line)
                count += 1
            if shard is not None and shard not in found:
                found[shard] = Lines(path, start, place, count)
    return found


def _shard_of(line: bytes) -> int | None:
    try:
        shard = json.loads(line)["shard"]
    except (ValueError, TypeError, KeyError):
        return None
    return shard if isinstance(shard, int) and line.endswith(b"\n") else None
