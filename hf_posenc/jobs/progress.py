"""Progress callbacks of a job, to be overridden in a subclass."""

from __future__ import annotations

import warnings
from typing import Any


class Progress:
    r"""Callbacks of `encode`, called in its thread. By default messages become warnings; other callbacks do nothing.

    Example:
        >>> class Loud(Progress):
        ...     def shard(self, record):
        ...         print(record["file"], record["tokens"])
        >>> Loud().shard({"file": "data/shard-000000.parquet", "tokens": 812})
        data/shard-000000.parquet 812
    """

    def message(self, text: str) -> None:
        """Show a message, such as a reduced `max_length` or the number of truncated documents."""
        warnings.warn(text, stacklevel=2)

    def checked(self, size: int) -> None:
        """Report that `size` more bytes of finished shards were read and compared with their checksums."""

    def start(self, *, bytes_total: int | None, bytes_done: int, shards_done: int) -> None:
        """Report the start: the size of the input, if known, and the bytes and shards finished by earlier runs."""

    def shard(self, record: dict[str, Any]) -> None:
        """Report a finished shard, given its record in the manifest."""

    def stop(self) -> None:
        """Report the end of the work, also after an error."""
