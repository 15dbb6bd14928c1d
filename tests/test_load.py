"""The command that puts a collator under load, in its short form."""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_readme import REPO


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of processes from /proc")
def test_threads_workers_many_batches_and_large_sizes_end_as_expected() -> None:
    command = [sys.executable, "-m", "tests.programs.load", "--quick"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for found in (
        "8 threads, BERT: 64 batches of 32 texts, all equal to those of a single thread",
        "one process: 400 batches of 32 texts",
        "4 workers and the main process: 400 batches of 32 texts",
        "one row of 100,000 tokens, {}: ",
    ):
        assert found in done.stdout
    assert "WRONG" not in done.stdout
