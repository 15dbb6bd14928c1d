"""Conversations, lists of messages: their chat template makes texts, in which the assistant's messages are found.

The texts become rows of token ids and `assistant_masks`, which `token_ids` reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.compat import render_chat
from .._common.errors import lone_surrogate, shorten, value_error
from ..ragged import lock_free_cache
from .config import Config
from .inputs import Given, as_list, is_missing

Span = tuple[int, int]  # the first character, and the one behind the last

_REASONING = ("reasoning_content", "reasoning", "thinking")
_WEIGHTS = ("weight", "train", "trainable", "loss", "loss_mask")  # of OpenAI, axolotl, LLaMA-Factory and others
_ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython", "observation")
_FOREIGN = ("gpt", "model", "bot", "ai", "chatbot", "chatgpt", "agent", "llm")  # names of the role `assistant`
_TAG = r"<[^<>\s]+>"
_WAY_OUT = 'rows of input_ids and assistant_masks; or "train": False in this message, which leaves it out'
_SAMPLE = "one\ntwo"  # a printed list would escape the line break


def tokenize_conversations(config: Config, given: Given) -> Given:
    """Return the ids of conversations, and `assistant_masks`, which are 1 at the tokens that the model would generate.

    These are the tokens of each message of the assistant, and the end token behind it. If the chat template marks other
    ones by `{% generation %}`, its marks count.
    """
    assert given.conversations is not None
    columns = dict(given.columns)
    settings = template_settings(columns, given.count)
    prompts = given.prompt_messages or [0] * given.count
    for chat, prompt, options in zip(given.conversations, prompts, settings, strict=True):
        if prompt == len(chat):  # a prompt alone, which the model continues
            options.setdefault("add_generation_prompt", True)
        elif config.has_targets and prompt:
            raise value_error(
                "an encoder-decoder reads a prompt and its completion as texts",
                got="lists of messages",
                fix='dataset.map(lambda row: {name: row[name][-1]["content"] for name in ("prompt", "completion")})',
            )
        elif options.get("add_generation_prompt") and chat[-1]["role"] == "assistant":
            raise value_error(
                "add_generation_prompt=True begins an answer, and the conversation ends with one",
                got=f"chat_template_kwargs {shorten(options)}",
                fix="leave it out of chat_template_kwargs",
            )
    chats = [Chat(config, row, each, settings[row]) for row, each in enumerate(given.conversations)]
    spans = [chat.answers(prompt) for chat, prompt in zip(chats, prompts, strict=True)]
    texts = [chat.text for chat in chats]
    if config.tokenizer.is_fast:
        made = config.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
        ids, masks = made["input_ids"], list(map(_mask, made["offset_mapping"], spans))
    else:
        rows = [_divided(config, row, *each) for row, each in enumerate(zip(texts, spans, strict=True))]
        ids, masks = [list(column) for column in zip(*rows, strict=True)]
    return replace(given, columns={**columns, "input_ids": ids, "assistant_masks": masks})


def template_settings(columns: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Remove the columns `tools` and `chat_template_kwargs`, and return the arguments of the chat template by row."""
    # As TRL reads them: tools may be JSON, because the columns of their parameters differ.
    tools, others = (as_list(columns.pop(name, [None] * count)) for name in ("tools", "chat_template_kwargs"))

    def read(name: str, row: int, value: Any) -> Any:
        try:
            return json.loads(value) if isinstance(value, str) else _without_arrays(value)
        except ValueError as error:
            rule = f"row {row} of column '{name}' is a text that is no JSON"
            raise value_error(
                rule, got=f"{shorten(value)}: {error}", fix=f"dataset.remove_columns('{name}')"
            ) from error

    rows = enumerate(zip(tools, others, strict=True))
    return [
        {"tools": read("tools", row, of_row) or None, **(read("chat_template_kwargs", row, other) or {})}
        for row, (of_row, other) in rows
    ]


def _mask(offsets: list[Span], spans: list[Span]) -> NDArray[np.int64]:
    """Return 1 for each token with a character in one of the spans."""
    starts, stops = np.array(offsets, np.int64).reshape(-1, 2).T
    starts = np.where(starts == stops, starts - 1, starts)  # with trim_offsets=True, a space has an empty one behind it
    mask = np.zeros(len(starts), np.int64)
    for start, stop in spans:
        mask |= (starts < stop) & (stops > start)
    return mask


