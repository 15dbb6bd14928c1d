"""Pictures of what the package makes, one function a picture; each returns a matplotlib `Figure`.

Importing this costs nothing and needs no matplotlib; calling does.
"""

from .batch import batch

__all__ = ["batch"]
