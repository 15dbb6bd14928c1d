"""What a module that adds positions may be called with: vectors, positions, a buffer.

Shapes, kinds and dtypes; whether a position is in range is for the kind of encoding to say.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .._explain import explain, shorten
from .exact import DTYPES
from .lookup import without_values
from .values import as_positions

_WITHOUT_FLOAT64 = ("mps",)
_MOST_WORK = 10_000  # steps in which NumPy decides whether strided memory is shared; views of one tensor take a few


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
    if not without_values(x) and out.numel():
        _check_memory(out, x)
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


def _check_memory(out: torch.Tensor, x: torch.Tensor) -> None:
    """Refuse a buffer with fewer places than numbers, or with a part of the memory of `x`."""
    reach = 0
    for step, size in sorted((step, size) for step, size in zip(out.stride(), out.shape, strict=True) if size > 1):
        if step <= reach:  # also for strides that interlock without a collision, which only `as_strided` makes
            raise ValueError(
                explain(
                    "out must have memory for each of its numbers",
                    got=f"out with strides {out.stride()}: an expanded or overlapping tensor",
                    fix="out=torch.empty_like(x)",
                )
            )
        reach += step * (size - 1)
    is_x = out.data_ptr() == x.data_ptr() and all(
        theirs == ours for theirs, ours, size in zip(out.stride(), x.stride(), x.shape, strict=True) if size > 1
    )
    if is_x:
        return
    try:
        shares = np.shares_memory(_memory(out), _memory(x), max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        shares = True
    if shares:
        raise ValueError(
            explain(
                "out must be x itself, or no part of it: rows would be overwritten before they are read",
                got=f"out and x with strides {out.stride()} and {x.stride()} in the same memory",
                fix="out=x, or out=torch.empty_like(x)",
            )
        )


def _memory(tensor: torch.Tensor) -> NDArray[np.void]:
    """Return the memory of a tensor on any device as an array of addresses, which must not be read."""
    size = tensor.element_size()
    described = {
        "version": 3,
        "shape": tuple(tensor.shape),
        "strides": tuple(size * step for step in tensor.stride()),
        "typestr": f"|V{size}",
        "data": (tensor.data_ptr(), True),
    }
    return np.asarray(SimpleNamespace(__array_interface__=described))


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
