"""How far a job is: one line on stderr that renews itself, with tokens a second, time left and finished shards.

It counts what it is told and draws that; where nobody looks (a file, a pipe, a terminal that is `dumb`) it only counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from .._explain import counted, in_bytes
from .figures import Speed, clock, short
from .moving import Moving
from .terminal import Screen

_UNKNOWN = 1.0  # seconds in which there is no telling
_NARROWEST = 8  # characters of a bar
# What goes first where a line is too narrow for all of it.
_DROPPED = ("speed", "shards", "rejected", "left")


class Bar:
    r"""What `jobs.encode` tells about its progress, counted, and drawn while somebody looks.

    Use as a context manager; on leaving, the line is gone.

    Args:
        screen (`Screen`): where to draw.

    Example:
        >>> with Bar(Screen()) as bar:
        ...     bar.start(bytes_total=1_000, bytes_done=500, shards_done=1)
        ...     bar.tick(250, 60)
        ...     bar.shard({"rejected": 2})
        ...     bar.line(80)
        '███████████████████████████████████████··············  75%  2 shards  2 rejected'
        >>> bar.finished, bar.tokens
        (2, 60)
    """

    def __init__(self, screen: Screen) -> None:
        self.begun: float | None = None  # when the work began, after all preparations
        self.seconds = 0.0  # that the work took
        self.found = 0  # shards that were there already
        self.made = 0
        self.rejected = 0
        self._screen = screen
        self._lock = threading.Lock()
        self._total: int | None = None
        self._done = 0
        self._checked = 0
        self._opened = time.monotonic()
        self._text = self._tokens = Speed(self._opened)
        self._moving = Moving(screen, self.line)

    @property
    def finished(self) -> int:
        """Shards that are finished, by this run and those before."""
        return self.found + self.made

    @property
    def tokens(self) -> int:
        """Tokens that this run made."""
        return self._tokens.total

    @property
    def tokens_a_second(self) -> float:
        """Of this run, over all of it; 0 before it is over."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def __enter__(self) -> Bar:
        self._moving.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- what a job tells ----------------------------------------------------------------------------------------

    def say(self, message: str) -> None:
        """Lines that stay: what the run is about to write. On stdout, or above the line that moves."""
        self._moving.say(message)

    def lost(self, message: str) -> None:
        """Nothing: the summary says it."""

    def note(self, message: str) -> None:
        """A line that stays, on stderr: what should be known while the work goes on."""
        self._screen.complain(message)

    def checked(self, size: int) -> None:
        """So much of the shards that are there was read again."""
        self._checked += size

    def start(self, *, bytes_total: int | None, bytes_done: int, shards_done: int) -> None:
        """The work begins; so much of it was done by runs before."""
        with self._lock:
            self.begun = now = time.monotonic()
            self._text, self._tokens = Speed(now), Speed(now)
            self._total, self._done, self.found = bytes_total, bytes_done, shards_done

    def tick(self, size: int, tokens: int) -> None:
        """So much more text was read, and so many tokens made of it; less than 0 where a worker begins again."""
        with self._lock:
            now = time.monotonic()
            self._text.add(size, now)
            self._tokens.add(tokens, now)

    def shard(self, record: Mapping[str, Any]) -> None:
        """A shard is finished."""
        with self._lock:
            self.made += 1
            self.rejected += record["rejected"]

    def stop(self) -> None:
        """The work is over, in whatever way; the line goes. May be called again."""
        if self.begun is not None and not self.seconds:
            self.seconds = time.monotonic() - self.begun
        self._moving.stop()

    # -- what is drawn -------------------------------------------------------------------------------------------

    def line(self, width: int) -> str:
        """The line as it is now, of at most `width` characters."""
        with self._lock:
            now = time.monotonic()
            if self.begun is None:
                what = f"{in_bytes(self._checked)} of finished shards checked" if self._checked else "getting ready"
                return f"{what}  {clock(now - self._opened)}"[:width]
            parts = self._parts(now)
            share = min(1.0, (self._done + self._text.total) / self._total) if self._total else None
        for words, gap in ((parts, "  "), ({**parts, "speed": parts["speed"].replace("tokens", "tok")}, " ")):
            text = gap.join(filter(None, words.values()))
            room = width - len(text) - len(gap) if share is not None else 0
            if share is None and len(text) <= width:
                return text
            if share is not None and room >= _NARROWEST:
                filled = int(share * min(room, 60))
                return self._screen.yes * filled + self._screen.no * (min(room, 60) - filled) + gap + text
        for name in _DROPPED:
            if len(text) <= width:
                break
            words.pop(name)
            text = gap.join(filter(None, words.values()))
        return text[:width]

    def _parts(self, now: float) -> dict[str, str]:
        """What there is to say, in order; `''` where nothing is known yet."""
        done = self._done + self._text.total
        known = self.begun is not None and now - self.begun > _UNKNOWN
        speed, text = (self._tokens.a_second(now), self._text.a_second(now)) if known else (0.0, 0.0)
        left = max(0, self._total - done) / text if self._total and text else None
        return {
            "share": f"{min(100, 100 * done // self._total)}%" if self._total else in_bytes(done),
            "speed": f"{short(speed)} tokens/s" if speed else "",
            "left": f"{clock(left)} left" if left is not None else "",
            "shards": counted(self.finished, "shard"),
            "rejected": f"{self.rejected:,} rejected" if self.rejected else "",
        }
