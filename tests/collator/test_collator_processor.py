"""The collator as a processor, compared with transformers' own classes: `AutoProcessor`, the Hub, chat templates."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from installed import before
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    RobertaConfig,
    RobertaModel,
    pipeline,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from hf_posenc import DataCollatorWithPositionalEncoding

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a"]
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% generation %}{{ message['content'] }}{% endgeneration %}"
    "{% endfor %}{% if add_generation_prompt %}she said{% endif %}"
)


def test_a_collator_is_a_processor_and_still_a_value(wordpiece) -> None:
    collate = C(wordpiece)
    again = pickle.loads(pickle.dumps(collate))
    for each in (collate, again):
        assert isinstance(each, ProcessorMixin)
        assert type(each) is C
    assert again == collate
    assert hash(again) == hash(collate)
    assert collate.get_attributes() == ["tokenizer"]
    assert (collate.pad_token_id, collate.eos_token_id) == (wordpiece.pad_token_id, wordpiece.eos_token_id)


_LATE = """
import sys
from hf_posenc import DataCollatorWithPositionalEncoding as C
collate = C.from_pretrained(sys.argv[1])
assert "transformers.processing_utils" not in sys.modules, "importing it takes seconds"
from transformers import AutoProcessor, ProcessorMixin
assert isinstance(collate, ProcessorMixin)
assert AutoProcessor.from_pretrained(sys.argv[1]) == collate
"""


@pytest.mark.slow
def test_transformers_may_be_imported_after_the_collator(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", _LATE, str(tmp_path)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not run.returncode, run.stderr


def test_a_call_with_text_is_the_call_of_the_tokenizer(wordpiece) -> None:
    collate = C(wordpiece)
    batch, state = collate(TEXTS), pickle.dumps(collate)
    settings: dict[str, Any] = {"padding": "max_length", "truncation": True, "max_length": 4, "return_tensors": "pt"}
    expected = wordpiece(TEXTS, **settings)
    nested = {"text_kwargs": {"padding": "max_length", "truncation": True, "max_length": 4}, "images_kwargs": {}}
    for made in (
        collate(text=TEXTS, **settings),
        collate(text=TEXTS, images=None, **nested, common_kwargs={"return_tensors": "pt"}),
    ):
        assert made.keys() == expected.keys()
        assert all(torch.equal(made[name], expected[name]) for name in made)
    assert collate(text="I ride bike")["input_ids"] == [wordpiece("I ride bike")["input_ids"]]
    bare = C(wordpiece, add_special_tokens=False)(text="I ride bike")["input_ids"]
    assert bare == [wordpiece("I ride bike", add_special_tokens=False)["input_ids"]]
    assert torch.equal(collate(TEXTS)["input_ids"], batch["input_ids"])  # the call changed nothing
    assert pickle.dumps(collate) == state


@pytest.mark.parametrize("wrap", [str, lambda text: [text]], ids=["one text", "a list"])
def test_pairs_and_targets_in_a_call_are_those_of_the_tokenizer(wordpiece, wrap) -> None:
    collate, texts = C(wordpiece), {"text": "I ride", "text_pair": "bike ride I", "text_target": "she said, a"}
    texts["text_pair_target"] = "bike"
    for names in (("text", "text_pair"), ("text", "text_target"), ("text_target",), tuple(texts)):
        given = {name: texts[name] for name in names}
        expected = wordpiece(**{name: [text] for name, text in given.items()}, return_tensors="pt")
        made = collate(**{name: wrap(text) for name, text in given.items()}, return_tensors="pt")
        assert made.keys() == expected.keys()
        assert all(torch.equal(made[name], expected[name]) for name in made)


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "fill-mask", "feature-extraction"])
def test_a_pipeline_with_the_collator_as_its_tokenizer_is_refused_with_the_argument_that_it_takes(
    wordpiece, task: str
) -> None:
    config = RobertaConfig(vocab_size=1200, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    kinds = {
        "text-classification": AutoModelForSequenceClassification,
        "token-classification": AutoModelForTokenClassification,
        "fill-mask": AutoModelForMaskedLM,
        "feature-extraction": AutoModel,
    }
    model, collate = kinds[task].from_config(config), C(wordpiece)
    with pytest.raises(
        (TypeError, AttributeError), match=r"\n  fix: .* a pipeline takes tokenizer=collate\.tokenizer\b"
    ):
        pipeline(task, model=model, tokenizer=collate)("I ride [MASK]")
    assert pipeline(task, model=model, tokenizer=collate.tokenizer)("I ride [MASK]") is not None


def test_the_json_of_the_processor_has_the_settings_that_are_saved(wordpiece, tmp_path: Path) -> None:
    model = RobertaModel(RobertaConfig(vocab_size=1200, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    table = torch.nn.Embedding(1200, 8)
    for settings in ({}, {"model": model, "max_length": 24}, {"embedding": 8}, {"embedding": table}):
        collate = C(wordpiece, **settings)
        collate.save_pretrained(tmp_path)
        collate.to_json_file(tmp_path / "settings.json")
        saved, written = (json.loads((tmp_path / name).read_text()) for name in ("hf_posenc.json", "settings.json"))
        assert written.pop("processor_class") == "DataCollatorWithPositionalEncoding"
        assert written.pop("backend") == "auto"  # not saved, because it changes no output
        assert written == {name: saved[name] for name in saved.keys() - {"format_version", "tokenizer", "device"}}
        assert collate.to_json_string() == (tmp_path / "settings.json").read_text()


def test_one_row_of_ids_decodes_to_one_text_and_rows_as_by_the_tokenizer(wordpiece) -> None:
    collate = C(wordpiece)
    ids = wordpiece("I ride bike")["input_ids"]
    assert collate.decode(ids) == collate.decode([ids])[0] == wordpiece.decode(ids, skip_special_tokens=True)
    assert collate.decode(ids, skip_special_tokens=False) == wordpiece.decode(ids)
    assert collate.batch_decode([ids], skip_special_tokens=True) == [collate.decode(torch.tensor(ids))]


@pytest.mark.parametrize("content", [str, lambda text: [{"type": "text", "text": text}]], ids=["str", "parts"])
@pytest.mark.parametrize("tokenizer", ["wordpiece", "byte_bpe", "unigram"])
def test_conversations_give_the_ids_of_the_tokenizer(tokenizer: str, content, request) -> None:
    """TRL passes each content to a processor as a list of parts, which templates of text models would print."""
    mine: PreTrainedTokenizerBase = request.getfixturevalue(tokenizer)
    mine.chat_template = TEMPLATE
    plain = [{"role": "user", "content": "I ride"}, {"role": "assistant", "content": "bike"}]
    messages = [{**message, "content": content(message["content"])} for message in plain]
    collate = C(mine, padding=False, look_ahead=False)
    assert collate.chat_template == TEMPLATE
    assert collate.apply_chat_template(messages) == mine.apply_chat_template(plain, tokenize=False)
    settings = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    for given in (settings, {**settings, "add_generation_prompt": True}):
        expected = mine.apply_chat_template(plain, **given)
        made = collate.apply_chat_template(messages, **given)
        assert {name: rows[0] for name, rows in made.items()} == dict(expected)
    assert messages[0]["content"] == content("I ride")
    longer = collate.apply_chat_template(messages, **settings, processor_kwargs={"add_special_tokens": True})
    extra = mine.num_special_tokens_to_add()
    assert len(longer["input_ids"][0]) == len(mine.apply_chat_template(plain, **settings)["input_ids"]) + extra


# As in Qwen2.5, Qwen3, Qwen2.5-VL, Gemma 3 and Idefics 3. Each text must appear in the result once.
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
def test_no_text_of_a_conversation_is_lost_whether_the_template_reads_strings_or_lists(wordpiece, template) -> None:
    wordpiece.chat_template = "{% for message in messages %}" + TEMPLATES[template] + "{% endfor %}"
    collate = C(wordpiece)
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "I ride "}, {"type": "text", "text": "bike"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "she said"}]},
    ]
    for given, formatted in (
        (messages, collate.apply_chat_template(messages)),
        ([messages, messages[:1]], collate.apply_chat_template([messages, messages[:1]])[0]),
    ):
        assert formatted.count("I ride bike") == formatted.count("she said") == 1
        assert "text" not in formatted
        ids = collate.apply_chat_template(given, tokenize=True, return_dict=True)["input_ids"][0]
        assert ids == wordpiece(formatted, add_special_tokens=False)["input_ids"]


def test_auto_processor_returns_the_collator(wordpiece, tmp_path: Path) -> None:
    collate = C(wordpiece, max_length=16, labels="masked_lm", seed=1)
    collate.save_pretrained(tmp_path)
    again = AutoProcessor.from_pretrained(tmp_path)
    assert again == collate
    assert torch.equal(again(TEXTS)["labels"], collate(TEXTS)["labels"])


def test_auto_processor_returns_the_tokenizer_where_this_package_was_not_imported(
    wordpiece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    monkeypatch.setattr(PROCESSOR_MAPPING, "_extra_content", {})
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerBase)
    assert loaded(TEXTS)["input_ids"] == wordpiece(TEXTS)["input_ids"]


def test_auto_processor_finds_a_subclass_by_its_name(
    wordpiece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PROCESSOR_MAPPING, "_extra_content", {})
    for _ in range(2):  # a cell of a notebook that is run again defines a new class of the same name

        class Mine(C):
            pass

        Mine(wordpiece).save_pretrained(tmp_path)
        assert type(AutoProcessor.from_pretrained(tmp_path)) is Mine


def test_a_collator_loads_from_a_subfolder(wordpiece, tmp_path: Path) -> None:
    collate = C(wordpiece)
    collate.save_pretrained(tmp_path / "inner")
    assert C.from_pretrained(tmp_path, subfolder="inner") == collate
    if before("transformers", "5.5"):
        pytest.skip("AutoProcessor of transformers 5.0 to 5.3 ignores subfolder")
    assert AutoProcessor.from_pretrained(tmp_path, subfolder="inner") == collate


def test_the_error_for_a_folder_without_the_tokenizers_files_names_the_file(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(
        ValueError, match=r"(?s)tokenizer.json, a part of.*is not there.*copy it there; or save the collator again"
    ):
        AutoProcessor.from_pretrained(tmp_path)
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"(?s)cannot be read.*tokenizer_config.json is missing.*save it again"):
        AutoProcessor.from_pretrained(tmp_path)


def test_the_error_for_a_folder_without_the_settings_names_the_file(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "hf_posenc.json").unlink()
    for load in (AutoProcessor, C):
        with pytest.raises(ValueError, match=r"(?s)no saved collator.*without hf_posenc.json.*bare tokenizer"):
            load.from_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)(TEXTS)["input_ids"] == wordpiece(TEXTS)["input_ids"]


class Hub:
    """Repositories as folders: the methods of `HfApi` that a push calls, and the cache that a download would fill."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.calls, self.tokens = folder, [], set()
        for name in ("create_repo", "create_branch", "file_exists", "upload_folder"):
            monkeypatch.setattr(
                huggingface_hub.HfApi, name, lambda api, *given, _name=name, **more: self(api, _name, *given, **more)
            )

    def __call__(self, api: Any, name: str, repo_id: str, *given: Any, **settings: Any) -> Any:
        self.tokens.add(api.token)
        self.calls.append((name, repo_id, settings))
        repo = self.snapshot(repo_id)
        if name == "file_exists":
            return (repo / given[0]).is_file()
        if name == "upload_folder":
            shutil.copytree(settings["folder_path"], repo, dirs_exist_ok=True)
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo_id}") if name == "create_repo" else None

    def snapshot(self, repo_id: str) -> Path:
        repo = self.folder / f"models--{repo_id.replace('/', '--')}"
        (repo / "refs").mkdir(parents=True, exist_ok=True)
        for branch in ("main", "dev"):
            (repo / "refs" / branch).write_text("0" * 40)
        return repo / "snapshots" / ("0" * 40)


