"""The ways in which sinusoids are laid out in the field, as values: which column holds what, and how fast it turns.

Says nothing about numbers: those are made in `exact`. The √d scaling is no part of a convention either, see `module`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from .._explain import explain, one_of, shorten
from .checks import (
    USUAL_BASE,
    check_base,
    check_bases,
    check_kinds,
    check_one_kind,
    check_place,
    check_places,
    check_wavelengths,
)

Layout = Literal["interleaved", "halves"]
Spacing = Literal["width", "ends"]


@dataclass(frozen=True)
class Convention:
    r"""Layout and spacing of a sinusoidal encoding: which column is a sine, and how fast each pair of columns turns.

    The presets in `CONVENTIONS` are "vaswani", "tensor2tensor", "fairseq", "marian", "m2m100", "whisper" and
    "musicgen"; everything that takes a convention takes their names as well. `fixed_bases(4, 5, 7)` makes one from
    chosen periods. Printed, a convention is its formula in words.

    Args:
        name (`str`): what it is called in messages and files.
        layout (`"interleaved"` or `"halves"`): sine and cosine side by side, or all sines and then all cosines. Of an
            odd width the last sine has no cosine (or the other way round, with the cosine first); in halves spaced by
            `"ends"`, its last column is zeros.
        spacing (`"width"` or `"ends"`): frequency i is base^(-2i/D); or base^(-i/(H-1)) for H frequencies, so that the
            last one is exactly 1/base (the divisor H-1 is at least 1).
        first_position (`int`, *optional*, defaults to 0): position of the first token, where positions are not given.
        padding_position (`int`, *optional*): the position whose row is zero where a table is made.
        bases (`tuple` of numbers, *optional*): positions per turn of each pair of columns, instead of a spacing.
        cosine_first (`bool`, *optional*, defaults to `False`): each cosine before its sine, or all before all sines.
        base (number, *optional*, defaults to 10000): of the spacing, where no other is asked for.
        wavelengths (two numbers, *optional*): the shortest and the longest, in positions per turn, instead of a base:
            the spacing runs from one to the other. A base means (2π, 2π·base). Below 1 for positions in seconds, say.

    Raises:
        ValueError: if a setting is none of its choices, out of its range, or contradicts another.
        TypeError: if a number is none.

    Source:
        vaswani: Vaswani et al. 2017, section 3.5, arXiv:1706.03762. tensor2tensor: `get_timing_signal_1d`. fairseq:
        `SinusoidalPositionalEmbedding`, with its usual padding index 1. marian, m2m100 (NLLB's as well), whisper and
        musicgen: the model families of these names in transformers.

    Example:
        >>> CONVENTIONS["fairseq"].first_position
        2
        >>> print(CONVENTIONS["musicgen"])
        cosines, then sines, of p / 10000^(i/(H-1))
        >>> print(Convention("seconds", wavelengths=(0.01, 60)))
        sines and cosines side by side, one turn in 0.01 to 60 positions, spaced by 2i/D
    """

    name: str
    layout: Layout = "interleaved"
    spacing: Spacing = "width"
    first_position: int = 0
    padding_position: int | None = None
    bases: tuple[float, ...] | None = None
    cosine_first: bool = False
    base: float = USUAL_BASE
    wavelengths: tuple[float, float] | None = None
    # All of them as text, for the operator that a compiler sees: to it a float on an object is no constant.
    spelled: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_kinds(self.name, self.cosine_first)
        if self.layout not in get_args(Layout):
            raise ValueError(one_of("layout", self.layout, get_args(Layout)))
        if self.spacing not in get_args(Spacing):
            raise ValueError(one_of("spacing", self.spacing, get_args(Spacing)))
        object.__setattr__(self, "first_position", check_place(self.first_position, "first_position", negative=True))
        if self.padding_position is not None:
            row = check_place(self.padding_position, "padding_position", negative=False)
            object.__setattr__(self, "padding_position", row)
        object.__setattr__(self, "base", check_base(self.base))
        for name, check in (("bases", check_bases), ("wavelengths", check_wavelengths)):
            if (numbers := getattr(self, name)) is not None:
                object.__setattr__(self, name, check(numbers))  # a list from JSON must hash like a tuple
        check_one_kind(self.bases, self.wavelengths, self.base)
        object.__setattr__(self, "spelled", repr(self.values()))

    def __str__(self) -> str:
        names = ("cosines", "sines") if self.cosine_first else ("sines", "cosines")
        order = f"{names[0]} and {names[1]} side by side" if self.layout == "interleaved" else ", then ".join(names)
        power = "2i/D" if self.spacing == "width" else "i/(H-1)"
        if self.bases is not None:
            shown = ", ".join(f"{base:.6g}" for base in self.bases[:6])
            return f"{order}, one turn in {shown}{', …' if len(self.bases) > 6 else ''} positions"
        if self.wavelengths is not None:
            shortest, longest = self.wavelengths
            return f"{order}, one turn in {shortest:.6g} to {longest:.6g} positions, spaced by {power}"
        return f"{order}, of p / {self.base:.8g}^({power})"

    @property
    def formula(self) -> Convention:
        """What decides a position's row: the same without name, first position and padding row."""
        return replace(self, name="", first_position=0, padding_position=None)

    def to_dict(self) -> dict[str, Any]:
        r"""What JSON can hold: a preset by its name alone, anything else by all its fields.

        Example:
            >>> CONVENTIONS["marian"].to_dict()
            {'name': 'marian'}
        """
        if CONVENTIONS.get(self.name) == self:
            return {"name": self.name}
        if self.bases is not None and self == fixed_bases(*self.bases):
            return {"name": "fixed_bases", "bases": list(self.bases)}
        named = zip(_NAMES, self.values(), strict=True)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in named}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Convention:
        r"""The convention that `to_dict` wrote.

        Args:
            values (mapping): `{"name": ...}` of a preset, or all fields.

        Raises:
            ValueError: if a key is unknown, or only a name is given and no preset has it.
            TypeError: if it is no mapping.

        Example:
            >>> Convention.from_dict({"name": "fixed_bases", "bases": [4, 5, 7]}) == fixed_bases(4, 5, 7)
            True
        """
        if not isinstance(values, Mapping):
            raise TypeError(
                explain("a convention is read from a mapping", got=shorten(values), fix='{"name": "vaswani"}')
            )
        for key in values:
            if key not in _NAMES:
                raise ValueError(one_of("a key of a convention", key, _NAMES))
        if set(values) == {"name"}:
            return resolve_convention(values["name"])
        if set(values) == {"name", "bases"} and values["name"] == "fixed_bases":
            return fixed_bases(*check_bases(values["bases"]))
        if "name" not in values:
            raise ValueError(explain("a convention needs a name", got=shorten(dict(values)), fix='{"name": "vaswani"}'))
        return cls(**values)

    def values(self) -> tuple[Any, ...]:
        r"""All fields in order: `Convention(*convention.values()) == convention`.

        Example:
            >>> CONVENTIONS["fairseq"].values()
            ('fairseq', 'halves', 'ends', 2, 1, None, False, 10000.0, None)
        """
        return tuple(getattr(self, name) for name in _NAMES)

    def counts(self, d_model: int) -> tuple[int, int]:
        r"""How many of `d_model` columns are sines, and how many are cosines; what is left over is zero.

        Example:
            >>> CONVENTIONS["vaswani"].counts(5), CONVENTIONS["fairseq"].counts(5)
            ((3, 2), (2, 2))
        """
        whole_pairs = self.layout == "halves" and self.spacing == "ends"
        first = d_model // 2 if whole_pairs else (d_model + 1) // 2
        second = min(first, d_model - first)
        return (second, first) if self.cosine_first else (first, second)

    def columns(self, d_model: int) -> tuple[slice, slice]:
        r"""Where the sines are in a row of `d_model` numbers, and where the cosines.

        Example:
            >>> CONVENTIONS["musicgen"].columns(8)
            (slice(4, 8, 1), slice(0, 4, 1))
        """
        sines, cosines = self.counts(d_model)
        first, second = (cosines, sines) if self.cosine_first else (sines, cosines)
        if self.layout == "interleaved":
            places = slice(0, 2 * first, 2), slice(1, 2 * second, 2)
        else:
            places = slice(0, first, 1), slice(first, first + second, 1)
        return (places[1], places[0]) if self.cosine_first else places

    def fits(self, d_model: int) -> bool:
        r"""Whether it makes rows of that width: fixed bases make one width only.

        Example:
            >>> fixed_bases(4, 5, 7).fits(6), fixed_bases(4, 5, 7).fits(8)
            (True, False)
        """
        return self.bases is None or d_model == 2 * len(self.bases)

    def check_fit(self, d_model: int, base: float | None = None) -> float | None:
        r"""The base to compute with, once width and base are known to suit: `None` for fixed bases and wavelengths.

        Raises:
            ValueError: if `base` is not larger than 1 or has no place, or the width does not fit the fixed bases.
            TypeError: if `base` is not a number.

        Example:
            >>> CONVENTIONS["vaswani"].check_fit(512)
            10000.0
        """
        check_places(self.bases, self.wavelengths, base, d_model)
        if self.bases is not None or self.wavelengths is not None:
            return None
        return self.base if base is None else check_base(base)


