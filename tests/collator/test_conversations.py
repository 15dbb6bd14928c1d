"""Conversations: the rows that `tokenizer.apply_chat_template` gives, in every input and layout."""

from __future__ import annotations

import json
import warnings
from typing import Any

import datasets
import pytest

from hf_posenc import DataCollatorWithPositionalEncoding as C

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
MARKED = (
    "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}"
    "{% endgeneration %}{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
CONVERSATIONS = [
    [{"role": "user", "content": "I ride"}, {"role": "assistant", "content": "a bike"}],
    [
        *({"role": "user", "content": "hello"}, {"role": "assistant", "content": "she said hello"}),
        *({"role": "user", "content": "again"}, {"role": "assistant", "content": "hello"}),
    ],
]


@pytest.fixture
def tokenizer(byte_bpe: Any) -> Any:
    byte_bpe.chat_template = MARKED
    byte_bpe.pad_token = "!"
    return byte_bpe


def rows_of(tokenizer: Any) -> list[dict[str, Any]]:
    settings = {"return_dict": True, "return_assistant_tokens_mask": True}
    return [dict(tokenizer.apply_chat_template(each, **settings)) for each in CONVERSATIONS]


LAYOUTS: list[dict[str, Any]] = [
    *({}, {"padding_side": "left"}, {"packing": True, "max_length": 99}, {"packing": "flat"}, {"max_length": 14})
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_conversation_is_the_row_of_its_chat_template(tokenizer: Any, layout: dict[str, Any]) -> None:
    collate = C(tokenizer, labels="causal_lm", text_column="messages", on_no_labels="keep", **layout)
    rows = rows_of(tokenizer)
    with warnings.catch_warnings(action="ignore"):
        wanted = collate(rows)
    for given in (
        CONVERSATIONS,
        [{"messages": each} for each in CONVERSATIONS],
        datasets.Dataset.from_dict({"messages": CONVERSATIONS}),
    ):
        batch = collate.batch(given[:] if isinstance(given, datasets.Dataset) else given)
        assert list(batch) == list(wanted)
        for name, values in wanted.items():
            assert batch[name] == values if isinstance(values, int) else batch[name].equal(values), name
    assert collate.replace(labels="causal_lm").decode(
        [[token for token in row if token >= 0] for row in wanted["labels"].tolist()]
    ) != [""] * len(wanted["labels"])


def test_tools_go_to_the_template(tokenizer: Any) -> None:
    tokenizer.chat_template = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}" + PLAIN
    tool = {"type": "function", "function": {"name": "ride", "description": "", "parameters": {}}}
    rows = [{"messages": each, "tools": [tool] * number} for number, each in enumerate(CONVERSATIONS)]
    batch = C(tokenizer, text_column="messages")(rows)
    want = [tokenizer.apply_chat_template(row["messages"], tools=row["tools"] or None)["input_ids"] for row in rows]
    of_pandas = C(tokenizer, text_column="messages").batch(datasets.Dataset.from_list(rows).with_format("pandas")[:])
    assert of_pandas["input_ids"].equal(batch["input_ids"])
    assert [row[: len(ids)].tolist() for row, ids in zip(batch["input_ids"], want, strict=True)] == want
    of_json = C(tokenizer, text_column="messages")([{**row, "tools": json.dumps(row["tools"])} for row in rows])
    assert of_json["input_ids"].equal(batch["input_ids"])


def test_the_column_chat_template_kwargs_goes_to_the_template(tokenizer: Any) -> None:
    tokenizer.chat_template = PLAIN
    given = [{"chat_template": "{{ thinks }} " + PLAIN, "thinks": "hello"}, None]
    rows = [{"text": each, "chat_template_kwargs": one} for each, one in zip(CONVERSATIONS, given, strict=True)]
    want = [
        tokenizer.apply_chat_template(row["text"], **row["chat_template_kwargs"] or {})["input_ids"] for row in rows
    ]
    batch = C(tokenizer)(rows)
    assert batch["attention_mask"].sum(dim=1).tolist() == list(map(len, want))
    assert C(tokenizer).decode(batch)[0].startswith("hello user: I ride")
    marked = {**rows[1], "chat_template_kwargs": {"chat_template": MARKED}}
    masks = C(tokenizer)({name: [row[name] for row in (rows[0], marked)] for name in marked})["assistant_masks"]
    assert [sum(mask) for mask in masks] == [
        len(tokenizer("".join(f"{m['content']}<|endoftext|>" for m in chat[1::2]))["input_ids"])
        for chat in CONVERSATIONS
    ]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([CONVERSATIONS[0], "a text"], "row 1 of column 'text' is str, expected a list of messages"),
        ([CONVERSATIONS[0], None], "row 1 of column 'text' is NoneType, expected a list of messages"),
        ([CONVERSATIONS[0], []], "row 1 of column 'text' is list, expected a list of messages"),
    ],
)
def test_rows_that_are_no_conversations_are_refused(tokenizer: Any, rows: list[Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        C(tokenizer)(rows)


def test_the_keys_of_messages_and_their_column_are_named(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"row 0 of column 'text' has a message without 'role'\n.*\n.*\"from\""):
        C(tokenizer)([[{"from": "human", "value": "I ride"}]])
    with pytest.raises(ValueError, match="fix: text_column='chat'"):
        C(tokenizer)([{"title": "I ride", "chat": CONVERSATIONS[0]}])


def test_a_tokenizer_without_a_chat_template_is_refused(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="conversations need a chat template"):
        C(tokenizer)(CONVERSATIONS)
    with pytest.raises(ValueError, match=r"a list of conversations"):
        C(tokenizer)(CONVERSATIONS[0])


# As in Qwen2.5, Qwen3, Qwen2.5-VL, Gemma 3 and Idefics 3. Each text must appear in the row once.
TEMPLATES = {
    "strings": "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}",
    "strings, and nothing of a list": "{{ message.role }}: {% if message.content is string %}{{ message.content }}"
    "{% endif %}",
    "both": "{{ message.role }}: {% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}",
    "lists, or strings without their spaces": "{{ message.role }}: {% if message.content is string %}"
    "{{ message.content | trim }}{% elif message.content is iterable %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}",
    "lists": "{{ message.role }}: {% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% endif %}{% endfor %}",
    "strings of assistants": "{{ message.role }}: {% if message.role == 'assistant' or message.content is string %}"
    "{{ message.content + '</s>' }}{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_no_text_of_a_conversation_is_lost_whether_the_template_reads_strings_or_lists(
    tokenizer: Any, template: str
) -> None:
    """Each text of a message is compared with the row, in which it stands once."""
    tokenizer.chat_template = "{% for message in messages %}" + TEMPLATES[template] + "{% endfor %}"
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "I ride "}, {"type": "text", "text": "bike"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "she said"}]},
    ]
    (row,) = C(tokenizer).decode(C(tokenizer)([messages]))
    assert row.count("I ride bike") == row.count("she said") == 1
    assert "text" not in row
