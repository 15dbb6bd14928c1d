"""Pictures of positional encodings: tables, waves, things that turn, and how near positions are.

The numbers drawn are those of `numbers`, under the same names.
"""

from .nearness import distances, similarity
from .tables import encoding, sine_and_cosine
from .turning import degrees, dials, frequencies
from .waves import curves, offsets, oscillation

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
