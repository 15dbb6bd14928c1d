"""The table behind `embedding=`: made from a width, kept by reference, or known only by its digest.

How ids become vectors is `embedding.py`; this module says which table, and recognises it again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from .._explain import as_integer, explain
from ..batch import Batch, real_tokens
from ..embedding import PositionalEmbedding
from ..sinusoid import resolve_convention
from ..tokenization.loading import number_of_ids
from .weights import digest, digest_with, frozen, kind_of, own_encoding, packed, packed_with, unpacked, unpacked_with

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .settings import Settings

# The settings that a `PositionalEmbedding` brings along.
BROUGHT = ("convention", "base", "scale", "dropout", "zero_padding")


@dataclass(frozen=True)
class TableLeftBehind:
    """A table that did not travel with a pickled or saved collator: what it was, so that another is told apart."""

    num_embeddings: int
    d_model: int
    digest: str
    encoding: str | None = None  # what to write for one that the collator's settings do not describe
    max_length: int | None = None  # how many positions that one has

    def refusal(self) -> str:
        """The message for whoever asks it for embeddings."""
        again = "table" if self.encoding is None else f"PositionalEmbedding(table, encoding={self.encoding})"
        return explain(
            "the embedding table did not travel with this collator, so it cannot embed",
            got=f"a copy from a pickle or a folder; the table had {self.num_embeddings} rows of width {self.d_model}",
            fix=f"collate.replace(embedding={again}), or store_embeddings=True to let the table travel",
        )


class Table:
    r"""The `embedding=` of a collator: checked at once, turned into a `PositionalEmbedding` on first use.

    Args:
        settings (`Settings`): `embedding` and what belongs to it.
        tokenizer (`PreTrainedTokenizerBase`): the one whose ids are embedded.

    Raises:
        ValueError: if the table has fewer rows than the tokenizer has ids, or two settings say different things.
        TypeError: if it is no table; a whole model is told the two ways out.
    """

    def __init__(self, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        given = settings.embedding
        self.left_behind = given if isinstance(given, TableLeftBehind) else None
        self.rows: int | None = None
        if given is None or self.left_behind is not None:
            return
        if isinstance(given, int):
            as_integer(given, "embedding", minimum=1, example=512)
        needed = number_of_ids(tokenizer)
        if isinstance(given, int):
            if settings.dropout:
                raise ValueError(
                    explain(
                        "dropout belongs to a table that is trained, and a width makes a frozen one",
                        got=f"embedding={given}, dropout={settings.dropout}",
                        fix="embedding=nn.Embedding(len(tokenizer), 512)",
                    )
                )
            self.rows = needed
            return
        if settings.device is not None:
            raise ValueError(
                explain(
                    "device= places the table of a width; a table of yours stays where it is",
                    got=f"device={settings.device!r}",
                    fix="embedding=table.to(device)",
                )
            )
        self.rows = self.module.num_embeddings  # a model, or anything else that is no table, is refused here
        if self.rows < needed:
            raise ValueError(too_few_rows(needed, self.rows))

    @cached_property
    def module(self) -> PositionalEmbedding:
        """What embeds; made on first use, so that a worker that never embeds never makes a table."""
        settings, given = self._settings, self._settings.embedding
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
        r"""What embeds, in the mode that the caller's table is in at this moment.

        Raises:
            ValueError: if the table was left behind.
        """
        if self.left_behind is not None:
            raise ValueError(self.left_behind.refusal())
        if self.module is not self._settings.embedding:
            self.module.train(self.module.embedding.training)
        return self.module

    @property
    def is_training(self) -> bool:
        """Whether its weights are about to change: trainable, and in training mode."""
        return self.ready().training and any(weight.requires_grad for weight in self.module.parameters())

    def embed(self, batch: Batch) -> Batch:
        """A new batch on the table's device, with `inputs_embeds` (B, T, D) from the weights of this moment."""
        module = self.ready()
        moved = batch.to(module.embedding.weight.device)
        keep = moved.get("attention_mask")
        if keep is None or keep.ndim == 4:
            keep = real_tokens(moved)
        moved["inputs_embeds"] = module(moved["input_ids"], keep, moved.get("position_ids"))
        return moved

    @property
    def max_length(self) -> int | None:
        """How many positions can be encoded, where that is limited."""
        if self.left_behind is not None:
            return self.left_behind.max_length
        encoding = own_encoding(self._settings.embedding)
        return None if encoding is None else encoding.max_length

    def brought_settings(self) -> dict[str, Any]:
        r"""What a `PositionalEmbedding` settles for the collator around it.

        Raises:
            ValueError: if the collator was told something else.
        """
        if not isinstance(self._settings.embedding, PositionalEmbedding):
            return {}
        encoding = self.module.encoding
        brought = {
            name: getattr(self.module if name == "zero_padding" else encoding, name)
            for name in BROUGHT
            if name == "zero_padding" or hasattr(encoding, name)
        }
        defaults = {field.name: field.default for field in dataclasses.fields(self._settings)}
        for name in BROUGHT:
            asked, theirs = getattr(self._settings, name), brought.get(name, f"encoding={kind_of(encoding)}")
            ours = resolve_convention(asked) if name == "convention" else asked
            if asked != defaults[name] and ours != theirs:
                raise ValueError(
                    explain(
                        f"{name}= is set by the PositionalEmbedding that was given",
                        got=f"{name}={asked!r}, and {theirs!r} in the embedding",
                        fix=f"leave {name}= out, or give its table: embedding=embedding.embedding",
                    )
                )
        return brought

    def state(self, *, numbers: bool) -> Any:
        """Plain values that say which table this is; or all of its numbers, where those shall travel."""
        given = self._settings.embedding
        if given is None or isinstance(given, int):
            return given
        if isinstance(given, TableLeftBehind):
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
        """What columns hold: neither NumPy nor Arrow has bfloat16."""
        dtype = self.ready().embedding.weight.dtype
        return torch.float32 if dtype == torch.bfloat16 else dtype

    @property
    def stored_bytes(self) -> int:
        """What a token's vector takes in a column."""
        return self.module.d_model * self.stored_dtype.itemsize

    def size_of_stored(self, tokens: int) -> str:
        """What it costs to store embeddings, in words."""
        per_token = self.stored_bytes
        return explain(
            f"store_embeddings writes {per_token:,} bytes a token, {per_token // 4} times what ids take",
            got=f"{tokens * per_token / 1e6:,.1f} MB for the {tokens:,} tokens of this call",
            fix="store ids and embed when collating: it is faster than reading embeddings back",
        )

    def __repr__(self) -> str:
        given = self._settings.embedding
        if given is None or isinstance(given, (int, TableLeftBehind)):
            return repr(given)
        table, encoding = self.module.embedding, own_encoding(given)
        own = "" if encoding is None else f", encoding={kind_of(encoding)}"
        return f"{type(given).__name__}({table.num_embeddings}, {table.embedding_dim}{own})"


