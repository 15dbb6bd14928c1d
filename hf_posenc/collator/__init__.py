"""The data collator: turns texts, rows or columns into padded batches or tokenized columns.

`config` resolves the settings once. A call reads its input (`inputs`), then tokenizes and pads it (`pipeline`). Beside
this way lie tokenized input (`token_ids`), labels (`labels`), targets (`targets`), packed batches (`packed_batches`),
further columns (`arrays`) and tokenized columns (`columns`). `embed` adds embeddings, `fit` removes keys that the model
does not accept, `save` reads and writes collators, and `inference` makes batches by a token budget.
"""

from .batch import Batch, real_tokens, written_tokens
from .batches import Batches
from .collator import DataCollatorWithPositionalEncoding
from .settings import MaskedLM

__all__ = [
    "Batch",
    "Batches",
    "DataCollatorWithPositionalEncoding",
    "MaskedLM",
    "real_tokens",
    "written_tokens",
]
