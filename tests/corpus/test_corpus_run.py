"""`encode` from files to a folder: what is in it, going on after an interruption, and what is refused.

Small corpora in many shards, mostly without worker processes. Engines, sources and manifest have tests of their own.
"""

from __future__ import annotations

import contextlib
import gzip
import inspect
import itertools
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from installed import before
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe, use_sinusoidal_positions
from hf_posenc import corpus as corpora

SHARD = 2_000  # bytes: a corpus of the tests has about six


class Heard(corpora.Progress):
    """Keeps the arguments of the callbacks, and stops the run after a number of shards."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.messages: list[str] = []
        self.shards: list[str] = []
        self.started: dict[str, Any] = {}
        self.tokens = self.read_again = self.stops = 0
        self._left = stop_after

    def message(self, text: str) -> None:
        self.messages.append(text)

    def checked(self, size: int) -> None:
        self.read_again += size

    def start(self, **figures: Any) -> None:
        self.started = figures

    def shard(self, record: dict[str, Any]) -> None:
        self.shards.append(record["file"])
        self.tokens += record["tokens"]
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt

    def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def texts(sentences: list[str]) -> list[str]:
    words = list(dict.fromkeys(" ".join(sentences).split()))
    return [" ".join(itertools.islice(itertools.cycle(words), n, n + 3 + n % 40)) for n in range(200)]


@pytest.fixture
def corpus(texts: list[str], tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(texts)))
    return path


def encode(corpus: Any, tokenizer: Any, output: Path, **settings: Any) -> corpora.Manifest:
    return corpora.encode(
        corpus, tokenizer, output, **{"shard_bytes": SHARD, "workers": 0, "progress": Heard(), **settings}
    )


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of an output folder, apart from hidden ones."""
    files = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def loaded(folder: Path) -> datasets.Dataset:
    files = sorted(map(str, folder.glob("data/*.parquet")))
    return datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder.parent / "cache"))


# --------------------------------------------------------------------------------------------------- what there is then


def test_a_corpus_becomes_shards_that_datasets_reads(
    any_fast: PreTrainedTokenizerBase, corpus: Path, texts: list[str], tmp_path: Path
) -> None:
    heard = Heard()
    manifest = encode(corpus, any_fast, tmp_path / "out", columns=["id:int64"], progress=heard)
    rows = loaded(tmp_path / "out")
    assert list(rows["input_ids"]) == any_fast(texts)["input_ids"]
    assert list(rows["length"]) == [len(ids) for ids in any_fast(texts)["input_ids"]]
    assert list(rows["id"]) == list(range(200))
    assert manifest.totals["documents"] == manifest.totals["rows"] == 200
    assert manifest.totals["tokens"] == sum(rows["length"]) == heard.tokens
    assert len(manifest.shards) == manifest.totals["shards"] == len(heard.shards) > 4
    assert list(content(tmp_path / "out")) == [
        "README.md",
        *sorted(heard.shards),
        "job.json",
        "manifest.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    ]
    saved = transformers.AutoTokenizer.from_pretrained(tmp_path / "out/tokenizer")
    assert saved(texts)["input_ids"] == any_fast(texts)["input_ids"]
    assert corpora.verify(tmp_path / "out").bad == ()
    assert heard.started == {"bytes_total": corpus.stat().st_size, "bytes_done": 0, "shards_done": 0}


def test_the_folder_is_a_data_set_by_its_card(wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path) -> None:
    encode(corpus, wordpiece, tmp_path / "out")
    rows = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))["train"]
    assert rows.num_rows == 200


def test_what_datasets_knows_of_carried_columns_goes_along(
    wordpiece: PreTrainedTokenizerBase, texts: list[str], tmp_path: Path
) -> None:
    names = datasets.ClassLabel(names=["poem", "prose"])
    rows = datasets.Dataset.from_dict(
        {"text": texts[:20], "kind": [0, 1] * 10},
        features=datasets.Features({"text": datasets.Value("string"), "kind": names}),
    )
    encode(rows, wordpiece, tmp_path / "out", columns=["kind"])
    found = loaded(tmp_path / "out")
    assert found.features["kind"] == names
    assert list(found["kind"]) == rows["kind"][:]


