"""`AttentionMask`: which tokens of a batch may attend to which, in a few numbers per token.

Its methods return the mask as tensors and arguments: `matrix` and `flex` write the large ones, and `hugging_face`
chooses the form that a model takes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.constants import PaddingSide
from .._common.errors import shorten, type_error, value_error
from .._common.integers import as_integer
from ..ragged import lock_free_cache
from .document_numbers import READ, check_cross, documents_of_batch, documents_of_lengths, prefix_tokens
from .flex import block_mask
from .functions import additive_mask, additive_value, as_integer_tensor, padding_mask
from .hugging_face import mask_for_model
from .matrix import BOOL, NO_MATRIX, Logic, matrix_of
from .structure import Layout, Numbers, any_layout, band, layout_of, small_numbers, visible_keys
from .triangle import check_matrix

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class Varlen(NamedTuple):
    """Arguments for flash-attn and `varlen_attn`, which take all real tokens of a batch as one flat row of N documents.

    `AttentionMask.varlen` makes it. `cu_seqlens` holds the index of the first token of each document, and the number of
    tokens at the end. `max_seqlen` is the length of the longest document.
    """

    cu_seqlens: torch.Tensor  # (N + 1,) int32
    max_seqlen: int


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMask:
    r"""Attention mask of a batch, for padding, packed documents, look-ahead, windows and prefixes.

    A token may attend to the real tokens of its own document. With `look_ahead`, it may attend only to itself, earlier
    tokens, and the prefix of its document. With `window`, it may attend only to tokens at a distance below `window`.

    Make a mask with `from_batch`, `from_lengths` or `from_documents`. `cross` combines two masks into one for
    cross-attention, where the tokens of one batch attend to the tokens of another. A mask stores a few numbers per
    token, and nothing of size T×T.

    Its methods, such as `dense`, `for_sdpa` and `for_hf`, return the mask as a tensor or as arguments for a function or
    model. All methods hide the same keys from real tokens. Every query keeps at least one key, so softmax gives no NaN.
    The docs of `hf_posenc.masks` say what True means for each method, and which keys a query at padding sees.

    Args:
        documents (`torch.Tensor` `(B, T)`, integer): the document of each token; negative at padding. Numbers are
            compared within a row only.
        look_ahead (`bool`, *optional*, defaults to `False`): hide later tokens (causal attention).
        window (`int`, *optional*): hide tokens at this distance or more, before or after: a window of 2 shows a token
            and its direct neighbors. It also hides the tokens of a prefix. By default there is no window.
        prefix (`torch.Tensor` `(B, T)` bool, *optional*): True at tokens that all tokens of their document may attend
            to, even earlier ones. Requires `look_ahead=True`.
        queries (`torch.Tensor` `(B, Q)`, integer, *optional*): for cross-attention, the document of each query;
            `documents` are then those of the keys. `cross` sets it.

    Raises:
        ValueError: if `documents` does not have two dimensions, if `window` is not positive, if `prefix` has another
            shape or comes without `look_ahead=True`, or if `queries` come with look-ahead, window or prefix.
        TypeError: if `documents` are not integers, or `window` is not one.

    Example:
        >>> mask = AttentionMask.from_lengths([3, 2], look_ahead=True)
        >>> mask
        AttentionMask(rows=2, length=3, tokens=5, look_ahead=True, packed=False, device=cpu)
        >>> mask.for_sdpa()     # look-ahead hides right padding from real tokens
        {'is_causal': True}
        >>> mask.dense()[1, 0]     # the third token of this row is padding
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True, False]])
    """

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
            is_bool = isinstance(self.prefix, torch.Tensor) and self.prefix.dtype == torch.bool
            if not is_bool or self.prefix.shape != shape:
                raise value_error(
                    f"prefix must be a bool mask in the shape {tuple(shape)} of documents",
                    got=shorten(self.prefix),
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
                - `position_ids`: a document begins wherever positions fall back to the smallest of their row, as in
                  0 1 2 0 1. Beside `document_ids` they must agree; on an accelerator they are then not read.

                With `attention_mask` alone, each row is one document. Keys of other libraries, such as `seq_idx` and
                `cu_seq_lens_q`, are read as well.
            look_ahead, window (*optional*): as in `AttentionMask`. A `look_ahead_mask` in the batch is not read.
            prefix (`int`, integers `(B,)` or bool `(B, T)`, *optional*): tokens that all tokens of their document may
                attend to, even earlier ones. An `int` n means the first n tokens of every document, integers `(B,)` an
                n for each row, and a bool mask is True at such tokens. Requires `look_ahead=True`.

        A `Batch` that its `to` moved to an accelerator is checked on the CPU, where its values still are. Values of
        other mappings on an accelerator are not checked, because that would wait for the device, and the methods of
        their masks return a form that is right for any values: `for_sdpa` returns a mask where `is_causal=True` may be
        enough. Masks of four dimensions, and lengths or offsets of documents alone, are read on the CPU.

        Returns:
            `AttentionMask` on the device of the batch (the CPU for arrays and lists), in new memory.

        Raises:
            ValueError: if the batch has none of these keys, if their shapes differ, or if `window` or `prefix` is
                invalid.
            TypeError: if `batch` is not a mapping, or ids are not integers.

        Example:
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
        mask = cls(documents, look_ahead, window, prefix_tokens(documents, prefix))
        near = getattr(batch, "_near", {})  # of a `Batch`: its values that are known on the CPU
        is_known = all(name in near for name in READ if name in batch)
        if mask._near is None and is_known and str(getattr(prefix, "device", "cpu")) == "cpu":
            vars(mask)["_twin"] = cls.from_batch(near, look_ahead=look_ahead, window=window, prefix=prefix)
        return mask

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
            prefix (`int`, integers `(B,)` or bool `(B, T)`, *optional*): tokens that all tokens of their document may
                attend to, even earlier ones, as in `from_batch`. Requires `look_ahead=True`, which hides later tokens.
            padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.
            device (*optional*): device of the mask; by default the CPU.

        Returns:
            `AttentionMask`.

        Raises:
            ValueError: if a row has more than `max_length` tokens, or if `window`, `prefix` or `padding_side` is
                invalid.
            TypeError: if the lengths are not integers.

        Example:
            >>> # Token 0 sees token 1 of its prefix. The last line is padding, which sees all real tokens before it.
            >>> AttentionMask.from_documents([[3, 1]], 5, look_ahead=True, prefix=2).dense()[0, 0].int()
            tensor([[1, 1, 0, 0, 0],
                    [1, 1, 0, 0, 0],
                    [1, 1, 1, 0, 0],
                    [0, 0, 0, 1, 0],
                    [1, 1, 1, 1, 0]], dtype=torch.int32)
        """
        table = documents_of_lengths(documents, max_length, padding_side)
        return cls(table, look_ahead, window, prefix_tokens(table, prefix)).to(device)

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
            ValueError: if the numbers of rows differ, or a document in `queries` has no tokens in `keys`. Document
                numbers are not checked if they are known on an accelerator only.
            TypeError: if `queries` or `keys` is not an `AttentionMask`, or was itself made by `cross`.

        Example:
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
        mask = cls(keys.documents, queries=queries.documents.to(keys.documents.device))
        if mask._near is None and queries._near is not None and keys._near is not None:
            vars(mask)["_twin"] = cls.cross(queries._near, keys._near)
        return mask

    # ----------------------------------------------------------------------------------------------- device, properties

    def to(self, device: torch.device | str | None, *, non_blocking: bool = False) -> Self:
        r"""Return the same mask on another device; `None`, or the mask's own device, returns the mask itself.

        The mask on the device keeps the one on the CPU. So properties that other methods need, such as `is_packed`, are
        computed there, and those methods do not wait for an accelerator.

        Example:
            >>> AttentionMask.from_lengths([2]).to("cpu")
            AttentionMask(rows=1, length=2, tokens=2, look_ahead=False, packed=False, device=cpu)
        """
        if device is None or self.documents.device == torch.device(device):
            return self
        moved = copy.copy(self)
        vars(moved)["_twin"] = self._near
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                vars(moved)[name] = value.to(device, non_blocking=non_blocking)
        return moved

    @property
    def is_packed(self) -> bool:
        """True if a row contains more than one document."""
        return not self._layout.one_document

    def __repr__(self) -> str:
        rows, length = self.documents.shape
        values: dict[str, Any] = {"rows": rows, "length": length, "tokens": int((self.documents >= 0).sum())}
        values |= {"look_ahead": self.look_ahead} if self.queries is None else {"queries": self.queries.shape[1]}
        values |= {} if self.window is None else {"window": self.window}
        values |= {} if self.prefix is None else {"prefix": int(self.prefix.sum())}
        words = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{type(self).__name__}({words}, packed={self.is_packed}, device={self.documents.device})"

    @property
    def _near(self) -> Self | None:
        """Equal mask on the CPU, whose values can be read without waiting; `None` if there is none."""
        return self if self.documents.device.type == "cpu" else vars(self).get("_twin")

    @lock_free_cache
    def _layout(self) -> Layout:
        return layout_of(self._near or self)

    @property
    def _known(self) -> Layout:
        """Layout as far as it is known without waiting for a device."""
        return self._layout if self._near is not None else any_layout(self)

    @property
    def _numbers(self) -> Numbers:
        return small_numbers(self, self._known.highest)

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
            >>> AttentionMask.from_lengths([4], look_ahead=True, window=2).dense()[0, 0].int()
            tensor([[1, 0, 0, 0],
                    [1, 1, 0, 0],
                    [0, 1, 1, 0],
                    [0, 0, 1, 1]], dtype=torch.int32)
            >>> buffer = torch.empty(1000, dtype=torch.bool)
            >>> AttentionMask.from_lengths([1], 2).dense(out=buffer).data_ptr() == buffer.data_ptr()
            True
        """
        return matrix_of(self, torch.bool, BOOL, out)

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
            >>> AttentionMask.from_lengths([1], 2).additive(value=-1e9)
            tensor([[[[ 0.0000e+00, -1.0000e+09],
                      [ 0.0000e+00, -1.0000e+09]]]])
        """
        low = additive_value(dtype, value)
        numbers = Logic(lambda sees: additive_mask(sees, dtype, value=low), torch.minimum, torch.maximum)
        return matrix_of(self, dtype, numbers, out)

    # ------------------------------------------------------------------------------------------------ torch's attention

    def for_sdpa(self) -> dict[str, Any]:
        r"""Return keyword arguments for `torch.nn.functional.scaled_dot_product_attention` on `(B, heads, T, width)`.

        Returns:
            `dict` with at most one key:

            - empty if nothing is hidden;
            - `is_causal=True`, which is faster than a mask, if look-ahead alone is enough. It also hides right padding,
              because that comes later than all real tokens;
            - otherwise `attn_mask`, bool, True = may be attended to. Its shape is `(B, 1, 1, K)` for padding alone,
              `(1, 1, T, T)` if all rows have the same mask, else `(B, 1, Q, K)`.

        Example:
            >>> AttentionMask.from_lengths([2, 1], look_ahead=True).for_sdpa()
            {'is_causal': True}
            >>> AttentionMask.from_lengths([2, 1]).for_sdpa()["attn_mask"].shape
            torch.Size([2, 1, 1, 2])
        """
        layout = self._known
        if layout.hides_padding_alone:
            return {} if layout.full else {"attn_mask": visible_keys(self.documents)[:, None, None, :]}
        if layout.same_for_all_rows:
            # 17 to 21 % faster than the same attention with a mask, and equal at all real tokens.
            return {"is_causal": True} if layout.window is None else {"attn_mask": self._band()[None, None]}
        return {"attn_mask": self.dense()}

    def for_multihead_attention(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for `torch.nn.MultiheadAttention`, where True means "must not be attended to".

        Args:
            num_heads (`int`, *optional*): the module's `num_heads`. Required only if the rows of the batch need
                different `(Q, K)` matrices: for packed rows, prefixes, left padding with look-ahead or a window, and
                right padding with a window alone. The module then takes a matrix for each row and head. Without it,
                values that are known on an accelerator only are waited for.

        Returns:
            `dict` with at most one bool tensor; empty if nothing is hidden.

            - `key_padding_mask` `(B, K)` if only padding is hidden.
            - `attn_mask` otherwise: `(Q, K)` if all rows share it, else `(B * num_heads, Q, K)`.

            Never both, because together they could leave a query without keys.

        Raises:
            ValueError: if `num_heads` is required and missing.

        Example:
            >>> AttentionMask.from_lengths([2, 1]).for_multihead_attention()
            {'key_padding_mask': tensor([[False, False],
                    [False,  True]])}
            >>> left = AttentionMask.from_lengths([2, 1], look_ahead=True, padding_side="left")
            >>> left.for_multihead_attention(num_heads=4)["attn_mask"].shape
            torch.Size([8, 2, 2])
        """
        rows = self._shape[0]
        layout = self._layout if num_heads is None and rows > 1 else self._known
        if layout.hides_padding_alone:
            return {} if layout.full else {"key_padding_mask": ~visible_keys(self.documents)}
        if layout.same_for_all_rows:
            return {"attn_mask": ~self._band()}
        if rows == 1:
            return {"attn_mask": self.dense()[0, 0].logical_not_()}
        if num_heads is None:
            raise value_error(
                "num_heads is required if rows need different masks, for packed documents, prefixes, or padding beside "
                "look-ahead or a window: torch's modules take one mask a row and head",
                got=f"num_heads=None for {self!r}",
                fix="num_heads=module.num_heads (of a TransformerEncoder, encoder.layers[0].self_attn.num_heads)",
            )
        heads = as_integer(num_heads, "num_heads", minimum=1, example="module.num_heads")
        # The first dimension is (batch, head), with the heads of a row next to each other.
        return {"attn_mask": self.dense().logical_not_().expand(-1, heads, -1, -1).flatten(0, 1)}

    def for_transformer_encoder(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for the forward of `torch.nn.TransformerEncoder`.

        Args:
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` with at most one bool tensor, True = must not be attended to: `src_key_padding_mask` if only padding
            is hidden, otherwise `mask`. Empty if nothing is hidden.

        Raises:
            ValueError: if `num_heads` is required and missing, or this is a mask of cross-attention.

        Example:
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder()
            {'mask': tensor([[False,  True],
                    [False, False]])}
        """
        return self._of_self_attention()._named(num_heads, padding="src_key_padding_mask", matrix="mask")

    def for_transformer_encoder_layer(self, num_heads: int | None = None) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for the forward of one `torch.nn.TransformerEncoderLayer`.

        Arguments, result and errors are those of `for_transformer_encoder`, but the key `mask` is `src_mask` here.

        Example:
            >>> AttentionMask.from_lengths([1], 2, look_ahead=True).for_transformer_encoder_layer()
            {'src_mask': tensor([[False,  True],
                    [False, False]])}
        """
        return self._of_self_attention()._named(num_heads, padding="src_key_padding_mask", matrix="src_mask")

    def for_transformer_decoder(
        self, memory: Self | None = None, num_heads: int | None = None
    ) -> dict[str, torch.Tensor]:
        r"""Return keyword arguments for `torch.nn.TransformerDecoder`, or one of its layers; `self` masks its target.

        Args:
            memory (`AttentionMask`, *optional*): mask of the encoder's batch, or a mask made by `cross`. Without it,
                the target attends to all memory tokens, even padding.
            num_heads (`int`, *optional*): as in `for_multihead_attention`.

        Returns:
            `dict` of bool tensors, True = must not be attended to: at most one of `tgt_mask` and
            `tgt_key_padding_mask`, and at most one of `memory_mask` and `memory_key_padding_mask`.

        Raises:
            ValueError: if `num_heads` is required and missing, if this is a mask of cross-attention, or if target and
                memory have different numbers of rows or different documents (see `cross`). torch raises if a mask made
                by `cross` does not fit.

        Example:
            >>> target, source = AttentionMask.from_lengths([2, 1], look_ahead=True), AttentionMask.from_lengths([1, 3])
            >>> target.for_transformer_decoder(source)
            {'tgt_mask': tensor([[False,  True],
                    [False, False]]), 'memory_key_padding_mask': tensor([[False,  True,  True],
                    [False, False, False]])}
        """
        arguments = self._of_self_attention()._named(num_heads, padding="tgt_key_padding_mask", matrix="tgt_mask")
        if memory is None:
            return arguments
        is_cross = isinstance(memory, type(self)) and memory.queries is not None
        across = memory if is_cross else self.cross(self, memory)
        return arguments | across._named(num_heads, padding="memory_key_padding_mask", matrix="memory_mask")

    def block_mask(self, block_size: int = 128) -> BlockMask:
        r"""Return the `block_mask` argument for torch's `flex_attention`; all heads share it.

        Its blocks equal those of torch's `create_block_mask`, which is slower because it evaluates each pair of tokens.
        Hugging Face models with `attn_implementation="flex_attention"` accept the result as `attention_mask`.

        Args:
            block_size (`int`, *optional*, defaults to 128): number of queries, and of keys, in a block.

        Returns:
            `torch.nn.attention.flex_attention.BlockMask` `(B, 1, Q, K)` on the mask's device. Its full blocks are those
            in which every query sees every key; `flex_attention` evaluates no mask there.

        Raises:
            ValueError: if `block_size` is not positive.

        Example:
            >>> mask = AttentionMask.from_documents([[128, 128, 256]], look_ahead=True).block_mask()
            >>> mask.to_dense()[0, 0]     # 1 for blocks of 128 tokens with a visible key
            tensor([[1, 0, 0, 0],
                    [0, 1, 0, 0],
                    [0, 0, 1, 0],
                    [0, 0, 1, 1]], dtype=torch.int32)
            >>> mask.full_kv_num_blocks.tolist()     # one full block: queries 384 to 511, keys 256 to 383
            [[[0, 0, 0, 1]]]
        """
        return block_mask(self, block_size)

    def varlen(self) -> Varlen:
        r"""Return the cumulative lengths of the documents, for kernels that take all real tokens as one flat row.

        The flat row is `x[mask.documents >= 0]` for a batch `x` `(B, T, ...)`. The result does not contain look-ahead
        and window: pass them to the kernel, such as `causal=True, window_size=(window - 1, 0)` for both.

        Returns:
            `Varlen`: `cu_seqlens` `(N + 1,)` int32 on the mask's device, from 0 to the number of real tokens,
            and `max_seqlen`, the length of the longest document.

        Raises:
            ValueError: if the mask has prefixes, is of cross-attention, or has a document whose tokens are not next to
                each other.

        Example:
            >>> AttentionMask.from_documents([[2, 3], [4]]).varlen()
            Varlen(cu_seqlens=tensor([0, 2, 5, 9], dtype=torch.int32), max_seqlen=4)
        """
        if self.queries is not None:
            _refuse_varlen("cross-attention has lengths of two sides", "queries.varlen() and keys.varlen()")
        if self.prefix is not None and self._layout.prefix:
            _refuse_varlen("cumulative lengths cannot express a prefix", "block_mask(), or dense()")
        near = self._near
        if near is not None and near is not self:
            offsets, longest = near.varlen()
            return Varlen(offsets.to(self.documents.device, non_blocking=True), longest)
        numbers, device, size = self._numbers, self.documents.device, self.documents.numel()
        first = torch.arange(len(self.documents), device=device)[:, None] * numbers.total
        of_token, is_real = (numbers.keys + first).flatten(), (self.documents >= 0).flatten()
        # The documents of all real tokens in order, between places for -1.
        flat = torch.full((size + 2,), -1, device=device)
        flat.scatter_(0, torch.where(is_real, is_real.cumsum(0), size + 1), of_token)[-1] = -1
        changes = flat[1:] != flat[:-1]  # at each offset
        lengths = torch.zeros(len(numbers.keys) * numbers.total + 1, dtype=torch.int64, device=device)
        lengths.scatter_add_(0, of_token, is_real.long())
        # The only values that are read, because each transfer from an accelerator synchronizes with it.
        count, documents, longest = torch.stack((changes.sum(), (lengths > 0).sum(), lengths.amax())).tolist()
        if count - 1 > documents:
            _refuse_varlen(
                "the tokens of a document must be next to each other", "sort the tokens of each row by document"
            )
        offsets = torch.zeros(count + 2, dtype=torch.int32, device=device)
        place = torch.where(changes, changes.cumsum(0) - 1, count + 1)
        offsets.scatter_(0, place, torch.arange(size + 1, dtype=torch.int32, device=device))
        return Varlen(offsets[: max(count, 1)], longest)

    def for_hf(
        self,
        model_or_spec: Any,
        *,
        dims: Literal[2, 4] | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
    ) -> Any:
        r"""Return this mask as the `attention_mask` argument of a Hugging Face model.

        Args:
            model_or_spec (`PreTrainedModel` or `ModelSpec`): the model, or its `ModelSpec.of(model)`. A model is run on
                a few tokens in each call; a `ModelSpec` is not, so it is faster.
            dims (2 or 4, *optional*): number of dimensions; by default two if they can express the mask, else four.
            position_ids (`torch.Tensor` `(B, T)` or `(1, T)`, *optional*): the position ids passed to the model. If
                they restart with each document, some models need no mask.
            use_cache (`bool`, *optional*): the value passed to the model. By default, the value in the model's
                configuration; True for a `ModelSpec`.

        Returns:
            One of three forms:

            - `torch.Tensor` `(B, K)` int64, 1 at real tokens, if the mask hides only padding and tokens that the model
              hides itself, such as later tokens in a causal model.
            - `None` for packed documents, if the model itself separates documents where `position_ids` restart. This
              requires `position_ids`, and no cache (`use_cache=False`).
            - `torch.Tensor` `(B, 1, T, T)` in the model's dtype for all other masks: packed documents, windows,
              prefixes, and later tokens in a model that is not causal. It is 0 at visible keys and the lowest finite
              number at hidden ones. It also hides later tokens if the model is causal, and includes the model's window.
              If layers have different windows and a document is longer than the window, the result is a `dict` of such
              tensors, one for each kind of layer.

        Raises:
            ValueError: if the model takes no mask of the required form, if `dims=2` cannot express the mask, or if
                `position_ids` restart in the middle of a document or have another shape.

        Example:
            >>> from hf_posenc import AttentionMask, ModelSpec
            >>> bert = ModelSpec(name="Bert", accepts=("input_ids", "attention_mask"), takes_4d_mask=True)
            >>> AttentionMask.from_lengths([2, 1]).for_hf(bert)
            tensor([[1, 1],
                    [1, 0]])
            >>> AttentionMask.from_documents([[2, 1]]).for_hf(bert).shape
            torch.Size([1, 1, 3, 3])
        """
        return mask_for_model(self, model_or_spec, dims, position_ids, use_cache)

    # --------------------------------------------------------------------------------------------------------- private

    def _band(self) -> torch.Tensor:
        check_matrix("this form of the mask", self._shape[2:], NO_MATRIX)
        mask = band(self._known, self.documents.shape[1], self.documents.device)
        assert mask is not None  # look-ahead or window hide something
        return mask

    def _of_self_attention(self) -> Self:
        """Return this mask; raise if it is a mask of cross-attention."""
        if self.queries is None:
            return self
        raise value_error(
            "this form needs a mask of self-attention, and this one is of cross-attention",
            got=repr(self),
            fix="target.for_transformer_decoder(memory=cross), or cross.for_multihead_attention()",
        )

    def _named(self, num_heads: int | None, *, padding: str, matrix: str) -> dict[str, torch.Tensor]:
        """Return the result of `for_multihead_attention`, with its keys renamed for another module."""
        names = {"key_padding_mask": padding, "attn_mask": matrix}
        return {names[name]: mask for name, mask in self.for_multihead_attention(num_heads).items()}


def _refuse_varlen(rule: str, fix: str) -> None:
    raise value_error(rule, got="varlen()", fix=fix)
