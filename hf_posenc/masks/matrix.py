"""The matrix of a mask, `(B, 1, Q, K)`, in bool or additive form."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch

from .._common.errors import value_error
from .structure import band, queries_without_keys, visible_keys
from .triangle import check_matrix

if TYPE_CHECKING:
    from .attention_mask import AttentionMask

NO_MATRIX = (  # fix of masks that are too large
    "mask.block_mask() for flex attention, or mask.varlen() for flash attention, which make no matrix; nor does "
    "mask.for_sdpa(), if only padding on the right and look-ahead hide tokens"
)


class Logic(NamedTuple):
    """Functions to compute a mask in one form: bool, or additive (0 at visible keys, a negative number at hidden ones).

    `convert` makes this form from a bool mask. `both` is "and" of two masks of this form, and `either` is "or".
    """

    convert: Callable[[torch.Tensor], torch.Tensor]  # a small bool tensor to this form
    both: Callable[..., torch.Tensor]
    either: Callable[..., torch.Tensor]


BOOL = Logic(lambda sees: sees, torch.bitwise_and, torch.bitwise_or)


def matrix_of(mask: AttentionMask, dtype: torch.dtype, logic: Logic, out: torch.Tensor | None) -> torch.Tensor:
    """Return the matrix of a mask in `out`, or in new memory; it is bool or additive, depending on `logic`."""
    layout, documents = mask._known, mask.documents
    out = _memory(out, mask._shape, dtype, documents.device)
    matrix = out[:, 0]  # (B, Q, K)
    keys = visible_keys(documents)
    band_mask = band(layout, matrix.shape[-1], out.device)
    if not layout.one_document:
        _same_document(mask, keys, keys, matrix, logic)
        if band_mask is not None:
            logic.both(matrix, logic.convert(band_mask), out=matrix)
    elif band_mask is None:
        matrix.copy_(logic.convert(keys)[:, None, :].expand_as(matrix))
    else:
        logic.both(logic.convert(keys)[:, None, :], logic.convert(band_mask), out=matrix)
    if layout.prefix:
        assert mask.prefix is not None  # or the layout would have none
        prefix_mask = _same_document(mask, mask.prefix, torch.zeros_like(keys), torch.empty_like(matrix), logic)
        near = band(layout._replace(look_ahead=False), matrix.shape[-1], out.device)
        if near is not None:
            logic.both(prefix_mask, logic.convert(near), out=prefix_mask)
        logic.either(matrix, prefix_mask, out=matrix)
    # A softmax over hidden keys alone is NaN in `nn.MultiheadAttention`.
    if mask.queries is None and (alone := queries_without_keys(documents, layout)) is not None:
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        logic.either(diagonal, logic.convert(alone), out=diagonal)
    return out


def _same_document(
    mask: AttentionMask, keys: torch.Tensor, at_padding: torch.Tensor, out: torch.Tensor, logic: Logic
) -> torch.Tensor:
    """Write a matrix to `out`, and return it: query i sees key j of its document if `keys[b, j]` is True."""
    # A query at padding sees the keys `at_padding[b]` instead. In cross-attention, if all keys of a row are
    # padding, the queries of the row see all these keys, as otherwise softmax would return NaN.
    numbers = mask._numbers
    lines = torch.arange(numbers.total, device=keys.device)[:, None] == numbers.keys[:, None, :]  # (B, D, K)
    lines.logical_and_(keys[:, None, :])
    lines[:, 0] = at_padding
    if mask.queries is not None:  # every query looks at a row that is all padding
        lines.logical_or_((mask.documents < 0).all(dim=1)[:, None, None])
    index = numbers.queries + torch.arange(len(keys), device=keys.device)[:, None] * numbers.total  # (B, Q)
    lines = logic.convert(lines).flatten(0, 1)
    torch.index_select(lines, 0, index.flatten(), out=out.view(-1, out.shape[-1]))
    return out


def _memory(out: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor of `shape` to write to: `out`, or a new one if `out` is `None`; raise if `out` does not fit."""
    if out is None:
        check_matrix("this form of the mask", shape, NO_MATRIX, dtype.itemsize)
        return torch.empty(shape, dtype=dtype, device=device)
    size = torch.Size(shape).numel()
    fits = out.shape == shape or (out.ndim == 1 and out.numel() >= size)
    if not fits or out.dtype != dtype or out.device != device or not out.is_contiguous():
        raise value_error(
            f"out must be a contiguous tensor {shape}, or a flat one of at least {size} elements, of {dtype} "
            f"on {device}",
            got=f"{tuple(out.shape)} of {out.dtype} on {out.device}",
            fix=f"out=torch.empty({shape}, dtype={dtype})",
        )
    return out[:size].view(shape) if out.ndim == 1 else out
