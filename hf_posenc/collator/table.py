"""The table behind `embedding=`: made from a width, kept by reference, or known only by its digest.

How ids become vectors is `embedding.py`; this module says which table, and recognises it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from .._explain import explain
from ..embedding import PositionalEmbedding
from ..tokenization.loading import number_of_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TableLeftBehind:
    """A table that did not travel with a pickled or saved collator: what it was, so that another is told apart."""

    num_embeddings: int
    d_model: int
    digest: str

    def refusal(self) -> str:
        """The message for whoever asks it for embeddings."""
        return explain(
            "the embedding table did not travel with this collator, so it cannot embed",
            got=f"a copy from a pickle or a folder; the table had {self.num_embeddings} rows of width {self.d_model}",
            fix="collate.replace(embedding=table), or store_embeddings=True to let the table travel",
        )


def table_of_width(width: int, tokenizer: PreTrainedTokenizerBase, seed: int, device: Any) -> nn.Embedding:
    r"""A frozen table of normal random numbers, the same wherever it is made: for demos and as fixed features.

    Args:
        width (`int`): D.
        tokenizer (`PreTrainedTokenizerBase`): gives the number of rows.
        seed (`int`): of the random numbers.
        device (`torch.device` or `str`, *optional*): where the table lies.

    Returns:
        `nn.Embedding` of float32, without gradient.
    """
    rows = number_of_ids(tokenizer)
    values = np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)
    return _frozen(torch.from_numpy(values).to(device or "cpu"))


def check_table(embedding: object, rows_needed: int) -> None:
    r"""Raises unless `embedding` can embed every id of the tokenizer.

    Raises:
        ValueError: if the table has fewer rows than the tokenizer has ids.
        TypeError: if it is no table (the wording of models is `PositionalEmbedding`'s).
    """
    if isinstance(embedding, bool) or (isinstance(embedding, int) and embedding < 1):
        raise ValueError(
            explain("embedding as a width must be a positive whole number", got=embedding, fix="embedding=512")
        )
    table = embedding.embedding if isinstance(embedding, PositionalEmbedding) else embedding
    if isinstance(table, nn.Embedding) and table.num_embeddings < rows_needed:
        raise ValueError(
            explain(
                f"tokenizer has {rows_needed} ids, the embedding has {table.num_embeddings} rows; "
                f"call model.resize_token_embeddings({rows_needed})",
                got="ids beyond the last row, which crash on a GPU",
                fix=f"model.resize_token_embeddings({rows_needed}), then model.get_input_embeddings()",
            )
        )


def digest(table: nn.Embedding) -> str:
    r"""A fingerprint of a table's numbers, shape and dtype: other weights give another one.

    Example:
        >>> one, other = nn.Embedding.from_pretrained(torch.eye(2)), nn.Embedding.from_pretrained(torch.zeros(2, 2))
        >>> digest(one) == digest(other)
        False
    """
    import xxhash

    hashed = xxhash.xxh3_128(_bytes(table.weight).data)
    hashed.update(f"{tuple(table.weight.shape)} {table.weight.dtype} {type(table).__qualname__}".encode())
    return str(hashed.hexdigest())


def packed(table: nn.Embedding) -> tuple[bytes, tuple[int, ...], str]:
    r"""A table as plain values, for pickling; `unpacked` is the way back.

    Raises:
        ValueError: for a subclass of `nn.Embedding`, whose own settings nobody knows here.
    """
    if type(table) is not nn.Embedding:
        raise ValueError(
            explain(
                "store_embeddings lets a plain nn.Embedding travel; this one has code of its own",
                got=type(table).__name__,
                fix="nn.Embedding.from_pretrained(table(torch.arange(table.num_embeddings)))",
            )
        )
    return _bytes(table.weight).tobytes(), tuple(table.weight.shape), str(table.weight.dtype)


def unpacked(values: bytes, shape: tuple[int, ...], dtype: str) -> nn.Embedding:
    r"""A frozen table on the CPU, from what `packed` gave.

    Example:
        >>> unpacked(*packed(nn.Embedding.from_pretrained(torch.eye(2)))).weight
        Parameter containing:
        tensor([[1., 0.],
                [0., 1.]])
    """
    numbers = torch.from_numpy(np.frombuffer(values, dtype=np.uint8).copy())
    weight = numbers.view(getattr(torch, dtype.removeprefix("torch."))).view(shape)
    return _frozen(weight)


def _frozen(weight: torch.Tensor) -> nn.Embedding:
    rows, width = weight.shape
    return nn.Embedding(rows, width, _weight=weight, _freeze=True)


def _bytes(weight: torch.Tensor) -> np.ndarray[Any, Any]:
    flat = weight.detach().cpu().contiguous().view(-1)
    array: np.ndarray[Any, Any] = flat.view(torch.uint8).numpy()
    return array
