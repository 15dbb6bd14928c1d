"""Properties of a mask, computed from its document numbers: the kinds of keys it hides, and the keys of each query.

All arrays have a few numbers per token or per document. Only the matrix of `band` is T×T; all rows share it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from .attention_mask import AttentionMask


class Layout(NamedTuple):
    """Properties of a mask, made by `layout_of`, by which the methods of `AttentionMask` choose the cheapest result.

    All are plain Python values, so reading them does not wait for an accelerator; making them does. In `full` and
    `from_the_start`, the tokens of a row without real tokens count as real.

    Args:
        full (`bool`): True if no key is padding.
        from_the_start (`bool`): True if no real key comes after padding.
        one_document (`bool`): True if no row has more than one document.
        highest (`int`): the highest document number, or a larger one; -1 if all tokens are padding.
        look_ahead (`bool`): True if later keys are hidden.
        window (`int`, *optional*): the window of the mask; `None` if it has none, or one that hides nothing.
        prefix (`bool`): True if a prefix shows keys that look-ahead would hide.
    """

    full: bool
    from_the_start: bool
    one_document: bool
    highest: int
    look_ahead: bool
    window: int | None
    prefix: bool

    @property
    def hides_padding_alone(self) -> bool:
        """True if nothing but padding is hidden: each query may attend to all real tokens of its row."""
        return self.one_document and not self.look_ahead and self.window is None

    @property
    def same_for_all_rows(self) -> bool:
        """True if one `(T, T)` mask, of look-ahead and window only, is right for the real tokens of all rows.

        Each row must have one document, and no prefix. Padding is allowed only on the right and with look-ahead, which
        hides it from real tokens. False if look-ahead and window hide nothing.
        """
        return (
            self.one_document
            and not self.prefix
            and (self.full or (self.look_ahead and self.from_the_start))
            and not self.hides_padding_alone
        )


def layout_of(mask: AttentionMask) -> Layout:
    r"""Return the `Layout` of a mask, its properties as plain Python values.

    A look-ahead, window or prefix that changes nothing for this batch is reported as `False` or `None`.

    Example:
        >>> from hf_posenc import AttentionMask
        >>> layout = layout_of(AttentionMask.from_lengths([3], 4, look_ahead=True, window=9))
        >>> layout.full, layout.from_the_start, layout.window     # a window of 9 hides none of 4 tokens
        (False, True, None)
    """
    documents, prefix = mask.documents, mask.prefix
    keys = visible_keys(documents)
    gap_before = keys[:, 1:] & ~keys[:, :-1]  # a real token right after padding
    tokens = documents if mask.queries is None else torch.cat([mask.queries, documents], dim=1)
    largest = tokens.amax(dim=-1, keepdim=True) if tokens.numel() else tokens
    is_other = (tokens >= 0) & (tokens != largest)
    shows = everywhere = torch.zeros((), dtype=torch.bool, device=documents.device)
    if prefix is not None:
        # The first token is visible to all of its document anyway.
        shows, everywhere = (prefix & (rank_in_document(documents) > 0)).any(), prefix.all()
    highest = largest.amax() if largest.numel() else torch.full_like(shows, -1, dtype=torch.int64)
    # One transfer for all values, because each transfer from an accelerator synchronizes with it.
    answers = (~keys.all(), gap_before.any(), is_other.any(), shows, everywhere, highest)
    padded, gaps, several, shown, all_visible, number = torch.stack([x.long() for x in answers]).tolist()
    hides_later = mask.look_ahead and not all_visible
    return any_layout(mask)._replace(
        full=not padded,
        from_the_start=not gaps,
        one_document=not several,
        highest=max(number, -1),
        look_ahead=hides_later,
        prefix=bool(shown) and hides_later,
    )


def any_layout(mask: AttentionMask) -> Layout:
    """Return the `Layout` of a mask whose document numbers are unknown: one that fits all of them."""
    length = mask.documents.shape[1]
    return Layout(
        full=False,
        from_the_start=False,
        one_document=False,
        highest=sys.maxsize,
        look_ahead=mask.look_ahead,
        window=None if mask.window is None or mask.window >= length else int(mask.window),
        prefix=mask.prefix is not None,
    )


def visible_keys(documents: torch.Tensor) -> torch.Tensor:
    """Return a mask `(B, K)` bool, True at real tokens; in a row without real tokens, True at all tokens.

    `documents` `(B, K)` is negative at padding.
    """
    is_real = documents >= 0
    return is_real | ~is_real.any(dim=-1, keepdim=True)


def band(layout: Layout, length: int, device: torch.device) -> torch.Tensor | None:
    r"""Return the mask `(length, length)` bool of look-ahead and window alone, True at visible keys.

    Return `None` if look-ahead and window hide nothing.

    Example:
        >>> layout = Layout(True, True, True, 0, look_ahead=True, window=2, prefix=False)
        >>> band(layout, 3, torch.device("cpu")).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    if not layout.look_ahead and layout.window is None:
        return None
    mask = torch.ones(length, length, dtype=torch.bool, device=device)
    if layout.look_ahead:
        mask.tril_()
    elif layout.window is not None:
        mask.tril_(layout.window - 1)
    return mask if layout.window is None else mask.triu_(1 - layout.window)


