"""What a corpus is read from: files of text and tables, folders of them, data sets; and how it is cut into tasks.

The inputs are read in one process, in order, and never as a whole; what is read goes to `rows` as bytes.
"""

from .sources import Sources, open_sources

__all__ = ["Sources", "open_sources"]
