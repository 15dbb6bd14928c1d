"""A shard against the tokenizer itself: its rows, its figures, what bad documents get, and its bytes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase

from hf_posenc import corpus as corpora

TEXTS = ["I ride my bike", "she said", "to the sea, she said, and back", "no", "I ride", "the sea"]
Written = tuple[dict[str, Any], pa.Table]


class Quiet(corpora.Progress):
    """Shows no messages."""

    def message(self, text: str) -> None:
        pass


def encode(corpus: Any, tokenizer: Any, output: Path, **options: Any) -> corpora.Manifest:
    """Encode a corpus in this process."""
    return corpora.encode(corpus, tokenizer, output, progress=Quiet(), **{"workers": 0, **options})


def write(folder: Path, corpus: list[Any] | pa.Table) -> Path:
    """Write a corpus of texts or objects as a file of JSON lines, a table as Parquet."""
    if isinstance(corpus, pa.Table):
        pq.write_table(corpus, folder / "corpus.parquet")
        return folder / "corpus.parquet"
    path = folder / "corpus.jsonl"
    objects = [{"text": one} if isinstance(one, str) else one for one in corpus]
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


def written(tokenizer: PreTrainedTokenizerBase, folder: Path, corpus: list[Any] | pa.Table, **options: Any) -> Written:
    """Encode a corpus to one shard, and return its record and its rows."""
    options = {"max_length": 64, "shard_bytes": 64 << 20, **options}
    manifest = encode(write(folder, corpus), tokenizer, folder / "out", **options)
    (record,) = manifest.shards
    return record, pq.read_table(manifest.folder / record["file"])


def rejected(folder: Path) -> list[dict[str, Any]]:
    """Return the rejected documents of the job in `folder / "out"`, in order."""
    files = sorted((folder / "out" / "rejected").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------------------------------------------------------ the rows


def test_a_row_holds_the_ids_that_the_tokenizer_gives(any_fast: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(any_fast, tmp_path, TEXTS)
    ids = any_fast(TEXTS)["input_ids"]
    assert table.column("input_ids").to_pylist() == ids
    assert table.column("length").to_pylist() == list(map(len, ids))
    assert table.column_names == ["input_ids", "length"]
    assert (record["rows"], record["documents"], record["tokens"]) == (6, 6, sum(map(len, ids)))


def test_a_slow_tokenizer_travels_as_its_files(slow: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    _, table = written(slow, tmp_path, TEXTS)
    assert table.column("input_ids").to_pylist() == slow(TEXTS)["input_ids"]


def test_the_figures_are_those_of_the_file(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(wordpiece, tmp_path, TEXTS * 20)
    lengths = table.column("length").to_numpy()
    batches = [lengths[start : start + 32] for start in range(0, len(lengths), 32)]
    path = tmp_path / "out/data/shard-000000-000.parquet"
    assert record["bytes"] == path.stat().st_size
    assert record["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert record["longest"] == lengths.max()
    assert record["padded"] == sum(len(batch) * batch.max() for batch in batches)
    assert record["from"] == ["corpus.jsonl", 0]
    assert record["last"]
    assert record["read"] == (tmp_path / "corpus.jsonl").stat().st_size


def test_a_text_that_is_too_long_is_cut_and_counted(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(wordpiece, tmp_path, TEXTS, max_length=5)
    whole = wordpiece(TEXTS)["input_ids"]
    assert table.column("input_ids").to_pylist() == wordpiece(TEXTS, truncation=True, max_length=5)["input_ids"]
    assert record["cut"] == sum(len(ids) > 5 for ids in whole) > 0


def test_a_text_that_is_split_goes_on_in_further_rows_with_its_columns(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = pa.table({"text": TEXTS, "source": [f"book {number}" for number in range(6)]})
    options: dict[str, Any] = {"max_length": 5, "too_long": "split", "stride": 1, "columns": ["source"]}
    record, table = written(wordpiece, tmp_path, rows, **options)
    theirs = wordpiece(TEXTS, truncation=True, max_length=5, stride=1, return_overflowing_tokens=True)
    assert table.column("input_ids").to_pylist() == theirs["input_ids"]
    sample = theirs["overflow_to_sample_mapping"]
    assert table.column("source").to_pylist() == [f"book {number}" for number in sample]
    assert (record["cut"], record["documents"], record["rows"]) == (0, 6, len(sample))


def test_pairs_have_token_types(bert: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    other = TEXTS[::-1]
    _, table = written(bert, tmp_path, pa.table({"text": TEXTS, "reply": other}), text_pair_column="reply")
    theirs = bert(TEXTS, other)
    assert table.column("input_ids").to_pylist() == theirs["input_ids"]
    assert table.column("token_type_ids").to_pylist() == theirs["token_type_ids"]


def test_further_columns_stay_what_they_are(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    columns = {
        "label": pa.array(range(6), pa.int8()),
        "when": pa.array([0, 1, None, 3, 4, 5], pa.timestamp("ms", tz="UTC")),
        "tags": pa.array([["a"], [], None, ["b", "c"], [], ["d"]]),
        "meta": pa.array([{"x": 1.5}] * 6),
    }
    rows = pa.table({**columns, "text": TEXTS})
    _, table = written(wordpiece, tmp_path, rows, columns=list(columns))
    assert table.column_names == ["input_ids", "length", *columns]
    for name, column in columns.items():
        assert table.column(name).combine_chunks().equals(column), name
        assert table.schema.field(name).type == column.type


def test_labels_are_the_ids_themselves(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    _, table = written(wordpiece, tmp_path, TEXTS, labels="causal_lm")
    assert table.column("labels").equals(table.column("input_ids"))


# ---------------------------------------------------------------------------------------------------------- packed rows


def test_a_packed_row_holds_whole_documents_with_positions_of_their_own(
    any_fast: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    record, table = written(any_fast, tmp_path, TEXTS * 10, max_length=12, pack=12, labels="causal_lm")
    documents_found = []
    for row in table.to_pylist():
        assert row["length"] == len(row["input_ids"]) == len(row["position_ids"]) <= 12
        begins = [at for at, position in enumerate(row["position_ids"]) if position == 0]
        for begin, end in zip(begins, [*begins[1:], row["length"]], strict=True):
            documents_found.append(row["input_ids"][begin:end])
            assert row["position_ids"][begin:end] == list(range(end - begin))
            assert row["labels"][begin:end] == [-100, *row["input_ids"][begin + 1 : end]]
    theirs = any_fast(TEXTS * 10, truncation=True, max_length=12)["input_ids"]
    assert sorted(documents_found) == sorted(theirs)
    assert record["rows"] < len(theirs)
    assert record["documents"] == len(theirs)


def test_packed_rows_share_documents_that_are_far_apart(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    far = [{"text": "she said", "page": "x" * 1_100_000}] * 12  # each is a batch by itself
    tokens = len(wordpiece("she said")["input_ids"])
    record, _ = written(wordpiece, tmp_path, far, pack=3 * tokens)
    assert (record["tokens"], record["rows"]) == (12 * tokens, 4)


def test_rows_of_two_shards_are_not_in_the_same_order(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    path = write(tmp_path, TEXTS * 10)
    options: dict[str, Any] = {"max_length": 12, "pack": 12, "shard_bytes": path.stat().st_size}
    manifest = encode([path, path], wordpiece, tmp_path / "out", **options)
    first, second = (pq.read_table(manifest.folder / manifest.shards[shard]["file"]) for shard in (0, 1))
    assert not first.equals(second)
    assert sorted(map(str, first.to_pylist())) != [str(row) for row in first.to_pylist()]


# ------------------------------------------------------------------------------------------------------ source columns


@pytest.fixture
def numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Inputs of every kind, in the working folder: each document is a number, some are bad, and two lines are blank."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes(b"1\n\n2\n\xff\n3\n")
    (tmp_path / "in" / "deep").mkdir(parents=True)
    Path("in/deep/b.jsonl").write_text('{"text": "4"}\n\n{"text": null}\n{"text": "5"}\n')
    Path("c.csv").write_text('id,text\n1,"6\n"\n2,7\n')
    pq.write_table(pa.table({"text": ["8", None, "9"]}), tmp_path / "d.parquet")
    rows = datasets.Dataset.from_dict({"text": ["10", "11"]})
    return ["a.txt", "in", Path("c.csv"), tmp_path / "d.parquet", rows, rows.to_iterable_dataset()]


NUMBERED = {
    1: ("a.txt", 0), 2: ("a.txt", 3), 3: ("a.txt", 7), 4: ("in/deep/b.jsonl", 0), 5: ("in/deep/b.jsonl", 30),
    6: ("c.csv", 8), 7: ("c.csv", 15), 8: ("d.parquet", 0), 9: ("d.parquet", 2), 10: ("inputs[4]", 0),
    11: ("inputs[4]", 1), 12: ("inputs[5]", 0), 13: ("inputs[5]", 1),
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"shard_bytes": 8}, {"pack": 4}, {"pack": 2}])
def test_source_columns_name_the_input_and_the_byte_or_row_where_each_document_begins(
    numbered: list[Any], tmp_path: Path, options: dict[str, Any]
) -> None:
    digits = Tokenizer(models.WordLevel({"?": 0, **{str(number): number for number in range(1, 12)}}, unk_token="?"))
    digits.pre_tokenizer = pre_tokenizers.Whitespace()
    encode(numbered, digits, tmp_path / "out", on_bad_row="skip", source_columns=True, **options)
    table = pq.read_table(tmp_path / "out" / "data")
    assert table.column_names[-3:] == ["source", "row", "length"]
    found = []
    for ids, source, row in zip(*(table[name].to_pylist() for name in ("input_ids", "source", "row")), strict=True):
        found += zip(ids, source, row, strict=True) if "pack" in options else [(*ids, source, row)]
    # The stream has the same texts as the data set.
    assert sorted(found) == sorted((number if number < 12 else number - 2, *NUMBERED[number]) for number in NUMBERED)
    listed = [(one["file"], one.get("line", one.get("row"))) for one in rejected(tmp_path)]
    assert listed == [("a.txt", 4), ("in/deep/b.jsonl", 3), ("d.parquet", 1)]


@pytest.mark.parametrize("pack", [None, 12])
def test_each_row_of_a_split_text_has_its_source(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path, pack: int | None
) -> None:
    options: dict[str, Any] = {"max_length": 5, "too_long": "split", "pack": pack, "source_columns": True}
    _, table = written(wordpiece, tmp_path, TEXTS, **options)
    lines = (tmp_path / "corpus.jsonl").read_bytes().splitlines(keepends=True)
    begins = [sum(map(len, lines[:number])) for number in range(len(lines))]
    theirs = wordpiece(TEXTS, truncation=True, max_length=5, return_overflowing_tokens=True)
    expected = zip(theirs["input_ids"], theirs["overflow_to_sample_mapping"], strict=True)
    found = []
    for row in table.to_pylist():
        starts = [0]
        if pack is not None:
            starts = [at for at, position in enumerate(row["position_ids"]) if position == 0]
            assert row["source"] == ["corpus.jsonl"] * len(starts)
        numbers = [row["row"]] if pack is None else row["row"]
        for start, stop, number in zip(starts, [*starts[1:], None], numbers, strict=True):
            found.append((row["input_ids"][start:stop], begins.index(number)))
    assert sorted(found) == sorted(expected)


def test_source_columns_beside_a_carried_column_of_their_name_are_refused(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = pa.table({"text": TEXTS, "row": range(6), "id": range(6)})
    with pytest.raises(ValueError, match=r"(?s)column 'row' comes with.*columns=\['id'\].*source_columns=False"):
        written(wordpiece, tmp_path, rows, columns=["row", "id"], source_columns=True)
    _, table = written(wordpiece, tmp_path, rows, columns=["id"], source_columns=True)
    assert table.column_names == ["input_ids", "source", "row", "length", "id"]
    with pytest.raises(ValueError, match=r"(?s)another job.*columns.source: 'string' before, missing now"):
        written(wordpiece, tmp_path, rows, columns=["id"])


def test_names_that_are_not_unicode_are_escaped_in_the_column_source(
    byte_bpe: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt"))
    try:
        path.write_text("no\n")
    except OSError:
        pytest.skip("this file system has no such names")
    manifest = encode(path, byte_bpe, tmp_path / "out", source_columns=True)
    assert pq.read_table(manifest.folder / "data")["source"].to_pylist() == ["\\udcff.txt"]


def test_a_job_with_source_columns_continues_only_with_inputs_of_the_same_names(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(Quiet):
        def shard(self, record: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("I ride\nno\n")
    for output in ("with", "without"):
        options: dict[str, Any] = {"shard_bytes": 7, "source_columns": output == "with"}
        with pytest.raises(KeyboardInterrupt):
            corpora.encode("a.txt", wordpiece, output, workers=0, progress=Stopped(), **options)
        if output == "with":
            with pytest.raises(ValueError, match=r"another job\n  got: input 0: a\.txt before, b\.txt now"):
                encode("b.txt", wordpiece, output, **options)
        encode("a.txt" if output == "with" else "b.txt", wordpiece, output, **options)


# ------------------------------------------------------------------------------------------------------------ bad rows


def test_an_empty_text_is_refused_with_its_file_and_line(any_fast: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"corpus\.jsonl, line 3: has no tokens\n  got: no text\n  fix: .*skip.*rejected"
    ):
        written(any_fast, tmp_path, [*TEXTS[:2], "", *TEXTS])
    assert not list((tmp_path / "out" / "data").glob("*"))


def test_a_skipped_row_is_listed_and_the_others_stay(any_fast: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(any_fast, tmp_path, ["", TEXTS[0], "", TEXTS[1]], on_bad_row="skip")
    assert table.column("input_ids").to_pylist() == any_fast(TEXTS[:2])["input_ids"]
    assert (record["documents"], record["rows"], record["rejected"]) == (4, 2, 2)
    assert rejected(tmp_path) == [{"file": "corpus.jsonl", "line": line, "reason": "has no tokens"} for line in (1, 3)]


def test_keep_empty_keeps_an_empty_text_in_the_place_of_a_bad_one(
    any_fast: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    rows = pa.table({"text": [TEXTS[0], None, TEXTS[1]], "id": [7, 8, 9]})
    record, table = written(any_fast, tmp_path, rows, on_bad_row="keep-empty", columns=["id"])
    assert table.column("input_ids").to_pylist() == any_fast([TEXTS[0], "", TEXTS[1]])["input_ids"]
    assert table.column("id").to_pylist() == [7, 8, 9]
    assert (record["rows"], record["rejected"]) == (3, 1)
    (found,) = rejected(tmp_path)
    assert (found["file"], found["row"]) == ("corpus.parquet", 1)
    assert "null" in found["reason"]


def test_a_text_above_the_limit_is_a_bad_row_if_the_job_allows_bad_rows(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    count = len(wordpiece(TEXTS[2])["input_ids"])
    options: dict[str, Any] = {"max_length": count - 1, "too_long": "error"}
    with pytest.raises(ValueError, match=rf"line 3: has {count} tokens, limit {count - 1}\n  got: '{TEXTS[2]}'"):
        written(wordpiece, tmp_path, TEXTS, **options)
    _, table = written(wordpiece, tmp_path, TEXTS, on_bad_row="skip", **options)
    assert table.column("input_ids").to_pylist() == wordpiece(TEXTS[:2] + TEXTS[3:])["input_ids"]
    assert rejected(tmp_path)[0]["text"] == TEXTS[2]
    (tmp_path / "kept").mkdir()
    _, table = written(wordpiece, tmp_path / "kept", TEXTS, on_bad_row="keep-empty", **options)
    assert table.column("input_ids").to_pylist() == wordpiece([*TEXTS[:2], "", *TEXTS[3:]])["input_ids"]


def test_a_shard_without_a_good_row_has_its_columns(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    record, table = written(wordpiece, tmp_path, ["", ""], on_bad_row="skip")
    assert (record["rows"], record["rejected"], record["longest"], len(table)) == (0, 2, 0, 0)
    assert table.column_names == ["input_ids", "length"]


def test_a_document_that_cannot_be_read_is_shown_as_it_stands_in_its_file(
    byte_bpe: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    lines, objects = tmp_path / "a.txt", tmp_path / "a.jsonl"
    lines.write_bytes(b"no\ncaf\xe9\n")
    objects.write_bytes(b'{"text": "I ride"}\n{"text": oops}\n')
    encode([lines, objects], byte_bpe, tmp_path / "out", on_bad_row="skip")
    assert [one["text"] for one in rejected(tmp_path)] == ["caf\\xe9", '{"text": oops}']


def test_what_an_earlier_try_rejected_is_gone_when_nothing_is_now(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    (tmp_path / "out" / "rejected").mkdir(parents=True)
    (tmp_path / "out" / "rejected" / "shard-000000-000.jsonl").write_text('{"reason": "of a killed run"}\n')
    written(wordpiece, tmp_path, ["no", "no"], on_bad_row="skip")
    assert rejected(tmp_path) == []


# ------------------------------------------------------------------------------------------------------- settled bytes


@pytest.mark.parametrize(
    "settings", [{"pack": 16, "source_columns": True}, {"too_long": "split", "max_length": 4, "source_columns": True}]
)
def test_bytes_do_not_depend_on_the_process(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path, settings: dict[str, Any]
) -> None:
    path = write(tmp_path, TEXTS * 50)
    here = encode(path, wordpiece, tmp_path / "here", **settings)
    there = encode(path, wordpiece, tmp_path / "there", workers=1, **settings)
    assert here.shards[0]["sha256"] == there.shards[0]["sha256"]


def test_documents_of_several_batches_stay_in_order(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    page = "x" * 400_000  # three in a batch of a megabyte
    rows = [{"text": text, "number": number, "page": page} for number, text in enumerate(TEXTS)]
    options: dict[str, Any] = {"max_length": 4, "too_long": "split", "columns": ["number:int64"]}
    _, table = written(wordpiece, tmp_path, rows, **options)
    theirs = wordpiece(TEXTS, truncation=True, max_length=4, return_overflowing_tokens=True)
    assert table.column("input_ids").to_pylist() == theirs["input_ids"]
    assert table.column("number").to_pylist() == theirs["overflow_to_sample_mapping"]


def test_many_small_files_make_one_shard(wordpiece: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, text in enumerate(TEXTS * 3):
        (tmp_path / "in" / f"{number:02}.txt").write_text(text)
    manifest = encode(tmp_path / "in", wordpiece, tmp_path / "out")
    (record,) = manifest.shards
    table = pq.read_table(manifest.folder / record["file"])
    assert table.column("input_ids").to_pylist() == wordpiece(TEXTS * 3)["input_ids"]


def test_a_large_column_beside_a_split_text_is_repeated_a_row_group_at_a_time(
    wordpiece: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    pages = ["x" * 400_000, "y" * 400_000]
    rows = pa.table({"text": ["she said no " * 42, "I ride"], "page": pages})
    record, table = written(wordpiece, tmp_path, rows, columns=["page"], max_length=8, too_long="split")
    assert record["rows"] > 40  # 16 MB, the size of a row group
    found = table.column("page").dictionary_encode().unify_dictionaries()
    assert found.chunk(0).dictionary.to_pylist() == pages
    assert [index for chunk in found.chunks for index in chunk.indices.to_pylist()] == [0] * (record["rows"] - 1) + [1]
    assert pq.ParquetFile(tmp_path / "out" / record["file"]).num_row_groups > 1
