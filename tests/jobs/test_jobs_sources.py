"""Files as sources: the tasks of an undisturbed run against those after any interruption, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_posenc import jobs
from hf_posenc.jobs import Progress, encode, read_documents

Write = Callable[[str, bytes], Path]
SAME_FOLDER = settings(max_examples=60)


def open_sources(inputs: Any, **options: Any) -> Any:
    """Open inputs with options given by keyword."""
    return jobs.open_sources(inputs, jobs.Options(**options))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return written


@pytest.fixture
def words() -> Tokenizer:
    raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return raw


class Said(Progress):
    """Keeps the messages."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def texts_of(*inputs: Any, shard_bytes: int = 1 << 20, **options: Any) -> list[str]:
    """The texts of all documents, empty for bad ones."""
    sources = open_sources(inputs, **options)
    batches = [some for task in sources.tasks(shard_bytes) for some in read_documents(task, sources.columns)]
    return [text for some in batches for text in some.texts[0]]


# ------------------------------------------------------------------------------------------------- the cut into tasks

DOCUMENTS = st.lists(st.text(st.sampled_from('aé\0 "\r'), max_size=9), max_size=12)
KINDS = {"lines": "txt", "paragraphs": "txt", "file": "txt", "jsonl": "jsonl", "csv": "csv", "gz": "txt.gz"}


