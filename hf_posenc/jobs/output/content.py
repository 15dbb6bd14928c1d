"""What a manifest must hold to be used: every key, of its kind, and shards each of which begins where the last ended.

Of the text alone; whether the files are as it says is for `checking`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..._explain import shorten
from .folder import is_shard_name, shard_number

_SHA256 = re.compile(r"[0-9a-f]{64}")
_Kind = tuple[str, Callable[[Any], bool]]


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0  # true is no number


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_count, value))


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _is_named(value: Any) -> bool:
    return isinstance(value, dict)


_COUNT: _Kind = ("a whole number", _is_count)
_PLACE: _Kind = ("three whole numbers", _is_place)
_DIGEST: _Kind = ("64 hexadecimal digits", _is_digest)
_VALUES: _Kind = ("values by name", _is_named)

_TOP: dict[str, _Kind] = {
    "finished": ("true or false", lambda value: isinstance(value, bool)),
    "config": _VALUES,
    "tokenizer": _VALUES,
    "inputs": ("a list of values by name", lambda value: isinstance(value, list) and all(map(_is_named, value))),
    "libraries": _VALUES,
    "totals": ("whole numbers by name", lambda value: _is_named(value) and all(map(_is_count, value.values()))),
    "shards": ("a list", lambda value: isinstance(value, list)),
}
_RECORD: dict[str, _Kind] = {
    **dict.fromkeys(("bytes", "rows", "documents", "tokens", "longest", "padded", "rejected", "cut", "read"), _COUNT),
    "sha256": _DIGEST,
    "begins": _PLACE,
    "ends": _PLACE,
    "rejected_sha256": ("64 hexadecimal digits, or null", lambda value: value is None or _is_digest(value)),
}


def damage(content: Mapping[str, Any]) -> str | None:
    r"""What keeps a manifest from being one of this format, in words; `None` if nothing does.

    Args:
        content (mapping): its JSON.

    Returns:
        `str` about the first thing that is not as it must be, or `None`.

    Example:
        >>> damage({"finished": "yes"})
        "finished is 'yes', and must be true or false"
    """
    return next(_damages(content), None)


def _damages(content: Mapping[str, Any]) -> Iterator[str]:
    """Each may rely on what stands before it: only the first one counts."""
    yield from _other_kinds("", content, _TOP)
    records: dict[int, dict[str, Any]] = {}
    for record in content["shards"]:
        file = record.get("file") if isinstance(record, dict) else None
        if not isinstance(file, str) or not is_shard_name(file):
            yield f"a shard whose file is {shorten(file)}"
            return
        shard = shard_number(file)
        if shard in records:
            yield f"{file} is there twice"
        yield from _other_kinds(f"{file}: ", record, _RECORD)
        if (record["rejected"] == 0) != (record["rejected_sha256"] is None):
            yield f"{file}: rejected is {record['rejected']}, and rejected_sha256 {shorten(record['rejected_sha256'])}"
        records[shard] = record
    for shard, record in records.items():
        yield from _breaks(shard, record, records.get(shard - 1))


def _other_kinds(whose: str, values: Mapping[str, Any], kinds: Mapping[str, _Kind]) -> Iterator[str]:
    for name, (kind, fits) in kinds.items():
        if name not in values:
            yield f"{whose}{name} is not there"
        if not fits(values[name]):
            yield f"{whose}{name} is {shorten(values[name])}, and must be {kind}"


def _breaks(shard: int, record: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[str]:
    """The shards are the corpus in order: nothing lies between two neighbours, and nothing before the first."""
    file, begins, ends = record["file"], record["begins"], record["ends"]
    if ends < begins:
        yield f"{file} begins at {begins} and ends at {ends}"
    if shard == 0 and begins != [0, 0, 0]:
        yield f"{file} begins at {begins}, and not where the corpus does"
    if before is not None and begins != before["ends"]:
        yield f"{file} begins at {begins}, and {before['file']} ends at {before['ends']}"
