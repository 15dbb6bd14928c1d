"""Text in, position-aware model inputs out: a Hugging Face data collator with masks, position ids and encodings.

Heavy libraries (transformers, datasets, matplotlib) are loaded by what needs them, on first use.
"""

from __future__ import annotations

from typing import Any

from .batch import Batch
from .collator import DataCollatorWithPositionalEncoding
from .embedding import PositionalEmbedding
from .masks import AttentionMask, additive_mask, look_ahead_mask, padding_mask, padding_mask_from_ids
from .packing import PackingPlan, pack, split_long
from .positions import position_ids_from_documents, position_ids_from_lengths, position_ids_from_mask
from .sinusoid import Convention, SinusoidalPositionalEncoding, fixed_bases, frequencies, sinusoidal_encoding
from .tokenization.bpe import train_bpe
from .tokenization.merges import bpe_merges

__all__ = [
    "AttentionMask",
    "Batch",
    "Convention",
    "DataCollatorWithPositionalEncoding",
    "PackingPlan",
    "PositionalEmbedding",
    "SinusoidalPositionalEncoding",
    "__version__",
    "additive_mask",
    "bpe_merges",
    "fixed_bases",
    "frequencies",
    "look_ahead_mask",
    "pack",
    "padding_mask",
    "padding_mask_from_ids",
    "position_ids_from_documents",
    "position_ids_from_lengths",
    "position_ids_from_mask",
    "sinusoidal_encoding",
    "split_long",
    "train_bpe",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":  # looked up when asked for: reading a package's metadata takes longer than importing it
        from importlib.metadata import version

        return version("hf-posenc")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
