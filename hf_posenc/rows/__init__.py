"""Conversion of texts to rows of token ids, for the collator, corpora and packed data sets.

An `Encoder` tokenizes texts and truncates them to its `Limits`; the result is `TokenRows`. `pack_rows` puts several
documents into one row.
NumPy only.
"""

from .encoder import Encoder
from .limits import Limits, Truncation, window_offsets
from .packer import IGNORED, NO_MASK, ignore_document_starts, is_no_mask, pack_rows
from .token_rows import TokenRows

__all__ = [
    "IGNORED",
    "NO_MASK",
    "Encoder",
    "Limits",
    "TokenRows",
    "Truncation",
    "ignore_document_starts",
    "is_no_mask",
    "pack_rows",
    "window_offsets",
]
