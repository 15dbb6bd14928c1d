"""How every error of this package is worded: the rule, the value, the way out.

Words only: which exception class is raised, and when, is decided where the value is used.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence


def explain(rule: str, *, got: object = None, fix: str | None = None) -> str:
    r"""Three lines for an error message: what the rule is, what was given, what to write instead.

    Args:
        rule (`str`): the rule that was broken, with the column, the row and both numbers where there are any.
        got (`object`, *optional*): what was given. Printed as it is, so pass `repr(value)` where quotes matter.
        fix (`str`, *optional*): the way out, pasteable where it can be.

    Returns:
        `str` of one to three lines, without a trailing newline.

    Example:
        >>> print(explain("d_model must be positive", got=0, fix="SinusoidalPositionalEncoding(512)"))
        d_model must be positive
          got: 0
          fix: SinusoidalPositionalEncoding(512)
    """
    lines = [rule]
    if got is not None:
        lines.append(f"  got: {got}")
    if fix is not None:
        lines.append(f"  fix: {fix}")
    return "\n".join(lines)


def one_of(name: str, value: object, allowed: Iterable[object]) -> str:
    r"""The message for a value that is none of the allowed ones, with the nearest of them as the way out.

    Args:
        name (`str`): name of the argument.
        value (`object`): what was given.
        allowed (iterable of `object`): the values that would have been right, in the order in which to list them.

    Returns:
        `str`, ready for a `ValueError`.

    Example:
        >>> print(one_of("padding_side", "lft", ("left", "right")))
        padding_side must be one of 'left', 'right'
          got: 'lft'
          fix: padding_side='left'
    """
    options = list(allowed)
    near = difflib.get_close_matches(str(value), [str(option) for option in options], n=1, cutoff=0.5)
    best = next((option for option in options if near and str(option) == near[0]), options[0])
    return explain(f"{name} must be one of {', '.join(map(repr, options))}", got=repr(value), fix=f"{name}={best!r}")


def unknown_keyword(name: str, known: Sequence[str], called_here: Mapping[str, str]) -> str:
    r"""The message for a keyword that does not exist: what it is called here, or the nearest one that does.

    Args:
        name (`str`): the keyword that was given.
        known (sequence of `str`): the keywords that there are.
        called_here (mapping from `str` to `str`): for keywords known from elsewhere, what to write instead.

    Returns:
        `str`, ready for a `TypeError`.

    Example:
        >>> print(unknown_keyword("max_lenght", ["max_length", "stride"], {}))
        there is no argument 'max_lenght'
          fix: max_length=...
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    fix = called_here.get(name) or (f"{near[0]}=..." if near else f"one of {', '.join(known)}")
    return explain(f"there is no argument '{name}'", fix=fix)


def shorten(value: object, limit: int = 60) -> str:
    r"""`repr(value)`, cut in the middle when it is longer than `limit` characters, for use in a message.

    Example:
        >>> shorten("a" * 100, limit=20)
        "'aaaaaaaa … aaaaaaa'"
    """
    text = value[: 2 * limit] if isinstance(value, (str, bytes)) and len(value) > 2 * limit else value
    words = repr(text)
    if len(words) <= limit:
        return words
    half = (limit - 3) // 2
    return f"{words[: half + 1]} … {words[-half:]}"


def in_bytes(size: float) -> str:
    r"""An amount of bytes, in the unit that fits it.

    Example:
        >>> in_bytes(812), in_bytes(33_712_345), in_bytes(1.2e12)
        ('812 bytes', '33.7 MB', '1.2 TB')
    """
    for unit, each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= each:
            return f"{size / each:,.1f} {unit}"
    return f"{size:.0f} byte{'' if size == 1 else 's'}"


def counted(number: int, noun: str) -> str:
    r"""A number of things.

    Example:
        >>> counted(1, "document"), counted(2_000, "shard")
        ('1 document', '2,000 shards')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
