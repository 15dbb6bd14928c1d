r"""Rows of an encoding for tensors of positions on any device: read from a table where one pays, else computed.

Tables live here, outside every module, and are a pure function of their key. Nothing of them is ever handed out but a
copy of rows, or a view inside this package that is added to something else at once.

No lock: the mapping is replaced, never changed, so a reader sees a whole one. Two threads that need the same new table
may both compute it, and then one of two equal tables stays. A lock held while a process forks would stop the child.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor

from .._explain import explain
from .checks import check_width
from .conventions import Convention, resolve_convention
from .exact import Waves, encode, encode_in_graph, waves

# Longer tables are not kept: 2**18 rows of width 768 are 768 MiB in float32, and longer rows of tokens are rare.
MOST_ROWS = 2**18
_FEWEST_ROWS = 256
# A table is made, or made longer, for a request of at least this share of its new rows: one token at position 100,000,
# as in decoding with a cache, is computed alone in microseconds.
_SHARE = 16
_MOST_TABLES = 32


class Encoding(NamedTuple):
    """Everything that the values of an encoding depend on, apart from position, dtype and device."""

    convention: Convention
    d_model: int
    base: float | None  # None where there is none, never for "the usual one": equal encodings are equal keys
    spelled: str  # convention and base for a registered operator: a float would become an input of the graph

    @classmethod
    def of(cls, convention: str | Convention, d_model: int, base: float | None) -> Encoding:
        """The encoding that a caller's arguments describe, checked."""
        resolved = resolve_convention(convention)
        width = check_width(d_model)
        number = resolved.check_fit(width, base)
        own = base is None or number == resolved.base
        return cls(resolved, width, number, f"({resolved.spelled}, {None if own else number!r})")

    @property
    def waves(self) -> Waves:
        """The frequencies, computed once for each encoding."""
        return waves(self.convention, self.d_model, self.base)


_Key = tuple[Encoding, torch.dtype, torch.device]


class _Kept:
    """The tables of this process.

    An instance holds them, not the class: CPython 3.11 frees the old value of a class attribute before it forgets where
    it read it, freeing a tensor lets other threads run, and one of them then reads a dict that is gone.
    """

    def __init__(self) -> None:
        self.tables: dict[_Key, torch.Tensor] = {}


_kept = _Kept()


def table(
    encoding: Encoding, length: int, dtype: torch.dtype, device: torch.device, *, wanted: int
) -> torch.Tensor | None:
    r"""The rows of positions 0, 1, … `length` - 1 or more, shared: read it, never write to it and never hand it out.

    Args:
        encoding (`Encoding`): whose rows.
        length (`int`): how many rows are needed at least.
        dtype (`torch.dtype`), device (`torch.device`): of the table.
        wanted (`int`): how many rows the caller is about to read, which decides whether a longer table pays.

    Returns:
        `torch.Tensor` `(R, D)`, R >= `length`, a power of two; `None` where computing directly is the better way.
    """
    key = (encoding, dtype, device)
    found = _kept.tables.get(key)
    have = 0 if found is None else len(found)
    if have >= length:
        return found
    rows = min(max(_FEWEST_ROWS, 1 << (length - 1).bit_length()), MOST_ROWS)
    if length > rows or (rows - have > _FEWEST_ROWS and rows - have > _SHARE * wanted):
        return None
    # A tensor made in inference mode would fail in the backward pass of a later training step.
    with torch.inference_mode(False), torch.no_grad():
        positions = torch.arange(have, rows, dtype=torch.float64, device="cpu")
        new = encode(positions, encoding.waves, dtype).to(device)
        made = new if found is None else torch.cat([found, new])
    if type(made) is torch.Tensor:  # not a fake one
        others = [(other, kept) for other, kept in _kept.tables.items() if other != key]
        _kept.tables = dict([*others[-(_MOST_TABLES - 1) :], (key, made)])
    return made


