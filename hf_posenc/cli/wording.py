"""Between the command line and Python: sizes read as numbers, refusals that name keywords reworded to name options.

It knows nothing of what the values mean; whether they are allowed is checked where they are used.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping

from .._explain import explain

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_VALUE = r"""(\[[^\]]*\]|'[^']*'|"[^"]*"|[^\s,;()'"]+)"""


def size(text: str, option: str) -> int:
    r"""Bytes, from a number and a unit.

    Args:
        text (`str`): such as `64MB` (millions), `1.5 GiB` (of 1,024 MiB) or `4096`.
        option (`str`): what the refusal calls it.

    Returns:
        `int`, rounded to a whole byte.

    Raises:
        ValueError: if that is no size.

    Example:
        >>> size("64MB", "--shard-size"), size("1.5kib", "--shard-size"), size("4096", "--shard-size")
        (64000000, 1536, 4096)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([a-z]*)\s*", text, re.ASCII | re.IGNORECASE)
    unit = _UNITS.get(found[2].upper() or "B") if found else None
    if found is None or unit is None:
        units = "B, KB, MB, GB, TB (thousands), KiB, MiB, GiB, TiB (of 1,024)"
        raise ValueError(
            explain(f"{option} takes a number and a unit: {units}", got=repr(text), fix=f"{option} {_meant(text)}")
        )
    return round(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def _meant(text: str) -> str:
    """What was probably to be written: `64M` and `64 mega` are 64MB."""
    found = re.match(r"\s*(\d{1,15})\s*([kmgt])", text, re.ASCII | re.IGNORECASE)
    return f"{found[1]}{found[2].upper()}B" if found else "64MB"


def in_options(message: str, options: Mapping[str, str]) -> str:
    r"""The words of `explain` for a Python caller, in the words of the command line.

    Args:
        message (`str`): as `explain` made it, naming keywords: `max_length=512`, `max_length must be ...`.
        options (mapping from `str` to `str`): keywords, and the options that set them; `"--yes/--no"` for a switch.

    Returns:
        `str` that names options where the rule and the fix named keywords; what was given stays as it is.

    Example:
        >>> print(in_options("stride must be less\n  got: 9\n  fix: stride=8", {"stride": "--stride"}))
        --stride must be less
          got: 9
          fix: --stride 8
    """
    rule, _, fix = message.partition("\n  fix: ")
    rule, _, got = rule.partition("\n  got: ")
    return explain(_reworded(rule, options), got=got or None, fix=_reworded(fix, options) or None)


def _reworded(text: str, options: Mapping[str, str]) -> str:
    names = "|".join(map(re.escape, options))
    # `split` and `format` are words as well: alone, they are an option only where a rule begins with them.
    plain = "|".join(re.escape(name) for name in options if "_" in name)

    def set_here(found: re.Match[str]) -> str:
        # Between parentheses it is Python: fix: DataCollator...(tokenizer, labels="masked_lm")
        inside = text.count("(", 0, found.start()) > text.count(")", 0, found.start())
        return found[0] if inside else _set(options[found[1]], found[2])

    text = re.sub(rf"(?<![\w.'\"-])({names})={_VALUE}", set_here, text)
    text = re.sub(rf"\A({names})(?= must | takes | has to )", lambda found: options[found[1]].split("/")[0], text)
    text = re.sub(rf"(?<![\w./'\"-])({plain})(?![\w./'\"=-])", lambda found: options[found[1]].split("/")[0], text)
    # A message for both kinds of reader says it twice: `text_column="body" (--text-column body)`.
    return re.sub(r"(--[\w-]+)([^()]{0,80}?) \(\1\b[^()]*\)", r"\1\2", text)


def _set(option: str, value: str) -> str:
    """What gives that option that value, as one types it."""
    try:
        given = value if value == "..." else ast.literal_eval(value)
    except (ValueError, SyntaxError):
        given = value
    yes, _, no = option.partition("/")
    if no and isinstance(given, bool):
        return yes if given else no
    if given is None:
        return f"no {option}"
    return " ".join(f"{option} {each if each == '...' else shlex.quote(str(each))}" for each in _several(given))


def _several(given: object) -> list[object]:
    return [*given] if isinstance(given, (list, tuple)) else [given]
