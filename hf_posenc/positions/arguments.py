"""Checks of arguments: widths, bases, scales and lengths; positions, inputs and output buffers.

Each check raises an error if the argument is invalid. Most return it in a uniform type: `np.float32(2)` becomes `2.0`.
The docstrings of the callers explain the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .._common.compat import is_fake
from .._common.errors import explain, shorten, type_error, value_error
from .._common.integers import as_integer

Scale = Literal["sqrt_d"] | float | None

USUAL_BASE = 10000.0
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
LARGEST_POSITION = 2**53  # float64 holds every integer up to it
NO_LIMIT = LARGEST_POSITION + 1  # first position that is not allowed, if `max_length` is not given
_WITHOUT_FLOAT64 = ("mps",)

# ------------------------------------------------------------------------------------------------------------- numbers


def check_length(length: Any, name: str = "max_length") -> int:
    """Return `length`, the argument called `name`, as an `int`; raise if it is not an integer of at least 1."""
    return as_integer(length, name, minimum=1, example=512)


def check_special_position(position: Any, name: str, *, minimum: int | None) -> int:
    """Return a first or padding position as an `int`; raise if it is below `minimum`, or beyond 2**53 in size."""
    number = as_integer(position, name, minimum=minimum, example=1)
    check_range(np.array([number], dtype=object), name)
    return number


def check_number(value: Any, name: str, *, above: float = -math.inf, fix: str) -> float:
    """Return `value` as a finite `float` larger than `above`."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise type_error(f"{name} must be a number", got=shorten(value), fix=fix)
    try:
        number = float(value)
    except OverflowError:  # an int that is larger than every float
        number = math.inf
    if not above < number < math.inf:
        rule = {-math.inf: "finite", 0: "positive and finite"}.get(above, f"finite and larger than {above:g}")
        raise value_error(f"{name} must be {rule}", got=shorten(value), fix=fix)
    return number


def check_base(base: Any) -> float:
    """Return `base` as a `float`; raise unless it is larger than 1, because base 1 gives equal frequencies."""
    return check_number(base, "base", above=1, fix="base=10000")


def check_bases(bases: Any) -> tuple[float, ...]:
    """Return `bases`, numbers of positions per turn, as a tuple; raise if it is empty or one is not larger than 1."""
    fix = "fixed_bases(4, 5, 7)"
    numbers = tuple(bases)
    if not numbers:
        raise value_error("fixed bases need at least one number", fix=fix)
    for base in numbers:
        check_number(base, "a number of positions per turn", above=1, fix=fix)
    # NumPy's numbers become Python's, whose repr is valid in JSON and in the key of the compiled operator.
    return tuple(int(base) if isinstance(base, (int, np.integer)) else float(base) for base in numbers)


def check_wavelengths(wavelengths: Any) -> tuple[float, float]:
    """Return `wavelengths`, the shortest and the longest in positions per turn; raise unless 0 < shortest < longest."""
    fix = "wavelengths=(4, 4096), in positions per turn"
    numbers = tuple(wavelengths) if isinstance(wavelengths, Iterable) else (wavelengths,)
    lengths = [check_number(number, "a wavelength", above=0, fix=fix) for number in numbers]
    if len(lengths) != 2 or lengths[0] >= lengths[1]:
        raise value_error("wavelengths must be the shortest and the longest of them", got=shorten(numbers), fix=fix)
    return lengths[0], lengths[1]


def check_scale(scale: Any) -> Scale:
    """Return `scale`; raise if it is not `None`, `"sqrt_d"` or a finite number."""
    if scale is None or scale == "sqrt_d":
        return None if scale is None else "sqrt_d"
    number = check_number(scale, "scale", fix="scale=None, scale=2.0, or scale='sqrt_d' for √d_model")
    return scale if isinstance(scale, int) else number


