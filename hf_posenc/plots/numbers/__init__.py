"""The numbers behind every picture, under the same names, as NumPy arrays.

No matplotlib is needed here, and nothing is drawn.
"""

from .nearness import distances, similarity
from .positions import curves, encoding, offsets, oscillation, sine_and_cosine
from .turning import degrees, dials, frequencies

__all__ = [
    "curves",
    "degrees",
    "dials",
    "distances",
    "encoding",
    "frequencies",
    "offsets",
    "oscillation",
    "similarity",
    "sine_and_cosine",
]
