"""Corpora of any size: the standard library's docstrings repeated, with numbers, so that no two lines are equal.

A few documents are bad, if wanted, so that there are rejected rows as well.
"""

from __future__ import annotations

import functools
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from hf_posenc.testing import standard_library_docstrings

_BLOCK = 1 << 20
_BAD_EVERY = 701


def write_text(path: Path, size: int, *, bad: bool = False) -> None:
    """Write a document a line, about `size` bytes; with `bad`, some lines are not UTF-8."""
    lines = ((n, f"{n} {' '.join(text.split())}") for n, text in _numbered(size))
    _write(path, size, ("\udcff" if bad and n % _BAD_EVERY == 350 else line for n, line in lines))


def write_json_lines(path: Path, size: int, *, bad: bool = False) -> None:
    """Write JSON lines of about `size` bytes; with `bad`, some lines are cut off in the middle."""
    lines = ((n, json.dumps({"text": f"{n}\n{text}"}, ensure_ascii=False)) for n, text in _numbered(size))
    _write(path, size, (line[: len(line) // 2] if bad and n % _BAD_EVERY == 350 else line for n, line in lines))


@functools.cache
def _texts(few: bool) -> list[str]:
    return standard_library_docstrings(Path(sysconfig.get_path("stdlib"), "asyncio") if few else None)


def _numbered(size: int) -> Iterator[tuple[int, str]]:
    """Yield numbered docstrings: those of one package for a small corpus, because finding all takes seconds."""
    texts = _texts(size < _BLOCK)
    number = 0
    while True:
        for text in texts:
            yield number, text
            number += 1


def _write(path: Path, size: int, lines: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="\n", buffering=_BLOCK) as file:
        written = 0
        while written < size:
            line = next(lines)
            file.write(line + "\n")
            written += len(line.encode("utf-8", "surrogateescape")) + 1
