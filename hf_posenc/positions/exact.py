r"""Exact sinusoidal encodings: sines and cosines of positions, rounded only once from the exact value.

All arithmetic is on the CPU, and no rows are cached. The angle of position p at frequency f is p·f. A float64 product
is too imprecise near every zero of a sine, and for all angles above about 2**22. Therefore a frequency, in turns per
position, is stored as the sum of three float64 numbers with 159 bits in total. Whole half turns are subtracted from the
product without loss, and the sine is computed from the rest, at most a quarter turn.

Rows of many integers in a small range are computed faster, as complex products of two exact rows. If the error of a
product could change its rounding, the number is computed exactly, so the results are bit-identical.

Source:
    T. J. Dekker 1971, "A floating-point technique for extending the available precision", Numer. Math. 18 (the split
    into halves and the exact product). S. Boldo and G. Melquiond 2008, "Emulation of FMA and correctly rounded sums",
    IEEE Trans. Comput. 57 (rounding to odd makes a second rounding harmless).
"""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from .arguments import without_values
from .conventions import Convention

TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257242")
# Decimal digits of a frequency before the split into three float64 parts, which hold 47 of them. Two parts are not
# enough: for some bases, a position is only 2**-54 of a turn away from a zero after 2**30 turns. The package has its
# own context, because the user's may round to fewer digits or raise.
DIGITS = Context(prec=60)

# Elements of one float64 block, so that the intermediate results of a step stay in the core's cache.
_BLOCK = 2**15
# torch distributes a call of sin over all cores and waits for them, which can take longer than the sines on a busy
# machine. Therefore sines are computed for many blocks at once, and everything else block by block on one core.
_BLOCKS = 16
# An angle this close to a zero, relative to its number of half turns, is set to zero: the arithmetic errs by 2**-157,
# and a position that is not on a zero is at least 2**-56 of a turn away if the turn is a float64 number of positions.
_NOISE = 2.0**-140
# Row n·a + b is the product of row n·a and the row of position b, for an n of at least this number. For each dtype of
# the result: a bound on the error of such a product, and the integer dtype of the same size, to compare bits. float64
# is missing, because the last bits of products would differ.
_LEAST_RADIX = 64
_PRODUCTS = {
    torch.float32: (2.0**-48, torch.int32),
    torch.bfloat16: (2.0**-23, torch.int16),
    torch.float16: (2.0**-23, torch.int16),
}
_LARGE = 2**15  # pairs of numbers for which equal positions are searched, and which may be computed as products
_SPLITTER = 2.0**27 + 1  # Dekker's constant: splits 53 bits into 26 and 26

_Values = TypeVar("_Values", torch.Tensor, NDArray[np.float64])


class Waves(NamedTuple):
    r"""Frequencies of one encoding in turns per position, each split into three float64 numbers; `waves` makes it.

    The frequency of a pair of columns is the sum `whole + low + last`, with 159 bits. `head` and `low_head` are the
    upper 26 bits of `whole` and `low`. All five are NumPy arrays `(F,)` for F pairs of columns, because they are
    cached, and tensors made in a fake mode or in inference mode must not be cached.
    """

    convention: Convention
    d_model: int
    whole: NDArray[np.float64]  # (F,), as all below
    head: NDArray[np.float64]
    low: NDArray[np.float64]
    low_head: NDArray[np.float64]
    last: NDArray[np.float64]

    @property
    def is_interleaved(self) -> bool:
        """True if the sine and cosine of a pair are in adjacent columns."""
        return self.convention.layout == "interleaved"


def exact_frequencies(convention: Convention, d_model: int, base: float | None = None) -> list[Decimal]:
    """Return the frequency of each pair of columns in turns per position, correct to at least 55 digits."""
    number = convention.check_fit(d_model, base)
    with localcontext(DIGITS):
        if convention.bases is not None:
            return [1 / Decimal(turn) for turn in convention.bases]
        count = max(convention.counts(d_model))
        steps = Decimal(max(count - 1, 1)) if convention.spacing == "ends" else Decimal(d_model) / 2
        shortest, longest = map(Decimal, convention.wavelengths or (1, number or 1))  # a base is their ratio
        ratio = ((shortest / longest).ln() / steps).exp()
        turns = [1 / (TWO_PI if convention.wavelengths is None else shortest)]
        while len(turns) < count:
            turns.append(turns[-1] * ratio)
        return turns[:count]


