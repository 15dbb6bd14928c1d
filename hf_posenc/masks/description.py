"""A small description of who may attend to whom: one number a token, and how far a token may look.

It is made and moved here; nothing of size T×T is held, and the renderings are in the modules beside this one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain, shorten
from .checks import check_fields
from .layout import Layout, layout_of
from .plain import PaddingSide, padding_mask
from .prefixes import prefix_marks, prefix_marks_of_lengths
from .reading import documents_of_batch, documents_of_lengths


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """What an `AttentionMask` holds, and the ways to make one; see there."""

    documents: torch.Tensor
    look_ahead: bool = False
    window: int | None = None
    prefix: torch.Tensor | None = None
    queries: torch.Tensor | None = None

    def __post_init__(self) -> None:
        check_fields(self.documents, self.look_ahead, self.window, self.prefix, self.queries)

    @classmethod
    def from_batch(
        cls, batch: Mapping[str, Any], *, look_ahead: bool = False, window: int | None = None, prefix: Any = None
    ) -> Self:
        r"""Reads the description off a batch.

        Args:
            batch (mapping): with `attention_mask` `(B, T)`, 1 or True at real tokens. With `document_ids` `(B, T)`,
                tokens with equal numbers in a row are one document (negative: padding); else, with `position_ids`
                `(B, T)`, a document begins wherever they fall back to the first one, as those of packed rows do.
                Either may come without `attention_mask`.
            look_ahead, window (*optional*): as in `AttentionMask`.
            prefix (`int`, integers `(B,)` or bool `(B, T)`, *optional*): how many tokens at the beginning of every
                document, or of those of each row, all of the document may see; or which tokens those are.

        Returns:
            `AttentionMask` on the device of the batch (the CPU for arrays and lists); it shares no memory with it.

        Raises:
            ValueError: if the batch has none of the three, or shapes do not fit.
            TypeError: if `batch` is not a mapping.

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
        return cls(documents, look_ahead, window, prefix_marks(documents, prefix))

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
        r"""One document a row, of the given lengths.

        Args:
            lengths (`torch.Tensor`, `np.ndarray` or sequence of `int`, `(B,)`): real tokens in each row; 0 is allowed.
            max_length (`int`, *optional*): T; by default the largest length.
            look_ahead, window (*optional*): as in `AttentionMask`.
            prefix (`int` or integers `(B,)`, *optional*): how many tokens at the beginning everyone may see.
            padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.
            device (*optional*): where to render; by default the device of `lengths`.

        Returns:
            `AttentionMask`.

        Raises: as `padding_mask`.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2, 2]).for_sdpa()     # nothing to hide
            {}
        """
        real = padding_mask(lengths, max_length, padding_side=padding_side)
        documents = real.long() - 1
        return cls(documents, look_ahead, window, prefix_marks(documents, prefix)).to(device)

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
        r"""Packed rows: several documents in one row, which do not see each other.

        Args:
            documents (sequence of sequences of `int`): for each row the lengths of its documents, in order.
            max_length (`int`, *optional*): T; by default the sum of the fullest row.
            look_ahead, window (*optional*): as in `AttentionMask`.
            prefix (`int`, or sequence of sequences of `int`, *optional*): how many tokens at the beginning of every
                document, or of each one, all of it may see.
            padding_side (`"left"` or `"right"`, *optional*, defaults to `"right"`): where the padding is.
            device (*optional*): where to render; by default the CPU.

        Returns:
            `AttentionMask`.

        Raises:
            ValueError: if a document has no tokens, or a row more than `max_length`.
            TypeError: if the lengths are not whole numbers.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_documents([[3, 1]], 5, look_ahead=True, prefix=[[2, 0]]).dense()[0, 0].int()
            tensor([[1, 1, 0, 0, 0],
                    [1, 1, 0, 0, 0],
                    [1, 1, 1, 0, 0],
                    [0, 0, 0, 1, 0],
                    [1, 1, 1, 1, 0]], dtype=torch.int32)
        """
        table = documents_of_lengths(documents, max_length, padding_side)
        marks = prefix_marks(table, prefix_marks_of_lengths(documents, table, prefix))
        return cls(table, look_ahead, window, marks).to(device)

    @classmethod
    def cross(cls, queries: Description, keys: Description) -> Self:
        r"""Cross-attention: the tokens of one batch look at those of another.

        A query may see every real token of the document with its own number: for `from_lengths` the whole row, for
        `from_documents` the n-th document of one row looks at the n-th of the other. Look-ahead, window and prefix of
        either belong to its attention to itself and are left out.

        Args:
            queries (`AttentionMask`): of the batch that looks, the decoder's, `(B, Q)`.
            keys (`AttentionMask`): of the batch that is looked at, the encoder's, `(B, K)`.

        Returns:
            `AttentionMask` whose forms are `(B, 1, Q, K)`, on the device of `keys`.

        Raises:
            ValueError: if they have different numbers of rows, or a document of queries has no keys.
            TypeError: if one of them is no description.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> target, source = AttentionMask.from_documents([[1, 2]]), AttentionMask.from_documents([[2, 1]])
            >>> AttentionMask.cross(target, source).dense()[0, 0].int()
            tensor([[1, 1, 0],
                    [0, 0, 1],
                    [0, 0, 1]], dtype=torch.int32)
        """
        for name, given in (("queries", queries), ("keys", keys)):
            if not isinstance(given, Description) or given.queries is not None:
                raise TypeError(
                    explain(
                        f"{name} must be the AttentionMask of one batch",
                        got="a cross description" if isinstance(given, Description) else shorten(given),
                        fix="AttentionMask.cross(AttentionMask.from_batch(target), AttentionMask.from_batch(source))",
                    )
                )
        looking = queries.documents.to(keys.documents.device)
        return cls(keys.documents, queries=looking)

    def to(self, device: torch.device | str | None, *, non_blocking: bool = False) -> Self:
        r"""The same description with its renderings on another device; `None` is where it is.

        What is known about padding goes along, so that rendering on an accelerator does not wait for it.

        Example:
            >>> from hf_posenc import AttentionMask
            >>> AttentionMask.from_lengths([2]).to("cpu")
            AttentionMask(rows=1, length=2, tokens=2, look_ahead=False, packed=False, device=cpu)
        """
        if device is None or self.documents.device == torch.device(device):
            return self
        moved = copy.copy(self)  # not a new one: what is checked once need not be waited for again
        moved.__dict__["_layout"] = self._layout
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                moved.__dict__[name] = value.to(device, non_blocking=non_blocking)
        return moved

    @property
    def is_packed(self) -> bool:
        """Whether a row holds more than one document."""
        return not self._layout.one_document

    @property
    def is_cross(self) -> bool:
        """Whether the tokens of one batch look at those of another."""
        return self.queries is not None

    @cached_property
    def _layout(self) -> Layout:
        return layout_of(self.documents, self.queries, self.look_ahead, self.window, self.prefix)

    def __repr__(self) -> str:
        rows, length = self.documents.shape
        said: dict[str, Any] = {"rows": rows, "length": length, "tokens": int((self.documents >= 0).sum())}
        said |= {"look_ahead": self.look_ahead} if self.queries is None else {"queries": self.queries.shape[1]}
        said |= {} if self.window is None else {"window": self.window}
        said |= {} if self.prefix is None else {"prefix": int(self.prefix.sum())}
        words = ", ".join(f"{name}={value}" for name, value in said.items())
        return f"{type(self).__name__}({words}, packed={self.is_packed}, device={self.documents.device})"
