"""The data collator: turns texts, rows or columns into padded batches or tokenized columns.

`config` resolves the settings once. A call reads its input (`inputs`), tokenizes it (`tokens`), and either adds labels
and pads (`labels`, `padding`) or returns columns (`columns`). `embed` adds embeddings, `fit` removes keys that the
model does not accept, `save` reads and writes collators, and `processor` makes the class a processor of transformers.
`inference` makes batches by a token budget.
"""

from .batch import Batch, real_tokens, written_tokens
from .collator import DataCollatorWithPositionalEncoding
from .inference import Batches
from .settings import MaskedLM

__all__ = ["Batch", "Batches", "DataCollatorWithPositionalEncoding", "MaskedLM", "real_tokens", "written_tokens"]
