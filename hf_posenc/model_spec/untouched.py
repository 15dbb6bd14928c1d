"""Running a model without leaving a trace: mode, attributes, configuration, random numbers and logs as they were.

Some models change themselves in a forward (BigBird exchanges its attention for short rows), so all of it is put back.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from .._huggingface import configurations

# Modules keep these in dicts of their own, which a forward may write to.
_KEPT_IN_DICTS = ("_parameters", "_buffers", "_modules")


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    r"""Put a model into evaluation mode; afterwards the model and everything around it are as they were.

    Args:
        model (`nn.Module`): attributes, submodules and configuration are put back; numbers in place are not copied.

    Example:
        >>> model = nn.Dropout().train()
        >>> with untouched(model):
        ...     model.training
        False
        >>> model.training
        True
    """
    before = [
        (module, dict(vars(module)), [(name, dict(vars(module)[name])) for name in _KEPT_IN_DICTS])
        for module in model.modules()
    ]
    config = getattr(model, "config", None)
    configs = [
        (vars(each), dict(vars(each)), _contents(vars(each)))
        for each in (configurations(config) if config is not None else ())
    ]
    python_state = random.getstate()  # dropping layers draws from it in some models
    numpy_state = np.random.get_state()  # noqa: NPY002  (BigBird draws from it)
    logger = logging.getLogger("transformers")
    level = logger.level
    devices = sorted({tensor.device.index or 0 for tensor in model.parameters() if tensor.device.type == "cuda"})
    try:
        logger.setLevel(logging.CRITICAL)
        for module, _, _ in before:
            module.training = False
            if "_compiled_call_impl" in vars(module):
                module._compiled_call_impl = None  # a graph that is compiled for a probe helps nobody
        with torch.random.fork_rng(devices):
            yield
    finally:
        logger.setLevel(level)
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        for module, attributes, dicts in before:
            _put_back(vars(module), attributes)
            for name, content in dicts:
                _put_back(vars(module)[name], content)
        for now, values, contents in configs:
            changed = {name: content for name, content in contents.items() if values[name] != content}
            _put_back(now, values | changed)


def _contents(values: dict[str, Any]) -> dict[str, Any]:
    """Copies of the lists and dicts, to be put back where one was changed in place."""
    return {name: copy.copy(value) for name, value in values.items() if isinstance(value, dict | list | set)}


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    for name in now.keys() - before.keys():
        del now[name]
    for name, value in before.items():
        if name not in now or now[name] is not value:
            now[name] = value
