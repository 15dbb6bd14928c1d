r"""Rows of sinusoidal encodings from cached tables or computed directly, on any device.

A row is the vector of one position. The cache is global, and each table depends only on its key: encoding, dtype and
device. Users of the package get copies of rows. `shared_rows` returns a view; its callers add it to other values at
once. In compiled code a lookup is one registered operator. `torch.export` gets plain operations, so that exported
programs run without this package.

The cache has no lock, because a lock held while a process forks would block the child. The dict of tables is replaced
and never changed in place, so every thread reads a complete dict. If two threads compute the same new table, one of the
two equal tables is kept.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from .._common.compat import untraced
from .arguments import (
    LARGEST_POSITION,
    NO_LIMIT,
    as_index,
    beyond_length,
    check_length,
    check_tensor_range,
    without_values,
)
from .conventions import Convention, resolve_convention
from .exact import Waves, exact_rows, exact_rows_in_graph, waves

# Longer tables are not cached: 2**18 rows of width 768 are 768 MiB in float32, and such positions are rare.
_MAX_ROWS = 2**18
_MIN_ROWS = 256
_MAX_TABLES = 32
# A table gets many new rows only if the caller reads at least 1/16 as many rows. A single token at position 100,000, as
# in decoding with a cache, is computed alone in microseconds.
_SHARE = 16


class Encoding(NamedTuple):
    """Checked convention, width and base of a sinusoidal encoding; `Encoding.of` makes one."""

    convention: Convention
    d_model: int
    base: float | None  # the base in use, so that equal encodings are equal keys; None if the convention has none
    key: str  # convention and base as text for the registered operator: a float would become an input of the graph

    @classmethod
    def of(cls, convention: str | Convention, d_model: int, base: float | None) -> Encoding:
        """Return an `Encoding` after checking the arguments; `base=None` selects the base of the convention."""
        resolved = resolve_convention(convention)
        width = check_length(d_model, "d_model")
        number = resolved.check_fit(width, base)
        is_own = base is None or number == resolved.base
        return cls(resolved, width, number, f"({resolved.key}, {None if is_own else number!r})")

    @property
    def waves(self) -> Waves:
        """Frequencies of all pairs of columns, as cached `Waves`."""
        return waves(self.convention, self.d_model, self.base)


# --------------------------------------------------------------------------------------------------------------- cache

_Key = tuple[Encoding, torch.dtype, torch.device]
_jit: Any = torch.jit  # it has no types


# All cached tables `(R, D)`, as the only item of a list: replacing an item is safe in threads. For an attribute of a
# class it is not: CPython 3.11 may let another thread read the old dict after it was freed.
_tables: list[dict[_Key, torch.Tensor]] = [{}]


def clear_cache() -> None:
    """Free the memory of all cached tables and frequencies; they are computed again when they are needed."""
    _tables[0] = {}
    waves.cache_clear()


def _table(
    encoding: Encoding, length: int, dtype: torch.dtype, device: torch.device, *, count: int
) -> torch.Tensor | None:
    """Return the cached table of an encoding with at least `length` rows, after computing its missing rows."""
    if _jit.is_tracing():  # the lengths are tensors, and the table becomes a constant
        with untraced():
            return _table(encoding, int(length), dtype, device, count=int(count))
    key = (encoding, dtype, device)
    cached = _tables[0].get(key)
    present = 0 if cached is None else len(cached)
    if present >= length:
        return cached
    rows = min(max(_MIN_ROWS, 1 << (length - 1).bit_length()), _MAX_ROWS)
    if length > rows or (rows - present > _MIN_ROWS and rows - present > _SHARE * count):
        return None
    # A tensor made in inference mode would fail in the backward pass of a later training step.
    with torch.inference_mode(False), torch.no_grad():
        positions = torch.arange(present, rows, dtype=torch.float64, device="cpu")
        new = exact_rows(positions, encoding.waves, dtype).to(device)
        table = new if cached is None else torch.cat([cached, new])
    if not without_values(table):  # as a fake tensor is
        other_tables = [(other_key, rows) for other_key, rows in _tables[0].items() if other_key != key]
        _tables[0] = dict([*other_tables[-(_MAX_TABLES - 1) :], (key, table)])
    return table


# -------------------------------------------------------------------------------------------------------------- lookup


def rows_at(
    positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype, *, bound: int = -1, limit: int = NO_LIMIT
) -> torch.Tensor:
    """Return the encodings `(..., D)` of the given positions `(...)`, in new memory on their device.

    Give `bound` if all positions are from 0 to `bound` - 1; otherwise (-1) their range is computed, which waits for an
    accelerator. `limit` is the first position that is not allowed. Raise `ValueError` if a position is
    not below `limit`, is not finite, or is beyond 2**53 in absolute value. On an accelerator, a table of `limit` rows
    is used without a look at the positions, if it is not much larger than their number.
    """
    if without_values(positions):
        return _traced_rows(positions, encoding, dtype, bound, limit, -1)
    return _look_up(positions, encoding, dtype, bound, limit)


def shared_rows(start: int, stop: int, encoding: Encoding, like: torch.Tensor) -> torch.Tensor:
    """Return the encodings `(stop - start, D)` of positions `start` to `stop` - 1, in the dtype and device of `like`.

    Never write to the result: it may be a view of a cached table.
    """
    if without_values(like):
        where = torch.arange(start, stop, device=like.device)
        # A convention may start at a negative position, which has no row in a table.
        return _traced_rows(where, encoding, like.dtype, stop if start >= 0 else -1, NO_LIMIT, max(start, -1))
    shared = _table(encoding, stop, like.dtype, like.device, count=stop - start) if stop > start >= 0 else None
    if shared is not None:
        return shared[start:stop]
    return compute(torch.arange(start, stop, device="cpu"), encoding, like.dtype).to(like.device)


def compute(positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype) -> torch.Tensor:
    """Compute the encodings `(..., D)` of any `positions` `(...)`, on their device, without the cache."""
    near = positions.detach().to("cpu")
    check_tensor_range(near, "positions")
    return exact_rows(near.double(), encoding.waves, dtype).to(positions.device)


def fill_rows(out: torch.Tensor, positions: torch.Tensor, encoding: Encoding, *, bound: int, limit: int) -> bool:
    """Copy the encodings of `positions` from a cached table to `out`; see `rows_at` for `bound` and `limit`.

    Return False, with `out` unchanged, if there is no table for them, as for a negative or fractional position.
    """
    table = _table_for(positions, encoding, out.dtype, bound, limit)
    if table is not None:
        torch.index_select(table, 0, as_index(positions).reshape(-1), out=out.view(-1, encoding.d_model))
    return table is not None


def _look_up(positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype, bound: int, limit: int) -> torch.Tensor:
    table = _table_for(positions, encoding, dtype, bound, limit)
    return compute(positions, encoding, dtype) if table is None else F.embedding(as_index(positions), table)


def _table_for(
    positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype, bound: int, limit: int
) -> torch.Tensor | None:
    """Return a cached table with the rows of all `positions`, or `None` if they should be computed without a table."""
    is_integer = not positions.is_floating_point()
    lowest, highest = 0.0, bound - 1.0
    if is_integer and bound < 0 < limit and positions.device.type != "cpu":
        # Looking at the values would wait for the device. torch itself refuses an index that this table does not have.
        table = _table(encoding, limit, dtype, positions.device, count=positions.numel())
        if table is not None:
            return table[:limit]
    if positions.numel() and (not is_integer or bound < 0):
        lowest, highest = torch.stack(positions.aminmax()).tolist()  # one synchronization, not two
    if limit <= min(highest, LARGEST_POSITION):  # `compute` raises for those beyond it
        fix = "a larger max_length, or max_length=None: the encoding itself has no limit"
        raise ValueError(beyond_length(lowest, highest, limit, fix))
    if not is_integer or lowest < 0 or not positions.numel():
        return None
    return _table(encoding, int(highest) + 1, dtype, positions.device, count=positions.numel())


# ----------------------------------------------------------------------------------------------- compilers, torch.func


def _traced_rows(
    positions: torch.Tensor, encoding: Encoding, dtype: torch.dtype, bound: int, limit: int, first: int
) -> torch.Tensor:
    """Return the encodings of `positions` whose values cannot be read, for example in compiled code."""
    if torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling():  # torch.export
        return exact_rows_in_graph(positions, encoding.waves, dtype).to(positions.device)
    rows: torch.Tensor = _rows(positions, encoding.key, encoding.d_model, dtype, bound, limit, first)
    return rows


@torch.library.custom_op("hf_posenc::rows", mutates_args=())
def _rows(
    positions: torch.Tensor, key: str, d_model: int, dtype: torch.dtype, bound: int, limit: int, first: int
) -> torch.Tensor:
    """Return the encodings of `positions`, as an operator of torch: compilers call it, and do not compile its code."""
    # Compiled code would take three times as long for the float64 angles.
    encoding = _from_key(key, d_model)
    if first >= 0 and len(positions):
        last = first + len(positions)
        table = _table(encoding, last, dtype, positions.device, count=len(positions))
        if table is not None:
            return table[first:last].clone()
    return _look_up(positions, encoding, dtype, bound, limit)


@_rows.register_fake
def _(
    positions: torch.Tensor, key: str, d_model: int, dtype: torch.dtype, bound: int, limit: int, first: int
) -> torch.Tensor:
    return positions.new_empty((*positions.shape, d_model), dtype=dtype)


@_rows.register_vmap
def _(_: Any, dims: tuple[Any, ...], positions: torch.Tensor, *settings: Any) -> tuple[torch.Tensor, int]:
    # Positions are the only tensor argument, and a row depends only on its own position.
    return _rows(positions.movedim(dims[0], 0), *settings[:-1], -1), 0


@lru_cache(maxsize=64)
def _from_key(key: str, d_model: int) -> Encoding:
    values, base = ast.literal_eval(key)
    return Encoding.of(Convention(*values), d_model, base)
