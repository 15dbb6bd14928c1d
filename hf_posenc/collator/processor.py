"""The collator as a processor of transformers: for `Trainer(processing_class=collate)` and `AutoProcessor`.

transformers and TRL test `isinstance(collate, ProcessorMixin)`. The module of `ProcessorMixin` takes two seconds to
import, so it is not imported here: `Processor` gets the base class `ProcessorMixin` when transformers loads its module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wrapt import register_post_import_hook

from .._common.compat import apply_chat_template
from .._common.errors import explain, shorten, value_error
from ..tokenization.loading import STATE_LOCK
from .conversations import texts_read
from .settings import Settings


class Processor(Settings):
    """Base class of a collator, with the attributes and methods that trainers expect from a processor or a tokenizer.

    The trainers are those of transformers, TRL and other libraries. Every subclass is registered by its name with
    `AutoProcessor`. If two subclasses have the same name, the later one is used.
    """

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)

        def register(module: ModuleType) -> None:
            module.AutoProcessor.register(cls.__name__, cls, exist_ok=True)

        # `AutoProcessor` finds a class by the name in `processor_config.json` among those that are registered.
        register_post_import_hook(register, "transformers.models.auto.processing_auto")

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            fix = None
            if not name.startswith("_") and hasattr(vars(self).get("tokenizer"), name):
                fix = (
                    f"collate.tokenizer.{name}; a pipeline takes tokenizer=collate.tokenizer, RewardTrainer "
                    "processing_class=collate.tokenizer"
                )
            raise AttributeError(explain(f"a collator has no attribute '{name}'", fix=fix), name=name, obj=self)

    @property
    def pad_token_id(self) -> int | None:
        """Id of the padding token, or `None`; `Seq2SeqTrainer` pads generated ids with it."""
        return None if self.tokenizer.pad_token_id is None else int(self.tokenizer.pad_token_id)

    @property
    def eos_token_id(self) -> int | None:
        """Id of the end-of-sequence token; `None` if the tokenizer has none."""
        return None if self.tokenizer.eos_token_id is None else int(self.tokenizer.eos_token_id)

    @property
    def model_input_names(self) -> list[str]:
        """Names of the inputs that the tokenizer makes, such as `input_ids`; trainers read them."""
        return list(self.tokenizer.model_input_names)

    @property
    def chat_template(self) -> Any:
        """Chat template of the tokenizer; `None` if it has none."""
        return self.tokenizer.chat_template

    @chat_template.setter
    def chat_template(self, template: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            explain(
                "the chat template of a collator cannot be changed, because a collator is immutable",
                got=f"collate.chat_template = {shorten(template)}",
                fix="tokenizer.chat_template = ..., and then a collator of this tokenizer",
            )
        )

    def batch_decode(self, sequences: Any, **settings: Any) -> list[str]:
        """Return one text per row of ids, from `tokenizer.batch_decode`. For ids with -100 call `decode`."""
        return list(self.tokenizer.batch_decode(sequences, **settings))

    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any:
        r"""Format a conversation with the chat template, and return its text or, with `tokenize=True`, its ids.

        Args:
            conversation (list of messages, or list of conversations): each message has a `role` and a `content`, a
                `str` or a list of `{"type": "text", "text": ...}`. If the chat template cannot read such lists, as most
                templates of text models, each list is joined to one `str` first.
            **settings: arguments of `ProcessorMixin.apply_chat_template`, such as `tokenize` and `return_dict`.

        Returns:
            - The text: a `str`, or a list of `str` for a list of conversations.
            - With `tokenize=True`: a list with the ids of each conversation, even if there is only one. They are the
              ids of `tokenizer.apply_chat_template`.
            - With `tokenize=True` and `return_dict=True`: the tokenizer's `BatchEncoding`, with such lists.

        Raises:
            ValueError: if the tokenizer has no chat template.
        """
        processor_kwargs = settings.pop("processor_kwargs", None) or {}
        settings["processor_kwargs"] = {"add_special_tokens": False, **processor_kwargs}  # the template adds them

        # TRL passes lists to every processor, and templates that read only strings fail, leave them out or print them.
        joined = _with_contents(conversation, lambda parts: "".join(part["text"] for part in parts))
        if joined != conversation:
            template = self.tokenizer.get_chat_template(settings.get("chat_template"), settings.get("tools"))
            if texts_read(template, as_list=False) > texts_read(template, as_list=True):
                conversation = joined
        return apply_chat_template(self, conversation, settings)

    def _process(self, **settings: Any) -> Any:
        """Call the tokenizer and return its `BatchEncoding`. A single `str` gives a batch of one row."""
        for name in ("images", "videos", "audio"):
            if settings.pop(name, None) is not None:
                raise value_error("a collator processes only texts", got=f"{name}=...", fix=f"leave out {name}")
            settings.pop(f"{name}_kwargs", None)
        nested = [settings.pop(name, None) or {} for name in ("common_kwargs", "text_kwargs")]
        settings = {"add_special_tokens": self.add_special_tokens, **nested[0], **nested[1], **settings}
        for name in ("text", "text_pair", "text_target", "text_pair_target"):
            if isinstance(settings.get(name), str):
                settings[name] = [settings[name]]
        with STATE_LOCK:
            return self.tokenizer(**settings)


def _with_contents(conversation: Any, content: Callable[[list[Any]], Any]) -> Any:
    """Return a conversation in which each content that is a list of texts is replaced by `content(list)`."""
    if isinstance(conversation, dict):
        parts = conversation.get("content")
        if isinstance(parts, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
            return {**conversation, "content": content(parts)}
        return conversation
    if isinstance(conversation, Sequence) and not isinstance(conversation, str):
        return [_with_contents(part, content) for part in conversation]
    return conversation


def _become_processor(module: ModuleType) -> None:
    if module.ProcessorMixin not in Processor.__bases__:
        Processor.__bases__ += (module.ProcessorMixin,)


register_post_import_hook(_become_processor, "transformers.processing_utils")