@lru_cache(maxsize=64)
def waves(convention: Convention, d_model: int, base: float | None) -> Waves:
    """Return the frequencies of `convention` for the width `d_model` and `base`, as cached `Waves`."""
    exact = exact_frequencies(convention, d_model, base)
    parts = []
    with localcontext(DIGITS):
        for _ in range(3):
            part = np.array([float(turns) for turns in exact], dtype=np.float64)
            exact = [turns - Decimal(number) for turns, number in zip(exact, part.tolist(), strict=True)]
            parts.append(part)
    whole, low, last = parts
    return Waves(convention, d_model, whole, _upper_half(whole), low, _upper_half(low), last)


def exact_rows(positions: torch.Tensor, waves: Waves, dtype: torch.dtype) -> torch.Tensor:
    """Return the encodings of the given positions: a row of sines and cosines for each."""
    flat, pairs = positions.reshape(-1), len(waves.whole)
    is_large = len(flat) * pairs >= _LARGE and not without_values(flat)
    if is_large and not bool((flat[1:] > flat[:-1]).all()):
        different, index = torch.unique(flat, return_inverse=True)
        if len(different) < len(flat):
            rows = exact_rows(different, waves, dtype).index_select(0, index)
            return rows.view(*positions.shape, waves.d_model)
    columns = max(waves.d_model, 2 * pairs)  # an odd width drops the last number of all pairs, or ends in a zero
    rows = torch.empty(*positions.shape, columns, dtype=dtype, device="cpu")
    rows[..., 2 * pairs :] = 0
    if pairs:
        shape = (pairs, 2) if waves.is_interleaved else (2, pairs)
        out = rows.view(len(flat), columns)[:, : 2 * pairs].view(len(flat), *shape)
        out = out if waves.is_interleaved else out.transpose(1, 2)  # (N, F, 2)
        radix = _radix(flat) if is_large and dtype in _PRODUCTS else None
        if radix is None:
            _write_each(flat, waves, out)
        else:
            _write_products(flat, waves, out, radix)
    return rows if columns == waves.d_model else rows[..., : waves.d_model].clone()


def exact_rows_in_graph(positions: torch.Tensor, waves: Waves, dtype: torch.dtype) -> torch.Tensor:
    """Return the same encodings as `exact_rows`, computed with operations that `torch.export` can record."""
    flat = positions.to("cpu", torch.float64).reshape(-1)
    numbers = [round_once(radians.sin(), dtype) for radians in _angles(flat, waves)]
    rows = torch.stack(numbers, dim=2 if waves.is_interleaved else 1).flatten(1)[:, : waves.d_model]
    return F.pad(rows, (0, waves.d_model - rows.shape[1])).reshape(*positions.shape, waves.d_model)


