"""Differences between the supported versions of torch, transformers and datasets, with one function for each.

Nothing else in this package asks for a version. Each function says which versions differ, so that it can go with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .errors import shorten, value_error

if TYPE_CHECKING:
    import torch


def apply_chat_template(processor: Any, conversation: Any, settings: Mapping[str, Any]) -> Any:
    """Return `ProcessorMixin.apply_chat_template(processor, conversation, **settings)`, for texts alone.

    transformers 5.0 to 5.3 have no `processor_kwargs`, and fail with `tokenize=True` at a content that is a string. So
    they only render the texts here, which are then tokenized as transformers 5.4 does.
    """
    from transformers import PreTrainedTokenizerBase, ProcessorMixin
    from transformers.utils.chat_template_utils import render_jinja_template

    names = inspect.signature(ProcessorMixin.apply_chat_template).parameters
    if settings.get("sanitize_control_tokens") and "sanitize_control_tokens" not in names:
        raise value_error(
            "this version of transformers cannot sanitize control tokens",
            got=f"sanitize_control_tokens=True with transformers {version('transformers')}",
            fix="pip install 'transformers>=5.23'",
        )
    if "processor_kwargs" in names:
        return ProcessorMixin.apply_chat_template(processor, conversation, **settings)
    settings = {**settings}
    given = dict(settings.pop("processor_kwargs", None) or {})
    settings.pop("sanitize_control_tokens", None)
    tokenize, return_dict = settings.pop("tokenize", False), settings.pop("return_dict", False)
    call = inspect.signature(PreTrainedTokenizerBase.__call__).parameters
    given = {name: settings.pop(name) for name in sorted(settings.keys() & call.keys())} | given
    texts = ProcessorMixin.apply_chat_template(processor, conversation, **settings, tokenize=False)
    if not tokenize:
        return texts

    is_batch = not isinstance(texts, str)
    texts, chats = (texts, conversation) if is_batch else ([texts], [conversation])
    contents = [message["content"] for chat in chats for message in chat]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    if others := [part for part in parts if part["type"] != "text" and len(part) > 1]:
        raise value_error("a collator processes only texts", got=shorten(others[0]), fix="leave it out")
    tokenizer = processor.tokenizer
    if tokenizer.bos_token is not None and texts[0].startswith(tokenizer.bos_token):
        given["add_special_tokens"] = False
    if not return_dict:
        return processor(text=texts, **given)["input_ids"]
    if not settings.pop("return_assistant_tokens_mask", False):
        return processor(text=texts, **given)
    template = tokenizer.get_chat_template(settings.pop("chat_template", None))
    values = {**tokenizer.special_tokens_map, **settings}
    _, spans = render_jinja_template(chats, chat_template=template, return_assistant_tokens_mask=True, **values)
    rows = processor(text=texts, **given, return_offsets_mapping=True)
    rows["assistant_masks"] = [
        [int(any(start < last and first < end for first, last in said)) for start, end in offsets]
        for offsets, said in zip(rows.pop("offset_mapping"), spans, strict=True)
    ]
    return rows.convert_to_tensors(given.get("return_tensors"))


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
