"""Tables and data sets as sources: the same rows however they are stored, in bounded memory, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_posenc import jobs
from hf_posenc._common.arrow import row_sizes
from hf_posenc.jobs import read_documents

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


KINDS: dict[str, Callable[[Path], Any]] = {
    "a.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=70),
    "file.arrow": as_arrow,
    "stream.arrow": as_arrow,
    "saved": lambda path: datasets.Dataset(TABLE).save_to_disk(path, num_shards=2),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same rows in every kind of table."""
    folder = tmp_path_factory.mktemp("tables")
    datasets.disable_progress_bars()
    for name, make in KINDS.items():
        make(folder / name)
    return folder


def open_sources(inputs: Any, **options: Any) -> Any:
    """Open inputs with options given by keyword."""
    return jobs.open_sources(inputs, jobs.Options(**options))


def rows_of(sources: Any, shard_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    """All rows, the texts of bad ones empty."""
    rows: list[dict[str, Any]] = []
    for task in sources.tasks(shard_bytes):
        for some in read_documents(task, sources.columns):
            carried = some.carried.to_pylist() if some.carried.num_columns else [{}] * len(some.numbers)
            texts = [dict(zip(sources.columns.texts, pair, strict=True)) for pair in zip(*some.texts, strict=True)]
            rows += [{**text, **more} for text, more in zip(texts, carried, strict=True)]
    return rows


def read(*inputs: Any, shard_bytes: int = 1 << 20, **options: Any) -> list[dict[str, Any]]:
    return rows_of(open_sources(inputs, **options), shard_bytes)


# ---------------------------------------------------------------------------------------------------------- the rows


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_table_gives_its_rows_with_their_types(stored: Path, name: str) -> None:
    sources = open_sources([stored / name], columns=ALL)
    assert rows_of(sources, 2000) == TABLE.to_pylist()
    expected = TABLE
    if name == "saved":  # datasets has no dictionaries
        expected = expected.set_column(5, "kind", expected["kind"].cast(pa.string()))
    assert sources.columns.carried == expected.schema.remove(0).remove_metadata()
    assert sources.size is not None
    sources = open_sources([stored / name])
    assert rows_of(sources) == TABLE.select(["text"]).to_pylist()
    assert sources.notes[0].startswith("columns that are not carried: id, day, picture, tags, kind; ")
    assert read(stored / name, columns=["id:string"])[7]["id"] == "7"


@settings(max_examples=10)
@given(shard_bytes=st.integers(100, 20_000), data=st.data())
@pytest.mark.parametrize("name", [*KINDS, "objects"])
def test_any_shards_of_a_table_may_be_finished_and_the_others_are_the_same_bytes(
    stored: Path, name: str, shard_bytes: int, data: st.DataObject
) -> None:
    table = datasets.Dataset(TABLE)
    inputs: list[Any] = [stored / name, stored / "a.parquet"]
    if name == "objects":
        inputs = [table, table.to_iterable_dataset(num_shards=3)]
    sources = open_sources(inputs, columns=["id"])
    tasks = list(sources.tasks(shard_bytes))
    assert tasks[-1].ends == (len(sources.names), 0, 0)
    done = data.draw(st.sets(st.sampled_from(range(len(tasks)))))
    again = open_sources(inputs, columns=["id"]).tasks(shard_bytes, {shard: tasks[shard].ends for shard in done})
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
    ((rows,),) = (list(read_documents(task, sources.columns)) for task in sources.tasks(1000))
    assert rows.texts == [["I ride", "", "bike", "I ride"]]
    assert rows.bad == {1: "column 'text' is null"}
    assert rows.numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.string()), pa.bool_(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_a_part_holds_nothing_of_the_rows_beside_it(tmp_path: Path, kind: pa.DataType) -> None:
    def payload(name: str, neighbor: str) -> bytes:
        texts = pa.array([neighbor, "she", None, "rides", neighbor])
        notes: Any = texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts
        if kind == pa.bool_():
            notes = pa.array([neighbor == "secret", True, None, False, neighbor == "secret"])
        if kind == pa.list_(pa.string()):
            notes = pa.array([[neighbor], ["she"], None, ["rides"], [neighbor]])
        with pa.ipc.new_file(tmp_path / name, pa.schema([("text", pa.string()), ("note", kind)])) as file:
            file.write_table(pa.table({"text": texts, "note": notes.cast(kind)}))
        sources = open_sources([tmp_path / name], columns=["note"])
        return next(sources.tasks(12, {0: (0, 0, 1)})).parts[0].payload

    assert b"secret" not in payload("a.arrow", "secret")
    assert payload("a.arrow", "secret") == payload("b.arrow", "others")


# ------------------------------------------------------------------------------------------------------ bounded memory

LONG = "she rides " * 2000
REPEATED = pa.table(  # 80 MB of text, stored once
    {"text": pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), [LONG]), "id": range(4000)}
)


