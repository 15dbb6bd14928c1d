"""The command line, `hf-posenc` or `python -m hf_posenc`: a file a command.

The commands read and print; what they show is worked out by the rooms below.
"""

from .app import app, main

__all__ = ["app", "main"]
