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


class Stopping:
    r"""While it is entered, the first signal raises `KeyboardInterrupt`, and the next one does not wait for anything.

    What was handled otherwise before (ignored, by `nohup`) stays so; outside of the main thread nothing changes.

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
    """

    def __init__(self, words: str) -> None:
        self._words = words
        self.status = 128 + signal.SIGINT  # with which a process that was stopped so ends
        self._stopped: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
                    self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