_NAMES = tuple(each.name for each in fields(Convention) if each.init)

CONVENTIONS: Mapping[str, Convention] = MappingProxyType(
    {
        convention.name: convention
        for convention in (
            Convention("vaswani"),
            Convention("tensor2tensor", layout="halves", spacing="ends"),
            Convention("fairseq", layout="halves", spacing="ends", first_position=2, padding_position=1),
            Convention("marian", layout="halves"),
            Convention("m2m100", layout="halves", spacing="ends", first_position=2, padding_position=1),
            Convention("whisper", layout="halves", spacing="ends"),
            Convention("musicgen", layout="halves", spacing="ends", cosine_first=True),
        )
    }
)


def fixed_bases(*bases: float) -> Convention:
    r"""A convention in which pair i of columns makes a full turn every `bases[i]` positions.

    All columns together repeat after the least common multiple of whole bases: 140 positions for (4, 5, 7).

    Args:
        bases (numbers): positions per turn, each larger than 1. The width is twice their number.

    Returns:
        `Convention`, interleaved.

    Raises:
        ValueError: without bases, or if one is not larger than 1.
        TypeError: if one is not a number.

    Example:
        >>> fixed_bases(4, 5, 7).name
        'fixed_bases(4, 5, 7)'
    """
    found = check_bases(bases)
    return Convention(f"fixed_bases({', '.join(map(str, found))})", bases=found)


def resolve_convention(convention: str | Convention) -> Convention:
    r"""The convention of that name; a `Convention` as it is.

    Raises:
        ValueError: if no preset has that name.
        TypeError: if it is neither a name nor a `Convention`.

    Example:
        >>> resolve_convention("tensor2tensor").spacing
        'ends'
    """
    if isinstance(convention, Convention):
        return convention
    if not isinstance(convention, str):
        raise TypeError(
            explain(
                "convention must be a name or a Convention",
                got=shorten(convention),
                fix="convention='vaswani', or convention=fixed_bases(4, 5, 7)",
            )
        )
    if convention not in CONVENTIONS:
        raise ValueError(one_of("convention", convention, CONVENTIONS))
    return CONVENTIONS[convention]
