"""Inputs: `datasets` opens them, and they are divided into parts, one for each shard.

Data sets, files of this machine and names on the Hub become one data set, whose parts are slices. Each file at an
address such as `s3://` is a part: its task copies and reads it.
"""

from __future__ import annotations

import copy
import difflib
import glob
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .._common.compat import bytes_of_table
from .._common.errors import bad_data_error, counted, explain, message_of, shorten, type_error, value_error
from .._common.files import is_path, no_such_file

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from datasets import Dataset
    from numpy.typing import NDArray

_BUILDERS = {  # suffixes of files, and the builders of `datasets` that read them
    **{".txt": "text", ".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv"},
    **{".parquet": "parquet", ".arrow": "arrow"},
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
OTHER_ENCODING = 'loading={"encoding": "latin-1"}, if that is the encoding of the file'
_OR_TEXTS = 'check the name and format=; for texts themselves, datasets.Dataset.from_dict({"text": texts})'
_NO_ROWS = "there are no rows in the inputs"
_ROWS, _BYTES = 10_000, 8 << 20  # largest table that is tokenized at once

# The number of the first row of a table, the table, and True for each row that is a line of a text file.
Part: TypeAlias = "tuple[int, pa.Table, NDArray[np.bool_]]"


@dataclass(frozen=True)
class Reading:
    r"""Arguments of `load_dataset` for all inputs.

    Args:
        texts, columns (sequence of `str`): the columns to read; all if `texts` is empty.
        reads_formats (`bool`): True if the columns of texts may be others, found by their names as in the collator.
        format, config, split, num_proc (*optional*): as in `load_dataset`, where `format` is the first argument and
            `config` the second.
        options (mapping): `storage_options`.
        arguments (mapping): further arguments.
    """

    texts: Sequence[str] = ()
    columns: Sequence[str] = ()
    reads_formats: bool = False
    format: str | None = None
    config: str | None = None
    split: str | None = None
    num_proc: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, builder: str, suffix: str = "") -> dict[str, Any]:
        """Return the arguments of `load_dataset` for a builder, with the defaults of this package."""
        settings: dict[str, Any] = {}
        if builder == "csv":  # pandas would read "NA" as a missing value, and "007" as a number
            names = (*self.texts, "prompt", "completion") if self.reads_formats else self.texts
            settings |= {"keep_default_na": False, "converters": dict.fromkeys(names, str)}
            settings |= {"sep": "\t"} if suffix == ".tsv" else {}
        return {**settings, **self.arguments}

    def chosen(self, rows: Any, schema: pa.Schema, builder: str | None) -> Any:
        """Return a table or data set with the columns to read.

        Raise `ValueError` for a column that is missing, and `TypeError` for a text column that does not hold texts.
        """
        import pyarrow as pa

        from ..collator.formats import format_columns  # the command line starts without torch

        if not self.texts:
            return rows
        texts = [column.name for column in schema if str(column.type).endswith(("string", "string_view", "null"))]
        wanted = format_columns(schema.names, tuple(self.texts)) if self.reads_formats else self.texts
        names = [*wanted, *self.columns]
        for name in names:
            if name not in schema.names:
                others, split = {*schema.names}.difference(wanted), name.split(",")
                near = split if others.issuperset(split) else difflib.get_close_matches(name, others, n=1, cutoff=0.0)
                fix = "the name of one of these columns"
                if "input_ids" in schema.names:
                    fix = "rows are tokenized already: encode reads texts"
                elif name in self.columns and near:
                    fix = f"columns={[each for one in self.columns for each in (near if one == name else [one])]}"
                elif builder == "csv" and not all(map(str.isidentifier, schema.names)):  # likely texts
                    numbered = [self.texts[0], *(f"column_{number}" for number in range(1, len(schema.names)))]
                    fix = f"the name of a column; loading={{'column_names': {numbered}}} for a table without a header"
                elif texts and name == wanted[0]:
                    fix = f"text_column={texts[0]!r}"
                raise value_error(f"there is no column {name!r}", got=f"columns {', '.join(schema.names)}", fix=fix)
            kind = schema.field(name).type
            if name in wanted and name not in texts and not pa.types.is_nested(kind):
                raise type_error(
                    f"the column {name!r} must hold texts",
                    got=f"{kind}: `datasets` reads dates as timestamps, and values of several types as JSON",
                    fix="texts in the file, or the data set after dataset.map(...) made texts of its values",
                )
        return rows.select(names) if isinstance(rows, pa.Table) else rows.select_columns(names)


