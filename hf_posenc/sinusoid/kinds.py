"""The kinds of positional encoding by name: the one argument of a comparison.

Names and settings only; what each kind does is in its own module.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from .._explain import explain, one_of, shorten, unknown_keyword
from .absent import NoPositionalEncoding
from .adding import PositionalEncoding
from .exponential import ExponentialPositionalEncoding
from .fourier import FourierPositionalEncoding
from .learned import LearnedPositionalEncoding
from .module import SinusoidalPositionalEncoding
from .scaled import ScaledSinusoidalPositionalEncoding

Kind = Literal["sinusoidal", "scaled", "learned", "fourier", "exponential", "none"]

KINDS: Mapping[str, type[PositionalEncoding]] = MappingProxyType(
    {
        "sinusoidal": SinusoidalPositionalEncoding,
        "scaled": ScaledSinusoidalPositionalEncoding,
        "learned": LearnedPositionalEncoding,
        "fourier": FourierPositionalEncoding,
        "exponential": ExponentialPositionalEncoding,
        "none": NoPositionalEncoding,
    }
)


def positional_encoding(kind: Kind, d_model: int, **settings: Any) -> PositionalEncoding:
    r"""A positional encoding by the name of its kind: comparing them changes one argument.

    Args:
        kind (`str`): `"sinusoidal"`; `"scaled"`, sinusoids times a learned number; `"learned"`, a table; `"fourier"`,
            learnable Fourier features; `"exponential"`, columns that decay; `"none"`.
        d_model (`int`): width D >= 1.
        **settings: arguments of the kind's class. All take `scale`, `dropout` and `max_length`.

    Returns:
        `SinusoidalPositionalEncoding`, `ScaledSinusoidalPositionalEncoding`, `LearnedPositionalEncoding`,
        `FourierPositionalEncoding`, `ExponentialPositionalEncoding` or `NoPositionalEncoding`, all of them called as
        `encode(x, position_ids=None, out=None)`. All but a learned table take any real positions (the exponential ones
        from 0 on), such as timestamps.

    Raises:
        ValueError: if there is no such kind, or a setting is out of its range.
        TypeError: for a setting that this kind does not have.

    Example:
        >>> import torch
        >>> x = torch.zeros(1, 3, 4)
        >>> for kind in ("sinusoidal", "scaled", "learned", "fourier", "exponential", "none"):
        ...     encode = positional_encoding(kind, 4)
        ...     print(f"{kind:11}", tuple(encode(x).shape), sum(p.numel() for p in encode.parameters()))
        sinusoidal  (1, 3, 4) 0
        scaled      (1, 3, 4) 1
        learned     (1, 3, 4) 2048
        fourier     (1, 3, 4) 42
        exponential (1, 3, 4) 0
        none        (1, 3, 4) 0
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(one_of("kind", kind, KINDS))
    made = KINDS[kind]
    known = [name for name in inspect.signature(made).parameters if name != "d_model"]
    for name in settings:
        if name not in known:
            raise TypeError(_unknown_setting(name, kind, known))
    return made(d_model, **settings)


def resolve_encoding(encoding: object, d_model: int, given: Mapping[str, Any]) -> PositionalEncoding:
    r"""The encoding of that kind; or the one that was given, once it is known to suit a table of this width.

    Args:
        encoding (`str` or `PositionalEncoding`): what was asked for.
        d_model (`int`): the width D of the table.
        given (mapping): settings that were asked for.

    Raises:
        ValueError: if there is no such kind, the width is another, or a module and settings were given.
        TypeError: if it is neither, or the kind has no such setting.

    Example:
        >>> resolve_encoding("none", 8, {})
        NoPositionalEncoding(8, scale=None, dropout=0.0, max_length=None)
    """
    if isinstance(encoding, PositionalEncoding):
        if given:
            name, value = next(iter(given.items()))
            raise ValueError(
                explain(
                    f"{name}= is set by the encoding that was given",
                    got=f"{name}={value!r}, and {encoding!r}",
                    fix=f"positional_encoding(kind, {d_model}, {name}={value!r})",
                )
            )
        if encoding.d_model != d_model:
            raise ValueError(
                explain(
                    "embedding and encoding must have the same width",
                    got=f"an embedding of width {d_model}, an encoding of width {encoding.d_model}",
                    fix=f"{type(encoding).__name__}({d_model})",
                )
            )
        return encoding
    if not isinstance(encoding, str):
        raise TypeError(
            explain(
                "encoding must be the name of a kind or a PositionalEncoding",
                got=shorten(encoding),
                fix="encoding='learned', or encoding=positional_encoding('learned', d_model, max_length=1024)",
            )
        )
    if encoding not in KINDS:
        raise ValueError(one_of("encoding", encoding, KINDS))
    return positional_encoding(encoding, d_model, **given)  # type: ignore[arg-type]


def _unknown_setting(name: str, kind: str, known: list[str]) -> str:
    whose = [other for other, made in KINDS.items() if name in inspect.signature(made).parameters]
    if not whose:
        return unknown_keyword(name, known, {})
    return explain(
        f"encoding '{kind}' has no setting '{name}'",
        got=f"{name}=, which belongs to {', '.join(map(repr, whose))}",
        fix=f"leave {name} out; '{kind}' has {', '.join(known)}",
    )
