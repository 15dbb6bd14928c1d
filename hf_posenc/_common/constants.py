"""Values and types that several rooms use."""

from typing import Literal

IGNORED = -100  # the label that the losses of torch and transformers ignore
PaddingSide = Literal["left", "right"]
