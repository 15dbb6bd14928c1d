"""A line that renews itself while something is going on.

Only where somebody looks: not in a file, a pipe or a terminal that is `dumb`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from .terminal import Screen


class Moving:
    r"""A line on stderr that renews itself and goes away at the end; nothing where stderr is no terminal.

    Args:
        screen (`Screen`): where to draw.
        line (callable): what to draw, given how many characters there is room for.

    Example:
        >>> with Moving(Screen(), lambda width: "working"[:width]) as line:
        ...     line.say("this stays")
        this stays
    """

    def __init__(self, screen: Screen, line: Callable[[int], str]) -> None:
        self._screen = screen
        self._line = line
        # FORCE_COLOR makes rich take a file for a terminal: its escape codes are for colours, a moving line is not.
        looked_at = screen.passing.file.isatty() and screen.passing.is_terminal and not screen.passing.is_dumb_terminal
        both = screen.out.file.isatty()
        self._live = Live(self, console=screen.passing, transient=True, redirect_stdout=both) if looked_at else None

    def __enter__(self) -> Moving:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Room for the ^C that a terminal writes itself: on a line of its own it would stay there.
        yield Text(self._line(options.max_width - 3), no_wrap=True, overflow="crop", end="")

    def start(self) -> None:
        """The line appears."""
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        """The line goes. May be called again."""
        if self._live is not None:
            self._live.stop()

    def say(self, message: str) -> None:
        """Lines that stay: on stdout, or above the line that moves."""
        if self._live is None or not self._live.is_started:
            self._screen.say(message)
        else:
            self._screen.passing.print(Text(self._screen.writable(message, keep="\n")), soft_wrap=True)
