"""Conversations, lists of messages: their chat template makes rows of token ids, which `token_ids` reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .._common.errors import value_error
from .config import Config
from .inputs import Given, as_list


def tokenize_conversations(config: Config, given: Given) -> Given:
    """Return the ids of conversations, as `tokenizer.apply_chat_template` makes them.

    `assistant_masks` are 1 at what the assistant says, if the template marks it by `{% generation %}`. A column `tools`
    goes to the template. Raise a `ValueError` if the tokenizer has no chat template.
    """
    tokenizer = config.tokenizer
    if not tokenizer.chat_template:
        raise value_error(
            f"conversations need a chat template, and this {type(tokenizer).__name__} has none",
            got="chat_template=None",
            fix="tokenizer.chat_template = ..., and then a collator of this tokenizer",
        )
    assert given.conversations is not None
    columns = dict(given.columns)
    tools = _without_arrays(as_list(columns.pop("tools", [None] * given.count)))
    rows: dict[str, list[list[int]]] = {"input_ids": []}
    for conversation, row_tools in zip(_without_arrays(given.conversations), tools, strict=True):
        template = tokenizer.get_chat_template(None, row_tools or None)
        is_marked = tokenizer.is_fast and re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None
        made = tokenizer.apply_chat_template(
            conversation,
            tools=row_tools or None,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=is_marked,
        )
        rows["input_ids"].append(list(made["input_ids"]))
        if is_marked:
            rows.setdefault("assistant_masks", []).append(list(made["assistant_masks"]))
    return replace(given, columns={**columns, **rows})


def _without_arrays(value: Any) -> Any:
    """Return messages or tools with lists in place of the arrays of pandas, which a chat template cannot test."""
    if isinstance(value, Mapping):
        return {name: _without_arrays(part) for name, part in value.items()}
    if isinstance(value, (list, np.ndarray)):
        return [_without_arrays(part) for part in value]
    return value
