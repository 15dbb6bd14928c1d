"""Differences between versions of torch, transformers and datasets, and private names of these libraries.

These are the functions to check for a new version. Private names that are used elsewhere: those of the base classes in
`sampling.trainer` and `sampling.arrow_batches`, `_load_from_state_dict`, `_parameters` and `_buffers` of modules,
`Dataset._fingerprint` in `corpus.encode`, `_raise_exceptions_for_missing_entries` in `tokenization.loading`, and
`_ConvNd` in `models.probe`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedTokenizerBase

# The argument of a model's `forward` that takes its key-value cache: `cache` since transformers 5.24.
CACHES = ("cache", "cache_params", "past_key_values")


def render_chat(
    special_tokens: Mapping[str, Any], messages: Sequence[Any], template: str, settings: Mapping[str, Any]
) -> tuple[str, list[tuple[int, int]] | None]:
    """Return the text that `tokenizer.apply_chat_template(messages, chat_template=template, **settings)` makes.

    Also return the `(start, stop)` of each block of `{% generation %}`, or `None` if the template has none. Before
    transformers 5.24 a mask of tokens runs to the end of the row if a block ends in white space, so it is not used.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    marks = bool(re.search(r"\{%-?\s*generation\s*-?%\}", template)) and not settings.get("continue_final_message")
    values = {**special_tokens, **settings, "chat_template": template}
    rendered: Any = render_jinja_template([messages], return_assistant_tokens_mask=marks, **values)
    return rendered[0][0], rendered[1][0] if marks else None


def other_sampling(args: Any) -> str | None:
    """Return the argument of `TrainingArguments` that replaces random batches, as text, or `None` if none does.

    transformers 5.0 has `group_by_length` instead of `train_sampling_strategy`.
    """
    if not hasattr(args, "train_sampling_strategy"):
        return "group_by_length=True" if args.group_by_length else None
    strategy = args.train_sampling_strategy
    return None if strategy == "random" else f"train_sampling_strategy={strategy!r}"


def default_device() -> torch.device:
    """Return `torch.get_default_device()`, which ignores `with torch.device(...)` in torch 2.6."""
    import torch
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    contexts = [mode for mode in modes if isinstance(mode, DeviceContext)]
    if contexts and contexts[-1].device.index is not None:
        return contexts[-1].device  # without asking the accelerator, which may not be here
    return torch.empty(0).device if contexts else torch.get_default_device()


# ------------------------------------------------------------------------------------------------ private: transformers


def has_target_mode(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return True for Marian, mBART, NLLB, M2M100 and the like, which tokenize targets in another mode than inputs."""
    return hasattr(tokenizer, "_switch_to_target_mode")


def switch_mode(tokenizer: PreTrainedTokenizerBase, *, targets: bool) -> None:
    """Switch a tokenizer to its mode for targets or for inputs, if it has one; see `has_target_mode`."""
    switch = getattr(tokenizer, "_switch_to_target_mode" if targets else "_switch_to_input_mode", None)
    if switch is not None:
        switch()


def stored_special_tokens(attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the special tokens by name, from the attributes of a tokenizer of transformers; `None` if not found."""
    return attributes.get("_special_tokens_map")


def has_own_call(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return True if the class of a fast tokenizer overrides `tokenizer(...)` with steps in Python."""
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    kind = type(tokenizer)
    return (
        kind.__call__ is not PreTrainedTokenizerBase.__call__
        or kind._encode_plus is not PreTrainedTokenizerFast._encode_plus
    )


def replace_rust_part(tokenizer: PreTrainedTokenizerBase, rust: object) -> None:
    """Replace the Rust tokenizer inside a fast tokenizer."""
    tokenizer._tokenizer = rust


def large_parts(tokenizer: PreTrainedTokenizerBase) -> list[Any]:
    """Return the Rust tokenizer and the vocabulary inside a tokenizer, nearly all of its size."""
    return [value for name, value in vars(tokenizer).items() if name in ("_tokenizer", "_vocab", "_merges")]


def attention_implementation(config: Any) -> str | None:
    """Return the name of a configuration's attention, such as "sdpa"."""
    name: str | None = getattr(config, "_attn_implementation", None)
    return name


def set_attention_implementation(config: Any, name: str) -> None:
    """Set the name of a configuration's attention, without the checks of `model.set_attn_implementation`."""
    config._attn_implementation = name


@functools.cache
def wrap_attention(attention: Callable[..., Any], mask: Callable[..., Any]) -> tuple[str | None, ...]:
    """Wrap, once in a process, every attention function and mask function that transformers looks up for a model.

    `attention(name, stock, ...)` and `mask(stock, ...)` get the arguments of the `stock` function that they replace.
    Return the names of the attentions that are looked up, flash attention aside.
    """
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    # transformers 5.0 reads the functions by index, and eager attention not at all.
    method = "get_interface" if hasattr(AttentionInterface, "get_interface") else "__getitem__"
    attention_of, mask_of = getattr(AttentionInterface, method), AttentionMaskInterface.__getitem__

    def wrapped_attention(self: Any, name: str, *default: Any) -> Any:
        return functools.partial(attention, name, attention_of(self, name, *default))

    def wrapped_mask(self: Any, name: str) -> Any:
        return functools.partial(mask, mask_of(self, name))

    setattr(AttentionInterface, method, wrapped_attention)
    AttentionMaskInterface.__getitem__ = wrapped_mask
    return ("sdpa", "eager", None) if method == "get_interface" else ("sdpa",)


def is_replica(module: nn.Module) -> bool:
    """Return True for a copy of a module that `torch.nn.DataParallel` made for one of its devices."""
    return bool(getattr(module, "_is_replica", False))


def is_partitioned(tensor: torch.Tensor) -> bool:
    """Return True for a parameter that DeepSpeed (ZeRO 3) partitioned over processes."""
    return hasattr(tensor, "ds_id")


def is_recurrent(model: nn.Module) -> bool:
    """Return True if `model` or a part of it has layers with a recurrent state, such as linear attention."""
    return any(getattr(module, "_is_stateful", False) for module in model.modules())


def loss_shifts_labels(trainer: Any) -> bool:
    """Return True if `Trainer` knows that the loss function of its model shifts labels."""
    return bool(getattr(trainer, "_loss_shifts_labels", False))


# --------------------------------------------------------------------------------------- private: datasets, accelerate


def leave_out_of_fingerprints(kind: type) -> None:
    """Make the fingerprints of `datasets` ignore objects of a class, if `datasets` is imported."""
    register = getattr(sys.modules.get("datasets.utils._dill"), "pklregister", None)
    if register is not None:
        register(kind)(lambda pickler, _: pickler.save(None))


def indices_of(dataset: Any) -> Any:
    """Return the Arrow table of the row numbers of a selected, shuffled or sorted data set; `None` for all rows."""
    return dataset._indices


def node_of(stream: Any) -> Any:
    """Return `rank` and `world_size` of a stream made by `split_dataset_by_node`, as an object; otherwise `None`."""
    return getattr(stream, "_distributed", None)


def progress_bar(description: str, total: int | None) -> Any:
    """Return a bar of rows for work in this process, shown after two seconds: that of datasets, if it is loaded.

    `datasets.disable_progress_bars()` hides it. `total` is the number of rows, `None` if it is not known.
    """
    bars = sys.modules.get("datasets.utils.tqdm")
    if bars is None:
        from tqdm.auto import tqdm as bar
    else:
        bar = bars.tqdm
    return bar(desc=description, total=total, unit=" rows", delay=2, leave=False)


def processes_of_accelerate() -> int:
    """Return accelerate's number of processes, without importing accelerate; 1 if accelerate is not initialized."""
    module = sys.modules.get("accelerate.state")
    state = {} if module is None else module.PartialState._shared_state
    return int(state.get("num_processes", 1))


# ------------------------------------------------------------------------------------------------------- private: torch


def is_fake(tensor: torch.Tensor) -> bool:
    """Return True for a tensor whose values cannot be read: a fake tensor, or any tensor inside of torch.func."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor) or torch._C._functorch.peek_interpreter_stack() is not None


def version_of(tensor: torch.Tensor) -> int:
    """Return the number of writes to the memory of a tensor; 0 for one made in inference mode, which counts none."""
    return 0 if tensor.is_inference() else tensor._version


def has_forward_hooks(module: nn.Module) -> bool:
    """Return True if a hook runs before or after the forward of a module, also one for all modules."""
    from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

    return any((module._forward_hooks, module._forward_pre_hooks, _global_forward_hooks, _global_forward_pre_hooks))


def uncompiled(model: Any) -> Any:
    """Return the module inside the result of `torch.compile(model)`; `None` for other objects."""
    return model._orig_mod if "_orig_mod" in getattr(model, "_modules", {}) else None


def bytes_of_table(table: Any) -> int:
    """Return `table.nbytes`; pyarrow 18 has none for tables with a column of type `string_view`."""
    try:
        return int(table.nbytes)
    except TypeError:
        return int(table.get_total_buffer_size())


@contextmanager
def untraced() -> Iterator[None]:
    """Leave what runs in a `with` block out of the graph that `torch.jit.trace` records; its tensors are constants."""
    import torch

    state: Any = torch._C
    before = state._get_tracing_state()
    state._set_tracing_state(None)
    try:
        yield
    finally:
        state._set_tracing_state(before)
