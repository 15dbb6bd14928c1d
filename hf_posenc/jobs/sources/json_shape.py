"""Files of JSON that are neither a list nor an object a line, told from how they begin, and refused with the way out.

What a line that is no good gets is for `reading`: here it is the shape of the whole file that is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from ..._explain import explain, shorten

_HOLDS_A_LIST = re.compile(rb'\s*\{\s*"([^"\\]*)"\s*:\s*\[')


def check_lines(name: str, block: bytes, told: pa.Schema | None, texts: Sequence[str]) -> None:
    r"""Refuse a file that is one object, or whose objects go over several lines.

    Args:
        name (`str`): what messages call it.
        block (`bytes`): how it begins.
        told (`pyarrow.Schema`, *optional*): the columns of its lines; `None` where no line is an object.
        texts (sequence of `str`): the columns of text.

    Raises:
        ValueError: with the command that makes it JSON lines.

    Example:
        >>> check_lines("a.json", b'{"text": "I ride"}\n', pa.schema([("text", pa.string())]), ["text"])
        >>> check_lines("a.json", b'{\n  "text": "I ride"\n}\n', None, ["text"])
        Traceback (most recent call last):
        ValueError: a.json is no file of JSON lines: an object goes over several lines
          got: '{\n  "text": "I ride"\n}'
          fix: jq -c '.' a.json > lines.jsonl
    """
    inside = _HOLDS_A_LIST.match(block)
    if _goes_on(block, told):
        raise ValueError(
            explain(
                f"{name} is no file of JSON lines: an object goes over several lines",
                got=shorten(block[:400].decode(errors="replace").strip()),
                fix=_command(inside[1].decode(errors="replace") if inside else None, name),
            )
        )
    if told is None or texts[0] in told.names:
        return
    for field in told:
        kind = field.type.value_type if pa.types.is_list(field.type) else None
        if kind is not None and pa.types.is_struct(kind) and texts[0] in kind.names:
            raise ValueError(
                explain(
                    f"{name} has no column {texts[0]!r}, but in the list {field.name!r}",
                    got="an object that holds the documents",
                    fix=_command(field.name, name),
                )
            )


def _goes_on(block: bytes, told: pa.Schema | None) -> bool:
    """Whether the first object does not end on its line."""
    lines = [line for line in block[:4096].split(b"\n") if line.strip()]
    if len(lines) > 1 and lines[0].strip() == b"{" and lines[1].lstrip().startswith(b'"'):
        return True
    if told is not None or not lines or not lines[0].lstrip().startswith(b"{"):
        return False
    try:
        value, end = json.JSONDecoder().raw_decode(text := block.decode(errors="replace").lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "\n" in text[:end]


def _command(key: str | None, name: str) -> str:
    return f"jq -c '.{'' if key is None else f'{key}[]'}' {name} > lines.jsonl"
