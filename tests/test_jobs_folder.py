"""The output folder is held against what can befall it: two runs, foreign files, full and read-only disks, kill -9."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_posenc.jobs.output.folder import Folder, rejected_in, shard_name, shard_number, shards_in, written_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------------------------------------------- one whole file


def test_a_file_appears_whole_under_its_name_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "shard-000000.parquet"
    path.write_bytes(b"before")
    with written_whole(path) as aside:
        assert aside.parent == tmp_path
        assert aside.name.startswith(".")
        assert str(os.getpid()) in aside.name
        aside.write_bytes(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("problem", [ValueError("a bad row"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_what_goes_wrong_while_writing_passes_as_it_is_and_leaves_the_old_file(
    tmp_path: Path, problem: BaseException
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")

    def write() -> None:
        with written_whole(path) as aside:
            aside.write_bytes(b"half")
            raise problem

    with pytest.raises(type(problem)) as caught:
        write()
    assert caught.value is problem
    assert path.read_bytes() == b"before"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(("step", "on_disk"), [("fsync", b"before"), ("replace", b"before"), ("folder", b"after")])
def test_a_full_disk_at_any_step_is_explained_and_leaves_one_of_both_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, on_disk: bytes
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    calls = []

    def full(*_: Any) -> None:
        calls.append(None)
        if step != "folder" or len(calls) == 2:  # the second file that is synced is the folder
            raise OSError(errno.ENOSPC, "No space left on device")

    if step == "replace":
        monkeypatch.setattr(Path, "replace", full)
    else:
        monkeypatch.setattr(os, "fsync", full)
    message = r"a cannot be written: the disk is full\n  got: [\d,]+ bytes free"
    with pytest.raises(OSError, match=message) as caught, written_whole(path) as aside:
        aside.write_bytes(b"after")
    assert str(path) in str(caught.value)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == on_disk
    assert names(tmp_path) == ["a"]


def test_a_limit_on_the_size_of_files_is_explained_and_the_file_begun_is_gone(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path\n"
        "import pyarrow as pa, pyarrow.parquet as pq\n"
        "from hf_posenc.jobs.output.folder import written_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "for write in (lambda p: p.write_bytes(bytes(9999)),\n"
        "              lambda p: pq.write_table(pa.table({'a': range(9999)}), p)):\n"
        "    try:\n"
        "        with written_whole(Path(sys.argv[1], 'big')) as aside: write(aside)\n"
        "    except OSError as error: print(error)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True, text=True)
    assert ran.stdout.count("big cannot be written: a file may not grow further here (ulimit -f, ") == 2
    assert ran.stdout.count("bytes free") == 2
    assert names(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only the system's administrator may mount file systems")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_full_is_explained_and_what_is_finished_stays(small_disk: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Folder(small_disk / "out") as folder:
        with written_whole(folder.path / shard_name(0)) as aside:
            aside.write_bytes(bytes(20_000))
        for write in (
            lambda path: path.write_bytes(bytes(99_999)),
            lambda path: pq.write_table(pa.table({"a": range(99_999)}), path),
        ):
            message = r"shard-000001.parquet cannot be written: the disk is full\n  got: \d\d,"
            with pytest.raises(OSError, match=message), written_whole(folder.path / shard_name(1)) as aside:
                write(aside)
    assert names(small_disk / "out") == [shard_name(0)]
    assert (small_disk / "out" / shard_name(0)).stat().st_size == 20_000


def test_a_folder_removed_during_the_run_is_said_so(tmp_path: Path) -> None:
    def write(shard: int, meanwhile: Callable[[], None]) -> None:
        with written_whole(tmp_path / "out" / shard_name(shard)) as aside:
            aside.write_bytes(b"some")
            meanwhile()

    with Folder(tmp_path / "out"):
        with pytest.raises(OSError, match=r"shard-000000.parquet cannot be written: its folder is gone"):
            write(0, lambda: shutil.rmtree(tmp_path / "out"))
        with pytest.raises(OSError, match=r"shard-000001.parquet cannot be written: its folder is gone"):
            write(1, lambda: None)
    assert names(tmp_path) == []


# ---------------------------------------------------------------------------------------------------- one run at a time

HOLD = (
    "import sys, time; from hf_posenc.jobs.output.folder import Folder\n"
    "with Folder(sys.argv[1]) as folder:\n"
    "    (folder.path / 'manifest.json').write_text('{}')\n"
    "    print('in', flush=True); sys.stdin.read()\n"
)


def holder(path: Path) -> subprocess.Popen[str]:
    """A process that is in the folder until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    return process


