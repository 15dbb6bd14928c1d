"""The one path from texts to rows of token ids, for the collator, corpora and packed data sets; and training of a BPE.

Any tokenizer is loaded and copied. An `Encoder` tokenizes texts and truncates them to its `Limits`; the
result is `Documents`. Without torch.
"""

from .backends import BackendName as BackendName
from .backends import DifferentIds as DifferentIds
from .backends import FastBackend as FastBackend
from .backends import choose_backend as choose_backend
from .bpe import train_bpe as train_bpe
from .encoder import Encoder as Encoder
from .encoder import calls_only_rust as calls_only_rust
from .fast_support import Unsupported as Unsupported
from .loading import from_files as from_files
from .loading import number_of_ids as number_of_ids
from .loading import private_copy as private_copy
from .loading import stated_limit as stated_limit
from .loading import to_files as to_files
from .merges import MergeStep as MergeStep
from .merges import bpe_merges as bpe_merges
from .merges import bpe_stages as bpe_stages
from .pieces import Pieces as Pieces
from .rust import TokenizersBackend as TokenizersBackend
from .rust import is_from_rust as is_from_rust
