"""Reversible changes to a model: attributes, weights, and the length of position tables.

`use_sinusoidal_positions` applies them. The new rows of a lengthened table come from a second model, built with the
new length.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .._common.errors import runtime_error, value_error
from .position_tables import ModelPositions, PositionTable
from .properties import LENGTH_KEYS, configurations

_MISSING = object()


class Changes:
    """Reversible changes to a model: `set`, `write` and `multiply` change it, and `undo` reverts all their changes."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._written: list[nn.Parameter] = []
        self._restore: list[Callable[[], object]] = []  # one function for each change

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set the attribute `name` of `owner`, a module or configuration, to `value`."""
        before = getattr(owner, name, _MISSING)

        def restore() -> None:
            if isinstance(before, torch.Tensor):
                now = getattr(owner, name)
                before.data = before.data.to(now.device, now.dtype)
            _set(owner, name, before)

        self._restore.append(restore)
        _set(owner, name, value)

    @torch.no_grad()
    def write(self, parameter: nn.Parameter, rows: torch.Tensor, *, freeze: bool) -> None:
        """Replace all values of `parameter` by `rows`, in place; it is frozen if `freeze` is True, else trainable."""
        before, trained = parameter.clone(), parameter.requires_grad
        self._written.append(parameter)
        self._restore.append(lambda: parameter.copy_(before).requires_grad_(trained))
        parameter.copy_(rows).requires_grad_(not freeze)
        parameter.grad = None

    @torch.no_grad()
    def multiply(self, parameter: torch.Tensor, factor: float) -> None:
        """Multiply `parameter` by `factor` in place. `undo` divides it by `factor`, so changes by training are kept."""
        self._restore.append(lambda: parameter.div_(factor))
        parameter.mul_(factor)

    @torch.no_grad()
    def undo(self) -> bool:
        """Revert all changes; return True, or False if there are none to revert.

        The model may have been moved to another device or dtype since the changes.
        """
        if not self._restore:
            return False
        there = {id(parameter) for parameter in self._model.parameters()}
        if any(id(parameter) not in there for parameter in self._written):
            raise runtime_error(
                "the model has other tables now than those that were written",
                got="a table that was lengthened or exchanged since",
                fix="build or load the model again",
            )
        while self._restore:
            self._restore.pop()()
        return True


def _set(owner: Any, name: str, value: Any) -> None:
    """Set the attribute `name` of `owner` to `value`, or delete it if `value` is `_MISSING`."""
    # A buffer that is not saved with the model (`persistent=False`) stays so.
    if value is _MISSING:
        delattr(owner, name)
    elif isinstance(owner, nn.Module) and name in owner._buffers:
        owner._buffers[name] = value
    else:
        setattr(owner, name, value)


def lengthen(
    model: Any, positions: ModelPositions, tables: tuple[PositionTable, ...], max_positions: int, changes: Changes
) -> None:
    """Lengthen the position tables of a model to at least `max_positions` tokens; existing rows keep their values.

    The new rows, buffers and attributes are those of a second model, built with the new length.
    """
    shortest = min(tables, key=lambda table: table.max_length)
    if max_positions < shortest.max_length:
        raise value_error(
            "max_positions lengthens a table, and this one is longer",
            got=f"max_positions={max_positions}, {shortest.max_length} positions in {shortest.name}",
            fix=f"max_positions={shortest.max_length} or more; max_length= of the collator makes rows shorter",
        )
    if max_positions == shortest.max_length:
        return
    for config in configurations(model.config):
        for key in LENGTH_KEYS:
            value = vars(config).get(key)
            lengths = [table.max_length for table in tables if value in (table.max_length, len(table.tensor))]
            if lengths and min(lengths) < max_positions:
                changes.set(config, key, value + max_positions - min(lengths))
    with torch.random.fork_rng([]):
        twin = type(model)(copy.deepcopy(model.config))
    # With other changes than longer tables, the lengthened model could not be loaded after it was saved. A table may
    # get more rows than needed: one configuration key may set the length of several.
    there = {name: parameter.shape for name, parameter in twin.named_parameters()}
    rest = {name: parameter.shape for name, parameter in model.named_parameters() if name not in positions.not_reached}
    wrong = []
    for table in tables:
        longer = there.get(table.name, (0,))[0] - rest.pop(table.name)[0]
        wrong += [table.name] if table.max_length + longer < max_positions else []
    wrong += [name for name, shape in rest.items() if there.get(name) != shape]
    if wrong:
        raise value_error(
            f"the configuration of {type(model).__name__} cannot express {max_positions} positions",
            got=f"other sizes than needed of {', '.join(wrong)}",
            fix=f"build the model with {max_positions} positions from the start",
        )
    _copy_lengths(model, twin, changes)


def _copy_lengths(model: nn.Module, twin: nn.Module, changes: Changes) -> None:
    """Copy all values that depend on the length from `twin` to `model`: new rows, buffers and integer attributes."""
    twins = dict(twin.named_modules())
    longer: dict[int, nn.Parameter] = {}  # a table may be the attribute of several modules
    for path, module in model.named_modules():
        for name, value in {**vars(module), **module._buffers, **module._parameters}.items():
            new = getattr(twins[path], name, None)
            if type(value) is int and type(new) is int and value != new:
                changes.set(module, name, new)
            if not isinstance(value, torch.Tensor) or not isinstance(new, torch.Tensor) or value.shape == new.shape:
                continue
            rows = new.detach().to(value.device, value.dtype, copy=True)
            if isinstance(value, nn.Parameter):
                rows[: len(value)] = value.detach()
                rows = longer.setdefault(id(value), nn.Parameter(rows, requires_grad=value.requires_grad))
            changes.set(module, name, rows)
