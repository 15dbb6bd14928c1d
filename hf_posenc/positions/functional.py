"""Sinusoidal encodings as plain functions: vectors, frequencies, and conversion between conventions.

These functions do not cache rows; the modules in `module` do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import localcontext
from typing import Any

import torch
from numpy.typing import NDArray

from .._common.calls import answers_tutorials
from .._common.errors import one_of, value_error
from .arguments import DTYPES, as_positions, check_length, without_values
from .cache import Encoding, compute, rows_at
from .conventions import Convention, resolve_convention
from .exact import DIGITS, TWO_PI, exact_frequencies, waves


@answers_tutorials
def sinusoidal_encoding(
    positions: torch.Tensor | NDArray[Any] | Sequence[float],
    d_model: int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    r"""Return sine and cosine vectors for the given positions.

    Column 2i holds sin(p / base^(2i/D)), column 2i+1 the cosine of the same angle. Other conventions than "vaswani"
    have another order of columns, or other frequencies. Positions are used as given: the first position of a
    convention, such as 2 in "fairseq", is not added to them.

    The values are computed on the CPU for every device, so that all devices get the same bits and none needs float64.
    So positions on an accelerator are waited for and copied, and the rows are copied back. The modules cache the rows
    that they have computed; this function does not.

    Args:
        positions (`torch.Tensor` of any shape `(...)`, integer or float; also an array or a sequence): need not be
            sorted; may be negative or fractional.
        d_model (`int`): width D >= 1. An odd width ends in a sine column (vaswani), has one sine more than cosines
            (marian), or ends in a column of zeros (tensor2tensor and the others).
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): order and frequencies of the columns.
        base (number, *optional*, defaults to 10000): base of the frequencies. The slowest pair of columns makes a turn
            in about base·2π positions. A `Convention` may have another default, or not allow a base.
        dtype (`torch.dtype`, *optional*, defaults to float32): float32, float16, bfloat16 or float64.
        device (*optional*): device of the result; by default that of `positions`, or the CPU.

    Returns:
        `torch.Tensor` `(..., D)` of `dtype` on `device`, in new memory. Within half a unit in the last place of the
        exact value at any integer position below 2**31 (float64: within 2**-51).

    Raises:
        ValueError: if `d_model` is not positive, or `base` is not larger than 1; if `positions` require a gradient, or
            are lists of unequal lengths; if a position is not finite, or is beyond 2**53 in absolute value, where
            float64 does not hold every integer.
        TypeError: if `positions` are a single Python or NumPy number, or not real numbers; if `d_model` is not an
            integer, or `dtype` is not one of the four.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5. arXiv:1706.03762.

    Example:
        >>> sinusoidal_encoding(torch.arange(2), 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    encoding = Encoding.of(convention, d_model, base)
    where = as_positions(positions)
    if dtype not in DTYPES:
        raise TypeError(one_of("dtype", dtype, DTYPES))
    rows = rows_at(where, encoding, dtype) if without_values(where) else compute(where, encoding, dtype)
    return rows if device is None else rows.to(device)


@answers_tutorials
def frequencies(d_model: int, *, convention: str | Convention = "vaswani", base: float | None = None) -> torch.Tensor:
    r"""Return the frequency of each pair of columns in radians per position: the 1/10000^(2i/d) term of the formula.

    Args:
        d_model (`int`): width D >= 1.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): order and frequencies of the columns.
        base (number, *optional*, defaults to 10000): the lowest frequency is about 1/base, see `sinusoidal_encoding`.

    Returns:
        `torch.Tensor` `(F,)` float64 on the CPU, for F pairs of columns, in decreasing order (fixed bases keep their
        order). Each is the float64 number nearest to the exact one.

    Raises:
        ValueError: if `d_model` is not positive, or `base` is not larger than 1.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5. arXiv:1706.03762.

    Example:
        >>> frequencies(8)
        tensor([1.0000, 0.1000, 0.0100, 0.0010], dtype=torch.float64)
    """
    turns = exact_frequencies(resolve_convention(convention), check_length(d_model, "d_model"), base)
    with localcontext(DIGITS):
        return torch.tensor([float(turn * TWO_PI) for turn in turns], dtype=torch.float64, device="cpu")


def reorder_columns(a: str | Convention, b: str | Convention, d_model: int) -> torch.Tensor:
    r"""Return column indices that reorder rows of convention `a` into rows of convention `b`, bit for bit.

    Use it to load a checkpoint trained with one convention into code that uses another: reorder the columns of the
    position table, or of a `Linear.weight` applied to its rows. Conventions with different frequencies cannot be
    converted. Frequencies given by `wavelengths` always differ from those given by a `base`, because of rounding.

    Args:
        a, b (`str` or `Convention`): convention of the given rows, and convention of the result.
        d_model (`int`): width D >= 1.

    Returns:
        `torch.Tensor` `(D,)` int64 on the CPU, a permutation: `rows_b = rows_a[..., reorder_columns(a, b, D)]`.

    Raises:
        ValueError: if there is no such order; the message names the first column of `b` that `a` does not have.
        TypeError: if `a` or `b` is neither a name nor a `Convention`.

    Example:
        >>> reorder_columns("vaswani", "marian", 6)
        tensor([0, 2, 4, 1, 3, 5])
        >>> rows, wanted = (sinusoidal_encoding([3, 1000], 6, convention=name) for name in ("vaswani", "marian"))
        >>> torch.equal(rows[:, reorder_columns("vaswani", "marian", 6)], wanted)
        True
    """
    source, target = resolve_convention(a), resolve_convention(b)
    width = check_length(d_model, "d_model")
    available: defaultdict[_Column, list[int]] = defaultdict(list)
    for index, column in enumerate(_columns(source, width)):
        available[column].append(index)
    order = []
    for index, column in enumerate(_columns(target, width)):
        if not available[column]:
            kind, (turns, *_) = column
            words = "zeros" if kind == "zero" else f"a {kind} of one turn in {1 / turns:.6g} positions"
            raise value_error(
                f"no order of columns turns {source.name!r} into {target.name!r}: its column {index} is {words}",
                got=f"width {width}; {source}; {target}",
                fix=f"new rows: sinusoidal_encoding(positions, {width}, convention={target.name!r})",
            )
        order.append(available[column].pop(0))
    return torch.tensor(order, dtype=torch.int64, device="cpu")


# "sine", "cosine" or "zero", and the turns per position in the three parts that determine the last bit.
_Column = tuple[str, tuple[float, float, float]]


def _columns(convention: Convention, d_model: int) -> list[_Column]:
    """Return a tuple for each column: "sine", "cosine" or "zero", and its frequency in turns per position."""
    split = waves(convention, d_model, convention.check_fit(d_model))
    turns = list(zip(split.whole.tolist(), split.low.tolist(), split.last.tolist(), strict=True))
    described: list[_Column] = [("zero", (0.0, 0.0, 0.0))] * d_model
    for kind, columns in zip(("sine", "cosine"), convention.columns(d_model), strict=True):
        for index, turn in zip(range(d_model)[columns], turns, strict=False):
            described[index] = (kind, turn)
    return described
