"""Loading, copying and serialization of tokenizers, and training of byte-pair encodings.

Texts are encoded in `hf_posenc.rows`.
"""

from .backends import BackendName, DifferentIds, FastBackend, Unsupported, choose_backend
from .bpe import train_bpe
from .loading import from_files, number_of_ids, private_copy, stated_limit, to_files
from .merges import MergeStep, bpe_merges, bpe_stages
from .pieces import Pieces
from .rust import TokenizersBackend, is_from_rust
from .serialized import RustOnlyTokenizer, SerializedTokenizer, calls_only_rust

__all__ = [
    "BackendName",
    "DifferentIds",
    "FastBackend",
    "MergeStep",
    "Pieces",
    "RustOnlyTokenizer",
    "SerializedTokenizer",
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