def round_once(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    r"""Convert float64 values to `dtype` with a single rounding to the nearest number.

    torch converts float64 to the 16-bit types through float32, which rounds twice: 1 + 2**-8 + 2**-40 becomes 1.0 in
    bfloat16, although 1.0078 is nearer. Here the first rounding sets the last bit of every inexact result (rounding to
    odd), so that the second one finds the nearest number.

    Example:
        >>> value = torch.tensor(1 + 2**-8 + 2**-40, dtype=torch.float64)
        >>> value.to(torch.bfloat16), round_once(value, torch.bfloat16)
        (tensor(1., dtype=torch.bfloat16), tensor(1.0078, dtype=torch.bfloat16))
    """
    if dtype not in (torch.float16, torch.bfloat16):
        return values.to(dtype)
    near = values.to(torch.float32)
    bits = near.view(torch.int32)
    excess = near.to(torch.float64).abs() - values.abs()
    # Choose the odd one of the two float32 neighbors. If `near` is even and inexact, that is the next one toward
    # `values`: away from zero if `near` is too small.
    step = -excess.sign().to(torch.int32) * (1 - (bits & 1))
    return (bits + step).view(torch.float32).to(dtype)


def _radix(positions: torch.Tensor) -> int | None:
    """Return the number of rows that `_write_products` needs for the lower digits, or `None` if it is not faster."""
    values = positions.numpy()
    span = int(values.max()) - int(values.min()) + 1
    radix = max(_LEAST_RADIX, 1 << span.bit_length() // 2)  # near the root, for the fewest rows of both digits
    is_faster = 2 * (radix + span // radix) <= len(values) and np.array_equal(values, np.floor(values))
    return radix if is_faster else None


def _write_each(positions: torch.Tensor, waves: Waves, out: torch.Tensor) -> None:
    """Write the sines and cosines of any `positions` `(N,)` to `out` `(N, F, 2)`, for F pairs of columns."""
    step = max(1, _BLOCK // len(waves.whole))
    for start in range(0, len(positions), step * _BLOCKS):
        values = _values(positions[start : start + step * _BLOCKS], waves)
        for first in range(0, values.shape[1], step):
            for index, numbers in enumerate(values[:, first : first + step]):
                rows = out[start + first : start + first + len(numbers), :, index]
                # Computed in bfloat16 throughout, 2,048 positions have 641 different rows (gpt-neox #1003).
                rows.copy_(round_once(numbers, out.dtype))


def _write_products(positions: torch.Tensor, waves: Waves, out: torch.Tensor, radix: int) -> None:
    """Write the sines and cosines of integers `positions` `(N,)` to `out` `(N, F, 2)`."""
    # Six times as fast as `_write_each`, with the same values bit for bit: a row is the complex product of two rows
    # that `_values` computed. Where the error of a product could change the rounded number, it is computed again, from
    # `_angles`.
    # Sines and cosines from `_values` err by at most 2**-51, and the sine and cosine of one angle add up to at most √2.
    # So a product errs by at most 2·√2·2**-51 because of its factors and 2**-52 because of its roundings. It differs by
    # less than 2**-48 from the exact number, and from the number that `_values` gives. If both ends of this interval
    # round to the same number, the exact number and that of `_values` round to it too. The conversion to 16 bits goes
    # through float32, which can move an end by another 2**-24.
    (margin, integers), pairs = _PRODUCTS[out.dtype], len(waves.whole)
    step = 1 << (max(1, _BLOCK // (2 * pairs)).bit_length() - 1)  # a power of two divides the radix, or the radix it
    group = max(1, step // radix)
    first, last = torch.stack(positions.aminmax())
    starts = torch.arange(-(-int(last - first + 1) // (group * radix)) * group, dtype=torch.float64, device="cpu")
    coarse = torch.complex(*_values(starts.mul_(radix).add_(first), waves))
    near_zero = _values(torch.arange(radix, dtype=torch.float64, device="cpu"), waves)
    # With the cosine first, c + is is multiplied by c' + is'; with the sine first, s + ic by c' - is'.
    fine = torch.complex(*near_zero) if waves.convention.cosine_first else torch.complex(near_zero[1], -near_zero[0])
    products, (low, high) = fine.new_zeros(step, pairs), out.new_empty(2, step, pairs, 2)
    numbers, shaped = torch.view_as_real(products), products.view(group, -1, pairs)
    low_bits, high_bits = (end.view(integers).numpy() for end in (low, high))
    is_run = torch.equal(positions, torch.arange(len(positions), dtype=torch.float64, device="cpu").add_(first))
    if is_run:  # each block is the product of a part of either table, without copies of rows
        parts = itertools.product(coarse.view(-1, group, 1, pairs), torch.split(fine, step))
    else:
        far, near = (torch.from_numpy(part.astype(np.int64)) for part in np.divmod((positions - first).numpy(), radix))
    undecided: list[NDArray[np.int64]] = []
    for start, block in zip(range(0, len(out), step), torch.split(out, step), strict=True):
        if is_run:
            torch.mul(*next(parts), out=shaped)
        else:
            rows = slice(start, start + len(block))
            torch.index_select(coarse, 0, far[rows], out=products[: len(block)]).mul_(fine.index_select(0, near[rows]))
        low.copy_(numbers.sub_(margin))
        high.copy_(numbers.add_(2 * margin))
        block.copy_(low[: len(block)])
        differs = (low_bits != high_bits)[: len(block)]
        if differs.any():
            undecided.append(np.flatnonzero(differs) // 2 + start * pairs)
        if undecided and (start + step >= len(out) or sum(map(len, undecided)) > _BLOCK):
            row, pair = map(torch.from_numpy, divmod(np.concatenate(undecided), pairs))
            pair_waves = Waves(*waves[:2], *(part[pair.numpy(), None] for part in waves[2:]))
            out[row, pair] = round_once(torch.cat(_angles(positions[row], pair_waves), dim=1).sin_(), out.dtype)
            undecided = []


def _values(positions: torch.Tensor, waves: Waves) -> torch.Tensor:
    """Return the sines and cosines of `positions` `(N,)` at F frequencies, as a float64 tensor `(2, N, F)`."""
    values = positions.new_empty(2, len(positions), len(waves.whole))
    step = max(1, _BLOCK // len(waves.whole))
    for start in range(0, len(positions), step):
        block = slice(start, start + step)
        for into, radians in zip(values, _angles(positions[block], waves), strict=True):
            into[block] = radians
    return values.sin_()


def _angles(positions: torch.Tensor, waves: Waves) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two tensors of angles `(N, F)` in radians, whose sines are the numbers of the encoding."""
    # For each position and frequency, the absolute values of the two angles add up to a quarter turn.
    # In float32 the angles would err by 4.4e-4 at position 8,192, and by 7.6e-3 at 131,072.
    column = positions.unsqueeze(1)
    upper = _upper_half(column)
    turns, error = _product(column, upper, waves.whole, waves.head)
    low, rest = _product(column, upper, waves.low, waves.low_head)
    rest = torch.addcmul(rest, column, torch.from_numpy(waves.last))
    doubled = turns * 2
    left = doubled.frac()
    nearest = torch.div(left, 0.5, rounding_mode="trunc")  # -1, 0, 1; round() is another call that waits for all cores
    halves = doubled.sub_(left).add_(nearest)
    left = left.sub_(nearest).mul_(0.5)  # in turns, a quarter at most
    # sign(0) would drop the smaller parts where `left` is zero, as after an integer number of half turns.
    side = torch.copysign(left.new_ones(()), left)
    missing = 0.25 - left.abs()
    for part in (error, low, rest):  # the largest first, so that each sum is exact wherever it comes close to zero
        left = left.add_(part)
        missing = missing.addcmul_(side, part, value=-1)
    noise = halves.abs().mul_(_NOISE)
    radians = halves.remainder_(2).mul_(-4 * math.pi).add_(2 * math.pi)  # 2π, or -2π after an odd number of half turns
    first, second = (missing, left) if waves.convention.cosine_first else (left, missing)
    return _in_radians(first, radians, noise), _in_radians(second, radians, noise)


def _in_radians(turns: torch.Tensor, radians: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return angles in radians: `turns` times `radians`, which contains 2π or -2π for each angle."""
    angles = torch.where(turns.abs() <= noise, 0.0, turns)
    return angles.mul_(radians).add_(0.0)  # + 0.0 turns -0.0 into 0.0


def _product(
    column: torch.Tensor, upper: torch.Tensor, by: NDArray[np.float64], by_upper: NDArray[np.float64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two tensors `(N, F)`: the product `column * by`, rounded to float64, and the error of its rounding."""
    whole, head = torch.from_numpy(by), torch.from_numpy(by_upper)
    tail, lower = whole - head, column - upper
    product = column * whole
    error = upper * head - product
    return product, error.addcmul_(upper, tail).addcmul_(lower, head).addcmul_(lower, tail)


def _upper_half(values: _Values) -> _Values:
    """Return each float64 value rounded to the upper 26 of its 53 bits."""
    scaled = values * _SPLITTER
    return scaled - (scaled - values)
