"""The one run of keys that each query sees, where it is one: two numbers a query instead of a line of the matrix.

True of padding, documents, look-ahead, windows and prefixes at the beginning of a document; not of holes in a row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .layout import Layout, Numbers, numbers_of


class Runs(NamedTuple):
    """Query i of row b sees the keys `begin[b, i] <= j < stop[b, i]`; int64 `(B, Q)` each, never empty."""

    begin: torch.Tensor
    stop: torch.Tensor


class Spans(NamedTuple):
    """Of each document in a row, `(B, D)`; line 0 is the whole row. Where there are none, the first is K."""

    first: torch.Tensor
    after: torch.Tensor
    whole: torch.Tensor  # bool: nothing else stands between


def runs_of(
    documents: torch.Tensor, queries: torch.Tensor | None, prefix: torch.Tensor | None, layout: Layout
) -> Runs | None:
    r"""What each query sees, as a run; `None` where a query sees something that is not one.

    Args:
        documents, queries, prefix (`torch.Tensor`): as an `AttentionMask` holds them.
        layout (`Layout`): of the same.

    Returns:
        `Runs` on the device of `documents`.

    Example:
        >>> documents = torch.tensor([[0, 0, 1, 1, -1]])
        >>> layout = Layout(False, True, False, 1, look_ahead=True, window=None, prefix=False)
        >>> runs_of(documents, None, None, layout)
        Runs(begin=tensor([[0, 0, 2, 2, 0]]), stop=tensor([[1, 2, 3, 4, 4]]))
    """
    numbers = numbers_of(documents, queries, layout.highest)
    length = documents.shape[1]
    spans = spans_of(numbers, documents >= 0)
    fit = spans.whole.all()
    begin, stop = spans.first.gather(1, numbers.queries), spans.after.gather(1, numbers.queries)  # (B, Q)
    nothing = (documents < 0).all(dim=1, keepdim=True)  # such a row counts as real throughout
    begin, stop = begin.masked_fill_(nothing, 0), stop.masked_fill_(nothing, length)
    columns = torch.arange(begin.shape[1], device=documents.device)
    if layout.look_ahead:
        later = (columns + 1).expand_as(stop)
        if layout.prefix and prefix is not None:
            marked = spans_of(numbers, prefix)
            begins = (marked.first == spans.first) | (marked.after == 0)
            fit = fit & (begins & marked.whole)[:, 1:].all()  # a prefix in the middle of a document is none
            later = torch.where(numbers.queries > 0, later.maximum(marked.after.gather(1, numbers.queries)), later)
        stop = stop.minimum(later)
    if layout.window is not None:
        begin, stop = begin.maximum(columns - layout.window + 1), stop.minimum(columns + layout.window)
    if queries is None:
        alone = stop <= begin  # a query that sees nothing sees itself
        begin, stop = torch.where(alone, columns, begin), torch.where(alone, columns + 1, stop)
    return Runs(begin, stop) if bool(fit) else None


def spans_of(numbers: Numbers, keys: torch.Tensor) -> Spans:
    """Where those of `keys` `(B, K)` begin and end that belong to each document."""
    rows, length = numbers.keys.shape
    columns = torch.arange(length, device=keys.device).expand(rows, length)
    ids = torch.where(keys, numbers.keys, 0)
    first = torch.full((rows, numbers.total), length, device=keys.device).scatter_reduce_(1, ids, columns, "amin")
    after = torch.zeros_like(first).scatter_reduce_(1, ids, columns + 1, "amax")
    count = torch.zeros_like(first).scatter_add_(1, ids, keys.long())
    if length:  # what is no key was counted in line 0
        first[:, 0] = torch.where(keys, columns, length).amin(1)
        after[:, 0] = torch.where(keys, columns + 1, 0).amax(1)
        count[:, 0] = keys.sum(1)
    return Spans(first, after, (count == 0) | (after - first == count))
