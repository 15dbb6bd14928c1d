"""Loading, copying and serialization of tokenizers, and training of byte-pair encodings.

`rows` encodes texts with the tokenizers.
"""

from .bpe import cached_bpe, train_bpe
from .loading import from_files, number_of_ids, private_copy, stated_limit, to_files
from .long_text import sufficient_prefix
from .merges import MergeStep, bpe_merges, bpe_stages
from .serialized import RustOnlyTokenizer, SerializedTokenizer, calls_only_rust

__all__ = [
    "MergeStep",
    "RustOnlyTokenizer",
    "SerializedTokenizer",
    "bpe_merges",
    "bpe_stages",
    "cached_bpe",
    "calls_only_rust",
    "from_files",
    "number_of_ids",
    "private_copy",
    "stated_limit",
    "sufficient_prefix",
    "to_files",
    "train_bpe",
]
