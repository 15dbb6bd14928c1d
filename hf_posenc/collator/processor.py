"""The collator as a processor of transformers: for `Trainer(processing_class=collate)` and `AutoProcessor`.

transformers and TRL test `isinstance(collate, ProcessorMixin)`. The module of `ProcessorMixin` takes two seconds to
import, so this module never imports it early: `Processor` gets this base class when transformers loads that module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from wrapt import register_post_import_hook

from .._explain import explain, shorten
from .settings import Settings


class Processor(Settings):
    """Methods and attributes that transformers, TRL and other trainers expect from a processor or a tokenizer.

    `AutoProcessor.from_pretrained` finds every subclass by its name, the last one defined if names are equal.
    """

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)

        def register(module: ModuleType) -> None:
            module.AutoProcessor.register(cls.__name__, cls, exist_ok=True)

        register_post_import_hook(register, "transformers.models.auto.processing_auto")

    @property
    def pad_token_id(self) -> int | None:
        """Id of the padding token; `Seq2SeqTrainer` pads generated ids with it."""
        return None if self.tokenizer.pad_token_id is None else int(self.tokenizer.pad_token_id)

    @property
    def eos_token_id(self) -> int | None:
        """Id of the end-of-sequence token; `None` if the tokenizer has none."""
        return None if self.tokenizer.eos_token_id is None else int(self.tokenizer.eos_token_id)

    @property
    def model_input_names(self) -> list[str]:
        """Input names of the tokenizer; `Trainer(processing_class=collate)` uses them."""
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
        """Return the texts of rows of ids, as `tokenizer.batch_decode` does; `decode` also leaves out -100."""
        return list(self.tokenizer.batch_decode(sequences, **settings))

    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any:
        r"""Return the text or the ids of a conversation; the ids are those of `tokenizer.apply_chat_template`.

        Args:
            conversation (list of messages, or list of conversations): each message has a `role` and a `content`, a
                `str` or a list of `{"type": "text", "text": ...}`.
            **settings: arguments of `ProcessorMixin.apply_chat_template`, such as `tokenize` and `return_dict`.

        Returns:
            `str`, or ids as a list with one entry for each conversation, also for a single one; a `BatchFeature` with
            such lists if `return_dict`.

        Raises:
            ValueError: if the tokenizer has no chat template.
        """
        from transformers.processing_utils import ProcessorMixin

        given = settings.pop("processor_kwargs", None) or {}
        settings["processor_kwargs"] = {"add_special_tokens": False, **given}  # the template writes them
        plain: Any = _with_plain_contents(conversation)
        return ProcessorMixin.apply_chat_template(self, plain, **settings)

    def _process(self, text: Any, **settings: Any) -> Any:
        """Return the tokenizer's `BatchEncoding`, with one row for a `str`, as processors of transformers do.

        Other trainers pass the settings of the tokenizer in `text_kwargs` and `common_kwargs`.
        """
        for name in ("images", "videos", "audio"):
            if settings.pop(name, None) is not None:
                raise ValueError(explain("a collator processes only texts", got=f"{name}=...", fix=f"leave out {name}"))
            settings.pop(f"{name}_kwargs", None)
        nested = [settings.pop(name, None) or {} for name in ("common_kwargs", "text_kwargs")]
        settings = {"add_special_tokens": self.add_special_tokens, **nested[0], **nested[1], **settings}
        return self.tokenizer([text] if isinstance(text, str) else text, **settings)


def _with_plain_contents(conversation: Any) -> Any:
    """Return messages with each content that is a list of texts joined to one `str`.

    TRL writes the messages for a processor in this form, and templates of text models take only strings.
    """
    if isinstance(conversation, dict):
        parts = conversation.get("content")
        if isinstance(parts, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
            return {**conversation, "content": "".join(part["text"] for part in parts)}
        return conversation
    if isinstance(conversation, Sequence) and not isinstance(conversation, str):
        return [_with_plain_contents(part) for part in conversation]
    return conversation


def _become_processor(module: ModuleType) -> None:
    if module.ProcessorMixin not in Processor.__bases__:
        Processor.__bases__ += (module.ProcessorMixin,)


register_post_import_hook(_become_processor, "transformers.processing_utils")
