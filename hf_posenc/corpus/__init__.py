"""Tokenize data sets of any size into Parquet shards: `datasets` reads, and processes or Ray write the shards.

`encode` writes, continues interrupted runs, and returns a `Report`. `verify` compares the shards with their checksums.
"""

import lazy_loader as _lazy_loader

__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
