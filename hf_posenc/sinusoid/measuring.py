"""A whole table held against a formula: the largest error, and whether every number is the exact one, rounded once.

Fast where `exact` is thorough: rows are combined from exact ones, and only what comes out in doubt is computed anew.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from .exact import encode, round_once
from .fitting import Fit, Precision, allowed
from .formulas import paired_waves, rates_of

_BLOCK = 2**14
_DOUBT = 2.0**-51  # what combining two exact float64 rows may leave; also what float64 encodings promise


class Measured(NamedTuple):
    """The largest error and where it is; whether all errors may be; the dtype to which every number is rounded once."""

    error: float
    row: int
    column: int
    is_within: bool
    exact_in: torch.dtype | None


def measure(table: torch.Tensor, present: torch.Tensor, fit: Fit, precisions: list[Precision]) -> Measured:
    r"""Every row of a table against `fit`.

    Args:
        table (`torch.Tensor` `(N, D)`): on the CPU, finite.
        present (`torch.Tensor` `(N,)` bool): rows to look at.
        fit (`Fit`): formula, first position and amplitude.
        precisions (`list` of `Precision`): those in which the table's numbers can be written: that of its dtype first,
            the coarsest last.

    Returns:
        `Measured`; the error is of float64 arithmetic, good to 1e-15 times the amplitude.
    """
    if fit.amplitude != 1 and math.frexp(fit.amplitude)[0] == 0.5:  # a division by a power of two changes no digit
        found = measure(table / fit.amplitude, present, fit._replace(amplitude=1.0), precisions)
        return found._replace(error=found.error * fit.amplitude)
    length, d_model = table.shape
    waves, rates = paired_waves(fit.formula, d_model), rates_of(fit.formula, d_model)
    pairs = len(rates)
    step = min(length, max(math.isqrt(length - 1) + 1, _BLOCK // pairs))
    starts = range(0, length, step)
    places = fit.formula.columns(d_model)
    # sin(a + b) and cos(a + b) from the sines and cosines of a, where a block starts, and of b, inside the block
    first = encode(
        torch.tensor(list(starts), dtype=torch.float64, device="cpu") + fit.first_position, waves, torch.float64
    )
    inside = encode(torch.arange(step, dtype=torch.float64, device="cpu"), waves, torch.float64)
    inside_sine, inside_cosine = inside[:, :pairs].contiguous(), inside[:, pairs:].contiguous()
    candidates = [precision.dtype for precision in precisions] if fit.amplitude == 1 else []
    doubtful = {dtype: torch.zeros(length, dtype=torch.bool, device="cpu") for dtype in candidates}
    worst, where, is_within = -1.0, (0, 0), True
    for number, start in enumerate(starts):
        block = table[start : start + step]
        kept = present[start : start + step]
        count = len(block)
        sine, cosine = first[number, :pairs], first[number, pairs:]
        made = (
            (inside_sine[:count] * cosine).addcmul_(inside_cosine[:count], sine),
            (inside_cosine[:count] * cosine).addcmul_(inside_sine[:count], sine, value=-1),
        )
        positions = torch.arange(start, start + count, dtype=torch.float64, device="cpu") + fit.first_position
        for place, parts in zip(places, made, strict=True):
            given = block[:, place]
            values = parts[:, : given.shape[1]]
            for dtype in tuple(candidates):
                doubt = _not_rounded(given, values, dtype, kept)
                if doubt is None:
                    candidates.remove(dtype)
                else:
                    doubtful[dtype][start : start + count] |= doubt
            error = (given - values if fit.amplitude == 1 else given - fit.amplitude * values).abs_()
            error[~kept] = 0
            largest = float(error.max())
            if largest > worst:
                row, column = divmod(int(error.argmax()), error.shape[1])
                worst, where = largest, (start + row, range(*place.indices(d_model))[column])
            if not candidates and is_within:
                turning = rates[: values.shape[1]]
                limits = allowed(values, positions, turning, abs(fit.amplitude), precisions[-1])
                is_within = bool((error <= limits.add_(_DOUBT * abs(fit.amplitude))).all())
        for column in range(sum(fit.formula.counts(d_model)), d_model):
            largest = float(block[:, column].abs().max())
            if largest > max(worst, 0):
                worst, where = largest, (start + int(block[:, column].abs().argmax()), column)
            if largest > 0:
                candidates, is_within = [], is_within and largest <= precisions[-1].tiny
    exact = next((dtype for dtype in candidates if _holds(table, doubtful[dtype], fit, dtype)), None)
    if exact is None and candidates:  # in doubt to the end, and then not: that near, a number may be
        is_within = True
    return Measured(worst, *where, is_within, exact)


def _not_rounded(
    given: torch.Tensor, values: torch.Tensor, dtype: torch.dtype, kept: torch.Tensor
) -> torch.Tensor | None:
    """Rows `(n,)` in which a number may be another one than `values` rounded once; `None` if one surely is."""
    if dtype == torch.float64:
        near = bool(((given - values).abs()[kept] <= _DOUBT).all())
        return torch.zeros(len(given), dtype=torch.bool, device="cpu") if near else None
    differs = (values.to(dtype) != given) & kept.unsqueeze(1)
    if not bool(differs.any()):
        return torch.zeros(len(given), dtype=torch.bool, device="cpu")
    exact, number = values[differs], given[differs]
    low, high = (round_once(exact + doubt, dtype) for doubt in (-_DOUBT, _DOUBT))
    return differs.any(1) if bool(((low <= number) & (number <= high)).all()) else None


def _holds(table: torch.Tensor, doubtful: torch.Tensor, fit: Fit, dtype: torch.dtype) -> bool:
    """Whether the rows in doubt are the exact ones after all."""
    rows = doubtful.nonzero().squeeze(1)
    waves = paired_waves(fit.formula, table.shape[1])
    pairs = len(waves.head)
    for some in torch.split(rows, 256):
        made = encode(some.double() + fit.first_position, waves, dtype)
        for place, values in zip(fit.formula.columns(table.shape[1]), (made[:, :pairs], made[:, pairs:]), strict=True):
            given = table[some][:, place]
            if not torch.equal(values[:, : given.shape[1]], given):
                return False
    return True
