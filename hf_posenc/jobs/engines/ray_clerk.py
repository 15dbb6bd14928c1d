r"""A writer as Ray Data calls it: on whichever machine, by the number of a task, its errors handed over whole.

Where tasks come from is for `ray_desk`.
"""

from __future__ import annotations

import pickle
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..._explain import explain, shorten
from ..output.libraries import installed
from .process import DEATHS
from .ray_connection import environment
from .worker import Writer, packed

# What this process unpickled last: writers take a while to set up, and a process serves many tasks of one run.
_held: tuple[Any, Any] = (None, None)


@dataclass(eq=False)
class Clerk:
    r"""What `map_batches` calls: numbers of tasks in, the pickled answer to each out.

    An error of the writer's is an answer as well: were it raised here, Ray would bury it under pages of its own.

    Args:
        desk: handle of the `Desk`.
        writer (sequence): reference to a `Writer` in the object store.
        folder (`Path`): where shards go.
        versions (`dict`): of the driver's libraries.
    """

    desk: Any
    writer: Sequence[Any]
    folder: Path
    versions: Mapping[str, str]

    def __call__(self, batch: pa.Table) -> pa.Table:
        asked = batch.column("task").to_pylist()
        answers = [pickle.dumps(self._answer(number)) for number in asked]
        return pa.table({"task": asked, "answer": pa.array(answers, pa.binary())})

    def _answer(self, number: int) -> tuple[Any, ...]:
        """`("record", dict)`, `("raised", ...)` as `packed` has it, `("deaths", int)`, or `("written before",)`."""
        import ray

        before, where = ray.get(self.desk.take.remote(number))
        if not where:
            return ("written before",)
        if before >= DEATHS:
            return "deaths", before
        try:
            self._check_node()
            with environment(TOKENIZERS_PARALLELISM="false"):  # a core a task is what Ray was asked for
                return "record", self._writer().write(ray.get(where[0]), None)
        except Exception as problem:
            return "raised", *packed(problem)

    def _writer(self) -> Writer:
        import ray

        global _held  # noqa: PLW0603  (a cache of one)
        if _held[0] != self.writer[0]:
            _held = self.writer[0], ray.get(self.writer[0])
        writer: Writer = _held[1]
        return writer

    def _check_node(self) -> None:
        if not self.folder.is_dir():
            raise ValueError(not_shared(self.folder, f"there is no such folder on {platform.node()}"))
        here = installed(self.versions)
        wrong = [f"{name} {here[name]} instead of {said}" for name, said in self.versions.items() if here[name] != said]
        if wrong:
            raise RuntimeError(
                explain(
                    "every machine of a cluster must have the versions of the one that starts the job",
                    got=f"on {platform.node()}: {', '.join(wrong)}",
                    fix=f"pip install {' '.join(f'{name}=={said}' for name, said in self.versions.items())}",
                )
            )


def not_shared(folder: Path, got: str) -> str:
    """The message for a folder that is not the same one everywhere."""
    return explain(
        "on a cluster the output must be a folder that every machine sees under the same name",
        got=f"{shorten(str(folder))}: {got}",
        fix="a folder on the cluster's shared file system (NFS, Lustre, FSx)",
    )
