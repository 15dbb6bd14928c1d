"""Padding and look-ahead masks as bool tensors, and additive masks.

The functions take lengths, token ids or a mask. `AttentionMask` combines all kinds of masks for a whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.calls import answers_tutorials
from .._common.constants import PaddingSide
from .._common.errors import require_one_of, shorten, type_error, value_error
from .._common.integers import as_integer, as_integers
from ..positions import row_length
from .triangle import check_matrix


@answers_tutorials
def padding_mask(
    lengths: torch.Tensor | NDArray[Any] | Sequence[int],
    max_length: int | None = None,
    *,
    padding_side: PaddingSide = "right",
) -> torch.Tensor:
    r"""Return a mask that is True at the real tokens of each row, and False at its padding.

    Args:
        lengths (`torch.Tensor`, `np.ndarray` or sequence of `int`, `(B,)`): real tokens in each row; 0 is allowed.
        max_length (`int`, *optional*): T; by default the largest length.
        padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.

    Returns:
        `torch.Tensor` `(B, T)` bool, on the device of `lengths` (the CPU for arrays and sequences). The sum of each row
        is its length.

    Raises:
        ValueError: if a length is negative or larger than `max_length`, or if `padding_side` is not "left" or "right".
            On an accelerator lengths are checked only without `max_length`, where the call waits for them anyway.
        TypeError: if `lengths` are not integers.

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
    require_one_of("padding_side", padding_side, ("left", "right"))
    fix = "lengths=[3, 1]; of ids, padding_mask_from_ids"
    if isinstance(lengths, torch.Tensor) and lengths.device.type != "cpu" and max_length is not None:
        counts = as_integer_tensor(lengths, "lengths", dims=1, example=fix)
        width = as_integer(max_length, "max_length", minimum=0, example=512)
    else:
        array = as_integers(lengths, "lengths", minimum=0, fix=fix)
        width, counts = row_length(array, max_length), torch.from_numpy(array)
        counts = counts.to(lengths.device) if isinstance(lengths, torch.Tensor) else counts  # (B,)
    columns = torch.arange(width, device=counts.device)  # (T,)
    if padding_side == "left":
        return columns >= width - counts[:, None]
    return columns < counts[:, None]


@answers_tutorials
def padding_mask_from_ids(
    ids: torch.Tensor | NDArray[Any] | Sequence[Sequence[int]], pad_token_id: int
) -> torch.Tensor:
    r"""Return a mask that is True wherever the id is not the padding id.

    Prefer `padding_mask(lengths)`, or the tokenizer's `attention_mask`: if the padding token is eos, as is common for
    tokenizers without a padding token, this function also hides the real eos of every text.

    Args:
        ids (`torch.Tensor`, `np.ndarray` or sequence of equally long sequences of `int`, `(B, T)`): token ids.
        pad_token_id (`int`): the id of the padding token.

    Returns:
        `torch.Tensor` `(B, T)` bool, on the device of `ids` (the CPU for arrays and sequences).

    Raises:
        TypeError: if `ids` are not integers, or `pad_token_id` is not one.
        ValueError: if `ids` are not two-dimensional.

    Example:
        >>> padding_mask_from_ids([[5, 7, 9, 0, 0], [3, 2, 4, 1, 0]], pad_token_id=0)
        tensor([[ True,  True,  True, False, False],
                [ True,  True,  True,  True, False]])
    """
    table = as_integer_tensor(ids, "ids", dims=2, example="padding_mask_from_ids([[5, 7, 0]], 0)")
    return table != as_integer(pad_token_id, "pad_token_id", example="0, or padding_mask(lengths)")


@answers_tutorials
def look_ahead_mask(length: int, *, device: torch.device | str | None = None) -> torch.Tensor:
    r"""Return a mask that is True where query i may see key j: at j <= i, including the diagonal.

    Also called causal, or subsequent, mask.

    Args:
        length (`int`): T, at least 0.
        device (*optional*): device of the result; by default torch's default device.

    Returns:
        `torch.Tensor` `(T, T)` bool, a new tensor; the first i + 1 entries of row i are True.

    Raises:
        ValueError: if `length` is negative, or above 65,536.
        TypeError: if `length` is not an integer.

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
    width = as_integer(length, "length", minimum=0, example="ids.shape[1]")
    check_matrix("look_ahead_mask", (width, width), "is_causal=True of scaled_dot_product_attention, without a mask")
    return torch.ones(width, width, dtype=torch.bool, device=device).tril_()


def additive_mask(
    mask: torch.Tensor, dtype: torch.dtype = torch.float32, *, value: float | None = None
) -> torch.Tensor:
    r"""Return the mask to add to attention scores: 0 where `mask` is True, a large negative number where it is False.

    Args:
        mask (`torch.Tensor` bool, any shape): True = may be attended to.
        dtype (`torch.dtype`, *optional*, defaults to float32): dtype of the result. Use that of the scores: the lowest
            float32 becomes -inf when it is cast to bfloat16.
        value (`float`, *optional*, defaults to `torch.finfo(dtype).min`): the negative number. It must be finite in
            `dtype`, so that softmax averages a row that is all False instead of returning NaN; -1e9 is too large for
            float16.

    Returns:
        `torch.Tensor` of the shape of `mask` and of `dtype`, on its device. At most two different values, both finite.

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
        got = f"a tensor of {mask.dtype}" if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise type_error("mask must be a bool tensor, True = may be attended to", got=got, fix="mask.bool()")
    low = additive_value(dtype, value)
    return mask.to(dtype).sub_(1).mul_(-low)  # ten times faster than masked_fill_


def additive_value(dtype: torch.dtype, value: float | None) -> float:
    """Return the number that an additive mask has at hidden keys: `value`, or the lowest number of `dtype` for `None`.

    The result is rounded to `dtype`. Raise if it is not negative and finite.
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise type_error(
            "dtype must be a floating-point type",
            got=shorten(dtype),
            fix="dtype=torch.float32, or the dtype of the scores",
        )
    least = torch.finfo(dtype).min
    low = least if value is None else float(value)
    # -1e9, which many programs add, is -inf in float16 (apex #1052).
    # -65510.0 still rounds to a finite float16, -65520.0 does not.
    rounded = float(torch.tensor(low, dtype=dtype, device="cpu"))
    if not -math.inf < rounded < 0:
        raise value_error(
            f"value must be negative and fit {dtype}, whose smallest number is {least:.6g}",
            got=repr(value),
            fix=f"value=None for {least:.6g}, or a dtype with a larger range",
        )
    return rounded


def as_integer_tensor(values: object, name: str, *, dims: int, example: str) -> torch.Tensor:
    """Return `values` as a tensor of integers; raise if they are not integers or do not have `dims` dimensions.

    A tensor is returned unchanged. Arrays and lists are copied to the CPU as int64. The message contains `name`, the
    name of the argument, and `example`, a correct value.
    """
    if isinstance(values, torch.Tensor):
        if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
            raise type_error(f"{name} must be integers", got=f"a tensor of {values.dtype}", fix=example)
        tensor = values
    else:
        try:
            array = np.asarray(values)
        except ValueError:  # rows of unequal lengths
            raise value_error(f"{name} must have rows of the same length", got=shorten(values), fix=example) from None
        if array.dtype.kind not in "iu" and array.size:
            raise type_error(f"{name} must be integers", got=shorten(values), fix=example)
        tensor = torch.from_numpy(array.astype(np.int64))
    if tensor.ndim != dims:
        raise value_error(
            f"{name} must have {dims} dimension{'s' * (dims > 1)}", got=f"shape {tuple(tensor.shape)}", fix=example
        )
    return tensor
