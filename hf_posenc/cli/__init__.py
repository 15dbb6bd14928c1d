"""The command line, `hf-posenc` or `python -m hf_posenc`.

The commands read options and print results; the work is done in the other rooms.
"""

from .app import app, main

__all__ = ["app", "main"]
