"""The command line, `hf-posenc` or `python -m hf_posenc`.

The commands only parse options and print results; the other packages of `hf_posenc` do the work.
"""

from .app import app, main

__all__ = ["app", "main"]
