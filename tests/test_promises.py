"""What stays the same within a major version: public names, keys of a batch, bits of the encoding, saved files.

The promises begin with 0.2.0. For every release, `python tests/test_promises.py` adds folders of the present version to
tests/data, with the settings of the last ones.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
import torch
import user_program
from torch import nn

import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding, fixed_bases
from hf_posenc.corpus import Progress, encode, verify

DATA = Path(__file__).parent / "data"
TEXTS = ["I ride bike", "bikes I ride, she said unsurprisingly", "é"]

# ------------------------------------------------------------------------------------------------- names and batch keys


def test_the_public_names() -> None:
    assert hf_posenc.__all__ == [
        "AttentionMask",
        "Batch",
        "BatchPlan",
        "Convention",
        "DataCollatorWithPositionalEncoding",
        "LearnedPositionalEncoding",
        "MaskedLM",
        "ModelSpec",
        "PackingPlan",
        "PositionalEmbedding",
        "SinusoidalPositionalEncoding",
        "TokenBudgetBatchSampler",
        "TokenBudgetMixin",
        "__version__",
        "additive_mask",
        "audit",
        "corpus",
        "fixed_bases",
        "frequencies",
        "look_ahead_mask",
        "pack",
        "pack_dataset",
        "padding_mask",
        "padding_mask_from_ids",
        "plan_batches",
        "plots",
        "position_ids_from_documents",
        "position_ids_from_lengths",
        "position_ids_from_mask",
        "positional_encoding",
        "reorder_columns",
        "sinusoidal_encoding",
        "stream_batches",
        "testing",
        "train_bpe",
        "use_sinusoidal_positions",
        "with_arrow_batches",
    ]


def test_a_program_that_uses_every_public_name_runs() -> None:
    assert set(hf_posenc.__all__) <= {*vars(user_program), "__version__"}
    user_program.main()


PACKED = ["input_ids", "token_type_ids", "position_ids"]
KERNEL = ["cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"]
ROWS = ["input_ids", "attention_mask", "token_type_ids", "position_ids"]


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({}, [*ROWS, "look_ahead_mask"]),
        ({"look_ahead": False}, ROWS),
        ({"embedding": 8}, [*ROWS, "look_ahead_mask", "inputs_embeds"]),
        ({"labels": "causal_lm"}, [*ROWS, "labels", "look_ahead_mask"]),
        (
            {"max_length": 4, "return_overflowing_tokens": True},
            [*ROWS, "overflow_to_sample_mapping", "look_ahead_mask"],
        ),
        ({"packing": True, "max_length": 64}, [*PACKED, "document_ids", "look_ahead_mask"]),
        ({"packing": "flat", "max_length": 64}, [*PACKED, "seq_idx", *KERNEL]),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, dict) else "",
)
def test_the_keys_of_a_batch(wordpiece, settings: dict[str, Any], keys: list[str]) -> None:
    with warnings.catch_warnings(action="ignore"):  # texts are cut
        assert list(DataCollatorWithPositionalEncoding(wordpiece, **settings)(TEXTS)) == keys


def test_the_columns_of_a_column_call(wordpiece) -> None:
    columns = DataCollatorWithPositionalEncoding(wordpiece)({"text": TEXTS})
    assert list(columns) == ["input_ids", "token_type_ids", "attention_mask", "length"]


# ------------------------------------------------------------------------------------------------- bits of the encoding

GOLDEN = json.loads(golden.FILE.read_text(encoding="utf-8"))


def test_the_bits_of_every_convention() -> None:
    made: dict[str, dict[str, dict[str, str]]] = {}
    for convention, width in golden.cases():
        made.setdefault(convention.name, {})[str(width)] = golden.of_package(convention, width)
    assert made == GOLDEN


@pytest.mark.slow
def test_the_file_of_bits_holds_the_formula_rounded_once() -> None:
    for convention, width in golden.cases():
        assert golden.of_formula(convention, width) == GOLDEN[convention.name][str(width)], (convention.name, width)


# ------------------------------------------------------------------------------------------------------ saved collators

SAVED = sorted((DATA / "saved").glob("*/*"))


def _loaded(folder: Path) -> DataCollatorWithPositionalEncoding:
    embedding: dict[str, Any] = {}
    if folder.name == "table":
        table = nn.Embedding.from_pretrained(torch.arange(96.0).view(16, 6) / 64)
        own = PositionalEmbedding(table, convention=fixed_bases(4, 5, 7), scale="sqrt_d")
        embedding = {"embedding": own}
    return DataCollatorWithPositionalEncoding.from_pretrained(folder, **embedding)


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_collator_of_every_version_gives_the_batch_that_it_gave(folder: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # texts are cut
        batch = _loaded(folder)(TEXTS)
    expected = json.loads((folder / "batch.json").read_text())
    assert list(batch) == list(expected)
    for key, values in batch.items():
        np.testing.assert_array_equal(np.asarray(values), np.array(expected[key], np.asarray(values).dtype), key)


def test_every_saved_format_has_a_folder(wordpiece, tmp_path: Path) -> None:
    DataCollatorWithPositionalEncoding(wordpiece).save_pretrained(tmp_path)
    now = json.loads((tmp_path / "hf_posenc.json").read_text())
    written = [json.loads((folder / "hf_posenc.json").read_text()) for folder in SAVED]
    assert {saved["format_version"] for saved in written} == set(range(3, now["format_version"] + 1))  # 3 is of 0.2.0
    assert any(saved.keys() == now.keys() for saved in written), "add a folder that the present version wrote"


# -------------------------------------------------------------------------------------------------------------- corpora


SETTINGS: dict[str, Any] = {"workers": 0, "shard_bytes": 80, "max_length": 8, "on_bad_row": "skip"}


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the corpora as the working folder, in a later version of the package."""
    shutil.copytree(DATA / "corpora", tmp_path / "corpora")
    monkeypatch.chdir(tmp_path / "corpora")
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99" if name == "hf-posenc" else version(name))
    return tmp_path / "corpora"


