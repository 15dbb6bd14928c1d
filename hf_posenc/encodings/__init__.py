"""The alternatives to sinusoids, behind the same interface, so that a comparison is one argument.

Every one adds rows to vectors by `PositionalEncoding.forward`; what turns queries and keys has no place here.
"""

from ..sinusoid.adding import PositionalEncoding
from .absent import NoPositionalEncoding
from .exponential import ExponentialPositionalEncoding
from .fourier import FourierPositionalEncoding
from .kinds import KINDS, Kind, positional_encoding
from .learned import LearnedPositionalEncoding
from .scaled import ScaledSinusoidalPositionalEncoding

__all__ = [
    "KINDS",
    "ExponentialPositionalEncoding",
    "FourierPositionalEncoding",
    "Kind",
    "LearnedPositionalEncoding",
    "NoPositionalEncoding",
    "PositionalEncoding",
    "ScaledSinusoidalPositionalEncoding",
    "positional_encoding",
]
