"""Conventions of sinusoidal encodings: which columns are sines or cosines, and the frequency of each pair.

The module `exact` computes the numbers. The √d scaling is not part of a convention; the modules have it as `scale`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from .._common.errors import one_of, require_one_of, shorten, type_error, value_error
from .arguments import USUAL_BASE, check_base, check_bases, check_special_position, check_wavelengths

Layout = Literal["interleaved", "halves"]
Spacing = Literal["width", "ends"]


@dataclass(frozen=True)
class Convention:
    r"""Formula of a sinusoidal encoding: which columns are sines or cosines, and the frequency of each pair of columns.

    Use it, or the name of a preset, as the `convention` argument of other functions. The presets in `CONVENTIONS` are
    "vaswani", "tensor2tensor", "fairseq", "marian", "m2m100", "whisper" and "musicgen". `fixed_bases(4, 5, 7)` makes a
    convention from chosen periods. `print` shows the formula.

    Args:
        name (`str`): name in messages and files.
        layout (`"interleaved"` or `"halves"`): `"interleaved"` puts the sine and cosine of a pair side by side;
            `"halves"` puts all sines before all cosines. With an odd width, there is one sine more than cosines
            (one cosine more if `cosine_first`); with `"halves"` and spacing `"ends"`, the last column is zero instead.
        spacing (`"width"` or `"ends"`): frequency of pair i: base^(-2i/D) for `"width"`; base^(-i/(H-1)) for `"ends"`,
            where H is the number of pairs, so that the last frequency is exactly 1/base (1 for a single pair).
        first_position (`int`, *optional*, defaults to 0): position of the first token if no positions are given.
        padding_position (`int`, *optional*): position of padding tokens, by default none. It is encoded as any other.
        bases (`tuple` of numbers, *optional*): positions per turn of each pair of columns; replaces `spacing` and
            `base`.
        cosine_first (`bool`, *optional*, defaults to `False`): True swaps sines and cosines in the layout.
        base (number, *optional*, defaults to 10000): base of the frequencies. The `base` argument of a function or
            module overrides it.
        wavelengths (two numbers, *optional*): shortest and longest wavelength in positions per turn; replaces `base`.
            `base=b` is equivalent to `wavelengths=(2π, 2π·b)`. A wavelength may be below 1, for example for positions
            in seconds.

    Raises:
        ValueError: if a setting is not one of its choices, out of its range, or contradicts another.
        TypeError: if a setting has the wrong type.

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
    # All fields as text, for the compiled operator: a compiler does not treat floats of an object as constants.
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise type_error("name must be a str", got=shorten(self.name), fix="name='mine'")
        if not isinstance(self.cosine_first, bool):
            raise type_error("cosine_first must be a bool", got=shorten(self.cosine_first), fix="cosine_first=True")
        require_one_of("layout", self.layout, get_args(Layout))
        require_one_of("spacing", self.spacing, get_args(Spacing))
        values: dict[str, Any] = {
            "first_position": check_special_position(self.first_position, "first_position", minimum=None),
            "base": check_base(self.base),
        }
        if self.padding_position is not None:
            values["padding_position"] = check_special_position(self.padding_position, "padding_position", minimum=0)
        if self.bases is not None:  # a list from JSON becomes a tuple, which can be hashed
            values["bases"] = check_bases(self.bases)
        if self.wavelengths is not None:
            values["wavelengths"] = check_wavelengths(self.wavelengths)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check_base(None if self.base == USUAL_BASE else self.base)
        object.__setattr__(self, "key", repr(self.values()))

    def __str__(self) -> str:
        names = ("cosines", "sines") if self.cosine_first else ("sines", "cosines")
        order = f"{names[0]} and {names[1]} side by side" if self.layout == "interleaved" else ", then ".join(names)
        power = "2i/D" if self.spacing == "width" else "i/(H-1)"
        if self.bases is not None:
            turns = ", ".join(f"{base:.6g}" for base in self.bases[:6])
            return f"{order}, one turn in {turns}{', …' if len(self.bases) > 6 else ''} positions"
        if self.wavelengths is not None:
            shortest, longest = self.wavelengths
            return f"{order}, one turn in {shortest:.6g} to {longest:.6g} positions, spaced by {power}"
        return f"{order}, of p / {self.base:.8g}^({power})"

    @property
    def formula(self) -> Convention:
        """Copy with an empty name, first position 0 and no padding position, to compare conventions.

        These three do not change the encoding of a position.
        """
        return replace(self, name="", first_position=0, padding_position=None)

    def to_dict(self) -> dict[str, Any]:
        r"""Return the convention as a dict that JSON can store, and from which `from_dict` makes an equal convention.

        For a preset, the dict contains only the name, otherwise all fields.

        Example:
            >>> CONVENTIONS["marian"].to_dict()
            {'name': 'marian'}
        """
        if CONVENTIONS.get(self.name) == self:
            return {"name": self.name}
        pairs = zip(_NAMES, self.values(), strict=True)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in pairs}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Convention:
        r"""Return the convention described by a dict from `to_dict`.

        Args:
            values (mapping): `{"name": ...}` for a preset, or the name and other arguments of `Convention`.

        Raises:
            ValueError: if only a name is given and no preset has it, or a value is invalid.
            TypeError: if a key is unknown, the name is missing, or a value has the wrong type.

        Example:
            >>> Convention.from_dict(fixed_bases(4, 5, 7).to_dict()) == fixed_bases(4, 5, 7)
            True
        """
        if set(values) == {"name"}:
            return resolve_convention(values["name"])
        return cls(**values)

    def values(self) -> tuple[Any, ...]:
        r"""Return the values of all arguments, in order: `Convention(*convention.values()) == convention`.

        Example:
            >>> CONVENTIONS["fairseq"].values()
            ('fairseq', 'halves', 'ends', 2, 1, None, False, 10000.0, None)
        """
        return tuple(getattr(self, name) for name in _NAMES)

    def counts(self, d_model: int) -> tuple[int, int]:
        r"""Return the numbers of sine and cosine columns in a row of width `d_model`; other columns are zero.

        Example:
            >>> CONVENTIONS["vaswani"].counts(5), CONVENTIONS["fairseq"].counts(5)
            ((3, 2), (2, 2))
        """
        sines, cosines = (len(range(d_model)[columns]) for columns in self.columns(d_model))
        return sines, cosines

    def columns(self, d_model: int) -> tuple[slice, slice]:
        r"""Return two slices for a row of width `d_model`: the columns with sines, and the columns with cosines.

        Example:
            >>> CONVENTIONS["musicgen"].columns(8)
            (slice(4, 8, 1), slice(0, 4, 1))
        """
        if self.layout == "interleaved":
            first, second = slice(0, d_model, 2), slice(1, d_model, 2)
        else:
            middle = d_model // 2 if self.spacing == "ends" else (d_model + 1) // 2
            first, second = slice(0, middle, 1), slice(middle, min(2 * middle, d_model), 1)
        return (second, first) if self.cosine_first else (first, second)

    def fits(self, d_model: int) -> bool:
        r"""Return True if rows can have width `d_model`. With fixed bases, `d_model` must be twice the number of bases.

        Example:
            >>> fixed_bases(4, 5, 7).fits(6), fixed_bases(4, 5, 7).fits(8)
            (True, False)
        """
        return self.bases is None or d_model == 2 * len(self.bases)

    def check_fit(self, d_model: int, base: float | None = None) -> float | None:
        r"""Return the base to compute frequencies with; raise if `d_model` or `base` does not fit the convention.

        The result is `base`, or the base of the convention for `base=None`. It is `None` for a convention with fixed
        bases or wavelengths, because its frequencies need no base.

        Raises:
            ValueError: if `base` is not larger than 1, or is given to a convention with fixed bases or wavelengths; if
                `d_model` is not twice the number of fixed bases.
            TypeError: if `base` is not a number.

        Example:
            >>> CONVENTIONS["vaswani"].check_fit(512)
            10000.0
        """
        self._check_base(base)
        if self.bases is not None and not self.fits(d_model):
            raise value_error(
                f"{len(self.bases)} fixed bases make {2 * len(self.bases)} columns",
                got=f"d_model={d_model}, bases {self.bases}",
                fix=f"d_model={2 * len(self.bases)}",
            )
        if self.bases is not None or self.wavelengths is not None:
            return None
        return self.base if base is None else check_base(base)

    def _check_base(self, base: float | None) -> None:
        """Raise if the convention has more than one of fixed bases, wavelengths and this `base`."""
        values = {"bases": self.bases, "wavelengths": self.wavelengths, "base": base}
        given = [name for name, value in values.items() if value is not None]
        if len(given) > 1:
            got, fix = ", ".join(f"{name}={shorten(values[name])}" for name in given), f"{given[0]} alone"
            raise value_error("fixed bases, wavelengths and a base exclude each other", got=got, fix=fix)