def most_allocated(path: Path, **options: Any) -> tuple[int, int]:
    """The rows of a file, and the bytes that Arrow holds at most while it is read."""
    before, rows, most = pa.total_allocated_bytes(), 0, 0
    sources = open_sources([path], **options)
    for task in sources.tasks(1 << 20):
        rows += sum(len(some.numbers) for some in read_documents(task, sources.columns))
        most = max(most, pa.total_allocated_bytes() - before)
    return rows, most


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "carried.parquet"])
def test_a_text_stored_once_for_thousands_of_rows_does_not_fill_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    options = {}
    if name == "a.arrow":
        with pa.ipc.new_file(path, REPEATED.schema) as file:
            file.write_table(REPEATED)
    elif name == "a.parquet":
        pq.write_table(REPEATED, path, store_schema=False)  # columns of strings
    else:
        carried = REPEATED.rename_columns(["note", "id"]).append_column("text", REPEATED["text"])
        pq.write_table(carried, path, store_schema=False)
        options = {"columns": ["note"]}
    if path.suffix == ".parquet":
        assert pq.read_schema(path).field("text").type == pa.string()
    assert path.stat().st_size < 200_000
    rows, most = most_allocated(path, **options)
    assert rows == 4000
    assert most < 24 << 20


def test_a_large_row_group_is_read_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "one_group.parquet"
    texts = pa.array([f"{number:06} " + "x" * 500 for number in range(40_000)])
    pq.write_table(pa.table({"text": texts}), path, row_group_size=40_000, use_dictionary=False, compression="none")
    rows, most = most_allocated(path)
    assert rows == 40_000
    assert most < 16 << 20


def test_a_row_larger_than_the_limit_is_refused_by_file_and_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b" * 3_000_000]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: one row is larger than 2 MiB"):
        list(open_sources([tmp_path / "a.parquet"]).tasks(1000, longest=2 << 20))


