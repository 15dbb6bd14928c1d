"""Keywords that the collator does not have, and the ones to use instead.

Words only: the settings themselves, and what they may be, are in `settings`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from .._explain import unknown_keyword

Class = TypeVar("Class", bound=type)

# Keywords that people bring along from elsewhere, and what the same thing is called here.
_CALLED_HERE = {
    "d_model": "embedding=512, an int, makes a table of that width",
    "embedding_dim": "embedding=512, an int, makes a table of that width",
    "hidden_size": "embedding=512, an int, makes a table of that width",
    "mlm": 'labels="masked_lm", or labels="causal_lm" for mlm=False',
    "model_spec": "model=..., a model or a ModelSpec",
    "spec": "model=..., a model or a ModelSpec",
    "max_len": "max_length=512",
    "model_max_length": "max_length=512",
    "max_source_length": "max_length=512",
    "max_seq_length": "max_length=512",
    "causal": "look_ahead=True",
    "pad_token_id": 'pad_token="[PAD]", the token itself',
    "return_offsets_mapping": "whole_word_mask=True keeps the words of tokens",
    "label_pad_token_id": "leave it out: labels are padded with -100, which losses ignore",
    "ignore_index": "leave it out: labels are padded with -100, which losses ignore",
    "padding_idx": 'pad_token="[PAD]", the token itself',
    "return_attention_mask": "leave it out: attention_mask is in every padded batch that needs one",
    "return_token_type_ids": "leave it out: token_type_ids are there where tokenizer.model_input_names lists them",
    "decoder_start_token_id": "model=..., which knows it; without one it is the tokenizer's bos",
    "text_target": 'text_target_column="target"',
    "text_pair": 'text_pair_column="text_pair"',
    "split_into_words": "is_split_into_words=True",
    "p": "dropout=0.1",
}


def refuses_unknown_keywords(cls: Class) -> Class:
    """Class decorator: a wrong keyword raises naming the right one, and the signature stays what it is."""
    init: Callable[..., None] = cls.__init__  # type: ignore[misc]  # ours, and not a subclass's
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **settings: Any) -> None:
        for name in settings:
            if name not in known:
                raise TypeError(unknown_keyword(name, known, _CALLED_HERE))
        init(self, *args, **settings)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls
