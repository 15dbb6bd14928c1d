"""Tokenize whole corpora: text files and data sets of any size become Parquet shards; interrupted runs continue.

`encode` writes the shards, on one machine or on Ray, to a disk or an object store, reports its progress to a
`Progress`, and returns a `Manifest`. `verify` checks the shards and returns a `Verification`.
"""

import lazy_loader as _lazy_loader

__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