def check_dropout(dropout: Any) -> float:
    """Return `dropout`; raise if it is not a number from 0 to 1."""
    number = check_number(dropout, "dropout", fix="dropout=0.1")
    if not 0 <= number <= 1:
        raise value_error("dropout must be between 0 and 1", got=dropout, fix="dropout=0.1")
    return dropout if isinstance(dropout, int) else number


# ----------------------------------------------------------------------------------------------------------- positions


def without_values(tensor: torch.Tensor) -> bool:
    """Return True if the values of `tensor` cannot be read, as in compiled code, in torch.func, and of meta tensors."""
    return torch.compiler.is_compiling() or tensor.is_meta or is_fake(tensor)


def can_check_values(values: torch.Tensor) -> bool:
    """Return True if the values can be read without waiting: a tensor on the CPU, and not in compiled code."""
    return values.device.type == "cpu" and not without_values(values)


def check_range(positions: NDArray[Any], name: str) -> None:
    """Raise if a number is infinite, NaN, or beyond 2**53 on either side, where float64 lacks some integers."""
    wrong = ~((positions >= -LARGEST_POSITION) & (positions <= LARGEST_POSITION)).astype(bool)
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0].tolist())
        is_finite = positions.dtype.kind != "f" or bool(np.isfinite(positions).all())
        raise value_error(
            f"{name} must be finite, and between -2**53 and 2**53, beyond which float64 does not hold every integer",
            got=f"{int(wrong.sum())} of {wrong.size} are not: {positions[index]} at index {index}",
            fix=f"{name} - {name}.min(), or a larger unit"
            if is_finite
            else f"{name}.nan_to_num(0.0), if their tokens are masked",
        )


def check_tensor_range(positions: torch.Tensor, name: str) -> None:
    """Raise as `check_range`, for a tensor on the CPU."""
    # Integers are compared as integers, since float64 would round them. uint64 beyond int64 becomes negative.
    is_real = positions.is_floating_point()
    values = positions.to(torch.float64 if is_real else torch.int64)
    smallest = 0 if positions.dtype == torch.uint64 else -LARGEST_POSITION
    if not bool(((values >= smallest) & (values <= LARGEST_POSITION)).all()):
        check_range(np.array(positions.tolist(), dtype=np.float64 if is_real else object), name)


def as_positions(positions: object, name: str = "positions") -> torch.Tensor:
    r"""Return `positions` as a tensor of integers or floats, after checking them."""
    # A tuple, as in every test of types that a compiler can trace: Dynamo reads `A | B` only from torch 2.7 on.
    if isinstance(positions, (bool, int, float, np.integer, np.floating)):
        raise type_error(
            f"{name} must be a tensor of positions, not how many there are",
            got=shorten(positions),
            fix=f"torch.arange({positions}) for the first {positions}, torch.tensor({positions}) for that one alone",
        )
    if not isinstance(positions, torch.Tensor):
        return _from_sequence(positions, name)
    if positions.is_complex() or positions.dtype == torch.bool:
        raise type_error(
            f"{name} must be real numbers",
            got=f"a tensor of {positions.dtype}",
            fix="position_ids_from_mask(attention_mask), if this is a mask",
        )
    if positions.requires_grad:
        raise value_error(
            f"{name} must not require a gradient: the encoding is computed outside of the graph",
            got=f"{name} with requires_grad=True",
            fix=f"{name}.detach()",
        )
    if can_check_values(positions):  # others are checked when their rows are computed, which reads them anyway
        check_tensor_range(positions, name)
    if positions.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch has few operations for them
        positions = positions.long()
    return positions


def _from_sequence(positions: Any, name: str) -> torch.Tensor:
    try:
        array = np.asarray(positions)
    except ValueError:  # lists of several lengths
        raise value_error(
            f"{name} must have the same length in each row",
            got=shorten(positions),
            fix="position_ids_from_mask(attention_mask), which numbers the padding as well",
        ) from None
    kind = array.dtype.kind
    is_integer = kind in "iu" or (kind == "O" and all(isinstance(item, int) for item in array.flat))  # O: over 64 bits
    if not is_integer and kind != "f":
        raise type_error(f"{name} must be real numbers", got=shorten(positions), fix=f"{name}=torch.arange(100)")
    check_range(array, name)
    return torch.from_numpy(array.astype(np.int64 if is_integer else np.float64))


