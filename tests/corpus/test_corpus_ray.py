"""The Ray engine: the bytes of the local engine, whatever dies, and the caller's Ray left as it was.

Most tests share one Ray, started by the fixture as a caller starts it. Those about a Ray that `encode` starts run a
script in a process of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
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
from hf_posenc.corpus import Progress, encode, verify

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

pytestmark = pytest.mark.ray


class At(Progress):
    """Calls a function when a number of shards are finished."""

    def __init__(self, number: int, then: Callable[[], None]) -> None:
        self._left, self._then = number, then

    def shard(self, record: dict[str, Any]) -> None:
        self._left -= 1
        if self._left == 0:
            self._then()


@pytest.fixture
def corpus(tmp_path: Path, sentences: list[str]) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(" ".join(text.split()) + "\n" for text in sentences), encoding="utf-8")
    return path


def encoded(corpus: Path, output: Path, tokenizer: Any, **settings: Any) -> dict[str, bytes]:
    """Return the content of every file of the output."""
    encode(
        corpus,
        tokenizer,
        output,
        **{
            "workers": 2,
            "shard_bytes": 5_000,
            "max_length": 64,
            "too_long": "split",
            "source_columns": True,
            **settings,
        },
    )
    return {path.name: path.read_bytes() for path in output.rglob("[!.]*") if path.is_file()}


@pytest.fixture(scope="module")
def callers_ray() -> Iterator[None]:
    """Ray as a caller may have started it. Its workers can import the tests."""
    import ray

    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, Path(__file__).parents[:3]), path])
    on_sigterm = signal.getsignal(signal.SIGTERM)  # Ray puts a handler of its own there, and leaves it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on later versions of Ray
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            object_store_memory=100 << 20,
        )
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    os.environ["PYTHONPATH"] = path
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, on_sigterm)


def below(process: int) -> dict[int, str]:
    """Return the command lines of the processes that a process and its children have started."""
    everything = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
                if state != "Z":
                    command = (folder / "cmdline").read_text().replace("\0", " ").strip()
                    everything[int(folder.name)] = int(parent), command
    found = [process]
    for one in found:
        found += [child for child, (parent, _) in everything.items() if parent == one]
    return {child: everything[child][1] for child in found[1:] if child in everything}


# ------------------------------------------------------------------------------------------------------- on a given Ray


@pytest.mark.usefixtures("callers_ray")
def test_both_engines_write_the_same_bytes_even_if_workers_of_ray_are_killed(
    corpus: Path, tmp_path: Path, bert_folder: Path
) -> None:
    import ray

    killed = []

    def kill() -> None:
        for process, command in below(os.getpid()).items():
            if command.startswith(("ray::_call", "ray::IDLE")):
                os.kill(process, signal.SIGKILL)
                killed.append(command)

    before = dict(os.environ), signal.getsignal(signal.SIGTERM)
    on_ray = encoded(corpus, tmp_path / "ray", bert_folder, engine="ray", progress=At(2, kill))
    assert (dict(os.environ), signal.getsignal(signal.SIGTERM)) == before
    assert ray.is_initialized()
    assert len(killed) >= 1
    assert len(on_ray) > 5
    assert on_ray == encoded(corpus, tmp_path / "local", bert_folder)


@pytest.mark.usefixtures("callers_ray")
def test_a_bad_row_is_named_by_file_and_line(corpus: Path, tmp_path: Path, bert_folder: Path) -> None:
    with corpus.open("a") as file:
        file.write("\x00\n")
    with pytest.raises(ValueError, match=r"corpus\.txt, line \d+: has no tokens") as caught:
        encoded(corpus, tmp_path / "out", bert_folder, engine="ray")
    assert type(caught.value) is ValueError
    assert verify(tmp_path / "out").bad == ()


@pytest.mark.usefixtures("callers_ray")
def test_an_input_that_a_machine_cannot_open_is_named_with_the_machine(
    corpus: Path, tmp_path: Path, bert_folder: Path
) -> None:
    class Gone(Progress):
        def start(self, **_: Any) -> None:
            corpus.unlink()

    with pytest.raises(OSError, match=rf"(?s)every machine of a cluster.*on {platform.node()}: there is no file .*txt"):
        encoded(corpus, tmp_path / "out", bert_folder, engine="ray", progress=Gone(), source_columns=False)


@pytest.mark.usefixtures("callers_ray")
def test_another_cluster_is_refused_while_one_is_connected(corpus: Path, tmp_path: Path, bert_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"one cluster at a time\n  got: .*, and now 192\.0\.2\.1:6379"):
        encoded(corpus, tmp_path / "out", bert_folder, engine="ray", address="192.0.2.1:6379")


@pytest.mark.usefixtures("callers_ray")
@pytest.mark.parametrize("batch_format", ["pyarrow", "numpy", "pandas"])
def test_the_collator_itself_is_a_function_for_map_batches(
    batch_format: str, sentences: list[str], bert: PreTrainedTokenizerFast
) -> None:
    import ray.data

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


# ------------------------------------------------------------------------------------------------ a cluster of machines

CLUSTER = """
import sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from ray.cluster_utils import Cluster
from hf_posenc.corpus import Progress, encode
corpus, tokenizer, output = sys.argv[1:]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
cluster.wait_for_nodes()
class Lose(Progress):
    left = 3
    def shard(self, record):
        self.left -= 1
        if self.left == 0:
            cluster.remove_node(nodes[0], allow_graceful=False)
            print("lost", flush=True)
