"""The `embedding=` of a collator: a table made from a width, a given table, or the digest of a missing one.

`hf_posenc.embedding` turns ids into vectors. This module holds the table, and compares, pickles and saves it as numbers
and settings, never as code.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from .._explain import as_integer, explain
from ..batch import Batch, real_tokens
from ..embedding import PositionalEmbedding
from ..sinusoid import (
    KINDS,
    PositionalEncoding,
    SinusoidalPositionalEncoding,
    positional_encoding,
    resolve_convention,
)
from ..tokenization.loading import number_of_ids
from .settings import MissingTable, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


Packed = tuple[bytes, tuple[int, ...], str]

# Settings of a collator that a given `PositionalEmbedding` overrides.
EMBEDDING_SETTINGS = ("convention", "base", "scale", "dropout", "zero_padding")


class Embedder:
    r"""Embedding of a collator: checked at construction, made into a `PositionalEmbedding` on first use.

    Args:
        settings (`Settings`): its `embedding`, `device`, `seed` and `EMBEDDING_SETTINGS` are read.
        tokenizer (`PreTrainedTokenizerBase`): its number of ids is read.

    Raises:
        ValueError: if the table has fewer rows than the tokenizer has ids, or two settings disagree.
        TypeError: if `embedding` is not a table; for a model the message has two fixes.
    """

    def __init__(self, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> None:
        self._given = settings
        self._tokenizer = tokenizer
        given = settings.embedding
        self.missing = given if isinstance(given, MissingTable) else None
        self.rows: int | None = None
        if given is None or self.missing is not None:
            return
        if isinstance(given, int):
            as_integer(given, "embedding", minimum=1, example=512)
        needed = number_of_ids(tokenizer)
        if isinstance(given, int):
            if settings.dropout:
                raise ValueError(
                    explain(
                        "dropout is for a table that is trained, and a width makes a frozen one",
                        got=f"embedding={given}, dropout={settings.dropout}",
                        fix="embedding=nn.Embedding(len(tokenizer), 512)",
                    )
                )
            self.rows = needed
            return
        if settings.device is not None:
            raise ValueError(
                explain(
                    "device= is for the table made from a width; a given table stays on its device",
                    got=f"device={settings.device!r}",
                    fix="embedding=table.to(device)",
                )
            )
        self.rows = self.module.num_embeddings  # raises if it is not a table
        if self.rows < needed:
            raise ValueError(too_few_rows(needed, self.rows))

    @cached_property
    def module(self) -> PositionalEmbedding:
        """The `PositionalEmbedding`, made on first use, so that a worker that never embeds allocates no table."""
        settings, given = self._given, self._given.embedding
        if isinstance(given, PositionalEmbedding):
            return given
        table: Any = given
        if isinstance(given, int):
            table = table_of_width(given, number_of_ids(self._tokenizer), settings.seed or 0, settings.device)
        return PositionalEmbedding(
            table,
            convention=settings.convention,
            base=settings.base,
            scale=settings.scale,
            dropout=settings.dropout,
            zero_padding=settings.zero_padding,
        )

    def ready(self) -> PositionalEmbedding:
        """Return the module, in the training mode of the given table; raise if the table is missing."""
        if self.missing is not None:
            raise ValueError(self.missing.message())
        if self.module is not self._given.embedding:
            self.module.train(self.module.embedding.training)
        return self.module

    @property
    def is_training(self) -> bool:
        """True if the table is in training mode and any weight requires a gradient."""
        return self.ready().training and any(weight.requires_grad for weight in self.module.parameters())

    def embed(self, batch: Batch) -> Batch:
        """Return a new batch on the table's device, with `inputs_embeds` (B, T, D) from the current weights."""
        module = self.ready()
        moved = batch.to(module.embedding.weight.device)
        keep = moved.get("attention_mask")
        if keep is None or keep.ndim == 4:
            keep = real_tokens(moved)
        moved["inputs_embeds"] = module(moved["input_ids"], keep, moved.get("position_ids"))
        return moved

    @property
    def max_length(self) -> int | None:
        """Number of positions that can be encoded; `None` if unlimited."""
        if self.missing is not None:
            return self.missing.max_length
        encoding = own_encoding(self._given.embedding)
        return None if encoding is None else encoding.max_length

    @cached_property
    def settings(self) -> dict[str, Any]:
        r"""`EMBEDDING_SETTINGS` of the given `PositionalEmbedding`, or else of the collator.

        Raises:
            ValueError: if both are set to different values.
        """
        given = {name: getattr(self._given, name) for name in EMBEDDING_SETTINGS}
        if not isinstance(self._given.embedding, PositionalEmbedding):
            return given
        encoding = self.module.encoding
        own = {name: getattr(encoding, name) for name in EMBEDDING_SETTINGS if hasattr(encoding, name)}
        own["zero_padding"] = self.module.zero_padding
        defaults = {field.name: field.default for field in dataclasses.fields(self._given)}
        for name, value in given.items():
            theirs = own.get(name, f"encoding={kind_of(encoding)}")
            ours = resolve_convention(value) if name == "convention" else value
            if value != defaults[name] and ours != theirs:
                raise ValueError(
                    explain(
                        f"{name}= is set by the PositionalEmbedding that was given",
                        got=f"{name}={value!r}, and {theirs!r} in the embedding",
                        fix=f"leave {name}= out, or give its table: embedding=embedding.embedding",
                    )
                )
        return given | own

    def state(self, *, numbers: bool) -> Any:
        """Return plain values that identify the table; with `numbers` they include all of its weights."""
        given = self._given.embedding
        if given is None or isinstance(given, int):
            return given
        if isinstance(given, MissingTable):
            own = () if given.encoding is None else (given.encoding, given.max_length)
            return "left behind", given.num_embeddings, given.d_model, given.digest, *own
        module, encoding = self.module, own_encoding(given)
        table = module.embedding
        if numbers:
            return ("table", *packed(table)) if encoding is None else ("embedding", *packed_with(module))
        left = "left behind", table.num_embeddings, table.embedding_dim
        if encoding is None:
            return *left, digest(table)
        return *left, digest_with(table, encoding), kind_of(encoding), encoding.max_length

    @property
    def stored_dtype(self) -> torch.dtype:
        """Dtype of stored embeddings: the table's, but float32 for bfloat16, which NumPy and Arrow do not have."""
        dtype = self.ready().embedding.weight.dtype
        return torch.float32 if dtype == torch.bfloat16 else dtype

    def size_of_stored(self, tokens: int) -> str:
        """Return a warning about the size of stored embeddings."""
        per_token = self.module.d_model * self.stored_dtype.itemsize
        return explain(
            f"store_embeddings writes {per_token:,} bytes per token, {per_token // 4} times what ids take",
            got=f"{tokens * per_token / 1e6:,.1f} MB for the {tokens:,} tokens of this call",
            fix="store ids and embed when collating: it is faster than reading embeddings back",
        )

    def __repr__(self) -> str:
        given = self._given.embedding
        if given is None or isinstance(given, (int, MissingTable)):
            return repr(given)
        table, encoding = self.module.embedding, own_encoding(given)
        own = "" if encoding is None else f", encoding={kind_of(encoding)}"
        return f"{type(given).__name__}({table.num_embeddings}, {table.embedding_dim}{own})"