def test_a_pushed_collator_loads_from_its_repository_by_the_lines_of_its_card(
    wordpiece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path, monkeypatch)
    collate = C(wordpiece, max_length=24, labels="masked_lm", seed=3)
    collate.push_to_hub("me/reads", private=True, commit_message="first", token="hf_mine")
    assert hub.tokens == {"hf_mine"}
    upload = {name: settings for name, _, settings in hub.calls}
    assert upload["create_repo"] == {"private": True, "exist_ok": True}
    assert (upload["upload_folder"]["commit_message"], upload["upload_folder"]["create_pr"]) == ("first", False)
    card = (hub.snapshot("me/reads") / "README.md").read_text()
    assert repr(collate) in card
    lines = (
        card.split("```python\n")[1].split("```")[0].replace('"me/reads"', f'"me/reads", cache_dir={str(tmp_path)!r}')
    )
    names: dict[str, Any] = {}
    exec(lines, names)
    assert names["collate"] == collate
    if before("transformers", "5.5"):
        pytest.skip("AutoProcessor of transformers 5.0 to 5.3 ignores cache_dir")
    for settings in ({}, {"revision": "dev"}, {"local_files_only": True, "trust_remote_code": True}):
        assert AutoProcessor.from_pretrained("me/reads", cache_dir=tmp_path, **settings) == collate


