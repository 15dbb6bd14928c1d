"""In what two descriptions of a job differ, in words with both values.

JSON values only; what follows from a difference is for `manifest`.
"""

from __future__ import annotations

from typing import Any

from ..._explain import shorten


def differences(prefix: str, before: Any, now: Any) -> list[str]:
    r"""Each value that differs, by its dotted name, with both.

    Args:
        prefix (`str`): the name of what is compared; empty for the settings as a whole, whose order says nothing.
        before, now (JSON values): dictionaries are gone through.

    Returns:
        `list[str]`, in the order of the names; empty where nothing differs.

    Example:
        >>> differences("", {"pack": None, "stride": 0}, {"pack": 64, "stride": 0})
        ['pack: None before, 64 now']
    """
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [f"{prefix}: {shorten(before)} before, {shorten(now)} now"]
    wrong = []
    for key in sorted({*before, *now}):
        name = f"{prefix}.{key}" if prefix else key
        if key in before and key in now:
            wrong += differences(name, before[key], now[key])
        elif key in before:
            wrong.append(f"{name}: {shorten(before[key])} before, not there now")
        else:
            wrong.append(f"{name}: not there before, {shorten(now[key])} now")
    if prefix and not wrong and list(before) != list(now):  # of columns, say; that of the settings is ours
        wrong.append(f"{prefix}: in the order {', '.join(before)} before, {', '.join(now)} now")
    return wrong


def other_tokenizer(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    r"""What differs between tokenizers. The digest decides where there is one: a folder may have been moved.

    Args:
        before, now (`dict`): of a `digest`, and what describes them.

    Returns:
        `list[str]`, as of `differences`.

    Example:
        >>> other_tokenizer({"digest": "1f", "name": "a"}, {"digest": "2e", "name": "a"})
        ['tokenizer: other files (digest 1f before, 2e now)']
    """
    old, new = before.get("digest"), now.get("digest")
    if old is not None and old == new:
        return []
    rest = [{key: value for key, value in one.items() if key != "digest"} for one in (before, now)]
    files = [] if old is None and new is None else [f"tokenizer: other files (digest {old} before, {new} now)"]
    return files + differences("tokenizer", *rest)
