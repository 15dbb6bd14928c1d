"""Plans of packed rows and of batches, made from the lengths of documents alone.

NumPy only, so that a plan is the same in a forked worker and on every rank.
"""

from .batches import BatchPlan
from .budget import plan_batches
from .plan import PackingPlan, pack, split_long
from .shapes import best_shapes, padded

__all__ = ["BatchPlan", "PackingPlan", "best_shapes", "pack", "padded", "plan_batches", "split_long"]
