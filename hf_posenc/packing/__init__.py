"""Which documents share a row: best-fit decreasing over the histogram of lengths, and splitting what is too long.

NumPy only, so that it works the same in a forked worker. Plans are made of lengths; no token is seen or moved here.
"""

from .plan import PackingPlan, pack
from .splitting import split_long

__all__ = ["PackingPlan", "pack", "split_long"]
