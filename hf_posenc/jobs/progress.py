"""The callbacks of a job: override those of interest."""

from __future__ import annotations

import warnings
from typing import Any


class Progress:
    r"""Callbacks of `encode`, in the thread that called it. By default messages are warnings, and the rest is ignored.

    Example:
        >>> class Loud(Progress):
        ...     def shard(self, record):
        ...         print(record["file"], record["tokens"])
        >>> Loud().shard({"file": "data/shard-000000.parquet", "tokens": 812})
        data/shard-000000.parquet 812
    """

    def message(self, text: str) -> None:
        """Show a message, such as a smaller limit than the given one, or the number of truncated documents."""
        warnings.warn(text, stacklevel=2)

    def checked(self, size: int) -> None:
        """Note that more bytes of finished shards were read and compared with their checksums."""

    def start(self, *, bytes_total: int | None, bytes_done: int, shards_done: int) -> None:
        """Note that the work starts: the size of the input, if known, and what earlier runs finished of it."""

    def shard(self, record: dict[str, Any]) -> None:
        """Note that a shard is finished: its record in the manifest."""

    def stop(self) -> None:
        """Note that the work is over, also after an error."""
