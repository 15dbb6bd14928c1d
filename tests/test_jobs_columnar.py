"""Parquet and Arrow as sources: what a small file of much text costs, where reading goes on, and how much there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from hf_posenc.jobs.reading.rows import Reading, rows_of
from hf_posenc.jobs.sources import open_sources, tables

LONG = "she rides " * 2000
REPEATED = pa.table({"text": [LONG] * 4000, "id": list(range(4000))})


def ticked(path: Path, **options: Any) -> tuple[int, int | None]:
    """The bytes of all tasks of a file, and what was said of them before."""
    sources = open_sources([path], **options)
    return sum(task.size for task in sources.tasks(1 << 20)), sources.size


# ------------------------------------------------------------------------------------------- texts stored once each


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "carried.parquet"])
def test_a_text_stored_once_for_thousands_of_rows_does_not_fill_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.arrow":
        coded = REPEATED.set_column(0, "text", REPEATED["text"].dictionary_encode())
        with pa.ipc.new_file(path, coded.schema) as file:
            file.write_table(coded)
    else:
        pq.write_table(REPEATED, path)
    options = {"text_column": "text"}
    if name == "carried.parquet":
        pq.write_table(REPEATED.rename_columns(["note", "id"]).append_column("text", REPEATED["text"]), path)
    assert path.stat().st_size < 200_000
    sources = open_sources([path], **options)
    assert sources.size == pytest.approx(80e6 * (2 if name == "carried.parquet" else 1), rel=0.03)
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    seen = most = 0
    for task in sources.tasks(1 << 20):
        seen += sum(rows_of(part, Reading(schema=sources.schema)).table.num_rows for part in task.parts)
        most = max(most, pa.total_allocated_bytes() - before)
    assert seen == 4000
    assert most < 24 << 20, pool.backend_name


def test_texts_of_which_some_are_stored_once_are_read_as_they_were(tmp_path: Path) -> None:
    texts = [LONG, None, "b\xe9"] * 50 + [f"{number}" + LONG for number in range(200)] + [None] * 9 + [LONG] * 50
    table = pa.table({"text": texts, "note": pa.array(texts, pa.large_string()), "raw": pa.array(texts, pa.binary())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=170, data_page_size=10_000)
    sources = open_sources([tmp_path / "a.parquet"])
    parts = [part for task in sources.tasks(300_000) for part in task.parts]
    rows = [rows_of(part, Reading(schema=sources.schema)).table for part in parts]
    assert pa.concat_tables(rows).to_pydict() == table.to_pydict()
    assert sources.schema.field("note").type == pa.large_string()


def test_a_batch_is_decoded_in_pieces_of_a_few_megabytes() -> None:
    batch = REPEATED.combine_chunks().to_batches()[0]
    pieces = list(tables._pieces(batch))
    assert pa.Table.from_batches(pieces) == REPEATED
    assert max(piece.nbytes for piece in pieces) < tables.BATCH_BYTES + 2 * len(LONG)
    assert list(tables._pieces(batch.slice(0, 0))) == []


# ----------------------------------------------------------------------------------------------------------- going on


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_shard_far_inside_a_row_group_is_made_again_the_same(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    table = pa.table({"text": [f"row {row} " + "x" * 600 for row in range(20_000)]})
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=20_000)
    else:
        pyarrow.feather.write_feather(table, path, chunksize=9000)
    tasks = list(open_sources([path]).tasks(1 << 20))
    for missing in (0, len(tasks) // 2, len(tasks) - 1):  # the middle is several batches into the group
        done = {task.shard: task.ends for task in tasks if task.shard != missing}
        assert list(open_sources([path]).tasks(1 << 20, done)) == [tasks[missing]]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.string()), pa.bool_(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_a_part_holds_nothing_of_the_rows_beside_it(tmp_path: Path, kind: pa.DataType) -> None:
    def written(name: str, neighbour: str) -> bytes:
        texts = pa.array([neighbour, "she", None, "rides", neighbour])
        held: Any = texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts
        if kind == pa.bool_():
            held = pa.array([neighbour == "secret", True, None, False, neighbour == "secret"])
        if kind == pa.list_(pa.string()):
            held = pa.array([[neighbour], ["she"], None, ["rides"], [neighbour]])
        held = held.cast(kind)
        with pa.ipc.new_file(tmp_path / name, pa.schema([("text", pa.string()), ("note", kind)])) as file:
            file.write_table(pa.table({"text": texts, "note": held}))
        sources = open_sources([tmp_path / name])
        reader = sources.files[0].reader(0, 1)
        part, _ = reader.take(12, must=True)
        reader.close()
        assert part is not None
        return part.payload

    assert b"secret" not in written("a.arrow", "secret")
    assert written("a.arrow", "secret") == written("b.arrow", "others")


# ------------------------------------------------------------------------------------------------- how much there is


@pytest.mark.parametrize("columns", [None, [], ["id"]])
@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow", "small.feather", "batches.feather"])
def test_what_is_read_of_a_file_is_what_was_said_of_its_size(
    tmp_path: Path, name: str, columns: list[str] | None
) -> None:
    count = 20_000
    texts = [f"{row * 7919 % 9973} rides bike {row}" + "!" * (row * 31 % 97) for row in range(count)]
    table = pa.table({"text": texts, "id": list(range(count)), "tags": [["a" * (row % 7)] * 3 for row in range(count)]})
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(table, path, row_group_size=3000)
    elif name == "stream.arrow":
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, 500)
    elif name == "file.arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, 500)
    else:
        pyarrow.feather.write_feather(table, path, chunksize=700 if name.startswith("b") else None)
    read, said = ticked(path, columns=columns)
    assert said == pytest.approx(read, rel=0.15 if name == "a.parquet" else 0.03)


@pytest.mark.parametrize("columns", [None, [], ["id"]])
@pytest.mark.parametrize("count", [30, 40_000])
@pytest.mark.parametrize("name", ["a.csv", "a.json", "indented.json", "a.jsonl", "a.txt"])
def test_what_is_read_of_a_text_file_is_what_was_said_of_its_size(
    tmp_path: Path, name: str, count: int, columns: list[str] | None
) -> None:
    rows = [
        {"text": f"she\nrides \u00e9 {row}" + "!" * (row * 31 % 47), "id": row, "note": f'"{row}", so\nto say'}
        for row in range(count)
    ]
    path = tmp_path / name
    if name == "a.csv":
        pyarrow.csv.write_csv(pa.Table.from_pylist(rows), path)
    elif name == "a.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name == "a.txt":
        path.write_text("".join(f"{row['id']}\n" for row in rows))
        columns = None
    else:
        path.write_text(json.dumps(rows, indent=2 if name == "indented.json" else None, ensure_ascii=False), "utf-8")
    read, said = ticked(path, columns=columns)
    assert said == pytest.approx(read, rel=0.03)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "text,n\n"), ("a.csv", 'text\n"a'), ("b.json", '[{"text": "a"}, 3]')]
)
def test_a_file_of_few_or_broken_rows_has_a_size_too(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    size = open_sources([tmp_path / name]).size
    assert size is not None
    assert 0 <= size <= 100