def as_csv(texts: list[str]) -> str:
    """A CSV file with a text that holds line ends in each record."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["text", "n"])
    writer.writerows([f"{text}\n\n{text}", number] for number, text in enumerate(texts))
    return file.getvalue()


@SAME_FOLDER
@given(st.lists(DOCUMENTS, min_size=1, max_size=4), st.integers(1, 40), st.booleans(), st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_any_shards_may_be_finished_and_the_others_are_the_same(
    tmp_path: Path, kind: str, corpus: list[list[str]], shard_bytes: int, ends: bool, data: st.DataObject
) -> None:
    paths = []
    for number, documents in enumerate([*corpus, ["the last"]]):
        path = tmp_path / f"{number}.{KINDS[kind]}"
        lines = [json.dumps({"text": text}) for text in documents] if kind == "jsonl" else documents
        text = as_csv(documents) if kind == "csv" else "\n".join(lines) + "\n" * ends
        path.write_bytes(gzip.compress(text.encode()) if kind == "gz" else text.encode())
        paths.append(path)
    document = {"paragraphs": "paragraph", "file": "file"}.get(kind, "line")
    sources = open_sources(paths, document=document)
    tasks = list(sources.tasks(shard_bytes))
    assert [task.shard for task in tasks] == list(range(len(tasks)))
    assert [task.begins for task in tasks] == [(0, 0, 0), *(task.ends for task in tasks[:-1])]
    assert tasks[-1].ends == (len(paths), 0, 0)
    done = data.draw(st.sets(st.sampled_from(range(len(tasks)))))
    again = list(
        open_sources(paths, document=document).tasks(shard_bytes, {shard: tasks[shard].ends for shard in done})
    )
    assert again == [task for task in tasks if task.shard not in done]
    assert [task.digest() for task in again] == [tasks[task.shard].digest() for task in again]


@given(st.lists(st.tuples(st.text(st.sampled_from('a," \n')), st.text(st.sampled_from('b,"\n')))), st.integers(1, 30))
def test_csv_is_cut_between_records_only(tmp_path: Path, records: list[tuple[str, str]], shard_bytes: int) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows([("text", "n"), *records, ("last", "")])
    (tmp_path / "a.csv").write_text(file.getvalue(), newline="")
    assert texts_of(tmp_path / "a.csv", shard_bytes=shard_bytes) == [text for text, _ in records] + ["last"]


def test_a_quotation_mark_inside_a_csv_field_is_an_ordinary_character(write: Write) -> None:
    path = write("a.csv", b'text,n\n5" pipe,3\n"a\nb",4\n7" pipe,"x""\ny"\n')
    assert texts_of(path, shard_bytes=1) == ['5" pipe', "a\nb", '7" pipe']


def test_a_task_holds_as_many_documents_as_fit_and_one_at_least(write: Write) -> None:
    sources = open_sources([write("a.txt", b"aaaa\nb\nc\n" + b"x" * 30 + b"\nd\n"), write("b.txt", b"e\nf")])
    tasks = list(sources.tasks(9))
    payloads = [b"|".join(part.payload for part in task.parts) for task in tasks]
    assert payloads == [b"aaaa\nb\nc\n", b"x" * 30 + b"\n", b"d\n|e\nf"]
    assert [part.first for task in tasks for part in task.parts] == [1, 4, 5, 1]
    assert sum(task.size for task in tasks) == sources.size == 45


def test_a_file_given_twice_is_read_twice_and_empty_ones_are_passed_over(write: Write) -> None:
    path, empty = write("a.txt", b"a\nb\n"), write("empty.txt", b"")
    assert texts_of(path, empty, path) == ["a", "b", "a", "b"]
    for name in ("empty.txt", "blank.txt", "empty.csv", "empty.jsonl"):
        with pytest.raises(ValueError, match=rf"(?s)there are no documents in the inputs.*{name}"):
            texts_of(write(name, b"\n \n" if name == "blank.txt" else b""))


def test_a_file_given_twice_is_named(write: Write, words: Tokenizer, tmp_path: Path) -> None:
    path, said = write("in/a.txt", b"I\n"), Said()
    manifest = encode([path, path.parent, write("b.txt", b"ride\n")], words, tmp_path / "out", workers=0, progress=said)
    assert manifest.totals["documents"] == 3
    assert said.said == [f"given more than once, and encoded each time: {path.resolve()}"]


@pytest.mark.parametrize("kind", ["gz", "bz2", "zst", "lz4", "xz"])
def test_a_compressed_file_may_have_several_members_and_is_read_up_to_the_damage(tmp_path: Path, kind: str) -> None:
    lines = [f"{number * 7919:09}" for number in range(20_000)]
    path = tmp_path / f"a.jsonl.{kind}"
    names = {"gz": "gzip", "zst": "zstd"}
    with path.open("wb") as file:
        for first in (0, 10_000):
            content = "".join(json.dumps({"text": line}) + "\n" for line in lines[first : first + 10_000]).encode()
            sink = pa.BufferOutputStream()
            if kind == "xz":
                sink.write(lzma.compress(content, preset=0))
            else:
                with pa.CompressedOutputStream(sink, names.get(kind, kind)) as stream:
                    stream.write(content)
            file.write(sink.getvalue())
    assert texts_of(path, shard_bytes=100_000) == lines
    path.write_bytes(path.read_bytes()[:-9])
    whole = list(open_sources([path]).tasks(1 << 20))
    tasks = list(open_sources([path]).tasks(100_000))
    *parts, damage = [part for task in tasks for part in task.parts]
    assert b"".join(part.payload for part in parts) == b"".join(part.payload for part in whole[0].parts[:-1])
    assert damage.kind == "unreadable"
    assert b"it is cut off or damaged" in damage.payload
    assert damage.first == 1 + sum(part.payload.count(b"\n") for part in parts)
    assert all(part.payload.endswith(b'"}\n') for part in parts)  # no half of a document
    again = open_sources([path]).tasks(100_000, {task.shard: task.ends for task in tasks[:-1]})
    assert list(again) == tasks[-1:]


def test_zeros_behind_a_gzip_file_are_padding(write: Write) -> None:
    path = write("a.txt.gz", gzip.compress(b"a\n") + bytes(3000))
    assert texts_of(path) == ["a"]


def test_skip_covers_the_rest_of_a_damaged_file(write: Write, tmp_path: Path, words: Tokenizer) -> None:
    whole = gzip.compress(b"".join(b"I ride %d\n" % (number * 7919) for number in range(2000)))
    damaged, other = write("a.txt.gz", whole[:-1000]), write("b.txt", b"I ride\n")
    with pytest.raises(
        ValueError, match=r"(?s)a\.txt\.gz, line \d+: cannot be read further as a gzip file.*download.*skip"
    ):
        encode([damaged, other], words, tmp_path / "out", workers=0)
    manifest = encode([damaged, other], words, tmp_path / "out", workers=0, on_bad_row="skip")
    (entry,) = map(json.loads, (tmp_path / "out" / "rejected.jsonl").read_text().splitlines())
    assert entry["file"] == damaged.name
    assert entry["line"] == manifest.totals["documents"] - 1 > 1000
    assert manifest.totals["rejected"] == 1


# -------------------------------------------------------------------------------------------------------- text and JSON


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_byte_order_marks_carriage_returns_and_a_missing_last_line_end_are_no_part_of_a_document(
    write: Write, name: str
) -> None:
    content = {
        "a.txt": b"I ride\r\nbike",
        "a.jsonl": b'{"text": "I ride"}\r\n{"text": "bike"}',
        "a.csv": b"text,n\r\nI ride,1\r\nbike,2",
    }
    path = write(name, b"\xef\xbb\xbf" + content[name])
    assert texts_of(path) == texts_of(path, shard_bytes=1) == ["I ride", "bike"]


def test_utf16_is_refused_with_the_way_to_utf8(write: Write) -> None:
    with pytest.raises(ValueError, match=r"(?s)a\.txt must be UTF-8.*UTF-16.*iconv -f UTF-16"):
        texts_of(write("a.txt", "bike".encode("utf-16")))


@pytest.mark.parametrize(
    ("name", "document"), [("a.txt", "line"), ("a.txt", "paragraph"), ("a.txt", "file"), ("a.jsonl", "line")]
)
def test_a_document_longer_than_the_limit_is_refused_by_file_and_line(write: Write, name: str, document: str) -> None:
    path = write(name, b"\n\n" + (b"ab \n" if document == "paragraph" else b"abcd") * (1 << 19) + b"\n")
    with pytest.raises(
        ValueError, match=rf"a\.\w+, line {1 if document == 'file' else 3}: one \w+ is longer than 1 MiB"
    ):
        list(open_sources([path], document=document).tasks(1000, longest=1 << 20))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b' [{"text": "a"},\n{"text": "b"}]',
            r"(?s)a\.json must be JSON lines.*a list.*fix: jq -c '\.\[\]' .*a\.json >",
        ),
        (b'{\n  "text": "a",\n  "b": {\n    "c": 1\n  }\n}', r"(?s)an object on several lines.*jq -c '\.' .*a\.json"),
        (b'{"text": "a",\n "b": 1}\n{"text": "b",\n "b": 1}', r"an object on several lines"),
        (b'{\n"data": [\n{"text": "a"},\n{"text": "b"}\n]}', r"(?s)several lines.*jq -c '\.data\[\]'"),
        (b'{"version": 1, "data": [{"text": "a"}]}', r"(?s)in its list 'data'.*jq -c '\.data\[\]'"),
    ],
)
def test_json_that_is_one_value_is_refused_with_the_command_that_makes_it_lines(
    write: Write, content: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        open_sources([write("a.json", content)])


@pytest.mark.parametrize("content", ['{"text": "a", "data": [{"text": "b"}]}', '{"text": 1\n{"text": "a"}', "{\n[1]\n"])
def test_json_lines_that_only_look_alike_are_read(write: Write, content: str) -> None:
    assert len(texts_of(write("a.json", content.encode()))) == len(content.splitlines())


# ------------------------------------------------------------------------------------------------ columns of text files


def test_columns_of_json_and_csv_are_those_that_are_named(write: Write) -> None:
    lines = write("a.jsonl", b'{"text": "a", "id": 1}\n{"text": "b", "meta": {"x": 1}}\n')
    table = write("a.csv", b"text,id,meta\nc,001,\n")
    sources = open_sources([lines, table])
    assert sources.columns.carried == pa.schema([])
    (note,) = sources.notes
    assert note.startswith("columns that are not carried: id, meta; ")
    assert open_sources([lines, table], columns=[]).notes == []
    sources = open_sources([lines, table], columns=["meta", "id:int16"])
    assert sources.columns.carried == pa.schema([("meta", pa.string()), ("id", pa.int16())])


def test_a_column_that_is_missing_is_refused_with_those_that_are_there(write: Write) -> None:
    lines, table = write("a.jsonl", b'{"body": "a", "id": 1}\n'), write("a.csv", b"body,id\na,1\n")
    for path in (lines, table):
        fix = r"(?s) has no column 'text'.*'body', 'id'.*text_column=\"body\" \(--text-column body\)"
        with pytest.raises(ValueError, match=fix):
            open_sources([path])
        with pytest.raises(ValueError, match=r"(?s) has no column 'tags'.*'body', 'id'.*columns=\['id'\]"):
            open_sources([path], text_column="body", columns=["tags"])
    late = open_sources([lines], text_column="body", columns=["tags:string"])  # may appear later
    assert late.columns.carried.names == ["tags"]
    with pytest.raises(ValueError, match=r"has no column 'tags:string'|has no column 'tags'"):
        open_sources([table], text_column="body", columns=["tags:string"])
    with pytest.raises(ValueError, match=r"a\.txt has no column 'id'"):
        open_sources([write("a.txt", b"a\n")], columns=["id"])
    with pytest.raises(ValueError, match=r"b\.csv has several columns 'n'"):
        open_sources([write("b.csv", b"text,n,n\na,1,2\n")], columns=["n"])


def test_types_of_a_column_in_two_inputs_must_fit_or_be_named(write: Write, tmp_path: Path) -> None:
    lines = write("a.jsonl", b'{"text": "a", "id": 1}\n')
    pq.write_table(pa.table({"text": ["b"], "id": [2]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"(?s)column 'id' is int64 in .*b\.parquet, but string.*'id:string'"):
        open_sources([lines, tmp_path / "b.parquet"], columns=["id"])
    assert open_sources([lines, tmp_path / "b.parquet"], columns=["id:int64"]).columns.carried.types == [pa.int64()]


def test_files_with_other_separators_than_commas_are_refused(write: Write) -> None:
    with pytest.raises(ValueError, match=r"(?s)a\.csv has no commas.*semicolons.*sep=\";\""):
        open_sources([write("a.csv", b"id;text\n1;a\n")])
    with pytest.raises(ValueError, match=r"(?s)b\.csv has no commas.*tabs.*\.tsv"):
        open_sources([write("b.csv", b"id\ttext\n1\ta\n")])
    assert texts_of(write("c.tsv", b"id\ttext\n1\ta, b\n")) == ["a, b"]


# ------------------------------------------------------------------------------------------------- files that change


def test_inputs_are_recognized_by_content_and_differences_are_named(write: Write) -> None:
    path = write("a.txt", b"I ride\n")
    sources = open_sources([path])
    marks, stamps = sources.fingerprints, sources.stamps
    shards = records(sources, 100)
    assert json.loads(json.dumps([marks, stamps])) == [marks, stamps]
    assert set(marks[0]) == {"name", "kind", "size", "digest"}

    def differences(*inputs: Path, **options: Any) -> list[str]:
        return open_sources(inputs, **options).differences(marks, stamps, shards, 100)

    assert differences(path) == []
    os.utime(path, (1, 1))
    assert differences(path) == differences(write("b.txt", b"I ride\n")) == []
    assert differences(path, path) == ["inputs: 1 before, 2 now"]
    assert differences(path, document="paragraph") == [f"input {path}: read as lines before, as paragraphs now"]
    assert differences(write("b.txt", b"")) == [f"input {path.parent}/b.txt (before: a.txt): 7 bytes became 0"]
    path.write_bytes(b"I rode\n")
    assert differences(path) == [f"input {path}: 7 bytes, other content"]
    path.write_bytes(b"I ride it\n")
    assert differences(path) == [f"input {path}: 7 bytes became 10"]


def records(sources: Any, shard_bytes: int) -> dict[int, dict[str, Any]]:
    """The records of all shards, as far as they say where a shard was cut from."""
    return {
        task.shard: {"begins": list(task.begins), "ends": list(task.ends), "digest": task.digest()}
        for task in sources.tasks(shard_bytes)
    }


def test_inputs_behind_the_last_finished_shard_may_be_repaired_replaced_or_left_out(write: Write) -> None:
    first, second, third = write("a.txt", b"I ride\nshe\n"), write("b.txt", b"I\nride\n"), write("c.txt", b"no\n")
    sources = open_sources([first, second, third])
    before, stamps, shards = sources.fingerprints, sources.stamps, records(sources, 7)
    some = {shard: shards[shard] for shard in (0, 1)}  # cut from the first file and the first line of the second

    def differences(*inputs: Path, shards: dict[int, Any] = some) -> list[str]:
        return open_sources(inputs).differences(before, stamps, shards, 7)

    assert differences(first, second, third) == differences(first, second) == []
    assert differences(first, second, third, shards=shards) == []
    assert differences(first, second, shards=shards) == ["inputs: 3 before, 2 now"]
    assert differences(first, second, third, third, shards=shards) == ["inputs: 3 before, 4 now"]
    write("b.txt", b"I\nrode\nand more\n")
    assert differences(first, second) == []
    write("b.txt", b"he\nride\n")
    assert differences(first, second) == [f"input {second}: other content in shard 1"]
    write("a.txt", b"I rode\nshe\n")
    assert differences(first, second) == [f"input {first}: 11 bytes, other content"]


def test_a_damaged_file_may_be_repaired_behind_what_was_read_of_it(write: Write) -> None:
    whole = gzip.compress(b"".join(b"%09d\n" % (number * 7919) for number in range(20_000)))
    path = write("a.txt.gz", whole[:-2000])
    sources = open_sources([path])
    before, stamps, shards = sources.fingerprints, sources.stamps, records(sources, 50_000)
    del shards[max(shards)]  # the one with the damage
    write("a.txt.gz", whole)
    assert open_sources([path]).differences(before, stamps, shards, 50_000) == []


def test_a_file_overwritten_in_its_middle_is_another_input_unless_its_times_are_those_before(write: Write) -> None:
    lines = [b"%07d\n" % number for number in range(1 << 20)]
    path = write("a.txt", b"".join(lines))
    before_times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    sources = open_sources([path])
    before, stamps, shards = sources.fingerprints, sources.stamps, records(sources, 4 << 20)
    lines[200_000] = b"another\n"
    write("a.txt", b"".join(lines))
    again = open_sources([path])
    assert again.fingerprints == before  # which looks at head, middle and tail
    assert again.differences(before, again.stamps, shards, 4 << 20) == []
    os.utime(path, ns=before_times)  # mtime as it was; ctime tells
    assert open_sources([path]).differences(before, stamps, shards, 4 << 20) == [
        f"input {path}: other content in shard 0"
    ]


def test_a_file_that_changes_while_it_is_read_is_refused_for_the_shards_that_are_cut_from_it(write: Write) -> None:
    sources = open_sources([write(f"{number}.txt", b"I ride\n") for number in range(4)])
    sources.check_unchanged()
    path, other = write("2.txt", b"she rides\n"), write("other.txt", b"I rode\n")
    sources.check_unchanged(0, 1)
    sources.check_unchanged(3, 4)
    with pytest.raises(ValueError, match=r"(?s)2\.txt changed while it was read.*7 bytes became 10"):
        sources.check_unchanged(1, 2)
    sources = open_sources([path])
    write("other.txt", b"he rides it\n"[:10])
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    with pytest.raises(ValueError, match=r"(?s)2\.txt changed while it was read.*it was written to or replaced"):
        sources.check_unchanged()


def test_a_file_that_changes_after_its_last_shard_is_refused_at_the_end(
    write: Write, tmp_path: Path, words: Tokenizer
) -> None:
    path = write("a.txt", b"I ride\n" * 20)

    class Meddling(Progress):
        def shard(self, record: dict[str, Any]) -> None:
            if record["ends"][0]:  # the last one
                path.write_bytes(b"I rode\n" * 21)

    with pytest.raises(ValueError, match=r"(?s)a\.txt changed while it was read.*140 bytes became 147"):
        encode(path, words, tmp_path / "out", workers=0, shard_bytes=70, progress=Meddling())
    with pytest.raises(ValueError, match=r"a\.txt: 140 bytes became 147"):
        encode(path, words, tmp_path / "out", workers=0, shard_bytes=70)


# ------------------------------------------------------------------------------------------- folders, patterns and URLs


def named(folder: Path, *names: str) -> Path:
    """A folder of files that hold their own names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    return folder


