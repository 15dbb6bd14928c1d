"""A plan of batches as a file: two arrays and a line of settings.

Which settings those are is the plan's business.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain, shorten


def write_plan(
    path: str | os.PathLike[str], order: NDArray[np.int64], batch_offsets: NDArray[np.int64], settings: dict[str, Any]
) -> None:
    """Writes a NumPy archive under exactly this name."""
    with Path(path).open("wb") as file:  # given a name, NumPy would add an ending to it
        np.savez(file, order=order, batch_offsets=batch_offsets, settings=np.array(json.dumps(settings)))


def read_plan(path: str | os.PathLike[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, Any]]:
    """What `write_plan` wrote; a `ValueError` where the file holds something else."""
    try:
        # Opened here: NumPy leaves a file open that turns out to be no archive.
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as plan:
            return plan["order"], plan["batch_offsets"], json.loads(str(plan["settings"]))
    except (AttributeError, EOFError, IndexError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as problem:
        raise ValueError(
            explain(
                "the file holds no plan of batches",
                got=f"{os.fspath(path)}: {shorten(problem)}",
                fix="plan_batches(lengths, token_budget).save(path)",
            )
        ) from None
