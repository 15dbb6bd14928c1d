"""What travels between the one that reads a corpus and the ones that tokenise it: a task for each shard.

Plain picklable values; where they come from is for `sources`, what becomes of them for `shard`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Kind = Literal["lines", "paragraphs", "jsonl", "arrow"]


class Cursor(NamedTuple):
    r"""A place between two documents of a corpus, from which reading can go on.

    Args:
        source (`int`): which of the sources, from 0; their number at the end of the corpus.
        offset (`int`): bytes of its decompressed text that lie before; 0 for sources that are tables.
        row (`int`): lines, or rows, of it that lie before.
    """

    source: int = 0
    offset: int = 0
    row: int = 0


@dataclass(frozen=True)
class Part:
    r"""A run of whole documents from one source.

    Args:
        source (`str`): its name, as messages say it.
        kind (`str`): what the payload is: bytes of text, a document a line (`"lines"`) or between blank lines
            (`"paragraphs"`); bytes of JSON lines (`"jsonl"`); or an Arrow IPC stream of one table (`"arrow"`).
        first (`int`): the number of the first line, counted from 1, or of the first row, counted from 0.
        payload (`bytes`): see `kind`. Text is as it is in the file, a byte order mark at its start left out.
    """

    source: str
    kind: Kind
    first: int
    payload: bytes

    @property
    def unit(self) -> Literal["line", "row"]:
        """What `first` counts."""
        return "row" if self.kind == "arrow" else "line"


@dataclass(frozen=True)
class Task:
    r"""What becomes one shard.

    Args:
        shard (`int`): its number, from 0.
        parts (`tuple` of `Part`): its documents, in order.
        begins, ends (`Cursor`): where they lie in the corpus.
        size (`int`): how many bytes of the corpus they take, as progress counts them.
    """

    shard: int
    parts: tuple[Part, ...]
    begins: Cursor
    ends: Cursor
    size: int


@dataclass(frozen=True)
class Rejected:
    r"""A document that was left out, or kept without tokens.

    Args:
        source (`str`), unit (`"line"` or `"row"`), number (`int`): where it stands.
        reason (`str`): what is wrong with it.
        text (`str`, *optional*): how it begins, where it can be shown.
    """

    source: str
    unit: str
    number: int
    reason: str
    text: str | None = None

    def entry(self, shard: int) -> dict[str, Any]:
        """The line of `rejected.jsonl`."""
        found = {"shard": shard, "file": self.source, self.unit: self.number, "reason": self.reason}
        return found if self.text is None else {**found, "text": self.text}
