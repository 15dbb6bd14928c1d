"""Sources: open the inputs of a job, detect changes in a later run, and cut them into tasks, one for each shard.

Opening reads only names, sizes and first lines. A task depends only on the corpus, its start offset and the limit in
bytes, so a later run can start after any shard and makes the same tasks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._common.errors import value_error
from ..ragged import lock_free_cache
from .data_sets import DataSet, from_hub, from_object, from_saved_folder
from .files import InputFile, changed, find_files, format_of, no_such_file, recorded_names
from .options import Options
from .schema import Columns, carried_columns, named_columns
from .tables import ArrowFile, ParquetFile, TableReader
from .task import Cursor, Part, Task
from .text_files import LONGEST, TextFile, TextReader

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

Source = TextFile | ParquetFile | ArrowFile | DataSet

# Kind of a text file for each value of `document`.
_DOCUMENTS = {"line": "lines", "paragraph": "paragraphs", "file": "file"}
# Maximum number of JSON lines files whose first lines are read, to find their columns, before the work begins.
_OPENED = 16


@dataclass
class Sources:
    r"""The inputs of a job, as `open_sources` returns them, to be cut into tasks.

    A later run can continue the job only if the inputs of its finished shards are unchanged; the inputs after them may
    change. Three values show changes:

    - `fingerprints`: a JSON object for each source, kept in `manifest.json`: name, kind, size, and a digest of the
      head, middle and tail of each file. It holds no times, so equal corpora on two machines give equal manifests.
    - `stamps`: size, inode and times of each file when it was opened, saved beside the manifest; empty for data sets. A
      file with equal stamps is not read again.
    - `Task.digest()`: a digest of the documents of a task, kept in the record of its shard.

    Args:
        files (sequence of `Source`): the sources, in order.
        columns (`Columns`): the columns to read.
        notes (sequence of `str`): messages to show to the user before the work begins.
    """

    files: Sequence[Source]
    columns: Columns
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.stamps = [file.stamp() for file in self.files]

    @property
    def names(self) -> list[str]:
        """Names of the sources, for messages."""
        return [file.name for file in self.files]

    @lock_free_cache
    def size(self) -> int | None:
        """Total number of bytes to read, or an estimate; `None` if it is unknown."""
        sizes = [file.size(self.columns) for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @lock_free_cache
    def recorded(self) -> list[str]:
        """Names of the sources for the output; absolute paths are without the folders that all of them share."""
        return recorded_names(self.names)

    @lock_free_cache
    def fingerprints(self) -> list[dict[str, Any]]:
        """JSON object for each source: name, kind, size and digest, to identify it without timestamps."""
        return [{"name": name, **file.fingerprint()} for file, name in zip(self.files, self.recorded, strict=True)]

    def differences(
        self,
        before: Sequence[Mapping[str, Any]] | None,
        stamps: Sequence[Any] | None,
        shards: Mapping[int, Mapping[str, Any]],
        shard_bytes: int,
        *,
        names: bool = False,
    ) -> list[str]:
        r"""Compare the inputs with those that the finished shards were made from; return messages for the differences.

        Inputs after the last finished shard are not compared, but once the shards hold all inputs, none may be added.
        The other inputs are compared in two steps:

        1. The fingerprint (kind, size and digest) of each source must be the same; there is a message for each that
           differs. The source where the last finished shard ends may differ, because it may have grown.
        2. Without such messages, each source is read again whose fingerprint differs, or whose stamp (size, inode and
           times) changed or is lost. The digest of each of its shards must be the same; the first other one gives a
           message.
        """
        inputs = self.fingerprints
        if before is None:
            before, stamps = inputs, None
        last = max((Cursor(*record["ends"]) for record in shards.values()), default=Cursor())
        if len(self.files) < last.source or (last.source == len(before) != len(self.files)):
            return [f"inputs: {len(before)} before, {len(self.files)} now"]
        found, doubtful = [], set()
        for number, now in enumerate(inputs[: last.source + (last.row > 0)]):
            words, earlier = _difference(before[number], now), before[number].get("name")
            if names and earlier != now["name"]:
                found.append(f"input {number}: {earlier} before, {now['name']} now")
            elif words is not None and number < last.source:
                renamed = f" (before: {earlier})" if earlier != now["name"] else ""
                found.append(f"input {self.files[number].name}{renamed}: {words}")
            elif words is not None or stamps is None or stamps[number] != self.stamps[number]:
                doubtful.add(number)
        if found or not doubtful:
            return found
        sure = {
            shard: Cursor(*record["ends"])
            for shard, record in shards.items()
            if doubtful.isdisjoint(range(record["begins"][0], record["ends"][0] + 1))
        }
        for task in self._cut(shard_bytes, sure, LONGEST) if len(sure) < len(shards) else ():
            record = shards.get(task.shard)
            made = [list(task.begins), list(task.ends), task.digest()]
            if record is not None and made != [list(record["begins"]), list(record["ends"]), record["digest"]]:
                source = min(doubtful.intersection(range(task.begins.source, task.ends.source + 1)), default=0)
                return [f"input {self.files[source].name}: other content in shard {task.shard}"]
            if task.shard == max(shards):
                break
        return []

    def check_unchanged(self, first: int = 0, last: int | None = None) -> None:
        r"""Raise if the size, inode or modification time of a source changed since it was opened."""
        some = slice(first, None if last is None else last + 1)
        for file, before in zip(self.files[some], self.stamps[some], strict=True):
            now = file.stamp()
            if now[:3] != before[:3]:  # links and permissions may change, and ctime with them
                sizes = f"{before[0]} bytes became {now[0]}"
                raise ValueError(changed(file.name, "it was written to or replaced" if now[0] == before[0] else sizes))

    def tasks(
        self, shard_bytes: int, done: Mapping[int, Cursor] | None = None, *, longest: int = LONGEST
    ) -> Iterator[Task]:
        r"""Cut the corpus into tasks of at most `shard_bytes` bytes (but at least one document), one for each shard."""
        some = bool(done)
        for task in self._cut(shard_bytes, done or {}, longest):
            some = some or not all(part.payload.isspace() for part in task.parts)
            yield task
        if not some:
            raise value_error(
                "there are no documents in the inputs",
                got=f"{len(self.files)} files without one: {', '.join(self.names[:3])}",
                fix="check the paths, and the format: format='text', 'json', ...",
            )

    def _cut(self, shard_bytes: int, done: Mapping[int, Cursor], longest: int) -> Iterator[Task]:
        """Cut the sources into tasks, one for each shard, and yield the tasks of shards that are not in `done`."""
        ends, opened = Cursor(), -1
        reader: TextReader | TableReader
        with ExitStack() as stack:
            for shard in count():
                if shard in done:
                    ends = Cursor(*done[shard])
                    continue
                begins, size = ends, 0
                parts: list[Part] = []
                while ends.source < len(self.files) and size < shard_bytes:
                    if opened != ends.source:
                        stack.close()
                        file, opened = self.files[ends.source], ends.source
                        if isinstance(file, TextFile):
                            reader = TextReader(file, longest)
                        else:
                            reader = TableReader(file, self.columns, longest)
                        stack.enter_context(closing(reader))
                    reader.seek(ends.offset, ends.row)
                    part = reader.take(shard_bytes - size, must=not parts)
                    if part is not None:
                        parts.append(replace(part, recorded=self.recorded[ends.source]))
                        size += part.size
                    if reader.ended():
                        ends = Cursor(ends.source + 1)
                    elif part is not None:
                        ends = Cursor(ends.source, reader.offset, reader.row)
                    else:
                        break
                if not parts:
                    return
                yield Task(shard, tuple(parts), begins, ends)


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return a description of the difference between two fingerprints of a source; `None` if there is none."""
    if before.get("kind") != now["kind"]:
        return f"read as {before.get('kind')} before, as {now['kind']} now"
    keys = [key for key in {**before, **now} if key != "name" and before.get(key) != now.get(key)]
    if "size" in keys:
        return f"{before.get('size')} bytes became {now['size']}"
    if keys == ["digest"]:
        return f"{now['size']} bytes, other content"
    return ", ".join(f"{key} {before.get(key)} before, {now.get(key)} now" for key in keys) or None


