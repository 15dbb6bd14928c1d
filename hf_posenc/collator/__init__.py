"""The data collator: text, rows or columns in; batches or columns out.

`collator` holds the class; `inputs` reads, `arrange` cuts, `rectangle` labels, packs and pads, `fitting` leaves what a
model reads, `saving` writes.
"""

from .collator import DataCollatorWithPositionalEncoding

__all__ = ["DataCollatorWithPositionalEncoding"]
