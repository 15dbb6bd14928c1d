"""Plans of packed rows and of batches, made from the lengths of documents alone.

NumPy only, so that a plan is the same in a forked worker and on every rank.
"""

from .batch_plan import BatchPlan
from .document_lengths import checked_lengths
from .packed_rows import PackingPlan, pack
from .shapes import Cost, best_shapes, padded, row_costs
from .token_budget import plan_batches

__all__ = [
    "BatchPlan",
    "Cost",
    "PackingPlan",
    "best_shapes",
    "checked_lengths",
    "pack",
    "padded",
    "plan_batches",
    "row_costs",
]
