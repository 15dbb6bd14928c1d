"""Inputs of `encode`: files of each format, folders, patterns and data sets give their texts; bad ones are named."""

from __future__ import annotations

import ast
import bz2
import gzip
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import BYTES, content, read

from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc.corpus import encode
from hf_posenc.corpus.reading import _unreadable

TEXTS = ["I ride bike", "é ü 語 🚲", "bike ride I, she said"]
ROWS = [{"text": text, "n": number} for number, text in enumerate(TEXTS)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=1)


def _arrow(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, pa.Table.from_pylist(ROWS).schema) as writer:
        writer.write_table(pa.Table.from_pylist(ROWS))


FILES: dict[str, Callable[[Path], Any]] = {
    "a.txt": lambda path: path.write_text("\n".join(TEXTS), encoding="utf-8"),
    "crlf.txt": lambda path: path.write_bytes("\r\n".join(TEXTS).encode()),
    "a.jsonl": lambda path: path.write_text(LINES, encoding="utf-8"),
    "list.json": lambda path: path.write_text(json.dumps(ROWS), encoding="utf-8"),
    "a.csv": lambda path: path.write_text("n,text\n" + "".join(f'{n},"{t}"\n' for n, t in enumerate(TEXTS))),
    "a.tsv": lambda path: path.write_text("n\ttext\n" + "".join(f"{n}\t{t}\n" for n, t in enumerate(TEXTS))),
    "a.parquet": _parquet,
    "a.arrow": _arrow,
    "a.txt.gz": lambda path: path.write_bytes(gzip.compress("\n".join(TEXTS).encode())),
    "a.jsonl.bz2": lambda path: path.write_bytes(bz2.compress(LINES.encode())),
    "a.jsonl.xz": lambda path: path.write_bytes(lzma.compress(LINES.encode())),
}


def _address(path: Path) -> str:
    """Copy a file to the memory of this process, and return its address."""
    fsspec.filesystem("memory").put(str(path), f"/inputs/{path.name}")
    return f"memory://inputs/{path.name}"


PLACES = pytest.mark.parametrize("place", [str, _address], ids=["local", "address"])


