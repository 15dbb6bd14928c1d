"""Dimensions and rows of a sinusoidal encoding as arrays, reduced if there are more than a plot can show."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import value_error
from ..positions import Convention, frequencies, resolve_convention, sinusoidal_encoding
from .checks import as_count

MOST_POINTS = 2000  # rows of an image or points of a line: a plot has fewer pixels
_MOST_VALUES = 2**20  # in an image; drawing more takes seconds
_MOST_COLUMNS = 2**17


class Sinusoids:
    r"""Sinusoidal encoding of width `d_model` for the plots: its frequencies, and its values at any positions.

    Dimension c has the value sin(p · `frequency`[c] + `phase`[c]) at position p. `sines` and `cosines` are the indices
    of the sines and of the cosines. Pair i of them has the frequency `rates`[i], in radians per position. A dimension
    of zeros, which some conventions have, belongs to no pair; its frequency and phase are 0.

    Example:
        >>> dimensions = Sinusoids(4, "vaswani", base=500)
        >>> print(dimensions, dimensions.sines, dimensions.cosines, dimensions.rates.round(4))
        d_model=4, vaswani, base 500 [0 2] [1 3] [1.     0.0447]
    """

    def __init__(self, d_model: int, convention: str | Convention, base: float | None) -> None:
        d_model = as_count(d_model, "d_model", 32, most=_MOST_COLUMNS)  # an example that `dials` can draw, too
        self.d_model, self.convention, self.base = d_model, convention, base
        self.rates: NDArray[np.float64] = frequencies(d_model, convention=convention, base=base).numpy()
        parts = resolve_convention(convention).columns(d_model)
        self.sines, self.cosines = (np.arange(d_model)[part] for part in parts)
        self.frequency, self.phase = np.zeros(d_model), np.zeros(d_model)
        for columns in (self.sines, self.cosines):  # both have the same frequencies in the same order
            self.frequency[columns] = self.rates[: len(columns)]
        self.phase[self.cosines] = np.pi / 2

    def __str__(self) -> str:
        base = "" if self.base is None else f", base {self.base:g}"
        return f"d_model={self.d_model}, {resolve_convention(self.convention).name}{base}"

    def check_waves(self) -> None:
        """Raise `ValueError` if all dimensions are zeros, as in some conventions with `d_model=1`."""
        if not len(self.rates):
            raise value_error("there is no sine or cosine to draw", got=f"zeros: {self}", fix="d_model=2")

    def rows(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the encoding of P positions `(P,)`, as float64 `(P, d_model)`."""
        where = torch.from_numpy(positions)
        rows = sinusoidal_encoding(where, self.d_model, convention=self.convention, base=self.base, dtype=torch.float64)
        return np.asarray(rows.numpy())

    def mean_rows(self, length: int) -> tuple[NDArray[np.float64], int]:
        r"""Return the encoding of the positions 0 to `length` - 1 for an image, and the number of positions per row.

        The encoding is `(R, d_model)` float64, with R at most 2,000, or 2**20 / `d_model` if this is less. For more
        positions, each row is the mean of consecutive ones. Drawing every n-th position instead would show fast waves
        as slow waves (aliasing).

        Example:
            >>> rows, step = Sinusoids(4, "vaswani", None).mean_rows(100_000)
            >>> rows.shape, step
            ((2000, 4), 50)
        """
        step = -(-length // min(MOST_POINTS, max(_MOST_VALUES // self.d_model, 1)))
        starts = np.arange(0, length, step)
        if step == 1:
            return self.rows(starts), step
        counts = np.minimum(step, length - starts)[:, None]
        # The sum of n turns by the angle w is a geometric series: (1 - e^(iwn)) / (1 - e^(iw)).
        turn = np.exp(1j * self.frequency)
        is_constant = np.abs(turn - 1) < 1e-12  # the dimension has the same value at every position
        series = (1 - turn**counts) / np.where(is_constant, 1, 1 - turn) / counts
        first = np.exp(1j * (np.outer(starts, self.frequency) + self.phase))
        return (first * np.where(is_constant, 1, series)).imag, step


def turn(wavelength: float) -> str:
    r"""Format a wavelength, the number of positions in one turn, for a label.

    Example:
        >>> turn(6.2831), turn(62831.9), turn(float("inf"))
        ('6.28 positions a turn', '62,832 positions a turn', 'constant')
    """
    if wavelength == float("inf"):
        return "constant"
    digits = 2 if wavelength < 10 else 1 if wavelength < 100 else 0
    return f"{wavelength:,.{digits}f} positions a turn" if wavelength < 1e7 else f"{wavelength:.2g} positions a turn"
