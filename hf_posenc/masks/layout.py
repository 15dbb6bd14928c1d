"""What decides which rendering is the cheapest, and the few arrays that all renderings start from.

Everything here has one number a token, or one bool a row and length; T×T is made in `dense` alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .prefixes import rank_in_document


class Layout(NamedTuple):
    """Plain values: caching them shares no memory with anything."""

    full: bool  # no padding among the keys
    from_the_start: bool  # no padding before a real key: right padding, or none
    one_document: bool  # in each row
    highest: int  # document number, -1 for none
    look_ahead: bool  # whether something later is hidden
    window: int | None  # where it hides something
    prefix: bool  # whether it shows something that look-ahead would hide


def layout_of(
    documents: torch.Tensor,
    queries: torch.Tensor | None,
    look_ahead: bool,
    window: int | None,
    prefix: torch.Tensor | None,
) -> Layout:
    r"""The layout of a description; settings that change nothing are left out of it.

    Example:
        >>> layout = layout_of(torch.tensor([[0, 0, 0, -1]]), None, True, window=9, prefix=None)
        >>> layout.full, layout.from_the_start, layout.window
        (False, True, None)
    """
    keys = visible_keys(documents)
    gap_before = keys[:, 1:] & ~keys[:, :-1]  # a real token right after padding
    everyone = documents if queries is None else torch.cat([queries, documents], dim=1)
    largest = everyone.amax(dim=-1, keepdim=True) if everyone.numel() else everyone
    another = (everyone >= 0) & (everyone != largest)
    shows = ahead = torch.zeros((), dtype=torch.bool, device=documents.device)
    if prefix is not None:
        # A first token is seen by all of its document anyway.
        shows, ahead = (prefix & (rank_in_document(documents) > 0)).any(), prefix.all()
    # One transfer for all answers: on an accelerator each would wait for the device.
    highest = largest.amax() if largest.numel() else torch.full_like(shows, -1, dtype=torch.int64)
    answers = torch.stack([x.long() for x in (~keys.all(), gap_before.any(), another.any(), shows, ahead, highest)])
    padded, gaps, several, shown, all_ahead, number = answers.tolist()
    hides_later = look_ahead and not all_ahead
    return Layout(
        full=not padded,
        from_the_start=not gaps,
        one_document=not several,
        highest=max(number, -1),
        look_ahead=hides_later,
        window=None if window is None or window >= documents.shape[1] else int(window),
        prefix=bool(shown) and hides_later,
    )


def visible_keys(documents: torch.Tensor) -> torch.Tensor:
    """Which keys may be seen at all, `(B, K)` bool, fresh: the real tokens; every one where a row has none."""
    real = documents >= 0
    return real | ~real.any(dim=-1, keepdim=True)


def band(layout: Layout, length: int, device: torch.device) -> torch.Tensor | None:
    r"""What look-ahead and window leave, the same for all rows: `(T, T)` bool, fresh; `None` where they hide nothing.

    Example:
        >>> layout = Layout(True, True, True, 0, look_ahead=True, window=2, prefix=False)
        >>> band(layout, 3, torch.device("cpu")).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    if not layout.look_ahead and layout.window is None:
        return None
    seen = torch.ones(length, length, dtype=torch.bool, device=device)
    if layout.look_ahead:
        seen.tril_()
    elif layout.window is not None:
        seen.tril_(layout.window - 1)
    return seen if layout.window is None else seen.triu_(1 - layout.window)


def sees_nothing(documents: torch.Tensor, layout: Layout) -> torch.Tensor | None:
    """Queries for which look-ahead and window leave no key, `(B, T)` bool; `None` where there are none for sure.

    Only queries at padding can be among them, because real ones see themselves.
    """
    if layout.window is None and (not layout.look_ahead or layout.from_the_start):
        return None
    length = documents.shape[1]
    counted = torch.nn.functional.pad(visible_keys(documents).long().cumsum(1), (1, 0))  # (B, T + 1)
    columns = torch.arange(length, device=documents.device)
    reach = length if layout.window is None else layout.window
    begin, stop = (columns - reach + 1).clamp(min=0), columns + (1 if layout.look_ahead else reach)
    return counted[:, stop.clamp(max=length)] == counted[:, begin]


class Numbers(NamedTuple):
    """Documents counted from 1 in each row, the same for queries and keys; 0 is padding."""

    queries: torch.Tensor  # (B, Q) int64
    keys: torch.Tensor  # (B, K) int64
    total: int  # no number reaches it


def numbers_of(documents: torch.Tensor, queries: torch.Tensor | None, highest: int) -> Numbers:
    r"""Small numbers for the documents, as they are needed for tables with one line for each.

    Example:
        >>> numbers_of(torch.tensor([[7000, 7000, -1, 12]]), None, 7000)
        Numbers(queries=tensor([[2, 2, 0, 1]]), keys=tensor([[2, 2, 0, 1]]), total=3)
    """
    everyone = documents if queries is None else torch.cat([queries, documents], dim=1)
    everyone = everyone.long().clamp(min=-1)
    if highest < everyone.shape[1]:
        numbers, total = everyone + 1, highest + 2
    else:  # numbers of a whole corpus: count what a row has
        order = everyone.argsort(dim=1)
        grouped = everyone.gather(1, order)
        begins = torch.ones_like(grouped)
        begins[:, :1] = grouped[:, :1] >= 0
        begins[:, 1:] = grouped[:, 1:] != grouped[:, :-1]
        numbers = torch.empty_like(grouped).scatter_(1, order, begins.cumsum(1))
        total = int(numbers.max()) + 1
    split = 0 if queries is None else queries.shape[1]
    return Numbers(numbers[:, :split] if split else numbers[:, split:], numbers[:, split:], total)
