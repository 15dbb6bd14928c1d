"""A corpus read and cut: the tasks of an undisturbed run against those after any interruption, and what is refused."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_posenc.jobs import Progress, encode
from hf_posenc.jobs.reading.rows import Reading, rows_of
from hf_posenc.jobs.sources import Sources, open_sources
from hf_posenc.jobs.sources import lines as lines_module
from hf_posenc.jobs.task import Cursor, Task

Write = Callable[[str, bytes], Path]
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return written


def word_level() -> Tokenizer:
    raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return raw


def all_rows(sources: Sources, tasks: Iterable[Task], text_column: str = "text") -> list[dict[str, Any]]:
    reading = Reading(text_column, None, sources.schema)
    return [row for task in tasks for part in task.parts for row in rows_of(part, reading).table.to_pylist()]


def all_texts(*inputs: Any, shard_bytes: int = 1 << 20, **options: Any) -> list[str | None]:
    sources = open_sources(inputs, **options)
    column = options.get("text_column", "text")
    return [row[column] for row in all_rows(sources, sources.tasks(shard_bytes), column)]


# ------------------------------------------------------------------------------------------------- the cut into tasks

DOCUMENTS = st.lists(st.text(st.sampled_from("aé\0 \r"), max_size=9), max_size=12)


@SAME_FOLDER
@given(st.lists(DOCUMENTS, min_size=1, max_size=4), st.integers(1, 30), st.booleans(), st.data())
@pytest.mark.parametrize("kind", ["lines", "paragraphs", "json", "gz"])
def test_any_shards_may_be_done_already_and_the_others_are_the_same(
    tmp_path: Path, kind: str, corpus: list[list[str]], shard_bytes: int, ends: bool, data: st.DataObject
) -> None:
    paths = []
    for number, documents in enumerate([*corpus, ["the last"]]):
        path = tmp_path / f"{number}.{kind if kind in ('json', 'gz') else 'txt'}"
        lines = [json.dumps({"text": text}) for text in documents] if kind == "json" else documents
        content = ("\n".join(lines) + ("\n" if ends else "")).encode()
        path.write_bytes(gzip.compress(content) if kind == "gz" else content)
        paths.append(path)
    split = "paragraphs" if kind == "paragraphs" else "lines"
    sources = open_sources(paths, split=split)
    tasks = list(sources.tasks(shard_bytes, {}))
    assert [task.shard for task in tasks] == list(range(len(tasks)))
    assert [task.begins for task in tasks] == [Cursor(), *(task.ends for task in tasks[:-1])]
    assert tasks[-1].ends == Cursor(len(paths))
    assert all(task.parts and all(part.payload for part in task.parts) for task in tasks)
    done = data.draw(st.sets(st.sampled_from(range(len(tasks)))))
    again = open_sources(paths, split=split).tasks(shard_bytes, {shard: tasks[shard].ends for shard in done})
    assert list(again) == [task for task in tasks if task.shard not in done]


def test_a_task_holds_as_many_documents_as_fit_and_one_at_least(write: Write) -> None:
    sources = open_sources([write("a.txt", b"aaaa\nb\nc\n" + b"x" * 30 + b"\nd\n"), write("b.txt", b"e\nf")])
    tasks = list(sources.tasks(9))
    assert [b"|".join(part.payload for part in task.parts) for task in tasks] == [
        b"aaaa\nb\nc\n",
        b"x" * 30 + b"\n",
        b"d\n|e\nf",
    ]
    assert [part.first for task in tasks for part in task.parts] == [1, 4, 5, 1]
    assert sum(task.size for task in tasks) == sources.size == 45


def test_a_file_given_twice_is_read_twice(write: Write) -> None:
    path = write("a.txt", b"a\nb\n")
    assert all_texts(path, path) == ["a", "b", "a", "b"]


def test_5000_tiny_files_are_one_task_and_soon_read(tmp_path: Path) -> None:
    for number in range(5000):
        (tmp_path / f"{number:04}.txt").write_bytes(b"I ride\nbike")
    paths = sorted(tmp_path.iterdir())
    start = time.perf_counter()
    sources = open_sources(paths)
    (task,) = sources.tasks(1 << 20)
    texts = [row["text"] for row in all_rows(sources, [task])]
    assert time.perf_counter() - start < 10
    assert texts == ["I ride", "bike"] * 5000


@pytest.mark.parametrize("kind", ["gz", "bz2", "zst", "lz4", "xz"])
def test_a_compressed_file_may_be_of_several_members_and_is_read_in_blocks(tmp_path: Path, kind: str) -> None:
    lines = [f"{number:07}" for number in range(40_000)]
    path = tmp_path / f"a.jsonl.{kind}"
    names = {"gz": "gzip", "zst": "zstd"}
    with path.open("wb") as file:
        for first in (0, 20_000):
            content = "".join(json.dumps({"text": line}) + "\n" for line in lines[first : first + 20_000]).encode()
            if kind == "xz":
                file.write(lzma.compress(content))
            else:
                sink = pa.BufferOutputStream()
                with pa.CompressedOutputStream(sink, names.get(kind, kind)) as stream:
                    stream.write(content)
                file.write(sink.getvalue())
    assert all_texts(path, shard_bytes=100_000) == lines
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=rf"a\.jsonl\.{kind} cannot be read as a whole \w+ file: it is cut off"):
        all_texts(path, shard_bytes=100_000)


# -------------------------------------------------------------------------------------------------------- text and JSON


def test_byte_order_marks_carriage_returns_and_a_missing_last_line_end_are_no_part_of_a_document(write: Write) -> None:
    path = write("a.txt", b"\xef\xbb\xbfI ride\r\nbike")
    assert all_texts(path) == all_texts(path, shard_bytes=1) == ["I ride", "bike"]
    path = write("a.jsonl", b'\xef\xbb\xbf{"text": "I ride"}\r\n{"text": "bike"}')
    assert all_texts(path) == all_texts(path, shard_bytes=1) == ["I ride", "bike"]


def test_an_empty_file_is_fine_among_others_and_refused_alone(write: Write) -> None:
    empty, full = write("empty.txt", b""), write("full.txt", b"a\n")
    assert all_texts(empty, full, empty) == ["a"]
    with pytest.raises(ValueError, match=r"(?s)there are no documents in the inputs.*empty\.txt"):
        all_texts(empty, empty)


def test_utf16_is_refused_with_the_way_to_utf8(write: Write) -> None:
    with pytest.raises(ValueError, match=r"(?s)a\.txt is not UTF-8, but UTF-16.*iconv -f UTF-16"):
        all_texts(write("a.txt", "bike".encode("utf-16")))


@pytest.mark.parametrize("kind", ["lines", "paragraphs", "json"])
def test_a_document_longer_than_the_limit_is_refused_by_file_and_line(
    write: Write, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "LONGEST", 1 << 20)
    text = "ab \n" * (1 << 19) if kind == "paragraphs" else "abcd" * (1 << 19)
    content = json.dumps({"text": text}) if kind == "json" else text
    path = write("long.json" if kind == "json" else "long.txt", f"\n\n{content}\n".encode())
    with pytest.raises(ValueError, match=r"long\.\w+, line 3: one \w+ is longer than 1 MiB"):
        list(open_sources([path], split="paragraphs" if kind == "paragraphs" else "lines").tasks(1000))


def test_json_columns_are_told_from_the_first_rows_and_may_be_chosen(write: Write) -> None:
    path = write(
        "a.jsonl", b'{"text": "a", "id": 1, "day": "2024-01-01"}\nnull\n{"text": "b", "id": 2.5, "tags": ["x"]}\n'
    )
    sources = open_sources([path])
    assert {field.name: str(field.type) for field in sources.schema} == {
        "id": "double",
        "day": "string",
        "tags": "list<item: string>",
    }
    assert all_rows(sources, sources.tasks(1000))[2] == {"text": "b", "id": 2.5, "day": None, "tags": ["x"]}
    sources = open_sources([path], columns=["tags"])
    assert all_rows(sources, sources.tasks(1000))[2] == {"text": "b", "tags": ["x"]}


def test_a_missing_column_is_refused_with_those_that_are_there(write: Write) -> None:
    path = write("a.jsonl", b'{"body": "a", "id": 1}\n')
    with pytest.raises(
        ValueError,
        match=r"(?s)a\.jsonl has no column 'text'.*'body', 'id'.*text_column=\"body\" \(--text-column body\)",
    ):
        open_sources([path])
    with pytest.raises(ValueError, match=r"(?s)a\.jsonl has no column 'tags'.*'body', 'id'"):
        open_sources([path], text_column="body", columns=["tags"])


# ------------------------------------------------------------------------------------------------- files that change


def test_inputs_are_known_again_by_content_and_differences_are_told(write: Write) -> None:
    path = write("a.txt", b"I ride\n")
    marks = open_sources([path]).fingerprint()
    assert json.loads(json.dumps(marks)) == marks
    assert open_sources([path]).same_as(marks) == []
    os.utime(path, (1, 1))
    assert open_sources([path]).same_as(marks) == []
    path.write_bytes(b"I rode\n")
    assert open_sources([path]).same_as(marks) == [f"input {path}: 7 bytes with another content"]
    path.write_bytes(b"I ride it\n")
    assert open_sources([path]).same_as(marks) == [f"input {path}: 7 bytes became 10"]
    assert open_sources([path, path]).same_as(marks) == ["inputs: 1 before, 2 now"]
    assert open_sources([path], split="paragraphs").same_as(marks) == [
        f"input {path}: read as lines before, as paragraphs now"
    ]


def test_the_same_content_under_another_name_is_the_same_input(write: Write) -> None:
    marks = open_sources([write("a.txt", b"I ride\n")]).fingerprint()
    moved = write("b.txt", b"I ride\n")
    assert open_sources([moved]).same_as(marks) == []
    moved.write_bytes(b"")
    (words,) = open_sources([moved]).same_as(marks)
    assert words.startswith(f"input {moved} (before: ")


def test_a_file_that_changes_while_it_is_read_is_noticed(write: Write) -> None:
    path = write("a.txt", b"I ride\n")
    sources = open_sources([path])
    sources.fingerprint()
    sources.check_unchanged()
    path.write_bytes(b"I ride it\n")
    with pytest.raises(ValueError, match=r"(?s)a\.txt changed while it was read.*7 bytes became 10"):
        sources.check_unchanged()


def test_a_file_that_is_replaced_by_one_of_the_same_size_and_time_is_noticed(write: Write) -> None:
    path, other = write("a.txt", b"I ride\n"), write("b.txt", b"I rode\n")
    sources = open_sources([path])
    sources.fingerprint()
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    with pytest.raises(ValueError, match=r"(?s)a\.txt changed while it was read.*another put in its place"):
        sources.check_unchanged()


def test_only_the_sources_of_a_shard_are_looked_at_when_it_is_noted(write: Write) -> None:
    sources = open_sources([write(f"{number}.txt", b"I ride\n") for number in range(4)])
    sources.fingerprint()
    write("2.txt", b"she rides\n")
    sources.check_unchanged(0, 1)
    sources.check_unchanged(3, 4)
    with pytest.raises(ValueError, match=r"2\.txt changed"):
        sources.check_unchanged(1, 2)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        open_sources([tmp_path / "nowhere.txt"])


def test_a_file_replaced_between_two_runs_by_one_of_the_same_size_and_time_is_another_input(write: Write) -> None:
    path, other = write("a.txt", b"I ride\n"), write("b.txt", b"I rode\n")
    marks = open_sources([path]).fingerprint()
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    assert open_sources([path]).same_as(marks) == [f"input {path}: 7 bytes with another content"]


def records(sources: Sources, shard_bytes: int) -> dict[int, dict[str, Any]]:
    """The records of all shards, as far as they say where a shard was cut from."""
    return {
        task.shard: {"begins": list(task.begins), "ends": list(task.ends), "digest": task.digest()}
        for task in sources.tasks(shard_bytes)
    }


def test_inputs_behind_the_last_finished_shard_may_be_repaired_replaced_or_left_out(write: Write) -> None:
    first, second, third = write("a.txt", b"I ride\nshe\n"), write("b.txt", b"I\nride\n"), write("c.txt", b"no\n")
    sources = open_sources([first, second, third])
    before, stamps, shards = sources.fingerprint(), sources.stamps(), records(sources, 7)
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
    assert differences(first, second) == [f"input {second}: another content in shard 1"]
    write("a.txt", b"I rode\nshe\n")
    assert differences(first, second) == [f"input {first}: 11 bytes with another content"]


def test_a_file_overwritten_in_its_middle_is_another_input_unless_its_times_are_those_before(write: Write) -> None:
    lines = [b"%07d\n" % number for number in range(1 << 20)]
    path = write("a.txt", b"".join(lines))
    sources = open_sources([path])
    before, stamps, shards = sources.fingerprint(), sources.stamps(), records(sources, 4 << 20)
    lines[200_000] = b"another\n"
    write("a.txt", b"".join(lines))
    again = open_sources([path])
    assert again.fingerprint() == before  # which looks at head, middle and tail
    assert again.differences(before, stamps, shards, 4 << 20) == [f"input {path}: another content in shard 0"]
    assert again.differences(before, again.stamps(), shards, 4 << 20) == []
    os.utime(path, ns=(stamps[0][0], stamps[0][0]))
    assert open_sources([path]).differences(before, stamps, shards, 4 << 20) != []


# -------------------------------------------------------------------------------------------------- output beside input


@pytest.mark.parametrize("inputs", ["data", "data/*", "data/**", "data/**/*", "described"])
def test_output_inside_the_input_is_not_read_by_the_next_run(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: str
) -> None:
    raw = word_level()
    write("data/sub/a.txt", b"I ride\n" * 9)
    write("data/b.txt", b"I ride\n" * 9)
    if inputs == "described":
        card = "---\nconfigs:\n- config_name: default\n  data_files: '**/*.txt'\n---\n"
        write("data/README.md", card.encode())
        write("data/enc/sub/left.txt", b"left behind\n")
        write("data/enc/manifest.json", b'{\n  "written_by": "hf-posenc"\n}')
        assert len(open_sources([tmp_path / "data"]).names) == 2
        return
    write("data/sub/.cache/c.txt", b"hidden\n")
    monkeypatch.chdir(tmp_path)
    if inputs == "data/*":
        (tmp_path / "data" / "sub" / "a.txt").rename(tmp_path / "data" / "a.txt")
    runs = [encode(inputs, raw, "data/sub/enc", workers=1, shard_bytes=60) for _ in range(2)]
    (tmp_path / "data/sub/enc/shard-000001.parquet").unlink()
    runs.append(encode(inputs, raw, "data/sub/enc", workers=1, shard_bytes=60))
    assert [(run.totals["documents"], len(run.shards)) for run in runs] == [(18, 3)] * 3


def test_output_is_read_where_it_is_named_and_a_manifest_of_others_is_data(write: Write, tmp_path: Path) -> None:
    write("enc/manifest.json", b'{"written_by": "hf-posenc"}')
    write("enc/a.txt", b"a\n")
    write("data/manifest.json", b'{"text": "hf-posenc"}')
    assert all_texts(f"{tmp_path}/enc/*.txt") == ["a"]
    assert all_texts(f"{tmp_path}/d*/*") == ["hf-posenc"]
    with pytest.raises(FileNotFoundError, match=r"(?s)no file matches.*nothing but the output of earlier runs"):
        open_sources([f"{tmp_path}/e*/*"])


def test_a_file_that_changes_after_its_shard_was_noted_is_noticed_at_the_end(write: Write, tmp_path: Path) -> None:
    path = write("a.txt", b"I ride\n" * 20)

    class Meddling(Progress):
        def shard(self, record: dict[str, Any]) -> None:
            if record["ends"][0]:  # the last one
                path.write_bytes(b"I rode\n" * 21)

    with pytest.raises(ValueError, match=r"(?s)a\.txt changed while it was read.*140 bytes became 147"):
        encode(path, word_level(), tmp_path / "out", workers=1, shard_bytes=70, progress=Meddling())
    assert not json.loads((tmp_path / "out" / "manifest.json").read_text())["finished"]
    with pytest.raises(ValueError, match=r"a\.txt: 140 bytes became 147"):
        encode(path, word_level(), tmp_path / "out", workers=1, shard_bytes=70)