@PLACES
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format_gives_its_texts(name: str, place: Any, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    assert read(place(tmp_path / name))[0] == TEXTS


def test_files_folders_patterns_and_data_sets_are_one_input_in_their_order(here: Path) -> None:
    for name in ("a.txt", "a.jsonl", "a.parquet"):
        (here / name.partition(".")[2]).mkdir()
        FILES[name](here / name.partition(".")[2] / name)
    Path("txt/empty.txt").touch()
    datasets.Dataset.from_list(ROWS).save_to_disk("saved")
    mine = datasets.Dataset.from_dict({"text": ["mine"]})
    assert read([mine, "saved", "jsonl", "txt/*.txt", Path("parquet/a.parquet")])[0] == ["mine", *TEXTS * 4]


def test_a_folder_is_read_as_load_dataset_reads_it(here: Path) -> None:
    Path("data").mkdir()
    Path("data/train.txt").write_text("a\nb\nc\nd\n")
    Path("data/test.txt").write_text("e\n")
    with pytest.raises(ValueError, match=r"(?s)the name of one.*train, test.*split='train'"):
        read("data")
    assert read("data", split="test")[0] == ["e"]
    assert read("data", split="train[:50%]+test")[0] == ["a", "b", "e"]
    assert sorted(read("data", split="all")[0]) == ["a", "b", "c", "d", "e"]
    Path("data/more.jsonl").write_text(LINES)
    with pytest.raises(ValueError, match=r"(?s)several formats.*json, text.*data/\*\*/\*\.txt"):
        read("data")
    Path("odd").mkdir()
    Path("odd/a.dat").write_text("x\ny\n")
    with pytest.raises(FileNotFoundError, match="`datasets` cannot open odd"):
        read("odd")
    assert read("odd", format="text")[0] == ["x", "y"]
    assert read("odd/a.dat", format="text", split="train[1:]")[0] == ["y"]


def test_splits_of_data_sets_in_memory_and_on_disk(here: Path) -> None:
    parts = datasets.DatasetDict(
        train=datasets.Dataset.from_dict({"text": ["a", "b"]}), test=datasets.Dataset.from_dict({"text": ["c"]})
    )
    parts.save_to_disk("saved")
    for given in (parts, "saved"):
        assert read(given, split="test+train[1:]")[0] == ["c", "b"]
        with pytest.raises(ValueError, match="the name of one"):
            read(given)
        with pytest.raises(ValueError, match=r"(?s)the name of one.*split='tain'"):
            read(given, split="tain")


@pytest.mark.parametrize(
    ("sample_by", "documents"), [(None, ["a", "b", "c"]), ("paragraph", ["a\nb", "c\n"]), ("document", ["a\nb\n\nc\n"])]
)
def test_documents_of_a_text_file(sample_by: Any, documents: list[str]) -> None:
    found, _, report = content("a\nb\n\nc\n", sample_by=sample_by)
    assert found == documents
    assert report.totals["blank"] == (sample_by is None)


def test_texts_of_csv_stay_texts_and_labels_keep_their_names() -> None:
    csv = "text,id,label\nNA,007,1\n007,1.10,2\n1.10,x,3\n2020-01-01,,4\n"
    found, rows, _ = content(csv, "csv", columns=["id", "label"])
    assert found == ["NA", "007", "1.10", "2020-01-01"]
    assert rows["label"].to_pylist() == [1, 2, 3, 4]
    labels = datasets.Features({"text": datasets.Value("string"), "y": datasets.ClassLabel(names=["no", "yes"])})
    given = datasets.Dataset.from_dict({"text": ["a", "b"], "y": [1, 0]}, features=labels)
    found, rows, _ = read(given, columns=["y"])
    assert datasets.Features.from_arrow_schema(rows.schema)["y"].names == ["no", "yes"]


def test_shuffled_and_chosen_rows_of_a_data_set_are_read_in_their_order() -> None:
    given = datasets.Dataset.from_dict({"text": [f"text {n}" for n in range(100)]}).shuffle(seed=0).select(range(50))
    assert read(given, shards=3)[0] == given["text"][:]


@pytest.mark.parametrize(
    ("payload", "kind", "line", "way"),
    [
        ('{"text": "a"}\n{"text":\n{"text": "b"}\n', "jsonl", ", line 2 ", "mend the file"),
        ('{"text": "a"}\n{"text": "\\ud800"}\n', "jsonl", ", line 2 ", "mend the file"),
        (b"ab\n\xff\xfe\ncd\n", "txt", ", line 2 ", "encoding_errors"),
        ("text,n\na,1\nb,2,3\n", "csv", r"[\s\S]*line 3", "on_bad_lines"),
        (gzip.compress(b"a\n" * 9999)[:-20], "txt.gz", " ", "mend the file"),
        (b"PAR1 no parquet PAR1", "parquet", " ", "mend the file"),
        ("text\nGröße\n".encode("latin-1"), "csv", ", line 2 ", 'fix: loading={"encoding": "latin-1"}, if'),
    ],
    ids=["json", "surrogate", "utf8", "csv", "gz", "parquet", "latin"],
)
@PLACES
def test_a_malformed_file_stops_the_job_with_its_name_line_and_a_way_out(
    payload: str | bytes, kind: str, line: str, way: str, place: Any, tmp_path: Path
) -> None:
    good, bad = tmp_path / f"good.{kind}", tmp_path / f"bad.{kind}"
    bad.write_bytes(payload if isinstance(payload, bytes) else payload.encode())
    good.write_text("good\n")
    with pytest.raises(ValueError, match=rf"bad\.{kind}{line}") as caught:
        read([place(path) for path in ([good, bad] if kind == "txt" else [bad])])
    assert way in str(caught.value)


def test_files_of_other_columns_are_read_one_by_one(here: Path) -> None:
    Path("a.jsonl").write_text('{"text": "a", "n": 1}\n')
    Path("b.jsonl").write_text('{"text": "b", "n": "x"}\n')
    with pytest.raises(ValueError, match=r"(?s)a\.jsonl, b\.jsonl cannot be read together.*for name in files"):
        read(["a.jsonl", "b.jsonl"])
    each = [datasets.load_dataset("json", data_files=name, split="train") for name in ("a.jsonl", "b.jsonl")]
    assert read(each)[0] == ["a", "b"]
    alone = _unreadable("json", {"a.jsonl": "a.jsonl"}, {}, OSError("not read"))
    assert str(alone).endswith("\n  fix: mend the file")


def test_further_arguments_of_load_dataset_are_passed_on() -> None:
    found, _, _ = content(b"ab\n\xff\ncd\n", loading={"encoding_errors": "replace"})
    assert found == ["ab", "�", "cd"]
    assert content("text;n\na;1\n", "csv", loading={"sep": ";"})[0] == ["a"]
    with pytest.raises(ValueError, match=r"column_names': .*for a table without a header") as caught:
        content("How many, really?\tone\nI ride\ttwo\n", "tsv")
    (names,) = re.findall(r"loading=(\{.*\})", str(caught.value))
    found, _, _ = content("How many, really?\tone\nI ride\ttwo\n", "tsv", loading=ast.literal_eval(names))
    assert found == ["How many, really?", "I ride"]
    with pytest.raises(ValueError, match="encoding_error"):
        content("ab\n", loading={"encoding_error": "replace"})
    with pytest.raises(ValueError, match="check format=, split= and loading="):
        content("ab\n", split="tain")


def test_a_text_that_is_not_utf_8_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"(?s)rows 0 to 1 of the input is not UTF-8.*latin-1"):
        content(b'{"text": "a"}\n{"text": "\xff"}\n', "jsonl")


