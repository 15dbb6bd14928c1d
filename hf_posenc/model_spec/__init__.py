"""What a Hugging Face model wants to be fed, and where its positions are: found by running it on a few tokens."""

from .spec import ModelSpec
from .tables import Findings, PositionTable, find_positions

__all__ = ["Findings", "ModelSpec", "PositionTable", "find_positions"]
