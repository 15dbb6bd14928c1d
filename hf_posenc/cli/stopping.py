"""Ctrl-C, and the SIGTERM of batch systems: the first is an orderly stop, a later one ends the process on the spot.

Only for work that may be killed at any moment without harm, as a job may.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

# One press often comes twice: from the terminal to the whole group, and once more from whatever started us.
_SAME_PRESS = 1.0

_before: dict[signal.Signals, Any] = {}


class Stopping:
    r"""While it is entered, the first signal raises `KeyboardInterrupt`, and the next one does not wait for anything.

    After a stop that stays so, for the process is about to end, and a press while it ends shall be no traceback; where
    it goes on instead, `restore` gives the handlers back. What was handled otherwise before (ignored, by `nohup`) is
    left alone; outside of the main thread nothing changes.

    Args:
        words (`str`): the line that is said before the process ends on the spot.

    Example:
        >>> import signal
        >>> with Stopping("stopped") as stopping:
        ...     try:
        ...         signal.raise_signal(signal.SIGTERM)
        ...     except KeyboardInterrupt:
        ...         stopping.status
        143
        >>> restore()
    """

    def __init__(self, words: str) -> None:
        self.status = 128 + signal.SIGINT  # with which a process that was stopped so ends
        self._words = words
        self._stopped: float | None = None

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
                    _before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stopped is None:
            restore()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._stopped is None:
            self._stopped, self.status = now, 128 + number
            raise KeyboardInterrupt
        if now - self._stopped > _SAME_PRESS:
            self._last_words()
            os._exit(128 + number)

    def _last_words(self) -> None:
        """Past every lock and buffer: whoever holds them was interrupted, and may not give them back."""
        if sys.__stderr__ is None:
            return
        # On a terminal a moving line is in the way, and the cursor was hidden for it.
        clear = "\r\x1b[2K\x1b[?25h" if sys.__stderr__.isatty() else ""
        with suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno(), f"{clear}{self._words}\n".encode("ascii", "backslashreplace"))


def restore() -> None:
    """Signals are handled again as they were before a `Stopping` was entered."""
    while _before:
        signal.signal(*_before.popitem())
