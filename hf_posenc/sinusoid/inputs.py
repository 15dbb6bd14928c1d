"""What a module that adds positions may be called with: vectors, positions, a buffer.

Shapes, kinds and dtypes; whether a position is in range is for the kind of encoding to say.
"""

from __future__ import annotations

import torch
from torch import nn

from .._explain import explain, shorten
from .exact import DTYPES
from .lookup import without_values
from .values import as_positions

_WITHOUT_FLOAT64 = ("mps",)


def check_vectors(x: object, d_model: int, name: str) -> None:
    """Refuses what is not `(B, T, D)` floating point, for the module of that name."""
    if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
        kind = f"a tensor of {x.dtype}" if isinstance(x, torch.Tensor) else shorten(x)
        raise TypeError(
            explain(
                "x must be vectors: a floating-point tensor (batch, length, d_model)",
                got=kind,
                fix="PositionalEmbedding(embedding)(input_ids) for ids, sinusoidal_encoding for positions",
            )
        )
    if x.ndim != 3 or x.shape[2] != d_model:
        raise ValueError(
            explain(
                f"expected (batch, length, d_model) with d_model={d_model}",
                got=f"shape {tuple(x.shape)}",
                fix="x[None] for a single row"
                if x.ndim == 2 and x.shape[1] == d_model
                else f"{name}({x.shape[-1]})"
                if x.ndim == 3
                else "x.reshape(batch, length, d_model)",
            )
        )


def check_out(out: object, x: torch.Tensor, module: nn.Module) -> None:
    """Refuses a buffer that is not like `x`, or that a gradient would have to pass through."""
    if not isinstance(out, torch.Tensor):
        raise TypeError(explain("out must be a buffer like x", got=shorten(out), fix="out=torch.empty_like(x)"))
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            explain(
                "out must be a buffer like x",
                got=f"out {tuple(out.shape)} {out.dtype} {out.device}, x {tuple(x.shape)} {x.dtype} {x.device}",
                fix="out=torch.empty_like(x)",
            )
        )
    if not without_values(x) and any(size > 1 and not step for size, step in zip(out.shape, out.stride(), strict=True)):
        raise ValueError(
            explain(
                "out must have memory for each of its numbers",
                got=f"out with strides {out.stride()}: an expanded tensor",
                fix="out=torch.empty_like(x)",
            )
        )
    if _overlap(out, x):
        raise ValueError(
            explain(
                "out must be x itself, or no part of it: rows would be overwritten before they are read",
                got="out that begins elsewhere in the same memory",
                fix="out=x, or out=torch.empty_like(x)",
            )
        )
    if not torch.is_grad_enabled():
        return
    learns = any(weight.requires_grad for weight in module.parameters())
    if x.requires_grad or out.requires_grad or learns:
        raise ValueError(
            explain(
                "out has no place in a gradient's graph",
                got=f"{type(module).__name__} with weights that train" if learns else "x with requires_grad=True",
                fix="leave out away",
            )
        )


def _overlap(out: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether two contiguous tensors of one size share some of their memory, but not all."""
    if without_values(x) or out is x or not (out.is_contiguous() and x.is_contiguous()):
        return False
    return 0 < abs(out.data_ptr() - x.data_ptr()) < x.numel() * x.element_size()


def check_positions(position_ids: object, x: torch.Tensor, *, exact: bool) -> torch.Tensor:
    """Positions `(B, T)`, `(1, T)` or `(T,)` for `x` `(B, T, D)`, on its device.

    float64 ones, timestamps say, stay where they are if that device has none and `exact` ones are wanted.
    """
    positions = as_positions(position_ids, "position_ids")
    batch, length = x.shape[:2]
    # One dimension at a time: comparing whole shapes would tie B to T in an exported program.
    rows = positions.shape[0] if positions.ndim == 2 else 1
    if positions.ndim not in (1, 2) or positions.shape[-1] != length or rows not in (1, batch):
        raise ValueError(
            explain(
                "position_ids must be (batch, length) or (length,)",
                got=f"shape {tuple(positions.shape)}, x {tuple(x.shape)}",
                fix="position_ids_from_mask(attention_mask), or leave them out to count from the first token",
            )
        )
    if positions.dtype == torch.float64 and x.device.type in _WITHOUT_FLOAT64:
        return positions if exact else positions.float().to(x.device)
    return positions.to(x.device)