def rows_at(
    positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype, *, bound: int = -1, limit: int = -1
) -> torch.Tensor:
    r"""The rows of any positions, in memory of their own.

    Args:
        positions (`torch.Tensor` `(...)`, integer or float): on any device.
        encoding (`Encoding`): whose rows.
        dtype (`torch.dtype`): of the result.
        bound (`int`, *optional*): a number that all positions are known to be below, if they are known not to be
            negative either. Without it integers on an accelerator are waited for.
        limit (`int`, *optional*): the number of positions that were declared, or -1.

    Returns:
        `torch.Tensor` `(..., D)` of `dtype`, on the device of `positions`.

    Raises:
        ValueError: if a position is not below `limit`.
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling():
        # torch.export: plain Python on fake tensors, and a program that should run where this package is not.
        return encode_in_graph(positions, encoding.waves, dtype).to(positions.device)
    if without_values(positions):
        rows: torch.Tensor = _rows(positions, encoding.spelled, encoding.d_model, dtype, bound, limit)
        return rows
    return _look_up(positions, encoding, dtype, bound, limit)


def shared_rows(start: int, stop: int, encoding: Encoding, like: torch.Tensor) -> torch.Tensor:
    r"""The rows of positions `start` to `stop` - 1: to be read at once, never handed out.

    Returns:
        `torch.Tensor` `(stop - start, D)`, dtype and device of `like`; where a table is kept a view of it.
    """
    if without_values(like):
        where = torch.arange(start, stop, device=like.device)
        return rows_at(where, encoding, like.dtype, bound=stop)
    shared = table(encoding, stop, like.dtype, like.device, wanted=stop - start) if stop > start else None
    if shared is not None:
        return shared[start:stop]
    return compute(torch.arange(start, stop, device="cpu"), encoding, like.dtype).to(like.device)


def compute(positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype) -> torch.Tensor:
    """The rows of any positions without a table, in memory of their own, on the device of `positions`."""
    exact = positions.detach().to("cpu", torch.float64)
    return encode(exact, encoding.waves, dtype).to(positions.device)


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
        raise ValueError(
            explain(
                f"position {highest:g} is beyond the declared length",
                got=f"positions {lowest:g} to {highest:g}, the last one allowed is {limit - 1}",
                fix="a larger max_length, or max_length=None: the encoding itself has no limit",
            )
        )
    if not whole or lowest < 0 or not positions.numel():
        return None
    return table(encoding, int(highest) + 1, dtype, positions.device, wanted=positions.numel())


def _as_index(positions: torch.Tensor) -> torch.Tensor:
    return positions if positions.dtype == torch.int32 else positions.long()


@torch.library.custom_op("hf_posenc::rows", mutates_args=())
def _rows(
    positions: torch.Tensor, spelled: str, d_model: int, dtype: torch.dtype, bound: int, limit: int
) -> torch.Tensor:
    """`rows_at` as one operation that a compiler does not look into: float64 angles in the graph cost three times."""
    return _look_up(positions, _read(spelled, d_model), dtype, bound, limit)


@_rows.register_fake
def _(positions: torch.Tensor, spelled: str, d_model: int, dtype: torch.dtype, bound: int, limit: int) -> torch.Tensor:
    return positions.new_empty((*positions.shape, d_model), dtype=dtype)


@_rows.register_vmap
def _(_: Any, where: tuple[Any, ...], positions: torch.Tensor, *settings: Any) -> tuple[torch.Tensor, int]:
    # Positions are what is mapped over: nothing else is a tensor. A row depends on its own position alone.
    return _rows(positions.movedim(where[0], 0), *settings), 0


@lru_cache(maxsize=64)
def _read(spelled: str, d_model: int) -> Encoding:
    values, base = ast.literal_eval(spelled)
    return Encoding.of(Convention(*values), d_model, base)


def clear() -> None:
    """Forget all tables, and give their memory back."""
    _kept.tables = {}
