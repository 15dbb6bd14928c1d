"""The encoding as plain functions of positions.

Position in, rows out: what adds them to a model's vectors is in `module`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import localcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain, shorten
from .cache import Encoding
from .checks import check_reach, check_width
from .conventions import Convention, resolve_convention
from .exact import DIGITS, DTYPES, TWO_PI, check_dtype, exact_frequencies
from .lookup import compute, refuse_far, rows_at, without_values
from .settings import check_length


def sinusoidal_encoding(
    positions: torch.Tensor | NDArray[Any] | Sequence[float],
    d_model: int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    r"""Sine and cosine vectors for the given positions.

    Column 2i holds sin(p / base^(2i/D)), column 2i+1 the cosine of the same angle; other conventions place and space
    them otherwise. The positions are used as they are: a convention's first position applies to defaults only.

    Computed on the CPU whatever the device, so that every device gets the same bits and none needs float64. The modules
    keep the rows they have computed; this function does not.

    Args:
        positions (`torch.Tensor` of any shape `(...)`, integer or float; also an array or a sequence): need not be
            sorted; may be negative or fractional.
        d_model (`int`): width D >= 1. An odd width ends in a sine column (vaswani), in one sine more than cosines
            (marian), or in a column of zeros (tensor2tensor and the others).
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing.
        base (number, *optional*, defaults to 10000): the slowest pair of columns comes near base·2π positions a turn.
        dtype (`torch.dtype`, *optional*, defaults to float32): float32, float16, bfloat16 or float64.
        device (*optional*): of the result; by default that of `positions`, or the CPU.

    Returns:
        `torch.Tensor` `(..., D)` of `dtype` on `device`, in memory of its own. Within half a unit in the last place of
        the exact value, at any whole position below 2**31 (float64: within 2**-51).

    Raises:
        ValueError: if `d_model` is not positive, `base` not larger than 1, or `positions` carry a gradient, are not
            finite, exceed 2**53 (float64 does not hold every whole number beyond it), or are lists of several lengths.
        TypeError: if `positions` are a bare number (Python's or NumPy's), or not real numbers.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5. arXiv:1706.03762.

    Example:
        >>> sinusoidal_encoding(torch.arange(2), 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    encoding = Encoding.of(convention, d_model, base)
    where = as_positions(positions)
    if without_values(where):
        rows = rows_at(where, encoding, check_dtype(dtype))
    else:
        rows = compute(where, encoding, check_dtype(dtype))
    return rows if device is None else rows.to(device)


def sinusoidal_table(
    num_positions: int,
    d_model: int,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    r"""The rows of positions 0, 1, … as one table, with the row of the convention's padding position zero.

    Args:
        num_positions (`int`): number of rows N; row p is that of position p, whatever the convention's first position.
        d_model (`int`): width D >= 1.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing.
        base (number, *optional*, defaults to 10000): see `sinusoidal_encoding`.
        dtype (`torch.dtype`, *optional*, defaults to float32): of the table.
        device (*optional*, defaults to the CPU): of the table.

    Returns:
        `torch.Tensor` `(N, D)` of `dtype` on `device`, in memory of its own.

    Raises:
        ValueError: if `num_positions` or `d_model` are not positive.
        TypeError: if one of them is no whole number.

    Example:
        >>> sinusoidal_table(3, 4, convention="fairseq")
        tensor([[ 0.0000e+00,  0.0000e+00,  1.0000e+00,  1.0000e+00],
                [ 0.0000e+00,  0.0000e+00,  0.0000e+00,  0.0000e+00],
                [ 9.0930e-01,  2.0000e-04, -4.1615e-01,  1.0000e+00]])
    """
    resolved = resolve_convention(convention)
    positions = torch.arange(check_length(num_positions, "num_positions", is_optional=False), device="cpu")
    rows = sinusoidal_encoding(positions, d_model, convention=resolved, base=base, dtype=dtype)
    if resolved.padding_position is not None:
        rows[resolved.padding_position : resolved.padding_position + 1] = 0
    return rows if device is None else rows.to(device)


def frequencies(d_model: int, *, convention: str | Convention = "vaswani", base: float | None = None) -> torch.Tensor:
    r"""How fast each pair of columns turns, in radians per position: the 1/10000^(2i/d) term of the formula.

    Args:
        d_model (`int`): width D >= 1.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing.
        base (number, *optional*, defaults to 10000): see `sinusoidal_encoding`.

    Returns:
        `torch.Tensor` `(F,)` float64 on the CPU, one for each pair of columns, the fastest first but for fixed bases.
        Each is the float64 nearest to the exact one.

    Raises:
        ValueError: if `d_model` is not positive, or `base` not larger than 1.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5. arXiv:1706.03762.

    Example:
        >>> frequencies(8)
        tensor([1.0000, 0.1000, 0.0100, 0.0010], dtype=torch.float64)
    """
    turns = exact_frequencies(resolve_convention(convention), check_width(d_model), base)
    with localcontext(DIGITS):
        return torch.tensor([float(each * TWO_PI) for each in turns], dtype=torch.float64, device="cpu")


def as_positions(positions: object, name: str = "positions") -> torch.Tensor:
    """Return positions as a tensor of real numbers: tensors as they are, arrays and sequences copied to the CPU."""
    if isinstance(positions, bool | int | float | np.integer | np.floating):
        count = max(int(positions), 1) if math.isfinite(positions) else 100
        raise TypeError(
            explain(
                f"{name} must be a tensor of positions, not how many there are",
                got=shorten(positions),
                fix=f"torch.arange({count}) for the first {count}, torch.tensor({positions}) for that one alone",
            )
        )
    if not isinstance(positions, torch.Tensor):
        array = _as_array(positions, name)
        kind = array.dtype.kind
        whole = kind in "iu" or (kind == "O" and all(isinstance(one, int) for one in array.flat))  # O: beyond 64 bits
        if not whole and kind != "f":
            raise TypeError(
                explain(f"{name} must be real numbers", got=shorten(positions), fix=f"{name}=torch.arange(100)")
            )
        check_reach(array, name)
        return torch.from_numpy(array.astype(np.int64 if whole else np.float64))
    if positions.is_complex() or positions.dtype == torch.bool:
        raise TypeError(
            explain(
                f"{name} must be real numbers",
                got=f"a tensor of {positions.dtype}",
                fix="position_ids_from_mask(attention_mask), where a mask is at hand",
            )
        )
    if positions.requires_grad:
        raise ValueError(
            explain(
                f"{name} take no gradient: the encoding is computed outside the graph",
                got=f"{name} with requires_grad=True",
                fix=f"{name}.detach()",
            )
        )
    on_cpu = positions.device.type == "cpu"
    if not without_values(positions) and (on_cpu or positions.dtype in (torch.uint64, *DTYPES)):
        # Other integers on an accelerator are looked at where their rows are computed: here would be one wait more.
        refuse_far(positions, name)
    if positions.dtype in (torch.uint16, torch.uint32, torch.uint64):  # which torch hardly computes with
        positions = positions.long()
    return positions


def _as_array(positions: object, name: str) -> NDArray[Any]:
    try:
        return np.asarray(positions)
    except ValueError:  # lists of several lengths
        raise ValueError(
            explain(
                f"{name} must have as many numbers in each row",
                got=shorten(positions),
                fix="position_ids_from_mask(attention_mask), which numbers the padding too",
            )
        ) from None
