"""Whole corpora: text files and data sets of any size to shards of token ids, resumable.

`encode` makes them, on one machine or on Ray; `verify` looks whether they are sound.
"""

from .checking import verify
from .manifest import Manifest
from .progress import Progress
from .run import encode

__all__ = ["Manifest", "Progress", "encode", "verify"]
