"""How to get at the sinusoids of each package: the rows of positions 0, 1, …, and what its users call to add them to x.

Some packages take a dozen others to import: of those the one definition is read out of their own file, and runs as it
stands. `peers` says which formula each follows.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np
import torch
from torch import nn

Table = Callable[[int, int], torch.Tensor]  # (length, width) to float32 rows that are kept
Rows = Callable[[int, int, torch.dtype], torch.Tensor]  # the same after a model was moved to a dtype
Add = Callable[[torch.Tensor], torch.Tensor]

# Annotations in a foreign file stay text: what they name need not be there.
_LAZY = importlib.import_module("__future__").annotations.compiler_flag


def of(module: str, name: str) -> Any:
    """A name out of a module."""
    return getattr(importlib.import_module(module), name)


def of_transformers(model: str, name: str) -> Any:
    """A name out of a model of transformers."""
    return of(f"transformers.models.{model}.modeling_{model}", name)


def alone(package: str, path: str, *names: str, **around: Any) -> Any:
    """The last of some definitions in a file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{package} is not installed")
    file = Path(spec.submodule_search_locations[0]) / path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their escape sequences are theirs
        tree = ast.parse(file.read_text(encoding="utf-8"))
    tree.body = [each for each in tree.body if getattr(each, "name", None) in names]
    around |= {"torch": torch, "nn": nn, "np": np, "math": math, "Module": nn.Module}
    exec(compile(tree, str(file), "exec", _LAZY, dont_inherit=True), around)
    return around[names[-1]]


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


# ---------------------------------------------------------------------------------------- others, where they are there


def geometric_rows(length: int, width: int, dtype: torch.dtype) -> Any:
    module = of("torch_geometric.nn.encoding", "PositionalEncoding")(width).to(dtype)
    return module(torch.arange(length, dtype=dtype))


def keras_rows(length: int, width: int, dtype: torch.dtype) -> Any:
    module = of("keras_hub.layers", "SinePositionEncoding")(dtype=str(dtype).removeprefix("torch."))
    return module(torch.empty(1, length, width, dtype=dtype))[0]


def timm(length: int, width: int) -> Any:
    # Positions down one column of an image: the first half of the width is theirs.
    names = ("freq_bands", "build_sincos2d_pos_embed")
    make = alone("timm", "layers/pos_embed_sincos.py", *names, ndgrid=lambda grid: torch.meshgrid(*grid, indexing="ij"))
    return make([length, 1], 2 * width, interleave_sin_cos=True)[:, :width]


def espnet(length: int, width: int) -> Any:
    names = ("_pre_hook", "PositionalEncoding")
    return alone("espnet", "nets/pytorch_backend/transformer/embedding.py", *names)(width, 0.0, max_len=length)


def onmt(kind: str) -> Callable[[int, int], Any]:
    return lambda length, width: alone("onmt", "modules/embeddings.py", "PositionalEncoding")(width, kind, length)


def speechbrain(length: int, width: int) -> Any:
    return alone("speechbrain", "lobes/models/transformer/Transformer.py", "PositionalEncoding")(width, length)


def labml(length: int, width: int) -> Any:
    make = alone("labml_nn", "transformers/positional_encoding.py", "get_positional_encoding")
    return make(width, length)


def forecasting(length: int, width: int) -> Any:
    path = "layers/_embeddings/_positional_embedding.py"
    return alone("pytorch_forecasting", path, "PositionalEmbedding")(width, length)


def gluonts(length: int, width: int) -> Any:
    module = alone("gluonts", "torch/model/patch_tst/module.py", "SinusoidalPositionalEmbedding")
    return module(length, width).weight


def curated(length: int, width: int) -> Any:
    module = alone("curated_transformers", "layers/embeddings.py", "SinusoidalPositionalEmbedding")
    return module(width=width, max_len=length, normalize=False).pe


def nemo(length: int, width: int) -> torch.Tensor:
    module = alone("nemo", "collections/asr/modules/transformer/transformer_modules.py", "FixedPositionalEncoding")
    table: torch.Tensor = module(width, length).pos_enc
    return table * math.sqrt(width)  # it divides its table by √d where others multiply x
