"""The data collator: turns texts, rows or columns into padded batches or tokenized columns.

`settings` checks the arguments, and `config` resolves them once. A call reads its input (`inputs`, `formats`), then
tokenizes and pads it (`pipeline`), or packs it (`several_documents`). Beside this way lie `conversations` and
`prompts`, rows of token ids (`token_ids`, `arrays`), labels (`labels`), trained tokens and targets (`targets`), and
further columns (`other_columns`). `columns` makes those for `map`, `embed` adds embeddings, `fit` removes keys that the
model does not accept, `warn` has the warnings, `save` reads and writes collators, and `batches` makes batches by a
token budget.
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
