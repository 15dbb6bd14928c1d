"""Find the inputs and positions of a Hugging Face model by running it on a few tokens."""

from .mask_support import LayerMasks
from .position_tables import ModelPositions, PositionKind, PositionTable, find_positions, kinds_of, position_lookups
from .probe import Probe, check_weights, relative_difference, token_embeddings, unchanged, with_masks
from .spec import ModelSpec

__all__ = [
    "LayerMasks",
    "ModelPositions",
    "ModelSpec",
    "PositionKind",
    "PositionTable",
    "Probe",
    "check_weights",
    "find_positions",
    "kinds_of",
    "position_lookups",
    "relative_difference",
    "token_embeddings",
    "unchanged",
    "with_masks",
]
