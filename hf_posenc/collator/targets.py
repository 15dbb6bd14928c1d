"""Targets: token sequences of their own, held to a limit; the labels and the decoder's inputs made from them.

NumPy only: a forked worker may run it. Models that shift labels themselves get labels alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain
from ..ragged import PaddingSide, Ragged
from .labels import IGNORED


def held(targets: Ragged, limit: int | None, *, cuts: bool, whose: str | None) -> tuple[Ragged, int]:
    r"""Targets that came as ids, held to a limit; what loses take no notice of (-100) at their ends goes first.

    Args:
        targets (`Ragged` of int64): one row a text.
        limit (`int`, *optional*): how many tokens a target may have.
        cuts (`bool`): whether longer ones are cut, or refused.
        whose (`str`, *optional*): the model whose limit it is.

    Returns:
        The targets, and how many of them lost tokens.

    Raises:
        ValueError: for a target that is too long and may not be cut.

    Example:
        >>> cut, lost = held(Ragged.from_rows([[5, 6, 7], [8, -100, -100]]), 2, cuts=True, whose=None)
        >>> cut.values, lost
        (array([5, 6, 8]), 1)
    """
    if limit is None or targets.longest <= limit:
        return targets, 0
    rows, lost = [], 0
    for index, row in enumerate(targets):
        real = np.flatnonzero(row != IGNORED)
        kept = row if len(row) <= limit else row[real[0] : real[-1] + 1] if len(real) else row[:0]
        if len(kept) > limit and not cuts:
            raise ValueError(
                explain(
                    f"the target of row {index} has {len(kept)} tokens, limit {limit}",
                    got="truncation off" + (f", and {whose} takes no more" if whose is not None else ""),
                    fix="truncation=True cuts, or drop such rows first",
                )
            )
        lost += len(kept) > limit
        rows.append(kept[:limit])
    return Ragged.from_rows(rows, name="labels"), lost


def decoder_inputs(labels: NDArray[np.int64], start: int, padding: int, side: PaddingSide) -> dict[str, NDArray[Any]]:
    r"""What a decoder reads while it learns to write the labels: the same, one to the right, after a start token.

    Args:
        labels (`np.ndarray` `(B, T)` int64): -100 at padding, and wherever a token is not to be predicted.
        start, padding (`int`): token ids.
        side (`"left"` or `"right"`): where padding is.

    Returns:
        `dict` of `decoder_input_ids` and `decoder_attention_mask`, `(B, T)` int64: 1 where a token is known that stands
        before a label. A row without any label has its start token alone, so that no row is empty.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1 (outputs shifted right). arXiv:1706.03762.

    Example:
        >>> made = decoder_inputs(np.array([[5, 6, 7], [8, -100, -100]]), 1, 0, "right")
        >>> made["decoder_input_ids"], made["decoder_attention_mask"]
        (array([[1, 5, 6],
               [1, 0, 0]]), array([[1, 1, 1],
               [1, 0, 0]]))
    """
    rows, length = labels.shape
    real = labels != IGNORED  # (B, T)
    edge = 0 if side == "right" else length - 1
    found = real.any(axis=1)
    first = np.where(found, real.argmax(axis=1), edge)
    last = np.where(found, length - 1 - real[:, ::-1].argmax(axis=1), edge)
    columns = np.arange(length)
    before = np.full_like(labels, IGNORED)
    before[:, 1:] = labels[:, :-1]
    known = (before != IGNORED) & (columns > first[:, None]) & (columns <= last[:, None])
    ids = np.where(known, before, padding)
    ids[np.arange(rows), first] = start
    known[np.arange(rows), first] = True
    return {"decoder_input_ids": ids, "decoder_attention_mask": known.astype(np.int64)}
