"""The page of `hf-posenc explore`: controls that move, and what becomes of positions, masks and tokens.

Needs the extra `explore`; importing this costs nothing, and calling says what is missing.
"""

from .page import build, look
from .serving import serve

__all__ = ["build", "look", "serve"]