@pytest.mark.parametrize("pack", [None, 32])
def test_a_collator_makes_of_the_rows_what_it_makes_of_the_texts(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, texts: list[str], tmp_path: Path, pack: int | None
) -> None:
    collate = DataCollatorWithPositionalEncoding(wordpiece, max_length=32)
    encode(corpus, collate, tmp_path / "out", pack=pack, columns=[])
    rows = loaded(tmp_path / "out").with_format("numpy")
    if pack is None:
        ours, theirs = collate([rows[n] for n in range(8)]), collate(texts[:8])
        assert not theirs.pop("token_type_ids").any()  # of texts alone: a model takes none for 0
        assert list(ours) == list(theirs)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        return
    batch = collate([rows[n] for n in range(4)])
    assert torch.equal(batch["position_ids"][0, : len(rows[0]["position_ids"])], torch.tensor(rows[0]["position_ids"]))
    assert sum((row["position_ids"] == 0).sum() for row in rows) == 200


@pytest.mark.slow
@pytest.mark.parametrize("pack", [None, 24])
def test_trainer_trains_on_the_shards(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path, pack: int | None
) -> None:
    config = transformers.LlamaConfig(
        vocab_size=len(wordpiece), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    if pack is None:
        config = transformers.GPT2Config(vocab_size=len(wordpiece), n_embd=16, n_layer=1, n_head=2, n_positions=64)
    model = transformers.AutoModelForCausalLM.from_config(config)
    if pack is None:
        use_sinusoidal_positions(model)
    encode(corpus, wordpiece, tmp_path / "out", pack=pack, max_length=24)
    collate = DataCollatorWithPositionalEncoding(wordpiece, model=model, labels="causal_lm", max_length=24)
    arguments = transformers.TrainingArguments(
        str(tmp_path / "run"), max_steps=3, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=loaded(tmp_path / "out"), data_collator=collate
    )
    assert np.isfinite(trainer.train().training_loss)


# ------------------------------------------------------------------------------------------------------- going on again


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 2, "max_length": 30},
        {"pack": 32, "labels": "causal_lm", "source_columns": True},
        {"too_long": "split", "max_length": 8, "source_columns": True},
    ],
)
def test_an_interrupted_run_ends_with_the_bytes_of_an_undisturbed_one(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    encode(corpus, wordpiece, tmp_path / "whole" / "out", **{**settings, "workers": 0})
    for stop_after in (1, 2):
        heard = Heard(stop_after)
        with pytest.raises(KeyboardInterrupt):
            encode(corpus, wordpiece, tmp_path / "out", progress=heard, **settings)
    assert heard.started["shards_done"] >= 1
    assert heard.started["bytes_done"] > 0
    found = corpora.verify(tmp_path / "out")
    assert (found.finished, found.bad) == (False, ())
    encode(corpus, wordpiece, tmp_path / "out", **settings)
    assert content(tmp_path / "out") == content(tmp_path / "whole" / "out")


@pytest.mark.parametrize("document", ["paragraph", "file"])
def test_paragraphs_and_files_have_the_same_bytes_with_workers_and_after_an_interruption(
    wordpiece: PreTrainedTokenizerBase, texts: list[str], tmp_path: Path, document: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        some = "\n\n".join(text.replace(" the ", "\n") for text in texts[number * 50 : number * 50 + 50])
        (tmp_path / f"in/{number}.txt.gz").write_bytes(gzip.compress(some.encode()))

    def run(output: str, workers: int = 0, stop_after: int | None = None) -> corpora.Manifest:
        settings = {"workers": workers, "document": document, "progress": Heard(stop_after)}
        return encode(tmp_path / "in", wordpiece, tmp_path / output, **settings)

    undisturbed = run("undisturbed")
    assert undisturbed.totals["documents"] == (200 if document == "paragraph" else 4)
    with pytest.raises(KeyboardInterrupt):
        run("stopped", stop_after=1)
    run("stopped")
    run("workers", workers=2)
    assert content(tmp_path / "undisturbed") == content(tmp_path / "stopped") == content(tmp_path / "workers")


def test_lines_of_unicode_spaces_separate_paragraphs(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    spaces = [char for char in map(chr, range(0x3001)) if char.isspace() and char != "\n"]
    text = "".join(f"i ride\nbike {number}\n{space * (1 + number % 3)}\n" for number, space in enumerate(spaces))
    (tmp_path / "a.txt").write_bytes(text.encode())
    encode(tmp_path / "a.txt", wordpiece, tmp_path / "out", document="paragraph")
    rows = datasets.load_dataset("parquet", data_files=f"{tmp_path}/out/data/*.parquet", split="train")
    assert rows["input_ids"] == [wordpiece(f"i ride\nbike {number}")["input_ids"] for number in range(len(spaces))]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("line", ["I ride", "bike", "she said"]),
        ("paragraph", ["I ride\nbike", "she said"]),
        ("file", ["I ride\nbike\n\nshe said\n"]),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_windows_line_ends_are_read_as_others(tmp_path: Path, end: str, document: str, expected: list[str]) -> None:
    (tmp_path / "a.txt").write_bytes(f"I ride{end}bike{end}{end}she said{end}".encode())
    bpe = train_bpe(["I ride"], vocab_size=270)
    encode(tmp_path / "a.txt", bpe, tmp_path / "out", document=document)
    rows = datasets.load_dataset("parquet", data_files=f"{tmp_path}/out/data/*.parquet", split="train")
    assert bpe.batch_decode(rows["input_ids"][:], skip_special_tokens=True) == expected


def test_a_finished_folder_is_left_as_it_is(wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path) -> None:
    encode(corpus, wordpiece, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("[!.]*")}
    heard = Heard()
    manifest = encode(corpus, wordpiece, tmp_path / "out", progress=heard)
    assert manifest.finished
    assert heard.shards == []
    assert heard.read_again == manifest.totals["bytes"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("[!.]*")} == before


def test_a_card_that_is_gone_is_written_again(wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    encode(corpus, wordpiece, out)
    whole = content(out)
    (out / "README.md").unlink()
    encode(corpus, wordpiece, out)
    assert content(out) == whole


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_only_a_damaged_shard_is_made_again(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path, harm: str
) -> None:
    out = tmp_path / "out"
    encode(corpus, wordpiece, out)
    whole = content(out)
    shard = out / "data/shard-000002-000.parquet"
    data = bytearray(shard.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    shard.unlink() if harm == "remove" else shard.write_bytes(data[:-9] if harm == "cut" else data)
    before = {f"data/{path.name}": path.stat().st_mtime_ns for path in out.glob("data/*")}
    (bad,) = corpora.verify(out).bad
    assert bad.file == "data/shard-000002-000.parquet"
    heard = Heard()
    encode(corpus, wordpiece, out, progress=heard)
    assert heard.shards == ["data/shard-000002-000.parquet"]
    assert content(out) == whole
    after = {f"data/{path.name}": path.stat().st_mtime_ns for path in out.glob("data/*")}
    assert {name for name in whole if name.startswith("data/") and before.get(name) != after[name]} == {bad.file}


def test_a_repaired_shard_keeps_the_rejected_rows_of_the_others(
    byte_bpe: PreTrainedTokenizerBase, texts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"\n\xff\n".join(text.encode() for text in texts))  # every second line is not UTF-8
    out = tmp_path / "out"
    encode(path, byte_bpe, out, on_bad_row="skip")
    whole = content(out)
    listed = [json.loads(line) for name in sorted(whole) if "rejected" in name for line in whole[name].splitlines()]
    assert [one["line"] for one in listed] == list(range(2, 400, 2))
    (out / "data/shard-000001-000.parquet").unlink()
    encode(path, byte_bpe, out, on_bad_row="skip")
    assert content(out) == whole


# ------------------------------------------------------------------------------------------------- another job's folder


def test_another_job_is_refused_with_what_differs(
    wordpiece: PreTrainedTokenizerBase,
    byte_bpe: PreTrainedTokenizerBase,
    corpus: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    encode(corpus, wordpiece, out, max_length=32)
    whole = content(out)
    other = tmp_path / "other.jsonl"
    shutil.copy(corpus, other)
    with other.open("a") as file:
        file.write('{"text": "one more", "id": 7}\n')
    for given, tokenizer, settings, words in (
        (corpus, wordpiece, {"max_length": 16}, "max_length: 32 before, 16 now"),
        (corpus, wordpiece, {"max_length": 32, "pack": 64}, "pack: None before, 64 now"),
        (corpus, wordpiece, {"max_length": 32, "columns": ["id"]}, "columns"),
        (corpus, byte_bpe, {"max_length": 32}, "tokenizer"),
        (other, wordpiece, {"max_length": 32}, "bytes became"),
    ):
        with pytest.raises(ValueError, match=r"holds the output of another job") as caught:
            encode(given, tokenizer, out, **settings)
        assert words in str(caught.value)
        assert content(out) == whole
    encode(corpus, wordpiece, out, max_length=32)


def test_what_is_done_with_bad_rows_may_be_decided_when_the_first_is_met(
    byte_bpe: PreTrainedTokenizerBase, texts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("\n".join([*texts[:150], "?", *texts[150:]]).encode().replace(b"?", b"\xff"))
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"corpus\.txt, line 151: is not UTF-8"):
        encode(path, byte_bpe, out)
    finished = corpora.verify(out).shards
    assert finished > 2
    heard = Heard()
    encode(path, byte_bpe, out, on_bad_row="skip", progress=heard)
    assert heard.started["shards_done"] == finished
    encode(path, byte_bpe, tmp_path / "whole" / "out", on_bad_row="skip")
    assert content(out) == content(tmp_path / "whole" / "out")


def test_a_run_that_finished_nothing_settles_nothing(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="special tokens"):
        encode(corpus, wordpiece, tmp_path / "out", max_length=1)
    encode(corpus, wordpiece, tmp_path / "out", max_length=8)


def test_a_second_run_on_the_same_folder_is_refused(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path
) -> None:
    class Twice(Heard):
        def shard(self, record: dict[str, Any]) -> None:
            with pytest.raises(OSError, match="in use by another run"):
                encode(corpus, wordpiece, tmp_path / "out")

    encode(corpus, wordpiece, tmp_path / "out", progress=Twice())


def test_an_input_that_changes_meanwhile_is_refused(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path
) -> None:
    class Writes(Heard):
        def shard(self, record: dict[str, Any]) -> None:
            with corpus.open("a") as file:
                file.write('{"text": "late", "id": 1}\n')

    with pytest.raises(ValueError, match=r"corpus\.jsonl changed while it was read"):
        encode(corpus, wordpiece, tmp_path / "out", progress=Writes())
    assert not corpora.verify(tmp_path / "out").finished


# ------------------------------------------------------------------------------------------------------------- settings


def test_a_collator_brings_its_settings(wordpiece: PreTrainedTokenizerBase, texts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    collate = DataCollatorWithPositionalEncoding(
        wordpiece, text_column="body", max_length=8, return_overflowing_tokens=True, stride=2, add_special_tokens=False
    )
    manifest = encode(path, collate, tmp_path / "out")
    theirs = wordpiece(
        texts, max_length=8, truncation=True, stride=2, return_overflowing_tokens=True, add_special_tokens=False
    )
    assert list(loaded(tmp_path / "out")["input_ids"]) == theirs["input_ids"]
    assert manifest.config["too_long"] == "split"


def test_a_collator_of_a_model_brings_its_numbering_and_limit(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path
) -> None:
    config = transformers.RobertaConfig(
        vocab_size=len(wordpiece), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=20
    )
    collate = DataCollatorWithPositionalEncoding(wordpiece, model=transformers.RobertaModel(config), packing=True)
    manifest = encode(corpus, collate, tmp_path / "out")
    rows = loaded(tmp_path / "out")
    assert manifest.config["pack"] == manifest.config["max_length"] == collate.max_length == 18
    assert {row["position_ids"][0] for row in rows} == {2}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"labels": "masked_lm"}, r"different ones in every epoch(.|\n)*labels=None here"),
        ({"labels": "mlm"}, "labels must be one of 'causal_lm'"),
        ({"too_long": "cut"}, "too_long must be one of 'truncate', 'split', 'error'"),
        ({"on_bad_row": "drop"}, "on_bad_row must be one of 'error', 'skip', 'keep-empty'"),
        ({"engine": "spark"}, "engine must be one of 'local', 'ray'"),
        ({"document": "word"}, "document must be one of 'line', 'paragraph', 'file'"),
        ({"stride": 2}, r"stride(.|\n)*too_long=\"split\""),
        ({"pack": 32, "on_bad_row": "keep-empty"}, r"packed rows hold no empty documents(.|\n)*skip"),
        ({"pack": 0}, "pack must be"),
        ({"pack": 32, "columns": ["id"]}, "so they carry no columns"),
        ({"max_length": 2}, r"2 special tokens and one more(.|\n)*max_length=3 or more"),
        (
            {"max_length": 8, "too_long": "split", "stride": 7},
            r"a stride of 7(.|\n)*10 or more, or stride=5",
        ),
        ({"workers": -1}, "workers must not be negative"),
        ({"engine": "ray", "workers": 0}, r"processes of its own(.|\n)*workers=None"),
        ({"shard_bytes": 0}, "shard_bytes must be"),
        ({"max_length": -1}, "max_length must be"),
        ({"columns": ["nowhere"]}, "nowhere"),
        ({"text_column": "body"}, "body"),
        ({"shard_byte": 7}, "there is no argument 'shard_byte'\n  fix: shard_bytes=..."),
        ({"stride": True}, "stride must be an integer"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        encode(corpus, wordpiece, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_dropout_of_merges_is_refused_and_its_fix_works(
    byte_bpe: PreTrainedTokenizerFast, corpus: Path, tmp_path: Path
) -> None:
    folder, bare = tmp_path / "bpe", tmp_path / "bpe" / "tokenizer.json"
    raw = byte_bpe.backend_tokenizer
    encode(corpus, byte_bpe, tmp_path / "whole")
    raw.model.dropout = 0.5
    byte_bpe.save_pretrained(folder)
    rule = "each run of a job makes the same shards, and this tokenizer draws the tokens of a text at random"
    on_object = "tokenizer.backend_tokenizer.model.dropout = None, for the job"
    in_file = '; or "dropout": null in its tokenizer.json'
    for tokenizer, fix in (
        (byte_bpe, on_object),
        (raw, "tokenizer.model.dropout = None, for the job"),
        (DataCollatorWithPositionalEncoding(byte_bpe, pad_token="eos"), f"{on_object}, and a new collator of it"),
        (folder, on_object),
        (str(bare), on_object),
    ):
        with pytest.raises(ValueError, match=rule) as refused:
            encode(corpus, tokenizer, tmp_path / "out")
        assert str(refused.value) == f"{rule}\n  got: dropout=0.5\n  fix: {fix}{in_file}"
        assert not (tmp_path / "out").exists()
    bare.write_text(bare.read_text().replace('"dropout": 0.5', '"dropout": null'))
    exec(on_object.partition(",")[0], {"tokenizer": byte_bpe})
    for number, tokenizer in enumerate((byte_bpe, folder)):
        encode(corpus, tokenizer, tmp_path / str(number))
        assert (loaded(tmp_path / str(number))["input_ids"])[:] == loaded(tmp_path / "whole")["input_ids"][:]
    raw.model.dropout = 0.0
    encode(corpus, byte_bpe, tmp_path / "zero")
    exec("tokenizer.model.dropout = None", {"tokenizer": raw})
    assert raw.model.dropout is None


@pytest.mark.skipif(before("tokenizers", "0.23"), reason="Unigram does not sample")
def test_a_unigram_that_samples_is_refused(raw_unigram: Tokenizer, corpus: Path, tmp_path: Path) -> None:
    raw_unigram.model.alpha = 0.5
    with pytest.raises(
        ValueError, match=r"at random\n  got: alpha=0.5\n  fix: tokenizer.model.alpha = None, for the job$"
    ):
        encode(corpus, raw_unigram, tmp_path / "out")
    raw_unigram.model.alpha = None
    assert encode(corpus, raw_unigram, tmp_path / "out").finished


def test_a_slow_tokenizer_that_samples_is_refused_and_its_fix_works(
    corpus: Path, sentences: list[str], tmp_path: Path
) -> None:
    sentencepiece = pytest.importorskip("sentencepiece", reason="needs sentencepiece")
    (tmp_path / "texts.txt").write_text("\n".join(sentences))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "texts.txt"),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=300,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    samples = {"enable_sampling": True, "nbest_size": -1, "alpha": 0.1}
    made = transformers.BertGenerationTokenizer(str(tmp_path / "spiece.model"), sp_model_kwargs=samples)
    made.save_pretrained(tmp_path / "slow")
    for tokenizer in (made, tmp_path / "slow"):
        with pytest.raises(ValueError, match=r"at random\n  got: sp_model_kwargs=.*'enable_sampling': True") as refused:
            encode(corpus, tokenizer, tmp_path / "out")
    names: dict[str, Any] = {"tokenizer": made}
    exec(str(refused.value).partition("fix: ")[2].partition(", for the job")[0], names)
    assert encode(corpus, names["tokenizer"], tmp_path / "out").finished


def test_packed_rows_do_not_read_other_columns(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "I ride", "n": 1}\n{"text": "she said", "n": "two"}\n')
    with pytest.raises(ValueError, match="column 'n' is 'two', expected int64"):
        encode(path, wordpiece, tmp_path / "rows", columns=["n:int64"])
    assert encode(path, wordpiece, tmp_path / "out", pack=32).totals["documents"] == 2


def test_a_home_folder_is_found(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    wordpiece.save_pretrained(tmp_path / "tokenizer")
    encode("~/corpus.jsonl", "~/tokenizer", "~/out")
    assert corpora.verify("~/out").finished
    assert (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda t: DataCollatorWithPositionalEncoding(t, labels="masked_lm"), "different ones in every epoch"),
        (lambda t: DataCollatorWithPositionalEncoding(t, text_target_column="target"), "shards cannot be made with"),
        (lambda t: DataCollatorWithPositionalEncoding(t, is_split_into_words=True), "shards cannot be made with"),
        (
            lambda t: DataCollatorWithPositionalEncoding(t, embedding=4, store_embeddings=True),
            r"store_embeddings=True\n  fix: collate.replace\(store_embeddings=False\)",
        ),
    ],
)
def test_what_shards_cannot_hold_of_a_collator_is_refused(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path, make: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        encode(corpus, make(wordpiece), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_carried_column_with_a_name_that_is_made_is_refused(
    wordpiece: PreTrainedTokenizerBase, texts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text, "length": len(text), "id": 1}) + "\n" for text in texts))
    with pytest.raises(ValueError, match=r"column 'length' comes with the documents(.|\n)*columns=\['id'\] carries"):
        encode(path, wordpiece, tmp_path / "out", columns=["length", "id"])
    encode(path, wordpiece, tmp_path / "out", columns=["id"])
    assert loaded(tmp_path / "out").column_names == ["input_ids", "length", "id"]


def test_a_tokenizer_that_reads_documents_whole_is_named_if_a_document_may_be_long(
    wordpiece: PreTrainedTokenizerBase, word_level: PreTrainedTokenizerBase, slow: Any, tmp_path: Path
) -> None:
    word_level.backend_tokenizer.pre_tokenizer = None
    for tokenizer, reason in ((wordpiece, None), (word_level, "it has no pre-tokenizer"), (slow, "ByT5Tokenizer is")):
        for size in (1_000, 1_100_000):
            (tmp_path / "corpus.txt").write_text("I ride bike\n" * (size // 12))
            heard = Heard(stop_after=1)
            output = tmp_path / f"{reason} {size}"
            with contextlib.suppress(KeyboardInterrupt):
                encode(tmp_path / "corpus.txt", tokenizer, output, progress=heard, shard_bytes=20)
            if reason is None or size == 1_000:
                assert heard.messages == []
            else:
                assert heard.messages[0].startswith("long documents cannot be tokenized in pieces, because of the")
                assert reason in heard.messages[0]


def test_one_long_document_has_the_rows_of_its_tokens_whatever_the_limits(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    (tmp_path / "corpus.txt").write_text("bike ride\n" + "I ride bike, she said. " * 10_000 + "\nI ride\n")
    long = wordpiece("I ride bike, she said. " * 10_000, add_special_tokens=False)["input_ids"]
    start, end = wordpiece("")["input_ids"]

    def rows(**settings: Any) -> list[list[int]]:
        encode(tmp_path / "corpus.txt", wordpiece, tmp_path / str(settings), **settings)
        return loaded(tmp_path / str(settings))["input_ids"][1:-1]

    assert rows(max_length=100) == [[start, *long[:98], end]]
    assert rows(max_length=100, too_long="split") == [
        [start, *long[first : first + 98], end] for first in range(0, len(long), 98)
    ]
    rejected = encode(
        tmp_path / "corpus.txt", wordpiece, tmp_path / "out", max_length=100, too_long="error", on_bad_row="skip"
    )
    assert rejected.totals["rejected"] == 1
    (listed,) = (tmp_path / "out/rejected").iterdir()
    assert f"has {len(long) + 2} tokens, limit 100" in listed.read_text()


def test_limits_and_cuts_are_said(wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path) -> None:
    wordpiece.model_max_length = 16
    heard = Heard()
    manifest = encode(corpus, wordpiece, tmp_path / "out", pack=64, max_length=32, progress=heard)
    assert heard.messages == [
        "max_length is 16, the limit of the tokenizer, and not 32",
        f"{manifest.totals['cut']} of 200 documents were truncated to 16 tokens",
    ]
    assert manifest.totals["cut"] > 0
    with warnings.catch_warnings(record=True) as warned:  # where nobody listens
        warnings.simplefilter("always")
        corpora.encode(corpus, wordpiece, tmp_path / "again", pack=64, max_length=32, workers=0)
    assert [str(one.message) for one in warned] == heard.messages


def test_an_error_in_a_callback_is_raised_and_progress_stops_once(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path
) -> None:
    class Fails(Heard):
        def shard(self, record: dict[str, Any]) -> None:
            raise RuntimeError("the first error")

    heard = Fails()
    with pytest.raises(RuntimeError, match="the first error"):
        encode(corpus, wordpiece, tmp_path / "out", progress=heard)
    assert heard.stops == 1


def test_a_worker_loads_only_what_makes_rows_of_lines(
    wordpiece: PreTrainedTokenizerBase,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # a worker prints its imports
    encode(corpus, wordpiece, tmp_path / "out", workers=1)
    imported = {line.rpartition("|")[2].strip() for line in capfd.readouterr().err.splitlines()}
    assert {"pyarrow.parquet", "hf_posenc.corpus.shards"} <= imported
    heavy = {"torch", "transformers", "datasets", "pandas", "fsspec", "ray"}
    assert not (heavy - {"pandas"} if before("pyarrow", "24") else heavy) & imported  # pyarrow 18 itself loads pandas


def test_a_job_in_the_calling_process_leaves_the_cache_of_nanotoken_as_it_is(
    wordpiece: PreTrainedTokenizerBase, corpus: Path, tmp_path: Path
) -> None:
    nanotoken = pytest.importorskip("nanotoken", reason="needs nanotoken: pip install nanotoken gigatoken")
    before = nanotoken.get_cache_entries()
    encode(corpus, wordpiece, tmp_path / "out", workers=0)
    assert nanotoken.get_cache_entries() == before


def test_every_option_is_a_keyword_with_its_type_and_help() -> None:
    signature = inspect.signature(corpora.encode)
    assert signature.parameters["stride"].annotation is int
    assert signature.parameters["max_length"].default is None
    for name in signature.parameters:
        assert f"    {name} (" in (corpora.encode.__doc__ or "")
