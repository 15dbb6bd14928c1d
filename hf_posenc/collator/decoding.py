"""Decoding of ids to tokens and texts, for batches, labels and results of `generate`. -100 is not a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._explain import explain, shorten
from ..batch import real_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def ids_of(given: Any) -> list[list[int]]:
    r"""Return token ids, one list per row.

    Args:
        given: a batch with `input_ids` (B, T), or ids as a tensor, an array or lists.

    Raises:
        ValueError: for a batch without ids, or ids that are not rows of integers.

    Example:
        >>> ids_of({"input_ids": [[5, 6], [7, 0]]})
        [[5, 6], [7, 0]]
    """
    if isinstance(given, Mapping):
        if "input_ids" not in given:
            raise ValueError(
                explain(
                    "a batch of embeddings alone holds no tokens to read",
                    got=f"keys {list(given)}",
                    fix="collate.replace(embedding=None, model=None)(rows)",
                )
            )
        given = given["input_ids"]
    rows = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError(
            explain(
                "ids to be read come as rows, (batch, length)",
                got=shorten(given),
                fix="a batch, batch['labels'], model.generate(...), or one row as [row]",
            )
        )
    return rows


def tokens_of(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    """Return the token of every id. A negative number, which is not an id, is returned as a string."""
    tokens = tokenizer.convert_ids_to_tokens([max(token, 0) for token in ids])
    return [str(token) if number >= 0 else str(number) for token, number in zip(tokens, ids, strict=True)]


def texts_of(tokenizer: PreTrainedTokenizerBase, given: Any, *, skip_special_tokens: bool) -> list[str]:
    """Return the text of every row, without the padding in its mask and without negative numbers."""
    ids = ids_of(given)
    known = real_tokens(given) if isinstance(given, Mapping) else None
    keep = [[True] * len(row) for row in ids] if known is None else known.tolist()
    texts = []
    for row, real in zip(ids, keep, strict=True):
        tokens = [token for token, is_real in zip(row, real, strict=True) if is_real and token >= 0]
        texts.append(str(tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)))
    return texts
