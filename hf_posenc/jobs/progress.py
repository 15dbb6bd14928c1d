"""What whoever waits for a job is told: override what you want to hear.

Nothing here writes anything; the command line's bar is in `cli`.
"""

from __future__ import annotations

from typing import Any


class Progress:
    r"""Is told what a job does, always in the thread that called `encode`; this one keeps quiet.

    Example:
        >>> class Loud(Progress):
        ...     def shard(self, record):
        ...         print(record["file"], record["tokens"])
        >>> Loud().shard({"file": "shard-000000.parquet", "tokens": 812})
        shard-000000.parquet 812
    """

    def say(self, message: str) -> None:
        """A sentence that matters before the work begins: the size of embeddings, columns that are not carried."""

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
