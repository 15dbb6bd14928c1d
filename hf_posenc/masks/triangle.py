"""Look-ahead matrices: those of long rows are copy-on-write maps of a file in memory, which a process writes once.

A write to a matrix reaches no other one, by whatever way it is written: the system copies the page.
"""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray

# Bytes of the smallest matrix that is mapped. A map takes 20 µs, but each 64 kB of it that is read cost a page fault:
# below this size, a copy is made and read in less time.
_LEAST_MAPPED = 2**22
# A file takes as long as several copies, so the first matrices of its size are copies.
_COPIES = 2
_ROWS = 64  # written to the file at once


class _File:
    """File in memory with the matrix of `side` tokens."""

    def __init__(self, side: int) -> None:
        self._number = os.memfd_create("look_ahead_mask")
        self._status = os.fstat(self._number)
        with open(self._number, "wb", closefd=False) as file:
            rows = _rows(side)
            for start in range(0, side, _ROWS):
                file.write(rows[start : start + _ROWS].tobytes())
        self._side = side

    def map(self, length: int) -> NDArray[np.bool_] | None:
        """Return the memory of the first `length` rows, mapped copy-on-write; `None` if the system cannot map it."""
        with suppress(OSError, RuntimeError):
            # A daemon closes all files of its parent, and may open another one under this number.
            if os.path.samestat(os.fstat(self._number), self._status):
                size = (length - 1) * self._side + length
                # Unlike `mmap`, torch keeps no open file for each map.
                path = f"/proc/self/fd/{self._number}"
                return torch.from_file(path, shared=False, size=size, dtype=torch.bool, device="cpu").numpy()
        return None


# For each power of two: the file, or the number of copies so far. Threads need no lock, which a fork could leave locked
# in the child: two of them may count one copy, or make two files, of which one is kept.
_files: dict[int, _File | int] = {}


def lower_triangle(*shape: int) -> NDArray[np.bool_]:
    """Return one matrix `(..., T, T)` that is True at j <= i, in memory that nothing else writes to.

    The dimensions before the last two have stride 0. The rows of a mapped matrix are a power of two of bytes apart,
    less than 2T.
    """
    length = shape[-1]
    memory, stride = None, length
    if length**2 >= _LEAST_MAPPED and hasattr(os, "memfd_create"):
        side = 1 << (length - 1).bit_length()
        known = _files.get(side, 0)
        if known == _COPIES:
            with suppress(OSError):  # no memory, or not allowed
                known = _files[side] = _File(side)
        elif isinstance(known, int):
            _files[side] = known + 1
        if isinstance(known, _File):
            memory, stride = known.map(length), side
    if memory is None:
        memory, stride = _rows(length).copy(), length  # faster than np.tri
    return np.ndarray(shape, np.bool_, memory, strides=(*(0,) * (len(shape) - 2), stride, 1))


def _rows(length: int) -> NDArray[np.bool_]:
    run = np.zeros(2 * length + 1, dtype=np.bool_)  # True, then False: each row of the matrix is a part of it
    run[: length + 1] = True
    return np.ndarray((length, length), np.bool_, run, offset=length, strides=(-1, 1))
