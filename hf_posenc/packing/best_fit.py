"""Best-fit decreasing over groups of equal rows, and a bound that no packing can beat.

Works on checked lengths; which document goes where, and in what order, is decided in `plan`.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from .checks import histogram


def best_fit_decreasing(sizes: NDArray[np.int64], counts: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Best-fit decreasing on whole groups of equal rows, for `counts` documents of each of the falling `sizes`.

    Rows that were filled alike are one range of row numbers. A range with `free` places takes `free // size` documents
    of one size before any other row becomes the best fit, so that it moves to its new free space in one step.

    Returns `(4, M)` for M moves: first row, number of rows, documents put into each, documents already in each.
    """
    ranges: dict[int, list[tuple[int, int, int]]] = {}  # free space -> (first row, rows, documents already in each)
    spaces: list[int] = []  # the keys of `ranges`, ascending
    moves: list[tuple[int, int, int, int]] = []
    rows = 0
    smallest = int(sizes[-1]) if len(sizes) else 0

    def keep(free: int, begin: int, width: int, inside: int) -> None:
        if free < smallest or not width:
            return  # nothing will ever fit there again
        if free in ranges:
            ranges[free].append((begin, width, inside))
        else:
            ranges[free] = [(begin, width, inside)]
            insort(spaces, free)

    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        left = count
        while left:
            best = bisect_left(spaces, size)
            if best < len(spaces):
                free = spaces[best]
                begin, width, inside = ranges[free].pop()
                if not ranges[free]:
                    del ranges[free], spaces[best]
            else:  # no row has room: open as many as the rest needs
                free = capacity
                begin, width, inside = rows, -(-left // (capacity // size)), 0
                rows += width
            each = free // size
            full = min(width, left // each)
            if full:
                moves.append((begin, full, each, inside))
                keep(free - each * size, begin, full, inside + each)
                left -= full * each
            if left and full < width:  # too few are left to fill one more row of this range
                moves.append((begin + full, 1, left, inside))
                keep(free - left * size, begin + full, 1, inside + left)
                full, left = full + 1, 0
            keep(free, begin + full, width - full, inside)
    return np.array(moves, dtype=np.int64).reshape(-1, 4).T


def fewest_rows(lengths: NDArray[np.int64], capacity: int) -> int:
    """Martello and Toth's bound L2 on the number of rows, over the histogram of lengths."""
    if not len(lengths):
        return 0
    sizes, counts = histogram(lengths)
    number = np.concatenate([[0], np.cumsum(counts)])  # documents shorter than sizes[k]
    tokens = np.concatenate([[0], np.cumsum(sizes * counts)])
    # For a limit a <= C/2: a document above C - a shares its row with none of length >= a; one above C/2 with no other
    # above C/2, and what room those leave may take the documents from a to C/2.
    limits = np.concatenate([[0], sizes[2 * sizes <= capacity]])
    half = np.searchsorted(sizes, capacity // 2, side="right")
    long = np.searchsorted(sizes, capacity - limits, side="right")
    short = np.searchsorted(sizes, limits)
    alone = number[-1] - number[half]  # every document above C/2 opens a row
    room = (number[long] - number[half]) * capacity - (tokens[long] - tokens[half])
    overflow = (tokens[half] - tokens[short]) - room
    return int((alone + np.maximum(0, -(-overflow // capacity))).max())
