"""The default size of a shard."""

from __future__ import annotations

_SMALLEST, _LARGEST = 4 << 20, 64 << 20  # bytes of text in a shard
_SHARDS = 64  # about so many: at the end no worker waits long for the others


def default_shard_bytes(size: int | None) -> int:
    r"""Return the bytes of input for each shard: a 64th of the input, at least 4 MiB and at most 64 MiB.

    Args:
        size (`int`, *optional*): bytes of the input, if known.

    Returns:
        `int`.

    Example:
        >>> default_shard_bytes(1 << 30) >> 20, default_shard_bytes(None) >> 20
        (16, 64)
    """
    return _LARGEST if size is None else min(max(size // _SHARDS, _SMALLEST), _LARGEST)
