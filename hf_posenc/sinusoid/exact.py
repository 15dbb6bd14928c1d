r"""Sines and cosines of positions, exact to one rounding.

Plain arithmetic on the CPU: no cache, no device, no module. An angle p·f is needed modulo a turn, and its error is an
absolute one, so a single float64 product is not enough near the zeros of a sine, nor anywhere above about 2**22. Here
frequencies are in turns, known to 100 bits or more in float64 parts; the product is reduced to a quarter turn
without loss, and sines are taken of the rest: three times the work of a plain sine, paid once for a table.

Source:
    T. J. Dekker 1971, "A floating-point technique for extending the available precision", Numer. Math. 18 (the split
    into halves and the exact product). S. Boldo and G. Melquiond 2008, "Emulation of FMA and correctly rounded sums",
    IEEE Trans. Comput. 57 (rounding to odd makes a second rounding harmless).
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import one_of
from .conventions import Convention

TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257242")
# Decimal digits of a frequency before it is split into two float64 parts, which hold 32 of them. A context of our own:
# the caller's may round to fewer, or trap.
DIGITS = Context(prec=60)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# Elements of one float64 block: what one step works on stays in the cores' own cache.
_BLOCK = 2**15
_SHORT = 2.0**22  # up to here the 79 bits of head and rest leave an error far below half a unit next to any zero
_SPLITTER = 2.0**27 + 1  # Dekker's constant: splits 53 bits into 26 and 26


class Waves(NamedTuple):
    r"""The frequencies of one encoding in turns per position, in the parts that the arithmetic needs.

    `head` has 26 bits and `rest` the 53 after it; `whole` is `head + tail` and `low` the 53 bits after that. NumPy,
    because a tensor made under a fake mode, or inference mode, must not live on in a cache.
    """

    convention: Convention
    d_model: int
    head: NDArray[np.float64]  # (F,), as all below
    rest: NDArray[np.float64]
    whole: NDArray[np.float64]
    tail: NDArray[np.float64]
    low: NDArray[np.float64]


def exact_frequencies(convention: Convention, d_model: int, base: float | None = None) -> list[Decimal]:
    r"""Turns per position of each pair of columns, to 55 digits or more.

    Example:
        >>> from hf_posenc.sinusoid.conventions import CONVENTIONS
        >>> [round(float(turns * TWO_PI), 9) for turns in exact_frequencies(CONVENTIONS["vaswani"], 8)]
        [1.0, 0.1, 0.01, 0.001]
    """
    number = convention.check_fit(d_model, base)
    with localcontext(DIGITS):
        if convention.bases is not None:
            return [1 / Decimal(turn) for turn in convention.bases]
        count = max(convention.counts(d_model))
        steps = Decimal(max(count - 1, 1)) if convention.spacing == "ends" else Decimal(d_model) / 2
        shortest, longest = map(Decimal, convention.wavelengths or (1, number or 1))  # all a base needs is their ratio
        ratio = ((shortest / longest).ln() / steps).exp()
        turns = [1 / (TWO_PI if convention.wavelengths is None else shortest)]
        while len(turns) < count:
            turns.append(turns[-1] * ratio)
        return turns[:count]


@lru_cache(maxsize=64)
def waves(convention: Convention, d_model: int, base: float | None) -> Waves:
    """The frequencies of one convention, width and base, computed once."""
    exact = exact_frequencies(convention, d_model, base)
    whole = np.array([float(turns) for turns in exact], dtype=np.float64)
    head = _upper_half(whole)
    with localcontext(DIGITS):
        rest = [float(turns - Decimal(part)) for turns, part in zip(exact, head.tolist(), strict=True)]
        low = [float(turns - Decimal(part)) for turns, part in zip(exact, whole.tolist(), strict=True)]
    return Waves(
        convention,
        d_model,
        head,
        np.array(rest, dtype=np.float64),
        whole,
        whole - head,
        np.array(low, dtype=np.float64),
    )


def encode(positions: torch.Tensor, waves: Waves, dtype: torch.dtype) -> torch.Tensor:
    r"""The rows of the given positions.

    Args:
        positions (`torch.Tensor` `(...)` float64, on the CPU).
        waves (`Waves`): frequencies and layout.
        dtype (`torch.dtype`): one of `DTYPES`.

    Returns:
        `torch.Tensor` `(..., D)` of `dtype`, on the CPU, not a view. A row depends on its own position alone.

    Example:
        >>> from hf_posenc.sinusoid.conventions import CONVENTIONS
        >>> encode(torch.tensor([0.0, 1.0], dtype=torch.float64), waves(CONVENTIONS["vaswani"], 4, None), torch.float32)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    whole = torch.zeros(*positions.shape, waves.d_model, dtype=dtype, device="cpu")
    positions, out = positions.reshape(-1), whole.view(-1, waves.d_model)  # (N,), (N, D)
    # Whole numbers up to the limit have few bits, and so have most fractions: one exact product is enough for them. Not
    # so where columns turn faster than once a position, and may come near zero at the first of them.
    short = (positions.abs() <= _SHORT) & (positions == _upper_half(positions)) & bool((waves.whole <= 1).all())
    for rows, turned in ((short, _turn_short), (~short, _turn_long)):
        where = rows.nonzero().squeeze(1)
        everything = len(where) == len(positions)
        step = max(1, _BLOCK // max(1, len(waves.head)))
        for start in range(0, len(where), step):
            some = slice(start, start + step)
            sine, cosine = _sine_and_cosine(*turned(positions[some if everything else where[some]], waves))
            block = out[some] if everything else out.new_zeros(len(sine), waves.d_model)
            for place, values in zip(waves.convention.columns(waves.d_model), (sine, cosine), strict=True):
                column = block[:, place]
                column.copy_(round_once(values[:, : column.shape[1]], dtype))
            if not everything:
                out[where[some]] = block
    return whole


def encode_in_graph(positions: torch.Tensor, waves: Waves, dtype: torch.dtype) -> torch.Tensor:
    """As `encode`, for positions `(...)`, in operations that do not depend on values: what `torch.export` can hold."""
    flat = positions.to("cpu", torch.float64).reshape(-1)
    sine, cosine = _sine_and_cosine(*_turn_long(flat, waves))
    parts = [
        round_once(values[:, :count], dtype)
        for values, count in zip((sine, cosine), waves.convention.counts(waves.d_model), strict=True)
    ]
    first, second = reversed(parts) if waves.convention.cosine_first else parts
    pairs, zeros = second.shape[1], first.new_zeros(flat.shape[0], waves.d_model - first.shape[1] - second.shape[1])
    if waves.convention.layout == "interleaved":
        paired = torch.stack([first[:, :pairs], second], dim=-1).flatten(1)  # (N, 2 * pairs)
        columns = [paired, first[:, pairs:], zeros]
    else:
        columns = [first, second, zeros]
    return torch.cat(columns, dim=1).reshape(*positions.shape, waves.d_model)


def round_once(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    r"""float64 values in `dtype`, rounded to the nearest once.

    torch takes float64 to the 16-bit types by way of float32, and 1 + 2**-8 + 2**-40 becomes 1.0 in bfloat16 where
    1.0078 is nearer. The first rounding is made one to odd here: where it is not exact, the last bit is set, so that
    the second one sees on which side of the middle the value lies.

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
    # The odd one of the two float32 neighbours: next to an even `bits`, away from zero if that fell short.
    step = -excess.sign().to(torch.int32) * (1 - (bits & 1))
    return (bits + step).view(torch.float32).to(dtype)


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """`dtype`, if the encoding comes in it."""
    if dtype not in DTYPES:
        raise TypeError(one_of("dtype", dtype, DTYPES))
    return dtype


def _turn_short(positions: torch.Tensor, waves: Waves) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For short positions, each (N, F): half turns in the angle, the turns left over, a correction to those."""
    column = positions.unsqueeze(1)
    turns = column * torch.from_numpy(waves.head)  # exact: 26 bits times 26
    halves = (turns * 2).round()
    return halves, turns - halves * 0.5, column * torch.from_numpy(waves.rest)


def _turn_long(positions: torch.Tensor, waves: Waves) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same for any position: Dekker's exact product, then the low part of the frequency."""
    column = positions.unsqueeze(1)
    upper = _upper_half(column)
    lower = column - upper
    head, tail = torch.from_numpy(waves.head), torch.from_numpy(waves.tail)
    turns = column * torch.from_numpy(waves.whole)
    error = (upper * head - turns) + upper * tail + lower * head + lower * tail
    halves = (turns * 2).round()
    return halves, turns - halves * 0.5, error + column * torch.from_numpy(waves.low)


def _sine_and_cosine(
    halves: torch.Tensor, left: torch.Tensor, small: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sine and cosine of `halves` / 2 + `left` + `small` turns, each (N, F), where `left` is a quarter at most.

    The cosine is taken as the sine of what is missing to a quarter turn, before `small` is rounded into `left`: so both
    are exact where they come close to zero.
    """
    radians = halves.remainder(2).mul_(-4 * math.pi).add_(2 * math.pi)  # 2π, or -2π after an odd number of half turns
    # A sign of 0 would lose `small` where nothing is left: after whole half turns, far out or of round frequencies.
    side = torch.copysign(left.new_ones(()), left)
    missing = (0.25 - left.abs()).addcmul_(side, small, value=-1)
    zero = left.new_zeros(())  # 0 + x·y is never -0.0
    return torch.addcmul(zero, left + small, radians).sin_(), torch.addcmul(zero, missing, radians).sin_()


@overload
def _upper_half(values: NDArray[np.float64]) -> NDArray[np.float64]: ...


@overload
def _upper_half(values: torch.Tensor) -> torch.Tensor: ...


def _upper_half(values: NDArray[np.float64] | torch.Tensor) -> NDArray[np.float64] | torch.Tensor:
    """The upper 26 of the 53 bits."""
    scaled = values * _SPLITTER
    return scaled - (scaled - values)
