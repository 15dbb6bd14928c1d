"""Plans of packed rows and of batches, made from the lengths of documents alone.

NumPy only, so that a plan is the same in a forked worker and on every rank.
"""

from .batch_plan import BatchPlan as BatchPlan
from .document_lengths import checked_lengths as checked_lengths
from .packing_plan import PackingPlan as PackingPlan
from .packing_plan import pack as pack
from .token_budget import Cost as Cost
from .token_budget import plan_batches as plan_batches
from .token_budget import row_costs as row_costs
from .token_shares import mixture as mixture
