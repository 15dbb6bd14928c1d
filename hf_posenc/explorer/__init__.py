"""The web page of `hf-posenc explore`: texts and settings, an interactive view of their batch, and short lessons."""

from .content import answer
from .server import serve
from .settings import Settings

__all__ = ["Settings", "answer", "serve"]
