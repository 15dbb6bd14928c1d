"""Output of the command line: names with values, errors, progress, and batches as text tables.

`rich` prints everything, to any terminal, file or pipe. Characters that a stream cannot encode become escapes.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..collator import Batch

# Bright black is gray in every terminal's palette. Without colors, padding is recognizable by its token.
_PADDING = "bright_black"
_COLUMNS = ("input_ids", "token_type_ids", "attention_mask", "position_ids")
_TOKEN_WIDTH = 14  # characters for the token beside a row of a look-ahead mask
_MAX_QUERIES = 24  # lines of a look-ahead mask


class Screen:
    r"""Output streams of a command: results on stdout, progress and messages on stderr.

    Example:
        >>> Screen().say("ready")
        ready
    """

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        self.out = Console(highlight=False)
        self.passing = Console(stderr=True, highlight=False)
        self.yes, self.no = "#." if self.out.options.ascii_only else "█·"

    def say(self, text: str = "", style: str = "") -> None:
        """Print one or more lines without wrapping them, in a style of `rich` such as `"bold"`."""
        self.out.print(Text(_visible(text, keep="\n"), style=style), soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print an empty line and a heading."""
        self.say()
        self.say(text, style="bold")

    def facts(self, rows: Mapping[str, str]) -> None:
        """Print a line for each item of `rows`: its key in bold, then its value."""
        width = max(map(len, rows))
        for name, value in rows.items():
            line = Text(f"{name.ljust(width)}  ", style="bold")
            self.out.print(line.append(_visible(value), style="not bold"), soft_wrap=True)

    def complain(self, message: str) -> None:
        """Print an error or a note on stderr, with its first line in red."""
        rule, _, rest = _visible(message, keep="\n").partition("\n")
        self.passing.print(Text(rule, style="bold red"), soft_wrap=True)
        if rest:
            self.passing.print(Text(rest), soft_wrap=True)

    def batch(
        self, batch: Batch, tokens: Sequence[Sequence[str]], texts: Sequence[str], *, max_tokens: int | None = None
    ) -> None:
        r"""Print each row of a batch as a table with one line per token, and the look-ahead mask of the longest row."""
        is_token = [[bool(value) for value in row] for row in batch["attention_mask"].tolist()]
        columns = {name: batch[name].tolist() for name in _COLUMNS if name in batch}
        for number, text in enumerate(texts):
            self.heading(f"row {number}: {text}")
            table = Table("column", "token", *columns, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for column in (table.columns[0], *table.columns[2:]):
                column.justify = "right"
            for index, token in enumerate(tokens[number][:max_tokens]):
                cells = [str(index), _visible(token), *(str(rows[number][index]) for rows in columns.values())]
                table.add_row(*(Text(cell, style="" if is_token[number][index] else _PADDING) for cell in cells))
            self.out.print(table)
            self._count_rest(tokens[number], max_tokens)
        if "look_ahead_mask" in batch:
            longest = max(range(len(texts)), key=lambda number: sum(is_token[number]))
            self.heading(f"look_ahead_mask of row {longest}: a line for each token, filled where it may attend")
            self._mask(tokens[longest], batch["look_ahead_mask"][longest, 0].tolist())

    def _mask(self, tokens: Sequence[str], mask: Sequence[Sequence[bool]]) -> None:
        """Print a look-ahead mask: one line per token, with a block for each token that it may attend to."""
        count = min(_MAX_QUERIES, (self.out.width - _TOKEN_WIDTH - 3) // 2)
        grid = Table.grid(padding=(0, 1))
        grid.add_column(max_width=_TOKEN_WIDTH, no_wrap=True, overflow="ellipsis")
        grid.add_column(no_wrap=True)
        for token, row in zip(tokens[:count], mask, strict=False):
            grid.add_row(Text(_visible(token)), " ".join(self.yes if value else self.no for value in row[:count]))
        self.out.print(grid)
        self._count_rest(tokens, count)

    def _count_rest(self, tokens: Sequence[str], count: int | None) -> None:
        if count is not None and len(tokens) > count:
            self.say(f"and {len(tokens) - count} tokens more", style=_PADDING)

    def progress(self, description: str, items: Sequence[Any]) -> Iterable[Any]:
        """Return an iterator over `items`; if stderr is a terminal, a progress bar shows how many are done."""
        return track(items, description, console=self.passing, transient=True, disable=not self.passing.is_terminal)


def _visible(text: str, keep: str = "") -> str:
    """Return the text with control characters replaced by escapes, except those in `keep`."""
    return "".join(
        c if c in keep or unicodedata.category(c)[0] != "C" else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