def test_texts_of_which_some_are_stored_once_are_read_as_they_were(tmp_path: Path) -> None:
    texts = ["b\xe9"] * 50 + [f"{number}" + LONG for number in range(200)] + [LONG] * 50
    table = pa.table({"text": texts, "note": pa.array(texts, pa.large_string()), "raw": pa.array(texts, pa.binary())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=170, data_page_size=10_000)
    sources = open_sources([tmp_path / "a.parquet"], columns=["note", "raw"])
    assert rows_of(sources, 300_000) == table.to_pylist()
    assert sources.columns.carried.field("note").type == pa.large_string()


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
    assert [row["id"] for row in read(some, columns=["id"])] == [10, 8, 6, 4, 2]
    assert read(data.to_iterable_dataset(), columns=ALL) == TABLE.to_pylist()


def test_a_data_set_is_recognized_and_another_is_not(tmp_path: Path) -> None:
    def differences(given: Any, before: Any) -> list[str]:
        marks, stamps = before.fingerprints, before.stamps
        shards = {0: {"begins": [0, 0, 0], "ends": [1, 0, 0], "digest": next(before.tasks(1 << 20)).digest()}}
        return open_sources([given]).differences(json.loads(json.dumps(marks)), stamps, shards, 1 << 20)

    data = datasets.Dataset(TABLE)
    assert differences(data, open_sources([data])) == []
    (words,) = differences(data.select(range(5)), open_sources([data]))
    assert "rows 300 before, 5 now" in words
    stream = data.to_iterable_dataset().shuffle(seed=3)
    assert len(list(stream)) == ROWS
    for same in (stream, data.to_iterable_dataset().shuffle(seed=3)):
        assert differences(same, open_sources([stream])) == []
    (words,) = differences(data.to_iterable_dataset().shuffle(seed=4), open_sources([stream]))
    assert "fingerprint" in words
    data.save_to_disk(tmp_path / "set")
    sources = open_sources([tmp_path / "set"])
    assert differences(tmp_path / "set", sources) == []
    (file,) = (tmp_path / "set").glob("*.arrow")
    os.utime(file, (1, 1))
    with pytest.raises(ValueError, match="changed while it was read"):
        sources.check_unchanged()


def test_features_of_carried_columns_are_kept_where_all_inputs_agree(tmp_path: Path) -> None:
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    for inputs in ([data], [tmp_path / "a.parquet"], [data, tmp_path / "a.parquet"]):
        kept = datasets.Features.from_arrow_schema(open_sources(inputs, columns=["label"]).columns.carried)
        assert kept == datasets.Features({"label": label})
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "b.parquet")
    assert not open_sources([data, tmp_path / "b.parquet"], columns=["label"]).columns.carried.metadata
    assert not open_sources([data], columns=["label:string"]).columns.carried.metadata


def test_of_several_splits_one_must_be_chosen(tmp_path: Path) -> None:
    data = datasets.Dataset(PLAIN)
    splits = datasets.DatasetDict(train=data, test=data.select([7]))
    splits.save_to_disk(tmp_path / "set")
    streams = datasets.IterableDatasetDict({name: split.to_iterable_dataset() for name, split in splits.items()})
    for source in (tmp_path / "set", splits, streams):
        with pytest.raises(ValueError, match=r"(?s)has several splits.*train, test.*split=\"train\" \(--split train\)"):
            open_sources([source])
        found = {split: len(read(source, split=split)) for split in ("train", "test", "train+test", "all")}
        assert found == {"train": ROWS, "test": 1, "train+test": ROWS + 1, "all": ROWS + 1}
        with pytest.raises(ValueError, match=r"(?s)has no split 'tset'.*its splits are train, test"):
            open_sources([source], split="tset")
    assert open_sources([splits], split="all").names == ["DatasetDict (train)", "DatasetDict (test)"]
    assert open_sources([{"test": data}]).names == ["dict (test)"]
    data.save_to_disk(tmp_path / "one")
    with pytest.raises(ValueError, match=r"saved without splits"):
        open_sources([tmp_path / "one"], split="train")


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
    sources = open_sources(["somebody/bikes"], columns=["id"])
    assert sources.names == ["somebody/bikes (train)"]
    assert rows_of(sources) == PLAIN.to_pylist()
    (mark,) = sources.fingerprints
    assert (mark["split"], mark["commit"], mark["rows"]) == ("train", commit, ROWS)


def test_a_name_is_streamed_from_the_hub(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a": [str(stored / "a.parquet")]}
    builder = datasets.load_dataset_builder("parquet", data_files=files, cache_dir=tmp_path)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda name, config: builder)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    sources = open_sources(["somebody/bikes"], columns=["id"])
    assert rows_of(sources) == PLAIN.to_pylist()
    assert sources.size is None
    assert sources.fingerprints[0]["commit"] == builder.hash


# ------------------------------------------------------------------------------------------- streams of Python's values


def stream_of(*rows: dict[str, Any], **options: Any) -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(lambda: iter(rows), **options)


