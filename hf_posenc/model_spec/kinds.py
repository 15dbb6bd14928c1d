"""Which kinds of positions a model has besides tables that are read by position: rotary, relative, alibi.

Told by its modules, for a word in a message or a report; a configuration may say what the modules do not do.
"""

from __future__ import annotations

import re
import sys

from torch import nn

from .._huggingface import configurations
from .tables import Kind, PositionTable

_SINUSOIDAL = re.compile(r"Sinusoid")
_RELATIVE = re.compile(r"relative|rel_?attn|rel_?pos|rel_?embed|emb_rel_|r_kernel|distance_embedding", re.IGNORECASE)
_ROTARY = re.compile(r"rotary|rope(?![a-z])|RoFormer", re.IGNORECASE)


def kinds_of(model: nn.Module, tables: tuple[PositionTable, ...]) -> tuple[Kind, ...]:
    r"""The kinds of positions that a model has, tables first.

    Args:
        model (`PreTrainedModel`): opened.
        tables (`tuple` of `PositionTable`): what was found by running it.

    Returns:
        `tuple` of names, empty for a model without positions: one that reads its input in order (Mamba, RWKV), or as a
        bag.
    """
    found: list[Kind] = []
    if any(table.is_learned for table in tables):
        found.append("learned")
    alibi = _has_alibi(model)
    rotary = _has_rotary(model) and not alibi  # Falcon has a module for the one even where it uses the other
    # RoFormer turns by a table of sinusoids; Pegasus-X and TrOCR have a module that keeps no table.
    if not rotary and (any(not table.is_learned for table in tables) or (not found and _has_sinusoids(model))):
        found.append("sinusoidal")
    if rotary:
        found.append("rotary")
    if _has_relative(model):
        found.append("relative")
    if alibi:
        found.append("alibi")
    return tuple(found)


def _has_sinusoids(model: nn.Module) -> bool:
    """Whether a module is called sinusoidal positions, whatever it does."""
    return any(_SINUSOIDAL.search(type(module).__name__) for module in model.modules())


def _has_rotary(model: nn.Module) -> bool:
    if any(_ROTARY.search(type(module).__name__) or hasattr(module, "inv_freq") for module in model.modules()):
        return True
    # GPT-J and CodeGen turn their heads without a module for it.
    return any(getattr(module, "rotary_dim", None) for module in model.modules())


def _has_relative(model: nn.Module) -> bool:
    return any(_RELATIVE.search(name) for name, _ in model.named_parameters()) or any(
        _RELATIVE.search(type(module).__name__) for module in model.modules()
    )


def _has_alibi(model: nn.Module) -> bool:
    """Whether a function that builds the slopes is at hand, and the configuration does not say that it is not used."""
    homes = {type(module).__module__ for module in model.modules()}
    names = {name for home in homes if "torch." not in f"{home}." for name in vars(sys.modules.get(home, sys))}
    names.update(name for cls in {type(module) for module in model.modules()} for name in vars(cls))
    if not any("alibi" in name for name in names):
        return False
    return False not in [getattr(each, "alibi", None) for each in configurations(getattr(model, "config", model))]