class Slices:
    """Parts of a data set: `count` slices of about equal numbers of rows; `lines` are the ranges of `open_inputs`."""

    def __init__(self, dataset: Dataset, count: int, lines: Sequence[range]) -> None:
        self._rows: Any = dataset.with_format("arrow")
        self._first = 0  # number of the first of these rows
        self._lines = lines
        self._bounds = [len(dataset) * number // count for number in range(count + 1)]

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def size(self, number: int) -> int:
        """Return the number of rows of a part."""
        return self._bounds[number + 1] - self._bounds[number]

    def tables(self, number: int) -> Iterator[Part]:
        """Yield tables of a part, with the number of their first row in the data set, and its lines of text files."""
        start, stop = self._bounds[number : number + 2]
        for first in range(start, stop, _ROWS):
            rows = self._rows[first - self._first : min(first + _ROWS, stop) - self._first]
            yield from _small(first, rows, self._lines)

    def alone(self, number: int) -> Slices:
        """Return a part that can be sent to another machine."""
        import pyarrow as pa

        start, stop = self._bounds[number : number + 2]
        table, sink = self._rows[start:stop], pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        part = copy.copy(self)
        # A copy of these rows: a pickle of ten rows of a table of 10 MB has 10 MB, because it has the whole buffers.
        part._rows, part._first = pa.ipc.open_stream(sink.getvalue()).read_all(), start
        return part


@dataclass(frozen=True)
class RemoteFiles:
    """Parts that are files at addresses; `sizes` are their bytes by name, `None` if not known."""

    reading: Reading
    sizes: Mapping[str, int | None]

    def __len__(self) -> int:
        return len(self.sizes)

    def size(self, number: int) -> int:
        """Return 1: the rows of a file are not known."""
        return 1

    def tables(self, number: int) -> Iterator[Part]:
        """Yield tables of a file, with the number of their first row in the file, and its lines if it has text."""
        import datasets
        import numpy as np
        import pyarrow as pa

        name, first = list(self.sizes)[number], 0
        builder, suffix = _builder_of(name, self.reading.format)
        settings = self.reading.settings(builder, suffix)
        with tempfile.TemporaryDirectory(prefix="hf-posenc-") as folder:
            # A copy of this file: `datasets` 5.2 cannot stream texts from S3, to which it passes their encoding.
            local = str(Path(folder, re.sub(r"[?#].*", "", name.rsplit("/", 1)[-1]) or "file"))
            system, path = file_system(name, self.reading.options)
            with reached(name):
                system.get_file(path, local)
            try:
                stream = datasets.load_dataset(
                    builder, data_files=glob.escape(local), split="train", streaming=True, **settings
                )
                for table in stream.with_format("arrow").iter(batch_size=_ROWS):
                    rows = self.reading.chosen(table, table.schema, builder)
                    yield from _small(first, rows, [range(sys.maxsize)] if builder == "text" else [])
                    first += len(table)
                if not first and self.reading.columns:
                    rule = f"{name} has no rows, which would show the types of the columns to copy"
                    fix = "leave it out of the inputs, or columns=()"
                    raise value_error(rule, got=f"columns={list(self.reading.columns)}", fix=fix)
                if not first:
                    nothing = pa.table({column: pa.array([], pa.string()) for column in self.reading.texts})
                    yield 0, nothing, np.zeros(0, np.bool_)
            except Exception as error:
                if message_of(error) is not None:
                    raise
                raise _unreadable(builder, {local: name}, settings, error) from error

    def alone(self, number: int) -> RemoteFiles:
        """Return the parts, which can be sent to another machine."""
        return self


def _small(first: int, table: pa.Table, lines: Sequence[range]) -> Iterator[Part]:
    """Yield slices of a table of about 8 MiB at most, with the numbers of their first rows, and their lines."""
    import numpy as np  # not at the top: the command line imports this module

    while len(table):
        fits = max(1, len(table) * _BYTES // max(bytes_of_table(table), _BYTES))
        part = table.slice(0, fits)
        is_line = np.zeros(len(part), np.bool_)
        for of_text in lines:
            is_line[max(of_text.start - first, 0) : max(of_text.stop - first, 0)] = True
        yield first, part, is_line
        table, first = table.slice(fits), first + fits


def open_inputs(inputs: Any, reading: Reading) -> tuple[Dataset | RemoteFiles, list[range]]:
    r"""Open the inputs of a job: one data set; or the files at addresses, which their tasks read.

    The second result are the ranges of the rows of a data set that are from text files, which may have blank lines.

    Raises:
        FileNotFoundError: if nothing is found.
        ValueError: if a file cannot be read, with its first bad line; if a column is missing; if a data set has several
            splits; if some inputs are addresses and others are not.
        TypeError: if a text column does not hold texts; for a stream.
    """
    import datasets

    items = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    items = [os.fspath(item).removeprefix("file://") if isinstance(item, str | os.PathLike) else item for item in items]
    addresses = [item for item in items if isinstance(item, str) and "://" in item]
    if addresses:
        if len(addresses) < len(items) or reading.config or reading.split:
            rule = "inputs at addresses are read file by file, without other inputs, config and split"
            fix = "two jobs; or datasets.load_dataset(...), whose result may be an input"
            raise value_error(rule, got=shorten(items), fix=fix)
        listed = [_files_at(item, reading) for item in addresses]
        return RemoteFiles(reading, {name: size for found in listed for name, size in found.items()}), []
    parts, files = [], dict[tuple[str, str], list[str]]()
    for item in items:
        if not isinstance(item, str):
            parts.append(_split_of(item, reading.split))
        elif found := check_path(item) or (_inside(item) if reading.format else []):
            for name in (name for name in found if Path(name).stat().st_size):  # `datasets` reads no empty files
                files.setdefault(_builder_of(name, reading.format), []).append(name)
        else:
            parts.append(_folder_or_name(item, reading))
    for (builder, suffix), names in files.items():
        settings = {**reading.settings(builder, suffix), "split": reading.split or "train"}
        settings["num_proc"] = min(reading.num_proc or 1, len(names)) if len(names) > 1 else None
        parts.append(_loaded(builder, names, settings))
    if not any(map(len, parts)):
        raise bad_data_error(_NO_ROWS, got=shorten(items), fix="check the paths and the split")
    ends = accumulate(len(part) for part in parts)
    is_text = [part.info.builder_name == "text" for part in parts]
    lines = [range(end - len(part), end) for part, end, each in zip(parts, ends, is_text, strict=True) if each]
    parts = [reading.chosen(part, part.features.arrow_schema, part.info.builder_name) for part in parts]
    parts = [part if part.features == parts[0].features else part.cast(parts[0].features) for part in parts]
    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts), lines


def check_path(name: str) -> list[str]:
    """Return the files that a local path or pattern names; none for a folder, an address, and a name on the Hub.

    Raise `FileNotFoundError` if there is no such file.
    """
    path = Path(name).expanduser()
    try:
        if path.is_file():
            return [str(path)]
        if path.is_dir() or "://" in name:
            return []
    except OSError as error:  # a text is too long for a name
        raise FileNotFoundError(explain("an input is no local file", got=shorten(name), fix=_OR_TEXTS)) from error
    found = sorted(file for file in glob.glob(str(path), recursive=True) if Path(file).is_file())  # noqa: PTH207
    if not found and (is_path(name) or _suffix(name) in _BUILDERS or (glob.has_magic(name) and " " not in name)):
        raise FileNotFoundError(no_such_file(name))
    return found


# ------------------------------------------------------------------------------------------------- kinds of inputs


def _inside(folder: str) -> list[str]:
    files = sorted(path for path in Path(folder).expanduser().rglob("*") if path.is_file())
    return [str(path) for path in files if not path.name.startswith((".", "_"))]


def _folder_or_name(item: str, reading: Reading) -> Dataset:
    """Return a data set from a folder, or a name on the Hub."""
    import datasets

    folder = Path(item).expanduser()
    path = str(folder) if folder.is_dir() else item
    names = _inside(path)
    builders = {_BUILDERS[suffix] for name in names if (suffix := _suffix(name)) in _BUILDERS}
    is_saved = (folder / "state.json").exists() or (folder / "dataset_dict.json").exists()
    if len(builders) > 1 and not is_saved and not (folder / "README.md").exists():  # `datasets` would read one format
        fix = f"a pattern for each format: {shlex.quote(f'{item}/**/*.txt')}"
        raise value_error(f"the folder {item} has files of several formats", got=", ".join(sorted(builders)), fix=fix)
    if broken := [name for name in names if "\n" in name]:
        rule = "`datasets` does not find the files of a folder whose paths have a line break"
        raise value_error(rule, got=repr(broken[0]), fix="another name; or the file itself in inputs=[...]")
    try:
        if is_saved:
            return _split_of(datasets.load_from_disk(path), reading.split)
        builder = str(datasets.load_dataset_builder(path, reading.config).info.builder_name)
    except (datasets.exceptions.DatasetsError, OSError, json.JSONDecodeError) as error:
        may_come = isinstance(error, ConnectionError) and not datasets.config.HF_HUB_OFFLINE
        kind = OSError if may_come else FileNotFoundError
        raise kind(explain(f"`datasets` cannot open {item}", got=shorten(str(error)), fix=_OR_TEXTS)) from error
    settings = reading.settings(builder) if builder in _BUILDERS.values() else dict(reading.arguments)
    return _split_of(_loaded(path, None, {**settings, "name": reading.config}), reading.split)


def _split_of(loaded: Any, split: str | None) -> Dataset:
    """Return the rows that a split such as `"train[:10%]+test"` names; raise for several splits without one."""
    import datasets

    splits = loaded if isinstance(loaded, dict) else {str(getattr(loaded, "split", None) or "train"): loaded}
    # A stream has no row numbers, and a transform changes the stored rows when they are read.
    if not all(isinstance(part, datasets.Dataset) and part.format["type"] != "custom" for part in splits.values()):
        rule = "inputs must be paths, addresses, names on the Hub or data sets, without streaming and transforms"
        fix = "datasets.load_dataset(...), datasets.Dataset.from_list(rows) or others; dataset.map(...) for a transform"
        raise type_error(rule, got=shorten(loaded), fix=fix)
    if split is None and len(splits) == 1:
        return next(iter(splits.values()))
    sizes = {name: len(part) for name, part in splits.items()}
    spec = "+".join(sizes) if split == "all" else str(split)
    try:
        rows = datasets.ReadInstruction.from_spec(spec).to_absolute(sizes)
    except ValueError as error:
        got, fix = f"splits {', '.join(sizes)}, split={split!r}", f"split={next(iter(sizes))!r}, or split='all'"
        raise value_error("a data set of several splits is read with the name of one", got=got, fix=fix) from error
    return datasets.concatenate_datasets([splits[part.splitname].select(range(part.from_, part.to)) for part in rows])


def file_system(address: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    import fsspec

    with reached(address):
        return fsspec.core.url_to_fs(address, **options)  # type: ignore[no-any-return]


@contextmanager
def reached(place: str) -> Iterator[None]:
    """Raise `OSError` with an output or an address for an error of its disk, or of any class of its library."""
    try:
        yield
    except Exception as error:
        is_address = "://" in place
        if message_of(error) is not None or not (isinstance(error, OSError) or is_address):
            raise
        got = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        if not is_address:
            got += f"; {counted(len([*Path(place, 'data').glob('*.parquet')]), 'shard')} are written"
        is_file = not is_address and isinstance(error, FileExistsError | NotADirectoryError)
        # ImportError and ValueError are those of a library that is not installed, and of a protocol without one.
        is_wrong = is_file or (is_address and isinstance(error, FileNotFoundError | ImportError | ValueError))
        kind = FileNotFoundError if is_wrong else OSError
        fix = f"check it{', and its library, such as pip install s3fs' * is_address}; the same command continues"
        fix = "another output: it must be a folder, not a file or in one" if is_file else fix
        shown = re.sub(r"(?<=//)[^/@]*@", "", place)  # without a password
        raise kind(explain(f"{shown} cannot be read or written", got=got, fix=fix)) from error


def _files_at(address: str, reading: Reading) -> dict[str, int | None]:
    """Return the files that an address, a pattern or a folder names, with their bytes."""
    if address.startswith("http"):
        return {address: None}
    system, path = file_system(address, reading.options)
    with reached(address):
        is_folder = system.isdir(path)
        found = system.find(path, detail=True) if is_folder else system.glob(path, detail=True)
    files = {name: info["size"] for name, info in sorted(found.items()) if info["type"] == "file"}
    if is_folder and not reading.format:
        files = {name: size for name, size in files.items() if _suffix(name) in _BUILDERS}
    if not files:
        raise FileNotFoundError(explain(f"there is no file at {address}", fix="check the address and storage_options"))
    return {system.unstrip_protocol(name): size for name, size in files.items() if size}


def _suffix(name: str) -> str:
    path = Path(re.sub(r"[?#].*", "", name) if name.startswith("http") else name)
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED else path.suffix


def _builder_of(name: str, format: str | None) -> tuple[str, str]:
    """Return the builder of `datasets` for a file, and the suffix of its name."""
    builder = format or _BUILDERS.get(_suffix(name))
    if builder is None:
        fix = f'format="text", or another: {", ".join(sorted({*_BUILDERS.values()}))}'
        raise value_error(f"the format of {name} is not known", got=f"suffix {_suffix(name)!r}", fix=fix)
    return builder, _suffix(name)


# ---------------------------------------------------------------------------------------------------------- errors


def _loaded(path: str, files: list[str] | None, settings: dict[str, Any]) -> Any:
    """Return `load_dataset`; raise `ValueError` for a file that cannot be read, with the first bad line."""
    import datasets

    try:
        return datasets.load_dataset(path, data_files=files and list(map(glob.escape, files)), **settings)
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, OSError) and cause.errno is not None:
            if cause.filename in (files or ()):
                raise cause from error
            rule = "`datasets` cannot copy the input into its cache"
            got = f"{datasets.config.HF_DATASETS_CACHE}: {cause.strerror}"
            fix = "free space, or HF_DATASETS_CACHE of the environment for another disk; the same command continues"
            raise OSError(explain(rule, got=got, fix=fix)) from error
        raise _unreadable(path, {name: name for name in files or ()}, settings, error) from error


def _unreadable(builder: str, files: Mapping[str, str], settings: Mapping[str, Any], error: Exception) -> ValueError:
    """Return the error for files that `datasets` cannot read: it names the first bad file, and its line if known."""
    import datasets
    import fsspec

    got = f"{type(error).__name__}: {shorten(str(error.__cause__ or error))}"
    refused = value_error("load_dataset refuses its arguments", got=got, fix="check format=, split= and loading=")
    if type(error) in (TypeError, ConnectionError, datasets.exceptions.DatasetNotFoundError):  # no such format
        return refused
    alone, rows = {key: value for key, value in settings.items() if key not in ("num_proc", "split")}, 0
    for path, name in files.items():
        line = ""
        try:
            if builder in ("text", "json", "csv") and "encoding" not in settings:
                with fsspec.open(path, "rb", compression="infer") as file:
                    for number, content in enumerate(file, 1):
                        line = f", line {number}"
                        text = content.decode("utf-8-sig")
                        if builder == "json" and number == 1 and text.startswith("["):  # the whole file is a list
                            break
                        if builder == "json" and text.strip():
                            json.dumps(json.loads(text), ensure_ascii=False).encode()  # raises for half a pair
                line = ""
            found = datasets.load_dataset(builder, data_files=glob.escape(path), streaming=True, **alone)
            rows += sum(len(table) for table in found["train"].with_format("arrow").iter(10_000))
        except Exception as cause:
            line = line if isinstance(cause, ValueError) else ""  # such as the end of a compressed file
            fix = "mend the file"
            if isinstance(cause, UnicodeDecodeError):
                errors = '; loading={"encoding_errors": "replace"} for single wrong bytes'
                fix = OTHER_ENCODING + errors * (builder == "text")  # the others do not read on
            elif builder == "csv":
                fix = 'mend the file; loading={"on_bad_lines": "skip"} leaves lines with other numbers of fields out'
            got = f"{type(cause).__name__}: {shorten(str(cause))}"
            return bad_data_error(f"{name}{line} cannot be read as {builder}", got=got, fix=fix)
    if files and not rows:
        return bad_data_error(_NO_ROWS, got=shorten([*files.values()]), fix="check the paths and the split")
    if type(error) is ValueError:
        return refused
    fix = "mend the file"
    if len(files) > 1:  # with other columns or types
        fix = f"inputs=[load_dataset({builder!r}, data_files=name, split='train') for name in files]"
    return bad_data_error(f"{', '.join(files.values()) or builder} cannot be read together", got=got, fix=fix)
