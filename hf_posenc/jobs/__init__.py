"""Whole corpora: text files and data sets of any size to shards of token ids, resumable.

`encode` makes them, on one machine or on Ray; `verify` looks whether they are sound.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .manifest import Manifest
    from .progress import Progress
    from .run import encode
    from .verification import Verification, verify

__all__ = ["Manifest", "Progress", "Verification", "encode", "verify"]

# Loaded on first use: a worker, which begins in this room, needs none of them.
_HOMES = {
    "Manifest": "manifest",
    "Progress": "progress",
    "Verification": "verification",
    "encode": "run",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
