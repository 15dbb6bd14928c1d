"""Columns and rows of a sinusoidal encoding as arrays, reduced if there are more than a plot can show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain
from ..sinusoid import Convention, frequencies, resolve_convention, sinusoidal_encoding

MOST_POINTS = 2000  # rows of an image or points of a line: a plot has fewer pixels
_MOST_VALUES = 2**20  # in an image; drawing more takes seconds
_MOST_COLUMNS = 2**17


class Columns(NamedTuple):
    r"""The formula of every column: its value at position p is sin(p · frequency), or the cosine of it."""

    sine: NDArray[np.bool_]  # (D,)
    cosine: NDArray[np.bool_]  # (D,); a column of zeros is neither
    frequency: NDArray[np.float64]  # (D,) radians per position; 0 in a column of zeros


def columns_of(d_model: int, convention: str | Convention, base: float | None) -> Columns:
    """Return the columns of an encoding of this width."""
    check_width(d_model)
    rates = frequencies(d_model, convention=convention, base=base).numpy()
    columns = Columns(np.zeros(d_model, dtype=bool), np.zeros(d_model, dtype=bool), np.zeros(d_model))
    for kind, where in zip(columns, resolve_convention(convention).columns(d_model), strict=False):
        kind[where] = True
        columns.frequency[where] = rates[: kind.sum()]  # sines and cosines each have the frequencies in order
    return columns


def rows_of(
    positions: NDArray[np.int64], d_model: int, convention: str | Convention, base: float | None
) -> NDArray[np.float64]:
    """Return the encoding of these positions, `(P, D)` float64."""
    check_width(d_model)
    where = torch.from_numpy(positions)
    rows = sinusoidal_encoding(where, d_model, convention=convention, base=base, dtype=torch.float64)
    return np.asarray(rows.numpy())


def mean_rows(
    length: int, d_model: int, convention: str | Convention, base: float | None
) -> tuple[NDArray[np.float64], int]:
    r"""Return the rows of an image `(R, D)` of `length` positions, and the number of positions averaged in each row.

    Skipping positions instead would show fast columns as slow waves (aliasing).

    Example:
        >>> rows, step = mean_rows(100_000, 4, "vaswani", None)
        >>> rows.shape, step
        ((2000, 4), 50)
    """
    columns = columns_of(d_model, convention, base)
    step = -(-length // min(MOST_POINTS, max(_MOST_VALUES // d_model, 1)))
    starts = np.arange(0, length, step)
    if step == 1:
        return rows_of(starts, d_model, convention, base), step
    counts = np.minimum(step, length - starts)[:, None]
    # The sum of n turns by the angle w is a geometric series: (1 - e^(iwn)) / (1 - e^(iw)).
    turn = np.exp(1j * columns.frequency)
    whole = np.abs(turn - 1) < 1e-12  # zeros, or whole turns from each position to the next
    series = (1 - np.exp(1j * columns.frequency * counts)) / np.where(whole, 1, 1 - turn) / counts
    mean = np.exp(1j * np.outer(starts, columns.frequency)) * np.where(whole, 1, series)
    return np.where(columns.cosine, mean.real, mean.imag), step


def line_points(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
    r"""Return the points to draw of lines `(N, C)`: positions and values `(P, C)`, and the step.

    With a step above 1, the lowest and the highest of every 2 · step points are kept, so that a wave too fast to be
    seen is drawn as a band.
    """
    step = -(-len(values) // MOST_POINTS)
    positions = np.repeat(np.arange(len(values))[:, None], values.shape[1], axis=1)
    if step > 1:
        kept = []
        for start in range(0, len(values), 2 * step):
            part = values[start : start + 2 * step]
            low, high = part.argmin(axis=0), part.argmax(axis=0)
            kept += [start + np.minimum(low, high), start + np.maximum(low, high)]
        positions = np.stack(kept)
    return positions, np.take_along_axis(values, positions, axis=0), step


def with_gaps(numbers: NDArray[np.number], before: NDArray[np.int64]) -> NDArray[np.float64]:
    r"""Return the numbers of a line with NaN, which is not drawn, before the given indices.

    Example:
        >>> with_gaps(np.array([1, 2, 3]), np.array([2]))
        array([ 1.,  2., nan,  3.])
    """
    return np.insert(numbers.astype(np.float64), before, np.nan)


def check_width(d_model: int) -> None:
    """Raise if the width is too large for a picture; the encoding raises for other wrong widths."""
    if isinstance(d_model, int) and d_model > _MOST_COLUMNS:
        raise ValueError(explain(f"a picture shows d_model up to {_MOST_COLUMNS:,}", got=d_model, fix="d_model=512"))


def described(d_model: int, convention: str | Convention, base: float | None) -> str:
    r"""Return width, convention and base for a title.

    Example:
        >>> described(128, "vaswani", 500)
        'd_model=128, vaswani, base 500'
    """
    name = resolve_convention(convention).name
    name = name if len(name) <= 40 else f"{name[:39]}…"
    return f"d_model={d_model}, {name}" + ("" if base is None else f", base {base:g}")


def turn(wavelength: float) -> str:
    r"""Return the number of positions of one turn, for a label.

    Example:
        >>> turn(6.2831), turn(62831.9), turn(float("inf"))
        ('6.28 positions a turn', '62,832 positions a turn', 'constant')
    """
    if wavelength == float("inf"):
        return "constant"
    digits = 2 if wavelength < 10 else 1 if wavelength < 100 else 0
    return f"{wavelength:,.{digits}f} positions a turn" if wavelength < 1e7 else f"{wavelength:.2g} positions a turn"
