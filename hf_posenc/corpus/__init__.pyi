# The names of this room, each loaded on first use.

from .encode import encode as encode
from .encode import verify as verify
from .output import Report as Report

__all__: list[str]
