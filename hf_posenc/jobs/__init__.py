"""Tokenize whole corpora: text files and data sets of any size become Parquet shards; interrupted runs continue.

`encode` writes the shards, on one machine or on Ray; `verify` checks them. `open_sources` and `read_documents` read the
documents of a corpus as `encode` does.
"""

import lazy_loader as _lazy_loader

__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
