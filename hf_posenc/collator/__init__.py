"""The data collator: text, rows or columns in; batches or columns out.

`collator` holds the class; `inputs` reads, `arrange` cuts, labels, packs and pads, `saving` writes.
"""

from .collator import DataCollatorWithPositionalEncoding

__all__ = ["DataCollatorWithPositionalEncoding"]
