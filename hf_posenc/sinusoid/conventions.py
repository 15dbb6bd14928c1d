"""The ways in which sinusoids are laid out in the field, as values: which column holds what, and how fast it turns.

Says nothing about numbers: those are made in `exact`. The √d scaling is no part of a convention either, see `module`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

from .._explain import explain, one_of, shorten

Layout = Literal["interleaved", "halves"]
Spacing = Literal["width", "ends"]


@dataclass(frozen=True)
class Convention:
    r"""Layout and spacing of a sinusoidal encoding: which column is a sine, and how fast each pair of columns turns.

    The presets are `CONVENTIONS["vaswani"]`, `["marian"]`, `["tensor2tensor"]` and `["fairseq"]`; everything that takes
    a convention takes their names as well. `fixed_bases(4, 5, 7)` makes one from chosen periods.

    Args:
        name (`str`): what it is called in messages and files.
        layout (`"interleaved"` or `"halves"`): sine and cosine side by side, or all sines and then all cosines.
        spacing (`"width"` or `"ends"`): frequency i is base^(-2i/D); or base^(-i/(H-1)) for H = D // 2 frequencies, so
            that the last one is exactly 1/base (the divisor H-1 is at least 1).
        first_position (`int`, *optional*, defaults to 0): position of the first token, where positions are not given.
        padding_position (`int`, *optional*): the position whose row is zero where a table is made.
        bases (`tuple` of numbers, *optional*): positions per turn of each pair of columns, instead of a spacing.

    Raises:
        ValueError: if layout or spacing are none of these, or a base is not larger than 1.

    Source:
        vaswani: Vaswani et al. 2017, section 3.5, arXiv:1706.03762. marian: `MarianSinusoidalPositionalEmbedding` of
        transformers. tensor2tensor: `get_timing_signal_1d`. fairseq: `SinusoidalPositionalEmbedding`, which is also
        M2M100's and NLLB's.

    Example:
        >>> CONVENTIONS["fairseq"].first_position
        2
        >>> fixed_bases(4, 5, 7).to_dict()
        {'name': 'fixed_bases', 'bases': [4, 5, 7]}
    """

    name: str
    layout: Layout = "interleaved"
    spacing: Spacing = "width"
    first_position: int = 0
    padding_position: int | None = None
    bases: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise ValueError(one_of("layout", self.layout, get_args(Layout)))
        if self.spacing not in get_args(Spacing):
            raise ValueError(one_of("spacing", self.spacing, get_args(Spacing)))
        if self.bases is not None:
            object.__setattr__(self, "bases", tuple(self.bases))  # a list from JSON must hash like a tuple
            _check_bases(self.bases)

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
        names = [field.name for field in fields(self)]
        return dict(zip(names, self.values(), strict=True)) | {"bases": self.bases and list(self.bases)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Convention:
        r"""The convention that `to_dict` wrote.

        Args:
            values (mapping): `{"name": ...}` of a preset, or all fields.

        Raises:
            ValueError: if a key is unknown, or only a name is given and no preset has it.

        Example:
            >>> Convention.from_dict({"name": "fixed_bases", "bases": [4, 5, 7]}) == fixed_bases(4, 5, 7)
            True
        """
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise ValueError(one_of("a key of a convention", key, known))
        if set(values) == {"name"}:
            return resolve_convention(values["name"])
        if set(values) == {"name", "bases"} and values["name"] == "fixed_bases":
            return fixed_bases(*values["bases"])
        if "name" not in values:
            raise ValueError(explain("a convention needs a name", got=shorten(dict(values)), fix='{"name": "vaswani"}'))
        return cls(**values)

    def values(self) -> tuple[Any, ...]:
        r"""All fields in order: `Convention(*convention.values()) == convention`.

        Example:
            >>> CONVENTIONS["fairseq"].values()
            ('fairseq', 'halves', 'ends', 2, 1, None)
        """
        return self.name, self.layout, self.spacing, self.first_position, self.padding_position, self.bases

    def counts(self, d_model: int) -> tuple[int, int]:
        r"""How many of `d_model` columns are sines, and how many are cosines; what is left over is zero.

        Example:
            >>> CONVENTIONS["vaswani"].counts(5), CONVENTIONS["fairseq"].counts(5)
            ((3, 2), (2, 2))
        """
        sines = d_model // 2 if self.spacing == "ends" else (d_model + 1) // 2
        return sines, min(sines, d_model - sines)

    def check_fit(self, d_model: int, base: float | None = None) -> float | None:
        r"""The base to compute with, once width and base are known to suit: `None` for fixed bases.

        Raises:
            ValueError: if `base` is not larger than 1, or the width does not fit the fixed bases.
            TypeError: if `base` is not a number.

        Example:
            >>> CONVENTIONS["vaswani"].check_fit(512)
            10000.0
        """
        if self.bases is not None:
            _check_fixed(self.bases, d_model, base)
            return None
        if base is None:
            return 10000.0
        if isinstance(base, bool) or not isinstance(base, int | float):
            raise TypeError(explain("base must be a number", got=shorten(base), fix="base=10000"))
        # At 1 all columns would turn alike, and below it the later ones faster than the first.
        if not 1 < base < math.inf:
            raise ValueError(explain("base must be finite and larger than 1", got=base, fix="base=10000"))
        return float(base)


CONVENTIONS: Mapping[str, Convention] = MappingProxyType(
    {
        convention.name: convention
        for convention in (
            Convention("vaswani"),
            Convention("marian", layout="halves"),
            Convention("tensor2tensor", layout="halves", spacing="ends"),
            Convention("fairseq", layout="halves", spacing="ends", first_position=2, padding_position=1),
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
    _check_bases(bases)
    return Convention(f"fixed_bases({', '.join(map(str, bases))})", bases=bases)


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


def check_width(d_model: int) -> int:
    """`d_model` as an `int` of at least 1."""
    try:
        width = operator.index(d_model)
    except TypeError:
        raise TypeError(explain("d_model must be a whole number", got=shorten(d_model), fix="d_model=512")) from None
    if isinstance(d_model, bool) or width < 1:
        raise ValueError(explain("d_model must be positive", got=repr(d_model), fix="d_model=512"))
    return width


def _check_bases(bases: tuple[float, ...]) -> None:
    if not bases:
        raise ValueError(explain("fixed bases need at least one number", fix="fixed_bases(4, 5, 7)"))
    for base in bases:
        if isinstance(base, bool) or not isinstance(base, int | float):
            raise TypeError(
                explain("a base must be a number of positions", got=shorten(base), fix="fixed_bases(4, 5, 7)")
            )
        if not (math.isfinite(base) and base > 1):
            raise ValueError(
                explain("a base must be more than 1 position a turn", got=base, fix="fixed_bases(4, 5, 7)")
            )


def _check_fixed(bases: tuple[float, ...], d_model: int, base: float | None) -> None:
    if base is not None:
        raise ValueError(
            explain("fixed bases take no base of their own", got=f"base={base}, bases {bases}", fix="leave base out")
        )
    if d_model != 2 * len(bases):
        raise ValueError(
            explain(
                f"{len(bases)} fixed bases make {2 * len(bases)} columns",
                got=f"d_model={d_model}, bases {bases}",
                fix=f"d_model={2 * len(bases)}",
            )
        )
