"""Tables, folders and data sets as sources of a corpus: the same rows however they are stored, and what is refused."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_posenc._arrow import row_sizes
from hf_posenc.jobs.reading.rows import Reading, rows_of
from hf_posenc.jobs.sources import Sources, delimited, json_array, open_sources
from hf_posenc.jobs.task import Cursor, Task

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
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)
PLAIN = TABLE.select(["text", "id"])


def as_parquet(path: Path) -> None:
    pq.write_table(TABLE, path, row_group_size=70)


def as_arrow_file(path: Path) -> None:
    with pa.ipc.new_file(path, TABLE.schema) as file:
        file.write_table(TABLE, 110)


def as_arrow_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as stream:
        stream.write_table(TABLE, 110)


def as_csv(path: Path) -> None:
    pa.csv.write_csv(PLAIN, path)


def as_csv_gz(path: Path) -> None:
    as_csv(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def as_json_array(path: Path) -> None:
    path.write_text(json.dumps(PLAIN.to_pylist(), indent=1))


def saved_set(path: Path) -> None:
    datasets.Dataset(TABLE).save_to_disk(path, num_shards=2)


KINDS: dict[str, Callable[[Path], None]] = {
    "a.parquet": as_parquet,
    "file.arrow": as_arrow_file,
    "stream.arrow": as_arrow_stream,
    "a.csv": as_csv,
    "a.csv.gz": as_csv_gz,
    "a.json": as_json_array,
    "saved": saved_set,
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same rows in every kind of table."""
    folder = tmp_path_factory.mktemp("tables")
    datasets.disable_progress_bars()
    for name, make in KINDS.items():
        make(folder / name)
    return folder


def rows_in(sources: Sources, tasks: Any, text_column: str = "text") -> list[dict[str, Any]]:
    reading = Reading(text_column, None, sources.schema)
    return [row for task in tasks for part in task.parts for row in rows_of(part, reading).table.to_pylist()]


def read(*inputs: Any, shard_bytes: int = 1 << 20, **options: Any) -> list[dict[str, Any]]:
    sources = open_sources(inputs, **options)
    return rows_in(sources, sources.tasks(shard_bytes), options.get("text_column", "text"))


def objects() -> Iterator[Any]:
    yield datasets.Dataset(TABLE)
    yield datasets.Dataset(TABLE).to_iterable_dataset(num_shards=3)


# ---------------------------------------------------------------------------------------------------------- the rows


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_table_gives_its_rows_with_their_types(stored: Path, name: str) -> None:
    sources = open_sources([stored / name])
    expected = PLAIN if name in ("a.csv", "a.csv.gz", "a.json") else TABLE
    assert rows_in(sources, sources.tasks(2000)) == expected.to_pylist()
    if name == "saved":  # datasets knows no dictionaries
        expected = expected.set_column(5, "kind", expected["kind"].cast(pa.string()))
    assert sources.schema == expected.schema.remove(0).remove_metadata()
    assert sources.size is not None
    assert open_sources([stored / name], columns=["id"]).schema.names == ["id"]
    assert read(stored / name, columns=[]) == TABLE.select(["text"]).to_pylist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given(shard_bytes=st.integers(100, 20_000), data=st.data())
@pytest.mark.parametrize("name", KINDS)
def test_any_shards_of_a_table_may_be_done_and_the_others_are_the_same_bytes(
    stored: Path, name: str, shard_bytes: int, data: st.DataObject
) -> None:
    check_any_done([stored / name, stored / "a.csv"], shard_bytes, data)


@settings(deadline=None, max_examples=15)
@given(shard_bytes=st.integers(100, 20_000), data=st.data())
def test_any_shards_of_data_set_objects_may_be_done(shard_bytes: int, data: st.DataObject) -> None:
    check_any_done(list(objects()), shard_bytes, data)


