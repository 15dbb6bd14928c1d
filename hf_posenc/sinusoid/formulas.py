"""The formulas by which tables of sinusoids are made in the field, and the model families that use each.

A formula is a `Convention` without a name. Nothing is computed to the last bit here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch

from .conventions import CONVENTIONS, Convention
from .exact import Waves, waves

# The four of the field first: where several fit a table equally well, the first is named, and the others beside it.
SHAPES = (
    Convention("", "interleaved", "width"),
    Convention("", "halves", "width"),
    Convention("", "halves", "ends"),
    Convention("", "halves", "ends", cosine_first=True),
    Convention("", "interleaved", "ends"),
    Convention("", "halves", "width", cosine_first=True),
    Convention("", "interleaved", "width", cosine_first=True),
    Convention("", "interleaved", "ends", cosine_first=True),
)


def shapes_of(d_model: int) -> list[Convention]:
    r"""Those of `SHAPES` that have a pair of columns in rows of that width.

    Example:
        >>> len(shapes_of(4)), len(shapes_of(1))
        (8, 0)
    """
    return [shape for shape in SHAPES if min(shape.counts(d_model)) > 0]


def rates_of(formula: Convention, d_model: int) -> torch.Tensor:
    r"""Radians per position of each pair of columns, to float64's own precision.

    Returns:
        `torch.Tensor` `(F,)` float64, on the CPU.

    Example:
        >>> rates_of(SHAPES[0], 4)
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    if formula.bases is not None:
        return 2 * math.pi / torch.tensor(formula.bases, dtype=torch.float64, device="cpu")
    shortest, longest = formula.wavelengths or (2 * math.pi, 2 * math.pi * formula.base)
    number = torch.arange(max(formula.counts(d_model)), dtype=torch.float64, device="cpu")
    return 2 * math.pi / shortest * torch.exp(number * (math.log(shortest / longest) / steps_of(formula, d_model)))


def steps_of(formula: Convention, d_model: int) -> float:
    """By how many steps of one pair to the next the spacing goes from its first frequency to its last."""
    return max(max(formula.counts(d_model)) - 1, 1) if formula.spacing == "ends" else d_model / 2


def paired_waves(formula: Convention, d_model: int) -> Waves:
    """The frequencies as `encode` takes them, for rows of all sines and then as many cosines."""
    made = waves(formula, d_model, formula.check_fit(d_model))
    halves = replace(formula, layout="halves", cosine_first=False)
    return made._replace(convention=halves, d_model=2 * len(made.head))


class Preset(NamedTuple):
    """A name that people know a formula by: a convention of ours, or model families of transformers."""

    name: str
    formula: Convention
    has_zero_row: bool  # a row of zeros for padding
    is_convention: bool = False


def _families(names: str, formula: Convention, has_zero_row: bool = False) -> tuple[Preset, ...]:
    return tuple(Preset(name, formula, has_zero_row) for name in names.split(", "))


PRESETS = (
    *(
        Preset(name, each.formula, each.padding_position is not None, is_convention=True)
        for name, each in CONVENTIONS.items()
    ),
    *_families("DistilBERT, XLM, FlauBERT, VideoMAE", CONVENTIONS["vaswani"].formula),
    *_families("Marian, Pegasus, RoFormer, CTRL, Informer, Autoformer", CONVENTIONS["marian"].formula),
    *_families("Whisper, Qwen2.5-Omni", CONVENTIONS["whisper"].formula),
    *_families(
        "M2M100, NLLB, NLLB-MoE, XGLM, Speech2Text, SpeechT5, FSMT, TrOCR, Kosmos-2, SeamlessM4T",
        CONVENTIONS["m2m100"].formula,
        has_zero_row=True,
    ),
    *_families("MusicGen, MusicGen Melody", CONVENTIONS["musicgen"].formula),
)


def presets_of(formulas: tuple[Convention, ...], has_zero_row: bool) -> tuple[Preset, ...]:
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
