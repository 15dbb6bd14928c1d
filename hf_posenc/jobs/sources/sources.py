"""A corpus, opened: what there is to read, how much, whether it is still what it was, and its tasks.

Opening looks at names, sizes and first rows only; the documents are read by `tasks`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..._explain import explain, one_of
from ..reading.rows import Reading
from ..task import Cursor, Task
from .columns import carried
from .cutting import tasks_of
from .found import Finder, Source
from .kinds import Format, checked_format
from .marks import State

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

# Kinds whose columns are told from the first rows; that is done for so many files. The rows of all are held to it.
_TOLD = ("jsonl", "json array", "csv")
_LOOKED_AT = 16


@dataclass
class Sources:
    r"""What `open_sources` found.

    Args:
        files (`list`): the sources, in order.
        schema (`pyarrow.Schema`): the further columns that are carried, in order.
        notes (sequence of `str`): messages for the user before the work begins.
    """

    files: Sequence[Source]
    schema: pa.Schema
    notes: Sequence[str] = ()
    _seen: list[State] = field(default_factory=list, repr=False)

    @property
    def names(self) -> list[str]:
        """What messages call each source."""
        return [file.name for file in self.files]

    @cached_property
    def size(self) -> int | None:
        """Bytes of text in all, or a fair estimate; `None` when unknown."""
        sizes = [file.size() for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def fingerprint(self) -> list[dict[str, Any]]:
        """What makes each source this one and no other: JSON values, the digests of contents among them."""
        self._seen = [file.state() for file in self.files]  # before they are read: what is written meanwhile is seen
        return [file.mark() for file in self.files]

    def same_as(self, fingerprint: list[dict[str, Any]]) -> list[str]:
        """Return in words how the inputs differ from an earlier fingerprint, whatever was read of them."""
        if len(self.files) != len(fingerprint):
            return [f"inputs: {len(fingerprint)} before, {len(self.files)} now"]
        self._seen = [file.state() for file in self.files]
        found = [file.difference(before) for file, before in zip(self.files, fingerprint, strict=True)]
        return [words for words in found if words is not None]

    def stamps(self) -> list[Any]:
        """Return the times of each source, as JSON values: while they are equal, a source is not read again."""
        return [file.stamp() for file in self.files]

    def differences(
        self,
        before: Sequence[Mapping[str, Any]],
        stamps: Sequence[Any] | None,
        shards: Mapping[int, Mapping[str, Any]],
        shard_bytes: int,
    ) -> list[str]:
        r"""Return in words how the inputs differ from those that finished shards were cut from.

        Sources behind the last finished shard may differ. A source that a shard was cut from is compared by its
        fingerprint; it is read again, and the digests of the tasks are compared, if its times changed, or if it differs
        and was not read to its end.

        Args:
            before (sequence of `dict`): the fingerprint in the manifest.
            stamps (sequence, *optional*): what `stamps` returned then; `None` if that was not kept.
            shards (mapping from `int` to `dict`): the records of the finished shards, with `begins`, `ends`, `digest`.
            shard_bytes (`int`): as for `tasks`.

        Returns:
            `list[str]`, empty if the finished shards are those of these inputs.
        """
        self._seen = [file.state() for file in self.files]
        last = max((Cursor(*record["ends"]) for record in shards.values()), default=Cursor())
        if len(self.files) < last.source or (last.source == len(before) != len(self.files)):
            return [f"inputs: {len(before)} before, {len(self.files)} now"]
        found, doubtful = [], set()
        for number in range(min(last.source + (last.row > 0), len(self.files))):
            words = self.files[number].difference(dict(before[number]))
            if words is not None and number < last.source:
                found.append(words)
            elif words is not None or stamps is None or stamps[number] != self.files[number].stamp():
                doubtful.add(number)
        return found or self._read_differences(doubtful, shards, shard_bytes)

    def _read_differences(
        self, doubtful: set[int], shards: Mapping[int, Mapping[str, Any]], shard_bytes: int
    ) -> list[str]:
        """Read those sources again, as far as finished shards were cut from them, and compare the digests."""
        sure = {
            shard: Cursor(*record["ends"])
            for shard, record in shards.items()
            if doubtful.isdisjoint(range(record["begins"][0], record["ends"][0] + 1))
        }
        for task in tasks_of(self.files, shard_bytes, sure) if len(sure) < len(shards) else ():
            record = shards.get(task.shard, {"begins": task.begins, "ends": task.ends, "digest": task.digest()})
            now = (list(task.begins), list(task.ends), task.digest())
            if now != (list(record["begins"]), list(record["ends"]), record["digest"]):
                source = min(doubtful.intersection(range(task.begins.source, task.ends.source + 1)), default=0)
                return [f"input {self.files[source].name}: another content in shard {task.shard}"]
            if task.shard == max(shards):
                break
        return []

    def check_unchanged(self, first: int = 0, last: int | None = None) -> None:
        r"""Refuses to go on when a file is not as it was when it was first looked at.

        Args:
            first, last (`int`, *optional*): the numbers of the sources to look at; by default all, which takes a
                while where there are many.

        Raises:
            ValueError: naming the file.
        """
        some = slice(first, None if last is None else last + 1)
        for file, seen in zip(self.files[some], self._seen[some], strict=False):
            now = file.state()
            if now != seen:
                got = "it was written to, or another put in its place"
                if now.size != seen.size:
                    got = f"{seen.size} bytes became {now.size}"
                raise ValueError(
                    explain(
                        f"{file.name} changed while it was read",
                        got=got,
                        fix="let the file be finished first; encode a copy, or into a new folder",
                    )
                )

    def tasks(self, shard_bytes: int, done: Mapping[int, Cursor] | None = None) -> Iterator[Task]:
        r"""The corpus in tasks of at most so many bytes (one document at least), one for each shard.

        Args:
            shard_bytes (`int`): bytes of text, and of carried columns, in a task.
            done (mapping from `int` to `Cursor`, *optional*): where each finished shard ends. They are left out, and
                the others are the very ones they would have been.

        Returns:
            Iterator over `Task`.
        """
        some = bool(done)
        for task in tasks_of(self.files, shard_bytes, done or {}):
            some = True
            yield task
        if not some:
            raise ValueError(
                explain(
                    "there are no documents in the inputs",
                    got=f"{len(self.files)} files without one: {', '.join(self.names[:3])}",
                    fix="check the paths, and the format: format='text', 'json', ...",
                )
            )


def open_sources(
    inputs: Sequence[str | Path | Dataset | IterableDataset],
    *,
    format: Format | None = None,
    text_column: str = "text",
    text_pair_column: str | None = None,
    columns: Sequence[str] | None = None,
    split: str = "lines",
    dataset_config: str | None = None,
    dataset_split: str | None = None,
) -> Sources:
    r"""Find what the inputs name, and look at it closely enough to know that it can be read.

    A file is what its name says, compressed or not; a name that says nothing is text. A folder is a set that
    `save_to_disk` wrote, or what its README describes as on the Hub, or else all data files below it, in the order of
    their names. Where a folder or a data set has several splits, as `load_dataset` tells them, one has to be chosen.

    Args:
        inputs (sequence of `str`, `Path`, `Dataset`, `IterableDataset`): files, folders, patterns, names of data sets,
            data sets; one may be given twice.
        format (`str`, *optional*): one of `FORMATS`; by default as each file's name says.
        text_column (`str`), text_pair_column (`str`, *optional*): where the texts stand.
        columns (sequence of `str`, *optional*): the further columns to carry; by default all there are.
        split (`"lines"` or `"paragraphs"`): what a document is in a file of text.
        dataset_config (`str`, *optional*): which configuration of a data set.
        dataset_split (`str`, *optional*): one split, several joined by `+`, or `"all"`.

    Returns:
        `Sources`.

    Raises:
        ValueError: for what cannot be read, or has no such column or split; the file or data set is named.
        TypeError: for a column that does not hold text, or one that shards cannot hold.
        OSError: for a file that is not there.

    Example:
        >>> from pathlib import Path
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "corpus.txt").write_text("I ride\nbike\n")
        ...     sources = open_sources([folder])
        ...     [(task.shard, task.parts[0].payload) for task in sources.tasks(shard_bytes=8)]
        [(0, b'I ride\n'), (1, b'bike\n')]
    """
    checked_format(format)
    if split not in ("lines", "paragraphs"):
        raise ValueError(one_of("split", split, ("lines", "paragraphs")))
    if isinstance(inputs, str | os.PathLike) or not inputs:
        raise ValueError(explain("inputs are a list, with one input at least", got=repr(inputs), fix='["corpus.txt"]'))
    if text_pair_column == text_column:
        got = f"text_column={text_column!r}, text_pair_column={text_pair_column!r}"
        raise ValueError(explain("the texts of a pair stand in two columns", got=got, fix="leave text_pair_column out"))
    if isinstance(columns, str):
        raise TypeError(explain("columns are a list of names", got=repr(columns), fix=f"columns=[{columns!r}]"))
    finder = Finder(
        Reading(text_column, text_pair_column), format, split == "paragraphs", dataset_config, dataset_split
    )
    files = [source for given in inputs for source in finder.sources(given)]
    if (dataset_split or dataset_config) and all(map(_is_file, inputs)):
        got = f"dataset_split={dataset_split!r}, dataset_config={dataset_config!r}, and nothing but files"
        raise ValueError(
            explain("only a folder or a data set has splits and configurations", got=got, fix="leave it out")
        )
    told = [file for file in files if file.kind in _TOLD][:_LOOKED_AT]
    looked_at = [file for file in files if file.kind not in _TOLD or file in told]
    offered = [there for file in looked_at if (there := file.offered()) is not None]
    schema = carried(offered, finder.reading.texts, columns)
    reading = Reading(text_column, text_pair_column, schema)
    return Sources([replace(file, reading=reading) for file in files], schema)


def _is_file(given: object) -> bool:
    return isinstance(given, str | os.PathLike) and Path(given).expanduser().is_file()
