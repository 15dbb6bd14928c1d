"""The tests in `device_cases.py`, in a process of their own: where an accelerator is registered, libraries use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_calls_on_a_simulated_accelerator() -> None:
    file = Path(__file__).with_name("device_cases.py")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", str(file)]
    ran = subprocess.run(command, cwd=file.parents[1], capture_output=True, text=True, check=False)
    if ran.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        pytest.skip(ran.stdout)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr
