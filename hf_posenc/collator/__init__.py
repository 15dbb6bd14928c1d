"""The data collator: text, rows or columns in; batches or columns out.

A call goes through `inputs`, `tokens`, `labels` and `padding` to a batch, or through `columns` to columns; `embed` adds
embeddings, `fit` keeps what a model reads, `config` resolves the settings once, and `save` reads and writes them.
"""

from .collator import DataCollatorWithPositionalEncoding

__all__ = ["DataCollatorWithPositionalEncoding"]