def _divided(config: Config, row: int, text: str, spans: list[Span]) -> tuple[list[int], list[int]]:
    """Return the ids and the mask of a text without offsets: its parts are tokenized alone."""
    bounds = [0, *(bound for span in spans for bound in span), len(text)]
    parts = [config.tokenizer(text[a:b], add_special_tokens=False)["input_ids"] for a, b in pairwise(bounds)]
    ids = config.tokenizer(text, add_special_tokens=False)["input_ids"]
    if [token for part in parts for token in part] != ids:
        raise value_error(
            f"row {row}: what the assistant says cannot be found, because a slow tokenizer has no offsets",
            got=f"{type(config.tokenizer).__name__}, whose tokens cross the beginning or the end of an answer",
            fix="a fast tokenizer; or rows of input_ids and assistant_masks",
        )
    return ids, [number % 2 for number, part in enumerate(parts) for _ in part]


class Chat:
    r"""Conversation of a row, and its `text` that the chat template makes.

    Raise a `ValueError` if the tokenizer has no chat template, or if the template fails; it names row and message.
    """

    def __init__(self, config: Config, row: int, conversation: Any, settings: Mapping[str, Any]) -> None:
        self._tokenizer, self._row, self._settings = config.tokenizer, row, settings
        self._special = config.tokenizer.special_tokens_map
        if not config.tokenizer.chat_template:
            raise value_error(
                f"conversations need a chat template, and this {type(config.tokenizer).__name__} has none",
                got="chat_template=None",
                fix="tokenizer.chat_template = ..., and then a collator of this tokenizer",
            )
        self._template = config.tokenizer.get_chat_template(settings.get("chat_template"), settings["tools"])
        # `datasets` fills keys that a message does not have with None.
        self._messages: list[dict[str, Any]] = [
            {name: _without_arrays(part) for name, part in each.items() if not is_missing(part)}
            for each in conversation
        ]
        texts, lists = texts_read(self._template, as_list=False), texts_read(self._template, as_list=True)
        for message in self._messages if texts != lists else ():
            content = message.get("content")
            if isinstance(content, str) and lists > texts:
                message["content"] = _parts(content)
            elif isinstance(content, list) and texts > lists:
                given: list[Any] = [part.get("text") if isinstance(part, dict) else part for part in content]
                message["content"] = content if None in given else "".join(given)
        for index, message in enumerate(self._messages):
            role = message["role"].lower()
            if role in _FOREIGN or (role == "assistant" and message["role"] != role):
                raise self._error(index, "has another name for the role assistant")
            if "content" not in message and not message.get("tool_calls"):
                raise self._error(index, "has no content")
        try:
            self.text, self._generated = self._render(self._messages)
        except Exception as error:
            attempts = (self._attempt(self._messages[: at + 1])[1] for at in range(len(self._messages)))
            first = next((at for at, each in enumerate(attempts) if str(each) == str(error)), len(self._messages) - 1)
            rule = f"does not fit the chat template: {type(error).__name__}: {error}"
            raise self._error(first, rule) from error
        for index, message in enumerate(self._messages):
            if message["role"] not in _ROLES and _text_of(message) not in self.text:
                raise self._error(index, "is not in the text of the chat template")
            if lone_surrogate(_text_of(message)) is not None:
                fix = "text.encode('utf-8', 'replace').decode('utf-8') for the text of the message"
                raise self._error(index, "contains a lone surrogate, which is not valid Unicode", fix)

    def answers(self, prompt: int) -> list[Span]:
        """Return the characters that are trained on. The first `prompt` messages are not."""
        trained = [index for index in range(len(self._messages)) if self._is_trained(index) and index >= prompt]
        if self._generated is None:
            return self._found(trained)
        said = [index for index, message in enumerate(self._messages) if message["role"] == "assistant"]
        others = self._found([index for index in said if index not in trained])
        return [(a, b) for a, b in self._generated if not any(a < stop and start < b for start, stop in others)]

    def _is_trained(self, index: int) -> bool:
        message = self._messages[index]
        weights = {name: message[name] for name in _WEIGHTS if name in message}
        for name, weight in weights.items():
            if weight not in (0, 1):
                raise self._error(index, f"has {name}={weight!r}, and weights are 0 or 1", f'"{name}": 1')
            if weight and message["role"] != "assistant":
                rule = f"has {name}={weight!r}, and only messages of the assistant are trained on"
                raise self._error(index, rule, f"leave out {name!r} there; or rows of input_ids and assistant_masks")
        return message["role"] == "assistant" and all(weights.values())

    def _found(self, trained: list[int]) -> list[Span]:
        """Return the characters of messages and of the end token behind each."""
        if not trained:
            return []
        tag, eos = self._tag, re.escape(self._tokenizer.eos_token or "\0")
        end_token = re.compile(rf"\s*(?:(?:{tag})*?{eos}|{tag})")
        found, last = list[Span](), 0
        for index, first, stop, has_reasoning in self._bounds(trained):
            message, start = self._messages[index], first
            said = _text_of(message)
            if start < 0 or has_reasoning:  # such as <think>, unless it ends the prompt
                begin = self._prompt(index)
                is_plain = message.keys().isdisjoint((*_REASONING, "tool_calls"))
                if is_plain and self.text[:stop].endswith(said) and max(start, begin) >= 0:
                    start = max(stop - len(said), begin)
                elif begin >= 0 and not (is_plain and start < 0):
                    start = begin if start < 0 else min(start, begin)
            if not last <= start <= stop:
                raise self._error(index, "cannot be found in the text of the chat template", _WAY_OUT)
            if start == stop and (message.get("tool_calls") or said):
                raise self._error(index, "is not in the text of the chat template", _WAY_OUT)
            end = end_token.match(self.text, stop)
            last = stop if end is None else end.end()
            found.append((start, last))
        return found

    def _bounds(self, trained: list[int]) -> list[tuple[int, int, int, bool]]:
        """Return messages, the start and stop of each in the text, -1 if it is not found, and if it has reasoning."""
        around, has_reasoning = self._around(*trained)
        if (spans := _between(self.text, around)) is None:  # the template's text depends on the messages
            spans, has_reasoning = [], []
            for index in trained:
                around, of_message = self._around(index)
                begin, end = around or ("\0", "\0")
                stop = len(self.text) - len(end) if self.text.endswith(end) else self._end_of(index)
                spans.append((len(begin) if self.text.startswith(begin) else -1, stop))
                has_reasoning += of_message or [False]
        calls = [at for at, index in enumerate(trained) if self._messages[index].get("tool_calls")]
        if calls:  # without them, a template may put the results of the tools elsewhere
            others = [index for index, each in enumerate(self._messages) if each["role"] != "assistant"]
            results = _between(self.text, self._around(*(index for index in others if index > trained[calls[0]]))[0])
            for at in calls:
                start, stop = spans[at]
                if results is None or any(start < last and first < stop for first, last in results):
                    spans[at] = start, self._end_of(trained[at])
        rows = zip(trained, spans, has_reasoning, strict=True)
        return [(index, *span, is_shown) for index, span, is_shown in rows]

    def _around(self, *indices: int) -> tuple[list[str], list[bool]]:
        """Return the texts around messages, and if each has reasoning; none if the template fails without them."""
        messages = [self._marked(index) if index in indices else each for index, each in enumerate(self._messages)]
        text = self._attempt(messages)[0] or ""
        # The template's text between the two marks of a message with reasoning is the message's.
        marks = list(re.finditer(rf"(?s){self._mark}(?:thought.*?{self._mark})?(\d+)end", text))
        if [int(mark[1]) for mark in marks] != list(indices):
            return [], []
        bounds = [0, *(bound for mark in marks for bound in mark.span()), len(text)]
        parts = [text[start:stop] for start, stop in pairwise(bounds)]
        return parts[::2], [mark[0].startswith(f"{self._mark}thought") for mark in marks]

    def _marked(self, index: int) -> dict[str, Any]:
        """Return a message with marks in place of what it says, and without calls of tools."""
        message, said, thought = self._messages[index], f"{self._mark}{index}end", f"{self._mark}thought"
        content = message.get("content")
        if isinstance(content, str) and "</think>" in content:
            said = re.sub(r"(?s)^(\s*<think>\s*)?.*(</think>\s*).*", rf"\1{thought}\2{said}", content)
        others = {name: value for name, value in message.items() if name != "tool_calls"}
        reasoning = {name: thought for name in _REASONING if message.get(name)}
        return {**others, **reasoning, "content": _parts(said) if isinstance(content, list) else said}

    @lock_free_cache
    def _mark(self) -> str:
        mark = "answer"
        while mark in self.text:
            mark += "q"
        return mark

    @lock_free_cache
    def _tag(self) -> str:
        """Pattern of special tokens, and of tags that are in the chat template or are tokens."""
        unknown, tokens = (None, self._tokenizer.unk_token_id), self._tokenizer.convert_tokens_to_ids
        found = {tag for tag in {*re.findall(_TAG, self.text)} if tag in self._template or tokens(tag) not in unknown}
        return "|".join(sorted(map(re.escape, {*self._tokenizer.all_special_tokens, *found}), key=len, reverse=True))

    def _end_of(self, index: int) -> int:
        """Return the end of a message that calls a tool: that of the conversation up to it; -1 if it is not found."""
        message, said = self._messages[index], _text_of(self._messages[index])
        if not message.get("tool_calls"):
            return -1
        # With later messages, a template may leave out what comes with the call.
        for last in (message, {"role": message["role"], "content": "", "tool_calls": message["tool_calls"]}):
            whole = (self._attempt([*self._messages[:index], last])[0] or "\0").rstrip()
            whole = re.sub(rf"{_TAG}$" if self.text.startswith(whole) else rf"(?:\s*{_TAG})*$", "", whole)
            if self.text.startswith(whole) and (last is message or not said or said not in self.text[len(whole) :]):
                return len(whole)
        return -1

    def _prompt(self, index: int) -> int:
        """Return the end of the text after which the model would generate a message; -1 if it is not known."""
        before = self._messages[:index]
        prompt = self._attempt(before, add_generation_prompt=True)[0] if index else None
        if prompt is None or not self.text.startswith(prompt):
            return -1
        if prompt == self._attempt(before)[0]:  # Mistral's template, for example, has no role line
            answer = self._attempt([*before, {"role": "assistant", "content": self._mark}])[0] or ""
            if not (answer.startswith(prompt) and answer[len(prompt) :].lstrip().startswith(self._mark)):
                return -1
        return len(prompt)

    def _attempt(self, messages: list[dict[str, Any]], **settings: Any) -> tuple[str | None, Exception | None]:
        """Return the text of messages, or the error of the template."""
        try:
            return self._render(messages, **settings)[0], None
        except Exception as error:  # of any kind, as the template calls methods of strings and lists
            return None, error

    def _render(self, messages: list[dict[str, Any]], **settings: Any) -> tuple[str, list[Span] | None]:
        return render_chat(self._special, messages, self._template, {**self._settings, **settings})

    def _error(self, index: int, rule: str, fix: str | None = None) -> ValueError:
        message, role = self._messages[index], self._messages[index]["role"]
        if fix is None and (role.lower() in (*_FOREIGN, "human") or role.lower() == "assistant" != role):
            names = f'{{"human": "user", "{role if role.lower() != "human" else "gpt"}": "assistant"}}'
            fix = f'[{{**each, "role": {names}.get(each["role"], each["role"])}} for each in messages]'
        elif fix is None and "content" not in message:
            given = "{name: each[name] for name in each if each[name] is not None}"
            fix = f'[{{"content": "", **{given}}} for each in messages]'
        rule = f"row {self._row}: message {index}, of role {role!r}, {rule}"
        return value_error(rule, got=shorten(message), fix=fix or "messages that the template takes, or another one")


