"""How to get at the sinusoids of each package: the rows of positions 0, 1, …, and what its users call to add them to x.

`peers` says which formula each follows.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

Table = Callable[[int, int], torch.Tensor]  # (length, width) to float32 rows that are kept
Rows = Callable[[int, int, torch.dtype], torch.Tensor]  # the same after a model was moved to a dtype
Add = Callable[[torch.Tensor], torch.Tensor]


def of(module: str, name: str) -> Any:
    """A name out of a module."""
    return getattr(importlib.import_module(module), name)


def of_transformers(model: str, name: str) -> Any:
    """A name out of a model of transformers."""
    return of(f"transformers.models.{model}.modeling_{model}", name)


def kept(table: Table) -> Rows:
    """Rows of a peer that keeps a float32 table, which a change of dtype rounds."""
    return lambda length, width, dtype: table(length, width).reshape(-1, width)[:length].detach().to(dtype)


def added(table: Table) -> Callable[[int, int], Add]:
    """What the tutorials do with a table: slice and add."""

    def adds(length: int, width: int) -> Add:
        pe = table(length, width)[None]
        return lambda x: x + pe[:, : x.size(1)]

    return adds


def plus(embed: Callable[[Any, Any], Any]) -> Callable[[int, int], Add]:
    """What is done with a module that gives rows for x: `x + embed(x)`."""

    def adds(length: int, width: int) -> Add:
        module = embed(length, width)
        return lambda x: x + module(x)

    return adds


def annotated(length: int, width: int) -> torch.Tensor:
    """The table of "The Annotated Transformer" and of PyTorch's tutorial, line by line."""
    pe = torch.zeros(length, width)
    position = torch.arange(0, length).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, width, 2) * -(math.log(10000.0) / width))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe


# ------------------------------------------------------------------------------------------------------- transformers


def marian(length: int, width: int) -> Any:
    return of_transformers("marian", "MarianSinusoidalPositionalEmbedding")(length, width).create_weight()


def distilbert(length: int, width: int) -> torch.Tensor:
    out = torch.empty(length, width)
    of_transformers("distilbert", "create_sinusoidal_embeddings")(length, width, out)
    return out


def m2m100(length: int, width: int) -> Any:
    return of_transformers("m2m_100", "M2M100SinusoidalPositionalEmbedding").get_embedding(length, width)


def m2m100_adds(length: int, width: int) -> Add:
    """Its encoder's way: position ids from token ids that are no padding, a look-up, a sum."""
    embed = of_transformers("m2m_100", "M2M100SinusoidalPositionalEmbedding")(length, width, 1)
    ids = torch.full((32, length), 5)
    return lambda x: x + embed(ids[: x.size(0), : x.size(1)])


def whisper(length: int, width: int) -> Any:
    return of_transformers("whisper", "sinusoids")(length, width)


def musicgen(length: int, width: int) -> Any:
    return of_transformers("musicgen", "MusicgenSinusoidalPositionalEmbedding")(length, width).weights


def ctrl(length: int, width: int) -> Any:
    return of_transformers("ctrl", "positional_encoding")(length, width, torch.float32)


def pegasus_x(length: int, width: int) -> Any:
    return of_transformers("pegasus_x", "PegasusXSinusoidalPositionalEmbedding")(width)


def pegasus_x_rows(length: int, width: int, dtype: torch.dtype) -> Any:
    return pegasus_x(length, width)(torch.empty(1, length, width, dtype=dtype))[0]


# ------------------------------------------------------------------------------------- others that the test extra has


def timesteps(*, flip: bool = False, shift: int = 1) -> Table:
    def table(length: int, width: int) -> torch.Tensor:
        make = of("diffusers.models.embeddings", "get_timestep_embedding")
        rows: torch.Tensor = make(torch.arange(length), width, flip_sin_to_cos=flip, downscale_freq_shift=shift)
        return rows

    return table


def diffusers(length: int, width: int) -> Any:
    return of("diffusers.models.embeddings", "SinusoidalPositionalEmbedding")(width, length)


def x_transformers(length: int, width: int) -> Any:
    embed = of("x_transformers.x_transformers", "ScaledSinusoidalEmbedding")(width)
    with torch.no_grad():
        embed.scale.fill_(1)  # a number that is learned, 1/√d at first
    return embed.requires_grad_(False)


def x_transformers_rows(length: int, width: int, dtype: torch.dtype) -> Any:
    return x_transformers(length, width).to(dtype)(torch.empty(1, length, 1)).to(dtype)


def positional_encodings(length: int, width: int) -> Any:
    return of("positional_encodings.torch_encodings", "PositionalEncoding1D")(width)


def positional_encodings_adds(length: int, width: int) -> Any:
    return of("positional_encodings.torch_encodings", "Summer")(positional_encodings(length, width))


def positional_encodings_rows(length: int, width: int, dtype: torch.dtype) -> Any:
    return positional_encodings(length, width).to(dtype)(torch.empty(1, length, width, dtype=dtype))[0]
