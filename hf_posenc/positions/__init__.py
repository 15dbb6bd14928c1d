r"""Position ids, sinusoidal and other positional encodings, and the modules that add them to embeddings.

Other rooms import from `hf_posenc.positions` only, not from its modules.
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
from .embedding import MAX_SPREAD, PositionalEmbedding
from .exact import round_once
from .functional import frequencies, reorder_columns, sinusoidal_encoding, sinusoidal_table
from .learned import FourierPositionalEncoding, LearnedPositionalEncoding
from .module import PositionalEncoding, SinusoidalPositionalEncoding
from .position_ids import (
    position_ids_from_documents,
    position_ids_from_lengths,
    position_ids_from_mask,
    row_length,
)
from .recognition import Identified, identify

__all__ = [
    "CONVENTIONS",
    "KINDS",
    "MAX_SPREAD",
    "USUAL_BASE",
    "Convention",
    "ExponentialPositionalEncoding",
    "FourierPositionalEncoding",
    "Identified",
    "Kind",
    "LearnedPositionalEncoding",
    "NoPositionalEncoding",
    "PositionalEmbedding",
    "PositionalEncoding",
    "Scale",
    "ScaledSinusoidalPositionalEncoding",
    "SinusoidalPositionalEncoding",
    "cached_tables",
    "check_length",
    "clear_cache",
    "fixed_bases",
    "frequencies",
    "identify",
    "position_ids_from_documents",
    "position_ids_from_lengths",
    "position_ids_from_mask",
    "positional_encoding",
    "reorder_columns",
    "resolve_convention",
    "resolve_encoding",
    "round_once",
    "row_length",
    "sinusoidal_encoding",
    "sinusoidal_table",
    "without_values",
]