def _between(text: str, around: list[str]) -> list[Span] | None:
    """Return what is between the parts of a text that are given; `None` if they are not in it, or in several ways."""

    def first(text: str, around: list[str]) -> list[Span] | None:
        at, spans = len(around[0]), []
        for part in around[1:-1]:
            if (stop := text.find(part, at)) < 0:
                return None
            spans.append((at, stop))
            at = stop + len(part)
        return [*spans, (at, len(text) - len(around[-1]))] if len(around) > 1 else spans

    if not around or not text.startswith(around[0]) or not text.endswith(around[-1]):
        return None
    forward, backward = first(text, around), first(text[::-1], [part[::-1] for part in around[::-1]])
    if forward is None or backward is None:
        return None
    is_same = forward == [(len(text) - stop, len(text) - start) for start, stop in backward[::-1]]
    return forward if is_same and all(start <= stop for start, stop in forward) else None


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content", "")
    parts = content if isinstance(content, list) else [content]
    return "".join(str(part.get("text", "") if isinstance(part, dict) else part) for part in parts).strip()


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


@lru_cache(maxsize=32)
def texts_read(template: str, as_list: bool) -> int:
    """Return 1 or more if a template reads contents that are strings, or lists of texts."""
    content = _parts(_SAMPLE) if as_list else _SAMPLE
    messages = [{"role": role, "content": content} for role in ("user", "assistant")]
    try:
        return render_chat({"bos_token": "", "eos_token": ""}, messages, template, {})[0].count(_SAMPLE)
    except Exception:  # such as "can only concatenate str (not "list") to str"
        return 0


def _without_arrays(value: Any) -> Any:
    """Return messages or tools with lists and None in place of the arrays and NaN of pandas."""
    # A chat template can test neither.
    if isinstance(value, str):  # most are, and the others take longer to recognize
        return value
    if is_missing(value):
        return None
    if isinstance(value, Mapping):
        return {name: _without_arrays(part) for name, part in value.items()}
    return [_without_arrays(part) for part in value] if isinstance(value, (list, np.ndarray)) else value
