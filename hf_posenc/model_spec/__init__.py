"""What a Hugging Face model wants to be fed, and where its positions are: found by running it on a few tokens."""

from .finding import find_positions, looks_at_positions
from .kinds import kinds_of
from .probing import check_numbers, token_embeddings
from .spec import ModelSpec
from .tables import Findings, Kind, PositionTable
from .windows import LayerMasks

__all__ = [
    "Findings",
    "Kind",
    "LayerMasks",
    "ModelSpec",
    "PositionTable",
    "check_numbers",
    "find_positions",
    "kinds_of",
    "looks_at_positions",
    "token_embeddings",
]
