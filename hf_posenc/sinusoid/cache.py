r"""The tables of encodings that this process keeps, outside every module; each is a pure function of its key.

Nothing of them is ever handed out but a copy of rows, or a view inside this package that is added to something else at
once: `lookup` sees to that.

No lock: the mapping is replaced, never changed, so a reader sees a whole one. Two threads that need the same new table
may both compute it, and then one of two equal tables stays. A lock held while a process forks would stop the child.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .checks import check_width
from .conventions import Convention, resolve_convention
from .exact import Waves, encode, waves

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


def cached_tables() -> dict[_Key, torch.Tensor]:
    """Return the cached tables `(R, D)` by encoding, dtype and device; they are shared, so never write to them."""
    return dict(_kept.tables)


def clear_cache() -> None:
    """Free the memory of all cached tables and frequencies; they are computed again when they are needed."""
    _kept.tables = {}
    waves.cache_clear()