def check_any_done(inputs: list[Any], shard_bytes: int, data: st.DataObject) -> None:
    options: dict[str, Any] = {"columns": ["id"]}
    tasks: list[Task] = list(open_sources(inputs, **options).tasks(shard_bytes))
    assert tasks[-1].ends == Cursor(len(inputs))
    done = data.draw(st.sets(st.sampled_from(range(len(tasks)))))
    again = open_sources(inputs, **options).tasks(shard_bytes, {shard: tasks[shard].ends for shard in done})
    assert list(again) == [task for task in tasks if task.shard not in done]


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_texts_may_be_encoded_in_any_way(tmp_path: Path, kind: pa.DataType) -> None:
    texts = pa.array(["I ride", None, "bike", "I ride"])
    encoded = texts.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else texts.cast(kind)
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([("text", kind)])) as file:
        file.write_table(pa.table({"text": encoded}))
    sources = open_sources([tmp_path / "a.arrow"])
    (task,) = sources.tasks(1000)
    rows = rows_of(task.parts[0], Reading())
    assert rows.table["text"].to_pylist() == texts.to_pylist()
    assert rows.table.schema == pa.schema([("text", pa.string())])
    assert rows.bad == {1: "column 'text' is null"}
    assert rows.numbers.tolist() == [0, 1, 2, 3]


