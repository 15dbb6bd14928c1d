"""Sources: open the inputs of a job, check their columns, and divide them into tasks."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import xxhash

from .._common.errors import option, value_error
from .._common.files import no_such_file
from ..ragged import lock_free_cache
from .columns import Columns, carried_columns, named_columns
from .documents import Part, Source, first_values
from .files import InputFile, StorageOptions, find_files, format_of, recorded_names
from .options import Options
from .shards import Task
from .tables import ArrowFile, DataSet, ParquetFile, from_hub, from_object, from_saved_folder
from .text import DELIMITERS, TextFile

# Kind of a text file for each value of `document`.
_DOCUMENTS = {"line": "lines", "paragraph": "paragraphs", "file": "file"}
# Maximum number of text files whose first lines are read, to find their columns, before the work begins.
_OPENED = 16


@dataclass
class Sources:
    r"""The inputs of a job, as `open_sources` returns them.

    Args:
        sources (sequence of `Source`): the files and data sets, in order.
        columns (`Columns`): the columns to read.
        notes (`list` of `str`): messages to show to the user before the work begins.
    """

    sources: Sequence[Source]
    columns: Columns
    notes: list[str]

    @lock_free_cache
    def size(self) -> int | None:
        """Total number of bytes to read, or an estimate; `None` if it is unknown."""
        sizes = [source.text_bytes(self.columns) for source in self.sources]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def identities(self) -> list[dict[str, Any]]:
        """JSON object for each source, to recognize it in a later run."""
        return [{"name": source.recorded, "kind": source.kind, **source.identity()} for source in self.sources]

    def tasks(self, shard_bytes: int) -> Iterator[Task]:
        """Divide the inputs into tasks: in order, and as many small files in one as fit into `shard_bytes` bytes."""
        number, parts, size = 0, list[Part](), 0
        for source in self.sources:
            for part in source.parts(shard_bytes, self.columns):
                if parts and (part.several or size + part.size > shard_bytes):
                    yield Task(number, tuple(parts))
                    number, parts, size = number + 1, [], 0
                parts.append(part)
                size += part.size
                if part.several:
                    yield Task(number, tuple(parts))
                    number, parts, size = number + 1, [], 0
        if parts:
            yield Task(number, tuple(parts))

    def digests(self, task: Task, shard_bytes: int) -> dict[int, str]:
        """Read a task, and return the digest of the documents of each of its shards, as their records hold it."""
        digests: dict[int, Any] = {0: xxhash.xxh3_128()}
        for part in task.parts:
            for documents in part.source.documents(part, self.columns, shard_bytes):
                for shard in range(len(digests), documents.shard + 1):
                    digests[shard] = xxhash.xxh3_128()
                for buffer in documents.raw:
                    digests[documents.shard].update(buffer)
        return {shard: digest.hexdigest() for shard, digest in digests.items()}

    def slow_notes(self, shard_bytes: int) -> list[str]:
        """Return a message for each input that is most of the work and that one process must read."""
        notes = []
        for source in self.sources:
            if isinstance(source, DataSet) and not source.is_in_files:
                notes.append(
                    f"{source.name} is read by this process alone, because it is a stream or in memory; "
                    "data.save_to_disk(...), or Parquet files, are read by all workers"
                )
            elif isinstance(source, TextFile) and (size := source.text_bytes(self.columns) or 0) > max(
                2 * shard_bytes, (self.size or size) // 2
            ):
                reason = source.compression or (
                    "CSV" if source.kind in DELIMITERS else "" if source.can_seek else "sent whole"
                )
                if reason and source.kind != "file":
                    notes.append(
                        f"{source.shown} is most of the input, and is read by one worker, because it is {reason}; "
                        "several files, or Parquet, are read by all workers"
                    )
        return notes


def open_sources(inputs: Any, options: Options, storage: StorageOptions) -> Sources:
    r"""Find the inputs of a job, check that they have the columns to read, and return them as `Sources`.

    Without `options.format`, the extension of a file, compressed or not, gives its format; a file with an unknown
    extension is read as text, but skipped in a folder. A folder is a data set that `save_to_disk` wrote, or all files
    below it, sorted by name. Columns of text files are checked in at most 16 files, and only in their first lines.

    Args:
        inputs (`str`, `Path`, a data set of `datasets`, or a list of these): files, folders, patterns, addresses, names
            of data sets on the Hub, data sets; an input may be given twice.
        options (`Options`): the columns to read, the formats of files, the splits of data sets.
        storage (mapping): storage options of `fsspec`, for addresses.

    Returns:
        `Sources`.

    Raises:
        ValueError: if a source cannot be read, or lacks a column or split; the message names it.
        TypeError: for a column that does not hold text, or that shards cannot store.
        OSError: for a file that does not exist.
    """
    given_inputs: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
    if not given_inputs:
        raise value_error("inputs must be a list of at least one", got=repr(inputs), fix='["corpus.txt"]')
    sources: list[Any] = []
    notes: list[str] = []
    has_splits = has_config = False
    has_several = sum(not isinstance(item, str | os.PathLike) for item in given_inputs) > 1
    for number, item in enumerate(given_inputs):
        if not isinstance(item, str | os.PathLike):
            sources += from_object(item, options.split, f"inputs[{number}]" if has_several else None)
            has_splits |= isinstance(item, dict)
            continue
        name = os.fspath(item)
        if saved := from_saved_folder(name, options.split):
            sources += saved
            has_splits = True
        elif (matches := find_files(name, every=options.format is not None, options=storage)) is not None:
            sources += [_source(file, options) for file in matches[0]]
            if matches[1]:
                notes.append(_unknown_endings(name, matches[1]))
        elif isinstance(item, os.PathLike):
            raise FileNotFoundError(no_such_file(name))
        else:
            sources += from_hub(name, options.dataset_config, options.split)
            has_splits = has_config = True
    recorded = iter(recorded_names([source.name for source in sources if isinstance(source, InputFile)]))
    sources = [
        replace(source, recorded=next(recorded)) if isinstance(source, InputFile) else source for source in sources
    ]
    paths = Counter(
        source.path.resolve() if source.path else source.name for source in sources if isinstance(source, InputFile)
    )
    if twice := [str(path) for path, number in paths.items() if number > 1]:
        rest = f" and {len(twice) - 3} more" if len(twice) > 3 else ""
        notes.append(f"given more than once, and encoded each time: {', '.join(twice[:3])}{rest}")
    _check_options(sources, options, has_splits=has_splits, has_config=has_config)
    text_files = [id(source) for source in sources if isinstance(source, TextFile) and source.kind not in DELIMITERS]
    is_text = (isinstance(source, TextFile) and source.kind in _DOCUMENTS.values() for source in sources)
    if options.text_column != Options.text_column and all(is_text):
        notes.append(f"text files have no columns: text_column={json.dumps(options.text_column)} names none")
    skipped = set(text_files[_OPENED:])
    opened = [source for source in sources if id(source) not in skipped]
    tables = [
        replace(table, first_values=partial(first_values, source)) if table.typed else table
        for source in opened
        if (table := source.read_columns(options.texts)) is not None
    ]
    carried = carried_columns(tables, options.texts, named_columns(options.columns))
    other_names = dict.fromkeys(name for table in tables for name in table.schema.names if name not in options.texts)
    if other_names and options.columns is None and options.pack is None:
        names = [shlex.quote(name) if name.isprintable() else repr(name) for name in other_names]
        examples = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        flag = option("columns", max(other_names, key=bool), repeatable=True)  # rather not the empty name of an index
        notes.append(f"columns that are not carried: {examples}; {flag} carries one")
    return Sources(sources, Columns(options.texts, carried), notes)


def _check_options(sources: Sequence[Source], options: Options, *, has_splits: bool, has_config: bool) -> None:
    """Raise `ValueError` if an option does not fit the kinds of the inputs."""
    if options.split is not None and not has_splits:
        raise value_error(
            "only a data set has splits",
            got=f"split={options.split!r}, and no input with splits: {', '.join([item.shown for item in sources][:3])}",
            fix="leave split out, and name the files to read",
        )
    if options.dataset_config is not None and not has_config:
        got = f"dataset_config={options.dataset_config!r}, and no input from the Hub"
        raise value_error("only a data set on the Hub has configurations", got=got, fix="leave it out")
    document = options.document
    other_source = next((source for source in sources if source.kind not in _DOCUMENTS.values()), None)
    if document != "line" and other_source is not None:
        raise value_error(
            f"only text files are read by {document}; each row of other files and data sets is a document",
            got=f"document={document!r}, and {other_source.shown} is read as {other_source.kind}",
            fix=f'document="line"; or encode the text files alone; or format="text" if {other_source.shown} is text',
        )


def _source(file: InputFile, options: Options) -> InputFile:
    """Return a file as a `TextFile`, `ParquetFile` or `ArrowFile`."""
    by_ending, compression = format_of(file.name)
    form = options.format or by_ending or "text"
    if form in ("parquet", "arrow") and compression is not None:
        rule = f"{file.shown}: {form} files are compressed inside, and cannot be read from a file compressed again"
        raise value_error(rule, fix="unpack it first: gunzip, zstd -d, bunzip2, unxz")
    kind = {
        "text": _DOCUMENTS[options.document],
        "json": "jsonl",
        "csv": "tsv" if "tsv" in file.name.lower().split(".") else "csv",
    }.get(form, form)
    file_class: type[InputFile] = {"parquet": ParquetFile, "arrow": ArrowFile}.get(form, TextFile)
    return file_class(**{**vars(file), "kind": kind, "compression": compression})


def _unknown_endings(folder: str, names: Sequence[str]) -> str:
    """Return the message for files in a folder that are not read, because their names have unknown extensions."""
    examples = ", ".join(os.path.basename(name) for name in names[:3]) + ", ..." * (len(names) > 3)  # noqa: PTH119
    files = "1 file has" if len(names) == 1 else f"{len(names):,} files have"
    return f"{folder}: {files} an unknown ending and will not be read: {examples}; --format text reads all files"
