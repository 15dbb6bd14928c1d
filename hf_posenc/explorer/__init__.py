"""The web page of `hf-posenc explore`: controls, and the tokens, masks and encodings that they produce.

Needs the extra `explore`. Importing the package does not import gradio; a call without gradio raises `ImportError`.
"""

from .page import build, look
from .serving import serve

__all__ = ["build", "look", "serve"]
