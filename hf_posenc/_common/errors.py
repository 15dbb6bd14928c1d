"""Error messages of this package: the rule, the value and the fix."""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from types import FrameType
from typing import TypeVar

from rich.filesize import decimal

_Error = TypeVar("_Error", bound=Exception)


class Message(str):
    """Message of `explain` with its parts as text; `got` and `fix` are `None` if they were left out."""

    rule: str
    got: str | None
    fix: str | None


class BadDataError(ValueError):
    """`ValueError` for a row or a file that is wrong, whatever the settings."""


class MissingKeyError(KeyError):
    """`KeyError` whose text is its message, with line breaks; that of a plain `KeyError` is quoted."""

    def __str__(self) -> str:
        return str(self.args[0])


def explain(rule: str, *, got: object = None, fix: str | None = None) -> Message:
    r"""Return an error message of up to three lines: the rule, the given value, and the fix.

    Name the column, the row and the compared numbers. `got` is printed with `str`; `fix` is code to paste if possible.

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
    message = Message("\n".join(lines))
    message.rule, message.got, message.fix = rule, None if got is None else str(got), fix
    return message


def pip_install(*libraries: str) -> str:
    r"""Return the command that installs optional libraries, in the versions that the extras of this package require.

    Example:
        >>> pip_install("matplotlib").startswith('pip install "matplotlib>=')
        True
    """
    requirements = [line.partition(";")[0].strip() for line in metadata.requires("hf-posenc") or ()]
    wanted = (next((line for line in requirements if re.match(rf"{name}\b(?!-)", line)), name) for name in libraries)
    return "pip install " + " ".join(f'"{requirement}"' for requirement in wanted)


def message_of(error: BaseException) -> Message | None:
    """Return the message of an error of this package, with its parts; `None` for an error of another library."""
    return next((part for part in error.args if isinstance(part, Message)), None)


def _error(kind: type[_Error], rule: str, got: object, fix: str | None) -> _Error:
    error = kind(message := explain(rule, got=got, fix=fix))
    vars(error).update(vars(message))
    return error


def value_error(rule: str, *, got: object = None, fix: str | None = None) -> ValueError:
    """Return a `ValueError` with the message of `explain`; its attributes `rule`, `got` and `fix` are the parts."""
    return _error(ValueError, rule, got, fix)


def bad_data_error(rule: str, *, got: object = None, fix: str | None = None) -> BadDataError:
    """Return a `BadDataError` with the message of `explain`; its attributes `rule`, `got` and `fix` are the parts."""
    return _error(BadDataError, rule, got, fix)


def type_error(rule: str, *, got: object = None, fix: str | None = None) -> TypeError:
    """Return a `TypeError` with the message of `explain`; its attributes `rule`, `got` and `fix` are the parts."""
    return _error(TypeError, rule, got, fix)


def runtime_error(rule: str, *, got: object = None, fix: str | None = None) -> RuntimeError:
    """Return a `RuntimeError` with the message of `explain`; its attributes `rule`, `got` and `fix` are the parts."""
    return _error(RuntimeError, rule, got, fix)


def require_one_split(source: object, then: str = "") -> None:
    """Raise `TypeError` if `source` is a dict of data sets; the code `then` follows the chosen split in the advice."""
    splits = (
        [name for name, part in source.items() if hasattr(part, "column_names")] if isinstance(source, dict) else []
    )
    if splits:
        raise type_error(
            "read one split at a time",
            got=f"{type(source).__name__} of {shorten(splits)}",
            fix=f"dataset[{splits[0]!r}]{then}",
        )


def one_of(name: str, value: object, allowed: Iterable[object]) -> Message:
    r"""Return the error message for a `value` that is not in `allowed`; it suggests the most similar allowed value.

    `name` is that of an argument, or words such as `"a key of a convention"`.

    Example:
        >>> print(one_of("padding_side", "lft", ("left", "right")))
        padding_side must be one of 'left', 'right'
          got: 'lft'
          fix: padding_side='left'
    """
    options = list(allowed)
    # What was asked for stays on. An array has no truth value.
    is_on = bool(value) if isinstance(value, str | int | None) else True
    candidates = [option for option in options if bool(option) == is_on] or options
    near = difflib.get_close_matches(str(value), [str(option) for option in candidates], n=1, cutoff=0.45)
    best = next((option for option in candidates if near and str(option) == near[0]), candidates[0])
    fix = f"{name}={best!r}" if name.isidentifier() else repr(best)
    return explain(f"{name} must be one of {', '.join(map(repr, options))}", got=repr(value), fix=fix)


def require_one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise `ValueError` with the message of `one_of` if `value` is not in `allowed`."""
    if value not in (options := list(allowed)):
        raise ValueError(one_of(name, value, options))


def unknown_keyword(name: str, known: Sequence[str], called_here: Mapping[str, str]) -> Message:
    """Return the error message for an unknown keyword argument; it suggests the keyword to use instead."""
    near = [name] if name in called_here else difflib.get_close_matches(name, [*known, *called_here], n=1, cutoff=0.6)
    fix = called_here.get(near[0], f"{near[0]}=...") if near else f"one of {', '.join(known)}"
    return explain(f"there is no argument '{name}'", fix=fix)


def shorten(value: object, limit: int = 60) -> str:
    r"""Return `repr(value)` for a message, shortened to about `limit` characters by leaving out its middle.

    Example:
        >>> shorten("a" * 100 + "z", limit=20)
        "'aaaaaaaa … aaaaaaz'"
    """
    if isinstance(value, (str, bytes)) and len(value) > 2 * limit:  # do not copy a long text
        head, tail = repr(value[:limit]), repr(value[-limit:])
    else:
        head = tail = repr(value)
    if "\n" in head:  # a message has three lines; the repr of a text has no line break
        head = tail = " ".join(head.split())
    half = (limit - 3) // 2
    return head if len(head) <= limit else f"{head[: half + 1]} … {tail[-half:]}"


def in_bytes(size: float) -> str:
    """Return a number of bytes as text with a unit, such as "33.7 MB"."""
    return decimal(int(size))


def counted(number: int, noun: str) -> str:
    """Return a number and its noun as text; the noun gets an `s` unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def lone_surrogate(text: str) -> int | None:
    """Return the index of the first lone surrogate, which no tokenizer can encode; `None` if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def warn(rule: str, *, got: object = None, fix: str | None = None) -> None:
    """Warn with the message of `explain`, at the first line outside of this package, once for each such line."""
    package = __name__.partition(".")[0]
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(explain(rule, got=got, fix=fix), stacklevel=level + 1)