def test_a_second_run_is_refused_with_the_first_ones_process_until_that_is_over_or_killed(tmp_path: Path) -> None:
    for end in ("leaves", "is killed"):
        with holder(tmp_path / "out") as first:
            for _ in range(2):  # being refused changes nothing
                message = rf"out is in use by another run \(process {first.pid}\)"
                with pytest.raises(OSError, match=message), Folder(tmp_path / "out"):
                    pass
            if end == "is killed":
                first.send_signal(signal.SIGKILL)
            else:
                first.communicate()
            first.wait()
        with Folder(tmp_path / "out"):
            pass
        assert names(tmp_path / "out") == ["manifest.json"]


def test_a_second_run_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    with Folder(tmp_path), pytest.raises(OSError, match=rf"in use by another run \(process {os.getpid()}\)"):
        Folder(tmp_path).__enter__()
    with Folder(tmp_path):
        pass


def test_a_process_forked_meanwhile_does_not_keep_the_folder(tmp_path: Path) -> None:
    script = (
        "import os, sys, time; from hf_posenc.jobs.output.folder import Folder\n"
        "with Folder(sys.argv[1]):\n"
        "    child = os.fork() or time.sleep(60)\n"
        "with Folder(sys.argv[1]): print('again')\n"
        "os.kill(child, 9)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert ran.stdout == "again\n"


def test_a_holder_on_another_machine_is_named_with_it(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        (folder.path / ".lock").write_text("77 far.away\n")
        with pytest.raises(OSError, match=r"in use by another run \(process 77 on far.away\)"), Folder(tmp_path):
            pass


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", no_locks)
        with pytest.warns(UserWarning, match="on a file system without locks"), Folder(tmp_path / "out") as folder:
            (folder.path / "manifest.json").touch()
    assert names(tmp_path / "out") == ["manifest.json"]


def test_two_that_enter_and_leave_all_the_time_are_never_in_it_together(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from hf_posenc.jobs.output.folder import Folder\n"
        "inside = pathlib.Path(sys.argv[1]) / 'inside'; got = 0\n"
        "while got < 200:\n"
        "    try:\n"
        "        with Folder(pathlib.Path(sys.argv[1], 'out')):\n"
        "            inside.touch(exist_ok=False); inside.unlink(); got += 1\n"
        "    except OSError as error:\n"
        "        if 'in use' not in str(error): raise\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]


# In one process that forks: two parents that start at the same instant, fifty times, on a folder that is new or not.
AT_ONCE = """
import os, sys
from pathlib import Path
from hf_posenc.jobs.output.folder import Folder
from hf_posenc.jobs.output.manifest import Manifest

def parent(path, number, go, done, said):
    os.read(go, 1)
    word = b"R"
    try:
        with Folder(path) as folder:
            manifest = Manifest.open(
                folder.path, config={"number": number}, tokenizer={}, inputs=[], same_inputs=lambda _: []
            )
            (folder.path / "shard-000000.parquet").touch(exist_ok=False)
            os.write(said, b"W")
            word = b""
            os.read(done, 1)
            assert Manifest.read(folder.path).config == {"number": number}
            (folder.path / "shard-000000.parquet").unlink()
    except OSError as error:
        if "is in use by another run" not in str(error):
            os.write(2, str(error).encode())
            word = b"X"
    os.write(said, word)

for once in range(50):
    path = Path(sys.argv[1], str(once), *["deeper"] * (once % 3))
    if once % 2:
        path.mkdir(parents=True)
    go, done, said = os.pipe(), os.pipe(), os.pipe()
    children = []
    for number in range(2):
        child = os.fork()
        if not child:
            try:
                parent(path, number, go[0], done[0], said[1])
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    os.write(go[1], b"12")
    both = b""
    while len(both) < 2:
        both += os.read(said[0], 2)
    os.write(done[1], b"12")
    assert sorted(both) == sorted(b"WR"), both
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert [one.name for one in path.iterdir()] == ["manifest.json"]
    for end in (*go, *done, *said):
        os.close(end)
"""


def test_of_two_that_start_at_the_same_instant_one_is_in_and_the_other_is_refused(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_ONCE, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_folder_that_is_taken_away_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, calls = os.mkdir, []

    def taken_away(path: Any, *mode: Any) -> None:
        calls.append(path)
        if len(calls) == 1:  # there for this call, gone for the next look: another run has left
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        make(path, *mode)

    monkeypatch.setattr(os, "mkdir", taken_away)
    with Folder(tmp_path / "out") as folder:
        assert folder.path.is_dir()
    assert names(tmp_path) == []


def test_what_nfs_keeps_of_a_lock_that_was_taken_away_is_no_foreign_file_and_a_stale_one_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    (tmp_path / ".nfs00000000018a3c5400000001").touch()
    lock, calls = fcntl.flock, []

    def stale(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 1:
            raise OSError(errno.ESTALE, "Stale file handle")
        lock(*given)

    monkeypatch.setattr(fcntl, "flock", stale)
    with Folder(tmp_path), pytest.raises(OSError, match="in use by another run"):
        Folder(tmp_path).__enter__()


# ------------------------------------------------------------------------------------- what is refused, removed, left


def test_a_folder_is_made_with_those_above_it_and_one_in_which_nothing_came_to_be_goes_again(tmp_path: Path) -> None:
    with Folder(tmp_path / "a" / "b") as folder:
        assert folder.path.is_dir()
    assert not (tmp_path / "a" / "b").exists()
    (tmp_path / "mine").mkdir()
    with Folder(tmp_path / "mine"):
        pass
    assert names(tmp_path / "mine") == []


def test_a_relative_folder_is_the_same_wherever_one_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Folder("out").path == tmp_path / "out"


def test_a_folder_with_other_things_and_no_manifest_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    for name in ("README.md", "b.txt", "c.txt", "shard-000000.parquet"):
        (tmp_path / name).write_text("mine")
    message = (
        r"other files, and no manifest.json of an earlier run\n  got: README.md, b.txt, c.txt and 1 more\n  fix: ano"
    )
    with pytest.raises(ValueError, match=message), Folder(tmp_path):
        pass
    assert names(tmp_path) == ["README.md", "b.txt", "c.txt", "shard-000000.parquet"]
    assert {path.read_text() for path in tmp_path.iterdir()} == {"mine"}


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_way_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ValueError, match=r"must be a folder\n  got: a file: .*out"), Folder(tmp_path / "out" / below):
        pass
    assert (tmp_path / "out").read_text() == "mine"


def test_what_an_interrupted_run_left_aside_is_removed_and_nothing_else(tmp_path: Path) -> None:
    ours = [
        ".shard-000003.parquet.12-0a1b2c3d.tmp",
        "..rejected-000003.jsonl.12-0a1b2c3d.tmp",
        ".manifest.json.12-0a1b2c3d.tmp",
        ".README.md.1-ffffffff.tmp",
        ".rejected.jsonl.1-ffffffff.tmp",
    ]
    kept = [
        "manifest.json",
        "shard-000000.parquet",
        ".rejected-000000.jsonl",
        "notes.txt",
        ".shard-000003.parquet.tmp",
        ".notes.txt.12-0a1b2c3d.tmp",
        "shard-000003.parquet.12-0a1b2c3d.tmp",
    ]
    for name in [*ours, *kept]:
        (tmp_path / name).touch()
    with Folder(tmp_path) as folder:
        assert names(tmp_path) == sorted([*kept, ".lock"])
        (tmp_path / ours[0]).touch()  # as of a worker that is stopped
        assert list(shards_in(folder.path)) == [0]
        assert list(rejected_in(folder.path)) == [0]
    assert names(tmp_path) == sorted(kept)


def test_a_folder_that_cannot_be_cleared_is_not_kept_locked(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").touch()
    (tmp_path / ".README.md.1-ffffffff.tmp").mkdir()
    with pytest.raises(OSError, match=r"\.tmp"), Folder(tmp_path):
        pass
    (tmp_path / ".README.md.1-ffffffff.tmp").rmdir()
    with Folder(tmp_path):
        pass


def test_what_a_run_killed_before_its_manifest_left_is_no_foreign_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("1 host\n")
    (tmp_path / ".manifest.json.12-0a1b2c3d.tmp").touch()
    with Folder(tmp_path):
        assert names(tmp_path) == [".lock"]


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EROFS, "the file system is read-only"), (errno.EACCES, "its permissions do not")]
)
def test_a_folder_that_may_not_be_written_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def shut(path: Any, *_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", shut)
        with pytest.raises(
            OSError, match=rf"{tmp_path} cannot be written to: {words}[^\n]*\n  got: .*\n  fix: another"
        ):
            Folder(tmp_path).__enter__()
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", shut)
        with pytest.raises(OSError, match=rf"{tmp_path / 'a' / 'b'} cannot be written to: {words}"):
            Folder(tmp_path / "a" / "b").__enter__()


def test_a_read_only_disk_is_refused_whether_the_folder_is_new_or_not(small_disk: Path) -> None:
    with Folder(small_disk / "out") as folder:
        (folder.path / "manifest.json").touch()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for path in (small_disk / "out", small_disk / "new"):
        message = f"{path} cannot be written to: the file system is read-only"
        with pytest.raises(OSError, match=message), Folder(path):
            pass
    with pytest.raises(OSError, match="the file system is read-only"), written_whole(small_disk / "out" / "a") as aside:
        aside.touch()


def test_shards_are_numbered_in_their_names() -> None:
    assert [shard_name(3), shard_name(1_234_567)] == ["shard-000003.parquet", "shard-1234567.parquet"]
    assert [shard_number(shard_name(shard)) for shard in (0, 3, 1_234_567)] == [0, 3, 1_234_567]
    for name in ("shard-3.parquet", "shard-000003.parquet.tmp", "../shard-000003.parquet", ""):
        with pytest.raises(ValueError, match="named like one"):
            shard_number(name)
