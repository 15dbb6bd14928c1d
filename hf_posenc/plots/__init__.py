"""Pictures of what the package makes, one function a picture; each returns matplotlib `Axes`, or a `Figure` of several.

Importing this costs nothing and needs no matplotlib; calling does. The numbers drawn are in `numbers`, the writing of
files in `canvas.save`.
"""

from . import canvas, numbers
from .attention import attention
from .batch import batch
from .embeddings import crowding, embeddings
from .masks import masks
from .positions import (
    curves,
    degrees,
    dials,
    distances,
    encoding,
    frequencies,
    offsets,
    oscillation,
    similarity,
    sine_and_cosine,
)
from .training import losses, sequences

__all__ = [
    "attention",
    "batch",
    "canvas",
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
    "numbers",
    "offsets",
    "oscillation",
    "sequences",
    "similarity",
    "sine_and_cosine",
]
