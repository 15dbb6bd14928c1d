"""Tokenize whole corpora: text files and data sets of any size become Parquet shards; interrupted runs continue.

`encode` writes the shards, on one machine or on Ray; `verify` checks them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .encoding import encode
    from .manifest import Manifest
    from .progress import Progress
    from .verification import Verification, verify

__all__ = ["Manifest", "Progress", "Verification", "encode", "verify"]

# Imported on first use: workers import this package and use none of these modules.
_HOMES = {
    "Manifest": "manifest",
    "Progress": "progress",
    "Verification": "verification",
    "encode": "encoding",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
