"""How far the layers of a model look that do not see everything, and whether a mask of four dimensions can say so.

Such a mask takes the place of the model's own, windows included. Tried with a window of two tokens, on seven.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self, cast

import torch
from torch import nn

from .._huggingface import configurations
from .probing import Probe
from .tables import Findings
from .trial import apart, close
from .untouched import untouched

_FULL, _SLIDING = "full_attention", "sliding_attention"


class LayerMasks(dict[str, torch.Tensor]):
    r"""One mask for each kind of layer, as models take it whose layers do not all see the same.

    Example:
        >>> list(LayerMasks({"full_attention": torch.zeros(1), "sliding_attention": torch.ones(1)}).to("cpu"))
        ['full_attention', 'sliding_attention']
    """

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """All of them on `device`."""
        return type(self)({name: mask.to(device, non_blocking=non_blocking) for name, mask in self.items()})

    def pin_memory(self) -> Self:
        """All of them in page-locked memory."""
        return type(self)({name: mask.pin_memory() for name, mask in self.items()})


class Windows(NamedTuple):
    """What a mask must say of a model's own windows: `window` as in `AttentionMask`, and the kinds of its layers."""

    window: int | None = None
    layers: tuple[str, ...] = ()


def own_windows(model: nn.Module, found: Findings) -> Windows | None:
    r"""How far a model's layers look, found by giving it the window as a mask.

    Args:
        model (`PreTrainedModel`): which takes masks of four dimensions.
        found (`Findings`): what it does otherwise.

    Returns:
        `Windows`; `None` where it has windows, or chunks, that no mask that was tried stands for.
    """
    probe = Probe(model)
    configs = [config for config in configurations(probe.model.config) if _window(config) is not None]
    kinds = {
        kind for config in configurations(probe.model.config) for kind in getattr(config, "layer_types", None) or ()
    }
    if any("chunk" in kind for kind in kinds):
        return None
    if not configs or (kinds and _SLIDING not in kinds):
        return Windows()
    real, tried, length = cast(int, _window(configs[0])), 2, 7
    inputs: dict[str, Any] = {"input_ids": probe.ids(1, length, seed=3)}
    if found.takes_position_ids:
        inputs["position_ids"] = torch.arange(length, device="cpu")[None] + found.first_position
    with untouched(probe.model):
        for config in configs:
            config.sliding_window = tried
        try:
            _, own = probe.run({**inputs, "attention_mask": torch.ones(1, length, dtype=torch.int64, device="cpu")})
        except ValueError:
            return None
        best: tuple[float, Windows] | None = None
        for more in (0, 1):  # whether the token at the very distance is seen
            for layers in (tuple(sorted(kinds)), ()):
                if layers and not kinds <= {_FULL, _SLIDING}:
                    continue
                try:
                    _, out = probe.run({**inputs, "attention_mask": _masks(probe, found, layers, tried + more, length)})
                except ValueError:
                    continue
                if close(own, out, probe.is_half) and (best is None or apart(own, out) < best[0]):
                    best = apart(own, out), Windows(real + more, layers)
    return None if best is None else best[1]


def _window(config: Any) -> int | None:
    window = getattr(config, "sliding_window", None)
    return window if type(window) is int and window > 0 else None


def _masks(probe: Probe, found: Findings, layers: tuple[str, ...], window: int, length: int) -> Any:
    """Additive `(1, 1, T, T)`, one for each kind of layer; the window in all where layers are of one kind."""
    columns = torch.arange(length, device="cpu")
    far = columns[:, None] - columns[None, :]
    everything = far >= 0 if found.is_causal else torch.ones_like(far, dtype=torch.bool)

    def additive(sees: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(1, 1, length, length, dtype=probe.dtype, device="cpu")
        return zeros.masked_fill_(~sees, torch.finfo(probe.dtype).min)

    near = additive(everything & (far.abs() < window))
    return LayerMasks({name: near if name == _SLIDING else additive(everything) for name in layers}) if layers else near
