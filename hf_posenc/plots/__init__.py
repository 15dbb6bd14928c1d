"""Plots of encodings, batches, masks, attention and embeddings; each function returns a matplotlib `Figure`.

With `ax=`, it draws into these axes, and returns their figure. The axes hold the plotted data, and `save` writes a
file. Importing this package does not import matplotlib.
"""

from .attention_maps import attention, attention_weights
from .batches import batch, masks
from .canvas import save
from .heat_maps import distances, encoding
from .token_embeddings import embeddings
from .waves import curves, dials, oscillation, similarity

__all__ = [
    "attention",
    "attention_weights",
    "batch",
    "curves",
    "dials",
    "distances",
    "embeddings",
    "encoding",
    "masks",
    "oscillation",
    "save",
    "similarity",
]
