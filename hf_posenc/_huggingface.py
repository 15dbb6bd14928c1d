"""What Hugging Face models, and the wrappers around them, do in ways of their own; kept in this one file.

Attributes and names only, and one function that loads a model: nothing else imports transformers, peft or torch, and no
model is run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._explain import explain, shorten

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


def virtual_tokens(model: Any) -> tuple[int, int]:
    r"""Return how many virtual tokens PEFT's prompt learning puts before a row, and before a row of a decoder.

    Args:
        model (`nn.Module`): wrapped, or not.

    Returns:
        Two `int`. Prompts are read by an encoder, if there is one; prefixes are a cache, which a decoder reads.
    """
    rows = targets = 0
    while (inner := _inside(model)) is not None:
        config: Any = getattr(model, "active_peft_config", None) if type(model).__module__.startswith("peft.") else None
        if getattr(config, "is_prompt_learning", False):
            is_prefix = getattr(config.peft_type, "value", config.peft_type) in ("PREFIX_TUNING", "CARTRIDGE")
            if is_prefix and inner.config.is_encoder_decoder:
                targets += config.num_virtual_tokens
            else:
                rows += config.num_virtual_tokens
        model = inner
    return rows, targets


def is_hugging_face(model: Any) -> bool:
    """Whether this is a `PreTrainedModel`, told by its classes' names, so that transformers need not be loaded."""
    return any(cls.__name__ == "PreTrainedModel" for cls in type(model).__mro__)


def no_model(rule: str, given: Any, *, trained: bool = True) -> str:
    r"""Return the message for a value that is not a model, with the expression that gives the model.

    Args:
        rule (`str`): the first line of the message.
        given (`object`): a name or folder, a configuration, a class of models, a `Trainer` or pipeline, anything.
        trained (`bool`, *optional*, defaults to `True`): load the weights of a name; `False` makes a new model.

    Returns:
        `str`, ready for a `TypeError`.

    Example:
        >>> print(no_model("model= takes the model itself", "bert-base-uncased"))
        model= takes the model itself
          got: 'bert-base-uncased', a name
          fix: model = AutoModel.from_pretrained('bert-base-uncased')
    """
    got, fix = shorten(given), "model = AutoModel.from_pretrained(name)"
    if not trained:
        fix = "model = AutoModel.from_config(AutoConfig.from_pretrained(name))"
    classes = {cls.__name__ for cls in (given if isinstance(given, type) else type(given)).__mro__}
    if isinstance(given, str | Path):
        got, fix = f"{got}, a name", fix.replace("name", repr(str(given)))
    elif isinstance(given, type):
        got, fix = f"the class {given.__name__}", f"model = {given.__name__}(config)"
    elif classes & {"PretrainedConfig", "PreTrainedConfig"}:
        got, fix = f"a {type(given).__name__}, a configuration", "model = AutoModel.from_config(config)"
    elif hasattr(getattr(given, "model", None), "forward"):
        got, fix = f"a {type(given).__name__}, which holds a model", "its attribute .model"
    return explain(rule, got=got, fix=fix)


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


def loaded_model(name: str, *, instead: str = "", **settings: Any) -> tuple[Any, set[str]]:
    r"""The model of that name or folder, without a word from transformers, and what its checkpoint lacks.

    Args:
        name (`str`): a name on the Hub, or a folder.
        instead (`str`, *optional*): a further way out, for the message.
        **settings: for `AutoModel.from_pretrained`.

    Returns:
        The model, and the names of its parameters that are not in the checkpoint.

    Raises:
        ValueError: if it cannot be loaded.
    """
    import transformers

    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        model, info = transformers.AutoModel.from_pretrained(
            name, output_loading_info=True, trust_remote_code=False, **settings
        )
    except Exception as error:  # whatever a file that is no model makes its reader raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "nothing said")
        here = "a folder written by model.save_pretrained(folder)"
        hub = "a folder with a model; one on the Hub must be in the cache, or the Hub in reach and HF_HUB_OFFLINE unset"
        raise ValueError(
            explain(
                f"{name} cannot be loaded as a model",
                got=f"{type(error).__name__}: {first}",
                fix=f"{here if Path(name).exists() else hub}{instead}",
            )
        ) from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    return model, set(info["missing_keys"])
