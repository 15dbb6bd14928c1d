"""Padding and look-ahead masks as plain bool tensors, and the form that is added to scores.

Functions of lengths, ids and masks only. What a whole batch needs is described by `AttentionMask`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain, one_of, shorten

PaddingSide = Literal["left", "right"]


def padding_mask(
    lengths: torch.Tensor | NDArray[Any] | Sequence[int],
    max_length: int | None = None,
    *,
    padding_side: PaddingSide = "right",
) -> torch.Tensor:
    r"""True at the real tokens of each row, False at its padding.

    Args:
        lengths (`torch.Tensor`, `np.ndarray` or sequence of `int`, `(B,)`): real tokens in each row; 0 is allowed.
        max_length (`int`, *optional*): T; by default the largest length.
        padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.

    Returns:
        `torch.Tensor` `(B, T)` bool, on the device of `lengths` (the CPU for arrays and sequences). Its rows add up to
        the lengths.

    Raises:
        ValueError: if a length is negative or larger than `max_length`, or `padding_side` is neither side.
        TypeError: if `lengths` are not whole numbers.

    Example:
        >>> padding_mask([3, 1])
        tensor([[ True,  True,  True],
                [ True, False, False]])
        >>> padding_mask([3, 1], padding_side="left")
        tensor([[ True,  True,  True],
                [False, False,  True]])
        >>> padding_mask([3, 1])[:, None, None, :] & look_ahead_mask(3)     # (B, 1, T, T), without `AttentionMask`
        tensor([[[[ True, False, False],
                  [ True,  True, False],
                  [ True,  True,  True]]],
        <BLANKLINE>
        <BLANKLINE>
                [[[ True, False, False],
                  [ True, False, False],
                  [ True, False, False]]]])
    """
    if padding_side not in ("left", "right"):
        raise ValueError(one_of("padding_side", padding_side, ("left", "right")))
    counts = as_integers(lengths, "lengths", dims=1, example="padding_mask([3, 1])").long()  # (B,)
    least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    if least < 0:
        raise ValueError(explain("lengths must not be negative", got=f"row {int(counts.argmin())} has {least}"))
    width = most if max_length is None else as_length(max_length, "max_length")
    if width < most:
        raise ValueError(
            explain(
                f"row {int(counts.argmax())} has {most} tokens, max_length is {width}",
                got=f"{int((counts > width).sum())} of {len(counts)} rows longer than max_length",
                fix=f"max_length={most}, or cut the rows first",
            )
        )
    columns = torch.arange(width, device=counts.device)  # (T,)
    if padding_side == "left":
        return columns >= width - counts[:, None]
    return columns < counts[:, None]


def padding_mask_from_ids(
    ids: torch.Tensor | NDArray[Any] | Sequence[Sequence[int]], pad_token_id: int
) -> torch.Tensor:
    r"""True wherever the id is not the padding id.

    Prefer `padding_mask(lengths)`, or the tokenizer's `attention_mask`: where a tokenizer has no padding token of its
    own people pad with eos, and then this hides the real eos of every text as well.

    Args:
        ids (`torch.Tensor`, `np.ndarray` or sequence of equally long sequences of `int`, `(B, T)`): token ids.
        pad_token_id (`int`): the id that stands for padding.

    Returns:
        `torch.Tensor` `(B, T)` bool, on the device of `ids` (the CPU for arrays and sequences).

    Raises:
        TypeError: if `ids` are not whole numbers, or `pad_token_id` is not one.
        ValueError: if `ids` are not two-dimensional.

    Example:
        >>> padding_mask_from_ids([[5, 7, 9, 0, 0], [3, 2, 4, 1, 0]], pad_token_id=0)
        tensor([[ True,  True,  True, False, False],
                [ True,  True,  True,  True, False]])
    """
    table = as_integers(ids, "ids", dims=2, example="padding_mask_from_ids([[5, 7, 0]], 0)")
    try:
        pad = operator.index(pad_token_id)
    except TypeError:
        raise TypeError(
            explain(
                "pad_token_id must be a whole number",
                got=shorten(pad_token_id),
                fix="padding_mask(lengths), which needs no padding id",
            )
        ) from None
    return table != pad


def look_ahead_mask(length: int, *, device: torch.device | str | None = None) -> torch.Tensor:
    r"""True where query i may see key j: at j <= i, the diagonal included. Also called causal, or subsequent, mask.

    Args:
        length (`int`): T, at least 0.
        device (*optional*): of the result, by default torch's.

    Returns:
        `torch.Tensor` `(T, T)` bool, in memory of its own; row i has i + 1 True entries, the first ones.

    Raises:
        ValueError: if `length` is negative.
        TypeError: if `length` is not a whole number.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3. arXiv:1706.03762.

    Example:
        >>> look_ahead_mask(3)
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True,  True]])
        >>> ~look_ahead_mask(3)     # the other polarity: True = must not be attended to
        tensor([[False,  True,  True],
                [False, False,  True],
                [False, False, False]])
    """
    width = as_length(length, "length")
    return torch.ones(width, width, dtype=torch.bool, device=device).tril_()


def additive_mask(
    mask: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    *,
    value: float | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""The mask as numbers to add to attention scores: 0 where it is True, a large negative number where it is False.

    Args:
        mask (`torch.Tensor` bool, any shape): True = may be attended to.
        dtype (`torch.dtype`, *optional*, defaults to float32): of the result. Take the scores' own: the smallest
            float32 becomes -inf when it is cast to bfloat16.
        value (`float`, *optional*, defaults to `torch.finfo(dtype).min`): the negative number. It must be finite in
            `dtype`, so that a row of nothing but False averages instead of becoming NaN; -1e9 does not fit float16.
        out (`torch.Tensor` of `dtype`, in the shape of `mask`, *optional*): memory to write to.

    Returns:
        `torch.Tensor` of the shape of `mask` and of `dtype`, on its device. Two values at most, both finite.

    Raises:
        ValueError: if `value` is not negative, or not finite in `dtype`.
        TypeError: if `mask` is not bool, or `dtype` not a floating-point type.

    Example:
        >>> additive_mask(padding_mask([2, 1]), value=-1e9)
        tensor([[ 0.0000e+00,  0.0000e+00],
                [ 0.0000e+00, -1.0000e+09]])
        >>> additive_mask(padding_mask([1], 2), torch.float16)
        tensor([[     0., -65504.]], dtype=torch.float16)
    """
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        kind = f"a tensor of {mask.dtype}" if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise TypeError(explain("mask must be a bool tensor, True = may be attended to", got=kind, fix="mask.bool()"))
    low = negative_number(dtype, value)
    numbers = mask.to(dtype) if out is None else out.copy_(mask)
    return numbers.sub_(1).mul_(-low)  # ten times faster than filling where a mask says so


