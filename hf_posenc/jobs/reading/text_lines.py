"""Lines of a block of bytes, found and decoded by NumPy and Arrow, without a Python loop while all is well.

Only a line feed ends a line, with or without a carriage return before it; nothing here knows where a block came from.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
_SPACE = b" \t\r"


def spans(block: bytes) -> tuple[Ints, Ints]:
    r"""Where each line begins and ends, the line feed left out.

    Example:
        >>> spans(b"a\n\nbc")
        (array([0, 2, 3]), array([1, 2, 5]))
    """
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    return np.concatenate(([0], ends[:-1] + 1)), ends


def blank(block: bytes, starts: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    r"""Which lines hold nothing but spaces, tabs and carriage returns.

    Example:
        >>> blank(b"a\n \n\n", *spans(b"a\n \n\n"))
        array([False,  True,  True])
    """
    found: npt.NDArray[np.bool_] = starts == ends
    first = np.frombuffer(block + b"\n", np.uint8)[starts]
    for line in np.flatnonzero(np.isin(first, np.frombuffer(_SPACE, np.uint8))):
        found[line] = not block[starts[line] : ends[line]].strip(_SPACE)
    return found


def decoded(block: bytes, bounds: Ints) -> tuple[pa.StringArray, dict[int, str]]:
    r"""Texts that lie end to end in a block, as one array over the same memory; null where they are not UTF-8.

    Args:
        block (`bytes`): fewer than 2**31.
        bounds (NumPy `(texts + 1,)` int64): where each begins; the last is the end of the last.

    Returns:
        `pyarrow.StringArray`, and what is wrong with each text that is null.

    Example:
        >>> decoded(b"ab\xff", np.array([0, 1, 3]))[1]
        {1: 'is not UTF-8: byte 0xff at position 1 (invalid start byte)'}
    """
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(block)]
    texts = pa.Array.from_buffers(pa.string(), len(bounds) - 1, buffers)
    if is_unicode(texts):
        return texts, {}
    bad = {}
    for row, (start, end) in enumerate(pairwise(bounds.tolist())):
        if (reason := not_unicode(block[start:end])) is not None:
            bad[row] = reason
    return without(texts, bad), bad


def is_unicode(texts: pa.Array) -> bool:
    """Whether every text of a string array is valid UTF-8, which Arrow does not look at when it is handed bytes."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def not_unicode(text: bytes) -> str | None:
    """Why bytes are not UTF-8; `None` when they are."""
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return f"is not UTF-8: byte 0x{text[wrong.start]:02x} at position {wrong.start} ({wrong.reason})"
    return None


def without(values: pa.Array, rows: dict[int, str]) -> pa.Array:
    """An array with nulls in place of some of its rows."""
    keep = np.ones(len(values), bool)
    keep[list(rows)] = False
    return pc.if_else(pa.array(keep), values, pa.scalar(None, values.type))
