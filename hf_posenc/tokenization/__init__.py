"""One face over every tokenizer: texts in, ragged ids out; and training a BPE.

Nothing here pads, and nothing makes tensors: that is the collator's work.
"""

from .bpe import cached_bpe, train_bpe
from .merges import MergeStep, bpe_merges, bpe_stages

__all__ = ["MergeStep", "bpe_merges", "bpe_stages", "cached_bpe", "train_bpe"]
