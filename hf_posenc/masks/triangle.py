"""Look-ahead matrices: those of long rows are copy-on-write maps of a file in memory, which a process writes once.

A write to a matrix reaches no other one, by whatever way it is written: the system copies the page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import in_bytes, value_error

# Tokens of the longest row with a mask of T×T values. As bool it takes 4.3 GB; one of a million tokens would take 1 TB.
LONGEST_ROW = 65_536
# Bytes of the smallest matrix that is mapped. A map takes 20 µs, but each 64 kB of it that is read cost a page fault:
# below this size, a copy is made and read in less time.
_LEAST_MAPPED = 2**22
# A file takes as long as several copies, so the first matrices that are longer than those of the file are copies.
_COPIES = 2
_ROWS = 64  # written to the file at once


class _File:
    """File in memory with a matrix of at least `length` tokens; closed with the last reference to it."""

    def __init__(self, length: int) -> None:
        self._number = os.memfd_create("look_ahead_mask")
        self._status = os.fstat(self._number)
        step = max(1, 1 << (length.bit_length() - 4))
        self.side = -(-length // step) * step  # at most 1.125 times the length, so a file serves several lengths
        rows = _rows(self.side)
        with open(self._number, "wb", closefd=False) as file:
            for start in range(0, self.side, _ROWS):
                file.write(rows[start : start + _ROWS].tobytes())

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            if self._is_open():
                os.close(self._number)

    def _is_open(self) -> bool:
        # A daemon closes all files of its parent, and may open another one under this number.
        return os.path.samestat(os.fstat(self._number), self._status)

    def map(self, length: int) -> NDArray[np.bool_] | None:
        """Return the memory of the first `length` rows, mapped copy-on-write; `None` if the system cannot map it."""
        with suppress(OSError, RuntimeError):
            if self._is_open():
                size = (length - 1) * self.side + length
                # Unlike `mmap`, torch keeps no open file for each map.
                path = f"/proc/self/fd/{self._number}"
                return torch.from_file(path, shared=False, size=size, dtype=torch.bool, device="cpu").numpy()
        return None


def check_matrix(name: str, shape: Sequence[int], fix: str, itemsize: int = 1) -> None:
    """Raise if a mask of `shape` `(..., Q, K)` has more than 65,536² values for each row of the batch.

    The other arguments are for the message: `name` of the mask, `fix` as the proposed solution, and `itemsize`, the
    bytes of one value, for the size of the mask in memory.
    """
    if shape[-2] * shape[-1] > LONGEST_ROW**2:
        raise value_error(
            f"{name} has T×T values, so it is made for rows of at most {LONGEST_ROW:,} tokens",
            got=f"rows of {max(shape[-2:]):,} tokens, a mask of {in_bytes(math.prod(shape) * itemsize)}",
            fix=fix,
        )


@dataclass
class _Kept:
    """The one file of a process, that of its longest rows, and the number of longer matrices that were copied since.

    Threads need no lock, which a fork could leave locked in the child: two of them may count one copy, or make two
    files, of which one is kept.
    """

    file: _File | None = None
    copies: int = 0
    may_grow: bool = hasattr(os, "memfd_create")  # False after a file could not be made


_kept = _Kept()


def look_ahead_of_batch(rows: int, length: int) -> NDArray[np.bool_]:
    """Return the look-ahead mask `(rows, 1, T, T)` of a batch: one matrix, in memory that nothing else writes to.

    The first two dimensions have stride 0. The rows of a mapped matrix are less than 2T bytes apart. The file takes up
    to 1.27 T**2 bytes of memory for the longest rows of the process, 340 MB at 16,385 tokens, which containers count as
    shared memory. No operation uses several cores, so that a forked worker can call it.
    """
    fix = f"look_ahead=False, if attention is causal without a mask; or max_length={LONGEST_ROW}"
    check_matrix("look_ahead_mask", (length, length), fix)
    memory, stride = None, length
    if length**2 >= _LEAST_MAPPED:
        if _kept.may_grow and (_kept.file is None or _kept.file.side < length):
            _kept.copies += 1
            if _kept.copies > _COPIES:
                try:
                    _kept.file, _kept.copies = _File(length), 0
                except OSError:  # no memory, or not allowed
                    _kept.may_grow = False
        if (file := _kept.file) is not None and length <= file.side < 2 * length:
            memory, stride = file.map(length), file.side
    if memory is None:
        memory, stride = _rows(length).copy(), length  # faster than np.tri
    return np.ndarray((rows, 1, length, length), np.bool_, memory, strides=(0, 0, stride, 1))


def _rows(length: int) -> NDArray[np.bool_]:
    run = np.zeros(2 * length + 1, dtype=np.bool_)  # True, then False: each row of the matrix is a part of it
    run[: length + 1] = True
    return np.ndarray((length, length), np.bool_, run, offset=length, strides=(-1, 1))