def open_sources(
    inputs: str | Path | Dataset | IterableDataset | Sequence[str | Path | Dataset | IterableDataset], options: Options
) -> Sources:
    r"""Find the inputs of a job, check that they have the columns to read, and return them as `Sources`.

    Without `options.format`, the extension of a file, compressed or not, gives its format; a file with an unknown
    extension is read as text, but skipped in a folder. A folder is a data set that `save_to_disk` wrote, or all files
    below it, sorted by name. Columns of JSON lines are checked in at most 16 files, and only in their first lines.

    Args:
        inputs (`str`, `Path`, `Dataset`, `IterableDataset`, or a list of these): files, folders, patterns, URLs, names
            of data sets on the Hub, data sets; an input may be given twice.
        options (`Options`): the columns to read, the formats of files, the splits of data sets.

    Returns:
        `Sources`.

    Raises:
        ValueError: if a source cannot be read, or lacks a column or split; the message names it.
        TypeError: for a column that does not hold text, or that shards cannot store.
        OSError: for a file that does not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "corpus.txt").write_text("I ride\nbike\n")
        ...     sources = open_sources(folder, Options())
        ...     [(task.shard, task.parts[0].payload) for task in sources.tasks(shard_bytes=8)]
        [(0, b'I ride\n'), (1, b'bike\n')]
    """
    given_inputs: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
    if not given_inputs:
        raise value_error("inputs must be a list of at least one", got=repr(inputs), fix='["corpus.txt"]')
    sources: list[Source] = []
    notes: list[str] = []
    has_splits = has_config = False
    has_several = sum(not isinstance(given, str | os.PathLike) for given in given_inputs) > 1
    for number, given in enumerate(given_inputs):
        if not isinstance(given, str | os.PathLike):
            sources += from_object(given, options.split, f"inputs[{number}]" if has_several else None)
            has_splits |= isinstance(given, dict)
            continue
        name = os.fspath(given)
        if arrow_files := from_saved_folder(name, options.split):
            sources += arrow_files
            has_splits = True
        elif (found := find_files(name, every=options.format is not None)) is not None:
            sources += [_source(one, options) for one in found[0]]
            if found[1]:
                notes.append(_unknown_endings(name, found[1]))
        elif isinstance(given, os.PathLike):
            raise FileNotFoundError(no_such_file(name))
        else:
            sources += from_hub(name, options.dataset_config, options.split)
            has_splits = has_config = True
    paths = Counter(one.path.resolve() if one.path else one.name for one in sources if isinstance(one, InputFile))
    if twice := [str(path) for path, number in paths.items() if number > 1]:
        more = f" and {len(twice) - 3} more" if len(twice) > 3 else ""
        notes.append(f"given more than once, and encoded each time: {', '.join(twice[:3])}{more}")
    if options.split is not None and not has_splits:
        raise value_error(
            "only a data set has splits",
            got=f"split={options.split!r}, and no input with splits: {', '.join([one.name for one in sources][:3])}",
            fix="leave split out, and name the files to read",
        )
    if options.dataset_config is not None and not has_config:
        got = f"dataset_config={options.dataset_config!r}, and no input from the Hub"
        raise value_error("only a data set on the Hub has configurations", got=got, fix="leave it out")
    document, other = options.document, next((one for one in sources if one.kind not in _DOCUMENTS.values()), None)
    if document != "line" and other is not None:
        raise value_error(
            f"only text files are read by {document}; each row of other files and data sets is a document",
            got=f"document={document!r}, and {other.name} is read as {other.kind}",
            fix=f'document="line"; or encode the text files alone; or format="text" if {other.name} is text',
        )
    json_lines = [source for source in sources if source.kind == "jsonl"]
    opened = [source for source in sources if source.kind != "jsonl" or source in json_lines[:_OPENED]]
    known = [one for source in opened if (one := source.read_columns(options.texts)) is not None]
    carried = carried_columns(known, options.texts, named_columns(options.columns))
    others = dict.fromkeys(name for one in known for name in one.schema.names if name not in options.texts)
    if others and options.columns is None and options.pack is None:
        first, some = next(iter(others)), ", ".join([*others][:5]) + ", ..." * (len(others) > 5)
        notes.append(f"columns that are not carried: {some}; columns=[{first!r}] (--column {first}) carries one")
    return Sources(sources, Columns(options.texts, carried), notes)


def _source(name: str, options: Options) -> Source:
    """Return the file `name` as a `TextFile`, `ParquetFile` or `ArrowFile`."""
    by_ending, compression = format_of(name)
    kind = options.format or by_ending or "text"
    if kind == "text":
        return TextFile(name, _DOCUMENTS[options.document], compression)
    if kind == "json":
        return TextFile(name, "jsonl", compression)
    if kind == "csv":
        return TextFile(name, "tsv" if "tsv" in name.lower().split(".") else "csv", compression)
    if compression is not None:
        rule = f"{name}: {kind} files are compressed inside, and cannot be read from a file that is compressed again"
        raise value_error(rule, fix="unpack it first: gunzip, zstd -d, bunzip2, unxz")
    return ParquetFile(name, kind) if kind == "parquet" else ArrowFile(name, kind)


def _unknown_endings(folder: str, names: Sequence[str]) -> str:
    """Return the message for files in a folder that are not read, because their names have unknown extensions."""
    some = ", ".join(os.path.basename(name) for name in names[:3]) + ", ..." * (len(names) > 3)  # noqa: PTH119
    files = "1 file has" if len(names) == 1 else f"{len(names):,} files have"
    return f"{folder}: {files} an unknown ending and will not be read: {some}; --format text reads all files"
