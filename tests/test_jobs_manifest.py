"""The manifest is held against its text, against other jobs than the one it is of, and against being killed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hf_posenc.jobs.job import Job
from hf_posenc.jobs.output.checking import verify
from hf_posenc.jobs.output.folder import MANIFEST, REJECTED, Folder, rejected_name, shard_name, written_whole
from hf_posenc.jobs.output.libraries import LIBRARIES, deciding, installed
from hf_posenc.jobs.output.manifest import Manifest
from hf_posenc.jobs.output.rejects import join_rejected, look
from hf_posenc.jobs.task import Cursor

CONFIG = {"max_length": 512, "columns": ("a", "b"), "pack": None}
TOKENIZER = {"name": "bert", "digest": "1f", "vocab_size": 30522}
INPUTS = [{"name": "data.txt", "size": 120, "digest": "aa"}]
VERSIONS = {"tokenizers": "0.23.3", "pyarrow": "26.0"}
SHARDS = 4


def open_it(folder: Path, **changed: Any) -> Manifest:
    given: dict[str, Any] = {
        "config": CONFIG,
        "tokenizer": TOKENIZER,
        "inputs": INPUTS,
        "same_inputs": lambda before: [] if before == INPUTS else ["other inputs"],
        "libraries": VERSIONS,
    }
    return Manifest.open(folder, **{**given, **changed})


def make(folder: Path, shard: int) -> dict[str, Any]:
    """A shard as a worker makes it: its rejected rows first. Every second one has some."""
    content = bytes([shard]) * (1000 + shard)
    rejected = 3 * (shard % 2)
    lines = [json.dumps({"shard": shard, "file": "data.txt", "line": n, "reason": "is null"}) for n in range(rejected)]
    text = "".join(f"{line}\n" for line in lines).encode()
    if rejected:
        with written_whole(folder / rejected_name(shard)) as aside:
            aside.write_bytes(text)
    with written_whole(folder / shard_name(shard)) as aside:
        aside.write_bytes(content)
    return {
        "file": shard_name(shard),
        **dict.fromkeys(("documents", "tokens", "longest", "padded", "cut", "read"), 7),
        "rows": 10 + shard,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "rejected": rejected,
        "rejected_sha256": hashlib.sha256(text).hexdigest() if rejected else None,
        "begins": [0, 100 * shard, 10 * shard],
        "ends": [0, 100 * (shard + 1), 10 * (shard + 1)],
    }


def run(path: Path, order: Iterable[int] = range(SHARDS), save_each: bool = False, **changed: Any) -> list[int]:
    """A whole job, or what is left of one; returns the shards it made."""
    with Folder(path) as folder:
        manifest = open_it(folder.path, **changed)
        done = manifest.sound()
        todo = [shard for shard in order if shard not in done]
        for shard in todo:
            manifest.add(make(folder.path, shard))
            if save_each:
                manifest.save()
        total = join_rejected(folder.path, manifest.shards)
        manifest.finish({"rows": sum(one["rows"] for one in manifest.shards.values()), "rejected": total})
    return todo


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------------------------------------------------- the text


def test_the_text_is_json_to_read_with_a_shard_a_line_and_no_word_of_when_or_how_many(tmp_path: Path) -> None:
    run(tmp_path)
    text = (tmp_path / MANIFEST).read_text(encoding="utf-8")
    content = json.loads(text)
    assert list(content) == [
        "written_by",
        "format_version",
        "finished",
        "config",
        "tokenizer",
        "inputs",
        "libraries",
        "totals",
        "shards",
    ]
    assert content["config"] == {**CONFIG, "columns": ["a", "b"]}
    assert content["inputs"] == INPUTS
    assert content["totals"] == {"rows": 46, "rejected": 6}
    assert [record["file"] for record in content["shards"]] == [shard_name(shard) for shard in range(SHARDS)]
    assert sum('"file"' in line for line in text.splitlines()) == SHARDS
    assert '    {"file": "shard-000002.parquet", "begins": [0, 200, 20], "bytes": 1002, ' in text
    assert text.endswith("  ]\n}\n")
    assert Manifest.read(tmp_path).text() == text


def test_the_text_is_the_same_in_whatever_order_shards_come(tmp_path: Path) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b", order=(2, 0, 3, 1))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_names_of_any_kind_are_kept_and_can_be_read(tmp_path: Path) -> None:
    names = [{"name": "Übung\n.txt"}, {"name": "日本語.txt"}, {"name": b"\xff.txt".decode("utf-8", "surrogateescape")}]
    open_it(tmp_path, inputs=names)
    assert Manifest.read(tmp_path).inputs == names
    assert "Übung" in (tmp_path / MANIFEST).read_text(encoding="utf-8", errors="replace")


def test_versions_are_those_of_what_is_installed(tmp_path: Path) -> None:
    import pyarrow

    manifest = open_it(tmp_path, libraries=None)
    assert manifest.libraries["pyarrow"] == pyarrow.__version__
    assert set(manifest.libraries) == {"hf-posenc", "tokenizers", "numpy", "pyarrow"}
    assert installed(["pyarrow", "no-such-distribution"]) == {
        "pyarrow": pyarrow.__version__,
        "no-such-distribution": "unknown",
    }


def test_the_version_of_transformers_counts_for_a_tokenizer_that_is_sent_as_its_files(
    tmp_path: Path,
) -> None:
    from tokenizers import Tokenizer, models

    from hf_posenc.tokenization.loading import private_copy
    from hf_posenc.tokenization.serialized import SerializedTokenizer

    alone = SerializedTokenizer.of(private_copy(Tokenizer(models.WordLevel({"<unk>": 0, "hi": 1}, unk_token="<unk>"))))
    job = Job(tmp_path, alone, text_column="text", text_pair_column=None, carried=pa.schema([]), max_length=8)
    assert deciding(job) == LIBRARIES
    assert deciding(replace(job, tokenizer=SerializedTokenizer((object, {}), "1f"))) == (*LIBRARIES, "transformers")


def test_it_is_saved_at_most_about_once_a_second_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    manifest = open_it(tmp_path)
    saved = []
    for shard in range(SHARDS):
        now[0] += 0.4
        manifest.add(make(tmp_path, shard))
        saved.append(len(Manifest.read(tmp_path).shards))
    assert saved == [0, 0, 3, 3]
    manifest.save()
    assert len(Manifest.read(tmp_path).shards) == 4
    assert not Manifest.read(tmp_path).finished


def test_a_run_stops_when_another_one_has_taken_its_folder(tmp_path: Path) -> None:
    mine = open_it(tmp_path, config={"a": 1})
    (mine.folder / MANIFEST).unlink()
    with pytest.raises(
        OSError, match=r"manifest.json was changed by something else while .*\n  got: no such file\n  f"
    ):
        mine.finish({})
    other = open_it(mine.folder, config={"a": 2})
    before = (mine.folder / MANIFEST).read_bytes()
    with pytest.raises(OSError, match=r"\n  got: another content\n  fix: let no other run use the folder"):
        mine.finish({})
    assert (mine.folder / MANIFEST).read_bytes() == before
    other.finish({})
    assert Manifest.read(mine.folder).config == {"a": 2}


def test_ten_thousand_shards_take_no_time_to_save_worth_speaking_of(tmp_path: Path) -> None:
    import time

    record = make(tmp_path, 0)
    manifest = open_it(tmp_path)
    begun = time.monotonic()
    for shard in range(10_000):
        manifest.add({**record, "file": shard_name(shard)})
    manifest.save()
    assert time.monotonic() - begun < 5  # 0.3 s as measured; 10,000 saves would be minutes


# --------------------------------------------------------------------------------------------------- another job


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"config": {**CONFIG, "max_length": 256}}, "max_length: 512 before, 256 now"),
        (
            {"config": {"columns": ["a"], "pack": 64, "max_length": 512}},
            "columns: ['a', 'b'] before, ['a'] now; pack: None before, 64 now",
        ),
        ({"config": {**CONFIG, "stride": 3}}, "stride: not there before, 3 now"),
        ({"config": {"max_length": 512, "pack": None}}, "columns: ['a', 'b'] before, not there now"),
        ({"config": {**CONFIG, "pack": {"capacity": 2}}}, "pack: None before, {'capacity': 2} now"),
        ({"tokenizer": {**TOKENIZER, "digest": "2e"}}, "tokenizer: other files (digest 1f before, 2e now)"),
        (
            {"tokenizer": {"name": "gpt2", "digest": "2e", "vocab_size": 30522}},
            "tokenizer: other files (digest 1f before, 2e now); tokenizer.name: 'bert' before, 'gpt2' now",
        ),
        ({"same_inputs": lambda before: [f"input {before[0]['name']}: 120 bytes became 130"]}, "input data.txt: 120"),
        (
            {"config": {**CONFIG, "max_length": 256}, "same_inputs": lambda before: ["input data.txt is gone"]},
            "max_length: 512 before, 256 now; input data.txt is gone",
        ),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_another_job_is_refused_naming_each_difference_with_both_values(
    tmp_path: Path, changed: dict[str, Any], words: str, finished: bool
) -> None:
    if finished:
        run(tmp_path)
    else:
        manifest = open_it(tmp_path)
        manifest.add(make(tmp_path, 1))
        manifest.save()
    before = files(tmp_path)
    with pytest.raises(ValueError, match="holds the output of another job") as caught:
        open_it(tmp_path, **changed)
    rule, got, fix = str(caught.value).splitlines()
    assert str(tmp_path) in rule
    assert words in got
    assert fix == "  fix: another --output folder, or delete this one"
    assert files(tmp_path) == before


def test_nested_settings_are_named_with_dots(tmp_path: Path) -> None:
    open_it(tmp_path, config={"vectors": {"d_model": 8, "convention": "vaswani"}}).finish({})
    with pytest.raises(ValueError, match=r"got: vectors.d_model: 8 before, 16 now\n"):
        open_it(tmp_path, config={"vectors": {"d_model": 16, "convention": "vaswani"}})


def test_the_order_of_columns_counts_and_stays_and_that_of_settings_does_not(tmp_path: Path) -> None:
    columns = {"input_ids": "list", "b": "string", "a": "string"}
    run(tmp_path, config={"stride": 1, "columns": columns})
    before = files(tmp_path)
    assert list(Manifest.read(tmp_path).config["columns"]) == ["input_ids", "b", "a"]
    assert run(tmp_path, config={"columns": columns, "stride": 1}) == []
    assert files(tmp_path) == before
    with pytest.raises(ValueError, match="columns: in the order input_ids, b, a before, input_ids, a, b now"):
        run(tmp_path, config={"stride": 1, "columns": {"input_ids": "list", "a": "string", "b": "string"}})


def test_a_tokenizer_or_input_by_another_name_with_the_same_content_goes_on_and_the_old_name_stays(
    tmp_path: Path,
) -> None:
    run(tmp_path)
    before = files(tmp_path)
    moved = [{"name": "moved.txt"}]
    assert run(tmp_path, tokenizer={"name": "/b/bert", "digest": "1f"}, inputs=moved, same_inputs=lambda _: []) == []
    assert files(tmp_path) == before


def test_where_nothing_was_made_yet_other_settings_are_taken(tmp_path: Path) -> None:
    open_it(tmp_path, inputs=[{"name": "before.txt"}])
    run(tmp_path / "other", config={**CONFIG, "on_bad_row": "skip"})
    run(tmp_path, config={**CONFIG, "on_bad_row": "skip"}, inputs=lambda: INPUTS)
    (tmp_path / "other").rename(tmp_path.parent / "other")
    assert files(tmp_path) == files(tmp_path.parent / "other")


def test_a_shard_that_is_not_noted_yet_holds_the_settings_fast(tmp_path: Path) -> None:
    open_it(tmp_path)
    make(tmp_path, 0)
    with pytest.raises(ValueError, match="max_length: 512 before, 256 now"):
        open_it(tmp_path, config={**CONFIG, "max_length": 256}, inputs=lambda: INPUTS)


def test_other_versions_count_only_while_shards_are_to_be_made(tmp_path: Path) -> None:
    newer = {**VERSIONS, "tokenizers": "0.24.0"}
    run(tmp_path)
    before = files(tmp_path)
    assert run(tmp_path, libraries=newer) == []
    assert files(tmp_path) == before
    (tmp_path / shard_name(2)).unlink()
    message = r"(?s)must be made by the versions.*got: tokenizers: '0.23.3' before, '0.24.0' now\n.*another --output"
    with pytest.raises(ValueError, match=message):
        run(tmp_path, libraries=newer)
    assert (tmp_path / MANIFEST).read_bytes() == before[MANIFEST]
    with pytest.raises(ValueError, match="versions"):
        run(tmp_path, libraries=newer)
    assert run(tmp_path) == [2]
    assert files(tmp_path) == before
    manifest = open_it(tmp_path / "..", libraries=VERSIONS)
    manifest.add(make(manifest.folder, 0))
    manifest.save()
    with pytest.raises(ValueError, match=r"0\.24\.0"):
        open_it(tmp_path / "..", libraries=newer)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"written_by": "hf-pos', "is damaged: it is no JSON"),
        ("", "is damaged: it is no JSON"),
        ("\udcff", "is damaged: it is no JSON"),
        ("[1, 2]", r"was not written by hf-posenc\n  got: \[1, 2\]"),
        ('{"name": "a web page", "icons": []}', "was not written by hf-posenc"),
        ('{"written_by": "hf-posenc", "format_version": 7}', r"must have format version 1\n  got: 7"),
        ('{"written_by": "hf-posenc", "format_version": 1}', r"is damaged\n  got: finished is not there\n  fix: "),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_and_left(tmp_path: Path, text: str, words: str) -> None:
    written = text.encode("utf-8", "surrogateescape")
    (tmp_path / MANIFEST).write_bytes(written)
    with pytest.raises(ValueError, match=rf"{MANIFEST} {words}"), Folder(tmp_path) as folder:
        open_it(folder.path)
    assert files(tmp_path) == {MANIFEST: written}


def test_a_manifest_whose_shards_are_damaged_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    content = json.loads((tmp_path / MANIFEST).read_text())
    first = content["shards"][0]
    for shards in ({"a": 1}, [{"rows": 1}], [{"file": "../../etc/passwd"}], [3], None, [first, first]):
        (tmp_path / MANIFEST).write_text(json.dumps({**content, "shards": shards}))
        with pytest.raises(ValueError, match="is damaged"):
            Manifest.read(tmp_path)


def refused(folder: Path, content: dict[str, Any]) -> str:
    """What is said of a manifest with this in it, by everything that reads one; nothing is changed."""
    (folder / MANIFEST).write_text(json.dumps(content))
    before = files(folder)
    said = set()
    for read in (verify, Manifest.read, open_it):
        with pytest.raises(ValueError, match="is damaged") as caught:
            read(folder)
        said.add(str(caught.value))
    assert files(folder) == before
    rule, got, fix = said.pop().splitlines()
    assert not said
    assert rule == f"{folder / MANIFEST} is damaged"
    assert fix == "  fix: another --output folder, or delete this one"
    return got.removeprefix("  got: ")


def test_a_record_or_a_manifest_that_lacks_anything_or_has_it_of_another_kind_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    content = json.loads((tmp_path / MANIFEST).read_text())
    for name in content["shards"][1]:
        for value in (None, [1, 2], [0, 1, -1], [0, 1, True], -1, True, 1.5, "x" * 64, {}, "gone"):
            record = {**content["shards"][1], name: value}
            if value == "gone":
                del record[name]
            said = refused(tmp_path, {**content, "shards": [content["shards"][0], record]})
            assert name in said
            assert name == "file" or said.startswith("shard-000001.parquet: ")
    for name in content.keys() - {"written_by", "format_version"}:
        for value in (None, 3, "text", [3], {"rows": 1.5}, "gone"):
            changed = {**content, name: value}
            if value == "gone":
                del changed[name]
            if not (isinstance(value, dict) and name in {"config", "tokenizer", "libraries"}):
                assert refused(tmp_path, changed).startswith((f"{name} is", "a shard whose file is None"))


@pytest.mark.parametrize(
    ("shard", "changed", "words"),
    [
        (0, {"begins": [0, 1, 0]}, "shard-000000.parquet begins at [0, 1, 0], and not where the corpus does"),
        (0, {"ends": [0, 112, 11]}, "shard-000001.parquet begins at [0, 100, 10], and shard-000000.parquet ends at"),
        (2, {"begins": [0, 200, 19]}, "shard-000002.parquet begins at [0, 200, 19], and shard-000001.parquet ends at"),
        (3, {"ends": [0, 2, 3]}, "shard-000003.parquet begins at [0, 300, 30] and ends at [0, 2, 3]"),
        (1, {"rejected": 0}, "shard-000001.parquet: rejected is 0, and rejected_sha256 '"),
        (0, {"rejected": 1}, "shard-000000.parquet: rejected is 1, and rejected_sha256 None"),
    ],
)
def test_shards_that_do_not_follow_on_each_other_are_refused(
    tmp_path: Path, shard: int, changed: dict[str, Any], words: str
) -> None:
    run(tmp_path)
    content = json.loads((tmp_path / MANIFEST).read_text())
    content["shards"][shard].update(changed)
    assert refused(tmp_path, content).startswith(words)


def test_a_folder_without_a_manifest_is_said_so(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ValueError, match=rf"{folder} holds no manifest.json\n  fix: the folder that was given"):
            Manifest.read(folder)


# ------------------------------------------------------------------------------------------------ shards gone bad


def test_what_was_deleted_flipped_cut_or_replaced_is_made_again_and_only_that(tmp_path: Path) -> None:
    run(tmp_path)
    before = files(tmp_path)
    path = tmp_path / shard_name(1)

    def flip() -> None:
        content = bytearray(path.read_bytes())
        content[500] ^= 1
        path.write_bytes(content)

    for harm in (path.unlink, flip, lambda: path.write_bytes(b"short"), lambda: (path.unlink(), path.mkdir())):
        harm()
        if path.is_dir():
            with Folder(tmp_path) as folder:
                assert sorted(open_it(folder.path).sound()) == [0, 2, 3]
            path.rmdir()
        assert run(tmp_path) == [1]
        assert files(tmp_path) == before


def test_sound_says_where_each_shard_ends_and_how_much_was_read(tmp_path: Path) -> None:
    run(tmp_path)
    read: list[int] = []
    done = open_it(tmp_path).sound(read.append)
    assert done == {shard: Cursor(0, 100 * (shard + 1), 10 * (shard + 1)) for shard in range(SHARDS)}
    assert sum(read) == 4006


def test_a_finished_manifest_with_a_gap_is_not_finished(tmp_path: Path) -> None:
    run(tmp_path)
    before = files(tmp_path)
    content = json.loads(before[MANIFEST])
    del content["shards"][1]
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    assert run(tmp_path) == [1]
    assert files(tmp_path) == before


def test_a_finished_folder_whose_last_shard_is_gone_is_not_finished(tmp_path: Path) -> None:
    run(tmp_path)
    before = files(tmp_path)
    (tmp_path / shard_name(SHARDS - 1)).unlink()
    manifest = open_it(tmp_path)
    assert manifest.finished
    assert sorted(manifest.sound()) == [0, 1, 2]
    assert not manifest.finished
    assert not Manifest.read(tmp_path).finished
    assert run(tmp_path) == [SHARDS - 1]
    assert files(tmp_path) == before


def test_a_repair_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    run(tmp_path)
    before = files(tmp_path)
    for shard in (0, 3):
        (tmp_path / shard_name(shard)).write_bytes(b"x")
    assert sorted(open_it(tmp_path).sound()) == [1, 2]
    assert not Manifest.read(tmp_path).finished
    make(tmp_path, 3)  # made, and not noted
    assert run(tmp_path) == [0, 3]
    assert files(tmp_path) == before


def test_a_shard_that_may_not_be_read_is_no_reason_to_make_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    manifest = open_it(tmp_path)

    def shut(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", shut)
    with pytest.raises(PermissionError):
        manifest.sound()


# --------------------------------------------------------------------------------------------------- rejected rows


def test_rejected_rows_are_joined_in_order_and_stay_through_repairs(tmp_path: Path) -> None:
    run(tmp_path, order=(3, 2, 1, 0))
    lines = [json.loads(line) for line in (tmp_path / REJECTED).read_text().splitlines()]
    assert [(line["shard"], line["line"]) for line in lines] == [(shard, n) for shard in (1, 3) for n in range(3)]
    assert sorted(files(tmp_path)) == sorted([MANIFEST, REJECTED, *map(shard_name, range(SHARDS))])
    before = files(tmp_path)
    (tmp_path / shard_name(1)).unlink()
    assert run(tmp_path) == [1]
    assert files(tmp_path) == before


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("harm", "again"),
    [
        ("gone", [1, 3]),
        ("cut", [3]),
        ("flipped", [1]),
        ("a line missing", [1]),
        ("not JSON", [1]),
        ("another order", []),
        ("lines of nobody", []),
    ],
)
def test_of_rejected_rows_that_are_lost_or_changed_only_their_shards_are_made_again(
    tmp_path: Path, harm: str, again: list[int], finished: bool
) -> None:
    run(tmp_path)
    before = files(tmp_path)
    if not finished:  # stopped between the joining and the end
        content = {**json.loads(before[MANIFEST]), "finished": False}
        (tmp_path / MANIFEST).write_text(json.dumps(content))
    path = tmp_path / REJECTED
    text = path.read_bytes()
    path.write_bytes(
        {
            "gone": b"",
            "cut": text[:-5],
            "flipped": text.replace(b"is null", b"is nulm", 1),
            "a line missing": text.split(b"\n", 1)[1],
            "not JSON": b"\xff" + text,
            "another order": b"".join(text.splitlines(True)[3:] + text.splitlines(True)[:3]),
            "lines of nobody": text + b'{"shard": 7}\n',
        }[harm]
    )
    if harm == "gone":
        path.unlink()
    assert run(tmp_path) == again
    assert files(tmp_path) == before


def test_rejected_rows_that_were_changed_before_the_end_have_their_shard_made_again(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    manifest = open_it(tmp_path)
    for shard in range(SHARDS):
        manifest.add(make(tmp_path, shard))
    manifest.save()
    part = tmp_path / rejected_name(3)
    part.write_bytes(part.read_bytes().replace(b"is null", b"is nulm", 1))
    reason = "holds other rows of shard-000003.parquet than were written (a bit flipped, or changed)"
    assert [bad.reason for bad in verify(tmp_path).bad if bad.file == REJECTED] == [reason]
    with pytest.raises(ValueError, match="rejected rows of shard 3 must all be in"):
        join_rejected(tmp_path, manifest.shards)
    assert run(tmp_path) == [3]
    (tmp_path / "whole").rename(tmp_path.parent / "whole")
    assert files(tmp_path) == files(tmp_path.parent / "whole")


def test_a_job_that_rejects_nothing_has_no_such_file_and_foreign_ones_stay(tmp_path: Path) -> None:
    (tmp_path / REJECTED).write_text("mine")
    assert join_rejected(tmp_path, {0: {"rejected": 0}}) == 0
    assert files(tmp_path) == {REJECTED: b"mine"}
    assert look(tmp_path, {0: {"rejected": 0}}) == ({}, {}, True)


def test_rejected_rows_that_are_not_there_are_no_silent_loss(tmp_path: Path) -> None:
    record = make(tmp_path, 1)
    message = r"rejected rows of shard 1 must all be in .*\n  got: what holds 3 rows of shard-000001.parquet, not 4\n"
    with pytest.raises(ValueError, match=message):
        join_rejected(tmp_path, {1: {**record, "rejected": 4}})
    assert (tmp_path / rejected_name(1)).exists()


# --------------------------------------------------------------------------------------------------------- killed

# In one small process that forks: the child runs the job and kills itself, as `kill -9` would, right before its n-th
# step that touches the disk, for every n. Then an undisturbed one goes on.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_jobs_manifest import files, run
from hf_posenc.jobs.output.folder import shard_name

root = Path(sys.argv[2])
steps = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.listdir", "os.scandir"}
write = os.write

def job(path, kill_at=None, start=""):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    left = [kill_at]
    def step(event="open", *_):
        if left[0] is not None and event in steps:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
    os.fsync = lambda opened: step()  # what it would add is for the loss of power
    os.write = lambda opened, text: (step(), write(opened, text))[1]
    sys.addaudithook(step)
    try:
        run(path, range(2), save_each=start == "nothing")
        os._exit(0)
    finally:
        os._exit(1)

assert job(root / "whole") == 0
expected = files(root / "whole")
for start in ("nothing", "bad shards"):
    kill_at = 0
    while True:
        path = root / f"{start}-{kill_at}"
        if start == "bad shards":
            shutil.copytree(root / "whole", path)
            (path / shard_name(0)).unlink()
            (path / shard_name(1)).write_bytes(b"flipped")
        status = job(path, kill_at, start)
        assert status in (0, signal.SIGKILL), status
        assert job(path) == 0, f"does not go on after step {kill_at}"
        assert files(path) == expected, f"differs after being killed at step {kill_at}: {sorted(files(path))}"
        shutil.rmtree(path)
        if status == 0:
            break
        kill_at += 1
    print(start, kill_at)
"""


def test_killed_before_any_step_it_goes_on_to_the_very_same_files(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(Path(__file__).parent), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    steps = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in ran.stdout.splitlines()}
    assert steps["nothing"] > 40
    assert steps["bad shards"] > 30
