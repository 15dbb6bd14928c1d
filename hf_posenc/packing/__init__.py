"""Plans of packed rows and of batches, made from the lengths of documents alone.

NumPy only, so that a plan is the same in a forked worker and on every rank.
"""

from .batch_plan import BatchPlan
from .packed_rows import PackingPlan, pack, split_long
from .shapes import best_shapes, padded
from .token_budget import plan_batches

__all__ = ["BatchPlan", "PackingPlan", "best_shapes", "pack", "padded", "plan_batches", "split_long"]
