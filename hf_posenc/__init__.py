"""Text in, position-aware model inputs out: a Hugging Face data collator with masks, position ids and encodings.

The public names are listed in `__init__.pyi`. Each is imported on first use, and torch only with a name that needs it.
"""

from importlib.metadata import version as _version

import lazy_loader as _lazy_loader

__version__ = _version("hf-posenc")
__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
__all__.sort()
