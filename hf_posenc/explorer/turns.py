"""One after the other: for what threads must not do at once.

That is catching warnings, drawing, and a first import from transformers, which fills its module while others read it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURN = threading.RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Waits for its turn; what is done inside may ask for it again."""
    with _TURN:
        yield
