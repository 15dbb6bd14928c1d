"""The weights that torch's own attention computes, caught while a model runs.

`nn.MultiheadAttention` gives them when asked with `need_weights`, which the layers of torch do not ask; nothing is
computed here by hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..._explain import explain
from .arrays import as_numpy

_SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)

# Kind, name of the module, weights (B, H, Q, K).
Caught = list[tuple[str, str, NDArray[Any]]]


def captured(model: nn.Module, run: Callable[[], Any]) -> Caught:
    r"""Runs a model and keeps the weights of every `nn.MultiheadAttention` in it.

    Args:
        model (`nn.Module`): with any number of them, or one itself.
        run (callable): calls the model.

    Returns:
        A list of kind, name and weights `(B, H, Q, K)`, in the order of the model's modules. Of one that was called
        several times, as by a decoder that is fed its own predictions, the last ones: they are of the longest input.

    Example:
        >>> attend = nn.MultiheadAttention(4, 2, batch_first=True)
        >>> x = torch.ones(1, 3, 4)
        >>> [(kind, weights.shape) for kind, _, weights in captured(attend, lambda: attend(x, x, x))]
        [('self', (1, 2, 3, 3))]
    """
    places = dict(_attentions(model))
    caught: dict[nn.Module, tuple[str, NDArray[Any]]] = {}
    handles = []
    for module, (place, _) in places.items():
        handles += _watch(module, place, caught)
    fast = torch.backends.mha.get_fastpath_enabled()
    # The fused layer of torch computes no weights that could be caught.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        run()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()
    return [(caught[module][0], name, caught[module][1]) for module, (_, name) in places.items() if module in caught]


@contextmanager
def evaluated(module: nn.Module) -> Iterator[None]:
    """No dropout, no gradient, and afterwards every part in the mode in which it was."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def _attentions(model: nn.Module) -> Iterator[tuple[nn.Module, tuple[str | None, str]]]:
    """Every attention with what it is in the layer that it belongs to, where that is one of torch's."""
    inside: dict[nn.Module, str] = {}
    for part in model.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            inside[part.self_attn] = "encoder"
        elif isinstance(part, nn.TransformerDecoderLayer):
            inside |= {part.self_attn: "decoder", part.multihead_attn: "cross"}
    for name, part in model.named_modules():
        if isinstance(part, nn.MultiheadAttention):
            yield part, (inside.get(part), name)


def _watch(module: nn.Module, place: str | None, caught: dict[nn.Module, tuple[str, NDArray[Any]]]) -> list[Any]:
    asked: list[tuple[bool, bool]] = []

    def before(attention: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        bound = _SIGNATURE.bind(attention, *args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        asked.append((given["need_weights"], given["average_attn_weights"]))
        given |= {"need_weights": True, "average_attn_weights": False}
        return bound.args[1:], bound.kwargs

    def after(attention: nn.Module, args: tuple[Any, ...], output: tuple[Any, Any]) -> tuple[Any, Any]:
        result, weights = output
        query, key = args[0], args[1]
        kind = place or ("self" if query is key or torch.equal(query, key) else "cross")
        values = as_numpy(weights)
        caught[attention] = kind, values if values.ndim == 4 else values[None]  # an input without a batch
        needed, averaged = asked.pop()
        if not needed:
            return result, None
        return result, weights.mean(dim=-3) if averaged else weights

    return [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]


def stacked(caught: Caught) -> dict[str, NDArray[np.float64]]:
    r"""The weights by kind, one layer after the other: `(L, B, H, Q, K)`.

    Raises:
        ValueError: if layers of one kind differ in their heads, or in the tokens that they look at.
    """
    found: dict[str, NDArray[np.float64]] = {}
    for kind in dict.fromkeys(kind for kind, _, _ in caught):
        layers = [(name, weights) for each, name, weights in caught if each == kind]
        shapes = {weights.shape for _, weights in layers}
        if len(shapes) > 1:
            first, other = (next((n, w.shape) for n, w in layers if w.shape == shape) for shape in sorted(shapes)[:2])
            raise ValueError(
                explain(
                    f"the layers of kind {kind!r} must attend with equally many heads, from and to as many tokens",
                    got=f"{first[0]} has weights {first[1]}, {other[0]} {other[1]}",
                    fix="plots.attention(model.part, batch) for one part of the model",
                )
            )
        found[kind] = np.stack([weights for _, weights in layers]).astype(np.float64)
    return found
