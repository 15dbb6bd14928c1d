"""Hugging Face models: their inputs and positions, found by running them, and sinusoids written into their tables."""

from .mask_support import LayerMasks
from .position_tables import ModelPositions, PositionKind, PositionTable, find_positions, kinds_of, position_lookups
from .probe import Probe, check_weights, token_embeddings, unchanged
from .properties import (
    forward_names,
    is_hugging_face,
    loaded_model,
    not_a_model,
    opened,
)
from .report import SinusoidalPositions
from .spec import ModelSpec
from .table_contents import looks_trained
from .use import recorded_formula, use_sinusoidal_positions

__all__ = [
    "LayerMasks",
    "ModelPositions",
    "ModelSpec",
    "PositionKind",
    "PositionTable",
    "Probe",
    "SinusoidalPositions",
    "check_weights",
    "find_positions",
    "forward_names",
    "is_hugging_face",
    "kinds_of",
    "loaded_model",
    "looks_trained",
    "not_a_model",
    "opened",
    "position_lookups",
    "recorded_formula",
    "token_embeddings",
    "unchanged",
    "use_sinusoidal_positions",
]