def test_a_push_keeps_a_card_and_makes_the_branch(wordpiece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(tmp_path, monkeypatch)
    repo = hub.snapshot("me/model")
    repo.mkdir(parents=True)
    (repo / "README.md").write_text("My model.")
    C(wordpiece, embedding=torch.nn.Embedding(1200, 8)).push_to_hub("me/model", revision="dev", create_pr=True)
    assert (repo / "README.md").read_text() == "My model."
    assert [name for name, *_ in hub.calls] == ["create_repo", "create_branch", "file_exists", "upload_folder"]
    assert hub.calls[1] == ("create_branch", "me/model", {"branch": "dev", "exist_ok": True})
    assert hub.calls[-1][2]["revision"] == "dev"
    assert hub.calls[-1][2]["create_pr"] is True


def test_the_card_of_a_collator_with_a_table_passes_it_again(
    wordpiece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path, monkeypatch)
    C(wordpiece, embedding=torch.nn.Embedding(1200, 8)).push_to_hub("me/table")
    assert '.from_pretrained("me/table", embedding=table)' in (hub.snapshot("me/table") / "README.md").read_text()


def test_the_error_for_a_repository_without_the_settings_names_the_file(
    wordpiece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path, monkeypatch)
    wordpiece.save_pretrained(hub.snapshot("me/bare"))
    with pytest.raises(ValueError, match=r"(?s)no saved collator at 'me/bare'.*hf_posenc.json.*push_to_hub"):
        C.from_pretrained("me/bare", cache_dir=tmp_path)


REFUSALS = [
    (lambda collate: collate(text="a", images=[object()]), ValueError, "processes only texts.*images="),
    (lambda collate: collate(TEXTS, max_length=4), TypeError, "takes only rows or columns"),
    (lambda collate: setattr(collate, "chat_template", ""), AttributeError, "immutable.*tokenizer.chat_template = "),
    (lambda collate: C.from_pretrained("a", revison="main"), TypeError, "no argument 'revison'.*revision="),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSALS)
def test_wrong_calls_are_refused(wordpiece, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"(?s){words}"):
        call(C(wordpiece))
