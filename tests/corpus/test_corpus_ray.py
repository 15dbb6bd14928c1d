"""The Ray engine: the bytes of processes of one machine, also if workers die; the caller's Ray stays as it is."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest

from hf_posenc.corpus import encode, verify

pytestmark = pytest.mark.ray
SETTINGS: dict[str, Any] = {"workers": 2, "progress": False, "max_length": 64}


@pytest.fixture
def rows(sentences: list[str]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": sentences * 20, "n": range(20 * len(sentences))})


@pytest.fixture(scope="module")
def callers_ray() -> Iterator[None]:
    """Ray as a caller may have started it."""
    import ray

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
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, on_sigterm)


def shards(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in output.glob("data/*.parquet")}


@pytest.mark.usefixtures("callers_ray")
def test_both_engines_write_the_same_bytes_even_if_workers_of_ray_are_killed(
    rows: datasets.Dataset, tmp_path: Path, bert_folder: Path
) -> None:
    import ray

    settings = {**SETTINGS, "shards": 30, "columns": ["n"], "return_overflowing_tokens": True}
    encode(rows, str(bert_folder), tmp_path / "here", **settings)
    killed: list[int] = []

    def kill() -> None:  # a worker that writes a shard
        while not killed and not done.is_set():
            for folder in Path("/proc").iterdir():
                with contextlib.suppress(OSError):  # it ended
                    if folder.name.isdigit() and b"_write_on_ray" in (folder / "cmdline").read_bytes():
                        os.kill(int(folder.name), signal.SIGKILL)
                        killed.append(int(folder.name))
                        return
            time.sleep(0.001)

    done = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    report = encode(rows, str(bert_folder), tmp_path / "ray", engine="ray", **settings)
    done.set()
    killer.join()
    assert report.finished
    assert killed
    assert ray.is_initialized()
    assert shards(tmp_path / "ray") == shards(tmp_path / "here")
    assert verify(tmp_path / "ray") == []


@pytest.mark.usefixtures("callers_ray")
def test_an_error_in_a_task_reaches_the_caller(wordpiece: Any, tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": ["a", "", "b"]})
    with pytest.raises(ValueError, match="row 1 of the input has no tokens"):
        encode(rows, wordpiece, tmp_path, engine="ray", shards=3, **SETTINGS)


@pytest.mark.usefixtures("callers_ray")
def test_another_cluster_than_the_connected_one_is_refused(wordpiece: Any, tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": ["a"]})
    with pytest.raises(ValueError, match=r"(?s)one cluster at a time.*and now elsewhere:6379"):
        encode(rows, wordpiece, tmp_path, engine="ray", address="elsewhere:6379", **SETTINGS)
    assert encode(rows, wordpiece, tmp_path, engine="ray", address="auto", **SETTINGS).finished


@pytest.mark.usefixtures("callers_ray")
def test_a_machine_with_other_versions_is_refused(
    wordpiece: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["hf_posenc.corpus.encode"], "version", lambda name: "99")
    rows = datasets.Dataset.from_dict({"text": ["a"]})
    with pytest.raises(
        RuntimeError, match=r"(?s)versions of the machine that starts the job.*pip install hf-posenc==99"
    ):
        encode(rows, wordpiece, tmp_path, engine="ray", **SETTINGS)


SCRIPT = """\
import datasets, ray, sys
from hf_posenc.corpus import encode
if __name__ == "__main__":
    rows = datasets.load_from_disk(sys.argv[1])
    encode(rows, sys.argv[2], sys.argv[3], engine="ray", workers=1, shards=3, progress=False)
    print(ray.is_initialized())
"""


def test_a_ray_that_encode_starts_is_ended_by_it(wordpiece: Any, sentences: list[str], tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": sentences}).save_to_disk(tmp_path / "rows")
    wordpiece.save_pretrained(tmp_path / "tokenizer")
    command = [sys.executable, "-c", SCRIPT, *(str(tmp_path / name) for name in ("rows", "tokenizer", "out"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"
    assert verify(tmp_path / "out") == []