def test_texts_of_a_generator_are_read_whatever_its_other_columns_hold() -> None:
    rows = [{"text": "a", "x": 1}] * 70 + [{"text": None, "x": "two"}] + [{"text": "b", "late": 2}] * 70
    assert [row["text"] for row in read(stream_of(*rows), columns=[])] == [row["text"] or "" for row in rows]
    with pytest.raises(TypeError, match=r"(?s)column 'text' of IterableDataset must be text.*row 1 is int"):
        read(stream_of({"text": "a"}, {"text": 7}))


@pytest.mark.parametrize("stated", ["features", "cast"])
def test_columns_of_a_generator_are_carried_with_the_types_that_it_states(stated: str) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "x": 1}, {"text": "b"}, {"text": "c", "x": 2.5}] * 40
    features = datasets.Features({"text": datasets.Value("string"), "x": datasets.Value("float64")})
    stream = stream_of(*rows, features=features) if stated == "features" else stream_of(*rows).cast(features)
    assert read(stream, columns=["x"]) == [{"x": None, **row} for row in rows]
    with pytest.raises(ValueError, match=r"(?s)does not state the types.*columns=\['x'\].*data\.cast\(Features"):
        open_sources([stream_of(*rows)], columns=["x"])


# -------------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["I ride"], TypeError, r"(?s)an input must be a path.*list.*Dataset\.from_dict"),
        ({"train": ["I ride"]}, TypeError, r"(?s)an input must be a path.*list"),
        (
            datasets.Dataset(PLAIN).with_transform(lambda batch: batch),
            ValueError,
            r"(?s)with a transform.*data\.with_format\(None\)\.map",
        ),
        ("nobody/nothing", ValueError, r"(?s)'nobody/nothing' is not a local file, and was not found.*HF_HUB_OFFLINE"),
    ],
)
def test_what_is_no_data_set_is_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_sources([given])


@pytest.mark.parametrize(
    ("name", "content"), [("a.parquet", b"PAR1 and then nothing"), ("a.arrow", b"hello world"), ("a.parquet", b"")]
)
def test_a_broken_table_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} cannot be read as \w+: it is cut off"):
        open_sources([tmp_path / name])


def test_a_parquet_file_that_is_damaged_inside_is_refused_by_name(stored: Path, tmp_path: Path) -> None:
    content = (stored / "a.parquet").read_bytes()
    for spoilt in (content[:-100], content[:200] + bytes(2000) + content[2200:]):
        (tmp_path / "spoilt.parquet").write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"spoilt\.parquet cannot be read as Parquet"):
            read(tmp_path / "spoilt.parquet", columns=["id"])


def test_wrong_columns_are_refused_with_the_right_ones(stored: Path, tmp_path: Path) -> None:
    path = stored / "a.parquet"
    with pytest.raises(ValueError, match=r"(?s)a\.parquet has no column 'body'.*'text', 'id'"):
        open_sources([path], text_column="body")
    with pytest.raises(TypeError, match=r"(?s)column 'id' of .*a\.parquet is int64, expected text.*'text', 'kind'"):
        open_sources([path], text_column="id")
    with pytest.raises(ValueError, match=r"(?s)has no column 'lang'.*fix: columns=\['id', 'day'"):
        open_sources([path], columns=["lang"])
    with pytest.raises(ValueError, match=r"(?s)column 'kind' is \w+, expected int64.*columns=\['kind:string'\]"):
        read(path, columns=["kind:int64"])
    pq.write_table(pa.table({"text": [b"a"]}), tmp_path / "a.parquet")
    with pytest.raises(TypeError, match=r"(?s)is binary, expected text.*cast_column\(\"text\", Value\(\"string\"\)\)"):
        open_sources([tmp_path / "a.parquet"])


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
def test_a_column_that_shards_cannot_store_is_refused_when_it_is_opened(tmp_path: Path, column: pa.Array) -> None:
    table = pa.table({"text": ["a"], "odd": column, "id": [1]})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(TypeError, match=r"(?s)column 'odd' has a type that.*'odd:string'"):
        open_sources([tmp_path / "a.arrow"], columns=["odd"])
    assert read(tmp_path / "a.arrow", columns=["id"]) == [{"text": "a", "id": 1}]
