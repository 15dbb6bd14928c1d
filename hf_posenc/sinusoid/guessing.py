"""Formulas with bases or wavelengths of their own, guessed from how fast the columns of a table turn from row to row.

Guesses only: whether one of them is right is found out in `fitting`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from .conventions import Convention
from .fitting import Precision, as_complex, spread, turn
from .formulas import shapes_of, steps_of

_HEAD = 48  # rows that are compared, at each distance
_LARGEST_BASE = 1e12
_FAR_OFF = 30  # of the doubt about a logarithm: columns farther off a line are not evenly spaced


def unusual(table: torch.Tensor, present: torch.Tensor, precision: Precision) -> Iterator[list[Convention]]:
    r"""Formulas with bases of their own that a table may have, read off how its columns turn from row to row.

    Args:
        table (`torch.Tensor` `(N, D)`): on the CPU.
        present (`torch.Tensor` `(N,)` bool): rows that are not zero.
        precision (`Precision`): of its numbers.

    Returns:
        Lists of formulas to try, one list after the other; in each, those with rounder numbers first.
    """
    d_model = table.shape[1]
    shapes = shapes_of(d_model)
    turned: dict[str, tuple[torch.Tensor, float]] = {}
    spaced: list[Convention] = []
    between: list[Convention] = []
    fixed: list[Convention] = []
    for shape in shapes:
        key = str(shape.columns(d_model))
        if key not in turned:
            turned[key] = _turned(table, present, shape, precision)
            fixed += _fixed(shape, *turned[key], d_model)
        spaced += _spaced(shape, *turned[key], d_model)
        between += _between(shape, *turned[key], d_model)
    yield sorted(spaced, key=lambda each: _digits(each.base))
    yield sorted(between, key=lambda each: sum(map(_digits, each.wavelengths or ())))
    yield fixed


def round_numbers(value: float, apart: float) -> list[float]:
    r"""Numbers not farther than `apart` from `value`, one for each count of digits, the roundest first.

    Example:
        >>> round_numbers(8191.87, 10)
        [8200.0, 8190.0, 8192.0, 8191.9, 8191.87]
    """
    found: list[float] = []
    for digits in range(1, 9):
        near = float(f"{value:.{digits - 1}e}")
        if abs(near - value) <= apart and near not in found:
            found.append(near)
    return found or [value]


def _turned(
    table: torch.Tensor, present: torch.Tensor, shape: Convention, precision: Precision
) -> tuple[torch.Tensor, float]:
    """By how many radians each pair turns a row `(F,)`, and how sure that is; rows farther apart refine it."""
    rates = torch.zeros(min(shape.counts(table.shape[1])), dtype=torch.float64, device="cpu")
    sure, lag = math.inf, 1
    while lag < len(present):
        rows = (present[:-lag] & present[lag:]).nonzero().squeeze(1)
        if len(rows):
            rows = rows[spread(0, len(rows) - 1, min(len(rows), _HEAD))]
            before, after = (as_complex(table[some].double(), shape) for some in (rows, rows + lag))
            together = (after * before.conj()).sum(0)
            rates = rates + (together * turn(-lag * rates)).angle() / lag
            sure = max(precision.half, 2**-22) / lag
        lag *= 2
    return rates, sure


def _spaced(shape: Convention, rates: torch.Tensor, sure: float, d_model: int) -> list[Convention]:
    """The bases by which evenly spaced columns would turn so, if the first one turns by 1."""
    number = torch.arange(len(rates), dtype=torch.float64, device="cpu")
    known = (rates > 30 * sure) & (number > 0)
    if not bool(known.any()) or shape.bases is not None:
        return []
    number, weight = number[known], (rates[known] / sure).square()
    sharpness = float((weight * number.square()).sum())
    step = float((-rates[known].log() * number * weight).sum()) / sharpness
    steps = steps_of(shape, d_model)
    if not 0 < step * steps < math.log(_LARGEST_BASE):
        return []
    base = math.exp(step * steps)
    near = round_numbers(base, base * steps * 4 / math.sqrt(sharpness))
    return [replace(shape, base=each) for each in near if each > 1]


def _between(shape: Convention, rates: torch.Tensor, sure: float, d_model: int) -> list[Convention]:
    """Wavelengths between which evenly spaced columns would turn so, wherever the first of them begins."""
    number = torch.arange(len(rates), dtype=torch.float64, device="cpu")
    known = rates > 30 * sure
    if int(known.sum()) < 3:
        return []
    # A line through the logarithms, each weighed by how sure it is.
    number, lengths, weight = number[known], (2 * math.pi / rates[known]).log(), (rates[known] / sure).square()
    middle = float((weight * number).sum() / weight.sum())
    sharpness = float((weight * (number - middle).square()).sum())
    step = float((weight * (number - middle) * lengths).sum()) / sharpness
    height = float((weight * lengths).sum() / weight.sum())
    off = (lengths - height - step * (number - middle)).square() * weight
    if step <= 0 or float(off.max()) > _FAR_OFF**2:
        return []
    ends = []
    for place in (0.0, steps_of(shape, d_model)):
        length = math.exp(min(height + step * (place - middle), 700.0))
        doubt = 4 * math.sqrt(1 / float(weight.sum()) + (place - middle) ** 2 / sharpness)
        # The roundest number of positions, the roundest of radians (a timescale), and the number itself.
        units = (1, 2 * math.pi)
        round_ones = [unit * round_numbers(length / unit, length / unit * doubt)[0] for unit in units]
        ends.append([*round_ones, length])
    return [replace(shape, wavelengths=(low, high)) for low in ends[0] for high in ends[1] if low < high]


def _digits(number: float) -> int:
    """How many digits a number has, or, if they are fewer, the number of radians that it is in turns."""
    return min(len(f"{each:.10g}".rstrip("0").replace(".", "")) for each in (number, number / (2 * math.pi)))


def _fixed(shape: Convention, rates: torch.Tensor, sure: float, d_model: int) -> list[Convention]:
    """One base a pair, where every pair turns at all."""
    if d_model % 2 or bool((rates.abs() <= sure).any()):
        return []
    turns = 2 * math.pi / torch.where(rates > 0, rates, rates + 2 * math.pi)
    bases = tuple(round_numbers(turn, 4 * sure * turn**2 / (2 * math.pi))[0] for turn in turns.tolist())
    return [replace(shape, spacing="width", bases=bases)] if min(bases) > 1 else []
