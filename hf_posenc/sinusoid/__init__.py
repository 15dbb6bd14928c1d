r"""Sinusoidal and other positional encodings: functions, modules, and recognition of sinusoids in position tables.

Other packages of `hf_posenc` import from `hf_posenc.sinusoid` only, not from its modules. Position ids are computed in
`hf_posenc.positions`.
"""

from .alternatives import (
    KINDS,
    ExponentialPositionalEncoding,
    Kind,
    NoPositionalEncoding,
    ScaledSinusoidalPositionalEncoding,
    positional_encoding,
    resolve_encoding,
)
from .arguments import USUAL_BASE, Scale, check_length, without_values
from .cache import cached_tables, clear_cache
from .conventions import CONVENTIONS, Convention, fixed_bases, resolve_convention
from .exact import round_once
from .functional import convert, frequencies, sinusoidal_encoding, sinusoidal_table
from .learned import FourierPositionalEncoding, LearnedPositionalEncoding
from .module import PositionalEncoding, SinusoidalPositionalEncoding
from .recognition import Identified, identify

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
