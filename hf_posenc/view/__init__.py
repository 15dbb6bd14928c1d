"""The Input Lab: a page about the inputs of a transformer, and the same views of a batch for notebooks.

A page is one HTML file without requests. The scripts compute tokens, sinusoids, masks and one attention head.
"""

from .batches import TokensOf, batch_html, facts
from .lab import lab_html, page_of

__all__ = ["TokensOf", "batch_html", "facts", "lab_html", "page_of"]
