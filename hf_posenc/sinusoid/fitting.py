"""From the numbers of a table to a formula: how fast each pair of columns turns, and which position a row holds.

Works on a few dozen rows, and says how far they are from the formula; `recognition` looks at all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from .conventions import Convention
from .formulas import rates_of

_HEAD, _SPREAD = 48, 16  # rows looked at: the first ones, and some of the others
_FEW_PAIRS, _MOST_PAIRS = 8, 64
_COUNTED = 2048  # where a few pairs leave the first position open, every one up to here is tried
_FARTHEST, _MOST_TURNS = 2**17, 512  # and where more do, every turn of the slowest up to here


class Precision(NamedTuple):
    """How a table's numbers were rounded: half a unit in the last place of 1, and of the smallest numbers."""

    dtype: torch.dtype
    half: float
    tiny: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> Precision:
        """That of a dtype."""
        info = torch.finfo(dtype)
        return cls(dtype, info.eps / 2, info.smallest_normal * info.eps)


class Sample(NamedTuple):
    """Some rows of a table that are not zero: their numbers `(R,)` int64, their values `(R, D)` float64."""

    rows: torch.Tensor
    values: torch.Tensor
    precision: Precision

    @property
    def head(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The first ones, for what errors of angles would spoil: those grow with the position."""
        return self.rows[:_HEAD], self.values[:_HEAD]


class Fit(NamedTuple):
    """A formula held against a sample: `ratio` is the worst error over what may be; `error` the root mean square."""

    formula: Convention
    first_position: int
    amplitude: float
    error: float
    ratio: float


def sampled_rows(present: torch.Tensor) -> torch.Tensor:
    """Which rows to look at, out of those that are `present` `(N,)` bool: the first, and some up to the last."""
    rows = present.nonzero().squeeze(1)
    if len(rows) <= _HEAD + _SPREAD:
        return rows
    return torch.cat([rows[:_HEAD], rows[spread(_HEAD, len(rows) - 1, _SPREAD)]])


def allowed(
    values: torch.Tensor, positions: torch.Tensor, rates: torch.Tensor, amplitude: float, precision: Precision
) -> torch.Tensor:
    r"""How far a table may be from `values` `(R, F)` and still be that formula's.

    One rounding to the precision (two where a table was multiplied, by a number that is not quite known), two units of
    a float32 sine, and the error of an angle that was computed in float32: its rate is off by a few parts in 2**24,
    more the longer its logarithm.
    """
    rounding = precision.half * (1.01 if amplitude == 1 else 3.0) + 2**-22
    drift = rates * (1 - rates.clamp(max=1).log()) * 2**-22
    return (
        values.abs().mul_(rounding).addcmul_(positions.abs().unsqueeze(1), drift).mul_(amplitude).add_(precision.tiny)
    )


def fit(sample: Sample, formula: Convention, *, is_thorough: bool = False) -> Fit:
    """The formula with the first position and amplitude that suit a sample best.

    Thoroughly: also positions beyond half a turn of the slowest pair, and negative amplitudes.
    """
    rows, values = sample.head
    pairs = _some_pairs(formula, values.shape[1])
    turning = as_complex(values, formula)[:, pairs]
    rates = rates_of(formula, values.shape[1])[pairs]
    # Turned back by its own row, every row of a column is at the angle of row 0.
    start = (turning * turn(-rows.unsqueeze(1) * rates)).mean(0)
    is_coherent = float(start.abs().square().mean()) > 0.5 * float(turning.abs().square().mean())
    near = 4 * sample.precision.half + 1e-5
    signs = (1, -1) if is_thorough and is_coherent else (1,)
    found = [
        judge(sample, formula, _first_position(sign * start, rates, near, is_thorough and is_coherent))
        for sign in signs
    ]
    return min(found, key=lambda each: (each.ratio > 1, each.error))


def judge(sample: Sample, formula: Convention, first_position: int) -> Fit:
    """How well a formula that starts at that position fits, by some of the columns."""
    d_model = sample.values.shape[1]
    pairs = _some_pairs(formula, d_model, alone=True)
    rates = rates_of(formula, d_model)[pairs]
    positions = (sample.rows + first_position).double()
    angles = positions.unsqueeze(1) * rates  # (R, P)
    # How many of these pairs have a sine, and how many a cosine: the last may be without a partner.
    counts = [int((pairs < count).sum()) for count in formula.counts(d_model)]
    places = zip(formula.columns(d_model), counts, strict=True)
    given = torch.cat([sample.values[:, place][:, pairs[:some]] for place, some in places], 1)
    expected = torch.cat([angles[:, : counts[0]].sin(), angles[:, : counts[1]].cos()], 1)
    amplitude = _amplitude(given[:_HEAD], expected[:_HEAD], sample.precision)
    turning = torch.cat([rates[:some] for some in counts])
    limits = allowed(expected, positions, turning, abs(amplitude), sample.precision)
    unused = sample.values[:, sum(formula.counts(d_model)) :].abs()  # a column of zeros, or none
    error = torch.cat([(given - amplitude * expected).abs(), unused], 1)
    ratio = (error / torch.cat([limits, torch.full_like(unused, sample.precision.tiny)], 1)).max()
    return Fit(formula, first_position, amplitude, float(error.square().mean().sqrt()), float(ratio))


def spread(first: int, last: int, count: int) -> torch.Tensor:
    """So many whole numbers from `first` to `last`."""
    return torch.linspace(first, last, count, dtype=torch.float64, device="cpu").round().long()


def _some_pairs(formula: Convention, d_model: int, *, alone: bool = False) -> torch.Tensor:
    """Numbers of pairs from the fastest to the slowest, few enough to be quick; one may stand `alone`."""
    count = (max if alone else min)(formula.counts(d_model))
    return spread(0, count - 1, min(count, _MOST_PAIRS))


def turn(angles: torch.Tensor) -> torch.Tensor:
    """The complex numbers of length 1 at these angles: what one is multiplied by to be turned so far."""
    return torch.polar(torch.ones_like(angles), angles)


def as_complex(values: torch.Tensor, formula: Convention) -> torch.Tensor:
    """Cosine + i·sine of each pair of columns."""
    sines, cosines = (values[:, columns] for columns in formula.columns(values.shape[1]))
    count = min(formula.counts(values.shape[1]))
    return torch.complex(cosines[:, :count].contiguous(), sines[:, :count].contiguous())


def _amplitude(values: torch.Tensor, expected: torch.Tensor, precision: Precision) -> float:
    """Return the factor of the formula, the median over rows, as a few may have been changed; powers of two exactly."""
    rows = (values * expected).sum(1) / expected.square().sum(1).clamp_min(1e-300)
    found = float(rows.median())
    power = 2.0 ** round(math.log2(abs(found) or 1.0))
    return power if abs(found / power - 1) <= max(precision.half, 1e-6) else found


def _first_position(start: torch.Tensor, rates: torch.Tensor, near: float, is_thorough: bool) -> int:
    """The position whose angles are those of `start` `(F,)` complex: the nearest to 0 of several."""
    tried = _by_vernier(start, rates, torch.zeros(1, dtype=torch.float64, device="cpu"))
    if len(rates) <= _FEW_PAIRS:  # they come round again together, or nearly
        tried = torch.cat([tried, torch.arange(-_COUNTED, _COUNTED + 1, device="cpu")])
    if is_thorough:  # the slowest pair may have gone round before
        most = min(_MOST_TURNS, math.ceil(_FARTHEST * float(rates.abs().min()) / (2 * math.pi)))
        turns = torch.arange(-most, most + 1, dtype=torch.float64, device="cpu")
        tried = torch.cat([tried, _by_vernier(start, rates, turns)])
    tried = tried[tried.abs().argsort(stable=True)]
    apart = _apart(start, rates, tried)
    right = (apart <= near).all(1).nonzero().squeeze(1)
    return int(tried[right[0] if len(right) else apart.mean(1).argmin()])


def _apart(start: torch.Tensor, rates: torch.Tensor, tried: torch.Tensor) -> torch.Tensor:
    """How far the angles of some positions are from those of `start`: `(P, F)`."""
    return (start * turn(-tried.unsqueeze(1) * rates)).angle().abs()


def _by_vernier(start: torch.Tensor, rates: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Read as a vernier: the slowest pair, after so many `turns`, says roughly where, each faster one more finely."""
    order = rates.abs().argsort()
    angles, position = (start.angle() * rates.sign())[order], turns
    for number, (rate, angle) in enumerate(zip(rates.abs()[order].tolist(), angles.tolist(), strict=True)):
        turn = 2 * math.pi / rate
        if number == 0:
            position = turns * turn + angle / rate
        else:
            apart = angle / rate - position
            position = position + apart - turn * (apart / turn).round()
    return position.clamp(-(2.0**40), 2.0**40).round().long()
