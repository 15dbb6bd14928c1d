"""Run a function of a test module in two processes that torchrun starts, connected by gloo."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch


def skip_without_gloo() -> None:
    """Skip the test where this torch cannot connect two processes on the CPU."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch cannot start two processes: it is built without gloo")


@contextlib.contextmanager
def two_processes(folder: Path, module: str, function: str, *arguments: Any, timeout: int = 600) -> Iterator[None]:
    """Run `module.function(*arguments)` in both processes while the block runs, and check that both end well."""
    script = folder / "work.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os
            import sys
            from pathlib import PosixPath

            import torch

            sys.path[:0] = {sys.path}
            import {module}

            if __name__ == "__main__":
                {module}.{function}{(*arguments,)!r}
                torch.distributed.destroy_process_group()
                sys.stdout.flush()
                os._exit(0)  # at the end of the interpreter, threads of gloo may abort the process
            """
        )
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    with (
        (folder / "output").open("w+") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as ranks,
    ):
        try:
            yield
            ranks.wait(timeout=timeout)
        finally:
            ranks.kill()
        output.seek(0)
        assert ranks.returncode == 0, output.read()[-4000:]
