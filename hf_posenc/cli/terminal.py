"""How the command line writes: batches and masks as tables and pictures of characters, on any terminal, file or pipe.

Whatever a stream's encoding lacks is written as an escape, so that nothing that a text holds can stop a command.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

# Bright black is grey on every terminal's palette; where there is no colour, padding still shows by its token.
_FADED = "bright_black"
_LONGEST = 14  # characters of a token
_MOST_BLOCKS = 3  # of columns, one below the other
_MOST_QUERIES = 24  # lines of a look-ahead mask


class _Piped(Console):
    """A console whose reader may go away: `| head -1` is no failure, and the rest is for nobody."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is still buffered goes there when the process ends
        os.close(nowhere)


class Screen:
    r"""Where a command writes: results on stdout, what is passing on stderr.

    Example:
        >>> Screen().say("ready")
        ready
    """

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        self.out = _Piped(highlight=False)
        self.passing = Console(stderr=True, highlight=False)
        full = self._can_write("█░Ġ→…×")
        self.yes, self.no = ("█", "·") if full else ("#", ".")

    def _can_write(self, characters: str) -> bool:
        try:
            characters.encode(self.out.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def say(self, text: str = "", style: str = "") -> None:
        """One line or more, never wrapped."""
        self.out.print(Text(self.writable(text, keep="\n"), style=style), soft_wrap=True)

    def heading(self, text: str) -> None:
        """What the next lines are about."""
        self.say()
        self.say(text, style="bold")

    def facts(self, rows: Mapping[str, str]) -> None:
        """Names and what there is to say of them, one line each."""
        width = max(map(len, rows))
        for name, value in rows.items():
            line = Text(f"{name.ljust(width)}  ", style="bold")
            self.out.print(line.append(self.writable(value), style="not bold"), soft_wrap=True)

    def complain(self, message: str) -> None:
        """An error, its rule in red, on stderr."""
        rule, _, rest = self.writable(message, keep="\n").partition("\n")
        self.passing.print(Text(rule, style="bold red"), soft_wrap=True)
        if rest:
            self.passing.print(Text(rest), soft_wrap=True)

    def writable(self, text: str, keep: str = "") -> str:
        """The text with control characters, and those that the stream cannot write, as escapes."""
        shown = "".join(c if c in keep or unicodedata.category(c)[0] != "C" else _escaped(c) for c in text)
        try:
            return shown.encode(self.out.encoding, "backslashreplace").decode(self.out.encoding)
        except LookupError:
            return shown.encode("ascii", "backslashreplace").decode("ascii")

    def token(self, text: str) -> str:
        """A token, cut where it would take too much room."""
        shown = self.writable(text)
        while cell_len(shown) > _LONGEST:
            shown = shown[:-2] + self.writable("…") if self._can_write("…") else shown[:-1]
        return shown

    # -- a batch -------------------------------------------------------------------------------------------------

    def batch_table(self, tokens: Sequence[Sequence[str]], keep: Sequence[Sequence[bool]]) -> None:
        r"""Rows of tokens, padding greyed; what does not fit the width goes on below, and the rest is counted.

        Args:
            tokens (`B` rows of `T` `str`): as `collate.tokens(batch)` gives them.
            keep (`B` rows of `T` `bool`): where a token stands, and no padding.
        """
        cells = [[self.token(token) for token in row] for row in tokens]
        widths = [
            max(cell_len(cell) for cell in (*column, str(i))) for i, column in enumerate(zip(*cells, strict=True))
        ]
        start = 0
        for _ in range(_MOST_BLOCKS):
            stop = start + _how_many(widths[start:], self.out.width - 3)
            table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False, header_style="bold")
            table.add_column("row", style="bold")
            for column in range(start, stop):
                table.add_column(str(column), no_wrap=True)
            for number, (row, real) in enumerate(zip(cells, keep, strict=True)):
                here = zip(row[start:stop], real[start:stop], strict=True)
                table.add_row(str(number), *(Text(cell, style="" if stands else _FADED) for cell, stands in here))
            if start:
                self.say()
            self.out.print(table)
            start = stop
            if start == len(widths):
                return
        self.say(f"and {len(widths) - start} columns more", style=_FADED)

    def padding_picture(self, keep: Sequence[Sequence[bool]]) -> None:
        """A line for each row, a block for each token, a dot for padding."""
        fits = (self.out.width - 8) // 2
        for number, row in enumerate(keep):
            self.out.print(self._blocks(f"{number:>3}  ", row[:fits], len(row) - fits))

    def look_ahead_picture(self, tokens: Sequence[str], mask: Sequence[Sequence[bool]]) -> None:
        """A line for each token that looks, a block for each token that it may look at."""
        names = [self.token(token) for token in tokens]
        width = max(map(cell_len, names))
        fits = min(_MOST_QUERIES, (self.out.width - width - 8) // 2)
        for name, row in list(zip(names, mask, strict=True))[:fits]:
            self.out.print(self._blocks(f"{name}{' ' * (width - cell_len(name))}  ", row[:fits], len(row) - fits))
        if len(tokens) > fits:
            self.say(f"and {len(tokens) - fits} tokens more", style=_FADED)

    def _blocks(self, label: str, row: Iterable[bool], hidden: int) -> Text:
        line = Text(label, no_wrap=True)
        for value in row:
            line.append(f"{self.yes if value else self.no} ", style="" if value else _FADED)
        return line.append(f"+{hidden}" if hidden > 0 else "", style=_FADED)

    def token_table(self, tokens: Sequence[str], columns: Mapping[str, Sequence[int]], keep: Sequence[bool]) -> None:
        r"""One row of a batch, a line for each token.

        Args:
            tokens (`T` `str`): what to call the lines.
            columns (mapping from name to `T` `int`): what to write in them, such as `input_ids`.
            keep (`T` `bool`): where a token stands, and no padding.
        """
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), pad_edge=False, header_style="bold")
        table.add_column("column", justify="right")
        table.add_column("token")
        for name in columns:
            table.add_column(name, justify="right")
        for column, (token, stands) in enumerate(zip(tokens, keep, strict=True)):
            values = [str(column), self.writable(token), *(str(values[column]) for values in columns.values())]
            table.add_row(*(Text(value, style="" if stands else _FADED) for value in values))
        self.out.print(table)

    # -- waiting -------------------------------------------------------------------------------------------------

    @contextmanager
    def progress(self, what: str, items: Sequence[Any]) -> Iterator[Iterator[Any]]:
        """The items one by one, with a bar on stderr that goes away at the end; none where nobody looks."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.passing, transient=True, disable=not self.passing.is_terminal) as bar:
            yield iter(bar.track(items, description=what))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _how_many(widths: Sequence[int], room: int) -> int:
    """How many columns fit side by side, with a gap of one after each; at least one."""
    fits = [column for column, taken in enumerate(accumulate(width + 1 for width in widths), 1) if taken <= room]
    return max(fits, default=1)
