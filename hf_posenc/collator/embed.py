"""The argument `embedding=` of a collator: a width, an embedding table, or the digest of a table that was not saved.

This module makes the table of a width, and converts tables to plain values (never code) to compare, pickle or save.
`hf_posenc.positions` computes the embeddings.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from .._common.compat import default_device
from .._common.errors import explain, shorten, value_error, warn
from .._common.integers import as_integer
from ..positions import (
    CONVENTIONS,
    KINDS,
    USUAL_BASE,
    PositionalEmbedding,
    PositionalEncoding,
    SinusoidalPositionalEncoding,
    fixed_bases,
    positional_encoding,
)
from ..ragged import lock_free_cache
from ..tokenization.loading import number_of_ids
from .batch import Batch, real_tokens
from .settings import MissingTable, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_KIND_OF = {encoding_class: kind for kind, encoding_class in KINDS.items()}


class Embedder:
    """Embedding of a collator, made from its argument `embedding=`. It embeds batches; `state` returns it for saving.

    The argument is a width, an `nn.Embedding`, a `PositionalEmbedding`, or `None`. A width becomes a table on first
    use. In a loaded collator the argument may be a `MissingTable`, which cannot embed.
    """

    def __init__(self, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> None:
        self._given = settings
        self._tokenizer = tokenizer
        embedding = settings.embedding
        self.missing = embedding if isinstance(embedding, MissingTable) else None
        self.rows: int | None = None
        self.device: str | None = None  # of the table made from a width; None for the CPU
        if embedding is None or self.missing is not None:
            return
        count = number_of_ids(tokenizer)
        if isinstance(embedding, int) or (isinstance(embedding, str) and embedding.isdecimal()):
            as_integer(embedding, "embedding", minimum=1, example=512)
            self.rows = count
            device = default_device()
            self.device = None if device.type == "cpu" else str(device)
            return
        self.rows = self.module.num_embeddings  # raises if it is not a table
        if self.rows < count:
            raise ValueError(too_few_rows(count, self.rows))

    @lock_free_cache
    def module(self) -> PositionalEmbedding:
        """The `PositionalEmbedding`, made on first use, so that a worker that never embeds allocates no table.

        If `embedding` is a width, its table is frozen, float32 and normally distributed.
        """
        settings, embedding = self._given, self._given.embedding
        if isinstance(embedding, PositionalEmbedding):
            return embedding
        table: Any = embedding
        if isinstance(embedding, int):  # equal seeds give equal tables on every machine
            shape = (number_of_ids(self._tokenizer), embedding)
            weight = torch.from_numpy(np.random.default_rng(settings.seed or 0).standard_normal(shape, np.float32))
            try:
                weight = weight.to(self.device or "cpu")
            except torch.OutOfMemoryError:
                raise
            except (AssertionError, RuntimeError) as error:  # a collator that was saved on another machine
                warn(
                    f"the table of this collator is on the CPU, because its device {self.device} is not available",
                    got=str(error).partition("\n")[0],
                    fix='"device": null in hf_posenc.json, or collate.replace(embedding=table), a table of your own',
                )
            table = _frozen(weight)
        return PositionalEmbedding(table)

    def ready(self) -> PositionalEmbedding:
        """Return the `PositionalEmbedding`; raise a `ValueError` if there is no table, or it was not pickled or saved.

        If the user passed an `nn.Embedding`, the result is set to the training mode of that table.
        """
        if self._given.embedding is None:
            raise value_error(
                "embeddings need a table, and this collator has none",
                got="embedding=None",
                fix="collate.replace(embedding=model.get_input_embeddings()), or embedding=512",
            )
        if self.missing is not None:
            raise ValueError(self.missing.message())
        if self.module is not self._given.embedding:
            self.module.train(self.module.embedding.training)
        return self.module

    @property
    def is_training(self) -> bool:
        """True if the embedding is in training mode and any of its weights requires a gradient."""
        return self.ready().training and any(weight.requires_grad for weight in self.module.parameters())

    def embed(self, batch: Batch, out: torch.Tensor | None = None) -> Batch:
        """Return a new batch on the table's device, with `inputs_embeds` (B, T, D) from the current weights.

        If `out` is given, `inputs_embeds` is a view of its first B·T vectors.
        """
        module = self.ready()
        moved = batch.to(module.embedding.weight.device)
        keep = moved.get("attention_mask")
        if not isinstance(keep, torch.Tensor) or keep.ndim == 4:
            keep = real_tokens(moved)
        ids = moved["input_ids"]
        memory = None if out is None else _start_of(out, (len(ids), ids.shape[1], module.d_model))
        positions, near, bound = moved.get("position_ids"), moved._near.get("position_ids"), {}
        if near is not positions and near is not None and near.numel():
            lowest, highest = (int(position) for position in near.aminmax())
            bound = {} if lowest < 0 else {"bound": highest + 1}  # which the device need not be waited for
        moved["inputs_embeds"] = module(ids, attention_mask=keep, position_ids=positions, out=memory, **bound)
        return moved

    @property
    def max_length(self) -> int | None:
        """Number of positions that can be encoded; `None` if unlimited."""
        return getattr(self._positions, "max_length", None)

    @property
    def first_position(self) -> int:
        """Position of a row's first token."""
        return int(getattr(self._positions, "first_position", 0))

    @property
    def padding_position(self) -> int | None:
        """Position of padding; `None` if it has none."""
        return getattr(self._positions, "padding_position", None)

    @property
    def _positions(self) -> PositionalEncoding | MissingTable | None:
        """The object with the limit and the first position; `None` for the sinusoids of a bare table or a width."""
        embedding = self._given.embedding
        return embedding.encoding if isinstance(embedding, PositionalEmbedding) else self.missing

    def state(self, *, weights: bool) -> Any:
        """Return the argument `embedding=` as plain values (numbers, strings and bytes), to compare, pickle or save.

        A table becomes its weights, or without `weights` its shape and a hash; `from_state` converts the values back.
        """
        embedding = self._given.embedding
        if embedding is None or isinstance(embedding, int):
            return embedding
        if isinstance(embedding, MissingTable):
            return "digest", *astuple(embedding)
        table = self.module.embedding
        if not weights:
            settings = settings_code(embedding), self.max_length, self.first_position, self.padding_position
            return "digest", table.num_embeddings, table.embedding_dim, digest(embedding), *settings
        if isinstance(embedding, PositionalEmbedding):
            return "embedding", _weights_of(table), *_plain_encoding(embedding.encoding), embedding.zero_padding
        return "table", *_weights_of(table)

    @property
    def stored_dtype(self) -> torch.dtype:
        """Dtype of the stored column `inputs_embeds`: the table's, but float32 for bfloat16, which NumPy lacks."""
        dtype = self.ready().embedding.weight.dtype
        return torch.float32 if dtype == torch.bfloat16 else dtype

    def stored_size_warning(self, tokens: int) -> str:
        """Return the warning about the size of a column of embeddings, with the number of MB for `tokens` tokens."""
        per_token = self.module.d_model * self.stored_dtype.itemsize
        return explain(
            f"store_embeddings writes {per_token:,} bytes per token, {per_token // 4} times what ids take",
            got=f"{tokens * per_token / 1e6:,.1f} MB for the {tokens:,} tokens of this call",
            fix="store ids and embed when collating: it is faster than reading embeddings back",
        )

    def __repr__(self) -> str:
        embedding = self._given.embedding
        if embedding is None or isinstance(embedding, (int, MissingTable)):
            return repr(embedding)
        table, settings = self.module.embedding, settings_code(embedding)
        return (
            f"{type(embedding).__name__}({table.num_embeddings}, {table.embedding_dim}{settings and ', ' + settings})"
        )


