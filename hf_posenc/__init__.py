"""Text in, position-aware model inputs out: a Hugging Face data collator with masks, position ids and encodings.

A name is loaded on first use, and torch with the first that needs it: `import hf_posenc` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Batch
    from .collator import DataCollatorWithPositionalEncoding
    from .embedding import PositionalEmbedding
    from .encodings import (
        ExponentialPositionalEncoding,
        FourierPositionalEncoding,
        LearnedPositionalEncoding,
        NoPositionalEncoding,
        ScaledSinusoidalPositionalEncoding,
        positional_encoding,
    )
    from .masks import AttentionMask, additive_mask, look_ahead_mask, padding_mask, padding_mask_from_ids
    from .model_spec import ModelSpec
    from .models import use_sinusoidal_positions
    from .packing import BatchPlan, PackingPlan, best_shapes, pack, plan_batches, split_long
    from .positions import position_ids_from_documents, position_ids_from_lengths, position_ids_from_mask
    from .sampling import TokenBudgetBatchSampler, TokenBudgetMixin, lengths_of, pack_dataset
    from .sinusoid import (
        Convention,
        SinusoidalPositionalEncoding,
        convert,
        fixed_bases,
        frequencies,
        sinusoidal_encoding,
    )
    from .tokenization import bpe_merges, train_bpe

__all__ = [
    "AttentionMask",
    "Batch",
    "BatchPlan",
    "Convention",
    "DataCollatorWithPositionalEncoding",
    "ExponentialPositionalEncoding",
    "FourierPositionalEncoding",
    "LearnedPositionalEncoding",
    "ModelSpec",
    "NoPositionalEncoding",
    "PackingPlan",
    "PositionalEmbedding",
    "ScaledSinusoidalPositionalEncoding",
    "SinusoidalPositionalEncoding",
    "TokenBudgetBatchSampler",
    "TokenBudgetMixin",
    "__version__",
    "additive_mask",
    "best_shapes",
    "bpe_merges",
    "convert",
    "fixed_bases",
    "frequencies",
    "lengths_of",
    "look_ahead_mask",
    "pack",
    "pack_dataset",
    "padding_mask",
    "padding_mask_from_ids",
    "plan_batches",
    "position_ids_from_documents",
    "position_ids_from_lengths",
    "position_ids_from_mask",
    "positional_encoding",
    "sinusoidal_encoding",
    "split_long",
    "train_bpe",
    "use_sinusoidal_positions",
]

_ROOMS = {
    "batch": ("Batch",),
    "collator": ("DataCollatorWithPositionalEncoding",),
    "embedding": ("PositionalEmbedding",),
    "encodings": (
        "ExponentialPositionalEncoding",
        "FourierPositionalEncoding",
        "LearnedPositionalEncoding",
        "NoPositionalEncoding",
        "ScaledSinusoidalPositionalEncoding",
        "positional_encoding",
    ),
    "masks": ("AttentionMask", "additive_mask", "look_ahead_mask", "padding_mask", "padding_mask_from_ids"),
    "model_spec": ("ModelSpec",),
    "models": ("use_sinusoidal_positions",),
    "packing": ("BatchPlan", "PackingPlan", "best_shapes", "pack", "plan_batches", "split_long"),
    "positions": ("position_ids_from_documents", "position_ids_from_lengths", "position_ids_from_mask"),
    "sampling": ("TokenBudgetBatchSampler", "TokenBudgetMixin", "lengths_of", "pack_dataset"),
    "sinusoid": (
        "Convention",
        "SinusoidalPositionalEncoding",
        "convert",
        "fixed_bases",
        "frequencies",
        "sinusoidal_encoding",
    ),
    "tokenization": ("bpe_merges", "train_bpe"),
}
# Rooms that are spoken of by their own name: `hf_posenc.audit.check(model)`.
_BY_NAME = ("audit", "jobs", "plots", "testing")
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("hf-posenc")
    if name in _BY_NAME:
        return import_module(f".{name}", __name__)
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_ROOM_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
