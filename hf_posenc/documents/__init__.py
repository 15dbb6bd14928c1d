"""Documents: rows of tokens without padding and gaps, between their source and their arrangement in a batch.

`Documents` is the type, `pack_rows` puts several into a row, and `Limits` truncates them. `read_documents` makes them
of given rows; the module that does so is loaded where rows are given. NumPy only.
"""

import lazy_loader as _lazy_loader

__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
