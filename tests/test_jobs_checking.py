"""`verify` is held against folders in which one thing each was harmed: it names that file, the reason, and no other."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_posenc.jobs.output.checking import BadShard, Verification, verify
from hf_posenc.jobs.output.checksums import fault, sha256
from hf_posenc.jobs.output.folder import MANIFEST, REJECTED, rejected_name, shard_name
from hf_posenc.jobs.output.manifest import Manifest
from hf_posenc.jobs.output.rejects import join_rejected


def add(manifest: Manifest, shard: int, columns: dict[str, Any] | None = None) -> None:
    """A shard of ten rows, and as many rejected ones as its number."""
    path = manifest.folder / shard_name(shard)
    pq.write_table(pa.table(columns or {"input_ids": [[shard]] * 10, "length": [1] * 10}), path)
    line = json.dumps({"shard": shard, "file": "a.txt", "line": 1, "reason": "is null"})
    rejected = (f"{line}\n" * shard).encode()
    if shard:
        (manifest.folder / rejected_name(shard)).write_bytes(rejected)
    manifest.add(record(path, shard, rejected))


def record(path: Path, shard: int, rejected: bytes = b"") -> dict[str, Any]:
    return {
        "file": path.name,
        **dict.fromkeys(("documents", "rows", "tokens", "padded", "read"), 10),
        **dict.fromkeys(("longest", "cut"), 1),
        "rejected": rejected.count(b"\n"),
        "rejected_sha256": hashlib.sha256(rejected).hexdigest() if rejected else None,
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "begins": [0, shard, shard],
        "ends": [0, shard + 1, shard + 1],
    }


def begun(folder: Path) -> Manifest:
    folder.mkdir(exist_ok=True)
    return Manifest.open(folder, config={}, tokenizer={}, inputs=[], same_inputs=lambda _: [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards with three rejected rows in all, finished."""
    manifest = begun(tmp_path / "out")
    for shard in range(3):
        add(manifest, shard)
    join_rejected(manifest.folder, manifest.shards)
    manifest.finish({"rows": 30, "tokens": 30, "rejected": 3, "longest": 1})
    (tmp_path / "out" / "README.md").write_text("as anybody likes")
    return tmp_path / "out"


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The manifest with something else in it."""
    content = json.loads((folder / MANIFEST).read_text())
    change(content)
    (folder / MANIFEST).write_text(json.dumps(content))


def flip(path: Path, place: int = 100) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_a_folder_as_it_was_written_is_sound_and_nothing_in_it_is_changed(folder: Path) -> None:
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    found = verify(folder)
    assert found == Verification(folder, 3, (), True, rows=30, tokens=30)
    assert found.sound
    assert str(found) == f"{folder}: 3 shards, 30 rows, 30 tokens, all as they were written"
    assert str(verify(str(folder))) == str(found)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before


def test_it_tells_how_much_was_read(folder: Path) -> None:
    read: list[int] = []
    verify(folder, read.append)
    assert sum(read) == sum(path.stat().st_size for path in folder.glob("*.parquet"))


HARMS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a bit": (lambda f: flip(f / shard_name(1)), shard_name(1), "checksum differs (a bit flipped, or written by"),
    "gone": (lambda f: (f / shard_name(2)).unlink(), shard_name(2), "is missing"),
    "cut": (
        lambda f: (f / shard_name(0)).write_bytes((f / shard_name(0)).read_bytes()[:-9]),
        shard_name(0),
        " bytes, not ",
    ),
    "a folder": (
        lambda f: ((f / shard_name(1)).unlink(), (f / shard_name(1)).mkdir()),
        shard_name(1),
        "is no file but a folder",
    ),
    "surplus": (
        lambda f: shutil.copy(f / shard_name(0), f / shard_name(7)),
        shard_name(7),
        "is not in the manifest; move it away",
    ),
    "forgotten": (
        lambda f: rewrite(f, lambda m: (m["shards"].pop(1), m["totals"].clear())),
        MANIFEST,
        "says nothing of shard-000001.parquet",
    ),
    "rows": (
        lambda f: rewrite(f, lambda m: (m["shards"][1].update(rows=11), m["totals"].clear())),
        MANIFEST,
        "says that shard-000001.parquet holds 11 rows, and it holds 10",
    ),
    "totals": (
        lambda f: rewrite(f, lambda m: m["totals"].update(tokens=31)),
        MANIFEST,
        "its shards hold 30 tokens, its totals 31",
    ),
    "rejected gone": (lambda f: (f / REJECTED).unlink(), REJECTED, "is missing"),
    "rejected changed": (lambda f: flip(f / REJECTED, 55), REJECTED, "holds other rows of shard-000001.parquet than"),
    "rejected besides": (
        lambda f: (f / REJECTED).write_bytes((f / REJECTED).read_bytes() + b"{}\n"),
        REJECTED,
        "holds other lines besides, or not in the order of the shards",
    ),
    "rejected counts": (
        lambda f: rewrite(f, lambda m: (m["shards"][1].update(rejected=2), m["totals"].clear())),
        REJECTED,
        "holds 1 rows of shard-000001.parquet, not 2",
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_the_one_file_that_was_harmed_is_named_with_the_reason(folder: Path, harm: str) -> None:
    change, file, reason = HARMS[harm]
    change(folder)
    found = verify(folder)
    (bad,) = found.bad
    assert bad.file == file
    assert reason in bad.reason
    assert not found.sound
    first, second, *last = str(found).splitlines()
    assert first == f"{folder}: 1 file is not as it was written"
    assert second == f"  {file}: {bad.reason}"
    if harm == "surplus":
        assert last == []
    elif file == MANIFEST:
        assert last == ["manifest.json is not to be trusted: delete the folder, and encode again."]
    else:
        assert last == ["The same hf-posenc encode again makes only what is bad anew."]


def test_several_are_all_named_in_order(folder: Path) -> None:
    (folder / shard_name(2)).unlink()
    flip(folder / shard_name(0))
    (folder / REJECTED).unlink()
    found = verify(folder)
    assert [bad.file for bad in found.bad] == [shard_name(0), shard_name(2), REJECTED]
    assert str(found).startswith(f"{folder}: 3 files are not as they were written\n")


def test_a_shard_of_other_columns_is_named_with_them_though_its_checksum_is_right(tmp_path: Path) -> None:
    manifest = begun(tmp_path)
    add(manifest, 0)
    add(manifest, 1, {"input_ids": [[1]] * 10, "length": [1.0] * 10, "more": ["a"] * 10})
    manifest.save()
    (bad,) = verify(tmp_path).bad
    assert bad.file == shard_name(1)
    assert bad.reason == (
        "has other columns than the shards before: length is double, not int64; more is string, not missing"
    )


def test_what_is_no_parquet_file_is_said_so_though_its_checksum_is_right(tmp_path: Path) -> None:
    manifest = begun(tmp_path)
    (tmp_path / shard_name(0)).write_bytes(b"words")
    manifest.add(record(tmp_path / shard_name(0), 0))
    manifest.save()
    (bad,) = verify(tmp_path).bad
    assert "is no Parquet file" in bad.reason


def test_a_job_that_is_not_finished_may_be_sound_so_far_and_says_how_to_go_on(tmp_path: Path) -> None:
    manifest = begun(tmp_path / "out")
    for shard in (0, 2):  # 1 is still to be made, 4 is made and not yet noted
        add(manifest, shard)
    manifest.save()
    (tmp_path / "out" / shard_name(4)).touch()
    found = verify(tmp_path / "out")
    assert (found.sound, found.finished, found.shards) == (True, False, 2)
    assert str(found).splitlines() == [
        f"{tmp_path / 'out'}: 2 shards so far, 20 rows, 20 tokens, all as they were written",
        "The job is not finished: the same hf-posenc encode again goes on where it was.",
    ]
    (tmp_path / "out" / rejected_name(2)).unlink()
    found = verify(tmp_path / "out")
    assert found.bad == (BadShard(REJECTED, "holds 0 rows of shard-000002.parquet, not 2"),)
    assert str(found).splitlines()[-1].startswith("The job is not finished")


def test_a_list_of_rejected_rows_where_none_was_rejected_is_said_so(tmp_path: Path) -> None:
    manifest = begun(tmp_path)
    add(manifest, 0)
    manifest.finish({})
    (tmp_path / REJECTED).write_text("mine")
    assert verify(tmp_path).bad == (BadShard(REJECTED, "is there, and no row was rejected; move it away"),)
    assert (tmp_path / REJECTED).read_text() == "mine"


def test_a_folder_that_holds_no_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{tmp_path} holds no manifest.json\n  fix: "):
        verify(tmp_path)


def test_one_shard_is_not_spoken_of_as_several() -> None:
    words = str(Verification(Path("out"), 1, (), True, rows=1_000, tokens=20_000))
    assert words == "out: 1 shard, 1,000 rows, 20,000 tokens, all as they were written"


def test_checksums_are_those_of_the_whole_file_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "big"
    content = bytes(range(256)) * 8000
    path.write_bytes(content)
    read: list[int] = []
    assert sha256(path, read.append) == sha256(path) == hashlib.sha256(content).hexdigest()
    assert sum(read) == len(content)
    assert max(read) < len(content)
    assert fault(path, len(content), sha256(path)) is None
    assert fault(path, None, sha256(path)) is None
    assert fault(path, 1, sha256(path)) == "has 2,048,000 bytes, not 1 (broken off, or written by something else)"
