"""Inputs of a corpus: files, folders, patterns, addresses and data sets are read in order, or refused by name."""

from __future__ import annotations

import ast
import bz2
import contextlib
import csv
import gzip
import io
import json
import lzma
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import BYTES, read

from hf_posenc.corpus import encode, verify

Write = Callable[[str, bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return written


def named(folder: Path, *names: str) -> Path:
    """A folder of files that hold their own names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    return folder


# ---------------------------------------------------------------------------------------------------- files and folders


def test_small_files_share_a_shard_in_order_and_a_large_one_has_several(write: Write) -> None:
    paths = [write(f"{number:02}.txt", b"%02d\n" % number) for number in range(20)]
    found = read(*paths, write("large.txt", b"123456789\n" * 4), shard_bytes=12)
    assert found.texts == [*(f"{number:02}" for number in range(20)), *["123456789"] * 4]
    assert [record["documents"] for record in found.manifest.shards] == [4] * 5 + [2, 1, 1, 0]
    assert found.begins == [0] * 20 + [0, 10, 20, 30]
    assert found.manifest.shards[0]["from"] == ["00.txt", 0]
    assert found.manifest.shards[6]["from"] == ["large.txt", 12]


def test_a_file_given_twice_is_read_twice_and_named_and_empty_ones_are_passed_over(write: Write) -> None:
    path, empty = write("in/a.txt", b"a\nb\n"), write("empty.txt", b"")
    found = read(path, empty, path.parent, source_columns=False)
    assert found.texts == ["a", "b", "a", "b"]
    assert found.messages == [f"given more than once, and encoded each time: {path.resolve()}"]
    for name in ("empty.txt", "empty.csv", "empty.jsonl"):
        with pytest.raises(ValueError, match=rf"(?s)there are no documents in the inputs.*{name}"):
            read(write(name, b""))


def test_a_folder_is_its_data_files_in_order(tmp_path: Path) -> None:
    folder = named(tmp_path / "f", "b.txt", "a.txt", "sub/c.txt", ".hidden.txt", "README.md", "sub/deep/0.txt")
    names = ["a.txt", "b.txt", "sub/c.txt", "sub/deep/0.txt"]
    assert read(folder).texts == names
    assert read(folder).sources == names
    assert read(f"{folder}/*.txt").texts == names[:2]
    assert read(f"{folder}/**/*.txt").texts == names


def test_files_with_unknown_endings_are_named_in_a_note(tmp_path: Path) -> None:
    folder = named(tmp_path / "f", "a.txt", "b.md", "c.html", "d.log", "e.log")
    (tmp_path / "f" / "README.md").write_text("about")
    assert read(folder).messages == [
        f"{folder}: 4 files have an unknown ending and will not be read: b.md, c.html, d.log, ...; "
        "--format text reads all files"
    ]
    assert read(folder, format="text").messages == []


def test_a_text_column_is_noted_if_all_files_are_text(tmp_path: Path) -> None:
    assert read(named(tmp_path / "f", "a.txt"), text_column="body").messages == [
        'text files have no columns: text_column="body" names none'
    ]
    (tmp_path / "f" / "b.jsonl").write_text('{"body": "b"}\n')
    assert read(tmp_path / "f", text_column="body").messages == []


def test_what_names_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named(tmp_path, "corpus.txt", "empty/notes.md")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bare").mkdir()
    for given, error, message in (
        (f"{tmp_path}/corpsu.txt", FileNotFoundError, r"(?s)there is no file .*corpsu\.txt.*fix: .*corpus\.txt"),
        (Path("nowhere"), FileNotFoundError, r"there is no file nowhere"),
        (
            f"{tmp_path}/*.csv",
            FileNotFoundError,
            r"no file matches .*\n  got: .* has bare, corpus.txt, empty, pipe\n  fix: check",
        ),
        (f"{tmp_path}/emty/*.md", FileNotFoundError, rf"(?s)no file matches.*\n  fix: '{tmp_path}/empty/\*\.md'$"),
        (
            f"{tmp_path}/a/b/c.txt",
            FileNotFoundError,
            rf"there is no file .*\n  got: {tmp_path} has bare, corpus.txt, empty, pipe",
        ),
        (tmp_path / "empty", ValueError, r'(?s)empty has no data files.*format="text" \(--format text\)'),
        (tmp_path / "bare", ValueError, r"(?s)bare has no data files\n  got: 0 files.*fix: check the path"),
        (tmp_path / "pipe", ValueError, r"(?s)pipe must be a file.*a pipe or a device"),
        ("nobody/nothing", ValueError, r"(?s)'nobody/nothing' is not a local file, and was not found.*HF_HUB_OFFLINE"),
        ("empyt", ValueError, r"(?s)'empyt' is not a local file, and was not found.*\n  fix: empty, or check the name"),
        (["I ride"], TypeError, r"(?s)an input must be a path.*list.*Dataset\.from_dict"),
        ({"train": ["I ride"]}, TypeError, r"(?s)an input must be a path.*list"),
    ):
        with pytest.raises(error, match=message):
            read(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "jsn"}, r"(?s)format must be one of 'text', 'json'.*'jsn'.*format='json'"),
        ({"split": "train"}, r"(?s)only a data set has splits.*split='train'.*a\.txt.*leave split out"),
        ({"dataset_config": "en"}, r"only a data set on the Hub has configurations"),
        ({"dataset_split": "train"}, r"there is no argument 'dataset_split'\n  fix: split=\.\.\."),
        ({"text_pair_column": "text"}, r"(?s)two texts of a pair.*leave text_pair_column out"),
        ({"columns": "id"}, r"(?s)columns must be a list.*columns=\['id'\]"),
        ({"source_columns": "yes"}, r"source_columns must be True or False\n  got: 'yes'\n  fix: source_columns=True"),
        ({"part": "0/3"}, r"part must be k/n, with k from 1 to n\n  got: '0/3'"),
        ({"columns": ["id"]}, r"a\.txt has no column 'id'"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        read(named(tmp_path, "a.txt") / "a.txt", **options)


def test_only_text_files_are_read_by_paragraph_or_whole(tmp_path: Path) -> None:
    path = named(tmp_path, "a.txt") / "a.txt"
    for other in (named(tmp_path, "b.jsonl") / "b.jsonl", datasets.Dataset.from_dict({"text": ["a"]})):
        with pytest.raises(ValueError, match=r"(?s)only text files are read by file.*fix: document=\"line\""):
            read(path, other, document="file")
    with pytest.raises(ValueError, match=r"(?s)parquet files are compressed inside.*gunzip"):
        read(named(tmp_path, "a.parquet.gz") / "a.parquet.gz")


def test_a_folder_that_links_lead_to_again_is_read_once(tmp_path: Path) -> None:
    folder = named(tmp_path / "in", "a.txt", "below/b.txt")
    for link, target in ((folder / "0", folder), (folder / "below" / "up", folder), (folder / "z", folder / "below")):
        link.symlink_to(target, target_is_directory=True)
    (folder / "c.txt").symlink_to(folder / "a.txt")  # a link to a file is a file
    assert read(folder, source_columns=False).texts == ["a.txt", "a.txt", "below/b.txt"]
    loop = named(tmp_path / "loop", "a.txt")
    (loop / "0").symlink_to(loop)
    assert read(f"{loop}/**/*.txt").texts == ["a.txt"]
    (tmp_path / "b.txt").symlink_to("nowhere.txt")
    with pytest.raises(FileNotFoundError, match=r"(?s)b\.txt is a link to a file that does not.*nowhere\.txt"):
        read(tmp_path / "b.txt")


OURS = b'{\n  "written_by": "hf-posenc"}'


@pytest.mark.parametrize("inputs", ["data", "data/*", "data/**", "data/**/*"])
def test_output_inside_the_input_is_not_read_by_the_next_run(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inputs: str
) -> None:
    below = "data/a.txt" if inputs == "data/*" else "data/sub/a.txt"
    for name, content in {below: b"a", "data/b.txt": b"b", "data/sub/.cache/c.txt": b"hidden"}.items():
        write(name, content)
    write("data/sub/enc/job.json", OURS)
    write("data/sub/enc/data/left.txt", b"left behind\n")
    monkeypatch.chdir(tmp_path)
    assert sorted(read(inputs).texts) == ["a", "b"]


def test_output_is_read_where_it_is_named_and_a_job_of_others_is_data(write: Write, tmp_path: Path) -> None:
    write("enc/job.json", OURS)
    write("enc/a.txt", b"a\n")
    write("data/job.json", b'{"text": "hf-posenc"}')
    assert read(f"{tmp_path}/enc/*.txt").texts == ["a"]
    assert read(f"{tmp_path}/d*/*").texts == ["hf-posenc"]
    with pytest.raises(FileNotFoundError, match=r"(?s)no file matches.*nothing but the output of earlier runs"):
        read(f"{tmp_path}/e*/*")


# ------------------------------------------------------------------------------------------------ columns of text files


def test_columns_of_json_and_csv_are_those_that_are_named(write: Write) -> None:
    lines = write("a.jsonl", b'{"text": "a", "id": 1}\n{"text": "b", "meta": {"x": 1}}\n')
    table = write("a.csv", b"text,id,meta\nc,001,\n")
    found = read(lines, table, source_columns=False)
    assert found.carried.column_names == []
    assert found.messages[0].startswith("columns that are not carried: id, meta; ")
    assert read(lines, table, columns=[], source_columns=False).messages == []
    found = read(lines, table, columns=["meta", "id:int16"])
    assert found.carried.schema.remove_metadata() == pa.schema([("meta", pa.string()), ("id", pa.int16())])
    assert found.carried.to_pydict() == {"meta": [None, '{"x": 1}', ""], "id": [1, None, 1]}


def test_a_column_that_is_missing_is_refused_with_those_that_are_there(write: Write) -> None:
    lines, table = write("a.jsonl", b'{"body": "a", "id": 1}\n'), write("a.csv", b"body,id\na,1\n")
    for path in (lines, table):
        fix = r"(?s) has no column 'text'.*'body', 'id'.*text_column=\"body\" \(--text-column body\)"
        with pytest.raises(ValueError, match=fix):
            read(path)
        with pytest.raises(
            ValueError, match=r"(?s) has no column 'tags'.*'body', 'id'.*columns=\[.id.\] \(--column id\)"
        ):
            read(path, text_column="body", columns=["tags"])
    late = read(lines, text_column="body", columns=["tags:string"])  # may appear later
    assert late.carried.column_names == ["tags"]
    with pytest.raises(ValueError, match=r"has no column 'tags:string'|has no column 'tags'"):
        read(table, text_column="body", columns=["tags:string"])
    with pytest.raises(ValueError, match=r"b\.csv has several columns 'n'"):
        read(write("b.csv", b"text,n,n\na,1,2\n"), columns=["n"])


def refused(*given: Any, **options: Any) -> str:
    """Return the message with which the inputs are refused."""
    with pytest.raises((ValueError, TypeError, OSError)) as error:
        read(*given, **options)
    return str(error.value)


WITHOUT_HEADER = {
    "a question": ("How many, really?\tone\nbike ride\ttwo\nI ride\tthree\n", 0),
    "labels above labels": ("good movie\tpositive\nbad movie\tnegative\nfine\tpositive\n", 0),
    "one column": ("I ride bike\nbike ride\n", 0),
    "one line": ("I ride bike\n", 0),
    "two languages": ("I ride\tich fahre Rad\nthe bike\tdas Rad\nno\tnein, danke\n", 1),
    "numbers first": ("1\tI ride\n2\tno\n", 1),
    "decimals, gaps": ('-0.5\tno\tNA\n1e3\t100 % "sure"\t7\n', 1),
    "dates": ("2024-01-01\tride\n2024-01-02\tno\n", 1),
    "a long text": ("one two three four five six seven eight\t\nride\tx\n", 0),
    "semicolons": ("I ride; she said\nno; yes; no\nbike\n", 0),
}
ENDINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}

MARK = b"\xef\xbb\xbf"
FILES = [("tsv", "", b""), ("csv", "", MARK), ("tsv", ".gz", MARK), ("csv", ".bz2", b""), ("tsv", ".xz", b"")]


@pytest.mark.parametrize("case", WITHOUT_HEADER)
def test_a_table_without_a_header_is_named_as_such_and_the_command_gives_it_one(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    payload, column = WITHOUT_HEADER[case]
    monkeypatch.chdir(tmp_path)
    rows = list(csv.reader(io.StringIO(payload), delimiter="\t"))
    for kind, ending, mark in FILES:
        file = io.StringIO()
        csv.writer(file, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n").writerows(rows)
        path = write(f"it's here/a.{kind}{ending}", ENDINGS[ending](mark + file.getvalue().encode()))
        message = refused(path)
        assert f"has no column 'text'\n  got: a first line that looks like data: {rows[0][0]!r}" in message
        fix = message.partition("\n  fix: ")[2]
        assert not any(cell in fix for cell in rows[0] if len(cell) > 2)  # none of them is proposed
        command = fix.partition(" writes a copy with a header; if the first line is a header, --text-column names")[0]
        subprocess.run(["sh", "-c", command], check=True)
        copy = Path(f"a-with-header.{kind}")
        assert read(copy).texts == [row[column] for row in rows]
        copy.unlink()


def test_the_header_that_is_proposed_has_the_names_that_are_asked_for(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write("a.csv", b"1,I ride my bike,7 %,she said\n2,bike,8 %,no\n")
    monkeypatch.chdir(tmp_path)
    options = {"text_column": 'a "b", 100 %', "text_pair_column": "c\\n"}
    subprocess.run(["sh", "-c", refused(path, **options).partition("fix: ")[2].partition(" writes a")[0]], check=True)
    assert read("a-with-header.csv", **options).texts == ["I ride my bikeshe said", "bikeno"]


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ("label,sentence\n0,I ride\n1,no\n", "sentence"),
        ("First Name,Last Name,Comment\nAnn,Lee,I ride my bike to work\nBo,Ek,no\n", "Comment"),
        (
            "When,Do you like the bike?,Any comments for us?\n2024-01-01,5,it is a good bike\n,4,no\n",
            "Any comments for us?",
        ),
        ("Rating,Review Text\n5,I ride my bike a lot of the time\n1,she said no\n", "Review Text"),
        (",0,1\n0,pos,I ride\n1,neg,no bike\n", "1"),
        (",sent ence,url\n0,I ride,https://en.example.org/a/very/long/address/of/a/page\n", "sent ence"),
        ("label,body\n" + "".join(f"positive,ride {n}\n" for n in range(9)), "body"),
        ('id,"it\'s ""here"""\n1,I ride\n', 'it\'s "here"'),
        ("id,$(rm -rf x)\n1,I ride\n", "$(rm -rf x)"),
        ("作者,内容\n王,我骑自行车去上班\n", "内容"),
    ],
)
def test_the_column_that_looks_most_like_text_is_proposed_in_quotes_for_python_and_a_shell(
    write: Write, payload: str, name: str
) -> None:
    path = write("a.csv", payload.encode())
    fix = re.search(r"fix: text_column=(.*) \(--text-column (.*)\)$", refused(path))
    assert fix is not None
    assert ast.literal_eval(fix[1]) == name
    assert shlex.split(fix[2]) == [name]
    assert len(read(path, text_column=name).texts) == payload.count("\n") - 1


