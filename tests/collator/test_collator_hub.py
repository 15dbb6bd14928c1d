"""Collators in folders, on the Hub and in pipelines, compared with the tokenizer that transformers loads there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    RobertaConfig,
    pipeline,
)

from hf_posenc import DataCollatorWithPositionalEncoding

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a"]


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


def test_one_row_of_ids_decodes_to_one_text_and_rows_as_by_the_tokenizer(wordpiece) -> None:
    collate = C(wordpiece)
    ids = wordpiece("I ride bike")["input_ids"]
    assert collate.decode(ids) == collate.decode([ids])[0] == wordpiece.decode(ids, skip_special_tokens=True)
    assert collate.decode(ids, skip_special_tokens=False) == wordpiece.decode(ids)
    assert collate.decode(torch.tensor(ids)) == collate.decode(ids)


def test_a_collator_loads_from_a_subfolder(wordpiece, tmp_path: Path) -> None:
    collate = C(wordpiece)
    collate.save_pretrained(tmp_path / "inner")
    assert C.from_pretrained(tmp_path, subfolder="inner") == collate


def test_the_error_for_a_folder_without_the_tokenizers_files_names_the_file(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(
        ValueError, match=r"(?s)tokenizer.json, a part of.*is not there.*copy it there; or save the collator again"
    ):
        C.from_pretrained(tmp_path)
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"(?s)cannot be read.*tokenizer_config.json is missing.*save it again"):
        C.from_pretrained(tmp_path)


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
    for settings in ({}, {"revision": "dev"}, {"local_files_only": True}):
        assert C.from_pretrained("me/reads", cache_dir=tmp_path, **settings) == collate


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
    (lambda collate: collate(text="a"), TypeError, "takes only rows.*tokenizer=collate.tokenizer$"),
    (lambda collate: collate(TEXTS, max_length=4), TypeError, "takes only rows or columns"),
    (
        lambda collate: setattr(collate, "chat_template", ""),
        AttributeError,
        "only replaced.*tokenizer.chat_template = ",
    ),
    (lambda collate: collate.chat_template, AttributeError, r"processing_class=collate\.tokenizer$"),
    (lambda collate: C.from_pretrained("a", revison="main"), TypeError, "no argument 'revison'.*revision="),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSALS)
def test_wrong_calls_are_refused(wordpiece, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"(?s){words}"):
        call(C(wordpiece))