def test_text_in_parquet_that_is_not_utf8_is_a_bad_row_in_every_column(tmp_path: Path) -> None:
    spoilt = pa.array([b"a", b"b\xff", b"c"]).view(pa.string())
    pq.write_table(pa.table({"text": spoilt, "note": ["x", "y", "z"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["d", "e", "f"], "note": spoilt}), tmp_path / "b.parquet")
    sources = open_sources([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    (task,) = sources.tasks(1000)
    first, second = (rows_of(part, Reading(schema=sources.schema)) for part in task.parts)
    assert first.bad == {1: "column 'text' is not UTF-8: byte 0xff at position 1 (invalid start byte)"}
    assert second.bad == {1: "column 'note' is not UTF-8: byte 0xff at position 1 (invalid start byte)"}
    assert first.table["text"].to_pylist() == ["a", None, "c"]


def test_a_large_row_group_is_read_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "one_group.parquet"
    texts = pa.array([f"{number:06} " + "x" * 500 for number in range(40_000)])
    pq.write_table(pa.table({"text": texts}), path, row_group_size=40_000, use_dictionary=False, compression="none")
    tasks = open_sources([path]).tasks(1 << 20)
    next(tasks)
    before = pa.total_allocated_bytes()
    shards = sum(1 for _ in tasks)
    assert shards >= 18
    assert pa.total_allocated_bytes() - before < 16 << 20


def test_csv_keeps_words_for_nothing_quotes_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,n,day\r\n"a, ""b""\nc",1,2024-01-01\r\nNA,,x\r\n,3,\r\nnull,4,\r\n12,5,')
    assert [row["text"] for row in read(path)] == ['a, "b"\nc', "NA", "", "null", "12"]
    assert [row["n"] for row in read(path)] == [1, None, 3, 4, 5]
    assert [row["day"] for row in read(path)] == ["2024-01-01", "x", "", "", ""]
    (tmp_path / "a.tsv").write_bytes(b"text\tn\na, b\t1\n")
    assert read(tmp_path / "a.tsv") == [{"text": "a, b", "n": 1}]


@given(st.lists(st.booleans(), max_size=30), st.sampled_from([20, 60, 1 << 20]), st.integers(0, 30))
@settings(deadline=None)
def test_csv_rows_of_too_many_or_few_fields_are_bad_rows_in_their_places(
    sound: list[bool], block: int, begin: int
) -> None:
    sound = [*sound, True]  # Arrow is not asked for blocks without any
    lines = [f"{row},I ride {row}" if good else f"{row},{row},bad" for row, good in enumerate(sound)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder, "a.csv")
        path.write_text("id,text\n" + "\n\n".join(lines))
        patched.setattr(delimited, "_BLOCK", block)
        sources = open_sources([path])
        done = {0: Cursor(0, 0, begin)} if begin < len(sound) else {}
        parts = [part for task in sources.tasks(1 << 20, done) for part in task.parts]
        found = [rows_of(part, Reading("text", None, sources.schema)) for part in parts]
    begin = begin if done else 0
    numbers = [number for rows in found for number in rows.numbers]
    assert numbers == list(range(begin, len(sound)))
    reasons = {int(rows.numbers[row]): reason for rows in found for row, reason in rows.bad.items()}
    assert reasons == {row: "has 3 fields, where the first line names 2" for row in numbers if not sound[row]}
    begins = {int(rows.numbers[row]): text for rows in found for row, text in rows.excerpts.items()}
    assert begins == {row: lines[row] for row in reasons}
    texts = [text for rows in found for text in rows.table["text"].to_pylist()]
    assert texts == [f"I ride {row}" if sound[row] else None for row in numbers]


def test_csv_without_one_sound_row_is_all_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1\n2\n")
    assert read(tmp_path / "a.csv", columns=[]) == [{"text": None}] * 2


def test_a_thread_that_still_reads_ahead_does_not_abort_a_python_that_ends(tmp_path: Path) -> None:
    """The read-ahead is slowed down, so that it is under way for certain when the process ends."""
    (tmp_path / "a.csv").write_bytes(b"text\n" * (1 << 20))
    (tmp_path / "a.csv.xz").write_bytes(lzma.compress((tmp_path / "a.csv").read_bytes(), preset=0))
    code = """
import sys, time
from hf_posenc.jobs.sources import open_sources, streams

def slowly(file):
    class Slow:
        closed = False
        count = 0
        def read(self, size=-1):
            self.count += 1
            time.sleep(0.3 * (self.count > 1))
            return file.read(size)
        def close(self):
            file.close()
        def seek(self, place):
            file.seek(place)
    return Slow()

real = streams.opened
streams.opened = lambda *given: slowly(real(*given))
open_sources(sys.argv[1:])
"""
    for name in ("a.csv", "a.csv.xz"):
        child = [sys.executable, "-c", code, str(tmp_path / name)]
        assert subprocess.run(child, check=False, capture_output=True, timeout=120).returncode == 0


@pytest.mark.parametrize("before", [0, 10])
def test_a_csv_row_longer_than_a_block_is_read(tmp_path: Path, before: int) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,n\n" + b"a,1\n" * before + b"x" * 10_000_000 + b",2\nb,3\n")
    assert [len(row["text"]) for row in read(path)] == [1] * before + [10_000_000, 1]


def test_a_csv_row_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "LONGEST", 9 << 20)
    (tmp_path / "a.csv").write_bytes(b'text,n\na,1\n"' + b"x" * (20 << 20))
    with pytest.raises(ValueError, match=r"a\.csv: a row is longer than 9 MiB"):
        read(tmp_path / "a.csv")


def test_bad_elements_of_a_list_of_json_are_rows_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    elements = [{"text": "a\nb"}, {"text": 3}, "c", None, {"text": "\u00e9"}, {"text": None}]
    path.write_bytes(b"\xef\xbb\xbf " + json.dumps(elements, indent=2, ensure_ascii=False).encode())
    (task,) = open_sources([path]).tasks(1000)
    rows = rows_of(task.parts[0], Reading())
    assert rows.table["text"].to_pylist() == ["a\nb", None, None, None, "\u00e9", None]
    assert {row: reason.split(",")[0] for row, reason in rows.bad.items()} == {
        1: "column 'text' is int",
        2: "is text",
        3: "is null",
        5: "column 'text' is null",
    }


@settings(deadline=None)
@given(st.lists(JSON), st.sampled_from([None, 1]), st.integers(1, 40))
def test_a_list_of_json_is_taken_apart_as_json_loads_does(elements: list[Any], indent: int | None, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_BLOCK", block)
        path = Path(folder, "a.json")
        path.write_text(json.dumps(elements, indent=indent, ensure_ascii=False) + "\n", "utf-8")
        file = json_array.JsonArrayFile(str(path), path, "json array", None)
        assert [json.loads(element) for run in file._runs(1) for element in run] == elements


def test_sizes_of_rows_are_those_of_their_values_and_not_of_the_memory_behind() -> None:
    batch = TABLE.combine_chunks().to_batches()[0]
    whole = row_sizes(batch)
    of_text, of_numbers, of_kind, of_null = len("I ride bike 1 on"), 8 + 8, len("k1"), 8
    assert whole[1] == 1 + of_text + of_numbers + len(b"x") + of_null + len("a") + of_kind
    np.testing.assert_array_equal(whole[7:90], row_sizes(batch.slice(7, 83)))
    np.testing.assert_array_equal(whole, np.concatenate([row_sizes(batch.slice(row, 1)) for row in range(ROWS)]))


# ------------------------------------------------------------------------------------------- data sets and their splits


def test_objects_are_read_as_they_are_whatever_their_format() -> None:
    data = datasets.Dataset(TABLE)
    some = data.select(range(10, 0, -2)).with_format("torch")
    assert [row["id"] for row in read(some)] == [10, 8, 6, 4, 2]
    assert read(data.to_iterable_dataset()) == TABLE.to_pylist()
    shown = datasets.IterableDataset.from_generator(lambda: iter(PLAIN.to_pylist()))
    assert read(shown) == PLAIN.to_pylist()


def test_a_data_set_is_known_again_and_another_is_not(tmp_path: Path) -> None:
    data = datasets.Dataset(TABLE)
    marks = open_sources([data]).fingerprint()
    assert open_sources([data]).same_as(json.loads(json.dumps(marks))) == []
    (words,) = open_sources([data.select(range(5))]).same_as(marks)
    assert "rows 300 before, 5 now" in words
    stream = data.to_iterable_dataset().shuffle(seed=3)
    marks = open_sources([stream]).fingerprint()
    assert len(list(stream)) == ROWS
    assert open_sources([data.to_iterable_dataset().shuffle(seed=3)]).same_as(marks) == []
    assert open_sources([stream]).same_as(marks) == []
    (words,) = open_sources([data.to_iterable_dataset().shuffle(seed=4)]).same_as(marks)
    assert "fingerprint" in words
    data.save_to_disk(tmp_path / "set")
    sources = open_sources([tmp_path / "set"])
    marks = sources.fingerprint()
    assert open_sources([tmp_path / "set"]).same_as(marks) == []
    (file,) = (tmp_path / "set").glob("*.arrow")
    os.utime(file, (1, 1))
    with pytest.raises(ValueError, match="changed while it was read"):
        sources.check_unchanged()


def test_what_datasets_noted_about_a_column_is_kept(tmp_path: Path) -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    for inputs in ([data], [tmp_path / "a.parquet"], [data, tmp_path / "a.parquet"]):
        kept = datasets.Features.from_arrow_schema(open_sources(inputs).schema)
        assert kept == datasets.Features({"label": features["label"]})
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "b.parquet")
    assert not open_sources([data, tmp_path / "b.parquet"]).schema.metadata


def test_of_several_splits_one_has_to_be_chosen(tmp_path: Path) -> None:
    data = datasets.Dataset(PLAIN)
    datasets.DatasetDict(train=data, test=data.select([7])).save_to_disk(tmp_path / "set")
    with pytest.raises(ValueError, match=r"(?s)has several splits.*train, test.*dataset_split=\"train\""):
        open_sources([tmp_path / "set"])
    assert len(read(tmp_path / "set", dataset_split="train")) == ROWS
    assert [row["id"] for row in read(tmp_path / "set", dataset_split="test")] == [7]
    assert len(read(tmp_path / "set", dataset_split="all")) == ROWS + 1
    with pytest.raises(ValueError, match=r"has no split 'tset'"):
        open_sources([tmp_path / "set"], dataset_split="tset")


def lines(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    return folder


def test_a_folder_is_its_data_files_in_order(tmp_path: Path) -> None:
    folder = lines(tmp_path / "f", "b.txt", "a.txt", "sub/c.txt", ".hidden.txt", "README.md", "x.png", "sub/deep/0.txt")
    names = ["a.txt", "b.txt", "sub/c.txt", "sub/deep/0.txt"]
    assert [row["text"] for row in read(folder)] == names
    assert open_sources([folder]).names == [f"{folder}/{name}" for name in names]
    assert [row["text"] for row in read(f"{folder}/*.txt")] == names[:2]
    assert [row["text"] for row in read(f"{folder}/**/*.txt")] == names


def test_a_folder_whose_files_are_splits_is_refused_until_one_is_chosen(tmp_path: Path) -> None:
    folder = lines(tmp_path / "f", "test/0.txt", "train-00.txt", "train-01.txt", "contest.txt")
    with pytest.raises(ValueError, match=r"(?s)several splits.*train, test"):
        open_sources([folder])
    assert [row["text"] for row in read(folder, dataset_split="train")] == ["train-00.txt", "train-01.txt"]
    assert len(read(folder, dataset_split="all")) == 4


def test_a_folder_that_describes_itself_is_read_as_it_says(tmp_path: Path) -> None:
    folder = lines(tmp_path, "data/a.txt", "data/b.txt", "notes.txt")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: words\n  data_files:\n  - split: train\n    path: data/a.txt\n"
        "  - split: dev\n    path: data/b.txt\n---\n"
    )
    assert [row["text"] for row in read(folder, dataset_split="dev")] == ["data/b.txt"]
    with pytest.raises(ValueError, match=r"(?s)several splits.*train, dev"):
        open_sources([folder])
    with pytest.raises(ValueError, match=r"(?s)cannot be loaded by datasets.*'nope' not found.*dataset_config"):
        open_sources([folder], dataset_config="nope")


def test_a_folder_that_says_how_it_is_to_be_read_is_read_by_datasets(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("text;n\na,b;1\n")
    (tmp_path / "README.md").write_text("---\nconfigs:\n- config_name: a\n  sep: ';'\n  data_files: c.csv\n---\n")
    assert read(tmp_path) == [{"text": "a,b", "n": 1}]
    marks = open_sources([tmp_path]).fingerprint()
    assert open_sources([tmp_path]).same_as(marks) == []
    (tmp_path / "c.csv").write_text("text;n\na,b;2\n")
    (words,) = open_sources([tmp_path]).same_as(marks)
    assert "c.csv: 13 bytes with another content" in words


def test_a_data_set_by_name_is_taken_from_the_cache_where_the_hub_is_not_to_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    sources = open_sources(["somebody/bikes"])
    assert sources.names == ["somebody/bikes (train)"]
    assert rows_in(sources, sources.tasks(1000)) == PLAIN.to_pylist()
    (mark,) = sources.fingerprint()
    assert (mark["split"], mark["commit"], mark["rows"]) == ("train", commit, ROWS)


def test_a_data_set_by_name_is_streamed_where_the_hub_may_be_asked(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = datasets.load_dataset_builder(
        "parquet", data_files={"a": [str(stored / "a.parquet")]}, cache_dir=tmp_path
    )
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, config: builder)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    sources = open_sources(["somebody/bikes"], columns=["id"])
    assert rows_in(sources, sources.tasks(1000)) == PLAIN.to_pylist()
    assert sources.size is None
    assert sources.fingerprint()[0]["commit"] == builder.hash


# -------------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"PAR1 and then nothing", r"a\.parquet cannot be read as Parquet: it is cut off"),
        ("a.arrow", b"hello world", r"a\.arrow cannot be read as Arrow"),
        ("a.csv", b"id;text\n1;a\n", r"(?s)a\.csv has no commas.*semicolons.*sep=\";\""),
        ("a.csv", b"id\ttext\n1\ta\n", r"(?s)a\.csv has no commas.*tabs.*\.tsv"),
        ("a.json", b'[{"text": "a"}, {"text": "b"', r"a\.json is a list of JSON that cannot be read beyond row 1"),
        ("a.json", b'[{"text": "a"}, {"text" "b"}]', r"(?s)beyond row 1.*Expecting ':' delimiter"),
        ("a.json", b'[{"text": "a"}] {}', r"(?s)beyond row 1.*behind the end"),
        ("a.txt.gz", gzip.compress(b"a\n" * 99999)[:-20], r"a\.txt\.gz cannot be read as a whole gzip file"),
        ("a.csv.gz", gzip.compress(b"text\n" * 99999)[:-20], r"a\.csv\.gz cannot be read"),
        ("a.jsonl.zst", b'{"text": "a"}\n', r"a\.jsonl\.zst cannot be read as a whole zstd file"),
        ("a.txt.xz", b"hello", r"a\.txt\.xz cannot be read as a whole xz file"),
        ("a.parquet.gz", b"", r"(?s)parquet files are compressed inside.*gunzip"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


def test_a_parquet_file_that_is_cut_off_or_damaged_inside_is_refused_by_name(stored: Path, tmp_path: Path) -> None:
    content = (stored / "a.parquet").read_bytes()
    for spoilt in (content[:-100], content[:200] + bytes(2000) + content[2200:]):
        (tmp_path / "spoilt.parquet").write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"spoilt\.parquet cannot be read as Parquet"):
            read(tmp_path / "spoilt.parquet")


def test_wrong_columns_are_refused_with_the_right_ones(stored: Path, tmp_path: Path) -> None:
    path = stored / "a.parquet"
    with pytest.raises(ValueError, match=r"(?s)a\.parquet has no column 'body'.*'text', 'id'"):
        open_sources([path], text_column="body")
    with pytest.raises(TypeError, match=r"(?s)column 'id' of .*a\.parquet is int64, expected text.*'text', 'kind'"):
        open_sources([path], text_column="id")
    with pytest.raises(ValueError, match=r"(?s)has no column 'lang'.*fix: columns=\['id', 'day'"):
        open_sources([path], columns=["lang"])
    with pytest.raises(ValueError, match=r"(?s)a\.txt has no column 'id'.*columns=\[\]"):
        open_sources([path, lines(tmp_path, "a.txt") / "a.txt"])
    with pytest.raises(ValueError, match=r"a\.txt has no column 'question'"):
        open_sources([tmp_path / "a.txt"], text_pair_column="question")
    pq.write_table(pa.table({"text": ["a"], "id": ["one"]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"column 'id' is string in .*b\.parquet, but int64 in the inputs before it"):
        open_sources([path, tmp_path / "b.parquet"], columns=["id"])
    assert len(read(path, tmp_path / "b.parquet", tmp_path / "a.txt", columns=[])) == ROWS + 2


def test_columns_of_the_same_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,n,n\na,1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv has several columns 'n'"):
        open_sources([tmp_path / "a.csv"])
    assert read(tmp_path / "a.csv", columns=[]) == [{"text": "a"}]


def test_what_names_nothing_is_refused(tmp_path: Path) -> None:
    lines(tmp_path, "corpus.txt", "empty/notes.md")
    with pytest.raises(FileNotFoundError, match=r"(?s)there is no file .*corpsu\.txt.*fix: .*corpus\.txt"):
        open_sources([f"{tmp_path}/corpsu.txt"])
    with pytest.raises(FileNotFoundError, match=r"no file matches"):
        open_sources([f"{tmp_path}/*.csv"])
    with pytest.raises(ValueError, match=r"(?s)empty has no data files.*format='text'"):
        open_sources([tmp_path / "empty"])
    assert len(read(tmp_path / "empty", format="text")) == 1
    with pytest.raises(ValueError, match=r"(?s)'nobody/nothing' is no file here, and no data set.*HF_HUB_OFFLINE"):
        open_sources(["nobody/nothing"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"(?s)pipe is no file that can be read twice"):
        open_sources([tmp_path / "pipe"])


def test_settings_and_inputs_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path, "a.txt") / "a.txt"
    with pytest.raises(ValueError, match=r"(?s)format must be one of 'text', 'json'.*'jsn'.*format='json'"):
        open_sources([path], format="jsn")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"split must be one of 'lines', 'paragraphs'"):
        open_sources([path], split="words")
    with pytest.raises(ValueError, match=r"only a folder or a data set has splits"):
        open_sources([path], dataset_split="train")
    with pytest.raises(ValueError, match=r"inputs are a list"):
        open_sources(str(path))
    with pytest.raises(TypeError, match=r"(?s)an input is a path.*list.*Dataset\.from_dict"):
        open_sources([["I ride"]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"(?s)a dictionary of splits is several data sets.*data\['train'\]"):
        open_sources([datasets.DatasetDict(train=datasets.Dataset(PLAIN))])  # type: ignore[list-item]


# ------------------------------------------------------------------------------------------- streams of Python's values


def stream_of(*rows: dict[str, Any], **options: Any) -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(lambda: iter(rows), **options)


@pytest.mark.parametrize(
    "rows",
    [
        [{"text": "a", "x": 1}, {"text": None, "x": 2}],
        [{"text": "a", "x": 1}, {"text": "b", "x": 2.5}],
        [{"text": "a", "x": None}, {"text": "b", "x": ["one"]}, {"text": "c", "x": [[]][0]}],
        [{"text": "a", "x": {"y": 1}}, {"text": "b", "x": {"y": None}}],
    ],
)
def test_rows_of_a_generator_may_lack_values_and_are_read_together(rows: list[dict[str, Any]]) -> None:
    assert read(stream_of(*rows)) == rows


@pytest.mark.parametrize("stated", ["features", "cast"])
def test_rows_of_a_generator_take_the_types_that_were_stated(stated: str) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "x": 1}, {"text": None}, {"text": "c", "x": 2.5}] * 40
    features = datasets.Features({"text": datasets.Value("string"), "x": datasets.Value("float64")})
    stream = stream_of(*rows, features=features) if stated == "features" else stream_of(*rows).cast(features)
    assert read(stream) == [{"x": None, **row} for row in rows]


def test_a_column_that_later_rows_lack_is_null_in_them() -> None:
    found = read(stream_of(*[{"text": "a", "x": 1}] * 70, *[{"text": "b"}] * 70))
    assert [row["x"] for row in found] == [1] * 70 + [None] * 70


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"text": "a", "x": 1}, {"text": "b", "x": "two"}],
            r"(?s)column 'x' holds values of several kinds.*features=",
        ),
        ([{"text": "a", "x": 1}] * 70 + [{"text": "b", "x": 2.5}], r"(?s)column 'x' is double in rows from 64.*int64"),
        ([{"text": "a"}] * 70 + [{"text": "b", "late": 2}], r"(?s)rows from 64 on have a column 'late'.*columns=\[\]"),
        ([{"text": "a", "x": None}] * 70 + [{"text": "b", "x": 2}], r"'x' is int64 in rows from 64"),
    ],
)
def test_rows_of_a_generator_that_do_not_agree_are_refused_with_the_way_out(
    rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(stream_of(*rows))
    assert len(read(stream_of(*rows), columns=[])) == len(rows)


def test_a_data_set_with_a_transform_is_refused_and_not_read_without_it() -> None:
    data = datasets.Dataset.from_dict({"text": ["a"]}).with_transform(lambda batch: batch)
    with pytest.raises(ValueError, match=r"(?s)a transform is applied.*data\.with_format\(None\)\.map"):
        open_sources([data])


# --------------------------------------------------------------------------------- what is refused when it is opened


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.RunEndEncodedArray.from_arrays([1], [1]),
        pa.array([{}], pa.struct([])),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.array([{"a": [{}]}], pa.struct([("a", pa.list_(pa.struct([])))])),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16], pa.binary(16))),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_shards_cannot_hold_is_refused_when_it_is_opened(tmp_path: Path, column: pa.Array) -> None:
    table = pa.table({"text": ["a"], "odd": column, "id": [1]})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(TypeError, match=r"(?s)column 'odd' is of a kind that.*columns=\['id'\]"):
        open_sources([tmp_path / "a.arrow"])
    assert read(tmp_path / "a.arrow", columns=["id"]) == [{"text": "a", "id": 1}]


