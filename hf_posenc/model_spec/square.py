"""Whether a model reads an attention mask of four dimensions: tried, because some ignore it and some break.

One forward on six tokens; how such a mask is made for a batch is the business of `masks`.
"""

from __future__ import annotations

import torch
from torch import nn

from .._huggingface import only_length
from .probing import Probe
from .tables import Findings
from .trial import same


def takes_square_masks(model: nn.Module, found: Findings) -> bool:
    r"""Whether an additive mask `(B, 1, T, T)` given as `attention_mask` hides what it should, and nothing else.

    Two documents share a row: what the first one says must not reach the second, and what the second one says must.

    Args:
        model (`PreTrainedModel`): as in `find_positions`.
        found (`Findings`): what that gave.

    Returns:
        `bool`; `False` for models that refuse such a mask or do not read it, and for two sequences.
    """
    probe = Probe(model)
    if probe.has_decoder or "attention_mask" not in probe.names or only_length(probe.model.config) is not None:
        return False
    length, first_document = 6, 3
    ids = probe.ids(1, length, seed=2).repeat(3, 1)  # (3, T)
    ids[1, 0], ids[2, first_document] = _another(probe, ids[0, 0]), _another(probe, ids[0, first_document])
    document = torch.arange(length, device="cpu") >= first_document
    may_attend = document[:, None] == document[None, :]
    if found.is_causal:
        may_attend = may_attend.tril()
    mask = torch.zeros(3, 1, length, length, dtype=probe.dtype, device="cpu")
    mask.masked_fill_(~may_attend, torch.finfo(probe.dtype).min)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if found.takes_position_ids:
        inputs["position_ids"] = (torch.arange(length, device="cpu") + found.first_position).repeat(3, 1)
    try:
        _, out = probe.run(inputs)
    except ValueError:
        return False
    if not out.numel():
        return False
    own, other_first, other_second = out[:, -1]
    return same(own, other_first, probe.is_half) and not same(own, other_second, probe.is_half)


def _another(probe: Probe, token: torch.Tensor) -> int:
    return next((int(plain) for plain in probe.plain_ids if plain != int(token)), int(token))