def check_position_ids(position_ids: object, x: torch.Tensor, *, keep_float64: bool) -> torch.Tensor:
    r"""Return `position_ids` as a tensor on the device of `x`; raise if their shape does not fit `x`."""
    positions = as_positions(position_ids, "position_ids")
    batch, length = x.shape[:2]
    # One dimension at a time: a comparison of whole shapes would tie B to T in an exported program.
    rows = positions.shape[0] if positions.ndim == 2 else 1
    if positions.ndim not in (1, 2) or positions.shape[-1] != length or rows not in (1, batch):
        raise value_error(
            "position_ids must be (batch, length) or (length,)",
            got=f"shape {tuple(positions.shape)}, x {tuple(x.shape)}",
            fix="position_ids_from_mask(attention_mask), or leave them out to count from the first token",
        )
    if positions.dtype == torch.float64 and x.device.type in _WITHOUT_FLOAT64:
        return positions if keep_float64 else positions.float().to(x.device)
    return positions.to(x.device)


def as_index(positions: torch.Tensor) -> torch.Tensor:
    """Return integer `positions` as int32 or int64, which torch accepts as indices."""
    return positions if positions.dtype == torch.int32 else positions.long()


def beyond_length(lowest: float, highest: float, limit: int, fix: str) -> str:
    """Return the error message for positions from `lowest` to `highest` if only those below `limit` are allowed."""
    return explain(
        f"position {highest:g} is beyond the declared length",
        got=f"positions {lowest:g} to {highest:g}, the last one allowed is {limit - 1}",
        fix=fix,
    )


# -------------------------------------------------------------------------------------------------- inputs and outputs


def check_input(x: object, d_model: int, module: str) -> None:
    """Raise if `x`, the input of a `module`, is not a floating-point tensor `(B, T, d_model)` or `(T, d_model)`."""
    if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
        raise type_error(
            "x must be a floating-point tensor (batch, length, d_model)",
            got=f"a tensor of {x.dtype}" if isinstance(x, torch.Tensor) else shorten(x),
            fix="PositionalEmbedding(embedding)(input_ids) for ids, sinusoidal_encoding for positions",
        )
    if x.ndim in (2, 3) and x.shape[-1] == d_model:
        return
    rule = f"expected (batch, length, d_model), or (length, d_model) for one row, with d_model={d_model}"
    fix = f"{module}({x.shape[-1]})" if x.ndim in (2, 3) else "x.reshape(batch, length, d_model)"
    raise value_error(rule, got=f"shape {tuple(x.shape)}", fix=fix)


def check_out(out: torch.Tensor, shape: tuple[int, ...], like: torch.Tensor, module: nn.Module) -> None:
    """Raise if `out` is not contiguous memory of `shape` with dtype and device of `like`, or if gradients are recorded.

    `like` itself is allowed, whatever its strides. torch raises if `out` is a part of the input.
    """
    fix = f"out=torch.empty({shape}, dtype={like.dtype}, device='{like.device}')"
    is_contiguous = out is like or out.is_contiguous()
    if (tuple(out.shape), out.dtype, out.device) != (shape, like.dtype, like.device) or not is_contiguous:
        got = f"{tuple(out.shape)} {out.dtype} {out.device}{'' if is_contiguous else ', not contiguous'}"
        raise value_error("out must be contiguous memory like the result", got=got, fix=fix)
    is_trained = any(weight.requires_grad for weight in module.parameters())
    if torch.is_grad_enabled() and (is_trained or like.requires_grad or out.requires_grad):
        raise value_error(
            "out cannot be used where a gradient is recorded",
            got="weights that train" if is_trained else "x or out with requires_grad=True",
            fix="with torch.no_grad(): ..., or a call without out",
        )
