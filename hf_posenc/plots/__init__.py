"""Plots of encodings, batches, masks, attention and training; each function returns matplotlib `Axes`.

Functions that draw several panels return a `Figure`. The axes hold the plotted data, and `save` writes a file.
Importing this package does not import matplotlib.
"""

from .attention_maps import attention, attention_weights
from .batches import batch, masks
from .canvas import save
from .heat_maps import distances, encoding, sine_and_cosine
from .results import losses, sequences
from .rotations import degrees, dials, frequencies, offsets
from .token_embeddings import crowding, embeddings
from .waves import curves, oscillation, similarity

__all__ = [
    "attention",
    "attention_weights",
    "batch",
    "crowding",
    "curves",
    "degrees",
    "dials",
    "distances",
    "embeddings",
    "encoding",
    "frequencies",
    "losses",
    "masks",
    "offsets",
    "oscillation",
    "save",
    "sequences",
    "similarity",
    "sine_and_cosine",
]
