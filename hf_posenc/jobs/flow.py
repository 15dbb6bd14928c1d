"""The steps of one run: compare with what is there, do what is missing, close the books.

The output folder is locked while this runs; what each step does is in a module of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .._explain import explain
from .asked import Asked
from .card import write_card
from .engines import run_in_processes, run_on_ray
from .folder import CARD, other_files
from .job import Job
from .manifest import Manifest, job_libraries, job_settings, library_versions
from .progress import Progress
from .rejected import join_rejected
from .shard_writer import ShardWriter
from .shards.layout import schema_of
from .sizes import default_shard_bytes
from .sources import Sources
from .task import Task


class Flow:
    r"""One run of a job.

    Args:
        asked (`Asked`), sources (`Sources`), folder (`Path`): the settings, the input and the output.
        split (`str`): what a document is in files of text.
        shard_bytes (`int`, *optional*): as asked for.
        progress (`Progress`): who is told.

    Raises:
        ValueError: if a column that is carried has the name of one that is made; if the folder holds another job.
    """

    def __init__(
        self,
        asked: Asked,
        sources: Sources,
        folder: Path,
        *,
        split: str,
        shard_bytes: int | None,
        progress: Progress,
    ) -> None:
        self._asked, self._sources, self._progress = asked, sources, progress
        tokenizer = asked.serialized()
        self._job = Job(
            folder=folder.resolve(),
            tokenizer=tokenizer,
            text_column=asked.text_column,
            text_pair_column=asked.text_pair_column,
            carried=sources.schema,
            max_length=asked.max_length,
            too_long=asked.too_long,
            stride=asked.stride,
            add_special_tokens=asked.add_special_tokens,
            pack=asked.pack,
            first_position=asked.first_position,
            labels=asked.labels,
            on_bad_row=asked.on_bad_row,
        )
        schema = schema_of(self._job)
        carried = [] if asked.pack is not None else sources.schema.names
        _check_names(schema.names[: len(schema.names) - len(carried)], carried)
        earlier = Manifest.find(folder)
        if shard_bytes is None and earlier is not None and earlier.started:
            # An input that changed is refused for that, and not for another size of shards that follows from it.
            shard_bytes = earlier.config.get("shard_bytes")
        self._shard_bytes = shard_bytes = shard_bytes or default_shard_bytes(sources.size)
        config = {
            **asked.settings(),
            "split": split,
            "columns": {field.name: str(field.type) for field in schema},
            "shard_bytes": shard_bytes,
        }
        identity = {"class": type(asked.tokenizer).__name__, "digest": tokenizer.digest}
        libraries = library_versions(job_libraries(self._job))
        self._job = replace(self._job, settings=job_settings(config, identity, libraries))
        self._manifest = Manifest.open(
            folder,
            earlier,
            config=config,
            tokenizer={**identity, "name": str(asked.tokenizer.name_or_path)},
            inputs=sources.fingerprint(),
            stamps=sources.stamps(),
            same_inputs=partial(sources.differences, shard_bytes=shard_bytes),
            libraries=libraries,
        )

    def run(self, engine: str, workers: int | None, address: str | None) -> Manifest:
        r"""Does what is missing, and writes the rest of the folder.

        Args:
            engine (`"local"` or `"ray"`), workers (`int`, *optional*), address (`str`, *optional*): as in `encode`.

        Returns:
            `Manifest`, finished.

        Raises:
            ValueError, OSError, RuntimeError: see `encode`. What is finished stays, and the next run goes on.
        """
        manifest = self._manifest
        done = manifest.finished_shards(self._progress.checked)
        for message in self._asked.told:
            self._progress.say(message)
        if not manifest.finished:
            self._make(done, engine, workers, address)
            self._sources.check_unchanged()
            join_rejected(manifest.folder, manifest.shards)
        _check_other_files(manifest)
        if not manifest.finished or manifest.problem or not (manifest.folder / CARD).exists():
            if not write_card(manifest.folder, manifest):
                self._progress.say("README.md was written or changed by somebody, and is left as it is")
            manifest.finish()
            if cut := manifest.totals["cut"]:
                total = manifest.totals["documents"]
                self._progress.lost(f"{cut:,} of {total:,} documents were cut to {self._job.max_length} tokens")
        return manifest

    def _make(self, done: dict[int, Any], engine: str, workers: int | None, address: str | None) -> None:
        """The shards that are missing, each noted as soon as it is there."""
        tasks = self._sources.tasks(self._shard_bytes, done)
        bytes_done = sum(self._manifest.shards[shard].get("read", 0) for shard in done)
        records = self._records(tasks, engine, workers, address)
        self._progress.start(bytes_total=self._sources.size, bytes_done=bytes_done, shards_done=len(done))
        try:
            with closing(records):
                for record in records:
                    # Before it is noted: what was read of a file that has changed since is no longer that file.
                    self._sources.check_unchanged(record["begins"][0], record["ends"][0])
                    self._manifest.add(record)
                    self._progress.tick(record["read"], record["tokens"])
                    self._progress.shard(record)
        finally:
            self._manifest.save()
            self._progress.stop()

    def _records(self, tasks: Iterator[Task], engine: str, workers: int | None, address: str | None) -> Any:
        writer = ShardWriter(self._job)
        if engine == "local":
            return run_in_processes(writer, tasks, workers=workers or _cores())
        return run_on_ray(
            writer,
            tasks,
            folder=self._job.folder,
            libraries=self._manifest.libraries,
            workers=workers,
            address=address,
        )


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_names(made: list[str], carried: list[str]) -> None:
    for name in carried:
        if name in made:
            others = [other for other in carried if other not in made]
            raise ValueError(
                explain(
                    f"column '{name}' comes with the documents, and tokenising makes one of that name",
                    got=f"to be carried: {', '.join(carried)}",
                    fix=f"columns={others!r} carries the others; or rename it",
                )
            )


def _check_other_files(manifest: Manifest) -> None:
    """Raise if `data/` holds files that are not of this job: other libraries would read them as well."""
    others = other_files(manifest.folder, set(manifest.shards))
    if others:
        raise ValueError(
            explain(
                f"{manifest.folder} holds files that are not of this job, and would be read with its shards",
                got=", ".join(others[:3]) + f", and {len(others) - 3} more" * (len(others) > 3),
                fix="move them to another folder, and run the same command again",
            )
        )
