"""Every script in examples/, run as a reader would run it: it ends well and prints what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, folder: Path) -> str:
    """What the example prints; fails with its error output where it does not end well."""
    source = str(EXAMPLES.parent)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    print(f"{name}: {time.monotonic() - began:.0f} s\n{done.stdout}")
    return done.stdout


def test_every_example_has_a_test() -> None:
    tested = set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text(encoding="utf-8")))
    assert tested == {path.name for path in EXAMPLES.glob("*.py")}
