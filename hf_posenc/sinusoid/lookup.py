r"""Rows of an encoding for tensors of positions on any device: read from a table where one pays, else computed.

What is handed out is a copy, or is added to something else at once. Under a compiler all of it is one registered
operator; `torch.export` gets plain operations, so that a program runs where this package is not.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor

from .cache import Encoding, table
from .checks import FURTHEST, beyond_length, check_reach
from .conventions import Convention
from .exact import encode, encode_in_graph

# A call of torch for so many elements stays on the core that makes it, and so many are copied by such calls.
_ON_ONE_CORE, _FEW = 2**15, 2**20


def rows_at(
    positions: torch.Tensor,
    encoding: Encoding,
    dtype: torch.dtype,
    *,
    bound: int = -1,
    limit: int = -1,
    first: int = -1,
) -> torch.Tensor:
    r"""The rows of any positions, in memory of their own.

    Args:
        positions (`torch.Tensor` `(...)`, integer or float): on any device.
        encoding (`Encoding`): whose rows.
        dtype (`torch.dtype`): of the result.
        bound (`int`, *optional*): a number that all positions are known to be below, if they are known not to be
            negative either. Without it integers on an accelerator are waited for.
        limit (`int`, *optional*): the number of positions that were declared, or -1.
        first (`int`, *optional*): where positions are known to be first, first + 1, …; or -1.

    Returns:
        `torch.Tensor` `(..., D)` of `dtype`, on the device of `positions`.

    Raises:
        ValueError: if a position is not below `limit`.
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling():
        # torch.export: plain Python on fake tensors, and a program that should run where this package is not.
        return encode_in_graph(positions, encoding.waves, dtype).to(positions.device)
    if without_values(positions):
        rows: torch.Tensor = _rows(positions, encoding.spelled, encoding.d_model, dtype, bound, limit, first)
        return rows
    return _look_up(positions, encoding, dtype, bound, limit)


def shared_rows(start: int, stop: int, encoding: Encoding, like: torch.Tensor) -> torch.Tensor:
    r"""The rows of positions `start` to `stop` - 1: to be read at once, never handed out.

    Returns:
        `torch.Tensor` `(stop - start, D)`, dtype and device of `like`; where a table is kept a view of it.
    """
    if without_values(like):
        where = torch.arange(start, stop, device=like.device)
        # Before position 0 there is no row to read: a convention may begin there.
        return rows_at(where, encoding, like.dtype, bound=stop if start >= 0 else -1, first=max(start, -1))
    shared = table(encoding, stop, like.dtype, like.device, wanted=stop - start) if stop > start >= 0 else None
    if shared is not None:
        return shared[start:stop]
    return compute(torch.arange(start, stop, device="cpu"), encoding, like.dtype).to(like.device)


def compute(positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype) -> torch.Tensor:
    """Return the rows of any positions without a table, in memory of their own, on the device of `positions`."""
    refuse_far(positions, "positions")
    exact = positions.detach().to("cpu", torch.float64)
    return encode(exact, encoding.waves, dtype).to(positions.device)


def refuse_far(positions: torch.Tensor, name: str) -> None:
    """Raise for positions that are infinite, NaN, or too far out for float64; a wait on an accelerator."""
    # float64 would round integers before they are compared, and uint64 beyond int64 becomes negative.
    real = positions.is_floating_point()
    values = positions.to("cpu", torch.float64 if real else torch.int64)
    inside = (values >= (0 if positions.dtype == torch.uint64 else -FURTHEST)) & (values <= FURTHEST)
    if not bool(inside.all()):
        check_reach(np.array(positions.tolist(), dtype=np.float64 if real else object), name)


def without_values(tensor: torch.Tensor) -> bool:
    """Whether there is nothing to look at: under a compiler or export, in a fake mode or torch.func, on meta."""
    return (
        torch.compiler.is_compiling()
        or isinstance(tensor, FakeTensor)
        or tensor.is_meta
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def fill_rows(out: torch.Tensor, positions: torch.Tensor, encoding: Encoding, *, bound: int, limit: int) -> bool:
    r"""Write the rows of positions into a buffer, where a table has them; one call, and no memory but the buffer's.

    Args:
        out (`torch.Tensor` `(..., D)`): contiguous, on the device of `positions`.
        positions (`torch.Tensor` `(...)`), encoding (`Encoding`), bound (`int`), limit (`int`): see `rows_at`.

    Returns:
        `bool`: whether it was done; if not, nothing was written.

    Raises:
        ValueError: if a position is not below `limit`.
    """
    kept = _table_for(positions, encoding, out.dtype, bound, limit)
    if kept is not None:
        torch.index_select(kept, 0, _as_index(positions).reshape(-1), out=out.view(-1, encoding.d_model))
    return kept is not None


def _look_up(positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype, bound: int, limit: int) -> torch.Tensor:
    kept = _table_for(positions, encoding, dtype, bound, limit)
    return compute(positions, encoding, dtype) if kept is None else F.embedding(_as_index(positions), kept)


def _table_for(
    positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype, bound: int, limit: int
) -> torch.Tensor | None:
    """A table with the rows of all these positions, if one is kept or pays; refuses positions beyond `limit`."""
    whole = not positions.is_floating_point()
    lowest, highest = 0.0, bound - 1.0
    if positions.numel() and (not whole or bound < 0):
        lowest, highest = torch.stack(positions.aminmax()).tolist()  # one wait, not two
    if 0 <= limit <= highest:
        fix = "a larger max_length, or max_length=None: the encoding itself has no limit"
        raise ValueError(beyond_length(lowest, highest, limit, fix))
    if not whole or lowest < 0 or not positions.numel():
        return None
    return table(encoding, int(highest) + 1, dtype, positions.device, wanted=positions.numel())


def _as_index(positions: torch.Tensor) -> torch.Tensor:
    return positions if positions.dtype == torch.int32 else positions.long()


@torch.library.custom_op("hf_posenc::rows", mutates_args=())
def _rows(
    positions: torch.Tensor, spelled: str, d_model: int, dtype: torch.dtype, bound: int, limit: int, first: int
) -> torch.Tensor:
    """`rows_at` as one operation that a compiler does not look into: float64 angles in the graph cost three times."""
    encoding = _read(spelled, d_model)
    if first >= 0 and len(positions):
        last = first + len(positions)
        kept = table(encoding, last, dtype, positions.device, wanted=len(positions))
        if kept is not None:
            return _copied(kept[first:last])
    return _look_up(positions, encoding, dtype, bound, limit)


def _copied(rows: torch.Tensor) -> torch.Tensor:
    """A copy of some rows: on one core where they are few, since waiting for busy ones takes longer than the copy."""
    if rows.device.type != "cpu" or rows.numel() > _FEW:
        return rows.clone()
    copy = torch.empty_like(rows)
    step = max(1, _ON_ONE_CORE // rows.shape[1])
    for start in range(0, len(rows), step):
        copy[start : start + step] = rows[start : start + step]
    return copy


@_rows.register_fake
def _(
    positions: torch.Tensor, spelled: str, d_model: int, dtype: torch.dtype, bound: int, limit: int, first: int
) -> torch.Tensor:
    return positions.new_empty((*positions.shape, d_model), dtype=dtype)


@_rows.register_vmap
def _(_: Any, where: tuple[Any, ...], positions: torch.Tensor, *settings: Any) -> tuple[torch.Tensor, int]:
    # Positions are what is mapped over: nothing else is a tensor. A row depends on its own position alone.
    return _rows(positions.movedim(where[0], 0), *settings[:-1], -1), 0


@lru_cache(maxsize=64)
def _read(spelled: str, d_model: int) -> Encoding:
    values, base = ast.literal_eval(spelled)
    return Encoding.of(Convention(*values), d_model, base)
