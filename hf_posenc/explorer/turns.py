"""A lock for work that is not thread safe.

It protects catching warnings, drawing, and first imports from transformers, whose lazy module is not thread safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURN = threading.RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the lock of the page; the same thread may enter again."""
    with _TURN:
        yield