_NAMES = tuple(entry.name for entry in fields(Convention) if entry.init)

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
# Families of models in transformers that use a convention, as `audit.identify` prints them.
FAMILIES = {
    "vaswani": "DistilBERT, XLM, FlauBERT, VideoMAE",
    "marian": "Marian, Pegasus, RoFormer, CTRL, Informer, Autoformer",
    "whisper": "Whisper, Qwen2.5-Omni",
    "m2m100": "M2M100, NLLB, NLLB-MoE, XGLM, Speech2Text, SpeechT5, FSMT, TrOCR, Kosmos-2, SeamlessM4T",
    "musicgen": "MusicGen, MusicGen Melody",
}
# Other names, in lower case. TensorFlow's tutorial has all sines first; PyTorch's, as the paper, has them in turn.
_ELSEWHERE = {
    **{family: name for name, families in FAMILIES.items() for family in families.lower().split(", ")},
    **dict.fromkeys(("keras", "tensorflow", "tf", "concat", "concatenated", "concatenate", "halves"), "marian"),
    **dict.fromkeys(("pytorch", "torch", "paper", "original", "attention", "interleaved", "sinusoidal"), "vaswani"),
    **dict.fromkeys(("annotated", "annotated transformer", "d2l", "default", "standard"), "vaswani"),
    "t2t": "tensor2tensor",
}


