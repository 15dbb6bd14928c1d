"""Sinusoidal positions inside a Hugging Face model: write them into its tables, report them, undo the change."""

from .report import SinusoidalPositions
from .table_contents import looks_trained
from .use import recorded_formula, use_sinusoidal_positions

__all__ = ["SinusoidalPositions", "looks_trained", "recorded_formula", "use_sinusoidal_positions"]
