"""What keeps two documents in a row apart, a mask of four dimensions or positions that restart: both are tried.

Two forwards on six tokens; how such a mask is made for a batch is the business of `masks`.
"""

from __future__ import annotations

import torch
from torch import nn

from .._huggingface import configurations, only_length
from .probing import Probe
from .tables import Findings
from .trial import same


def takes_square_masks(model: nn.Module, found: Findings) -> bool:
    r"""Return True if an additive mask `(B, 1, T, T)` given as `attention_mask` hides what it should, and nothing else.

    Two documents share a row: tokens of the first one must not change outputs of the second, and its own tokens must.

    Args:
        model (`PreTrainedModel`): as in `find_positions`.
        found (`Findings`): what that gave.

    Returns:
        `bool`; `False` for models that refuse such a mask or do not read it, for two sequences, and for flex attention
        on the CPU.
    """
    probe = Probe(model)
    implementations = {getattr(each, "_attn_implementation", None) for each in configurations(probe.model.config)}
    if probe.device.type == "cpu" and "flex_attention" in implementations:
        return False  # not tried: a mask of numbers aborts the process there
    if "attention_mask" not in probe.names:
        return False
    document = torch.arange(_LENGTH, device="cpu") >= _FIRST
    may_attend = document[:, None] == document[None, :]
    if found.is_causal:
        may_attend = may_attend.tril()
    mask = torch.zeros(3, 1, _LENGTH, _LENGTH, dtype=probe.dtype, device="cpu")
    mask.masked_fill_(~may_attend, torch.finfo(probe.dtype).min)
    inputs = {"attention_mask": mask}
    if found.takes_position_ids:
        inputs["position_ids"] = (torch.arange(_LENGTH, device="cpu") + found.first_position).repeat(3, 1)
    return _keeps_apart(probe, inputs)


def isolates_by_positions(model: nn.Module, found: Findings) -> bool:
    r"""Whether `position_ids` that restart keep documents apart, with no mask and no cache.

    Args, Returns: as `takes_square_masks`.
    """
    probe = Probe(model)
    if not found.takes_position_ids:
        return False
    restarting = torch.arange(_LENGTH, device="cpu") % _FIRST + found.first_position
    return _keeps_apart(probe, {"position_ids": restarting.repeat(3, 1)})


# Two documents of three tokens share a row.
_LENGTH, _FIRST = 6, 3


def _keeps_apart(probe: Probe, inputs: dict[str, torch.Tensor]) -> bool:
    """Whether the last token is moved by its own document's other tokens, and none of it by the other document.

    Whole documents are exchanged: in half precision what one token does to another may be rounded away.
    """
    if probe.has_decoder or only_length(probe.model.config) is not None:
        return False
    ids = probe.ids(1, _LENGTH, seed=2).repeat(3, 1)  # (3, T)
    ids[1, :_FIRST] = _others(probe, ids[0, :_FIRST])
    ids[2, _FIRST:-1] = _others(probe, ids[0, _FIRST:-1])
    try:
        _, out = probe.run({"input_ids": ids, **inputs})
    except ValueError:
        return False
    if not out.numel():
        return False
    own, other_first, other_second = out[:, _FIRST:]
    return same(own, other_first, probe.is_half) and not same(own[-1], other_second[-1], probe.is_half)


def _others(probe: Probe, tokens: torch.Tensor) -> torch.Tensor:
    """For each token one that it is not, where there is any."""
    first, *others = (int(plain) for plain in probe.plain_ids[:2])
    return torch.where(tokens == first, others[0] if others else first, first)