def from_state(state: Any) -> Any:
    """Return the `embedding=` argument for a result of `Embedder.state`."""
    if state is None or isinstance(state, int):
        return state
    kind, *values = state
    made: dict[str, Any] = {"table": unpacked, "embedding": unpacked_with}
    return made.get(kind, MissingTable)(*values)


def check_exchange(old: Any, new: Any) -> None:
    r"""Raise if a plain table or a width replaces an embedding with other positions than sinusoids.

    Args:
        old: the `embedding=` of a collator, or a `MissingTable`.
        new: its replacement.

    Raises:
        ValueError: the message has the argument that keeps the positions.
    """
    encoding = own_encoding(old)
    kind = old.encoding if isinstance(old, MissingTable) else None if encoding is None else kind_of(encoding)
    if kind is not None and isinstance(new, int | nn.Embedding):
        raise ValueError(
            explain(
                "a bare table would get sinusoids, and this collator has other positions",
                got=f"embedding={type(new).__name__}, and encoding={kind} before",
                fix=f"embedding=PositionalEmbedding(table, encoding={kind}), with its own weights; or "
                "PositionalEmbedding(table) for sinusoids",
            )
        )


def too_few_rows(needed: int, rows: int, *, of: str | None = None) -> str:
    """Return the message for a table, or for the model with name `of`, that has fewer rows than the tokenizer ids."""
    return explain(
        f"tokenizer has {needed} ids, the embedding has {rows} rows; call model.resize_token_embeddings({needed})",
        got=f"ids beyond the last row{'' if of is None else f' of {of}'}, which crash on a GPU",
        fix=f"model.resize_token_embeddings({needed}), then "
        + ("model.get_input_embeddings()" if of is None else "make the collator"),
    )