@pytest.mark.parametrize(
    ("kind", "payload"), [("txt", ""), ("jsonl", ""), ("csv", ""), ("parquet", ""), ("csv", "text,n\n"), ("json", "[]")]
)
def test_inputs_without_rows_are_refused(kind: str, payload: str) -> None:
    with pytest.raises(ValueError, match="there are no rows in the inputs"):
        content(payload, kind)


def test_a_line_break_in_the_name_of_a_file_is_read_but_not_in_a_folder(here: Path) -> None:
    Path("texts").mkdir()
    Path("texts/a\nb.txt").write_text("c\n")
    assert read("texts/a\nb.txt")[0] == ["c"]
    with pytest.raises(ValueError, match=r"(?s)whose paths have a line break.*a\\nb\.txt"):
        read("texts")


@pytest.mark.parametrize(
    ("values", "kind"),
    [(["2020-01-01", "2020-01-02"], "timestamp"), ([1, 2], "int64"), ([True, False], "bool")],
    ids=str,
)
def test_a_column_that_datasets_reads_as_something_else_is_refused(values: list[Any], kind: str) -> None:
    payload = "".join(json.dumps({"text": value}) + "\n" for value in values)
    with pytest.raises(TypeError, match=rf"(?s)column 'text' must hold texts.*{kind}"):
        content(payload, "jsonl")


def test_a_column_of_texts_and_numbers_is_refused() -> None:
    with pytest.raises((TypeError, ValueError), match=r"(?s)'text' must hold texts.*json|string to number in row 1"):
        content('{"text": "a"}\n{"text": 1}\n', "jsonl")  # datasets 4.0 cannot read it


