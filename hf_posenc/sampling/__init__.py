"""Batches with a token budget, for any DataLoader and for Trainer, and data sets of packed rows.

`packing` makes the plans; this package applies them to data sets, processes and training loops.
"""

from .arrow_batches import with_arrow_batches
from .lengths import lengths_of
from .packed import pack_dataset
from .sampler import TokenBudgetBatchSampler
from .trainer import PadToShapes, TokenBudgetMixin

__all__ = [
    "PadToShapes",
    "TokenBudgetBatchSampler",
    "TokenBudgetMixin",
    "lengths_of",
    "pack_dataset",
    "with_arrow_batches",
]