def test_a_folder_is_its_data_files_in_order(tmp_path: Path) -> None:
    folder = named(tmp_path / "f", "b.txt", "a.txt", "sub/c.txt", ".hidden.txt", "README.md", "sub/deep/0.txt")
    names = ["a.txt", "b.txt", "sub/c.txt", "sub/deep/0.txt"]
    assert texts_of(folder) == names
    assert open_sources([folder]).names == [f"{folder}/{name}" for name in names]
    assert texts_of(f"{folder}/*.txt") == names[:2]
    assert texts_of(f"{folder}/**/*.txt") == names


def test_files_with_unknown_endings_are_named_in_a_note(tmp_path: Path, words: Tokenizer) -> None:
    folder = named(tmp_path / "f", "a.txt", "b.md", "c.html", "d.log", "e.log")
    (tmp_path / "f" / "README.md").write_text("about")
    said = Said()
    encode(folder, words, tmp_path / "out", workers=0, progress=said)
    assert said.said[0] == (
        f"{folder}: 4 files have an unknown ending and will not be read: b.md, c.html, d.log, ...; "
        "--format text reads all files"
    )
    assert open_sources([folder], format="text").notes == []


def test_urls_are_opened_by_fsspec(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus/a.txt", b"I ride\n")
    memory.pipe("/corpus/below/b.jsonl.gz", gzip.compress(b'{"text": "bike"}\n'))
    pq.write_table(pa.table({"text": ["she"]}), tmp_path / "c.parquet")
    memory.pipe("/corpus/c.parquet", (tmp_path / "c.parquet").read_bytes())
    memory.pipe("/corpus/d.md", b"no\n")
    assert texts_of("memory://corpus") == ["I ride", "bike", "she"]
    assert texts_of("memory://corpus/*.txt", "memory://corpus/c.parquet") == ["I ride", "she"]
    sources = open_sources(["memory://corpus/a.txt"])
    marks, stamps = sources.fingerprints, sources.stamps
    assert sources.differences(marks, stamps, records(sources, 9), 9) == []
    sources.check_unchanged()
    memory.pipe("/corpus/a.txt", b"I rode\n")
    with pytest.raises(ValueError, match=r"a\.txt changed while it was read"):
        sources.check_unchanged()
    for missing in ("memory://corpus/no.txt", "memory://corpus/*.csv"):
        with pytest.raises(FileNotFoundError, match="no file"):
            open_sources([missing])


def test_what_names_nothing_is_refused(tmp_path: Path) -> None:
    named(tmp_path, "corpus.txt", "empty/notes.md")
    with pytest.raises(FileNotFoundError, match=r"(?s)there is no file .*corpsu\.txt.*fix: .*corpus\.txt"):
        open_sources([f"{tmp_path}/corpsu.txt"])
    with pytest.raises(FileNotFoundError, match=r"there is no file nowhere"):
        open_sources([Path("nowhere")])
    with pytest.raises(FileNotFoundError, match=r"no file matches"):
        open_sources([f"{tmp_path}/*.csv"])
    with pytest.raises(ValueError, match=r"(?s)empty has no data files.*format='text'"):
        open_sources([tmp_path / "empty"])
    assert texts_of(tmp_path / "empty", format="text") == ["empty/notes.md"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"(?s)pipe must be a file.*a pipe or a device"):
        open_sources([tmp_path / "pipe"])


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    path = named(tmp_path, "a.txt") / "a.txt"
    with pytest.raises(ValueError, match=r"(?s)format must be one of 'text', 'json'.*'jsn'.*format='json'"):
        open_sources([path], format="jsn")
    with pytest.raises(ValueError, match=r"document must be one of 'line', 'paragraph', 'file'"):
        open_sources([path], document="word")
    for document in ("paragraph", "file"):
        for other in (named(tmp_path, "b.jsonl") / "b.jsonl", datasets.Dataset.from_dict({"text": ["a"]})):
            with pytest.raises(
                ValueError, match=rf"(?s)only text files are read by {document}.*fix: document=\"line\""
            ):
                open_sources([path, other], document=document)
    for inputs in ([path], [datasets.Dataset.from_dict({"text": ["a"]}), path]):
        with pytest.raises(ValueError, match=r"(?s)only a data set has splits.*split='train'.*a\.txt.*leave split out"):
            open_sources(inputs, split="train")
    with pytest.raises(ValueError, match=r"only a data set on the Hub has configurations"):
        open_sources([path], dataset_config="en")
    with pytest.raises(TypeError, match=r"there is no argument 'dataset_split'\n  fix: split=\.\.\."):
        encode(path, "bert", tmp_path / "out", dataset_split="train")
    with pytest.raises(ValueError, match=r"inputs must be a list"):
        open_sources([])
    with pytest.raises(ValueError, match=r"(?s)two texts of a pair.*leave text_pair_column out"):
        open_sources([path], text_pair_column="text")
    with pytest.raises(TypeError, match=r"(?s)columns must be a list.*columns=\['id'\]"):
        open_sources([path], columns="id")
    with pytest.raises(
        TypeError, match=r"source_columns must be True or False\n  got: 'yes'\n  fix: source_columns=True"
    ):
        encode(path, "bert", tmp_path / "out", source_columns="yes")
    with pytest.raises(ValueError, match=r"(?s)parquet files are compressed inside.*gunzip"):
        open_sources([named(tmp_path, "a.parquet.gz") / "a.parquet.gz"])


def test_a_folder_that_links_lead_to_again_is_read_once(tmp_path: Path) -> None:
    folder = named(tmp_path / "in", "a.txt", "below/b.txt")
    for link, target in ((folder / "0", folder), (folder / "below" / "up", folder), (folder / "z", folder / "below")):
        link.symlink_to(target, target_is_directory=True)
    (folder / "c.txt").symlink_to(folder / "a.txt")  # a link to a file is a file
    assert texts_of(folder) == ["a.txt", "a.txt", "below/b.txt"]
    loop = named(tmp_path / "loop", "a.txt")
    (loop / "0").symlink_to(loop)
    assert texts_of(f"{loop}/**/*.txt") == ["a.txt"]


def test_a_link_to_nothing_is_named_with_its_target(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("nowhere.txt")
    for path in (tmp_path, tmp_path / "a.txt"):
        with pytest.raises(FileNotFoundError, match=r"(?s)a\.txt is a link to a file that does not.*nowhere\.txt"):
            open_sources([path])


# -------------------------------------------------------------------------------------------------- output beside input

OURS = b'{\n  "written_by": "hf-posenc"}'


@pytest.mark.parametrize("inputs", ["data", "data/*", "data/**", "data/**/*"])
def test_output_inside_the_input_is_not_read_by_the_next_run(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inputs: str
) -> None:
    below = "data/a.txt" if inputs == "data/*" else "data/sub/a.txt"
    for name, content in {below: b"a", "data/b.txt": b"b", "data/sub/.cache/c.txt": b"hidden"}.items():
        write(name, content)
    write("data/sub/enc/manifest.json", OURS)
    write("data/sub/enc/data/left.txt", b"left behind\n")
    monkeypatch.chdir(tmp_path)
    assert sorted(texts_of(inputs)) == ["a", "b"]


def test_output_is_read_where_it_is_named_and_a_manifest_of_others_is_data(write: Write, tmp_path: Path) -> None:
    write("enc/manifest.json", OURS)
    write("enc/a.txt", b"a\n")
    write("data/manifest.json", b'{"text": "hf-posenc"}')
    assert texts_of(f"{tmp_path}/enc/*.txt") == ["a"]
    assert texts_of(f"{tmp_path}/d*/*") == ["hf-posenc"]
    with pytest.raises(FileNotFoundError, match=r"(?s)no file matches.*nothing but the output of earlier runs"):
        open_sources([f"{tmp_path}/e*/*"])
