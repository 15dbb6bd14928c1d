"""Base class of `AttentionMask`: its fields, its constructors, and the mask as a bool or additive matrix.

The class stores a few numbers per token. Only `dense` and `additive` make a matrix for each row. Subclasses add the
methods for torch and Hugging Face models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.constants import PaddingSide
from .._common.errors import shorten, type_error, value_error
from .._common.integers import as_integer
from ..ragged import lock_free_cache
from .document_numbers import check_cross, documents_of_batch, documents_of_lengths, prefix_tokens
from .functions import additive_mask, additive_value, as_integer_tensor, check_matrix, padding_mask
from .structure import (
    Layout,
    Numbers,
    band,
    layout_of,
    queries_without_keys,
    small_numbers,
    visible_keys,
)


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """Base class of `AttentionMask`, not used directly: its fields, its constructors, and `dense` and `additive`."""

    documents: torch.Tensor
    look_ahead: bool = False
    window: int | None = None
    prefix: torch.Tensor | None = None
    queries: torch.Tensor | None = None

    def __post_init__(self) -> None:
        example = "AttentionMask.from_documents([[5, 9], [11]]); of a batch, AttentionMask.from_batch(batch)"
        shape = as_integer_tensor(self.documents, "documents", dims=2, example=example).shape
        if self.window is not None:  # a token sees itself and the window - 1 tokens before it
            as_integer(self.window, "window", minimum=1, example="None for no limit")
        if self.prefix is not None:
            if not self.look_ahead:
                raise value_error(
                    "a prefix makes tokens visible that look-ahead hides, so it needs look_ahead=True",
                    got="prefix without look_ahead=True",
                    fix="look_ahead=True, or prefix=None, because nothing is hidden",
                )
            is_tensor = isinstance(self.prefix, torch.Tensor)
            if not is_tensor or self.prefix.dtype != torch.bool or self.prefix.shape != shape:
                raise value_error(
                    "prefix must be a bool mask in the shape of documents",
                    got=f"{tuple(self.prefix.shape)} and {tuple(shape)}, {self.prefix.dtype}"
                    if is_tensor
                    else shorten(self.prefix),
                    fix="AttentionMask.from_batch(batch, prefix=3, look_ahead=True), which takes numbers",
                )
        if self.queries is not None:
            as_integer_tensor(self.queries, "queries", dims=2, example=example)
            if self.look_ahead or self.window is not None or self.prefix is not None:
                raise value_error(
                    "look-ahead, window and prefix belong to self-attention",
                    got=f"look_ahead={self.look_ahead}, window={self.window}, and queries of another batch",
                    fix="AttentionMask.cross(target, source)",
                )
            check_cross(self.queries, self.documents)

    # ---------------------------------------------------------------------------------------------------- constructors

    @classmethod
    def from_batch(
        cls, batch: Mapping[str, Any], *, look_ahead: bool = False, window: int | None = None, prefix: Any = None
    ) -> Self:
        r"""Make the mask of a batch from its `attention_mask`, `document_ids` or `position_ids`.

        Args:
            batch (mapping): tensors, arrays or lists `(B, T)` with one or more of these keys:

                - `attention_mask`: 1 or True at real tokens. Required unless there is another key.
                - `document_ids`: a number for each token, equal for the tokens of one document; negative at padding.
                - `position_ids`, ignored if there are `document_ids`: a document begins wherever positions fall back to
                  the smallest of their row, as in 0 1 2 0 1.

                With `attention_mask` alone, each row is one document.
            look_ahead, window (*optional*): as in `AttentionMask`. A `look_ahead_mask` in the batch is not read.
            prefix (`int`, integers `(B,)` or bool `(B, T)`, *optional*): tokens that all tokens of their document may
                attend to, even earlier ones. An `int` n means the first n tokens of every document, integers `(B,)` an
                n for each row, and a bool mask is True at such tokens. Requires `look_ahead=True`.

        Returns:
            `AttentionMask` on the device of the batch (the CPU for arrays and lists), in new memory.

        Raises:
            ValueError: if the batch has none of these keys, if their shapes differ, or if `window` or `prefix` is
                invalid.
            TypeError: if `batch` is not a mapping, or ids are not integers.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_batch({"attention_mask": [[1, 1, 1], [0, 1, 1]]}, look_ahead=True)
            AttentionMask(rows=2, length=3, tokens=5, look_ahead=True, packed=False, device=cpu)
            >>> packed = {"attention_mask": [[1, 1, 1, 1]], "position_ids": [[0, 1, 0, 1]]}
            >>> AttentionMask.from_batch(packed).dense()[0, 0].int()
            tensor([[1, 1, 0, 0],
                    [1, 1, 0, 0],
                    [0, 0, 1, 1],
                    [0, 0, 1, 1]], dtype=torch.int32)
        """
        documents = documents_of_batch(batch)
        return cls(documents, look_ahead, window, prefix_tokens(documents, prefix))

    @classmethod
    def from_lengths(
        cls,
        lengths: torch.Tensor | NDArray[np.integer[Any]] | Sequence[int],
        max_length: int | None = None,
        *,
        look_ahead: bool = False,
        window: int | None = None,
        prefix: Any = None,
        padding_side: PaddingSide = "right",
        device: torch.device | str | None = None,
    ) -> Self:
        r"""Make the mask of a batch from the number of real tokens in each row; each row is one document.

        Args:
            lengths (`torch.Tensor`, `np.ndarray` or sequence of `int`, `(B,)`): real tokens in each row; 0 is allowed.
            max_length (`int`, *optional*): T; by default the largest length.
            look_ahead, window (*optional*): as in `AttentionMask`.
            prefix (`int` or integers `(B,)`, *optional*): number of first tokens that all tokens of the row may attend
                to, even earlier ones: one number for all rows, or one for each. Requires `look_ahead=True`.
            padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.
            device (*optional*): device of the mask; by default the device of `lengths`.

        Returns:
            `AttentionMask`.

        Raises:
            ValueError: if a length is negative or larger than `max_length`, or if `window`, `prefix` or `padding_side`
                is invalid.
            TypeError: if the lengths are not integers.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2, 2]).for_sdpa()     # no padding, so no mask is needed
            {}
        """
        documents = padding_mask(lengths, max_length, padding_side=padding_side).long() - 1
        return cls(documents, look_ahead, window, prefix_tokens(documents, prefix)).to(device)

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Sequence[int]],
        max_length: int | None = None,
        *,
        look_ahead: bool = False,
        window: int | None = None,
        prefix: Any = None,
        padding_side: PaddingSide = "right",
        device: torch.device | str | None = None,
    ) -> Self:
        r"""Make the mask of packed rows from the lengths of their documents: each token attends to its document only.

        Args:
            documents (sequence of sequences of `int`): the lengths of the documents in each row, in order.
            max_length (`int`, *optional*): T; by default the number of tokens in the longest row.
            look_ahead, window (*optional*): as in `AttentionMask`.
            prefix (`int`, or sequence of sequences of `int`, *optional*): number of tokens at the start of a document
                that are visible to all its tokens, although they may be later: one number for all documents, or one for
                each, nested as `documents`. Requires `look_ahead=True`, which hides later tokens.
            padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.
            device (*optional*): device of the mask; by default the CPU.

        Returns:
            `AttentionMask`.

        Raises:
            ValueError: if a document has no tokens, if a row has more than `max_length`, or if `window`, `prefix` or
                `padding_side` is invalid.
            TypeError: if the lengths are not integers.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> # Token 0 sees token 1 of its prefix. The last line is padding, which sees all real tokens before it.
            >>> AttentionMask.from_documents([[3, 1]], 5, look_ahead=True, prefix=[[2, 0]]).dense()[0, 0].int()
            tensor([[1, 1, 0, 0, 0],
                    [1, 1, 0, 0, 0],
                    [1, 1, 1, 0, 0],
                    [0, 0, 0, 1, 0],
                    [1, 1, 1, 1, 0]], dtype=torch.int32)
        """
        table = documents_of_lengths(documents, max_length, padding_side)
        return cls(table, look_ahead, window, prefix_tokens(table, prefix, documents)).to(device)

    @classmethod
    def cross(cls, queries: Self, keys: Self) -> Self:
        r"""Make the mask of cross-attention, where the tokens of one batch attend to the tokens of another.

        A query may attend to real tokens in the same row of the other batch, if they have the query's document number:

        - all real tokens of the row, if both masks were made by `from_lengths`;
        - the tokens of the n-th document, for a query in the n-th document, if both were made by `from_documents`.

        Look-ahead, window and prefix of both masks are ignored, because they apply to self-attention only.

        Args:
            queries (`AttentionMask`): mask of the batch whose tokens attend, `(B, Q)`, usually the decoder's.
            keys (`AttentionMask`): mask of the batch that they attend to, `(B, K)`, usually the encoder's.

        Returns:
            `AttentionMask` on the device of `keys`; `dense` and `additive` return `(B, 1, Q, K)`.

        Raises:
            ValueError: if the numbers of rows differ, or a document in `queries` has no tokens in `keys`.
            TypeError: if `queries` or `keys` is not an `AttentionMask`, or was itself made by `cross`.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> target, source = AttentionMask.from_documents([[1, 2]]), AttentionMask.from_documents([[2, 1]])
            >>> AttentionMask.cross(target, source).dense()[0, 0].int()
            tensor([[1, 1, 0],
                    [0, 0, 1],
                    [0, 0, 1]], dtype=torch.int32)
        """
        for name, side in (("queries", queries), ("keys", keys)):
            if not isinstance(side, cls) or side.queries is not None:
                raise type_error(
                    f"{name} must be the AttentionMask of one batch",
                    got="a mask of cross-attention" if isinstance(side, cls) else shorten(side),
                    fix="AttentionMask.cross(AttentionMask.from_batch(target), AttentionMask.from_batch(source))",
                )
        return cls(keys.documents, queries=queries.documents.to(keys.documents.device))

    # ----------------------------------------------------------------------------------------------- device, properties

    def to(self, device: torch.device | str | None, *, non_blocking: bool = False) -> Self:
        r"""Return the same mask on another device; `None`, or the mask's own device, returns the mask itself.

        Properties that other methods need, such as `is_packed`, are computed before the move. So those methods do not
        wait for an accelerator.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2]).to("cpu")
            AttentionMask(rows=1, length=2, tokens=2, look_ahead=False, packed=False, device=cpu)
        """
        if device is None or self.documents.device == torch.device(device):
            return self
        moved = copy.copy(self)  # not a new object, whose checks would wait for the device
        moved.__dict__["_layout"] = self._layout
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                moved.__dict__[name] = value.to(device, non_blocking=non_blocking)
        return moved

    @property
    def is_packed(self) -> bool:
        """True if a row contains more than one document."""
        return not self._layout.one_document

    @property
    def is_cross(self) -> bool:
        """True if the mask was made by `cross`: tokens of one batch attend to tokens of another."""
        return self.queries is not None

    def __repr__(self) -> str:
        rows, length = self.documents.shape
        values: dict[str, Any] = {"rows": rows, "length": length, "tokens": int((self.documents >= 0).sum())}
        values |= {"look_ahead": self.look_ahead} if self.queries is None else {"queries": self.queries.shape[1]}
        values |= {} if self.window is None else {"window": self.window}
        values |= {} if self.prefix is None else {"prefix": int(self.prefix.sum())}
        words = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{type(self).__name__}({words}, packed={self.is_packed}, device={self.documents.device})"

    @lock_free_cache
    def _layout(self) -> Layout:
        return layout_of(self.documents, self.queries, self.look_ahead, self.window, self.prefix)

    @property
    def _numbers(self) -> Numbers:
        return small_numbers(self.documents, self.queries, self._layout.highest)

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        looking = self.documents if self.queries is None else self.queries
        return len(looking), 1, looking.shape[1], self.documents.shape[1]

    # ------------------------------------------------------------------------------------------------------ the matrix

    def dense(self, *, out: torch.Tensor | None = None) -> torch.Tensor:
        r"""Return the mask as a bool matrix for each row of the batch.

        Args:
            out (`torch.Tensor` bool, *optional*): contiguous tensor to write to, `(B, 1, Q, K)` or flat. A flat tensor
                may be larger; its first elements are used. Reuse it in a loop over batches: allocating new memory takes
                longer than computing the mask.

        Returns:
            `torch.Tensor` `(B, 1, Q, K)` bool on the mask's device, in new memory or in `out`. `[b, 0, i, j]` is True
            if query i may attend to key j. Each query has at least one key. Q = K = T, except for `cross`.

        Raises:
            ValueError: if `out` has another shape, dtype, or device, or is not contiguous; without `out`, if rows have
                more than 65,536 tokens.

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
        r"""Return the mask to add to attention scores: 0 at visible keys, a large negative number at hidden ones.

        Args:
            dtype (`torch.dtype`, *optional*, defaults to float32): dtype of the scores.
            value (`float`, *optional*, defaults to `torch.finfo(dtype).min`): the negative number, finite in `dtype`.
            out (`torch.Tensor` of `dtype`, *optional*): tensor to write to, as in `dense`.

        Returns:
            `torch.Tensor` `(B, 1, Q, K)` of `dtype` on the mask's device, in new memory or in `out`.

        Raises:
            ValueError: if `value` is not negative, or not finite in `dtype`; if `out` does not fit; without `out`, if
                rows have more than 65,536 tokens.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([1], 2).additive(value=-1e9)
            tensor([[[[ 0.0000e+00, -1.0000e+09],
                      [ 0.0000e+00, -1.0000e+09]]]])
        """
        low = additive_value(dtype, value)
        numbers = _Logic(lambda sees: additive_mask(sees, dtype, value=low), torch.minimum, torch.maximum)
        return self._fill(_memory(out, self._shape, dtype, self.documents.device), numbers)

    def _fill(self, out: torch.Tensor, logic: _Logic) -> torch.Tensor:
        """Write the mask to `out` `(B, 1, Q, K)` and return it; it is bool or additive, depending on `logic`."""
        layout, matrix = self._layout, out[:, 0]  # (B, Q, K)
        keys = visible_keys(self.documents)
        band_mask = band(layout, matrix.shape[-1], out.device)
        if not layout.one_document:
            self._same_document(keys, keys, matrix, logic)
            if band_mask is not None:
                logic.both(matrix, logic.convert(band_mask), out=matrix)
        elif band_mask is None:
            matrix.copy_(logic.convert(keys)[:, None, :].expand_as(matrix))
        else:
            logic.both(logic.convert(keys)[:, None, :], logic.convert(band_mask), out=matrix)
        if layout.prefix:
            assert self.prefix is not None  # or the layout would have none
            prefix_mask = self._same_document(self.prefix, torch.zeros_like(keys), torch.empty_like(matrix), logic)
            near = band(layout._replace(look_ahead=False), matrix.shape[-1], out.device)
            if near is not None:
                logic.both(prefix_mask, logic.convert(near), out=prefix_mask)
            logic.either(matrix, prefix_mask, out=matrix)
        # A softmax over hidden keys alone is NaN in `nn.MultiheadAttention`.
        if self.queries is None and (alone := queries_without_keys(self.documents, layout)) is not None:
            diagonal = matrix.diagonal(dim1=-2, dim2=-1)
            logic.either(diagonal, logic.convert(alone), out=diagonal)
        return out

    def _same_document(
        self, keys: torch.Tensor, at_padding: torch.Tensor, out: torch.Tensor, logic: _Logic
    ) -> torch.Tensor:
        """Write a mask to `out`, and return it: query i sees key j of its document if `keys[b, j]` is True."""
        # A query at padding sees the keys `at_padding[b]` instead. In cross-attention, if all keys of a row are
        # padding, the queries of the row see all these keys, as otherwise softmax would return NaN.
        numbers = self._numbers
        lines = torch.arange(numbers.total, device=keys.device)[:, None] == numbers.keys[:, None, :]  # (B, D, K)
        lines.logical_and_(keys[:, None, :])
        lines[:, 0] = at_padding
        if self.queries is not None:  # every query looks at a row that is all padding
            lines.logical_or_((self.documents < 0).all(dim=1)[:, None, None])
        index = numbers.queries + torch.arange(len(keys), device=keys.device)[:, None] * numbers.total  # (B, Q)
        lines = logic.convert(lines).flatten(0, 1)
        torch.index_select(lines, 0, index.flatten(), out=out.view(-1, out.shape[-1]))
        return out


NO_MATRIX = (  # fix of masks that are too large
    "mask.block_mask() for flex attention, or mask.varlen() for flash attention, which make no matrix; nor does "
    "mask.for_sdpa(), if only padding on the right and look-ahead hide tokens"
)


class _Logic(NamedTuple):
    """Functions to compute a mask in one form: bool, or additive (0 at visible keys, a negative number at hidden ones).

    `convert` makes this form from a bool mask. `both` is "and" of two masks of this form, and `either` is "or".
    """

    convert: Callable[[torch.Tensor], torch.Tensor]  # a small bool tensor to this form
    both: Callable[..., torch.Tensor]
    either: Callable[..., torch.Tensor]


_BOOL = _Logic(lambda sees: sees, torch.bitwise_and, torch.bitwise_or)


def _memory(out: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor of `shape` to write to: `out`, or a new one if `out` is `None`; raise if `out` does not fit."""
    if out is None:
        check_matrix("this form of the mask", shape, NO_MATRIX, dtype.itemsize)
        return torch.empty(shape, dtype=dtype, device=device)
    if not isinstance(out, torch.Tensor):
        raise type_error("out must be a tensor", got=shorten(out), fix=f"out=torch.empty({shape}, dtype={dtype})")
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
