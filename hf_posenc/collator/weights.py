"""Tables and encodings as plain values: a digest that tells them apart, and all of their numbers for a journey.

Numbers and settings only, never code: what does more than its class says is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from .._explain import explain
from ..embedding import PositionalEmbedding
from ..sinusoid import KINDS, PositionalEncoding, SinusoidalPositionalEncoding, positional_encoding

Packed = tuple[bytes, tuple[int, ...], str]


def digest(table: nn.Embedding) -> str:
    r"""A fingerprint of a table's numbers, shape and dtype: other weights give another one.

    Example:
        >>> one, other = nn.Embedding.from_pretrained(torch.eye(2)), nn.Embedding.from_pretrained(torch.zeros(2, 2))
        >>> digest(one) == digest(other)
        False
    """
    import xxhash

    hashed = xxhash.xxh3_128(_bytes(table.weight).data)
    hashed.update(
        f"{tuple(table.weight.shape)} {table.weight.dtype} {type(table).__qualname__} {table.max_norm}".encode()
    )
    return str(hashed.hexdigest())


def digest_with(table: nn.Embedding, encoding: PositionalEncoding) -> str:
    r"""A fingerprint of a table together with an encoding: its kind, its settings, its weights.

    Example:
        >>> table, learned = nn.Embedding.from_pretrained(torch.eye(2)), positional_encoding("learned", 2)
        >>> before = digest_with(table, learned)
        >>> nn.init.zeros_(learned.weight).shape, digest_with(table, learned) == before
        (torch.Size([512, 2]), False)
    """
    import xxhash

    hashed = xxhash.xxh3_128(f"{digest(table)} {type(encoding).__qualname__} {sorted(_settings(encoding))!r}".encode())
    for name, values in encoding.state_dict().items():
        hashed.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
        hashed.update(_bytes(values).data)
    return str(hashed.hexdigest())


def own_encoding(embedding: object) -> PositionalEncoding | None:
    r"""The encoding of a `PositionalEmbedding`, if it is one that a collator's own settings could not describe.

    Example:
        >>> own_encoding(PositionalEmbedding(nn.Embedding(3, 2), convention="marian")) is None
        True
        >>> own_encoding(PositionalEmbedding(nn.Embedding(3, 2), encoding="none"))
        NoPositionalEncoding(2, scale=None, dropout=0.0, max_length=None)
    """
    if not isinstance(embedding, PositionalEmbedding):
        return None
    encoding = embedding.encoding
    described = type(encoding) is SinusoidalPositionalEncoding and encoding.max_length is None
    return None if described else encoding


def kind_of(encoding: PositionalEncoding) -> str:
    r"""What to write for it: the name of its kind, or its class where it is somebody's own.

    Example:
        >>> kind_of(positional_encoding("fourier", 4))
        "'fourier'"
    """
    known = [repr(kind) for kind, made in KINDS.items() if made is type(encoding)]
    return known[0] if known else f"{type(encoding).__name__}(...)"


def packed(table: nn.Embedding) -> Packed:
    r"""A table as plain values, for pickling; `unpacked` is the way back.

    Raises:
        ValueError: for a subclass of `nn.Embedding`, whose own settings nobody knows here.
    """
    if type(table) is not nn.Embedding or table.max_norm is not None:
        raise ValueError(
            explain(
                "store_embeddings lets a plain nn.Embedding travel; this one does more than look rows up",
                got=f"{type(table).__name__}, max_norm={table.max_norm}",
                fix="nn.Embedding.from_pretrained(table(torch.arange(table.num_embeddings)))",
            )
        )
    return _numbers(table.weight)


def unpacked(values: bytes, shape: tuple[int, ...], dtype: str) -> nn.Embedding:
    r"""A frozen table on the CPU, from what `packed` gave.

    Example:
        >>> unpacked(*packed(nn.Embedding.from_pretrained(torch.eye(2)))).weight
        Parameter containing:
        tensor([[1., 0.],
                [0., 1.]])
    """
    return frozen(_tensor(values, shape, dtype))


def packed_with(embedding: PositionalEmbedding) -> tuple[Any, ...]:
    r"""A table together with its encoding as plain values; `unpacked_with` is the way back.

    Raises:
        ValueError: for an encoding of somebody's own, or a table that is not plain.
    """
    encoding = embedding.encoding
    if type(encoding) not in KINDS.values():
        raise ValueError(
            explain(
                "store_embeddings lets the kinds of positional_encoding travel; this one has code of its own",
                got=type(encoding).__name__,
                fix=f"store_embeddings=False, or one of {', '.join(KINDS)}",
            )
        )
    kind = next(kind for kind, made in KINDS.items() if made is type(encoding))
    weights = tuple((name, _numbers(values)) for name, values in encoding.state_dict().items())
    return packed(embedding.embedding), kind, _settings(encoding), weights, embedding.zero_padding


def unpacked_with(
    table: Packed, kind: Any, settings: tuple[tuple[str, Any], ...], weights: Any, zero_padding: bool
) -> PositionalEmbedding:
    r"""A frozen `PositionalEmbedding` on the CPU, from what `packed_with` gave.

    Example:
        >>> embed = PositionalEmbedding(nn.Embedding(3, 2), encoding="fourier")
        >>> again, ids = unpacked_with(*packed_with(embed)), torch.tensor([[2, 0, 1]])
        >>> torch.equal(again(ids), embed(ids))
        True
    """
    rows = unpacked(*table)
    encoding = positional_encoding(kind, rows.embedding_dim, **dict(settings))
    encoding.load_state_dict({name: _tensor(*values) for name, values in weights}, assign=True)
    return PositionalEmbedding(rows, encoding=encoding.requires_grad_(False), zero_padding=zero_padding)


def frozen(weight: torch.Tensor) -> nn.Embedding:
    """A table of these numbers, without gradient."""
    rows, width = weight.shape
    return nn.Embedding(rows, width, _weight=weight, _freeze=True)


def _settings(encoding: PositionalEncoding) -> tuple[tuple[str, Any], ...]:
    return tuple(encoding.settings().items())


def _numbers(values: torch.Tensor) -> Packed:
    return _bytes(values).tobytes(), tuple(values.shape), str(values.dtype)


def _tensor(values: bytes, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    numbers = torch.from_numpy(np.frombuffer(values, dtype=np.uint8).copy())
    return numbers.view(getattr(torch, dtype.removeprefix("torch."))).view(shape)


def _bytes(weight: torch.Tensor) -> np.ndarray[Any, Any]:
    flat = weight.detach().cpu().contiguous().view(-1)
    array: np.ndarray[Any, Any] = flat.view(torch.uint8).numpy()
    return array