def test_the_text_of_tables_is_proposed_by_type_and_letters(write: Write, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "url": ["https://example.org/" + "a" * 50] * 2, "b c": ["I ride", "no"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    lines = "".join(json.dumps({"meta": {"is": "an object"}, **row, "n": 1.5}) + "\n" for row in table.to_pylist())
    data = datasets.Dataset(table)
    rows = table.to_pylist()
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows))
    for given in (tmp_path / "a.parquet", tmp_path / "a.arrow", write("a.jsonl", lines.encode()), data, stream):
        assert refused(given).endswith("fix: text_column=\"b c\" (--text-column 'b c')"), given
        pair = refused(given, text_column="b c", text_pair_column="answer")
        assert pair.endswith('fix: text_pair_column="url" (--text-pair-column url)'), given
    assert "text_column=\"b c\" (--text-column 'b c')" in refused(data, text_column="id")


def test_names_in_the_note_about_other_columns_are_quoted_for_a_shell(write: Write) -> None:
    found = read(write("a.csv", b",text,my note\n0,a,b\n"), source_columns=False)
    assert found.messages == [
        "columns that are not carried: '', 'my note'; columns=[\"my note\"] (--column 'my note') carries one"
    ]


def test_names_of_splits_are_quoted_for_a_shell() -> None:
    data = datasets.Dataset.from_dict({"text": ["a"]})
    message = refused(datasets.DatasetDict({"$HOME": data, "b": data}))
    assert 'split="$HOME" (--split \'$HOME\'), split="$HOME+b" (--split \'$HOME+b\'), or split="all"' in message


