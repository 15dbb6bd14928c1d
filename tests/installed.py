"""What the installed versions of the libraries can do, for tests of what only newer ones can."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
from typing import Any

import transformers
from packaging.version import Version

ARGUMENTS = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
# transformers 5.2 renamed it.
GROUPED: dict[str, Any] = (
    {"train_sampling_strategy": "group_by_length"}
    if "train_sampling_strategy" in ARGUMENTS
    else {"group_by_length": True}
)


def before(library: str, version: str) -> bool:
    """Return True if the installed version of a library is older than `version`."""
    return Version(importlib.metadata.version(library)) < Version(version)


def makes_masks_of_four_dimensions(cls: type) -> bool:
    """Return True if the module of a bidirectional model has transformers' function for masks of four dimensions.

    MPNet and BigBird have it from transformers 5.9 on, ModernBERT from 5.1 on. Before, they ignore such masks.
    """
    return hasattr(sys.modules[cls.__module__], "create_bidirectional_mask")