def queries_without_keys(documents: torch.Tensor, layout: Layout) -> torch.Tensor | None:
    """Return a mask `(B, T)` bool, True at queries from which look-ahead and window hide all real tokens.

    All such queries are padding, because real tokens see themselves. `None` if `layout` excludes such queries.
    """
    if layout.window is None and (not layout.look_ahead or layout.from_the_start):
        return None
    length = documents.shape[1]
    counted = torch.nn.functional.pad(visible_keys(documents).long().cumsum(1), (1, 0))  # (B, T + 1)
    columns = torch.arange(length, device=documents.device)
    reach = length if layout.window is None else layout.window
    begin, stop = (columns - reach + 1).clamp(min=0), columns + (1 if layout.look_ahead else reach)
    return counted[:, stop.clamp(max=length)] == counted[:, begin]


def rank_in_document(documents: torch.Tensor) -> torch.Tensor:
    r"""Return for each token the number of earlier tokens of its document, `(B, T)`; documents may be interleaved.

    Example:
        >>> rank_in_document(torch.tensor([[4, 4, 9, 4]]))
        tensor([[0, 1, 0, 2]])
    """
    order = documents.argsort(dim=1, stable=True)
    grouped = documents.gather(1, order)
    columns = torch.arange(documents.shape[1], device=documents.device)
    return torch.empty_like(order).scatter_(1, order, columns - torch.searchsorted(grouped, grouped))


class Numbers(NamedTuple):
    """Result of `small_numbers`: document numbers of queries and keys, 0 at padding, else from 1 to `total - 1`."""

    queries: torch.Tensor  # (B, Q) int64
    keys: torch.Tensor  # (B, K) int64
    total: int  # exclusive upper bound of all numbers


def small_numbers(mask: AttentionMask, highest: int) -> Numbers:
    r"""Renumber documents to small integers, so that a table with one entry per document stays small.

    Example:
        >>> from hf_posenc import AttentionMask
        >>> small_numbers(AttentionMask(torch.tensor([[7000, 7000, -1, 12]])), 7000)
        Numbers(queries=tensor([[2, 2, 0, 1]]), keys=tensor([[2, 2, 0, 1]]), total=3)
    """
    tokens = mask.documents if mask.queries is None else torch.cat([mask.queries, mask.documents], dim=1)
    tokens = tokens.long().clamp(min=-1)
    if highest < tokens.shape[1]:
        numbers, total = tokens + 1, highest + 2
    else:  # document numbers of a whole corpus, or unknown ones: count those of each row
        order = tokens.argsort(dim=1)
        grouped = tokens.gather(1, order)
        begins = grouped.diff(dim=1, prepend=torch.full_like(grouped[:, :1], -1)) != 0
        numbers = torch.empty_like(grouped).scatter_(1, order, begins.cumsum(1))
        # The largest number is not worth waiting for a device.
        total = int(numbers.max()) + 1 if tokens.device.type == "cpu" else tokens.shape[1] + 1
    if mask.queries is None:
        return Numbers(numbers, numbers, total)
    split = mask.queries.shape[1]
    return Numbers(numbers[:, :split], numbers[:, split:], total)


class Spans(NamedTuple):
    """Column range of each document, made by `spans_of`: three tensors `(B, N)`, indexed by row and document number.

    Document numbers are those from `small_numbers`, 1 to N - 1. Index 0 is for all tokens of the row together.

    Args:
        first (`torch.Tensor` int64): column of the first token; the number of columns if there are no tokens.
        after (`torch.Tensor` int64): column of the last token plus one; 0 if there are no tokens.
        whole (`torch.Tensor` bool): True if the tokens are next to each other, or there are none.
    """

    first: torch.Tensor
    after: torch.Tensor
    whole: torch.Tensor


def spans_of(numbers: Numbers, keys: torch.Tensor) -> Spans:
    """Return the column range of each document, computed only from tokens where `keys` `(B, K)` bool is True.

    `numbers` is the result of `small_numbers`.
    """
    rows, length = numbers.keys.shape
    columns = torch.arange(length, device=keys.device).expand(rows, length)
    ids = torch.where(keys, numbers.keys, 0)
    first = torch.full((rows, numbers.total), length, device=keys.device).scatter_reduce_(1, ids, columns, "amin")
    after = torch.zeros_like(first).scatter_reduce_(1, ids, columns + 1, "amax")
    count = torch.zeros_like(first).scatter_add_(1, ids, keys.long())
    if length:  # entry 0 was also filled by the tokens that are not keys
        first[:, 0] = torch.where(keys, columns, length).amin(1)
        after[:, 0] = torch.where(keys, columns + 1, 0).amax(1)
        count[:, 0] = keys.sum(1)
    return Spans(first, after, (count == 0) | (after - first == count))