def test_columns_between_other_delimiters_are_named_where_most_lines_have_them(write: Write) -> None:
    for name, payload, words in (
        (
            "a.csv",
            b"body;n\nI ride;1,5\nno;2\n",
            r"has no commas .*'body;n', with semicolons in its name\n  fix: pandas",
        ),
        ("b.csv", b"body\tn\nI ride\t1\n", r"has no commas .*, with tabs in its name\n  fix: rename it to .tsv"),
        ("a.tsv", b"body,n\nI ride,1\n", r"has no tabs .*, with commas in its name\n  fix: rename it to .csv"),
    ):
        assert re.search(words, refused(write(name, payload)), re.DOTALL)
    code = refused(write("c.csv", b"body;n\nI ride, you ride;1.10\nno;007\nNA;\n")).rpartition("fix: ")[2]
    with contextlib.chdir(write("c.csv", b"body;n\nI ride, you ride;1.10\nno;007\nNA;\n").parent):
        eval(code, {"pandas": pd})
        found = read("commas.csv", text_column="body", columns=["n"])
    assert (found.texts, found.carried["n"].to_pylist()) == (["I ride, you ride", "no", "NA"], ["1.10", "007", ""])


def test_names_of_columns_that_are_not_unicode_are_refused_or_left_out(write: Write) -> None:
    message = refused(write("a.csv", b"text,t\xeate\nI ride,1\n"))
    assert "a.csv: its first line, the header, is not UTF-8: byte 0xea at position 6" in message
    assert read(write("a.jsonl", b'{"text": "I ride", "\\ud800": 1, "id": 2}\n'), columns=["id"]).texts == ["I ride"]


