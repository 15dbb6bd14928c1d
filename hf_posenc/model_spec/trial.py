"""The few tokens that a model is tried on, and when two of its outputs count as the same.

Token ids and numbers only; the model is run by `probing`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .._huggingface import only_length, says_positions
from .probing import Probe
from .tables import Counted


class Lengths(NamedTuple):
    """How many tokens are tried. Two lengths, so that a decoder's looks are told from an encoder's."""

    input_ids: int
    decoder_input_ids: int
    padding: int  # of each, where rows are padded

    def of(self, counts: Counted) -> int:
        return self.input_ids if counts == "input_ids" else self.decoder_input_ids


# Short, because models may be large.
_USUAL = Lengths(7, 5, 3)
_TINY = Lengths(4, 3, 1)  # for models with room for less than a dozen positions


def tokens_for(probe: Probe) -> tuple[Lengths, dict[Counted, torch.Tensor]]:
    """How many tokens suit a model, and two rows of each sequence, which differ in their last tokens."""
    room, fixed = says_positions(probe.model.config), only_length(probe.model.config)
    lengths = _TINY if room is not None and room < 12 else _USUAL
    if fixed is not None:
        lengths = lengths._replace(input_ids=fixed)
    counted: tuple[Counted, ...] = ("input_ids", "decoder_input_ids")
    ids = {counts: probe.ids(1, lengths.of(counts), seed).repeat(2, 1) for seed, counts in enumerate(counted)}
    for given in ids.values():
        given[1, -lengths.padding :] = given[1, 0]  # several, for in half precision one may not be felt
    return lengths, ids


def inputs_of(ids: dict[Counted, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The ids with masks of nothing but ones, as keyword arguments."""
    masks = {name.replace("input_ids", "attention_mask"): torch.ones_like(given) for name, given in ids.items()}
    return {**{str(name): given for name, given in ids.items()}, **masks}


def padded_inputs_of(ids: dict[Counted, torch.Tensor], padding: int, padding_id: int) -> dict[str, torch.Tensor]:
    """The first row of each, cut short: padded on the left, and once more padded on the right."""
    made: dict[str, torch.Tensor] = {}
    for name, given in ids.items():
        real, pad = given[0, :-padding], torch.full((padding,), padding_id, device="cpu")
        made[name] = torch.stack([torch.cat([pad, real]), torch.cat([real, pad])])
        mask = torch.ones_like(given)
        mask[0, :padding] = 0
        mask[1, -padding:] = 0
        made[name.replace("input_ids", "attention_mask")] = mask
    return made


def same(one: torch.Tensor, other: torch.Tensor, is_half: bool) -> bool:
    """Whether two outputs of one forward, or of two of the same shape, are the same computation."""
    return apart(one, other) < (1e-4 if is_half else 1e-6)


def close(one: torch.Tensor, other: torch.Tensor, is_half: bool) -> bool:
    """Whether two outputs of forwards of different shapes are the same but for rounding."""
    return apart(one, other) < (3e-2 if is_half else 1e-4)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """How far two outputs are from each other, for their size."""
    if one.shape != other.shape:  # a model that draws how long its output is
        return float("inf")
    # The mean, because one element in thousands may round another way without meaning anything.
    return float((one - other).abs().mean() / one.abs().mean().clamp_min(1e-30))
