"""Every peer that makes sinusoids of positions, and the formula that it follows.

They are those of the extra `test`. `theirs` gets at each.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from . import theirs
from .theirs import Add, Rows, added, kept, plus


@dataclass(frozen=True)
class Peer:
    """Somebody else's sinusoids.

    Args:
        name: in the tables that are printed.
        package: as PyPI has it; empty for a formula that is written out here.
        convention: the name of ours that has the same columns.
        rows: (length, width, dtype) to the rows `(length, width)` of the positions 0, 1, … that a model has after it
            was moved to `dtype`: of a table that is kept these are the float32 ones rounded, else what its buffers
            still give.
        adds: (length, width) to what its users call on `x (B, T, D)`; `None` where there is nothing of its own.
        slow: whether it computes in Python, number by number.
    """

    name: str
    package: str
    convention: str
    rows: Rows
    adds: Callable[[int, int], Add] | None = None
    slow: bool = False

    @property
    def version(self) -> str:
        """The version that is installed."""
        return importlib.metadata.version(self.package) if self.package else ""


def _pe(module: Callable[[int, int], Any]) -> Rows:
    """The rows that a module keeps under the usual name."""

    def table(length: int, width: int) -> torch.Tensor:
        rows: torch.Tensor = module(length, width).pe
        return rows

    return kept(table)


PEERS = (
    Peer("Annotated Transformer, PyTorch's tutorial", "", "vaswani", kept(theirs.annotated), added(theirs.annotated)),
    Peer("M2M100, NLLB, XGLM, …", "transformers", "m2m100", kept(theirs.m2m100), theirs.m2m100_adds),
    Peer("Whisper", "transformers", "whisper", kept(theirs.whisper)),
    Peer("MusicGen", "transformers", "musicgen", kept(theirs.musicgen)),
    Peer("CTRL", "transformers", "marian", kept(theirs.ctrl)),
    Peer("PEGASUS-X", "transformers", "tensor2tensor", theirs.pegasus_x_rows, plus(theirs.pegasus_x)),
    Peer("Marian, Pegasus, RoFormer, …", "transformers", "marian", kept(theirs.marian), slow=True),
    Peer("DistilBERT, XLM, …", "transformers", "vaswani", kept(theirs.distilbert), slow=True),
    Peer("get_timestep_embedding", "diffusers", "tensor2tensor", kept(theirs.timesteps())),
    Peer("SinusoidalPositionalEmbedding", "diffusers", "vaswani", _pe(theirs.diffusers), theirs.diffusers),
    Peer(
        "ScaledSinusoidalEmbedding",
        "x-transformers",
        "marian",
        theirs.x_transformers_rows,
        plus(theirs.x_transformers),
    ),
    Peer(
        "PositionalEncoding1D",
        "positional-encodings",
        "vaswani",
        theirs.positional_encodings_rows,
        theirs.positional_encodings_adds,
    ),
)
