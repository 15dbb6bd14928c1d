"""Conversations, lists of messages: their chat template makes rows of token ids, which `token_ids` reads."""

from __future__ import annotations

import json
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

    `assistant_masks` are 1 at what the assistant says, if the template marks it by `{% generation %}`.
    """
    assert given.conversations is not None
    columns = dict(given.columns)
    settings = template_settings(columns, given.count)
    rows: dict[str, list[list[int]]] = {}
    for conversation, row_settings in zip(given.conversations, settings, strict=True):
        for name, values in chat_ids(config, conversation, row_settings).items():
            rows.setdefault(name, []).append(values)
    if len({len(values) for values in rows.values()}) > 1:
        raise value_error(
            "the chat templates of all rows of a batch mark what the assistant says by {% generation %}, or none does",
            got=f"{len(rows['assistant_masks'])} of {given.count} rows with marks",
            fix="marks in all templates; or batches of rows with one template, chosen by tools or chat_template_kwargs",
        )
    return replace(given, columns={**columns, **rows})


def template_settings(columns: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Remove the columns `tools` and `chat_template_kwargs`, and return the arguments of the chat template by row."""
    # As TRL reads them: tools may be JSON, because the columns of their parameters differ.
    tools, others = (as_list(columns.pop(name, [None] * count)) for name in ("tools", "chat_template_kwargs"))
    lists = (json.loads(of_row) if isinstance(of_row, str) else _without_arrays(of_row) for of_row in tools)
    rows = zip(lists, others, strict=True)
    return [{"tools": of_row or None, **_without_arrays(other or {})} for of_row, other in rows]


def chat_ids(
    config: Config, conversation: Any, settings: Mapping[str, Any], *, add_generation_prompt: bool = False
) -> dict[str, list[int]]:
    """Return the `input_ids` of a conversation, and `assistant_masks` if the chat template marks its answers.

    Raise a `ValueError` if the tokenizer has no chat template.
    """
    tokenizer = config.tokenizer
    if not tokenizer.chat_template:
        raise value_error(
            f"conversations need a chat template, and this {type(tokenizer).__name__} has none",
            got="chat_template=None",
            fix="tokenizer.chat_template = ..., and then a collator of this tokenizer",
        )
    template = tokenizer.get_chat_template(settings.get("chat_template"), settings["tools"])
    is_marked = tokenizer.is_fast and re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None
    made = tokenizer.apply_chat_template(
        _without_arrays(conversation),
        **settings,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=is_marked,
        add_generation_prompt=add_generation_prompt,
    )
    names = ("input_ids", "assistant_masks") if is_marked else ("input_ids",)
    return {name: list(made[name]) for name in names}


def _without_arrays(value: Any) -> Any:
    """Return messages or tools with lists in place of the arrays of pandas, which a chat template cannot test."""
    if isinstance(value, Mapping):
        return {name: _without_arrays(part) for name, part in value.items()}
    if isinstance(value, (list, np.ndarray)):
        return [_without_arrays(part) for part in value]
    return value
