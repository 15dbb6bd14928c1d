"""The Ray engine, held against the tasks it was given: each written once, whatever dies, and Ray left as it was found.

Most tests share one Ray, started by the fixture as a caller would start it. Those about a Ray of the engine's own run a
script in a process of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc.jobs import encode
from hf_posenc.jobs.engines import on_ray
from hf_posenc.jobs.engines.on_ray import run_on_ray
from hf_posenc.jobs.task import Cursor, Part, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'hf-posenc[ray]'")
pytest.importorskip("ray.data", reason="needs Ray Data: pip install 'hf-posenc[ray]'")


def tasks(count: int, size: int = 1000, seen: Callable[[int], None] = lambda _: None) -> Iterator[Task]:
    """Tasks with payloads that differ, made as they are asked for."""
    for number in range(count):
        seen(number)
        payload = f"{number:09d}\n".encode() * (size // 10)
        part = Part(f"file-{number}.txt", "lines", 1, payload)
        yield Task(number, (part,), Cursor(offset=number), Cursor(offset=number + 1), size)


def payload(task: Task) -> bytes:
    return b"".join(part.payload for part in task.parts)


def writer(folder: Path, *, wait: float = 0.0, before: Callable[[Task], None] = lambda _: None) -> Any:
    """Writes the payload as it is. Its class is made here, so that it travels by value: workers cannot load tests."""

    class Stored:
        def write(self, task: Task, _tick: None) -> dict[str, Any]:
            import hashlib
            import os
            import time

            before(task)
            time.sleep(wait)
            content = b"".join(part.payload for part in task.parts)
            name = f"shard-{task.shard:06d}.parquet"
            aside = folder / f"{name}.{os.getpid()}"
            aside.write_bytes(content)
            aside.replace(folder / name)
            checksum = hashlib.sha256(content).hexdigest()
            return {"file": name, "bytes": len(content), "sha256": checksum, "process": os.getpid()}

    return Stored()


def check_all_there(folder: Path, records: list[dict[str, Any]], expected: Iterator[Task]) -> None:
    """Each task has one record, one file and the right bytes, and nothing else is there."""
    wanted = {f"shard-{task.shard:06d}.parquet": hashlib.sha256(payload(task)).hexdigest() for task in expected}
    assert sorted(record["file"] for record in records) == sorted(wanted)
    assert {record["file"]: record["sha256"] for record in records} == wanted
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} == wanted


@pytest.fixture(scope="module")
def callers_ray() -> Iterator[None]:
    """Ray as a caller may have started it. The GPU is one in name only, which is all that Ray's books know of it."""
    on_sigterm = signal.getsignal(signal.SIGTERM)  # Ray puts a handler of its own there, and leaves it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on later versions of Ray
        ray.init(
            "local",
            num_cpus=2,
            num_gpus=1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            object_store_memory=100 << 20,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, on_sigterm)


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process that is not a zombie."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
                if state != "Z":
                    found[int(folder.name)] = int(parent), (folder / "cmdline").read_text().replace("\0", " ").strip()
    return found


def below(process: int) -> dict[int, str]:
    """The command lines of its children and theirs."""
    everything = processes()
    found = [process]
    for one in found:
        found += [child for child, (parent, _) in everything.items() if parent == one]
    return {child: everything[child][1] for child in found[1:] if child in everything}


# ------------------------------------------------------------------------------------------------------- on a given Ray


@pytest.mark.usefixtures("callers_ray")
def test_every_task_is_written_once_by_several_processes_and_ray_is_left_as_it_was(tmp_path: Path) -> None:
    context = ray.data.DataContext.get_current()
    context.max_errored_blocks = 7
    logger = logging.getLogger("ray.data")
    before = logger.level, dict(os.environ), signal.getsignal(signal.SIGTERM)
    try:
        records = []
        for record in run_on_ray(writer(tmp_path, wait=0.2), tasks(12), folder=tmp_path):
            records.append(record)
            assert ray.data.DataContext.get_current() is context
        assert ray.data.DataContext.get_current() is context
        assert context.max_errored_blocks == 7
    finally:
        context.max_errored_blocks = 0
    check_all_there(tmp_path, records, tasks(12))
    assert len({record["process"] for record in records}) >= 2
    assert (logger.level, dict(os.environ), signal.getsignal(signal.SIGTERM)) == before
    assert ray.is_initialized()


@pytest.mark.usefixtures("callers_ray")
def test_a_corpus_that_is_larger_than_the_object_store_is_never_in_it_whole(tmp_path: Path) -> None:
    size, count = 8 << 20, 40  # 320 MB through a store of 100 MB
    read: list[int] = []
    highest = ahead = 0
    total = ray.cluster_resources()["object_store_memory"]
    for number, record in enumerate(run_on_ray(writer(tmp_path), tasks(count, size, read.append), folder=tmp_path)):
        (tmp_path / record["file"]).unlink()
        ahead = max(ahead, len(read) - number)
        highest = max(highest, total - ray.available_resources().get("object_store_memory", total))
    assert len(read) == count
    assert ahead <= 2 + 2 + 1  # being written, waiting, and the next one that was read and has to wait
    print(f"high mark of the object store: {highest / 2**20:.0f} MB of {total / 2**20:.0f} MB")
    assert size <= highest < total  # at most 5 tasks, and what Ray has not let go of yet on a busy machine


@pytest.mark.usefixtures("callers_ray")
def test_processes_of_ray_that_are_killed_are_replaced_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    records, killed = [], []
    for record in run_on_ray(writer(tmp_path, wait=0.3), tasks(16), folder=tmp_path):
        records.append(record)
        if len(records) == 4:
            for process, command in below(os.getpid()).items():
                if command.startswith(("ray::Desk", "ray::ReadTasks", "ray::MapBatches", "ray::IDLE")):
                    os.kill(process, signal.SIGKILL)
                    killed.append(re.split(r"[.(]", command)[0])
    assert {"ray::Desk", "ray::MapBatches"} <= set(killed)
    check_all_there(tmp_path, records, tasks(16))


