"""What a model was before, so that it can be put back bit for bit.

Everything that is changed in a model goes through here; what to change is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .._explain import explain

_MISSING = object()


class Kept:
    """Notes what stood in a model before each change, and puts it back in the opposite order."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before: list[tuple[str, Any, str, Any]] = []

    def set(self, thing: Any, name: str, value: Any) -> None:
        """Sets an attribute of a module or a configuration: a number, a parameter, a buffer."""
        before = getattr(thing, name, _MISSING)
        self._before.append(("attribute", thing, name, before))
        _set(thing, name, value)

    def write(self, parameter: nn.Parameter, rows: torch.Tensor, *, freeze: bool) -> None:
        """Write numbers into a parameter in place; freeze it, or make it trainable."""
        self._before.append(("numbers", parameter, "", (parameter.detach().clone(), parameter.requires_grad)))
        with torch.no_grad():
            parameter.copy_(rows)
        parameter.requires_grad_(not freeze)
        parameter.grad = None

    def multiply(self, parameter: torch.Tensor, factor: float) -> None:
        """Multiply a parameter in place; undone by a division, so that a trained table stays trained."""
        self._before.append(("factor", parameter, "", factor))
        with torch.no_grad():
            parameter.mul_(factor)

    def put_back(self) -> bool:
        """Undoes every change, on the device and in the dtype that the model has now; whether there was any.

        Raises:
            RuntimeError: if a table is not the model's any more, because it was lengthened since.
        """
        had_any = bool(self._before)
        there = {id(parameter) for parameter in self._model.parameters()}
        if any(kind == "numbers" and id(thing) not in there for kind, thing, _, _ in self._before):
            raise RuntimeError(
                explain(
                    "the model has other tables now than those that were written",
                    got="a table that was lengthened or exchanged since",
                    fix="build or load the model anew",
                )
            )
        while self._before:
            kind, thing, name, before = self._before.pop()
            if kind == "factor":
                with torch.no_grad():
                    thing.div_(before)
                continue
            if kind == "numbers":
                numbers, requires_grad = before
                with torch.no_grad():
                    thing.copy_(numbers)
                thing.requires_grad_(requires_grad)
                continue
            if isinstance(before, torch.Tensor):
                now = getattr(thing, name)
                before.data = before.data.to(now.device, now.dtype)
            _set(thing, name, before)
        return had_any


def _set(thing: Any, name: str, value: Any) -> None:
    if value is _MISSING:
        delattr(thing, name)
    elif isinstance(thing, nn.Module) and name in thing._buffers:
        thing._buffers[name] = value  # stays what it is, saved with the model or not
    else:
        setattr(thing, name, value)
