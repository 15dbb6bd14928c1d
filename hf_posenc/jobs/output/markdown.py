"""Tables as Markdown that no value can break.

Words only; what they are about is for `card`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: tuple[str, str], rows: Sequence[tuple[str, str]], most: int | None = None) -> str:
    r"""A table of two columns.

    Args:
        head (pair of `str`): what stands above.
        rows (sequence of pairs of `str`): Markdown already.
        most (`int`, *optional*): rows to show; the others are counted.

    Returns:
        `str`, without a line break at its end.

    Example:
        >>> print(table(("input", "size"), [("a.txt", "1 kB"), ("b.txt", "2 kB"), ("c.txt", "3 kB")], most=1))
        | input | size |
        | --- | --- |
        | a.txt | 1 kB |
        | and 2 more | |
    """
    shown = rows[:most]
    lines = [head, ("---", "---"), *shown]
    if len(shown) < len(rows):
        lines.append((f"and {len(rows) - len(shown):,} more", ""))
    return "\n".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines)


def code_rows(rows: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    r"""Names and values as code.

    Args:
        rows (iterable of name and JSON value): an empty string stays empty.

    Returns:
        `list` of pairs of `str`, ready for `table`.

    Example:
        >>> code_rows([("pack", None), ("labels", "causal_lm"), ("name", "")])
        [('`pack`', '`null`'), ('`labels`', '`causal_lm`'), ('`name`', '')]
    """
    return [(f"`{plain(name)}`", f"`{plain(value)}`" if value != "" else "") for name, value in rows]


def plain(value: Any) -> str:
    """A value on one line, without what would end a table's cell or its code."""
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(words.split()).replace("`", "'").replace("|", "\\|")