class _Shards(Progress):
    def __init__(self) -> None:
        self.made: list[str] = []

    def message(self, text: str) -> None:
        """Ignore the message."""

    def shard(self, record: dict[str, Any]) -> None:
        self.made.append(record["file"])


def _encode_again(name: str, corpora: Path, **settings: Any) -> list[str]:
    saved = DATA / "saved" / name
    saved = saved if saved.exists() else SAVED[-1].parent
    shutil.copytree(saved / "labels", corpora / "tokenizer", dirs_exist_ok=True)
    progress = _Shards()
    encode("texts.txt", "tokenizer", name, progress=progress, **{**SETTINGS, **settings})
    return progress.made


@pytest.mark.parametrize("name", sorted(folder.name for folder in (DATA / "corpora").iterdir() if folder.is_dir()))
def test_a_later_version_verifies_a_corpus_and_makes_no_shard_of_it(corpora: Path, name: str) -> None:
    found = verify(name)
    assert str(found) == f"{name}: 3 shards, 9 rows, 60 tokens, all as they were written"
    assert _encode_again(name, corpora) == []
    (corpora / name / "data" / "shard-000001-000.parquet").unlink()
    assert [str(bad) for bad in verify(name).bad] == ["data/shard-000001-000.parquet: is missing"]
    with pytest.raises(ValueError, match=rf"made the others\n  got: hf-posenc: '{re.escape(name)}' before"):
        _encode_again(name, corpora)


# The defaults of 0.2.0. Its successors read a folder that records none of them as one that was made with these.
IMPLIED = {
    "text_column": "text", "text_pair_column": None, "document": "line", "on_bad_row": "error", "max_length": None,
    "too_long": "truncate", "stride": 0, "add_special_tokens": True, "pack": None, "labels": None,
}  # fmt: skip


def _config(folder: Path, name: str = "job.json") -> dict[str, Any]:
    return json.loads((folder / name).read_text())["config"]


def test_a_job_records_only_options_that_differ_from_their_default(corpora: Path) -> None:
    _encode_again("new", corpora)
    columns = {"input_ids": "list<item: int32>", "length": "int32"}
    recorded = {"max_length": 8, "shard_bytes": 80, "first_position": 0, "columns": columns}
    assert _config(corpora / "new") == recorded
    assert _config(corpora / "new", "manifest.json") == {**recorded, "on_bad_row": "skip"}
    _encode_again("again", corpora, **{**IMPLIED, **SETTINGS})
    for name in ("job.json", "manifest.json", "README.md"):
        assert (corpora / "again" / name).read_bytes() == (corpora / "new" / name).read_bytes()


def test_options_that_a_folder_does_not_record_have_the_defaults_of_the_first_version(corpora: Path) -> None:
    name = "0.2.0"
    for file in ("job.json", "manifest.json"):
        content = json.loads((corpora / name / file).read_text())
        content["config"] = {key: value for key, value in content["config"].items() if value != IMPLIED.get(key, ...)}
        (corpora / name / file).write_text(json.dumps(content))
    assert "too_long" not in _config(corpora / name)
    assert verify(name).sound
    assert _encode_again(name, corpora, **{**IMPLIED, **SETTINGS}) == []


