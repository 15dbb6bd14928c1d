"""Sinusoidal positions inside a Hugging Face model."""

from .report import SinusoidalPositions
from .use import use_sinusoidal_positions

__all__ = ["SinusoidalPositions", "use_sinusoidal_positions"]
