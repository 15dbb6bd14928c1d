"""Trained tokens of conversations, compared with the known texts of the answers in the render of each chat template.

The templates are those that TRL ships. The expected end tokens are written down here, and texts are found by walking
through the render, message by message; none of it comes from the code under test.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from installed import before
from looping import for_each
from small_models import GPT2

from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc import train_bpe

TRL = importlib.util.find_spec("trl")
FOLDER = Path((TRL.submodule_search_locations or [""])[0] if TRL else "", "chat_templates")
TEMPLATES = sorted(path.stem for path in FOLDER.glob("*.jinja") if not path.stem.endswith("_training"))
needs_trl = pytest.mark.skipif(not TEMPLATES, reason="needs TRL: pip install trl")

# Ends of an answer by the beginning of a template's name; the second, if any, is that of the last answer. The marks of
# lfm2_2_5 have a line break.
ENDS = {
    **{"cohere2": "<|END_RESPONSE|>", "cohere": "<|END_OF_TURN_TOKEN|>", "deepseek": "<｜end▁of▁sentence｜>"},
    **{"diffusion_gemma": "<turn|>", "gemma4": "<turn|>", "gemma": "<end_of_turn>", "glm4moe": ("<|user|>", "")},
    **{"gptoss": ("<|end|>", "<|return|>"), "idefics3": "<end_of_utterance>", "smolvlm": "<end_of_utterance>"},
    **{
        "lfm2_2_5": "<|im_end|>\n",
        "lfm2": "<|im_end|>",
        "llama3": "<|eot_id|>",
        "llava_next": "</s>",
    },  # lfm2_2_5 marks
    **{"muse_glimmer": "<|eot|>", "nemotron": "<|im_end|>", "phi3": "<|end|>", "qwen": "<|im_end|>"},
}
ONLY_LISTS = ("idefics3", "smolvlm", "llava_next")
PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
CALL = {"type": "function", "function": {"name": "ride", "arguments": {"where": "quarry 42"}}}


@pytest.fixture(scope="module")
def tokenizers() -> Any:
    """Return a function that makes a byte-level BPE with the tags of a chat template as special tokens."""
    base = train_bpe(["user assistant system I ride a bike, she said"] * 3, vocab_size=300, progress=False)

    def make(template: str, *tags: str) -> Any:
        made = transformers.PreTrainedTokenizerFast(
            tokenizer_object=base._tokenizer,
            bos_token="<s>",
            eos_token="</s>",
            pad_token="<pad>",
            model_max_length=9999,
        )
        found = {*tags, *re.findall(r"<[｜|]?[A-Za-z_▁]+[｜|]?>", template)} - {"<think>", "</think>"}
        made.add_special_tokens({"additional_special_tokens": sorted(found)})
        made.chat_template = template
        return made

    return make


@pytest.fixture
def chatml(tokenizers: Any) -> Any:
    return tokenizers(PLAIN)


def stock(tokenizers: Any, name: str) -> tuple[Any, tuple[str, str]]:
    """Return a tokenizer with a template of TRL, and the ends of its answers."""
    ends = next(end for start, end in ENDS.items() if name.startswith(start))
    ends = (ends, ends) if isinstance(ends, str) else ends
    return tokenizers((FOLDER / f"{name}.jinja").read_text(), *filter(None, map(str.strip, ends))), ends


def as_lists(messages: list[Any]) -> list[Any]:
    return [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in messages]


def rendered(tokenizer: Any, name: str, messages: list[Any], **settings: Any) -> str | None:
    """Return the text of the template, or `None` if it refuses the messages."""
    try:
        messages = as_lists(messages) if name in ONLY_LISTS else messages
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **settings))
    except Exception:
        return None


def trained(tokenizer: Any, messages: list[Any], text: str, **columns: Any) -> list[str]:
    """Return the parts of `text` whose tokens have labels, merged where they touch."""
    row = {"messages": messages, **columns}
    collate = C(tokenizer, labels="causal_lm", text_column="messages", on_no_labels="keep", look_ahead=False)
    batch = collate([row])
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert batch["input_ids"].tolist() == [encoded["input_ids"]]
    assert torch.isin(batch["labels"], torch.tensor([-100])).eq(batch["labels"] != batch["input_ids"]).all()
    parts = list[list[int]]()
    for (start, stop), label in zip(encoded["offset_mapping"], batch["labels"][0].tolist(), strict=True):
        if label != -100 and parts and parts[-1][1] >= start:
            parts[-1][1] = max(stop, parts[-1][1])
        elif label != -100:
            parts.append([start, stop])
    return [text[start:stop] for start, stop in parts]


def walked(tokenizer: Any, text: str, messages: list[Any], ends: tuple[str, str]) -> list[str]:
    """Return the answers in a render with their ends, found one after the other, and the rest of their outer tokens."""
    at, found, last = 0, [], messages[-1]
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    for message in messages:
        start = text.index(message["content"], at)
        at = start + len(message["content"])
        if message["role"] == "assistant":
            stop = at + len(ends[message is last])
            assert text[at:stop] == ends[message is last]
            tokens = [each for each in offsets if each[0] < stop and each[1] > start]
            found.append(text[tokens[0][0] : tokens[-1][1]])
    return found


CONTENTS = {
    "ascii": ("What is ride number {}?", "It is bike number {}."),
    "scripts": ("请问第{}个问题", "答案是{}号 🚲👩‍🔧 é ok"),
    "equal": ("Say bike, please!", "bike, of course"),
    "repeats": ("Echo this line.", "Echo this line."),
    "tags": ("Which tag ends?", "It is <|im_end|> or <turn|> or <|eot_id|> or </s>, I think {}"),
    "copies the template": ("next", "y<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\ny"),
    "lines": ("A list of {}:", "one\n\ntwo\n  three {}"),
}


@needs_trl
@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_and_its_end_token_are_trained_on(tokenizers: Any, name: str) -> None:
    tokenizer, ends = stock(tokenizers, name)
    for (question, answer), turns, has_system in itertools.product(CONTENTS.values(), (1, 2, 3, 4), (False, True)):
        messages = [{"role": "system", "content": "Be brief."}] * has_system
        for turn in range(turns):
            messages.append({"role": "user", "content": question.format(turn)})
            messages.append({"role": "assistant", "content": answer.format(turn)})
        text = rendered(tokenizer, name, messages)
        if text is None:  # such as Gemma's, which has no system message
            with pytest.raises(ValueError, match="row 0: message 0, of role 'system', does not fit the chat template"):
                trained(tokenizer, messages, "")
            continue
        wanted = walked(tokenizer, text, messages, ends)
        assert trained(tokenizer, messages, text) == wanted, messages
        if not has_system and turns == 2:
            assert trained(tokenizer, as_lists(messages), text) == wanted
            kept = [{**each} for each in messages]
            kept[1]["weight"] = 0
            assert trained(tokenizer, kept, text) == wanted[1:]


@needs_trl
@for_each("name", TEMPLATES)
def test_of_an_empty_answer_the_end_token_is_trained_on(tokenizers: Any, name: str) -> None:
    tokenizer, ends = stock(tokenizers, name)
    messages = [{"role": "user", "content": "Hello you"}, {"role": "assistant", "content": ""}]
    messages += [{"role": "user", "content": "Again"}, {"role": "assistant", "content": "Yes, hello"}]
    text = rendered(tokenizer, name, messages)
    assert text is not None
    assert trained(tokenizer, messages, text) == [ends[0], "Yes, hello" + ends[1]]


# What a model generates before its reasoning; the prompt of Qwen3.5, Nemotron and others has it already.
OPENINGS = ("", "<think>\n", "\n<think>", "<think>", "<|channel>thought\n", "<|channel|>analysis<|message|>")


@needs_trl
@for_each("name", TEMPLATES)
def test_reasoning_is_trained_on_where_the_template_renders_it(tokenizers: Any, name: str) -> None:
    tokenizer, ends = stock(tokenizers, name)
    first, last = "Because of wheels", "Since it has two"
    messages: list[Any] = [{"role": "user", "content": "Hello you"}]
    messages += [{"role": "assistant", "content": "A bike", "reasoning_content": first}]
    messages += [{"role": "user", "content": "Why?"}]
    messages += [{"role": "assistant", "content": "Two wheels.", "reasoning_content": last}]
    text = rendered(tokenizer, name, messages)
    assert text is not None
    parts = trained(tokenizer, messages, text)
    for part, reasoning, answer, end in zip(parts, (first, last), ("A bike", "Two wheels."), ends, strict=True):
        assert part.endswith(answer + end)
        if reasoning in text:
            opening = part.partition(reasoning)[0]
            assert opening in (*OPENINGS, " to=self<|message|>"), opening
            prompt = rendered(tokenizer, name, messages[:3], add_generation_prompt=True)
            assert part is parts[0] or not text.startswith(prompt or "\0") or text.index(part) >= len(prompt or "")
        else:
            assert part == answer + end


LEAVE_OUT_CALLS = ("deepseek_r1_distill", "idefics3", "lfm2", "llama3", "phi3", "phi3_5", "qwen2_5_vl", "smolvlm")


@needs_trl
@for_each("name", TEMPLATES)
def test_calls_of_tools_are_trained_on_and_their_results_are_not(tokenizers: Any, name: str) -> None:
    tokenizer, ends = stock(tokenizers, name)
    messages: list[Any] = [
        {"role": "user", "content": "Where to?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "ride", "content": "sunny there"},
        {"role": "assistant", "content": "To the old quarry."},
    ]
    schema = {"type": "function", "function": {"name": "ride", "description": "Ride.", "parameters": {}}}
    text = rendered(tokenizer, name, messages, tools=[schema]) if name not in ONLY_LISTS else None
    if text is None or name in LEAVE_OUT_CALLS:
        with pytest.raises(ValueError, match=r"row 0: message \d, of role '(assistant|tool)'"):
            trained(tokenizer, messages, "", tools=[schema])
        return
    call, answer = trained(tokenizer, messages, text, tools=[schema])
    assert "quarry 42" in call
    assert "sunny" not in call
    assert "Where" not in call
    assert re.search(r"<[^<>\s]+>\n?$", call)  # an end token
    assert answer == "To the old quarry." + ends[1]


@needs_trl
@pytest.mark.skipif(before("transformers", "5.24"), reason="its masks of tokens run on behind white space")
def test_trl_trains_on_the_same_tokens_except_with_the_templates_that_the_docs_list(tokenizers: Any) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "trainer.md").read_text(encoding="utf-8")
    table = docs.partition("| in the templates of TRL")[2].partition("\n\n")[0]
    messages = [{"role": role, "content": f"{role} {turn}"} for turn in range(2) for role in ("user", "assistant")]
    different = set[str]()
    for path in FOLDER.glob("*_training.jinja"):
        name = path.stem.removesuffix("_training")
        tokenizer, _ = stock(tokenizers, name)
        tokenizer.eos_token = "<|END_OF_TURN_TOKEN|>" if name.startswith("cohere") else "</s>"
        ours = C(tokenizer, labels="causal_lm")([messages])
        tokenizer.chat_template = path.read_text(encoding="utf-8")
        given = as_lists(messages) if name in ONLY_LISTS else messages
        theirs = tokenizer.apply_chat_template(given, return_dict=True, return_assistant_tokens_mask=True)
        masks = (ours["labels"][0] != -100).int().tolist(), theirs["assistant_masks"]
        if ours["input_ids"][0].tolist() != theirs["input_ids"] or masks[0] != masks[1]:
            different.add(name)
    assert different == set(re.findall(r"`(\w+)`", table))


# ------------------------------------------------------------------------------------------------------ any template

TALK = [{"role": "user", "content": "I ride?"}, {"role": "assistant", "content": "a bike"}]
ODD = {  # templates whose text depends on the answers, with the parts that are trained on
    "stripped": ("{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}</s>{% endfor %}", ["a bike</s>"]),
    "counted": (
        "{{ messages[-1].content | length }} {% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}",
        None,
    ),
    "shouted": ("{% for m in messages %}[{{ m.role }}]{{ m.content | upper }}</s>{% endfor %}", None),
    "no end": ("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}", ["a bike"]),
    "space before the end": ("{% for m in messages %}{{ m.role }}:{{ m.content }} </s>{% endfor %}", ["a bike </s>"]),
    "moved": ("{% for m in messages | reverse %}{{ m.role }}:{{ m.content }}</s>{% endfor %}", ["a bike</s>"]),
    "left out": ("{% for m in messages if m.role == 'user' %}{{ m.content }}</s>{% endfor %}", None),
    "twice": ("{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.content }}</s>{% endfor %}", None),
    "wrapped": (
        "{% for m in messages %}{{ m.role }}:{% if 'bike' in m.content %}({{ m.content }}){% else %}{{ m.content }}"
        "{% endif %}</s>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
        ["(a bike)</s>"],
    ),
}


@for_each("name", ODD)
def test_a_template_that_changes_answers_is_read_rightly_or_refused(tokenizers: Any, name: str) -> None:
    template, wanted = ODD[name]
    tokenizer = tokenizers(template)
    text = tokenizer.apply_chat_template(TALK, tokenize=False)
    if wanted is None:
        with pytest.raises(ValueError, match=r"row 0: message 1, of role 'assistant', .*(found|not) in the text"):
            trained(tokenizer, TALK, text)
    else:
        assert trained(tokenizer, TALK, text) == wanted


def test_a_call_is_found_in_a_template_without_a_role_line(tokenizers: Any) -> None:
    tokenizer = tokenizers(  # as Mistral's; without the call, it refuses the result
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]{% elif m.tool_calls %}"
        "[CALL]{{ m.tool_calls | tojson }}</s>{% elif m.role == 'assistant' %} {{ m.content }}</s>"
        "{% elif messages[loop.index0 - 1].tool_calls %}[RESULT]{{ m.content }}[/RESULT]"
        "{% else %}{{ raise_exception('a result without a call') }}{% endif %}{% endfor %}"
    )
    calls = [{"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "sunny"}]
    messages = [TALK[0], *calls, {"role": "assistant", "content": "Ride."}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    call, answer = trained(tokenizer, messages, text)
    assert (call[:6], call[-5:], answer.strip()) == ("[CALL]", "]</s>", "Ride.</s>")


def test_a_tag_of_the_user_is_no_end_token(tokenizers: Any) -> None:
    tokenizer = tokenizers("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    messages = [*TALK, {"role": "user", "content": "<b>bold</b>"}]
    assert trained(tokenizer, messages, tokenizer.apply_chat_template(messages, tokenize=False)) == ["a bike"]
    tokenizer = tokenizers("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}", "<|user|>")
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert trained(tokenizer, messages, text) == ["a bike<|user|>"]


def test_the_mark_is_not_in_the_row(chatml: Any) -> None:
    said = "answer answerq answer0end answerqq1end answerthought"
    messages = [TALK[0], {"role": "assistant", "content": said}] * 2
    text = chatml.apply_chat_template(messages, tokenize=False)
    assert trained(chatml, messages, text) == [f"{said}<|im_end|>"] * 2


@for_each("name", ("weight", "train", "trainable", "loss", "loss_mask"))
def test_a_message_with_weight_0_is_left_out(chatml: Any, name: str) -> None:
    text = chatml.apply_chat_template(TALK * 2, tokenize=False)
    for value, parts in ((0, 1), (False, 1), (1, 2), (True, 2), (None, 2), (1.0, 2)):
        messages = [*TALK, TALK[0], {**TALK[1], name: value}]
        assert trained(chatml, messages, text) == ["a bike<|im_end|>"] * parts
    for value in (0.5, "no", 2):
        with pytest.raises(ValueError, match=rf"row 0: message 1, of role 'assistant', has {name}={value!r}"):
            trained(chatml, [TALK[0], {**TALK[1], name: value}], text)
    with pytest.raises(ValueError, match=f"message 0, of role 'user', has {name}=1, and only messages"):
        trained(chatml, [{**TALK[0], name: 1}, TALK[1]], text)


def test_marks_of_the_template_count_also_with_weights_and_white_space(tokenizers: Any) -> None:
    marked = (
        "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}<b>{{ m.content }}</s>\n"
        "{% endgeneration %}{% else %}{{ m.content }}</s>\n{% endif %}{% endfor %}"
    )
    tokenizer = tokenizers(marked)
    text = tokenizer.apply_chat_template(TALK * 3, tokenize=False)
    assert trained(tokenizer, TALK * 3, text) == ["<b>a bike</s>\n"] * 3
    messages = [*TALK, TALK[0], {**TALK[1], "train": False}, *TALK]
    assert trained(tokenizer, messages, text) == ["<b>a bike</s>\n"] * 2


def test_messages_of_the_prompt_are_not_trained_on(chatml: Any) -> None:
    ids = chatml.apply_chat_template(TALK * 2)["input_ids"]
    said = chatml("a bike<|im_end|>", add_special_tokens=False)["input_ids"]
    collate = C(chatml, labels="causal_lm", on_no_labels="keep")
    for prompt in (1, 2, 3):
        row = {"prompt": (TALK * 2)[:prompt], "completion": (TALK * 2)[prompt:]}
        batch = collate([row])
        assert batch["input_ids"].tolist() == [ids]
        assert [each for each in batch["labels"][0].tolist() if each != -100] == said * (2 if prompt == 1 else 1)


def test_a_prompt_alone_ends_where_the_answer_begins(chatml: Any) -> None:
    whole = chatml.apply_chat_template(TALK[:1], add_generation_prompt=True)["input_ids"]
    assert C(chatml)([{"prompt": TALK[:1]}])["input_ids"].tolist() == [whole]
    with pytest.raises(ValueError, match="row 0 has nothing to learn"):
        C(chatml, labels="causal_lm")([{"prompt": TALK[:1]}])
    with pytest.warns(UserWarning, match=r"columns \['prompt'\] are not in the batch"):
        batch = C(chatml, labels="causal_lm")([{"messages": TALK, "prompt": "not read"}])
    assert [each for each in batch["labels"][0].tolist() if each != -100]


def test_tools_and_settings_reach_every_render(tokenizers: Any) -> None:
    template = (
        "{{ greeting }}{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.role }}:"
        "{{ m.content + greeting }}</s>{% endfor %}"
    )
    tokenizer = tokenizers(template)
    tools = [{"type": "function", "function": {"name": "ride"}}]
    settings = {"greeting": "!!"}
    text = tokenizer.apply_chat_template(TALK, tools=tools, tokenize=False, **settings)
    for given in (tools, json.dumps(tools)):
        columns = {"tools": given, "chat_template_kwargs": settings}
        assert trained(tokenizer, TALK, text, **columns) == ["a bike"]  # "!!</s>" is the template's


@for_each("layout", ({}, {"packing": "flat"}, {"packing": True, "max_length": 99}))
def test_a_batch_without_labels_keeps_the_masks_unless_a_model_takes_none(chatml: Any, layout: dict[str, Any]) -> None:
    text, collate = chatml.apply_chat_template(TALK, tokenize=False), C(chatml, look_ahead=False, **layout)
    assert set(collate([TALK])) == {*collate([text]), "assistant_masks"}
    fitted = collate.replace(model=GPT2, look_ahead=None, packing=False, max_length=None)
    assert list(fitted([TALK])) == list(fitted([text]))  # as `generate` takes them


def test_a_slow_tokenizer_gives_the_same_answers_or_an_error(chatml: Any) -> None:
    slow = transformers.ByT5Tokenizer()
    slow.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    batch = C(slow, labels="causal_lm", look_ahead=False)([TALK * 2])
    kept = batch["labels"][0][batch["labels"][0] != -100]
    assert slow.decode(kept) == "a bike</s>a bike</s>"
    slow.add_tokens([" a bi"])  # a token that begins before the answer
    with pytest.raises(ValueError, match=r"row 0: .* slow tokenizer has no offsets\n.*\n.*assistant_masks"):
        C(slow, labels="causal_lm", look_ahead=False)([TALK])


# ---------------------------------------------------------------------------------------------------------- refusals

STRICT = (
    "{% for m in messages %}{% if m.role not in ('user', 'assistant') %}{{ raise_exception('Unknown') }}{% endif %}"
    "{{ m.role + ': ' + m.content }}</s>{% endfor %}"
)
CALL_ALONE = {"role": "assistant", "content": None, "tool_calls": [CALL]}
WRONG: list[tuple[list[Any], str, str]] = [
    ([*TALK, {"role": "critic", "content": "hm"}], "message 2, of role 'critic', .*Unknown", "messages that"),
    (
        [{"role": "user", "content": None}, TALK[1]],
        "message 0, of role 'user', has no content",
        '"content": "", ',
    ),
    ([TALK[0], {"role": "assistant"}], "message 1, of role 'assistant', has no content", '"content": "", '),
    ([TALK[0], CALL_ALONE], "message 1, .*UndefinedError", '"content": "", '),
    ([{"role": "human", "content": "I ride?"}, TALK[1]], "message 0, of role 'human', .*Unknown", '"human": "user"'),
    (
        [TALK[0], {"role": "gpt", "content": "a bike"}],
        "message 1, of role 'gpt', has another name",
        '"gpt": "assistant"',
    ),
    ([{"role": "user", "content": "a\ud800"}, TALK[1]], "message 0, .* lone surrogate", "text.encode"),
    ([TALK[0], {"role": "assistant", "content": 5}], "message 1, .*TypeError", "messages that"),
]


def test_a_role_that_the_template_leaves_out_is_named(tokenizers: Any) -> None:
    template = "{% for m in messages if m.role in ('user', 'assistant') %}{{ m.content }}</s>{% endfor %}"
    with pytest.raises(ValueError, match="row 0: message 2, of role 'critic', is not in the text of the chat template"):
        C(tokenizers(template))([[*TALK, {"role": "critic", "content": "hm"}]])


@for_each(("messages", "rule", "fix"), WRONG)
def test_errors_of_templates_name_the_row_and_the_message(
    tokenizers: Any, messages: list[Any], rule: str, fix: str
) -> None:
    with pytest.raises(ValueError, match=rf"(?s)row 1: {rule}.*\n  got: .*\n  fix: .*{fix}"):
        C(tokenizers(STRICT))([TALK, messages])
