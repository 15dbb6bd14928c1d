"""Plans at work: batches by tokens for any DataLoader and for Trainer, and data sets of packed rows.

How a plan is made is in `packing`; here it meets data sets, processes and training loops.
"""

from .lengths import lengths_of
from .packed import pack_dataset
from .sampler import TokenBudgetBatchSampler
from .trainer import TokenBudgetMixin

__all__ = ["TokenBudgetBatchSampler", "TokenBudgetMixin", "lengths_of", "pack_dataset"]
