r"""Positional encodings: conventions, exact values, the modules that add them, and recognition of tables.

Everything that other rooms may import is listed here; positions themselves come from `positions`.
"""

from .absent import NoPositionalEncoding
from .adding import PositionalEncoding
from .cache import cached_tables, clear_cache
from .checks import USUAL_BASE
from .conventions import CONVENTIONS, Convention, fixed_bases, resolve_convention
from .conversion import convert
from .exact import round_once
from .exponential import ExponentialPositionalEncoding
from .fourier import FourierPositionalEncoding
from .identified import Identified
from .kinds import KINDS, Kind, positional_encoding, resolve_encoding
from .learned import LearnedPositionalEncoding
from .lookup import without_values
from .module import SinusoidalPositionalEncoding
from .recognition import identify
from .scaled import ScaledSinusoidalPositionalEncoding
from .settings import Scale, check_length
from .values import frequencies, sinusoidal_encoding, sinusoidal_table

__all__ = [
    "CONVENTIONS",
    "KINDS",
    "USUAL_BASE",
    "Convention",
    "ExponentialPositionalEncoding",
    "FourierPositionalEncoding",
    "Identified",
    "Kind",
    "LearnedPositionalEncoding",
    "NoPositionalEncoding",
    "PositionalEncoding",
    "Scale",
    "ScaledSinusoidalPositionalEncoding",
    "SinusoidalPositionalEncoding",
    "cached_tables",
    "check_length",
    "clear_cache",
    "convert",
    "fixed_bases",
    "frequencies",
    "identify",
    "positional_encoding",
    "resolve_convention",
    "resolve_encoding",
    "round_once",
    "sinusoidal_encoding",
    "sinusoidal_table",
    "without_values",
]
