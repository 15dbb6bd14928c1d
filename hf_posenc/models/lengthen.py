"""More rows for a position table, together with everything in the model that says how many there are.

What else depends on the length is not guessed: a second model is built from the lengthened configuration, and compared.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from .._explain import explain
from .._huggingface import LENGTH_KEYS, configurations
from ..model_spec import ModelPositions, PositionTable
from .kept import Kept


def lengthen(
    model: Any, found: ModelPositions, tables: tuple[PositionTable, ...], max_positions: int, kept: Kept
) -> None:
    r"""Gives every table rows for at least `max_positions` tokens; the new ones are a fresh model's.

    Args:
        model (`PreTrainedModel`): opened.
        found (`ModelPositions`): what it has; tables that tokens do not reach may grow along (LUKE's entities).
        tables (`tuple` of `PositionTable`): its learned tables.
        max_positions (`int`): how many tokens a row may have afterwards.
        kept (`Kept`): notes what is changed.

    Raises:
        ValueError: if the tables are longer already, or the model's configuration cannot say the new length.
    """
    shortest = min(tables, key=lambda table: table.max_length)
    if max_positions < shortest.max_length:
        raise ValueError(
            explain(
                "max_positions lengthens a table, and this one is longer",
                got=f"max_positions={max_positions}, {shortest.max_length} positions in {shortest.name}",
                fix=f"max_positions={shortest.max_length} or more; max_length= of the collator makes rows shorter",
            )
        )
    if max_positions == shortest.max_length:
        return
    changes = _changes(model.config, tables, max_positions)
    longer = copy.deepcopy(model.config)
    for config, each in zip(configurations(longer), configurations(model.config), strict=True):
        for key, value in changes.get(id(each), {}).items():
            setattr(config, key, value)
    with torch.random.fork_rng([]):
        twin = type(model)(longer)
    _check(model, twin, found, tables, max_positions)
    for each in configurations(model.config):
        for key, value in changes.get(id(each), {}).items():
            kept.set(each, key, value)
    _follow(model, twin, kept)


def _changes(config: Any, tables: tuple[PositionTable, ...], max_positions: int) -> dict[int, dict[str, int]]:
    """The keys of configurations that say a table's length, by the configuration's identity, and what to say now."""
    changes: dict[int, dict[str, int]] = {}
    for each in configurations(config):
        for key in LENGTH_KEYS:
            said = vars(each).get(key)
            meant = [table.max_length for table in tables if said in (table.max_length, len(table.tensor))]
            if meant and min(meant) < max_positions:
                changes.setdefault(id(each), {})[key] = said + max_positions - min(meant)
    return changes


def _check(
    model: nn.Module, twin: nn.Module, found: ModelPositions, tables: tuple[PositionTable, ...], max_positions: int
) -> None:
    """The twin must differ in the length of position tables alone, or a saved model could not be read back."""
    wanted = {name: each.shape for name, each in model.named_parameters() if name not in found.not_reached}
    there = {name: parameter.shape for name, parameter in twin.named_parameters()}
    for table in tables:
        rows, width = table.tensor.shape
        rows += max(0, max_positions - table.max_length)
        # The same key may say the length of another table, which reads more rows than this one.
        wanted[table.name] = torch.Size([max(rows, *there.get(table.name, (0,))[:1]), width])
    for name, shape in wanted.items():
        if there.get(name) != shape:
            raise ValueError(
                explain(
                    f"the configuration of {type(model).__name__} cannot say that it has {max_positions} positions",
                    got=f"{name} would be {tuple(there.get(name, ()))}, and {tuple(shape)} is needed",
                    fix=f"build the model with {max_positions} positions from the start",
                )
            )


def _follow(model: nn.Module, twin: nn.Module, kept: Kept) -> None:
    """Takes over what the twin has otherwise: longer parameters, longer buffers, whole numbers kept as attributes."""
    twins = dict(twin.named_modules())
    made: dict[int, nn.Parameter] = {}  # a table may be the attribute of several modules
    for path, module in model.named_modules():
        other = twins[path]
        for name, parameter in list(module._parameters.items()):
            theirs = other._parameters.get(name)
            if parameter is None or theirs is None or parameter.shape == theirs.shape:
                continue
            if id(parameter) not in made:
                longer = theirs.detach().to(parameter.device, parameter.dtype, copy=True)
                longer[: len(parameter)] = parameter.detach()
                made[id(parameter)] = nn.Parameter(longer, requires_grad=parameter.requires_grad)
            kept.set(module, name, made[id(parameter)])
        for name, buffer in list(module._buffers.items()):
            theirs_too = other._buffers.get(name)
            if buffer is not None and theirs_too is not None and buffer.shape != theirs_too.shape:
                kept.set(module, name, theirs_too.to(buffer.device, buffer.dtype))
        for name, value in list(vars(module).items()):
            new = vars(other).get(name)
            if type(value) is int and type(new) is int and value != new:
                kept.set(module, name, new)
