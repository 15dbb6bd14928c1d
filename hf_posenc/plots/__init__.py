"""Pictures of what the package makes, one function a picture; each returns matplotlib `Axes`, or a `Figure` of several.

Importing this costs nothing and needs no matplotlib; calling does. The numbers drawn are in `numbers`, the writing of
files in `canvas.save`.
"""

from . import canvas, numbers
from .batch import batch
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

__all__ = [
    "batch",
    "canvas",
    "curves",
    "degrees",
    "dials",
    "distances",
    "encoding",
    "frequencies",
    "numbers",
    "offsets",
    "oscillation",
    "similarity",
    "sine_and_cosine",
]
