"""How large things will be, before they are made: shards by default, and embeddings in all.

Estimates; nothing depends on them but what is said, and whether there is room.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .._explain import explain, in_bytes
from .job import Job
from .shards.documents import Counted, Documents
from .task import Task

if TYPE_CHECKING:
    from .shards.vectors import Vectors

_SMALLEST, _LARGEST = 4 << 20, 64 << 20  # bytes of text in a shard, where the size of the input decides
_SHARDS = 64  # then there are about so many, and at the end no worker waits long for the others
_STORED = 256 << 20  # bytes of a shard with embeddings
_TEXT_A_TOKEN = 4  # bytes, about
_SAMPLE = 1 << 20  # bytes that are tokenised for an estimate


def default_shard_bytes(size: int | None, vectors: Vectors | None) -> int:
    r"""How much of the input goes into a shard, where nobody says.

    Args:
        size (`int`, *optional*): bytes of the input, if that is known.
        vectors (`Vectors`, *optional*): embeddings, which take far more than their text.

    Returns:
        `int`, at least 1.

    Example:
        >>> default_shard_bytes(1 << 30, None) >> 20, default_shard_bytes(None, None) >> 20
        (16, 64)
    """
    if vectors is not None:
        return max(_STORED * _TEXT_A_TOKEN // vectors.bytes_per_token, 1)
    return _LARGEST if size is None else min(max(size // _SHARDS, _SMALLEST), _LARGEST)


@dataclass(frozen=True)
class Stored:
    r"""How much room embeddings will take.

    Args:
        bytes (`int`, *optional*): what is still to be written, if the size of the input is known.
        words (`str`): to be said before they are made.
    """

    bytes: int | None
    words: str


def stored_bytes(job: Job, task: Task, size: int | None, done: int = 0) -> Stored:
    r"""The size of all embeddings, from how many tokens some documents have.

    Args:
        job (`Job`): with `vectors`.
        task (`Task`): the first one that is to be done.
        size (`int`, *optional*): bytes of the whole input.
        done (`int`, *optional*, defaults to 0): bytes of it whose embeddings are there already.

    Returns:
        `Stored`.
    """
    each = 0 if job.vectors is None else job.vectors.bytes_per_token
    read, tokens = 0, 0

    def tick(more: int, of_them: int) -> None:
        nonlocal read, tokens
        read, tokens = read + more, tokens + of_them

    for _ in Documents(replace(job, on_bad_row="skip")).of(task, Counted(), tick):
        if read >= _SAMPLE:
            break
    if size is None or not read:
        many = each * tokens / max(read, 1)
        return Stored(None, f"embeddings take {each:,} bytes a token, {many:,.0f} for each byte of text")
    total = size * tokens * each // read
    return Stored(
        total * max(size - done, 0) // max(size, 1),
        f"embeddings will take about {in_bytes(total)}, {each:,} bytes a token",
    )


def check_room(stored: Stored, folder: Path) -> None:
    r"""Raises before a disk is filled by what cannot fit.

    Args:
        stored (`Stored`): the size.
        folder (`Path`): where it goes.

    Raises:
        ValueError: if there is less room.
    """
    free = shutil.disk_usage(folder).free
    if stored.bytes is not None and stored.bytes > free:
        raise ValueError(
            explain(
                f"embeddings of what is to be done would take about {in_bytes(stored.bytes)}",
                got=f"{in_bytes(free)} free in {folder}",
                fix="store ids alone: collate.embed makes embeddings of them faster than a disk reads them",
            )
        )