def test_missing_inputs_and_columns_are_named(here: Path) -> None:
    Path("a.jsonl").write_text(LINES)
    for given in ("b.jsonl", "./b", "c/*.txt", "no/such/file"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            read(given)
    with pytest.raises(FileNotFoundError, match="`datasets` cannot open somebody/something"):
        read("somebody/something")
    with pytest.raises(FileNotFoundError, match="memory://"):
        read("memory://nothing.txt")
    fsspec.filesystem("memory").pipe("/unknown/a.dat", b"x")
    with pytest.raises(FileNotFoundError, match="there is no file at memory://unknown"):
        encode("memory://unknown", BYTES, "out", workers=0, progress=False)
    assert not Path("out").exists()
    with pytest.raises(ValueError, match=r"(?s)no column 'body'.*text_column='text'"):
        read("a.jsonl", text_column="body")
    with pytest.raises(ValueError, match=r"(?s)no column 'label'.*text, n\n  fix: columns=\['n'\]$"):
        read("a.jsonl", columns=["label"])
    for text in ("I ride bike", "Is it? " * 99, "one\ntwo"):
        with pytest.raises(FileNotFoundError, match=r"Dataset\.from_dict"):
            read([text])
    Path("a.dat").write_text("x")
    with pytest.raises(ValueError, match=r"format of a\.dat is not known"):
        read("a.dat")
    with pytest.raises(ValueError, match=r"(?s)no column 'text'.*tokenized already"):
        read(datasets.Dataset.from_dict({"input_ids": [[1]]}))
    rows = datasets.Dataset.from_list(ROWS)
    for other in (3, rows.to_iterable_dataset(), rows.with_transform(lambda rows: rows)):
        with pytest.raises(TypeError, match="inputs must be paths"):
            read(other)
    with pytest.raises(ValueError, match="at addresses are read file by file"):
        read(["a.jsonl", "memory://b.jsonl"])


def test_rows_without_text_or_tokens_stop_the_job_or_are_left_out_counted_and_listed() -> None:
    rows = datasets.Dataset.from_dict({"text": ["a", None, "", "b"], "n": [0, 1, 2, 3]})
    with pytest.raises(ValueError, match=r"(?s)row 1 of the input has no text.*1 more.*on_bad_row=\"skip\""):
        read(rows)
    found, table, report = read(rows, on_bad_row="skip", columns=["n"])
    assert (found, table["n"].to_pylist()) == (["a", "b"], [0, 3])
    assert (report.totals["documents"], report.totals["bad"], report.totals["blank"]) == (2, 2, 0)
    assert [(row["row"], row["reason"]) for row in report.bad_rows] == [(1, "no text"), (2, "no tokens")]
    found, _, report = content("a\n\n \nb\n")  # blank lines of a text file
    assert (found, report.totals["blank"]) == (["a", "b"], 2)


def test_blank_lines_are_left_out_beside_other_inputs_whose_empty_texts_are_bad_rows(here: Path) -> None:
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("a\n\nb\n")
    Path("b.txt").write_text("\nc\n")
    Path("c.jsonl").write_text('{"text": "d"}\n{"text": " "}\n{"text": ""}\n')
    found, _, report = read(["texts", "b.txt", "c.jsonl"], on_bad_row="skip", shards=3)
    assert found == ["a", "b", "c", "d", " "]
    assert (report.totals["blank"], [row["row"] for row in report.bad_rows]) == (2, [7])
    with pytest.raises(ValueError, match="row 7 of the input has no tokens"):
        read(["texts", "b.txt", "c.jsonl"])


def test_a_batch_of_rows_without_text_is_left_out() -> None:
    rows = datasets.Dataset.from_dict({"text": ["a", None, None, None]})
    assert read(rows, on_bad_row="skip", shards=4)[0] == ["a"]
    with pytest.raises(ValueError, match=r"(?s)all rows were left out.*'row': 0.*text_column="):
        read(datasets.Dataset.from_dict({"text": [None]}), on_bad_row="skip")


@PLACES
@pytest.mark.parametrize("sample_by", ["line", "paragraph", "document"])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.jsonl"])
def test_no_text_begins_with_the_byte_order_mark_of_its_file(
    name: str, sample_by: Any, place: Any, tmp_path: Path
) -> None:
    lines = {"csv": "text\nab\n", "jsonl": '{"text": "ab"}\n'}.get(name.rpartition(".")[2], "ab\n")
    payload = f"\ufeff{lines}".encode()
    (tmp_path / name).write_bytes(gzip.compress(payload) if name.endswith("gz") else payload)
    (text,), *_ = read(place(tmp_path / name), **({"sample_by": sample_by} if ".txt" in name else {}))
    assert text.rstrip("\n") == "ab"


def test_a_file_without_rows_at_an_address_does_not_decide_the_types_of_columns(here: Path) -> None:
    Path("a.csv").write_text("text,n\n")
    Path("b.csv").write_text("text,n\nab,3\n")
    inputs = [_address(Path(name)) for name in ("a.csv", "b.csv")]
    assert read(inputs)[0] == ["ab"]
    with pytest.raises(ValueError, match=r"(?s)a\.csv has no rows.*columns=\['n'\]"):
        read(inputs, columns=["n"])


def test_a_bad_row_of_the_collator_is_named_with_its_place() -> None:
    rows = datasets.Dataset.from_dict({"text": ["short", "a longer text"]})
    with pytest.raises(ValueError, match=r"in rows 0 to 1 of the input, row 1 has 13 tokens, limit 5"):
        read(rows, max_length=5, truncation=False)


def test_skipped_rows_are_written_again_if_they_shall_stop_the_job(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": ["a", "", "b"]})
    settings: dict[str, Any] = {"workers": 0, "progress": False, "shards": 3}
    with pytest.raises(ValueError, match="no tokens"):
        encode(rows, BYTES, tmp_path, **settings)
    assert encode(rows, BYTES, tmp_path, on_bad_row="skip", **settings).totals["bad"] == 1  # goes on with what is there
    with pytest.raises(ValueError, match="no tokens"):
        encode(rows, BYTES, tmp_path, **settings)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_prompts_with_completions_are_found_by_their_names(name: str, word_level: Any, tmp_path: Path) -> None:
    rows = [{"prompt": "I ride", "completion": " bike", "n": 1}, {"prompt": "007", "completion": " said", "n": 2}]
    table = datasets.Dataset.from_list(rows)
    (table.to_csv if name.endswith("csv") else table.to_json)(str(tmp_path / name))
    encode(tmp_path / name, word_level, tmp_path / "out", workers=0, columns=["n"], labels="causal_lm", progress=False)
    shards = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    collate = C(word_level, labels="causal_lm", on_no_labels="keep")
    expected = collate.columns(rows)
    for column in ("input_ids", "completion_mask", "labels"):
        assert shards[column][:] == [row.tolist() for row in expected[column]]
    assert shards["n"][:] == [1, 2]


def test_files_of_other_formats_are_refused_with_the_line_that_helps(word_level: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "I", "answer": "ride"}\n')
    with pytest.raises(ValueError, match=r'(?s)columns \'question\' and \'answer\'.*"completion": "\\n" \+ row'):
        encode(tmp_path / "a.jsonl", word_level, tmp_path / "out", workers=0, progress=False)