def fixed_bases(*bases: float) -> Convention:
    r"""Return a convention in which pair i of columns makes a full turn every `bases[i]` positions.

    With integer bases, rows repeat after the least common multiple of the bases: 140 positions for (4, 5, 7).

    Args:
        bases (numbers): positions per turn, each larger than 1. The width is twice their number.

    Returns:
        `Convention` with interleaved sines and cosines.

    Raises:
        ValueError: without bases, or if one is not larger than 1.
        TypeError: if one is not a number.

    Example:
        >>> fixed_bases(4, 5, 7).name
        'fixed_bases(4, 5, 7)'
    """
    checked = check_bases(bases)
    return Convention(f"fixed_bases({', '.join(map(str, checked))})", bases=checked)


def resolve_convention(convention: str | Convention) -> Convention:
    """Return the preset of a given name, or a given `Convention` unchanged."""
    if isinstance(convention, Convention):
        return convention
    if not isinstance(convention, str):
        raise type_error(
            "convention must be a name or a Convention",
            got=shorten(convention),
            fix="convention='vaswani', or convention=fixed_bases(4, 5, 7)",
        )
    if convention not in CONVENTIONS:
        message = one_of("convention", _ELSEWHERE.get(convention.lower(), convention.lower()), CONVENTIONS)
        fix = f"{message.fix}; audit.identify(table) finds the convention of a table"
        raise value_error(message.rule, got=repr(convention), fix=fix)
    return CONVENTIONS[convention]
