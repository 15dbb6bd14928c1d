"""Batches with a token budget for `DataLoader` and Trainer, and data sets of packed rows (several documents in each).

`hf_posenc.packing` plans which rows form a batch; this package applies its plans in data sets and training loops.
"""

from .arrow_batches import with_arrow_batches as with_arrow_batches
from .lengths import lengths_of as lengths_of
from .mixed import mix_datasets as mix_datasets
from .packed_dataset import pack_dataset as pack_dataset
from .sampler import TokenBudgetBatchSampler as TokenBudgetBatchSampler
from .stream import stream_batches as stream_batches
from .token_log import TokenLogMixin as TokenLogMixin
from .trainer import TokenBudgetMixin as TokenBudgetMixin
