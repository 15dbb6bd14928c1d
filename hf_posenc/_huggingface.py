"""What Hugging Face models, and the wrappers around them, do in ways of their own; kept in this one file.

Attributes and names only: nothing here imports transformers, peft or torch, and no model is run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

# Who keeps the wrapped model under `.module`: DDP and DataParallel, FSDP1, DeepSpeed's engine.
_KEEPS_MODULE = ("torch.nn.parallel.", "torch.distributed.", "deepspeed.", "accelerate.")

# The keys by which configurations say how many positions there are.
LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_encoder_position_embeddings",
    "max_decoder_position_embeddings",
    "max_source_positions",
    "max_target_positions",
)


def opened(model: Any) -> Any:
    r"""The model itself, without the wrappers around it: DDP, FSDP, DeepSpeed, PEFT, `torch.compile`.

    Args:
        model (`nn.Module`): wrapped any number of times, or not at all.

    Returns:
        The innermost model; the very object, not a copy.

    Example:
        >>> from torch import nn
        >>> layer = nn.Linear(2, 2)
        >>> opened(nn.DataParallel(layer)) is layer
        True
    """
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def _inside(model: Any) -> Any:
    home = f"{type(model).__module__}."
    if "_orig_mod" in getattr(model, "_modules", {}):  # torch.compile
        return model._orig_mod
    if home.startswith("peft.") and hasattr(model, "get_base_model"):
        return model.get_base_model()
    if home.startswith(_KEEPS_MODULE) and hasattr(model, "module"):
        return model.module
    return None


def is_hugging_face(model: Any) -> bool:
    """Whether this is a `PreTrainedModel`, told by its classes' names, so that transformers need not be loaded."""
    return any(cls.__name__ == "PreTrainedModel" for cls in type(model).__mro__)


def forward_names(model: Any) -> tuple[str, ...]:
    r"""The names that a model's forward has; what `*args` and `**kwargs` would swallow does not count.

    Example:
        >>> from torch import nn
        >>> forward_names(nn.Linear(2, 2))
        ('input',)
    """
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(model.forward).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def configurations(config: Any) -> Iterator[Any]:
    """A model's configuration and those inside it, of its text part, its encoder, its decoder."""
    yield config
    for value in list(vars(config).values()):
        if value is not config and any(
            cls.__name__ in {"PretrainedConfig", "PreTrainedConfig"} for cls in type(value).__mro__
        ):
            yield from configurations(value)


def special_ids(config: Any) -> set[int]:
    """Every token id that a configuration names: padding, end of sequence, images, and so on."""
    found: set[int] = set()
    for each in configurations(config):
        for name, value in vars(each).items():
            if name.endswith(("_token_id", "_token_index", "_token_ids", "_index")):
                found |= {item for item in (value if isinstance(value, list | tuple) else [value]) if type(item) is int}
    return found


def says_positions(config: Any) -> int | None:
    """How many positions a configuration says that there are, where it does."""
    for each in configurations(config):
        for key in LENGTH_KEYS:
            value = getattr(each, key, None)
            if type(value) is int and value > 0:
                return value
    return None


def only_length(config: Any) -> int | None:
    """The one length of rows that a model takes, where it takes no other: Nyströmformer with landmarks."""
    length = getattr(config, "segment_means_seq_len", None)
    return length if type(length) is int and length != getattr(config, "num_landmarks", length) else None