def test_a_text_column_of_bytes_is_refused_with_a_way_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [b"a"], "id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(TypeError, match=r"(?s)is binary, expected text.*cast_column\(\"text\", Value\(\"string\"\)\)"):
        open_sources([tmp_path / "a.parquet"])


def test_one_column_named_twice_and_columns_as_one_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "id": 1}\n')
    with pytest.raises(ValueError, match=r"(?s)pair stand in two columns.*leave text_pair_column out"):
        open_sources([tmp_path / "a.jsonl"], text_pair_column="text")
    with pytest.raises(TypeError, match=r"(?s)columns are a list.*columns=\['id'\]"):
        open_sources([tmp_path / "a.jsonl"], columns="id")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{\n  "text": "a",\n  "b": {\n    "c": 1\n  }\n}', r"(?s)goes over several lines.*jq -c '\.' .*a\.json"),
        ('{"text": "a",\n "b": 1}\n{"text": "b",\n "b": 1}', r"goes over several lines"),
        ('{\n"data": [\n{"text": "a"},\n{"text": "b"}\n]}', r"(?s)goes over several lines.*jq -c '\.data\[\]'"),
        (
            '{"version": 1, "data": [{"text": "a"}]}',
            r"(?s)no column 'text', but in the list 'data'.*jq -c '\.data\[\]'",
        ),
    ],
)
def test_json_that_is_one_object_is_refused_with_the_command_that_makes_it_lines(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        open_sources([tmp_path / "a.json"])


@pytest.mark.parametrize("content", ['{"text": "a", "data": [{"text": "b"}]}', '{"text": 1\n{"text": "a"}', "{\n[1]\n"])
def test_json_lines_that_only_look_alike_are_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    assert len(read(tmp_path / "a.json")) == content.count("\n") + (not content.endswith("\n"))


# --------------------------------------------------------------------------------------------------- links and splits


def test_a_folder_that_links_lead_to_again_is_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    (folder / "a.txt").write_text("a\n")
    (folder / "below" / "b.txt").write_text("b\n")
    for link, target in ((folder / "0", folder), (folder / "below" / "up", folder), (folder / "z", folder / "below")):
        link.symlink_to(target, target_is_directory=True)
    (folder / "c.txt").symlink_to(folder / "a.txt")  # a link to a file is a file
    assert [row["text"] for row in read(folder)] == ["a", "a", "b"]


def test_a_pattern_that_follows_a_link_to_a_folder_above_reads_it_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "0").symlink_to(tmp_path, target_is_directory=True)
    assert read(f"{tmp_path}/**/*.txt") == [{"text": "a"}]


def test_a_link_to_nothing_is_named_with_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("nowhere.txt")
    for path in (tmp_path, tmp_path / "a.txt"):
        with pytest.raises(FileNotFoundError, match=r"(?s)a\.txt is a link to a file that is not there.*nowhere\.txt"):
            open_sources([path])


def test_a_file_that_is_a_split_is_asked_about_when_others_are_there(tmp_path: Path) -> None:
    (tmp_path / "part-0.txt").write_text("a\n")
    (tmp_path / "test.txt").write_text("b\n")
    with pytest.raises(ValueError, match=r"(?s)several splits.*train \(part-0\.txt, \.\.\.\), test"):
        open_sources([tmp_path])
    found = {split: [row["text"] for row in read(tmp_path, dataset_split=split)] for split in ("train", "test", "all")}
    assert found == {"train": ["a"], "test": ["b"], "all": ["a", "b"]}