def _start_of(out: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    """Return the first elements of `out` as a view of this shape; raise if `out` is too small or not contiguous."""
    count, width = shape[0] * shape[1], shape[2]
    is_memory = isinstance(out, torch.Tensor) and out.ndim > 0 and out.is_contiguous()
    if not is_memory or out.shape[-1] != width or out.numel() < count * width:
        raise value_error(
            f"out must be a contiguous tensor with room for {count} vectors of width {width}",
            got=f"shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else shorten(out),
            fix=f"out=torch.empty({count}, {width}), or larger for larger batches",
        )
    return out.view(-1)[: count * width].view(shape)


def from_state(state: Any) -> Any:
    """Convert the plain values returned by `Embedder.state` back to the argument `embedding=` of a collator.

    Weights become a frozen `nn.Embedding` on the CPU; a hash of weights becomes a `MissingTable`, which cannot embed.
    """
    if state is None or isinstance(state, int):
        return state
    form, *values = state
    if form == "digest":
        return MissingTable(*values)
    if form == "table":
        return _frozen(_tensor(*values))
    weights, kind, settings, own_weights, zero_padding = values
    table = _frozen(_tensor(*weights))
    encoding = positional_encoding(kind, table.embedding_dim, **dict(settings))
    encoding.load_state_dict({name: _tensor(*values) for name, values in own_weights}, assign=True)
    return PositionalEmbedding(table, encoding=encoding.requires_grad_(False), zero_padding=zero_padding)


def check_exchange(old: Any, new: Any) -> None:
    """Raise a `ValueError` if a bare table or a width would replace an embedding with settings of its own."""
    settings = settings_code(old)
    if settings and isinstance(new, int | nn.Embedding):
        raise value_error(
            "a bare table would get the default positions, and this collator has others",
            got=f"embedding={type(new).__name__}, and PositionalEmbedding(table, {settings}) before",
            fix=f"embedding=PositionalEmbedding(table, {settings})"
            + (", with its own weights" if "encoding=" in settings else "")
            + "; or embedding=PositionalEmbedding(table) for the defaults",
        )


def too_few_rows(needed: int, rows: int, *, of: str | None = None) -> str:
    """Return the error message for a tokenizer with `needed` ids and an embedding with only `rows` rows.

    `of` is the name of the model that has the embedding, if the collator was given a model.
    """
    table = f"embedding=model.get_input_embeddings(); or a table of {needed} rows"
    return explain(
        f"tokenizer has {needed} ids, the embedding has {rows} rows; call model.resize_token_embeddings({needed})",
        got=f"ids beyond the last row{'' if of is None else f' of {of}'}, which crash on a GPU",
        fix=f"model.resize_token_embeddings({needed}), then {table if of is None else 'make the collator'}",
    )


# ------------------------------------------------------------------------- tables and encodings as plain values


def settings_code(embedding: object) -> str:
    r"""Return the settings of a `PositionalEmbedding` or `MissingTable` as source code for a message, without defaults.

    An `nn.Embedding`, a width and `None` have none. The class of a user is followed by `(...)`.

    Example:
        >>> settings_code(PositionalEmbedding(nn.Embedding(3, 2), convention="marian", zero_padding=False))
        "convention='marian', zero_padding=False"
        >>> settings_code(PositionalEmbedding(nn.Embedding(3, 2), encoding="learned"))
        "encoding='learned'"
    """
    if isinstance(embedding, MissingTable):
        return embedding.settings
    if not isinstance(embedding, PositionalEmbedding):
        return ""
    encoding, code = embedding.encoding, {}
    if type(encoding) is SinusoidalPositionalEncoding:
        usual = SinusoidalPositionalEncoding(encoding.d_model).settings() | {"base": None}
        settings = encoding.settings() | ({"base": None} if encoding.base == USUAL_BASE else {})
        code = {name: repr(value) for name, value in settings.items() if value != usual[name]}
        convention = encoding.convention
        if "convention" in code and CONVENTIONS.get(convention.name) == convention:
            code["convention"] = repr(convention.name)
        elif convention.bases is not None and convention == fixed_bases(*convention.bases):
            code["convention"] = convention.name  # fixed_bases(4, 5, 7)
    else:
        kind = _KIND_OF.get(type(encoding))
        code["encoding"] = f"{type(encoding).__name__}(...)" if kind is None else repr(kind)
    if not embedding.zero_padding:
        code["zero_padding"] = "False"
    return ", ".join(f"{name}={value}" for name, value in code.items())


def digest(embedding: nn.Embedding | PositionalEmbedding) -> str:
    """Return a hash of the weights and settings of `embedding`. Equal hashes mean equal embeddings."""
    import xxhash

    table = embedding.embedding if isinstance(embedding, PositionalEmbedding) else embedding
    hashed = xxhash.xxh3_128(_bytes(table.weight).data)
    norm = None if table.max_norm is None else (table.max_norm, table.norm_type)
    hashed.update(f"{tuple(table.weight.shape)} {table.weight.dtype} {type(table).__qualname__} {norm}".encode())
    if isinstance(embedding, PositionalEmbedding):
        encoding = embedding.encoding
        settings = sorted(encoding.settings().items())
        hashed.update(f"{type(encoding).__qualname__} {settings!r} {embedding.zero_padding}".encode())
        for name, values in encoding.state_dict().items():
            hashed.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
            hashed.update(_bytes(values).data)
    return str(hashed.hexdigest())


def _weights_of(table: nn.Embedding) -> tuple[Any, ...]:
    if type(table) is not nn.Embedding or table.max_norm is not None:
        raise value_error(
            "store_embeddings pickles a plain nn.Embedding only; this one does more than look up rows",
            got=f"{type(table).__name__}, max_norm={table.max_norm}",
            fix="nn.Embedding.from_pretrained(table(torch.arange(table.num_embeddings)))",
        )
    return _numbers(table.weight)


def _plain_encoding(encoding: PositionalEncoding) -> tuple[Any, ...]:
    """Return an encoding as plain values for a pickle: its name, its settings and its weights."""
    # Raise a `ValueError` for a class of the user, because a pickle does not contain its code.
    kind = _KIND_OF.get(type(encoding))
    if kind is None:
        raise value_error(
            "store_embeddings pickles the kinds of positional_encoding only; this one has code of its own",
            got=type(encoding).__name__,
            fix=f"store_embeddings=False, or one of {', '.join(KINDS)}",
        )
    weights = tuple((name, _numbers(values)) for name, values in encoding.state_dict().items())
    return kind, tuple(encoding.settings().items()), weights


def _numbers(values: torch.Tensor) -> tuple[bytes, tuple[int, ...], str]:
    return _bytes(values).tobytes(), tuple(values.shape), str(values.dtype)


def _tensor(values: bytes, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    numbers = torch.from_numpy(np.frombuffer(values, dtype=np.uint8).copy())
    return numbers.view(getattr(torch, dtype.removeprefix("torch."))).view(shape)


def _frozen(weight: torch.Tensor) -> nn.Embedding:
    rows, width = weight.shape
    return nn.Embedding(rows, width, _weight=weight, _freeze=True)


def _bytes(weight: torch.Tensor) -> np.ndarray[Any, Any]:
    flat = weight.detach().cpu().contiguous().view(-1)
    array: np.ndarray[Any, Any] = flat.view(torch.uint8).numpy()
    return array
