"""What whoever waits for a job is told: override what you want to hear.

What is lost is a warning here; the command line's bar is in `cli`.
"""

from __future__ import annotations

import warnings
from typing import Any


class Progress:
    r"""Is told what a job does, always in the thread that called `encode`; this one warns of what matters.

    Example:
        >>> class Loud(Progress):
        ...     def shard(self, record):
        ...         print(record["file"], record["tokens"])
        >>> Loud().shard({"file": "data/shard-000000.parquet", "tokens": 812})
        data/shard-000000.parquet 812
    """

    def say(self, message: str) -> None:
        """What matters before the work begins: a limit that is not the one asked for."""
        warnings.warn(message, stacklevel=2)

    def lost(self, message: str) -> None:
        """What documents lost, once all is done."""
        warnings.warn(message, stacklevel=2)

    def checked(self, size: int) -> None:
        """So many bytes of finished shards have been read again, to see that they are sound."""

    def start(self, *, bytes_total: int | None, bytes_done: int, shards_done: int) -> None:
        """The work begins: the size of the input, where it is known, and what earlier runs have finished."""

    def tick(self, size: int, tokens: int) -> None:
        """So many bytes of the input, and tokens, were done; negative where work was lost with a worker."""

    def shard(self, record: dict[str, Any]) -> None:
        """A shard is finished: what the manifest says of it."""

    def stop(self) -> None:
        """No more work is done: it is complete, or something was raised."""
