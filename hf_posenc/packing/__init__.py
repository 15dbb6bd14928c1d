"""Which documents share a row, and which rows share a batch: plans made of lengths, no token is seen or moved.

NumPy only, so that a plan is the same in a forked worker and in every rank.
"""

from .batches import BatchPlan
from .budget import plan_batches
from .plan import PackingPlan, pack
from .shapes import best_shapes
from .splitting import split_long

__all__ = ["BatchPlan", "PackingPlan", "best_shapes", "pack", "plan_batches", "split_long"]
