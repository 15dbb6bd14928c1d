"""A file among the inputs: its name, where it is, and whether it is still what it was.

What is inside is for `lines` and `tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .marks import State, difference, mark_of, stamp_of, state_of


@dataclass(frozen=True)
class InputFile:
    r"""One file, of whatever kind.

    Args:
        name (`str`): what messages call it: the path as it was given.
        path (`Path`): where it is.
        kind (`str`): what is read from it, as the fingerprint says it.
        compression (`str`, *optional*): as `kinds.compression_of` says.
    """

    name: str
    path: Path
    kind: str
    compression: str | None

    def size(self) -> int | None:
        """Bytes of text: those of the file, or about four times as many where it is compressed."""
        return self.path.stat().st_size * (1 if self.compression is None else 4)

    def mark(self) -> dict[str, Any]:
        """What is written down about it, to know it again."""
        return mark_of(self.path, self.name, self.kind)

    def difference(self, before: dict[str, Any]) -> str | None:
        """What is different from what was written down, in words."""
        return difference(self.path, self.name, self.kind, before)

    def state(self) -> State:
        """What changes when the file is written to, or another is put in its place."""
        return state_of(self.path, self.name)

    def stamp(self) -> Any:
        """Return the times of the file, as a JSON value."""
        return stamp_of(self.path, self.name)