# Programs in a copy of the package with another option, or another default.
LATER = """\
import importlib.metadata, sys
from hf_posenc.corpus import Progress, encode, verify

def again(name, **options):
    made = Progress()
    made.shard = lambda record: print("made", record["file"])
    settings = {settings!r}
    try:
        encode("texts.txt", "tokenizer", name, progress=made, **{{**settings, **options}})
        print(name, verify(name).sound)
    except ValueError as error:
        print(str(error).partition("got: ")[2].replace(chr(10), ""))

"""


def _in_a_copy(corpora: Path, old: str, new: str, program: str) -> list[str]:
    """Return what a program prints with a copy of the package in which `old` is replaced by `new` in the options."""
    package = Path(
        shutil.copytree(Path(hf_posenc.__file__).parent, corpora / "later" / "hf_posenc", dirs_exist_ok=True)
    )
    source = (package / "corpus/options.py").read_text(encoding="utf-8")
    assert source.count(old) == 1
    (package / "corpus/options.py").write_text(source.replace(old, new), encoding="utf-8")
    shutil.copytree(SAVED[-1].parent / "labels", corpora / "tokenizer", dirs_exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", LATER.format(settings=SETTINGS) + program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


NEW_OPTION = ("    stride: int", '    lowercase: bool = _option(False, "Make letters small.")\n    stride: int')


def test_folders_go_on_after_an_option_was_added(corpora: Path) -> None:
    _encode_again("new", corpora)
    before = {path: path.read_bytes() for path in corpora.glob("*/*.json")}
    cards = {path: path.read_bytes() for path in corpora.glob("new/README.md")}
    program = """
again("new")
again("0.2.0")
again("new", lowercase=True)
again("0.2.0", lowercase=True)
"""
    assert _in_a_copy(corpora, *NEW_OPTION, program) == [
        "new True",
        "0.2.0 True",
        "lowercase: False before, True now  fix: another --output, or delete this one",
        "lowercase: False before, True now  fix: another --output, or delete this one",
    ]
    assert {path: path.read_bytes() for path in before} == before
    assert {path: path.read_bytes() for path in cards} == cards


def test_a_shard_is_made_again_after_an_option_was_added(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the version that wrote the folder
    monkeypatch.chdir(corpora)
    _encode_again("new", corpora)
    shard = corpora / "new/data/shard-000001-000.parquet"
    whole = shard.read_bytes()
    shard.unlink()
    made = ["made data/shard-000001-000.parquet", "new True"]
    assert _in_a_copy(corpora, *NEW_OPTION, 'again("new")') == made
    assert shard.read_bytes() == whole


def test_an_option_of_a_later_version_is_refused_by_name(corpora: Path) -> None:
    assert _in_a_copy(corpora, *NEW_OPTION, 'again("later", lowercase=True)')[-1] == "later True"
    assert _config(corpora / "later")["lowercase"] is True
    assert verify("later").sound
    words = r"later was made with options that this version .*\n  got: lowercase=True\n  fix: pip install 'hf-posenc=="
    with pytest.raises(ValueError, match=words):
        _encode_again("later", corpora)
    _in_a_copy(corpora, *NEW_OPTION, 'again("other", lowercase=False)')
    assert _encode_again("other", corpora) == []  # it is not recorded there


def test_a_default_may_change_and_no_folder_changes_its_meaning(corpora: Path) -> None:
    _encode_again("new", corpora)
    old = '"truncate",\n        "A text with more'
    new = '"error", implied="truncate", help="A text with more'
    program = """
again("new")
again("0.2.0")
again("0.2.0", too_long="truncate")
again("later")
"""
    refused = "too_long: 'truncate' before, 'error' now  fix: another --output, or delete this one"
    assert _in_a_copy(corpora, old, new, program)[:3] == [refused, refused, "0.2.0 True"]
    assert _config(corpora / "later")["too_long"] == "error"
    with pytest.raises(ValueError, match="too_long: 'error' before, 'truncate' now"):
        _encode_again("later", corpora)


# --------------------------------------------------------------------------------------------------------- new versions


def write_folders(version: str) -> None:
    """Write the saved collators and the corpus of a version to tests/data, with the settings of the last version."""
    for folder in (each for each in SAVED if each.parent == SAVED[-1].parent):
        collate, new = _loaded(folder), DATA / "saved" / version / folder.name
        collate.save_pretrained(new)
        batch = {key: np.asarray(values).tolist() for key, values in collate(TEXTS).items()}
        (new / "batch.json").write_text(json.dumps(batch) + "\n", encoding="utf-8")
    with contextlib.chdir(DATA / "corpora"):
        shutil.copytree(DATA / "saved" / version / "labels", "tokenizer")
        encode("texts.txt", "tokenizer", version, **SETTINGS)
        shutil.rmtree("tokenizer")
        Path(version, ".lock").unlink()


if __name__ == "__main__":
    write_folders(hf_posenc.__version__)
