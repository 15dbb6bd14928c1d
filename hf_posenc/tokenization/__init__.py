"""The one path from texts to rows of token ids, for the collator, corpora and packed data sets; and training of a BPE.

Any tokenizer is loaded and copied. An `Encoder` tokenizes texts and truncates them to its `Limits`; the
result is `Documents`.
NumPy only.
"""

from .backends import BackendName, DifferentIds, FastBackend, choose_backend
from .bpe import train_bpe
from .encoder import Encoder, calls_only_rust
from .fast_support import Unsupported
from .loading import from_files, number_of_ids, private_copy, stated_limit, to_files
from .merges import MergeStep, bpe_merges, bpe_stages
from .pieces import Pieces
from .rust import TokenizersBackend, is_from_rust

__all__ = [
    "BackendName",
    "DifferentIds",
    "Encoder",
    "FastBackend",
    "MergeStep",
    "Pieces",
    "TokenizersBackend",
    "Unsupported",
    "bpe_merges",
    "bpe_stages",
    "calls_only_rust",
    "choose_backend",
    "from_files",
    "is_from_rust",
    "number_of_ids",
    "private_copy",
    "stated_limit",
    "to_files",
    "train_bpe",
]