@pytest.mark.usefixtures("callers_ray")
def test_an_error_of_the_writer_comes_out_as_it_was_raised_and_at_once(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    out = tmp_path / "out"
    tried.mkdir()
    out.mkdir()

    def refuse(task: Task) -> None:
        if task.shard == 3:
            (tried / str(time.monotonic_ns())).touch()
            raise ValueError("file-3.txt, line 7: the text is empty\n  got: ''\n  fix: on_bad_row='skip'")

    with pytest.raises(ValueError, match="line 7") as caught:
        list(run_on_ray(writer(out, before=refuse, wait=0.1), tasks(1000), folder=out))
    assert type(caught.value) is ValueError
    assert str(caught.value) == "file-3.txt, line 7: the text is empty\n  got: ''\n  fix: on_bad_row='skip'"
    assert len(list(tried.iterdir())) == 1
    assert len(list(out.iterdir())) < 10


@pytest.mark.usefixtures("callers_ray")
def test_an_error_of_the_reader_comes_out_once_everything_before_it_is_written(tmp_path: Path) -> None:
    def broken() -> Iterator[Task]:
        yield from tasks(3)
        raise OSError("data.txt.gz ends in the middle")

    records: list[dict[str, Any]] = []
    with pytest.raises(OSError, match="ends in the middle"):
        records.extend(run_on_ray(writer(tmp_path), broken(), folder=tmp_path))
    check_all_there(tmp_path, records, tasks(3))


@pytest.mark.usefixtures("callers_ray")
def test_a_task_that_three_workers_die_of_is_named_and_not_tried_for_ever(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    out = tmp_path / "out"
    tried.mkdir()
    out.mkdir()

    def die(task: Task) -> None:
        if task.shard == 1:
            (tried / str(time.monotonic_ns())).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match=r"3 workers in a row died on shard 1 \(file-1.txt from line 1\)"):
        list(run_on_ray(writer(out, before=die), tasks(4), folder=out))
    assert len(list(tried.iterdir())) == 3


@pytest.mark.usefixtures("callers_ray")
def test_a_shard_that_only_the_other_machine_sees_is_a_folder_that_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        def write(self, _task: Task, _tick: None) -> dict[str, Any]:
            return {"file": "shard-000000.parquet", "bytes": 10}

    monkeypatch.setattr(on_ray, "_SEEN_WITHIN", 0.3)
    with pytest.raises(ValueError, match="a folder that every machine sees") as caught:
        list(run_on_ray(Elsewhere(), tasks(1), folder=tmp_path))
    assert "shard-000000.parquet was written by another machine, and is not here" in str(caught.value)
    with pytest.raises(ValueError, match="there is no such folder on"):
        list(run_on_ray(writer(tmp_path), tasks(1), folder=tmp_path / "nowhere"))


@pytest.mark.usefixtures("callers_ray")
def test_another_cluster_is_refused_while_one_is_connected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one cluster at a time\n  got: .*, and now 192\.0\.2\.1:6379"):
        list(run_on_ray(writer(tmp_path), tasks(1), folder=tmp_path, address="192.0.2.1:6379"))


@pytest.mark.usefixtures("callers_ray")
def test_both_engines_leave_the_same_bytes_in_every_file(
    tmp_path: Path, sentences: list[str], bert_folder: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(" ".join(text.split()) + "\n" for text in sentences), encoding="utf-8")
    made = {}
    for engine in ("ray", "local"):
        out = tmp_path / engine
        encode(corpus, bert_folder, out, engine=engine, workers=2, shard_bytes=5_000, max_length=64, too_long="split")
        made[engine] = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(made["ray"]) > 5
    assert made["ray"].keys() == made["local"].keys()
    assert [name for name, content in made["ray"].items() if content != made["local"][name]] == []


@pytest.mark.usefixtures("callers_ray")
@pytest.mark.parametrize("batch_format", ["pyarrow", "numpy", "pandas"])
def test_the_collator_itself_is_a_function_for_map_batches(
    batch_format: str, sentences: list[str], bert: PreTrainedTokenizerFast
) -> None:
    collate = DataCollatorWithPositionalEncoding(bert, max_length=32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray Data says of later versions; and that texts are cut
        rows = ray.data.from_items([{"text": text, "number": i} for i, text in enumerate(sentences[:40])])
        made = rows.map_batches(collate, batch_format=batch_format, batch_size=16).take_all()
        expected = collate.columns({"text": sentences[:40]})
    assert [row["number"] for row in sorted(made, key=lambda row: row["number"])] == list(range(40))
    for row in made:
        assert list(row["input_ids"]) == list(expected["input_ids"][row["number"]])
        assert row["length"] == expected["length"][row["number"]]


# -------------------------------------------------------------------------------------------------- a Ray of its own


OWN = """
import os, signal, sys, warnings
from pathlib import Path
os.environ["RAY_DEDUP_LOGS"] = "1"  # any variable of Ray's that the user has set
before = dict(os.environ), signal.getsignal(signal.SIGTERM)
warnings.simplefilter("error")
sys.path.insert(0, sys.argv[1])
from test_jobs_ray import *
import ray
folder = Path(sys.argv[2])
count, wait, broken = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
def refuse(task):
    if task.shard == broken:
        raise ValueError("this one is broken")
for _ in range(2):
    try:
        for record in run_on_ray(writer(folder, wait=wait, before=refuse), tasks(count), folder=folder, workers=2):
            print(record["file"], flush=True)
    except ValueError as error:
        print("error:", error)
    assert not ray.is_initialized()
    added = {name for name in os.environ if name.startswith("RAY_")} - set(before[0])
    assert before == ({name: os.environ[name] for name in set(os.environ) - added}, signal.getsignal(signal.SIGTERM))
"""


def own(folder: Path, *, count: int, wait: float = 0.0, broken: int = -1) -> list[str]:
    """The command of a script that runs on a Ray of the engine's own."""
    return [sys.executable, "-c", OWN, str(Path(__file__).parent), str(folder), str(count), str(wait), str(broken)]


def test_a_ray_of_its_own_is_gone_after_an_error_and_the_process_is_as_before(tmp_path: Path) -> None:
    done = subprocess.run(own(tmp_path, count=6, broken=5), capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "error: this one is broken"
    assert done.stdout.count("error: this one is broken") == 2  # Ray can be started again in the same process
    assert all(line.startswith(("shard-", "error: ")) for line in done.stdout.splitlines())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_nothing_that_writes_outlives_a_driver_that_is_killed(tmp_path: Path) -> None:
    command = own(tmp_path, count=1000, wait=0.2)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline().startswith("shard-")
        # Its two agents write nothing of ours, and take a minute to notice.
        started = {process for process, command in below(driver.pid).items() if not command.endswith("Agent")}
        assert len(started) >= 5
        driver.kill()
        until = time.monotonic() + 20
        while (left := started & set(processes())) and time.monotonic() < until:
            time.sleep(0.2)
        assert {process: processes()[process] for process in left} == {}


def test_an_address_where_nobody_answers_is_refused_at_once(tmp_path: Path) -> None:
    if ray.is_initialized():
        ray.shutdown()
    began = time.monotonic()
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(ConnectionError, match=rf"a Ray cluster must answer\n  got: {address}"):
            list(run_on_ray(writer(tmp_path), tasks(1), folder=tmp_path, address=address))
    assert time.monotonic() - began < 20


def test_without_ray_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "hf-posenc\[ray\]"'):
        list(run_on_ray(writer(tmp_path), tasks(1), folder=tmp_path))