# ----------------------------------------------------------------------------------------- brackets in names of folders


def test_a_pattern_in_a_folder_with_brackets_in_its_name_explains_why_it_finds_nothing(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write("[2024] texts/a.txt", b"I ride\n")
    write("[2024] texts/sub/b.txt", b"bike\n")
    monkeypatch.chdir(tmp_path)
    memory = fsspec.filesystem("memory")
    memory.pipe("/brackets/[2024] texts/a.txt", b"I ride\n")
    for pattern, texts in (
        ("[2024] texts/*.txt", ["I ride"]),
        (f"{tmp_path}/[2024] texts/**/b.*", ["bike"]),
        ("memory://brackets/[2024] texts/*.txt", ["I ride"]),
    ):
        message = refused(pattern)
        assert re.search(r"no file matches .*\n  got: a folder '\S*\[2024\] texts', and its name is a pattern", message)
        (escaped,) = shlex.split(message.partition("fix: ")[2].partition(", as glob.escape(folder)")[0])
        assert read(escaped).texts == texts
    assert "there is no file [2024] texts/c.txt\n" in refused("[2024] texts/c.txt")
    assert "fix: check the pattern" in refused("[2025] texts/*.txt")
    assert read("memory://brackets/[2024] texts").texts == read("memory://brackets/[2024] texts/a.txt").texts


def test_a_carried_column_of_indices_of_tokens_is_refused(write: Write) -> None:
    path = write("a.jsonl", b'{"text": "a b", "start_positions": 1}\n')
    with pytest.raises(ValueError, match=r"(?s)column 'start_positions' holds indices of tokens.*fix: leave it out"):
        read(path, columns=["start_positions"])


def test_types_of_a_column_in_two_inputs_must_fit_or_be_named(write: Write, tmp_path: Path) -> None:
    lines = write("a.jsonl", b'{"text": "a", "id": 1}\n')
    pq.write_table(pa.table({"text": ["b"], "id": [2]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"(?s)column 'id' is int64 in .*b\.parquet, but string.*'id:string'"):
        read(lines, tmp_path / "b.parquet", columns=["id"])
    assert read(lines, tmp_path / "b.parquet", columns=["id:int64"]).carried["id"].to_pylist() == [1, 2]


# --------------------------------------------------------------------------------------------------------------- tables

ROWS = 300
TABLE = pa.table(
    {
        "text": [f"I ride bike {number}" + " on" * (number % 7) for number in range(ROWS)],
        "id": pa.array(range(ROWS), pa.int64()),
        "day": pa.array(range(ROWS), pa.timestamp("us")),
        "picture": pa.array([{"bytes": b"x" * (number % 5), "path": None} for number in range(ROWS)]),
        "tags": pa.array([None if number % 3 == 0 else ["a"] * (number % 4) for number in range(ROWS)]),
        "kind": pa.array([f"k{number % 3}" for number in range(ROWS)]).dictionary_encode(),
    }
)
ALL = TABLE.column_names[1:]
PLAIN = TABLE.select(["text", "id"])


def as_arrow(path: Path) -> None:
    with (pa.ipc.new_stream if path.name == "stream.arrow" else pa.ipc.new_file)(path, TABLE.schema) as file:
        file.write_table(TABLE, 110)


def saved(path: Path) -> None:
    datasets.disable_progress_bars()
    datasets.Dataset(TABLE).save_to_disk(path, num_shards=2)


KINDS: dict[str, Callable[[Path], Any]] = {
    "a.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=70),
    "file.arrow": as_arrow,
    "stream.arrow": as_arrow,
    "saved": saved,
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same rows in every kind of table."""
    folder = tmp_path_factory.mktemp("tables")
    for name, make in KINDS.items():
        make(folder / name)
    return folder


@pytest.mark.parametrize("shard_bytes", [100, 2000, 1 << 20])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_table_gives_its_rows_with_their_types(stored: Path, name: str, shard_bytes: int) -> None:
    found = read(stored / name, columns=ALL, shard_bytes=shard_bytes)
    assert found.texts == TABLE["text"].to_pylist()
    assert found.begins == list(range(ROWS))
    assert found.carried.to_pylist() == TABLE.select(ALL).to_pylist()
    assert (found.shards == 1) == (shard_bytes == 1 << 20)
    as_text = read(stored / name, columns=["id:string"])
    assert as_text.carried["id"][7].as_py() == "7"
    assert read(stored / name).messages[0].startswith("columns that are not carried: id, day, picture, tags, kind; ")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_texts_may_be_encoded_in_any_way_and_null_ones_are_bad_rows(tmp_path: Path, kind: pa.DataType) -> None:
    texts = pa.array(["I ride", None, "bike", "I ride"])
    encoded = texts.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else texts.cast(kind)
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([("text", kind)])) as file:
        file.write_table(pa.table({"text": encoded}))
    found = read(tmp_path / "a.arrow")
    assert found.texts == ["I ride", "", "bike", "I ride"]
    assert (found.bad, found.begins) == ({1: "column 'text' is null"}, [0, 1, 2, 3])
    broken = pa.table({"text": pa.array([b"a", b"b\xff", b"c"]).view(pa.string())})
    pq.write_table(broken, tmp_path / "b.parquet")
    found = read(tmp_path / "b.parquet")
    assert found.bad == {1: "column 'text' is not UTF-8: byte 0xff at position 1 (invalid start byte)"}
    assert found.excerpts == {1: "b\\xff"}


def test_views_of_strings_are_carried_as_strings(tmp_path: Path) -> None:
    long = "longer than twelve bytes"
    table = pa.table({
        "text": pa.array(["a", "b"], pa.string_view()), "k": pa.array(["x", long], pa.string_view()),
        "raw": pa.array([b"y", None], pa.binary_view()),
    })  # fmt: skip
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    assert read(tmp_path / "a.arrow", columns=["k", "raw"]).carried.to_pydict() == {
        "k": ["x", long],
        "raw": [b"y", None],
    }
    assert read(tmp_path / "a.arrow", columns=["k:string_view"]).carried["k"].to_pylist() == ["x", long]


def test_a_text_stored_once_for_thousands_of_rows_does_not_fill_memory(tmp_path: Path) -> None:
    long = "she rides " * 2000
    pq.write_table(pa.table({"text": [long] * 4000}), tmp_path / "a.parquet")  # 80 MB of text
    assert (tmp_path / "a.parquet").stat().st_size < 200_000
    most = pa.total_allocated_bytes()
    before = pa.default_memory_pool().max_memory()
    with pytest.warns(UserWarning, match="4,000 of 4,000 documents were truncated"):
        encode(tmp_path / "a.parquet", BYTES, tmp_path / "out", workers=0, max_length=8, shard_bytes=1 << 20)
    assert max(pa.default_memory_pool().max_memory() - max(before, most), 0) < 40 << 20


def test_a_large_row_group_gives_several_shards(tmp_path: Path) -> None:
    texts = [f"{number:06} " + "x" * (number % 50) for number in range(4000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=4000, use_dictionary=False)
    found = read(tmp_path / "a.parquet", shard_bytes=20_000)
    assert found.texts == texts
    assert found.shards > 5
    assert [record["last"] for record in found.manifest.shards] == [False] * (found.shards - 1) + [True]


def test_data_sets_are_read_whatever_they_are(tmp_path: Path) -> None:
    data = datasets.Dataset(TABLE)
    some = data.select(range(10, 0, -2)).with_format("torch")
    assert read(some, columns=["id"]).carried["id"].to_pylist() == [10, 8, 6, 4, 2]
    stream = read(data.to_iterable_dataset(), columns=["id"], shard_bytes=3000)
    assert stream.texts == TABLE["text"].to_pylist()
    assert stream.shards > 2
    assert any("is read by this process alone, because it is a stream" in one for one in read_with_workers(data))
    splits = datasets.DatasetDict(train=data, test=data.select([7]))
    splits.save_to_disk(tmp_path / "set")
    for source in (tmp_path / "set", splits):
        with pytest.raises(ValueError, match=r"(?s)has several splits.*train, test.*split=\"train\" \(--split train\)"):
            read(source)
        found = {split: len(read(source, split=split).texts) for split in ("train", "test", "train+test", "all")}
        assert found == {"train": ROWS, "test": 1, "train+test": ROWS + 1, "all": ROWS + 1}
        with pytest.raises(ValueError, match=r"(?s)has no split 'tset'.*its splits are train, test"):
            read(source, split="tset")
    data.save_to_disk(tmp_path / "one")
    with pytest.raises(ValueError, match=r"saved without splits"):
        read(tmp_path / "one", split="train")
    with pytest.raises(ValueError, match=r"(?s)with a transform.*data\.with_format\(None\)\.map"):
        read(data.with_transform(lambda batch: batch))


def read_with_workers(data: datasets.Dataset) -> list[str]:
    return read(data.to_iterable_dataset(), workers=1).messages


def test_a_data_set_in_files_is_opened_by_the_workers(stored: Path) -> None:
    data = datasets.load_from_disk(str(stored / "saved"))
    for one in (data, data.shuffle(seed=1), data.rename_columns({"text": "t", "kind": "text"})):
        found = read(one, workers=1, shard_bytes=2000)
        assert found.texts == one["text"][:]
        assert not [words for words in found.messages if "read by this process" in words]


def test_a_data_set_is_recognized_and_another_is_not(tmp_path: Path) -> None:
    data = datasets.Dataset(TABLE)
    stream = data.to_iterable_dataset().shuffle(seed=3)
    for given, other, words in (
        (data, data.select(range(5)), "other content|they end before"),
        (stream, data.to_iterable_dataset().shuffle(seed=4), "other content"),
    ):
        out = tmp_path / words[:5] / str(type(given).__name__)
        out.parent.mkdir(exist_ok=True)
        read(given, output=out, shard_bytes=3000)
        read(given, output=out, shard_bytes=3000)
        with pytest.raises(ValueError, match=rf"another job\n  got: .*({words})"):
            read(other, output=out, shard_bytes=3000)


def test_features_of_carried_columns_are_kept_where_all_inputs_agree(tmp_path: Path) -> None:
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    for inputs in ([data], [tmp_path / "a.parquet"], [data, tmp_path / "a.parquet"]):
        kept = datasets.Features.from_arrow_schema(read(*inputs, columns=["label"]).carried.schema)
        assert kept == datasets.Features({"label": label})
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "b.parquet")
    assert b"huggingface" not in (read(data, tmp_path / "b.parquet", columns=["label"]).carried.schema.metadata or {})


def test_a_name_is_read_from_the_cache_when_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    made = datasets.Dataset(PLAIN, split="train")
    commit = "0123456789abcdef" * 2
    folder = tmp_path / "somebody___bikes" / "default" / "0.0.0" / commit
    folder.mkdir(parents=True)
    with datasets.arrow_writer.ArrowWriter(path=str(folder / "bikes-train.arrow"), features=made.features) as writer:
        writer.write_table(PLAIN)
        writer.finalize()
    split = {"name": "train", "num_examples": ROWS, "num_bytes": 1, "dataset_name": "bikes"}
    about = {"features": made.features.to_dict(), "builder_name": "parquet", "dataset_name": "bikes"}
    about |= {"config_name": "default", "version": "0.0.0", "splits": {"train": split}}
    (folder / "dataset_info.json").write_text(json.dumps(about))
    found = read("somebody/bikes", columns=["id"])
    assert found.sources[0] == "somebody/bikes (train)"
    assert found.carried["id"].to_pylist() == PLAIN["id"].to_pylist()
    (about_it,) = found.manifest.inputs
    assert (about_it["split"], about_it["commit"], about_it["rows"]) == ("train", commit, ROWS)


def test_a_name_is_streamed_from_the_hub(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a": [str(stored / "a.parquet")]}
    builder = datasets.load_dataset_builder("parquet", data_files=files, cache_dir=tmp_path)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, config: builder)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    found = read("somebody/bikes", columns=["id"])
    assert found.texts == TABLE["text"].to_pylist()
    assert found.manifest.inputs[0]["commit"] == builder.hash


def stream_of(*rows: dict[str, Any], **options: Any) -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(lambda: iter(rows), **options)


def test_texts_of_a_generator_are_read_whatever_its_other_columns_hold() -> None:
    rows = [{"text": "a", "x": 1}] * 70 + [{"text": None, "x": "two"}] + [{"text": "b", "late": 2}] * 70
    assert read(stream_of(*rows), columns=[]).texts == [row["text"] or "" for row in rows]
    with pytest.raises(TypeError, match=r"(?s)column 'text' of IterableDataset must be text.*row 1 is int"):
        read(stream_of({"text": "a"}, {"text": 7}))


@pytest.mark.parametrize("stated", ["features", "cast"])
def test_columns_of_a_generator_are_carried_with_the_types_that_it_states(stated: str) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "x": 1}, {"text": "b"}, {"text": "c", "x": 2.5}] * 40
    features = datasets.Features({"text": datasets.Value("string"), "x": datasets.Value("float64")})
    stream = stream_of(*rows, features=features) if stated == "features" else stream_of(*rows).cast(features)
    assert read(stream, columns=["x"]).carried["x"].to_pylist() == [row.get("x") for row in rows]
    with pytest.raises(ValueError, match=r"(?s)does not state the types.*columns=\['x'\].*data\.cast\(Features"):
        read(stream_of(*rows), columns=["x"])


@pytest.mark.parametrize(
    ("name", "content"), [("a.parquet", b"PAR1 and then nothing"), ("a.arrow", b"hello world"), ("b.parquet", None)]
)
def test_a_broken_table_is_refused_by_name(stored: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
    whole = (stored / "a.parquet").read_bytes()
    (tmp_path / name).write_bytes(whole[:200] + bytes(2000) + whole[2200:] if content is None else content)
    with pytest.raises(ValueError, match=rf"{name} cannot be read as \w+: it is cut off"):
        read(tmp_path / name, columns=["id"])


def test_wrong_columns_are_refused_with_the_right_ones(stored: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [b"a"]}), tmp_path / "b.parquet")
    for path, options, message in (
        ("a.parquet", {"text_column": "body"}, r"(?s)a\.parquet has no column 'body'.*'text', 'id'"),
        ("a.parquet", {"text_column": "id"}, r"(?s)column 'id' of .*is int64, expected text.*'text', 'kind'"),
        ("a.parquet", {"columns": ["lang"]}, r"(?s)has no column 'lang'.*fix: columns=\[.tags.\] \(--column tags\)"),
        ("a.parquet", {"columns": ["kind:int64"]}, r"(?s)column 'kind' is \w+, expected int64.*columns=\['kind:str"),
        (tmp_path / "b.parquet", {}, r"(?s)is binary, expected text.*cast_column\(\"text\", Value\(\"string\"\)\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            read(stored / path, **options)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([{}], pa.struct([])),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([{"a": [{}]}], pa.struct([("a", pa.list_(pa.struct([])))])),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_shards_cannot_store_is_refused(tmp_path: Path, column: pa.Array) -> None:
    table = pa.table({"text": ["a"], "odd": column, "id": [1]})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(TypeError, match=r"(?s)column 'odd' has a type that.*'odd:string'"):
        read(tmp_path / "a.arrow", columns=["odd"])
    assert read(tmp_path / "a.arrow", columns=["id"]).carried.to_pylist() == [{"id": 1}]


# ------------------------------------------------------------------------------------------------ addresses of `fsspec`


def test_addresses_are_opened_by_fsspec(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus/a.txt", b"I ride\nfar\n")
    memory.pipe("/corpus/below/b.jsonl.gz", gzip.compress(b'{"text": "bike"}\n'))
    pq.write_table(pa.table({"text": ["she"]}), tmp_path / "c.parquet")
    memory.pipe("/corpus/c.parquet", (tmp_path / "c.parquet").read_bytes())
    memory.pipe("/corpus/d.md", b"no\n")
    assert read("memory://corpus", shard_bytes=7).texts == ["I ride", "far", "bike", "she"]
    assert read("memory://corpus/*.txt", "memory://corpus/c.parquet").texts == ["I ride", "far", "she"]
    for missing in ("memory://corpus/no.txt", "memory://corpus/*.csv"):
        with pytest.raises(FileNotFoundError, match="no file"):
            read(missing)


@pytest.fixture
def store(tmp_path: Path) -> dict[str, Any]:
    """Storage options of a store that every process can reach: `dir://` addresses are files below a folder."""
    (tmp_path / "store").mkdir()
    return {"path": str(tmp_path / "store"), "target_protocol": "file"}


def test_a_store_is_read_and_written_by_every_worker_and_its_options_are_stored_nowhere(
    tmp_path: Path, store: dict[str, Any]
) -> None:
    (tmp_path / "store" / "in").mkdir()
    lines = "".join(f"I ride {number}\n" for number in range(300))
    (tmp_path / "store" / "in" / "a.txt").write_text(lines)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(lines)
    options = {"shard_bytes": 500, "on_bad_row": "skip", "max_length": 9, "too_long": "error"}
    encode(tmp_path / "in", BYTES, tmp_path / "local", workers=0, **options)
    for workers in (0, 2):
        address = f"dir://out{workers}"
        manifest = encode("dir://in", BYTES, address, workers=workers, storage_options=store, **options)
        assert manifest.folder is None
        root = tmp_path / "store" / f"out{workers}"
        for folder in ("data", "rejected"):
            mine = {path.name: path.read_bytes() for path in (tmp_path / "local" / folder).iterdir()}
            theirs = {path.name: path.read_bytes() for path in (root / folder).iterdir()}
            assert sorted(theirs) == sorted(mine)
            if folder == "rejected":
                assert {name: lines.replace(b"dir://in/", b"") for name, lines in theirs.items()} == mine
        assert verify(address, storage_options=store).sound
        times = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
        encode("dir://in", BYTES, address, workers=workers, storage_options=store, **options)  # does nothing
        assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == times
        for path in root.rglob("*.json*"):
            assert str(tmp_path).encode() not in path.read_bytes()
        (root / "data" / "shard-000003-000.parquet").unlink()
        encode("dir://in", BYTES, address, workers=workers, storage_options=store, **options)
        assert verify(address, storage_options=store).sound


def test_shares_of_a_job_are_written_by_several_runs_and_the_last_one_finishes_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"I ride {number}\n" for number in range(300)))
    parts = []
    for k in (2, 1, 3):
        found = read(tmp_path / "a.txt", output=tmp_path / "out", shard_bytes=500, part=f"{k}/3")
        parts.append((found.manifest.finished, len(found.manifest.shards)))
        assert any("tasks are left to other parts" in one for one in found.messages) == (k != 3)
    assert parts == [(False, 2), (False, 5), (True, 7)]
    read(tmp_path / "a.txt", output=tmp_path / "whole", shard_bytes=500)
    for name in ("manifest.json", *(f"data/shard-{number:06}-000.parquet" for number in range(7))):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
