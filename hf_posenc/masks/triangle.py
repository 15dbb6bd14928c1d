"""Look-ahead matrices, copy-on-write maps of a file for a length that many batches have.

A write to a matrix reaches no other one, by whatever way it is written: the system copies the page.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

# Bytes of the smallest matrix that is mapped. A map takes 10 µs, but each 64 kB of it that is read cost a page fault:
# below this size, a copy is made and read in less time.
_LEAST_MAPPED = 2**23
# A file takes as long as five copies. So it is made for a length that had a lead of four batches over other lengths. It
# remains until they have made up for the lead, which is at most eight batches.
_ENOUGH, _MOST = 4, 8
_ROWS = 64  # written to the file at once


class _File:
    """File in memory that holds one matrix; it is closed with the last reference to it."""

    def __init__(self, number: int, rows: NDArray[np.bool_]) -> None:
        self._number = number
        self._status = os.fstat(number)
        with open(number, "wb", closefd=False) as file:
            for start in range(0, len(rows), _ROWS):
                file.write(rows[start : start + _ROWS].tobytes())

    def __del__(self) -> None:
        if self._is_open():
            os.close(self._number)

    def _is_open(self) -> bool:
        # A daemon closes all files of its parent, and may open another one under this number.
        with suppress(OSError):
            return os.path.samestat(os.fstat(self._number), self._status)
        return False

    def map(self, length: int) -> NDArray[np.bool_] | None:
        """Return the matrix as a private map, or `None` if the system cannot map it."""
        if not self._is_open():
            return None
        # Unlike `mmap`, torch keeps no open file for each map.
        path, size = f"/proc/self/fd/{self._number}", length * length
        with suppress(RuntimeError):
            flat = torch.from_file(path, shared=False, size=size, dtype=torch.bool, device="cpu")
            return flat.numpy().reshape(length, length)
        return None


class _Frequent(NamedTuple):
    length: int
    lead: int  # number of its batches, minus those of other lengths since then
    file: _File | None


# The only item is replaced, never changed, so that threads need no lock, which a fork could leave locked in the child.
# Two threads may count one batch, or make two files; one of them is kept.
_frequent: list[_Frequent] = [_Frequent(0, 0, None)]


def lower_triangle(length: int) -> NDArray[np.bool_]:
    """Return the matrix `(length, length)` that is True at j <= i, in memory that nothing else writes to."""
    run = np.zeros(2 * length + 1, dtype=np.bool_)  # True, then False: each row of the matrix is a part of it
    run[: length + 1] = True
    rows = np.ndarray((length, length), np.bool_, run, offset=length, strides=(-1, 1))
    file = _file_of(rows) if rows.size >= _LEAST_MAPPED and hasattr(os, "memfd_create") else None
    mapped = None if file is None else file.map(length)
    return rows.copy() if mapped is None else mapped  # the copy is faster than np.tri


def _file_of(rows: NDArray[np.bool_]) -> _File | None:
    """Return the file that holds the matrix `rows`, if its length is frequent, and count the length."""
    length, lead, file = _frequent[0]
    if length != len(rows):
        _frequent[0] = _Frequent(length, lead - 1, file) if lead > 1 else _Frequent(len(rows), 1, None)
        return None
    if file is None and lead >= _ENOUGH:
        try:
            file = _File(os.memfd_create("look_ahead_mask"), rows)
        except OSError:  # no memory, or not allowed
            lead = 0
    _frequent[0] = _Frequent(length, min(lead + 1, _MOST), file)
    return file