settings = dict(engine="ray", address=cluster.address, shard_bytes=1_000, max_length=64, too_long="split")
store = {"path": output, "target_protocol": "file"}
encode("dir://in", tokenizer, "dir://out", storage_options=store, progress=Lose(), **settings)
cluster.shutdown()
"""


def test_a_cluster_that_loses_a_machine_writes_the_same_bytes_to_a_store(
    corpus: Path, tmp_path: Path, bert_folder: Path
) -> None:
    (tmp_path / "store" / "in").mkdir(parents=True)
    (tmp_path / "store" / "in" / "corpus.txt").write_bytes(corpus.read_bytes())
    command = [sys.executable, "-c", CLUSTER, corpus, bert_folder, tmp_path / "store"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "lost" in done.stdout
    store = {"path": str(tmp_path / "store"), "target_protocol": "file"}
    given: dict[str, Any] = {"shard_bytes": 1_000, "max_length": 64, "too_long": "split", "workers": 0}
    encode("dir://in", bert_folder, tmp_path / "local", storage_options=store, **given)
    shards = {path.name: path.read_bytes() for path in (tmp_path / "local" / "data").iterdir()}
    assert len(shards) > 10
    assert shards == {path.name: path.read_bytes() for path in (tmp_path / "store" / "out" / "data").iterdir()}
    assert verify("dir://out", storage_options=store).finished


# -------------------------------------------------------------------------------------------- a Ray started by `encode`


OWN = """
import os, signal, sys, warnings
os.environ["RAY_DEDUP_LOGS"] = "1"  # any variable of Ray's that the user has set
before = dict(os.environ), signal.getsignal(signal.SIGTERM)
warnings.simplefilter("error")
import ray
from hf_posenc.corpus import Progress, encode
class Printed(Progress):
    def shard(self, record):
        print(record["file"], flush=True)
corpus, tokenizer, output = sys.argv[1:]
for _ in range(2):
    try:
        encode(corpus, tokenizer, output, engine="ray", workers=2, shard_bytes=1_000, progress=Printed())
    except ValueError as error:
        print("error:", str(error).splitlines()[0])
    assert not ray.is_initialized()
    added = {name for name in os.environ if name.startswith("RAY_")} - set(before[0])
    assert before == ({name: os.environ[name] for name in set(os.environ) - added}, signal.getsignal(signal.SIGTERM))
"""


def test_a_ray_that_encode_started_is_gone_after_an_error_and_the_process_is_as_before(
    corpus: Path, tmp_path: Path, bert_folder: Path
) -> None:
    with corpus.open("ab") as file:
        file.write(b"\xff\n")
    command = [sys.executable, "-c", OWN, corpus, bert_folder, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("error: ") == 2  # Ray can be started again in the same process
    assert all(line.startswith(("data/shard-", "error: ")) for line in done.stdout.splitlines())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the process table in /proc")
def test_nothing_that_writes_outlives_a_driver_that_is_killed(corpus: Path, tmp_path: Path, bert_folder: Path) -> None:
    corpus.write_text(corpus.read_text() * 100)
    command = [sys.executable, "-c", OWN, corpus, bert_folder, tmp_path / "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline().startswith("data/shard-")
        # Its two agents write no shards, and end after a minute.
        started = {process for process, command in below(driver.pid).items() if not command.endswith("Agent")}
        assert len(started) >= 3
        driver.kill()
        end = time.monotonic() + 90
        while any(Path(f"/proc/{process}/cmdline").exists() for process in started) and time.monotonic() < end:
            time.sleep(0.2)
        assert not [process for process in started if Path(f"/proc/{process}/cmdline").exists()]


def test_an_address_where_nobody_answers_is_refused(corpus: Path, tmp_path: Path, bert_folder: Path) -> None:
    import ray

    if ray.is_initialized():
        ray.shutdown()
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(ConnectionError, match=rf"a Ray cluster must answer\n  got: {address}"):
            encoded(corpus, tmp_path / "out", bert_folder, engine="ray", address=address)


def test_without_ray_the_error_names_the_package_to_install(
    corpus: Path, tmp_path: Path, bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "ray'):
        encoded(corpus, tmp_path / "out", bert_folder, engine="ray")