def from_state(state: Any) -> Any:
    """The `embedding=` argument that `Table.state` describes."""
    if state is None or isinstance(state, int):
        return state
    kind, *values = state
    made: dict[str, Any] = {"table": unpacked, "embedding": unpacked_with}
    return made.get(kind, TableLeftBehind)(*values)


def check_exchange(old: Any, new: Any) -> None:
    r"""Refuses a bare table, or a width, in place of an embedding whose positions it would not bring along.

    Args:
        old: the `embedding=` of a collator, or what is known of one that was left behind.
        new: what is to take its place.

    Raises:
        ValueError: with what to write to keep the positions, and what to change them.
    """
    encoding = own_encoding(old)
    kind = old.encoding if isinstance(old, TableLeftBehind) else None if encoding is None else kind_of(encoding)
    if kind is not None and isinstance(new, int | nn.Embedding):
        raise ValueError(
            explain(
                "a bare table would get sinusoids, and this collator's positions are others",
                got=f"embedding={type(new).__name__}, and encoding={kind} before",
                fix=f"embedding=PositionalEmbedding(table, encoding={kind}), with weights of its own; or "
                "PositionalEmbedding(table) for sinusoids",
            )
        )


def too_few_rows(needed: int, rows: int, *, of: str | None = None) -> str:
    r"""The message for a table, or the model `of` that name, that cannot look up every id of a tokenizer."""
    return explain(
        f"tokenizer has {needed} ids, the embedding has {rows} rows; call model.resize_token_embeddings({needed})",
        got=f"ids beyond the last row{'' if of is None else f' of {of}'}, which crash on a GPU",
        fix=f"model.resize_token_embeddings({needed}), then "
        + ("model.get_input_embeddings()" if of is None else "make the collator"),
    )


def table_of_width(width: int, rows: int, seed: int, device: Any) -> nn.Embedding:
    r"""A frozen table of normal random numbers, the same wherever it is made: for demos and as fixed features.

    Args:
        width (`int`): D.
        rows (`int`): how many ids there are.
        seed (`int`): of the random numbers.
        device (`torch.device` or `str`, *optional*): where the table lies.

    Returns:
        `nn.Embedding` of float32, without gradient.
    """
    values = np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)
    return frozen(torch.from_numpy(values).to(device or "cpu"))
