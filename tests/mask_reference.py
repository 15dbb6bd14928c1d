"""A reference for masks, computed one pair at a time, and masks of all kinds for hypothesis."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from hf_posenc.masks import AttentionMask


def reference(mask: AttentionMask) -> torch.Tensor:
    """Return the dense form `(B, 1, Q, K)` bool by the definition in `hf_posenc.masks`, one pair at a time."""
    keys = mask.documents.tolist()
    queries = keys if mask.queries is None else mask.queries.tolist()
    prefix = None if mask.prefix is None else mask.prefix.tolist()
    answer = torch.zeros(len(queries), 1, real_queries(mask).shape[1], mask.documents.shape[1], dtype=torch.bool)
    for b, (looking, looked_at) in enumerate(zip(queries, keys, strict=True)):
        empty_row = all(document < 0 for document in looked_at)
        for i, query in enumerate(looking):
            for j, key in enumerate(looked_at):
                in_prefix = prefix is not None and prefix[b][j] and query == key
                answer[b, 0, i, j] = (
                    (key >= 0 or empty_row)
                    and (query < 0 or query == key or empty_row)
                    and (not mask.look_ahead or j <= i or in_prefix)
                    and (mask.window is None or abs(i - j) < mask.window)
                )
            if mask.queries is None and not answer[b, 0, i].any():
                answer[b, 0, i, i] = True
    return answer


def check_message(message: str, words: list[str]) -> None:
    """Check that a refusal has all of the `words`, and the lines with the given value and the fix."""
    _, got, fix = message.splitlines()
    assert got.startswith("  got: ")
    assert fix.startswith("  fix: ")
    assert not fix.endswith("None")
    for word in words:
        assert word in message


def real_queries(mask: AttentionMask) -> torch.Tensor:
    """Return the queries that are real tokens, `(B, Q)` bool."""
    return (mask.documents if mask.queries is None else mask.queries) >= 0


_SIDES: Any = st.sampled_from(["left", "right"])
_WINDOWS = st.one_of(st.none(), st.integers(1, 6))


@st.composite
def packed(draw: st.DrawFn) -> AttentionMask:
    """Draw rows of whole documents, with any of look-ahead, window and prefixes."""
    rows = draw(st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=4))
    settings: dict[str, Any] = {"window": draw(_WINDOWS), "padding_side": draw(_SIDES)}
    if draw(st.booleans()):
        each = [draw(st.integers(0, 5)) for _ in rows]
        settings |= {"look_ahead": True, "prefix": draw(st.sampled_from([None, 0, 1, 2, 9, each]))}
    return AttentionMask.from_documents(rows, max(1, *map(sum, rows)) + draw(st.integers(0, 2)), **settings)


@st.composite
def padded(draw: st.DrawFn) -> AttentionMask:
    """Draw one document per row, for which there are cheap forms."""
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    settings: dict[str, Any] = {"window": draw(_WINDOWS), "padding_side": draw(_SIDES)}
    if draw(st.booleans()):
        each = [draw(st.integers(0, 7)) for _ in lengths]
        settings |= {"look_ahead": True, "prefix": draw(st.sampled_from([None, None, 0, 2, 9, each]))}
    return AttentionMask.from_lengths(lengths, max(1, *lengths) + draw(st.integers(0, 2)), **settings)


@st.composite
def scattered(draw: st.DrawFn) -> AttentionMask:
    """Draw interleaved documents, padding between tokens, large numbers, prefixes in the middle."""
    rows, length = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    numbers = st.sampled_from([-1, 0, 1, 70_000])
    table = draw(st.lists(st.lists(numbers, min_size=length, max_size=length), min_size=rows, max_size=rows))
    look_ahead = draw(st.booleans())
    prefixes = draw(st.lists(st.lists(st.booleans(), min_size=length, max_size=length), min_size=rows, max_size=rows))
    batch = {"document_ids": torch.tensor(table)}
    prefix = torch.tensor(prefixes) if look_ahead and draw(st.booleans()) else None
    return AttentionMask.from_batch(batch, look_ahead=look_ahead, window=draw(_WINDOWS), prefix=prefix)


@st.composite
def crossed(draw: st.DrawFn) -> AttentionMask:
    """Draw cross-attention of two batches with the same documents; some rows of the source may be empty."""
    one_each = draw(st.booleans())
    counts = draw(st.lists(st.integers(0, 1 if one_each else 3), min_size=1, max_size=4))
    sides = []
    for _ in range(2):
        rows = [[draw(st.integers(1, 4)) for _ in range(count)] for count in counts]
        width = max(1, *map(sum, rows)) + draw(st.integers(0, 2))
        sides.append(AttentionMask.from_documents(rows, width, padding_side=draw(_SIDES)))
    target, source = sides
    if draw(st.booleans()):
        empty = torch.tensor([draw(st.booleans()) for _ in counts])
        source = AttentionMask(source.documents.masked_fill(empty[:, None], -1))
    return AttentionMask.cross(target, source)


to_itself = st.one_of(padded(), packed(), scattered())
any_description = st.one_of(to_itself, crossed())
