"""The whole matrix of a description, as bool and as numbers to add to scores, into given memory where there is some.

The only forms of size T×T per row that are made from scratch; torch's and Hugging Face's are made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from .._explain import explain, shorten
from .description import Description
from .layout import band, numbers_of, sees_nothing, visible_keys
from .plain import additive_mask, negative_number


class DenseForms(Description):
    """`dense` and `additive`."""

    def dense(self, *, out: torch.Tensor | None = None) -> torch.Tensor:
        r"""The whole matrix.

        Args:
            out (`torch.Tensor` bool, *optional*): memory to write to, for a loop that makes a mask a batch: `(B, 1, Q,
                K)`, or a flat one with at least as many elements, of which the first are used. Fresh memory costs more
                than the mask.

        Returns:
            `torch.Tensor` `(B, 1, Q, K)` bool on the description's device, in memory of its own or in `out`; True =
            query i (third dimension) may attend to key j (last). No row of it is all False. Q = K = T, but for `cross`.

        Raises:
            ValueError: if `out` has another shape, kind, or device.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([4], look_ahead=True, window=2).dense()[0, 0].int()
            tensor([[1, 0, 0, 0],
                    [1, 1, 0, 0],
                    [0, 1, 1, 0],
                    [0, 0, 1, 1]], dtype=torch.int32)
            >>> buffer = torch.empty(1000, dtype=torch.bool)
            >>> AttentionMask.from_lengths([1], 2).dense(out=buffer).data_ptr() == buffer.data_ptr()
            True
        """
        return self._fill(_memory(out, self._shape, torch.bool, self.documents.device), _BOOL)

    def additive(
        self, dtype: torch.dtype = torch.float32, value: float | None = None, *, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        r"""The form that is added to attention scores: 0, or a large negative number.

        Args:
            dtype (`torch.dtype`, *optional*, defaults to float32): of the scores.
            value (`float`, *optional*, defaults to `torch.finfo(dtype).min`): the negative number, finite in `dtype`.
            out (`torch.Tensor` of `dtype`, *optional*): memory to write to, as in `dense`.

        Returns:
            `torch.Tensor` `(B, 1, Q, K)` of `dtype` on the description's device, in memory of its own or in `out`.

        Raises:
            ValueError: if `value` is not negative, or not finite in `dtype`; if `out` does not fit.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([1], 2).additive(value=-1e9)
            tensor([[[[ 0.0000e+00, -1.0000e+09],
                      [ 0.0000e+00, -1.0000e+09]]]])
        """
        low = negative_number(dtype, value)
        as_numbers = _Logic(lambda sees: additive_mask(sees, dtype, value=low), torch.minimum, torch.maximum)
        return self._fill(_memory(out, self._shape, dtype, self.documents.device), as_numbers)

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        looking = self.documents if self.queries is None else self.queries
        return len(looking), 1, looking.shape[1], self.documents.shape[1]

    def _fill(self, out: torch.Tensor, logic: _Logic) -> torch.Tensor:
        """Fills `out`. As few passes over it as there can be: they are what a dense mask costs."""
        layout, matrix = self._layout, out[:, 0]  # (B, Q, K)
        keys = visible_keys(self.documents)
        seen = band(layout, matrix.shape[-1], out.device)
        if not layout.one_document:
            self._same_document(keys, keys, matrix, logic)
            if seen is not None:
                logic.both(matrix, logic.said(seen), out=matrix)
        elif seen is None:
            matrix.copy_(logic.said(keys)[:, None, :].expand_as(matrix))
        else:
            logic.both(logic.said(keys)[:, None, :], logic.said(seen), out=matrix)
        if layout.prefix:
            assert self.prefix is not None  # or it would show nothing
            shown = self._same_document(self.prefix, torch.zeros_like(keys), torch.empty_like(matrix), logic)
            near = band(layout._replace(look_ahead=False), matrix.shape[-1], out.device)
            logic.either(matrix, shown if near is None else logic.both(shown, logic.said(near), out=shown), out=matrix)
        if self.queries is None and (nothing := sees_nothing(self.documents, layout)) is not None:
            diagonal = matrix.diagonal(dim1=-2, dim2=-1)
            logic.either(diagonal, logic.said(nothing), out=diagonal)
        return out

    def _same_document(
        self, keys: torch.Tensor, at_padding: torch.Tensor, out: torch.Tensor, logic: _Logic
    ) -> torch.Tensor:
        """`out[b, i, j]`: is j one of `keys` and in the document of i; for a query at padding, one of `at_padding`.

        Whole lines are copied from a table with one for each document, which is many times faster than comparing.
        """
        numbers = numbers_of(self.documents, self.queries, self._layout.highest)
        rows = len(keys)
        lines = torch.arange(numbers.total, device=keys.device)[:, None] == numbers.keys[:, None, :]  # (B, D, K)
        lines.logical_and_(keys[:, None, :])
        lines[:, 0] = at_padding
        if self.queries is not None:  # where there is nothing but padding to look at, everyone looks at it
            lines.logical_or_((self.documents < 0).all(dim=1)[:, None, None])
        index = numbers.queries + torch.arange(rows, device=keys.device)[:, None] * numbers.total  # (B, Q)
        lines = logic.said(lines).flatten(0, 1)
        torch.index_select(lines, 0, index.flatten(), out=out.view(-1, out.shape[-1]))
        return out


class _Logic(NamedTuple):
    """Bools, and the numbers that stand for them, so that each form is written in one go and not made from another."""

    said: Callable[[torch.Tensor], torch.Tensor]  # a few bools in this form
    both: Callable[..., torch.Tensor]
    either: Callable[..., torch.Tensor]


_BOOL = _Logic(lambda sees: sees, torch.bitwise_and, torch.bitwise_or)


def _memory(out: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory of this shape: fresh, or `out`, or the beginning of a flat one."""
    if out is None:
        return torch.empty(shape, dtype=dtype, device=device)
    if not isinstance(out, torch.Tensor):
        raise TypeError(explain("out must be a tensor", got=shorten(out), fix=f"torch.empty({shape}, dtype={dtype})"))
    size = torch.Size(shape).numel()
    fits = out.shape == shape or (out.ndim == 1 and out.numel() >= size)
    if not fits or out.dtype != dtype or out.device != device or not out.is_contiguous():
        raise ValueError(
            explain(
                f"out must be a contiguous tensor {shape}, or a flat one of at least {size} elements, of {dtype} "
                f"on {device}",
                got=f"{tuple(out.shape)} of {out.dtype} on {out.device}",
                fix=f"torch.empty({shape}, dtype={dtype})",
            )
        )
    return out[:size].view(shape) if out.ndim == 1 else out