def table_of_width(width: int, rows: int, seed: int, device: Any) -> nn.Embedding:
    r"""Return a frozen table of normally distributed random numbers, the same on every machine.

    Args:
        width (`int`): width D of the rows.
        rows (`int`): number of rows, one per id.
        seed (`int`): seed of the random numbers.
        device (`torch.device` or `str`, *optional*): device of the table.

    Returns:
        `nn.Embedding` of float32, without gradient.
    """
    values = np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)
    return frozen(torch.from_numpy(values).to(device or "cpu"))


# ------------------------------------------------------------------------- tables and encodings as plain values


def digest(table: nn.Embedding) -> str:
    r"""Return a fingerprint of a table's weights, shape and dtype.

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
    r"""Return a fingerprint of a table and of an encoding: its class, settings and weights.

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
    r"""Return the encoding of a `PositionalEmbedding`; `None` if the settings of a collator can describe it.

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
    r"""Return an encoding as source code for `encoding=`: the name of its kind, or the class of a custom one.

    Example:
        >>> kind_of(positional_encoding("fourier", 4))
        "'fourier'"
    """
    known = [repr(kind) for kind, made in KINDS.items() if made is type(encoding)]
    return known[0] if known else f"{type(encoding).__name__}(...)"


def packed(table: nn.Embedding) -> Packed:
    r"""Return a table as plain values for pickling; `unpacked` is the inverse.

    Raises:
        ValueError: for a subclass of `nn.Embedding`, or a table with `max_norm`.
    """
    if type(table) is not nn.Embedding or table.max_norm is not None:
        raise ValueError(
            explain(
                "store_embeddings pickles a plain nn.Embedding only; this one does more than look up rows",
                got=f"{type(table).__name__}, max_norm={table.max_norm}",
                fix="nn.Embedding.from_pretrained(table(torch.arange(table.num_embeddings)))",
            )
        )
    return _numbers(table.weight)


def unpacked(values: bytes, shape: tuple[int, ...], dtype: str) -> nn.Embedding:
    r"""Return a frozen table on the CPU from the result of `packed`.

    Example:
        >>> unpacked(*packed(nn.Embedding.from_pretrained(torch.eye(2)))).weight
        Parameter containing:
        tensor([[1., 0.],
                [0., 1.]])
    """
    return frozen(_tensor(values, shape, dtype))


def packed_with(embedding: PositionalEmbedding) -> tuple[Any, ...]:
    r"""Return a table and its encoding as plain values; `unpacked_with` is the inverse.

    Raises:
        ValueError: for a custom encoding, or a table that `packed` refuses.
    """
    encoding = embedding.encoding
    if type(encoding) not in KINDS.values():
        raise ValueError(
            explain(
                "store_embeddings pickles the kinds of positional_encoding only; this one has code of its own",
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
    r"""Return a frozen `PositionalEmbedding` on the CPU from the result of `packed_with`.

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
    """Return a table with these weights, without gradient."""
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