def negative_number(dtype: torch.dtype, value: float | None) -> float:
    """What is added to the scores of hidden keys, as it is after rounding to `dtype`; see `additive_mask`."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(
            explain(
                "dtype must be a floating-point type", got=shorten(dtype), fix="dtype=torch.float32, or the scores' own"
            )
        )
    least = torch.finfo(dtype).min
    low = least if value is None else float(value)
    # What counts is the value after rounding to dtype: -65510.0 still rounds to a finite float16, -65520.0 does not.
    rounded = float(torch.tensor(low, dtype=dtype))
    if not low < 0 or not math.isfinite(rounded) or rounded == 0:
        raise ValueError(
            explain(
                f"value must be negative and fit {dtype}, whose smallest number is {least:.6g}",
                got=repr(value),
                fix=f"value=None for {least:.6g}, or a dtype with a larger range",
            )
        )
    return rounded


def as_length(value: int, name: str) -> int:
    """`value` as an `int` of at least 0."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(explain(f"{name} must be a whole number", got=shorten(value), fix=f"{name}=512")) from None
    if number < 0:
        raise ValueError(explain(f"{name} must not be negative", got=number, fix=f"{name}=512"))
    return number


def as_integers(values: object, name: str, *, dims: int, example: str) -> torch.Tensor:
    """Whole numbers as a tensor of `dims` dimensions: tensors as they are, all else copied to the CPU as int64."""
    if isinstance(values, torch.Tensor):
        if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
            raise TypeError(explain(f"{name} must be whole numbers", got=f"a tensor of {values.dtype}", fix=example))
        tensor = values
    else:
        try:
            array = np.asarray(values)
        except ValueError:  # rows of unequal lengths
            raise ValueError(
                explain(f"{name} must have rows of the same length", got=shorten(values), fix=example)
            ) from None
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(explain(f"{name} must be whole numbers", got=shorten(values), fix=example))
        tensor = torch.from_numpy(array.astype(np.int64))
    if tensor.ndim != dims:
        raise ValueError(
            explain(
                f"{name} must have {dims} dimension{'s' * (dims > 1)}", got=f"shape {tuple(tensor.shape)}", fix=example
            )
        )
    return tensor
