"""`verify` on folders in which one file was harmed: it names that file and the reason, and no other."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_posenc import cli
from hf_posenc.corpus import Progress, Verification, encode, verify

TOKENIZER = Tokenizer(models.WordLevel({"?": 0, "I": 1, "ride": 2}, unk_token="?"))
TOKENIZER.pre_tokenizer = pre_tokenizers.Whitespace()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Encode thirty documents to three shards; the second and the third hold a document that is not UTF-8."""
    folder = tmp_path_factory.mktemp("finished")
    lines = [b"I ride\n"] * 30
    lines[14] = lines[25] = b"\xff\xff..\xff\n"
    (folder / "corpus.txt").write_bytes(b"".join(lines))
    encode(folder / "corpus.txt", TOKENIZER, folder / "out", workers=0, shard_bytes=70, on_bad_row="skip")
    return folder / "out"


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def shard(number: int) -> str:
    return f"data/shard-{number:06d}-000.parquet"


def flip(path: Path, offset: int) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 4
    path.write_bytes(content)


def test_a_folder_as_it_was_written_is_sound_and_is_not_changed(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = verify(folder)
    assert found == Verification(str(folder), 3, (), True, rows=28, tokens=56)
    assert found.sound
    assert str(found) == f"{folder}: 3 shards, 28 rows, 56 tokens, all as they were written"
    assert verify(str(folder)) == found
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_every_byte_of_the_shards_is_read_once(folder: Path) -> None:
    read: list[int] = []
    verify(folder, read.append)
    assert sum(read) == sum(path.stat().st_size for path in folder.glob("data/*"))


REJECTED = "rejected/shard-000001-000.jsonl"
MOVE_AWAY = "is not a shard of this job; move it away"
HARMS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a bit": (lambda f: flip(f / shard(1), 100), shard(1), "has another checksum than the one in the manifest"),
    "a bit of the footer": (lambda f: flip(f / shard(1), -30), shard(1), "has another checksum"),
    "gone": (lambda f: (f / shard(2)).unlink(), shard(2), "is missing"),
    "cut": (lambda f: (f / shard(0)).write_bytes((f / shard(0)).read_bytes()[:-9]), shard(0), " bytes, expected "),
    "a copy": (lambda f: shutil.copy(f / shard(0), f / shard(7)), shard(7), "is not in the manifest; move it away"),
    "a copy with a similar name": (
        lambda f: shutil.copy(f / shard(0), f / "data/shard-2.parquet"), "data/shard-2.parquet", MOVE_AWAY,
    ),
    "another file": (lambda f: (f / "data/notes.txt").touch(), "data/notes.txt", MOVE_AWAY),
    "manifest changed": (
        lambda f: flip(f / "manifest.json", (f / "manifest.json").read_bytes().index(b'"rows": 10') + 9),
        shard(0), "has another record than in manifest.json",
    ),
    "rejected gone": (lambda f: (f / REJECTED).unlink(), REJECTED, "holds 0 of the 1 rejected documents of"),
    "rejected besides": (
        lambda f: (f / REJECTED).write_bytes((f / REJECTED).read_bytes() + b"{}\n"), REJECTED, "holds 2 of the 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_the_file_that_was_harmed_is_named_with_the_reason(folder: Path, harm: str) -> None:
    change, file, reason = HARMS[harm]
    change(folder)
    found = verify(folder)
    (bad,) = found.bad
    assert bad.file == file
    assert reason in bad.reason
    assert (bad.remedy.name == "MOVE_AWAY") == reason.endswith("; move it away")
    assert not found.sound
    assert (found.shards, found.finished) == (3, True)
    first, second, *last = str(found).splitlines()
    assert first == f"{folder}: 1 file differs from the manifest"
    assert second == f"  {file}: {bad.reason}"
    repair = "The same hf-posenc encode again repairs the output, and makes only the bad shards again."
    assert last == ([] if reason.endswith("move it away") else [repair])


def test_several_files_are_all_named(folder: Path) -> None:
    (folder / shard(2)).unlink()
    flip(folder / shard(0), 100)
    (folder / REJECTED).unlink()
    found = verify(folder)
    assert [bad.file for bad in found.bad] == [shard(0), shard(2), REJECTED]
    assert str(found).startswith(f"{folder}: 3 files differ from the manifest\n")


def test_an_unfinished_job_is_sound_so_far_except_for_copies(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("I ride\n" * 50)
    out = tmp_path / "out"

    class Stop(Progress):
        def shard(self, record: dict[str, object]) -> None:
            if record["file"] == shard(1):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(tmp_path / "corpus.txt", TOKENIZER, out, workers=0, shard_bytes=70, progress=Stop())
    found = verify(out)
    assert (found.sound, found.finished, found.shards) == (True, False, 2)
    assert str(found).splitlines() == [
        f"{out}: 2 shards so far, 20 rows, 40 tokens, all as they were written",
        "The job is not finished: the same hf-posenc encode again continues it.",
    ]
    shutil.copy(out / shard(0), out / "data/shard-2.parquet")
    assert [bad.file for bad in verify(out).bad] == ["data/shard-2.parquet"]
    assert str(verify(out)).splitlines()[-1].startswith("The job is not finished")
    shutil.copy(out / shard(0), out / shard(4))
    assert [bad.file for bad in verify(out).bad] == [shard(4), "data/shard-2.parquet"]


def test_a_folder_without_output_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ValueError, match=rf"{folder} holds no manifest.json\n  fix: "):
            verify(folder)


def test_a_shard_that_may_not_be_read_is_not_a_damaged_shard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hashlib, "sha256", refuse)
    with pytest.raises(PermissionError):
        verify(folder)


@pytest.mark.parametrize(("harm", "status"), [(None, 0), ("gone", 1)])
def test_the_command_ends_with_1_if_a_file_is_bad(
    folder: Path, harm: str | None, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    if harm:
        HARMS[harm][0](folder)
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", str(folder)])
    assert ended.value.code == status
    assert capsys.readouterr().out.strip() == str(verify(folder))


@pytest.mark.parametrize(
    ("name", "value"),
    [("shards", None), ("shards", [1]), ("shards", [{}]), ("config", []), ("finished", "yes"), ("tokenizer", None)],
)
def test_a_manifest_with_values_of_the_wrong_type_counts_as_lost(folder: Path, name: str, value: object) -> None:
    content = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps({**content, name: value}))
    found = verify(folder)
    assert (found.bad, found.shards, found.rows) == ((), 3, 28)
    assert not found.finished


@pytest.mark.parametrize(
    "footer", [b"1", b"[" * 100_000, b'{"format_version": 3}', b'{"format_version": 3, "size": []}']
)
def test_a_shard_with_another_footer_is_damaged(folder: Path, footer: bytes) -> None:
    table = pq.read_table(folder / shard(0))
    metadata = {b"hf_posenc": footer, b"hf_posenc_sha256": b"0"}
    pq.write_table(table.replace_schema_metadata(metadata), folder / shard(0))
    (folder / "manifest.json").unlink()
    assert f"{shard(0)}: is damaged" in map(str, verify(folder).bad)
