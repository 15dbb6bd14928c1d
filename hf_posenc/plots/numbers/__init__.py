"""The numbers behind every picture, under the same names, as NumPy arrays.

No matplotlib is needed here, and nothing is drawn.
"""

from .attention import attention
from .embeddings import crowding, embeddings
from .masks import masks
from .nearness import distances, similarity
from .positions import encoding, sine_and_cosine
from .training import losses, sequences
from .turning import degrees, dials, frequencies
from .waves import curves, offsets, oscillation

__all__ = [
    "attention",
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
    "sequences",
    "similarity",
    "sine_and_cosine",
]
