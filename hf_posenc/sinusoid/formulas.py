"""The formulas by which tables of sinusoids are made in the field, and the model families that use each.

More than `conventions` has: cosines may come first, and any base may do. Nothing is computed to the last bit here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .conventions import CONVENTIONS, Convention, Layout, Spacing
from .exact import Waves, waves

USUAL_BASE = 10000.0


@dataclass(frozen=True)
class Formula:
    r"""Which column of a table is a sine, which a cosine, and how fast each pair turns.

    Args:
        layout, spacing: as in `Convention`.
        cosine_first (`bool`): whether each cosine, or the half of the cosines, comes before the sines.
        base (`float`): of the spacing.
        bases (`tuple` of `float`, *optional*): positions per turn of each pair, instead of a spacing.

    Example:
        >>> print(Formula("halves", "ends"))
        sines, then cosines, of p / 10000^(i/(H-1))
    """

    layout: Layout = "interleaved"
    spacing: Spacing = "width"
    cosine_first: bool = False
    base: float = USUAL_BASE
    bases: tuple[float, ...] | None = None

    def counts(self, d_model: int) -> tuple[int, int]:
        """How many columns are sines, and how many cosines."""
        return self._convention().counts(d_model)

    def columns(self, d_model: int) -> tuple[slice, slice]:
        """Where the sines are, and where the cosines."""
        sines, cosines = self.counts(d_model)
        if self.layout == "interleaved":
            first, second = slice(0, 2 * sines, 2), slice(1, 2 * cosines, 2)
            return (second, first) if self.cosine_first else (first, second)
        if self.cosine_first:
            return slice(cosines, cosines + sines), slice(0, cosines)
        return slice(0, sines), slice(sines, sines + cosines)

    def unused(self, d_model: int) -> slice:
        """Where nothing is, but zeros: the last column, or none."""
        return slice(sum(self.counts(d_model)), d_model)

    def fits(self, d_model: int) -> bool:
        """Whether there is such a table: side by side, a last column without a partner is a sine."""
        sines, cosines = self.counts(d_model)
        if self.bases is not None:
            return d_model == 2 * len(self.bases)
        return cosines > 0 and not (self.layout == "interleaved" and self.cosine_first and sines != cosines)

    def rates(self, d_model: int) -> torch.Tensor:
        """Radians per position of each sine `(F,)` float64, to float64's own precision."""
        if self.bases is not None:
            return 2 * math.pi / torch.tensor(self.bases, dtype=torch.float64, device="cpu")
        sines, _ = self.counts(d_model)
        steps = max(sines - 1, 1) if self.spacing == "ends" else d_model / 2
        return torch.exp(torch.arange(sines, dtype=torch.float64, device="cpu") * (-math.log(self.base) / steps))

    def waves(self, d_model: int) -> Waves:
        """The rates as `encode` takes them, for a row of all sines and then as many cosines."""
        made = waves(self._convention(), d_model, None if self.bases else self.base)
        sines = len(made.head)
        return made._replace(d_model=2 * sines, interleaved=False, cosines=sines)

    def same_but_for_base(self, other: Formula) -> bool:
        """Whether another one has the same columns and the same kind of spacing."""
        mine, theirs = ((each.layout, each.spacing, each.cosine_first) for each in (self, other))
        return mine == theirs and self.bases is None and other.bases is None

    def _convention(self) -> Convention:
        return Convention("", self.layout, self.spacing, bases=self.bases)

    def __str__(self) -> str:
        names = ("cosines", "sines") if self.cosine_first else ("sines", "cosines")
        if self.layout == "interleaved":
            order = f"{names[0]} and {names[1]} side by side"
        else:
            order = f"{names[0]}, then {names[1]}"
        if self.bases is not None:
            shown = ", ".join(f"{base:.6g}" for base in self.bases[:6])
            return f"{order}, one turn in {shown}{', …' if len(self.bases) > 6 else ''} positions"
        power = "2i/D" if self.spacing == "width" else "i/(H-1)"
        return f"{order}, of p / {self.base:.8g}^({power})"


# The four of the field first: where several fit a table equally well, the first is named, and the others beside it.
SHAPES = (
    Formula("interleaved", "width"),
    Formula("halves", "width"),
    Formula("halves", "ends"),
    Formula("halves", "ends", cosine_first=True),
    Formula("interleaved", "ends"),
    Formula("halves", "width", cosine_first=True),
    Formula("interleaved", "width", cosine_first=True),
    Formula("interleaved", "ends", cosine_first=True),
)


class Preset(NamedTuple):
    """A name that people know a formula by: a convention of ours, or model families of transformers."""

    name: str
    formula: Formula
    has_zero_row: bool  # a row of zeros for padding
    is_convention: bool = False


def _families(names: str, formula: Formula, has_zero_row: bool = False) -> tuple[Preset, ...]:
    return tuple(Preset(name, formula, has_zero_row) for name in names.split(", "))


PRESETS = (
    *(
        Preset(name, Formula(each.layout, each.spacing), each.padding_position is not None, is_convention=True)
        for name, each in CONVENTIONS.items()
    ),
    *_families("DistilBERT, XLM, FlauBERT, VideoMAE", Formula()),
    *_families("Marian, Pegasus, RoFormer, CTRL, Informer, Autoformer", Formula("halves")),
    *_families("Whisper, Qwen2.5-Omni", Formula("halves", "ends")),
    *_families(
        "M2M100, NLLB, NLLB-MoE, XGLM, Speech2Text, SpeechT5, FSMT, TrOCR, Kosmos-2, SeamlessM4T",
        Formula("halves", "ends"),
        has_zero_row=True,
    ),
    *_families("MusicGen, MusicGen Melody", Formula("halves", "ends", cosine_first=True)),
)


def presets_of(formulas: tuple[Formula, ...], has_zero_row: bool) -> tuple[Preset, ...]:
    """Those that use one of these formulas: conventions first, and before others those with such a row, or without."""
    found = [preset for preset in PRESETS if preset.formula in formulas]
    return tuple(
        sorted(
            found,
            key=lambda preset: (
                not preset.is_convention,
                formulas.index(preset.formula),
                preset.has_zero_row != has_zero_row,
            ),
        )
    )
